"""Mirrors of the kernels of inference, flat over the cells: the same bits."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.lines import copy
from rpukit._exact.math import choose, exp_within32, fetch, fma32, log_normal32, tanh32
from rpukit._exact.philox import block, normal, uniform

f4, i8, u4, u8 = np.float32, np.int64, np.uint32, np.uint64

OP_PROGRAM, OP_READ_NOISE, OP_MODIFY, OP_STUCK = u4(17), u4(18), u4(19), u4(20)
CURVE = 16
STRETCH = 1024  # cells that are processed together; results do not depend on it
ROOM = STRETCH // 4 + 2  # blocks that they draw from
LINE = 16  # cells of a line of the cache
SMALLEST = f4(1e-7)
LARGEST = f4(np.finfo(np.float32).max)


@jit(forceinline=True)
def limit(v, low, high):
    """Clip; the bounds are no -0, and NaN becomes the lower one."""
    v = v if v > low else low
    return v if v < high else high


@jit
def line(n, xs, ys, x):
    """Evaluate a piecewise linear curve, constant outside its nodes."""
    low, high = 0, n - 1
    if not x > xs[0]:
        return ys[0]
    if not x < xs[high]:
        return ys[high]
    while high - low > 1:
        middle = (low + high) >> 1
        if x < xs[middle]:
            high = middle
        else:
            low = middle
    share = f4(f4(x - xs[low]) / f4(xs[high] - xs[low]))
    return fma32(f4(ys[high] - ys[low]), share, ys[low])


@jit(forceinline=True)
def _polynomial(x, c, at):
    r = c[at + 5]
    for k in range(5):
        r = fma32(r, x, c[at + 4 - k])
    return r


@jit(forceinline=True)
def curve(buffer, which, x):
    """Evaluate curve number ``which`` of a buffer, see ``rk_curve.cuh``."""
    p = which * CURVE
    kind = i8(buffer[p])
    if kind == 3:
        n, at = i8(buffer[p + 1]), i8(buffer[p + 2])
        return line(n, buffer[at : at + n], buffer[at + n : at + n + n], x)
    least = x if x > SMALLEST else SMALLEST
    if kind == 2:
        power = exp_within32(f4(buffer[p + 5] * log_normal32(least)))
        return limit(f4(buffer[p + 4] * power), buffer[p + 6], buffer[p + 7])
    if kind == 4 or (kind == 1 and x < buffer[p + 3]):
        log = fma32(buffer[p + 4], log_normal32(least), buffer[p + 5])
        return limit(log, buffer[p + 6], buffer[p + 7])
    return _polynomial(x, buffer, p + 8)


@jit
def logs_of(x, log, m):
    """Compute the logarithms that all curves share."""
    for j in range(m):
        log[j] = log_normal32(x[j] if x[j] > SMALLEST else SMALLEST)


@jit
def curves_of(buffer, which, x, log, out, m):
    """Evaluate a curve at m places; the kind is tested once, so that the loops vectorise."""
    p = which * CURVE
    kind = i8(buffer[p])
    end, a, b, low, high = (
        buffer[p + 3],
        buffer[p + 4],
        buffer[p + 5],
        buffer[p + 6],
        buffer[p + 7],
    )
    if kind == 0:
        for j in range(m):
            out[j] = _polynomial(x[j], buffer, p + 8)
    elif kind == 1:
        for j in range(m):
            near = limit(fma32(a, log[j], b), low, high)
            out[j] = near if x[j] < end else _polynomial(x[j], buffer, p + 8)
    elif kind == 4:
        for j in range(m):
            out[j] = limit(fma32(a, log[j], b), low, high)
    elif kind == 2:
        for j in range(m):
            out[j] = limit(f4(a * exp_within32(f4(b * log[j]))), low, high)
    else:
        for j in range(m):
            out[j] = curve(buffer, which, x[j])


@jit
def draw_words(k0, k1, op, first, sample, number, words, m):
    """Draw one word for each of m cells, four neighbours from a block: word w in row w."""
    group = first >> 2
    n = ((first + m + 3) >> 2) - group
    w0, w1, w2, w3 = words[0], words[1], words[2], words[3]
    for q in range(n):
        w0[q], w1[q], w2[q], w3[q] = block(k0, k1, op, u8(group + q), u8(sample), u4(number))
    return n


@jit
def _in_order(first, rows, out, m):
    """Put rows of draws in the order of their cells."""
    begin = first & 3
    if begin == 0 and (m & 3) == 0:
        for q in range(m >> 2):
            for w in range(4):
                out[4 * q + w] = rows[w, q]
    else:
        for j in range(m):
            out[j] = rows[(begin + j) & 3, (begin + j) >> 2]


@jit
def draw_normals(k0, k1, op, first, sample, number, words, rows, xi, m):
    """Draw one normal for each of m cells; loops that vectorise."""
    n = draw_words(k0, k1, op, first, sample, number, words, m)
    for w in range(4):
        for q in range(n):
            rows[w, q] = normal(words[w, q])
    _in_order(first, rows, xi, m)


@jit
def draw_uniforms(k0, k1, op, first, sample, number, words, rows, u, m):
    """Draw one uniform for each of m cells."""
    n = draw_words(k0, k1, op, first, sample, number, words, m)
    for w in range(4):
        for q in range(n):
            rows[w, q] = uniform(words[w, q])
    _in_order(first, rows, u, m)


@jit
def _fetch_stretch(array, first):
    """Prefetch the next cells, since hardware prefetchers stop at the end of a memory page."""
    for at in range(first, min(first + STRETCH, array.size), LINE):
        fetch(array, at)


@jit
def _targets(table, v, plane, tables, g, m):
    if table:
        n, xs, ys = i8(plane[5]), i8(plane[6]), i8(plane[7])
        for j in range(m):
            g[j] = line(n, tables[xs : xs + n], tables[ys : ys + n], v[j])
    else:
        sign, begin, inverse, base, span = plane[0], plane[1], plane[2], plane[3], plane[4]
        for j in range(m):
            share = f4(f4(f4(sign * v[j]) - begin) * inverse)
            g[j] = f4(limit(share, f4(0.0), span) + base)


@jit
def _hang(p, first, m, event, at_low, at_high, anywhere, plane, words, rows, g, slope, k0, k1):
    whether, where = np.empty(STRETCH, f4), np.empty(STRETCH, f4)
    draw_uniforms(k0, k1, OP_STUCK, first, event, 2 * p, words, rows, whether, m)
    draw_uniforms(k0, k1, OP_STUCK, first, event, 2 * p + 1, words, rows, where, m)
    for j in range(m):
        u = whether[j]
        share = f4(0.0) if u < at_low else f4(1.0) if u < at_high else where[j]
        if u < anywhere:
            g[j] = fma32(plane[4], share, plane[3])
            slope[j] = f4(0.0)


@jit
def _spread(curves, law, x, log, hot, m):
    """Compute the programming deviation and the drift coefficient's mean and deviation."""
    logs_of(x, log, m)
    for k in range(3 if law else 1):
        curves_of(curves, k, x, log, hot[k], m)


