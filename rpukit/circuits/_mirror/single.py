"""Whole passes through circuits of small sums, of one sample at a time.

With few samples the lanes of vectors hold nodes, eight together; the rest of eight is filled with
numbers that enter no result. Logarithms and exponentials are in loops of their own, whose number
of steps the compiler does not know: it makes vectors of them then. The operations of a sample, and
their order, are those of ``layers.py``; tables as in ``passes.py``, read in place: slices of them
would cost more than what a layer computes.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import choose, exp32, fma32, log32, round_up32
from rpukit.circuits._mirror.layers import IMPOSSIBLE, NOTHING, TINY, _own, _own_parents
from rpukit.circuits._mirror.scaling import scale_flows

f4, f8 = np.float32, np.float64

SINGLE = f4(1.0).itemsize == 4


@jit(forceinline=True)
def _table(tables, at, layer, k):
    return tables[at[layer, k] : at[layer, k + 1]]


@jit
def _padded(layers):
    """Most elements, or rows, of a layer, in whole lanes."""
    most = 1
    for i in range(layers.shape[0]):
        most = max(most, layers[i, 1], layers[i, 4] - layers[i, 3])
    return (most + 7) // 8 * 8


@jit(forceinline=True)
def _products(wide, narrow, first, rows, n, values, out, target):
    for i in range(n):
        begin, end = wide[first + i], wide[first + i + 1]
        x = values[narrow[rows + begin]]
        for k in range(begin + 1, end):
            x = x + values[narrow[rows + k]]
        out[target + i] = x


@jit(forceinline=True)
def _products_back(wide, narrow, used, first, back, n, above, target, flows):
    for i in range(n):
        row = narrow[used + i]
        x = flows[row]
        for k in range(wide[first + i], wide[first + i + 1]):
            x = f4(x + above[target + narrow[back + k]])
        flows[row] = x


@jit(forceinline=True)
def _exps(n, child, w):
    """Largest of n values, rounded up, and exp(value - largest) of each."""
    most = IMPOSSIBLE
    for k in range(n):
        most = choose(child[k] > most, child[k], most)
    largest = round_up32(most)
    shift = choose(largest > NOTHING, f8(largest), f8(0.0))
    for k in range((n + 7) // 8 * 8):
        w[k] = exp32(f4(child[k] - shift))
    return largest


@jit(forceinline=True)
def _across(theta, at, step, n, w, out, to):
    """out[to + i] = sum_k theta[at + k step + i] w[k], for i below 8"""
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = f4(0.0)
    for k in range(n):
        p, x = at + k * step, w[k]
        a0, a1 = fma32(theta[p], x, a0), fma32(theta[p + 1], x, a1)
        a2, a3 = fma32(theta[p + 2], x, a2), fma32(theta[p + 3], x, a3)
        a4, a5 = fma32(theta[p + 4], x, a4), fma32(theta[p + 5], x, a5)
        a6, a7 = fma32(theta[p + 6], x, a6), fma32(theta[p + 7], x, a7)
    out[to], out[to + 1], out[to + 2], out[to + 3] = a0, a1, a2, a3
    out[to + 4], out[to + 5], out[to + 6], out[to + 7] = a4, a5, a6, a7


@jit(forceinline=True)
def _chain(theta, at, step, n, w):
    """sum_k theta[at + k step] w[k]"""
    total = f4(0.0)
    for k in range(n):
        total = fma32(theta[at + k * step], w[k], total)
    return total


@jit(forceinline=True)
def _along(theta, at, step, n, w, out, to):
    """out[to + i] = sum_k theta[at + i step + k] w[k], for i below 8"""
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = f4(0.0)
    p1, p2, p3 = at + step, at + 2 * step, at + 3 * step
    p4, p5, p6, p7 = at + 4 * step, at + 5 * step, at + 6 * step, at + 7 * step
    for k in range(n):
        x = w[k]
        a0, a1 = fma32(theta[at + k], x, a0), fma32(theta[p1 + k], x, a1)
        a2, a3 = fma32(theta[p2 + k], x, a2), fma32(theta[p3 + k], x, a3)
        a4, a5 = fma32(theta[p4 + k], x, a4), fma32(theta[p5 + k], x, a5)
        a6, a7 = fma32(theta[p6 + k], x, a6), fma32(theta[p7 + k], x, a7)
    out[to], out[to + 1], out[to + 2], out[to + 3] = a0, a1, a2, a3
    out[to + 4], out[to + 5], out[to + 6], out[to + 7] = a4, a5, a6, a7


@jit(forceinline=True)
def _logs(n, x, logs):
    """Logarithms of n numbers, whose rest of eight is filled."""
    whole = (n + 7) // 8 * 8
    for k in range(n, whole):
        x[k] = f4(1.0)
    for k in range(whole):
        logs[k] = log32(x[k])


@jit(forceinline=True)
def _sums(size, largest, total, logs, values, row):
    """Store the values of sums; tell whether all totals are normal numbers."""
    _logs(size, total, logs)
    usual = True
    for k in range(size):
        values[row + k] = f8(largest) + f8(logs[k])
        usual = usual & (total[k] >= TINY)
    return usual | (not largest > NOTHING)


@jit
def values_up(start, stop, layers, at_wide, at_narrow, wide, narrow, theta, values, elements):
    """As ``passes.values_up``."""
    n, most = values.shape[0], _padded(layers)
    child, w = np.empty(most, f8), np.empty(most, f4)
    total, logs = np.empty(most, f4), np.empty(most, f4)
    for b in range(start, stop):
        v = values[b]
        for i in range(layers.shape[0]):
            target, width = layers[i, 0], layers[i, 1]
            first, rows = at_wide[i, 0], at_narrow[i, 0]
            n_product = at_wide[i, 1] - first - 1
            if target >= 0:
                _products(wide, narrow, first, rows, n_product, v, v, target)
                continue
            begin = n * layers[i, 2] + b * width
            _products(wide, narrow, first, rows, n_product, v, elements, begin)
            lists, members, theta_of = at_wide[i, 2], at_narrow[i, 3], at_wide[i, 3]
            group_list, group_row, group_size = at_narrow[i, 4], at_narrow[i, 5], at_narrow[i, 6]
            staged, n_child, ids, largest = -1, 0, 0, NOTHING
            for g in range(group_row - group_list):
                own, size = narrow[group_list + g], narrow[group_size + g]
                row, at = narrow[group_row + g], wide[theta_of + g]
                if own != staged:
                    staged, ids = own, members + wide[lists + own]
                    n_child = wide[lists + own + 1] - wide[lists + own]
                    for k in range(n_child):
                        child[k] = elements[begin + narrow[ids + k]]
                    for k in range(n_child, (n_child + 7) // 8 * 8):
                        child[k] = IMPOSSIBLE
                    largest = _exps(n_child, child, w)
                for m in range(0, size - 7, 8):
                    _across(theta, at + m, size, n_child, w, total, m)
                for m in range(size // 8 * 8, size):
                    total[m] = _chain(theta, at + m, size, n_child, w)
                if not _sums(size, largest, total, logs, v, row):
                    for m in range(size):
                        if not total[m] >= TINY:
                            v[row + m] = _own(theta[at + m :], size, child[:n_child])


@jit(forceinline=True)
def _lifts(first, last, values, flows, room, logs, lift):
    for k in range(last - first):
        room[k] = flows[first + k]
    _logs(last - first, room, logs)
    for k in range(last - first):
        some = (room[k] > f4(0.0)) & (values[first + k] > NOTHING)
        lift[first + k] = choose(some, f8(logs[k]) - values[first + k], IMPOSSIBLE)


@jit(forceinline=True)
def _join(e, t, part, most, total):
    """Add what a group passes on to an element that has other parents, too."""
    m = most[e]
    both = choose(t > m, t, m)
    shift = choose(both > NOTHING, both, f4(0.0))
    new = f4(part * exp32(f4(t - shift)))
    joined = fma32(total[e], exp32(f4(m - shift)), new)
    total[e] = choose(t > NOTHING, joined, total[e])
    most[e] = both


@jit(forceinline=True)
def _flows(width, values, first, most, total, logs, flows):
    """exp(element + largest + log total); whether all totals in use are normal numbers."""
    _logs(width, total, logs)
    for k in range(width):
        logs[k] = f4((values[first + k] + f8(most[k])) + f8(logs[k]))
    for k in range(width, (width + 7) // 8 * 8):
        logs[k] = NOTHING
    for k in range((width + 7) // 8 * 8):
        flows[k] = exp32(logs[k])
    usual = True
    for k in range(width):
        some = (values[first + k] > NOTHING) & (most[k] > NOTHING)
        flows[k] = choose(some, flows[k], f4(0.0))
        usual = usual & ((total[k] >= TINY) | (not some))
    return usual


@jit
def _again(i, at_wide, at_narrow, wide, narrow, theta, lift, values, most, total, flows):
    """Recompute flows whose totals are not normal numbers."""
    for e in range(values.size):
        if values[e] > NOTHING and most[e] > NOTHING and not total[e] >= TINY:
            up = _own_parents(
                e,
                _table(narrow, at_narrow, i, 5),
                _table(narrow, at_narrow, i, 6),
                _table(wide, at_wide, i, 3),
                _table(wide, at_wide, i, 4),
                _table(narrow, at_narrow, i, 7),
                _table(narrow, at_narrow, i, 8),
                theta,
                lift,
            )
            flows[e] = exp32(f4(values[e] + up)) if up > IMPOSSIBLE else f4(0.0)


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
    n, size_of = values.shape[0], _padded(layers)
    child, w = np.empty(size_of, f8), np.empty(size_of, f4)
    most, total = np.empty(size_of, f4), np.empty(size_of, f4)
    part, below, logs = (np.empty(size_of, f4), np.empty(size_of, f4), np.empty(size_of, f4))
    for b in range(start, stop):
        v, f, up = values[b], flows[b], lift[b]
        for i in range(layers.shape[0] - 1, -1, -1):
            target, width = layers[i, 0], layers[i, 1]
            used, back, back_first = at_narrow[i, 1], at_narrow[i, 2], at_wide[i, 1]
            n_used = back - used
            if target >= 0:
                _products_back(wide, narrow, used, back_first, back, n_used, f, target, f)
                continue
            if SINGLE and at_narrow[i, 10] > at_narrow[i, 9]:
                scaled = _table(narrow, at_narrow, i, 9)
                scale_flows(b, b + 1, scaled.reshape(-1, 3), flows)
            _lifts(layers[i, 3], layers[i, 4], v, f, part, logs, up)
            begin = n * layers[i, 2] + b * width
            lists, members, theta_of = at_wide[i, 2], at_narrow[i, 3], at_wide[i, 3]
            group_list, group_row, group_size = at_narrow[i, 4], at_narrow[i, 5], at_narrow[i, 6]
            alone = at_narrow[i, 8] - at_narrow[i, 7] == width  # one group of parents each
            for e in range(width):
                most[e], total[e] = NOTHING, f4(0.0)
            for g in range(group_row - group_list):
                own, size = narrow[group_list + g], narrow[group_size + g]
                row, at = narrow[group_row + g], wide[theta_of + g]
                ids = members + wide[lists + own]
                n_child = wide[lists + own + 1] - wide[lists + own]
                for k in range(size):
                    child[k] = up[row + k]
                for k in range(size, (size + 7) // 8 * 8):
                    child[k] = IMPOSSIBLE
                t = _exps(size, child, w)
                for k in range(0, n_child - 7, 8):
                    _along(theta, at + k * size, size, size, w, part, k)
                for k in range(n_child // 8 * 8, n_child):
                    part[k] = _chain(theta, at + k * size, 1, size, w)
                if alone:
                    for k in range(n_child):
                        e = narrow[ids + k]
                        most[e], total[e] = t, part[k]
                else:
                    for k in range(n_child):
                        _join(narrow[ids + k], t, part[k], most, total)
            if not _flows(width, elements, begin, most, total, logs, below):
                inside = elements[begin : begin + width]
                tables = (at_wide, at_narrow, wide, narrow)
                _again(i, *tables, theta, up, inside, most, total, below)
            _products_back(wide, narrow, used, back_first, back, n_used, below, 0, f)
