"""Mirrors of elementwise tiles and of updates in place."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import exp32, fma32, log32, sigmoid32, sqrt32, tanh32
from rpukit._exact.special import erf32

f4 = np.float32
_HALF_ROOT, _DENSITY = f4(0.7071067811865476), f4(0.3989422804014327)  # 1/sqrt(2), 1/sqrt(2 pi)
_SLOPE = f4(1.1283791670955126)  # of erf at 0: 2/sqrt(pi)
_SIXTH, _THIRD = f4(0.16666666666666666), f4(0.3333333333333333)


@jit
def _phi(x):
    """Distribution function of a standard normal."""
    return f4(f4(0.5) * f4(f4(1.0) + erf32(f4(x * _HALF_ROOT))))


@jit
def _gelu_slope(x):
    return fma32(x, f4(_DENSITY * exp32(f4(f4(f4(-0.5) * x) * x))), _phi(x))


@jit(forceinline=True)
def _between(x, low, high):
    return low if x < low else high if x > high else x


@jit
def _power(a, exponent, root):
    """Power of a whole exponent, of the root of the base where `root` is 1."""
    if root > f4(0.0):
        a = sqrt32(a)
    r, k = f4(1.0), int(abs(exponent))
    while k > 0:
        if k & 1:
            r = f4(r * a)
        a = f4(a * a)
        k >>= 1
    return f4(f4(1.0) / r) if exponent < f4(0.0) else r


@jit
def _later(kind, a, p, q):
    """Results of one input and at most two constants; kinds 17 to 25."""
    if kind == 17:
        return _between(a, p, q)
    if kind == 18:
        return f4(p * a) if a < f4(0.0) else a
    if kind == 19:
        return _between(fma32(p, a, q), f4(0.0), f4(1.0))
    if kind == 20:
        return f4(a * _between(fma32(a, _SIXTH, f4(0.5)), f4(0.0), f4(1.0)))
    if kind == 21:
        return sqrt32(a)
    if kind == 22:
        return exp32(a)
    if kind == 23:
        return log32(a)
    if kind == 24:
        return erf32(a)
    return _power(a, p, q)


@jit
def _slope(kind, dy, x, p, q):
    """Gradients from dY and the input (of kind 28 the result); kinds 26 to 30."""
    if kind == 26:
        return dy if p < x and x < q else f4(0.0)
    if kind == 27:
        return dy if x > f4(0.0) else f4(p * dy)
    if kind == 28:
        return f4(dy * p) if f4(0.0) < x and x < f4(1.0) else f4(0.0)
    if kind == 29:
        if x <= f4(-3.0):
            return f4(0.0)
        return dy if x >= f4(3.0) else f4(dy * fma32(x, _THIRD, f4(0.5)))
    return f4(dy * f4(_SLOPE * exp32(f4(-f4(x * x)))))


@jit(forceinline=True)
def _two(kind, a, b):
    """Results of two inputs."""
    if kind == 1:
        return f4(a + b)
    if kind == 2:
        return f4(a - b)
    if kind == 3:
        return f4(a * b)
    if kind == 4:
        return f4(a / b)
    if kind == 7:
        return a if b > f4(0.0) else f4(0.0)
    if kind == 9:
        return f4(a * _gelu_slope(b))
    if kind == 11:
        return f4(a * fma32(f4(-b), b, f4(1.0)))
    return f4(a * f4(b * f4(f4(1.0) - b)))


@jit(forceinline=True)
def _one(kind, a, by):
    """Results of one input."""
    if kind == 0:
        return a
    if kind == 5:
        return f4(a / by)
    if kind == 6:
        return a if a > f4(0.0) else f4(0.0)
    if kind == 8:
        return f4(a * _phi(a))
    if kind == 10:
        return tanh32(a)
    return sigmoid32(a)


@jit(forceinline=True)
def _batch_norm_grad(dy, x, scale, mean, inv, dscale, dbias, n):
    """Gradient of a normalised element: s g / n (n dy - dbias - h dscale)."""
    h = f4(f4(x - mean) * inv)
    inner = fma32(f4(-h), dscale, f4(f4(n * dy) - dbias))
    return f4(f4(f4(scale * inv) / n) * inner)


@jit
def tiled_map(start, stop, ints, floats, a, b, c, d, e, f, g, y):
    """Rows ``start`` to ``stop - 1`` of a tile of an elementwise op."""
    kind, n1, n2, n3 = ints[1], ints[3], ints[4], ints[5]
    steps = ints[6:38].reshape(8, 4)
    by = floats[0] if floats.size else f4(1.0)
    to = floats[1] if floats.size > 1 else f4(0.0)
    p = np.empty(8, np.int64)
    for row in range(start, stop):
        i0, i1, i2 = row // (n1 * n2), row // n2 % n1, row % n2
        for s in range(8):
            p[s] = i0 * steps[s, 0] + i1 * steps[s, 1] + i2 * steps[s, 2]
        sa, sb, sc, sd, se, sf, sg, sy = steps[:, 3]
        out = y[p[7] :]
        for i in range(n3):
            u = a[p[0] + i * sa]
            if kind == 15:
                h = f4(f4(u - b[p[1] + i * sb]) * c[p[2] + i * sc])
                v = fma32(h, d[p[3] + i * sd], e[p[4] + i * se])
            elif kind == 16:
                v = _batch_norm_grad(
                    u, b[p[1] + i * sb], c[p[2] + i * sc], d[p[3] + i * sd], e[p[4] + i * se],
                    f[p[5] + i * sf], g[p[6] + i * sg], by,
                )  # fmt: skip
            elif kind == 14:
                w = f4(u - b[p[1] + i * sb])
                v = f4(f4(w + w) / by)
            elif kind in (1, 2, 3, 4, 7, 9, 11, 13):
                v = _two(kind, u, b[p[1] + i * sb])
            elif kind > 25:
                v = _slope(kind, u, b[p[1] + i * sb], by, to)
            elif kind > 16:
                v = _later(kind, u, by, to)
            else:
                v = _one(kind, u, by)
            out[i * sy] = v


_WIDE = 256  # elements of a row that a fused chain takes at once


@jit
def _load(n, source, begin, step, out):
    for i in range(n):
        out[i] = source[begin + i * step]


@jit
def _store(n, values, step, out):
    for i in range(n):
        out[i * step] = values[i]


@jit
def _chain_step(kind, n, at, p, out):
    """A step of a fused chain, for n elements; p: rows of `at` with its operands and constants."""
    u, v = at[p[0]], at[p[1]]
    if kind == 15:
        c, d, e = at[p[2]], at[p[3]], at[p[4]]
        for i in range(n):
            h = f4(f4(u[i] - v[i]) * c[i])
            out[i] = fma32(h, d[i], e[i])
    elif kind == 16:
        c, d, e, f, g, by = at[p[2]], at[p[3]], at[p[4]], at[p[5]], at[p[6]], at[p[7]][0]
        for i in range(n):
            out[i] = _batch_norm_grad(u[i], v[i], c[i], d[i], e[i], f[i], g[i], by)
    elif kind == 14:
        by = at[p[2]][0]
        for i in range(n):
            w = f4(u[i] - v[i])
            out[i] = f4(f4(w + w) / by)
    elif kind in (1, 2, 3, 4, 7, 9, 11, 13):
        for i in range(n):
            out[i] = _two(kind, u[i], v[i])
    elif kind > 25:
        by, to = at[p[2]][0], at[p[3]][0]
        for i in range(n):
            out[i] = _slope(kind, u[i], v[i], by, to)
    elif kind > 16:
        by, to = at[p[1]][0], at[p[2]][0]
        for i in range(n):
            out[i] = _later(kind, u[i], by, to)
    else:
        by = at[p[1]][0]
        for i in range(n):
            out[i] = _one(kind, u[i], by)


@jit
def tiled_fused(start, stop, ints, floats, a, b, c, d, e, f, g, h, y, z, v, w):
    """Rows ``start`` to ``stop - 1`` of a tile of a chain of elementwise steps.

    Values by number: 0 to 7 inputs, 8 to 15 constants, 16 to 31 results of steps.
    """
    n1, n2, n3 = ints[3], ints[4], ints[5]
    steps, results, program = ints[6:54].reshape(12, 4), ints[54:58], ints[58:]
    at = np.zeros((32, _WIDE), floats.dtype)
    for k in range(floats.size):
        at[8 + k, :] = floats[k]
    p = np.empty(12, np.int64)
    for row in range(start, stop):
        i0, i1, i2 = row // (n1 * n2), row // n2 % n1, row % n2
        for s in range(12):
            p[s] = i0 * steps[s, 0] + i1 * steps[s, 1] + i2 * steps[s, 2]
        for first in range(0, n3, _WIDE):
            n = min(_WIDE, n3 - first)
            for k, buffer in enumerate((a, b, c, d, e, f, g, h)):
                if buffer.size:
                    _load(n, buffer, p[k] + first * steps[k, 3], steps[k, 3], at[k])
            m = 0
            while m < ints[1]:
                _chain_step(program[m], n, at, program[m + 3 :], at[program[m + 2]])
                m += 3 + program[m + 1]
            for k, buffer in enumerate((y, z, v, w)):
                if buffer.size:
                    begin = p[8 + k] + first * steps[8 + k, 3]
                    _store(n, at[results[k]], steps[8 + k, 3], buffer[begin:])


@jit(forceinline=True)
def _put(row, size, begin, length, part, out):
    """Copy a row of an input to its place."""
    for i in range(length):
        out[row * size + begin + i] = part[row * length + i]


@jit
def tiled_concat(start, stop, ints, floats, a, b, c, d, e, f, g, y):
    """Rows ``start`` to ``stop - 1`` of a tile of tensors side by side, with zeros between."""
    inner = ints[3]
    size, at = ints[2] * inner, ints[4:18] * inner
    for row in range(start, stop):
        y[row * size : (row + 1) * size] = f4(0.0)
        _put(row, size, at[0], at[1], a, y)
        _put(row, size, at[2], at[3], b, y)
        _put(row, size, at[4], at[5], c, y)
        _put(row, size, at[6], at[7], d, y)
        _put(row, size, at[8], at[9], e, y)
        _put(row, size, at[10], at[11], f, y)
        _put(row, size, at[12], at[13], g, y)


@jit
def tiled_accumulate(start, stop, ints, floats, total, gradient, reset):
    """Elements ``start`` to ``stop - 1``: the gradient, or the sum with it."""
    anew = reset[0] != 0
    for i in range(start, stop):
        total[i] = gradient[i] if anew else f4(total[i] + gradient[i])


@jit
def tiled_update(start, stop, ints, floats, w, gradient, m, v, powers):
    """Elements ``start`` to ``stop - 1`` of a step of SGD, of SGD with momentum or of Adam.

    Floats: rate, decay of the first moment, of the second, epsilon.
    """
    kind = ints[1]
    rate = floats[0]
    if kind == 0:
        for i in range(start, stop):
            w[i] = f4(w[i] - f4(rate * gradient[i]))
    elif kind == 1:
        for i in range(start, stop):
            m[i] = fma32(floats[1], m[i], gradient[i])
            w[i] = f4(w[i] - f4(rate * m[i]))
    elif kind == 2:
        less1, less2 = f4(f4(1.0) - floats[1]), f4(f4(1.0) - floats[2])
        first, second = f4(f4(1.0) - powers[0]), f4(f4(1.0) - powers[1])
        for i in range(start, stop):
            q = gradient[i]
            m[i] = fma32(floats[1], m[i], f4(less1 * q))
            v[i] = fma32(floats[2], v[i], f4(f4(less2 * q) * q))
            size = f4(sqrt32(f4(v[i] / second)) + floats[3])
            w[i] = f4(w[i] - f4(f4(rate * f4(m[i] / first)) / size))
    else:
        for i in range(start, stop):  # powers of the decays of Adam
            w[i] = f4(w[i] * floats[1 + i])
