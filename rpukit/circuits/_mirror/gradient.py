"""Mirrors of gradient steps: in float64, whatever the type of the parameters.

A step updates the running means of a parameter and returns the change of its free form; see
``docs/semantics/circuits.md``, section 3. ``second`` is empty for SGD.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math64 import exp64, sigmoid64

f8 = np.float64

CATEGORICAL, BERNOULLI, BINOMIAL, DISCRETE_LOGISTIC, _INDICATOR, GAUSSIAN, POISSON = range(7)
PI_BY_ROOT_3 = f8(1.8137993642342178)  # standard deviation of a logistic distribution of scale 1
STEEPEST = f8(50.0)  # largest change of log weights in a step


@jit
def _cut(x, most):
    return min(max(x, -most), most)


@jit
def _change(i, rate, lack, lack2, first, second):
    """Compute the change of parameter i from its running means."""
    if not second.size:
        return _cut(rate * first[i], STEEPEST)
    root = np.sqrt(second[i] / lack2) + f8(1e-8)
    return _cut(rate * (first[i] / lack / root), STEEPEST)


@jit
def _step(i, slope, how, first, second):
    """Update the running means of parameter i; ``how``: weight, rate, ... as in the kernels."""
    weight, rate, momentum, decay, clip, lack, lack2 = how
    g, m = _cut(slope / weight, clip), first[i] * momentum
    if second.size:
        first[i] = m + (f8(1.0) - momentum) * g
        second[i] = second[i] * decay + (f8(1.0) - decay) * (g * g)
    else:
        first[i] = m + g
    return _change(i, rate, lack, lack2, first, second)


@jit
def sum_climb(start, stop, n_child, how, theta, chains, totals, first, second):
    """Counts exp(change) of nodes start to stop - 1 of a block of weights, instead of totals."""
    size = theta.size // n_child
    whole = np.zeros(stop - start, f8)
    for c in range(n_child):
        for m in range(start, stop):
            i = c * size + m
            count = f8(theta[i]) * (totals[i] + f8(chains[i]))
            whole[m - start] = whole[m - start] + count
    for c in range(n_child):
        for m in range(start, stop):
            i = c * size + m
            w = f8(theta[i])
            count = w * (totals[i] + f8(chains[i]))
            totals[i] = exp64(_step(i, count - whole[m - start] * w, how, first, second))


@jit
def leaf_climb(
    start, stop, kind, n_values, constants, how, chains, totals, first, second, parameters
):
    """Step of leaves start to stop - 1 of one source; missing values have no part in it."""
    c0, c1, c2 = constants
    width = (n_values if kind < GAUSSIAN else 3) + 1
    n_parameter = parameters.size // (totals.size // width)
    flow = np.empty(width, f8)
    for n in range(start, stop):
        for i in range(width):
            flow[i] = totals[n * width + i] + f8(chains[n * width + i])
        at = n * n_parameter
        p = parameters[at : at + n_parameter]
        if kind == CATEGORICAL:
            _climb_table(p, flow, how, first, second, at)
        elif kind in (BERNOULLI, BINOMIAL):
            hits, whole, q = f8(0.0), f8(0.0), f8(p[0])
            for x in range(n_values):
                hits = hits + flow[x] * f8(x)
                whole = whole + flow[x]
            slope = hits - f8(n_values - 1) * whole * q
            up = q * exp64(_step(at, slope, how, first, second))
            p[0] = up / (up + (f8(1.0) - q))
        elif kind in (DISCRETE_LOGISTIC, GAUSSIAN):
            mean, spread = f8(p[0]), f8(p[1])
            if kind == DISCRETE_LOGISTIC:
                by_mean, by_spread = _bin_slopes(flow, n_values, c0, c1, mean, spread)
            else:
                by_mean = flow[0] / spread  # moments about the mean
                by_spread = flow[1] / (spread * spread) - flow[2]
            by_mean = _step(at, by_mean, how, first, second)
            by_spread = _step(at + 1, by_spread, how, first, second)
            p[0] = mean + spread * by_mean
            least = c2 / PI_BY_ROOT_3 if kind == DISCRETE_LOGISTIC else c2
            p[1] = max(spread * exp64(by_spread), least)
        elif kind == POISSON:
            rate = f8(p[0])
            p[0] = rate * exp64(_step(at, flow[0] - flow[2] * rate, how, first, second))


@jit
def _climb_table(p, flow, how, first, second, at):
    whole, total = f8(0.0), f8(0.0)
    weights = np.empty(p.size, f8)
    for x in range(p.size):
        whole = whole + flow[x]
    for x in range(p.size):
        w = f8(p[x])
        weights[x] = w * exp64(_step(at + x, flow[x] - whole * w, how, first, second))
        total = total + weights[x]
    for x in range(p.size):
        p[x] = weights[x] / total


@jit
def _edge(i, n, z):
    """Of an edge of a bin, outer ones at infinity: its logistic, the rest, z times both."""
    if i == 0:
        return f8(0.0), f8(1.0), f8(0.0)
    if i == n:
        return f8(1.0), f8(0.0), f8(0.0)
    up, down = sigmoid64(z), sigmoid64(-z)
    return up, down, z * up * down


@jit
def _bin_slopes(flow, n, low, width, mean, scale):
    """Slopes of a logistic distribution in mean / scale and log scale.

    A bin has the probability s(b) - s(a), and s' = s (1 - s): the first is s(a) + s(b) - 1.
    """
    by_mean, by_scale = f8(0.0), f8(0.0)
    z = (low - mean) / scale
    up, down, steep = _edge(0, n, z)
    for x in range(n):
        next_z = (low + width * f8(x + 1) - mean) / scale
        next_up, next_down, next_steep = _edge(x + 1, n, next_z)
        # The difference of the smaller pair: near 1 it would cancel.
        part = down - next_down if z > f8(0.0) else next_up - up
        by_mean = by_mean + flow[x] * (up - next_down)
        by_scale = by_scale + flow[x] * ((steep - next_steep) / max(part, f8(1e-300)))
        z, up, down, steep = next_z, next_up, next_down, next_steep
    return by_mean, by_scale