@jit
def _drift_of(law, nu_scale, g, least, hot, cold, xi, slope, m):
    mean, std, cold_mean, cold_std = hot[1], hot[2], cold[1], cold[2]
    for j in range(m):
        warm = g[j] > least
        v = fma32(choose(warm, std[j], cold_std), xi[j], choose(warm, mean[j], cold_mean))
        if law == 1:
            v = f4(abs(v))
        slope[j] = f4(v * nu_scale)


@jit
def _written(g, least, hot, cold, xi, low, high, m):
    sigma, cold_sigma = hot[0], cold[0]
    for j in range(m):
        width = choose(g[j] > least, sigma[j], cold_sigma)
        g[j] = limit(fma32(width, xi[j], g[j]), low, high)


@jit
def program_conductance(
    start, stop, noise, table, law, stuck, n, base, n_plane, unit, low, high, nu_scale, event,
    at_low, at_high, anywhere, stuck_event, weight, fit, planes, tables, curves, conductance, nu,
    k0, k1,
):  # fmt: skip
    """Program cells ``start`` to ``stop - 1``, a stretch of them at a time.

    Cell i is number ``base + i`` of its tile.
    """
    v, x, log = np.empty(STRETCH, f4), np.empty(STRETCH, f4), np.empty(STRETCH, f4)
    xi, slope = np.empty(STRETCH, f4), np.zeros(STRETCH, f4)
    targets, hot, cold = np.empty((2, STRETCH), f4), np.empty((3, STRETCH), f4), np.zeros(3, f4)
    words, rows = np.empty((4, ROOM), u4), np.empty((4, ROOM), f4)
    # One device of each pair has the lowest conductance as its target, so a pair shares curves.
    pair = 1 if n_plane & 1 else 2
    shared = noise and pair == 2 and not table
    least = planes[3] if shared else f4(-np.inf)
    if shared:
        for k in range(3 if law else 1):
            cold[k] = curve(curves, k, f4(least * unit))
    scale = fit[0]
    for first in range(start, stop, STRETCH):
        m = min(STRETCH, stop - first)
        for j in range(m):
            v[j] = f4(weight[first + j] * scale)
        _fetch_stretch(weight, first + STRETCH)
        for p in range(n_plane):
            _fetch_stretch(conductance, p * n + first + STRETCH)
            if law:
                _fetch_stretch(nu, p * n + first + STRETCH)
            plane, g = planes[p * 8 : p * 8 + 8], targets[p % pair]
            if not shared:
                _targets(table, v, plane, tables, g, m)
            elif p % 2 == 0:
                _targets(False, v, plane, tables, g, m)
                _targets(False, v, planes[p * 8 + 8 : p * 8 + 16], tables, targets[1], m)
            if noise and not (shared and p % 2):
                other = targets[1] if shared else g
                for j in range(m):
                    x[j] = f4(max(g[j], other[j]) * unit)
                _spread(curves, law, x, log, hot, m)
            if law:
                draw_normals(
                    k0, k1, OP_PROGRAM, base + first, event, 2 * p + 1, words, rows, xi, m
                )
                _drift_of(law, nu_scale, g, least, hot, cold, xi, slope, m)
            if noise:
                draw_normals(k0, k1, OP_PROGRAM, base + first, event, 2 * p, words, rows, xi, m)
                _written(g, least, hot, cold, xi, low, high, m)
            if stuck:
                _hang(
                    p, base + first, m, stuck_event, at_low, at_high, anywhere, plane, words, rows,
                    g, slope, k0, k1,
                )  # fmt: skip
            copy(conductance[p * n + first :][:m], g)
            if law:
                copy(nu[p * n + first :][:m], slope)


