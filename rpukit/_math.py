"""Numba twins of ``kernels_cu/include/rk_math.cuh``: the same bits from the same operations.

Also the intrinsics that both sides stand on: fused multiply-add and bit casts. Under
``NUMBA_DISABLE_JIT=1`` they are exact Python (slow), so that a mirror can be stepped through.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import llvmlite.ir as ir
import numba as nb
import numpy as np
from numba.core import types
from numba.extending import intrinsic

f4, f8, i4, u4, u8 = np.float32, np.float64, np.int32, np.uint32, np.uint64


if nb.config.DISABLE_JIT:

    def _nearest(value: Fraction, kind):
        """Round a fraction to the nearest float of a kind, ties to even."""
        if kind is f8:
            return f8(value.numerator / value.denominator)
        near = f4(value.numerator / value.denominator)  # rounded twice: look at its neighbours
        around = [near, np.nextafter(near, f4(np.inf)), np.nextafter(near, f4(-np.inf))]
        around = [v for v in around if np.isfinite(v)]
        return min(around, key=lambda v: (abs(Fraction(float(v)) - value), int(v.view(u4)) & 1))

    def _fma(a, b, c, kind):
        if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
            return kind(a * b + c)
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        if exact == 0:
            return kind(kind(a * b) + c)  # the sign of zero
        return _nearest(exact, kind)

    def fma32(a, b, c):
        """Compute a * b + c, rounded once."""
        return _fma(a, b, c, f4)

    def fma64(a, b, c):
        """Compute a * b + c, rounded once."""
        return _fma(a, b, c, f8)

    def f2u(x):
        """Bits of a float32."""
        return u4(struct.unpack("<I", struct.pack("<f", x))[0])

    def u2f(x):
        """float32 of these bits."""
        return f4(struct.unpack("<f", struct.pack("<I", int(x)))[0])

else:

    @intrinsic
    def fma32(typing, a, b, c):
        """Compute a * b + c, rounded once."""
        kind = types.float32
        return kind(kind, kind, kind), lambda context, builder, sig, args: builder.fma(*args)

    @intrinsic
    def fma64(typing, a, b, c):
        """Compute a * b + c, rounded once."""
        kind = types.float64
        return kind(kind, kind, kind), lambda context, builder, sig, args: builder.fma(*args)

    @intrinsic
    def f2u(typing, x):
        """Bits of a float32."""
        code = lambda context, builder, sig, args: builder.bitcast(args[0], ir.IntType(32))  # noqa: E731
        return types.uint32(types.float32), code

    @intrinsic
    def u2f(typing, x):
        """float32 of these bits."""
        code = lambda context, builder, sig, args: builder.bitcast(args[0], ir.FloatType())  # noqa: E731
        return types.float32(types.uint32), code


INF, NAN = f4(np.inf), f4(np.nan)
LN2 = f4(0.693147182)
ULP = f4(1.1920929e-07)
ROUND = f4(12582912.0)


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _log1p_tail(f):
    r = f4(-0.12948893)
    r = fma32(r, f, f4(0.14004761))
    r = fma32(r, f, f4(-0.121671714))
    r = fma32(r, f, f4(0.1400116))
    r = fma32(r, f, f4(-0.16682304))
    r = fma32(r, f, f4(0.20010747))
    r = fma32(r, f, f4(-0.24999717))
    r = fma32(r, f, f4(0.3333321))
    return fma32(r, f, f4(-0.5))


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _log1p_core(f):
    return fma32(f4(f * f), _log1p_tail(f), f)


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _exponent(x):
    return u4(u4(f2u(x) - u4(0x3F2AAAAB)) & u4(0xFF800000))


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _log_normal(x):
    e = _exponent(x)
    f = f4(u2f(u4(f2u(x) - e)) - f4(1.0))
    return fma32(f4(f4(i4(e)) * ULP), LN2, _log1p_core(f))


@nb.njit(nogil=True, error_model="numpy")
def log32(x):
    """Natural logarithm."""
    small = x < f4(1.17549435e-38)
    scaled = f4(x * f4(8388608.0)) if small else x
    e = _exponent(scaled)
    f = f4(u2f(u4(f2u(scaled) - e)) - f4(1.0))
    n = fma32(f4(i4(e)), ULP, f4(-23.0) if small else f4(0.0))
    r = fma32(n, LN2, _log1p_core(f))
    if x < INF and x > f4(0.0):
        return r
    return -INF if x == f4(0.0) else NAN if x < f4(0.0) else x


@nb.njit(nogil=True, error_model="numpy")
def log1p32(x):
    """log(1 + x), accurate near 0."""
    e = u4(0) if abs(x) < f4(0.25) else _exponent(f4(f4(1.0) + x))
    t = u2f(u4(u4(0x3F800000) - e))
    n = f4(f4(i4(e)) * ULP)
    less = f4(t - f4(1.0))
    f = fma32(x, t, less)
    lost = fma32(x, t, f4(-f4(f - less)))
    if x > f4(1.0e9):
        f = f4(u2f(u4(f2u(x) - e)) - f4(1.0))
        lost = f4(0.0)
    lead = f4(n * f4(0.693145752))
    total = f4(lead + f)
    lost = fma32(lost, f4(f4(1.0) - f), f4(0.0) if n == f4(0.0) else f4(f - f4(total - lead)))
    tail = fma32(f4(f * f), _log1p_tail(f), fma32(n, f4(1.42860677e-6), lost))
    r = f4(total + tail)
    if x > f4(-1.0) and x < INF:
        return x if x == f4(0.0) else r
    return -INF if x == f4(-1.0) else NAN if x < f4(-1.0) else x


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _scale(r, j):
    half = i4(j >> i4(1))
    low = u2f(u4(u4(half + i4(127)) << u4(23)))
    high = u2f(u4(u4(i4(j - half) + i4(127)) << u4(23)))
    return f4(f4(r * low) * high)


@nb.njit(nogil=True, error_model="numpy")
def exp32(x):
    """Exponential."""
    if not x == x:
        return x
    a = f4(-104.0) if x < f4(-104.0) else f4(89.0) if x > f4(89.0) else x
    j = f4(fma32(a, f4(1.442695), ROUND) - ROUND)
    f = fma32(j, f4(-0.693145752), a)
    f = fma32(j, f4(-1.42860677e-6), f)
    r = f4(0.0013814612)
    r = fma32(r, f, f4(0.00836871))
    r = fma32(r, f, f4(0.04166839))
    r = fma32(r, f, f4(0.16666521))
    r = fma32(r, f, f4(0.49999994))
    r = fma32(r, f, f4(1.0))
    r = fma32(r, f, f4(1.0))
    return _scale(r, i4(j))


@nb.njit(nogil=True, error_model="numpy")
def expm132(x):
    """exp(x) - 1, accurate near 0."""
    if not x == x:
        return x
    a = f4(-18.0) if x < f4(-18.0) else f4(89.0) if x > f4(89.0) else x
    j = f4(0.0) if abs(a) < f4(0.41) else f4(fma32(a, f4(1.442695), ROUND) - ROUND)
    f = fma32(j, f4(-0.693145752), a)
    f = fma32(j, f4(-1.42860677e-6), f)
    r = f4(0.00019847682)
    r = fma32(r, f, f4(0.001396473))
    r = fma32(r, f, f4(0.008333455))
    r = fma32(r, f, f4(0.041666012))
    r = fma32(r, f, f4(0.16666666))
    r = fma32(r, f, f4(0.5))
    r = fma32(f4(f * f), r, f)
    if j == f4(0.0):
        return x if x == f4(0.0) else r
    s = u2f(u4(u4(i4(j) - i4(1) + i4(127)) << u4(23)))
    if j < f4(23.0):
        return f4(f4(2.0) * fma32(s, r, f4(s - f4(0.5))))
    return f4(f4(2.0) * f4(fma32(s, r, f4(-0.5)) + s))


@nb.njit(nogil=True, error_model="numpy")
def sqrt32(x):
    """Square root, correctly rounded."""
    return f4(np.sqrt(x))


@nb.njit(nogil=True, error_model="numpy")
def reciprocal32(x):
    """1 / x, correctly rounded."""
    return f4(f4(1.0) / x)


@nb.njit(nogil=True, error_model="numpy")
def sigmoid32(x):
    """1 / (1 + exp(-x))."""
    e = exp32(f4(-abs(x)))
    return f4((e if x < f4(0.0) else f4(1.0)) / f4(f4(1.0) + e))


@nb.njit(nogil=True, error_model="numpy")
def tanh32(x):
    """Hyperbolic tangent."""
    if not x == x:
        return x
    a = abs(x)
    e = expm132(f4(f4(2.0) * (f4(10.0) if a > f4(10.0) else a)))
    t = f4(1.0) if a > f4(9.2) else f4(e / f4(e + f4(2.0)))
    return f4(-t) if x < f4(0.0) else x if x == f4(0.0) else t


@nb.njit(nogil=True, error_model="numpy", inline="always")
def normal_quantile32(p):
    """Standard normal quantile of p in (0, 1), for p with 23 bits and a half."""
    x = fma32(f4(2.0), p, f4(-1.0))
    w = f4(-_log_normal(f4(f4(f4(1.0) - x) * f4(f4(1.0) + x))))
    if w < f4(5.0):
        w = f4(w - f4(2.5))
        y = f4(-1.1779192e-08)
        y = fma32(y, w, f4(3.214443e-08))
        y = fma32(y, w, f4(6.5104047e-07))
        y = fma32(y, w, f4(-4.889336e-06))
        y = fma32(y, w, f4(-6.9851462e-06))
        y = fma32(y, w, f4(0.00030876047))
        y = fma32(y, w, f4(-0.0017716961))
        y = fma32(y, w, f4(-0.0059076915))
        y = fma32(y, w, f4(0.34880206))
        y = fma32(y, w, f4(2.1233134))
    else:
        w = f4(np.sqrt(w) - f4(3.0))
        y = f4(0.00019710496)
        y = fma32(y, w, f4(-0.00045444228))
        y = fma32(y, w, f4(-0.00013093777))
        y = fma32(y, w, f4(0.0021189365))
        y = fma32(y, w, f4(-0.005061123))
        y = fma32(y, w, f4(0.008036398))
        y = fma32(y, w, f4(-0.010805976))
        y = fma32(y, w, f4(0.01335824))
        y = fma32(y, w, f4(1.4165826))
        y = fma32(y, w, f4(4.0064344))
    return f4(y * x)
