"""Noise models: what programming, time and reading do to a conductance.

A model is a frozen value. It describes itself by curves and by the numbers of a moment; two
kernels work on all models. Conductances are in microsiemens, times in seconds after programming.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np

from rpukit import _device
from rpukit.errors import NonFiniteError, ParameterError
from rpukit.inference.curves import ClippedLog, Curve, Polynomial, PowerLaw, Table, checked, pack
from rpukit.inference.ops import Moment, Split, drift_conductance, program_conductance
from rpukit.random import Stream

__all__ = [
    "CustomDrift",
    "NoiseModel",
    "PCMLike",
    "Programmed",
    "StateIndependent",
    "Verbatim",
]

Array = Any
_LATEST = float(np.finfo(np.float32).max)
PLAIN = Polynomial((0.0,))


@dataclass(frozen=True, slots=True)
class Programmed:
    """Conductances as they were written.

    Parameters
    ----------
    conductance : array, float32, microsiemens
    nu : array, float32, or None
        Drift coefficient of each device, where the model has one.
    event : int
        Number of the programming.
    """

    conductance: Array
    nu: Array | None
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseModel:
    """Base of all noise models: one interface of `program`, `drift` and `read`.

    Parameters
    ----------
    g_max : float, positive, microsiemens
        Conductance that the largest weight is written as; curves are over ``g / g_max``.

    Raises
    ------
    ParameterError
    """

    LAW: ClassVar[str] = "none"  # of the drawn drift coefficient: none, power, ..., additive
    READ: ClassVar[str] = "none"  # none, relative, absolute
    TIMES: ClassVar[tuple[float, ...]] = ()  # the only times there are, where that is so
    RESAMPLES: ClassVar[bool] = False  # the spread of programming is drawn at every time

    g_max: float = 25.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (tuple, list)):
                value = checked(f"{type(self).__name__}.{field.name}", value)
                object.__setattr__(self, field.name, value)
            elif field.type in ("float", float):
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    self._need(False, field.name, "a number")
                self._need(math.isfinite(value), field.name, "a finite number")
        self._need(self.g_max > 0, "g_max", "a positive number")
        self._check()

    def _check(self) -> None:
        """Check what a subclass adds."""

    def _need(self, condition: bool, name: str, need: str) -> None:
        if not condition:
            raise ParameterError(
                f"{type(self).__name__}.{name}: got {getattr(self, name)!r}, need {need}"
            )

    # ---- what a model says of itself -----------------------------------------------------------

    @property
    def programming(self) -> Curve:
        """Deviation of a written conductance, in microsiemens, over ``g / g_max``."""
        return PLAIN

    @property
    def drift_mean(self) -> Curve:
        """Mean drift coefficient over the target."""
        return PLAIN

    @property
    def drift_std(self) -> Curve:
        """Deviation of the drift coefficient over the target."""
        return PLAIN

    @property
    def nu_scale(self) -> float:
        """Factor of all drift coefficients."""
        return 1.0

    @property
    def limits(self) -> tuple[float, float]:
        """Least and largest conductance there is."""
        return 0.0, math.inf

    def reading(self, t: float) -> Curve:
        """Give the curve of the noise of reading.

        Parameters
        ----------
        t : float, seconds

        Returns
        -------
        Curve
        """
        return PLAIN

    def moment(self, t: float) -> Moment:
        """Give the numbers of a time.

        Parameters
        ----------
        t : float, seconds

        Returns
        -------
        Moment
        """
        return Moment(limits=self.limits)

    def with_g_max(self, g_max: float) -> Self:
        """Copy the model for another largest conductance.

        Parameters
        ----------
        g_max : float, positive, microsiemens

        Returns
        -------
        NoiseModel
        """
        return replace(self, g_max=g_max)

    def check_time(self, t: float) -> float:
        """Check a time, and round it to float32, which names its draws.

        Parameters
        ----------
        t : float, at least 0, seconds

        Returns
        -------
        float

        Raises
        ------
        ParameterError
        """
        if isinstance(t, bool) or not isinstance(t, (int, float, np.integer, np.floating)):
            raise ParameterError(f"t: got {t!r}, need a time in seconds")
        if not 0 <= t <= _LATEST:
            raise ParameterError(f"t: got {t!r}, need a time in seconds after programming, from 0")
        time = float(np.float32(t))
        if self.TIMES and time not in self.TIMES:
            raise ParameterError(
                f"t: got {t!r}; {type(self).__name__} was measured at {self.TIMES} seconds only"
            )
        return time

    # ---- devices by themselves -----------------------------------------------------------------

    def program(self, target: Array, *, seed: int | Stream = 0, event: int = 0) -> Programmed:
        """Write conductances.

        Parameters
        ----------
        target : array, any shape, float32, microsiemens, 0 to `g_max`
        seed : int or Stream
        event : int
            Number of the programming; another one draws anew.

        Returns
        -------
        Programmed

        Raises
        ------
        ParameterError, NonFiniteError, DTypeError

        Examples
        --------
        >>> import numpy as np
        >>> from rpukit.inference import PCMLike
        >>> model = PCMLike()
        >>> written = model.program(np.full(10_000, 25.0, np.float32), seed=1)
        >>> bool(abs(written.conductance.std() - 1.058) < 0.03)
        True
        """
        place = _device.device_of(target)
        array = _device.as_array(target, place, np.float32, "target")
        host = _device.to_numpy(array)
        if not np.isfinite(host).all():
            raise NonFiniteError("target holds NaN or infinity")
        if host.size and not (host.min() >= 0 and host.max() <= np.float32(self.g_max)):
            raise ParameterError(
                f"target: got conductances from {host.min():.6g} to {host.max():.6g}, need 0 to "
                f"g_max = {self.g_max:.6g} microsiemens"
            )
        g, nu = write(self, array, identity(place), stream=Stream.from_seed(seed), event=event)
        shape = array.shape
        return Programmed(g.reshape(shape), None if nu is None else nu.reshape(shape), event)

    def drift(self, programmed: Programmed, t: float) -> Array:
        """Give conductances at a time, without the noise of reading.

        Parameters
        ----------
        programmed : Programmed
        t : float, at least 0, seconds

        Returns
        -------
        array, float32, microsiemens

        Raises
        ------
        ParameterError
        """
        moment = replace(self.moment(self.check_time(t)), read="none")
        return self._at(programmed, moment, t, Stream(0, 0), 0)

    def read(
        self, programmed: Programmed, t: float, *, seed: int | Stream = 0, number: int = 0
    ) -> Array:
        """Read conductances at a time, with drift and noise.

        Parameters
        ----------
        programmed : Programmed
        t : float, at least 0, seconds
        seed : int or Stream
        number : int, 0 to 65535
            Of several readings at one time.

        Returns
        -------
        array, float32, microsiemens

        Raises
        ------
        ParameterError
        """
        moment = self.moment(self.check_time(t))
        return self._at(programmed, moment, t, Stream.from_seed(seed), number)

    def _at(
        self, programmed: Programmed, moment: Moment, t: float, stream: Stream, number: int
    ) -> Array:
        g = programmed.conductance
        place = _device.device_of(g)
        out = _device.empty(tuple(g.shape), np.float32, place)
        return drift_conductance(
            g.reshape(1, -1),
            None if programmed.nu is None else programmed.nu.reshape(1, -1),
            moment,
            identity(place),
            _device.to_device(pack([self.reading(self.check_time(t))]), place),
            unit=1 / self.g_max,
            stream=stream.child(programmed.event),
            sample=sample_of(self.check_time(t), number),
            status=_device.zeros((1,), np.int32, place),
            out=out,
            as_conductance=True,
        )


def sample_of(t: float, number: int) -> int:
    """Name the draws of a reading: the bits of its time, and its number at that time."""
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise ParameterError(f"number: got {number!r}, need an integer")
    if not 0 <= number < 1 << 16:
        raise ParameterError(f"number: got {number}, need 0 to 65535")
    return int(np.float32(t).view(np.uint32)) | int(number) << 32


@cache
def identity(device: _device.Device) -> Split:
    """Targets as they are: one device a cell, no scale."""
    planes = np.array([[1, 0, 1, 0, np.inf, 0, 0, 0]], np.float32)
    put = _device.to_device
    return Split(
        put(np.array([1, 0], np.float32), device),
        put(planes, device),
        put(np.ones(1, np.float32), device),
    )


def packed(model: NoiseModel) -> np.ndarray:
    """Pack what programming needs of a model."""
    return pack([model.programming, model.drift_mean, model.drift_std])


def write(
    model: NoiseModel,
    weight: Array,
    split: Split,
    *,
    stream: Stream,
    event: int,
    status: Array = None,
    curves: Array = None,
    **options: Any,
) -> tuple[Array, Array | None]:
    """Program weights with a model."""
    place = _device.device_of(weight)
    return program_conductance(
        weight,
        split,
        _device.to_device(packed(model), place) if curves is None else curves,
        unit=1 / model.g_max,
        law=model.LAW,
        limits=model.limits,
        nu_scale=model.nu_scale,
        stream=stream,
        event=event,
        status=_device.zeros((1,), np.int32, place) if status is None else status,
        **options,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbatim(NoiseModel):
    """No noise: conductances stay as they are asked for.

    Parameters
    ----------
    g_max : float, positive, microsiemens

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit.inference import Verbatim
    >>> float(Verbatim().programming(0.5))
    0.0
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDrift(NoiseModel):
    """Base of models whose conductances shrink by a power of time.

    ``g(t) = g_p ((t + t_0) / t_0)^-nu``; noise of reading
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
    """Phase-change memory, from measurements on a million devices.

    Parameters
    ----------
    g_max : float, positive, microsiemens
        Conductance of the largest weight.
    t_0 : float, positive, seconds
        Time of the reference of drift.
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
    """Phase-change memory with drift coefficients from a table.

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
    """Noise that does not depend on the conductance.

    Parameters
    ----------
    g_max : float, positive, microsiemens
    t_0, t_read : float, positive, seconds
    prog_noise_scale, read_noise_scale, drift_scale : float, at least 0
    prog_std : float, at least 0, microsiemens
        Deviation of programming.
    nu_mean, nu_std : float
        Of the drift coefficient, ``max(nu_mean + nu_std xi, 0)``.

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

    LAW: ClassVar[str] = "positive_power"

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
