"""Mirror of the update by a few samples in one launch."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit.analog._mirror.pulses import pulsed_update
from rpukit.analog._mirror.update import pulse_trains

i8, u4 = np.int64, np.uint32


@jit
def pulsed_samples(
    start,
    stop,
    lr,
    granularity,
    base_length,
    unit_scale,
    managed,
    managed_length,
    grad_scale,
    x_res,
    d_res,
    stochastic_rounding,
    step,
    run,
    dear,
    flip,
    write_noise,
    first_sample,
    x,
    d,
    planes,
    blank,
    g,
    weight,
    persistent,
    n_pulses,
    pulse_counts,
    k0,
    k1,
):
    """Pulse the cells of rows ``start`` to ``stop - 1``; each range of rows makes all trains."""
    n_batch = x.shape[0]
    x_train, d_train = (
        np.empty((n_batch, 1, x.shape[1]), u4),
        np.empty((n_batch, 1, d.shape[1]), u4),
    )
    pulse_trains(
        0,
        n_batch,
        lr,
        granularity,
        base_length,
        unit_scale,
        managed,
        managed_length,
        grad_scale,
        x_res,
        d_res,
        stochastic_rounding,
        0,
        first_sample,
        x,
        d,
        np.empty(0, x.dtype),
        x_train,
        d_train,
        k0,
        k1,
    )
    pulsed_update(
        start,
        stop,
        step,
        run,
        dear,
        flip,
        0,
        0,
        write_noise,
        first_sample,
        0,
        0,
        weight.shape[1],
        planes,
        blank,
        g,
        x_train,
        d_train,
        np.empty(0, i8),
        np.empty(0, u4),
        weight,
        persistent,
        n_pulses,
        pulse_counts,
        k0,
        k1,
    )
