"""Noise models with power-law drift: phase-change memory and similar devices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from rpukit._checks import number
from rpukit.inference.conductance.curves import ClippedLog, Curve, Polynomial, PowerLaw, Table
from rpukit.inference.conductance.records import Moment
from rpukit.inference.noise.model import NoiseModel

__all__ = ["CustomDrift", "PCMLike", "PowerDrift", "StateIndependent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDrift(NoiseModel):
    """Base of noise models whose conductances decay as a power of time.

    ``g(t) = g_p ((t + t_0) / t_0)^-nu``; read noise
    ``g(t) q sqrt(log((t + t_0 + t_read) / (2 t_read))) xi``.
    """

    LAW: ClassVar[str] = "power"
    READ: ClassVar[str] = "relative"

    t_0: float = 20.0
    t_read: float = 250e-9
    prog_noise_scale: float = 1.0
    read_noise_scale: float = 1.0
    drift_scale: float = 1.0

    def _check(self) -> None:
        for name in ("t_0", "t_read"):
            self._need(getattr(self, name) > 0, name, "a positive number")
        for name in ("prog_noise_scale", "read_noise_scale", "drift_scale"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")

    @property
    def nu_scale(self) -> float:
        """Factor of all drift coefficients."""
        return self.drift_scale

    def moment(self, t: float) -> Moment:
        t = number(t, "t", low=0)
        spread = math.log((t + self.t_0 + self.t_read) / (2 * self.t_read))
        gain = self.read_noise_scale * math.sqrt(max(spread, 0.0))
        return Moment(
            law="power",
            read=self.READ if gain > 0 else "none",
            log_ratio=math.log((t + self.t_0) / self.t_0),
            gain=gain,
            limits=self.limits,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PCMLike(PowerDrift):
    """Noise model of phase-change memory, from measurements on a million devices.

    Parameters
    ----------
    g_max : float, positive, microsiemens
        Conductance of the largest weight.
    t_0 : float, positive, seconds
        Reference time of the drift.
    t_read : float, positive, seconds
        Duration of a reading.
    prog_noise_scale, read_noise_scale, drift_scale : float, at least 0
    prog_coeff : tuple of float, microsiemens
        Deviation of programming as a polynomial of ``g / g_max``, the constant first.
    prog_coeff_g_max : float, positive, microsiemens, optional
        Conductance that `prog_coeff` was measured for: the deviation scales by ``g_max`` over it.
        Default: 25 for the default coefficients, `g_max` for others.

    Raises
    ------
    ParameterError

    Notes
    -----
    Deviation of programming ``0.26348 + 1.9650 x - 1.1731 x^2``; drift coefficient
    ``|mean + std xi|`` with clipped logarithms of the target; noise of reading
    ``min(0.0088 / x^0.65, 0.2)`` of the programmed conductance. Source: Nandakumar et al., ICECS
    2020; Joshi et al., Nat. Commun. 11:2473 (2020).

    Examples
    --------
    >>> from rpukit.inference import PCMLike
    >>> round(float(PCMLike().programming(1.0)), 4)
    1.0554
    """

    DEFAULT: ClassVar[tuple[float, ...]] = (0.26348, 1.9650, -1.1731)

    prog_coeff: tuple[float, ...] = DEFAULT
    prog_coeff_g_max: float | None = None

    def _check(self) -> None:
        PowerDrift._check(self)
        reference = self.prog_coeff_g_max
        self._need(reference is None or reference > 0, "prog_coeff_g_max", "a positive number")
        Polynomial(self.prog_coeff)

    @property
    def programming(self) -> Curve:
        reference = self.prog_coeff_g_max
        if reference is None:
            reference = 25.0 if self.prog_coeff == self.DEFAULT else self.g_max
        return Polynomial(self.prog_coeff).scaled(self.prog_noise_scale * self.g_max / reference)

    @property
    def drift_mean(self) -> Curve:
        return ClippedLog(-0.0155, 0.0244, 0.049, 0.1)

    @property
    def drift_std(self) -> Curve:
        return ClippedLog(-0.0125, -0.0059, 0.008, 0.045)

    def reading(self, t: float) -> Curve:
        return PowerLaw(0.0088, -0.65, 0.0, 0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomDrift(PCMLike):
    """Noise model of phase-change memory with drift coefficients from a table.

    Parameters
    ----------
    g_max : float, positive, microsiemens
    t_0, t_read : float, positive, seconds
    prog_noise_scale, read_noise_scale, drift_scale : float, at least 0
    prog_coeff : tuple of float, microsiemens
    prog_coeff_g_max : float, positive, microsiemens, optional
    g_nodes : tuple of float, ascending, microsiemens
    nu_mean, nu_std : tuple of float
        Mean and deviation of the drift coefficient at the nodes; between them straight lines.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit.inference import CustomDrift
    >>> model = CustomDrift(g_nodes=(0.0, 25.0), nu_mean=(0.1, 0.03), nu_std=(0.02, 0.01))
    >>> round(float(model.drift_mean(0.5)), 4)
    0.065
    """

    g_nodes: tuple[float, ...] = (0.0, 25.0)
    nu_mean: tuple[float, ...] = (0.06, 0.06)
    nu_std: tuple[float, ...] = (0.0, 0.0)

    def _check(self) -> None:
        PCMLike._check(self)
        self._need(min(self.nu_std, default=0) >= 0, "nu_std", "numbers from 0")
        nodes = self.g_nodes
        ascend = len(nodes) > 1 and all(a < b for a, b in pairwise(nodes))
        self._need(ascend, "g_nodes", "two or more conductances that ascend")
        for name in ("nu_mean", "nu_std"):
            fits = len(getattr(self, name)) == len(nodes)
            self._need(fits, name, f"a number for each of the {len(nodes)} g_nodes")
        _ = self.drift_mean, self.drift_std

    def _table(self, values: tuple[float, ...]) -> Table:
        return Table(tuple(g / self.g_max for g in self.g_nodes), values)

    @property
    def drift_mean(self) -> Curve:
        return self._table(self.nu_mean)

    @property
    def drift_std(self) -> Curve:
        return self._table(self.nu_std)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateIndependent(PowerDrift):
    """Noise model with power-law drift whose spreads do not depend on the conductance.

    Parameters
    ----------
    g_max : float, positive, microsiemens
    t_0, t_read : float, positive, seconds
    prog_noise_scale, read_noise_scale, drift_scale : float, at least 0
    prog_std : float, at least 0, microsiemens
        Deviation of programming.
    nu_mean, nu_std : float
        Of the drift coefficient, ``|nu_mean + nu_std xi|``.

    Raises
    ------
    ParameterError

    Notes
    -----
    Noise of reading: ``g / g_max sqrt(log(...))`` microsiemens.

    Examples
    --------
    >>> from rpukit.inference import StateIndependent
    >>> float(StateIndependent().programming(0.7))
    0.2
    """

    prog_std: float = 0.2
    nu_mean: float = 0.1
    nu_std: float = 0.05

    def _check(self) -> None:
        PowerDrift._check(self)
        for name in ("prog_std", "nu_std"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")

    @property
    def programming(self) -> Curve:
        return Polynomial((self.prog_std * self.prog_noise_scale,))

    @property
    def drift_mean(self) -> Curve:
        return Polynomial((self.nu_mean,))

    @property
    def drift_std(self) -> Curve:
        return Polynomial((self.nu_std,))

    def reading(self, t: float) -> Curve:
        return Polynomial((1 / self.g_max,))
