"""Mirror of the products of float32 and float64.

Blocks of rows, of columns and of steps only spare loads and stores.
"""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32

_WIDTH, _DEPTH = 1024, 64  # columns and steps of the sum at a time: 256 KB of b stay in the cache
_STEPS = 8
REAL = np.float32  # float64 in the twin, see rpukit/_exact/twins.py


@jit
def four_rows(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, b4, b5, b6, b7):
    """Eight steps of four rows of chains; vectorises over columns."""
    for j in range(c0.size):
        x0, x1, x2, x3, x4, x5, x6, x7 = (
            b0[j], b1[j], b2[j], b3[j], b4[j], b5[j], b6[j], b7[j]
        )  # fmt: skip
        s = fma32(a0[3], x3, fma32(a0[2], x2, fma32(a0[1], x1, fma32(a0[0], x0, c0[j]))))
        c0[j] = fma32(a0[7], x7, fma32(a0[6], x6, fma32(a0[5], x5, fma32(a0[4], x4, s))))
        s = fma32(a1[3], x3, fma32(a1[2], x2, fma32(a1[1], x1, fma32(a1[0], x0, c1[j]))))
        c1[j] = fma32(a1[7], x7, fma32(a1[6], x6, fma32(a1[5], x5, fma32(a1[4], x4, s))))
        s = fma32(a2[3], x3, fma32(a2[2], x2, fma32(a2[1], x1, fma32(a2[0], x0, c2[j]))))
        c2[j] = fma32(a2[7], x7, fma32(a2[6], x6, fma32(a2[5], x5, fma32(a2[4], x4, s))))
        s = fma32(a3[3], x3, fma32(a3[2], x2, fma32(a3[1], x1, fma32(a3[0], x0, c3[j]))))
        c3[j] = fma32(a3[7], x7, fma32(a3[6], x6, fma32(a3[5], x5, fma32(a3[4], x4, s))))


@jit
def one_row(c, a, b0, b1, b2, b3, b4, b5, b6, b7):
    """Eight steps of a row of chains."""
    for j in range(c.size):
        s = fma32(a[3], b3[j], fma32(a[2], b2[j], fma32(a[1], b1[j], fma32(a[0], b0[j], c[j]))))
        c[j] = fma32(a[7], b7[j], fma32(a[6], b6[j], fma32(a[5], b5[j], fma32(a[4], b4[j], s))))


@jit
def one_step(c, x, b):
    for j in range(c.size):
        c[j] = fma32(x, b[j], c[j])


@jit
def eight(a, i, k):
    return (
        a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3],
        a[i, k + 4], a[i, k + 5], a[i, k + 6], a[i, k + 7],
    )  # fmt: skip


@jit
def panel(a, b, acc, start, stop, k0, k1, j0, j1, up, left):
    """Go on with chains ``acc[i - up, j - left]`` over steps k0 to k1 - 1."""
    whole = k0 + (k1 - k0) // _STEPS * _STEPS
    fours = start + (stop - start) // 4 * 4
    l0, l1 = j0 - left, j1 - left
    for i in range(start, stop, 4):
        n_row = 4 if i < fours else stop - i
        for k in range(k0, whole, _STEPS):
            b0, b1, b2, b3 = b[k, j0:j1], b[k + 1, j0:j1], b[k + 2, j0:j1], b[k + 3, j0:j1]
            b4, b5, b6 = b[k + 4, j0:j1], b[k + 5, j0:j1], b[k + 6, j0:j1]
            b7 = b[k + 7, j0:j1]
            if n_row == 4:
                r = i - up
                c0, c1, c2, c3 = (
                    acc[r, l0:l1], acc[r + 1, l0:l1], acc[r + 2, l0:l1], acc[r + 3, l0:l1]
                )  # fmt: skip
                a0, a1, a2, a3 = (
                    eight(a, i, k), eight(a, i + 1, k), eight(a, i + 2, k), eight(a, i + 3, k)
                )  # fmt: skip
                four_rows(
                    c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, b4, b5, b6, b7
                )  # fmt: skip
            else:
                for r in range(i, i + n_row):
                    row, x = acc[r - up, l0:l1], eight(a, r, k)
                    one_row(row, x, b0, b1, b2, b3, b4, b5, b6, b7)
        for k in range(whole, k1):
            for r in range(i, i + n_row):
                one_step(acc[r - up, l0:l1], a[r, k], b[k, j0:j1])


@jit
def det_gemm(start, stop, segment, adding, a, b, c):
    """Rows ``start`` to ``stop - 1`` of c = a b, k ascending; ``adding``: of c += a b."""
    n_k, n = b.shape
    part = np.empty((stop - start if n_k > segment or adding else 0, _WIDTH), c.dtype)
    for j0 in range(0, n, _WIDTH):
        j1 = min(j0 + _WIDTH, n)
        for first in range(0, max(n_k, 1), segment):
            apart = adding or first > 0
            acc, up, left = (part, start, j0) if apart else (c, 0, 0)
            acc[start - up : stop - up, j0 - left : j1 - left] = REAL(0)
            last = min(first + segment, n_k)
            for k0 in range(first, last, _DEPTH):
                k1 = min(k0 + _DEPTH, last)
                panel(a, b, acc, start, stop, k0, k1, j0, j1, up, left)
            if apart:
                for i in range(start, stop):
                    for j in range(j0, j1):
                        c[i, j] += part[i - start, j - j0]


@jit
def continue_chains(start, stop, a, b, c):
    """Continue the chains in rows ``start`` to ``stop - 1`` of c by a b, a part of one segment."""
    n_k, n = b.shape
    for j0 in range(0, n, _WIDTH):
        j1 = min(j0 + _WIDTH, n)
        for k0 in range(0, n_k, _DEPTH):
            panel(a, b, c, start, stop, k0, min(k0 + _DEPTH, n_k), j0, j1, 0, 0)
