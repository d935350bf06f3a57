"""Mirrors of leaves that are evaluated by functions: values, statistics, and their draws."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32
from rpukit._exact.philox import block

f4, f8, u4, u8 = np.float32, np.float64, np.uint32, np.uint64

BLOCK = 256  # samples whose statistics are one chain
CHAIN = 4096  # most steps (sample, use) of a chain of float32
SINGLE = f4(1.0).itemsize == 4
IMPOSSIBLE = f8(-np.inf)


@jit
def leaf_density(
    start, stop, density, c, rows, variable, place, n_parameter, numbers, parameters, values
):
    """Values of the leaves of rows: density of their variable, 0 where it is missing."""
    p = np.empty(n_parameter, f8)
    for i in range(rows.size):
        for k in range(n_parameter):
            p[k] = f8(parameters[place[i] + k])
        for b in range(start, stop):
            x, v = f8(numbers[b, variable[i]]), f8(0.0)
            if x == x:
                v = density(x, p, c)
                v = v if v == v else IMPOSSIBLE
            values[b, rows[i]] = v


@jit
def leaf_statistic(
    start,
    stop,
    position,
    statistic,
    c,
    n_parameter,
    n_statistic,
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
    """Accumulate the statistics of nodes start to stop - 1: flow, flow t, flow of what is missing.

    ``position``: samples before. Chains are as in ``leaf_flow``.
    """
    p, t = np.empty(n_parameter, f8), np.empty(max(n_statistic, 1), f8)
    for n in range(start, stop):
        i = place[n]
        end = i + n_statistic + 2
        own, whole = chains[i:end], totals[i:end]
        for k in range(n_parameter):
            p[k] = f8(parameters[first_parameter[n] + k])
        step = position % BLOCK * (use_first[n + 1] - use_first[n])
        for b in range(flows.shape[0]):
            for u in range(use_first[n], use_first[n + 1]):
                if SINGLE and step and step % CHAIN == 0:
                    _settle(own, whole)
                step += 1
                f, x = flows[b, use_row[u]], f8(numbers[b, use_variable[u]])
                if not f > f4(0.0):
                    continue
                if x != x:
                    own[n_statistic + 1] = f4(own[n_statistic + 1] + f)
                    continue
                statistic(x, p, c, t)
                own[0] = f4(own[0] + f)
                for k in range(n_statistic):
                    own[k + 1] = fma32(f, f4(t[k]), own[k + 1])
            if (position + b + 1) % BLOCK == 0:
                _settle(own, whole)
                step = 0
        if SINGLE and step and step % CHAIN == 0:
            _settle(own, whole)


@jit
def _settle(chains, totals):
    """Add chains that end to the totals, and restart them at 0."""
    for i in range(chains.size):
        totals[i] = totals[i] + f8(chains[i])
        chains[i] = f4(0.0)


@jit
def leaf_uniforms_of(start, stop, k0, k1, op, rows, samples, out):
    """As `leaf_uniforms`, of column k of ``out`` by draw k."""
    for i in range(start, stop):
        for k in range(out.shape[1]):
            b0, b1, _, _ = block(k0, k1, u4(op), u8(rows[i]), u8(samples[i]), u4(k))
            word = u8(u8(b0) << u8(20)) | u8(u8(b1) >> u8(12))
            out[i, k] = (f8(word) + f8(0.5)) * f8(2.220446049250313e-16)


@jit
def leaf_uniforms(start, stop, k0, k1, op, rows, samples, out):
    """Uniforms of 52 bits in (0, 1) at rows and samples: words 0 and 1 of block 0."""
    for i in range(start, stop):
        b0, b1, _, _ = block(k0, k1, u4(op), u8(rows[i]), u8(samples[i]), u4(0))
        word = u8(u8(b0) << u8(20)) | u8(u8(b1) >> u8(12))
        out[i] = (f8(word) + f8(0.5)) * f8(2.220446049250313e-16)
