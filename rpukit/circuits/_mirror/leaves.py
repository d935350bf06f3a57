"""Mirrors of the values of leaves: tables of log-probabilities, densities."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32, log32, sigmoid32
from rpukit._exact.math64 import log64
from rpukit._exact.special import lgamma64

f4, f8 = np.float32, np.float64

CATEGORICAL, BERNOULLI, BINOMIAL, DISCRETE_LOGISTIC, _INDICATOR, GAUSSIAN, _POISSON = range(7)
NOTHING = f4(-np.inf)
HALF_LOG_2PI = f4(0.9189385332046727)
FLOOR = f4(-1000.0)


@jit
def _times_log(n, p):
    """n log p, where nothing times the logarithm of 0 is 0."""
    return f8(0.0) if n == f8(0.0) else n * log64(p)


@jit
def _poisson(x, rate):
    """Log-probability of a count, in float64 since its terms cancel; -inf where they overflow."""
    v = (_times_log(x, rate) - rate) - lgamma64(x + f8(1.0))
    return f4(v) if v == v else NOTHING


@jit
def leaf_table(start, stop, kind, n_values, c0, c1, parameters, table):
    """Log-probabilities of the values of leaves of finite support, one row a node."""
    n_parameter = parameters.size // (table.size // n_values)
    for n in range(start, stop):
        p = parameters[n * n_parameter : (n + 1) * n_parameter]
        out = table[n * n_values : (n + 1) * n_values]
        for x in range(n_values):
            if kind == CATEGORICAL:
                out[x] = log32(p[x])
            elif kind == BERNOULLI:
                out[x] = log32(p[0] if x else f4(f4(1.0) - p[0]))
            elif kind == BINOMIAL:
                k, rest, hit = f8(x), f8(n_values - 1 - x), f8(p[0])
                ways = lgamma64(f8(n_values)) - lgamma64(k + f8(1.0))
                ways = ways - lgamma64(rest + f8(1.0))
                out[x] = (ways + _times_log(k, hit)) + _times_log(rest, f8(1.0) - hit)
            elif kind == DISCRETE_LOGISTIC:
                low = fma32(f4(x), c1, c0)
                above, below = f4(1.0), f4(0.0)
                if x < n_values - 1:
                    above = sigmoid32(f4(f4(f4(low + c1) - p[0]) / p[1]))
                if x > 0:
                    below = sigmoid32(f4(f4(low - p[0]) / p[1]))
                v = log32(f4(above - below))
                out[x] = v if v > FLOOR else FLOOR
            else:
                out[x] = f4(0.0) if f4(x) == p[0] else NOTHING


@jit
def leaf_forward(
    start, stop, kinds, variable, place, sizes, codes, numbers, table, parameters, values
):
    """Values of leaves: row r reads variable[r] and its node's table, or parameters, at place[r].

    A code below 0, or a number that is NaN, is missing: log 1. A table ends after sizes[r] values.
    """
    for b in range(start, stop):
        for r in range(kinds.size):
            if kinds[r] < GAUSSIAN:
                x = codes[b, variable[r]]
                if x < 0:
                    values[b, r] = f4(0.0)
                else:
                    values[b, r] = table[place[r] + x] if x < sizes[r] else NOTHING
                continue
            v, p = numbers[b, variable[r]], place[r]
            if v != v:
                values[b, r] = f4(0.0)
            elif kinds[r] == GAUSSIAN:
                z = f4(f4(v - parameters[p]) / parameters[p + 1])
                tail = f4(HALF_LOG_2PI + log32(parameters[p + 1]))
                values[b, r] = f4(f4(f4(-0.5) * f4(z * z)) - tail)
            else:
                values[b, r] = _poisson(f8(v), f8(parameters[p]))
