"""Mirrors of pulse trains and of the exact rank update; the pulsed update is in ``pulses.py``."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import f2u, fma32, u2f
from rpukit._exact.philox import block, uniform, word
from rpukit.analog._steps import LARGEST, clip, hold

f4, i4, u4, u8 = np.float32, np.int32, np.uint32, np.uint64

OP_X, OP_D = u4(5), u4(6)
SLOTS = 31
ROUNDING_DRAW = u4(65532)
SIGN = u4(0x80000000)
# A step of at most this size leaves the largest weight as it is, for it is rounded off.
SAFE = f4(LARGEST * 2.0**-60)


@jit
def _scales(lr, g, base_length, unit_scale, managed, managed_length, grad_scale, x_max, d_max):
    length = base_length
    a = f4(1.0) if unit_scale else f4(np.sqrt(f4(lr / f4(g * f4(length)))))
    b = a
    if managed:
        if x_max == f4(0.0) or d_max == f4(0.0):
            return i4(0), f4(0.0), f4(0.0)
        dd = f4(grad_scale * d_max)
        needed = f4(f4(f4(lr * x_max) * dd) / g)
        if managed_length:
            length = base_length if needed >= f4(base_length) else i4(np.ceil(needed))
            if length == 0:
                return i4(0), f4(0.0), f4(0.0)
            a = f4(np.sqrt(f4(lr / f4(g * f4(length)))))
            b = a
        if needed > f4(base_length):
            dd = f4(f4(dd * f4(base_length)) / needed)
        a = f4(a * f4(np.sqrt(f4(x_max / dd))))
        b = f4(b * f4(np.sqrt(f4(dd / x_max))))
    return length, b, a


@jit
def _rounded(p, res, stochastic, k0, k1, op, line, sample):
    if not res > f4(0.0):
        return p
    q = f4(p / res)
    if stochastic:
        q = f4(q + f4(uniform(word(k0, k1, op, line, sample, ROUNDING_DRAW)) - f4(0.5)))
    return f4(f4(np.rint(q)) * res)


@jit
def _train(p, negative, length, n_word, k0, k1, op, line, sample, out):
    sign = SIGN if negative else u4(0)
    b0, b1, b2, b3 = u4(0), u4(0), u4(0), u4(0)
    for w in range(n_word):
        fired = u4(0)
        first = w * SLOTS
        last = min(first + SLOTS, length)
        if p >= f4(1.0):
            if last > first:
                fired = u4((u8(1) << u8(last - first)) - u8(1))
        elif p > f4(0.0):
            for slot in range(first, last):
                k = slot & 3
                if k == 0 or slot == first:
                    b0, b1, b2, b3 = block(k0, k1, op, line, sample, u4(slot >> 2))
                r = b0 if k == 0 else b1 if k == 1 else b2 if k == 2 else b3
                if p > uniform(r):
                    fired = u4(fired | u4(u4(1) << u4(slot - first)))
        out[w] = u4(fired | sign) if fired else u4(0)


@jit
def _lines(v, scale, length, res, stochastic, implicit, carry, n_word, k0, k1, op, sample, train):
    out = np.empty(n_word, u4)
    for line in range(v.size):
        p = _rounded(f4(abs(v[line]) * scale), res, stochastic, k0, k1, op, u8(line), sample)
        if implicit == 2:
            expected = f4(f4(length) * p)
            n = u4(0)
            if expected > f4(0.0):
                n = u4(np.rint(expected)) if expected < f4(length) else u4(length)
            if n and carry:
                n = u4(n | u4(u4(length) << u4(13)))
            train[0, line] = u4(n | SIGN) if n and v[line] < f4(0.0) else n
        elif implicit == 1:
            q = f4(0.0)
            if length > 0 and p > f4(0.0):
                q = f4(1.0) if p > f4(1.0) else p
            if carry:
                q = f4(f4(length) * q)
            train[0, line] = f2u(f4(-q) if v[line] < f4(0.0) else q) if q > f4(0.0) else u4(0)
        else:
            _train(p, v[line] < f4(0.0), length, n_word, k0, k1, op, u8(line), sample, out)
            for w in range(n_word):
                train[w, line] = out[w]


@jit
def pulse_trains(
    start,
    stop,
    lr,
    granularity,
    base_length,
    unit_scale,
    managed,
    managed_length,
    grad_scale,
    x_res,
    d_res,
    stochastic_rounding,
    implicit,
    first_sample,
    x,
    d,
    rates,
    x_train,
    d_train,
    k0,
    k1,
):
    """Make the trains of samples ``start`` to ``stop - 1``."""
    n_word = x_train.shape[1]
    for s in range(start, stop):
        x_max = f4(0.0)
        for j in range(x.shape[1]):
            x_max = max(x_max, abs(x[s, j]))
        d_max = f4(0.0)
        for i in range(d.shape[1]):
            d_max = max(d_max, abs(d[s, i]))
        length, of_x, of_d = _scales(
            rates[s] if rates.size else lr,
            granularity,
            i4(base_length),
            unit_scale,
            managed,
            managed_length,
            grad_scale,
            x_max,
            d_max,
        )
        sample = u8(first_sample) + u8(s)
        _lines(
            x[s],
            of_x,
            length,
            x_res,
            stochastic_rounding,
            implicit,
            False,
            n_word,
            k0,
            k1,
            OP_X,
            sample,
            x_train[s],
        )
        _lines(
            d[s],
            of_d,
            length,
            d_res,
            stochastic_rounding,
            implicit,
            True,
            n_word,
            k0,
            k1,
            OP_D,
            sample,
            d_train[s],
        )


@jit
def _held_row(i, lr, x, d, weight):
    """Apply the chains of row i, held after each sample."""
    for s in range(x.shape[0]):
        step = hold(f4(f4(-lr) * d[s, i]))
        for j in range(x.shape[1]):
            weight[i, j] = hold(fma32(step, x[s, j], weight[i, j]))


@jit
def rank_update(start, stop, lr, x, d, low, high, weight):
    """Change rows ``start`` to ``stop - 1`` by the exact -lr d x^T, samples ascending.

    Weights are clipped after each sample: to their bounds, or to the range of the type.
    """
    top = f2u(f4(0.0))
    for s in range(x.shape[0]):
        for j in range(x.shape[1]):
            top = max(top, f2u(abs(x[s, j])))
    largest = u2f(top)
    for i in range(start, stop):
        wild = False
        for s in range(x.shape[0]):
            wild |= abs(f4(f4(f4(lr) * d[s, i]) * largest)) > SAFE
        if wild and low.size == 0:
            _held_row(i, lr, x, d, weight)
            continue
        for s in range(x.shape[0]):
            step = hold(f4(f4(-lr) * d[s, i]))
            for j in range(x.shape[1]):
                weight[i, j] = fma32(step, x[s, j], weight[i, j])
            if low.size:
                for j in range(x.shape[1]):
                    weight[i, j] = clip(weight[i, j], low[i, j], high[i, j])
