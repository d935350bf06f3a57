"""Mirrors of the transfer family: choppers, reads, the digital buffer, writes, the fast rate."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import fma32, u2f
from rpukit._philox import block, normal, uniform, word
from rpukit.analog._mirror.forward import _clip, _convert
from rpukit.analog._mirror.planes import planes_at
from rpukit.analog._mirror.pulses import (
    BITS,
    NUMBER,
    OP_STEP,
    OP_WRITE_NOISE,
    UP,
    _popcount,
    philox2x32,
)
from rpukit.analog._mirror.update import OP_D, OP_X, _rounded, _scales, _train

f4, i4, u4, u8 = np.float32, np.int32, np.uint32, np.uint64

OP_CHOPPER = u4(16)
NEGATIVE, BEGINS, FLIPS = 1, 2, 4  # what turns say


@nb.njit(nogil=True, error_model="numpy")
def chop_samples(
    start,
    stop,
    n_event,
    first_slice,
    offset,
    period,
    number,
    regular_0,
    regular_1,
    prob,
    v,
    chopper,
    switched,
    out,
    turns,
    k0,
    k1,
):
    """Turn lines ``start`` to ``stop - 1`` of a batch round by the choppers of their slices."""
    n_batch, n_slice = v.shape
    signs = np.empty((2, stop - start), f4)
    reads = np.empty(stop - start, np.int64)
    for j in range(start, stop):
        event = j - first_slice + (n_slice if j < first_slice else 0)
        sign = f4(chopper[j])
        after, read = sign, n_batch
        if event < n_event:
            flips = regular_1 if j < first_slice else regular_0
            if prob > f4(0.0):
                n = u8(number) + u8(event)
                w = word(k0, k1, OP_CHOPPER, u8(n & u8(4095)), u8(n >> u8(12)), u4(0))
                flips |= uniform(w) < prob
            after, read = f4(-sign) if flips else sign, offset + event * period
            before = switched.size > 0 and switched[j] != 0
            turns[event] = (
                (NEGATIVE if sign < f4(0.0) else 0)
                | (BEGINS if before else 0)
                | (FLIPS if flips else 0)
            )
        signs[0, j - start], signs[1, j - start], reads[j - start] = sign, after, read
    for s in range(n_batch):
        for j in range(start, stop):
            k = j - start
            out[s, j] = f4(v[s, j] * (signs[0, k] if s <= reads[k] else signs[1, k]))


@nb.njit(nogil=True, error_model="numpy")
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


@nb.njit(nogil=True, error_model="numpy")
def _run_of_pulses(step, run, w, p, g, up, n, j, sample, i, k0, k1):
    """Apply the n pulses of one sample to one cell."""
    s0, s1, _, _ = block(k0, k1, OP_STEP, u8(i), sample, u4(0))
    noisy, xi = g[0] != f4(0.0), f4(0.0)
    if noisy:
        b0, b1 = philox2x32(u4(u4(j) >> u4(1)), s1, s0)
        xi = f4(normal(b1 if u4(j) & u4(1) else b0))
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


@nb.njit(nogil=True, error_model="numpy")
def _shown(noise, w, k0, k1, cell, sample):
    """Show a cell through the noise of writing."""
    return fma32(noise, f4(normal(word(k0, k1, OP_WRITE_NOISE, cell, sample, u4(0)))), w)


@nb.njit(nogil=True, error_model="numpy")
def _replay(
    step, run, flip, implicit, columns, last, first_sample, planes, g, x_train, d_train, slice_,
    k0, k1, w, pulsed, n_in, drawn,
):  # fmt: skip
    """Walk the pulses of samples 0 to ``last`` on a slice: its weights, the last to pulse each."""
    slotted = implicit == 0 and x_train.shape[1] == 1
    for s in range(last + 1):
        fixed, lines = x_train[s, :, slice_], d_train[s]
        if not columns:
            fixed, lines = d_train[s, :, slice_], x_train[s]
        fired = u4(0)
        for k in range(fixed.size):
            fired = u4(fired | fixed[k])
        if fired == u4(0):
            continue
        sample = u8(first_sample) + u8(s)
        for line in range(w.size):
            if slotted and u4(u4(lines[0, line] & fixed[0]) & BITS) == u4(0):
                continue
            i, j = (line, slice_) if columns else (slice_, line)
            count, up = _coincidences(x_train[s], d_train[s], implicit, i, j)
            if count:
                if pulsed[line] < 0:
                    planes_at(planes, i, j, n_in, drawn[line])
                w[line] = _run_of_pulses(
                    step, run, w[line], drawn[line], g, up != flip, count, j, sample, i, k0, k1
                )
                pulsed[line] = s


@nb.njit(nogil=True, error_model="numpy")
def _one(rule, io, number, k0, k1):
    """Convert the input 1 of a read."""
    if rule[7] != f4(2.0):
        return f4(1.0)
    b0, b1, _, _ = block(k0, k1, u4(1) if rule[9] != f4(0.0) else u4(3), u8(0), number, u4(0))
    v = _clip(_convert(f4(1.0), io[1], io[10] != f4(0.0), b0), io[0])
    if io[2] > f4(0.0):
        v = fma32(io[2], f4(normal(b1)), v)
    return f4(v * io[3]) if v < f4(0.0) else v


@nb.njit(nogil=True, error_model="numpy")
def _read_line(w, v, rule, io, deviation, line, number, k0, k1):
    """Multiply one weight by a converted 1 through the periphery."""
    if rule[7] == f4(0.0):
        return w
    y = fma32(w, v, f4(0.0))
    if rule[7] == f4(1.0):
        return f4(y * io[8])
    rounds, reads = io[11] != f4(0.0) and io[5] > f4(0.0), rule[8] != f4(0.0) and io[9] > f4(0.0)
    b0, b1, b2 = u4(0), u4(0), u4(0)
    if rounds or reads or deviation > f4(0.0):
        out_op = u4(2) if rule[9] != f4(0.0) else u4(4)
        b0, b1, b2, _ = block(k0, k1, out_op, u8(line), number, u4(0))
    if reads:
        variance = f4(v * v) if rule[8] == f4(1.0) else f4(abs(w) * f4(v * v))
        y = fma32(f4(io[9] * f4(np.sqrt(variance))), f4(normal(b0)), y)
    if y < f4(0.0):
        y = f4(y * io[7])
    if deviation > f4(0.0):
        y = fma32(deviation, f4(normal(b1)), y)
    return f4(_clip(_convert(y, io[5], rounds, b2), io[4]) * io[8])


@nb.njit(nogil=True, error_model="numpy")
def _gathered(kind, v, u, sign, turn, rule, buffer, mean, past, slice_, line):
    """Put one read in the buffer; give the number of pulses that are taken out."""
    length, momentum, cap = rule[1], rule[2], rule[5]
    omega, unit = buffer[slice_, line], f4(1.0)
    if kind == 2:
        unit = rule[0]
        omega = fma32(u, v, omega)
        q = f4(omega / unit)
    else:
        fresh = v
        if kind == 4:
            if turn & BEGINS:
                past[slice_, line] = mean[slice_, line]
            fresh = f4(v - past[slice_, line])
            rest = f4(f4(f4(1.0) - rule[4]) * mean[slice_, line])
            mean[slice_, line] = fma32(rule[4], v, rest)
        else:
            omega = f4(rule[3] * omega)
        omega = fma32(f4(sign * fresh), u, omega)
        q = omega
    n = f4(np.trunc(min(max(q, f4(-length)), length)))
    if n != f4(0.0):
        if rule[6] != f4(0.0):
            omega = f4(momentum * omega)
        else:
            omega = fma32(f4(f4(-f4(f4(1.0) - momentum)) * n), unit, omega)
            if cap > f4(0.0):
                omega = min(max(omega, f4(-cap)), cap)
    buffer[slice_, line] = omega
    return n


@nb.njit(nogil=True, error_model="numpy")
def transfer_read(
    start,
    stop,
    kind,
    replay,
    step,
    run,
    n_plane,
    flip,
    implicit,
    write_noise,
    first_slice,
    offset,
    period,
    reads,
    first_sample,
    number,
    kappas,
    writes,
    slices,
    turns,
    line_sign,
    rates,
    z,
    planes,
    g,
    x_train,
    d_train,
    weight,
    persistent,
    io,
    line_noise,
    rule,
    buffer,
    mean,
    past,
    chopper,
    switched,
    d,
    k0,
    k1,
    r0,
    r1,
):
    """Read the slices of events ``start`` to ``stop - 1``; arrays that are not there are empty."""
    n_in, columns = weight.shape[1], rule[9] != f4(0.0)
    n_slice, n_line = (n_in, weight.shape[0]) if columns else weight.shape
    w, pulsed = np.empty(n_line, f4), np.empty(n_line, np.int64)
    drawn = np.empty((n_line if replay else 0, n_plane), f4)
    for e in range(start, stop):
        slice_ = slices[e] if slices.size else first_slice + e
        later = 1 if slice_ >= n_slice else 0
        slice_ -= later * n_slice
        last = offset + e // reads * period
        turn = turns[e] if turns.size else i4(0)
        u = f4(kappas[later] / rates[last]) if rates.size else kappas[later]
        one = _one(rule, io, u8(number) + u8(e), r0, r1)
        if replay:
            stored = persistent if write_noise else weight
            for line in range(n_line):
                w[line], pulsed[line] = (
                    stored[line, slice_] if columns else stored[slice_, line],
                    -1,
                )
            _replay(
                step, run, flip, implicit, columns, last, first_sample, planes, g, x_train,
                d_train, slice_, k0, k1, w, pulsed, n_in, drawn,
            )  # fmt: skip
        for line in range(n_line):
            i, j = (line, slice_) if columns else (slice_, line)
            v = z[e, line] if z.size else weight[i, j]
            if replay and not write_noise:
                v = w[line]
            elif replay and pulsed[line] >= 0:
                cell = u8(u8(i) * u8(n_in) + u8(j))
                v = _shown(g[7], w[line], k0, k1, cell, u8(first_sample) + u8(pulsed[line]))
            if z.size == 0:
                deviation = line_noise[line] if line_noise.size else io[6]
                v = _read_line(v, one, rule, io, deviation, line, u8(number) + u8(e), r0, r1)
            if kind == 1:
                d[e, line] = f4(-v)
                continue
            sign = f4(-1.0) if turn & NEGATIVE else f4(1.0)
            if line_sign.size:
                sign = f4(sign * f4(line_sign[line]))
            n = _gathered(kind, v, u, sign, turn, rule, buffer, mean, past, slice_, line)
            d[e, line] = f4(-n) if writes & (2 if later else 1) else f4(0.0)
        if turn & FLIPS:
            chopper[slice_] = 1 if turn & NEGATIVE else -1
        if switched.size:
            switched[slice_] = 1 if turn & FLIPS else 0


@nb.njit(nogil=True, error_model="numpy")
def transfer_write(
    start,
    stop,
    columns,
    step,
    run,
    n_plane,
    flip,
    write_noise,
    lr,
    granularity,
    base_length,
    unit_scale,
    managed,
    managed_length,
    grad_scale,
    res,
    stochastic_rounding,
    first_slice,
    number,
    n_word,
    slices,
    d,
    planes,
    g,
    weight,
    persistent,
    n_pulses,
    pulse_counts,
    k0,
    k1,
):
    """Write the slices of events ``start`` to ``stop - 1``, and count the pulses of each."""
    n_in = weight.shape[1]
    n_slice, n_line = (n_in, weight.shape[0]) if columns else weight.shape
    stored = persistent if write_noise else weight
    cell_planes = np.empty(n_plane, f4)
    x_word, d_word = np.empty(n_word, u4), np.empty(n_word, u4)
    op, op_slice = (OP_D, OP_X) if columns else (OP_X, OP_D)
    for e in range(start, stop):
        slice_ = slices[e] if slices.size else first_slice + e
        slice_ -= n_slice if slice_ >= n_slice else 0
        largest, one, sample = f4(0.0), f4(1.0), u8(number) + u8(e)
        for line in range(n_line):
            largest = max(largest, abs(d[e, line]))
        length, of_x, of_d = _scales(
            lr, granularity, i4(base_length), unit_scale, managed, managed_length, grad_scale,
            one if columns else largest, largest if columns else one,
        )  # fmt: skip
        of_line, of_slice = (of_d, of_x) if columns else (of_x, of_d)
        q = _rounded(of_slice, res, stochastic_rounding, k0, k1, op_slice, u8(slice_), sample)
        _train(q, False, length, n_word, k0, k1, op_slice, u8(slice_), sample, x_word)
        for line in range(n_line):
            v = d[e, line]
            if v == f4(0.0):
                continue
            i, j = (line, slice_) if columns else (slice_, line)
            at = u8(line)
            p = _rounded(f4(abs(v) * of_line), res, stochastic_rounding, k0, k1, op, at, sample)
            _train(p, False, length, n_word, k0, k1, op, at, sample, d_word)
            count = i4(0)
            for w in range(n_word):
                count += _popcount(u4(x_word[w] & d_word[w]))
            if count == 0:
                continue
            up, before = (v < f4(0.0)) != flip, stored[i, j]
            planes_at(planes, i, j, n_in, cell_planes)
            after = _run_of_pulses(
                step, run, before, cell_planes, g, up, count, j, sample, i, k0, k1
            )
            stored[i, j] = after
            if write_noise:
                cell = u8(u8(i) * u8(n_in) + u8(j))
                weight[i, j] = _shown(g[7], after, k0, k1, cell, sample)
            if pulse_counts.size:
                pulse_counts[i, j] += count
            n_pulses[e] += count


@nb.njit(nogil=True, error_model="numpy")
def _followed(m, v, t):
    if not m > f4(0.0):
        return v
    return fma32(t, v, f4(f4(f4(1.0) - t) * m)) if v > f4(0.0) else m


@nb.njit(nogil=True, error_model="numpy")
def sample_maxima(start, stop, call, x, d, maxima, status):
    """Find the largest |x| and |d| of samples ``start`` to ``stop - 1``."""
    for s in range(start, stop):
        largest, finite = f4(0.0), True
        for j in range(x.shape[1]):
            finite &= np.isfinite(x[s, j])
            largest = max(largest, abs(x[s, j]))
        maxima[0, s], largest = largest, f4(0.0)
        for i in range(d.shape[1]):
            finite &= np.isfinite(d[s, i])
            largest = max(largest, abs(d[s, i]))
        maxima[1, s] = largest
        if not finite and status[0] == 0:
            status[0] = call


@nb.njit(nogil=True, error_model="numpy")
def auto_scale(start, stop, factor, t, maxima, running, rates):
    """Follow the maxima of samples ``start`` to ``stop - 1``, in order; give the rate of each."""
    m_x, m_d = running[0], running[1]
    for s in range(start, stop):
        m_x, m_d = _followed(m_x, maxima[0, s], t), _followed(m_d, maxima[1, s], t)
        both = m_x > f4(0.0) and m_d > f4(0.0)
        rates[s] = f4(factor / f4(m_x * m_d)) if both else factor
    running[0], running[1] = m_x, m_d
