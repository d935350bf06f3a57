"""Numba twins of ``rk_special.cuh`` and ``rk_special64.cuh``: pow, erf, lgamma, sums of logs.

Coefficients: ``tools/fit_math.py``; largest errors: ``docs/math.md``.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact import math as m4
from rpukit._exact import math64 as m8
from rpukit._exact.jit import jit
from rpukit._exact.math import (
    d2u,
    f2u,
    f4,
    f8,
    fma32,
    fma64,
    horner32,
    horner64,
    i4,
    i8,
    u2d,
    u2f,
    u4,
    u8,
)

INF4, NAN4, INF8, NAN8 = m4.INF, m4.NAN, m8.INF, m8.NAN
THIRD4, THIRD4_LOW = f4(0.333333343), f4(-9.93410754e-09)
THIRD8, THIRD8_LOW = f8(0.33333333333333331), f8(1.8503717077085941e-17)

_ATANH4 = tuple(f4([0.0956199616, 0.111023098, 0.142857671, 0.200000003]))
_ATANH8 = tuple(f8([
    0.053830668227623918, 0.0522795496554695, 0.058834160769850305, 0.066666480417850046,
    0.076923078835353945, 0.09090909089807557, 0.11111111111114287, 0.14285714285714282,
    0.20000000000000001,
]))  # fmt: skip
_ERF4 = tuple(f4([
    7.85386728e-05, -0.000801019545, 0.00518832775, -0.0268538129, 0.112835854, -0.37612626,
    0.128379166,
]))  # fmt: skip
_ERFC4 = tuple(f4([
    -2.1697575e-05, 0.000137706156, -0.000730212487, 0.00357051939, -0.0164658111, -0.923750997,
    -4.41816092, -5.36494112,
]))  # fmt: skip
_ERF8 = tuple(f8([
    5.9452559841754601e-11, -1.1365662652678077e-09, 1.4657879024587215e-08,
    -1.635002510920955e-07, 1.6460972807366729e-06, -1.4925593506373649e-05,
    0.00012055331036882645, -0.00085483269787418902, 0.0052239776247808645,
    -0.026866170645072896, 0.11283791670954857, -0.37612638903183748, 0.12837916709551259,
]))  # fmt: skip
_ERFC8_1 = tuple(f8([
    9.8213793324892222e-10, 2.4598470170628486e-09, -2.4132838669979811e-08,
    1.1317648993973617e-07, -4.0129662283216403e-07, 8.9094117578481053e-07,
    8.2733677064824986e-07, -2.3741504672100485e-05, 0.0001745230895471166,
    -0.00096409864191361236, 0.0046249304974984229, -0.020538840382079714, -0.90994016649671861,
    -3.9596109008134088, -4.3178635254332223,
]))  # fmt: skip
_ERFC8_2 = tuple(f8([
    7.7679011696958281e-11, 7.4346568605417596e-10, 2.3852620593755049e-09,
    1.0863185552485287e-08, -2.1519025690666695e-08, 2.3883809753610808e-07,
    -1.6038365443061018e-06, 1.0877142077451327e-05, -7.2382798361651161e-05,
    0.00048052735679799449, -0.0032637445016463168, -0.9760845763528081, -8.7237757155032281,
    -20.107769901468281,
]))  # fmt: skip
_GAMMA4 = tuple(f4([
    0.000959909579, -0.00152551918, 0.00184831582, -0.00311640254, 0.00545647461, -0.00943639688,
    0.0167964976, -0.031307999, 0.0629114136, -0.145959899, 0.483128965,
]))  # fmt: skip
_GAMMA8 = tuple(f8([
    1.2169075790889628e-05, -1.854239188391907e-05, 1.3149715215244748e-05,
    -2.1470397892312773e-05, 4.3046949454195468e-05, -6.794597228579864e-05,
    0.00010534946403354944, -0.00016856943461877638, 0.00027131474343201006,
    -0.00043803554422290213, 0.00071151895715782095, -0.0011644113396797873,
    0.0019229163201662034, -0.0032120742227685463, 0.0054464578388430862, -0.0094256224447622824,
    0.016797098631279671, -0.031308487501054229, 0.062911401074564346, -0.14595989591430594,
    0.48312895054098087,
]))  # fmt: skip
_STIRLING4 = tuple(f4([0.000780058268, -0.00277769892, 0.0833333358]))
_STIRLING8 = tuple(f8([
    -0.020877753081831048, 0.0062093376108188032, -0.0019149917479858653, 0.00084173280251225542,
    -0.00059523802494010727, 0.00079365079351567365, -0.0027777777777776786, 0.083333333333333329,
]))  # fmt: skip
_SINPI4 = tuple(f4([0.0247250348, -0.19044739, 0.811716437, -1.64493334]))
_SINPI8 = tuple(f8([
    2.4499342019861561e-07, -6.9720676648458735e-06, 0.00014842783057837549,
    -0.0023460808937994719, 0.026147847805463274, -0.19075182412150141, 0.81174242528334006,
    -1.6449340668482264,
]))  # fmt: skip


@jit(forceinline=True)
def _log_pair32(x):
    """log of a positive finite x as a sum of two float32, to about 2^-38."""
    small = x < f4(1.17549435e-38)
    scaled = f4(x * f4(8388608.0)) if small else x
    e = u4(u4(f2u(scaled) - u4(0x3F3504F3)) & u4(0xFF800000))  # to [1, 2) / sqrt(2)
    n = fma32(f4(i4(e)), m4.ULP, f4(-23.0) if small else f4(0.0))
    f = f4(u2f(u4(f2u(scaled) - e)) - f4(1.0))
    d = f4(f4(2.0) + f)
    d_low = f4(f - f4(d - f4(2.0)))
    s = f4(f / d)  # log m = 2 atanh(s)
    s_low = f4(fma32(-s, d_low, fma32(-s, d, f)) / d)
    z = f4(s * s)
    z_low = fma32(f4(s + s), s_low, fma32(s, s, -z))
    third = f4(z * THIRD4)
    third_low = fma32(z_low, THIRD4, fma32(z, THIRD4_LOW, fma32(z, THIRD4, -third)))
    rest = f4(f4(z * z) * horner32(z, _ATANH4))
    p = f4(third + rest)
    p_low = f4(f4(f4(third - p) + rest) + third_low)
    a = f4(s + s)
    b = f4(a * p)
    b_low = fma32(a, p_low, fma32(f4(s_low + s_low), f4(f4(1.0) + p), fma32(a, p, -b)))
    high = f4(a + b)
    low = f4(f4(f4(a - high) + b) + b_low)
    lead = f4(n * m4.LN2_HIGH)
    total = f4(lead + high)
    return total, f4(f4(f4(lead - total) + high) + fma32(n, m4.LN2_LOW, low))


@jit(forceinline=True)
def _parity32(y):
    """Classify a number: 0 for an even integer, 1 for an odd one, 2 for no integer."""
    a = abs(y)
    if not a < f4(16777216.0):
        return i4(0)  # even, or infinite, or NaN
    whole = i4(a)
    return i4(whole & i4(1)) if f4(whole) == a else i4(2)


@jit
def pow32(x, y):
    """x to the power y."""
    a = abs(x)
    parity = _parity32(y)
    negative = np.signbit(x) and parity == i4(1)
    if x == f4(1.0) or y == f4(0.0):
        return f4(1.0)
    if x != x or y != y:
        return NAN4
    if a == f4(0.0) or a == INF4:
        r = INF4 if (a == INF4) == (y > f4(0.0)) else f4(0.0)
        return f4(-r) if negative else r
    if abs(y) == INF4:
        return f4(1.0) if a == f4(1.0) else INF4 if (a > f4(1.0)) == (y > f4(0.0)) else f4(0.0)
    if x < f4(0.0) and parity == i4(2):
        return NAN4
    high, low = _log_pair32(a)
    p = f4(y * high)
    p_low = fma32(y, low, fma32(y, high, -p))
    if abs(p) > f4(200.0):
        p = f4(89.0) if p > f4(0.0) else f4(-104.0)
        p_low = f4(0.0)
    p = f4(89.0) if p > f4(89.0) else f4(-104.0) if p < f4(-104.0) else p
    j = f4(fma32(p, m4.LOG2E, m4.ROUND) - m4.ROUND)
    whole = fma32(j, -m4.LN2_HIGH, p)
    rest = fma32(j, -m4.LN2_LOW, p_low)
    f = f4(whole + rest)
    lost = f4(f4(whole - f) + rest)
    r = horner32(f, m4._EXP)
    r = m4.scale32(fma32(r, lost, r), i4(j))
    return f4(-r) if negative else r


@jit
def erf32(x):
    """Error function."""
    a = abs(x)
    if a < f4(1.0):
        return fma32(x, horner32(f4(x * x), _ERF4), x)
    if x != x:
        return x
    t = f4((f4(3.95) if a > f4(3.95) else a) - f4(2.0))
    r = f4(f4(1.0) - m4.exp32(horner32(t, _ERFC4)))
    return f4(-r) if x < f4(0.0) else r


@jit
def lgamma32(x):
    """log |Gamma(x)|."""
    a = abs(x)
    if not a < INF4:
        return x if x != x else INF4
    if x <= f4(0.0) and f4(np.floor(x)) == x:
        return INF4
    if a < f4(8.0):
        k = i4(a)
        u = f4(a - f4(k))
        r = f4(f4(u * f4(u - f4(1.0))) * horner32(f4(u - f4(0.5)), _GAMMA4))
        product = f4(a - f4(1.0))
        for i in range(2, k):
            product = f4(product * f4(a - f4(i)))
        r = f4(r + (m4.log32(product) if k >= 2 else f4(0.0)))
    else:
        k = i4(8)
        inverse = f4(f4(1.0) / a)
        rest = fma32(horner32(f4(inverse * inverse), _STIRLING4), inverse, f4(0.418938533))
        r = fma32(f4(a - f4(0.5)), f4(m4.log32(a) - f4(1.0)), rest)
    if x > f4(0.0):
        return f4(r - m4.log32(a)) if k == 0 else r
    u = f4(a - f4(np.rint(a)))
    s = abs(fma32(f4(u * f4(u * u)), horner32(f4(u * u), _SINPI4), u))  # |sin(pi x)| / pi
    return f4(f4(-m4.log32(s if k == 0 else f4(a * s))) - r)


@jit
def logaddexp32(x, y):
    """log(exp(x) + exp(y))."""
    high, low = (x, y) if x > y else (y, x)
    if high != high or low != low:
        return NAN4
    if x == y:
        return f4(x + m4.LN2)
    return f4(high + m4.log1p32(m4.exp32(f4(low - high))))


@jit
def join_sums32(m, s, m_next, s_next):
    """Add the pair (m_next, s_next) to (m, s), where a pair represents s exp(m)."""
    if m_next > m:
        return m_next, fma32(s, m4.exp32(f4(m - m_next)), s_next)
    if m == m_next:
        return m, f4(s + s_next)
    return m, fma32(s_next, m4.exp32(f4(m_next - m)), s)


@jit
def log_of_sum32(m, s):
    """log(s exp(m)); -inf where s is 0."""
    return f4(m + m4.log32(s)) if s != f4(0.0) else -INF4


@jit(forceinline=True)
def _log_pair64(x):
    """log of a positive finite x as a sum of two float64, to about 2^-68."""
    small = x < f8(2.2250738585072014e-308)
    scaled = x * f8(18014398509481984.0) if small else x
    e = u8(u8(d2u(scaled) - u8(0x3FE6A09E667F3BCD)) & u8(0xFFF0000000000000))
    n = m8.exponent_value64(e) - (f8(54.0) if small else f8(0.0))
    f = u2d(u8(d2u(scaled) - e)) - f8(1.0)
    d = f8(2.0) + f
    d_low = f - (d - f8(2.0))
    s = f / d  # log m = 2 atanh(s)
    s_low = fma64(-s, d_low, fma64(-s, d, f)) / d
    z = s * s
    z_low = fma64(s + s, s_low, fma64(s, s, -z))
    third = z * THIRD8
    third_low = fma64(z_low, THIRD8, fma64(z, THIRD8_LOW, fma64(z, THIRD8, -third)))
    rest = (z * z) * horner64(z, _ATANH8)
    p = third + rest
    p_low = ((third - p) + rest) + third_low
    a = s + s
    b = a * p
    b_low = fma64(a, p_low, fma64(s_low + s_low, f8(1.0) + p, fma64(a, p, -b)))
    high = a + b
    low = ((a - high) + b) + b_low
    lead = n * m8.LN2_HIGH
    total = lead + high
    return total, ((lead - total) + high) + fma64(n, m8.LN2_LOW, low)


@jit(forceinline=True)
def _parity64(y):
    """Classify a number: 0 for an even integer, 1 for an odd one, 2 for no integer."""
    a = abs(y)
    if not a < f8(9007199254740992.0):
        return i4(0)  # even, or infinite, or NaN
    whole = i8(a)
    return i4(whole & i8(1)) if f8(whole) == a else i4(2)


@jit
def pow64(x, y):
    """x to the power y."""
    a = abs(x)
    parity = _parity64(y)
    negative = np.signbit(x) and parity == i4(1)
    if x == f8(1.0) or y == f8(0.0):
        return f8(1.0)
    if x != x or y != y:
        return NAN8
    if a == f8(0.0) or a == INF8:
        r = INF8 if (a == INF8) == (y > f8(0.0)) else f8(0.0)
        return -r if negative else r
    if abs(y) == INF8:
        return f8(1.0) if a == f8(1.0) else INF8 if (a > f8(1.0)) == (y > f8(0.0)) else f8(0.0)
    if x < f8(0.0) and parity == i4(2):
        return NAN8
    high, low = _log_pair64(a)
    p = y * high
    p_low = fma64(y, low, fma64(y, high, -p))
    if abs(p) > f8(2000.0):
        p = f8(710.0) if p > f8(0.0) else f8(-746.0)
        p_low = f8(0.0)
    p = f8(710.0) if p > f8(710.0) else f8(-746.0) if p < f8(-746.0) else p
    j = fma64(p, m8.LOG2E, m8.ROUND) - m8.ROUND
    whole = fma64(j, -m8.LN2_HIGH, p)
    rest = fma64(j, -m8.LN2_LOW, p_low)
    f = whole + rest
    lost = (whole - f) + rest
    r = horner64(f, m8._EXP)
    r = m8.scale64(fma64(r, lost, r), i4(j))
    return -r if negative else r


@jit
def erf64(x):
    """Error function."""
    a = abs(x)
    if a < f8(1.0):
        return fma64(x, horner64(x * x, _ERF8), x)
    if x != x:
        return x
    if a < f8(2.5):
        t = horner64(a - f8(1.75), _ERFC8_1)
    else:
        t = horner64((f8(6.0) if a > f8(6.0) else a) - f8(4.25), _ERFC8_2)
    r = f8(1.0) - m8.exp64(t)
    return -r if x < f8(0.0) else r


@jit
def lgamma64(x):
    """log |Gamma(x)|."""
    a = abs(x)
    if not a < INF8:
        return x if x != x else INF8
    if x <= f8(0.0) and f8(np.floor(x)) == x:
        return INF8
    if a < f8(8.0):
        k = i4(a)
        u = a - f8(k)
        r = (u * (u - f8(1.0))) * horner64(u - f8(0.5), _GAMMA8)
        product = a - f8(1.0)
        for i in range(2, k):
            product = product * (a - f8(i))
        r = r + (m8.log64(product) if k >= 2 else f8(0.0))
    else:
        k = i4(8)
        inverse = f8(1.0) / a
        rest = fma64(horner64(inverse * inverse, _STIRLING8), inverse, f8(0.41893853320467274))
        r = fma64(a - f8(0.5), m8.log64(a) - f8(1.0), rest)
    if x > f8(0.0):
        return r - m8.log64(a) if k == 0 else r
    u = a - f8(np.rint(a))
    s = abs(fma64(u * (u * u), horner64(u * u, _SINPI8), u))  # |sin(pi x)| / pi
    return -m8.log64(s if k == 0 else a * s) - r


@jit
def logaddexp64(x, y):
    """log(exp(x) + exp(y))."""
    high, low = (x, y) if x > y else (y, x)
    if high != high or low != low:
        return NAN8
    if x == y:
        return x + m8.LN2
    return high + m8.log1p64(m8.exp64(low - high))


@jit
def join_sums64(m, s, m_next, s_next):
    """Add the pair (m_next, s_next) to (m, s), where a pair represents s exp(m)."""
    if m_next > m:
        return m_next, fma64(s, m8.exp64(m - m_next), s_next)
    if m == m_next:
        return m, s + s_next
    return m, fma64(s_next, m8.exp64(m_next - m), s)


@jit
def log_of_sum64(m, s):
    """log(s exp(m)); -inf where s is 0."""
    return m + m8.log64(s) if s != f8(0.0) else -INF8