@jit
def drift_conductance(
    start, stop, law, read, table_on, as_conductance, n, base, n_plane, n_node, unit, log_ratio,
    mean, std, gain, low, high, moment, conductance, nu, fit, shares, table, noise, out, k0, k1,
):  # fmt: skip
    """Read cells ``start`` to ``stop - 1`` at one time, a stretch of them at once.

    Cell i is number ``base + i`` of its tile.
    """
    g, x, q = np.empty(STRETCH, f4), np.empty(STRETCH, f4), np.empty(STRETCH, f4)
    total, log = np.empty(STRETCH, f4), np.empty(STRETCH, f4)
    words, rows = np.empty((4, ROOM), u4), np.empty((4, ROOM), f4)
    xi = np.empty(STRETCH, f4)
    for first in range(start, stop, STRETCH):
        m = min(STRETCH, stop - first)
        total[:m] = f4(0.0)
        for p in range(n_plane):
            at = p * n + first
            written, slope = conductance[at : at + m], nu[at : at + m]
            _fetch_stretch(conductance, at + STRETCH)
            for j in range(m):
                x[j] = f4(written[j] * unit)
            if law == 1:
                _fetch_stretch(nu, at + STRETCH)
                for j in range(m):
                    g[j] = min(
                        f4(written[j] * exp_within32(f4(-f4(slope[j] * log_ratio)))), LARGEST
                    )
            elif law == 2:
                _fetch_stretch(nu, at + STRETCH)
                for j in range(m):
                    g[j] = limit(f4(written[j] + fma32(std, slope[j], mean)), low, high)
            else:
                copy(g[:m], written)
            if read:
                draw_normals(k0, k1, OP_READ_NOISE, base + first, moment, p, words, rows, xi, m)
                if read == 2:
                    for j in range(m):
                        x[j] = f4(g[j] * unit)
                logs_of(x, log, m)
                curves_of(noise, 0, x, log, q, m)
                for j in range(m):
                    width = f4(g[j] * q[j]) if read == 1 else q[j]
                    g[j] = limit(fma32(f4(width * gain), xi[j], g[j]), low, high)
            if as_conductance:
                copy(out[at : at + m], g)
            else:
                for j in range(m):
                    total[j] = fma32(shares[p], g[j], total[j])
        if table_on:
            for j in range(m):
                total[j] = line(n_node, table[:n_node], table[n_node:], total[j])
        if not as_conductance:
            for j in range(m):
                out[first + j] = limit(f4(f4(total[j] / fit[0]) + fit[1]), f4(-LARGEST), LARGEST)


