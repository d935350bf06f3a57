"""Schedule of the reads of slices, computed on the host.

It depends on counters and named draws, never on data, so a batch can be planned before anything is
launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rpukit.elementwise import random_fill
from rpukit.random import Op, Stream

Array = Any

_BLOCK = 4096  # events drawn at once
FLIP_IN, FLIP_OUT, FIRST_SLICE, RESET = 0, 1, 2, 3  # draws of op CHOPPER


@dataclass(frozen=True, slots=True)
class Events:
    """Reads of slices within a part of a batch, in order; each slice at most once.

    Attributes
    ----------
    number : int
        Number of all earlier reads of the tile.
    n : int
        Number of these reads.
    offset : int
        Number of the sample in the part after which the first ones happen.
    period : int
        Samples from one transfer to the next.
    reads : int
        Slices of one transfer.
    first_slice : int
        The first slice that is read; the others follow it, and the first follows the last.
    slices : array, shape (n,), int32, or None
        All slices, on the device of the tile, if they are not consecutive.
    """

    number: int
    n: int
    offset: int = 0
    period: int = 1
    reads: int = 1
    first_slice: int = 0
    slices: Array | None = None


def events(
    period: int, first_sample: int, n_batch: int, number: int, reads: int, n_slice: int
) -> Events:
    """Find the reads that fall due within a batch.

    Parameters
    ----------
    period : int
        Samples between transfers; 0 means never.
    first_sample : int
        Number of the batch's first sample.
    n_batch : int
    number : int
        Number of earlier reads.
    reads : int
        Slices of one transfer.
    n_slice : int

    Returns
    -------
    Events
    """
    if period == 0:
        return Events(number, 0)
    offset = period - 1 - first_sample % period
    n_transfer = max(0, -(-(n_batch - offset) // period))
    return Events(number, n_transfer * reads, offset, period, reads, number % n_slice)


def slices_of(due: Events, n_slice: int, random: Stream | None) -> np.ndarray:
    """List the slices of all reads; with a stream the first of each transfer is drawn."""
    number = due.number + np.arange(due.n)
    if random is None:
        return number % n_slice
    start = np.floor(draws(random, number // due.reads, FIRST_SLICE).astype(float) * n_slice)
    slices: np.ndarray = (start.astype(np.int64) + number % due.reads) % n_slice
    return slices


def repeats(slices: np.ndarray, reads: int) -> list[int]:
    """List transfers that read a slice again that was read since the previous listed one."""
    found, seen = [], set[int]()
    for t, these in enumerate(slices.reshape(-1, reads).tolist()):
        if not seen.isdisjoint(these):
            found.append(t)
            seen = set()
        seen.update(these)
    return found


def draws(stream: Stream, numbers: np.ndarray, draw: int) -> np.ndarray:
    """Draw a uniform number for each event, by the number of the event."""
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
