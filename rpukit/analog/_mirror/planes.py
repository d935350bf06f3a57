"""Mirror of the kernel that draws cells; twin of ``kernels_cu/include/cell_planes.cuh``.

All normals of some cells of a row are drawn first, so that the loop vectorises: ``z`` (8, n) holds
four common to all models, then four that belong to a model.
"""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import exp32
from rpukit._exact.philox import block, normal, uniform
from rpukit.analog._mirror.symmetry import symmetry_point

BOTH_TYPES = True  # draws are float32 in tiles of float64, too: see `twins`

f4, i8, u4, u8 = np.float32, np.int64, np.uint32, np.uint64

OP_CELLS, SAMPLE = u4(8), u8(0)
RECIPE = 40  # numbers of a tile, see the kernel's header
SHARED, LINEAR, LINEAR_REFERENCE, POW, POW_REFERENCE = range(5)


@jit(forceinline=True)
def _spread(mean, dtod, xi):
    if dtod == f4(0.0) or mean == f4(0.0):
        return mean
    return f4(mean * f4(f4(1.0) + f4(dtod * xi)))


@jit(forceinline=True)
def _shifted(mean, std, xi):
    return mean if std == f4(0.0) else f4(mean + f4(std * xi))


@jit(forceinline=True)
def _slope(step, at):
    return f4(f4(-step) / at) if step != f4(0.0) and at != f4(0.0) else f4(0.0)


@jit(_nrt=False, forceinline=True)
def _shared(p, q, z, a, k0, k1, cell, last):
    high, low = _spread(q[0], q[1], z[0, a]), _spread(q[2], q[3], z[1, a])
    gain, r = f4(1.0), f4(0.0)
    if q[5] > f4(0.0):
        wide = f4(q[5] * z[2, a])
        gain = exp32(wide) if q[12] != f4(0.0) else f4(f4(1.0) + wide)
    if q[8] > f4(0.0):
        r = f4(q[8] * z[3, a])
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


@jit(_nrt=False, forceinline=True)
def _linear(p, q, z, a):
    up, down = _shifted(q[16], q[17], z[4, a]), _shifted(q[18], q[19], z[5, a])
    if q[20] == f4(0.0):
        up, down = abs(up), abs(down)
    mean = q[21] != f4(0.0)
    low, high = (q[2] if mean else p[0]), (q[0] if mean else p[1])
    p[4] = _slope(f4(down * p[2]), f4(high + q[24]) if q[23] != f4(0.0) else low)
    p[5] = _slope(f4(up * p[3]), f4(low - q[24]) if q[22] != f4(0.0) else high)


@jit(_nrt=False, forceinline=True)
def _linear_reference(p, q, z, a):
    if q[16] > f4(0.0):
        p[1] = f4(p[1] / abs(_spread(f4(1.0), q[16], z[4, a])))
    if q[17] > f4(0.0):
        p[0] = f4(p[0] / abs(_spread(f4(1.0), q[17], z[5, a])))
    p[5], p[4] = _slope(p[3], p[1]), _slope(p[2], p[0])
    change, point = f4(p[4] - p[5]), f4(0.0)
    if q[20] != f4(0.0) and p[0] < f4(0.0) and p[1] > f4(0.0) and change != f4(0.0):
        point = f4(f4(p[3] - p[2]) / change)
    p[6] = f4(_shifted(q[18], q[19], z[6, a]) + point)
    p[7] = point


@jit(_nrt=False, forceinline=True)
def _pow(p, q, z, a):
    h, r = _shifted(f4(1.0), q[17], z[4, a]), _shifted(f4(0.0), q[20], z[5, a])
    p[4] = abs(f4(f4(f4(q[19] + h) - r) * q[16]))
    p[5] = abs(f4(f4(f4(q[18] + h) + r) * q[16]))


@jit(_nrt=False, forceinline=True)
def _pow_reference(p, q, z, a, g):
    point = symmetry_point(p, g, i8(q[24])) if q[23] != f4(0.0) else f4(0.0)
    p[6] = f4(_shifted(q[21], q[22], z[6, a]) + point)
    p[7] = point


@jit(_nrt=False, forceinline=True)
def _turned(p, sign):
    """Exchange up and down; ``sign`` is that of the slopes of steps, 0 leaves all unchanged."""
    if sign == f4(0.0):
        return
    p[0], p[1] = f4(-p[1]), f4(-p[0])
    p[2], p[3] = p[3], p[2]
    if p.size > 4:
        p[4], p[5] = f4(sign * p[5]), f4(sign * p[4])
    if p.size > 6:
        p[6] = f4(-p[6])


@jit
def key_of(q):
    """Read the key from the numbers of a recipe."""
    return u4(u4(q[33]) | u4(u4(q[34]) << u4(16))), u4(u4(q[35]) | u4(u4(q[36]) << u4(16)))


@jit
def _has_own_draws(q):
    """Whether the model's specific parameters differ from cell to cell."""
    model = i8(q[37])
    if model == LINEAR:
        return q[17] != f4(0.0) or q[19] != f4(0.0)
    if model == LINEAR_REFERENCE:
        return q[16] != f4(0.0) or q[17] != f4(0.0) or q[19] != f4(0.0)
    return model >= POW


