"""What all benchmarks share: the axis of compute devices, and waiting for a GPU."""

from typing import Any

import numpy as np

from rpukit import _device

DEVICES = ["cpu", "gpu"]


def require(device: str) -> None:
    """Leave a benchmark out (asv prints n/a) where there is no such device."""
    if device != "cpu" and _device.gpu_count() == 0:
        raise NotImplementedError("no GPU")


def synchronise(device: str) -> None:
    """Wait until a GPU has done what it was given: part of every timed body."""
    if device != "cpu":
        _device.cupy().cuda.get_current_stream().synchronize()


def put(array: np.ndarray, device: str) -> Any:
    """Copy an array to a device."""
    return _device.to_device(array, _device.parse_device(device))


def batch(n: int, size: int, device: str) -> tuple[Any, Any]:
    """Inputs and small errors of ``n`` samples, for a square tile."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (n, size)).astype(np.float32)
    return put(x, device), put(rng.normal(0, 0.01, (n, size)).astype(np.float32), device)
