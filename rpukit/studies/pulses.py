"""Characterisation of cells by single pulses: responses, steps, states, symmetric points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import InstanceOf, Maybe, Real, Whole, need_memory, real_array, takes
from rpukit.analog.cells import Cell, PulsedCell
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.tile.tile import AnalogTile
from rpukit.errors import ParameterError
from rpukit.random import Stream

__all__ = [
    "PulseResponse",
    "StepStatistics",
    "count_states",
    "pulse_response",
    "step_statistics",
    "symmetric_point",
]

# One slot per update, and probability 1 for x = |d| = 1 and lr = granularity: one pulse per cell.
_ONE_PULSE = UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)


@dataclass(frozen=True, slots=True)
class PulseResponse:
    """Weights of some cells after each of a series of pulses.

    Attributes
    ----------
    weight : array, shape (n_pulse + 1, n_cell), dtype of the tile, weight units
        Row 0 is before the first pulse. The cells of a tile are in row-major order.
    up : array, shape (n_pulse,), bool
        Direction of each pulse.
    tile : AnalogTile
        The tile after the last pulse.
    """

    weight: np.ndarray
    up: np.ndarray
    tile: AnalogTile


@takes(cell=InstanceOf((Cell, AnalogTile)), n_cell=Whole(1), start=Maybe(Real()))
def pulse_response(
    cell: Cell | AnalogTile,
    pulses: Any,
    *,
    n_cell: int = 1,
    start: float | None = None,
    seed: int | Stream = 0,
    device: str = "cpu",
) -> PulseResponse:
    """Send single pulses to some cells and record their weights after each.

    Parameters
    ----------
    cell : Cell or AnalogTile
        A pulsed cell of one device or several; or a tile, a copy of which receives the pulses.
        Every cell of the tile receives each pulse.
    pulses : array, shape (n_pulse,), bool
        True is an up pulse, False a down pulse.
    n_cell : int, at least 1
        Number of cells, each with its own device-to-device variation.
    start : float, optional, weight units
        Weight before the first pulse; default: the lower bound of each cell, the weight of a tile,
        0 for cells of several devices.
    seed : int or Stream
    device : str

    Returns
    -------
    PulseResponse

    Raises
    ------
    ParameterError, DeviceError

    Notes
    -----
    ``n_cell``, ``seed`` and ``device`` apply only when ``cell`` is not a tile.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> up_then_down = np.repeat([True, False], 300)
    >>> response = rk.studies.pulse_response(rk.SoftBounds(dw_min=0.01), up_then_down, n_cell=5)
    >>> response.weight.shape
    (601, 5)
    """
    up = real_array(pulses, "pulses").astype(bool)
    if up.ndim != 1:
        raise ParameterError(f"pulses: got {up.ndim} axes, need one")
    if isinstance(cell, AnalogTile):
        tile = cell.copy()
        tile.update_parameters = _ONE_PULSE
    else:
        _granularity(cell)  # raises an error unless the cell is pulsed
        tile = AnalogTile((n_cell, 1), cell, update=_ONE_PULSE, seed=seed, device=device)
    n_out, n_in = tile.shape
    need_memory(4 * up.size * n_out * n_in, f"{up.size} pulses on {n_out * n_in} cells")
    if start is not None:
        tile.set_weights(_like(tile, np.full(tile.shape, start, np.float32)))
    elif isinstance(cell, PulsedCell):
        tile.set_weights(tile.cells["w_min"])
    x = _like(tile, np.ones((1, n_in), np.float32))
    d = [_like(tile, np.full((1, n_out), sign, np.float32)) for sign in (1.0, -1.0)]
    lr = _granularity(tile.cell)
    weight = np.empty((up.size + 1, n_out * n_in), tile.dtype)
    weight[0] = _cells(tile)
    for k, way in enumerate(up):
        tile.update(x, d[int(way)], lr=lr)
        weight[k + 1] = _cells(tile)
    return PulseResponse(weight, up, tile)


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """Mean and deviation of the step size, in bins of the weight before the step.

    Attributes
    ----------
    weight : array, shape (n_bin,), float64, weight units
        Centres of the bins.
    mean, std : array, shape (2, n_bin), float64, weight units
        Of the steps of down pulses (row 0) and up pulses (row 1); NaN where a bin has none.
    count : array, shape (2, n_bin), int64
        Number of steps.
    """

    weight: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    count: np.ndarray


@takes(n_bin=Whole(1, 1 << 20))
def step_statistics(response: PulseResponse, *, n_bin: int = 40) -> StepStatistics:
    """Compute the mean and deviation of the steps of a response, binned by the weight before.

    Parameters
    ----------
    response : PulseResponse
    n_bin : int, at least 1
        Number of bins between the smallest and the largest weight.

    Returns
    -------
    StepStatistics

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> cell = rk.ConstantStep(dw_min=0.01, dw_min_std=0, dw_min_dtod=0, up_down_dtod=0)
    >>> response = rk.studies.pulse_response(cell, np.ones(50), n_cell=20)
    >>> statistics = rk.studies.step_statistics(response, n_bin=4)
    >>> statistics.mean[1].round(4)
    array([0.01, 0.01, 0.01, 0.01])
    """
    before = response.weight[:-1].astype(np.float64)
    step = np.diff(response.weight.astype(np.float64), axis=0)
    if not before.size:
        raise ParameterError("response: got no pulses, need at least one pulse and one cell")
    low, high = before.min(), before.max()
    width = (high - low) / n_bin or 1.0
    where = np.minimum(((before - low) / width).astype(np.int64), n_bin - 1)
    count = np.zeros((2, n_bin), np.int64)
    mean, std = np.full((2, n_bin), np.nan), np.full((2, n_bin), np.nan)
    for way in (0, 1):
        pulses = response.up == bool(way)
        at, dw = where[pulses].ravel(), step[pulses].ravel()
        n = count[way] = np.bincount(at, minlength=n_bin)
        some = n > 0
        mean[way, some] = np.bincount(at, dw, n_bin)[some] / n[some]
        rest = np.bincount(at, (dw - mean[way, at]) ** 2, n_bin)
        std[way, some] = np.sqrt(rest[some] / n[some])
    return StepStatistics(low + width * (np.arange(n_bin) + 0.5), mean, std, count)


@takes()
def count_states(response: PulseResponse) -> np.ndarray:
    """Estimate the number of states of each cell: its weight range in mean steps.

    Parameters
    ----------
    response : PulseResponse
        A response to enough up and down pulses to cover the whole range.

    Returns
    -------
    array, shape (n_cell,), float64
        The range that a cell moved over, divided by its mean step in the middle third of that
        range, up and down; NaN for a cell that took no steps there.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> plain = {"dw_min_std": 0, "dw_min_dtod": 0, "up_down_dtod": 0, "w_max_dtod": 0}
    >>> cell = rk.ConstantStep(dw_min=0.01, w_min_dtod=0, **plain)
    >>> response = rk.studies.pulse_response(cell, np.repeat([True, False], 130))
    >>> rk.studies.count_states(response).round(2)
    array([120.])
    """
    weight = response.weight.astype(np.float64)
    low, high = weight.min(axis=0), weight.max(axis=0)
    third = (high - low) / 3
    before, step = weight[:-1], np.diff(weight, axis=0)
    middle = (before >= low + third) & (before <= high - third) & (third > 0)
    means = []
    for way, sign in ((True, 1), (False, -1)):
        chosen = middle & (response.up == way)[:, None]
        with np.errstate(invalid="ignore"):
            means.append(sign * np.where(chosen, step, 0).sum(axis=0) / chosen.sum(axis=0))
    counted = np.array([~np.isnan(mean) for mean in means])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(means, axis=0) / counted.sum(axis=0)
        states: np.ndarray = np.where(mean > 0, (high - low) / mean, np.nan)
    return states


@takes(n_cell=Whole(1), n_pulse=Whole(4))
def symmetric_point(
    cell: Cell,
    *,
    n_cell: int = 1000,
    n_pulse: int = 4000,
    seed: int | Stream = 0,
    device: str = "cpu",
) -> np.ndarray:
    """Estimate the symmetric point of each cell: the mean weight under alternating pulses.

    Parameters
    ----------
    cell : Cell
        A cell that is pulsed.
    n_cell : int, at least 1
    n_pulse : int, at least 4
        Number of alternating pulses; the mean is taken over the second half.
    seed : int or Stream
    device : str

    Returns
    -------
    array, shape (n_cell,), float64, weight units

    Raises
    ------
    ParameterError, DeviceError

    Notes
    -----
    Source: Kim et al., "Zero-shifting technique for deep neural network training on resistive
    cross-point arrays", arXiv:1907.10228 (2019).

    Examples
    --------
    >>> import rpukit as rk
    >>> even = {"dw_min_dtod": 0, "up_down_dtod": 0, "w_max_dtod": 0, "w_min_dtod": 0}
    >>> cell = rk.SoftBounds(dw_min=0.05, **even)
    >>> bool(abs(rk.studies.symmetric_point(cell, n_cell=4, n_pulse=400)).max() < 0.1)
    True
    """
    need_memory(4 * n_pulse * n_cell, f"{n_pulse} pulses on {n_cell} cells")
    alternating = np.arange(n_pulse) % 2 == 0
    response = pulse_response(
        cell, alternating, n_cell=n_cell, start=0.0, seed=seed, device=device
    )
    mean: np.ndarray = response.weight[n_pulse // 2 :].mean(axis=0, dtype=np.float64)
    return mean


def _granularity(cell: Any) -> float:
    """Return the mean step of a cell; as the learning rate it makes every slot fire."""
    size = getattr(cell, "granularity", None)
    if not isinstance(cell, Cell) or not size:
        raise ParameterError(
            f"cell: got {type(cell).__name__}, need a pulsed cell such as rpukit.ConstantStep"
        )
    return float(size)


def _like(tile: AnalogTile, array: np.ndarray) -> Any:
    return _device.to_device(array, _device.parse_device(tile.device), tile.dtype)


def _cells(tile: AnalogTile) -> np.ndarray:
    return _device.to_numpy(tile.get_weights()).ravel()
