"""Numba twins of ``kernels_cu/include/rk_math64.cuh``: float64, the same bits on CPU and GPU.

The algorithms are those of ``math.py``. Coefficients: ``tools/fit_math.py``; largest errors seen:
``docs/math.md``.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import d2u, f8, fma64, horner64, i4, i8, u2d, u8

INF, NAN = f8(np.inf), f8(np.nan)
LN2, LN2_REST = f8(0.6931471805599453), f8(2.3190468138462996e-17)  # together 107 bits
LN2_HIGH, LN2_LOW = f8(0.6931471805592082), f8(7.371002565167799e-13)  # the first: 40 bits
LOG2E = f8(1.4426950408889634)
ROUND = f8(6755399441055744.0)  # adding and subtracting it rounds to the nearest integer

_LOG = tuple(f8([
    -0.083481213187014541, 0.085036736950232908, -0.038304401260635626, 0.041731453602499045,
    -0.05749383460939661, 0.060523194058418661, -0.062302950065388663, 0.066505802694704699,
    -0.071441460008358451, 0.076932726913905888, -0.083332786156693872, 0.090908723105000172,
    -0.10000001477756128, 0.11111111974815362, -0.12499999975905463, 0.1428571427409078,
    -0.16666666666880792, 0.20000000000077317, -0.24999999999999156, 0.33333333333333154, -0.5,
]))  # fmt: skip
_EXP = tuple(f8([
    2.5000050539106446e-08, 2.763023348418544e-07, 2.755758633083371e-06, 2.4801493137423171e-05,
    0.00019841269506714441, 0.0013888888943596456, 0.0083333333334943589, 0.041666666666530273,
    0.16666666666666413, 0.50000000000000111, 1.0, 1.0,
]))  # fmt: skip
_EXPM1 = tuple(f8([
    2.0874699356513372e-09, 2.5135608901362254e-08, 2.7557498868576763e-07,
    2.7557157936583006e-06, 2.4801586893537948e-05, 0.00019841269982583725,
    0.0013888888889229953, 0.0083333333332793399, 0.041666666666665589, 0.16666666666666732, 0.5,
]))  # fmt: skip
_BODY = tuple(f8([
    1.7559442353425844e-19, 3.6865445047834324e-18, -3.5925716572678179e-17,
    -1.4626052596478822e-16, 2.6556579730210847e-15, -4.4566492324323584e-15,
    -1.0746186230353704e-13, 7.594307857223641e-13, 1.2882575224112936e-12,
    -4.3992234029899424e-11, 1.6915235336338451e-10, 1.2831341174457772e-09,
    -1.536001688584025e-08, 1.8974209025566249e-08, 6.7701970140626806e-07,
    -4.8318297582626579e-06, -7.0655235301079611e-06, 0.0003086524838219947,
    -0.001771596512917675, -0.005907619380164101, 0.34880202439905439, 2.1233134670146701,
]))  # fmt: skip
_TAIL_1 = tuple(f8([
    -3.7802063986049551e-09, 5.487214754806579e-09, 2.0727636298432893e-08,
    -6.5475532469897966e-08, 4.4311142726324536e-08, 1.9149193803863224e-07,
    -7.5486467472508481e-07, 1.0578889535374652e-06, 1.2565774155716982e-06,
    -8.8684446792896409e-06, 1.6129888830011536e-05, 3.0887443650118297e-06,
    -8.3231562275607954e-05, 0.00019248146613730865, -0.00012664723132220561,
    -0.00046479851168217113, 0.001782856425056441, -0.0035636522777031288, 0.0053661202479225725,
    -0.0074967610968159739, 0.0099672137296782926, 1.4194725867480062, 4.1836964783116732,
]))  # fmt: skip
_TAIL_2 = tuple(f8([
    -3.6293668316574881e-18, -1.1027725979238945e-16, 7.2282034580451202e-16,
    2.7380247252077685e-16, -9.4414322137916391e-15, 1.764660489731258e-14,
    -1.0389879003394764e-14, 9.5320150752560129e-14, -4.1355970507999158e-13,
    7.4359763525502478e-13, -1.0820815188808937e-12, 2.8595348306185863e-12,
    -9.904400790778442e-12, 4.4304615694346547e-11, -2.5290154157464331e-10,
    1.5271808291696247e-09, -9.1108197508004123e-09, 5.2871490488969987e-08,
    -2.9540130446819633e-07, 1.5635462675440704e-06, -7.5750666773423384e-06,
    3.0516688896161704e-05, -6.0705085615568701e-05, -0.00066869668129565713, 1.4277972563143289,
    8.2871686424971429,
]))  # fmt: skip
_TAIL_3 = tuple(f8([
    -3.081307980823745e-22, 3.2729456832084961e-21, -1.4473946952377473e-20,
    1.9789355801349801e-19, -3.083751539277e-18, 3.4310873590536618e-17, -3.7161517819974091e-16,
    4.1200480247881048e-15, -4.4565328857012626e-14, 4.6395793572996849e-13,
    -4.5830510488876179e-12, 4.1334821714650954e-11, -3.0567551834889262e-10,
    9.9620850918108168e-10, 2.6074670150470646e-08, -8.666781261262625e-07,
    1.8767832636276531e-05, -0.0003597573408066869, 1.4209621948224371, 16.830961721880275,
]))  # fmt: skip
_TAIL_4 = tuple(f8([
    -4.2319482231237507e-25, 7.1470141127329025e-24, -7.3585877356258359e-23,
    1.3886257076244897e-21, -2.5146405082056066e-20, 3.2482469574803239e-19,
    -1.8744303689168357e-18, -7.9938116559847817e-17, 4.6460199687817145e-15,
    -1.7166286572307572e-13, 5.4667067632086539e-12, -1.6207927318634904e-10,
    4.622914907576165e-09, -1.292456183995157e-07, 3.5926431360160478e-06,
    -0.0001008511375373112, 1.4171499025555185, 30.662868183965148,
]))  # fmt: skip


@jit(forceinline=True)
def exponent64(x):
    """Exponent bits of the power of two that scales a normal positive x to [2/3, 4/3)."""
    return u8(u8(d2u(x) - u8(0x3FE5555555555555)) & u8(0xFFF0000000000000))


@jit(forceinline=True)
def exponent_value64(e):
    """Decode exponent bits to their integer."""
    return f8(i8(e) >> i8(52))


@jit
def log64(x):
    """Natural logarithm."""
    small = x < f8(2.2250738585072014e-308)  # zero, subnormal or negative
    scaled = x * f8(18014398509481984.0) if small else x
    e = exponent64(scaled)
    f = u2d(u8(d2u(scaled) - e)) - f8(1.0)
    n = exponent_value64(e) - (f8(54.0) if small else f8(0.0))
    core = f + fma64(f * f, horner64(f, _LOG), n * LN2_REST)
    r = fma64(n, LN2, core)
    if x < INF and x > f8(0.0):
        return r
    return -INF if x == f8(0.0) else NAN if x < f8(0.0) else x


@jit
def log1p64(x):
    """log(1 + x), accurate near 0."""
    # 1 + x is m 2^n, f = m - 1; the rounding errors of f and of the leading sum are carried.
    e = u8(0) if abs(x) < f8(0.25) else exponent64(f8(1.0) + x)
    t = u2d(u8(u8(0x3FF0000000000000) - e))
    n = exponent_value64(e)
    less = t - f8(1.0)
    f = fma64(x, t, less)
    lost = fma64(x, t, -(f - less))
    if x > f8(1.0e17):  # the 1 is negligible
        f = u2d(u8(d2u(x) - e)) - f8(1.0)
        lost = f8(0.0)
    lead = n * LN2_HIGH
    total = lead + f
    lost = fma64(lost, f8(1.0) - f, f8(0.0) if n == f8(0.0) else f - (total - lead))
    r = total + fma64(f * f, horner64(f, _LOG), fma64(n, LN2_LOW, lost))
    if x > f8(-1.0) and x < INF:
        return x if x == f8(0.0) else r
    return -INF if x == f8(-1.0) else NAN if x < f8(-1.0) else x


@jit(forceinline=True)
def scale64(r, j):
    """Compute r 2^j for j in [-1080, 1024], rounded once where the result is subnormal."""
    half = i4(j >> i4(1))
    low = u2d(u8(i8(half + i4(1023))) << u8(52))
    high = u2d(u8(i8(i4(j - half) + i4(1023))) << u8(52))
    return (r * low) * high


@jit
def exp64(x):
    """Exponential."""
    if x != x:
        return x
    a = f8(-746.0) if x < f8(-746.0) else f8(710.0) if x > f8(710.0) else x
    j = fma64(a, LOG2E, ROUND) - ROUND
    f = fma64(j, -LN2_REST, fma64(j, -LN2, a))
    return scale64(horner64(f, _EXP), i4(j))


@jit(forceinline=True)
def round_up64(v):
    """Return v; of float32 the smallest that is not below it."""
    return v


@jit
def expm164(x):
    """exp(x) - 1, accurate near 0."""
    if x != x:
        return x
    a = f8(-40.0) if x < f8(-40.0) else f8(710.0) if x > f8(710.0) else x
    j = f8(0.0) if abs(a) < f8(0.41) else fma64(a, LOG2E, ROUND) - ROUND
    whole = fma64(j, -LN2, a)
    f = fma64(j, -LN2_REST, whole)
    lost = fma64(j, -LN2_REST, whole - f)
    r = f + fma64(f * f, horner64(f, _EXPM1), lost)
    if j == f8(0.0):
        return x if x == f8(0.0) else r
    s = u2d(u8(i8(i4(j) + i4(1022))) << u8(52))
    if j < f8(54.0) or j > f8(56.0):
        return f8(2.0) * fma64(s, r, s - f8(0.5))
    return f8(2.0) * (fma64(s, r, f8(-0.5)) + s)


@jit
def sqrt64(x):
    """Square root, correctly rounded."""
    return np.sqrt(x)


@jit
def reciprocal64(x):
    """1 / x, correctly rounded."""
    return f8(1.0) / x


@jit
def sigmoid64(x):
    """1 / (1 + exp(-x))."""
    e = exp64(-abs(x))
    return (e if x < f8(0.0) else f8(1.0)) / (f8(1.0) + e)


@jit
def tanh64(x):
    """Hyperbolic tangent."""
    if x != x:
        return x
    a = abs(x)
    e = expm164(f8(2.0) * (f8(22.0) if a > f8(22.0) else a))
    t = f8(1.0) if a > f8(20.0) else e / (e + f8(2.0))
    return -t if x < f8(0.0) else x if x == f8(0.0) else t


@jit
def normal_quantile64(p):
    """Standard normal quantile of p in (0, 1)."""
    x = fma64(f8(2.0), p, f8(-1.0))
    w = -log64((p + p) * fma64(f8(-2.0), p, f8(2.0)))  # -log(1 - x^2)
    s = f8(np.sqrt(w))
    if w < f8(5.0):
        y = horner64(w - f8(2.5), _BODY)
    elif s < f8(4.0):
        y = horner64(s - f8(3.125), _TAIL_1)
    elif s < f8(8.0):
        y = horner64(s - f8(6.0), _TAIL_2)
    elif s < f8(16.0):
        y = horner64(s - f8(12.0), _TAIL_3)
    else:
        y = horner64(s - f8(21.75), _TAIL_4)
    if p > f8(0.0) and p < f8(1.0):
        return y * x
    return -INF if p == f8(0.0) else INF if p == f8(1.0) else NAN
