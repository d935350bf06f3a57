"""Ops of the transfer family: choppers, reads and the digital buffer, writes, the fast rate.

They work in place; ``status`` is the tile's flag array.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact import twins
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.analog.cells.cell_array import CellArray
from rpukit.analog.cells.user_steps import StepKernel
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.transfer.reads import Reading, Replay
from rpukit.analog.transfer.schedule import Events
from rpukit.random import Stream

Array = Any
Macros = tuple[tuple[str, Any], ...]

_AUTO_SCALE = Kernel("auto_scale")
_CHOP_SAMPLES = Kernel("chop_samples")
_SAMPLE_MAXIMA = Kernel("sample_maxima")
_TRANSFER_READ = StepKernel("transfer_read")
_TRANSFER_WRITE = StepKernel("transfer_write")

_THREADS = 128
_SAMPLES = 8  # of one block of chop_samples
_SLOTS = 31  # of one word of a train
# Optional arrays of transfer_read, as its mirror takes them: dtype (None: that of the weights) and
# axes of slices, turns, line_sign, rates, z, planes, globals, trains of x and d;
# weight, persistent, io, line_noise, rule, buffer, mean, past, chopper, switched.
_KINDS: tuple[tuple[Any, int], ...] = (
    *((np.int32, 1), (np.int32, 1), (np.int8, 1), (None, 1), (None, 2)),
    *((None, 3), (None, 1), (np.uint32, 3), (np.uint32, 3)),
    *((None, 2), (None, 2), (None, 1), (None, 1), (None, 1)),
    *((None, 2), (None, 2), (None, 2), (np.int8, 1), (np.int8, 1)),
)


def _mirror(z: Array) -> Any:
    return twins.mirror("rpukit.analog._mirror.transfer", z.dtype)


def chop_samples(
    v: Array,
    chopper: Array,
    switched: Array | None,
    events: Events,
    regular: tuple[bool, bool],
    prob: float,
    *,
    stream: Stream,
    status: Array,
) -> tuple[Array, Array]:
    """Multiply each value of a batch by the chopper of its slice at that sample.

    Parameters
    ----------
    v : array, shape (n_batch, n_slice), float32 or float64
    chopper : array, shape (n_slice,), int8
        +1 or -1; `transfer_read` changes it.
    switched : array, shape (n_slice,), int8, or None
        Whether a chopper flipped at the last read of its slice.
    events : Events
    regular : pair of bool
        Whether the choppers of slices that are read flip in the first pass over the slices, and in
        the next one.
    prob : float, 0 to 1
        Probability of a random flip in addition.
    stream : Stream
    status : array, shape (1,), int32

    Returns
    -------
    out : array, shape (n_batch, n_slice), dtype of v
    turns : array, shape (n_event,), int32
        Sum of flags of each read: 1 if its chopper is negative, 2 if it flipped at the last read
        of its slice, 4 if it flips now.

    Notes
    -----
    Kernel: kernels_cu/chop_samples.cu.
    """
    device = _device.device_of(v)
    (n_batch, n_slice), out = v.shape, _device.empty(v.shape, v.dtype, device)
    turns = _device.empty((events.n,), np.int32, device)
    plan = (events.n, events.first_slice, events.offset, events.period)
    flips = (int(regular[0]), int(regular[1]))
    if _device.takes_kernels(v):
        numbers = (n_batch, n_slice, *plan, np.uint64(events.number), *flips, float(prob))
        arrays = (v, chopper, switched, out, turns, status)
        grid = (-(-n_slice // 256), -(-n_batch // _SAMPLES))
        _chop_variant(v.dtype.char).launch(grid, (256,), (*numbers, *arrays, *stream.words))
    else:
        run_rows(
            _mirror(v).chop_samples,
            n_slice,
            *plan,
            events.number,
            *map(bool, flips),
            np.float32(prob),
            v,
            chopper,
            np.empty(0, np.int8) if switched is None else switched,
            out,
            turns,
            *stream.words,
            grain=work_grain(n_batch),
        )
    return out, turns


@cache
def _chop_variant(char: str) -> Any:
    return _CHOP_SAMPLES.variant({"REAL": twins.real(np.dtype(char)), "SAMPLES": _SAMPLES})


def transfer_read(
    cells: CellArray,
    reading: Reading,
    events: Events,
    kappas: tuple[float, float] = (0.0, 0.0),
    writes: tuple[bool, bool] = (True, True),
    *,
    replay: Replay | None = None,
    turns: Array | None = None,
    line_sign: Array | None = None,
    rates: Array | None = None,
    z: Array | None = None,
    status: Array,
) -> Array:
    """Read slices, each after its sample, buffer the reads, and compute the values to write.

    Parameters
    ----------
    cells : CellArray
        The array that is read; its weights are those before the batch where there is a `replay`.
    reading : Reading
        Its buffers, means and choppers change in place.
    events : Events
    kappas : pair of float
        Factor of a read, in the first pass over the slices and in the next one.
    writes : pair of bool
        Whether reads are written, in the same two passes.
    replay : Replay, optional
        Pulses that come before the reads.
    turns : array, shape (n_event,), int32, optional
        See `chop_samples`.
    line_sign : array, shape (n_line,), int8, optional
        Choppers of the lines; default: +1.
    rates : array, shape (n_batch,), dtype of the weights, optional
        Rates by which the factors are divided.
    z : array, shape (n_event, n_line), dtype of the weights, optional
        Results of reads that were made before the call.
    status : array, shape (1,), int32

    Returns
    -------
    array, shape (n_event, n_line), dtype of the weights
        Minus the number of up pulses, or minus the read (TTv1): the d of an update.

    Notes
    -----
    Kernel: kernels_cu/transfer_read.cu.
    """
    weight, trains = cells.weight, replay.trains if replay else None
    n_out, n_in = weight.shape
    n_line = n_out if reading.columns else n_in
    d = _device.empty((events.n, n_line), weight.dtype, _device.device_of(weight))
    plan = (events.first_slice, events.offset, events.period, events.reads)
    flip, first = (replay.flip, replay.first_sample) if replay else (False, 0)
    words = (*(replay or reading).stream.words, *reading.stream.words)
    states = (reading.buffer, reading.mean, reading.past, reading.chopper, reading.switched)
    pulsed = (trains.x, trains.d) if trains else (None, None)
    found = (events.slices, turns, line_sign, rates, z, cells.parameters, cells.globals_, *pulsed)
    read = (weight, cells.persistent, reading.io, reading.line_noise, reading.rule, *states)
    if _device.takes_kernels(weight):
        how = (reading.kind, trains.implicit, trains.x.shape[1]) if trains else (reading.kind,)
        clocks = (np.uint64(first), np.uint64(events.number), np.uint64(cells.first_row))
        numbers = (n_in, n_out, *plan, int(flip), *clocks, *kappas, writes[0] + 2 * writes[1])
        grid = (-(-n_line // _THREADS), events.n)
        args = (*numbers, *found, *read, d, status, *words)
        _read_variant(cells.macros, *how).launch(grid, (_THREADS,), args)
    else:
        arrays = [
            np.empty((0,) * axes, kind or weight.dtype) if a is None else a
            for a, (kind, axes) in zip((*found, *read), _KINDS, strict=True)
        ]
        run_rows(
            _mirror(weight).transfer_read,
            events.n,
            reading.kind,
            trains is not None,
            *cells.model(),
            flip,
            trains.implicit if trains else 0,
            cells.persistent is not None,
            *plan,
            first,
            events.number,
            cells.first_row,
            np.array(kappas, weight.dtype),
            writes[0] + 2 * writes[1],
            *arrays,
            d,
            *words,
            grain=work_grain(4 * n_line * (1 + events.offset)),
        )
    return d


@cache
def _read_variant(cells: Macros, kind: int, implicit: int | None = None, n_word: int = 1) -> Any:
    macros = {"KIND": kind, "REAL": dict(cells)["REAL"]}
    if implicit is not None:
        macros |= dict(cells) | {"REPLAY": 1, "IMPLICIT": implicit, "N_WORD": n_word}
    return _TRANSFER_READ.variant(macros)


def transfer_write(
    cells: CellArray,
    d: Array,
    events: Events,
    lr: float,
    parameters: UpdateParameters,
    *,
    columns: bool,
    stream: Stream,
    status: Array,
) -> None:
    """Pulse values into slices, in place: an update by one-hot samples, at the cost of slices.

    Parameters
    ----------
    cells : CellArray
    d : array, shape (n_event, n_line), dtype of the weights
        Values of the lines in the sample of each slice.
    events : Events
    lr : float, not 0
    parameters : UpdateParameters
        Of stochastic pulses.
    columns : bool
        Whether slices are columns, and d is the error; else rows, and d is the activation.
    stream : Stream
    status : array, shape (1,), int32

    Raises
    ------
    ParameterError
        If lr needs trains longer than the longest possible.

    Notes
    -----
    The bits are those of `pulse_trains` and `pulsed_update` for these samples.
    Kernel: kernels_cu/transfer_write.cu.
    """
    weight, counts = cells.weight, cells.pulse_counts
    how = (cells.macros, cells.granularity, counts is not None)
    variant, n_word, numbers = _written(*how, float(lr), parameters)
    n_out, n_in = weight.shape
    if _device.takes_kernels(weight):
        sizes = (n_in, n_out, int(columns), events.first_slice, int(lr < 0), *numbers)
        clocks = (np.uint64(events.number), np.uint64(cells.first_row))
        given = (*clocks, events.slices, d, cells.parameters, cells.globals_)
        args = (*sizes, *given, weight, cells.persistent, cells.n_pulses, counts, status)
        grid = (-(-d.shape[1] // _THREADS), events.n)
        variant.launch(grid, (_THREADS,), (*args, *stream.words))
        return
    pulses, dtype = np.zeros(events.n, np.int64), weight.dtype
    run_rows(
        _mirror(weight).transfer_write,
        events.n,
        columns,
        *cells.model(),
        lr < 0,
        cells.persistent is not None,
        *(dtype.type(v) if isinstance(v, float) else v for v in numbers),
        events.first_slice,
        events.number,
        cells.first_row,
        n_word,
        np.empty(0, np.int32) if events.slices is None else events.slices,
        d,
        cells.parameters,
        cells.globals_,
        weight,
        weight if cells.persistent is None else cells.persistent,
        pulses,
        np.empty((0, 0), np.int64) if counts is None else counts,
        *stream.words,
        grain=work_grain(8 * d.shape[1]),
    )
    cells.n_pulses[0] += pulses.sum()


@lru_cache(maxsize=256)
def _written(
    cells: Macros, granularity: float, counts: bool, lr: float, parameters: UpdateParameters
) -> tuple[Any, int, tuple[Any, ...]]:
    """Prepare the kernel, the words of a train and the numbers of a write."""
    length, unit_scale = parameters.base_length(abs(lr), granularity)
    n_word = -(-length // _SLOTS)
    macros = dict(cells) | {"COUNT": int(counts), "N_WORD": n_word, "THREADS": _THREADS}
    flags = (int(unit_scale), int(parameters.managed), int(parameters.update_bl_management))
    rounding = (parameters.um_grad_scale, parameters.resolutions()[0], int(parameters.sto_round))
    numbers = (abs(lr), granularity, length, *flags, *rounding)
    return _TRANSFER_WRITE.variant(macros), n_word, numbers


def sample_maxima(x: Array, d: Array, *, status: Array, call: int = 1) -> Array:
    """Find the largest |x| and |d| of each sample.

    Parameters
    ----------
    x : array, shape (n_batch, n_in), float32 or float64
    d : array, shape (n_batch, n_out), dtype of x
    status : array, shape (1,), int32
    call : int
        Stored in `status` if a value is not finite.

    Returns
    -------
    array, shape (2, n_batch), dtype of x

    Notes
    -----
    Kernel: kernels_cu/sample_maxima.cu.
    """
    maxima = _device.empty((2, len(x)), x.dtype, _device.device_of(x))
    if _device.takes_kernels(x):
        macros = {"REAL": twins.real(x.dtype)}
        args = (len(x), x.shape[1], d.shape[1], call, x, d, maxima, status)
        _SAMPLE_MAXIMA.launch((len(x),), (256,), args, macros=macros)
    else:
        grain = work_grain(x.shape[1] + d.shape[1])
        run_rows(_mirror(x).sample_maxima, len(x), call, x, d, maxima, status, grain=grain)
    return maxima


def auto_scale(maxima: Array, factor: float, t: float, running: Array, *, status: Array) -> Array:
    """Update running maxima of |x| and |d|, in place, and scale the rate of each sample by them.

    Parameters
    ----------
    maxima : array, shape (2, n_batch), float32 or float64
        See `sample_maxima`.
    factor : float, positive
    t : float, 0 to 1
        Weight of a sample in the running maxima.
    running : array, shape (2,), dtype of the maxima
        The running maxima of x and d.
    status : array, shape (1,), int32

    Returns
    -------
    array, shape (n_batch,), dtype of the maxima
        ``factor / (m_x m_d)``.

    Notes
    -----
    Kernel: kernels_cu/auto_scale.cu.
    """
    n_batch = maxima.shape[1]
    rates = _device.empty((n_batch,), maxima.dtype, _device.device_of(maxima))
    if _device.takes_kernels(maxima):
        args = (n_batch, factor, t, maxima, running, rates, status)
        _AUTO_SCALE.launch((1,), (1,), args, macros={"REAL": twins.real(maxima.dtype)})
    else:
        numbers = (maxima.dtype.type(factor), maxima.dtype.type(t))
        _mirror(maxima).auto_scale(0, n_batch, *numbers, maxima, running, rates)
    return rates
