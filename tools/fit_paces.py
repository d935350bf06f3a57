"""Fit the times of tiles, by which one is chosen, to what tools/scan_tiles.py measured.

python tools/fit_paces.py scan.json [more.json ...]      (no GPU)

It prints what to write into `real_paces.py` and `tensor_paces.py` of `rpukit/gemm/_tiles`, the
error of each tile's estimates before and after, and how much slower than the fastest way the
chosen one is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import random_products
import scan_tiles

from rpukit.gemm._tiles import (
    real_choice,
    real_paces,
    tensor_choice,
    tensor_paces,
    tensor_tiles,
)

_N_MULTI = 132
_FAR = 1.5  # times of the fastest: a way beyond counts a third
_LEAST = 8  # times of a tile, to fit it
_KEEP = 0.3  # how strongly a parameter stays what it was
_OTHERS = ("library", "ours", "floor")


class Time(NamedTuple):
    """Measured time of a way to make a product, beside that of the fastest way."""

    shape: random_products.Shape
    name: str
    microseconds: float
    over_best: float


def times_of(paths: list[Path]) -> list[Time]:
    """Read files of times."""
    found = []
    for row in (row for path in paths for row in json.loads(path.read_text())):
        shape = random_products.Shape(*(row[x] for x in ("m", "k", "n", "layout", "dtype")))
        ways = {x: v for x, v in row["times"].items() if x not in _OTHERS}
        best = min(ways.values(), default=0.0)
        found += [Time(shape, name, v, v / best) for name, v in ways.items()]
    return found


def real_estimate(time: Time) -> float:
    """Estimated time of a way in float32 or float64."""
    problem = scan_tiles.problem_of(time.shape)
    way = scan_tiles.real_way(time.name, problem.size)
    return real_paces.microseconds(way.tile, way.split, problem, _N_MULTI)


def thin_estimate(time: Time) -> float:
    """Estimated time of a tile whose warps copy."""
    s = time.shape
    along = s.layout[0] == "T", s.layout[1] == "N"
    tile: Any = tensor_tiles.named(time.name)
    begins = scan_tiles.vectors_of(s)
    return tensor_paces.warp_microseconds(tile, s.m, s.n, s.k, begins, along, _N_MULTI)


def errors(times: list[Time], estimate: Callable[[Time], float]) -> list[float]:
    """Logarithms of estimates over times, those of slow ways weighted less."""
    return [
        float(np.log(estimate(x) / x.microseconds)) / (1 if x.over_best < _FAR else 3)
        for x in times
    ]


def fitted(
    begin: list[float], times: list[Time], estimate: Callable[[Time], float], put: Any
) -> list[float]:
    """Parameters that `put` sets, of the least errors, near to what they were."""
    old = np.array(begin)
    scale = np.maximum(np.abs(old), 2e-3)

    def residuals(x: Any) -> Any:
        put(list(x))
        return np.append(errors(times, estimate), _KEEP * (x - old) / np.maximum(scale, 0.1))

    low = np.where(old > 0, old / 4, -0.4)
    high = np.maximum(old * 4, 0.9 * (scale < 1))
    made = least_squares(
        residuals,
        old,
        x_scale=scale,
        loss="soft_l1",
        f_scale=0.1,
        bounds=(np.minimum(low, old - 1e-6), np.maximum(high, old + 1e-6)),
    )
    rounded = [float(f"{x:.3g}") for x in made.x]
    put(rounded)
    return rounded


def fit_real(times: list[Time]) -> None:
    """Fit each tile of float32 and float64 by itself."""
    for dtype, paces in (("float32", real_paces._PACES), ("float64", real_paces._DOUBLE_PACES)):
        for tile in sorted(paces):
            mine = [
                x for x in times if x.shape.dtype == dtype and x.name.rsplit(" / ", 1)[0] == tile
            ]
            if len(mine) < _LEAST:
                continue
            before = np.std(errors(mine, real_estimate))

            def put(x: list[float], tile: str = tile, paces: Any = paces) -> None:
                paces[tile] = real_paces.Pace(*x)

            made = fitted(list(paces[tile]), mine, real_estimate, put)
            after = np.std(errors(mine, real_estimate))
            text = ", ".join(map(str, made))
            print(f'    "{tile}": Pace({text}),  # {dtype}, {len(mine)}: {before:.2f} {after:.2f}')


def fit_thin(times: list[Time]) -> None:
    """Fit all thin tiles together."""
    old = tensor_paces._BY_COPIERS
    mine = [x for x in times if x.name.startswith("thin")]
    if len(mine) < _LEAST:
        return
    names = sorted(old.chains)
    begin = [old.start, old.block, old.other, old.result, old.through]
    begin += [pace[n] for pace in (old.copy, old.crowded) for n in (8, 2, 1)]
    begin += [old.chains[n] for n in names]

    def put(x: list[float]) -> None:
        copy, crowded = ({8: y[0], 4: y[1], 2: y[1], 1: y[2]} for y in (x[5:8], x[8:11]))
        chains = dict(zip(names, x[11:], strict=True))
        tensor_paces._BY_COPIERS = tensor_paces.Paces(
            *x[:4], copy, crowded, x[4], old.memory, chains
        )

    before = np.std(errors(mine, thin_estimate))
    fitted(begin, mine, thin_estimate, put)
    after = np.std(errors(mine, thin_estimate))
    print(tensor_paces._BY_COPIERS, f"# {len(mine)}: {before:.2f} {after:.2f}", sep="\n")


def report(times: list[Time], estimate: Callable[[Time], float], word: str) -> None:
    """Print how much slower than the fastest way those are that the estimates choose."""
    first, tried = [], []
    for shape in dict.fromkeys(x.shape for x in times):
        size = scan_tiles._WIDE.get(shape.dtype)
        near = real_choice._NEAR[size] if size else tensor_choice._NEAR
        alikes = real_choice._ALIKE if size else tensor_choice._ALIKE
        ways = sorted((x for x in times if x.shape == shape), key=estimate)
        chosen: list[Time] = []
        for way in ways:
            alike = sum(way.name.split(" /")[0] == x.name.split(" /")[0] for x in chosen)
            if alike < alikes and len(chosen) < near:
                chosen.append(way)
        best = min(x.microseconds for x in ways)
        first.append(ways[0].microseconds / best)
        tried.append(min(x.microseconds for x in chosen) / best)
    if first:
        means = [float(np.exp(np.log(x).mean())) for x in (first, tried)]
        print(
            f"{word}: first way {means[0]:.3f} of the fastest (worst {max(first):.2f}), best of "
            f"those that a trial times {means[1]:.3f} ({max(tried):.2f}), {len(first)} products"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    times = times_of(parser.parse_args().files)
    real = [x for x in times if x.shape.dtype in ("float32", "float64")]
    real = [x for x in real if " segments" not in x.name and "=" not in x.name]  # usual tiles
    thin = [x for x in times if x.name.startswith("thin")]
    for mine, estimate, fit in ((real, real_estimate, fit_real), (thin, thin_estimate, fit_thin)):
        report(mine, estimate, "before")
        fit(mine)
        report(mine, estimate, "after")
    return 0


if __name__ == "__main__":
    sys.exit(main())
