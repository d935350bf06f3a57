"""Mirrors of queries: posteriors of variables, samples, and most probable assignments."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import exp32, fma32, log32
from rpukit._exact.math64 import exp64, log64
from rpukit._exact.philox import block, normal, uniform

f4, f8, u4, u8 = np.float32, np.float64, np.uint32, np.uint64

GAUSSIAN, POISSON = 5, 6
IMPOSSIBLE = f8(-np.inf)  # as a value


@jit
def leaf_posterior(start, stop, sizes, variable, place, support, table, codes, flows, out):
    """P(variable = value | what is known), rows ascending; one at the known value."""
    for b in range(start, stop):
        for r in range(sizes.size):
            v = variable[r]
            if codes[b, v] >= 0:
                continue
            f = flows[b, r]
            for x in range(sizes[r]):
                out[b, v, x] = fma32(f, exp32(table[place[r] + x]), out[b, v, x])
        for v in range(support.size):
            _divide(codes[b, v], out[b, v, : support[v]])


@jit
def _divide(known, line):
    """Divide by the sum; where the value is known, it has all."""
    if known >= 0:
        line[known] = f4(1.0)
        return
    whole = f4(0.0)
    for x in range(line.size):
        whole = f4(whole + line[x])
    if whole > f4(0.0):
        for x in range(line.size):
            line[x] = f4(line[x] / whole)


@jit
def leaf_soft(start, stop, sizes, variable, place, table, codes, soft, values):
    """Values of the leaves of unknown variables: log sum_x soft[x] p(x), x ascending."""
    p = np.empty(soft.shape[2], f4)
    for r in range(sizes.size):
        v = variable[r]
        if not sizes[r]:
            continue
        for x in range(sizes[r]):
            p[x] = exp32(table[place[r] + x])
        for b in range(start, stop):
            if codes[b, v] >= 0:
                continue
            total = f4(0.0)
            for x in range(sizes[r]):
                total = f4(total + f4(soft[b, v, x] * p[x]))
            values[b, r] = log32(total)


@jit
def soft_posterior(
    start, stop, sizes, variable, place, support, table, codes, values, flows, soft, out
):
    """As leaf_posterior with soft evidence: shares flow exp(-value) p(x), times soft[x]."""
    for b in range(start, stop):
        for r in range(sizes.size):
            v = variable[r]
            if codes[b, v] >= 0 or not flows[b, r] > f4(0.0):
                continue
            share = f4(flows[b, r] * exp32(f4(-values[b, r])))
            for x in range(sizes[r]):
                p = exp32(table[place[r] + x])
                out[b, v, x] = f4(out[b, v, x] + f4(share * p))
        for v in range(support.size):
            if codes[b, v] < 0:
                for x in range(support[v]):
                    out[b, v, x] = f4(out[b, v, x] * soft[b, v, x])
            _divide(codes[b, v], out[b, v, : support[v]])


@jit
def largest_forward(
    start,
    stop,
    list_first,
    list_elements,
    group_list,
    group_row,
    group_size,
    group_theta,
    log_theta,
    elements,
    values,
):
    """Maximise instead of mixing: value of node m is the largest log theta[c, m] + element c."""
    for b in range(start, stop):
        for g in range(group_list.size):
            first, last = list_first[group_list[g]], list_first[group_list[g] + 1]
            size, row = group_size[g], group_row[g]
            for m in range(size):
                values[b, row + m] = IMPOSSIBLE
            for k in range(first, last):
                e, at = elements[b, list_elements[k]], group_theta[g] + (k - first) * size
                for m in range(size):
                    v = f8(log_theta[at + m]) + e
                    values[b, row + m] = max(values[b, row + m], v)


@jit
def _pick(u, theta, step, elements, ids, weights):
    """Draw the child of a sum: where the running sum of theta exp(element) passes u times all."""
    m = IMPOSSIBLE
    for k in range(ids.size):
        if theta[k * step] > f4(0.0):
            m = max(m, elements[ids[k]])
    if not m > IMPOSSIBLE:
        return -1
    whole = f4(0.0)
    for k in range(ids.size):
        w = theta[k * step]
        if w > f4(0.0):
            whole = fma32(w, exp32(f4(elements[ids[k]] - m)), whole)
        weights[k] = whole
    bar, last = f4(u * whole), f4(0.0)
    chosen = -1
    for k in range(ids.size):
        if weights[k] > last:  # a child that has a share
            chosen = k
            if weights[k] > bar:
                break
            last = weights[k]
    return chosen


@jit
def _best(log_theta, step, elements, ids):
    """Find the child with the largest log theta + element, the first of equals."""
    most, chosen = IMPOSSIBLE, -1
    for k in range(ids.size):
        v = f8(log_theta[k * step]) + elements[ids[k]]
        if v > most:
            most, chosen = v, k
    return chosen


@jit
def choose_down(
    start,
    stop,
    best,
    first_sample,
    k0,
    k1,
    op,
    list_first,
    list_elements,
    group_list,
    group_row,
    group_size,
    group_theta,
    element_first,
    element_rows,
    theta,
    elements,
    chosen,
):
    """Mark the rows of one child of each marked sum of a layer.

    ``best``: the largest, ``theta`` being logarithms; else a draw by word 0 at the sum's row.
    """
    most = 0
    for i in range(list_first.size - 1):
        most = max(most, list_first[i + 1] - list_first[i])
    weights = np.empty(most, f4)
    for b in range(start, stop):
        sample = u8(first_sample) + u8(b)
        for g in range(group_list.size):
            ids = list_elements[list_first[group_list[g]] : list_first[group_list[g] + 1]]
            for m in range(group_size[g]):
                row = group_row[g] + m
                if not chosen[b, row]:
                    continue
                at = theta[group_theta[g] + m :]
                if best:
                    k = _best(at, group_size[g], elements[b], ids)
                else:
                    b0, _, _, _ = block(k0, k1, u4(op), u8(row), sample, u4(0))
                    k = _pick(f4(uniform(b0)), at, group_size[g], elements[b], ids, weights)
                if k >= 0:
                    e = ids[k]
                    for i in range(element_first[e], element_first[e + 1]):
                        chosen[b, element_rows[i]] = True


@jit
def largest_down(
    start,
    stop,
    list_first,
    list_elements,
    group_list,
    group_row,
    group_size,
    group_theta,
    element_first,
    element_rows,
    log_theta,
    log_flow,
    elements,
    hard,
    lift,
    chosen,
):
    """Go down to the first largest child of each chosen sum: its edge counts the whole flow.

    ``hard`` is 0 of that element, the lift of the sum log flow - log theta.
    """
    for b in range(start, stop):
        for g in range(group_list.size):
            ids = list_elements[list_first[group_list[g]] : list_first[group_list[g] + 1]]
            for m in range(group_size[g]):
                row = group_row[g] + m
                if not chosen[b, row]:
                    continue
                weights = log_theta[group_theta[g] + m :]
                k = _best(weights, group_size[g], elements[b], ids)
                if k < 0:
                    continue
                e = ids[k]
                hard[b, e] = f8(0.0)
                lift[b, row] = f8(log_flow[b]) - f8(weights[k * group_size[g]])
                for i in range(element_first[e], element_first[e + 1]):
                    chosen[b, element_rows[i]] = True


@jit
def mark_products(start, stop, first, rows, target, chosen):
    """Mark the rows of the chosen ones of kept products."""
    for b in range(start, stop):
        for i in range(first.size - 1):
            if chosen[b, target + i]:
                for k in range(first[i], first[i + 1]):
                    chosen[b, rows[k]] = True


@jit
def leaf_choose(
    start,
    stop,
    best,
    first_sample,
    k0,
    k1,
    op,
    kinds,
    variable,
    place,
    sizes,
    table,
    parameters,
    codes,
    numbers,
    chosen,
):
    """Set unknown variables to a value of their marked leaf: the most probable, or a draw.

    Draws at the leaf's row: word 0 of block 0; a Poisson count walks the distribution.
    """
    for b in range(start, stop):
        sample = u8(first_sample) + u8(b)
        for r in range(kinds.size):
            v = variable[r]
            if not chosen[b, r]:
                continue
            p = place[r]
            b0, _, _, _ = block(k0, k1, u4(op), u8(r), sample, u4(0))
            u = f4(uniform(b0))
            if kinds[r] < GAUSSIAN:
                if codes[b, v] < 0:
                    codes[b, v] = _value(best, u, table[p : p + sizes[r]])
            elif numbers[b, v] != numbers[b, v]:
                if kinds[r] == GAUSSIAN:
                    z = f4(0.0) if best else f4(normal(b0))
                    numbers[b, v] = fma32(parameters[p + 1], z, parameters[p])
                elif best:
                    numbers[b, v] = f4(np.floor(parameters[p]))
                else:
                    numbers[b, v] = _poisson(f8(u), f8(parameters[p]))


@jit
def _value(best, u, table):
    """Choose a value of a table of log-probabilities: the first largest one, or a draw."""
    most, whole = 0, f4(0.0)
    for x in range(table.size):
        if table[x] > table[most]:
            most = x
        whole = f4(whole + exp32(table[x]))
    if best:
        return most
    bar, so_far = f4(u * whole), f4(0.0)
    for x in range(table.size):
        so_far = f4(so_far + exp32(table[x]))
        if so_far > bar:
            return x
    return most


@jit
def _poisson(u, rate):
    """Smallest count whose cumulative probability, in float64, passes u."""
    log_rate, k, log_p, so_far = log64(rate), 0, -rate, f8(0.0)
    while True:
        so_far = so_far + exp64(log_p)
        if so_far > u or (f8(k) > rate and log_p < f8(-100.0)):
            return f4(k)
        k += 1
        log_p = (log_p + log_rate) - log64(f8(k))
