"""Mirrors of normal leaves of several variables: values, statistics, and what is missing.

Parameters of a node are d means and the rows of the lower Cholesky factor L of the covariance. For
what is known of a sample the factor of the covariance in another order, known variables first,
gives all: its first rows are that of the known part, the rest the regression on it.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32
from rpukit._exact.math64 import log64, sqrt64
from rpukit.circuits._mirror.evaluated import BLOCK, CHAIN, IMPOSSIBLE, SINGLE, _settle

f4, f8 = np.float32, np.float64

HALF_LOG_2PI = f8(0.9189385332046727)


@jit
def _ordered(x, order):
    """Set ``order`` to the known variables of x, then the missing ones; count the known."""
    n_known = 0
    for i in range(x.size):
        if x[i] == x[i]:
            order[n_known] = i
            n_known += 1
    n = n_known
    for i in range(x.size):
        if x[i] != x[i]:
            order[n] = i
            n += 1
    return n_known


@jit
def _factor(p, order, n, f):
    """Rows 0 to n - 1 of the factor of the covariance with variables in another order."""
    d = order.size
    for k in range(n):
        for r in range(k, n):
            i, j = order[r], order[k]
            low, high = d + i * (i + 1) // 2, d + j * (j + 1) // 2
            s = f8(0.0)
            for m in range(min(i, j) + 1):
                s = s + f8(p[low + m]) * f8(p[high + m])
            for m in range(k):
                s = s - f[r, m] * f[k, m]
            f[r, k] = sqrt64(s) if r == k else s / f[k, k]


@jit
def _given(p, f):
    """Copy the factor itself, for samples of which all is known; return the sum of its logs."""
    d, volume = f.shape[0], f8(0.0)
    for r in range(d):
        for k in range(r + 1):
            f[r, k] = f8(p[d + r * (r + 1) // 2 + k])
        volume = volume + log64(f[r, r])
    return volume


@jit
def _whitened(x, p, order, n_known, f, y):
    """Set y to what solves f y = x - mean in the known rows."""
    for r in range(n_known):
        s = x[order[r]] - f8(p[order[r]])
        for k in range(r):
            s = s - f[r, k] * y[k]
        y[r] = s / f[r, r]


@jit
def _read(numbers, b, variable, first, x):
    for i in range(x.size):
        x[i] = f8(numbers[b, variable[first + i]])


@jit
def normal_density(
    start, stop, n_column, best, rows, variable, place, numbers, parameters, values
):
    """Values of the leaves of rows: log-density of what is known.

    With ``best`` that of the known values and the most probable others.
    """
    d = n_column
    x, y, f, own = np.empty(d, f8), np.empty(d, f8), np.empty((d, d), f8), np.empty((d, d), f8)
    order = np.empty(d, np.int64)
    for i in range(rows.size):
        p = parameters[place[i] : place[i] + d + d * (d + 1) // 2]
        whole = _given(p, own)
        for b in range(start, stop):
            _read(numbers, b, variable, i * d, x)
            n_known = _ordered(x, order)
            n, volume = (d, whole) if best or n_known == d else (n_known, f8(0.0))
            if n_known == d:
                _whitened(x, p, order, d, own, y)
            else:
                _factor(p, order, n_known, f)
                _whitened(x, p, order, n_known, f, y)
                if not best:
                    for r in range(n_known):
                        volume = volume + log64(f[r, r])
            square = f8(0.0)
            for r in range(n_known):
                square = square + y[r] * y[r]
            v = ((f8(0.0) - f8(0.5) * square) - volume) - f8(n) * HALF_LOG_2PI
            values[b, rows[i]] = v if v == v else IMPOSSIBLE


@jit
def _completed(x, p, order, n_known, f, y, e):
    """Set e to the distances from the mean, those of missing variables as expected."""
    for r in range(order.size):
        if r < n_known:
            e[order[r]] = x[order[r]] - f8(p[order[r]])
            continue
        s = f8(0.0)
        for k in range(n_known):
            s = s + f[r, k] * y[k]
        e[order[r]] = s


@jit
def _moment(e, rank, n_known, f, i, j):
    """Expected product of two distances from the mean."""
    s = e[i] * e[j]
    if rank[i] >= n_known and rank[j] >= n_known:
        for k in range(n_known, min(rank[i], rank[j]) + 1):
            s = s + f[rank[i], k] * f[rank[j], k]
    return s


@jit
def _add_whole(x, p, flow, own, e):
    """Add the moments of a sample of which all is known."""
    d, at = x.size, x.size + 1
    own[0] = f4(own[0] + flow)
    for i in range(d):
        e[i] = x[i] - f8(p[i])
        own[i + 1] = fma32(flow, f4(e[i]), own[i + 1])
        for j in range(i + 1):
            own[at + j] = fma32(flow, f4(e[i] * e[j]), own[at + j])
        at += i + 1


@jit
def normal_statistic(
    start,
    stop,
    position,
    n_column,
    place,
    first_parameter,
    use_first,
    use_row,
    use_variable,
    numbers,
    parameters,
    flows,
    chains,
    totals,
):
    """Accumulate the statistics of nodes start to stop - 1: flow, moments about the mean.

    The rows of the lower triangle of second moments follow the first ones; last is the flow of
    samples of which nothing is known. Chains are as in ``leaf_flow``.
    """
    d = n_column
    n_statistic = 1 + d + d * (d + 1) // 2
    x, y, e, f = np.empty(d, f8), np.empty(d, f8), np.empty(d, f8), np.empty((d, d), f8)
    order, rank = np.empty(d, np.int64), np.empty(d, np.int64)
    for n in range(start, stop):
        own = chains[place[n] : place[n] + n_statistic + 1]
        whole = totals[place[n] : place[n] + n_statistic + 1]
        p = parameters[first_parameter[n] : first_parameter[n] + n_statistic - 1]
        step = position % BLOCK * (use_first[n + 1] - use_first[n])
        for b in range(flows.shape[0]):
            for u in range(use_first[n], use_first[n + 1]):
                if SINGLE and step and step % CHAIN == 0:
                    _settle(own, whole)
                step += 1
                flow = flows[b, use_row[u]]
                if not flow > f4(0.0):
                    continue
                _read(numbers, b, use_variable, u * d, x)
                n_known = _ordered(x, order)
                if n_known == 0:
                    own[n_statistic] = f4(own[n_statistic] + flow)
                    continue
                if n_known == d:
                    _add_whole(x, p, flow, own, e)
                    continue
                _factor(p, order, d, f)
                _whitened(x, p, order, n_known, f, y)
                _completed(x, p, order, n_known, f, y, e)
                for r in range(d):
                    rank[order[r]] = r
                own[0] = f4(own[0] + flow)
                at = d + 1
                for i in range(d):
                    own[i + 1] = fma32(flow, f4(e[i]), own[i + 1])
                    for j in range(i + 1):
                        t = _moment(e, rank, n_known, f, i, j)
                        own[at] = fma32(flow, f4(t), own[at])
                        at += 1
            if (position + b + 1) % BLOCK == 0:
                _settle(own, whole)
                step = 0
        if SINGLE and step and step % CHAIN == 0:
            _settle(own, whole)


@jit
def fill_normal(start, stop, x, p, noise, variance):
    """Fill in missing values of samples x, each by the parameters of its leaf.

    ``noise`` holds normal draws; without (0) a missing value is the expected one;
    ``variance`` becomes the variance of each missing value given the known ones. All is float64.
    """
    d = x.shape[1]
    y, f, order = np.empty(d, f8), np.empty((d, d), f8), np.empty(d, np.int64)
    for s in range(start, stop):
        n_known = _ordered(x[s], order)
        _factor(p[s], order, d, f)
        _whitened(x[s], p[s], order, n_known, f, y)
        for r in range(n_known):
            variance[s, order[r]] = f8(0.0)
        for r in range(n_known, d):
            y[r] = noise[s, order[r]]
            v, spread = f8(0.0), f8(0.0)
            for k in range(r + 1):
                v = v + f[r, k] * y[k]
                if k >= n_known:
                    spread = spread + f[r, k] * f[r, k]
            x[s, order[r]] = f8(p[s, order[r]]) + v
            variance[s, order[r]] = spread
