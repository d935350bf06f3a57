"""Mirrors of numbers stored in 8 and 16 bits, and of the gradient of rounding."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import f2u, u2f

f4, u4 = np.float32, np.uint32
i8 = np.int64


@jit
def _integer(x, scale):
    """Integer from -127 to 127 of x in units of the scale; 0 of NaN."""
    u = f4(x / scale)
    if u >= f4(127.0):
        return 127
    if u <= f4(-127.0):
        return -127
    return i8(f4(f4(u + f4(12582912.0)) - f4(12582912.0))) if u == u else 0


@jit
def _half(x):
    """Bits of float16; finite numbers beyond 65504 become that."""
    word = i8(f2u(x))
    sign, u = word >> 16 & 0x8000, word & 0x7FFFFFFF
    if u > 0x7F800000:
        return 0x7E00
    if u >= 0x477FF000:
        return sign | (0x7C00 if u == 0x7F800000 else 0x7BFF)
    if u < 0x38800000:
        return sign | (i8(f2u(f4(f4(abs(x) * f4(16777216.0)) + f4(8388608.0)))) - 0x4B000000)
    return sign | (((u + 0xFFF + (u >> 13 & 1)) >> 13) - (112 << 10))


@jit
def _float(half):
    """Number of the bits of float16."""
    sign, e, m = (half & 0x8000) << 16, half >> 10 & 31, half & 1023
    if e == 0:
        return u2f(u4(sign | i8(f2u(f4(f4(m) * f4(5.9604644775390625e-08))))))
    return u2f(u4(sign | (255 if e == 31 else e + 112) << 23 | m << 13))


@jit
def tiled_quantise(start, stop, ints, floats, x, scale, y):
    """Rows ``start`` to ``stop - 1`` of a tile of rounded numbers."""
    length, channels, kind = ints[1], ints[2], ints[3]
    for i in range(start * length, stop * length):
        if kind == 0:
            y[i] = _integer(x[i], scale[i // length % channels])
        elif kind == 1:
            y[i] = _half(x[i])
        else:
            y[i] = x[i] > f4(0.0)


@jit
def tiled_dequantise(start, stop, ints, floats, q, scale, y):
    """Rows ``start`` to ``stop - 1`` of a tile of widened numbers."""
    length, channels, kind = ints[1], ints[2], ints[3]
    for i in range(start * length, stop * length):
        if kind == 0:
            y[i] = f4(f4(q[i]) * scale[i // length % channels])
        elif kind == 1:
            y[i] = _float(i8(q[i]))
        else:
            y[i] = f4(q[i])


@jit
def tiled_quantise_grad(start, stop, ints, floats, dy, q, dx):
    """Elements ``start`` to ``stop - 1`` of a tile of gradients."""
    low, high = ints[1], ints[2]
    for i in range(start, stop):
        dx[i] = dy[i] if low < q[i] and q[i] < high else f4(0.0)
