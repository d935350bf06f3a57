"""What a golden case is, and what all topics use to make them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import rpukit as rk
from rpukit import _device, elementwise

SIZES = ((1, 1), (31, 33), (33, 1), (13, 132), (67, 257))
SEEDS = (0, 12345)


@dataclass(frozen=True)
class Case:
    """One case: ``run(device)`` gives arrays on that device."""

    name: str
    run: Callable[[str], list]
    small: bool = field(default=True)
    edge: bool = field(default=False)


def put(array: np.ndarray, device: str):
    return _device.to_device(array, _device.parse_device(device))


def digest(arrays: list) -> str:
    """sha256 of types, shapes and bits; a NaN is a NaN, its payload is not promised."""
    h = hashlib.sha256()
    for a in (np.ascontiguousarray(_device.to_numpy(v)) for v in arrays):
        if a.dtype.kind == "f":
            a = np.where(np.isnan(a), a.dtype.type(np.nan), a)
        h.update(f"{a.dtype.str}{a.shape}".encode())
        h.update(a.tobytes())
    return h.hexdigest()


def batch(shape, n, seed):
    """Inputs made by integers and exact divisions, the same on any NumPy."""
    s = rk.Stream.from_seed(seed)
    x = elementwise.random_fill(s.child(1), (n, shape[1]), "uniform") * 2 - 1
    d = (elementwise.random_fill(s.child(2), (n, shape[0]), "uniform") - np.float32(0.5)) / 2
    x[np.abs(x) < np.float32(0.2)] = 0
    return x, d
