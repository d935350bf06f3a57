"""Mirrors of products and sums, upwards (values) and downwards (flows).

Arrays of values and flows are (n_sample, n_row). A sum's children are taken in segments of 64: the
largest value of a segment, one chain of fused multiply-adds of weights times exp(value - largest),
and segments put together from the left as (largest, sum) pairs; one logarithm at the end. Flows of
elements are the same sums over parents. See ``docs/semantics/circuits.md``.
"""

# mypy: ignore-errors

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import exp32, fma32, log32
from rpukit._math_chains import chain

f4 = np.float32

FAST = f4(1.0).itemsize == 4  # the chains of vectors are for float32
FEW = 24  # sums for which a vector of them pays
SEGMENT = 64
TOGETHER = 16  # samples that are worked on at a time; it enters no result
NOTHING = f4(-np.inf)
TINY = f4(np.finfo(np.float32).tiny)


@nb.njit(nogil=True, error_model="numpy")
def product_forward(start, stop, first, rows, values, out, target):
    """Add up rows: output i is values[rows[first[i]]] + ..., from the left."""
    for b in range(start, stop):
        for i in range(first.size - 1):
            v = values[b, rows[first[i]]]
            for k in range(first[i] + 1, first[i + 1]):
                v = f4(v + values[b, rows[k]])
            out[b, target + i] = v


@nb.njit(nogil=True, error_model="numpy")
def product_backward(start, stop, used, back_first, back, above, target, flows):
    """Add the flows of products to those of their rows, products ascending."""
    for b in range(start, stop):
        for i in range(used.size):
            f = flows[b, used[i]]
            for k in range(back_first[i], back_first[i + 1]):
                f = f4(f + above[b, target + back[k]])
            flows[b, used[i]] = f


@nb.njit(nogil=True, error_model="numpy")
def _chains(weights, along, v, first, last, y):
    """y[s, i] = sum_k weights[k, i] v[s, k], or of weights[i, k], k from first to last - 1."""
    if FAST and y.shape[1] >= FEW:
        chain(weights, along, False, v, first, last, y)
        return
    y[:] = f4(0.0)
    for s in range(y.shape[0]):
        for k in range(first, last):
            x = v[s, k]
            if along:
                for i in range(y.shape[1]):
                    y[s, i] = fma32(weights[k, i], x, y[s, i])
            else:
                for i in range(y.shape[1]):
                    y[s, i] = fma32(weights[i, k], x, y[s, i])


@nb.njit(nogil=True, error_model="numpy")
def _stage(values, w, top, before, now):
    """Of each segment: the largest value, exp(value - largest), factors to add it to the left."""
    largest = NOTHING
    for s in range(top.size):
        first, last = s * SEGMENT, min(s * SEGMENT + SEGMENT, values.size)
        m = NOTHING
        for k in range(first, last):
            m = max(m, values[k])
        top[s] = m
        if m > NOTHING:
            for k in range(first, last):
                w[k] = exp32(f4(values[k] - m))
        else:
            for k in range(first, last):
                w[k] = f4(0.0)
        both = max(largest, m)
        before[s] = exp32(f4(largest - both)) if largest > NOTHING else f4(0.0)
        now[s] = exp32(f4(m - both)) if m > NOTHING else f4(0.0)
        largest = both
    return largest


@nb.njit(nogil=True, error_model="numpy")
def _own(weights, step, values):
    """log sum_k weights[k step] exp(values[k]) by the largest value that has a weight."""
    m = NOTHING
    for k in range(values.size):
        if weights[k * step] > f4(0.0):
            m = max(m, values[k])
    if not m > NOTHING:
        return NOTHING
    total = f4(0.0)
    for k in range(values.size):
        if weights[k * step] > f4(0.0):
            total = fma32(weights[k * step], exp32(f4(values[k] - m)), total)
    return f4(m + log32(total))


@nb.njit(nogil=True, error_model="numpy")
def sum_forward(
    start,
    stop,
    list_first,
    list_elements,
    group_list,
    group_row,
    group_size,
    group_theta,
    theta,
    elements,
    values,
):
    """Mix elements: value of node m of a group is log sum_c theta[c, m] exp(element c)."""
    most_c, most_m = np.diff(list_first).max(), group_size.max()
    child = np.empty((TOGETHER, most_c), f4)
    w, part = np.empty(TOGETHER * most_c, f4), np.empty(TOGETHER * most_m, f4)
    total = np.empty((TOGETHER, most_m), f4)
    n_most = (most_c + SEGMENT - 1) // SEGMENT
    top, before = np.empty((TOGETHER, n_most), f4), np.empty((TOGETHER, n_most), f4)
    now, largest = np.empty((TOGETHER, n_most), f4), np.empty(TOGETHER, f4)
    for b0 in range(start, stop, TOGETHER):
        n = min(TOGETHER, stop - b0)
        staged = -1
        for g in range(group_list.size):
            first, size = list_first[group_list[g]], group_size[g]
            n_child = list_first[group_list[g] + 1] - first
            n_segment = (n_child + SEGMENT - 1) // SEGMENT
            ws = w[: n * n_child].reshape(n, n_child)
            if group_list[g] != staged:
                staged = group_list[g]
                for b in range(n):
                    for k in range(n_child):
                        child[b, k] = elements[b0 + b, list_elements[first + k]]
                    largest[b] = _stage(
                        child[b, :n_child],
                        ws[b],
                        top[b, :n_segment],
                        before[b],
                        now[b],
                    )
            flat = theta[group_theta[g] : group_theta[g] + n_child * size]
            weights, sums = flat.reshape(n_child, size), part[: n * size].reshape(n, size)
            for s in range(n_segment):
                _chains(weights, True, ws, s * SEGMENT, min(s * SEGMENT + SEGMENT, n_child), sums)
                for b in range(n):
                    for m in range(size):
                        so_far = total[b, m] if s else f4(0.0)
                        total[b, m] = fma32(so_far, before[b, s], f4(sums[b, m] * now[b, s]))
            for b in range(n):
                row = group_row[g]
                for m in range(size):
                    v = NOTHING
                    if total[b, m] >= TINY:
                        v = f4(largest[b] + log32(total[b, m]))
                    elif largest[b] > NOTHING:
                        v = _own(flat[m:], size, child[b, :n_child])
                    values[b0 + b, row + m] = v


