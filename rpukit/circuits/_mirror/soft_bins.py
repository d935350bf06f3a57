"""Products of soft bins for mutual information: float64, samples ascending; no kernel has them."""

# mypy: ignore-errors

from __future__ import annotations

from rpukit._exact.jit import jit


@jit
def pair_sums(start, stop, soft, out):
    """out[i, j] = sum_n soft[n, i] soft[n, j] for rows i from start to stop - 1, and j from i on.

    Samples n ascend; each product is rounded, then added. Four samples at a time save loads.
    """
    n_sample, width = soft.shape
    whole = n_sample // 4 * 4
    for n in range(0, whole, 4):
        for i in range(start, stop):
            a, b, c, d = soft[n, i], soft[n + 1, i], soft[n + 2, i], soft[n + 3, i]
            for j in range(i, width):
                v = out[i, j] + a * soft[n, j]
                v = v + b * soft[n + 1, j]
                v = v + c * soft[n + 2, j]
                out[i, j] = v + d * soft[n + 3, j]
    for n in range(whole, n_sample):
        for i in range(start, stop):
            a = soft[n, i]
            for j in range(i, width):
                out[i, j] = out[i, j] + a * soft[n, j]
