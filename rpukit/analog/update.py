"""Ops of the update: pulse trains, the pulsed update, the exact rank update.

Each op checks nothing that the tile has checked; it allocates, picks and launches. ``status`` is the
tile's flag array: not zero makes a kernel do nothing, a non-finite input stores ``call`` in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel
from rpukit._workers import run_rows
from rpukit.analog.cells import PulsedCell
from rpukit.analog.update_parameters import UpdateParameters
from rpukit.random import Stream

Array = Any

_PULSE_TRAINS = Kernel("pulse_trains")
_PULSED_UPDATE = Kernel("pulsed_update")
_RANK_UPDATE = Kernel("rank_update")

SLOTS = 31  # slots in one word of a train; the last bit is the sign
_THREADS = 256
_FILLS_A_GPU = 1 << 18  # threads that keep the largest GPU busy


@dataclass(frozen=True, slots=True)
class Trains:
    """Pulse trains of a batch.

    Attributes
    ----------
    x : array, shape (n_batch, n_word, n_in), uint32
    d : array, shape (n_batch, n_word, n_out), uint32
        Slots 31 w to 31 w + 30 of a line are bits 0 to 30 of word w; bit 31 is the sign. Implicit
        pulses: the bits of float32 numbers, with the bit length in d.
    implicit : bool
    """

    x: Array
    d: Array
    implicit: bool


def _mirror() -> Any:
    return import_module("rpukit.analog._mirror.update")


def pulse_trains(
    x: Array,
    d: Array,
    lr: float,
    granularity: float,
    parameters: UpdateParameters,
    *,
    stream: Stream,
    first_sample: int,
    status: Array,
    call: int = 1,
) -> Trains:
    """Turn a batch of activations and errors into pulse trains.

    Parameters
    ----------
    x : array, shape (n_batch, n_in), float32
    d : array, shape (n_batch, n_out), float32
    lr : float, positive
        Size of the learning rate; its sign only turns pulses round.
    granularity : float, positive, weight units
        Mean step of the device.
    parameters : UpdateParameters
    stream : Stream
    first_sample : int
        Position of ``x[0]`` on the update clock.
    status : array, shape (1,), int32
    call : int

    Returns
    -------
    Trains

    Raises
    ------
    ParameterError
        Where lr needs trains longer than the longest possible.
    """
    (n_batch, n_in), n_out = x.shape, d.shape[1]
    length, unit_scale = parameters.base_length(lr, granularity)
    implicit = parameters.implicit
    n_word = 1 if implicit else -(-length // SLOTS)
    device = _device.device_of(x)
    trains = Trains(
        _device.empty((n_batch, n_word, n_in), np.uint32, device),
        _device.empty((n_batch, n_word, n_out), np.uint32, device),
        implicit,
    )
    x_res, d_res = parameters.resolutions()
    numbers = (
        lr, granularity, length, unit_scale, parameters.managed, parameters.update_bl_management,
        parameters.um_grad_scale, x_res, d_res, parameters.sto_round,
    )  # fmt: skip
    if _device.runs_kernels(_device.namespace(x, d)):
        _PULSE_TRAINS.launch(
            (n_batch, -(-(n_in + n_out) // _THREADS)),
            (_THREADS,),
            (n_batch, n_in, n_out, n_word, *numbers, first_sample, call, x, d, trains.x, trains.d,
             status, stream.key0, stream.key1),
            macros={"IMPLICIT": int(implicit)},
        )  # fmt: skip
    else:
        run_rows(
            _mirror().pulse_trains, n_batch, *_float32(numbers), implicit, first_sample,
            x, d, trains.x, trains.d, np.uint32(stream.key0), np.uint32(stream.key1), grain=8,
        )  # fmt: skip
    return trains


def _float32(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Cast the floats among mirror arguments as a launch does."""
    return tuple(np.float32(v) if isinstance(v, float) else v for v in numbers)


