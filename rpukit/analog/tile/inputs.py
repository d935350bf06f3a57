"""Inputs of products and updates: rows of samples, with any number of leading axes."""

from __future__ import annotations

import math
from typing import Any

from rpukit import _device
from rpukit.errors import ShapeError

Array = Any
Leading = tuple[int, ...] | None


def rows_of(
    v: Any, device: _device.Device, dtype: Any, width: int, name: str
) -> tuple[Array, Leading]:
    """Take samples of a length as the rows of a matrix.

    Parameters
    ----------
    v : array_like, shape (..., width)
    device : Device
    dtype : dtype
    width : int
    name : str
        Of the argument, for messages.

    Returns
    -------
    rows : array, shape (n_sample, width), dtype
        C-contiguous; samples in the order of the leading axes, the last one fastest.
    leading : tuple of int or None
        Lengths of the leading axes; None where v is a matrix.

    Raises
    ------
    ShapeError, DTypeError, DeviceError
    """
    array = _device.as_array(v, device, dtype, name)
    shape = array.shape
    if not shape or shape[-1] != width:
        raise ShapeError(
            f"{name}: got shape {tuple(shape)}, need ({width},), (n_batch, {width}) or more axes "
            f"before the last, which has {width} elements"
        )
    if len(shape) == 2:
        return array, None
    leading = tuple(shape[:-1])
    return array.reshape(math.prod(leading), width), leading


def with_leading(rows: Array, leading: Leading) -> Array:
    """Give rows of results the leading axes of the inputs."""
    return rows if leading is None else rows.reshape(*leading, rows.shape[1])


def check_same_samples(x: Leading, d: Leading, n_x: int, n_d: int) -> None:
    """Check that x and d of an update hold the same samples.

    Raises
    ------
    ShapeError
    """
    if n_x != n_d:
        raise ShapeError(f"x has {n_x} samples and d has {n_d}; need as many of each")
    several = len(x or ()) > 1 or len(d or ()) > 1
    if several and (x or (n_x,)) != (d or (n_d,)):
        raise ShapeError(
            f"x has leading axes {x or (n_x,)} and d has {d or (n_d,)}; need the same"
        )
