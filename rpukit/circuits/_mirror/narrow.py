"""Whole passes through circuits of small sums: samples in the lanes of vectors.

If sums have few children and groups few nodes, vectors over nodes are short, and the overhead per
sample exceeds the arithmetic. Here arrays of some samples are transposed to (row, sample), and
vectors run over samples. The operations of a sample, and their
order, are those of ``layers.py``; tables as in ``passes.py``.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import choose, exp32, fma32, log32, round_up32
from rpukit.circuits._mirror.layers import (
    IMPOSSIBLE,
    NOTHING,
    TINY,
    _alone,
    _own,
    _own_parents,
)
from rpukit.circuits._mirror.scaling import scale_columns

f4, f8 = np.float32, np.float64

SINGLE = f4(1.0).itemsize == 4

# Values of rows that samples worked on together have. It enters no result.
NEAR = 1 << (17 if SINGLE else 15)


@jit(forceinline=True)
def _table(tables, at, layer, k):
    return tables[at[layer, k] : at[layer, k + 1]]


@jit
def _turn(lines, b0, first, last, columns):
    """columns[r, s] = lines[b0 + s, r]"""
    for s in range(columns.shape[1]):
        for r in range(first, last):
            columns[r, s] = lines[b0 + s, r]


@jit
def _turn_back(columns, first, last, lines, b0):
    for s in range(columns.shape[1]):
        for r in range(first, last):
            lines[b0 + s, r] = columns[r, s]


@jit
def _sizes(layers, n_row):
    """First row above the leaves, most elements of a layer, and samples to take together."""
    leaves, most = n_row, 1
    for i in range(layers.shape[0]):
        row = layers[i, 0] if layers[i, 0] >= 0 else layers[i, 3]
        leaves, most = min(leaves, row), max(most, layers[i, 1])
    return leaves, most, max(16, min(64, NEAR // n_row // 16 * 16))


@jit
def _products(first, rows, values, out, target):
    for i in range(first.size - 1):
        to, row = target + i, rows[first[i]]
        for s in range(values.shape[1]):
            out[to, s] = values[row, s]
        for k in range(first[i] + 1, first[i + 1]):
            row = rows[k]
            for s in range(values.shape[1]):
                out[to, s] = out[to, s] + values[row, s]


@jit
def _products_back(used, back_first, back, above, target, flows):
    for i in range(used.size):
        row = used[i]
        for k in range(back_first[i], back_first[i + 1]):
            at = target + back[k]
            for s in range(flows.shape[1]):
                flows[row, s] = f4(flows[row, s] + above[at, s])


@jit
def _stage(values, ids, base, w, largest, most):
    """Largest of some rows, and exp(value - largest) of each; ``most`` is scratch."""
    n = values.shape[1]
    for s in range(n):
        most[s] = IMPOSSIBLE
    for k in range(ids.size):
        row = base + ids[k]
        for s in range(n):
            most[s] = choose(values[row, s] > most[s], values[row, s], most[s])
    for s in range(n):
        largest[s] = round_up32(most[s])
        most[s] = choose(largest[s] > NOTHING, f8(largest[s]), f8(0.0))
    for k in range(ids.size):
        row = base + ids[k]
        for s in range(n):
            w[k, s] = exp32(f4(values[row, s] - most[s]))


@jit
def _chain(weights, first, step, count, w, out):
    """out[s] = sum_k weights[first + k step] w[k, s]"""
    for s in range(out.size):
        out[s] = f4(0.0)
    for k in range(count):
        x = weights[first + k * step]
        for s in range(out.size):
            out[s] = fma32(x, w[k, s], out[s])


@jit
def _mix(list_first, list_elements, groups, theta, elements, room, values):
    """Values of the sums of a layer."""
    group_list, group_row, group_size, group_theta = groups
    w, _, total, largest, top = room
    staged = -1
    for g in range(group_list.size):
        size, row = group_size[g], group_row[g]
        ids = list_elements[list_first[group_list[g]] : list_first[group_list[g] + 1]]
        if group_list[g] != staged:
            staged = group_list[g]
            _stage(elements, ids, 0, w, largest, top)
        for m in range(size):
            first, usual = group_theta[g] + m, True
            _chain(theta, first, size, ids.size, w, total)
            for s in range(total.size):
                values[row + m, s] = f8(largest[s]) + f8(log32(total[s]))
                usual = usual & ((total[s] >= TINY) | (not largest[s] > NOTHING))
            if not usual:
                child = np.empty(ids.size, f8)
                for s in range(total.size):
                    if largest[s] > NOTHING and not total[s] >= TINY:
                        for k in range(ids.size):
                            child[k] = elements[ids[k], s]
                        values[row + m, s] = _own(theta[first:], size, child)


@jit
def _lifts(first, last, values, flows, lift):
    for r in range(first, last):
        for s in range(values.shape[1]):
            v, f = values[r, s], flows[r, s]
            some = (f > f4(0.0)) & (v > NOTHING)
            lift[r, s] = choose(some, f8(log32(f)) - v, IMPOSSIBLE)


@jit
def _unmix(list_first, list_elements, groups, parents, theta, lift, elements, room, flows):
    """Flows of the elements of a layer."""
    group_list, group_row, group_size, group_theta = groups
    w, most, total, largest, top = room
    n, order = elements.shape[1], np.arange(w.shape[0])
    for e in range(elements.shape[0]):
        for s in range(n):
            most[e, s], flows[e, s] = NOTHING, f4(0.0)
    for g in range(group_list.size):
        size = group_size[g]
        ids = list_elements[list_first[group_list[g]] : list_first[group_list[g] + 1]]
        _stage(lift, order[:size], group_row[g], w, largest, top)
        alone = _alone(ids, parents[0])
        for k in range(ids.size):
            _chain(theta, group_theta[g] + k * size, 1, size, w, total)
            e = ids[k]
            for s in range(n):
                m, t = most[e, s], largest[s]
                if alone:
                    most[e, s], flows[e, s] = t, total[s]
                else:
                    both = choose(t > m, t, m)
                    shift = choose(both > NOTHING, both, f4(0.0))
                    new = f4(total[s] * exp32(f4(t - shift)))
                    joined = fma32(flows[e, s], exp32(f4(m - shift)), new)
                    flows[e, s] = choose(t > NOTHING, joined, flows[e, s])
                    most[e, s] = both
    for e in range(elements.shape[0]):
        usual = True
        for s in range(n):
            v, m, t = elements[e, s], most[e, s], flows[e, s]
            some = (v > NOTHING) & (m > NOTHING)
            usual = usual & ((t >= TINY) | (not some))
            total[s] = t
            flows[e, s] = choose(some, exp32(f4((v + f8(m)) + f8(log32(t)))), f4(0.0))
        if not usual:
            for s in range(n):
                v = elements[e, s]
                if v > NOTHING and most[e, s] > NOTHING and not total[s] >= TINY:
                    line = lift[:, s].copy()
                    tables = (*groups[1:], *parents)
                    up = _own_parents(e, *tables, theta, line)
                    flows[e, s] = exp32(f4(v + up)) if up > IMPOSSIBLE else f4(0.0)


@jit
def _groups(i, at_wide, at_narrow, wide, narrow):
    return (
        _table(narrow, at_narrow, i, 4),
        _table(narrow, at_narrow, i, 5),
        _table(narrow, at_narrow, i, 6),
        _table(wide, at_wide, i, 3),
    )


@jit
def _room(widest, n):
    """Scratch of so many elements and samples."""
    w, most = np.empty((widest, n), f4), np.empty((widest, n), f4)
    return w, most, np.empty(n, f4), np.empty(n, f4), np.empty(n, f8)


@jit
def values_up(start, stop, layers, at_wide, at_narrow, wide, narrow, theta, values, elements):
    """As ``passes.values_up``."""
    n, n_row = values.shape
    leaves, widest, together = _sizes(layers, n_row)
    b0, held = start, 0
    while b0 < stop:
        k = min(together, stop - b0)
        if k != held:
            v, e, room = np.empty((n_row, k), f8), np.empty((widest, k), f8), _room(widest, k)
            held = k
        _turn(values, b0, 0, leaves, v)
        for i in range(layers.shape[0]):
            target, width, before = layers[i, 0], layers[i, 1], layers[i, 2]
            first, rows = _table(wide, at_wide, i, 0), _table(narrow, at_narrow, i, 0)
            if target >= 0:
                _products(first, rows, v, v, target)
                continue
            _products(first, rows, v, e, 0)
            out = elements[n * before : n * (before + width)].reshape(n, width)
            _turn_back(e, 0, width, out, b0)
            groups = _groups(i, at_wide, at_narrow, wide, narrow)
            lists = _table(wide, at_wide, i, 2)
            _mix(lists, _table(narrow, at_narrow, i, 3), groups, theta, e, room, v)
        _turn_back(v, leaves, n_row, values, b0)
        b0 += k


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
    """As ``passes.flows_down``."""
    n, n_row = values.shape
    leaves, widest, together = _sizes(layers, n_row)
    b0, held = start, 0
    while b0 < stop:
        k = min(together, stop - b0)
        if k != held:
            v, f, up = np.empty((n_row, k), f8), np.empty((n_row, k), f4), np.empty((n_row, k), f8)
            e, below, room = np.empty((widest, k), f8), np.empty((widest, k), f4), _room(widest, k)
            held = k
        _turn(values, b0, leaves, n_row, v)
        _turn(flows, b0, 0, n_row, f)
        for i in range(layers.shape[0] - 1, -1, -1):
            target, width, before = layers[i, 0], layers[i, 1], layers[i, 2]
            used, back = _table(narrow, at_narrow, i, 1), _table(narrow, at_narrow, i, 2)
            back_first = _table(wide, at_wide, i, 1)
            if target >= 0:
                _products_back(used, back_first, back, f, target, f)
                continue
            own = elements[n * before : n * (before + width)].reshape(n, width)
            _turn(own, b0, 0, width, e)
            scaled = _table(narrow, at_narrow, i, 9)
            if SINGLE and scaled.size:
                scale_columns(scaled.reshape(-1, 3), f)
            _lifts(layers[i, 3], layers[i, 4], v, f, up)
            groups = _groups(i, at_wide, at_narrow, wide, narrow)
            parents = (
                _table(wide, at_wide, i, 4),
                _table(narrow, at_narrow, i, 7),
                _table(narrow, at_narrow, i, 8),
            )
            lists = (_table(wide, at_wide, i, 2), _table(narrow, at_narrow, i, 3))
            _unmix(*lists, groups, parents, theta, up, e[:width], room, below[:width])
            _products_back(used, back_first, back, below, 0, f)
            _turn_back(up, layers[i, 3], layers[i, 4], lift, b0)
        _turn_back(f, 0, n_row, flows, b0)
        b0 += k
