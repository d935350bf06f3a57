"""Mirrors of the update kernels: pulse trains, pulsed update, exact rank update."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import f2u, fma32, u2f
from rpukit._philox import block, normal, uniform, word

f4, i4, u4, u8 = np.float32, np.int32, np.uint32, np.uint64

OP_X, OP_D, OP_STEP, OP_WRITE_NOISE = u4(5), u4(6), u4(7), u4(13)
SLOTS = 31
ROUNDING_DRAW = u4(65532)
SIGN, BITS = u4(0x80000000), u4(0x7FFFFFFF)


@nb.njit(nogil=True, error_model="numpy")
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


@nb.njit(nogil=True, error_model="numpy")
def _rounded(p, res, stochastic, k0, k1, op, line, sample):
    if not res > f4(0.0):
        return p
    q = f4(p / res)
    if stochastic:
        q = f4(q + f4(uniform(word(k0, k1, op, line, sample, ROUNDING_DRAW)) - f4(0.5)))
    return f4(f4(np.rint(q)) * res)


@nb.njit(nogil=True, error_model="numpy")
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


@nb.njit(nogil=True, error_model="numpy")
def _lines(v, scale, length, res, stochastic, implicit, carry, n_word, k0, k1, op, sample, train):
    out = np.empty(n_word, u4)
    for line in range(v.size):
        p = _rounded(f4(abs(v[line]) * scale), res, stochastic, k0, k1, op, u8(line), sample)
        if implicit:
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


@nb.njit(nogil=True, error_model="numpy")
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
            lr,
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


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _popcount(v):
    v = u4(v - u4(u4(v >> u4(1)) & u4(0x55555555)))
    v = u4(u4(v & u4(0x33333333)) + u4(u4(v >> u4(2)) & u4(0x33333333)))
    v = u4(u4(v + u4(v >> u4(4))) & u4(0x0F0F0F0F))
    return i4(u4(v * u4(0x01010101)) >> u4(24))


@nb.njit(nogil=True, error_model="numpy")
def _list_hits(x_train, d_train, implicit, i, hit_j, hit_n, hit_sign):
    """List the columns that a sample pulses in row i; without branches: hits are random."""
    n_word, n_in = x_train.shape
    n_hit = 0
    if implicit:
        d = u2f(d_train[0, i])
        for j in range(n_in):
            n = i4(np.rint(abs(f4(d * u2f(x_train[0, j])))))
            hit_j[n_hit], hit_n[n_hit], hit_sign[n_hit] = j, n, x_train[0, j]
            n_hit += n != 0
        return n_hit
    for j in range(n_in):
        sign = x_train[0, j]
        n = _popcount(u4(sign & d_train[0, i] & BITS))
        for w in range(1, n_word):
            n += _popcount(u4(x_train[w, j] & d_train[w, i] & BITS))
            sign = u4(sign | x_train[w, j])
        hit_j[n_hit], hit_n[n_hit], hit_sign[n_hit] = j, n, sign
        n_hit += n != 0
    return n_hit


@nb.njit(nogil=True, error_model="numpy")
def _first_draws(n_hit, first_cell, sample, k0, k1, hit_j, words, xi):
    """Draw the first block of every hit and its first normal; a loop that vectorises."""
    for a in range(n_hit):
        cell = u8(first_cell + u8(hit_j[a]))
        b0, b1, b2, b3 = block(k0, k1, OP_STEP, cell, sample, u4(0))
        words[0, a], words[1, a], words[2, a], words[3, a] = b0, b1, b2, b3
    for a in range(n_hit):
        xi[a] = normal(words[0, a])


@nb.njit(nogil=True, error_model="numpy")
def _walk(step, w, p, g, up, n, words, a, xi, k0, k1, cell, sample):
    """Apply the pulses of a run one by one."""
    noisy = g[0] != f4(0.0)
    w = step(w, p, g, up, xi)
    b0, b1, b2, b3 = u4(0), words[1, a], words[2, a], words[3, a]
    for pulse in range(1, n):
        k = pulse & 3
        if noisy and k == 0:
            b0, b1, b2, b3 = block(k0, k1, OP_STEP, cell, sample, u4(pulse >> 2))
        r = b0 if k == 0 else b1 if k == 1 else b2 if k == 2 else b3
        w = step(w, p, g, up, normal(r) if noisy else f4(0.0))
    return w


@nb.njit(nogil=True, error_model="numpy")
def pulsed_update(
    start,
    stop,
    step,
    run,
    flip,
    polarity,
    implicit,
    write_noise,
    first_sample,
    planes,
    g,
    x_train,
    d_train,
    weight,
    persistent,
    n_pulses,
    k0,
    k1,
):
    """Pulse the cells of rows ``start`` to ``stop - 1``; ``n_pulses[i]`` counts those of row i."""
    n_batch, n_word, n_in = x_train.shape
    n_plane = planes.shape[0]
    stored = persistent if write_noise else weight
    p = np.empty(n_plane, f4)
    hit_j, hit_n, hit_sign = np.empty(n_in + 1, i4), np.empty(n_in + 1, i4), np.empty(n_in + 1, u4)
    words, xi = np.zeros((4, n_in), u4), np.zeros(n_in, f4)
    last = np.empty(n_in if write_noise else 0, np.int64)
    noisy = g[0] != f4(0.0)
    for i in range(start, stop):
        last[:] = -1
        first_cell = u8(i) * u8(n_in)
        for s in range(n_batch):
            sign_d = u4(0)
            for w in range(n_word):
                sign_d = u4(sign_d | d_train[s, w, i])
            if sign_d == u4(0):
                continue
            sample = u8(first_sample) + u8(s)
            n_hit = _list_hits(x_train[s], d_train[s], implicit, i, hit_j, hit_n, hit_sign)
            if noisy:
                _first_draws(n_hit, first_cell, sample, k0, k1, hit_j, words, xi)
            for a in range(n_hit):
                j, n = hit_j[a], hit_n[a]
                for k in range(n_plane):
                    p[k] = planes[k, i, j]
                up = (u4(hit_sign[a] ^ sign_d) >= SIGN) != flip
                if polarity != 0:
                    if up != (polarity > 0):
                        continue
                    up = True
                w = stored[i, j]
                taken = False
                if n > 1:
                    taken, w = run(w, p, g, up, n, xi[a])
                if not taken:
                    cell = u8(first_cell + u8(j))
                    w = _walk(step, w, p, g, up, n, words, a, xi[a], k0, k1, cell, sample)
                stored[i, j] = w
                n_pulses[i] += n
                if write_noise:
                    last[j] = s
        if write_noise:
            for j in range(n_in):
                if last[j] >= 0:
                    cell = u8(first_cell + u8(j))
                    sample = u8(first_sample) + u8(last[j])
                    z = normal(word(k0, k1, OP_WRITE_NOISE, cell, sample, u4(0)))
                    weight[i, j] = fma32(g[7], z, stored[i, j])


@nb.njit(nogil=True, error_model="numpy")
def rank_update(start, stop, lr, x, d, weight):
    """Move rows ``start`` to ``stop - 1`` by the exact -lr d x^T, samples ascending."""
    for i in range(start, stop):
        for s in range(x.shape[0]):
            step = f4(f4(-lr) * d[s, i])
            for j in range(x.shape[1]):
                weight[i, j] = fma32(step, x[s, j], weight[i, j])
