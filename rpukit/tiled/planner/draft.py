"""Decisions about one op, or a band of ops, before anything has an address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rpukit.tiled.planner.buffering import Wish
from rpukit.tiled.planner.lifetimes import Step
from rpukit.tiled.planner.tile_search import Choice

__all__ = ["Band", "OpDraft", "PartEstimate", "TurnEstimate"]


@dataclass(frozen=True, slots=True)
class PartEstimate:
    """What a turn does with a value: the part that a tile uses, and how many buffers that has."""

    bytes: int
    rows: int
    slots: int
    moves: bool
    read: bool  # by the first that uses it
    written: bool


@dataclass(frozen=True, slots=True)
class TurnEstimate:
    """An op or a band: cycles of its kernels, and of all its copies in and out."""

    work: int
    inward: int
    outward: int
    parts: dict[str, PartEstimate]

    @property
    def cycles(self) -> int:
        """Cycles if all transfers that can be hidden are."""
        return max(self.work, self.inward, self.outward)


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
    turn : TurnEstimate
        What it does with values, and its cycles by a guess.
    """

    first: int
    last: int
    shared: frozenset[str]
    choices: tuple[Choice, ...]
    turn: TurnEstimate


@dataclass
class OpDraft:
    """What is decided about an op before anything has an address.

    Parameters
    ----------
    step : Step
    wishes : list of (str, str)
    choices : list of Choice
        One for each hop, the outermost first.
    reason : str
    band : Band or None
        The ops that it takes turns with.
    """

    step: Step
    wishes: list[Wish]
    choices: list[Choice] = field(default_factory=list)
    reason: str = ""
    band: Band | None = None

    def shares(self, value: str) -> bool:
        """Whether other ops of its band use the same parts of a value, in the same buffers."""
        return self.band is not None and value in self.band.shared

    @property
    def overlap(self) -> Any:
        """How far transfers of the op overlap with kernels."""
        if self.wishes[0][1].startswith("asked for"):
            return "none"
        if self.wishes[0][0] == "auto":
            return "across"
        return "inside" if any(max(c.slots, default=0) > 1 for c in self.choices) else "none"
