"""Mirrors of rows taken from a table, and of their gradient."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import NAN

f4 = np.float32


@jit
def tiled_gather_rows(start, stop, ints, floats, table, indices, y):
    """Rows ``start`` to ``stop - 1`` of a tile: those that lie in this part of the table."""
    width, v0, size, first = ints[1], ints[2], ints[3], ints[4]
    for i in range(start, stop):
        k = indices[i] - v0
        if 0 <= k < size:
            for j in range(width):
                y[i * width + j] = table[k * width + j]
        elif first:
            for j in range(width):
                y[i * width + j] = NAN


@jit
def tiled_scatter_rows(start, stop, ints, floats, dy, indices, y):
    """Rows ``start`` to ``stop - 1`` of a tile of the table's gradient; samples ascending."""
    width, v0, n, first = ints[1], ints[2], ints[3], ints[4]
    if first:
        y[start * width : stop * width] = f4(0.0)
    for i in range(n):
        k = indices[i] - v0
        if start <= k < stop:
            for j in range(width):
                y[k * width + j] = f4(y[k * width + j] + dy[i * width + j])
