"""Ops of the update: pulse trains, the pulsed update, the exact rank update.

Each op checks nothing that the tile has checked; it allocates, picks and launches. ``status`` is the
tile's flag array: not zero makes a kernel do nothing, a non-finite input stores ``call`` in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel, tune
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
    if _device.runs_kernels(_device.namespace(weight, trains.x)):
        call = _Call(weight, trains, cell, planes, globals_, n_pulses, flip, persistent, stream, first_sample, status)
        _launch(call, _pick(call))
        return
    n_out = weight.shape[0]
    noisy_write = persistent is not None
    steps = import_module("rpukit.analog._steps")
    counts = np.zeros(n_out, np.int64)
    run_rows(
        _mirror().pulsed_update, n_out, steps.STEPS[cell.STEP],
        steps.RUNS.get(cell.STEP, steps.no_run), flip, trains.implicit, noisy_write, first_sample,
        planes, globals_, trains.x, trains.d, weight, persistent if noisy_write else weight,
        counts, np.uint32(stream.key0), np.uint32(stream.key1),
    )  # fmt: skip
    n_pulses[0] += counts.sum()


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """How the cells of a tile are dealt out: a candidate of the tuner, right for every batch."""

    cells: int  # neighbouring columns of one thread
    rows: int  # rows of one block

    @property
    def name(self) -> str:
        return f"{self.cells}x{self.rows}"

    def valid(self, n_batch: int) -> bool:
        return n_batch > 0

    def fits(self, n_in: int) -> bool:
        """Whether rows can be read this many cells at a time."""
        return self.cells == 1 or n_in % self.cells == 0


SHAPES = tuple(LaunchShape(*s) for s in ((4, 8), (4, 4), (4, 2), (4, 1), (1, 8), (1, 4), (1, 1)))


@dataclass(frozen=True, slots=True)
class _Call:
    """Arguments of one pulsed update on kernels."""

    weight: Array
    trains: Trains
    cell: PulsedCell
    planes: Array
    globals_: Array
    n_pulses: Array
    flip: bool
    persistent: Array | None
    stream: Stream
    first_sample: int
    status: Array


def _launch(call: _Call, shape: LaunchShape) -> None:
    n_batch, n_word, n_in = call.trains.x.shape
    n_out, cell = call.weight.shape[0], call.cell
    threads = min(_THREADS, max(32, -(-n_in // (shape.cells * 32)) * 32))
    _PULSED_UPDATE.launch(
        (-(-n_in // (threads * shape.cells)), -(-n_out // shape.rows)),
        (threads,),
        (n_batch, n_in, n_out, call.flip, call.first_sample, call.planes, call.globals_,
         call.trains.x, call.trains.d, call.weight, call.persistent, call.n_pulses, call.status,
         call.stream.key0, call.stream.key1),
        macros={
            "STEP": cell.STEP, "HAS_RUN": int(cell.HAS_RUN), "N_PLANE": len(cell.PLANES),
            "WRITE_NOISE": int(call.persistent is not None), "IMPLICIT": int(call.trains.implicit),
            "N_WORD": n_word, "THREADS": threads, "CELLS": shape.cells, "ROWS": shape.rows,
        },
    )  # fmt: skip


def _pick(call: _Call) -> LaunchShape:
    """Choose a launch shape: the static rule's where nothing is known, else the fastest."""
    n_batch, n_word, n_in = call.trains.x.shape
    n_out = call.weight.shape[0]
    plain = _plain_shape(n_out, n_in)
    others = [s for s in SHAPES if s != plain and s.fits(n_in)]
    key = (n_out, n_in, n_word, call.cell.STEP, call.persistent is not None, call.trains.implicit)
    picked: LaunchShape = tune.choose(
        _PULSED_UPDATE, key, [plain, *others], lambda: _trial(call), n_batch=n_batch,
        device=_device.device_of(call.weight),
    )  # fmt: skip
    return picked


def _plain_shape(n_out: int, n_in: int) -> LaunchShape:
    """Large shapes share more work, small ones fill the GPU."""
    for shape in SHAPES:
        enough = n_out * n_in >= shape.cells * shape.rows * _FILLS_A_GPU
        if shape.fits(n_in) and n_in >= 32 * shape.cells and enough:
            return shape
    return SHAPES[-1]


def _trial(call: _Call) -> tune.Trial:
    """Run shapes on a copy of as many rows as the scratch may hold."""
    n_in, xp = call.weight.shape[1], _device.namespace(call.weight)
    n_array = len(call.planes) + 1 + (call.persistent is not None)
    n_row = min(call.weight.shape[0], max(1, tune.SCRATCH_LIMIT // 2 // (4 * n_in * n_array)))
    scratch = replace(
        call,
        weight=call.weight[:n_row].copy(),
        trains=Trains(call.trains.x, xp.ascontiguousarray(call.trains.d[:, :, :n_row]), call.trains.implicit),
        planes=xp.ascontiguousarray(call.planes[:, :n_row]),
        n_pulses=xp.zeros_like(call.n_pulses),
        persistent=None if call.persistent is None else call.persistent[:n_row].copy(),
        status=xp.zeros_like(call.status),
    )

    def run(shape: LaunchShape) -> list[Array]:
        _launch(scratch, shape)
        return [scratch.weight, scratch.n_pulses]

    return run


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
