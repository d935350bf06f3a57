"""Updates by a few samples, in one launch.

Trains and coincidences are two kernels for a batch. For a sample or so on a tile of usual size
that is mostly the time of two launches, so here each block makes the trains that it needs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact import twins
from rpukit._workers import run_rows, work_grain
from rpukit.analog.cells import PulsedCell
from rpukit.analog.cells.user_steps import StepKernel
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.random import Stream

Array = Any

_PULSED_SAMPLES = StepKernel("pulsed_samples")

MOST_SAMPLES = 4  # that the kernel takes
_LONGEST = 31  # slots of a train of one word
_THREADS = 256
_MOST_CELLS = 1 << 20  # times the square of the batch, up to which this was faster on an H200
_SHAPES = ((2, 8), (1, 4))  # columns of a thread, rows of a block
_FILLED = 200  # blocks from which the larger shape is the faster


def takes_samples(n_batch: int, shape: tuple[int, int], parameters: UpdateParameters) -> bool:
    """Tell whether one launch is the faster way for an update."""
    return (
        0 < n_batch <= MOST_SAMPLES
        and n_batch * n_batch * shape[0] * shape[1] <= _MOST_CELLS
        and parameters.coding == 0
        and not parameters.exact
        and parameters.desired_bl <= _LONGEST
        and (parameters.fixed_bl or parameters.update_bl_management)
    )


def pulsed_samples(
    weight: Array,
    x: Array,
    d: Array,
    lr: float,
    cell: PulsedCell,
    planes: Array,
    globals_: Array,
    n_pulses: Array,
    granularity: float,
    parameters: UpdateParameters,
    *,
    persistent: Array | None = None,
    pulse_counts: Array | None = None,
    stream: Stream,
    first_sample: int,
    status: Array,
    call: int = 1,
) -> None:
    """Pulse a few samples into a tile, in place: the bits of the trains and of their update.

    Parameters
    ----------
    weight : array, shape (n_out, n_in), float32 or float64
    x : array, shape (n_batch, n_in), dtype of the weight
        At most `MOST_SAMPLES` samples, for which `takes_samples` holds.
    d : array, shape (n_batch, n_out), dtype of the weight
    lr : float, not 0
    cell : PulsedCell
    planes : array, shape (n_plane, n_out, n_in), dtype of the weight
    globals_ : array, shape (n_global,), dtype of the weight
    n_pulses : array, shape (1,), int64
    granularity : float, positive, weight units
    parameters : UpdateParameters
    persistent : array, shape (n_out, n_in), dtype of the weight, or None
    pulse_counts : array, shape (n_out, n_in), int64, or None
    stream : Stream
    first_sample : int
    status : array, shape (1,), int32
    call : int
        Stored in ``status`` where x or d is not finite; nothing changes then.

    Notes
    -----
    Same bits as `rpukit.analog.update.ops.pulse_trains` and then
    `rpukit.analog.update.ops.pulsed_update`, where the arguments are explained.
    Kernel: kernels_cu/pulsed_samples.cu. Source: Gokmen and Vlasov, Front. Neurosci. 10:333
    (2016).
    """
    if _device.takes_kernels(weight):
        variant, grid, block, numbers = _prepared(
            x.shape[0],
            *weight.shape,
            lr,
            granularity,
            parameters,
            cell.STEP,
            cell.HAS_RUN,
            len(cell.PLANES),
            globals_.size,
            persistent is not None,
            pulse_counts is not None,
            weight.dtype.char,
        )
        clocks = (np.uint64(first_sample), np.int32(call))
        arrays = (x, d, planes, globals_, weight, persistent, n_pulses, pulse_counts, status)
        variant.launch(grid, block, (*numbers, *clocks, *arrays, *stream.words))
        return
    n_out = weight.shape[0]
    steps = twins.mirror("rpukit.analog._steps", weight.dtype)
    run = steps.RUNS.get(cell.STEP) if cell.HAS_RUN else None
    counts = np.zeros(n_out, np.int64)
    real = weight.dtype.type
    length, unit_scale = parameters.base_length(abs(lr), granularity)
    run_rows(
        twins.mirror("rpukit.analog._mirror.samples", weight.dtype).pulsed_samples,
        n_out,
        real(abs(lr)),
        real(granularity),
        length,
        unit_scale,
        parameters.managed,
        parameters.update_bl_management,
        real(parameters.um_grad_scale),
        *(real(res) for res in parameters.resolutions()),
        parameters.sto_round,
        steps.STEPS[cell.STEP],
        run or steps.no_run,
        cell.STEP in steps.DEAR,
        lr < 0,
        persistent is not None,
        first_sample,
        x,
        d,
        planes,
        (real(0),) * len(planes),
        globals_,
        weight,
        weight if persistent is None else persistent,
        counts,
        np.empty((0, 0), np.int64) if pulse_counts is None else pulse_counts,
        *stream.words,
        grain=work_grain(x.size),
    )
    n_pulses[0] += counts.sum()


@lru_cache(maxsize=1024)
def _prepared(
    n_batch: int,
    n_out: int,
    n_in: int,
    lr: float,
    granularity: float,
    parameters: UpdateParameters,
    step: str,
    has_run: bool,
    n_plane: int,
    n_global: int,
    write_noise: bool,
    count: bool,
    char: str,
) -> tuple[Any, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]:
    """Set the macros and cast the numbers once; a steady call costs one look-up."""
    cells, rows = _shape(n_out, n_in)
    threads = min(_THREADS, max(32, -(-n_in // (cells * 32)) * 32))
    macros = {
        "REAL": twins.real(np.dtype(char)),
        "STEP": step,
        "HAS_RUN": int(has_run),
        "N_PLANE": n_plane,
        "N_GLOBAL": n_global,
        "WRITE_NOISE": int(write_noise),
        "COUNT": int(count),
        "THREADS": threads,
        "CELLS": cells,
        "ROWS": rows,
        "SAMPLES": 1 if n_batch == 1 else MOST_SAMPLES,
    }
    grid = (-(-n_in // (threads * cells)), -(-n_out // rows))
    length, unit_scale = parameters.base_length(abs(lr), granularity)
    flags = (unit_scale, parameters.managed, parameters.update_bl_management, parameters.sto_round)
    real = np.dtype(char).type
    numbers = (
        *(np.int32(n) for n in (n_batch, n_in, n_out)),
        *(real(v) for v in (abs(lr), granularity)),
        np.int32(length),
        *(real(v) for v in (parameters.um_grad_scale, *parameters.resolutions())),
        np.int32(sum(1 << k for k, flag in enumerate(flags) if flag)),
        np.int32(lr < 0),
    )
    return _PULSED_SAMPLES.variant(macros), grid, (threads,), numbers


def _shape(n_out: int, n_in: int) -> tuple[int, int]:
    """Give columns of a thread and rows of a block."""
    cells, rows = _SHAPES[0]
    fits = n_in % cells == 0 and n_out * n_in >= cells * rows * _THREADS * _FILLED
    return _SHAPES[0] if fits else _SHAPES[1]
