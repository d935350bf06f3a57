"""Characterisation of cells by single pulses: responses, steps, states, symmetric points."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import InstanceOf, Maybe, Real, Whole, need_memory, real_array, takes
from rpukit.analog.cells import Cell, PulsedCell
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.tile.tile import AnalogTile
from rpukit.errors import NonFiniteError, ParameterError, ShapeError
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


_RUN, _TAIL = 20, 20  # pulses in a run at the least; a part of it that is its end
_STILL = 0.25  # of a step in the middle of the range: larger steps at the end of a run are moving
_NOISY = -0.2  # correlation of neighbouring steps, -0.5 where reads have only noise


@dataclass(frozen=True, slots=True)
class PulseResponse:
    """Weights of some cells after each of a series of pulses, simulated or measured.

    Parameters
    ----------
    weight : array, shape (n_pulse + 1, n_cell) or (n_pulse,) and longer by one, weight units
        Weights that are seen, row 0 before the first pulse. With one row for each pulse, the
        first row is the start: its pulse is left out. Measured ones may be in any unit.
    up : array, shape (n_pulse,), bool, or 1 and -1
        Direction of each pulse.
    tile : AnalogTile, optional
        The tile after the last pulse, of a simulation.
    persistent : array, shape (n_pulse + 1, n_cell), optional
        Weights without writing noise, on which pulses act; None where they are those of `weight`
        or not known.

    Raises
    ------
    ShapeError, ParameterError, NonFiniteError

    Examples
    --------
    >>> import rpukit as rk
    >>> measured = rk.studies.PulseResponse([10.0, 12.5, 14.0, 12.0], [1, 1, 1, -1])
    >>> measured.weight.shape, measured.up
    ((4, 1), array([ True,  True, False]))
    """

    weight: np.ndarray
    up: np.ndarray
    tile: AnalogTile | None = None
    persistent: np.ndarray | None = None

    def __post_init__(self) -> None:
        up = _directions(self.up)
        for name in ("weight", "persistent"):
            value = getattr(self, name)
            if value is None:
                continue
            kept = getattr(value, "dtype", None) in (np.float32, np.float64)
            array = real_array(value, name, value.dtype if kept else np.float64)
            array = array[:, None] if array.ndim == 1 else array
            if array.ndim != 2 or array.shape[0] not in (up.size, up.size + 1):
                raise ShapeError(
                    f"{name}: got shape {array.shape} for {up.size} pulses, need "
                    f"({up.size + 1}, n_cell), or ({up.size}, n_cell): the first row is the start"
                )
            if not np.isfinite(array).all():
                raise NonFiniteError(f"{name} holds NaN or infinity")
            object.__setattr__(self, name, array)
        object.__setattr__(self, "up", up[1:] if self.weight.shape[0] == up.size else up)

    @property
    def states(self) -> np.ndarray:
        """Weights on which pulses act: the persistent ones where they are known."""
        return self.weight if self.persistent is None else self.persistent


def _directions(pulses: Any) -> np.ndarray:
    """Convert pulses to directions: True or 1 is up, False, 0 or -1 is down."""
    way = real_array(pulses, "pulses")
    if way.ndim != 1:
        raise ParameterError(f"pulses: got {way.ndim} axes, need one")
    wrong = ~np.isin(way, (-1.0, 0.0, 1.0))
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ParameterError(
            f"pulses: got {way[k]:g} as pulse {k}, need 1 or True (up), and -1, 0 or False (down)"
        )
    if (way == 0).any() and (way == -1).any():
        raise ParameterError(
            "pulses: got both 0 and -1, of which either may stand for down: need one of them"
        )
    up: np.ndarray = way == 1
    return up


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
    pulses : array, shape (n_pulse,), bool, or 1 and -1
        True or 1 is an up pulse; False, -1 or 0 is a down pulse (not both -1 and 0).
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
    ``n_cell``, ``seed`` and ``device`` apply only when ``cell`` is not a tile. Cells with writing
    noise show other weights than those on which their pulses act; the response has both.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> up_then_down = np.repeat([True, False], 300)
    >>> response = rk.studies.pulse_response(rk.SoftBounds(dw_min=0.01), up_then_down, n_cell=5)
    >>> response.weight.shape
    (601, 5)
    """
    up = _directions(pulses)
    if isinstance(cell, AnalogTile):
        tile = cell.copy()
        tile.update_parameters = _ONE_PULSE
    else:
        _granularity(cell)  # raises an error unless the cell is pulsed
        tile = AnalogTile((n_cell, 1), cell, update=_ONE_PULSE, seed=seed, device=device)
    n_out, n_in = tile.shape
    need_memory(8 * up.size * n_out * n_in, f"{up.size} pulses on {n_out * n_in} cells")
    if start is not None:
        tile.set_weights(_like(tile, np.full(tile.shape, start, np.float32)))
    elif isinstance(cell, PulsedCell):
        tile.set_weights(tile.cells["w_min"])
    x = _like(tile, np.ones((1, n_in), np.float32))
    d = [_like(tile, np.full((1, n_out), sign, np.float32)) for sign in (1.0, -1.0)]
    lr = _granularity(tile.cell)
    weight = np.empty((up.size + 1, n_out * n_in), tile.dtype)
    weight[0] = _cells(tile)
    persistent = None
    if _persistent(tile) is not None:
        persistent = np.empty_like(weight)
        persistent[0] = _persistent(tile)
    for k, way in enumerate(up):
        tile.update(x, d[int(way)], lr=lr)
        weight[k + 1] = _cells(tile)
        if persistent is not None:
            persistent[k + 1] = _persistent(tile)
    return PulseResponse(weight, up, tile, persistent)


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
        Its persistent weights are taken where it has them. The noise of the weights that are
        seen would show as steps: after a high read the next one is lower, whatever the pulse.
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
    before = response.states[:-1].astype(np.float64)
    step = np.diff(response.states.astype(np.float64), axis=0)
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
        A response to enough up and down pulses to cover the whole range. Its persistent weights
        are taken where it has them.

    Returns
    -------
    array, shape (n_cell,), float64
        The range that a cell moved over, divided by its mean step in the middle third of that
        range, up and down; NaN for a cell that took no steps there.

    Warns
    -----
    RuntimeWarning
        If the cells still moved at the end of their longest runs in one direction, so that
        their range is larger than what was seen; or if the steps are mostly noise of reads, as
        measured ones may be: `fit_device` then tells noise from steps.

    Notes
    -----
    `PulsedCell.n_states` is another number: the range between the mean bounds, in steps of size
    ``granularity``, that of weight 0. Both agree where a step at weight 0 is a mean one.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> plain = {"dw_min_std": 0, "dw_min_dtod": 0, "up_down_dtod": 0, "w_max_dtod": 0}
    >>> cell = rk.ConstantStep(dw_min=0.01, w_min_dtod=0, **plain)
    >>> response = rk.studies.pulse_response(cell, np.repeat([True, False], 130))
    >>> rk.studies.count_states(response).round(2)
    array([120.])
    """
    low, high, mean = _range_and_step(response)
    with np.errstate(invalid="ignore", divide="ignore"):
        states: np.ndarray = np.where(mean > 0, (high - low) / mean, np.nan)
    reason = _misleads(response, mean)
    if reason:
        warnings.warn(f"states: {reason}", RuntimeWarning, stacklevel=3)
    return states


def _range_and_step(response: PulseResponse) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ends of the range of each cell, and its mean step in the middle third."""
    weight = response.states.astype(np.float64)
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
    return low, high, mean


