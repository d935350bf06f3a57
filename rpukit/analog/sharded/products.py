"""Products of a matrix whose rows or columns are on several devices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._device import Device
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.product.launch import Call
from rpukit.analog.product.ops import ForwardState
from rpukit.analog.product.stages import by_stages
from rpukit.gemm import real
from rpukit.gemm._tiles.real_tiles import LONG_SEGMENT
from rpukit.gemm.split.pieces import at, chained, joined, on
from rpukit.random import Stream

Array = Any


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the blocks of a matrix (n_out, n_in) are.

    Attributes
    ----------
    shape : tuple of int, (n_out, n_in)
    devices : tuple of Device
        Of each block; inputs and results are on the first one.
    edges : tuple of int
        First row or column of each block, and the number of them all.
    axis : {0, 1}
        0: blocks of rows; 1: of columns.
    """

    shape: tuple[int, int]
    devices: tuple[Device, ...]
    edges: tuple[int, ...]
    axis: int

    def sums(self, weights: list[Array], back: bool, v: Array) -> Array:
        """Multiply inputs by the weights of all devices, or with `back` by the transposed ones."""
        home, n = self.devices[0], self.shape[back]
        if back != bool(self.axis):  # sums go on from device to device
            spans = zip(self.edges[:-1], self.edges[1:], self.devices, strict=True)
            lefts = [at(v, start, stop, device) for start, stop, device in spans]
            segment = LONG_SEGMENT
            return chained(lefts, weights, home, n, np.float32, trans_b=not back, segment=segment)
        made, given = [], [on(v, device) for device in self.devices]
        for rows, weight, device in zip(given, weights, self.devices, strict=True):
            with _device.using(device):
                width = weight.shape[1 if back else 0]
                y = _device.empty((rows.shape[0], width), np.float32, device)
                real.product(rows, weight, y, False, not back, segment=LONG_SEGMENT)
                made.append(y)
        return joined(made, n, home)


def multiply(
    layout: Layout,
    weights: list[Array],
    x: Array,
    io: IOParameters,
    state: ForwardState,
    *,
    stream: Stream,
    first_sample: int,
    status: Array,
    call: int,
    transposed: bool = False,
) -> Array:
    """Multiply samples by blocks of weights through a periphery, as `tile_forward` does it.

    Parameters
    ----------
    layout : Layout
    weights : list of array
        Each on its device.
    x : array, shape (n_batch, n_in), float32
        On the first device, as the periphery's state and the result are.
    io : IOParameters
        Without effects of wires and read noise.
    state : ForwardState
    stream : Stream
    first_sample : int
    status : array, shape (1,), int32
    call : int
    transposed : bool

    Returns
    -------
    array, shape (n_batch, n_out), or (n_batch, n_in) with `transposed`, float32
    """
    n_out, n_in = layout.shape[::-1] if transposed else layout.shape
    y = _device.empty((len(x), n_out), np.float32, layout.devices[0])
    made = Call(
        state.take(io),
        (len(x), n_out, n_in),
        None,
        x,
        y,
        state.io,
        state.line_noise,
        state.average,
        status,
        call,
        stream,
        first_sample,
    )
    if len(x):
        by_stages(made, state.reductions, partial(layout.sums, weights, transposed))
    return y
