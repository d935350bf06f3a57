"""Curves of one variable as packed data for the kernels.

A curve can be evaluated in float64, for people. For kernels and mirrors it is packed into the
floats that ``kernels_cu/include/rk_curve.cuh`` describes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rpukit._checks import Checked, Kind, Real
from rpukit.errors import ParameterError

__all__ = ["ClippedLog", "Curve", "Polynomial", "PowerLaw", "Table"]

HEAD = 16  # floats of one curve, RK_CURVE
SMALLEST = 1e-7  # lower bound on arguments of logarithms and powers
_MOST_COEFFICIENTS = 6


@dataclass(frozen=True)
class Curve(Checked):
    """Base of `Polynomial`, `ClippedLog`, `PowerLaw`, `Table`."""

    __slots__ = ()
    KIND: ClassVar[int]

    @property
    def kind(self) -> int:
        """Number of the formula in ``rk_curve.cuh``."""
        return self.KIND

    @property
    def degree(self) -> int:
        """Highest power that a kernel has to evaluate."""
        return 0

    @property
    def near(self) -> bool:
        """Whether the exponential of a power needs no limits on its argument."""
        return False

    def __call__(self, x: Any) -> Any:
        """Evaluate in float64.

        Parameters
        ----------
        x : array or float

        Returns
        -------
        array, float64
        """
        raise NotImplementedError  # pragma: no cover

    def head(self) -> list[float]:
        """List the numbers of the head, without the offset of a table.

        Returns
        -------
        list of float
        """
        raise NotImplementedError  # pragma: no cover

    def nodes(self) -> tuple[float, ...]:
        """List the numbers of a table.

        Returns
        -------
        tuple of float
            Places, then values; empty for the other kinds.
        """
        return ()


@dataclass(frozen=True, slots=True)
class Polynomial(Curve):
    """The polynomial c0 + c1 x + ...

    Parameters
    ----------
    coefficients : tuple of float
        One to six, the constant first.

    Raises
    ------
    ParameterError
    """

    KIND: ClassVar[int] = 0

    coefficients: tuple[float, ...]

    def _check(self) -> None:
        if not 1 <= len(self.coefficients) <= _MOST_COEFFICIENTS:
            raise ParameterError(
                f"coefficients: got {len(self.coefficients)}, need 1 to {_MOST_COEFFICIENTS}"
            )

    @property
    def degree(self) -> int:
        counts = np.flatnonzero(np.asarray(self.coefficients, np.float32))
        return int(counts[-1]) if len(counts) else 0

    def __call__(self, x: Any) -> Any:
        return np.polynomial.polynomial.polyval(np.asarray(x, float), self.coefficients)

    def head(self) -> list[float]:
        return [self.KIND, 0, 0, 0, 0, 0, 0, 0, *self.coefficients]

    def scaled(self, factor: float) -> Polynomial:
        """Multiply by a number.

        Parameters
        ----------
        factor : float

        Returns
        -------
        Polynomial
        """
        return Polynomial(tuple(c * factor for c in self.coefficients))


@dataclass(frozen=True, slots=True)
class ClippedLog(Curve):
    """A clipped logarithm below a bound, a polynomial from there on.

    ``clip(a log(max(x, 1e-7)) + b, low, high)`` for x < end, else ``above``.

    Parameters
    ----------
    a, b : float
    low, high : float
    end : float
        Infinity for a logarithm everywhere.
    above : tuple of float
        Coefficients, the constant first.

    Raises
    ------
    ParameterError
    """

    KIND: ClassVar[int] = 1

    a: float
    b: float
    low: float
    high: float
    end: float = math.inf
    above: tuple[float, ...] = (0.0,)

    KINDS: ClassVar[dict[str, Kind]] = dict.fromkeys(("low", "high", "end"), Real(infinite=True))

    def _check(self) -> None:
        self._need(self.low <= self.high, "low", f"a number up to high, {self.high!r}")
        Polynomial(self.above)

    def __call__(self, x: Any) -> Any:
        x = np.asarray(x, float)
        log = np.clip(self.a * np.log(np.maximum(x, SMALLEST)) + self.b, self.low, self.high)
        return np.where(x < self.end, log, Polynomial(self.above)(x))

    @property
    def kind(self) -> int:
        return self.KIND if math.isfinite(self.end) else 4

    @property
    def degree(self) -> int:
        return Polynomial(self.above).degree if math.isfinite(self.end) else 0

    def head(self) -> list[float]:
        return [self.kind, 0, 0, self.end, self.a, self.b, self.low, self.high, *self.above]


@dataclass(frozen=True, slots=True)
class PowerLaw(Curve):
    """A clipped power: ``clip(a max(x, 1e-7)^b, low, high)``.

    Parameters
    ----------
    a, b : float
    low, high : float

    Raises
    ------
    ParameterError
    """

    KIND: ClassVar[int] = 2

    a: float
    b: float
    low: float = 0.0
    high: float = math.inf

    KINDS: ClassVar[dict[str, Kind]] = dict.fromkeys(("low", "high"), Real(infinite=True))

    def _check(self) -> None:
        self._need(self.low <= self.high, "low", f"a number up to high, {self.high!r}")

    @property
    def near(self) -> bool:
        return abs(self.b) < 0.95  # logarithms lie from log(SMALLEST), -16.1, to 88.8

    def __call__(self, x: Any) -> Any:
        x = np.maximum(np.asarray(x, float), SMALLEST)
        with np.errstate(over="ignore"):  # infinity is clipped; 0 times infinity would be NaN
            power = np.minimum(x**self.b, np.finfo(np.float64).max)
            return np.clip(self.a * power, self.low, self.high)

    def head(self) -> list[float]:
        return [self.KIND, 0, 0, 0, self.a, self.b, self.low, self.high]


@dataclass(frozen=True, slots=True)
class Table(Curve):
    """A piecewise linear curve, constant outside its nodes.

    Parameters
    ----------
    x : tuple of float
        Ascending, at least two.
    y : tuple of float

    Raises
    ------
    ParameterError
    """

    KIND: ClassVar[int] = 3

    x: tuple[float, ...]
    y: tuple[float, ...]

    def _check(self) -> None:
        if len(self.x) < 2 or len(self.x) != len(self.y):
            raise ParameterError(f"Table: got {len(self.x)} places and {len(self.y)} values")
        if not (np.diff(np.asarray(self.x, np.float32)) > 0).all():
            raise ParameterError(f"Table: places have to ascend in float32, got {self.x}")

    def __call__(self, x: Any) -> Any:
        return np.interp(np.asarray(x, float), self.x, self.y)

    def head(self) -> list[float]:
        return [self.KIND, len(self.x)]

    def nodes(self) -> tuple[float, ...]:
        return (*self.x, *self.y)


def pack(curves: Sequence[Curve]) -> np.ndarray:
    """Pack curves in the layout of the kernels: heads, then tables."""
    heads: list[np.ndarray] = []
    tables: list[tuple[float, ...]] = []
    for curve in curves:
        head = np.zeros(HEAD, np.float32)
        numbers = curve.head()
        head[: len(numbers)] = numbers
        if curve.nodes():
            head[2] = HEAD * len(curves) + sum(map(len, tables))
            tables.append(curve.nodes())
        heads.append(head)
    flat = [np.asarray(t, np.float32) for t in tables]
    return np.concatenate([*heads, *flat])
