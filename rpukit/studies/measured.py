"""Measured pulses: conductances of devices after each pulse, as read from a file or a table."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rpukit._checks import Checked, one_of, takes
from rpukit.errors import ParameterError
from rpukit.studies.prediction import Cycles
from rpukit.studies.pulses import PulseResponse

__all__ = ["ConductanceMap", "PulseData"]

_SHORTEST = 20  # pulses: a shorter run up and down is not counted as a cycle of its own


@dataclass(frozen=True, slots=True)
class ConductanceMap(Checked):
    """Relation of conductances and weights: ``g = g_zero + g_per_weight w``.

    Parameters
    ----------
    g_zero : float, microsiemens
        Conductance of weight 0.
    g_per_weight : float, positive, microsiemens
        Conductance of one unit of weight.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> scale = rk.studies.ConductanceMap(30.0, 20.0)
    >>> scale.weight(40.0), scale.conductance(-1.0)
    (0.5, 10.0)
    """

    g_zero: float
    g_per_weight: float

    def _check(self) -> None:
        self._need(self.g_per_weight > 0, "g_per_weight", "a positive conductance, microsiemens")

    def weight(self, conductance: Any) -> Any:
        """Convert conductances to weights.

        Parameters
        ----------
        conductance : float or array, microsiemens

        Returns
        -------
        float or array, weight units
        """
        return (conductance - self.g_zero) / self.g_per_weight

    def conductance(self, weight: Any) -> Any:
        """Convert weights to conductances.

        Parameters
        ----------
        weight : float or array, weight units

        Returns
        -------
        float or array, microsiemens
        """
        return self.g_zero + self.g_per_weight * weight


@dataclass(frozen=True, slots=True)
class PulseData:
    """Conductances of measured devices, one row for each read, by device and pulse number.

    The first row of a device is the read before its first pulse: its direction is ignored. Pulses
    without a read (gaps in the numbers) have the direction of the next row.

    Attributes
    ----------
    devices : tuple of str
        Names of the devices.
    device : array, shape (n_row,), int64
        Index into `devices`.
    pulse : array, shape (n_row,), int64
        Number of the pulse after which the device was read.
    up : array, shape (n_row,), bool
        Direction of that pulse.
    conductance : array, shape (n_row,), float64, microsiemens
    read_noise : array, shape (n_row,), float64, microsiemens, or None
        Standard deviation of each read, where it was measured.
    cycle : array, shape (n_row,), int64, or None
        Number of the cycle, where it was given.
    source : dict
        Name of the file, SHA-256 of its bytes, unit of its conductances.
    """

    devices: tuple[str, ...]
    device: np.ndarray
    pulse: np.ndarray
    up: np.ndarray
    conductance: np.ndarray
    read_noise: np.ndarray | None = None
    cycle: np.ndarray | None = None
    source: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        low, high = self.conductance.min(), self.conductance.max()
        return (
            f"PulseData({len(self.devices)} devices, {self.pulse.size} reads, "
            f"{low:.4g} to {high:.4g} uS)"
        )

    @takes()
    def response(self, device: str | None = None) -> PulseResponse:
        """Return the reads of one device as a `PulseResponse`, for the other studies.

        Parameters
        ----------
        device : str, optional
            Name of the device; default: the first.

        Returns
        -------
        PulseResponse
            Its "weights" are conductances in microsiemens.

        Raises
        ------
        ParameterError
            If pulses of the device were not read.

        Examples
        --------
        >>> import rpukit as rk
        >>> response = rk.studies.example_pulses("ecram").response()
        >>> rk.studies.step_statistics(response, n_bin=5).mean.shape
        (2, 5)
        """
        name = self.devices[0] if device is None else one_of(device, "device", self.devices)
        rows = self.device == self.devices.index(name)
        if (np.diff(self.pulse[rows]) != 1).any():
            raise ParameterError(
                f"device: {name!r} has pulses without a read: their steps are not known"
            )
        return PulseResponse(self.conductance[rows][:, None], self.up[rows][1:])

    def default_map(self) -> ConductanceMap:
        """Return the map that takes the range of all devices to weights from -1 to 1.

        Returns
        -------
        ConductanceMap
            Of the 1 % and 99 % quantiles of all reads.

        Raises
        ------
        ParameterError
            If all conductances are the same.
        """
        low, high = np.quantile(self.conductance, (0.01, 0.99))
        if not high > low:
            raise ParameterError(
                f"data: the conductance stays at {low:.4g} uS: the devices did not respond"
            )
        return ConductanceMap(float(low + high) / 2, float(high - low) / 2)

    def cycles(self, scale: ConductanceMap) -> Cycles:
        """Cut the pulses of each device into cycles, and lay them side by side.

        Parameters
        ----------
        scale : ConductanceMap

        Returns
        -------
        Cycles
        """
        parts = [part for d in range(len(self.devices)) for part in self._cycles_of(d, scale)]
        n = max(read.size for _, read, _, _ in parts)
        read = np.full((n, len(parts)), np.nan)
        noise, up = np.zeros((n, len(parts))), np.zeros((n - 1, len(parts)), bool)
        for k, (_, some, way, own) in enumerate(parts):
            read[: some.size, k], noise[: some.size, k], up[: way.size, k] = some, own, way
        return Cycles(read, up, np.array([part[0] for part in parts]), noise)

    def _cycles_of(
        self, device: int, scale: ConductanceMap
    ) -> list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        rows = np.flatnonzero(self.device == device)
        at = self.pulse[rows] - self.pulse[rows[0]]
        read = np.full(at[-1] + 1, np.nan)
        noise = np.zeros(at[-1] + 1)
        read[at] = scale.weight(self.conductance[rows])
        if self.read_noise is not None:
            noise[at] = self.read_noise[rows] / scale.g_per_weight
        up = np.repeat(self.up[rows][1:], np.diff(at))
        if self.cycle is not None:
            changes = np.flatnonzero(np.diff(self.cycle[rows]))
            cuts = [int(at[k]) for k in changes if k > 0]  # a cycle begins at the read before it
        else:
            cuts = _turns(up)
        edges = [0, *cuts, up.size]
        return [
            (device, read[a : b + 1], up[a:b], noise[a : b + 1])
            for a, b in itertools.pairwise(edges)
            if b > a
        ]


def _turns(up: np.ndarray) -> list[int]:
    """Find where cycles begin: where the direction is again that of the first pulse."""
    cuts, begin = [], 0
    for t in np.flatnonzero((up[1:] != up[:-1]) & (up[1:] == up[:1])) + 1:
        if t - begin >= _SHORTEST:
            cuts.append(int(t))
            begin = int(t)
    return cuts
