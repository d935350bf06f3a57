"""Converters, which split a weight over the conductances of its cell and read it back.

All conductances are in microsiemens. A converter is a frozen dataclass. The scale between weights
and conductances is fitted to a matrix, or fixed by the largest weight that is allowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import TINY, Checked, float32_array, instance, number
from rpukit._kernels.entering import enters_arrays
from rpukit.errors import NonFiniteError, ParameterError, ShapeError
from rpukit.inference.conductance.ops import drift_conductance, program_conductance
from rpukit.inference.conductance.records import Moment, ReadNoise, Split, WriteNoise
from rpukit.random import Stream

__all__ = ["Converter", "CustomPair", "NPairs", "SingleDevice", "SinglePair"]

Array = Any
_STILL = Stream(0, 0)  # nothing is drawn


@dataclass(frozen=True, slots=True)
class Plane:
    """Constants of one device per cell: ``clip((sign v - start) inverse, 0, span) + base``."""

    sign: float = 1.0
    start: float = 0.0
    inverse: float = 1.0
    base: float = 0.0
    span: float = math.inf
    nodes: tuple[float, float, float] = (0.0, 0.0, 0.0)  # number, places of x and y

    def row(self) -> list[float]:
        """List the numbers as the kernel reads them."""
        return [self.sign, self.start, self.inverse, self.base, self.span, *self.nodes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Converter(Checked):
    """Base of `SinglePair`, `NPairs`, `SingleDevice`, `CustomPair`.

    Parameters
    ----------
    g_max, g_min : float, microsiemens, ``0 <= g_min < g_max``
        Range of a device.

    Raises
    ------
    ParameterError
    """

    g_max: float = 25.0
    g_min: float = 0.0

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not 0 <= self.g_min < self.g_max:
            raise ParameterError(
                f"{type(self).__name__}: got g_min {self.g_min!r} and g_max {self.g_max!r}, need "
                "0 <= g_min < g_max"
            )

    @property
    def n_plane(self) -> int:
        """Number of devices of a cell."""
        return len(self.planes(1.0, 0.0))

    @property
    def reach(self) -> float:
        """Scaled value of the largest weight before it is split, in microsiemens or nodes."""
        return self.g_max - self.g_min

    def planes(self, scale: float, lowest: float) -> list[Plane]:
        """Return the constants of every device of a cell.

        Parameters
        ----------
        scale : float, microsiemens (or nodes) a weight unit
        lowest : float, weight units

        Returns
        -------
        list of Plane
        """
        raise NotImplementedError  # pragma: no cover

    def shares(self) -> list[float]:
        """Return the factor of each conductance when weights are read back."""
        raise NotImplementedError  # pragma: no cover

    def tables(self) -> np.ndarray | None:
        """Return the nodes and conductances of a converter that uses tables."""
        return None

    def inverse(self) -> np.ndarray | None:
        """Return the nodes of the inverse of a converter that uses tables."""
        return None

    def range_of(self, weight: np.ndarray, w_max: float | None) -> tuple[float, float]:
        """Find the scale and the lowest weight for a matrix, or for a largest weight.

        Parameters
        ----------
        weight : array, float32
        w_max : float or None

        Returns
        -------
        scale, lowest : float
        """
        largest = float(np.abs(weight).max(initial=0)) if w_max is None else w_max
        scale = self.reach / largest if largest > 0 else self.reach
        return scale, 0.0

    @enters_arrays
    def split(
        self, weight: Array, w_max: float | None = None, device: _device.Device | None = None
    ) -> Split:
        """Fit the converter to a matrix.

        Parameters
        ----------
        weight : array, float32
        w_max : float, positive, weight units, optional
            Largest absolute weight; default: that of the matrix.
        device : Device, optional
            Where the numbers go; default: where the matrix is.

        Returns
        -------
        Split

        Raises
        ------
        ParameterError, NonFiniteError
        """
        weight = float32_array(weight, "weight")
        device = None if device is None else _device.parse_device(device)
        host = _device.to_numpy(weight)
        if not np.isfinite(host).all():
            raise NonFiniteError("weight holds NaN or infinity")
        if w_max is not None:
            w_max = number(w_max, "w_max", low=TINY, need="a positive number")
        if w_max is not None and float(np.abs(host).max(initial=0)) > w_max:
            raise ParameterError(
                f"weight: the largest is {np.abs(host).max():.6g}, above w_max {w_max:.6g}: "
                "clip or scale it first"
            )
        scale, low = self.range_of(host, w_max)
        if scale > float(np.finfo(np.float32).max):
            raise ParameterError("weight: the largest is too small to be scaled in float32")
        scale = float(np.float32(scale))
        planes = self.planes(scale, low)
        shift = low - self.shares()[0] * planes[0].base / scale if len(planes) == 1 else 0.0
        place = device or _device.device_of(weight)

        def put(values: Any) -> Array:
            return None if values is None else _device.to_device(values, place, np.float32)

        rows = np.array([plane.row() for plane in planes], np.float32)
        return Split(
            put(np.array([scale, shift])),
            put(rows),
            put(np.array(self.shares())),
            put(self.tables()),
            put(self.inverse()),
        )

    @enters_arrays
    def to_conductance(self, weight: Array, w_max: float | None = None) -> tuple[Array, Split]:
        """Split weights over the devices of their cells, without noise.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), float32
        w_max : float, optional
            Largest absolute weight; default: that of the matrix.

        Returns
        -------
        conductance : array, shape (n_plane, n_out, n_in), float32, microsiemens
        split : Split
            Scale and constants of the conversion, for `to_weight`.

        Raises
        ------
        ParameterError, NonFiniteError, ShapeError, DTypeError

        Examples
        --------
        >>> import numpy as np
        >>> from rpukit.inference import SinglePair
        >>> g, split = SinglePair().to_conductance(np.array([[0.5, -1.0]], np.float32))
        >>> g[:, 0].tolist()
        [[12.5, 0.0], [0.0, 25.0]]
        """
        place = _device.device_of(weight)
        array = _device.as_array(weight, place, np.float32, "weight")
        if not array.size:
            raise ShapeError(f"weight: got shape {tuple(array.shape)}, which holds no weight")
        split = self.split(array, w_max)
        g, _ = program_conductance(
            array,
            split,
            WriteNoise(),
            stream=_STILL,
            event=0,
            status=_device.zeros((1,), np.int32, place),
        )
        return g.reshape(-1, *array.shape), split

    @enters_arrays
    def to_weight(self, conductance: Array, split: Split) -> Array:
        """Read weights back from conductances.

        Parameters
        ----------
        conductance : array, shape (n_plane, n_out, n_in), float32, microsiemens
        split : Split

        Returns
        -------
        array, shape (n_out, n_in), float32

        Raises
        ------
        ShapeError, DTypeError
        """
        instance(split, Split, "split")
        array = float32_array(conductance, "conductance")
        place = _device.device_of(array)
        if array.ndim < 2 or array.shape[0] != self.n_plane:
            raise ShapeError(
                f"conductance: got shape {tuple(array.shape)}, need ({self.n_plane}, ...)"
            )
        out = _device.empty(tuple(array.shape[1:]), np.float32, place)
        return drift_conductance(
            array.reshape(self.n_plane, -1),
            None,
            Moment(),
            split,
            ReadNoise(),
            stream=_STILL,
            sample=0,
            status=_device.zeros((1,), np.int32, place),
            out=out,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinglePair(Converter):
    """Converter with two devices per weight: one for its positive, one for its negative part.

    ``g = clip(+-W scale, 0, g_max - g_min) + g_min``, ``scale = (g_max - g_min) / max |W|``.

    Parameters
    ----------
    g_max, g_min : float, microsiemens, ``0 <= g_min < g_max``

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit.inference import SinglePair
    >>> SinglePair(g_max=40.0).n_plane
    2
    """

    def planes(self, scale: float, lowest: float) -> list[Plane]:
        span = self.g_max - self.g_min
        return [Plane(sign, base=self.g_min, span=span) for sign in (1.0, -1.0)]

    def shares(self) -> list[float]:
        return [1.0, -1.0]


@dataclass(frozen=True, slots=True, kw_only=True)
class NPairs(Converter):
    """Converter with several pairs per weight, each with its significance, filled lowest first.

    ``W scale = sum_k factor_k (g_k+ - g_k-)``.

    Parameters
    ----------
    g_max, g_min : float, microsiemens, ``0 <= g_min < g_max``
    factors : tuple of float, positive
        Significance of each pair.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit.inference import NPairs
    >>> NPairs(factors=(1.0, 4.0)).n_plane
    4
    """

    factors: tuple[float, ...] = (1.0, 1.0)

    def _check(self) -> None:
        if not self.factors or min(self.factors) <= 0:
            raise ParameterError(f"NPairs.factors: got {self.factors}, need positive numbers")

    @property
    def reach(self) -> float:
        """Scaled value of the largest weight before it is split, in microsiemens."""
        return (self.g_max - self.g_min) * sum(self.factors)

    def planes(self, scale: float, lowest: float) -> list[Plane]:
        span = self.g_max - self.g_min
        starts, filled = {}, 0.0
        for k in sorted(range(len(self.factors)), key=lambda k: self.factors[k]):
            starts[k] = filled
            filled += self.factors[k] * span
        return [
            Plane(sign, starts[k], 1 / factor, self.g_min, span)
            for k, factor in enumerate(self.factors)
            for sign in (1.0, -1.0)
        ]

    def shares(self) -> list[float]:
        return [sign * factor for factor in self.factors for sign in (1.0, -1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleDevice(Converter):
    """Converter with one device per weight: it maps the weights' range to the device's range.

    Parameters
    ----------
    g_max, g_min : float, microsiemens, ``0 <= g_min < g_max``

    Raises
    ------
    ParameterError

    Notes
    -----
    Source of the default range: Falcone et al., Adv. Funct. Mater. (2025), CMO/HfOx ReRAM.

    Examples
    --------
    >>> from rpukit.inference import SingleDevice
    >>> SingleDevice().n_plane
    1
    """

    g_max: float = 88.2
    g_min: float = 9.0

    def range_of(self, weight: np.ndarray, w_max: float | None) -> tuple[float, float]:
        low = float(weight.min()) if w_max is None else -w_max
        high = float(weight.max()) if w_max is None else w_max
        return (self.reach / (high - low) if high > low else self.reach), low

    def planes(self, scale: float, lowest: float) -> list[Plane]:
        return [Plane(start=lowest * scale, base=self.g_min, span=self.g_max - self.g_min)]

    def shares(self) -> list[float]:
        return [1.0]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomPair(Converter):
    """Converter with two devices per weight, whose conductances are tabulated over the weight.

    Parameters
    ----------
    g_max, g_min : float, microsiemens, ``0 <= g_min < g_max``
        Range that contains the tables.
    nodes : tuple of float
        Ascending shares of the largest weight, from -1 to 1.
    plus, minus : tuple of float, microsiemens
        Conductances at the nodes. Their difference has to ascend, or weights could not be read
        back.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit.inference import CustomPair
    >>> pair = CustomPair(nodes=(-1.0, 0.0, 1.0), plus=(5.0, 5.0, 25.0), minus=(25.0, 5.0, 5.0))
    """

    nodes: tuple[float, ...] = (-1.0, 0.0, 1.0)
    plus: tuple[float, ...] = (0.0, 0.0, 25.0)
    minus: tuple[float, ...] = (25.0, 0.0, 0.0)

    def _check(self) -> None:
        for name in ("nodes", "plus", "minus"):
            values = getattr(self, name)
            if len(values) != len(self.nodes) or len(values) < 2:
                raise ParameterError(f"CustomPair.{name}: got {len(values)} values, need the same")
        if not (np.diff(np.asarray(self.nodes, np.float32)) > 0).all():
            raise ParameterError(f"CustomPair.nodes: got {self.nodes}, need ascending numbers")
        if (self.nodes[0], self.nodes[-1]) != (-1.0, 1.0):
            raise ParameterError(f"CustomPair.nodes: got {self.nodes}, need them from -1 to 1")
        everything = (*self.plus, *self.minus)
        if min(everything) < self.g_min or max(everything) > self.g_max:
            raise ParameterError(
                f"CustomPair: conductances from {min(everything)} to {max(everything)} leave "
                f"[{self.g_min}, {self.g_max}]"
            )
        if not (np.diff(self._difference()) > 0).all():
            raise ParameterError(
                "CustomPair: plus - minus has to ascend from node to node, else the weights "
                f"cannot be read back: got {self._difference().tolist()}"
            )

    def _difference(self) -> np.ndarray:
        return np.asarray(self.plus, np.float32) - np.asarray(self.minus, np.float32)

    @property
    def reach(self) -> float:
        """Scaled value of the largest weight before it is split: the last node."""
        return 1.0

    def planes(self, scale: float, lowest: float) -> list[Plane]:
        n = len(self.nodes)
        span = self.g_max - self.g_min
        return [Plane(base=self.g_min, span=span, nodes=(n, 0, n * k)) for k in (1, 2)]

    def shares(self) -> list[float]:
        return [1.0, -1.0]

    def tables(self) -> np.ndarray | None:
        return np.array([*self.nodes, *self.plus, *self.minus], np.float32)

    def inverse(self) -> np.ndarray | None:
        return np.concatenate([self._difference(), np.asarray(self.nodes, np.float32)])
