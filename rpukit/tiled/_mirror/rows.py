"""Mirrors of softmax and layer normalisation; sums along a row are ascending chains."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import exp32, fma32, log32, sqrt32

f4 = np.float32


@jit
def tiled_softmax(start, stop, ints, floats, x, y):
    """Rows ``start`` to ``stop - 1``: softmax, or its logarithm."""
    kind, n, inner = ints[1], ints[2], ints[3]
    for row in range(start, stop):
        p = row // inner * n * inner + row % inner
        top = x[p]
        for k in range(1, n):
            v = x[p + k * inner]
            top = v if v > top else top
        total = f4(0.0)
        for k in range(n):
            e = exp32(f4(x[p + k * inner] - top))
            y[p + k * inner] = e
            total = f4(total + e)
        if kind == 0:
            for k in range(n):
                y[p + k * inner] = f4(y[p + k * inner] / total)
        else:
            size = log32(total)
            for k in range(n):
                y[p + k * inner] = f4(f4(x[p + k * inner] - top) - size)


@jit
def tiled_softmax_grad(start, stop, ints, floats, dy, y, dx):
    """Rows ``start`` to ``stop - 1``: y (dy - sum dy y); of the logarithm dy - exp(y) sum dy."""
    kind, n, inner = ints[1], ints[2], ints[3]
    for row in range(start, stop):
        p = row // inner * n * inner + row % inner
        s = f4(0.0)
        if kind == 1:
            for k in range(n):
                s = f4(s + dy[p + k * inner])
            for k in range(n):
                dx[p + k * inner] = fma32(f4(-exp32(y[p + k * inner])), s, dy[p + k * inner])
            continue
        for k in range(n):
            s = fma32(dy[p + k * inner], y[p + k * inner], s)
        for k in range(n):
            dx[p + k * inner] = f4(y[p + k * inner] * f4(dy[p + k * inner] - s))


@jit
def tiled_layer_norm(start, stop, ints, floats, x, scale, bias, y, mean, inv_std):
    """Rows ``start`` to ``stop - 1``; mean and 1 / deviation are kept where they are wanted."""
    n = ints[2]
    size = f4(n)
    for row in range(start, stop):
        v, out = x[row * n :][:n], y[row * n :][:n]
        s = f4(0.0)
        for k in range(n):
            s = f4(s + v[k])
        middle = f4(s / size)
        s = f4(0.0)
        for k in range(n):
            far = f4(v[k] - middle)
            s = fma32(far, far, s)
        inv = f4(f4(1.0) / sqrt32(f4(f4(s / size) + floats[0])))
        for k in range(n):
            out[k] = fma32(f4(f4(v[k] - middle) * inv), scale[k], bias[k])
        if ints[4]:
            mean[row] = middle
        if ints[5]:
            inv_std[row] = inv


@jit
def tiled_layer_norm_grad(start, stop, ints, floats, dy, x, scale, mean, inv_std, dx):
    """Rows ``start`` to ``stop - 1``: s (d - mean d - h mean (d h)), d = dy scale."""
    n = ints[2]
    size = f4(n)
    for row in range(start, stop):
        u, v, out = dy[row * n :][:n], x[row * n :][:n], dx[row * n :][:n]
        middle, inv = mean[row], inv_std[row]
        s, t = f4(0.0), f4(0.0)
        for k in range(n):
            d = f4(u[k] * scale[k])
            s = f4(s + d)
            t = fma32(d, f4(f4(v[k] - middle) * inv), t)
        s, t = f4(s / size), f4(t / size)
        for k in range(n):
            h = f4(f4(v[k] - middle) * inv)
            out[k] = f4(inv * fma32(f4(-h), t, f4(f4(u[k] * scale[k]) - s)))


@jit
def tiled_arg_max(start, stop, ints, floats, x, y):
    """Rows ``start`` to ``stop - 1``: index of the largest; NaN is larger than all numbers."""
    n, inner, last = ints[1], ints[2], ints[3] != 0
    for row in range(start, stop):
        p = row // inner * n * inner + row % inner
        top, found = x[p], 0
        for k in range(1, n):
            v = x[p + k * inner]
            nan, known = v != v, top == top
            equal = v == top or (nan and not known)
            if v > top or (nan and known) or (last and equal):
                top, found = v, k
        y[row] = found
