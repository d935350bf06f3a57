"""Twins of ``kernels_cu/include/rk_mma.cuh``: a bit-exact model of tensor-core arithmetic.

One step takes the float32 accumulator and the products of BLOCK neighbouring elements, aligns all
to the largest exponent, cuts each towards zero at FRACTION bits below it, adds them as integers
and cuts the sum towards zero to float32. Exponents are those of the factors, added, so a product's
significand is in [1, 4); a zero has none; the largest is at least -133. A sum of zero is +0.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import d2u, f2u, f4, f8, i4, i8, u2d, u2f, u4, u8
from rpukit._workers import run_rows, work_grain

LEAST = -133  # lower bound on the largest exponent of a step
_NONE = -30000  # exponent of a zero
_COLUMNS = 256  # columns of the result at a time: their operands stay in the cache
_INF, _NAN = u4(0x7F800000), u4(0x7FFFFFFF)


@jit
def split(start, stop, half, bits, significand, exponent, special):
    """Split rows of 16-bit floats into significands in [1, 2), exponents and non-finite flags.

    Subnormals keep the least exponent. A non-finite element becomes 0 and marks its column.
    """
    shift, mask, bias = (10, 31, 15) if half else (7, 255, 127)
    unit = u2f(u4((127 - shift) << 23))
    for r in range(start, stop):
        for j in range(bits.shape[1]):
            u = i4(bits[r, j])
            e, m = (u >> shift) & mask, u & ((1 << shift) - 1)
            if e == mask:
                special[r, j] = True
                e, m = i4(0), i4(0)
            whole = m | (1 << shift) if e else m
            value = f4(whole) * unit
            significand[r, j] = -value if u >> 15 else value
            exponent[r, j] = max(e, i4(1)) - bias if whole else _NONE


def factor_of(words, half):
    """Split all words of a matrix into significands, exponents and non-finite flags."""
    significand, exponent = np.empty(words.shape, np.float32), np.empty(words.shape, np.int32)
    special = np.zeros(words.shape, np.bool_)
    made = (significand, exponent, special)
    run_rows(split, len(words), half, words, *made, grain=work_grain(words.shape[1]))
    return made


@jit(forceinline=True)
def _cut(total, top, fraction):
    """Round ``total * 2**(top - fraction)`` towards zero to float32; infinite from 2**128 on."""
    exact = f8(total) * u2d(u8(top - fraction + 1023) << u8(52))
    normal = u2d(d2u(exact) & u8(0xFFFFFFFFE0000000))
    # 2^149 and its inverse: below 2^-126 the last bit of float32 is worth 2^-149.
    tiny = f8(i8(exact * u2d(u8(1023 + 149) << u8(52)))) * u2d(u8(1023 - 149) << u8(52))
    return normal if abs(exact) >= u2d(u8(1023 - 126) << u8(52)) else tiny


@jit
def _step(acc, a, ea, b, eb, block, fraction, top, low, high):
    """Execute one step for a row of results: add the products ``a[k] b[k, j]`` to ``acc[j]``."""
    n = acc.size
    for j in range(n):
        u = f2u(acc[j])
        e = i4((u >> u4(23)) & u4(255))
        top[j] = max(e, i4(1)) - i4(127) if u & u4(0x7FFFFFFF) else i4(LEAST)
        top[j] = max(top[j], i4(LEAST))
        low[j] = i4(0)
        high[j] = i4(0)
    for k in range(block):
        e = ea[k]
        for j in range(n):
            top[j] = max(top[j], i4(e + eb[k, j]))
    for k in range(block):
        # Two sums of half the products each stay within 32 bits.
        s, e = (low if 2 * k < block else high), ea[k] + i4(fraction + 127)
        x = a[k]
        for j in range(n):
            scale = u2f(u4(max(i4(e + eb[k, j] - top[j]), i4(0))) << u4(23))
            s[j] += i4((x * b[k, j]) * scale)
    for j in range(n):
        c = f8(acc[j])
        own = i8(c * u2d(u8(fraction - top[j] + 1023) << u8(52)))
        total = i8(low[j]) + i8(high[j]) + own
        # Adding 0 changes -0 to +0; an infinite accumulator stays infinite.
        cut = f4(_cut(total, i8(top[j]), i8(fraction))) + f4(0)
        acc[j] = acc[j] if f2u(acc[j]) & u4(0x7FFFFFFF) == _INF else cut


@jit
def _class(half, a, b, i, j, start, stop, before):
    """Bits of the result of a step with infinities or NaN; 0 if the step has none."""
    top = u4(0x7C00) if half else u4(0x7F80)
    plus = minus = nan = False
    if before & u4(0x7FFFFFFF) >= _INF:
        nan = before & u4(0x7FFFFFFF) > _INF
        plus, minus = not before >> u4(31), before >> u4(31) != 0
    for k in range(start, stop):
        x, y = u4(a[i, k]), u4(b[k, j])
        big, other = x & u4(0x7FFF), y & u4(0x7FFF)
        if big >= top or other >= top:
            nan = nan or big > top or other > top or big == 0 or other == 0
            plus, minus = plus or not (x ^ y) >> u4(15), minus or (x ^ y) >> u4(15) != 0
    if nan or (plus and minus):
        return _NAN
    return (_INF if plus else _INF | u4(1 << 31)) if plus or minus else u4(0)


@jit
def _outside(half, a, b, i, special_row, special_columns, j0, start, stop, before, acc):
    """Correct the results of a step that has infinities or NaN among its operands."""
    for j in range(acc.size):
        if special_row or special_columns[j0 + j]:
            word = _class(half, a, b, i, j0 + j, start, stop, before[j])
            if word:
                acc[j] = u2f(word)


@jit
def go_on(half, block, fraction, a, sa, ea, b, sb, eb, rows, columns, acc):
    """Continue the chains of acc (rows, n) over the whole sum."""
    n_k, n = sb.shape
    top, low, high = np.empty((3, _COLUMNS), np.int32)
    before = np.empty(_COLUMNS, np.uint32)
    for j0 in range(0, n, _COLUMNS):
        j1 = min(j0 + _COLUMNS, n)
        width = j1 - j0
        some = False
        for j in range(j0, j1):
            some = some or columns[j]
        for k0 in range(0, n_k, block):
            k1 = min(k0 + block, n_k)
            right, powers = sb[k0:k1, j0:j1], eb[k0:k1, j0:j1]
            for i in range(sa.shape[0]):
                acc_i, x, e = acc[i, j0:j1], sa[i, k0:k1], ea[i, k0:k1]
                if some or rows[i]:
                    for j in range(width):
                        before[j] = f2u(acc_i[j])
                _step(
                    acc_i,
                    x,
                    e,
                    right,
                    powers,
                    k1 - k0,
                    fraction,
                    top[:width],
                    low[:width],
                    high[:width],
                )
                if some or rows[i]:
                    _outside(half, a, b, i, rows[i], columns, j0, k0, k1, before, acc_i)


@jit(forceinline=True)
def round16(half, x):
    """Round float32 to the bits of a 16-bit float, to nearest, ties to even."""
    u = f2u(x)
    sign, u = (u >> u4(16)) & u4(0x8000), u & u4(0x7FFFFFFF)
    if u > _INF:
        return u4(0x7FFF)
    if not half:
        return sign | ((u + u4(0x7FFF) + ((u >> u4(16)) & u4(1))) >> u4(16))
    if u < u4(0x38800000):  # below 2^-14: whole multiples of 2^-24
        return sign | u4(np.rint(u2f(u) * f4(2.0**24)))
    u = (u + u4(0xFFF) + ((u >> u4(13)) & u4(1))) >> u4(13)
    return sign | min(u4(u - u4(112 << 10)), u4(0x7C00))