def pulsed_update(
    weight: Array,
    trains: Trains,
    cell: PulsedCell,
    planes: Array,
    globals_: Array,
    n_pulses: Array,
    *,
    flip: bool = False,
    persistent: Array | None = None,
    stream: Stream,
    first_sample: int,
    status: Array,
) -> None:
    """Change weights by the coincidences of pulse trains, in place.

    Parameters
    ----------
    weight : array, shape (n_out, n_in), float32
    trains : Trains
    cell : PulsedCell
        Gives the step function.
    planes : array, shape (n_plane, n_out, n_in), float32
    globals_ : array, shape (8,), float32
    n_pulses : array, shape (1,), int64
        The number of pulses is added to it.
    flip : bool
        Turn all pulses round (a negative learning rate).
    persistent : array, shape (n_out, n_in), float32, or None
        What the pulses act on where the cell has write noise.
    stream : Stream
    first_sample : int
    status : array, shape (1,), int32

    Notes
    -----
    For one cell, samples are applied in ascending order, and within a sample one run of pulses.
    Kernel: kernels_cu/pulsed_update.cu. Source: Gokmen and Vlasov, Front. Neurosci. 10:333 (2016).
    """
    n_batch, n_word, n_in = trains.x.shape
    n_out = weight.shape[0]
    noisy_write = persistent is not None
    if _device.runs_kernels(_device.namespace(weight, trains.x)):
        cells, rows = _tile_of(n_out, n_in)
        threads = min(_THREADS, max(32, -(-n_in // (cells * 32)) * 32))
        _PULSED_UPDATE.launch(
            (-(-n_in // (threads * cells)), -(-n_out // rows)),
            (threads,),
            (n_batch, n_in, n_out, flip, first_sample, planes, globals_, trains.x, trains.d,
             weight, persistent, n_pulses, status, stream.key0, stream.key1),
            macros={
                "STEP": cell.STEP, "HAS_RUN": int(cell.HAS_RUN), "N_PLANE": len(cell.PLANES),
                "WRITE_NOISE": int(noisy_write), "IMPLICIT": int(trains.implicit),
                "N_WORD": n_word, "THREADS": threads, "CELLS": cells, "ROWS": rows,
            },
        )  # fmt: skip
        return
    steps = import_module("rpukit.analog._steps")
    counts = np.zeros(n_out, np.int64)
    run_rows(
        _mirror().pulsed_update, n_out, steps.STEPS[cell.STEP],
        steps.RUNS.get(cell.STEP, steps.no_run), flip, trains.implicit, noisy_write, first_sample,
        planes, globals_, trains.x, trains.d, weight, persistent if noisy_write else weight,
        counts, np.uint32(stream.key0), np.uint32(stream.key1),
    )  # fmt: skip
    n_pulses[0] += counts.sum()


def _tile_of(n_out: int, n_in: int) -> tuple[int, int]:
    """Cells a thread and rows a block: larger ones share more work, smaller ones fill the GPU."""
    shapes = [(4, 8), (4, 4), (1, 8), (1, 4), (1, 1)]
    for cells, rows in shapes:
        if n_in % cells == 0 and n_in >= 32 * cells and n_out * n_in >= cells * rows * _FILLS_A_GPU:
            return cells, rows
    return shapes[-1]


def rank_update(weight: Array, x: Array, d: Array, lr: float, *, status: Array) -> None:
    """Apply the exact update ``weight -= lr d x^T``, in place.

    Parameters
    ----------
    weight : array, shape (n_out, n_in), float32
    x : array, shape (n_batch, n_in), float32
    d : array, shape (n_batch, n_out), float32
    lr : float
    status : array, shape (1,), int32

    Notes
    -----
    One chain of fused multiply-adds per cell that starts from the weight, samples ascending.
    Kernel: kernels_cu/rank_update.cu.
    """
    n_out, n_in = weight.shape
    if _device.runs_kernels(_device.namespace(weight, x, d)):
        _RANK_UPDATE.launch(
            (-(-n_in // 64), -(-n_out // 64)), (256,),
            (x.shape[0], n_in, n_out, lr, x, d, weight, status),
        )  # fmt: skip
    else:
        run_rows(_mirror().rank_update, n_out, np.float32(lr), x, d, weight)
