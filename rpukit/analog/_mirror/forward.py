"""Mirrors of the forward kernels: the scales of a batch, and its product through the periphery."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import fma32
from rpukit._philox import block, normal, uniform

f4, i4, u4, u8 = np.float32, np.int32, np.uint32, np.uint64

SEGMENT = 16384
LARGEST = f4(3.402823466e38)


@nb.njit(nogil=True, error_model="numpy")
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


@nb.njit(nogil=True, error_model="numpy")
def tile_scale(start, stop, mode, worst, threshold, step, max_bm_res, bound, x, alpha, average):
    """Find the scales of samples ``start`` to ``stop - 1``, in order where an average runs."""
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


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _clip(v, bound):
    if bound > f4(0.0):
        if v > bound:
            return bound
        if v < f4(-bound):
            return f4(-bound)
    return v


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _convert(v, step, stochastic, w):
    if not step > f4(0.0):
        return v
    q = f4(v / step)
    if stochastic:
        q = f4(q + f4(uniform(w) - f4(0.5)))
    return f4(f4(np.rint(q)) * step)


@nb.njit(nogil=True, error_model="numpy")
def _inverse(alpha, rho):
    sc = f4(f4(1.0) / alpha) if alpha > f4(0.0) else f4(1.0)
    return f4((LARGEST if sc > LARGEST else sc) / rho)


@nb.njit(nogil=True, error_model="numpy")
def _inputs(x, sc, io, op, sample, number, k0, k1, v):
    rounds = io[10] != f4(0.0) and io[1] > f4(0.0)
    noisy = io[2] > f4(0.0)
    b0, b1 = u4(0), u4(0)
    for j in range(x.size):
        if rounds or noisy:
            b0, b1, _, _ = block(k0, k1, op, u8(j), sample, number)
        c = _clip(_convert(f4(x[j] * sc), io[1], rounds, b0), io[0])
        if noisy:
            c = fma32(io[2], normal(b1), c)
        v[j] = f4(c * io[3]) if c < f4(0.0) else c


@nb.njit(nogil=True, error_model="numpy")
def _along_rows(weight, v, absolute, out):
    """out[i] = sum_j weight[i, j] v[j]: eight chains at a time."""
    n_out, n_in = weight.shape
    for i in range(0, n_out, 8):
        rows = min(8, n_out - i)
        for first in range(0, n_in, SEGMENT):
            last = min(first + SEGMENT, n_in)
            if rows == 8 and not absolute:
                a0, a1, a2, a3 = f4(0.0), f4(0.0), f4(0.0), f4(0.0)
                a4, a5, a6, a7 = f4(0.0), f4(0.0), f4(0.0), f4(0.0)
                for j in range(first, last):
                    c = v[j]
                    a0 = fma32(weight[i, j], c, a0)
                    a1 = fma32(weight[i + 1, j], c, a1)
                    a2 = fma32(weight[i + 2, j], c, a2)
                    a3 = fma32(weight[i + 3, j], c, a3)
                    a4 = fma32(weight[i + 4, j], c, a4)
                    a5 = fma32(weight[i + 5, j], c, a5)
                    a6 = fma32(weight[i + 6, j], c, a6)
                    a7 = fma32(weight[i + 7, j], c, a7)
                for r, a in enumerate((a0, a1, a2, a3, a4, a5, a6, a7)):
                    out[i + r] = a if first == 0 else f4(out[i + r] + a)
                continue
            for r in range(i, i + rows):
                a = f4(0.0)
                for j in range(first, last):
                    w = abs(weight[r, j]) if absolute else weight[r, j]
                    a = fma32(w, v[j], a)
                out[r] = a if first == 0 else f4(out[r] + a)


@nb.njit(nogil=True, error_model="numpy")
def _along_columns(weight, v, absolute, out, segment):
    """out[i] = sum_j weight[j, i] v[j]: row after row, which vectorises over i."""
    n_in, n_out = weight.shape
    for first in range(0, n_in, SEGMENT):
        target = out if first == 0 else segment
        target[:] = f4(0.0)
        for j in range(first, min(first + SEGMENT, n_in)):
            c = v[j]
            if absolute:
                for i in range(n_out):
                    target[i] = fma32(abs(weight[j, i]), c, target[i])
            else:
                for i in range(n_out):
                    target[i] = fma32(weight[j, i], c, target[i])
        if first:
            for i in range(n_out):
                out[i] = f4(out[i] + segment[i])


@nb.njit(nogil=True, error_model="numpy")
def _product(weight, v, by_columns, absolute, out, segment):
    if by_columns:
        _along_columns(weight, v, absolute, out, segment)
    else:
        _along_rows(weight, v, absolute, out)


@nb.njit(nogil=True, error_model="numpy")
def _norm(v):
    total = f4(0.0)
    for first in range(0, v.size, SEGMENT):
        a = f4(0.0)
        for j in range(first, min(first + SEGMENT, v.size)):
            a = fma32(v[j], v[j], a)
        total = f4(total + a)
    return total


@nb.njit(nogil=True, error_model="numpy")
def _outputs(y, read, w_noise, deviation, factor, io, op, sample, number, k0, k1):
    """Turn products into outputs, in place; True where a bound that counts was passed."""
    rounds = io[11] != f4(0.0) and io[5] > f4(0.0)
    reads = w_noise != 0 and io[9] > f4(0.0)
    bound = io[4]
    met = False
    for i in range(y.size):
        std = deviation[i] if deviation.size else io[6]
        noisy = std > f4(0.0)
        b0, b1, b2 = u4(0), u4(0), u4(0)
        if rounds or noisy or reads:
            b0, b1, b2, _ = block(k0, k1, op, u8(i), sample, number)
        out = y[i]
        if reads:
            spread = f4(io[9] * f4(np.sqrt(read[i if w_noise == 2 else 0])))
            out = fma32(spread, normal(b0), out)
        if out < f4(0.0):
            out = f4(out * io[7])
        if noisy:
            out = fma32(std, normal(b1), out)
        out = _convert(out, io[5], rounds, b2)
        if bound > f4(0.0) and (out > bound or (out < f4(-bound) and io[12] != f4(0.0))):
            met = True
        y[i] = f4(_clip(out, bound) * factor)
    return met


@nb.njit(nogil=True, error_model="numpy")
def tile_forward(
    start,
    stop,
    by_columns,
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
    """Multiply samples ``start`` to ``stop - 1``, with as many rounds as bounds ask for."""
    n_in, n_out = x.shape[1], y.shape[1]
    v, squares = np.empty(n_in, f4), np.empty(n_in, f4)
    read, segment = np.zeros(n_out, f4), np.empty(n_out, f4)
    for s in range(start, stop):
        sample = u8(first_sample) + u8(s)
        if perfect:
            _product(weight, x[s], by_columns, False, y[s], segment)
            for i in range(n_out):
                y[s, i] = f4(y[s, i] * io[8])
            continue
        for number in range(rhos.size):
            rho = rhos[number]
            a = alpha[1 if worst and number else 0, s] if io[13] != f4(0.0) else f4(1.0)
            if not a > f4(0.0) and io[14] != f4(0.0):
                y[s, :] = f4(0.0)
                break
            sc = _inverse(a, rho) if io[13] != f4(0.0) else f4(f4(1.0) / rho)
            _inputs(x[s], sc, io, u4(in_op), sample, u4(number), k0, k1, v)
            _product(weight, v, by_columns, False, y[s], segment)
            if w_noise == 1:
                read[0] = _norm(v)
            elif w_noise == 2:
                for j in range(n_in):
                    squares[j] = f4(v[j] * v[j])
                _product(weight, squares, by_columns, True, read, segment)
            factor = f4(f4(io[8] * (a if a > f4(0.0) else f4(1.0))) * rho)
            if not _outputs(
                y[s], read, w_noise, deviation, factor, io, u4(out_op), sample, u4(number), k0, k1
            ):
                break
