"""Mirror of the EM step of leaves that functions evaluate: twins of ``function_maximise.cu``."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math64 import log1p64, log64, sqrt64
from rpukit.circuits._mirror.leaf_functions import sin_cos64

f8 = np.float64

BOTH_TYPES = True  # all is float64, whatever the type of a circuit
NEWTON = 6  # steps
SHIFT = 10  # digamma and trigamma are series from here on
FAR, TERMS = f8(30.0), 80  # Bessel's functions are series in 1 / x from FAR on
PI, TWO_PI = f8(np.pi), f8(2 * np.pi)
LEAST = f8(1e-6)  # concentration
NUMBERS = tuple(  # Bernoulli's, B2 to B16
    f8([1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510])
)
# 1 - I1(x) / I0(x) = 1 / (2 x) + 1 / (8 x^2) + ...
RATIO = tuple(f8([1 / 2, 1 / 8, 1 / 8, 25 / 128, 13 / 32, 1073 / 1024, 103 / 32, 375733 / 32768]))


@jit
def digamma64(x):
    """Derivative of log Gamma, x > 0."""
    less, y = f8(0.0), x + f8(SHIFT)
    for k in range(SHIFT):
        less = less + f8(1.0) / (x + f8(k))
    z, tail = f8(1.0) / (y * y), f8(0.0)
    for k in range(8, 0, -1):
        tail = (tail + NUMBERS[k - 1] / f8(2 * k)) * z
    return ((log64(y) - f8(0.5) / y) - tail) - less


@jit
def trigamma64(x):
    """Second derivative of log Gamma, x > 0."""
    more, y = f8(0.0), x + f8(SHIFT)
    for k in range(SHIFT):
        more = more + f8(1.0) / ((x + f8(k)) * (x + f8(k)))
    z, tail = f8(1.0) / (y * y), f8(0.0)
    for k in range(8, 0, -1):
        tail = (tail + NUMBERS[k - 1]) * z
    return more + ((f8(1.0) + f8(0.5) / y) + tail) / y


@jit
def bessel_ratio_rest64(x):
    """1 - I1(x) / I0(x) for x > 0, without loss where it is small."""
    found = f8(0.0)
    if x < FAR:
        for k in range(TERMS, 0, -1):
            found = f8(1.0) / (f8(2 * k) / x + found)
        return f8(1.0) - found
    for k in range(7, -1, -1):
        found = (found + RATIO[k]) / x
    return found


@jit
def angle_of64(y, x):
    """Angle of (x, y), of (0, 0) 0: a guess to 0.005, then steps that cube the error."""
    u, v = abs(y), abs(x)
    length = sqrt64(x * x + y * y)
    if length == f8(0.0):
        return f8(0.0)
    a = (u if u < v else v) / (v if u < v else u)
    guess = a * (f8(0.9724) - f8(0.1919) * (a * a))
    if u > v:
        guess = f8(0.5) * PI - guess
    if x < f8(0.0):
        guess = PI - guess
    if y < f8(0.0):
        guess = -guess
    for _ in range(3):
        s, c = sin_cos64(guess)
        guess = guess + (y * c - x * s) / length
    return guess


@jit
def _wrapped(angle):
    r = angle - TWO_PI * np.rint(angle / TWO_PI)
    return -PI if r < -PI else (PI if r > PI else r)


@jit
def _at_least(v, low):
    return low if v < low else v  # NaN stays


@jit
def _at_most(v, high):
    return high if v > high else v


@jit
def _gamma(p, t, limit, made):
    a, b = t[1] / t[0], t[2] / t[0]
    spread = _at_least((log1p64(a) - a) - b, f8(0.5) / limit)
    root = sqrt64((spread - f8(3.0)) * (spread - f8(3.0)) + f8(24.0) * spread)
    shape = ((f8(3.0) - spread) + root) / (f8(12.0) * spread)
    for _ in range(NEWTON):
        slope = (shape * shape) * (f8(1.0) / shape - trigamma64(shape))
        rise = (log64(shape) - digamma64(shape)) - spread
        inverse = f8(1.0) / shape + rise / slope
        if inverse > f8(0.0):
            shape = f8(1.0) / inverse
    made[0] = _at_most(shape, limit)
    made[1] = made[0] / ((p[0] / p[1]) * (f8(1.0) + a))


@jit
def _von_mises(p, t, limit, made):
    c, s = t[1] / t[0], t[2] / t[0]  # means of 1 - cos d and of sin d
    length = sqrt64((f8(1.0) - c) * (f8(1.0) - c) + s * s)
    rest = ((f8(2.0) * c - c * c) - s * s) / (f8(1.0) + length)  # 1 - length, without loss
    rest = _at_most(_at_least(rest, f8(0.5) / limit), f8(1.0))
    r = f8(1.0) - rest
    kappa = _at_least(r * (f8(2.0) - r * r) / (rest * (f8(1.0) + r)), LEAST)
    for _ in range(NEWTON):
        found = bessel_ratio_rest64(kappa)
        ratio = f8(1.0) - found
        slope = found * (f8(1.0) + ratio) - ratio / kappa
        new = kappa + (found - rest) / slope
        kappa = new if new > f8(0.0) else f8(0.5) * kappa
    made[0] = p[0] + angle_of64(s, f8(1.0) - c)
    made[1] = _at_most(kappa, limit)


@jit
def _largest(function, p, t, limit, successes, made):
    """Set the parameters of largest expected log-likelihood."""
    if function == 0:
        made[0] = t[0] / (t[0] + t[1])
    elif function == 1:
        hits = successes * t[0]
        made[0] = hits / (hits + t[1])
    elif function == 2:
        made[0] = t[0] / t[1]
    elif function == 3:
        _gamma(p, t, limit, made)
    elif function == 4:
        mean = t[1] / t[0]
        var = _at_least(t[2] / t[0] - mean * mean, limit * limit)
        made[0], made[1] = p[0] + mean, sqrt64(var)
    elif function == 5:
        _von_mises(p, t, limit, made)
    else:
        shift = t[2] / t[1]
        var = (t[3] - t[2] * shift) / t[0]
        made[0], made[1] = p[0] + shift, sqrt64(_at_least(var, limit * limit))


@jit
def _go(function, n_parameter, p, share, made):
    """Go a share of the way; of angles in the plane, where the likelihood is concave."""
    if function != 5:
        for k in range(n_parameter):
            made[k] = p[k] + share * (made[k] - p[k])
    elif share == f8(1.0):
        made[0] = _wrapped(made[0])
    else:
        s0, c0 = sin_cos64(p[0])
        s1, c1 = sin_cos64(made[0])
        x, y = p[1] * c0, p[1] * s0
        x, y = x + share * (made[1] * c1 - x), y + share * (made[1] * s1 - y)
        made[0] = angle_of64(y, x)
        made[1] = _at_least(sqrt64(x * x + y * y), LEAST)


@jit
def function_maximise(
    start,
    stop,
    function,
    n_parameter,
    n_statistic,
    limit,
    successes,
    step,
    pseudocount,
    chains,
    totals,
    parameters,
):
    """EM step of nodes start to stop - 1; see ``function_maximise.cu``."""
    p, made, t = np.zeros(2, f8), np.zeros(2, f8), np.zeros(4, f8)
    for n in range(start, stop):
        at = n * (n_statistic + 2)
        for k in range(n_statistic + 1):
            t[k] = totals[at + k] + f8(chains[at + k])
        missing = totals[at + n_statistic + 1] + f8(chains[at + n_statistic + 1])
        if not t[0] > f8(0.0):
            continue
        for k in range(n_parameter):
            p[k] = f8(parameters[n * n_parameter + k])
        _largest(function, p, t, limit, successes, made)
        good = abs(made[0]) < np.inf and abs(made[1]) < np.inf
        _go(function, n_parameter, p, step * (t[0] / ((t[0] + missing) + pseudocount)), made)
        if not (good and abs(made[0]) < np.inf and abs(made[1]) < np.inf):
            continue
        for k in range(n_parameter):
            parameters[n * n_parameter + k] = made[k]