def _misleads(response: PulseResponse, mean: np.ndarray) -> str:
    """Say why a number of states is not one, or nothing."""
    moving = mean > 0
    if not moving.any():
        return ""
    step = np.diff(response.states[:, moving].astype(np.float64), axis=0)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(response.up)) + 1, [response.up.size]])
    if response.persistent is None and step.shape[0] > _RUN:
        inside = step - np.where(response.up[:, None], 1, -1) * mean[moving]
        neighbours = (inside[1:] * inside[:-1]).mean() / max((inside**2).mean(), 1e-300)
        if neighbours < _NOISY:
            return (
                f"neighbouring steps have a correlation of {neighbours:.2f}: most of what is seen "
                "is noise of reads or writing, not steps; fit_device tells them apart"
            )
    for way, sign, name in ((True, 1, "up"), (False, -1, "down")):
        ends = [
            step[b - max((b - a) // _TAIL, 1) : b]
            for a, b in itertools.pairwise(edges)
            if response.up[a] == way and b - a >= _RUN
        ]
        if not ends:
            return f"no run of {_RUN} {name} pulses or more: the range was not covered"
        left = sign * float(np.mean(np.concatenate(ends) / mean[moving]))
        if left > _STILL:
            return (
                f"the last {name} pulses still moved the cells by {100 * left:.0f} % of a step in "
                "the middle of what was seen: the range is larger, send more pulses"
            )
    return ""


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


def _persistent(tile: AnalogTile) -> np.ndarray | None:
    """Weights on which pulses act, where the cells show others."""
    if not isinstance(tile.cell, PulsedCell) or not tile.cell.write_noise > 0:
        return None
    return _device.to_numpy(tile.arrays[0].stored).ravel()


def _cells(tile: AnalogTile) -> np.ndarray:
    return _device.to_numpy(tile.get_weights()).ravel()
