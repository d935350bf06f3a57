"""Plan of one memory level: copies, resident values and blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from rpukit.tiled.machine import Compute, Hierarchy
from rpukit.tiled.planner.addresses import Block
from rpukit.tiled.planner.draft import OpDraft
from rpukit.tiled.planner.lifetimes import Lifetimes

__all__ = ["Lengths", "LevelPlan", "PlacementContext", "Residency", "Turns", "ValueUse"]


class Turns:
    """Order in which ops and bands run; a turn is an op or a band.

    Parameters
    ----------
    drafts : sequence of OpDraft
    compute : Compute
    """

    def __init__(self, drafts: Sequence[OpDraft], compute: Compute) -> None:
        self.of: list[int] = []  # the turn of each step
        self.steps: list[tuple[int, int]] = []  # first step of each turn, and one after the last
        self.starts: set[int] = set()  # first turns of programs, and the number of turns
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
        self.kernels = [0] * len(self.steps)  # cycles of each turn
        for draft in drafts:
            one = draft.step
            cycles = compute.tile(one.node.op, one.space, one.space.whole)
            self.kernels[self.of[one.number]] += cycles


@dataclass
class Residency:
    """A value that stays in a level from its use in one turn to its use in another.

    Parameters
    ----------
    value : str
    first, last : int
        Turns.
    name : str
        Of its block.
    before, after : int
        Further turns for which its memory is reserved, to fill it and to empty it.
    """

    value: str
    first: int
    last: int
    name: str = ""
    before: int = 0
    after: int = 0


@dataclass
class LevelPlan:
    """Decisions about one level other than the outermost.

    Parameters
    ----------
    index : int
        Of the level.
    fetch, store : set of (int, int)
        Steps and operands that are copied in from the next outer level, and out to it.
    residencies : dict of (int, str) to Residency
        By turn and value.
    blocks : list of Block
    offsets : dict of str to int
    """

    index: int
    fetch: set[tuple[int, int]] = field(default_factory=set)
    store: set[tuple[int, int]] = field(default_factory=set)
    residencies: dict[tuple[int, str], Residency] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)


class ValueUse(NamedTuple):
    """How a turn uses a value that lives further out.

    Parameters
    ----------
    size : int
        Bytes of a buffer of the whole value.
    taken : int
        Bytes that it takes in this turn without such a buffer.
    cycles : int
        Of a copy of the whole value.
    fetched, stored : bool
        Whether it is copied in for the turn, and out after it.
    whole : bool
        Whether it has a buffer of the whole value already.
    able : bool
        Whether it may get such a buffer.
    last : bool
        Whether the buffer is free after the turn.
    """

    size: int
    taken: int
    cycles: int
    fetched: bool
    stored: bool
    whole: bool
    able: bool
    last: bool


Lengths = dict[tuple[int, str], int]  # turns, by turn and value


@dataclass(frozen=True, slots=True)
class PlacementContext:
    """Input to the planning of a level: live ranges, homes and the order of the turns.

    Parameters
    ----------
    lifetimes : Lifetimes
    levels : Hierarchy
    homes : mapping of str to int
        Index of the level in which each value lives.
    turns : Turns
    """

    lifetimes: Lifetimes
    levels: Hierarchy
    homes: Mapping[str, int]
    turns: Turns

    def slot_bytes(self, draft: OpDraft, k: int, index: int) -> int:
        """Compute the bytes of one buffer of operand k of an op in a level, rounded up."""
        space, extents = draft.step.space, draft.choices[index - 1].extents
        lengths = space.worst(space.operands[k], extents)
        tensor = self.lifetimes.graph(draft.step).tensors[space.operands[k].tensor]
        return self.levels[index].rounded(prod(lengths) * tensor.itemsize)
