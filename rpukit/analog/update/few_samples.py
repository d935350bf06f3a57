"""Pulsed update by a few samples, in one launch.

A batch takes two kernels, for trains and for coincidences. With a few samples on a tile of usual
size the two launches would dominate, so here each block makes the trains that it needs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact import twins
from rpukit._workers import run_rows, work_grain
from rpukit.analog.cells.cell_array import CellArray
from rpukit.analog.cells.user_steps import StepKernel
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.random import Stream

Array = Any

_PULSED_SAMPLES = StepKernel("pulsed_samples")

MOST_SAMPLES = 4  # the kernel's limit
_LONGEST = 31  # slots of a train of one word
_THREADS = 256
_MOST_CELLS = 1 << 20  # times the square of the batch, up to which this was faster on an H200
_SHAPES = ((2, 8), (1, 4))  # columns of a thread, rows of a block
_FILLED = 200  # blocks from which the larger shape is the faster


def takes_samples(n_batch: int, shape: tuple[int, int], parameters: UpdateParameters) -> bool:
    """Whether an update is faster in one launch."""
    return (
        0 < n_batch <= MOST_SAMPLES
        and n_batch * n_batch * shape[0] * shape[1] <= _MOST_CELLS
        and parameters.coding == 0
        and not parameters.exact
        and parameters.desired_bl <= _LONGEST
        and (parameters.fixed_bl or parameters.update_bl_management)
    )


def pulsed_samples(
    array: CellArray,
    x: Array,
    d: Array,
    lr: float,
    parameters: UpdateParameters,
    *,
    stream: Stream,
    first_sample: int,
    call: int = 1,
) -> None:
    """Pulse a few samples into a tile in one launch, in place.

    Parameters
    ----------
    array : CellArray
        With stored cells.
    x : array, shape (n_batch, n_in), dtype of the weight
        At most `MOST_SAMPLES` samples, for which `takes_samples` holds.
    d : array, shape (n_batch, n_out), dtype of the weight
    lr : float, not 0
    parameters : UpdateParameters
    stream : Stream
    first_sample : int
    call : int
        Stored in the status of the array if x or d is not finite; nothing else changes then.

    Notes
    -----
    The bits are those of `rpukit.analog.update.ops.pulse_trains` followed by
    `rpukit.analog.update.ops.pulsed_update`, which explain the arguments.
    Kernel: kernels_cu/pulsed_samples.cu. Source: Gokmen and Vlasov, Front. Neurosci. 10:333
    (2016).
    """
    weight, stored, counted = array.weight, array.persistent, array.pulse_counts
    cell, status = array.cell, array.status
    if _device.takes_kernels(weight):
        variant, grid, block, numbers = _prepared(
            x.shape[0],
            *weight.shape,
            lr,
            array.granularity,
            parameters,
            cell.STEP,
            cell.HAS_RUN,
            len(cell.PLANES),
            array.globals_.size,
            stored is not None,
            counted is not None,
            weight.dtype.char,
        )
        clocks = (np.uint64(first_sample), np.int32(call))
        given = (x, d, array.planes, array.globals_)
        args = (*numbers, *clocks, *given, weight, stored, array.n_pulses, counted, status)
        variant.launch(grid, block, (*args, *stream.words))
        return
    counts, real = np.zeros(weight.shape[0], np.int64), weight.dtype.type
    length, unit_scale = parameters.base_length(abs(lr), array.granularity)
    run_rows(
        twins.mirror("rpukit.analog._mirror.samples", weight.dtype).pulsed_samples,
        weight.shape[0],
        real(abs(lr)),
        real(array.granularity),
        length,
        unit_scale,
        parameters.managed,
        parameters.update_bl_management,
        real(parameters.um_grad_scale),
        *(real(res) for res in parameters.resolutions()),
        parameters.sto_round,
        *array.step_functions(),
        lr < 0,
        stored is not None,
        first_sample,
        x,
        d,
        array.planes,
        (real(0),) * len(array.planes),
        array.globals_,
        weight,
        weight if stored is None else stored,
        counts,
        np.empty((0, 0), np.int64) if counted is None else counted,
        *stream.words,
        grain=work_grain(x.size),
    )
    array.n_pulses[0] += counts.sum()


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
    """Choose the columns of a thread and the rows of a block."""
    cells, rows = _SHAPES[0]
    fits = n_in % cells == 0 and n_out * n_in >= cells * rows * _THREADS * _FILLED
    return _SHAPES[0] if fits else _SHAPES[1]
