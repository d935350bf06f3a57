"""Mirrors of the kernels of inference, flat over the cells: the same bits."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import exp32, fma32, log32, tanh32
from rpukit._philox import block, normal, uniform

f4, i8, u4, u8 = np.float32, np.int64, np.uint32, np.uint64

OP_PROGRAM, OP_READ_NOISE, OP_MODIFY, OP_STUCK = u4(17), u4(18), u4(19), u4(20)
CURVE = 16
STRETCH = 256  # cells that are worked on together; it enters no result
SMALLEST = f4(1e-7)


@nb.njit(nogil=True, error_model="numpy", inline="always")
def limit(v, low, high):
    """Clip with the order of tests of the kernels."""
    if v < low:
        return low
    if v > high:
        return high
    return v


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
        power = exp32(f4(buffer[p + 5] * log32(least)))
        return limit(f4(buffer[p + 4] * power), buffer[p + 6], buffer[p + 7])
    if kind == 1 and x < buffer[p + 3]:
        log = fma32(buffer[p + 4], log32(least), buffer[p + 5])
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
            log = limit(fma32(a, log32(least), b), low, high)
            out[j] = log if x[j] < end else _polynomial(x[j], buffer, p + 8)
    elif kind == 2:
        for j in range(m):
            least = x[j] if x[j] > SMALLEST else SMALLEST
            out[j] = limit(f4(a * exp32(f4(b * log32(least)))), low, high)
    else:
        for j in range(m):
            out[j] = curve(buffer, which, x[j])


@nb.njit(nogil=True, error_model="numpy")
def draw_normals(k0, k1, op, first, sample, number, words, xi, m):
    """Draw the four normals of a block for m cells; two loops, which vectorise."""
    for j in range(m):
        a0, a1, a2, a3 = block(k0, k1, op, u8(first + j), u8(sample), u4(number))
        words[0, j] = a0
        words[1, j] = a1
        words[2, j] = a2
        words[3, j] = a3
    for w in range(4):
        for j in range(m):
            xi[w, j] = normal(words[w, j])


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
    for j in range(m):
        h0, h1, h2, h3 = block(k0, k1, OP_STUCK, u8(first + j), u8(event), u4(p >> 1))
        u = uniform(h1 if p & 1 else h0)
        where = uniform(h3 if p & 1 else h2)
        where = f4(0.0) if u < at_low else f4(1.0) if u < at_high else where
        if u < anywhere:
            g[j] = fma32(plane[4], where, plane[3])
            slope[j] = f4(0.0)


@nb.njit(nogil=True, error_model="numpy")
def program_conductance(
    start, stop, noise, table, law, stuck, n, n_plane, unit, low, high, nu_scale, event, at_low,
    at_high, anywhere, stuck_event, weight, fit, planes, tables, curves, conductance, nu, k0, k1,
):  # fmt: skip
    """Program cells ``start`` to ``stop - 1``, a stretch of them at a time."""
    v, g, x = np.empty(STRETCH, f4), np.empty(STRETCH, f4), np.empty(STRETCH, f4)
    mean, slope = np.empty(STRETCH, f4), np.zeros(STRETCH, f4)
    words, xi = np.empty((4, STRETCH), u4), np.empty((4, STRETCH), f4)
    for first in range(start, stop, STRETCH):
        m = min(STRETCH, stop - first)
        for j in range(m):
            v[j] = f4(weight[first + j] * fit[0])
        for p in range(n_plane):
            plane = planes[p * 8 : p * 8 + 8]
            odd = p & 1
            if noise and not odd:
                draw_normals(k0, k1, OP_PROGRAM, first, event, p >> 1, words, xi, m)
            _targets(table, v, plane, tables, g, m)
            for j in range(m):
                x[j] = f4(g[j] * unit)
            if law:
                curves_of(curves, 1, x, mean, m)
                curves_of(curves, 2, x, slope, m)
                for j in range(m):
                    slope[j] = fma32(slope[j], xi[2 + odd, j], mean[j])
                    if law == 1:
                        slope[j] = f4(abs(slope[j]))
                    elif law == 2:
                        slope[j] = slope[j] if slope[j] > f4(0.0) else f4(0.0)
                    slope[j] = f4(slope[j] * nu_scale)
            if noise:
                curves_of(curves, 0, x, mean, m)
                for j in range(m):
                    g[j] = limit(fma32(mean[j], xi[odd, j], g[j]), low, high)
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
    words, xi = np.empty((4, STRETCH), u4), np.empty((4, STRETCH), f4)
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
                    g[j] = f4(g[j] * exp32(f4(-f4(nu[at + j] * log_ratio))))
            elif law == 2:
                for j in range(m):
                    g[j] = limit(f4(g[j] + fma32(std, nu[at + j], mean)), low, high)
            if read:
                if (p & 3) == 0:
                    draw_normals(k0, k1, OP_READ_NOISE, first, moment, p >> 2, words, xi, m)
                if read == 2:
                    for j in range(m):
                        x[j] = f4(g[j] * unit)
                curves_of(noise, 0, x, q, m)
                for j in range(m):
                    width = f4(g[j] * q[j]) if read == 1 else q[j]
                    g[j] = limit(fma32(f4(width * gain), xi[p & 3, j], g[j]), low, high)
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
