"""Mirror of the batch-invariant product."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import fma32, fma64

SEGMENT = 16384


def _make(fma, zero):
    @nb.njit(nogil=True, error_model="numpy")
    def det_gemm(start, stop, a, b, c):
        """Rows ``start`` to ``stop - 1`` of c = a b, k ascending; vectorises over columns."""
        n_k, n = b.shape
        part = np.empty(n, c.dtype)
        for i in range(start, stop):
            c[i, :] = zero
            for first in range(0, n_k, SEGMENT):
                target = c[i] if first == 0 else part
                target[:] = zero
                for p in range(first, min(first + SEGMENT, n_k)):
                    x = a[i, p]
                    for j in range(n):
                        target[j] = fma(x, b[p, j], target[j])
                if first:
                    for j in range(n):
                        c[i, j] += part[j]

    return det_gemm


_FLOAT, _DOUBLE = _make(fma32, np.float32(0)), _make(fma64, np.float64(0))


def det_gemm(start, stop, a, b, c):
    """Rows ``start`` to ``stop - 1`` of c = a b, in the type of c."""
    (_FLOAT if c.dtype == np.float32 else _DOUBLE)(start, stop, a, b, c)
