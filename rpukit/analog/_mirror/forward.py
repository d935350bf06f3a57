"""Mirrors of the forward kernels: the scales of a batch, and its product through the periphery."""

from __future__ import annotations

import numpy as np

from rpukit._exact.chains import product
from rpukit._exact.jit import jit
from rpukit._exact.math import fma32
from rpukit._exact.philox import block, normal, uniform

f4, i4, u4, u8 = np.float32, np.int32, np.uint32, np.uint64

SEGMENT = 16384
LARGEST = f4(np.finfo(f4).max)
TOGETHER = 128  # samples processed at a time; it does not affect results


@jit
def _np_sum(x, a, step, max_bm_res, bound):
    positive = f4(0.0)
    negative = f4(0.0)
    for i in range(x.size):
        if x[i] > f4(0.0):
            positive = f4(positive + x[i])
        if x[i] < f4(0.0):
            negative = f4(negative + x[i])
    s = f4(f4(max(positive, f4(-negative)) * f4(0.6)) / bound)
    if step > f4(0.0):
        s = min(f4(f4(a / step) * max_bm_res), s)
    return max(a, s)


@jit
def tile_scale(start, stop, mode, worst, threshold, step, max_bm_res, bound, x, alpha, average):
    """Find the scales of samples ``start`` to ``stop - 1``, in order for a running average."""
    for s in range(start, stop):
        largest = f4(0.0)
        top = f4(-np.inf)
        for i in range(x.shape[1]):
            largest = max(largest, abs(x[s, i]))
            top = max(top, x[s, i])
        limited = min(largest, threshold) if threshold > f4(0.0) else largest
        a = f4(1.0)
        if mode == 1:
            a = limited
        elif mode == 2:
            a = min(top, threshold) if threshold > f4(0.0) else top
        elif mode == 3:
            a = threshold if threshold > f4(0.0) else f4(1.0)
        elif mode == 4:
            mean = average[0]
            a = largest
            if mean >= f4(0.0):
                a = fma32(f4(0.001), largest, f4(mean * f4(0.999)))
            average[0] = a
        elif mode == 5:
            a = _np_sum(x[s], limited, step, max_bm_res, bound)
        alpha[0, s] = a
        if worst:
            alpha[1, s] = _np_sum(x[s], limited, step, max_bm_res, bound)


@jit(forceinline=True)
def _clip(v, bound):
    if bound > f4(0.0):
        if v > bound:
            return bound
        if v < f4(-bound):
            return f4(-bound)
    return v


@jit(forceinline=True)
def _convert(v, step, stochastic, w):
    if not step > f4(0.0):
        return v
    q = f4(v / step)
    if stochastic:
        q = f4(q + f4(uniform(w) - f4(0.5)))
    return f4(f4(np.rint(q)) * step)


@jit
def _inverse(alpha, rho):
    sc = f4(f4(1.0) / alpha) if alpha > f4(0.0) else f4(1.0)
    return f4((LARGEST if sc > LARGEST else sc) / rho)


@jit
def _draw(op, sample, number, k0, k1, words):
    """Draw words 0 to 2 of each line of a round, in a separate loop that vectorises."""
    for j in range(words.shape[1]):
        b0, b1, b2, _ = block(k0, k1, op, u8(j), sample, number)
        words[0, j] = b0
        words[1, j] = b1
        words[2, j] = b2


@jit
def _convert_lines(v, step, stochastic, words):
    if stochastic:
        for j in range(v.size):
            v[j] = _convert(v[j], step, True, words[j])
    elif step > f4(0.0):
        for j in range(v.size):
            v[j] = f4(f4(np.rint(f4(v[j] / step))) * step)


@jit
def _add_noise(v, std, words):
    for j in range(v.size):
        v[j] = fma32(std, normal(words[j]), v[j])


@jit
def _bend(v, factor):
    """Multiply a value by ``factor`` if it is negative."""
    if factor != f4(1.0):
        for j in range(v.size):
            v[j] = f4(v[j] * factor) if v[j] < f4(0.0) else v[j]


@jit
def _inputs(x, sc, io, op, sample, number, k0, k1, words, v):
    """Convert the inputs of one round; ``words`` (3, n_in) is scratch."""
    rounds = io[10] != f4(0.0) and io[1] > f4(0.0)
    noisy = io[2] > f4(0.0)
    bound = io[0]
    if rounds or noisy:
        _draw(op, sample, number, k0, k1, words)
    for j in range(x.size):
        v[j] = f4(x[j] * sc)
    _convert_lines(v, io[1], rounds, words[0])
    if bound > f4(0.0):
        for j in range(x.size):
            v[j] = _clip(v[j], bound)
    if noisy:
        _add_noise(v, io[2], words[1])
    _bend(v, io[3])


@jit
def tile_inputs(start, stop, samples, io, op, first_sample, number, rho, scales, x, v, k0, k1):
    """Convert the inputs of a round: rows ``start`` to ``stop - 1`` of v, of their ``samples``."""
    words = np.empty((3, x.shape[1]), u4)
    for at in range(start, stop):
        s = samples[at]
        a = scales[s] if io[13] != f4(0.0) else f4(1.0)
        sc = _inverse(a, rho) if io[13] != f4(0.0) else f4(f4(1.0) / rho)
        sample = u8(first_sample) + u8(s)
        _inputs(x[s], sc, io, u4(op), sample, u4(number), k0, k1, words, v[at])


