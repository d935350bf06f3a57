"""Mirrors of the kernels of inference, flat over the cells: the same bits."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import exp32, fma32, log32, tanh32
from rpukit._philox import block, normal, uniform

f4, i8, u4, u8 = np.float32, np.int64, np.uint32, np.uint64

OP_PROGRAM, OP_READ_NOISE, OP_MODIFY, OP_STUCK = u4(17), u4(18), u4(19), u4(20)
CURVE = 16
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


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _target(table, v, plane, tables):
    if table:
        n, xs, ys = i8(plane[5]), i8(plane[6]), i8(plane[7])
        return line(n, tables[xs : xs + n], tables[ys : ys + n], v)
    share = f4(f4(f4(plane[0] * v) - plane[1]) * plane[2])
    return f4(limit(share, f4(0.0), plane[4]) + plane[3])


@nb.njit(nogil=True, error_model="numpy")
def program_conductance(
    start, stop, noise, table, law, stuck, n, n_plane, unit, low, high, nu_scale, event, at_low,
    at_high, anywhere, stuck_event, weight, fit, planes, tables, curves, conductance, nu, k0, k1,
):  # fmt: skip
    """Program cells ``start`` to ``stop - 1``."""
    for i in range(start, stop):
        v = f4(weight[i] * fit[0])
        a0, a1, a2, a3 = u4(0), u4(0), u4(0), u4(0)
        h0, h1, h2, h3 = u4(0), u4(0), u4(0), u4(0)
        for p in range(n_plane):
            plane = planes[p * 8 : p * 8 + 8]
            odd = p & 1
            if noise and not odd:
                a0, a1, a2, a3 = block(k0, k1, OP_PROGRAM, u8(i), u8(event), u4(p >> 1))
            if stuck and not odd:
                h0, h1, h2, h3 = block(k0, k1, OP_STUCK, u8(i), u8(stuck_event), u4(p >> 1))
            g = _target(table, v, plane, tables)
            x = f4(g * unit)
            slope = f4(0.0)
            if noise:
                xi = normal(a1 if odd else a0)
                g = limit(fma32(curve(curves, 0, x), xi, g), low, high)
            if law:
                xi = normal(a3 if odd else a2)
                slope = fma32(curve(curves, 2, x), xi, curve(curves, 1, x))
                if law == 1:
                    slope = f4(abs(slope))
                elif law == 2 and not slope > f4(0.0):
                    slope = f4(0.0)
                slope = f4(slope * nu_scale)
            if stuck:
                u = uniform(h1 if odd else h0)
                where = uniform(h3 if odd else h2)
                where = f4(0.0) if u < at_low else f4(1.0) if u < at_high else where
                if u < anywhere:
                    g = fma32(plane[4], where, plane[3])
                    slope = f4(0.0)
            conductance[p * n + i] = g
            if law:
                nu[p * n + i] = slope


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _pick(p, a0, a1, a2, a3):
    w = p & 3
    return a0 if w == 0 else a1 if w == 1 else a2 if w == 2 else a3


@nb.njit(nogil=True, error_model="numpy")
def drift_conductance(
    start, stop, law, read, table_on, as_conductance, n, n_plane, n_node, unit, log_ratio, mean,
    std, gain, low, high, moment, conductance, nu, fit, shares, table, noise, out, k0, k1,
):  # fmt: skip
    """Read cells ``start`` to ``stop - 1`` at a moment."""
    for i in range(start, stop):
        a0, a1, a2, a3 = u4(0), u4(0), u4(0), u4(0)
        total = f4(0.0)
        for p in range(n_plane):
            programmed = conductance[p * n + i]
            g = programmed
            if law == 1:
                g = f4(g * exp32(f4(-f4(nu[p * n + i] * log_ratio))))
            elif law == 2:
                g = limit(f4(g + fma32(std, nu[p * n + i], mean)), low, high)
            if read:
                if (p & 3) == 0:
                    a0, a1, a2, a3 = block(k0, k1, OP_READ_NOISE, u8(i), u8(moment), u4(p >> 2))
                xi = normal(_pick(p, a0, a1, a2, a3))
                q = curve(noise, 0, f4((programmed if read == 1 else g) * unit))
                if read == 1:
                    q = f4(g * q)
                g = limit(fma32(f4(q * gain), xi, g), low, high)
            if as_conductance:
                out[p * n + i] = g
            else:
                total = fma32(shares[p], g, total)
        if table_on:
            total = line(n_node, table[:n_node], table[n_node:], total)
        if not as_conductance:
            out[i] = f4(f4(total / fit[0]) + fit[1])


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
