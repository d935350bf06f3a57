"""Whether a device has the warpgroup instructions of Hopper."""

from __future__ import annotations

from functools import cache

from rpukit import _device
from rpukit._device import Device


@cache
def has_warpgroups(device: Device) -> bool:
    """Whether a device has the warpgroup instructions of det_gemm_tensor.cu."""
    if device.kind == "cpu":
        return True
    return str(_device.cupy().cuda.Device(device.index).compute_capability) == "90"
