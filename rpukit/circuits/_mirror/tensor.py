"""Mirrors of sums on tensor cores, by the arithmetic of ``rpukit/_exact/tensor_core.py``.

Weights, and exponentials by the largest input of a list, are bfloat16; a chain takes 16 inputs a
step. See ``docs/semantics/circuits.md``, section 5.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import exp32, log32, round_up32
from rpukit._exact.tensor_core import go_on, round16, split
from rpukit.circuits._mirror.layers import IMPOSSIBLE, NOTHING, TINY, _again, _flows, _join, _own

f4, f8 = np.float32, np.float64

STEP, FRACTION = 16, 25  # of the tensor core that is modelled


@jit
def round_weights(start, stop, theta, words):
    """Rows of weights (n_child, n_node) as bfloat16; ``words`` has lines of a multiple of 8."""
    for c in range(start, stop):
        words[c] = 0
        for m in range(theta.shape[1]):
            words[c, m] = round16(False, theta[c, m])


@jit
def tensor_stage(start, stop, first, count, at, rows, values, staged, top):
    """Exponentials of lists of inputs, products of rows, and the largest value of each list."""
    for b in range(start, stop):
        for s in range(first.size):
            line = np.empty(count[s], f8)
            most = IMPOSSIBLE
            for k in range(count[s]):
                v = values[b, rows[first[s] + k, 0]]
                for row in rows[first[s] + k, 1:]:
                    if row >= 0:
                        v = v + values[b, row]
                line[k] = v
                most = max(most, v)
            m = round_up32(most)
            top[b, s] = m
            staged[b, at[s] : at[s] + (count[s] + 7) // 8 * 8] = 0
            for k in range(count[s]):
                w = exp32(f4(line[k] - f8(m))) if m > NOTHING else f4(0.0)
                staged[b, at[s] + k] = round16(False, w)


@jit
def _factor(words):
    """What a factor of a product is to the model."""
    significand, exponent = np.empty(words.shape, np.float32), np.empty(words.shape, np.int32)
    special = np.zeros(words.shape, np.bool_)
    split(0, words.shape[0], False, words, significand, exponent, special)
    return significand, exponent, special


@jit
def _chains(inputs, weights):
    """Chains of inputs (n, k) times weights (k, m), from 0."""
    sa, ea, special_a = _factor(inputs)
    sb, eb, special_b = _factor(weights)
    rows, columns = np.zeros(len(inputs), np.bool_), np.zeros(weights.shape[1], np.bool_)
    for i in range(rows.size):
        rows[i] = special_a[i].any()
    for j in range(columns.size):
        columns[j] = special_b[:, j].any()
    y = np.zeros((rows.size, columns.size), np.float32)
    go_on(False, STEP, FRACTION, inputs, sa, ea, weights, sb, eb, rows, columns, y)
    return y


@jit
def _weights(words, first, n_child, size):
    """The words of a group, (n_child, size)."""
    line = (size + 7) // 8 * 8
    return words[first : first + n_child * line].reshape(n_child, line)[:, :size]


@jit
def tensor_forward(
    start,
    stop,
    list_first,
    list_elements,
    list_at,
    group_list,
    group_row,
    group_size,
    group_theta,
    group_words,
    theta,
    words,
    staged,
    top,
    elements,
    values,
):
    """Mix elements: value of node m of a group is largest + log sum_c theta[c, m] w[c]."""
    for g in range(group_list.size):
        size, row, of = group_size[g], group_row[g], group_list[g]
        ids = list_elements[list_first[of] : list_first[of + 1]]
        weights = _weights(words, group_words[g], ids.size, size)
        inputs = staged[start:stop, list_at[of] : list_at[of] + ids.size]
        total = _chains(inputs.copy(), weights.copy())
        flat = theta[group_theta[g] : group_theta[g] + ids.size * size]
        child = np.empty(ids.size, f8)
        for b in range(start, stop):
            m, known = top[b, of], False
            for i in range(size):
                if total[b - start, i] >= TINY:
                    values[b, row + i] = f8(m) + f8(log32(total[b - start, i]))
                    continue
                if not known:
                    for k in range(ids.size):
                        child[k] = elements[b, ids[k]]
                    known = True
                values[b, row + i] = _own(flat[i:], size, child) if m > NOTHING else IMPOSSIBLE


@jit
def tensor_backward(
    start,
    stop,
    list_first,
    list_elements,
    group_list,
    group_row,
    group_size,
    group_theta,
    group_words,
    group_at,
    parent_first,
    parent_group,
    parent_place,
    theta,
    words,
    staged,
    top,
    lift,
    elements,
    flows,
):
    """Flows of elements: exp(element + largest + log sum_m theta[c, m] w[m])."""
    n, n_element = stop - start, elements.shape[1]
    largest, total = np.full((n, n_element), NOTHING), np.zeros((n, n_element), f4)
    for g in range(group_list.size):
        ids = list_elements[list_first[group_list[g]] : list_first[group_list[g] + 1]]
        weights = _weights(words, group_words[g], ids.size, group_size[g])
        inputs = staged[start:stop, group_at[g] : group_at[g] + group_size[g]]
        part = _chains(inputs.copy(), weights.T.copy())
        for b in range(n):
            _join(top[start + b, g], part[b], ids, largest[b], total[b])
    usual = _flows(elements[start:stop], largest, total, flows[start:stop])
    for b in range(0 if usual else n):
        _again(
            largest[b],
            total[b],
            group_row,
            group_size,
            group_theta,
            parent_first,
            parent_group,
            parent_place,
            theta,
            lift[start + b],
            elements[start + b],
            flows[start + b],
        )
