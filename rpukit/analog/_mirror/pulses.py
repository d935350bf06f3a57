"""Mirror of the pulsed update."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import fma32, u2f
from rpukit._philox import block, normal, word

f4, i4, u4, u8 = np.float32, np.int32, np.uint32, np.uint64

OP_STEP, OP_WRITE_NOISE = u4(7), u4(13)
SLOTS = 31
UP, COLUMN = u4(0x80000000), u4(0x7FFFFFFF)  # a hit: its direction, and its column
BITS = COLUMN
NUMBER = u4(0x1FFF)  # of pulses; in a word of d the bit length follows


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _popcount(v):
    v = u4(v - u4(u4(v >> u4(1)) & u4(0x55555555)))
    v = u4(u4(v & u4(0x33333333)) + u4(u4(v >> u4(2)) & u4(0x33333333)))
    v = u4(u4(v + u4(v >> u4(4))) & u4(0x0F0F0F0F))
    return i4(u4(v * u4(0x01010101)) >> u4(24))


@nb.njit(nogil=True, error_model="numpy")
def slot_lists(x_train, offsets, columns):
    """List, for each slot of each sample, the columns that fire in it, with their signs.

    Positive ones first: runs of one direction are easy to foretell for a processor. ``offsets``
    (n_batch * 31 + 1); with ``columns`` empty only they are filled.
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
            for sign in (u4(0), UP):
                for j in range(n_in):
                    v = u4(x[j] & BITS) if u4(x[j] & UP) == sign else u4(0)
                    while v:
                        low = _popcount(u4(u4(v & u4(u4(0) - v)) - u4(1)))
                        columns[at[low]] = u4(u4(j) | sign)
                        at[low] += 1
                        v = u4(v & u4(v - u4(1)))
    if columns.size == 0:
        offsets[n_batch * SLOTS] = total


@nb.njit(nogil=True, error_model="numpy")
def _hits_of_slot(listed, turn, hit, count):
    """Take the list of a slot; ``turn`` turns the directions round."""
    for a in range(listed.size):
        hit[a] = u4(listed[a] ^ turn)
        count[a] = 1
    return listed.size


@nb.njit(nogil=True, error_model="numpy")
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


@nb.njit(nogil=True, error_model="numpy")
def _ups_first(n_hit, hit, count, downs, down_counts):
    """Bring hits of one direction together; their cells are independent."""
    n_up, n_down = 0, 0
    for a in range(n_hit):
        h, n = hit[a], count[a]
        hit[n_up], count[n_up] = h, n
        downs[n_down], down_counts[n_down] = h, n
        n_up += h >= UP
        n_down += h < UP
    for a in range(n_down):
        hit[n_up + a], count[n_up + a] = downs[a], down_counts[a]


@nb.njit(nogil=True, error_model="numpy")
def _of_one_polarity(n_hit, polarity, hit, count):
    """Keep the hits of one direction, and let them go up."""
    kept = 0
    for a in range(n_hit):
        if (hit[a] >= UP) == (polarity > 0):
            hit[kept], count[kept] = u4(hit[a] | UP), count[a]
            kept += 1
    return kept


@nb.njit(nogil=True, error_model="numpy", inline="always")
def philox2x32(c0, c1, k):
    """Compute one Philox2x32-10 block; all arguments and results are uint32."""
    for _ in range(10):
        p = u8(0xD256D193) * u8(c0)
        c0, c1 = u4(u4(p >> u8(32)) ^ k ^ c1), u4(p)
        k = u4(k + u4(0x9E3779B9))
    return c0, c1


@nb.njit(nogil=True, error_model="numpy")
def _first_normals(n_hit, n_in, s0, s1, hit, words, xi):
    """Draw for the first pulse of every hit: two neighbouring cells share a block."""
    raw = words[2]
    if 2 * n_hit < n_in:
        for a in range(n_hit):
            j = u4(hit[a] & COLUMN)
            w0, w1 = philox2x32(u4(j >> u4(1)), s1, s0)
            raw[a] = w1 if j & u4(1) else w0
    else:
        for q in range((n_in + 1) >> 1):
            words[0, q], words[1, q] = philox2x32(u4(q), s1, s0)
        for a in range(n_hit):
            j = u4(hit[a] & COLUMN)
            raw[a] = words[j & u4(1), j >> u4(1)]
    for a in range(n_hit):
        xi[a] = normal(raw[a])


