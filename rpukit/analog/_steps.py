"""One pulse on one cell, for each device model: twins of ``kernels_cu/include/device_steps.cuh``.

``step(w, p, g, up, xi)`` returns the weight after one pulse; ``p`` holds the planes of the cell
(w_min, w_max, step_down, step_up, then the model's own), ``g`` numbers of the whole tile
(dw_min_std, then the model's own). ``run(w, p, g, up, n, xi)`` tries to take n equal pulses at
once.
"""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import choose, exp32, fma32, log32
from rpukit.errors import ParameterError

f4, i4 = np.float32, np.int32

NORMAL_REACH = f4(5.3)  # no standard normal of ours is larger
LARGEST = f4(np.finfo(f4).max)
LARGE = f4(1e20)  # beyond all bounds, and still finite where it is multiplied by a step


@jit(forceinline=True)
def clip(w, low, high):
    """Clip with the order of tests of the kernels (equal bounds: the bound)."""
    return choose(w < low, low, choose(w > high, high, w))


@jit(forceinline=True)
def hold(v):
    """Hold at the largest number of the type: what lasts is finite, also without bounds."""
    return clip(v, f4(-LARGEST), LARGEST)


@jit(forceinline=True)
def constant_step(w, p, g, up, xi):
    """Change by +-step (1 + sigma xi)."""
    step = p[3] if up else f4(-p[2])
    return clip(f4(w + f4(step * fma32(g[0], xi, f4(1.0)))), p[0], p[1])


@jit(forceinline=True)
def constant_step_run(w, p, g, up, n, xi):
    """Take n steps at once where no draw of any pulse could bring the weight to a bound."""
    step = p[3] if up else f4(-p[2])
    count = f4(n)
    reach = f4(f4(abs(step) * count) * fma32(abs(g[0]), NORMAL_REACH, f4(1.0)))
    if not (f4(w + reach) <= p[1] and f4(w - reach) >= p[0]):
        return False, w
    spread = fma32(f4(g[0] * np.sqrt(count)), xi, count)
    return True, clip(f4(w + f4(step * spread)), p[0], p[1])


@jit(forceinline=True)
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


@jit(forceinline=True)
def part(v, p):
    """Give a part of the range of a cell; 0 where the cell has none."""
    span = f4(p[1] - p[0])
    return choose(span > f4(0.0), f4(v / span), f4(0.0))


@jit(forceinline=True)
def linear_reference_step(w, p, g, up, xi):
    """Change as `linear_step` does, seen from a reference."""
    return f4(linear_step(f4(w + p[6]), p, g, up, xi) - p[6])


@jit(forceinline=True)
def exp_step(w, p, g, up, xi):
    """Change by +-(s + sigma (|s| + add + slope |w|) xi), s exponential in w."""
    grown = exp32(f4((g[3] if up else f4(-g[4])) * part(w, p)))
    grown = choose(grown < LARGE, grown, LARGE)
    factor = fma32(f4(-g[1]) if up else f4(-g[2]), grown, f4(1.0))
    factor = choose(factor < LARGE, factor, LARGE)
    dw = f4((p[3] if up else p[2]) * (factor if factor > f4(0.0) else f4(0.0)))
    spread = f4(g[0] * f4(abs(dw) + fma32(g[6], abs(w), g[5])))
    dw = fma32(spread, xi, dw)
    return clip(f4(w + dw) if up else f4(w - dw), p[0], p[1])


@jit(forceinline=True)
def pow_step(w, p, g, up, xi):
    """Change by +-step r^gamma, r the part of the range that is left in this direction."""
    left = part(f4(p[1] - w) if up else f4(w - p[0]), p)
    gamma = p[5] if up else p[4]
    none = choose(gamma == f4(0.0), f4(1.0), f4(0.0))
    factor = choose(left > f4(0.0), exp32(f4(gamma * log32(left))), none)
    step = p[3] if up else p[2]
    dw = f4(f4(step * factor) * fma32(g[0], xi, f4(1.0)))
    return clip(f4(w + dw) if up else f4(w - dw), p[0], p[1])


@jit(forceinline=True)
def pow_reference_step(w, p, g, up, xi):
    """Change as `pow_step` does, seen from a reference."""
    return f4(pow_step(f4(w + p[6]), p, g, up, xi) - p[6])


@jit(forceinline=True)
def piecewise_step(w, p, g, up, xi):
    """Change by +-step f(w), f linear between nodes over the range."""
    n_up = i4(g[1])
    last = i4((n_up if up else i4(g[2])) - i4(1))
    first = i4(8) if up else i4(i4(8) + n_up)
    factor = g[first]
    if last > 0:
        end = f4(last)
        at = f4(part(f4(w - p[0]), p) * end)
        at = (at if at < end else end) if at > f4(0.0) else f4(0.0)
        i = i4(at) if i4(at) < last else i4(last - i4(1))
        low = g[first + i]
        factor = fma32(f4(at - f4(i)), f4(g[first + i + i4(1)] - low), low)
    step = p[3] if up else p[2]
    dw = f4(f4(step * factor) * fma32(g[0], xi, f4(1.0)))
    return clip(f4(w + dw) if up else f4(w - dw), p[0], p[1])


@jit(forceinline=True)
def no_run(w, p, g, up, n, xi):
    """Decline: every pulse is walked."""
    return False, w


class Steps(dict):
    """Step functions by name."""

    def __missing__(self, name):
        raise ParameterError(
            f"STEP: got {name!r}, no step function of that name: call rk.register_step first"
        )


STEPS = Steps(
    {
        "constant_step": constant_step,
        "linear_step": linear_step,
        "linear_reference_step": linear_reference_step,
        "exp_step": exp_step,
        "pow_step": pow_step,
        "pow_reference_step": pow_reference_step,
        "piecewise_step": piecewise_step,
    }
)
RUNS = {"constant_step": constant_step_run}
DEAR = {"exp_step", "pow_step", "pow_reference_step"}  # an exponential for each pulse


def compiled(function):
    """Compile a function of Numba's language, unless it is compiled already."""
    if hasattr(function, "py_func"):
        return function
    if not callable(function):
        raise ParameterError(f"mirror, run: got {function!r}, need a function")
    return jit(function, forceinline=True)
