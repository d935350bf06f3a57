"""Noise models of particular devices: Hermes (phase change), ReRAM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from rpukit._checks import Whole, is_number, number
from rpukit.inference.conductance.curves import ClippedLog, Curve, Polynomial
from rpukit.inference.conductance.records import Moment
from rpukit.inference.noise.model import NoiseModel
from rpukit.inference.noise.phase_change import PowerDrift

__all__ = ["Hermes", "ReRamCMO", "ReRamWan"]

_DAY = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hermes(PowerDrift):
    """Phase-change cells of the Hermes chip, with one or two devices for each conductance.

    Parameters
    ----------
    g_max : float, positive, microsiemens, optional
        Default: 20.7 for two devices, 10.35 for one. The deviation of programming scales by
        ``g_max`` over the default.
    t_0 : float, positive, seconds, optional
        Default: 300 for two devices, 200 for one.
    t_read : float, positive, seconds
    prog_noise_scale, read_noise_scale, drift_scale : float, at least 0
    n_device : {1, 2}

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Le Gallo et al., Nat. Electron. 6:680 (2023).

    Examples
    --------
    >>> from rpukit.inference import Hermes
    >>> Hermes().g_max, Hermes(n_device=1).g_max
    (20.7, 10.35)
    """

    PROGRAMMING: ClassVar[dict[int, tuple[float, ...]]] = {
        1: (0.15781817, 2.32443916, -2.16310839, 0.68841818),
        2: (0.16603222, 4.71806468, -8.48101252, 4.68961419),
    }
    DRIFT_STD: ClassVar[dict[int, ClippedLog]] = {
        1: ClippedLog(-0.0120, -0.0023, 0.0124, 0.04, 0.3039, (0.0104, 0.0116, -0.0165)),
        2: ClippedLog(-0.0117, -0.0057, 0.0091, 0.04, 0.3055, (0.0073, 0.0093, -0.0118)),
    }
    READING: ClassVar[dict[int, ClippedLog]] = {
        1: ClippedLog(-0.0078, 0.0038, 0.0179, 0.04, 0.1591, (0.0088, 0.0768, -0.1352, 0.0664)),
        2: ClippedLog(-0.0117, -0.0069, 0.015, 0.04, 0.16, (0.0123, 0.0211, -0.0280, 0.0069)),
    }
    G_MAX: ClassVar[dict[int, float]] = {1: 10.35, 2: 20.7}
    T_0: ClassVar[dict[int, float]] = {1: 200.0, 2: 300.0}

    g_max: float = 0.0
    t_0: float = 0.0
    t_read: float = 512e-9
    n_device: int = 2

    def __post_init__(self) -> None:
        n_device = Whole(1, 2).take(self.n_device, "Hermes.n_device")
        object.__setattr__(self, "n_device", n_device)
        if is_number(self.g_max) and self.g_max == 0:
            object.__setattr__(self, "g_max", self.G_MAX[self.n_device])
        if is_number(self.t_0) and self.t_0 == 0:
            object.__setattr__(self, "t_0", self.T_0[self.n_device])
        NoiseModel.__post_init__(self)

    @property
    def programming(self) -> Curve:
        scale = self.prog_noise_scale * self.g_max / self.G_MAX[self.n_device]
        return Polynomial(self.PROGRAMMING[self.n_device]).scaled(scale)

    @property
    def drift_mean(self) -> Curve:
        return ClippedLog(-0.0387, -0.0182, 0.072, 0.13, 0.0945, (0.0736, -0.0126, -0.0436))

    @property
    def drift_std(self) -> Curve:
        return self.DRIFT_STD[self.n_device]

    def reading(self, t: float) -> Curve:
        return self.READING[self.n_device]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReRamWan(NoiseModel):
    """ReRAM with relaxation: the spread around the target after a second, a day and two days.

    Parameters
    ----------
    g_max : float, positive, microsiemens
        The spread scales by ``g_max`` over 40, for which it was measured.
    noise_scale : float, at least 0

    Raises
    ------
    ParameterError

    Notes
    -----
    Each time has new draws around the target. No other times are defined; time 0 is the first of
    the three. Source: Wan et al., Nature 608:504 (2022).

    Examples
    --------
    >>> from rpukit.inference import ReRamWan
    >>> ReRamWan().TIMES
    (0.0, 1.0, 86400.0, 172800.0)
    """

    READ: ClassVar[str] = "absolute"
    RESAMPLES: ClassVar[bool] = True
    TIMES: ClassVar[tuple[float, ...]] = (0.0, 1.0, _DAY, 2 * _DAY)
    SPREAD: ClassVar[dict[float, tuple[float, ...]]] = {
        1.0: (0.348, 16.030, -43.853, 45.393, -16.815),
        _DAY: (0.701, 22.086, -50.773, 47.095, -16.458),
        2 * _DAY: (0.782, 20.274, -43.507, 37.062, -11.934),
    }

    g_max: float = 40.0
    noise_scale: float = 1.0

    def _check(self) -> None:
        self._need(self.noise_scale >= 0, "noise_scale", "a number from 0")

    def reading(self, t: float) -> Curve:
        return Polynomial(self.SPREAD[self.check_time(t) or 1.0]).scaled(self.g_max / 40.0)

    def moment(self, t: float) -> Moment:
        return Moment(read="absolute", gain=self.noise_scale, limits=self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReRamCMO(NoiseModel):
    """ReRAM of conductive metal oxide, with one device per weight.

    Parameters
    ----------
    g_max, g_min : float, microsiemens, ``0 <= g_min < g_max``
        Range of a device; conductances stay in it.
    acceptance : {0.2, 2.0}, percent
        Largest accepted deviation of a written conductance from its target.
    noise_scale, read_noise_scale : float, at least 0

    Raises
    ------
    ParameterError

    Notes
    -----
    From 1 s on the conductance moves by ``-0.089 log t`` microsiemens with a spread of
    ``0.042 log t + 0.412`` that is drawn once for each device and programming, so that the path of
    a device is one path; below 1 s, t counts as 1 s, and at 0 nothing has moved. Noise of reading:
    ``0.0277 log10(g) sqrt(log((t + 1 us) / 2 us))`` microsiemens, from 1 us on. Source: Falcone et
    al., Adv. Funct. Mater. (2025).

    Examples
    --------
    >>> from rpukit.inference import ReRamCMO
    >>> round(float(ReRamCMO(acceptance=2.0).programming(1.0)), 3)
    1.007
    """

    LAW: ClassVar[str] = "additive"
    READ: ClassVar[str] = "absolute"
    PROGRAMMING: ClassVar[dict[float, tuple[float, float]]] = {
        0.2: (0.00081107, 0.00106879),
        2.0: (0.0112185391, 0.01129027418),
    }

    g_max: float = 88.2
    g_min: float = 9.0
    acceptance: float = 0.2
    noise_scale: float = 1.0
    read_noise_scale: float = 1.0

    def _check(self) -> None:
        self._need(0 <= self.g_min < self.g_max, "g_min", f"0 to below g_max = {self.g_max}")
        self._need(self.acceptance in self.PROGRAMMING, "acceptance", "0.2 or 2.0 (percent)")
        for name in ("noise_scale", "read_noise_scale"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")

    @property
    def limits(self) -> tuple[float, float]:
        return self.g_min, self.g_max

    @property
    def programming(self) -> Curve:
        constant, slope = self.PROGRAMMING[self.acceptance]
        return Polynomial((constant, slope * self.g_max)).scaled(self.noise_scale)

    @property
    def drift_std(self) -> Curve:
        return Polynomial((1.0,))  # a standard normal, which the numbers of a moment scale

    def reading(self, t: float) -> Curve:
        slope = 0.0277316483 / math.log(10)  # of the natural logarithm of g / g_max
        return ClippedLog(slope, slope * math.log(self.g_max), 0.0, math.inf)

    def moment(self, t: float) -> Moment:
        t = number(t, "t", low=0)
        if t == 0:
            return Moment(limits=self.limits)
        log = math.log(max(t, 1.0))
        spread = math.log((t + 1e-6) / 2e-6)
        gain = self.read_noise_scale * math.sqrt(max(spread, 0.0))
        return Moment(
            law="additive",
            read="absolute" if gain > 0 else "none",
            mean=-0.08900206 * log,
            std=(0.04201137 * log + 0.41183342) * self.noise_scale,
            gain=gain,
            limits=self.limits,
        )
