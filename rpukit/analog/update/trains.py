"""Pulse trains of a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rpukit import _device
from rpukit._kernels.replay import keep_for_graph

Array = Any


@dataclass(frozen=True, slots=True)
class Trains:
    """Pulse trains of a batch.

    Attributes
    ----------
    x : array, shape (n_batch, n_word, n_in), uint32
    d : array, shape (n_batch, n_word, n_out), uint32
        Slots 31 w to 31 w + 30 of a line are bits 0 to 30 of word w; bit 31 is the sign. For
        implicit pulses see ``kernels_cu/pulse_trains.cu``; an exact update stores x and d here.
    implicit : int
        0 trains; 1 probabilities, 2 numbers of pulses (`UpdateParameters.coding`).
    x_slices : array, shape (n_batch, ceil(n_in / 32), 32), uint32, or None
        The trains of x by slots, for kernels, where a train has one word: bit j of word k of block
        b is slot k of line 32 b + j; word 31 has the signs.
    rate : float
        Learning rate of an exact update; 0: these are pulses.
    clips : bool
        Whether an exact update is clipped to the bounds of the cells after each sample.
    key : tuple
        Arguments that determine the shapes, on kernels.
    """

    x: Array
    d: Array
    implicit: int
    x_slices: Array | None = None
    rate: float = 0.0
    clips: bool = False
    key: tuple[int, ...] = ()

    def of_rows(self, first: int, n_row: int) -> Trains:
        """Return the trains for some rows of a tile, if these are the trains of all its rows."""
        if self.d.shape[-1] == n_row:
            return self
        ahead = (slice(None),) * (self.d.ndim - 1)
        part = self.d[(*ahead, slice(first, first + n_row))]
        part = _device.namespace(part).ascontiguousarray(part)
        keep_for_graph(part)
        return replace(self, d=part, key=())

    def of_columns(self, first: int, n_col: int) -> Trains:
        """Return the trains for some columns of a tile, if these are the trains of all of them.

        ``first`` is a multiple of 32.
        """
        if self.x.shape[-1] == n_col:
            return self
        xp, slices = _device.namespace(self.x), self.x_slices
        ahead = (slice(None),) * (self.x.ndim - 1)
        part = xp.ascontiguousarray(self.x[(*ahead, slice(first, first + n_col))])
        if slices is not None:
            slices = xp.ascontiguousarray(slices[:, first // 32 : -(-(first + n_col) // 32)])
        keep_for_graph(part, slices)
        return replace(self, x=part, x_slices=slices, key=())

    def of_samples(self, start: int, stop: int) -> Trains:
        """Return the trains of some samples (views)."""
        if (start, stop) == (0, len(self.x)):
            return self
        slices = None if self.x_slices is None else self.x_slices[start:stop]
        x, d = self.x[start:stop], self.d[start:stop]
        return replace(self, x=x, d=d, x_slices=slices, key=())
