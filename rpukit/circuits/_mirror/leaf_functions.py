"""Functions of leaves that are evaluated, in float64: twins of ``circuit_leaves.cuh``.

``density(x, p, c)`` is the logarithm of the probability of x, ``statistic(x, p, c, t)`` sets t
to the statistics of x that the M step needs. p holds the parameters of a node, c the three
constants of its leaf.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma64, horner64
from rpukit._exact.math64 import log1p64, log64
from rpukit._exact.special import lgamma64
from rpukit.errors import ParameterError

f8 = np.float64

BOTH_TYPES = True  # all is float64, whatever the type of a circuit
IMPOSSIBLE = f8(-np.inf)
HALF_LOG_2PI, LOG_2PI = f8(0.9189385332046727), f8(1.8378770664093453)
TWO_BY_PI = f8(0.6366197723675814)
HALF_PI, HALF_PI_REST = f8(1.5707963267948966), f8(6.123233995736766e-17)
FAR = f8(20.0)  # from here on Bessel's function is an asymptotic series
_SIN = tuple(f8([
    2.8114572543455206e-15, -7.6471637318198164e-13, 1.6059043836821613e-10,
    -2.505210838544172e-08, 2.7557319223985893e-06, -0.00019841269841269841,
    0.0083333333333333332, -0.16666666666666666,
]))  # fmt: skip
_COS = tuple(f8([
    4.7794773323873853e-14, -1.1470745597729725e-11, 2.08767569878681e-09,
    -2.7557319223985888e-07, 2.4801587301587302e-05, -0.0013888888888888889,
    0.041666666666666664, -0.5, 1.0,
]))  # fmt: skip


@jit
def _times_log(n, p):
    """n log p, where nothing times the logarithm of 0 is 0."""
    return f8(0.0) if n == f8(0.0) else n * log64(p)


@jit
def sin_cos64(x):
    """Compute sine and cosine of a moderate x."""
    n = np.rint(x * TWO_BY_PI)
    r = fma64(-n, HALF_PI_REST, fma64(-n, HALF_PI, x))
    z, turn = r * r, n - f8(4.0) * np.floor(n * f8(0.25))
    s, c = fma64(r * z, horner64(z, _SIN), r), horner64(z, _COS)
    if turn == f8(1.0):
        return c, -s
    if turn == f8(2.0):
        return -s, -c
    if turn == f8(3.0):
        return -c, s
    return s, c


@jit
def log_bessel64(x):
    """log I0(x) - x for x from 0, I0 the modified Bessel function of order 0."""
    whole, term = f8(1.0), f8(1.0)
    if x < FAR:
        y = f8(0.25) * (x * x)
        for k in range(1, 64):
            term = term * (y / f8(k * k))
            whole = whole + term
            if term < f8(1e-17) * whole:
                break
        return log64(whole) - x
    for k in range(1, 31):
        odd = f8(2 * k - 1)
        term = term * ((odd * odd) / (f8(8 * k) * x))
        whole = whole + term
    return log64(whole) - (HALF_LOG_2PI + f8(0.5) * log64(x))


@jit
def value_itself(x, p, c, t):
    """Set the statistic to the value."""
    t[0] = x


@jit
def geometric_leaf(x, p, c):
    """Return log p + x log(1 - p)."""
    miss = f8(0.0) if x == f8(0.0) else x * log1p64(-p[0])
    return log64(p[0]) + miss


@jit
def negative_binomial_leaf(x, p, c):
    """Return the log-probability of x failures before c[0] successes."""
    ways = (lgamma64(x + c[0]) - lgamma64(c[0])) - lgamma64(x + f8(1.0))
    miss = f8(0.0) if x == f8(0.0) else x * log1p64(-p[0])
    return (ways + c[0] * log64(p[0])) + miss


@jit
def exponential_leaf(x, p, c):
    """Return log rate - rate x."""
    return log64(p[0]) - p[0] * x if x >= f8(0.0) else IMPOSSIBLE


@jit
def gamma_leaf(x, p, c):
    """Return the log-density of shape p[0] and rate p[1]."""
    if not x > f8(0.0):
        return IMPOSSIBLE
    head = p[0] * log64(p[1]) - lgamma64(p[0])
    return (head + (p[0] - f8(1.0)) * log64(x)) - p[1] * x


@jit
def gamma_leaf_statistic(x, p, c, t):
    """Set a = x / mean - 1 and log(1 + a) - a, which are small near the mean."""
    if x > f8(0.0):
        t[0] = (x * p[1]) / p[0] - f8(1.0)
        t[1] = log1p64(t[0]) - t[0]


@jit
def log_normal_leaf(x, p, c):
    """Return the log-density of a number whose logarithm is normal."""
    if not x > f8(0.0):
        return IMPOSSIBLE
    y = log64(x)
    z = (y - p[0]) / p[1]
    return (f8(-0.5) * (z * z) - (HALF_LOG_2PI + log64(p[1]))) - y


@jit
def log_normal_leaf_statistic(x, p, c, t):
    """Set the distance d of the logarithm from its mean, and d^2."""
    if x > f8(0.0):
        t[0] = log64(x) - p[0]
        t[1] = t[0] * t[0]


@jit
def von_mises_leaf(x, p, c):
    """Return kappa (cos d - 1) - log(2 pi I0(kappa)) + kappa, d = x - mu."""
    s, _ = sin_cos64(f8(0.5) * (x - p[0]))
    return (f8(-2.0) * p[1] * (s * s) - LOG_2PI) - log_bessel64(p[1])


@jit
def von_mises_leaf_statistic(x, p, c, t):
    """Set 1 - cos d and sin d, by half the angle."""
    s, half = sin_cos64(f8(0.5) * (x - p[0]))
    t[0] = f8(2.0) * (s * s)
    t[1] = f8(2.0) * (s * half)


@jit
def student_t_leaf(x, p, c):
    """Return c[1] - log scale - (c[0] + 1) / 2 log(1 + z^2 / c[0])."""
    z = (x - p[0]) / p[1]
    return (c[1] - log64(p[1])) - f8(0.5) * (c[0] + f8(1.0)) * log1p64((z * z) / c[0])


@jit
def student_t_leaf_statistic(x, p, c, t):
    """Set the expected precision w of x among normal ones, w d, w d^2, d the distance."""
    d = x - p[0]
    z = d / p[1]
    t[0] = (c[0] + f8(1.0)) / (c[0] + z * z)
    t[1] = t[0] * d
    t[2] = t[1] * d


class Functions(dict):
    """Density and statistic of leaves by name."""

    def __missing__(self, name):
        raise ParameterError(
            f"FUNCTION: got {name!r}, no functions of that name: call "
            "rk.circuits.register_leaf first"
        )


FUNCTIONS = Functions(
    {
        "geometric_leaf": (geometric_leaf, value_itself),
        "negative_binomial_leaf": (negative_binomial_leaf, value_itself),
        "exponential_leaf": (exponential_leaf, value_itself),
        "gamma_leaf": (gamma_leaf, gamma_leaf_statistic),
        "log_normal_leaf": (log_normal_leaf, log_normal_leaf_statistic),
        "von_mises_leaf": (von_mises_leaf, von_mises_leaf_statistic),
        "student_t_leaf": (student_t_leaf, student_t_leaf_statistic),
    }
)


def compiled(function):
    """Compile a function of Numba's language, unless it is compiled already."""
    if hasattr(function, "py_func"):
        return function
    if not callable(function):
        raise ParameterError(f"log_density, statistic: got {function!r}, need a function")
    return jit(function)
