"""Mirror of the product with non-ideal wires and amplifiers."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32
from rpukit._exact.philox import block, normal
from rpukit.analog._mirror.forward import SEGMENT, _clip, _convert, _inputs, _inverse

f4, u4, u8 = np.float32, np.uint32, np.uint64


@jit
def _sums(weight, factor, v, transposed, i, sign, has, sums, part):
    """Compute the five sums of output i, over the inputs of one sign (0: over all)."""
    n_in = v.size
    n = f4(n_in)
    sums[:] = f4(0.0)
    for first in range(0, n_in, SEGMENT):
        part[:] = f4(0.0)
        for j in range(first, min(first + SEGMENT, n_in)):
            w = weight[j, i] if transposed else weight[i, j]
            if sign < 0 and factor.size:
                w = f4(w * (factor[j, i] if transposed else factor[i, j]))
            c = v[j]
            if sign < 0:
                c = min(c, f4(0.0))
            elif sign > 0:
                c = max(c, f4(0.0))
            part[0] = fma32(w, c, part[0])
            if has[0]:
                p = f4(f4(1.0) - f4(f4(j) / n))
                part[1] = fma32(abs(w), abs(c), part[1])
                part[2] = fma32(w, f4(c * fma32(f4(-p), p, f4(1.0))), part[2])
            if has[1] == 1:
                part[3] = fma32(c, c, part[3])
            elif has[1] == 2:
                part[3] = fma32(abs(w), f4(c * c), part[3])
            if has[2]:
                part[4] = f4(part[4] + c)
        for k in range(5):
            sums[k] = f4(sums[k] + part[k])


@jit
def _through_wires(sums, n, o, has, more, w_noise, w):
    y = sums[0]
    if has[0]:
        a = f4(f4(sums[1] * n) / more[1])
        c = f4(a * fma32(a, fma32(f4(0.05), a, f4(-0.2)), f4(0.5)))
        y = fma32(f4(-f4(more[0] * c)), sums[2], y)
    if has[2]:
        r, z = more[2], f4(f4(-more[3]) * sums[4])
        left, right = f4(f4(1.0) - o), f4(f4(1.0) + o)
        if more[3] == f4(0.0):
            y = f4(f4(left * y) / fma32(r, abs(y), f4(1.0)))
        elif not r > f4(0.0):
            y = f4(f4(left * y) - f4(f4(f4(2.0) * o) * z))
        else:
            t = f4(y + z)
            first = f4(f4(left * t) / fma32(r, abs(t), f4(1.0)))
            y = f4(first - f4(f4(right * z) / fma32(r, abs(z), f4(1.0))))
    if has[1] and w_noise > f4(0.0):
        y = fma32(f4(w_noise * f4(np.sqrt(sums[3]))), normal(w), y)
    return y


@jit
def _out_stage(y, s, deviation, has, io, more, w1, w2):
    """Return the converted output, and whether an active bound was passed."""
    if has[3]:
        y = f4(f4(more[4] * y) / f4(f4(1.0) + abs(f4(s * y))))
    if y < f4(0.0):
        y = f4(y * io[7])
    if deviation > f4(0.0):
        y = fma32(deviation, normal(w1), y)
    y = _convert(y, io[5], io[11] != f4(0.0), w2)
    bound = io[4]
    met = bound > f4(0.0) and (y > bound or (y < f4(-bound) and io[12] != f4(0.0)))
    return _clip(y, bound), met


@jit
def _outputs(
    weight, factor, v, transposed, passes, has, io, more, lines, op, sample, number, k0, k1, y
):
    """Compute the unscaled outputs of a sample; return whether an active bound was passed."""
    sums, part = np.empty(5, f4), np.empty(5, f4)
    met, n = False, f4(v.size)
    for i in range(y.size):
        deviation = lines[0, i]
        total = f4(0.0)
        for p in range(2 if passes > 1 else 1):
            sign = 0 if passes == 1 else 2 * p - 1
            _sums(weight, factor, v, transposed, i, sign, has, sums, part)
            b0, b1, b2, _ = block(k0, k1, op, u8(i), sample, u4(number + u4(64 * p)))
            out = _through_wires(sums, n, lines[1, i], has, more, io[9], b0)
            if passes == 3:
                out, passed = _out_stage(out, lines[2, i], deviation, has, io, more, b1, b2)
                met = met or passed
            total = f4(total + out)
        if passes != 3:
            _, b1, b2, _ = block(k0, k1, op, u8(i), sample, number)
            total, passed = _out_stage(total, lines[2, i], deviation, has, io, more, b1, b2)
            met = met or passed
        y[i] = total
    return met


@jit
def tile_nonideal(
    start,
    stop,
    transposed,
    passes,
    has,
    worst,
    rhos,
    first_sample,
    in_op,
    out_op,
    io,
    more,
    weight,
    factor,
    x,
    alpha,
    lines,
    y,
    k0,
    k1,
):
    """Multiply samples ``start`` to ``stop - 1``, with as many rounds as bounds need.

    ``has``: effects that are on: IR drop, read noise (1 constant, 2 PCM), offsets, saturation;
    ``lines`` are the noise, the offset and the saturation of each output.
    """
    v, words = np.empty(x.shape[1], f4), np.empty((3, x.shape[1]), u4)
    for s in range(start, stop):
        sample = u8(first_sample) + u8(s)
        for number in range(rhos.size):
            rho = rhos[number]
            a = alpha[1 if worst and number else 0, s] if io[13] != f4(0.0) else f4(1.0)
            if not a > f4(0.0) and io[14] != f4(0.0):
                y[s, :] = f4(0.0)
                break
            sc = _inverse(a, rho) if io[13] != f4(0.0) else f4(f4(1.0) / rho)
            _inputs(x[s], sc, io, u4(in_op), sample, u4(number), k0, k1, words, v)
            met = _outputs(
                weight,
                factor,
                v,
                transposed,
                passes,
                has,
                io,
                more,
                lines,
                u4(out_op),
                sample,
                u4(number),
                k0,
                k1,
                y[s],
            )
            scale = f4(f4(io[8] * (a if a > f4(0.0) else f4(1.0))) * rho)
            for i in range(y.shape[1]):
                y[s, i] = f4(y[s, i] * scale)
            if not met:
                break
