"""Bands: neighbouring ops that are cut alike and take turns, part by part.

Where one op's result is the next one's operand and both are cut along the same axis, a part of it
can go straight on: between ops it needs two buffers of a part, and no way out and back. Transfers
of one op are then beside the kernels of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from rpukit.tiled.choice import Choice, candidates, rows_of
from rpukit.tiled.graph import Tensor
from rpukit.tiled.levels import Compute, Level
from rpukit.tiled.lifetimes import Step, Timeline
from rpukit.tiled.space import Cut, Operand, TileSpace, axis_of

if TYPE_CHECKING:
    from rpukit.tiled.planner import Draft

__all__ = ["Band", "Bands", "Turns"]

_MOST_PARTS = 512


@dataclass(frozen=True, slots=True)
class Band:
    """Steps that take turns.

    Parameters
    ----------
    first, last : int
        Steps.
    shared : frozenset of str
        Values of which several of the ops use the same parts.
    choices : tuple of Choice
        Of each op.
    cycles : int
        A guess: all transfers that can be hidden are.
    """

    first: int
    last: int
    shared: frozenset[str]
    choices: tuple[Choice, ...]
    cycles: int


@dataclass
class _Use:
    """What a band does with a value."""

    places: tuple[object, ...]  # of each dimension: cut, or its range
    space: TileSpace
    operand: Operand
    axis: int
    tensor: Tensor
    read: bool  # by the first that uses it
    written: bool
    moves: bool  # whether every part has its own

    def slot(self, part: int) -> tuple[int, int]:
        """Bytes of a part, and in how many rows they are."""
        extents = [part if a == self.axis else n.extent for a, n in enumerate(self.space.axes)]
        lengths = self.space.worst(self.operand, extents)
        return prod(lengths) * self.tensor.itemsize, rows_of(lengths, self.tensor.shape)

    @property
    def slots(self) -> int:
        """How many buffers it gets."""
        return 1 if not self.moves else 3 if self.read and self.written else 2


class Turns:
    """The order in which ops and bands run: a turn is one or the other.

    Parameters
    ----------
    drafts : sequence of Draft
    """

    def __init__(self, drafts: Sequence[Draft]) -> None:
        self.of: list[int] = []  # the turn of each step
        self.steps: list[tuple[int, int]] = []  # of each turn, the last excluded
        self.starts: set[int] = set()  # of programs, and the end
        program = -1
        for number, draft in enumerate(drafts):
            if draft.band is not None and number > draft.band.first:
                self.steps[-1] = self.steps[-1][0], number + 1
            else:
                self.steps.append((number, number + 1))
            self.of.append(len(self.steps) - 1)
            if draft.step.program != program:
                program = draft.step.program
                self.starts.add(self.of[-1])
        self.starts.add(len(self.steps))


class Bands:
    """Ways to join the ops of a plan over two levels.

    Parameters
    ----------
    drafts : sequence of Draft
    timeline : Timeline
    link : Level
        The inner level.
    compute : Compute
    """

    def __init__(
        self, drafts: Sequence[Draft], timeline: Timeline, link: Level, compute: Compute
    ) -> None:
        self.drafts, self.timeline, self.link, self.compute = drafts, timeline, link, compute
        self.known: dict[tuple[int, int], Band | None] = {}

    def find(self, longest: int) -> list[Band]:
        """Join neighbours where that takes less time by a guess.

        Parameters
        ----------
        longest : int
            Most ops of a band.

        Returns
        -------
        list of Band
        """
        best: list[tuple[int, list[Band]]] = [(0, [])]  # of the steps so far
        for stop in range(1, len(self.drafts) + 1):
            found = best[-1][0] + self.alone(stop - 1), best[-1][1]
            for first in range(stop - 2, max(-1, stop - longest - 1), -1):
                band = self.band(first, stop - 1)
                if band is not None and best[first][0] + band.cycles < found[0]:
                    found = best[first][0] + band.cycles, [*best[first][1], band]
            best.append(found)
        return best[-1][1]

    def alone(self, number: int) -> int:
        """Guess the cycles of one op, all transfers that can be hidden hidden."""
        draft = self.drafts[number]
        sides = [0, 0]
        for operand in draft.step.space.operands:
            size = self.timeline.values[self.timeline.root(draft.step, operand.tensor)].bytes
            sides[0] += self.link.cycles(size) * (operand.mode != "out")
            sides[1] += self.link.cycles(size) * (operand.mode != "in")
        return max(self.work([draft.step], draft.choices[0].n_tiles), *sides)

    def work(self, steps: Sequence[Step], n: int) -> int:
        """Cycles of the kernels of steps in parts."""
        found = (n - 1) * len(steps) * self.compute.launch
        for step in steps:
            whole = step.space.whole
            found += self.compute.cycles(step.space.macs(whole), step.space.elements(whole))
        return found

    def band(self, first: int, last: int) -> Band | None:
        """The best band of some steps; None where they do not go together."""
        if (first, last) not in self.known:
            self.known[first, last] = self.best(first, last)
        return self.known[first, last]

    def best(self, first: int, last: int) -> Band | None:
        drafts = self.drafts[first : last + 1]
        if any(d.overlap != "across" or d.step.program != drafts[0].step.program for d in drafts):
            return None
        steps = [draft.step for draft in drafts]
        found = [
            band
            for axis in range(len(steps[0].space.axes))
            for axes in self.axes(steps, axis)
            if (band := self.parts(steps, axes)) is not None
        ]
        return min(found, key=lambda band: band.cycles) if found else None

    def axes(self, steps: Sequence[Step], axis: int) -> Iterator[tuple[int, ...]]:
        """Axes that cut what the ops share alike, from one of the first op's."""
        extent = steps[0].space.axes[axis].extent
        axes = [axis]
        for k, step in enumerate(steps[1:], 1):
            before = {name for one in steps[:k] for name in self.names(one)}
            for a, own in enumerate(step.space.axes):
                uses = self.uses(steps[: k + 1], (*axes, a)) if own.extent == extent else None
                both = before & set(self.names(step)) if uses else ()
                if uses and any(uses[name].moves for name in both):
                    axes.append(a)
                    break
            else:
                return
        if extent > 1:
            yield tuple(axes)

    def names(self, step: Step) -> list[str]:
        """Values of the operands of an op."""
        return [self.timeline.root(step, o.tensor) for o in step.space.operands]

    def uses(self, steps: Sequence[Step], axes: Sequence[int]) -> dict[str, _Use] | None:
        """What happens to each value; None where ops may not take turns."""
        found: dict[str, _Use] = {}
        for step, axis in zip(steps, axes, strict=True):
            space, tensors = step.space, self.timeline.graph(step).tensors
            for operand, name in zip(space.operands, self.names(step), strict=True):
                places = tuple(
                    "cut" if span == Cut(axis) else "moves" if axis_of(span) == axis
                    else span.range(space.whole)
                    for span in operand.spans
                )  # fmt: skip
                read, written = operand.mode != "out", operand.mode != "in"
                moves = "cut" in places or "moves" in places
                tensor = tensors[operand.tensor]
                use = _Use(places, space, operand, axis, tensor, read, written, moves)
                old = found.setdefault(name, use)
                if old is use:
                    continue
                if old.places != places or "moves" in places:
                    return None
                if (old.written or written) and not moves:
                    return None
                old.written |= written
        return found

    def parts(self, steps: Sequence[Step], axes: tuple[int, ...]) -> Band | None:
        """The band with the best length of a part."""
        uses = self.uses(steps, axes)
        assert uses is not None
        axis = steps[0].space.axes[axes[0]]
        last, found, n_last = steps[-1].number, [], 1
        for part in candidates(axis, axis.extent, self.link):
            n = -(-axis.extent // part)
            if n > _MOST_PARTS or 4 * n < 5 * n_last:
                continue
            if not all(_legal(step.space, a, part) for step, a in zip(steps, axes, strict=True)):
                continue
            guess, n_last = self.guess(steps, uses, last, part, n), n
            if guess is not None:
                found.append((guess, n, part))
        if not found:
            return None
        cycles, n, part = min(found)
        names = [name for step in steps for name in set(self.names(step))]
        choices = []
        for step, a in zip(steps, axes, strict=True):
            own = range(len(step.space.axes))
            extents = tuple(part if b == a else step.space.axes[b].extent for b in own)
            slots = tuple(uses[name].slots for name in self.names(step))
            choices.append(Choice(extents, (a, *(b for b in own if b != a)), slots, 0, n))
        shared = frozenset(name for name in names if names.count(name) > 1)
        return Band(steps[0].number, last, shared, tuple(choices), cycles)

    def guess(
        self, steps: Sequence[Step], uses: dict[str, _Use], last: int, part: int, n: int
    ) -> int | None:
        """Cycles, if it fits: what is slowest, and what cannot be fetched while others run."""
        link, room = self.link, self.link.bytes
        sides, first, ahead = [0, 0], 0, 0
        for name, use in uses.items():
            value, (slot, rows) = self.timeline.values[name], use.slot(part)
            cycles, times = link.cycles(slot, rows), n if use.moves else 1
            room -= link.rounded(slot) * use.slots
            if use.read:
                sides[0] += cycles * times
                first += cycles
            if use.written and (value.wanted or value.uses[-1][0] > last):
                sides[1] += cycles * times
            ahead += link.rounded(slot) * (use.read or use.moves)
        if room < 0:
            return None
        fill = first if ahead > room else 0  # a band like this one cannot be begun beside it
        return max(self.work(steps, n), *sides) + fill + sum(sides) // n


def _legal(space: TileSpace, axis: int, part: int) -> bool:
    extent = space.axes[axis].extent
    ends = (0, min(part, extent)), ((extent - 1) // part * part, extent)
    return not any(
        space.problem((*space.whole[:axis], end, *space.whole[axis + 1 :])) for end in ends
    )
