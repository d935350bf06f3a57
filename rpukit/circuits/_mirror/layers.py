"""Mirrors of products and sums, upwards (values) and downwards (flows).

Arrays of values and flows are (n_sample, n_row). Values, elements and lifts are logarithms in
float64, whatever the type of the weights: their rounding would grow with a long chain. Flows and
sums have the type of the weights. A sum's children are taken in segments of 64: the largest value
of a segment, rounded up to that type, one chain of fused multiply-adds of weights times
exp(value - largest), and segments put together from the left as (largest, sum) pairs; one
logarithm at the end. Flows of elements are the same sums over parents. See
``docs/semantics/circuits.md``. Flags that differ from call to call are ``np.bool_``: Numba would
compile a function again for each True and False.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.chains import chain
from rpukit._exact.jit import jit
from rpukit._exact.math import choose, exp32, fma32, log32, round_up32
from rpukit.circuits._mirror.sizes import largest_of, longest_of

f4, f8 = np.float32, np.float64

FAST = f4(1.0).itemsize == 4  # the chains of vectors are for float32
FEW = 24  # sums for which a vector of them pays
SEGMENT = 64
TOGETHER = 16  # samples of a tile, up to 64; the result does not depend on it
NOTHING = f4(-np.inf)
IMPOSSIBLE = f8(-np.inf)  # as a value
TINY = f4(np.finfo(np.float32).tiny)


@jit
def _end_of_run(first, rows, lead, i):
    """Find the end of the outputs from i on whose rows, and own places, lie side by side."""
    n, j = first[i + 1] - first[i], i + 1
    while j < first.size - 1 and first[j + 1] - first[j] == n:
        if lead.size and lead[j] != lead[j - 1] + 1:
            return j
        for k in range(first[j], first[j] + n):
            if rows[k] != rows[k - n] + 1:
                return j
        j += 1
    return j


@jit
def product_forward(start, stop, first, rows, values, out, target):
    """Add up rows: output i is values[rows[first[i]]] + ..., from the left."""
    i = 0
    while i < first.size - 1:
        end = _end_of_run(first, rows, rows[:0], i)
        for b in range(start, stop):
            line, part = out[b, target + i : target + end], values[b, rows[first[i]] :]
            for m in range(line.size):
                line[m] = part[m]
            for k in range(first[i] + 1, first[i + 1]):
                part = values[b, rows[k] :]
                for m in range(line.size):
                    line[m] = line[m] + part[m]
        i = end


@jit
def product_backward(start, stop, used, back_first, back, above, target, flows):
    """Add the flows of products to those of their rows, products ascending."""
    i = 0
    while i < used.size:
        end = _end_of_run(back_first, back, used, i)
        for b in range(start, stop):
            line = flows[b, used[i] : used[i] + end - i]
            for k in range(back_first[i], back_first[i + 1]):
                part = above[b, target + back[k] :]
                for m in range(line.size):
                    line[m] = f4(line[m] + part[m])
        i = end


@jit
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


@jit
def _room(widest, n_in, n_out):
    """Scratch of so many samples as fit into a near cache, and their number."""
    n = max(TOGETHER, min(4 * TOGETHER, 8192 // widest))
    n_segment = (n_in + SEGMENT - 1) // SEGMENT
    values, inside = np.empty(n * n_in, f8), np.empty(n * n_in, f4)
    outside = np.empty((2, n * n_out), f4)
    return n, values, inside, outside, np.empty((3, n, n_segment), f4), np.empty(n, f4)


@jit
def _stage(v, w, factors, largest):
    """Of each sample: the largest value; of its segments exp(value - largest of the segment).

    ``factors``: largest value of a segment, and by what it and those left of it are multiplied.
    """
    for b in range(v.shape[0]):
        above = NOTHING
        for s in range(factors.shape[2]):
            first, last = s * SEGMENT, min(s * SEGMENT + SEGMENT, v.shape[1])
            part, shifted = v[b, first:last], w[b, first:last]
            most = IMPOSSIBLE
            for k in range(part.size):
                most = max(most, part[k])
            m = round_up32(most)
            shift = f8(m) if m > NOTHING else f8(0.0)
            for k in range(part.size):
                shifted[k] = f4(part[k] - shift)
            factors[0, b, s] = m
            both = max(above, m)
            if s:
                factors[1, b, s] = exp32(f4(above - both)) if above > NOTHING else f4(0.0)
                factors[2, b, s] = exp32(f4(m - both)) if m > NOTHING else f4(0.0)
            above = both
        largest[b] = above
    flat = w.reshape(-1)
    for k in range(flat.size):
        flat[k] = exp32(flat[k])


@jit
def _combine(weights, along, w, factors, part, total):
    """Chains of segments, put together from the left; of the first the factors are 0 and 1."""
    for s in range(factors.shape[2]):
        last = min(s * SEGMENT + SEGMENT, w.shape[1])
        _chains(weights, along, w, s * SEGMENT, last, part if s else total)
        if s:
            for b in range(w.shape[0]):
                left, right = factors[1, b, s], factors[2, b, s]
                for i in range(total.shape[1]):
                    total[b, i] = fma32(total[b, i], left, f4(part[b, i] * right))


@jit
def _own(weights, step, values):
    """log sum_k weights[k step] exp(values[k]) by the largest value that has a weight."""
    m = IMPOSSIBLE
    for k in range(values.size):
        if weights[k * step] > f4(0.0):
            m = max(m, values[k])
    if not m > IMPOSSIBLE:
        return IMPOSSIBLE
    total = f4(0.0)
    for k in range(values.size):
        if weights[k * step] > f4(0.0):
            total = fma32(weights[k * step], exp32(f4(values[k] - m)), total)
    return m + f8(log32(total))


@jit
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
    most_c, most_m = longest_of(list_first), largest_of(group_size)
    room = _room(max(most_c, most_m), most_c, most_m)
    together, of_children, inside, outside, of_segments, largest = room
    for b0 in range(start, stop, together):
        n = min(together, stop - b0)
        staged = -1
        for g in range(group_list.size):
            size, row = group_size[g], group_row[g]
            ids = list_elements[list_first[group_list[g]] : list_first[group_list[g] + 1]]
            factors = of_segments[:, :n, : (ids.size + SEGMENT - 1) // SEGMENT]
            child = of_children[: n * ids.size].reshape(n, ids.size)
            w = inside[: n * ids.size].reshape(n, ids.size)
            total = outside[0, : n * size].reshape(n, size)
            part = outside[1, : n * size].reshape(n, size)
            if group_list[g] != staged:
                staged = group_list[g]
                for b in range(n):
                    for k in range(ids.size):
                        child[b, k] = elements[b0 + b, ids[k]]
                _stage(child, w, factors, largest)
            flat = theta[group_theta[g] : group_theta[g] + ids.size * size]
            _combine(flat.reshape(ids.size, size), np.bool_(True), w, factors, part, total)
            usual = _logarithms(total, part)
            for b in range(n):
                line = values[b0 + b, row : row + size]
                for m in range(size):
                    line[m] = f8(largest[b]) + f8(part[b, m])
                if not usual and largest[b] > NOTHING:
                    for m in range(size):
                        if not total[b, m] >= TINY:
                            line[m] = _own(flat[m:], size, child[b])


@jit
def sum_stage(start, stop, first, count, rows, values, w, top):
    """Exponentials of segments of inputs, products of rows, and their largest values.

    What lies behind the samples, or the inputs, of a segment is a value of -inf.
    """
    line = np.empty(SEGMENT, f8)
    for s in range(start, stop):
        for b in range(w.shape[1]):
            line[:] = IMPOSSIBLE
            for k in range(count[s] if b < values.shape[0] else 0):
                line[k] = values[b, rows[first[s] + k, 0]]
                for row in rows[first[s] + k, 1:]:
                    if row >= 0:
                        line[k] = line[k] + values[b, row]
            m = round_up32(line.max())
            top[s, b] = m
            for k in range(SEGMENT):
                w[s * SEGMENT + k, b] = exp32(f4(line[k] - f8(m))) if m > NOTHING else f4(0.0)


@jit
def _logarithms(x, out):
    """Compute the logarithms of all x, and whether all x are normal numbers."""
    x, out = x.reshape(-1), out.reshape(-1)
    usual = True
    for i in range(x.size):
        out[i] = log32(x[i])
        usual = usual & (x[i] >= TINY)
    return usual


@jit
def root_flows(start, stop, roots, weights, values, flows, out):
    """Flows of the roots, 0 for all other rows; values of the roots go out."""
    for b in range(start, stop):
        flows[b, :] = f4(0.0)
        for k in range(roots.size):
            r = roots[k]
            out[b, k] = f4(values[b, r])
            if out[b, k] > NOTHING:
                flows[b, r] = flows[b, r] + weights[b, k]


@jit
def sum_lift(start, stop, first, last, values, flows, lift):
    """lift = log flow - value: what a parent passes on to a child, but for the child's value."""
    for b in range(start, stop):
        v, f, line = values[b, first:last], flows[b, first:last], lift[b, first:last]
        for r in range(line.size):
            some = (f[r] > f4(0.0)) & (v[r] > NOTHING)
            line[r] = choose(some, f8(log32(f[r])) - v[r], IMPOSSIBLE)


