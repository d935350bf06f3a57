"""Rates from measured times of tiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from rpukit.tiled import ops
from rpukit.tiled.rates import Rate

__all__ = ["Sample", "line", "product", "rates"]


class Sample(NamedTuple):
    """Time of a tile: its op, its points (multiply-adds or elements), nanoseconds."""

    op: str
    points: int
    time: float


def line(op: str, samples: Iterable[tuple[int, float]]) -> Rate:
    """Make the rate of an op from times by points.

    Parameters
    ----------
    op : str
    samples : iterable of (int, float)
        Points of a tile and nanoseconds; the median counts where points repeat.

    Returns
    -------
    Rate
    """
    by_points = defaultdict(list)
    for points, time in samples:
        by_points[max(1, points)].append(time)
    sizes = sorted(by_points)
    times: list[float] = []
    for points in sizes:  # more work never takes less time
        times.append(max(median(by_points[points]), times[-1] if times else 0.0))
    launch = times[0]
    if len(sizes) > 1:
        slope = (times[1] - times[0]) / (sizes[1] - sizes[0])
        launch = max(0.0, times[0] - slope * sizes[0])
    return Rate(op, round(launch), tuple(sizes), tuple(round(t - launch) for t in times))


def product(
    op: str,
    launch: float,
    rows: Sequence[int],
    columns: Sequence[int],
    times: Mapping[tuple[int, int, int], float],
    depths: tuple[int, int],
) -> Rate:
    """Fit the rate of a product to times by rows, columns and depth.

    Parameters
    ----------
    op : str
    launch : float
        Nanoseconds of the smallest product.
    rows, columns : sequence of int
    times : mapping of (int, int, int) to float
        Nanoseconds for each pair and each depth.
    depths : (int, int)
        Lengths of the sums, the shorter one first.

    Returns
    -------
    Rate
    """
    found: dict[tuple[int, int], tuple[float, float]] = {}
    short, long = depths
    for i, m in enumerate(rows):
        for j, n in enumerate(columns):  # a product contains all smaller ones
            less = [found[at] for at in ((i - 1, j), (i, j - 1)) if at in found]
            whole = max([times[m, n, long] - launch, *(sum(one) for one in less)])
            step = (times[m, n, long] - times[m, n, short]) / (long - short)
            sums = min(whole, max([0.0, step * long, *(one[0] for one in less)]))
            found[i, j] = sums, whole - sums
    cycles = tuple(max(1, round(time)) for time, _ in found.values())
    ends = tuple(max(0, round(time)) for _, time in found.values())
    return Rate(op, round(launch), tuple(rows), cycles, tuple(columns), long, ends)


def rates(samples: Iterable[Sample], measured: Collection[Rate]) -> tuple[Rate, ...]:
    """Make the rates of all ops: measured ones, and for others those of the same kernel.

    Parameters
    ----------
    samples : iterable of Sample
    measured : collection of Rate
        Of products, by rows and columns.

    Returns
    -------
    tuple of Rate
        Sorted by op.
    """
    by_op: dict[str, list[tuple[int, float]]] = defaultdict(list)
    by_kernel: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for op, points, time in samples:
        by_op[op].append((points, time))
        by_kernel[_kernel(op)].append((points, time))
    found = {rate.op: rate for rate in measured}
    for op, own in by_op.items():
        found.setdefault(op, line(op, own))
    for name, op_ in ops.OPS.items():
        if isinstance(op_, ops.Tiled) and by_kernel.get(op_.kernel):
            found.setdefault(name, line(name, by_kernel[op_.kernel]))
    return tuple(found[name] for name in sorted(found))


def _kernel(op: str) -> str:
    name = op.removesuffix(" stack")
    return "" if name != op else str(getattr(ops.find(name), "kernel", ""))
