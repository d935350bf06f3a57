"""Number formats of products: their names and bits, and the arithmetic of each device."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import any_type
from rpukit._device import Device
from rpukit._kernels.entering import enters_arrays
from rpukit.errors import DeviceError, DTypeError

Array = Any

TENSOR = ("bfloat16", "float16")
# A tag names an arithmetic: equal tags, equal bits.
_CHAINS = {"float32": "fma32", "float64": "fma64"}
_HOPPER = "tc16f25"
_LEAST = 80  # compute capability of mma.sync with bfloat16


def arithmetic(dtype: Any, device: str | Device = "cpu") -> str:
    """Return the tag of the arithmetic that products of a type use on a device.

    Parameters
    ----------
    dtype : dtype
        float32, float64, float16, ml_dtypes.bfloat16, or uint16 for the bits of bfloat16.
    device : str or Device

    Returns
    -------
    str
        ``"fma32"``, ``"fma64"``: a chain of fused multiply-adds. ``"tc16f25"``: steps of 16 on a
        tensor core that keeps 25 bits below the largest exponent; ``"tc80"`` and the like: steps
        of 16 on a GPU of another compute capability. Equal tags, equal bits.

    Raises
    ------
    DTypeError
        For another type.
    DeviceError
        If the device has no deterministic product of that type, or does not exist.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> rk.gemm.arithmetic(np.float32), rk.gemm.arithmetic(np.float16)
    ('fma32', 'tc16f25')
    """
    form = format_of(dtype)
    if form in _CHAINS:
        _device.parse_device(device)
        return _CHAINS[form]
    if form not in TENSOR:
        raise DTypeError(
            f"got {form}, need float32, float64, float16, ml_dtypes.bfloat16 or uint16 (the bits "
            "of bfloat16)"
        )
    return _tensor_tag(_device.parse_device(device))


@cache
def _tensor_tag(device: Device) -> str:
    if device.kind == "cpu":
        return _HOPPER
    capability = str(_device.cupy().cuda.Device(device.index).compute_capability)
    if capability == "90":
        return _HOPPER
    if int(capability) >= _LEAST:
        return f"tc{capability}"  # its arithmetic has not been measured: a tag of its own
    raise DeviceError(
        f"{device} has compute capability {capability[:-1]}.{capability[-1]}: products of 16-bit "
        "floats need 8.0; use float32, or arrays on the CPU, which give the bits of 9.0"
    )


def format_of(dtype: Any) -> str:
    """Name of the float type that an array's dtype represents.

    uint16 represents the bits of bfloat16, which NumPy itself does not have.
    """
    name = any_type(dtype).name
    return "bfloat16" if name == "uint16" else name


def bits(array: Array) -> Array:
    """View a 16-bit array as its bits."""
    return array if array.dtype == np.uint16 else array.view(np.uint16)


@enters_arrays
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


@enters_arrays
def from_bfloat16(bits: Array) -> Array:
    """Convert bfloat16 bits to float32, exactly.

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