@jit
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
    most_c, most_m = longest_of(list_first), largest_of(group_size)
    n_element = elements.shape[1]
    room = _room(n_element, most_m, most_c)
    together, of_nodes, inside, outside, of_segments, most = room
    largest = np.empty(together * n_element, f4)
    total = np.empty(together * n_element, f4)
    for b0 in range(start, stop, together):
        n = min(together, stop - b0)
        m_all = largest[: n * n_element].reshape(n, n_element)
        t_all = total[: n * n_element].reshape(n, n_element)
        m_all[:], t_all[:] = NOTHING, f4(0.0)
        for g in range(group_list.size):
            size, row = group_size[g], group_row[g]
            ids = list_elements[list_first[group_list[g]] : list_first[group_list[g] + 1]]
            factors = of_segments[:, :n, : (size + SEGMENT - 1) // SEGMENT]
            above = of_nodes[: n * size].reshape(n, size)
            w = inside[: n * size].reshape(n, size)
            part = outside[0, : n * ids.size].reshape(n, ids.size)
            whole = outside[1, : n * ids.size].reshape(n, ids.size)
            weights = theta[group_theta[g] : group_theta[g] + ids.size * size]
            weights = weights.reshape(ids.size, size)
            for b in range(n):
                for m in range(size):
                    above[b, m] = lift[b0 + b, row + m]
            _stage(above, w, factors, most)
            if _alone(ids, parent_first):
                _combine(weights, np.bool_(False), w, factors, part, whole)
                for b in range(n):
                    for k in range(ids.size):
                        m_all[b, ids[k]], t_all[b, ids[k]] = most[b], whole[b, k]
                continue
            for s in range(factors.shape[2]):
                last = min(s * SEGMENT + SEGMENT, size)
                _chains(weights, np.bool_(False), w, s * SEGMENT, last, part)
                for b in range(n):
                    _join(factors[0, b, s], part[b], ids, m_all[b], t_all[b])
        usual = _flows(elements[b0 : b0 + n], m_all, t_all, flows[b0 : b0 + n])
        for b in range(0 if usual else n):
            _again(
                m_all[b],
                t_all[b],
                group_row,
                group_size,
                group_theta,
                parent_first,
                parent_group,
                parent_place,
                theta,
                lift[b0 + b],
                elements[b0 + b],
                flows[b0 + b],
            )


@jit
def _again(
    largest,
    total,
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
    """Recompute flows whose totals are not normal numbers, by the largest lift with a weight."""
    for e in range(elements.size):
        v = elements[e]
        if v > NOTHING and largest[e] > NOTHING and not total[e] >= TINY:
            up = _own_parents(
                e,
                group_row,
                group_size,
                group_theta,
                parent_first,
                parent_group,
                parent_place,
                theta,
                lift,
            )
            flows[e] = exp32(f4(v + up)) if up > IMPOSSIBLE else f4(0.0)


@jit
def _alone(ids, parent_first):
    """Whether all these elements have one group of parents."""
    most = 0
    for k in range(ids.size):
        most = max(most, parent_first[ids[k] + 1] - parent_first[ids[k]])
    return most == 1


@jit
def _join(t, part, ids, largest, total):
    """Add a segment to sums of elements that have other parents, too."""
    if not t > NOTHING:
        return
    for k in range(ids.size):
        m = largest[ids[k]]
        both = max(m, t)
        old = exp32(f4(m - both)) if m > NOTHING else f4(0.0)
        new = f4(part[k] * exp32(f4(t - both)))
        total[ids[k]] = fma32(total[ids[k]], old, new)
        largest[ids[k]] = both


@jit
def _flows(elements, largest, total, flows):
    """exp(element + largest + log total), and whether all totals in use are normal numbers."""
    v, m, t, f = elements.reshape(-1), largest.reshape(-1), total.reshape(-1), flows.reshape(-1)
    usual = True
    for i in range(f.size):
        some = (v[i] > NOTHING) & (m[i] > NOTHING)
        usual = usual & ((t[i] >= TINY) | (not some))
        x = exp32(f4((v[i] + f8(m[i])) + f8(log32(t[i]))))
        f[i] = choose(some, x, f4(0.0))
    return usual


@jit
def _own_parents(
    e,
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
    m = IMPOSSIBLE
    for p in range(parent_first[e], parent_first[e + 1]):
        g = parent_group[p]
        first = group_theta[g] + parent_place[p] * group_size[g]
        for k in range(group_size[g]):
            if theta[first + k] > f4(0.0):
                m = max(m, lift[group_row[g] + k])
    if not m > IMPOSSIBLE:
        return IMPOSSIBLE
    total = f4(0.0)
    for p in range(parent_first[e], parent_first[e + 1]):
        g = parent_group[p]
        first = group_theta[g] + parent_place[p] * group_size[g]
        for k in range(group_size[g]):
            if theta[first + k] > f4(0.0):
                up = exp32(f4(lift[group_row[g] + k] - m))
                total = fma32(theta[first + k], up, total)
    return m + f8(log32(total))
