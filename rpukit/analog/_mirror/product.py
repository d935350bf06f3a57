"""Mirror of the whole product of a tile: the scales, then the product through the periphery."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit.analog._mirror.forward import tile_scale
from rpukit.analog._mirror.nonideal import _sums, tile_nonideal

f4 = np.float32


@jit
def _perfect(start, stop, transposed, has, out_scale, weight, factor, x, y):
    sums, part = np.empty(5, f4), np.empty(5, f4)
    for s in range(start, stop):
        for i in range(y.shape[1]):
            _sums(weight, factor, x[s], transposed, i, 0, has, sums, part)
            y[s, i] = f4(sums[0] * out_scale)


@jit
def tile_product(
    start,
    stop,
    transposed,
    perfect,
    passes,
    has,
    mode,
    worst,
    threshold,
    step,
    max_bm_res,
    bound,
    first_sample,
    in_op,
    out_op,
    rhos,
    io,
    more,
    weight,
    factor,
    x,
    alpha,
    average,
    lines,
    y,
    k0,
    k1,
):
    """Multiply samples ``start`` to ``stop - 1``; see the two mirrors that it calls."""
    if perfect:
        _perfect(start, stop, transposed, has, io[8], weight, factor, x, y)
        return
    tile_scale(start, stop, mode, worst, threshold, step, max_bm_res, bound, x, alpha, average)
    tile_nonideal(
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
    )
