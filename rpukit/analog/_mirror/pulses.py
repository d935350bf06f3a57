"""Mirror of the pulsed update."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32, u2f
from rpukit._exact.philox import block, normal, word
from rpukit.analog._mirror.strips import CAP, COLUMN, PAD, UP, philox2x32, pulse_row

f4, i4, u4, u8 = np.float32, np.int32, np.uint32, np.uint64

OP_STEP, OP_WRITE_NOISE = u4(7), u4(13)
SLOTS = 31
BITS = COLUMN
MOST = 8191  # pulses of one sample on one cell
NUMBER = u4(0x1FFF)  # mask of the number of pulses; in a word of d the bit length follows


@jit(forceinline=True)
def _popcount(v):
    v = u4(v - u4(u4(v >> u4(1)) & u4(0x55555555)))
    v = u4(u4(v & u4(0x33333333)) + u4(u4(v >> u4(2)) & u4(0x33333333)))
    v = u4(u4(v + u4(v >> u4(4))) & u4(0x0F0F0F0F))
    return i4(u4(v * u4(0x01010101)) >> u4(24))


@jit
def slot_lists(x_train, offsets, columns):
    """List, for each slot of each sample, the columns that fire in it, with their signs.

    ``offsets`` (n_batch * 31 + 1); with ``columns`` empty only they are filled.
    """
    n_batch, _, n_in = x_train.shape
    at = np.zeros(SLOTS, np.int64)
    total = np.int64(0)
    for s in range(n_batch):
        x = x_train[s, 0]
        if columns.size == 0:
            at[:] = 0
            for j in range(n_in):
                v = u4(x[j] & BITS)
                while v:
                    low = _popcount(u4(u4(v & u4(u4(0) - v)) - u4(1)))
                    at[low] += 1
                    v = u4(v & u4(v - u4(1)))
            for k in range(SLOTS):
                offsets[s * SLOTS + k] = total
                total += at[k]
        else:
            for k in range(SLOTS):
                at[k] = offsets[s * SLOTS + k]
            for j in range(n_in):
                v = u4(x[j] & BITS)
                while v:
                    low = _popcount(u4(u4(v & u4(u4(0) - v)) - u4(1)))
                    columns[at[low]] = u4(u4(j) | u4(x[j] & UP))
                    at[low] += 1
                    v = u4(v & u4(v - u4(1)))
    if columns.size == 0:
        offsets[n_batch * SLOTS] = total


@jit
def _hits_of_slot(listed, turn, hit, count):
    """Read the list of a slot; ``turn`` reverses the directions."""
    for a in range(listed.size):
        hit[a] = u4(listed[a] ^ turn)
        count[a] = 1
    return listed.size


@jit
def _hits_of_trains(x_train, d_train, implicit, i, turn, hit, count):
    """Find the columns that a sample pulses in row i; without branches: hits are random."""
    n_word, n_in = x_train.shape
    n_hit = 0
    if implicit == 2:
        length, n_d = f4(d_train[0, i] >> u4(13) & NUMBER), u4(d_train[0, i] & NUMBER)
        for j in range(n_in):
            n = i4(np.rint(f4(f4(u4(u4(x_train[0, j] & NUMBER) * n_d)) / length)))
            hit[n_hit], count[n_hit] = u4(u4(j) | u4(u4(x_train[0, j] ^ turn) & UP)), n
            n_hit += n != 0
        return n_hit
    if implicit == 1:
        d = u2f(d_train[0, i])
        for j in range(n_in):
            n = i4(np.rint(abs(f4(d * u2f(x_train[0, j])))))
            hit[n_hit], count[n_hit] = u4(u4(j) | u4(u4(x_train[0, j] ^ turn) & UP)), n
            n_hit += n != 0
        return n_hit
    for j in range(n_in):
        sign = x_train[0, j]
        n = _popcount(u4(sign & d_train[0, i] & BITS))
        for w in range(1, n_word):
            n += _popcount(u4(x_train[w, j] & d_train[w, i] & BITS))
            sign = u4(sign | x_train[w, j])
        hit[n_hit], count[n_hit] = u4(u4(j) | u4(u4(sign ^ turn) & UP)), n
        n_hit += n != 0
    return n_hit


@jit
def _of_one_polarity(n_hit, polarity, hit, count):
    """Keep the hits of one direction, as up pulses."""
    kept = 0
    for a in range(n_hit):
        if (hit[a] >= UP) == (polarity > 0):
            hit[kept], count[kept] = u4(hit[a] | UP), count[a]
            kept += 1
    return kept


@jit
def _first_normals(n_hit, n_in, first_col, s0, s1, hit, words, xi):
    """Draw the normals of the first pulse of every hit; two neighbouring cells share a block.

    ``first_col``, the number of column 0 in its tile, is even.
    """
    raw, half = words[2], u4(first_col) >> u4(1)
    if 2 * n_hit < n_in:
        for a in range(n_hit):
            j = u4(hit[a] & COLUMN)
            w0, w1 = philox2x32(u4(half + u4(j >> u4(1))), s1, s0)
            raw[a] = w1 if j & u4(1) else w0
    else:
        for q in range((n_in + 1) >> 1):
            words[0, q], words[1, q] = philox2x32(u4(half + u4(q)), s1, s0)
        for a in range(n_hit):
            j = u4(hit[a] & COLUMN)
            raw[a] = words[j & u4(1), j >> u4(1)]
    for a in range(n_hit):
        xi[a] = normal(raw[a])


@jit
def _show(write_noise, i, first_cell, first_sample, last, k0, k1, stored, weight):
    """Draw the write noise of the cells that got pulses."""
    for j in range(last.size):
        if last[j] >= 0:
            cell, sample = u8(first_cell + u8(j)), u8(first_sample + u8(last[j]))
            z = normal(word(k0, k1, OP_WRITE_NOISE, cell, sample, u4(0)))
            weight[i, j] = fma32(write_noise, z, stored[i, j])


@jit
def pulsed_update(
    start,
    stop,
    step,
    run,
    dear,
    flip,
    polarity,
    implicit,
    write_noise,
    first_sample,
    first_row,
    first_col,
    tile_cols,
    planes,
    blank,
    g,
    x_train,
    d_train,
    offsets,
    columns,
    weight,
    persistent,
    n_pulses,
    pulse_counts,
    k0,
    k1,
):
    """Pulse the cells of rows ``start`` to ``stop - 1``; ``n_pulses[i]`` counts those of row i.

    Row 0 is number ``first_row`` of its tile, column 0 number ``first_col`` of ``tile_cols``.
    ``planes`` are those of all rows, or of rows ``start`` on where they are fewer; ``dear``: see
    `pulse_row`; ``blank``: a tuple of as many zeros as there are planes; ``offsets`` and
    ``columns``: `slot_lists`, or empty; ``pulse_counts`` counts by cell, or empty.
    """
    n_batch, n_word, n_in = x_train.shape
    stored = persistent if write_noise else weight
    hit, count = np.zeros(n_in + PAD, u4), np.zeros(n_in + PAD, i4)
    words, xi = np.zeros((3, n_in), u4), np.zeros(n_in + PAD, f4)
    flat, flat_stored, n_cell = planes.reshape(-1), stored.reshape(-1), u8(planes[0].size)
    first = 0 if planes.shape[1] == weight.shape[0] else start
    held, strip = np.zeros(CAP, f4), np.zeros(len(blank) * CAP, f4)
    left, order, places = np.zeros(CAP, i4), np.zeros(CAP, i4), np.zeros(MOST + 1, i4)
    held_b, strip_b, xi_b = np.zeros(CAP, f4), np.zeros(len(blank) * CAP, f4), np.zeros(CAP, f4)
    hit_b, count_b, xi_c = np.zeros(CAP, u4), np.zeros(CAP, i4), np.zeros(CAP, f4)
    last = np.empty(n_in if write_noise else 0, np.int64)
    noisy = g[0] != f4(0.0)
    for i in range(start, stop):
        last[:] = -1
        here = planes[:, i if planes.shape[1] == weight.shape[0] else 0]
        row = u8(u8(first_row) + u8(i))
        first_cell = u8(u8(row * u8(tile_cols)) + u8(first_col))
        here, stored_here = flat[(i - first) * n_in :], flat_stored[i * n_in :]
        for s in range(n_batch):
            word_d = u4(0)
            for w in range(n_word):
                word_d = u4(word_d | d_train[s, w, i])
            if word_d == u4(0):
                continue
            turn = u4(u4(word_d & UP) ^ (UP if flip else u4(0)))
            fired = u4(word_d & BITS)
            sample = u8(u8(first_sample) + u8(s))
            if offsets.size and u4(fired & u4(fired - u4(1))) == u4(0):
                at = s * SLOTS + _popcount(u4(fired - u4(1)))
                n_hit = _hits_of_slot(columns[offsets[at] : offsets[at + 1]], turn, hit, count)
            else:
                n_hit = _hits_of_trains(x_train[s], d_train[s], implicit, i, turn, hit, count)
            if polarity != 0:
                n_hit = _of_one_polarity(n_hit, polarity, hit, count)
            most, total = i4(0), np.int64(0)
            for a in range(n_hit):
                total += count[a]
                most = max(most, count[a])
            n_pulses[i] += total
            if pulse_counts.size:
                for a in range(n_hit):
                    pulse_counts[i, hit[a] & COLUMN] += count[a]
            if write_noise:
                for a in range(n_hit):
                    last[hit[a] & COLUMN] = s
            s0, s1, _, _ = block(k0, k1, OP_STEP, row, sample, u4(0))
            if noisy:
                _first_normals(n_hit, n_in, first_col, s0, s1, hit, words, xi)
            pulse_row(
                step, run, dear, s0, s1, u4(first_col), here, u8(0), n_cell, blank, g, stored_here,
                n_hit, hit, count, most, xi,
                held, strip, left, order, places, held_b, strip_b, hit_b, count_b, xi_b, xi_c,
            )  # fmt: skip
        if write_noise:
            _show(g[7], i, first_cell, u8(first_sample), last, k0, k1, stored, weight)
