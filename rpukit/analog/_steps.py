"""One pulse on one cell, for each device model: twins of ``kernels_cu/include/device_steps.cuh``.

``step(w, p, g, up, xi)`` returns the weight after one pulse; ``p`` holds the planes of the cell
(w_min, w_max, step_down, step_up, then the model's own), ``g`` numbers of the whole tile
(dw_min_std, then the model's own). ``run(w, p, g, up, n, xi)`` tries to take n equal pulses at
once.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import fma32

f4 = np.float32

NORMAL_REACH = f4(5.3)  # no standard normal of ours is larger


@nb.njit(nogil=True, error_model="numpy", inline="always")
def clip(w, low, high):
    """Clip with the order of tests of the kernels (equal bounds: the bound)."""
    if w < low:
        return low
    if w > high:
        return high
    return w


@nb.njit(nogil=True, error_model="numpy", inline="always")
def constant_step(w, p, g, up, xi):
    """Change by +-step (1 + sigma xi)."""
    step = p[3] if up else f4(-p[2])
    return clip(f4(w + f4(step * fma32(g[0], xi, f4(1.0)))), p[0], p[1])


@nb.njit(nogil=True, error_model="numpy", inline="always")
def constant_step_run(w, p, g, up, n, xi):
    """Take n steps at once where no draw of any pulse could bring the weight to a bound."""
    step = p[3] if up else f4(-p[2])
    count = f4(n)
    reach = f4(f4(abs(step) * count) * fma32(abs(g[0]), NORMAL_REACH, f4(1.0)))
    if not (f4(w + reach) <= p[1] and f4(w - reach) >= p[0]):
        return False, w
    spread = fma32(f4(g[0] * np.sqrt(count)), xi, count)
    return True, clip(f4(w + f4(step * spread)), p[0], p[1])


@nb.njit(nogil=True, error_model="numpy", inline="always")
def linear_step(w, p, g, up, xi):
    """Change by +-(step + slope w), the whole of it or the constant part noisy."""
    step = p[3] if up else p[2]
    slope = p[5] if up else p[4]
    noise = fma32(g[0], xi, f4(1.0))
    if g[1] != f4(0.0):
        dw = f4(fma32(slope, w, step) * noise)
    else:
        dw = fma32(slope, w, f4(step * noise))
    return clip(f4(w + dw) if up else f4(w - dw), p[0], p[1])


@nb.njit(nogil=True, error_model="numpy", inline="always")
def no_run(w, p, g, up, n, xi):
    """Decline: every pulse is walked."""
    return False, w


STEPS = {"constant_step": constant_step, "linear_step": linear_step}
RUNS = {"constant_step": constant_step_run}
