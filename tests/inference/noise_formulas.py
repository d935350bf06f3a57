"""Float64 formulas of the noise models, written from the publications.

They were written without looking at the classes of rpukit.
"""

from __future__ import annotations

import numpy as np


def polynomial(x, *coefficients):
    return sum(c * x**k for k, c in enumerate(coefficients))


def log_or(x, a, b, low, high, end, above):
    """A clipped logarithm below a place, a polynomial from there on."""
    log = np.clip(a * np.log(np.maximum(x, 1e-7)) + b, low, high)
    return np.where(x < end, log, above)


def pcm(x, g_max=25.0):
    """Deviation of programming, mean and deviation of nu, noise of reading, over g / g_max."""
    return (
        polynomial(x, 0.26348, 1.9650, -1.1731) * g_max / 25,
        log_or(x, -0.0155, 0.0244, 0.049, 0.1, np.inf, 0),
        log_or(x, -0.0125, -0.0059, 0.008, 0.045, np.inf, 0),
        np.minimum(0.0088 / np.maximum(x**0.65, 1e-3), 0.2),
    )


def hermes(x, n_device):
    one = n_device == 1
    sigma = (
        polynomial(x, 0.15781817, 2.32443916, -2.16310839, 0.68841818)
        if one
        else polynomial(x, 0.16603222, 4.71806468, -8.48101252, 4.68961419)
    )
    mean = polynomial(x, 0.0736, -0.0126, -0.0436)
    std = (
        log_or(x, -0.0120, -0.0023, 0.0124, 0.04, 0.3039, polynomial(x, 0.0104, 0.0116, -0.0165))
        if one
        else log_or(
            x, -0.0117, -0.0057, 0.0091, 0.04, 0.3055, polynomial(x, 0.0073, 0.0093, -0.0118)
        )
    )
    q = (
        log_or(
            x,
            -0.0078,
            0.0038,
            0.0179,
            0.04,
            0.1591,
            polynomial(x, 0.0088, 0.0768, -0.1352, 0.0664),
        )
        if one
        else log_or(
            x, -0.0117, -0.0069, 0.015, 0.04, 0.16, polynomial(x, 0.0123, 0.0211, -0.0280, 0.0069)
        )
    )
    return sigma, log_or(x, -0.0387, -0.0182, 0.072, 0.13, 0.0945, mean), std, q


def state_independent(x, g_max=25.0):
    one = np.ones_like(x)
    return 0.2 * one, 0.1 * one, 0.05 * one, one / g_max
