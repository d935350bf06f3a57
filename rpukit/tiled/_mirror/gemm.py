"""Mirror of the products of tiles."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32

f4 = np.float32
_SEGMENT = 16384


@jit
def _add(a, a0, a_step, b, b0, b_row, b_step, k0, k1, y):
    """Go on with the chains of a row of results by steps k0 to k1 - 1."""
    for k in range(k0, k1):
        v, at = a[a0 + k * a_step], b0 + k * b_row
        if b_step == 1:
            row = b[at : at + y.size]
            for j in range(y.size):
                y[j] = fma32(v, row[j], y[j])
        else:
            for j in range(y.size):
                y[j] = fma32(v, b[at + j * b_step], y[j])


@jit
def _add_row(a, a0, a_step, b, b0, b_row, b_step, k0, k1, y):
    """The same in blocks of columns where these lie far apart, so that lines stay in the cache."""
    width = y.size if b_step == 1 else 32
    for j in range(0, y.size, width):
        _add(a, a0, a_step, b, b0 + j * b_step, b_row, b_step, k0, k1, y[j : j + width])


@jit
def tiled_gemm(start, stop, ints, floats, a, b, c, y):
    """Rows ``start`` to ``stop - 1`` of a tile of alpha op(A) op(B) + beta C, or Relu of it."""
    b1, m, n, depth = ints[2], ints[3], ints[4], ints[5]
    first, last, long, bias = ints[6], ints[7], ints[8], ints[9]
    sa, sb, sc, sy = ints[10:15], ints[15:20], ints[20:25], ints[25:30]
    part, kept = np.empty(n, a.dtype), np.empty(n, a.dtype)
    for row in range(start, stop):
        i, q0, q1 = row % m, row // m // b1, row // m % b1
        own = y[q0 * sy[0] + q1 * sy[1] + i * sy[2] :][:n]
        out = kept if bias == 2 else own
        a0 = q0 * sa[0] + q1 * sa[1] + i * sa[2]
        b0 = q0 * sb[0] + q1 * sb[1]
        if first:
            out[:] = f4(0.0)
        if not long:
            _add_row(a, a0, sa[4], b, b0, sb[4], sb[3], 0, depth, out)
        else:
            for k0 in range(0, depth, _SEGMENT):
                part[:] = f4(0.0)
                _add_row(a, a0, sa[4], b, b0, sb[4], sb[3], k0, min(depth, k0 + _SEGMENT), part)
                for j in range(n):
                    out[j] = part[j] if first and k0 == 0 else f4(out[j] + part[j])
        if last:
            c0 = q0 * sc[0] + q1 * sc[1] + i * sc[2]
            for j in range(n):
                v = f4(floats[0] * out[j])
                if bias == 2:
                    own[j] = fma32(floats[1], own[j], v)
                else:
                    v = fma32(floats[1], c[c0 + j * sc[3]], v) if bias else v
                    out[j] = v if last == 1 or v > f4(0.0) else f4(0.0)
