"""Leaf distributions of single variables.

A leaf of finite support is a table of log-probabilities, one row per node, which is recomputed
when parameters change; other leaves (``densities.py``) are evaluated for each sample. Parameters
are arrays with one row per node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rpukit._checks import Checked, real_array, shown
from rpukit.errors import DTypeError, ParameterError, ShapeError

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "DiscreteLogistic",
    "Indicator",
    "Leaf",
    "MaskedCategorical",
]

Array = Any
FloatArray = Any  # numpy.ndarray of float64

# Kinds, as the kernels know them.
CATEGORICAL, BERNOULLI, BINOMIAL, DISCRETE_LOGISTIC, INDICATOR, GAUSSIAN, POISSON = range(7)
FUNCTION = 7  # evaluated by functions of its own, see `evaluated.py`
LARGEST_SUPPORT = 1 << 20


class LeafTraits(NamedTuple):
    """Properties of a leaf that ops pass to kernels."""

    kind: int
    support: int  # 0 for a leaf of numbers
    n_parameters: int
    n_statistics: int
    constants: tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf(Checked, ABC):
    """Base of all leaves; see `Categorical`, `Gaussian`."""

    KIND: ClassVar[int]
    TABLE: ClassVar[bool] = True  # finitely many values, 0 to n_values - 1
    COUNTS: ClassVar[bool] = False  # whole numbers from 0, without a table
    DOMAIN: ClassVar[tuple[float, float]] = (-np.inf, np.inf)

    @property
    def support(self) -> int:
        """Number of values; 0 for a leaf of numbers."""
        return 0

    @property
    def n_columns(self) -> int:
        """Number of variables of one node: 1 but for `MultivariateNormal`."""
        return 1

    @property
    def n_parameters(self) -> int:
        """Parameters of one node."""
        return 1

    @property
    def n_statistics(self) -> int:
        """Number of sufficient statistics of one node."""
        return self.support if self.TABLE else 3

    def constants(self) -> tuple[float, float, float]:
        """Return the constants that kernels need beside the parameters.

        Returns
        -------
        tuple of three float
        """
        return 0.0, 0.0, 0.0

    def _traits(self) -> LeafTraits:
        counts = (self.support, self.n_parameters, self.n_statistics)
        return LeafTraits(self.KIND, *counts, self.constants())

    @abstractmethod
    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        """Make initial parameters.

        Parameters
        ----------
        uniform : array, shape (n_node, n_parameters)
            Draws from (0, 1).
        perturbation : float
            How far nodes differ.

        Returns
        -------
        array, shape (n_node, n_parameters), float64
        """

    def checked(self, parameters: Any, n_node: int) -> FloatArray:
        """Check parameters that a user gave.

        Parameters
        ----------
        parameters : array, shape (n_node, n_parameters)
        n_node : int

        Returns
        -------
        array, float64

        Raises
        ------
        ShapeError, ParameterError
        """
        array = real_array(parameters, f"parameters of {type(self).__name__}").copy()
        if array.ndim == 1 and self.n_parameters == 1:
            array = array[:, None]
        if array.shape != (n_node, self.n_parameters):
            raise ShapeError(
                f"parameters of {type(self).__name__}: got shape {np.shape(parameters)}, "
                f"need ({n_node}, {self.n_parameters})"
            )
        if not np.isfinite(array).all():
            raise ParameterError(
                f"parameters of {type(self).__name__}: got NaN or infinity, need finite numbers"
            )
        self._check_range(array)
        return array

    def _check_range(self, array: FloatArray) -> None:
        if array.min() < 0 or array.max() > 1:
            raise ParameterError(
                f"parameters of {type(self).__name__}: got {array.min():g} to {array.max():g}, "
                "need numbers in [0, 1]"
            )


def _positive(value: int, name: str, least: int = 1) -> None:
    if not least <= value <= LARGEST_SUPPORT:
        raise ParameterError(f"{name}: got {value}, need {least} to {LARGEST_SUPPORT}")


def _normalised(uniform: FloatArray, perturbation: float) -> FloatArray:
    weights = np.exp(-perturbation * uniform)
    return weights / weights.sum(axis=1, keepdims=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Valued(Leaf):
    """Base of leaves with values 0 to n_values - 1."""

    LEAST: ClassVar[int] = 1
    n_values: int

    def _check(self) -> None:
        _positive(self.n_values, "n_values", self.LEAST)

    @property
    def support(self) -> int:
        return self.n_values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chance(Leaf):
    """Base of leaves whose only parameter is a probability."""

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        return 1 / (1 + np.exp(perturbation * (2 * uniform - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Categorical(_Valued):
    """One of ``n_values`` values, each with its probability.

    Parameters
    ----------
    n_values : int
        Values are 0 to n_values - 1. Parameters: (n_node, n_values) probabilities.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.Categorical(n_values=4).n_parameters
    4
    """

    KIND: ClassVar[int] = CATEGORICAL

    @property
    def n_parameters(self) -> int:
        return self.n_values

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        return _normalised(uniform, perturbation)

    def _check_range(self, array: FloatArray) -> None:
        Leaf._check_range(self, array)
        if np.abs(array.sum(axis=1) - 1).max() > 1e-5:
            raise ParameterError(
                f"parameters of {type(self).__name__}: rows must sum to 1, got sums from "
                f"{array.sum(axis=1).min():g} to {array.sum(axis=1).max():g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedCategorical(Categorical):
    """A `Categorical` some of whose values are impossible, before and after learning.

    Parameters
    ----------
    n_values : int
    allowed : tuple of int
        The possible values.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.MaskedCategorical(n_values=4, allowed=(0, 2)).support
    4
    """

    allowed: tuple[int, ...]

    def _check(self) -> None:
        Categorical._check(self)
        allowed = self.allowed
        if not allowed or len(set(allowed)) < len(allowed):
            raise ParameterError(
                f"allowed: got {self.allowed!r}, need one or more distinct values"
            )
        if min(allowed) < 0 or max(allowed) >= self.n_values:
            raise ParameterError(
                f"allowed: got {allowed}, need values from 0 to {self.n_values - 1}"
            )
        object.__setattr__(self, "allowed", tuple(sorted(allowed)))

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        out = np.zeros_like(uniform)
        out[:, self.allowed] = _normalised(uniform[:, self.allowed], perturbation)
        return out

    def _check_range(self, array: FloatArray) -> None:
        Categorical._check_range(self, array)
        if np.delete(array, self.allowed, axis=1).any():
            raise ParameterError(
                "parameters of MaskedCategorical: got a positive probability of a value that is "
                "not allowed, need 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bernoulli(_Chance):
    """A Bernoulli distribution: 0 or 1. Parameters: (n_node, 1) probabilities of 1.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.Bernoulli().support
    2
    """

    KIND: ClassVar[int] = BERNOULLI

    @property
    def support(self) -> int:
        return 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Binomial(_Chance):
    """Number of successes in ``n_trials``. Parameters: (n_node, 1) probabilities of success.

    Parameters
    ----------
    n_trials : int

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.Binomial(n_trials=5).support
    6
    """

    KIND: ClassVar[int] = BINOMIAL
    n_trials: int

    def _check(self) -> None:
        _positive(self.n_trials, "n_trials")

    @property
    def support(self) -> int:
        return self.n_trials + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteLogistic(_Valued):
    """A logistic distribution, cut into bins of equal width; the outer bins are open.

    Parameters
    ----------
    n_values : int
        Number of bins.
    low, high : float
        Lower edge of the first bin and upper edge of the last.
    min_std : float
        Least standard deviation that learning may reach. Parameters: (n_node, 2), mean and scale
        (the standard deviation is scale pi / sqrt(3)).

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.DiscreteLogistic(n_values=256, low=-1.0, high=1.0).n_parameters
    2
    """

    KIND: ClassVar[int] = DISCRETE_LOGISTIC
    LEAST: ClassVar[int] = 2
    low: float = 0.0
    high: float = 1.0
    min_std: float = 0.01

    def _check(self) -> None:
        _Valued._check(self)
        if not self.low < self.high:
            raise ParameterError(f"low, high: got {self.low}, {self.high}, need low < high")
        if not self.min_std > 0:
            raise ParameterError(f"min_std: got {self.min_std}, need a positive number")

    @property
    def n_parameters(self) -> int:
        return 2

    def constants(self) -> tuple[float, float, float]:
        return self.low, (self.high - self.low) / self.n_values, self.min_std

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        span = self.high - self.low
        return np.stack(
            [self.low + span * (0.25 + 0.5 * uniform[:, 0]), span * (0.05 + 0.1 * uniform[:, 1])],
            axis=1,
        )

    def _check_range(self, array: FloatArray) -> None:
        if array[:, 1].min() <= 0:
            raise ParameterError(
                f"parameters of DiscreteLogistic: got a scale of {array[:, 1].min():g}, need "
                "positive ones"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Indicator(_Valued):
    """A distribution with all probability at one value; nothing is learned.

    Parameters
    ----------
    n_values : int
        Parameters: (n_node, 1), the values; by default node k stands for value k.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.Indicator(n_values=3).support
    3
    """

    KIND: ClassVar[int] = INDICATOR

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        return np.arange(len(uniform), dtype=np.float64)[:, None] % self.n_values

    def _check_range(self, array: FloatArray) -> None:
        if (array != np.floor(array)).any() or array.min() < 0 or array.max() >= self.n_values:
            raise ParameterError(
                f"parameters of Indicator: got {array.min():g} to {array.max():g}, need integers "
                f"from 0 to {self.n_values - 1}"
            )


def as_leaf(leaf: Any) -> Leaf:
    """Check that something is a leaf."""
    if not isinstance(leaf, Leaf):
        raise DTypeError(
            f"leaf: got {shown(leaf)}, need one such as rk.circuits.Categorical(n_values=2)"
        )
    return leaf


def columns_of(
    used: Iterable[tuple[int, Leaf]], n_variable: int
) -> tuple[Array, Array, Array, Array]:
    """Describe the column of each variable: largest support; has tables, densities, counts.

    ``used`` holds each pair of a variable and a leaf of it.
    """
    support = np.zeros(n_variable, np.int64)
    table, number, count = (np.zeros(n_variable, bool) for _ in range(3))
    for var, leaf in used:
        table[var] |= leaf.TABLE
        number[var] |= not leaf.TABLE
        count[var] |= leaf.COUNTS
        if leaf.TABLE:
            support[var] = max(support[var], leaf.support)
    return support, table, number, count
