"""Ops of the transfer family: the digital buffer between two arrays, the scale of the fast rate.

They work in place; ``status`` is the tile's flag array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device, _precision
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain

Array = Any

_AUTO_SCALE = Kernel("auto_scale")
_TRANSFER_BUFFER = Kernel("transfer_buffer")

_BLOCK = 128
BEGINS, WRITES, FIRST = 1, 2, 4  # flags of an event


def _mirror(z: Array) -> Any:
    return _precision.mirror("rpukit.analog._mirror.transfer", z.dtype)


@dataclass(frozen=True, slots=True)
class Rule:
    """Numbers of the buffer of one tile.

    Attributes
    ----------
    kind : {2, 3, 4}
        TTv2, TTv3, TTv4.
    threshold : float
        Of TTv2, weight units.
    length : float
        Most pulses of one write.
    momentum : float
        What is kept of the buffer where it was written.
    forget : bool
    keep : float
        0 empties the buffer before every read, 1 does not.
    mu : float
        Weight of a read in the running mean of TTv4.
    cap : float
        Bound of the buffer of TTv4; 0 is none.
    """

    kind: int
    threshold: float
    length: float
    momentum: float
    forget: bool
    keep: float = 1.0
    mu: float = 0.0
    cap: float = 0.0


def transfer_buffer(
    z: Array,
    rule: Rule,
    events: Array,
    kappas: Array,
    line_sign: Array,
    buffer: Array,
    means: tuple[Array, Array] | None = None,
    rates: Array | None = None,
    *,
    status: Array,
) -> Array:
    """Put reads of the fast array in the buffer, and take out the pulses to write.

    Parameters
    ----------
    z : array, shape (n_event, n_line), float32 or float64
        What was read, in weight units.
    rule : Rule
    events : array, shape (n_event, 4), int32
        Slice, next event of the same slice or -1, flags, offset of the sample.
    kappas : array, shape (n_event, 2), dtype of z
        Sign of the slice's chopper, factor of the read.
    line_sign : array, shape (n_line,), dtype of z
        Choppers of the lines.
    buffer : array, shape (n_slice, n_line), dtype of z
    means : pair of arrays, shape (n_slice, n_line), dtype of z, optional
        Running mean and past mean of TTv4.
    rates : array, shape (n_batch,), dtype of z, optional
        Rates by which the factors are divided.
    status : array, shape (1,), int32

    Returns
    -------
    array, shape (n_event, n_line), dtype of z
        Minus the number of pulses up: the d of an update.

    Notes
    -----
    Kernel: kernels_cu/transfer_buffer.cu.
    """
    n_event, n_line = z.shape
    d = _device.empty((n_event, n_line), z.dtype, _device.device_of(z))
    numbers = (rule.threshold, rule.length, rule.momentum, rule.keep, rule.mu, rule.cap)
    mean, past = (None, None) if means is None else means
    if _device.runs_kernels(_device.namespace(z)):
        state = (z, buffer, mean, past, d, status)
        args = (n_event, n_line, *numbers, events, kappas, rates, line_sign, *state)
        flags = {"KIND": rule.kind, "FORGET": int(rule.forget), "RATED": int(rates is not None)}
        macros = {**flags, "REAL": _precision.real(z.dtype)}
        grid = (-(-n_line // _BLOCK), n_event)
        _TRANSFER_BUFFER.launch(grid, (_BLOCK,), args, macros=macros)
    else:
        run_rows(
            _mirror(z).transfer_buffer,
            n_line,
            rule.kind,
            rule.forget,
            *(z.dtype.type(v) for v in numbers),
            events,
            kappas,
            np.empty(0, z.dtype) if rates is None else rates,
            line_sign,
            z,
            buffer,
            np.empty((0, 0), z.dtype) if mean is None else mean,
            np.empty((0, 0), z.dtype) if past is None else past,
            d,
            grain=work_grain(8 * n_event),
        )
    return d


def auto_scale(
    x: Array, d: Array, factor: float, t: float, running: Array, *, status: Array
) -> Array:
    """Follow the largest |x| and |d|, in place, and scale the rate of each sample by them.

    Parameters
    ----------
    x : array, shape (n_batch, n_in), float32 or float64
    d : array, shape (n_batch, n_out), dtype of x
    factor : float, positive
    t : float, 0 to 1
        Weight of a sample in the running maxima.
    running : array, shape (2,), dtype of x
        The running maxima of x and d.
    status : array, shape (1,), int32

    Returns
    -------
    array, shape (n_batch,), dtype of x
        ``factor / (m_x m_d)``.

    Notes
    -----
    Kernel: kernels_cu/auto_scale.cu.
    """
    maxima = [abs(v).max(axis=1) for v in (x, d)]  # a maximum has no order
    rates = _device.empty((len(x),), x.dtype, _device.device_of(x))
    if _device.runs_kernels(_device.namespace(x, d)):
        args = (len(x), factor, t, *maxima, running, rates, status)
        _AUTO_SCALE.launch((1,), (1,), args, macros={"REAL": _precision.real(x.dtype)})
    else:
        numbers = (x.dtype.type(factor), x.dtype.type(t))
        _mirror(x).auto_scale(0, len(x), *numbers, *maxima, running, rates)
    return rates
