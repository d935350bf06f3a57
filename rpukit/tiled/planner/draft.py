"""Drafts: decisions about an op or a band of ops before addresses are assigned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rpukit.tiled.planner.buffering import Wish
from rpukit.tiled.planner.lifetimes import Step
from rpukit.tiled.planner.tile_search import Choice

__all__ = ["Band", "OpDraft", "PartEstimate", "TurnEstimate"]


@dataclass(frozen=True, slots=True)
class PartEstimate:
    """How a turn uses a value: the part that a tile uses, and the number of its buffers."""

    bytes: int
    rows: int
    slots: int
    moves: bool
    read: bool  # whether the first op that uses it reads it
    written: bool


@dataclass(frozen=True, slots=True)
class TurnEstimate:
    """Estimated cycles of an op or a band: of its kernels, and of all its copies in and out."""

    work: int
    inward: int
    outward: int
    parts: dict[str, PartEstimate]

    @property
    def cycles(self) -> int:
        """Cycles if all hideable transfers are hidden."""
        return max(self.work, self.inward, self.outward)


@dataclass(frozen=True, slots=True)
class Band:
    """A band: neighbouring steps whose tiles are interleaved.

    Parameters
    ----------
    first, last : int
        Steps.
    shared : frozenset of str
        Values of which several of the ops use the same parts.
    choices : tuple of Choice
        Of each op.
    turn : TurnEstimate
        How it uses values, and its estimated cycles.
    """

    first: int
    last: int
    shared: frozenset[str]
    choices: tuple[Choice, ...]
    turn: TurnEstimate


@dataclass
class OpDraft:
    """Decisions about an op before addresses are assigned.

    Parameters
    ----------
    step : Step
    wishes : list of (str, str)
    choices : list of Choice
        One for each hop, the outermost first.
    reason : str
    band : Band or None
        The ops that it is interleaved with.
    """

    step: Step
    wishes: list[Wish]
    choices: list[Choice] = field(default_factory=list)
    reason: str = ""
    band: Band | None = None

    def shares(self, value: str) -> bool:
        """Tell whether other ops of its band use the same parts of a value in the same buffers."""
        return self.band is not None and value in self.band.shared

    @property
    def overlap(self) -> Any:
        """How far transfers of the op overlap with kernels."""
        if self.wishes[0][1].startswith("asked for"):
            return "none"
        if self.wishes[0][0] == "auto":
            return "across"
        return "inside" if any(max(c.slots, default=0) > 1 for c in self.choices) else "none"