@jit
def _draw(q, k0, k1, first, columns, words, z):
    """Draw the normals of some cells of a row that begins with cell ``first``."""
    for b in range(2 if _has_own_draws(q) else 1):
        for a in range(columns.size):
            cell = u8(first + u8(columns[a]))
            words[0, a], words[1, a], words[2, a], words[3, a] = block(
                k0, k1, OP_CELLS, cell, SAMPLE, u4(4 * b)
            )
        for k in range(4):
            for a in range(columns.size):
                z[4 * b + k, a] = normal(words[k, a])


@jit(_nrt=False, forceinline=True)
def _planes(p, q, z, a, g, points, k0, k1, cell, last):
    """Compute the planes of a cell, followed by the symmetry point of one with a reference."""
    model = i8(q[37])
    _shared(p, q, z, a, k0, k1, cell, last)
    if model == LINEAR:
        _linear(p, q, z, a)
    elif model == LINEAR_REFERENCE:
        _linear_reference(p, q, z, a)
    elif model >= POW:
        _pow(p, q, z, a)
    if model == POW_REFERENCE:
        _pow_reference(p, q, z, a, g)
    if points.size:
        p[7] = f4(points[cell])
        p[6] = f4(p[6] + p[7])
    _turned(p, q[15])


@jit
def _room(q, n):
    """Allocate the planes of one cell, with its symmetry point, and the draws of n cells."""
    n_plane = i8(q[38])
    p, g = np.zeros(n_plane + (n_plane > 6), f4), np.zeros(8, f4)
    return p, np.zeros((4, n), u4), np.zeros((8, n), f4), g


@jit
def planes_at(planes, i, j, n_in, out):
    """Load the planes of one cell, or draw them where ``planes`` is a recipe, (1, 1, n)."""
    if planes.shape[0] > 1:
        for k in range(out.size):
            out[k] = planes[k, i, j]
    else:
        q, points = planes[0, 0, :RECIPE].astype(f4), planes[0, 0, RECIPE:]
        k0, k1 = key_of(q)
        p, words, z, g = _room(q, 1)
        first = u8(u8(i) * u8(n_in))
        _draw(q, k0, k1, first, np.full(1, j), words, z)
        _planes(p, q, z, 0, g, points, k0, k1, u8(first + u8(j)), j == n_in - 1)
        for k in range(out.size):
            out[k] = p[k]


@jit
def planes_of_row(recipe, i, first_col, tile_cols, columns, out):
    """Draw the planes of some cells of row i; ``out`` begins with column ``first_col``."""
    q, points = recipe[:RECIPE].astype(f4), recipe[RECIPE:]
    k0, k1 = key_of(q)
    p, words, z, g = _room(q, columns.size)
    first = u8(u8(u8(i) * u8(tile_cols)) + u8(first_col))
    _draw(q, k0, k1, first, columns, words, z)
    for a in range(columns.size):
        j = columns[a]
        last = first_col + j == tile_cols - 1
        _planes(p, q, z, a, g, points, k0, k1, u8(first + u8(j)), last)
        for k in range(out.shape[0]):
            out[k, j] = p[k]


@jit
def _slow(slow, q, point, k0, k1, cell, out):
    """Draw a cell's parameters of the weight processes that the bits of ``slow`` select."""
    _, _, b2, b3 = block(k0, k1, OP_CELLS, cell, SAMPLE, u4(1))
    b4, b5, _, _ = block(k0, k1, OP_CELLS, cell, SAMPLE, u4(2))
    at = 0
    if slow & 1:
        out[at] = abs(_spread(q[25], q[26], normal(b2)))
        at += 1
    if slow & 2:
        out[at] = f4(_shifted(q[27], q[28], normal(b3)) + point)
        at += 1
    if slow & 4:
        life = _spread(q[29], q[30], normal(b4))
        out[at] = f4(0.0) if life <= f4(1.0) else f4(f4(1.0) - f4(f4(1.0) / life))
        at += 1
    if slow & 8:
        out[at] = _spread(q[31], q[32], normal(b5))


@jit
def cell_planes(start, stop, n_out, slow, first_row, first_col, tile_cols, recipe, out):
    """Draw rows ``start`` to ``stop - 1`` of ``out``.

    Its row 0 is row ``first_row``, its column 0 column ``first_col`` of a tile with ``tile_cols``
    columns.
    """
    n_in = out.shape[2]
    q, points = recipe[:RECIPE].astype(f4), recipe[RECIPE:]
    k0, k1 = key_of(q)
    p, words, z, g = _room(q, n_in)
    columns = np.arange(n_in)
    for i in range(start, stop):
        first = u8(u8(u8(first_row + i) * u8(tile_cols)) + u8(first_col))
        _draw(q, k0, k1, first, columns, words, z)
        for j in range(n_in):
            cell, last = u8(first + u8(j)), first_col + j == tile_cols - 1
            _planes(p, q, z, j, g, points, k0, k1, cell, last)
            for k in range(n_out):
                out[k, i, j] = p[k]
            if slow:
                _slow(slow, q, p[7] if p.size > 6 else f4(0.0), k0, k1, cell, out[n_out:, i, j])
