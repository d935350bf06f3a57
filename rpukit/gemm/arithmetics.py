"""Which arithmetic a device gives each type of product: explicit for every device."""

from __future__ import annotations

from functools import cache
from typing import Any

from rpukit import _device
from rpukit._device import Device
from rpukit.errors import DeviceError, DTypeError
from rpukit.gemm.factors import TENSOR, format_of

# A tag names an arithmetic: equal tags, equal bits.
_CHAINS = {"float32": "fma32", "float64": "fma64"}
_HOPPER = "tc16f25"
_LEAST = 80  # compute capability of mma.sync with bfloat16


def arithmetic(dtype: Any, device: str | Device = "cpu") -> str:
    """Tell which arithmetic products of a type have on a device.

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
        Where the device has no deterministic product of that type, or is not there.

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
        return f"tc{capability}"  # whose step has not been seen: bits of its own
    raise DeviceError(
        f"{device} has compute capability {capability[:-1]}.{capability[-1]}: products of 16-bit "
        "floats need 8.0; use float32, or arrays on the CPU, which give the bits of 9.0"
    )
