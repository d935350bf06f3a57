"""Mirror of the drawing of cells; twin of ``kernels_cu/include/cell_planes.cuh``."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import exp32
from rpukit._philox import block, normal, uniform
from rpukit.analog._mirror.symmetry import symmetry_point

f4, i8, u4, u8 = np.float32, np.int64, np.uint32, np.uint64

OP_CELLS, SAMPLE = u4(8), u8(0)
RECIPE = 40  # numbers of a tile, see the kernel's header
SHARED, LINEAR, LINEAR_REFERENCE, POW, POW_REFERENCE = range(5)


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _spread(mean, dtod, word):
    if dtod == f4(0.0) or mean == f4(0.0):
        return mean
    return f4(mean * f4(f4(1.0) + f4(dtod * normal(word))))


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _shifted(mean, std, word):
    return mean if std == f4(0.0) else f4(mean + f4(std * normal(word)))


@nb.njit(nogil=True, error_model="numpy", inline="always")
def _slope(step, at):
    return f4(f4(-step) / at) if step != f4(0.0) and at != f4(0.0) else f4(0.0)


@nb.njit(nogil=True, error_model="numpy")
def _shared(p, q, k0, k1, cell, last):
    b0, b1, b2, b3 = block(k0, k1, OP_CELLS, cell, SAMPLE, u4(0))
    high, low = _spread(q[0], q[1], b0), _spread(q[2], q[3], b1)
    gain, r = f4(1.0), f4(0.0)
    if q[5] > f4(0.0):
        wide = f4(q[5] * normal(b2))
        gain = exp32(wide) if q[12] != f4(0.0) else f4(f4(1.0) + wide)
    if q[8] > f4(0.0):
        r = f4(q[8] * normal(b3))
    up = f4(f4(f4(q[6] + gain) + r) * q[4])
    down = f4(f4(f4(q[7] + gain) - r) * q[4])
    crossed = high < low
    if q[13] != f4(0.0):
        other = low if crossed else high
        low = f4(-abs(high if crossed else low))
        high, up, down = abs(other), abs(up), abs(down)
    elif crossed:
        low = f4(f4(high + low) * f4(0.5))
        high = low
    if q[9] > f4(0.0):
        s0, s1, _, _ = block(k0, k1, OP_CELLS, cell, SAMPLE, u4(1))
        if uniform(s0) < q[9]:
            low = f4(q[10] + f4(q[11] * uniform(s1)))
            high = low
            up, down = f4(0.0), f4(0.0)
    if q[14] != f4(0.0) and last:
        up, down = q[4], q[4]
        low, high = f4(low * f4(100.0)), f4(high * f4(100.0))
    p[0], p[1], p[2], p[3] = low, high, down, up


@nb.njit(nogil=True, error_model="numpy")
def _linear(p, q, k0, k1, cell):
    b0, b1, _, _ = block(k0, k1, OP_CELLS, cell, SAMPLE, u4(4))
    up, down = _shifted(q[16], q[17], b0), _shifted(q[18], q[19], b1)
    if q[20] == f4(0.0):
        up, down = abs(up), abs(down)
    mean = q[21] != f4(0.0)
    low, high = (q[2] if mean else p[0]), (q[0] if mean else p[1])
    p[4] = _slope(f4(down * p[2]), f4(high + q[24]) if q[23] != f4(0.0) else low)
    p[5] = _slope(f4(up * p[3]), f4(low - q[24]) if q[22] != f4(0.0) else high)


@nb.njit(nogil=True, error_model="numpy")
def _linear_reference(p, q, k0, k1, cell):
    b0, b1, b2, _ = block(k0, k1, OP_CELLS, cell, SAMPLE, u4(4))
    if q[16] > f4(0.0):
        p[1] = f4(p[1] / abs(_spread(f4(1.0), q[16], b0)))
    if q[17] > f4(0.0):
        p[0] = f4(p[0] / abs(_spread(f4(1.0), q[17], b1)))
    p[5], p[4] = _slope(p[3], p[1]), _slope(p[2], p[0])
    change, point = f4(p[4] - p[5]), f4(0.0)
    if q[20] != f4(0.0) and p[0] < f4(0.0) and p[1] > f4(0.0) and change != f4(0.0):
        point = f4(f4(p[3] - p[2]) / change)
    p[6] = f4(_shifted(q[18], q[19], b2) + point)
    p[7] = point


@nb.njit(nogil=True, error_model="numpy")
def _pow(p, q, k0, k1, cell):
    b0, b1, _, _ = block(k0, k1, OP_CELLS, cell, SAMPLE, u4(4))
    h, r = _shifted(f4(1.0), q[17], b0), _shifted(f4(0.0), q[20], b1)
    p[4] = abs(f4(f4(f4(q[19] + h) - r) * q[16]))
    p[5] = abs(f4(f4(f4(q[18] + h) + r) * q[16]))


@nb.njit(nogil=True, error_model="numpy")
def _pow_reference(p, q, k0, k1, cell):
    _, _, b2, _ = block(k0, k1, OP_CELLS, cell, SAMPLE, u4(4))
    point = symmetry_point(p, i8(q[24])) if q[23] != f4(0.0) else f4(0.0)
    p[6] = f4(_shifted(q[21], q[22], b2) + point)
    p[7] = point


@nb.njit(nogil=True, error_model="numpy")
def _turned(p, sign):
    """Exchange up and down; ``sign`` is that of what bends the steps, 0 for nothing at all."""
    if sign == f4(0.0):
        return
    p[0], p[1] = f4(-p[1]), f4(-p[0])
    p[2], p[3] = p[3], p[2]
    if p.size > 4:
        p[4], p[5] = f4(sign * p[5]), f4(sign * p[4])
    if p.size > 6:
        p[6] = f4(-p[6])


@nb.njit(nogil=True, error_model="numpy")
def key_of(q):
    """Read the key in the numbers of a recipe."""
    return u4(u4(q[33]) | u4(u4(q[34]) << u4(16))), u4(u4(q[35]) | u4(u4(q[36]) << u4(16)))


@nb.njit(nogil=True, error_model="numpy")
def planes_of_cell(p, q, points, k0, k1, cell, last):
    """Draw the planes of a cell; one with a reference has its symmetry point behind them."""
    model = i8(q[37])
    _shared(p, q, k0, k1, cell, last)
    if model == LINEAR:
        _linear(p, q, k0, k1, cell)
    elif model == LINEAR_REFERENCE:
        _linear_reference(p, q, k0, k1, cell)
    elif model >= POW:
        _pow(p, q, k0, k1, cell)
    if model == POW_REFERENCE:
        _pow_reference(p, q, k0, k1, cell)
    if points.size:
        p[7] = f4(points[cell])
        p[6] = f4(p[6] + p[7])
    _turned(p, q[15])


@nb.njit(nogil=True, error_model="numpy")
def _room(q):
    """Make room for the planes of one cell, and for a symmetry point behind them."""
    n_plane = i8(q[38])
    return np.zeros(n_plane + (n_plane > 6), f4)


@nb.njit(nogil=True, error_model="numpy")
def planes_at(planes, i, j, n_in, out):
    """Load the planes of one cell, or draw them where ``planes`` is a recipe, (1, 1, n)."""
    if planes.shape[0] > 1:
        for k in range(out.size):
            out[k] = planes[k, i, j]
    else:
        q, points = planes[0, 0, :RECIPE].astype(f4), planes[0, 0, RECIPE:]
        k0, k1 = key_of(q)
        p = _room(q)
        cell = u8(u8(i) * u8(n_in) + u8(j))
        planes_of_cell(p, q, points, k0, k1, cell, j == n_in - 1)
        for k in range(out.size):
            out[k] = p[k]


@nb.njit(nogil=True, error_model="numpy")
def planes_of_row(recipe, i, wanted, out):
    """Draw the planes of the wanted cells of row i."""
    n_plane, n_in = out.shape
    q, points = recipe[:RECIPE].astype(f4), recipe[RECIPE:]
    k0, k1 = key_of(q)
    p = _room(q)
    for j in range(n_in):
        if wanted[j]:
            cell = u8(u8(i) * u8(n_in) + u8(j))
            planes_of_cell(p, q, points, k0, k1, cell, j == n_in - 1)
            for k in range(n_plane):
                out[k, j] = p[k]


@nb.njit(nogil=True, error_model="numpy")
def _slow(slow, q, point, k0, k1, cell, out):
    """Draw what the slow processes need of a cell; the bits of ``slow`` say what."""
    _, _, b2, b3 = block(k0, k1, OP_CELLS, cell, SAMPLE, u4(1))
    b4, b5, _, _ = block(k0, k1, OP_CELLS, cell, SAMPLE, u4(2))
    at = 0
    if slow & 1:
        out[at] = abs(_spread(q[25], q[26], b2))
        at += 1
    if slow & 2:
        out[at] = f4(_shifted(q[27], q[28], b3) + point)
        at += 1
    if slow & 4:
        life = _spread(q[29], q[30], b4)
        out[at] = f4(0.0) if life <= f4(1.0) else f4(f4(1.0) - f4(f4(1.0) / life))
        at += 1
    if slow & 8:
        out[at] = _spread(q[31], q[32], b5)


@nb.njit(nogil=True, error_model="numpy")
def cell_planes(start, stop, n_out, slow, first_row, recipe, out):
    """Draw rows ``start`` to ``stop - 1`` of ``out``, of which row 0 is row ``first_row``."""
    n_in = out.shape[2]
    q, points = recipe[:RECIPE].astype(f4), recipe[RECIPE:]
    k0, k1 = key_of(q)
    p = _room(q)
    for i in range(start, stop):
        for j in range(n_in):
            cell = u8(u8(first_row + i) * u8(n_in) + u8(j))
            planes_of_cell(p, q, points, k0, k1, cell, j == n_in - 1)
            for k in range(n_out):
                out[k, i, j] = p[k]
            if slow:
                _slow(slow, q, p[7] if p.size > 6 else f4(0.0), k0, k1, cell, out[n_out:, i, j])
