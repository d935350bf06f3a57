"""Hazard detection in a schedule of transfers and kernels, for any timing of transfers.

A schedule is a list of events in program order on one core. A transfer reads and writes from its
issue to the wait for its token, or for ever. Transfers are unordered among each other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rpukit.tiled.tile_space import Box

__all__ = ["Range", "covered_once", "find_hazards"]


class Range(NamedTuple):
    """Bytes ``lo <= address < hi`` of a space."""

    space: str
    lo: int
    hi: int

    def meets(self, other: Range) -> bool:
        """Tell whether two ranges share a byte."""
        return self.space == other.space and self.lo < other.hi and other.lo < self.hi


class _Cover:
    """A set of bytes, as sorted ranges that do not touch."""

    def __init__(self) -> None:
        self.lo: list[int] = []
        self.hi: list[int] = []

    def add(self, lo: int, hi: int) -> None:
        i, j = bisect_left(self.hi, lo), bisect_right(self.lo, hi)
        if i < j:
            lo, hi = min(lo, self.lo[i]), max(hi, self.hi[j - 1])
        self.lo[i:j], self.hi[i:j] = [lo], [hi]

    def holds(self, lo: int, hi: int) -> bool:
        i = bisect_right(self.lo, lo) - 1
        return lo >= hi or (i >= 0 and hi <= self.hi[i])


def find_hazards(
    buffers: Iterable[Mapping[str, Any]],
    schedule: Sequence[Mapping[str, Any]],
    *,
    inner: str = "L1",
) -> list[str]:
    """Find the hazards of a schedule.

    Parameters
    ----------
    buffers : iterable of mapping
        ``name``, ``space``, ``lo``, ``hi`` of each buffer of the inner memory.
    schedule : sequence of mapping
        ``{"ev": "dma", "src": range, "dst": range, "tok": name}``,
        ``{"ev": "wait", "tok": name}``, ``{"ev": "zero", "range": range}`` or
        ``{"ev": "compute", "reads": ranges, "writes": ranges, "acc": ranges}``; a range is
        (space, lo, hi), and a part of "compute" may be absent.
    inner : str
        Name of the memory whose buffers and contents are watched.

    Returns
    -------
    list of str
        Sorted: some of "race", "uninitialised", "out_of_bounds", "token_reuse" and
        "unwaited_at_end"; ["ok"] if there are none.

    Examples
    --------
    >>> from rpukit.tiled import find_hazards
    >>> buffer = {"name": "x", "space": "L1", "lo": 0, "hi": 64}
    >>> find_hazards([buffer], [{"ev": "compute", "reads": [("L1", 0, 64)]}])
    ['uninitialised']
    """
    watch = _Watch(buffers, inner)
    for event in schedule:
        getattr(watch, event["ev"])(event)
    if watch.pending:
        watch.found.add("unwaited_at_end")
    return sorted(watch.found) or ["ok"]


class _Watch:
    """State of a schedule so far: pending transfers, initialised bytes of the inner memory."""

    def __init__(self, buffers: Iterable[Mapping[str, Any]], inner: str) -> None:
        self.inner, self.known = inner, _Cover()
        self.buffers = [Range(b["space"], b["lo"], b["hi"]) for b in buffers]
        self.pending: dict[str, tuple[Range, Range]] = {}
        self.lost: list[tuple[Range, Range]] = []  # their tokens were reused: no wait is possible
        self.found: set[str] = set()

    def dma(self, event: Mapping[str, Any]) -> None:
        source, target = Range(*event["src"]), Range(*event["dst"])
        self._access([source], [target])
        self._need([source])
        if event["tok"] in self.pending:
            self.found.add("token_reuse")
            self.lost.append(self.pending[event["tok"]])
        self.pending[event["tok"]] = (source, target)

    def wait(self, event: Mapping[str, Any]) -> None:
        transfer = self.pending.pop(event["tok"], None)
        if transfer:
            self._know([transfer[1]])

    def zero(self, event: Mapping[str, Any]) -> None:
        target = [Range(*event["range"])]
        self._access([], target)
        self._know(target)

    def compute(self, event: Mapping[str, Any]) -> None:
        reads, writes, sums = (
            [Range(*r) for r in event.get(key, ())] for key in ("reads", "writes", "acc")
        )
        self._access(reads, writes + sums)
        self._need(reads + sums)
        self._know(writes)

    def _access(self, reads: list[Range], writes: list[Range]) -> None:
        """Check an access against all pending transfers, and against the buffers."""
        for source, target in (*self.pending.values(), *self.lost):
            if any(target.meets(r) for r in reads + writes) or any(
                source.meets(r) for r in writes
            ):
                self.found.add("race")
        for one in reads + writes:
            if one.space == self.inner and not any(
                b.space == one.space and b.lo <= one.lo and one.hi <= b.hi for b in self.buffers
            ):
                self.found.add("out_of_bounds")

    def _need(self, reads: list[Range]) -> None:
        if any(r.space == self.inner and not self.known.holds(r.lo, r.hi) for r in reads):
            self.found.add("uninitialised")

    def _know(self, writes: list[Range]) -> None:
        for one in writes:
            if one.space == self.inner:
                self.known.add(one.lo, one.hi)


def covered_once(parts: Sequence[Box], shape: Sequence[int]) -> bool:
    """Tell whether rectangles cover each element of a tensor exactly once.

    Parameters
    ----------
    parts : sequence of Box
    shape : sequence of int

    Returns
    -------
    bool

    Examples
    --------
    >>> from rpukit.tiled.verify.hazards import covered_once
    >>> halves = ((0, 2), (0, 3)), ((0, 2), (3, 4))
    >>> covered_once(halves, (2, 4)), covered_once((*halves, halves[0]), (2, 4))
    (True, False)
    """
    cuts = [sorted({n for part in parts for n in part[d]}) for d in range(len(shape))]
    if any(not cut or (cut[0], cut[-1]) != (0, n) for cut, n in zip(cuts, shape, strict=True)):
        return False
    count = np.zeros([len(cut) - 1 for cut in cuts], np.int64)
    places = [{n: i for i, n in enumerate(cut)} for cut in cuts]
    for part in parts:
        ends = zip(places, part, strict=True)
        count[tuple(slice(place[lo], place[hi]) for place, (lo, hi) in ends)] += 1
    return bool((count == 1).all())
