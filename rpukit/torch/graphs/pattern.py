"""Arguments of the launches of a training step as functions of the clocks of its tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rpukit._kernels.arguments import TENSOR_MAP
from rpukit._kernels.launch import Launched
from rpukit.random import Op
from rpukit.torch.graphs.recording import Recording, Tiles

__all__ = ["Pattern", "Word", "pattern_of"]

_FORWARD = {str(int(Op.FORWARD_IN)), str(int(Op.FORWARD_OUT))}
_BACKWARD = {str(int(Op.BACKWARD_IN)), str(int(Op.BACKWARD_OUT))}
# Clocks of events, by kernel.
_EVENTS = {"diffusion": "diffusion", "write_noise": "write_noise", "modify_weights": "modify"}


@dataclass(frozen=True, slots=True)
class Word:
    """An argument that differs from step to step.

    Attributes
    ----------
    tile : int
        Number of the tile that it belongs to.
    memory : int
        Number of its dictionary of clocks; -1: the argument is the number of the call.
    clock : str
    offset : int
        What is added to the clock before the step.
    modulus : int
        0: none.
    """

    tile: int
    memory: int = -1
    clock: str = ""
    offset: int = 0
    modulus: int = 0

    def value(self, before: list[list[dict[str, Any]]]) -> int:
        """Compute the argument from the clocks before a step."""
        found = int(before[self.tile][self.memory][self.clock]) + self.offset
        return found % self.modulus if self.modulus else found


@dataclass(slots=True)
class Pattern:
    """What the launches of all later steps are.

    Attributes
    ----------
    words : list of dict
        For each launch, the arguments that differ, by their numbers.
    advance : list of (int, int, str, int)
        Tile, dictionary and name of each clock that moves, and by how much.
    """

    last: Recording
    words: list[dict[int, Word]]
    advance: list[tuple[int, int, str, int]]

    def predicts(self, recording: Recording) -> str:
        """Say in what a step differs from the pattern; empty if in nothing."""
        fault = _differing(self.last, recording) or _carried(self.last, recording)
        if fault:
            return fault
        launches = zip(recording.launches, self.words, self.last.launches, strict=True)
        for one, words, was in launches:
            for j, parameter in enumerate(one.parameters):
                if _is_array(parameter):
                    continue
                word = words.get(j)
                if word is None:
                    same = one.args[j] == was.args[j]
                else:
                    same = word.memory < 0 or one.args[j] == word.value(recording.before)
                if not same:
                    return f"{parameter.name} of {one.variant.entry} does not follow a clock"
        return "" if _advance(recording) == self.advance else "clocks move by other numbers"


def pattern_of(recordings: Sequence[Recording]) -> Pattern | str:
    """Find the pattern of steps.

    Parameters
    ----------
    recordings : sequence of Recording
        Successive steps of the same model; the arrays of the last two are alive.

    Returns
    -------
    Pattern, or str
        What keeps them from having one.
    """
    last = recordings[-1]
    for before, after in pairwise(recordings):
        fault = _differing(before, after)
        if fault:
            return fault
    fault = _carried(*recordings[-2:])
    if fault:
        return fault
    advances = [_advance(r) for r in recordings]
    if isinstance(advances[0], str) or any(a != advances[0] for a in advances):
        return "clocks move by other numbers from step to step"
    words = []
    for several in zip(*(r.launches for r in recordings), strict=True):
        found = _words_of(several, recordings)
        if isinstance(found, str):
            return found
        words.append(found)
    return Pattern(last, words, advances[0])


def _differing(a: Recording, b: Recording) -> str:
    """Say in what the launches of two steps differ, arguments left out."""
    if len(a.launches) != len(b.launches):
        return f"a step has {len(b.launches)} launches, the one before {len(a.launches)}"
    for one, other in zip(a.launches, b.launches, strict=True):
        for name in ("variant", "grid", "block", "shared", "device"):
            if getattr(one, name) != getattr(other, name):
                return f"{other.variant.entry} has another {name} in each step"
    return ""


def _carried(a: Recording, b: Recording) -> str:
    """Say which array comes from the step before, and is not the same in each step."""
    first, second = a.addresses(), b.addresses()
    seen = {at for addresses in first for at in addresses if at}
    for one, old, new in zip(b.launches, first, second, strict=True):
        for parameter, was, now in zip(one.parameters, old, new, strict=True):
            if (was is None) != (now is None) or (now in seen and now != was):
                return f"{parameter.name} of {one.variant.entry} is an array of the step before"
    return ""


def _advance(recording: Recording) -> Any:
    """List the clocks that move; a text if something else changes."""
    found = []
    for k, (starts, ends) in enumerate(zip(recording.before, recording.after, strict=True)):
        for m, (start, end) in enumerate(zip(starts, ends, strict=True)):
            for name, value in end.items():
                was = start.get(name)
                if type(value) is int and type(was) is int:
                    if value != was:
                        found.append((k, m, name, value - was))
                elif value is not was and not (isinstance(value, (str, float)) and value == was):
                    return f"{name} changes in a step"
    return found


def _words_of(several: Sequence[Launched], recordings: Sequence[Recording]) -> Any:
    """Find what the arguments of one launch follow; a text if one follows nothing."""
    one, tiles, found = several[-1], recordings[-1].tiles, dict[int, Word]()
    for j, parameter in enumerate(one.parameters):
        if _is_array(parameter):
            continue
        values = [each.args[j] for each in several]
        if parameter.name == "call":
            tile = _tile_of(one, tiles)
            if tile is None:
                return f"call of {one.variant.entry} belongs to no tile of the model"
            found[j] = Word(tile)
        elif any(value != values[0] for value in values):
            whole = all(isinstance(value, (int, np.integer)) for value in values)
            numbers = [int(value) for value in values] if whole else []
            word = _following(one, parameter.name, numbers, recordings) if whole else None
            if word is None:
                return f"{parameter.name} of {one.variant.entry} does not follow a clock"
            found[j] = word
    return found


def _following(
    one: Launched, name: str, values: Sequence[int], recordings: Sequence[Recording]
) -> Word | None:
    """Find the clock that an argument follows."""
    tile = _tile_of(one, recordings[-1].tiles)
    clock = _clock_of(one, name)
    if tile is None or clock is None:
        return None
    modulus = _slices(one) if name == "first_slice" else 0
    for m, memory in enumerate(recordings[-1].before[tile]):
        for key in memory:
            if key != clock and not key.endswith(f".{clock}"):
                continue
            word = Word(tile, m, key, values[-1] - int(memory[key]), modulus)
            if all(word.value(r.before) == v for r, v in zip(recordings, values, strict=True)):
                return word
    return None


def _clock_of(one: Launched, name: str) -> str | None:
    """Name the clock of an argument."""
    if name in ("number", "first_slice"):
        return "transfers_0"
    if name == "event":
        return _EVENTS.get(one.variant.entry)
    if name != "first_sample":
        return None
    defaults, macros = one.variant.source.defaults, one.variant.macros
    ops = {macros.get(m, defaults.get(m)) for m in ("OP", "IN_OP", "OUT_OP")}
    if ops & _FORWARD:
        return "forward"
    return "backward" if ops & _BACKWARD else "update"


def _slices(one: Launched) -> int:
    """Number of slices of a transfer, from the arguments of a launch."""
    given = {p.name: a for p, a in zip(one.parameters, one.args, strict=True)}
    if "n_slice" in given:
        return int(given["n_slice"])
    return int(given["n_in"]) * int(given["n_out"]) // int(given["d"].shape[-1])


def _tile_of(one: Launched, tiles: Tiles) -> int | None:
    """Find the tile of a launch by its status, which all its kernels take."""
    for parameter, a in zip(one.parameters, one.args, strict=True):
        if parameter.name == "status" and a is not None:
            return tiles.of_status.get(
                int(a.data.ptr if hasattr(a.data, "ptr") else a.ctypes.data)
            )
    return None


def _is_array(parameter: Any) -> bool:
    """Whether an argument is an array, or describes one with its address."""
    return bool(parameter.pointer or parameter.ctype == TENSOR_MAP)
