"""Mirrors of mixed precision: quantisation of samples, whole pulses of a digital array."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32
from rpukit._exact.philox import uniform, word
from rpukit.analog._steps import hold

f4, u4, u8 = np.float32, np.uint32, np.uint64

ROUNDING_DRAW = u4(65532)


@jit
def quantise_rows(start, stop, half, op, stochastic, first_sample, v, out, k0, k1):
    """Quantise samples ``start`` to ``stop - 1``."""
    for s in range(start, stop):
        m = f4(0.0)
        for i in range(v.shape[1]):
            m = max(m, abs(v[s, i]))
        width = f4(m / half) if m > f4(0.0) else f4(1.0)
        if not width > f4(0.0):
            width = f4(1.0)
        sample = u8(first_sample) + u8(s)
        for i in range(v.shape[1]):
            q = f4(v[s, i] / width)
            if stochastic:
                u = uniform(word(k0, k1, u4(op), u8(i), sample, ROUNDING_DRAW))
                q = f4(q + f4(u - f4(0.5)))
            q = min(max(f4(np.rint(q)), f4(-half)), half)
            out[s, i] = hold(f4(q * width))


@jit
def take_pulses(start, stop, first, step, chi, pulses, line):
    """Take the pulses of rows ``first + start`` to ``first + stop - 1``, modulo their number."""
    n_out = chi.shape[0]
    for k in range(start, stop):
        row = (first + k) % n_out
        for i in range(n_out):
            line[k, i] = f4(1.0) if i == row else f4(0.0)
        for j in range(chi.shape[1]):
            n = f4(np.trunc(hold(f4(chi[row, j] / step))))
            chi[row, j] = fma32(f4(-n), step, chi[row, j])
            pulses[k, j] = n
