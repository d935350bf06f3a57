"""Shapes drawn at random for tools/measure_gemm.py: products that no table was fitted to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}  # of an element
_MOST_BYTES = 1 << 30  # of the three matrices
_MOST_WORK = {"bfloat16": 6e12, "float16": 6e12, "float32": 6e11, "float64": 6e11}
LAYOUTS = ("NN", "NT", "TN")


@dataclass(frozen=True)
class Shape:
    """Product of (m, k) and (k, n), with its layout as in BLAS and its type."""

    m: int
    k: int
    n: int
    layout: str
    dtype: str

    @property
    def ragged(self) -> bool:
        """Whether a row of a factor does not end at a multiple of 16 bytes."""
        size = _BYTES[self.dtype]
        widths = (self.m if self.layout[0] == "T" else self.k, self.n, self.k)
        return any(w * size % 16 for w in (widths[0], widths[2 if self.layout[1] == "T" else 1]))


def draw(count: int, seed: int, dtypes: tuple[str, ...]) -> Iterator[Shape]:
    """Draw shapes: rows of 1 to 8192, k and n of 64 to 32768, log-uniformly.

    A third of the k and n are multiples of 128, a third of 8, a third of nothing.
    """
    rng = np.random.default_rng(seed)
    made = 0
    while made < count:
        dtype, layout = dtypes[made % len(dtypes)], LAYOUTS[int(rng.integers(3))]
        m = round(math.exp(rng.uniform(0, math.log(8192))))
        unit = (128, 8, 1)[int(rng.integers(3))]
        k, n = (
            max(64, round(math.exp(rng.uniform(math.log(64), math.log(32768))) / unit) * unit)
            for _ in range(2)
        )
        size = _BYTES[dtype]
        if (m * k + k * n + m * n) * size > _MOST_BYTES or 2 * m * k * n > _MOST_WORK[dtype]:
            continue
        made += 1
        yield Shape(m, k, n, layout, dtype)


def draw_few(count: int, seed: int, dtypes: tuple[str, ...]) -> Iterator[Shape]:
    """Draw products of few results: 1 to 64 rows, at most 60,000 results, 64 to 20,000 terms.

    NN and NT; two fifths have odd k and n, the others multiples of 8.
    """
    rng = np.random.default_rng(seed)
    made = 0
    while made < count:
        dtype, layout = dtypes[made % len(dtypes)], LAYOUTS[int(rng.integers(2))]
        odd = rng.random() < 0.4
        m, n, k = (
            round(math.exp(rng.uniform(math.log(low), math.log(high))))
            for low, high in ((1, 64), (64, 4096), (64, 20000))
        )
        n, k = (x | 1 if odd else -(-x // 8) * 8 for x in (n, k))
        size = _BYTES[dtype]
        if k * n * size > 60e6 or m * n > 60000:
            continue
        made += 1
        yield Shape(m, k, n, layout, dtype)


def measure(bench: Any, shapes: list[Shape], out: Path | None = None) -> None:
    """Time every shape beside cuBLAS; print the table, the means and the worst cells."""
    rows = []
    for s in shapes:
        dtype = getattr(bench.torch, s.dtype)
        library, ours, least = bench.product(s.m, s.k, s.n, s.layout, dtype)
        rows.append((library / ours, ours / least, library, ours, s))
        if out is not None:
            keep = [{**asdict(r[-1]), "library": r[2], "ours": r[3]} for r in rows]
            out.write_text(json.dumps(keep))
    for ratio, over, library, ours, s in sorted(rows, key=lambda r: r[0]):
        text = f"{s.dtype:8s} {s.layout} {s.m:5d} {s.k:5d} {s.n:5d}"
        print(f"{text} {library:9.1f} {ours:9.1f} {ratio:6.2f} {over:6.2f}", flush=True)
    for dtype in sorted({s.dtype for s in shapes}):
        for name, keep in (("all", None), ("aligned", False), ("ragged", True)):
            found = [r[0] for r in rows if r[-1].dtype == dtype and keep in (None, r[-1].ragged)]
            if found:
                mean, low = float(np.exp(np.mean(np.log(found)))), sum(r < 0.9 for r in found)
                print(
                    f"{dtype:8s} {name:8s} geometric mean {mean:.3f}, least {min(found):.3f}, "
                    f"{low} of {len(found)} below .90"
                )
