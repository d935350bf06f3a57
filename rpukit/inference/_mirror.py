"""Mirrors of the kernels of inference, flat over the cells: the same bits."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import exp_within32, fma32, log_normal32, tanh32
from rpukit._philox import block, normal, uniform

f4, i8, u4, u8 = np.float32, np.int64, np.uint32, np.uint64

OP_PROGRAM, OP_READ_NOISE, OP_MODIFY, OP_STUCK = u4(17), u4(18), u4(19), u4(20)
CURVE = 16
STRETCH = 256  # cells that are worked on together; it enters no result
ROOM = STRETCH + 8  # words of whole blocks that they need
SMALLEST = f4(1e-7)


@nb.njit(nogil=True, error_model="numpy", inline="always")
def limit(v, low, high):
    """Clip; the bounds are no -0, and NaN becomes the lower one."""
    v = v if v > low else low
    return v if v < high else high


@nb.njit(nogil=True, error_model="numpy")
def line(n, xs, ys, x):
    """Evaluate a line through nodes, constant outside of them."""
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


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _polynomial(x, c, at):
    r = c[at + 5]
    for k in range(5):
        r = fma32(r, x, c[at + 4 - k])
    return r


@nb.njit(nogil=True, error_model="numpy", inline="always")
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


@nb.njit(nogil=True, error_model="numpy")
def curves_of(buffer, which, x, out, m):
    """Evaluate a curve at m places; the kind is asked once, so that the loops vectorise."""
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
            least = x[j] if x[j] > SMALLEST else SMALLEST
            log = limit(fma32(a, log_normal32(least), b), low, high)
            out[j] = log if x[j] < end else _polynomial(x[j], buffer, p + 8)
    elif kind == 4:
        for j in range(m):
            least = x[j] if x[j] > SMALLEST else SMALLEST
            out[j] = limit(fma32(a, log_normal32(least), b), low, high)
    elif kind == 2:
        for j in range(m):
            least = x[j] if x[j] > SMALLEST else SMALLEST
            out[j] = limit(f4(a * exp_within32(f4(b * log_normal32(least)))), low, high)
    else:
        for j in range(m):
            out[j] = curve(buffer, which, x[j])


@nb.njit(nogil=True, error_model="numpy")
def draw_words(k0, k1, op, first, sample, number, words, m):
    """Draw one word for each of m cells, four neighbours from a block; give where they begin."""
    group = first >> 2
    for q in range(((first + m + 3) >> 2) - group):
        at = 4 * q
        words[at], words[at + 1], words[at + 2], words[at + 3] = block(
            k0, k1, op, u8(group + q), u8(sample), u4(number)
        )
    return first - 4 * group


@nb.njit(nogil=True, error_model="numpy")
def draw_normals(k0, k1, op, first, sample, number, words, xi, m):
    """Draw one normal for each of m cells; two loops, which vectorise."""
    begin = draw_words(k0, k1, op, first, sample, number, words, m)
    for j in range(m):
        xi[j] = normal(words[begin + j])


@nb.njit(nogil=True, error_model="numpy")
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


@nb.njit(nogil=True, error_model="numpy")
def _hang(p, first, m, event, at_low, at_high, anywhere, plane, g, slope, k0, k1):
    whether, where = np.empty(ROOM, u4), np.empty(ROOM, u4)
    begin = draw_words(k0, k1, OP_STUCK, first, event, 2 * p, whether, m)
    draw_words(k0, k1, OP_STUCK, first, event, 2 * p + 1, where, m)
    for j in range(m):
        u = uniform(whether[begin + j])
        share = f4(0.0) if u < at_low else f4(1.0) if u < at_high else uniform(where[begin + j])
        if u < anywhere:
            g[j] = fma32(plane[4], share, plane[3])
            slope[j] = f4(0.0)


@nb.njit(nogil=True, error_model="numpy")
def program_conductance(
    start, stop, noise, table, law, stuck, n, n_plane, unit, low, high, nu_scale, event, at_low,
    at_high, anywhere, stuck_event, weight, fit, planes, tables, curves, conductance, nu, k0, k1,
):  # fmt: skip
    """Program cells ``start`` to ``stop - 1``, a stretch of them at a time."""
    v, g, x = np.empty(STRETCH, f4), np.empty(STRETCH, f4), np.empty(STRETCH, f4)
    mean, slope = np.empty(STRETCH, f4), np.zeros(STRETCH, f4)
    words, xi = np.empty(ROOM, u4), np.empty(STRETCH, f4)
    for first in range(start, stop, STRETCH):
        m = min(STRETCH, stop - first)
        for j in range(m):
            v[j] = f4(weight[first + j] * fit[0])
        for p in range(n_plane):
            plane = planes[p * 8 : p * 8 + 8]
            _targets(table, v, plane, tables, g, m)
            for j in range(m):
                x[j] = f4(g[j] * unit)
            if law:
                curves_of(curves, 1, x, mean, m)
                curves_of(curves, 2, x, slope, m)
                draw_normals(k0, k1, OP_PROGRAM, first, event, 2 * p + 1, words, xi, m)
                for j in range(m):
                    slope[j] = fma32(slope[j], xi[j], mean[j])
                    if law == 1:
                        slope[j] = f4(abs(slope[j]))
                    elif law == 2:
                        slope[j] = slope[j] if slope[j] > f4(0.0) else f4(0.0)
                    slope[j] = f4(slope[j] * nu_scale)
            if noise:
                curves_of(curves, 0, x, mean, m)
                draw_normals(k0, k1, OP_PROGRAM, first, event, 2 * p, words, xi, m)
                for j in range(m):
                    g[j] = limit(fma32(mean[j], xi[j], g[j]), low, high)
            if stuck:
                _hang(p, first, m, stuck_event, at_low, at_high, anywhere, plane, g, slope, k0, k1)
            conductance[p * n + first : p * n + first + m] = g[:m]
            if law:
                nu[p * n + first : p * n + first + m] = slope[:m]


@nb.njit(nogil=True, error_model="numpy")
def drift_conductance(
    start, stop, law, read, table_on, as_conductance, n, n_plane, n_node, unit, log_ratio, mean,
    std, gain, low, high, moment, conductance, nu, fit, shares, table, noise, out, k0, k1,
):  # fmt: skip
    """Read cells ``start`` to ``stop - 1`` at a moment, a stretch of them at a time."""
    g, x, q = np.empty(STRETCH, f4), np.empty(STRETCH, f4), np.empty(STRETCH, f4)
    total = np.empty(STRETCH, f4)
    words, xi = np.empty(ROOM, u4), np.empty(STRETCH, f4)
    for first in range(start, stop, STRETCH):
        m = min(STRETCH, stop - first)
        total[:m] = f4(0.0)
        for p in range(n_plane):
            at = p * n + first
            for j in range(m):
                g[j] = conductance[at + j]
                x[j] = f4(g[j] * unit)
            if law == 1:
                for j in range(m):
                    g[j] = f4(g[j] * exp_within32(f4(-f4(nu[at + j] * log_ratio))))
            elif law == 2:
                for j in range(m):
                    g[j] = limit(f4(g[j] + fma32(std, nu[at + j], mean)), low, high)
            if read:
                draw_normals(k0, k1, OP_READ_NOISE, first, moment, p, words, xi, m)
                if read == 2:
                    for j in range(m):
                        x[j] = f4(g[j] * unit)
                curves_of(noise, 0, x, q, m)
                for j in range(m):
                    width = f4(g[j] * q[j]) if read == 1 else q[j]
                    g[j] = limit(fma32(f4(width * gain), xi[j], g[j]), low, high)
            if as_conductance:
                out[at : at + m] = g[:m]
            else:
                for j in range(m):
                    total[j] = fma32(shares[p], g[j], total[j])
        if table_on:
            for j in range(m):
                total[j] = line(n_node, table[:n_node], table[n_node:], total[j])
        if not as_conductance:
            for j in range(m):
                out[first + j] = f4(f4(total[j] / fit[0]) + fit[1])


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _to_step(v, step, spread, w):
    if spread:
        v = fma32(f4(uniform(w) - f4(0.5)), step, v)
    q = f4(abs(v) / step)
    whole = f4(np.floor(q))
    up = f4(1.0) if f4(q - whole) >= f4(0.5) else f4(0.0)
    r = f4(f4(whole + up) * step)
    return f4(-r) if v < f4(0.0) else r


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _modified(kind, spread, w, a, std, step, bound, poly, xi, word):
    if kind == 1:
        return fma32(f4(a * std), xi, w)
    if kind == 2:
        return f4(w * fma32(f4(a * std), xi, f4(1.0)))
    if kind == 3:
        return f4(a * _to_step(f4(w / a), step, spread, word))
    if kind == 4:
        return f4(a * fma32(std, xi, _to_step(f4(w / a), step, spread, word)))
    if kind == 5 or kind == 6:
        sigma = f4(f4(a * std) * _polynomial(f4(f4(abs(w)) / a), poly, 0))
        y = fma32(sigma, xi, w)
        if kind == 6:
            y = f4(-abs(y)) if w < f4(0.0) else f4(abs(y))
        return y
    if kind == 7:
        return _to_step(f4(tanh32(w) * f4(bound / tanh32(a))), step, spread, word)
    if kind == 8:
        return limit(w, f4(-a), a)
    return w


@nb.njit(nogil=True, error_model="numpy")
def modify_weights(
    start, stop, kind, spread, drop_on, std, step, bound, drop, event, weight, largest, poly, out,
    k0, k1,
):  # fmt: skip
    """Modify cells ``start`` to ``stop - 1``."""
    a = largest[0]
    drawn = (kind != 0 and kind != 8) or drop_on
    for i in range(start, stop):
        a0, a1, a2 = u4(0), u4(0), u4(0)
        if drawn:
            a0, a1, a2, _ = block(k0, k1, OP_MODIFY, u8(i), u8(event), u4(0))
        w = weight[i]
        y = w
        if a > f4(0.0):
            y = _modified(kind, spread, w, a, std, step, bound, poly, normal(a0), a1)
        out[i] = f4(0.0) if drop_on and uniform(a2) < drop else y


@nb.njit(nogil=True, error_model="numpy")
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
