"""Helpers for tests: comparison of bits, and kernels run on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.launch import set_runner

__all__ = ["assert_same_bits", "on_cpu", "order", "set_runner"]

_order = 0


def order() -> int:
    """Return the order in which the runner executes threads and blocks.

    Returns
    -------
    int
    """
    return _order


@contextmanager
def on_cpu(order: int = 0) -> Iterator[None]:
    """Run the ``.cu`` sources on the CPU for NumPy arrays, by the launch code of the GPU.

    Parameters
    ----------
    order : int
        0: threads and blocks in ascending order, 1: descending, others: shuffled with that seed. A
        kernel whose result depends on it has a race.

    Notes
    -----
    The runner compiles a source with g++ and makes every thread of a block a fiber. It belongs to
    the tests (``tests/on_cpu``), which install it by `set_runner`.
    """
    global _order
    before = _order
    _device._emulation_depth += 1
    _order = order
    try:
        yield
    finally:
        _device._emulation_depth -= 1
        _order = before


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Raise AssertionError unless two arrays have the same shape, type and bits.

    All NaN values of a type count as equal: their payload bits are not specified.

    Parameters
    ----------
    actual, expected : array
        NumPy or CuPy.
    """
    a, b = (np.ascontiguousarray(_device.to_numpy(v)) for v in (actual, expected))
    assert a.shape == b.shape, f"shapes differ: {a.shape} and {b.shape}"
    assert a.dtype == b.dtype, f"types differ: {a.dtype} and {b.dtype}"
    words = np.dtype(f"u{a.dtype.itemsize}")
    differ = a.reshape(-1).view(words) != b.reshape(-1).view(words)
    if a.dtype.kind == "f":
        differ &= ~(np.isnan(a) & np.isnan(b)).reshape(-1)
    if differ.any():
        at = np.flatnonzero(differ)
        first = np.unravel_index(at[0], a.shape)
        raise AssertionError(
            f"{at.size} of {a.size} elements differ in bits, first at {tuple(map(int, first))}: "
            f"{a[first]!r} and {b[first]!r}"
        )
