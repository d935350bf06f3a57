"""Circuits drawn at random for tools/measure_circuits.py, which no table was fitted to."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rpukit as rk

_MOST_EDGES = 2e7
_MOST_WORK = 1e12  # fp32 operations of a step
_MOST_BYTES = 4e9  # of values and flows
LATENCY = 2.0  # microseconds from one launch of a graph to the next that needs its result
STRUCTURES = ("hmm", "free_hmm", "hclt", "rat_spn", "pd", "mixture")


@dataclass(frozen=True)
class Drawn:
    """A structure with its nodes of a vector, variables, values of one, and samples of a batch."""

    structure: str
    n_nodes: int
    n_variables: int
    n_values: int
    batch: int

    def root(self) -> rk.circuits.Nodes:
        """Build the structure."""
        leaf = rk.circuits.Categorical(n_values=self.n_values)
        k, n = self.n_nodes, self.n_variables
        if self.structure in ("hmm", "free_hmm"):
            tied = self.structure == "hmm"
            return rk.circuits.hmm(n, k, leaf=leaf, homogeneous=tied)
        if self.structure == "hclt":
            x = np.random.default_rng(n).integers(0, self.n_values, (200, n))
            return rk.circuits.hclt(x, k, leaf, n_bins=4)
        if self.structure == "rat_spn":
            return rk.circuits.rat_spn(n, k, leaf, n_repetitions=1 + n % 2)
        if self.structure == "pd":
            side = max(2, math.isqrt(n))
            return rk.circuits.pd((side, side), k, leaf, n_splits=3)
        return rk.circuits.mixture(n, k, leaf)

    def columns(self) -> int:
        """Variables that the structure has: of an image a whole square."""
        square = max(2, math.isqrt(self.n_variables)) ** 2
        return square if self.structure == "pd" else self.n_variables


def _log_uniform(rng: np.random.Generator, low: int, high: int, unit: int = 1) -> int:
    drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
    return max(unit, round(drawn / unit) * unit)


def draw(seed: int) -> Iterator[Drawn]:
    """Draw circuits: 16 to 1024 nodes, 4 to 256 variables, batches of 1 to 512, log-uniformly.

    A third of the numbers of nodes are multiples of 32, a third of 8, a third of nothing.
    """
    rng = np.random.default_rng(seed)
    while True:
        name = STRUCTURES[int(rng.integers(len(STRUCTURES)))]
        unit = (32, 8, 1)[int(rng.integers(3))]
        k, n = _log_uniform(rng, 16, 1024, unit), _log_uniform(rng, 4, 256)
        if name == "pd":
            n = min(n, 64)
        n_values, batch = _log_uniform(rng, 2, 1000), _log_uniform(rng, 1, 512)
        vectors = n * (4 if name == "pd" else 2)
        edges = k * k * vectors * (name != "mixture")
        if edges > _MOST_EDGES or 6.0 * edges * batch > _MOST_WORK:
            continue
        if 20.0 * vectors * k * batch > _MOST_BYTES or k * n * n_values > 5e7:
            continue
        yield Drawn(name, k, n, n_values, batch)


def measure(
    time: Callable[[rk.Circuit, np.ndarray], float],
    floor: Callable[[rk.Circuit, int], float],
    count: int,
    seed: int,
    precision: str,
    out: Path | None = None,
) -> None:
    """Time a step of each circuit; print it beside its floor, and the means.

    The floor is that of bytes and operations, or `LATENCY` for each layer up and down.
    """
    rows: list[dict[str, Any]] = []
    circuits = draw(seed)
    for _ in range(count):
        one = next(circuits)
        pc = rk.Circuit(one.root(), device="gpu", precision=precision)
        x = np.random.default_rng(0).integers(0, one.n_values, (one.batch, one.columns()))
        n_layer = len(pc.layout.layers)
        taken, least = time(pc, x), max(floor(pc, one.batch), 2 * LATENCY * n_layer)
        found = {"edges": pc.n_edges, "layers": n_layer, "us": taken, "floor": least}
        rows.append(asdict(one) | found)
        if out is not None:
            out.write_text(json.dumps(rows))
    names = f"{'nodes':>6}{'vars':>6}{'values':>7}{'batch':>6}{'layers':>7}"
    print(f"{'':9}{names}{'us':>9}{'over floor':>11}")
    for r in sorted(rows, key=lambda r: -r["us"] / r["floor"]):
        sizes = f"{r['n_nodes']:6}{r['n_variables']:6}{r['n_values']:7}{r['batch']:6}"
        found = f"{r['layers']:7}{r['us']:9.0f}{r['us'] / r['floor']:11.1f}"
        print(f"{r['structure']:9}{sizes}{found}", flush=True)
    ratios = np.array([r["us"] / r["floor"] for r in rows])
    mean = np.exp(np.log(ratios).mean())
    print(f"geometric mean over floor {mean:.2f}, worst {ratios.max():.2f}")
