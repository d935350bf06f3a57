"""Product of a float64 tile: one plain kernel for every feature of the periphery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact import twins
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.analog.deferred_errors import check_finite
from rpukit.analog.parameters.io import IOParameters
from rpukit.random import Stream

Array = Any

_TILE_PRODUCT = Kernel("tile_product")
_THREADS = 256
_MOST_BLOCKS = 65535
AVERAGES = 4  # the mode with a running average, whose samples are processed in order


@dataclass(frozen=True, slots=True)
class ProductCall:
    """Settings of a product besides its arrays.

    Attributes
    ----------
    mode : int
        Kind of noise management, as numbered in ``tile_scale.cu``.
    w_noise : int
        Kind of read noise.
    ops : tuple of int
        Tags of the draws of inputs and outputs.
    transposed : bool
    """

    mode: int
    w_noise: int
    ops: tuple[int, int]
    transposed: bool


def tile_product(
    weight: Array,
    x: Array,
    io: IOParameters,
    how: ProductCall,
    *,
    stream: Stream,
    first_sample: int,
    state: Any,
    status: Array,
    call: int = 1,
) -> Array:
    """Multiply a batch by the weights through the periphery, as `tile_forward` does.

    Parameters
    ----------
    weight : array, shape (n_out, n_in), float32 or float64
    x : array, shape (n_batch, n_in), or (n_batch, n_out) if transposed, dtype of the weight
    io : IOParameters
    how : ProductCall
    stream : Stream
    first_sample : int
    state : ForwardState
        Of the same dtype.
    status : array, shape (1,), int32
    call : int

    Returns
    -------
    array, shape (n_batch, n_out), or (n_batch, n_in) if transposed, dtype of the weight

    Notes
    -----
    Kernel: kernels_cu/tile_product.cu.
    """
    (n_batch, n_in), n_out = x.shape, weight.shape[1 if how.transposed else 0]
    dtype, device, wires = weight.dtype, _device.device_of(x), state.wires
    y = _device.empty((n_batch, n_out), dtype, device)
    if n_batch == 0:
        return y
    check_finite(x, status=status, call=call)
    bound = io.out_bound if io.out_bound > 0 else 1.0
    numbers = [dtype.type(v) for v in (io.nm_thres, io.steps(dtype)[0], io.max_bm_res, bound)]
    factor = wires.factor(weight.shape) if wires else None
    if not _device.runs_kernels(_device.namespace(weight, x)):
        clock = (first_sample, *how.ops)
        _by_mirror(weight, factor, x, y, io, how, numbers, clock, stream, state)
        return y
    passes, ir_drop, offset, saturates = _stages(wires)
    macros = {
        "REAL": twins.real(dtype),
        "TRANSPOSED": int(how.transposed),
        "PERFECT": int(io.exact),
        "MODE": how.mode,
        "WORST": int(state.worst),
        "PASSES": passes,
        "IR_DROP": int(ir_drop),
        "OFFSET": int(offset),
        "SATURATES": int(saturates),
        "W_NOISE": how.w_noise,
    }
    more, lines = (wires.more, (wires.offset, wires.slope)) if wires else (None, (None, None))
    n_round = 1 if io.exact else len(state.rhos)
    sizes = (n_batch, n_out, n_in, n_round, *numbers, first_sample, *how.ops)
    given = (state.rounds, state.io, more, weight, factor, x, state.line_noise, *lines)
    made = (_device.empty(x.shape, dtype, device), state.average, y)
    grid = (1 if how.mode == AVERAGES else min(n_batch, _MOST_BLOCKS),)
    args = (*sizes, *given, *made, status, *stream.words)
    _TILE_PRODUCT.launch(grid, (_THREADS,), args, macros=macros)
    return y


def _stages(wires: Any) -> tuple[int, bool, bool, bool]:
    """Return the number of passes, and whether there is IR drop, an offset, saturation."""
    return (wires.parameters.passes, *wires.stages) if wires else (1, False, False, False)


def _by_mirror(
    weight: Array,
    factor: Array | None,
    x: Array,
    y: Array,
    io: IOParameters,
    how: ProductCall,
    numbers: list[Any],
    clock: tuple[int, ...],
    stream: Stream,
    state: Any,
) -> None:
    wires, dtype, (n_batch, n_out) = state.wires, weight.dtype, y.shape
    passes, ir_drop, offset, saturates = _stages(wires)
    noise = state.line_noise
    if noise is None:
        noise = np.full(n_out, state.io[6], dtype)
    nothing = np.zeros(n_out, dtype)
    run_rows(
        twins.mirror("rpukit.analog._mirror.product", dtype).tile_product,
        n_batch,
        how.transposed,
        io.exact,
        passes,
        np.array([ir_drop, how.w_noise, offset, saturates], np.int64),
        how.mode,
        state.worst,
        *numbers,
        *clock,
        state.rounds,
        state.io,
        wires.more if wires else np.zeros(8, dtype),
        weight,
        np.empty((0, 0), dtype) if factor is None else factor,
        x,
        np.empty((2, n_batch), dtype),
        state.average,
        np.stack([noise, *((wires.offset, wires.slope) if wires else (nothing, nothing))]),
        y,
        *stream.words,
        grain=n_batch + 1 if how.mode == AVERAGES else work_grain(weight.size),
    )
