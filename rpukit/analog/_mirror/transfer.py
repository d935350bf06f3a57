"""Mirrors of the transfer family: the digital buffer, the scale of the fast rate."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._math import fma32

f4 = np.float32


@nb.njit(nogil=True, error_model="numpy")
def transfer_buffer(
    start,
    stop,
    kind,
    forget,
    threshold,
    length,
    momentum,
    keep,
    mu,
    cap,
    events,
    kappas,
    rates,
    line_sign,
    z,
    buffer,
    mean,
    past,
    d,
):
    """Take the events in order for lines ``start`` to ``stop - 1``."""
    for t in range(events.shape[0]):
        i, flags = events[t, 0], events[t, 2]
        u = kappas[t, 1]
        if rates.size:
            u = f4(u / rates[events[t, 3]])
        for line in range(start, stop):
            v, omega, unit = z[t, line], buffer[i, line], f4(1.0)
            if kind == 2:
                omega = fma32(u, v, omega)
                q = f4(omega / threshold)
                unit = threshold
            else:
                fresh = v
                if kind == 4:
                    if flags & 1:
                        past[i, line] = mean[i, line]
                    fresh = f4(v - past[i, line])
                    mean[i, line] = fma32(mu, v, f4(f4(f4(1.0) - mu) * mean[i, line]))
                else:
                    omega = f4(keep * omega)
                fresh = f4(f4(kappas[t, 0] * line_sign[line]) * fresh)
                omega = fma32(fresh, u, omega)
                q = omega
            n = min(max(f4(np.trunc(q)), f4(-length)), length)
            if n != f4(0.0):
                if forget:
                    omega = f4(momentum * omega)
                else:
                    omega = fma32(f4(f4(-f4(f4(1.0) - momentum)) * n), unit, omega)
                    if cap > f4(0.0):
                        omega = min(max(omega, f4(-cap)), cap)
            d[t, line] = f4(-n) if flags & 2 else f4(0.0)
            buffer[i, line] = omega


@nb.njit(nogil=True, error_model="numpy")
def _followed(m, v, t):
    if not m > f4(0.0):
        return v
    return fma32(t, v, f4(f4(f4(1.0) - t) * m)) if v > f4(0.0) else m


@nb.njit(nogil=True, error_model="numpy")
def auto_scale(start, stop, factor, t, x_max, d_max, running, rates):
    """Follow the maxima of samples ``start`` to ``stop - 1``, in order; give the rate of each."""
    m_x, m_d = running[0], running[1]
    for s in range(start, stop):
        m_x, m_d = _followed(m_x, x_max[s], t), _followed(m_d, d_max[s], t)
        both = m_x > f4(0.0) and m_d > f4(0.0)
        rates[s] = f4(factor / f4(m_x * m_d)) if both else factor
    running[0], running[1] = m_x, m_d
