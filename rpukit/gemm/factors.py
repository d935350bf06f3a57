"""The 16-bit floats of products: their names, their bits, how NumPy holds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit.errors import DTypeError

Array = Any

TENSOR = ("bfloat16", "float16")


def format_of(dtype: Any) -> str:
    """Name of the float type that an array's dtype stands for.

    uint16 stands for the bits of bfloat16, which NumPy itself does not have.
    """
    name = np.dtype(dtype).name
    return "bfloat16" if name == "uint16" else name


def bits(array: Array) -> Array:
    """View a 16-bit array as its bits."""
    return array if array.dtype == np.uint16 else array.view(np.uint16)


def to_bfloat16(x: Array) -> Array:
    """Round float32 to the bits of bfloat16, to nearest, ties to even.

    NumPy has no bfloat16. Products take arrays of `ml_dtypes.bfloat16` where that package is
    installed, and everywhere uint16 arrays that hold the bits, as this function makes them.

    Parameters
    ----------
    x : array, any shape, float32
        NumPy or CuPy.

    Returns
    -------
    array, shape of `x`, uint16

    Raises
    ------
    DTypeError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> bits = rk.gemm.to_bfloat16(np.array([1.0, -0.1], np.float32))
    >>> [hex(v) for v in bits.tolist()]
    ['0x3f80', '0xbdcd']
    >>> rk.gemm.from_bfloat16(bits).tolist()
    [1.0, -0.10009765625]
    """
    _need(x, np.float32)
    xp = _device.namespace(x)
    u = xp.ascontiguousarray(x).view(np.uint32)
    up = u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))
    nan = (u & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    made: Array = (xp.where(nan, u | np.uint32(0x400000), up) >> np.uint32(16)).astype(np.uint16)
    return made.reshape(x.shape)


def from_bfloat16(bits: Array) -> Array:
    """Values of bfloat16 bits, exactly, as float32.

    Parameters
    ----------
    bits : array, any shape, uint16
        NumPy or CuPy.

    Returns
    -------
    array, shape of `bits`, float32

    Raises
    ------
    DTypeError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> rk.gemm.from_bfloat16(np.array([0x4049], np.uint16)).tolist()
    [3.140625]
    """
    _need(bits, np.uint16)
    values: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values


def _need(x: Array, dtype: Any) -> None:
    if not (isinstance(x, np.ndarray) or _device.is_cupy(x)) or x.dtype != dtype:
        got = getattr(x, "dtype", type(x).__name__)
        raise DTypeError(f"got {got}, need a NumPy or CuPy array of {np.dtype(dtype)}")
