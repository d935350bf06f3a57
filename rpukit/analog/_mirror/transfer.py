"""Mirrors of the transfer family: choppers, reads, the digital buffer, writes, the fast rate."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32
from rpukit._exact.philox import block, normal, uniform, word
from rpukit.analog._mirror.forward import _add_noise, _bend, _clip, _convert, _convert_lines
from rpukit.analog._mirror.planes import planes_at
from rpukit.analog._mirror.pulses import OP_STEP, OP_WRITE_NOISE, _popcount
from rpukit.analog._mirror.replay import first_word, gather, replay_pulses, run_of_pulses
from rpukit.analog._mirror.update import OP_D, OP_X, _rounded, _scales, _train
from rpukit.analog._steps import hold

f4, i4, u4, u8 = np.float32, np.int32, np.uint32, np.uint64

OP_CHOPPER = u4(16)
NEGATIVE, BEGINS, FLIPS = 1, 2, 4  # flags of turns


@jit
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
    """Multiply lines ``start`` to ``stop - 1`` of a batch by the choppers of their slices."""
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


@jit
def _shown(noise, w, k0, k1, cell, sample):
    """Return the visible weight of a cell, with write noise."""
    return fma32(noise, f4(normal(word(k0, k1, OP_WRITE_NOISE, cell, sample, u4(0)))), w)


@jit
def _one(rule, io, number, k0, k1):
    """Convert the input 1 of a read."""
    if rule[7] != f4(2.0):
        return f4(1.0)
    b0, b1, _, _ = block(k0, k1, u4(1) if rule[9] != f4(0.0) else u4(3), u8(0), number, u4(0))
    v = _clip(_convert(f4(1.0), io[1], io[10] != f4(0.0), b0), io[0])
    if io[2] > f4(0.0):
        v = fma32(io[2], f4(normal(b1)), v)
    return f4(v * io[3]) if v < f4(0.0) else v


@jit
def _draw(op, first, number, k0, k1, words):
    """Draw words 0 to 2 of each line, the first of which has number ``first`` in its tile."""
    for line in range(words.shape[1]):
        b0, b1, b2, _ = block(k0, k1, op, u8(first + line), number, u4(0))
        words[0, line], words[1, line], words[2, line] = b0, b1, b2


@jit
def _read_lines(y, v, rule, io, line_noise, first, number, words, k0, k1):
    """Multiply the weights of a slice by a converted 1 through the periphery, in place."""
    if rule[7] == f4(0.0):
        return
    noisy, rounds = io[6] > f4(0.0) or line_noise.size > 0, io[11] != f4(0.0) and io[5] > f4(0.0)
    reads = rule[8] != f4(0.0) and io[9] > f4(0.0)
    if rule[7] == f4(2.0) and (rounds or reads or noisy):
        _draw(u4(2) if rule[9] != f4(0.0) else u4(4), first, number, k0, k1, words)
    for line in range(y.size):
        w = y[line]
        y[line] = fma32(w, v, f4(0.0))
        if reads and rule[7] == f4(2.0):
            variance = f4(v * v) if rule[8] == f4(1.0) else f4(abs(w) * f4(v * v))
            deviation = f4(io[9] * f4(np.sqrt(variance)))
            y[line] = fma32(deviation, f4(normal(words[0, line])), y[line])
    if rule[7] == f4(2.0):
        _bend(y, io[7])
        if line_noise.size:
            for line in range(y.size):
                if line_noise[line] > f4(0.0):
                    y[line] = fma32(line_noise[line], f4(normal(words[1, line])), y[line])
        elif noisy:
            _add_noise(y, io[6], words[1])
        _convert_lines(y, io[5], rounds, words[2])
        for line in range(y.size):
            y[line] = _clip(y[line], io[4])
    for line in range(y.size):
        y[line] = f4(y[line] * io[8])


@jit
def _gathered(kind, v, u, sign, turn, rule, buffer, mean, past, slice_, line):
    """Add one read to the buffer; return the number of pulses that leave it."""
    length, momentum, cap = rule[1], rule[2], rule[5]
    omega, unit = buffer[slice_, line], f4(1.0)
    if kind == 2:
        unit = rule[0]
        omega = hold(fma32(u, v, omega))
        q = f4(omega / unit)
    else:
        fresh = v
        if kind == 4:
            if turn & BEGINS:
                past[slice_, line] = mean[slice_, line]
            fresh = hold(f4(v - past[slice_, line]))
            rest = hold(f4(f4(f4(1.0) - rule[4]) * mean[slice_, line]))
            mean[slice_, line] = hold(fma32(rule[4], v, rest))
        else:
            omega = f4(rule[3] * omega)
        omega = hold(fma32(f4(sign * fresh), u, omega))
        q = omega
    n = f4(np.trunc(min(max(q, f4(-length)), length)))
    if n != f4(0.0):
        if rule[6] != f4(0.0):
            omega = f4(momentum * omega)
        else:
            omega = fma32(f4(f4(-f4(f4(1.0) - momentum)) * n), unit, omega)
            if cap > f4(0.0):
                omega = min(max(omega, f4(-cap)), cap)
    buffer[slice_, line] = hold(omega)
    return n


@jit
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
    first_row,
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
    """Read the slices of events ``start`` to ``stop - 1``; absent arrays are empty.

    Row 0 is number ``first_row`` of its tile.
    """
    n_in, columns = weight.shape[1], rule[9] != f4(0.0)
    n_slice, n_line = (n_in, weight.shape[0]) if columns else weight.shape
    n = stop - start
    w, pulsed = np.empty((n, n_line), f4), np.full((n, n_line), -1, np.int64)
    drawn = np.empty((n if replay else 0, n_line, n_plane), f4)
    passed, lasts = np.empty(n, np.int64), np.empty(n, np.int64)
    words, whole = np.empty((3, n_line), u4), write_noise or not replay
    for e in range(start, stop):
        passed[e - start] = slices[e] if slices.size else first_slice + e
        lasts[e - start] = offset + e // reads * period
    at = passed % n_slice
    if replay:
        stored = persistent if write_noise else weight
        gather(stored, planes, columns, at, w, drawn)
        replay_pulses(
            step, run, flip, implicit, columns, lasts, first_sample, planes, g, x_train, d_train,
            at, k0, k1, w, pulsed, n_in, drawn, first_row,
        )  # fmt: skip
    for e in range(start, stop):
        slice_, y = at[e - start], w[e - start]
        later = 1 if passed[e - start] >= n_slice else 0
        turn = turns[e] if turns.size else i4(0)
        u = kappas[later]
        if rates.size:
            u = hold(f4(kappas[later] / rates[lasts[e - start]]))
        for line in range(n_line if whole else 0):
            i, j = (line, slice_) if columns else (slice_, line)
            s = pulsed[e - start, line]
            if s >= 0:
                cell = u8(u8(first_row + i) * u8(n_in) + u8(j))
                y[line] = _shown(g[7], y[line], k0, k1, cell, u8(first_sample) + u8(s))
            else:
                y[line] = z[e, line] if z.size else weight[i, j]
        if z.size == 0:
            one = _one(rule, io, u8(number) + u8(e), r0, r1)
            first = first_row if columns else 0
            _read_lines(y, one, rule, io, line_noise, first, u8(number) + u8(e), words, r0, r1)
        for line in range(n_line):
            v = hold(y[line])
            if kind == 1:
                d[e, line] = f4(-v)
                continue
            sign = f4(-1.0) if turn & NEGATIVE else f4(1.0)
            if line_sign.size:
                sign = f4(sign * f4(line_sign[line]))
            n_pulse = _gathered(kind, v, u, sign, turn, rule, buffer, mean, past, slice_, line)
            d[e, line] = f4(-n_pulse) if writes & (2 if later else 1) else f4(0.0)
        if kind >= 3 and turn & FLIPS:
            chopper[slice_] = 1 if turn & NEGATIVE else -1
        if switched.size:
            switched[slice_] = 1 if turn & FLIPS else 0


@jit
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
    first_row,
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
    """Write the slices of events ``start`` to ``stop - 1``, and count the pulses of each.

    Row 0 is number ``first_row`` of its tile.
    """
    n_in = weight.shape[1]
    n_slice, n_line = (n_in, weight.shape[0]) if columns else weight.shape
    stored = persistent if write_noise else weight
    cell_planes = np.empty(n_plane, f4)
    x_word, d_word = np.empty(n_word, u4), np.empty(n_word, u4)
    op, op_slice = (OP_D, OP_X) if columns else (OP_X, OP_D)
    of_lines, of_slices = (first_row, 0) if columns else (0, first_row)
    drawn = 0 if planes.shape[0] > 1 else first_row
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
        at = u8(of_slices + slice_)
        q = _rounded(of_slice, res, stochastic_rounding, k0, k1, op_slice, at, sample)
        _train(q, False, length, n_word, k0, k1, op_slice, at, sample, x_word)
        for line in range(n_line):
            v = d[e, line]
            if v == f4(0.0):
                continue
            i, j = (line, slice_) if columns else (slice_, line)
            at = u8(of_lines + line)
            p = _rounded(f4(abs(v) * of_line), res, stochastic_rounding, k0, k1, op, at, sample)
            _train(p, False, length, n_word, k0, k1, op, at, sample, d_word)
            count = i4(0)
            for w in range(n_word):
                count += _popcount(u4(x_word[w] & d_word[w]))
            if count == 0:
                continue
            up, before = (v < f4(0.0)) != flip, stored[i, j]
            planes_at(planes, drawn + i, j, n_in, cell_planes)
            s0, s1, _, _ = block(k0, k1, OP_STEP, u8(first_row + i), sample, u4(0))
            xi = f4(normal(first_word(j, s0, s1))) if g[0] != f4(0.0) else f4(0.0)
            after = run_of_pulses(step, run, before, cell_planes, g, up, count, j, s0, s1, xi)
            stored[i, j] = after
            if write_noise:
                cell = u8(u8(first_row + i) * u8(n_in) + u8(j))
                weight[i, j] = _shown(g[7], after, k0, k1, cell, sample)
            if pulse_counts.size:
                pulse_counts[i, j] += count
            n_pulses[e] += count


@jit
def _followed(m, v, t):
    if not m > f4(0.0):
        return v
    return fma32(t, v, f4(f4(f4(1.0) - t) * m)) if v > f4(0.0) else m


@jit
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


@jit
def auto_scale(start, stop, factor, t, maxima, running, rates):
    """Update running maxima by samples ``start`` to ``stop - 1``, in order; set their rates."""
    m_x, m_d = running[0], running[1]
    for s in range(start, stop):
        m_x, m_d = _followed(m_x, maxima[0, s], t), _followed(m_d, maxima[1, s], t)
        both = m_x > f4(0.0) and m_d > f4(0.0)
        rates[s] = f4(factor / f4(m_x * m_d)) if both else factor
    running[0], running[1] = m_x, m_d
