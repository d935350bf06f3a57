"""Base class of all cells, draws of per-cell arrays, and the ideal cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rpukit._checks import Checked
from rpukit.analog.parameters.drift import DriftParameters
from rpukit.elementwise import random_fill
from rpukit.random import Op, Stream

__all__ = ["Cell", "Draws", "Ideal", "decay_scale", "drift_arrays"]

FloatArray = Any  # numpy.ndarray of float32


class Draws:
    """Random draws when a tile is made: draw number k gives one value for each cell."""

    def __init__(self, stream: Stream, shape: tuple[int, int]) -> None:
        self._stream, self._shape = stream, shape

    def normal(self, k: int) -> FloatArray:
        return random_fill(self._stream, self._shape, "normal", op=Op.CELLS, draw=k)

    def uniform(self, k: int) -> FloatArray:
        return random_fill(self._stream, self._shape, "uniform", op=Op.CELLS, draw=k)

    def spread(self, mean: float, dtod: float, k: int) -> FloatArray:
        """Draw mean (1 + dtod xi); nothing is drawn when there is no spread."""
        if dtod == 0 or mean == 0:
            return np.full(self._shape, mean, np.float32)
        return np.float32(mean) * (1 + np.float32(dtod) * self.normal(k))

    def shifted(self, mean: float, std: float, k: int) -> FloatArray:
        """Draw mean + std xi; nothing is drawn when there is no spread."""
        if std == 0:
            return np.full(self._shape, mean, np.float32)
        return np.float32(mean) + np.float32(std) * self.normal(k)

    def full(self, value: float) -> FloatArray:
        return np.full(self._shape, value, np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(Checked):
    """Base of all cells; see `Ideal`, `ConstantStep`, `SoftBounds`."""

    PULSED: ClassVar[bool] = False
    PLANES: ClassVar[tuple[str, ...]] = ()

    def _check_drift(self, drift: DriftParameters | None) -> None:
        self._need(isinstance(drift, DriftParameters | None), "drift", "DriftParameters or None")

    def _check_lifetime(self, lifetime: float) -> None:
        good = lifetime == 0 or lifetime >= 1
        self._need(good, "lifetime", "0 (no decay) or at least 1, in `decay` calls")

    def sample(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        """Draw the per-cell arrays of a tile.

        Parameters
        ----------
        stream : Stream
        shape : tuple of int, (n_out, n_in)

        Returns
        -------
        dict of str to array, shape (n_out, n_in), float32
            The planes of the step function, and ``decay_scale``, ``diffusion_rate``,
            ``drift_nu``, ``reset_bias`` where the parameters need them.
        """
        raise NotImplementedError  # pragma: no cover

    @property
    def write_noise(self) -> float:
        """Standard deviation of the write noise, in weight units."""
        return 0.0


def decay_scale(lifetime: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.where(lifetime <= 1, np.float32(0), 1 - 1 / lifetime).astype(np.float32)


def drift_arrays(draws: Draws, drift: DriftParameters | None) -> dict[str, FloatArray]:
    """Draw the drift exponent of each cell, unless all cells have the same."""
    if drift is None or drift.nu == 0 or drift.nu_dtod == 0:
        return {}
    return {"drift_nu": draws.spread(drift.nu, drift.nu_dtod, 9)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ideal(Cell):
    """A cell that takes the exact update ``-lr d x``, without pulses, noise or bounds.

    Parameters
    ----------
    diffusion : float, at least 0, weight units
        Standard deviation of the random walk in one `AnalogTile.diffuse` call.
    lifetime : float, 0 or at least 1, in calls of `AnalogTile.decay`
        Decay constant; 0 turns decay off.
    reset_std : float, at least 0, weight units
        Spread after `AnalogTile.reset`.
    drift : DriftParameters, optional
        Parameters of `AnalogTile.drift`; None turns drift off.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> tile = rk.AnalogTile((2, 3), rk.Ideal(), seed=1)
    """

    diffusion: float = 0.0
    lifetime: float = 0.0
    reset_std: float = 0.01
    drift: DriftParameters | None = None

    def _check(self) -> None:
        self._check_drift(self.drift)
        self._need(self.diffusion >= 0, "diffusion", "a number from 0")
        self._check_lifetime(self.lifetime)
        self._need(self.reset_std >= 0, "reset_std", "a number from 0")

    def sample(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        draws = Draws(stream, shape)
        arrays = {}
        if self.lifetime > 0:
            arrays["decay_scale"] = decay_scale(draws.full(self.lifetime))
        if self.diffusion > 0:
            arrays["diffusion_rate"] = draws.full(self.diffusion)
        arrays.update(drift_arrays(draws, self.drift))
        return arrays
