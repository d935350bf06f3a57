"""Arena allocation for the arrays of a pass; each pass starts again at the beginning.

Batches of different sizes share the memory, so nothing is allocated after the largest one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rpukit import _device

__all__ = ["LOSS", "Arena", "empty", "taken_by"]

Array = Any

_APART = 512  # bytes: alignment of arrays
LOSS = 64 * _APART  # bytes that alignment may cost a pass


class _Here(threading.local):
    arena: Arena | None = None


_here = _Here()


class Arena:
    """A block of device memory from which arrays are allocated in sequence.

    Parameters
    ----------
    size : int
        Bytes.
    device : Device
    """

    def __init__(self, size: int, device: _device.Device) -> None:
        self.size, self._used = size, 0
        self._bytes = _device.empty((size,), np.uint8, device)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Let `empty` allocate from this arena, from its beginning."""
        before = _here.arena
        try:
            _here.arena, self._used = self, 0
            yield
        finally:
            _here.arena = before

    def take(self, shape: tuple[int, ...], dtype: Any) -> Array | None:
        """Allocate an array, or return None if too little is left."""
        first, n = self._used, math.prod(shape) * np.dtype(dtype).itemsize
        if first + n > self.size or n == 0:
            return None
        self._used = first + taken_by(n)
        return self._bytes[first : first + n].view(dtype).reshape(shape)


def taken_by(n_bytes: int) -> int:
    """Bytes of an allocation, rounded up as allocators and arenas do."""
    return -(-n_bytes // _APART) * _APART


def empty(shape: tuple[int, ...], dtype: Any, device: _device.Device) -> Array:
    """Allocate an uninitialised array, from the open arena if it has room."""
    arena = _here.arena
    found = None if arena is None else arena.take(shape, dtype)
    return _device.empty(shape, dtype, device) if found is None else found
