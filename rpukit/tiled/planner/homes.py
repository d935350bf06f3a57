"""Promotion of values to the second level: a knapsack over time.

Exact by CP-SAT where OR-tools is installed, else the best of three greedy orders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from rpukit._checks import Real, Whole, integer, takes
from rpukit.tiled.machine import Hierarchy
from rpukit.tiled.planner.addresses import Block, check_spans, pack, peak
from rpukit.tiled.planner.lifetimes import Lifetimes

__all__ = ["Candidate", "promote", "promoted"]


class Candidate(NamedTuple):
    """A tensor that may be promoted to the faster memory.

    Parameters
    ----------
    name : str
    lower, upper : int
        It lives during the steps ``lower <= step < upper``.
    size : int
        Bytes.
    accesses : int
        How often it would cross the slow link.
    """

    name: str
    lower: int
    upper: int
    size: int
    accesses: int

    @property
    def saved(self) -> int:
        """Bytes that no longer cross the slow link."""
        return self.size * self.accesses


# Shares of the second level that are left free, and most steps for which they are tried
_RESERVES = (1 / 8, 1 / 2, 1 / 5, 1 / 3, 3 / 7)
_MOST_STEPS = 120
_FEW = 100  # candidates that are packed with all effort, and dropped one by one
_ORDERS: tuple[Callable[[Candidate], Any], ...] = (
    lambda c: -c.accesses / (c.upper - c.lower),
    lambda c: -c.saved,
    lambda c: -c.size,
)


@takes(budget=Whole(0, 1 << 62), align=Whole(1), effort=Real(0, 1e6))
def promote(
    candidates: Sequence[Candidate], budget: int, *, align: int = 4, effort: float = 4.0
) -> dict[str, int]:
    """Choose the tensors whose promotion saves most bytes, and place them.

    Parameters
    ----------
    candidates : sequence of Candidate
    budget : int
        Bytes of the faster memory.
    align : int
        Sizes are rounded up to a multiple of it.
    effort : float
        Limit of CP-SAT's deterministic time, in seconds; 0 leaves it out.

    Returns
    -------
    dict of str to int
        Address of each chosen tensor, all below `budget`.

    Examples
    --------
    >>> from rpukit.tiled import Candidate, promote
    >>> whole, early = Candidate("a", 0, 4, 8, 2), Candidate("b", 0, 2, 8, 3)
    >>> promote([whole, early, Candidate("c", 2, 4, 8, 1)], 8)
    {'b': 0, 'c': 0}
    """
    check_spans(candidates, "candidates")
    integer(align, "align", low=1, high=1 << 48, what="bytes")
    n_step = max((c.upper for c in candidates), default=0)
    found = [_greedy(candidates, budget, align, order, n_step) for order in _ORDERS]
    best = max(found, key=_saved)
    if effort and len(best) < len(candidates):
        best = max(best, _exact(candidates, budget, align, best, effort), key=_saved)
    while best:
        blocks, n = [Block(*c[:4]) for c in best], len(best)
        # Packing takes time proportional to n squared, and each failure needs another packing
        rounds = 300 * _FEW**2 // max(n, _FEW) ** 2
        offsets = pack(blocks, align=align, limit=budget, rounds=rounds, effort=effort / 4)
        if peak(blocks, offsets) <= budget:
            return offsets
        best = sorted(best, key=lambda c: c.saved / (c.upper - c.lower))[max(1, n // _FEW) :]
        effort = effort if n <= _FEW else 0.0
    return {}


def _saved(chosen: Sequence[Candidate]) -> int:
    return sum(c.saved for c in chosen)


def _greedy(
    candidates: Sequence[Candidate],
    budget: int,
    align: int,
    order: Callable[[Candidate], Any],
    n_step: int,
) -> list[Candidate]:
    live = np.zeros(n_step, np.int64)
    chosen = []
    for c in sorted(candidates, key=order):
        size = -(-c.size // align) * align
        if live[c.lower : c.upper].max(initial=0) + size <= budget:
            live[c.lower : c.upper] += size
            chosen.append(c)
    return chosen


def _exact(
    candidates: Sequence[Candidate],
    budget: int,
    align: int,
    start: Sequence[Candidate],
    effort: float,
) -> list[Candidate]:
    """Solve the knapsack over time; without OR-tools, return the start."""
    try:
        cp = import_module("ortools.sat.python.cp_model")
    except ImportError:
        return list(start)
    model = cp.CpModel()
    take = [model.new_bool_var("") for _ in candidates]
    for variable, candidate in zip(take, candidates, strict=True):
        model.add_hint(variable, candidate in start)
    for step in sorted({c.lower for c in candidates}):  # the live sum grows only there
        live = [(x, c) for x, c in zip(take, candidates, strict=True) if c.lower <= step < c.upper]
        model.add(sum(x * -(-c.size // align) for x, c in live) <= budget // align)
    model.maximize(sum(x * c.saved for x, c in zip(take, candidates, strict=True)))
    solver = cp.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = effort
    if solver.solve(model) not in (cp.OPTIMAL, cp.FEASIBLE):
        return list(start)
    return [c for x, c in zip(take, candidates, strict=True) if solver.value(x)]


def promoted(lifetimes: Lifetimes, levels: Hierarchy) -> list[dict[str, int]]:
    """Make alternative choices of the values that live in the second level permanently.

    They differ in the bytes of the level that are left for tiles and for prefetched values. The
    first share grows with the inner level, which may be too much. The best share depends on the
    graph, so a graph of few steps is planned with several shares and the fastest plan is kept.

    Parameters
    ----------
    lifetimes : Lifetimes
    levels : Hierarchy
        Of three levels or more.

    Returns
    -------
    list of dict of str to int
        Addresses of the values; each choice once.
    """
    level = levels[1]
    able = [v for v in lifetimes.values.values() if v.uses and v.given == v.wanted]
    able = [v for v in able if v.lasting or not v.given]
    candidates = [
        Candidate(v.name, v.lower, v.upper, v.bytes, sum(1 + (m == "inout") for _, m in v.uses))
        for v in able
    ]
    size, inner = level.bytes, levels[2].bytes
    reserves = [max(size // 8, min(size // 2, 2 * inner), min(size // 5, 3 * inner))]
    if len(lifetimes.steps) <= _MOST_STEPS:
        reserves += [int(size * share) for share in _RESERVES]
    found: list[dict[str, int]] = []
    for reserve in reserves:
        way = promote(candidates, size - reserve, align=level.align, effort=0.3)
        if way not in found:
            found.append(way)
    return found
