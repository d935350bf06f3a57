"""Numba twins of ``kernels_cu/include/rk_math.cuh``: the same bits from the same operations.

Also the intrinsics that all mirrors use: fused multiply-add, bit casts, Horner's scheme.
Under ``NUMBA_DISABLE_JIT=1`` they are exact Python (slow): a debugger can step through a mirror.
Coefficients: ``tools/fit_math.py``; largest errors: ``docs/math.md``.
"""

# mypy: ignore-errors

from __future__ import annotations

import math
import struct
from fractions import Fraction

import llvmlite.ir as ir
import numba as nb
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from rpukit._exact.jit import jit

f4, f8, i4, i8, u4, u8 = np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64


if nb.config.DISABLE_JIT:

    def _nearest(value, kind):
        """Round a fraction to the nearest float of a kind, ties to even."""
        top, bits = (f8(2.0**1023), 53) if kind is f8 else (f8(2.0**127), 24)
        if abs(value) >= Fraction(float(top)) * (2 - Fraction(1, 1 << bits)):
            return kind(math.copysign(math.inf, value))
        if kind is f8:
            return f8(value.numerator / value.denominator)  # Python rounds correctly
        near = f4(value.numerator / value.denominator)  # rounded twice: look at its neighbours
        around = [near, np.nextafter(near, f4(np.inf)), np.nextafter(near, f4(-np.inf))]
        around = [v for v in around if np.isfinite(v)]
        return min(around, key=lambda v: (abs(Fraction(float(v)) - value), int(v.view(u4)) & 1))

    def _fma(a, b, c, kind):
        if not (math.isfinite(a) and math.isfinite(b)):
            return kind(kind(a) * kind(b) + kind(c))
        if not math.isfinite(c):
            return kind(c)
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        if exact == 0:
            return kind(kind(a) * kind(b) + kind(c))  # the sign of zero
        return _nearest(exact, kind)

    def fma32(a, b, c):
        """Compute a * b + c, rounded once."""
        return _fma(a, b, c, f4)

    def fma64(a, b, c):
        """Compute a * b + c, rounded once."""
        return _fma(a, b, c, f8)

    def _horner(x, coefficients, kind):
        r = kind(coefficients[0])
        for c in coefficients[1:]:
            r = _fma(r, x, c, kind)
        return r

    def horner32(x, coefficients):
        """Evaluate a polynomial, leading coefficient first, with one fma per step."""
        return _horner(x, coefficients, f4)

    def horner64(x, coefficients):
        """Evaluate a polynomial, leading coefficient first, with one fma per step."""
        return _horner(x, coefficients, f8)

    def choose(condition, a, b):
        """Select a where the condition holds, else b."""
        return a if condition else b

    def fetch(array, at):
        """Prefetch the cache line of an element that will be read soon; results are unaffected."""

    def f2u(x):
        """Bits of a float32."""
        return u4(struct.unpack("<I", f4(x).tobytes())[0])

    def u2f(x):
        """float32 of these bits."""
        return np.frombuffer(struct.pack("<I", int(x)), f4)[0]

    def d2u(x):
        """Bits of a float64."""
        return u8(struct.unpack("<Q", f8(x).tobytes())[0])

    def u2d(x):
        """float64 of these bits."""
        return np.frombuffer(struct.pack("<Q", int(x)), f8)[0]

else:

    def _fma_code(kind):
        signature = kind(kind, kind, kind)
        return signature, lambda context, builder, sig, args: builder.fma(*args)

    def _horner_code(kind, x, coefficients):
        def code(context, builder, sig, args):
            r, *rest = cgutils.unpack_tuple(builder, args[1])
            for c in rest:
                r = builder.fma(r, args[0], c)
            return r

        return kind(kind, types.UniTuple(kind, len(coefficients))), code

    def _cast_code(source, target, target_type):
        return target(source), lambda context, builder, sig, args: builder.bitcast(
            args[0], target_type
        )

    @intrinsic
    def fma32(typing, a, b, c):
        """Compute a * b + c, rounded once."""
        return _fma_code(types.float32)

    @intrinsic
    def fma64(typing, a, b, c):
        """Compute a * b + c, rounded once."""
        return _fma_code(types.float64)

    @intrinsic
    def horner32(typing, x, coefficients):
        """Evaluate a polynomial, leading coefficient first, with one fma per step."""
        return _horner_code(types.float32, x, coefficients)

    @intrinsic
    def horner64(typing, x, coefficients):
        """Evaluate a polynomial, leading coefficient first, with one fma per step."""
        return _horner_code(types.float64, x, coefficients)

    @intrinsic
    def choose(typing, condition, a, b):
        """Select a where the condition holds, else b, without a branch: loops vectorise."""
        return a(types.boolean, a, a), lambda context, builder, sig, args: builder.select(*args)

    @intrinsic
    def fetch(typing, array, at):
        """Prefetch the cache line of an element that will be read soon; results are unaffected."""

        def code(context, builder, sig, args):
            data = context.make_array(sig.args[0])(context, builder, args[0]).data
            number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
            place = builder.bitcast(builder.gep(data, [args[1]]), byte)
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
            builder.call(ask, [place, *(ir.Constant(number, k) for k in (0, 3, 1))])
            return context.get_dummy_value()

        return types.void(array, types.intp), code

    @intrinsic
    def f2u(typing, x):
        """Bits of a float32."""
        return _cast_code(types.float32, types.uint32, ir.IntType(32))

    @intrinsic
    def u2f(typing, x):
        """float32 of these bits."""
        return _cast_code(types.uint32, types.float32, ir.FloatType())

    @intrinsic
    def d2u(typing, x):
        """Bits of a float64."""
        return _cast_code(types.float64, types.uint64, ir.IntType(64))

    @intrinsic
    def u2d(typing, x):
        """float64 of these bits."""
        return _cast_code(types.uint64, types.float64, ir.DoubleType())


