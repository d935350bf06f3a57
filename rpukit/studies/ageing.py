"""What time and use do to stored weights: retention over time, endurance over cycles."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import Real, Whole, need_memory, real_array, takes
from rpukit.analog.cells import Cell
from rpukit.analog.tile.tile import AnalogTile
from rpukit.errors import ParameterError, ShapeError
from rpukit.random import Stream
from rpukit.studies.measured import _turns
from rpukit.studies.pulses import PulseResponse, _misleads, _range_and_step

__all__ = ["Endurance", "Retention", "endurance", "retention"]

_MOST_STEPS = 1_000_000  # calls of a tile; each takes some ten microseconds


@dataclass(frozen=True, slots=True)
class Retention:
    """Weights some time after they were written.

    Attributes
    ----------
    time : array, shape (n_time,), seconds
    level : array, shape (n_level,), weight units
        Weights that were written.
    weight : array, shape (n_time, n_level, n_cell), weight units
    """

    time: np.ndarray
    level: np.ndarray
    weight: np.ndarray


@takes(n_cell=Whole(1), step_time=Real(1e-12))
def retention(
    cell: Cell,
    times: Any,
    *,
    levels: Any = (-0.4, 0.0, 0.4),
    n_cell: int = 200,
    step_time: float = 1.0,
    seed: int | Stream = 0,
    device: str = "cpu",
) -> Retention:
    """Write weights and read them after some times: drift, decay and diffusion of a cell.

    Parameters
    ----------
    cell : Cell
        With `DriftParameters`, a ``lifetime`` or a ``diffusion``.
    times : array, shape (n_time,), seconds, ascending from 0
        For a logarithmic axis, ``numpy.geomspace(1, 1e5, 30)``.
    levels : array, shape (n_level,), weight units
        Weights to write. They are clipped to the bounds of each cell.
    n_cell : int, at least 1
        Cells for each level, each with its own device-to-device variation.
    step_time : float, positive, seconds
        Time between two calls of `AnalogTile.post_step`, the unit of ``lifetime`` and
        ``diffusion``; that of drift is the second (``DriftParameters.t_0``).
    seed : int or Stream
    device : str

    Returns
    -------
    Retention

    Raises
    ------
    ParameterError, ShapeError, DeviceError

    Notes
    -----
    Nothing depends on temperature: no model of rpukit has one. A weight that decays or diffuses
    counts as newly written for drift, so a cell with both hardly drifts; see `AnalogTile.drift`.
    Drift and reading noise of programmed phase-change devices are in `rpukit.inference`.

    Examples
    --------
    >>> import rpukit as rk
    >>> cell = rk.SoftBounds(drift=rk.DriftParameters(nu=0.05), w_max_dtod=0, w_min_dtod=0)
    >>> kept = rk.studies.retention(cell, [1.0, 100.0], levels=[0.4], n_cell=3)
    >>> [round(float(w), 3) for w in kept.weight.mean(axis=(1, 2))]
    [0.4, 0.318]
    """
    time, level = real_array(times, "times"), real_array(levels, "levels")
    for name, array in (("times", time), ("levels", level)):
        if array.ndim != 1 or not array.size or not np.isfinite(array).all():
            raise ShapeError(f"{name}: got shape {array.shape}, need one axis of finite numbers")
    if abs(level).max() > np.finfo(np.float32).max:
        raise ParameterError(f"levels: got {abs(level).max():g}, need numbers of float32")
    if time[0] < 0 or (np.diff(time) <= 0).any():
        raise ParameterError("times: need ascending ones from 0, in seconds")
    steps, drifts = _processes(cell)
    if not (steps or drifts):
        raise ParameterError(
            "cell: nothing changes its weights with time: need drift=, lifetime= or diffusion="
        )
    calls = np.diff(np.floor(time / step_time + 1e-9), prepend=0.0)
    if steps and calls.sum() > _MOST_STEPS:
        raise ParameterError(
            f"step_time: got {step_time:g} s, of which the last time has {calls.sum():.3g}: need "
            f"at most {_MOST_STEPS}"
        )
    need_memory(4 * time.size * level.size * n_cell, f"{time.size} times")
    tile = AnalogTile((level.size, n_cell), cell, seed=seed, device=device)
    place = _device.parse_device(tile.device)
    tile.set_weights(
        _device.to_device(np.repeat(level, n_cell).reshape(tile.shape), place, tile.dtype)
    )
    weight = np.empty((time.size, level.size, n_cell), np.float32)
    for k, n in enumerate(calls):
        for _ in range(int(n) if steps else 0):
            tile.post_step()
        if drifts:
            tile.drift(float(np.diff(time, prepend=0.0)[k]))
        weight[k] = _device.to_numpy(tile.get_weights())
    return Retention(time, level, weight)


def _processes(cell: Any) -> tuple[bool, bool]:
    """Tell whether weights decay or diffuse, and whether they drift, in any device of a cell."""
    drift = getattr(cell, "drift", None)
    steps = getattr(cell, "lifetime", 0) > 0 or getattr(cell, "diffusion", 0) > 0
    drifts = drift is not None and drift.active
    for field in fields(cell):
        value = getattr(cell, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Cell):
                inner = _processes(part)
                steps, drifts = steps or inner[0], drifts or inner[1]
    return steps, drifts


@dataclass(frozen=True, slots=True)
class Endurance:
    """Range and states of cells, cycle by cycle.

    Attributes
    ----------
    pulse : array, shape (n_cycle,), int64
        Number of pulses before each cycle.
    low, high : array, shape (n_cycle, n_cell), float64
        Ends of the range in each cycle, in the unit of the response.
    step : array, shape (n_cycle, n_cell), float64
        Mean step in the middle third of the range.
    states : array, shape (n_cycle, n_cell), float64
        Range in mean steps, as `count_states` counts; NaN without steps in the middle.
    """

    pulse: np.ndarray
    low: np.ndarray
    high: np.ndarray
    step: np.ndarray
    states: np.ndarray


@takes()
def endurance(response: PulseResponse) -> Endurance:
    """Follow range, mean step and number of states over the cycles of a response.

    Parameters
    ----------
    response : PulseResponse
        Runs of up and down pulses in turn, simulated or measured (`PulseData.response`). A cycle
        begins where the direction is again that of the first pulse.

    Returns
    -------
    Endurance

    Raises
    ------
    ParameterError
        If there is no whole cycle of 20 pulses or more.

    Warns
    -----
    RuntimeWarning
        As `count_states` does.

    Notes
    -----
    The cells of rpukit do not wear out: what changes from cycle to cycle in a simulation is
    chance. Measured devices do.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> pulses = np.tile(np.repeat([True, False], 300), 3)
    >>> response = rk.studies.pulse_response(rk.ConstantStep(dw_min=0.02), pulses, n_cell=4)
    >>> rk.studies.endurance(response).states.shape
    (3, 4)
    """
    edges = [0, *_turns(response.up), response.up.size]
    pairs = [(a, b) for a, b in itertools.pairwise(edges) if not response.up[a:b].all()]
    pairs = [(a, b) for a, b in pairs if response.up[a:b].any()]
    if not pairs:
        raise ParameterError("response: got no cycle of up and down pulses, need one or more")
    parts = [PulseResponse(response.states[a : b + 1], response.up[a:b]) for a, b in pairs]
    low, high, step = (np.stack(v) for v in zip(*map(_range_and_step, parts), strict=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        states = np.where(step > 0, (high - low) / step, np.nan)
    whole = _range_and_step(response)[2]
    reason = _misleads(response, whole)
    if reason:
        warnings.warn(f"states: {reason}", RuntimeWarning, stacklevel=3)
    return Endurance(np.array([a for a, _ in pairs]), low, high, step, states)
