"""Device models with steps that are powers of the remaining range."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import numpy as np

from rpukit._workers import run_rows
from rpukit.analog.cells.base import Draws, FloatArray
from rpukit.analog.cells.pulsed import (
    XI,
    PulsedCell,
    WriteNoiseCell,
    two_sided,
    with_common_parameters,
)
from rpukit.analog.cells.soft_bounds_reference import add_reference
from rpukit.elementwise import power
from rpukit.random import Stream

__all__ = ["PowStep", "PowStepReference"]

_GAMMA, _GAMMA_UP_DOWN = 16, 17  # draws


def _half_to_the(gamma: float) -> float:
    """Compute 0.5^gamma, with the same bits on every machine."""
    return float(power(np.array([0.5]), np.array([float(gamma)]))[0])


def _gamma_numbers(cell: PowStep | PowStepReference) -> tuple[float, ...]:
    up_down = cell.pow_up_down
    sides = min(up_down, 0.0), -max(up_down, 0.0)
    return cell.pow_gamma, cell.pow_gamma_dtod, *sides, cell.pow_up_down_dtod


def _check_gammas(cell: PowStep | PowStepReference) -> None:
    side = 1 + XI * cell.pow_gamma_dtod + abs(cell.pow_up_down) + XI * cell.pow_up_down_dtod
    cell._need_small("pow_gamma", cell.pow_gamma * side)


def _sample_gammas(
    cell: PowStep | PowStepReference, draws: Draws, arrays: dict[str, FloatArray]
) -> None:
    h = draws.shifted(1.0, cell.pow_gamma_dtod, _GAMMA)
    r = draws.shifted(0.0, cell.pow_up_down_dtod, _GAMMA_UP_DOWN)
    sides = two_sided(cell.pow_up_down, h, r)
    for name, side in zip(("gamma_up", "gamma_down"), sides, strict=True):
        arrays[name] = np.abs(side * np.float32(cell.pow_gamma))


@with_common_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class PowStep(WriteNoiseCell):
    """A device whose steps are powers of the remaining part of its range.

    Up: ``step_up ((w_max - w) / (w_max - w_min))^gamma_up``, down:
    ``step_down ((w - w_min) / (w_max - w_min))^gamma_down``, with the bounds of the cell.

    Parameters
    ----------
    pow_gamma : float, at least 0
        Mean exponent.
    pow_gamma_dtod : float, at least 0, relative
    pow_up_down : float
        Asymmetry of the exponents; a positive value makes that of down steps smaller.
    pow_up_down_dtod : float, at least 0

    Raises
    ------
    ParameterError

    Notes
    -----
    A weight beyond its bound has no remaining range: the step is 0, and the weight is clipped.

    Source: Rasch et al., AICAS 2021.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.PowStep(pow_gamma=2, dw_min=0.004).granularity
    0.001
    """

    PLANES: ClassVar[tuple[str, ...]] = (*PulsedCell.PLANES, "gamma_down", "gamma_up")
    STEP: ClassVar[str] = "pow_step"
    SAMPLER: ClassVar[str] = "pow_planes"

    pow_gamma: float = 1.0
    pow_gamma_dtod: float = 0.1
    pow_up_down: float = 0.0
    pow_up_down_dtod: float = 0.0

    def _check(self) -> None:
        WriteNoiseCell._check(self)
        for name in ("pow_gamma", "pow_gamma_dtod", "pow_up_down_dtod"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")
        _check_gammas(self)

    @property
    def granularity(self) -> float:
        """Mean size of a step at weight 0, in weight units; it scales pulse trains."""
        return self.dw_min * _half_to_the(self.pow_gamma)

    def sample(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        arrays = PulsedCell.sample(self, stream, shape)
        _sample_gammas(self, Draws(stream, shape), arrays)
        return arrays

    def own_numbers(self) -> tuple[float, ...]:
        return _gamma_numbers(self)


@with_common_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class PowStepReference(PulsedCell):
    """A `PowStep` device whose weight is relative to a reference: ``w = V - reference``.

    The steps of `PowStep` act on V, which stays within the bounds of the cell. A weight that is
    set is clipped to these bounds before the reference is added.

    Parameters
    ----------
    pow_gamma : float, at least 0
        Mean exponent.
    pow_gamma_dtod : float, at least 0, relative
    pow_up_down : float
        Asymmetry of the exponents; a positive value makes that of down steps smaller.
    pow_up_down_dtod : float, at least 0
    reference_mean, reference_std : float, weight units
        Mean and spread of the reference.
    subtract_symmetry_point : bool
        Add the point where up and down steps are equal to the reference and to the resting point.
    n_estimation_steps : int
        Pairs of steps, starting at weight 0, that find the symmetry point; 0 or less: ten times
        the range in units of the smaller step, at most 10,000.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Rasch et al., AICAS 2021.

    Examples
    --------
    >>> import rpukit as rk
    >>> cell = rk.PowStepReference(up_down=0.2, subtract_symmetry_point=True)
    >>> bool((rk.AnalogTile((2, 3), cell, seed=1).cells["reference"] > 0).any())
    True
    """

    PLANES: ClassVar[tuple[str, ...]] = (*PowStep.PLANES, "reference")
    STEP: ClassVar[str] = "pow_reference_step"
    SAMPLER: ClassVar[str] = "pow_reference_planes"

    pow_gamma: float = 1.0
    pow_gamma_dtod: float = 0.1
    pow_up_down: float = 0.0
    pow_up_down_dtod: float = 0.0
    reference_mean: float = 0.0
    reference_std: float = 0.0
    subtract_symmetry_point: bool = False
    n_estimation_steps: int = -1

    def _check(self) -> None:
        PulsedCell._check(self)
        for name in ("pow_gamma", "pow_gamma_dtod", "pow_up_down_dtod", "reference_std"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")
        _check_gammas(self)
        n = self.n_estimation_steps
        self._need(
            isinstance(n, int) and not isinstance(n, bool), "n_estimation_steps", "an integer"
        )

    @property
    def granularity(self) -> float:
        """Mean size of a step at weight 0, in weight units; it scales pulse trains."""
        return self.dw_min * _half_to_the(self.pow_gamma)

    def sample(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        arrays, draws = PulsedCell.sample(self, stream, shape), Draws(stream, shape)
        _sample_gammas(self, draws, arrays)
        point = self._symmetry_point(arrays) if self.subtract_symmetry_point else None
        add_reference(self, draws, arrays, point)
        return arrays

    def own_numbers(self) -> tuple[float, ...]:
        reference = self.reference_mean, self.reference_std, self.subtract_symmetry_point
        return *_gamma_numbers(self), *reference, self.n_estimation_steps

    def _symmetry_point(self, arrays: dict[str, FloatArray]) -> FloatArray:
        planes = np.stack([arrays[name].astype(np.float32) for name in PowStep.PLANES])
        out = np.zeros_like(planes[0])
        mirror = import_module("rpukit.analog._mirror.symmetry").symmetry_points
        run_rows(mirror, out.shape[0], self.n_estimation_steps, planes, out, grain=1)
        return out