INF, NAN = f4(np.inf), f4(np.nan)
LN2 = f4(0.693147182)
LN2_HIGH, LN2_LOW = f4(0.693145752), f4(1.42860677e-06)  # LN2_HIGH ends in zero bits
LOG2E = f4(1.442695)
ULP = f4(1.1920929e-07)
LN2_ULP = f4(LN2 * ULP)
ROUND = f4(12582912.0)  # adding and subtracting it rounds to the nearest integer

_LOG = tuple(f4([
    -0.129489228, 0.140047655, -0.121671662, 0.140011594, -0.166823044, 0.20010747, -0.249997169,
    0.333332092, -0.5,
]))  # fmt: skip
_EXP = tuple(f4([0.00138146058, 0.00836871006, 0.041668389, 0.166665211, 0.49999994, 1.0, 1.0]))
_EXPM1 = tuple(f4([0.000198476817, 0.00139647303, 0.00833345484, 0.0416660123, 0.166666657, 0.5]))
_BODY = tuple(f4([
    -1.17791519e-08, 3.21443423e-08, 6.51039954e-07, -4.88933529e-06, -6.98514441e-06,
    0.000308760471, -0.00177169614, -0.00590769155, 0.34880206, 2.12331343,
]))  # fmt: skip
_TAIL = tuple(f4([
    0.000197104557, -0.000454441499, -0.00013093758, 0.00211893558, -0.00506112305,
    0.00803639833, -0.0108059756, 0.01335824, 1.41658258, 4.00643444,
]))  # fmt: skip
_FAR = tuple(f4([
    7.24733218e-10, -3.69776276e-09, 4.67741046e-09, -5.50987274e-08, 4.97813005e-07,
    -2.38895791e-06, 8.39722907e-06, 9.06792775e-06, -0.000724816346, 1.42636955, 9.71426105,
]))  # fmt: skip


@jit(forceinline=True)
def _log1p_core(f):
    return fma32(f4(f * f), horner32(f, _LOG), f)


@jit(forceinline=True)
def exponent32(x):
    """Exponent bits of the power of two that scales a normal positive x to [2/3, 4/3)."""
    return u4(u4(f2u(x) - u4(0x3F2AAAAB)) & u4(0xFF800000))


@jit(forceinline=True)
def log_normal32(x):
    """Natural logarithm of a normal, positive, finite x."""
    e = exponent32(x)
    f = f4(u2f(u4(f2u(x) - e)) - f4(1.0))
    return fma32(f4(i4(e)), LN2_ULP, _log1p_core(f))  # a power of two: n ln 2 alone


@jit(forceinline=True)
def log32(x):
    """Natural logarithm."""
    small = x < f4(1.17549435e-38)  # zero, subnormal or negative
    scaled = f4(x * f4(8388608.0)) if small else x
    e = exponent32(scaled)
    f = f4(u2f(u4(f2u(scaled) - e)) - f4(1.0))
    n = fma32(f4(i4(e)), ULP, f4(-23.0) if small else f4(0.0))
    r = fma32(n, LN2, _log1p_core(f))
    if x < INF and x > f4(0.0):
        return r
    return -INF if x == f4(0.0) else NAN if x < f4(0.0) else x


@jit
def log1p32(x):
    """log(1 + x), accurate near 0."""
    # 1 + x is m 2^n, f = m - 1; the rounding errors of f and of the leading sum are carried.
    e = u4(0) if abs(x) < f4(0.25) else exponent32(f4(f4(1.0) + x))
    t = u2f(u4(u4(0x3F800000) - e))
    n = f4(f4(i4(e)) * ULP)
    less = f4(t - f4(1.0))
    f = fma32(x, t, less)
    lost = fma32(x, t, f4(-f4(f - less)))
    if x > f4(1.0e9):  # the 1 is negligible
        f = f4(u2f(u4(f2u(x) - e)) - f4(1.0))
        lost = f4(0.0)
    lead = f4(n * LN2_HIGH)
    total = f4(lead + f)
    lost = fma32(lost, f4(f4(1.0) - f), f4(0.0) if n == f4(0.0) else f4(f - f4(total - lead)))
    tail = fma32(f4(f * f), horner32(f, _LOG), fma32(n, LN2_LOW, lost))
    r = f4(total + tail)
    if x > f4(-1.0) and x < INF:
        return x if x == f4(0.0) else r
    return -INF if x == f4(-1.0) else NAN if x < f4(-1.0) else x


