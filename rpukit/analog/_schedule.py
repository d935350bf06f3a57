"""When which slice of a fast array is read, and the choppers: plain numbers on the host.

Everything here follows from counters and named draws, never from data, so that a batch can be
planned before anything is launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rpukit.elementwise import random_fill
from rpukit.random import Op, Stream

_BLOCK = 4096  # events whose draws are made at once
FLIP_IN, FLIP_OUT, FIRST_SLICE = 0, 1, 2  # draws of op CHOPPER


@dataclass(frozen=True, slots=True)
class Events:
    """Reads of one array within a batch, in order: arrays of equal length.

    Attributes
    ----------
    number : array of int64
        How many reads came before, ever.
    offset : array of int64
        Number of the sample in the batch after which the read happens.
    slice : array of int64
        Which column (or row) is read.
    """

    number: np.ndarray
    offset: np.ndarray
    slice: np.ndarray

    def __len__(self) -> int:
        return len(self.number)


def draws(stream: Stream, numbers: np.ndarray, draw: int) -> np.ndarray:
    """Draw a uniform for each event by its number."""
    blocks = numbers // _BLOCK
    if len(numbers) and blocks[0] == blocks[-1]:
        drawn: np.ndarray = _uniforms(stream, int(blocks[0]), draw)[numbers % _BLOCK]
        return drawn
    out = np.empty(len(numbers), np.float32)
    for block in np.unique(blocks):
        here = blocks == block
        out[here] = _uniforms(stream, int(block), draw)[numbers[here] % _BLOCK]
    return out


@lru_cache(maxsize=64)
def _uniforms(stream: Stream, block: int, draw: int) -> np.ndarray:
    made: np.ndarray = random_fill(
        stream, (_BLOCK,), "uniform", op=Op.CHOPPER, sample=block, draw=draw
    )
    return made


def events(
    period: int,
    first_sample: int,
    n_batch: int,
    first_number: int,
    reads: int,
    n_slice: int,
    random: Stream | None,
) -> Events:
    """List the reads that fall due within a batch.

    Parameters
    ----------
    period : int
        Samples between transfers; 0 is never.
    first_sample : int
        Number of the batch's first sample.
    n_batch : int
    first_number : int
        How many reads there were before.
    reads : int
        Slices of one transfer.
    n_slice : int
    random : Stream or None
        Draws the first slice of each transfer, if given.

    Returns
    -------
    Events
    """
    if period == 0:
        none = np.zeros(0, np.int64)
        return Events(none, none, none)
    offset = np.arange(period - 1 - first_sample % period, n_batch, period)
    offset = np.repeat(offset, reads)
    number = first_number + np.arange(len(offset))
    where = number % n_slice
    if random is not None:
        start = np.floor(draws(random, number // reads, FIRST_SLICE).astype(float) * n_slice)
        where = (start.astype(np.int64) + number % reads) % n_slice
    return Events(number, offset, where)


def occurrences(slices: np.ndarray) -> np.ndarray:
    """Say of each event how many earlier ones of the batch have its slice."""
    seen: dict[int, int] = {}
    out = np.zeros(len(slices), np.int64)
    for t, i in enumerate(slices.tolist()):
        out[t] = seen.get(i, 0)
        seen[i] = out[t] + 1
    return out


def following(slices: np.ndarray) -> np.ndarray:
    """Say of each event which later one of the batch is the next of its slice; -1: none."""
    last: dict[int, int] = {}
    out = np.full(len(slices), -1, np.int32)
    for t in range(len(slices) - 1, -1, -1):
        i = int(slices[t])
        out[t] = last.get(i, -1)
        last[i] = t
    return out


class Choppers:
    """Signs of slices and lines, and how they flip.

    Parameters
    ----------
    cell : ChoppedTransfer or DynamicTransfer
    stream : Stream
    registers : dict
        Where the signs are kept, as arrays that are replaced and never changed.
    prefix : str
    """

    def __init__(
        self, cell: Any, stream: Stream, registers: dict[str, Any], prefix: str, n: tuple[int, int]
    ) -> None:
        self.cell, self._stream, self._registers, self._prefix = cell, stream, registers, prefix
        self._dynamic = hasattr(cell, "tail_weightening")
        n_slice, n_line = n
        for name, size in (("chopper_in", n_slice), ("chopper_out", n_line)):
            registers[prefix + name] = np.ones(size, np.int8)
        if self._dynamic:
            registers[f"{prefix}switched"] = np.zeros(n_slice, np.int8)

    def get(self, name: str) -> np.ndarray:
        """Give the register ``chopper_in``, ``chopper_out`` or ``switched``."""
        value: np.ndarray = self._registers[self._prefix + name]
        return value

    def take(self, which: Events) -> tuple[np.ndarray, np.ndarray]:
        """Pass the events of a part in which only the last may end a pass over the slices.

        Returns
        -------
        signs : array, shape (n_event,), int8
            The chopper of each event's slice when it is read.
        begins : array, shape (n_event,), bool
            Whether that chopper flipped at the slice's last read.
        """
        cell, n_slice = self.cell, len(self.get("chopper_in"))
        passes = which.number // n_slice
        flips = np.zeros(len(which), bool)
        if self._dynamic or not cell.in_chop_random:
            on = self._dynamic or cell.in_chop_prob > 0
            flips |= on & (passes % cell.chop_period == cell.chop_period - 1)
        if cell.in_chop_random and cell.in_chop_prob > 0:
            flips |= draws(self._stream, which.number, FLIP_IN) < np.float32(cell.in_chop_prob)
        signs, begins = np.empty(len(which), np.int8), np.zeros(len(which), bool)
        chopper = self.get("chopper_in").copy()
        switched = self.get("switched").copy() if self._dynamic else np.zeros(n_slice, np.int8)
        for t, i in enumerate(which.slice.tolist()):
            signs[t], begins[t] = chopper[i], switched[i]
            chopper[i] *= -1 if flips[t] else 1
            switched[i] = flips[t]
        self._registers[f"{self._prefix}chopper_in"] = chopper
        if self._dynamic:
            self._registers[f"{self._prefix}switched"] = switched
        if len(which) and which.slice[-1] == n_slice - 1:
            self._flip_lines(int(passes[-1]))
        return signs, begins

    def _flip_lines(self, number: int) -> None:
        prob = self.cell.out_chop_prob
        if prob == 0:
            return
        out = self.get("chopper_out")
        u = random_fill(
            self._stream, out.shape, "uniform", op=Op.CHOPPER, sample=number, draw=FLIP_OUT
        )
        flipped = np.where(u < np.float32(prob), -out, out).astype(np.int8)
        self._registers[f"{self._prefix}chopper_out"] = flipped
