"""Small studies of devices: how cells answer to pulses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.analog.cells import PulsedCell
from rpukit.analog.tile import AnalogTile
from rpukit.analog.update_parameters import UpdateParameters
from rpukit.errors import ParameterError
from rpukit.random import Stream

__all__ = ["PulseResponse", "pulse_response", "symmetric_point"]

# One slot per update, and probability 1 for x = |d| = 1 and lr = granularity: one pulse a cell.
_ONE_PULSE = UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)


@dataclass(frozen=True, slots=True)
class PulseResponse:
    """Weights of some cells after each of a series of pulses.

    Attributes
    ----------
    weight : array, shape (n_pulse + 1, n_cell), float32, weight units
        Row 0 is before the first pulse.
    up : array, shape (n_pulse,), bool
        Direction of each pulse.
    tile : AnalogTile
        The cells as the last pulse left them.
    """

    weight: np.ndarray
    up: np.ndarray
    tile: AnalogTile


def pulse_response(
    cell: PulsedCell,
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
    cell : PulsedCell
    pulses : array, shape (n_pulse,), bool
        True is an up pulse, False a down pulse.
    n_cell : int, at least 1
        Number of cells, each with its own device-to-device variation.
    start : float, optional, weight units
        Weight before the first pulse; default: the lower bound of each cell.
    seed : int or Stream
    device : str

    Returns
    -------
    PulseResponse

    Raises
    ------
    ParameterError, DeviceError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> up_then_down = np.repeat([True, False], 300)
    >>> response = rk.studies.pulse_response(rk.SoftBounds(dw_min=0.01), up_then_down, n_cell=5)
    >>> response.weight.shape
    (601, 5)
    """
    if not isinstance(cell, PulsedCell):
        raise ParameterError(f"cell: got {type(cell).__name__}, need a pulsed cell")
    up = np.asarray(pulses, dtype=bool)
    if up.ndim != 1:
        raise ParameterError(f"pulses: got {up.ndim} axes, need one")
    tile = AnalogTile((n_cell, 1), cell, update=_ONE_PULSE, seed=seed, device=device)
    first = (
        tile.to("cpu").cells["w_min"] if start is None else np.full((n_cell, 1), start, np.float32)
    )
    tile.set_weights(_like(tile, first))
    x = _like(tile, np.ones((1, 1), np.float32))
    d = {
        way: _like(tile, np.full((1, n_cell), -1.0 if way else 1.0, np.float32))
        for way in (True, False)
    }
    weight = np.empty((up.size + 1, n_cell), np.float32)
    weight[0] = _column(tile)
    for k, way in enumerate(up):
        tile.update(x, d[bool(way)], lr=cell.granularity)
        weight[k + 1] = _column(tile)
    return PulseResponse(weight, up, tile)


def symmetric_point(
    cell: PulsedCell,
    *,
    n_cell: int = 1000,
    n_pulse: int = 4000,
    seed: int | Stream = 0,
    device: str = "cpu",
) -> np.ndarray:
    """Estimate where up and down steps balance: the mean weight under alternating pulses.

    Parameters
    ----------
    cell : PulsedCell
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
    if n_pulse < 4:
        raise ParameterError(f"n_pulse: got {n_pulse!r}, need an integer from 4")
    alternating = np.arange(n_pulse) % 2 == 0
    response = pulse_response(
        cell, alternating, n_cell=n_cell, start=0.0, seed=seed, device=device
    )
    mean: np.ndarray = response.weight[n_pulse // 2 :].mean(axis=0, dtype=np.float64)
    return mean


def _like(tile: AnalogTile, array: np.ndarray) -> Any:
    return _device.to_device(array, _device.parse_device(tile.device), np.float32)


def _column(tile: AnalogTile) -> np.ndarray:
    return _device.to_numpy(tile.get_weights())[:, 0]
