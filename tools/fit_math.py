"""Fit the polynomials of ``rk_math.cuh`` and ``rpukit/_math.py``; prints float32 coefficients.

Each fit is a weighted least-squares fit on Chebyshev points whose weights are moved to the worst points
(Lawson's method), so that it comes close to the smallest possible largest error. Run by hand:

    python tools/fit_math.py
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 40
Function = Callable[[mp.mpf], mp.mpf]


def fit(f: Function, weight: Function, low: float, high: float, degree: int, n: int = 600):
    """Coefficients from the constant on, and the largest weighted error."""
    nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * n)) for k in range(n)]
    x = [(mp.mpf(low) + high) / 2 + (mp.mpf(high) - low) / 2 * t for t in nodes]
    y = np.array([float(f(v)) for v in x])
    w0 = np.array([float(weight(v)) for v in x])
    matrix = np.vander(np.array([float(v) for v in x]), degree + 1, increasing=True)
    w = w0.copy()
    for _ in range(80):
        c, *_ = np.linalg.lstsq(matrix * w[:, None], y * w, rcond=None)
        error = np.abs(matrix @ c - y) * w0
        w *= np.sqrt(error / error.max() + 1e-3)
        w /= w.max()
    return c, error.max()


def show(name: str, c: np.ndarray, error: float) -> None:
    print(f"{name}: largest error {error:.2e}")
    for value in c[::-1]:
        print(f"    {np.float32(value)!r}")


def quantile_over_x(w: mp.mpf) -> mp.mpf:
    """Normal quantile of (1 + x) / 2 over x, as a function of w = -log(1 - x^2)."""
    x = mp.sqrt(-mp.expm1(-w))
    if x == 0:
        return mp.sqrt(mp.pi / 2)
    return mp.sqrt(2) * mp.erfinv(x) / x


def main() -> None:
    half = mp.log(2) / 2
    # log(1 + f) = f + f^2 P(f); the error is relative to the logarithm
    f = lambda t: (mp.log1p(t) - t) / t**2  # noqa: E731
    show("log", *fit(f, lambda t: t * t / abs(mp.log1p(t)), -1 / 3, 1 / 3, 8))
    # exp(f) = 1 + f + f^2 P(f)
    f = lambda t: (mp.exp(t) - 1 - t) / t**2  # noqa: E731
    show("exp", *fit(f, lambda t: t * t / mp.exp(t), -half, half, 4))
    # expm1(f) = f + f^2 P(f), relative to expm1
    show("expm1", *fit(f, lambda t: t * t / abs(mp.expm1(t)), -0.42, 0.42, 5))
    # quantile / x: body in w - 2.5, tail in sqrt(w) - 3; the error is absolute
    x = lambda w: mp.sqrt(-mp.expm1(-w))  # noqa: E731
    body = fit(lambda t: quantile_over_x(t + mp.mpf("2.5")), lambda t: x(t + mp.mpf("2.5")), -2.5, 2.5, 9)
    show("quantile body", *body)
    tail = fit(lambda t: quantile_over_x((t + 3) ** 2), lambda t: 1, mp.sqrt(5) - 3, 0.91, 9)
    show("quantile tail", *tail)


if __name__ == "__main__":
    main()
