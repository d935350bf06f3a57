"""Choppers of a tile: flipping signs of slices and lines.

Choppers of slices are on the device of the tile: kernels flip them, so that a step needs nothing
from the host. Choppers of lines flip at most once per pass over all slices, where a batch is cut
anyway.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit.analog.arrays.base import ArrayContext
from rpukit.analog.transfer.ops import chop_samples
from rpukit.analog.transfer.schedule import FLIP_OUT, Events
from rpukit.elementwise import random_fill
from rpukit.random import Op, Stream

Array = Any


class Choppers:
    """Signs of slices and lines of one tile.

    Parameters
    ----------
    cell : ChoppedTransfer or DynamicTransfer
    stream : Stream
    context : ArrayContext
        Its register ``chopper_out`` holds the signs of the lines.
    n : tuple of int, (n_slice, n_line)
    """

    def __init__(
        self, cell: Any, stream: Stream, context: ArrayContext, n: tuple[int, int]
    ) -> None:
        self.cell, self._stream, self._context, self._n_slice = cell, stream, context, n[0]
        self._dynamic = hasattr(cell, "tail_weightening")
        self._name = f"{context.prefix}chopper_out"
        context.registers[self._name] = np.ones(n[1], np.int8)
        self.slices = context.put(np.ones(n[0], np.int8))
        self.switched = context.put(np.zeros(n[0], np.int8)) if self._dynamic else None
        self._put: tuple[np.ndarray, Array] | None = None

    def arrays(self) -> dict[str, Array]:
        """Return the arrays on the device, by name."""
        own = {"chopper_in": self.slices, "switched": self.switched}
        return {name: array for name, array in own.items() if array is not None}

    @property
    def lines(self) -> Array | None:
        """Signs of the lines, on the device; None where they never flip."""
        if self.cell.out_chop_prob == 0:
            return None
        signs = self._context.registers[self._name]
        if self._put is None or self._put[0] is not signs:
            self._put = signs, self._context.put(signs)
        return self._put[1]

    def regular(self, due: Events) -> tuple[bool, bool]:
        """Whether regular flips are due, in the pass of the first read and in the next one."""
        cell, passes = self.cell, due.number // self._n_slice
        if not self._dynamic and (cell.in_chop_prob == 0 or cell.in_chop_random):
            return False, False
        period = cell.chop_period
        return (passes + 1) % period == 0, (passes + 2) % period == 0

    def turn(self, of_slices: Array, of_lines: Array, due: Events) -> tuple[Array, Array, Array]:
        """Multiply both sides of a batch by the signs; return chopper states at its reads, too."""
        cell = self.cell
        of_slices, turns = chop_samples(
            of_slices,
            self.slices,
            self.switched,
            due,
            self.regular(due),
            cell.in_chop_prob if cell.in_chop_random else 0.0,
            stream=self._stream,
            status=self._context.guard.status,
        )
        lines = self.lines
        return of_slices, of_lines if lines is None else of_lines * lines, turns

    def flip_lines(self, due: Events) -> None:
        """Flip the choppers of lines, where the last read was that of the last slice."""
        last, prob = due.number + due.n - 1, self.cell.out_chop_prob
        if prob == 0 or due.n == 0 or last % self._n_slice != self._n_slice - 1:
            return
        signs = self._context.registers[self._name]
        u = random_fill(
            self._stream,
            signs.shape,
            "uniform",
            op=Op.CHOPPER,
            sample=last // self._n_slice,
            draw=FLIP_OUT,
        )
        flipped = np.where(u < np.float32(prob), -signs, signs).astype(np.int8)
        self._context.registers[self._name] = flipped
