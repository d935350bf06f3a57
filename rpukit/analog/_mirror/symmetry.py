"""Find where the up and the down step of cells are equal."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit.analog._steps import pow_step

f4 = np.float32


@nb.njit(nogil=True, error_model="numpy")
def symmetry_points(start, stop, n_step, most, planes, out):
    """Take pairs of an up and a down step from 0 on, for the cells of some rows."""
    g = np.zeros(8, f4)
    for i in range(start, stop):
        for j in range(out.shape[1]):
            p = planes[:, i, j]
            small = min(p[2], p[3])
            n = n_step
            if n <= 0:
                n = most
                whole = f4(f4(10.0) * f4(f4(p[1] - p[0]) / small)) if small > f4(0.0) else f4(0.0)
                if whole < f4(most):
                    n = np.int64(np.floor(f4(whole + f4(0.5))))
            w = f4(0.0)
            for _ in range(n):
                up = f4(pow_step(w, p, g, True, f4(0.0)) - w)
                down = f4(w - pow_step(w, p, g, False, f4(0.0)))
                moved = f4(w + f4(up - down))
                if moved == w:  # it stays there
                    break
                w = moved
            out[i, j] = w