@nb.njit(nogil=True, error_model="numpy")
def _walk(step, n_left, planes, i, g, stored, s0, s1, hit, count, xi4):
    """Apply the pulses after the first, four at a time: all draws first, which vectorises."""
    noisy = g[0] != f4(0.0)
    pulse = 1
    while n_left:
        if noisy:
            number = u4((pulse + 1) >> 1)
            for a in range(n_left):
                j = u4(hit[a] & COLUMN)
                b0, b1 = philox2x32(j, u4(s1 ^ number), s0)
                b2, b3 = philox2x32(j, u4(s1 ^ u4(number + u4(1))), s0)
                xi4[0, a], xi4[1, a] = normal(b0), normal(b1)
                xi4[2, a], xi4[3, a] = normal(b2), normal(b3)
        kept = 0
        for a in range(n_left):
            j, n, up = hit[a] & COLUMN, count[a], hit[a] >= UP
            w = stored[i, j]
            for k in range(min(n - pulse, 4)):
                w = step(w, planes[:, i, j], g, up, xi4[k, a])
            stored[i, j] = w
            hit[kept], count[kept] = hit[a], n
            kept += n > pulse + 4
        pulse += 4
        n_left = kept


@nb.njit(nogil=True, error_model="numpy")
def _apply(step, run, n_hit, planes, i, g, stored, hit, count, xi):
    """Apply runs taken at once and first pulses; gather in front the hits that go on."""
    n_left = 0
    for a in range(n_hit):
        j, n, up = hit[a] & COLUMN, count[a], hit[a] >= UP
        w = stored[i, j]
        taken = False
        if n > 1:
            taken, w = run(w, planes[:, i, j], g, up, n, xi[a])
        if not taken:
            w = step(w, planes[:, i, j], g, up, xi[a])
            hit[n_left], count[n_left] = hit[a], n
            n_left += n > 1
        stored[i, j] = w
    return n_left


@nb.njit(nogil=True, error_model="numpy")
def _show(write_noise, i, first_cell, first_sample, last, k0, k1, stored, weight):
    """Draw the write noise of the cells that got pulses."""
    for j in range(last.size):
        if last[j] >= 0:
            cell, sample = u8(first_cell + u8(j)), u8(first_sample + u8(last[j]))
            z = normal(word(k0, k1, OP_WRITE_NOISE, cell, sample, u4(0)))
            weight[i, j] = fma32(write_noise, z, stored[i, j])


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

    ``offsets`` and ``columns``: `slot_lists`, or empty; ``pulse_counts`` counts by cell, or empty.
    """
    n_batch, n_word, n_in = x_train.shape
    stored = persistent if write_noise else weight
    hit, count = np.empty(n_in + 1, u4), np.empty(n_in + 1, i4)
    downs, down_counts = np.empty(n_in + 1, u4), np.empty(n_in + 1, i4)
    words, xi = np.zeros((3, n_in), u4), np.zeros(n_in, f4)
    xi4 = np.zeros((4, n_in), f4)
    last = np.empty(n_in if write_noise else 0, np.int64)
    noisy = g[0] != f4(0.0)
    for i in range(start, stop):
        last[:] = -1
        first_cell = u8(u8(i) * u8(n_in))
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
                _ups_first(n_hit, hit, count, downs, down_counts)
            if polarity != 0:
                n_hit = _of_one_polarity(n_hit, polarity, hit, count)
            for a in range(n_hit):
                n_pulses[i] += count[a]
            if pulse_counts.size:
                for a in range(n_hit):
                    pulse_counts[i, hit[a] & COLUMN] += count[a]
            if write_noise:
                for a in range(n_hit):
                    last[hit[a] & COLUMN] = s
            s0, s1, _, _ = block(k0, k1, OP_STEP, u8(i), sample, u4(0))
            if noisy:
                _first_normals(n_hit, n_in, s0, s1, hit, words, xi)
            n_left = _apply(step, run, n_hit, planes, i, g, stored, hit, count, xi)
            if n_left:
                _walk(step, n_left, planes, i, g, stored, s0, s1, hit, count, xi4)
        if write_noise:
            _show(g[7], i, first_cell, u8(first_sample), last, k0, k1, stored, weight)
