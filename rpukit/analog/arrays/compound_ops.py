"""Ops of compound cells: the visible weight, and the choice of cells to refresh.

All work in place; ``status`` is the tile's flag array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact import twins
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain

Array = Any

_COMBINE_DEVICES = Kernel("combine_devices")
_SELECT_REFRESH = Kernel("select_refresh")

_BLOCK = 256


def _mirror(weight: Array) -> Any:
    return twins.mirror("rpukit.analog._mirror.combine", weight.dtype)


def combine_devices(
    weight: Array,
    devices: Array,
    gamma: Array,
    signs: tuple[Array | None, Array | None] = (None, None),
    *,
    status: Array,
) -> None:
    """Compute the visible weight ``sum_k gamma_k w_k``, in place.

    Parameters
    ----------
    weight : array, shape (n_out, n_in), float32 or float64
    devices : array, shape (n_device, n_out, n_in), dtype of the weight
    gamma : array, shape (n_device,), dtype of the weight
    signs : pair of arrays, shapes (n_out,) and (n_in,), int8, or None
        Choppers of device 0, +1 or -1, whose signs are removed; None: +1.
    status : array, shape (1,), int32

    Notes
    -----
    One chain of fused multiply-adds per cell, devices ascending.
    Kernel: kernels_cu/combine_devices.cu.
    """
    n_out, n_in = weight.shape
    if _device.runs_kernels(_device.namespace(weight)):
        args = (len(devices), n_out, n_in, gamma, devices, *signs, weight, status)
        macros = {"REAL": twins.real(weight.dtype)}
        _COMBINE_DEVICES.launch((-(-weight.size // _BLOCK),), (_BLOCK,), args, macros=macros)
    else:
        plain = [np.empty(0, np.int8) if a is None else a for a in signs]
        args = (gamma, devices, *plain, weight)
        mirror = _mirror(weight).combine_devices
        run_rows(mirror, n_out, *args, grain=work_grain(len(devices) * n_in))


def select_refresh(
    chosen: Array,
    plus: Array,
    minus: Array,
    first_col: int,
    full: float,
    some: float,
    *,
    status: Array,
) -> tuple[Array, Array]:
    """Choose the one-sided cells to refresh, and compute the values to write to them.

    Parameters
    ----------
    chosen : array, shape (n_out, n_in), float32 or float64
        1 in the cells to reset, else 0; columns from ``first_col`` are written.
    plus, minus : array, shape (n_col, n_out), the same dtype
        Reads of those columns.
    first_col : int
    full, some : float, weight units
        Thresholds of the larger and of the smaller read.
    status : array, shape (1,), int32

    Returns
    -------
    rise_plus, rise_minus : array, shape (n_col, n_out), the same dtype

    Notes
    -----
    Kernel: kernels_cu/select_refresh.cu.
    """
    n_out, n_in = chosen.shape
    n_col = plus.shape[0]
    device = _device.device_of(chosen)
    rises = [_device.empty((n_col, n_out), chosen.dtype, device) for _ in range(2)]
    if _device.runs_kernels(_device.namespace(chosen, plus, minus)):
        args = (n_out, n_in, first_col, n_col, full, some, plus, minus, chosen, *rises, status)
        macros = {"REAL": twins.real(chosen.dtype)}
        _SELECT_REFRESH.launch((-(-plus.size // _BLOCK),), (_BLOCK,), args, macros=macros)
    else:
        bounds = (chosen.dtype.type(full), chosen.dtype.type(some))
        args = (first_col, *bounds, plus, minus, chosen, *rises)
        run_rows(_mirror(chosen).select_refresh, n_col, *args, grain=work_grain(n_out))
    return rises[0], rises[1]
