"""Ops of hardware-aware training: weight modifiers, digital scales and sums."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.errors import ShapeError
from rpukit.inference.conductance.ops import wide
from rpukit.random import Stream

Array = Any

_MODIFY_WEIGHTS = Kernel("modify_weights")
_ADD_SCALED = Kernel("add_scaled")

_BLOCK = 256
_GRAIN = 1 << 13  # cells per thread, at least
_NONE = np.empty(0, np.float32)  # stands for an absent array in the mirrors
SCALES = {"none": 0, "columns": 1, "rows": 2, "divide_rows": 3}


def _mirror() -> Any:
    return import_module("rpukit.inference._mirror")


def _grid(n: int) -> tuple[int]:
    return (-(-n // _BLOCK),)


@dataclass(frozen=True, slots=True, eq=False)
class Modification:
    """Kind and parameters of a weight modifier, for the kernel.

    Parameters
    ----------
    kind : int, 0 to 8
        See the head of the kernel.
    std, step, bound, drop : float
    spread : bool
        Stochastic rounding.
    poly : array, shape (6,), float32, optional
    """

    kind: int
    std: float = 0.0
    step: float = 1.0
    bound: float = 1.0
    drop: float = 0.0
    spread: bool = False
    poly: Array | None = None


def modify_weights(
    weight: Array,
    largest: Array,
    change: Modification,
    *,
    stream: Stream,
    event: int,
    status: Array,
    out: Array,
) -> Array:
    """Modify weights for one training pass.

    Parameters
    ----------
    weight : array, float32
    largest : array, shape (1,), float32
        Largest absolute weight, or what is assumed for it; the bound of kind 8.
    change : Modification
    stream : Stream
    event : int
    status : array, shape (1,), int32
    out : array, shape and type of `weight`
        May be `weight`.

    Returns
    -------
    array
        `out`.

    Notes
    -----
    Kernel: kernels_cu/modify_weights.cu.
    """
    numbers = (change.std, change.step, change.bound, change.drop)
    scalars, poly = tuple(map(np.float32, numbers)), change.poly
    kind, drops = change.kind, change.drop > 0
    n = weight.size
    if _device.runs_kernels(_device.namespace(weight, out)):
        macros = {"KIND": kind, "SPREAD": int(change.spread), "DROP": int(drops)}
        _MODIFY_WEIGHTS.launch(
            _grid(-(-n // 4)),  # four cells a thread
            (_BLOCK,),
            (n, *scalars, event, weight, largest, poly, out, status, *stream.words),
            macros={**macros, "WIDE": wide(n, weight, out)},
        )
    else:
        run_rows(
            _mirror().modify_weights,
            n,
            kind,
            change.spread,
            drops,
            *scalars,
            event,
            weight.reshape(-1),
            largest,
            np.zeros(6, np.float32) if poly is None else poly,
            out.reshape(-1),
            *stream.words,
            grain=_GRAIN,
        )
    return out


def add_scaled(
    part: Array,
    scale: Array | None,
    out: Array,
    *,
    by: str = "columns",
    add: bool = False,
    offset: int = 0,
    status: Array,
) -> Array:
    """Scale a matrix by columns or rows, and write or add it to columns of another.

    Parameters
    ----------
    part : array, shape (n_row, n), float32
    scale : array, shape (n,) or (n_row,), float32, or None
    out : array, shape (n_row, at least offset + n), float32
        May be `part`.
    by : {"none", "columns", "rows", "divide_rows"}
    add : bool
        ``out = fma(part, factor, out)`` instead of ``out = part factor``.
    offset : int
    status : array, shape (1,), int32

    Returns
    -------
    array
        `out`.

    Raises
    ------
    ShapeError

    Notes
    -----
    Kernel: kernels_cu/add_scaled.cu.
    """
    n_row, n = part.shape
    if out.shape[0] != n_row or offset + n > out.shape[1]:
        raise ShapeError(f"out: got shape {out.shape}, need ({n_row}, {offset + n} or more)")
    number = SCALES[by] if scale is not None else 0
    if _device.runs_kernels(_device.namespace(part, out)):
        _ADD_SCALED.launch(
            _grid(part.size),
            (_BLOCK,),
            (n_row, n, out.shape[1], offset, part, scale, out, status),
            macros={"ADD": int(add), "SCALE": number},
        )
    else:
        run_rows(
            _mirror().add_scaled,
            n_row,
            add,
            number,
            offset,
            part,
            _NONE if scale is None else scale,
            out,
            grain=work_grain(n),
        )
    return out
