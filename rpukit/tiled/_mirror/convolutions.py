"""Mirrors of convolutions and their gradients."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32

f4 = np.float32


@jit
def _padded(x, x0, channels, xh, xw, top, left, ph, pw, out):
    """Copy an image so that its windows lie inside: zeros stand where it has no pixels."""
    out[:] = f4(0.0)
    for c in range(channels):
        for i in range(max(0, -top), min(ph, xh - top)):
            row, line = out[(c * ph + i) * pw :], x[x0 + (c * xh + i + top) * xw :]
            for j in range(max(0, -left), min(pw, xw - left)):
                row[j] = line[j + left]


@jit
def tiled_conv(start, stop, ints, floats, x, w, bias, y):
    """Planes ``start`` to ``stop - 1`` (sample, channel) of a tile; padding counts as zeros."""
    co, oh, ow, ci, kp, kq, sh, sw, dh, dw, top, left, xc, xh, xw, cog, first, last, add = ints[
        1:20
    ]
    ph, pw = (oh - 1) * sh + (kp - 1) * dh + 1, (ow - 1) * sw + (kq - 1) * dw + 1
    image = np.empty(xc * ph * pw, y.dtype)
    have = -1
    for row in range(start, stop):
        n, o = row // co, row % co
        if n != have:
            _padded(x, n * xc * xh * xw, xc, xh, xw, top, left, ph, pw, image)
            have = n
        plane = y[row * oh * ow :][: oh * ow]
        if first:
            plane[:] = f4(0.0)
        for c in range(ci):
            at = (o // cog * ci + c) * ph
            for t in range(kp * kq):
                p, q = t // kq, t % kq
                v = w[(o * ci + c) * kp * kq + t]
                for i in range(oh):
                    line, out = image[(at + i * sh + p * dh) * pw + q * dw :], plane[i * ow :]
                    if sw == 1:
                        for j in range(ow):
                            out[j] = fma32(line[j], v, out[j])
                    else:
                        for j in range(ow):
                            out[j] = fma32(line[j * sw], v, out[j])
        if last and add:
            for i in range(oh * ow):
                plane[i] = f4(plane[i] + bias[o])


@jit
def tiled_conv_grad_x(start, stop, ints, floats, dy, w, dx):
    """Planes ``start`` to ``stop - 1`` (sample, channel) of a tile of the input's gradient."""
    ci, eh, ew, co, kp, kq, sh, sw, dh, dw, top, left, yc, yh, yw, cig, first = ints[1:18]
    for row in range(start, stop):
        n, c = row // ci, row % ci
        plane = dx[row * eh * ew :][: eh * ew]
        if first:
            plane[:] = f4(0.0)
        for o in range(co):
            ahead = c // cig * co + o
            image = dy[(n * yc + ahead) * yh * yw :]
            for t in range(kp * kq):
                p, q = t // kq, t % kq
                v = w[(ahead * cig + c % cig) * kp * kq + t]
                j_at = left + q * dw
                j0 = max(0, -(j_at // sw))
                j1 = min(yw, (ew - 1 - j_at) // sw + 1)
                for i in range(yh):
                    h = top + p * dh + i * sh
                    if 0 <= h < eh:
                        line, out = image[i * yw :], plane[h * ew :]
                        for j in range(j0, j1):
                            at = j_at + j * sw
                            out[at] = fma32(line[j], v, out[at])


@jit
def tiled_conv_grad_w(start, stop, ints, floats, dy, x, dw_out):
    """Output channels ``start`` to ``stop - 1`` of a tile of the weights' gradient."""
    ci, kp, kq, n, oh, ow, sh, sw, dh, dw, top, left, xc, xh, xw, cog, first = ints[1:18]
    co, size = ints[0], ci * kp * kq
    ph, pw = (oh - 1) * sh + (kp - 1) * dh + 1, (ow - 1) * sw + (kq - 1) * dw + 1
    image, patch = np.empty(xc * ph * pw, dw_out.dtype), np.empty(size, dw_out.dtype)
    if first:
        dw_out[start * size : stop * size] = f4(0.0)
    for s in range(n):
        _padded(x, s * xc * xh * xw, xc, xh, xw, top, left, ph, pw, image)
        for pixel in range(oh * ow):
            i, j = pixel // ow, pixel % ow
            group = -1
            for o in range(start, stop):
                if o // cog != group:
                    group = o // cog
                    for c in range(ci):
                        for p in range(kp):
                            at = ((group * ci + c) * ph + i * sh + p * dh) * pw + j * sw
                            for q in range(kq):
                                patch[(c * kp + p) * kq + q] = image[at + q * dw]
                v = dy[((s * co + o) * oh + i) * ow + j]
                out = dw_out[o * size :]
                for e in range(size):
                    out[e] = fma32(v, patch[e], out[e])
