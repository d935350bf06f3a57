"""Special functions that M steps need, of arrays on the host, with the same bits everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit.elementwise import log

__all__ = ["bessel_ratio_rest", "digamma", "trigamma"]

Array = Any

_SHIFT = 10  # digamma and trigamma are series from here on
# Bernoulli numbers B2 to B16.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_FAR = 30.0  # Bessel's functions are series in 1 / x from here on
_TERMS = 80
# 1 - I1(x) / I0(x) = 1 / (2 x) + 1 / (8 x^2) + ...
_RATIO = (1 / 2, 1 / 8, 1 / 8, 25 / 128, 13 / 32, 1073 / 1024, 103 / 32, 375733 / 32768)


def digamma(x: Array) -> Array:
    """Derivative of log Gamma, x > 0, to about 1e-15."""
    less = np.zeros_like(x)
    for k in range(_SHIFT):
        less = less + 1 / (x + k)
    y = x + _SHIFT
    z, tail = 1 / (y * y), np.zeros_like(y)
    for k in range(len(_BERNOULLI), 0, -1):
        tail = (tail + _BERNOULLI[k - 1] / (2 * k)) * z
    return log(y) - 0.5 / y - tail - less


def trigamma(x: Array) -> Array:
    """Second derivative of log Gamma, x > 0, to about 1e-15."""
    more = np.zeros_like(x)
    for k in range(_SHIFT):
        more = more + 1 / ((x + k) * (x + k))
    y = x + _SHIFT
    z, tail = 1 / (y * y), np.zeros_like(y)
    for k in range(len(_BERNOULLI), 0, -1):
        tail = (tail + _BERNOULLI[k - 1]) * z
    return more + (1 + 0.5 / y + tail) / y


def bessel_ratio_rest(x: Array) -> Array:
    """1 - I1(x) / I0(x) for x > 0, without loss where it is small."""
    far = np.maximum(x, _FAR)
    series = np.zeros_like(x)
    for c in reversed(_RATIO):
        series = (series + c) / far
    near = np.minimum(x, _FAR)
    ratio = np.zeros_like(x)  # I_k / I_(k-1), from the last term of a continued fraction
    for k in range(_TERMS, 0, -1):
        ratio = 1 / (2 * k / near + ratio)
    return np.where(x < _FAR, 1 - ratio, series)
