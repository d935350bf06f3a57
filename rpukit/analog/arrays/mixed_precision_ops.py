"""Ops of mixed precision: quantisation of samples, whole pulses of a digital array.

``status`` is the tile's flag array; kernels do nothing while it is not 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact import twins
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.random import Op, Stream

Array = Any

_QUANTISE_ROWS = Kernel("quantise_rows")
_TAKE_PULSES = Kernel("take_pulses")

_BLOCK = 256


def _mirror(v: Array) -> Any:
    return twins.mirror("rpukit.analog._mirror.mixed_precision", v.dtype)


def quantise_rows(
    v: Array,
    n_bins: int,
    *,
    op: Op,
    stochastic: bool,
    stream: Stream,
    first_sample: int,
    status: Array,
) -> Array:
    """Quantise each sample to ``n_bins // 2`` steps on each side of 0, up to its largest value.

    Parameters
    ----------
    v : array, shape (n_batch, n_line), float32 or float64
        Finite.
    n_bins : int, at least 2
    op : {Op.UPDATE_X, Op.UPDATE_D}
        Tag of the draws: whether the lines are those of x or of d.
    stochastic : bool
        Stochastic rounding.
    stream : Stream
    first_sample : int
        Position of ``v[0]`` on the update clock.
    status : array, shape (1,), int32

    Returns
    -------
    array, shape (n_batch, n_line), dtype of v

    Notes
    -----
    Kernel: kernels_cu/quantise_rows.cu.
    """
    n_batch, n_line = v.shape
    out = _device.empty((n_batch, n_line), v.dtype, _device.device_of(v))
    half = float(n_bins // 2)
    if _device.runs_kernels(_device.namespace(v)):
        args = (n_line, half, int(op), np.uint64(first_sample), v, out, status, *stream.words)
        macros = {"STOCHASTIC": int(stochastic), "REAL": twins.real(v.dtype)}
        _QUANTISE_ROWS.launch((n_batch,), (_BLOCK,), args, macros=macros)
    else:
        numbers = (v.dtype.type(half), int(op), stochastic, first_sample)
        grain = work_grain(8 * n_line)
        rows = (v, out, *stream.words)
        run_rows(_mirror(v).quantise_rows, n_batch, *numbers, *rows, grain=grain)
    return out


def take_pulses(
    chi: Array, first: int, n_row: int, step: float, *, status: Array
) -> tuple[Array, Array]:
    """Subtract whole pulses from rows of a digital array, in place.

    Parameters
    ----------
    chi : array, shape (n_out, n_in), float32 or float64, weight units
    first : int, 0 to n_out - 1
        Pulses are taken from rows ``first`` to ``first + n_row - 1``, modulo n_out.
    n_row : int, 1 to n_out
    step : float, positive, weight units
        Weight change that one pulse stands for.
    status : array, shape (1,), int32

    Returns
    -------
    pulses : array, shape (n_row, n_in), dtype of chi
        Number of down pulses, as the x of an update.
    line : array, shape (n_row, n_out), dtype of chi
        One-hot rows, as the d of that update.

    Notes
    -----
    Kernel: kernels_cu/take_pulses.cu.
    """
    n_out, n_in = chi.shape
    device = _device.device_of(chi)
    pulses = _device.empty((n_row, n_in), chi.dtype, device)
    line = _device.empty((n_row, n_out), chi.dtype, device)
    if _device.runs_kernels(_device.namespace(chi)):
        grid = (-(-n_row * (n_in + n_out) // _BLOCK),)
        args = (n_row, n_out, n_in, first, step, chi, pulses, line, status)
        macros = {"REAL": twins.real(chi.dtype)}
        _TAKE_PULSES.launch(grid, (_BLOCK,), args, macros=macros)
    else:
        grain = work_grain(2 * n_in + n_out)
        given = (first, chi.dtype.type(step), chi, pulses, line)
        run_rows(_mirror(chi).take_pulses, n_row, *given, grain=grain)
    return pulses, line