@jit(forceinline=True)
def scale32(r, j):
    """Compute r 2^j for j in [-150, 128], rounded once where the result is subnormal."""
    half = i4(j >> i4(1))
    low = u2f(u4(u4(half + i4(127)) << u4(23)))
    high = u2f(u4(u4(i4(j - half) + i4(127)) << u4(23)))
    return f4(f4(r * low) * high)


@jit(forceinline=True)
def exp32(x):
    """Exponential."""
    if x != x:
        return x
    a = f4(-104.0) if x < f4(-104.0) else f4(89.0) if x > f4(89.0) else x
    j = f4(fma32(a, LOG2E, ROUND) - ROUND)
    f = fma32(j, -LN2_LOW, fma32(j, -LN2_HIGH, a))
    return scale32(horner32(f, _EXP), i4(j))


@jit(forceinline=True)
def exp_within32(x):
    """Exponential of x limited to [-87, 88], where the scale is an addition of exponents."""
    a = x if x > f4(-87.0) else f4(-87.0)
    a = a if a < f4(88.0) else f4(88.0)
    t = fma32(a, LOG2E, ROUND)
    j = f4(t - ROUND)
    f = fma32(j, -LN2_LOW, fma32(j, -LN2_HIGH, a))
    return u2f(u4(f2u(horner32(f, _EXP)) + u4(f2u(t) << u4(23))))


@jit(forceinline=True)
def round_up32(v):
    """Smallest float32 that is not below a float64 v."""
    r = f4(v)
    if not f8(r) < v:
        return r
    bits = f2u(r)
    return u2f(u4(bits + u4(1)) if r > f4(0.0) else u4(bits - u4(1)) if r < f4(0.0) else u4(1))


@jit
def expm132(x):
    """exp(x) - 1, accurate near 0."""
    if x != x:
        return x
    a = f4(-18.0) if x < f4(-18.0) else f4(89.0) if x > f4(89.0) else x
    j = f4(0.0) if abs(a) < f4(0.41) else f4(fma32(a, LOG2E, ROUND) - ROUND)
    whole = fma32(j, -LN2_HIGH, a)
    f = fma32(j, -LN2_LOW, whole)
    lost = fma32(j, -LN2_LOW, f4(whole - f))
    r = f4(f + fma32(f4(f * f), horner32(f, _EXPM1), lost))
    if j == f4(0.0):
        return x if x == f4(0.0) else r
    # (2^j - 1) + 2^j r, at half size so that 2^128 does not overflow; s - 1/2 is exact or
    # negligible, except for a few j.
    s = u2f(u4(u4(i4(j) - i4(1) + i4(127)) << u4(23)))
    if j < f4(25.0) or j > f4(27.0):
        return f4(f4(2.0) * fma32(s, r, f4(s - f4(0.5))))
    return f4(f4(2.0) * f4(fma32(s, r, f4(-0.5)) + s))


@jit
def sqrt32(x):
    """Square root, correctly rounded."""
    return f4(np.sqrt(x))


@jit
def reciprocal32(x):
    """1 / x, correctly rounded."""
    return f4(f4(1.0) / x)


@jit
def sigmoid32(x):
    """1 / (1 + exp(-x))."""
    e = exp32(f4(-abs(x)))
    return f4((e if x < f4(0.0) else f4(1.0)) / f4(f4(1.0) + e))


@jit
def tanh32(x):
    """Hyperbolic tangent."""
    if x != x:
        return x
    a = abs(x)
    e = expm132(f4(f4(2.0) * (f4(10.0) if a > f4(10.0) else a)))
    t = f4(1.0) if a > f4(9.2) else f4(e / f4(e + f4(2.0)))
    return f4(-t) if x < f4(0.0) else x if x == f4(0.0) else t


@jit(forceinline=True)
def normal_centred32(x):
    """Standard normal quantile of (1 + x) / 2."""
    w = f4(-log_normal32(fma32(f4(-x), x, f4(1.0))))  # -log(1 - x^2)
    if w < f4(5.0):
        return f4(horner32(f4(w - f4(2.5)), _BODY) * x)
    return f4(horner32(f4(f4(np.sqrt(w)) - f4(3.0)), _TAIL) * x)


@jit(forceinline=True)
def normal_quantile_draw32(p):
    """Standard normal quantile of p = (k + 1/2) / 2^23; `normal_quantile32` has the same bits."""
    return normal_centred32(fma32(f4(2.0), p, f4(-1.0)))


@jit
def normal_quantile32(p):
    """Standard normal quantile of p in (0, 1)."""
    if p >= f4(5.9604645e-08) and p < f4(1.0):
        return normal_quantile_draw32(p)
    if p > f4(0.0) and p < f4(1.0):
        w = f4(-log32(f4(f4(p + p) * f4(2.0))))
        x = fma32(f4(2.0), p, f4(-1.0))
        return f4(horner32(f4(f4(np.sqrt(w)) - f4(7.0)), _FAR) * x)
    return -INF if p == f4(0.0) else INF if p == f4(1.0) else NAN
