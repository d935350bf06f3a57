"""Ops of the update: pulse trains, the pulsed update, the exact rank update.

An op allocates, picks a shape and launches; the tile has checked the arguments. ``status`` is the
tile's flag array: kernels do nothing while it is not 0, and a non-finite input stores ``call`` in
it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact import twins
from rpukit._kernels import Kernel
from rpukit._kernels.replay import keep_for_graph
from rpukit._workers import run_rows, work_grain
from rpukit.analog.cells.cell_array import CellArray
from rpukit.analog.cells.draw import Recipe, bounds_of
from rpukit.analog.deferred_errors import check_finite
from rpukit.analog.parameters.update import PulseType, UpdateParameters
from rpukit.analog.update.launch import Call, launch, pick
from rpukit.analog.update.trains import Trains
from rpukit.errors import ParameterError
from rpukit.random import Stream

Array = Any

_PULSE_TRAINS = Kernel("pulse_trains")
_RANK_UPDATE = Kernel("rank_update")

SLOTS = 31  # slots in one word of a train; the last bit is the sign
_THREADS = 256
_FILL = 1024  # blocks that keep the largest GPU busy
_MANY_SAMPLES = 256  # of exact updates in which a warp has a cell a lane, for
_FEW_CELLS = 1 << 14
_MOST_LISTED = 1 << 24  # columns in the lists of all slots: 64 MB


def _mirror(dtype: Any) -> Any:
    return twins.mirror("rpukit.analog._mirror.update", dtype)


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
    rates: Array | None = None,
    into: Trains | None = None,
) -> Trains:
    """Convert a batch of activations and errors into pulse trains.

    Parameters
    ----------
    x : array, shape (n_batch, n_in), float32 or float64
    d : array, shape (n_batch, n_out), dtype of x
    lr : float, positive
        Absolute value of the learning rate; its sign only decides the polarity of pulses.
    granularity : float, positive, weight units
        Mean step of the device.
    parameters : UpdateParameters
    stream : Stream
    first_sample : int
        Position of ``x[0]`` on the update clock.
    status : array, shape (1,), int32
    call : int
    rates : array, shape (n_batch,), dtype of x, optional
        Positive learning rates of the samples, instead of lr; trains then have a fixed length.
    into : Trains, optional
        Trains that are no longer needed; their arrays are reused if the shapes are the same.

    Returns
    -------
    Trains

    Raises
    ------
    ParameterError
        If lr needs trains longer than the longest possible.
    """
    if parameters.exact:
        for array in (x, d):
            check_finite(array, status=status, call=call)
        clips = parameters.pulse_type is PulseType.NONE_WITH_DEVICE
        return Trains(x, d, 0, rate=lr, clips=clips)
    if _device.takes_kernels(x):
        at = (first_sample, status, call)
        return _trains_on_kernels(x, d, lr, granularity, parameters, stream, at, rates, into)
    (n_batch, n_in), n_out = x.shape, d.shape[1]
    length, numbers = train_numbers(lr, granularity, parameters)
    n_word = 1 if parameters.coding else -(-length // SLOTS)
    x_train, d_train = (np.empty((n_batch, n_word, n), np.uint32) for n in (n_in, n_out))
    trains = Trains(x_train, d_train, parameters.coding)
    given = (x, d, np.empty(0, x.dtype) if rates is None else rates)
    coding = (parameters.coding, first_sample)
    args = (*_as_real(numbers, x.dtype), *coding, *given, x_train, d_train, *stream.words)
    run_rows(_mirror(x.dtype).pulse_trains, n_batch, *args, grain=work_grain(n_in + n_out))
    return trains


def _trains_on_kernels(
    x: Array,
    d: Array,
    lr: float,
    granularity: float,
    parameters: UpdateParameters,
    stream: Stream,
    at: tuple[int, Array, int],
    rates: Array | None,
    into: Trains | None,
) -> Trains:
    (n_batch, n_in), n_out, coding = x.shape, d.shape[1], parameters.coding
    variant, grid, block, n_word, numbers = _prepared_trains(
        n_batch, n_in, n_out, lr, granularity, parameters, x.dtype.char
    )
    trains, device = into, _device.device_of(x)
    if trains is None or trains.key != (n_batch, n_word, n_in, n_out, coding):
        sliced = n_word == 1 and not coding
        trains = Trains(
            _device.empty((n_batch, n_word, n_in), np.uint32, device),
            _device.empty((n_batch, n_word, n_out), np.uint32, device),
            coding,
            _device.empty((n_batch, -(-n_in // 32), 32), np.uint32, device) if sliced else None,
            key=(n_batch, n_word, n_in, n_out, coding),
        )
    first_sample, status, call = at
    arrays = (x, d, rates, trains.x, trains.d, trains.x_slices, status)
    clocks = (np.uint64(first_sample), np.int32(call))
    variant.launch(grid, block, (*numbers, *clocks, *arrays, *stream.words))
    keep_for_graph(trains.x, trains.d, trains.x_slices)
    return trains


@lru_cache(maxsize=1024)
def _prepared_trains(
    n_batch: int,
    n_in: int,
    n_out: int,
    lr: float,
    granularity: float,
    parameters: UpdateParameters,
    char: str,
) -> tuple[Any, tuple[int, int], tuple[int], int, tuple[Any, ...]]:
    """Set the macros and cast the numbers once; a steady call costs one look-up."""
    dtype, coding = np.dtype(char), parameters.coding
    length, numbers = train_numbers(lr, granularity, parameters)
    n_word = 1 if coding else -(-length // SLOTS)
    # Each block of a sample reads all its lines, so there are only as many as fill a GPU.
    n_line = -(-n_in // 32) * 32 + -(-n_out // 32) * 32
    threads = min(_THREADS, n_line)
    grid = (n_batch, min(-(-n_line // threads), max(1, _FILL // max(n_batch, 1))))
    ready = (v if isinstance(v, dtype.type) else np.int32(v) for v in _as_real(numbers, dtype))
    sizes = map(np.int32, (n_batch, n_in, n_out, n_word))
    macros = {"IMPLICIT": coding, "REAL": twins.real(dtype), "THREADS": threads}
    return _PULSE_TRAINS.variant(macros), grid, (threads,), n_word, (*sizes, *ready)


def train_numbers(
    lr: float, granularity: float, parameters: UpdateParameters
) -> tuple[int, tuple[Any, ...]]:
    """Return the bit length, and the numbers that kernel and mirror take."""
    length, unit_scale = parameters.base_length(lr, granularity)
    flags = (unit_scale, parameters.managed, parameters.update_bl_management)
    rounding = (*parameters.resolutions(), int(parameters.sto_round))
    scale = parameters.um_grad_scale
    return length, (lr, granularity, length, *map(int, flags), scale, *rounding)


def _as_real(numbers: tuple[Any, ...], dtype: Any) -> tuple[Any, ...]:
    """Cast the floats among mirror arguments as a launch does."""
    return tuple(dtype.type(v) if isinstance(v, float) else v for v in numbers)


def pulsed_update(
    array: CellArray,
    trains: Trains,
    *,
    flip: bool = False,
    polarity: int = 0,
    stream: Stream,
    first_sample: int,
) -> None:
    """Change weights by the coincidences of pulse trains, in place.

    Parameters
    ----------
    array : CellArray
    trains : Trains
    flip : bool
        Reverse the polarity of all pulses (a negative learning rate).
    polarity : {0, 1, -1}
        1: apply only up pulses; -1: apply only down pulses, as up pulses; 0: apply all.
    stream : Stream
    first_sample : int

    Raises
    ------
    ParameterError
        For trains of an exact update, if cells have write noise or take one polarity only.

    Notes
    -----
    For one cell, samples are applied in ascending order, and within a sample one run of pulses.
    Trains of a whole tile may be given to an array of some of its rows, or of some of its columns.
    Kernel: kernels_cu/pulsed_update.cu. Source: Gokmen and Vlasov, Front. Neurosci. 10:333 (2016).
    """
    trains = trains.of_rows(array.first_row, array.weight.shape[0])
    trains = trains.of_columns(array.first_col, array.weight.shape[1])
    if trains.rate:
        if polarity or array.persistent is not None:
            raise ParameterError(
                "pulse_type: an update without pulses (NONE) needs single devices without write "
                "noise; use DETERMINISTIC_IMPLICIT"
            )
        _exact_update(array, trains, flip)
        return
    weight, planes = array.weight, array.planes
    if _device.runs_kernels(_device.namespace(weight, trains.x)):
        call = Call(array, trains, flip, polarity, stream, first_sample)
        launch(call, pick(call))
        return
    n_out, stored = weight.shape[0], array.persistent
    counts, by_cell = np.zeros(n_out, np.int64), array.pulse_counts
    drawn = isinstance(planes, Recipe)
    how: tuple[Any, ...] = (flip, polarity, trains.implicit, stored is not None, first_sample)
    how = (*how, array.first_row, array.first_col, array.tile_cols or weight.shape[1])
    blank = (weight.dtype.type(0),) * len(array.cell.PLANES)
    held = planes.values if isinstance(planes, Recipe) else planes
    given = (held, blank, array.globals_, trains.x, trains.d, *_slot_lists(trains))
    counted = np.empty((0, 0), np.int64) if by_cell is None else by_cell
    arrays = (*given, weight, weight if stored is None else stored, counts, counted)
    grain = work_grain(trains.x.size)
    module = f"rpukit.analog._mirror.{'procedural' if drawn else 'pulses'}"
    mirror = twins.mirror(module, weight.dtype).pulsed_update
    run_rows(mirror, n_out, *array.step_functions(), *how, *arrays, *stream.words, grain=grain)
    array.n_pulses[0] += counts.sum()


def _exact_update(array: CellArray, trains: Trains, flip: bool) -> None:
    """Change weights by the expected change of pulses; clip them if the trains say so."""
    weight, status = array.weight, array.status
    x, d, lr = trains.x, trains.d, -trains.rate if flip else trains.rate
    if not trains.clips:
        rank_update(weight, x, d, lr, status=status)
        return
    for rows, bounds in bounds_of(array.planes):
        part = _device.namespace(d).ascontiguousarray(d[:, rows])
        keep_for_graph(part)
        rank_update(weight[rows], x, part, lr, bounds=bounds, status=status)


def _slot_lists(trains: Trains) -> tuple[Array, Array]:
    """List the columns that fire in each slot, if that is faster than a search in every row."""
    offsets, columns = np.zeros(0, np.int64), np.zeros(0, np.uint32)
    n_batch, n_word, _ = trains.x.shape
    if trains.implicit or n_word > 1 or n_batch == 0:
        return offsets, columns
    fill = twins.mirror("rpukit.analog._mirror.pulses", np.float32).slot_lists
    found = np.zeros(n_batch * SLOTS + 1, np.int64)
    fill(trains.x, found, columns)
    if not 0 < found[-1] <= _MOST_LISTED:
        return offsets, columns
    columns = np.empty(found[-1], np.uint32)
    fill(trains.x, found, columns)
    return found, columns


def rank_update(
    weight: Array,
    x: Array,
    d: Array,
    lr: float,
    *,
    bounds: tuple[Array, Array] | None = None,
    status: Array,
) -> None:
    """Apply the exact update ``weight -= lr d x^T``, in place.

    Parameters
    ----------
    weight : array, shape (n_out, n_in), float32 or float64
    x : array, shape (n_batch, n_in), dtype of the weight
    d : array, shape (n_batch, n_out), dtype of the weight
    lr : float
    bounds : pair of array, shape (n_out, n_in), dtype of the weight, optional
        w_min and w_max: weights are clipped to them after each sample.
    status : array, shape (1,), int32

    Notes
    -----
    One chain of fused multiply-adds per cell that starts from the weight, samples ascending.
    Kernel: kernels_cu/rank_update.cu.
    """
    n_out, n_in = weight.shape
    if _device.runs_kernels(_device.namespace(weight, x, d)):
        grid, threads, few = _rank_shape(x.shape[0], n_out, n_in)
        macros = {"REAL": twins.real(weight.dtype), "BOUNDED": int(bounds is not None)}
        _RANK_UPDATE.launch(
            grid,
            (threads,),
            (x.shape[0], n_in, n_out, lr, x, d, *(bounds or (None, None)), weight, status),
            macros={**macros, "FEW": few},
        )
    else:
        grain = work_grain(x.size)
        mirror, none = _mirror(weight.dtype).rank_update, np.empty((0, 0), weight.dtype)
        args = (weight.dtype.type(lr), x, d, *(bounds or (none, none)), weight)
        run_rows(mirror, n_out, *args, grain=grain)


def _rank_shape(n_batch: int, n_out: int, n_in: int) -> tuple[tuple[int, int], int, int]:
    """Choose grid, threads and the macro FEW of an exact update."""
    if n_batch < _MANY_SAMPLES or n_out * n_in > _FEW_CELLS:
        return (-(-n_in // 64), -(-n_out // 64)), 256, 0
    columns = 1 if n_in == 1 else 32
    return (-(-n_in // columns), -(-n_out * columns // 32)), 288, columns
