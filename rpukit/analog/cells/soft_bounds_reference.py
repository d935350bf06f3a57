"""Soft-bounds device model whose weight is relative to a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rpukit.analog.cells.base import Draws, FloatArray
from rpukit.analog.cells.linear_step import slope
from rpukit.analog.cells.pulsed import XI, PulsedCell, WriteNoiseCell, with_common_parameters
from rpukit.random import Stream

__all__ = ["SoftBoundsReference", "add_reference"]

_SLOPE_UP, _SLOPE_DOWN, _REFERENCE = 16, 17, 18  # draws


def add_reference(
    cell: PulsedCell,
    draws: Draws,
    arrays: dict[str, FloatArray],
    symmetry_point: FloatArray | None,
) -> None:
    """Draw the reference of each cell; add the symmetry point to it and to the resting point."""
    mean, std = cell.reference_mean, cell.reference_std  # type: ignore[attr-defined]
    arrays["reference"] = draws.shifted(mean, std, _REFERENCE)
    if symmetry_point is not None:
        arrays["reference"] += symmetry_point
        resting = arrays.get("reset_bias", np.float32(0))
        arrays["reset_bias"] = (resting + symmetry_point).astype(np.float32)


@with_common_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class SoftBoundsReference(WriteNoiseCell):
    """A `SoftBounds` device whose weight is relative to a reference: ``w = V - reference``.

    Up: ``step_up (1 - V / w_max)``, down: ``step_down (1 - V / w_min)``; V stays within the
    bounds of the cell. A weight w that is set is clipped to these bounds before the reference is
    added, so V may be outside until the next pulse.

    Parameters
    ----------
    slope_up_dtod, slope_down_dtod : float, at least 0
        The bound `w_max` (`w_min`) of a cell is divided by ``|1 + slope_dtod xi|``.
    reference_mean, reference_std : float, weight units
        Mean and spread of the reference.
    subtract_symmetry_point : bool
        Add the point where up and down steps are equal to the reference and to the resting point.
    mult_noise : bool
        Noise acts on the whole step; otherwise on its constant part only.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Rasch et al., "Fast and robust analog in-memory deep neural network training", Nature
    Communications 15:7133 (2024).

    Examples
    --------
    >>> import rpukit as rk
    >>> cell = rk.SoftBoundsReference(reference_std=0.1, subtract_symmetry_point=True)
    >>> sorted(set(rk.AnalogTile((2, 3), cell, seed=1).cells) - set(rk.SoftBounds.PLANES))
    ['reference', 'reset_bias']
    """

    PLANES: ClassVar[tuple[str, ...]] = (
        *PulsedCell.PLANES,
        "slope_down",
        "slope_up",
        "reference",
    )
    STEP: ClassVar[str] = "linear_reference_step"
    SAMPLER: ClassVar[str] = "linear_reference_planes"

    slope_up_dtod: float = 0.0
    slope_down_dtod: float = 0.0
    reference_mean: float = 0.0
    reference_std: float = 0.0
    subtract_symmetry_point: bool = False
    mult_noise: bool = False

    def _check(self) -> None:
        WriteNoiseCell._check(self)
        for name in ("slope_up_dtod", "slope_down_dtod", "reference_std"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")
        for name, dtod in (("w_max", self.slope_up_dtod), ("w_min", self.slope_down_dtod)):
            slope = self._largest_step() / self._smallest_bound(name)
            self._need_small("dw_min", slope * (1 + XI * dtod))
            if dtod > 0:
                self._need_small(name, self._largest_bound(name) * 2.0**24)

    def globals(self) -> FloatArray:
        g = PulsedCell.globals(self)
        g[1] = self.mult_noise
        return g

    def own_numbers(self) -> tuple[float, ...]:
        reference = self.reference_mean, self.reference_std, self.subtract_symmetry_point
        return self.slope_up_dtod, self.slope_down_dtod, *reference

    def sample(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        arrays, draws = PulsedCell.sample(self, stream, shape), Draws(stream, shape)
        for name, dtod, k in (
            ("w_max", self.slope_up_dtod, _SLOPE_UP),
            ("w_min", self.slope_down_dtod, _SLOPE_DOWN),
        ):
            if dtod > 0:
                arrays[name] = arrays[name] / np.abs(draws.spread(1.0, dtod, k))
        arrays["slope_up"] = slope(arrays["step_up"], arrays["w_max"])
        arrays["slope_down"] = slope(arrays["step_down"], arrays["w_min"])
        point = _symmetry_point(arrays) if self.subtract_symmetry_point else None
        add_reference(self, draws, arrays, point)
        return arrays


def _symmetry_point(arrays: dict[str, FloatArray]) -> FloatArray:
    """Find where both steps are equal; 0 where the bounds are not on both sides of 0."""
    change = arrays["slope_down"] - arrays["slope_up"]
    usable = (arrays["w_min"] < 0) & (arrays["w_max"] > 0) & (change != 0)
    excess = arrays["step_up"] - arrays["step_down"]
    return np.divide(excess, change, out=np.zeros_like(excess), where=usable)
