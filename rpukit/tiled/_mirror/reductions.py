"""Mirrors of sums with a written order, and of what labels choose."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import NAN, exp32, fma32, sqrt32

f4 = np.float32


@jit(forceinline=True)
def _finish(kind, total, count, epsilon):
    """What becomes of a sum at its end."""
    if kind == 0 or kind == 3:
        return total
    if kind == 2:
        return f4(f4(1.0) / sqrt32(f4(f4(total / count) + epsilon)))
    return f4(total / count)


@jit
def _row(kind, n, a, sa, b, sb, c, sc, d, sd):
    """Sum of one row."""
    s = f4(0.0)
    if kind < 2:
        for i in range(n):
            s = f4(s + a[i * sa])
    elif kind == 3:
        for i in range(n):
            s = fma32(a[i * sa], f4(f4(b[i * sb] - c[i * sc]) * d[i * sd]), s)
    else:
        for i in range(n):
            v = f4(a[i * sa] - b[i * sb])
            s = fma32(v, v, s)
    return s


@jit
def tiled_reduce(start, stop, ints, floats, a, b, c, d, y):
    """Results ``start`` to ``stop - 1`` of a tile of a sum."""
    kind, first, last = ints[1], ints[2], ints[3]
    f1, f2, f3, n0, n1, n2, n3 = ints[5:12]
    steps = ints[12:52].reshape(5, 8)
    p, q = np.empty(5, np.int64), np.empty(5, np.int64)
    for row in range(start, stop):
        i0, i1, i2, i3 = row // (f1 * f2 * f3), row // (f2 * f3) % f1, row // f3 % f2, row % f3
        for s in range(5):
            p[s] = i0 * steps[s, 0] + i1 * steps[s, 1] + i2 * steps[s, 2] + i3 * steps[s, 3]
        total = f4(0.0) if first else y[p[4]]
        for j in range(n0 * n1 * n2):
            j0, j1, j2 = j // (n1 * n2), j // n2 % n1, j % n2
            for s in range(4):
                q[s] = p[s] + j0 * steps[s, 4] + j1 * steps[s, 5] + j2 * steps[s, 6]
            part = _row(
                kind, n3, a[q[0] :], steps[0, 7], b[q[1] :], steps[1, 7],
                c[q[2] :], steps[2, 7], d[q[3] :], steps[3, 7],
            )  # fmt: skip
            total = f4(total + part)
        y[p[4]] = _finish(kind, total, floats[0], floats[1]) if last else total


@jit
def tiled_nll(start, stop, ints, floats, logprob, labels, loss, weights, total_weight):
    """Samples of a tile, ascending; a label out of range gives NaN, a weight of 0 is left out."""
    if start == 0 and stop > 0:
        n, c, weighted = ints[1], ints[2], ints[5] != 0
        size = total_weight[0] if ints[6] else floats[0]
        total = f4(0.0) if ints[3] else loss[0]
        for i in range(n):
            k = labels[i]
            p = logprob[i * c + k] if 0 <= k < c else NAN
            if not weighted:
                total = f4(total - p)
            elif weights[i] != f4(0.0):
                total = fma32(f4(-weights[i]), p, total)
        loss[0] = f4(total / size) if ints[4] else total


@jit
def tiled_label_weights(start, stop, ints, floats, labels, weights, y):
    """Weights of samples ``start`` to ``stop - 1``: that of the class, 0 where it is ignored."""
    for i in range(start, stop):
        k = labels[i]
        if ints[3] and k == ints[4]:
            y[i] = f4(0.0)
        elif 0 <= k < ints[1]:
            y[i] = weights[k] if ints[2] else f4(1.0)
        else:
            y[i] = NAN


@jit
def tiled_cross_entropy_grad(start, stop, ints, floats, logprob, labels, y, weights, total_weight):
    """Samples ``start`` to ``stop - 1`` of a tile of classes; `ints` say which."""
    c, c0, n_class, weighted = ints[1], ints[2], ints[3], ints[4] != 0
    size = total_weight[0] if ints[5] else floats[0]
    for i in range(start, stop):
        label = labels[i]
        known = 0 <= label < n_class
        if weighted and weights[i] == f4(0.0):
            for k in range(c):
                y[i * c + k] = f4(0.0)
            continue
        for k in range(c):
            hot = f4(1.0) if c0 + k == label else f4(0.0)
            v = f4((f4(0.0) if ints[6] else exp32(logprob[i * c + k])) - hot)
            if weighted:
                v = f4(weights[i] * v)
            v = f4(v / size)
            y[i * c + k] = v if known else NAN
