"""Whole passes through all layers: the mirrors of layers, one after another, for some samples.

A CPU takes samples through all layers while they are in its caches, and pays for one call.
``layers`` has a line for each layer (see ``compiled.tables.Program``); tables of all layers
are concatenated in ``wide`` and ``narrow``, those of a layer from ``at`` on.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit.circuits._mirror.layers import (
    product_backward,
    product_forward,
    sum_backward,
    sum_forward,
    sum_lift,
)
from rpukit.circuits._mirror.scaling import scale_flows
from rpukit.circuits._mirror.sizes import largest_of

f4 = np.float32

SINGLE = f4(1.0).itemsize == 4

NEAR = 1 << 16  # values of rows that samples worked on together have; it enters no result


@jit(forceinline=True)
def _table(tables, at, layer, k):
    return tables[at[layer, k] : at[layer, k + 1]]


@jit(forceinline=True)
def _together(n_row):
    return max(16, min(64, NEAR // n_row))


@jit
def values_up(start, stop, layers, at_wide, at_narrow, wide, narrow, theta, values, elements):
    """Values of all rows above those of leaves, and the elements of all sums."""
    n = values.shape[0]
    together = _together(values.shape[1])
    for b0 in range(start, stop, together):
        b1 = min(b0 + together, stop)
        v = values[b0:b1]
        for i in range(layers.shape[0]):
            target, width, before = layers[i, 0], layers[i, 1], layers[i, 2]
            first, rows = _table(wide, at_wide, i, 0), _table(narrow, at_narrow, i, 0)
            if target >= 0:
                product_forward(0, b1 - b0, first, rows, v, v, target)
                continue
            e = elements[n * before : n * (before + width)].reshape(n, width)[b0:b1]
            product_forward(0, b1 - b0, first, rows, v, e, 0)
            sum_forward(
                0,
                b1 - b0,
                _table(wide, at_wide, i, 2),
                _table(narrow, at_narrow, i, 3),
                _table(narrow, at_narrow, i, 4),
                _table(narrow, at_narrow, i, 5),
                _table(narrow, at_narrow, i, 6),
                _table(wide, at_wide, i, 3),
                theta,
                e,
                v,
            )


@jit
def flows_down(
    start,
    stop,
    layers,
    at_wide,
    at_narrow,
    wide,
    narrow,
    theta,
    values,
    elements,
    flows,
    lift,
):
    """Flows and lifts of all rows, from those of the roots."""
    n = values.shape[0]
    together = _together(values.shape[1])
    below = np.empty(together * largest_of(layers[:, 1]), f4)
    for b0 in range(start, stop, together):
        b1 = min(b0 + together, stop)
        f, up = flows[b0:b1], lift[b0:b1]
        for i in range(layers.shape[0] - 1, -1, -1):
            target, width, before = layers[i, 0], layers[i, 1], layers[i, 2]
            used, back = _table(narrow, at_narrow, i, 1), _table(narrow, at_narrow, i, 2)
            back_first = _table(wide, at_wide, i, 1)
            if target >= 0:
                product_backward(0, b1 - b0, used, back_first, back, f, target, f)
                continue
            e = elements[n * before : n * (before + width)].reshape(n, width)[b0:b1]
            scaled = _table(narrow, at_narrow, i, 9)
            if SINGLE and scaled.size:
                scale_flows(0, b1 - b0, scaled.reshape(-1, 3), f)
            sum_lift(0, b1 - b0, layers[i, 3], layers[i, 4], values[b0:b1], f, up)
            part = below[: (b1 - b0) * width].reshape(b1 - b0, width)
            sum_backward(
                0,
                b1 - b0,
                _table(wide, at_wide, i, 2),
                _table(narrow, at_narrow, i, 3),
                _table(narrow, at_narrow, i, 4),
                _table(narrow, at_narrow, i, 5),
                _table(narrow, at_narrow, i, 6),
                _table(wide, at_wide, i, 3),
                _table(wide, at_wide, i, 4),
                _table(narrow, at_narrow, i, 7),
                _table(narrow, at_narrow, i, 8),
                theta,
                up,
                e,
                part,
            )
            product_backward(0, b1 - b0, used, back_first, back, part, 0, f)
