"""Pulses that a slice gets from a batch before it is read, for the mirror of `transfer_read`.

The outer loop is over samples, so that values of a sample are computed once. Weights and planes
are loaded line by line, in memory order.
"""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import u2f
from rpukit._exact.philox import block, normal
from rpukit.analog._mirror.planes import planes_at
from rpukit.analog._mirror.pulses import BITS, NUMBER, OP_STEP, UP, _popcount, philox2x32

f4, i4, u4, u8 = np.float32, np.int32, np.uint32, np.uint64


@jit
def _coincidences(x_train, d_train, implicit, i, j):
    """Count the pulses of one cell in one sample, and say whether they go up."""
    sign_x, sign_d = x_train[0, j], d_train[0, i]
    if implicit == 2:
        n = f4(u4(u4(sign_x & NUMBER) * u4(sign_d & NUMBER)))
        length = f4(sign_d >> u4(13) & NUMBER)
        count = i4(np.rint(f4(n / length))) if n > f4(0.0) else i4(0)
    elif implicit == 1:
        count = i4(np.rint(abs(f4(u2f(sign_d) * u2f(sign_x)))))
    else:
        count = i4(0)
        for w in range(x_train.shape[0]):
            count += _popcount(u4(x_train[w, j] & d_train[w, i] & BITS))
            sign_x, sign_d = u4(sign_x | x_train[w, j]), u4(sign_d | d_train[w, i])
    return count, u4(u4(sign_x ^ sign_d) & UP) != u4(0)


@jit
def first_word(j, s0, s1):
    """Draw the first pulse of a cell in column j; s0 and s1 belong to row and sample."""
    b0, b1 = philox2x32(u4(u4(j) >> u4(1)), s1, s0)
    return b1 if u4(j) & u4(1) else b0


@jit
def run_of_pulses(step, run, w, p, g, up, n, j, s0, s1, xi):
    """Apply the n pulses of one sample to one cell; xi was drawn for the first."""
    noisy = g[0] != f4(0.0)
    if n > 1:
        taken, w = run(w, p, g, up, n, xi)
        if taken:
            return w
    w = step(w, p, g, up, xi)
    b0, b1 = u4(0), u4(0)
    for pulse in range(1, n):
        if noisy and pulse & 1:
            b0, b1 = philox2x32(u4(j), u4(s1 ^ u4(u4(pulse + 1) >> u4(1))), s0)
        if noisy:
            xi = f4(normal(b0 if pulse & 1 else b1))
        w = step(w, p, g, up, xi)
    return w


@jit
def gather(stored, planes, columns, slices, w, drawn):
    """Load the weights of slices, and stored planes, in memory order."""
    for line in range(w.shape[1]):
        for e in range(w.shape[0]):
            w[e, line] = stored[line, slices[e]] if columns else stored[slices[e], line]
    if planes.shape[0] > 1:
        for k in range(drawn.shape[2]):
            for line in range(w.shape[1]):
                for e in range(w.shape[0]):
                    i, j = (line, slices[e]) if columns else (slices[e], line)
                    drawn[e, line, k] = planes[k, i, j]


@jit
def _hits(x_train, d_train, implicit, columns, slice_, turn, hit, count):
    """List the lines of a slice that a sample pulses, with directions; without branches."""
    fixed, lines = (x_train, d_train) if columns else (d_train, x_train)
    n_hit, fired = 0, u4(0)
    for k in range(fixed.shape[0]):
        fired = u4(fired | fixed[k, slice_])
    if fired == u4(0):
        return 0
    if implicit == 0 and lines.shape[0] == 1:
        sign, fired = u4(u4(fired ^ turn) & UP), u4(fired & BITS)
        for line in range(lines.shape[1]):
            both = u4(lines[0, line] & fired)
            hit[n_hit] = u4(u4(line) | u4(u4(lines[0, line] & UP) ^ sign))
            count[n_hit] = _popcount(both)
            n_hit += both != u4(0)
        return n_hit
    for line in range(lines.shape[1]):
        i, j = (line, slice_) if columns else (slice_, line)
        n, up = _coincidences(x_train, d_train, implicit, i, j)
        hit[n_hit], count[n_hit] = u4(u4(line) | u4((UP if up else u4(0)) ^ turn)), n
        n_hit += n != 0
    return n_hit


@jit
def replay_pulses(
    step, run, flip, implicit, columns, lasts, first_sample, planes, g, x_train, d_train, slices,
    k0, k1, w, pulsed, n_in, drawn, first_row,
):  # fmt: skip
    """Apply the pulses of samples 0 to ``lasts[e]`` to slice e; ``pulsed``: the last with any."""
    n_event, n_line = w.shape
    hit, count = np.empty(n_line, u4), np.empty(n_line, i4)
    raw, xi, p = np.empty(n_line, u4), np.zeros(n_line, f4), np.empty(drawn.shape[2], f4)
    s0, s1 = np.empty(n_line, u4), np.empty(n_line, u4)
    turn, stored = UP if flip else u4(0), planes.shape[0] > 1
    for s in range(lasts[n_event - 1] + 1):
        sample, xs, ds = u8(first_sample) + u8(s), x_train[s], d_train[s]
        if columns:
            for line in range(n_line):
                s0[line], s1[line], _, _ = block(
                    k0, k1, OP_STEP, u8(first_row + line), sample, u4(0)
                )
        for e in range(n_event):
            slice_ = slices[e]
            if lasts[e] < s:
                continue
            n_hit = _hits(xs, ds, implicit, columns, slice_, turn, hit, count)
            if not columns and n_hit:
                a0, a1, _, _ = block(k0, k1, OP_STEP, u8(first_row + slice_), sample, u4(0))
                s0[:], s1[:] = a0, a1
            if g[0] != f4(0.0):  # separate loops, which vectorise
                for a in range(n_hit):
                    line = np.int64(hit[a] & BITS)
                    raw[a] = first_word(slice_ if columns else line, s0[line], s1[line])
                for a in range(n_hit):
                    xi[a] = normal(raw[a])
            for a in range(n_hit):
                line = np.int64(hit[a] & BITS)
                if pulsed[e, line] < 0 and not stored:
                    i, j = (line, slice_) if columns else (slice_, line)
                    planes_at(planes, first_row + i, j, n_in, drawn[e, line])
                for k in range(p.size):
                    p[k] = drawn[e, line, k]
                w[e, line] = run_of_pulses(
                    step, run, w[e, line], p, g, hit[a] >= UP, count[a],
                    slice_ if columns else line, s0[line], s1[line], xi[a],
                )  # fmt: skip
                pulsed[e, line] = s
