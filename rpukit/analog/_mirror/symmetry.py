"""Symmetry points of cells, where up and down steps are equal; twin in ``cell_planes.cuh``."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit.analog._steps import pow_step

f4, i8 = np.float32, np.int64
MOST_PAIRS = 10_000


@jit(_nrt=False)
def symmetry_point(p, g, n):
    """Apply n pairs of an up and a down step from weight 0; n <= 0: as many as the range needs.

    ``g`` (8) are numbers of the tile without noise: zeros.
    """
    small = p[2] if p[2] < p[3] else p[3]
    if n <= 0:
        pairs = f4(f4(10.0) * f4(f4(p[1] - p[0]) / small)) if small > f4(0.0) else f4(0.0)
        n = i8(np.floor(f4(pairs + f4(0.5)))) if pairs < f4(MOST_PAIRS) else i8(MOST_PAIRS)
    w = f4(0.0)
    for _ in range(n):
        up = f4(pow_step(w, p, g, True, f4(0.0)) - w)
        down = f4(w - pow_step(w, p, g, False, f4(0.0)))
        moved = f4(w + f4(up - down))
        if moved == w:  # a fixed point
            break
        w = moved
    return w


@jit
def symmetry_points(start, stop, n, planes, out):
    """Find the points of the cells of some rows."""
    g = np.zeros(8, f4)
    for i in range(start, stop):
        for j in range(out.shape[1]):
            out[i, j] = symmetry_point(planes[:, i, j], g, i8(n))
