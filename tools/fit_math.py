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
    """Polynomial in t that approximates `target` on [low, high], with weighted errors."""

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
    at = [round(k * (n_grid - 1) / (n - 1)) for k in range(n)]  # the grid is Chebyshev already
    for _ in range(30):
        rows = [
            [grid[i] ** p for p in range(degree + 1)] + [(-1) ** k / w[i]]
            for k, i in enumerate(at)
        ]
        solved = mp.lu_solve(mp.matrix(rows), mp.matrix([y[i] for i in at]))
        c = [solved[p] for p in range(degree + 1)]
        error = [(_value(c, t) - v) * u for t, v, u in zip(grid, y, w, strict=True)]
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


def _value(c: list[mp.mpf], t: mp.mpf) -> mp.mpf:
    return sum(coefficient * t**p for p, coefficient in enumerate(c))


def _peaks(error: list[mp.mpf]) -> list[int]:
    """Places of the largest error between its changes of sign."""
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


def stirling_rest(z: mp.mpf) -> mp.mpf:
    """x (lgamma(x) - Stirling's first terms), in z = 1 / x^2."""
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


SMALL = mp.mpf("1e-12")  # stands for 0 where a target is a limit there
THIRD = mp.mpf(1) / 3


def near(f: Function) -> Function:
    """Replace t by a small number where f is a limit."""
    return lambda t: f(t if abs(t) > SMALL else SMALL)


def expm1_term(t: mp.mpf) -> mp.mpf:
    return (mp.expm1(t) - t) / t**2


def quantile_in(middle: float, root: bool) -> Function:
    """Quantile / x in w - middle or in sqrt(w) - middle."""
    return lambda t: quantile_over_x((t + middle) ** (2 if root else 1))


def tail(low: float | mp.mpf, high: float, middle: float, *degrees: int | None) -> Fit:
    """Quantile / x in sqrt(w) - middle, relative."""
    weight = lambda t: 1 / (t + middle)  # noqa: E731
    return Fit(quantile_in(middle, True), weight, low - middle, high - middle, *degrees)


def erfc_piece(low: float, high: float, middle: float, *degrees: int | None) -> Fit:
    """log erfc in x - middle, weighted as it enters erf = 1 - exp(.)."""
    weight = lambda t: mp.erfc(t + middle) / mp.erf(t + middle)  # noqa: E731
    target = lambda t: mp.log(mp.erfc(t + middle))  # noqa: E731
    return Fit(target, weight, low - middle, high - middle, *degrees)


def erf_over_x(z: mp.mpf) -> mp.mpf:
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z)


def sinpi_over_pi_r(z: mp.mpf) -> mp.mpf:
    return mp.sin(mp.pi * mp.sqrt(z)) / (mp.pi * mp.sqrt(z))


FITS = {
    # log(1 + f) = f + f^2 P(f)
    "log": Fit(
        near(lambda t: (mp.log1p(t) - t) / t**2),
        near(lambda t: abs(t * t / mp.log1p(t))),
        *(-THIRD, THIRD, 8, 20),
    ),
    # exp(f) = 1 + f + f^2 P(f)
    "exp": Fit(near(expm1_term), lambda t: t * t / mp.exp(t), -HALF_LN2, HALF_LN2, 4, 9),
    # expm1(f) = f + f^2 P(f)
    "expm1": Fit(near(expm1_term), near(lambda t: abs(t * t / mp.expm1(t))), -0.42, 0.42, 5, 10),
    # quantile / x, absolute: in w - 2.5, then in sqrt(w) - 3 for float32
    "quantile body": Fit(quantile_in(2.5, False), lambda t: x_of(t + 2.5), -2.5, 2.5, 9, 21),
    "quantile tail": Fit(quantile_in(3, True), one, mp.sqrt(5) - 3, 0.91, 9, None),
    "quantile far": tail(3.9, 10.2, 7, 10, None),
    # float64: in sqrt(w) minus the middle of the piece, relative
    "quantile tail 1": tail(mp.sqrt(5), 4, 3.125, None, 22),
    "quantile tail 2": tail(4, 8, 6, None, 25),
    "quantile tail 3": tail(8, 16, 12, None, 19),
    "quantile tail 4": tail(16, 27.4, 21.75, None, 17),
    # erf(x) = x + x P(x^2) below 1; 1 - exp(P(x - middle)) from 1 on
    "erf body": Fit(
        near(lambda z: erf_over_x(z) - 1), near(lambda z: 1 / erf_over_x(z)), 0, 1, 6, 12
    ),
    "erf tail": erfc_piece(1, 3.95, 2, 7, None),
    "erf tail 1": erfc_piece(1, 2.5, 1.75, None, 14),
    "erf tail 2": erfc_piece(2.5, 6, 4.25, None, 13),
    # lgamma(x) = (x - 1) (x - 2) P(x - 3/2) on [1, 2]; Stirling's rest is P(1 / x^2) / x from 8 on
    "lgamma core": Fit(gamma_core, lambda t: 1 / gamma_core(t), -0.5, 0.5, 10, 20),
    "lgamma rest": Fit(near(stirling_rest), one, 0, mp.mpf(1) / 64, 2, 7),
    # sin(pi r) / pi = r + r^3 P(r^2)
    "sinpi": Fit(
        near(lambda z: (sinpi_over_pi_r(z) - 1) / z),
        near(lambda z: z / sinpi_over_pi_r(z)),
        *(0, 0.25, 3, 7),
    ),
    # pow: atanh(s) / s = 1 + z / 3 + z^2 P(z), z = s^2, s = f / (2 + f)
    "atanh": Fit(lambda z: sum(z**k / (2 * k + 5) for k in range(60)), one, 0, 0.0295, 3, 8),
}


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
