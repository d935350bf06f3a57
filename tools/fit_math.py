"""Fit the polynomials of our elementary functions; prints the coefficients, leading one first.

Every fit is the polynomial of smallest largest weighted error (Remez exchange on a grid, in 40
digits), rounded to the type of the function. Run by hand; the names as arguments, default all:

    python tools/fit_math.py [log exp ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np

mp.mp.dps = 40
Function = Callable[[mp.mpf], mp.mpf]
HALF_LN2 = mp.log(2) / 2


def one(t: mp.mpf) -> mp.mpf:
    return mp.mpf(1)


@dataclass(frozen=True)
class Fit:
    """A polynomial in t on [low, high] near `target`, errors weighted by `weight`."""

    target: Function
    weight: Function
    low: float | mp.mpf
    high: float | mp.mpf
    degree32: int | None = None
    degree64: int | None = None


def remez(fit: Fit, degree: int, n_grid: int = 700) -> tuple[list[mp.mpf], mp.mpf]:
    """Coefficients from the constant on, and the largest weighted error."""
    low, high = mp.mpf(fit.low), mp.mpf(fit.high)
    angles = [mp.pi * (2 * k + 1) / (2 * n_grid) for k in range(n_grid)]
    grid = [(low + high) / 2 - (high - low) / 2 * mp.cos(a) for a in angles]
    y, w = [fit.target(t) for t in grid], [fit.weight(t) for t in grid]
    n = degree + 2
    at = [round((n_grid - 1) * (1 - np.cos(np.pi * k / (n - 1))) / 2) for k in range(n)]
    at = [round(k * (n_grid - 1) / (n - 1)) for k in range(n)]  # the grid is Chebyshev already
    for _ in range(30):
        rows = [[grid[i] ** p for p in range(degree + 1)] + [(-1) ** k / w[i]] for k, i in enumerate(at)]
        solved = mp.lu_solve(mp.matrix(rows), mp.matrix([y[i] for i in at]))
        c = [solved[p] for p in range(degree + 1)]
        error = [(mp.polyval(c[::-1], t) - v) * u for t, v, u in zip(grid, y, w, strict=True)]
        largest = max(abs(e) for e in error)
        if largest <= abs(solved[degree + 1]) * mp.mpf("1.001"):
            break
        peaks = _peaks(error)
        while len(peaks) > n:  # drop the smaller end
            peaks = peaks[1:] if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else peaks[:-1]
        if len(peaks) < n:
            break  # the error is down at the working precision
        at = peaks
    return c, largest


def _peaks(error: list[mp.mpf]) -> list[int]:
    """Where the error is largest between its changes of sign."""
    peaks = [0]
    for i, e in enumerate(error):
        if (e > 0) != (error[peaks[-1]] > 0):
            peaks.append(i)
        elif abs(e) > abs(error[peaks[-1]]):
            peaks[-1] = i
    return peaks


def quantile_over_x(w: mp.mpf) -> mp.mpf:
    """Normal quantile of (1 + x) / 2 over x, as a function of w = -log(1 - x^2)."""
    if w == 0:
        return mp.sqrt(mp.pi / 2)
    tail = mp.exp(-w) / (2 * (1 + mp.sqrt(-mp.expm1(-w))))  # (1 - x) / 2, without cancellation
    q = mp.sqrt(w * 2) if w > 4 else mp.mpf(1)
    for _ in range(60):  # Newton on log erfc, which is nearly a parabola
        p = mp.erfc(q / mp.sqrt(2)) / 2
        step = (mp.log(p) - mp.log(tail)) * p / (mp.exp(-q * q / 2) / mp.sqrt(2 * mp.pi))
        q += step
        if abs(step) < mp.mpf(10) ** -32 * abs(q):
            break
    return q / mp.sqrt(-mp.expm1(-w))


def x_of(w: mp.mpf) -> mp.mpf:
    return mp.sqrt(-mp.expm1(-w))


def tail(low: float | mp.mpf, high: float, middle: float, degree64: int) -> Fit:
    """Quantile / x in sqrt(w) - middle, relative."""
    f = lambda t: quantile_over_x((t + middle) ** 2)  # noqa: E731
    return Fit(f, lambda t: 1 / (t + middle), low - middle, high - middle, None, degree64)


def log_erfc(t: mp.mpf) -> mp.mpf:
    return mp.log(mp.erfc(t))


def stirling_rest(z: mp.mpf) -> mp.mpf:
    """x (lgamma(x) - Stirling's first terms), in z = 1 / x^2."""
    if z == 0:
        return mp.mpf(1) / 12
    x = 1 / mp.sqrt(z)
    return x * (mp.loggamma(x) - (x - 0.5) * (mp.log(x) - 1) - mp.log(2 * mp.pi) / 2 + 0.5)


def gamma_core(t: mp.mpf) -> mp.mpf:
    """lgamma(x) / ((x - 1) (x - 2)) at x = t + 3/2."""
    a, b = t + mp.mpf(1) / 2, t - mp.mpf(1) / 2
    if a == 0:
        return mp.euler
    if b == 0:
        return 1 - mp.euler
    return mp.loggamma(t + mp.mpf(3) / 2) / (a * b)


def relative(f: Function, factor: Function = one) -> Function:
    """Weight of a term that is multiplied by `factor` in a sum near `f`."""
    return lambda t: abs(factor(t) / f(t))


SMALL = mp.mpf("1e-12")  # stands for 0 where a target is a limit there
THIRD = mp.mpf(1) / 3


def near(f: Function) -> Function:
    return lambda t: f(t if abs(t) > SMALL else SMALL)


FITS = {
    # log(1 + f) = f + f^2 P(f)
    "log": Fit(near(lambda t: (mp.log1p(t) - t) / t**2), near(relative(mp.log1p, lambda t: t * t)),
               -THIRD, THIRD, 8, 20),
    # exp(f) = 1 + f + f^2 P(f)
    "exp": Fit(near(lambda t: (mp.expm1(t) - t) / t**2), lambda t: t * t / mp.exp(t),
               -HALF_LN2, HALF_LN2, 4, 9),
    # expm1(f) = f + f^2 P(f)
    "expm1": Fit(near(lambda t: (mp.expm1(t) - t) / t**2), near(relative(mp.expm1, lambda t: t * t)),
                 -0.42, 0.42, 5, 10),
    # quantile / x: in w - 2.5, then in sqrt(w) - 3 for float32
    "quantile body": Fit(lambda t: quantile_over_x(t + mp.mpf("2.5")), lambda t: x_of(t + mp.mpf("2.5")),
                         -2.5, 2.5, 9, 21),
    "quantile tail": Fit(lambda t: quantile_over_x((t + 3) ** 2), one, mp.sqrt(5) - 3, 0.91, 9, None),
    "quantile far": Fit(lambda t: quantile_over_x((t + 7) ** 2), lambda t: 1 / (t + 7), -3.1, 3.2, 10, None),
    # float64: in sqrt(w) minus the middle of the piece
    "quantile tail 1": tail(mp.sqrt(5), 4, 3.125, 22),
    "quantile tail 2": tail(4, 8, 6, 25),
    "quantile tail 3": tail(8, 16, 12, 19),
    "quantile tail 4": tail(16, 27.4, 21.75, 17),
    # erf(x) = x + x P(x^2) below 1; 1 - exp(P(x - centre)) from 1 on
    "erf body": Fit(near(lambda z: mp.erf(mp.sqrt(abs(z))) / mp.sqrt(abs(z)) - 1),
                    near(lambda z: mp.sqrt(abs(z)) / mp.erf(mp.sqrt(abs(z)))), 0, 1, 6, 12),
    "erf tail": Fit(lambda t: log_erfc(t + 2), lambda t: mp.erfc(t + 2) / mp.erf(t + 2), -1, 1.95, 7, None),
    "erf tail 1": Fit(lambda t: log_erfc(t + 1.75), lambda t: mp.erfc(t + 1.75) / mp.erf(t + 1.75),
                      -0.75, 0.75, None, 14),
    "erf tail 2": Fit(lambda t: log_erfc(t + 4.25), lambda t: mp.erfc(t + 4.25) / mp.erf(t + 4.25),
                      -1.75, 1.75, None, 13),
    # lgamma(x) = (x - 1) (x - 2) P(x - 3/2) on [1, 2]; Stirling's rest is P(1 / x^2) / x from 8 on
    "lgamma core": Fit(gamma_core, lambda t: 1 / gamma_core(t), -0.5, 0.5, 10, 20),
    "lgamma rest": Fit(lambda z: stirling_rest(z if z > 0 else SMALL), one, 0, mp.mpf(1) / 64, 2, 7),
    # sin(pi r) / pi = r + r^3 P(r^2)
    "sinpi": Fit(near(lambda z: (mp.sin(mp.pi * mp.sqrt(abs(z))) / mp.pi / mp.sqrt(abs(z)) - 1) / z),
                 near(lambda z: abs(z * mp.sqrt(abs(z)) * mp.pi / mp.sin(mp.pi * mp.sqrt(abs(z))))),
                 0, 0.25, 3, 7),
    # pow: (atanh(s) / s - 1 - s^2 / 3) / s^4 in z = s^2, s = f / (2 + f)
    "atanh": Fit(lambda z: sum(z**k / (2 * k + 5) for k in range(60)), one, 0, 0.0401, 3, 8),
}  # fmt: skip


def show(name: str, fit: Fit) -> None:
    for degree, kind in ((fit.degree32, np.float32), (fit.degree64, np.float64)):
        if degree is not None:
            c, error = remez(fit, degree)
            digits = 9 if kind is np.float32 else 17
            print(f"{name}, {kind.__name__}: largest error {mp.nstr(error, 3)}")
            print("    " + ", ".join(f"{float(kind(float(v))):.{digits}g}" for v in c[::-1]))


def main() -> None:
    chosen = sys.argv[1:] or list(FITS)
    for name in chosen:
        show(name, FITS[name])


if __name__ == "__main__":
    main()