@jit
def _norm(v):
    total = f4(0.0)
    for first in range(0, v.size, SEGMENT):
        a = f4(0.0)
        for j in range(first, min(first + SEGMENT, v.size)):
            a = fma32(v[j], v[j], a)
        total = f4(total + a)
    return total


@jit
def _outputs(y, read, w_noise, deviation, io, op, sample, number, k0, k1, words):
    """Convert sums to outputs, in place; return whether an active bound was passed."""
    rounds = io[11] != f4(0.0) and io[5] > f4(0.0)
    reads = w_noise != 0 and io[9] > f4(0.0)
    bound, std = io[4], io[6]
    if rounds or reads or deviation.size or std > f4(0.0):
        _draw(op, sample, number, k0, k1, words)
    if reads:
        for i in range(y.size):
            spread = f4(io[9] * f4(np.sqrt(read[i if w_noise == 2 else 0])))
            y[i] = fma32(spread, normal(words[0, i]), y[i])
    _bend(y, io[7])
    if deviation.size:
        for i in range(y.size):
            noisy = fma32(deviation[i], normal(words[1, i]), y[i])
            y[i] = noisy if deviation[i] > f4(0.0) else y[i]
    elif std > f4(0.0):
        _add_noise(y, std, words[1])
    _convert_lines(y, io[5], rounds, words[2])
    met = False
    if bound > f4(0.0):
        low = f4(-bound) if io[12] != f4(0.0) else f4(-np.inf)
        for i in range(y.size):
            met |= (y[i] > bound) | (y[i] < low)
        for i in range(y.size):
            y[i] = _clip(y[i], bound)
    return met


@jit(forceinline=True)
def _read_sums(weight, along, w_noise, v, read):
    """Sum the variances of read noise, for each sample, or for each of its outputs."""
    if w_noise == 1:
        for s in range(v.shape[0]):
            read[s, 0] = _norm(v[s])
    elif w_noise == 2:
        squares = np.empty(v.shape, f4)
        for s in range(v.shape[0]):
            for j in range(v.shape[1]):
                squares[s, j] = f4(v[s, j] * v[s, j])
        product(weight, along, True, squares, read)


@jit
def tile_outputs(
    start,
    stop,
    samples,
    w_noise,
    io,
    op,
    first_sample,
    number,
    rho,
    scales,
    read,
    deviation,
    sums,
    y,
    failed,
    k0,
    k1,
    words,
):
    """Convert rows ``start`` to ``stop - 1`` of sums to results of their ``samples``.

    ``failed``: whether a row passed an active bound; ``words`` (3, n_out) is scratch.
    """
    for at in range(start, stop):
        s, out = samples[at], sums[at]
        a = scales[s] if io[13] != f4(0.0) else f4(1.0)
        failed[at] = False
        if not a > f4(0.0) and io[14] != f4(0.0):
            y[s, :] = f4(0.0)
            continue
        sample = u8(first_sample) + u8(s)
        op, number = u4(op), u4(number)
        failed[at] = _outputs(
            out, read[at], w_noise, deviation, io, op, sample, number, k0, k1, words
        )
        factor = f4(f4(io[8] * (a if a > f4(0.0) else f4(1.0))) * rho)
        for i in range(out.size):
            y[s, i] = f4(out[i] * factor)


@jit
def tile_forward(
    start,
    stop,
    along,
    perfect,
    w_noise,
    worst,
    rhos,
    first_sample,
    in_op,
    out_op,
    io,
    weight,
    x,
    alpha,
    deviation,
    y,
    k0,
    k1,
):
    """Multiply samples ``start`` to ``stop - 1``, with as many rounds as bounds need.

    Rows of the weights run along the inputs, or with ``along`` the outputs.
    """
    n_in, n_out = x.shape[1], y.shape[1]
    if perfect:
        product(weight, along, False, x[start:stop], y[start:stop])
        for s in range(start, stop):
            for i in range(n_out):
                y[s, i] = f4(y[s, i] * io[8])
        return
    n_most = min(TOGETHER, stop - start)
    v, sums = np.empty((n_most, n_in), f4), np.empty((n_most, n_out), f4)
    read = np.empty((n_most, n_out if w_noise == 2 else 1), f4)
    in_words, out_words = np.empty((3, n_in), u4), np.empty((3, n_out), u4)
    waits, failed = np.empty(n_most, np.int64), np.empty(n_most, np.bool_)
    for s0 in range(start, stop, n_most):
        n = min(n_most, stop - s0)
        for at in range(n):
            waits[at] = s0 + at
        for number in range(rhos.size):
            rho, scales = rhos[number], alpha[1 if worst and number else 0]
            left = 0
            for at in range(n):
                s = waits[at]
                a = scales[s] if io[13] != f4(0.0) else f4(1.0)
                if not a > f4(0.0) and io[14] != f4(0.0):
                    y[s, :] = f4(0.0)
                    continue
                sc = _inverse(a, rho) if io[13] != f4(0.0) else f4(f4(1.0) / rho)
                sample = u8(first_sample) + u8(s)
                _inputs(x[s], sc, io, u4(in_op), sample, u4(number), k0, k1, in_words, v[left])
                waits[left] = s
                left += 1
            product(weight, along, False, v[:left], sums[:left])
            _read_sums(weight, along, w_noise, v[:left], read[:left])
            tile_outputs(
                0, left, waits, w_noise, io, out_op, first_sample, number, rho, scales, read,
                deviation, sums, y, failed, k0, k1, out_words,
            )  # fmt: skip
            n = 0
            for at in range(left):
                if failed[at]:
                    waits[n] = waits[at]
                    n += 1
            if n == 0:
                break
