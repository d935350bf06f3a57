"""Ops of the weight processes: clip, decay, diffusion, drift, reset, write noise.

All work in place on the stored weights. ``bounds`` is the pair (w_min, w_max) of per-cell arrays,
or None for ideal cells; ``status`` is the tile's flag array. The arrays may be some rows of a
tile: their draws then start at cell number ``first_cell``. They may also be some columns of rows
that are ``pitch`` cells long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact import twins
from rpukit._kernels import Kernel
from rpukit._workers import run_rows
from rpukit.analog.parameters.drift import DriftParameters
from rpukit.random import Stream

Array = Any
Bounds = tuple[Array, Array] | None

_CLIP_WEIGHTS = Kernel("clip_weights")
_DECAY = Kernel("decay")
_DIFFUSION = Kernel("diffusion")
_DRIFT = Kernel("drift")
_RESET = Kernel("reset")
_WRITE_NOISE = Kernel("write_noise")

_BLOCK = 256
_GRAIN = 1 << 15  # cells that justify another thread
_NONE = {t: np.empty(0, t) for t in (np.dtype("f4"), np.dtype("f8"))}  # for absent arrays


def _mirror(weight: Array) -> Any:
    return twins.mirror("rpukit.analog._mirror.slow", weight.dtype)


def _macros(weight: Array, bounds: Bounds) -> dict[str, Any]:
    return {"BOUNDED": int(bounds is not None), **_real(weight)}


def _real(weight: Array) -> dict[str, Any]:
    return {"REAL": twins.real(weight.dtype)}


def _grid(n: int) -> tuple[int]:
    return (-(-n // _BLOCK),)


def _flat(array: Array | None, weight: Array) -> Array:
    return _NONE[weight.dtype] if array is None else array.reshape(-1)


def _ends(bounds: Bounds) -> tuple[Array | None, Array | None]:
    return (None, None) if bounds is None else bounds


def _run(mirror: Any, weight: Array, first_cell: int, pitch: int, *args: Any) -> None:
    """Run a mirror on all cells, row by row where they are some columns of their tile."""
    if not pitch:
        run_rows(mirror, weight.size, first_cell, *args, grain=_GRAIN)
        return
    n_in = weight.shape[1]
    for row in range(len(weight)):
        first = row * n_in
        mirror(first, first + n_in, first_cell + row * (pitch - n_in), *args)


def clip_weights(weight: Array, bounds: tuple[Array, Array], *, status: Array) -> None:
    """Clip weights to the bounds of their cells."""
    low, high = bounds
    if _device.runs_kernels(_device.namespace(weight)):
        args = (weight.size, low, high, weight, status)
        _CLIP_WEIGHTS.launch(_grid(weight.size), (_BLOCK,), args, macros=_real(weight))
    else:
        run_rows(
            _mirror(weight).clip_weights,
            weight.size,
            low.reshape(-1),
            high.reshape(-1),
            weight.reshape(-1),
            grain=_GRAIN,
        )


def decay(
    weight: Array, alpha: float, scale: Array, bias: Array | None, bounds: Bounds, *, status: Array
) -> None:
    """Relax weights: ``w = (w - bias)(1 + alpha (scale - 1)) + bias``, then clip."""
    low, high = _ends(bounds)
    if _device.runs_kernels(_device.namespace(weight)):
        args = (weight.size, alpha, scale, bias, low, high, weight, status)
        _DECAY.launch(_grid(weight.size), (_BLOCK,), args, macros=_macros(weight, bounds))
    else:
        run_rows(
            _mirror(weight).decay,
            weight.size,
            weight.dtype.type(alpha),
            scale.reshape(-1),
            _flat(bias, weight),
            _flat(low, weight),
            _flat(high, weight),
            weight.reshape(-1),
            grain=_GRAIN,
        )


def diffusion(
    weight: Array,
    rate: Array,
    bounds: Bounds,
    *,
    first_cell: int = 0,
    pitch: int = 0,
    stream: Stream,
    event: int,
    status: Array,
) -> None:
    """Add one step of a random walk: ``w += rate xi``, then clip."""
    low, high = _ends(bounds)
    if _device.runs_kernels(_device.namespace(weight)):
        place = (weight.size, first_cell, weight.shape[-1], pitch)
        args = (*place, event, rate, low, high, weight, status, *stream.words)
        _DIFFUSION.launch(_grid(weight.size), (_BLOCK,), args, macros=_macros(weight, bounds))
    else:
        _run(
            _mirror(weight).diffusion,
            weight,
            first_cell,
            pitch,
            event,
            rate.reshape(-1),
            _flat(low, weight),
            _flat(high, weight),
            weight.reshape(-1),
            *stream.words,
        )


@dataclass(frozen=True, slots=True)
class DriftMemory:
    """State of the drift of each cell: arrays of shape (n_out, n_in).

    Attributes
    ----------
    origin, previous : array, dtype of the weight, weight units
        The weight when the cell was written, and after the last drift.
    written : array, float64, in units of t_0
        When the cell was written.
    nu : array, dtype of the weight, or None
        Exponent of each cell; None if all cells have the same.
    """

    origin: Array
    previous: Array
    written: Array
    nu: Array | None


def drift(
    weight: Array,
    now: float,
    parameters: DriftParameters,
    memory: DriftMemory,
    bounds: Bounds,
    *,
    first_cell: int = 0,
    pitch: int = 0,
    stream: Stream,
    event: int,
    status: Array,
) -> None:
    """Let weights drift to the time ``now`` (in units of t_0), then clip; event 0 starts drift."""
    low, high = _ends(bounds)
    p = parameters
    exponent = (p.nu, p.nu_std, p.nu_k, p.log_g0)
    numbers = (*exponent, p.wg_ratio, p.g_offset, p.w_offset, p.offset, p.w_noise_std, p.reset_tol)
    changed = (weight, memory.origin, memory.previous, memory.written)
    if _device.runs_kernels(_device.namespace(weight)):
        args = (
            weight.size,
            first_cell,
            weight.shape[-1],
            pitch,
            event,
            now,
            *numbers,
            memory.nu,
            low,
            high,
            *changed,
            status,
        )
        macros = _macros(weight, bounds)
        _DRIFT.launch(_grid(weight.size), (_BLOCK,), (*args, *stream.words), macros=macros)
    else:
        _run(
            _mirror(weight).drift,
            weight,
            first_cell,
            pitch,
            event,
            float(now),
            *(weight.dtype.type(v) for v in numbers),
            *(_flat(a, weight) for a in (memory.nu, low, high)),
            *(a.reshape(-1) for a in changed),
            *stream.words,
        )


def reset(
    weight: Array,
    first_col: int,
    n_col: int,
    prob: float,
    std: float,
    bias: Array | None,
    bounds: Bounds,
    *,
    chosen: Array | None = None,
    first_cell: int = 0,
    pitch: int = 0,
    stream: Stream,
    event: int,
    status: Array,
) -> None:
    """Reset columns: each cell, with probability ``prob``, to ``bias + std xi``, then clip.

    ``chosen`` (n_out, n_in), dtype of the weight, excludes the cells where it is 0.
    """
    low, high = _ends(bounds)
    n_out, n_in = weight.shape
    if _device.runs_kernels(_device.namespace(weight)):
        args = (
            n_out,
            n_in,
            first_col,
            n_col,
            first_cell,
            pitch,
            prob,
            std,
            event,
            bias,
            chosen,
            low,
            high,
            weight,
            status,
            *stream.words,
        )
        _RESET.launch(_grid(n_out * n_col), (_BLOCK,), args, macros=_macros(weight, bounds))
    else:
        place = (n_in, first_col, n_col)
        numbers = (weight.dtype.type(prob), weight.dtype.type(std), event)
        arrays = (*(_flat(a, weight) for a in (bias, chosen, low, high)), weight.reshape(-1))
        rest = (*numbers, *arrays, *stream.words)
        if not pitch:
            run_rows(_mirror(weight).reset, n_out, *place, first_cell, *rest)
            return
        for row in range(n_out):
            first = first_cell + row * (pitch - n_in)
            _mirror(weight).reset(row, row + 1, *place, first, *rest)


def write_noise(
    persistent: Array,
    weight: Array,
    std: float,
    *,
    first_cell: int = 0,
    pitch: int = 0,
    stream: Stream,
    event: int,
    status: Array,
) -> None:
    """Set visible weights with fresh write noise: ``weight = persistent + std xi``."""
    n = weight.size
    if _device.runs_kernels(_device.namespace(persistent, weight)):
        place = (n, first_cell, weight.shape[-1], pitch)
        args = (*place, std, event, persistent, weight, status, *stream.words)
        _WRITE_NOISE.launch(_grid(n), (_BLOCK,), args, macros=_real(weight))
    else:
        _run(
            _mirror(weight).write_noise,
            weight,
            first_cell,
            pitch,
            weight.dtype.type(std),
            event,
            persistent.reshape(-1),
            weight.reshape(-1),
            *stream.words,
        )