@nb.njit(nogil=True, error_model="numpy")
def sum_lift(start, stop, first, last, values, flows, lift):
    """lift = log flow - value: what a parent passes on to a child, but for the child's value."""
    for b in range(start, stop):
        for r in range(first, last):
            v, f = values[b, r], flows[b, r]
            lift[b, r] = f4(log32(f) - v) if f > f4(0.0) and v > NOTHING else NOTHING


@nb.njit(nogil=True, error_model="numpy")
def sum_backward(
    start,
    stop,
    list_first,
    list_elements,
    group_list,
    group_row,
    group_size,
    group_theta,
    parent_first,
    parent_group,
    parent_place,
    theta,
    lift,
    elements,
    flows,
):
    """Flows of elements: exp(element + log sum_m theta[c, m] exp(lift m)), parents ascending."""
    most_c, most_m = np.diff(list_first).max(), group_size.max()
    n_element = elements.shape[1]
    w, part = np.empty(TOGETHER * most_m, f4), np.empty(TOGETHER * most_c, f4)
    n_most = (most_m + SEGMENT - 1) // SEGMENT
    top = np.empty((TOGETHER, n_most), f4)
    unused = np.empty((2, n_most), f4)
    largest, total = np.empty((TOGETHER, n_element), f4), np.empty((TOGETHER, n_element), f4)
    for b0 in range(start, stop, TOGETHER):
        n = min(TOGETHER, stop - b0)
        largest[:n], total[:n] = NOTHING, f4(0.0)
        for g in range(group_list.size):
            first, size, row = list_first[group_list[g]], group_size[g], group_row[g]
            n_child = list_first[group_list[g] + 1] - first
            n_segment = (size + SEGMENT - 1) // SEGMENT
            ws = w[: n * size].reshape(n, size)
            for b in range(n):
                above = lift[b0 + b, row : row + size]
                _stage(above, ws[b], top[b, :n_segment], unused[0], unused[1])
            flat = theta[group_theta[g] : group_theta[g] + n_child * size]
            weights, sums = flat.reshape(n_child, size), part[: n * n_child].reshape(n, n_child)
            for s in range(n_segment):
                _chains(weights, False, ws, s * SEGMENT, min(s * SEGMENT + SEGMENT, size), sums)
                for b in range(n):
                    t = top[b, s]
                    if not t > NOTHING:
                        continue
                    for k in range(n_child):
                        e = list_elements[first + k]
                        m = largest[b, e]
                        both = max(m, t)
                        old = exp32(f4(m - both)) if m > NOTHING else f4(0.0)
                        new = f4(sums[b, k] * exp32(f4(t - both)))
                        total[b, e] = fma32(total[b, e], old, new)
                        largest[b, e] = both
        for b in range(n):
            for e in range(n_element):
                v, f = elements[b0 + b, e], f4(0.0)
                if v > NOTHING and largest[b, e] > NOTHING:
                    if total[b, e] >= TINY:
                        f = exp32(f4(f4(v + largest[b, e]) + log32(total[b, e])))
                    else:
                        up = _own_parents(
                            e,
                            list_first,
                            group_list,
                            group_row,
                            group_size,
                            group_theta,
                            parent_first,
                            parent_group,
                            parent_place,
                            theta,
                            lift[b0 + b],
                        )
                        f = exp32(f4(v + up)) if up > NOTHING else f
                flows[b0 + b, e] = f


@nb.njit(nogil=True, error_model="numpy")
def _own_parents(
    e,
    list_first,
    group_list,
    group_row,
    group_size,
    group_theta,
    parent_first,
    parent_group,
    parent_place,
    theta,
    lift,
):
    """log sum_m theta[e, m] exp(lift of m), by the largest lift that has a weight."""
    m = NOTHING
    for p in range(parent_first[e], parent_first[e + 1]):
        g = parent_group[p]
        first = group_theta[g] + parent_place[p] * group_size[g]
        for k in range(group_size[g]):
            if theta[first + k] > f4(0.0):
                m = max(m, lift[group_row[g] + k])
    if not m > NOTHING:
        return NOTHING
    total = f4(0.0)
    for p in range(parent_first[e], parent_first[e + 1]):
        g = parent_group[p]
        first = group_theta[g] + parent_place[p] * group_size[g]
        for k in range(group_size[g]):
            if theta[first + k] > f4(0.0):
                up = exp32(f4(lift[group_row[g] + k] - m))
                total = fma32(theta[first + k], up, total)
    return f4(m + log32(total))
