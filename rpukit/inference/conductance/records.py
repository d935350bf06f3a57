"""Argument records of the kernels that program and read conductances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True, slots=True)
class Split:
    """Constants of a converter on a compute device, as the kernels need them.

    Parameters
    ----------
    fit : array, shape (2,), float32
        Scale (microsiemens, or nodes, a weight unit) and shift (weight units).
    planes : array, shape (n_plane, 8), float32
    shares : array, shape (n_plane,), float32
    tables, inverse : array, float32, or None
    """

    fit: Array
    planes: Array
    shares: Array
    tables: Array | None = None
    inverse: Array | None = None


@dataclass(frozen=True, slots=True)
class Stuck:
    """Shares of devices stuck at their lowest, at their highest, or at any conductance.

    Parameters
    ----------
    at_low, at_high, anywhere : float, 0 to 1
        Their sum is at most 1.
    event : int
        Event of the draws; equal events give the same devices.
    """

    at_low: float = 0.0
    at_high: float = 0.0
    anywhere: float = 0.0
    event: int = 0

    @property
    def bounds(self) -> tuple[np.float32, np.float32, np.float32]:
        """Cumulative sums of the shares."""
        low, high = self.at_low, self.at_low + self.at_high
        return np.float32(low), np.float32(high), np.float32(high + self.anywhere)


@dataclass(frozen=True, slots=True, eq=False)
class WriteNoise:
    """Programming noise of a noise model, as the kernel needs it.

    Parameters
    ----------
    curves : array, float32, or None
        Packed deviation of the written conductance, mean and deviation of the drift coefficient;
        None writes the targets and draws nothing.
    unit : float
        Factor of a conductance before the curves are evaluated.
    law : {"none", "power", "additive"}
        Of the drift.
    limits : tuple of float, microsiemens
    nu_scale : float
        Factor of all drift coefficients.
    kinds : tuple of int
        Kinds of the three curves.
    degree : int, 0 to 5
        The highest of their polynomials.
    """

    curves: Array | None = None
    unit: float = 1.0
    law: str = "none"
    limits: tuple[float, float] = (0.0, float("inf"))
    nu_scale: float = 1.0
    kinds: tuple[int, int, int] = (0, 0, 0)
    degree: int = 5


@dataclass(frozen=True, slots=True)
class Moment:
    """Constants of drift and read noise of a noise model at one time.

    Parameters
    ----------
    law : {"none", "power", "additive"}
    read : {"none", "relative", "absolute"}
    log_ratio : float
        Conductances shrink by ``exp(-nu log_ratio)``.
    mean, std : float, microsiemens
        Of what is added, with the additive law.
    gain : float
        Factor of the read noise.
    limits : tuple of float, microsiemens
    """

    law: str = "none"
    read: str = "none"
    log_ratio: float = 0.0
    mean: float = 0.0
    std: float = 0.0
    gain: float = 0.0
    limits: tuple[float, float] = (0.0, float("inf"))


@dataclass(frozen=True, slots=True, eq=False)
class ReadNoise:
    """Read noise of a noise model at one time, as the kernel needs it.

    Parameters
    ----------
    curve : array, float32, or None
        Packed deviation over the conductance.
    unit : float
        Factor of a conductance before the curve is evaluated.
    kind, degree, near : int, int, bool
        Of the curve.
    """

    curve: Array | None = None
    unit: float = 1.0
    kind: int = 0
    degree: int = 5
    near: bool = False
