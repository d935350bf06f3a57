"""Base of noise models: programming errors, drift and read noise of conductances.

A model is a frozen dataclass, defined by curves and by constants of each time. Two kernels serve
all models. Conductances are in microsiemens, times in seconds after programming.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np

from rpukit import _device
from rpukit._checks import TINY, Checked, Kind, Real, float32_array, instance, integer, number
from rpukit._kernels.entering import enters_arrays
from rpukit.errors import DTypeError, NonFiniteError, ParameterError
from rpukit.inference.conductance.curves import Curve, Polynomial, pack
from rpukit.inference.conductance.ops import drift_conductance, program_conductance
from rpukit.inference.conductance.records import Moment, ReadNoise, Split, WriteNoise
from rpukit.random import MAX_SAMPLE, Stream

__all__ = ["NoiseModel", "Programmed", "Verbatim"]

Array = Any
_LATEST = float(np.finfo(np.float32).max)
PLAIN = Polynomial((0.0,))


@dataclass(frozen=True, slots=True)
class Programmed:
    """Conductances right after programming.

    Parameters
    ----------
    conductance : array, float32, microsiemens
    nu : array, float32, or None
        Drift coefficient of each device, if the model has drift coefficients.
    event : int
        Number of the programming.
    """

    conductance: Array
    nu: Array | None
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseModel(Checked):
    """Base of all noise models: one interface of `program`, `drift` and `read`.

    Parameters
    ----------
    g_max : float, positive, microsiemens
        Conductance of the largest weight; curves are functions of ``g / g_max``.

    Raises
    ------
    ParameterError
    """

    LAW: ClassVar[str] = "none"  # of the drift: none, power, additive
    READ: ClassVar[str] = "none"  # none, relative, absolute
    TIMES: ClassVar[tuple[float, ...]] = ()  # the only times of the model; empty: any
    RESAMPLES: ClassVar[bool] = False  # the programming spread is drawn anew at every time

    KINDS: ClassVar[dict[str, Kind]] = {"g_max": Real(TINY)}

    g_max: float = 25.0

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
        """Smallest and largest possible conductance."""
        return 0.0, math.inf

    def reading(self, t: float) -> Curve:
        """Return the curve of the read noise at a time.

        Parameters
        ----------
        t : float, seconds

        Returns
        -------
        Curve
        """
        return PLAIN

    def moment(self, t: float) -> Moment:
        """Return the constants of drift and read noise at a time.

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
        """Check a time and round it to float32, whose bits identify its draws.

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
        try:
            t = number(t, "t", low=0, need="a time in seconds after programming, from 0")
        except DTypeError as error:
            raise ParameterError(str(error)) from None
        time = float(np.float32(t))
        if self.TIMES and time not in self.TIMES:
            raise ParameterError(
                f"t: got {t!r}; {type(self).__name__} was measured at {self.TIMES} seconds only"
            )
        return time

    # ---- devices by themselves -----------------------------------------------------------------

    @enters_arrays
    def program(self, target: Array, *, seed: int | Stream = 0, event: int = 0) -> Programmed:
        """Write conductances.

        Parameters
        ----------
        target : array, any shape, float32, microsiemens, 0 to `g_max`
        seed : int or Stream
        event : int
            Number of the programming; each number has draws of its own.

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
        array = float32_array(target, "target")
        place = _device.device_of(array)
        event = integer(event, "event", low=0, high=MAX_SAMPLE - 1, what="number of a programming")
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
        """Compute conductances at a time, with drift but without read noise.

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
            Number of the reading, if there are several at one time.

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
        instance(programmed, Programmed, "programmed")
        g, curve = programmed.conductance, self.reading(self.check_time(t))
        place = _device.device_of(g)
        out = _device.empty(tuple(g.shape), np.float32, place)
        return drift_conductance(
            g.reshape(1, -1),
            None if programmed.nu is None else programmed.nu.reshape(1, -1),
            moment,
            identity(place),
            read_noise(self, curve, _device.to_device(pack([curve]), place)),
            stream=stream.child(programmed.event),
            sample=sample_of(self.check_time(t), number),
            status=_device.zeros((1,), np.int32, place),
            out=out,
            as_conductance=True,
        )


def sample_of(t: float, number: int) -> int:
    """Coordinate of a reading's draws, from the bits of its time and its number at that time."""
    number = integer(number, "number", low=0, high=(1 << 16) - 1, what="number of a reading")
    return int(np.float32(t).view(np.uint32)) | number << 32


@cache
def identity(device: _device.Device) -> Split:
    """Split without conversion: one device per cell, scale 1."""
    planes = np.array([[1, 0, 1, 0, np.inf, 0, 0, 0]], np.float32)
    put = _device.to_device
    return Split(
        put(np.array([1, 0], np.float32), device),
        put(planes, device),
        put(np.ones(1, np.float32), device),
    )


def packed(model: NoiseModel) -> np.ndarray:
    """Pack the curves of a model that programming needs."""
    return pack([model.programming, model.drift_mean, model.drift_std])


@cache
def _forms(model: NoiseModel) -> dict[str, Any]:
    """Return the kinds and the degree for which a kernel is compiled."""
    curves = model.programming, model.drift_mean, model.drift_std
    return {
        "kinds": tuple(curve.kind for curve in curves),
        "degree": max(curve.degree for curve in curves),
    }


def write_noise(model: NoiseModel, curves: Array) -> WriteNoise:
    """Describe the programming of a model; ``curves``: `packed`, on the device."""
    return WriteNoise(
        curves, 1 / model.g_max, model.LAW, model.limits, model.nu_scale, **_forms(model)
    )


def read_noise(model: NoiseModel, curve: Curve, packed: Array) -> ReadNoise:
    """Describe the reading of a model by its curve of a time, and that packed on the device."""
    return ReadNoise(packed, 1 / model.g_max, curve.kind, curve.degree, curve.near)


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
    if curves is None:
        curves = _device.to_device(packed(model), place)
    return program_conductance(
        weight,
        split,
        write_noise(model, curves),
        stream=stream,
        event=event,
        status=_device.zeros((1,), np.int32, place) if status is None else status,
        **options,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbatim(NoiseModel):
    """Noise model without noise: conductances keep their target values.

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
