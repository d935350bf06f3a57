"""Mirrors of sums on tensor cores, by the arithmetic of ``rpukit/_exact/tensor_core.py``.

Weights, and exponentials by the largest input of a list, are bfloat16, or pairs of them whose
second is what the first leaves; a chain takes 16 inputs a step. See
``docs/semantics/circuits.md``, sections 5 and 6.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import exp32, log32, round_up32, u2f, u4
from rpukit._exact.tensor_core import go_on, round16, split
from rpukit.circuits._mirror.layers import IMPOSSIBLE, NOTHING, TINY, _again, _flows, _join, _own

f4, f8 = np.float32, np.float64

STEP, FRACTION = 16, 25  # of the tensor core that is modelled
PART = 64  # inputs of a chain of pairs


@jit(forceinline=True)
def put_word(x, k, words, rest):
    """Round a number to bfloat16, and what that leaves; without ``rest`` the first alone."""
    word = round16(False, x)
    words[k] = word
    if rest.size:
        rest[k] = round16(False, f4(x - u2f(u4(word) << u4(16))))


@jit
def round_weights(start, stop, theta, words, rest):
    """Rows of weights (n_child, n_node) as bfloat16; ``words`` has lines of a multiple of 8.

    ``rest`` likewise, or without lines: what rounding leaves.
    """
    none = np.empty(0, words.dtype)
    for c in range(start, stop):
        low = rest[c] if len(rest) else none
        words[c] = 0
        low[:] = 0
        for m in range(theta.shape[1]):
            put_word(theta[c, m], m, words[c], low)


@jit
def tensor_stage(start, stop, first, count, at, rows, values, staged, rest, top):
    """Exponentials of lists of inputs, products of rows, and the largest value of each list."""
    none = np.empty(0, staged.dtype)
    for b in range(start, stop):
        low = rest[b] if len(rest) else none
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
            low[at[s] : at[s] + (count[s] + 7) // 8 * 8] = 0
            for k in range(count[s]):
                w = exp32(f4(line[k] - f8(m))) if m > NOTHING else f4(0.0)
                put_word(w, at[s] + k, staged[b], low)


@jit
def _factor(words):
    """What a factor of a product is to the model."""
    significand, exponent = np.empty(words.shape, np.float32), np.empty(words.shape, np.int32)
    special = np.zeros(words.shape, np.bool_)
    split(0, words.shape[0], False, words, significand, exponent, special)
    return significand, exponent, special


@jit
def _chains(inputs, weights, y):
    """Continue the chains of inputs (n, k) times weights (k, m)."""
    sa, ea, special_a = _factor(inputs)
    sb, eb, special_b = _factor(weights)
    rows, columns = np.zeros(len(inputs), np.bool_), np.zeros(weights.shape[1], np.bool_)
    for i in range(rows.size):
        rows[i] = special_a[i].any()
    for j in range(columns.size):
        columns[j] = special_b[:, j].any()
    go_on(False, STEP, FRACTION, inputs, sa, ea, weights, sb, eb, rows, columns, y)


@jit
def add_part(a, a_rest, b, b_rest, first, y):
    """Add a chain from 0 of products of pairs.

    Of each step of 16 low by high, then high by low parts; then of each step high by high parts.
    ``first``: whether the low parts that come first are those of a, or of b.
    """
    part = np.zeros(y.shape, np.float32)
    for k in range(0, a.shape[1], STEP):
        step = slice(k, k + STEP)
        x, w = a[:, step].copy(), b[step].copy()
        if first:
            _chains(a_rest[:, step].copy(), w, part)
        _chains(x, b_rest[step].copy(), part)
        if not first:
            _chains(a_rest[:, step].copy(), w, part)
    _chains(a, b, part)
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = f4(y[i, j] + part[i, j])


@jit
def _products(inputs, rest, weights, weights_rest):
    """Sums of inputs (n, k) times weights (k, m): one chain, or with rests one for each 64."""
    y = np.zeros((len(inputs), weights.shape[1]), np.float32)
    if not len(rest):
        _chains(inputs.copy(), weights.copy(), y)
        return y
    for k in range(0, inputs.shape[1], PART):
        a, b = inputs[:, k : k + PART].copy(), weights[k : k + PART].copy()
        low = weights_rest[k : k + PART].copy()
        add_part(a, rest[:, k : k + PART].copy(), b, low, False, y)
    return y


@jit
def _weights(words, first, n_child, size):
    """The words of a group, (n_child, size); of no words none."""
    line = (size + 7) // 8 * 8
    if not words.size:
        return words.reshape(0, line)
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
    words_rest,
    staged,
    staged_rest,
    top,
    elements,
    values,
):
    """Mix elements: value of node m of a group is largest + log sum_c theta[c, m] w[c]."""
    for g in range(group_list.size):
        size, row, of = group_size[g], group_row[g], group_list[g]
        ids = list_elements[list_first[of] : list_first[of + 1]]
        weights = _weights(words, group_words[g], ids.size, size)
        low = _weights(words_rest, group_words[g], ids.size, size)
        inputs = staged[start:stop, list_at[of] : list_at[of] + ids.size]
        rest = staged_rest[start:stop, list_at[of] : list_at[of] + ids.size]
        total = _products(inputs, rest, weights, low)
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
    words_rest,
    staged,
    staged_rest,
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
        low = _weights(words_rest, group_words[g], ids.size, group_size[g])
        inputs = staged[start:stop, group_at[g] : group_at[g] + group_size[g]]
        rest = staged_rest[start:stop, group_at[g] : group_at[g] + group_size[g]]
        part = _products(inputs, rest, weights.T, low.T)
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
