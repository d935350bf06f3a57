"""Mirrors of the weight processes, flat over the cells."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import exp32, fma32, log32
from rpukit._exact.philox import block, normal, uniform, word
from rpukit.analog._steps import clip, hold

f4, u4, u8 = np.float32, np.uint32, np.uint64

OP_DIFFUSION, OP_RESET, OP_WRITE_NOISE, OP_DRIFT = u4(10), u4(11), u4(12), u4(14)


@jit
def clip_weights(start, stop, low, high, weight):
    """Clip cells ``start`` to ``stop - 1`` to their bounds."""
    for i in range(start, stop):
        weight[i] = clip(weight[i], low[i], high[i])


@jit
def decay(start, stop, alpha, scale, bias, low, high, weight):
    """Relax cells towards their bias; empty arrays stand for no bias and no bounds."""
    for i in range(start, stop):
        b = bias[i] if bias.size else f4(0.0)
        factor = hold(fma32(alpha, f4(scale[i] - f4(1.0)), f4(1.0)))
        w = fma32(hold(f4(weight[i] - b)), factor, b)
        weight[i] = clip(w, low[i], high[i]) if low.size else hold(w)


@jit
def diffusion(start, stop, first, event, rate, low, high, weight, k0, k1):
    """Add one step of a random walk; empty bounds stand for none; ``first`` is cell 0."""
    for i in range(start, stop):
        xi = normal(word(k0, k1, OP_DIFFUSION, u8(first + i), u8(event), u4(0)))
        w = fma32(rate[i], xi, weight[i])
        weight[i] = clip(w, low[i], high[i]) if low.size else hold(w)


@jit
def reset(
    start,
    stop,
    n_in,
    first_col,
    n_col,
    first,
    prob,
    std,
    event,
    bias,
    chosen,
    low,
    high,
    weight,
    k0,
    k1,
):
    """Reset rows ``start`` to ``stop - 1`` in ``n_col`` columns, modulo n_in."""
    for row in range(start, stop):
        for c in range(n_col):
            i = row * n_in + (first_col + c) % n_in
            if chosen.size and chosen[i] == f4(0.0):
                continue
            b0, b1, _, _ = block(k0, k1, OP_RESET, u8(first + i), u8(event), u4(0))
            if not uniform(b0) < prob:
                continue
            w = fma32(std, normal(b1), bias[i] if bias.size else f4(0.0))
            weight[i] = clip(w, low[i], high[i]) if low.size else hold(w)


@jit
def write_noise(start, stop, std, event, persistent, weight, k0, k1):
    """Set visible weights to the persistent ones plus fresh noise."""
    for i in range(start, stop):
        xi = normal(word(k0, k1, OP_WRITE_NOISE, u8(i), u8(event), u4(0)))
        weight[i] = hold(fma32(std, xi, persistent[i]))


@jit
def drift(
    start,
    stop,
    first,
    event,
    now,
    nu,
    nu_std,
    nu_k,
    log_g0,
    wg_ratio,
    g_offset,
    w_offset,
    offset,
    noise_std,
    tol,
    nu_cells,
    low,
    high,
    weight,
    origin,
    previous,
    written,
    k0,
    k1,
):
    """Let cells drift since they were written; empty arrays stand for one nu and no bounds."""
    for i in range(start, stop):
        w = weight[i]
        if event and abs(f4(w - previous[i])) > tol:
            origin[i], previous[i], written[i] = w, w, now
            continue
        if not event:
            origin[i], written[i] = w, np.float64(0.0)
        b0, b1 = u4(0), u4(0)
        if nu_std != f4(0.0) or noise_std != f4(0.0):
            b0, b1, _, _ = block(k0, k1, OP_DRIFT, u8(first + i), u8(event), u4(0))
        rate = nu_cells[i] if nu_cells.size else nu
        if nu_std != f4(0.0):
            rate = hold(f4(rate * fma32(nu_std, normal(b0), f4(1.0))))
        if nu_k != f4(0.0):
            g = hold(f4(f4(hold(f4(w - w_offset)) / wg_ratio) + g_offset))
            if g > f4(0.0):
                rate = hold(fma32(f4(-nu_k), f4(log32(g) - log_g0), rate))
        age = max(hold(f4(now - written[i])), f4(1.0))
        f = hold(exp32(f4(f4(-rate) * log32(age))))
        w = hold(fma32(offset, f4(f - f4(1.0)), hold(f4(origin[i] * f))))
        if noise_std != f4(0.0):
            w = fma32(noise_std, normal(b1), w)
        w = clip(w, low[i], high[i]) if low.size else hold(w)
        weight[i], previous[i] = w, w
