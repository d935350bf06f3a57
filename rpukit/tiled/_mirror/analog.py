"""Mirrors of what surrounds the product of an analog tile, and of its update, tile by tile."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.lines import copy
from rpukit._exact.math import fma32
from rpukit.analog._mirror.forward import _inputs, _inverse, _outputs, tile_scale
from rpukit.analog._mirror.pulses import pulsed_update
from rpukit.analog._mirror.update import pulse_trains
from rpukit.analog._steps import hold

f4, i8, u4, u8 = np.float32, np.int64, np.uint32, np.uint64


@jit
def tiled_analog_scale(start, stop, ints, floats, x, alpha):
    """Scales of samples ``start`` to ``stop - 1``."""
    n, n_in, mode, worst = ints[0], ints[1], ints[2], ints[3]
    threshold, step, res, bound = floats
    rows, scales = x.reshape(n, n_in), alpha.reshape(2, n)
    average = np.empty(1, f4)
    for s in range(start, stop):
        scales[1, s] = f4(1.0)
    tile_scale(start, stop, mode, worst != 0, threshold, step, res, bound, rows, scales, average)


@jit(forceinline=True)
def _scale_of(io, alpha, n, s, worst, number):
    """Scale of a sample in a round, and whether its output is 0 whatever the weights."""
    a = f4(1.0)
    if io[13] != f4(0.0):
        a = alpha[n + s if worst and number else s]
    return a, not a > f4(0.0) and io[14] != f4(0.0)


@jit
def tiled_analog_inputs(start, stop, ints, floats, x, alpha, clock, v):
    """Converted inputs of rows ``start`` to ``stop - 1``, which are (round, sample)."""
    n, n_in, r0, n0, worst, op, k0, k1 = ints[1:9]
    io, rhos = floats[:16], floats[16:]
    words = np.empty((3, n_in), u4)
    for row in range(start, stop):
        r, s = row // n, row % n
        out = v[row * n_in :][:n_in]
        a, nothing = _scale_of(io, alpha, n, s, worst, r0 + r)
        if nothing:
            out[:] = f4(0.0)
            continue
        sc = _inverse(a, rhos[r]) if io[13] != f4(0.0) else f4(f4(1.0) / rhos[r])
        sample = u8(u8(clock[0]) + u8(n0 + s))
        line = x[s * n_in :][:n_in]
        _inputs(line, sc, io, u4(op), sample, u4(r0 + r), u4(k0), u4(k1), words, out)


@jit
def tiled_analog_outputs(start, stop, ints, floats, sums, alpha, clock, deviation, y):
    """Samples ``start`` to ``stop - 1``: outputs of the first round within bounds, or the last."""
    n, rounds, n_out, n0, worst, noisy, op, k0, k1 = ints[:9]
    io, rhos = floats[:16], floats[16:]
    words, read = np.empty((3, n_out), u4), np.zeros(1, f4)
    spread = deviation[: n_out if noisy else 0]
    for s in range(start, stop):
        out = y[s * n_out :][:n_out]
        sample = u8(u8(clock[0]) + u8(n0 + s))
        for r in range(rounds):
            a, nothing = _scale_of(io, alpha, n, s, worst, r)
            if nothing:
                out[:] = f4(0.0)
                break
            copy(out, sums[(r * n + s) * n_out :])
            at = (u4(op), sample, u4(r), u4(k0), u4(k1))
            again = _outputs(out, read, 0, spread, io, at[0], at[1], at[2], at[3], at[4], words)
            factor = f4(f4(io[8] * (a if a > f4(0.0) else f4(1.0))) * rhos[r])
            for i in range(n_out):
                out[i] = f4(out[i] * factor)
            if not again:
                break


@jit
def tiled_analog_trains(start, stop, ints, floats, x, d, clock, x_train, d_train):
    """Trains of samples ``start`` to ``stop - 1``."""
    n, n_in, n_out, words, n0, length, unit, managed, managed_length, rounding, coding = ints[:11]
    lr, granularity, grad_scale, x_res, d_res = floats
    pulse_trains(
        start, stop, lr, granularity, length, unit, managed, managed_length, grad_scale, x_res,
        d_res, rounding, coding, clock[0] + n0, x.reshape(n, n_in), d.reshape(n, n_out),
        np.empty(0, f4), x_train.reshape(n, words, n_in), d_train.reshape(n, words, n_out),
        u4(ints[11]), u4(ints[12]),
    )  # fmt: skip


@jit
def tiled_analog_update(
    start, stop, step, run, dear, blank, ints, floats, weight, planes, g, x_train, d_train, clock
):
    """Pulse the cells of rows ``start`` to ``stop - 1`` of a tile of rows."""
    rows, n_in, n, words, n_plane, row0, flip, coding = ints[:8]
    cells = weight.reshape(rows, n_in)
    pulsed_update(
        start, stop, step, run, dear, flip != 0, 0, coding, False, clock[0], row0, 0, n_in,
        planes.reshape(n_plane, rows, n_in), blank, g, x_train.reshape(n, words, n_in),
        d_train.reshape(n, words, rows), np.empty(0, i8), np.empty(0, u4), cells, cells,
        np.zeros(rows, i8), np.empty((0, 0), i8), u4(ints[8]), u4(ints[9]),
    )  # fmt: skip


@jit
def tiled_rank_update(start, stop, ints, floats, weight, x, d):
    """Move rows ``start`` to ``stop - 1`` by -lr d x^T, samples ascending."""
    rows, n_in, n = ints[0], ints[1], ints[2]
    for i in range(start, stop):
        row = weight[i * n_in :][:n_in]
        for s in range(n):
            step = hold(f4(f4(-floats[0]) * d[s * rows + i]))
            for j in range(n_in):
                row[j] = hold(fma32(step, x[s * n_in + j], row[j]))


@jit
def tiled_advance(start, stop, ints, floats, clock):
    """Move a clock on."""
    clock[0] += ints[1]
