"""Mirror of the pulsed update without stored planes, which are drawn a few rows at a time."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit.analog._mirror.planes import planes_of_row
from rpukit.analog._mirror.pulses import BITS
from rpukit.analog._mirror.pulses import pulsed_update as pulsed_rows

f4, u4 = np.float32, np.uint32
ROWS = 16  # rows whose planes are drawn at a time


@jit
def _mark_pulsed(i, implicit, x_train, d_train, pulsed):
    """Mark the columns that may get a pulse in row i."""
    n_batch, n_word, n_in = x_train.shape
    pulsed[:] = False
    for s in range(n_batch):
        for w in range(n_word):
            d = d_train[s, w, i]
            if d != u4(0):
                mask = u4(0xFFFFFFFF) if implicit else u4(d & BITS)
                for j in range(n_in):
                    pulsed[j] |= u4(x_train[s, w, j] & mask) != u4(0)


@jit
def pulsed_update(
    start,
    stop,
    step,
    run,
    dear,
    flip,
    polarity,
    implicit,
    write_noise,
    first_sample,
    first_row,
    first_col,
    tile_cols,
    recipe,
    blank,
    g,
    x_train,
    d_train,
    offsets,
    columns,
    weight,
    persistent,
    n_pulses,
    pulse_counts,
    k0,
    k1,
):
    """Pulse the cells of rows ``start`` to ``stop - 1``, drawing their planes when needed.

    Row 0 is number ``first_row`` of its tile, column 0 number ``first_col`` of ``tile_cols``.
    """
    n_in = weight.shape[1]
    n_row = min(ROWS, stop - start)
    planes, pulsed = np.zeros((len(blank), n_row, n_in), f4), np.zeros(n_in, np.bool_)
    for first in range(start, stop, n_row):
        last = min(first + n_row, stop)
        for i in range(first, last):
            _mark_pulsed(i, implicit, x_train, d_train, pulsed)
            at, here = planes[:, i - first], np.flatnonzero(pulsed)
            planes_of_row(recipe, first_row + i, first_col, tile_cols, here, at)
        pulsed_rows(
            first,
            last,
            step,
            run,
            dear,
            flip,
            polarity,
            implicit,
            write_noise,
            first_sample,
            first_row,
            first_col,
            tile_cols,
            planes,
            blank,
            g,
            x_train,
            d_train,
            offsets,
            columns,
            weight,
            persistent,
            n_pulses,
            pulse_counts,
            k0,
            k1,
        )
