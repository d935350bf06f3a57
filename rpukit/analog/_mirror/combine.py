"""Mirrors of the kernels of compound cells."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32
from rpukit.analog._steps import hold

f4 = np.float32


@jit
def combine_devices(start, stop, gamma, devices, row_sign, col_sign, weight):
    """Compute the visible weight of rows ``start`` to ``stop - 1``; empty signs stand for none."""
    for i in range(start, stop):
        for j in range(weight.shape[1]):
            w = f4(0.0)
            for k in range(gamma.size):
                if gamma[k] == f4(0.0):
                    continue
                v = devices[k, i, j]
                if k == 0 and row_sign.size:
                    v = f4(v * f4(row_sign[i]))
                if k == 0 and col_sign.size:
                    v = f4(v * f4(col_sign[j]))
                w = hold(fma32(gamma[k], v, w))
            weight[i, j] = w


@jit
def select_refresh(start, stop, first_col, full, some, plus, minus, chosen, rise_plus, rise_minus):
    """Choose the cells to refresh in columns ``first_col + start`` to ``first_col + stop - 1``."""
    for c in range(start, stop):
        for row in range(plus.shape[1]):
            p, q = plus[c, row], minus[c, row]
            up = p > q
            take = (p > full and q > some) if up else (p > some and q > full)
            chosen[row, first_col + c] = f4(1.0) if take else f4(0.0)
            rise_plus[c, row] = f4(p - q) if take and up else f4(0.0)
            rise_minus[c, row] = f4(q - p) if take and not up else f4(0.0)
