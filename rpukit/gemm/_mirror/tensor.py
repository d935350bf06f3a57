"""Mirror of products on tensor cores, by the arithmetic of ``rpukit/_exact/tensor_core.py``."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.lines import copy
from rpukit._exact.tensor_core import go_on, round16


@jit
def _give(half, adding, total, acc, first, out):
    """Results of one segment: on top of those before, rounded where out has 16 bits."""
    for i in range(acc.shape[0]):
        for j in range(acc.shape[1]):  # lines of out may be longer
            value = total[first + i, j] + acc[i, j] if adding else acc[i, j]
            if out.itemsize == 2:
                out[first + i, j] = round16(half, value)
            else:
                out[first + i, j] = value


@jit
def det_gemm_tensor(
    start,
    stop,
    half,
    block,
    fraction,
    going,
    adding,
    a,
    sa,
    ea,
    b,
    sb,
    eb,
    rows,
    columns,
    partial,
    total,
    out,
):
    """Rows ``start`` to ``stop - 1`` of one segment of a product of 16-bit floats.

    ``going``: the chains start from `partial` (m, n), else from 0; ``adding``: results are added
    to `total` (m, n). Rows of partial, total and out may be longer. ``a`` (m, k) and ``b`` (k, n)
    are bits, ``sa`` to ``eb`` what `split` made of them; ``rows`` and ``columns`` mark those that
    hold infinities or NaN.
    """
    n = sb.shape[1]
    acc = np.zeros((stop - start, n), np.float32)
    if going:
        for i in range(stop - start):
            copy(acc[i], partial[start + i])
    go_on(
        half,
        block,
        fraction,
        a[start:stop],
        sa[start:stop],
        ea[start:stop],
        b,
        sb,
        eb,
        rows[start:stop],
        columns,
        acc,
    )
    _give(half, adding, total, acc, start, out)


@jit
def det_gemm_mma(start, stop, *rest):
    """The same: a step of mma.sync is a step of wgmma."""
    det_gemm_tensor(start, stop, *rest)