@jit(forceinline=True)
def _to_step(v, step, spread, w):
    if spread:
        v = fma32(f4(uniform(w) - f4(0.5)), step, v)
    q = f4(abs(v) / step)
    whole = f4(np.floor(q))
    up = f4(1.0) if f4(q - whole) >= f4(0.5) else f4(0.0)
    r = f4(f4(whole + up) * step)
    return f4(-r) if v < f4(0.0) else r


@jit
def _noisy(kind, w, a, std, poly, xi, y, m):
    """Apply a kind of modifier that adds noise to the unrounded weights."""
    width = f4(a * std)
    if kind == 1:
        for j in range(m):
            y[j] = fma32(width, xi[j], w[j])
    elif kind == 2:
        for j in range(m):
            y[j] = f4(w[j] * fma32(width, xi[j], f4(1.0)))
    else:
        for j in range(m):
            v = w[j]
            r = fma32(f4(width * _polynomial(f4(f4(abs(v)) / a), poly, 0)), xi[j], v)
            if kind == 6:
                r = f4(-abs(r)) if v < f4(0.0) else f4(abs(r))
            y[j] = r


@jit
def _stepped(kind, spread, w, a, std, step, bound, xi, words, y, m):
    """Apply a kind of modifier that rounds the weights to steps."""
    if kind == 3:
        for j in range(m):
            y[j] = f4(a * _to_step(f4(w[j] / a), step, spread, words[j]))
    elif kind == 4:
        for j in range(m):
            y[j] = f4(a * fma32(std, xi[j], _to_step(f4(w[j] / a), step, spread, words[j])))
    else:
        reach = f4(bound / tanh32(a))
        for j in range(m):
            y[j] = _to_step(f4(tanh32(w[j]) * reach), step, spread, words[j])


@jit
def modify_weights(
    start, stop, kind, spread, drop_on, std, step, bound, drop, event, weight, largest, poly, out,
    k0, k1,
):  # fmt: skip
    """Modify cells ``start`` to ``stop - 1``, a stretch of them at a time."""
    a = largest[0]
    drawn = (kind != 0 and kind != 8) or drop_on
    noisy = kind == 1 or kind == 2 or kind == 5 or kind == 6
    w0, w1, w2 = np.empty(STRETCH, u4), np.empty(STRETCH, u4), np.empty(STRETCH, u4)
    xi = np.empty(STRETCH, f4)
    for first in range(start, stop, STRETCH):
        m = min(STRETCH, stop - first)
        w, y = weight[first : first + m], out[first : first + m]
        if drawn:
            for j in range(m):
                w0[j], w1[j], w2[j], _ = block(k0, k1, OP_MODIFY, u8(first + j), u8(event), u4(0))
        if noisy or kind == 4:
            for j in range(m):
                xi[j] = normal(w0[j])
        if not a > f4(0.0) or kind == 0:
            copy(y, w)
        elif kind == 8:
            for j in range(m):
                y[j] = limit(w[j], f4(-a), a)
        elif noisy:
            _noisy(kind, w, a, std, poly, xi, y, m)
        else:
            _stepped(kind, spread, w, a, std, step, bound, xi, w1, y, m)
        if drop_on:
            for j in range(m):
                y[j] = f4(0.0) if uniform(w2[j]) < drop else y[j]


@jit
def add_scaled(start, stop, add, by, offset, part, scale, out):
    """Scale rows ``start`` to ``stop - 1``, and add them to columns of another matrix."""
    for row in range(start, stop):
        for i in range(part.shape[1]):
            v = part[row, i]
            factor = scale[i] if by == 1 else f4(1.0) if by == 0 else scale[row]
            if by == 3:
                out[row, offset + i] = f4(v / factor)
            elif add:
                out[row, offset + i] = fma32(v, factor, out[row, offset + i])
            else:
                out[row, offset + i] = f4(v * factor)
