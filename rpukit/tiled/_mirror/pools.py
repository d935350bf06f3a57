"""Mirrors of pools and their gradients."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit

f4 = np.float32


@jit
def tiled_pool(start, stop, ints, floats, x, y):
    """Planes ``start`` to ``stop - 1`` (sample, channel) of a tile; windows row by row."""
    kind, oh, ow, kp, kq, sh, sw, top, left, xh, xw, include = ints[1:13]
    for row in range(start, stop):
        image, plane = x[row * xh * xw :], y[row * oh * ow :]
        for i in range(oh):
            h0, h1 = max(0, i * sh + top), min(xh, i * sh + top + kp)
            for j in range(ow):
                w0, w1 = max(0, j * sw + left), min(xw, j * sw + left + kq)
                if kind == 0:
                    v = image[h0 * xw + w0]
                    for h in range(h0, h1):
                        for w in range(w0, w1):
                            v = image[h * xw + w] if image[h * xw + w] > v else v
                else:
                    v = f4(0.0)
                    for h in range(h0, h1):
                        for w in range(w0, w1):
                            v = f4(v + image[h * xw + w])
                    v = f4(v / f4(kp * kq if include else (h1 - h0) * (w1 - w0)))
                plane[i * ow + j] = v


@jit
def tiled_pool_grad(start, stop, ints, floats, dy, x, dx):
    """Planes ``start`` to ``stop - 1`` (sample, channel) of a tile; windows ascending."""
    kind, eh, ew, kp, kq, sh, sw, h_at, w_at, yh, yw = ints[1:12]
    rows, columns, h_tile, w_tile, h_x, w_x, xh, xw, include = ints[12:21]
    for row in range(start, stop):
        plane, slopes = dx[row * eh * ew :][: eh * ew], dy[row * yh * yw :]
        plane[:] = f4(0.0)
        image = x[row * xh * xw if kind == 0 else 0 :]
        for i in range(yh):
            h0, h1 = max(0, i * sh + h_at), min(rows, i * sh + h_at + kp)
            for j in range(yw):
                w0, w1 = max(0, j * sw + w_at), min(columns, j * sw + w_at + kq)
                v, g0, g1 = slopes[i * yw + j], h0, h1
                if kind == 0:
                    top_h, top_w = h0, w0
                    most = image[(h0 - h_x) * xw + w0 - w_x]
                    for h in range(h0, h1):
                        for w in range(w0, w1):
                            u = image[(h - h_x) * xw + w - w_x]
                            if u > most:
                                most, top_h, top_w = u, h, w
                    g0, g1, w0, w1 = top_h, top_h + 1, top_w, top_w + 1
                else:
                    v = f4(v / f4(kp * kq if include else (h1 - h0) * (w1 - w0)))
                for h in range(max(g0, h_tile), min(g1, h_tile + eh)):
                    for w in range(max(w0, w_tile), min(w1, w_tile + ew)):
                        at = (h - h_tile) * ew + w - w_tile
                        plane[at] = f4(plane[at] + v)
