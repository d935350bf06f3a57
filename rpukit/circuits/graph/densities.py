"""Leaves with densities or unbounded counts: Gaussian, Poisson."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rpukit.circuits.graph.leaves import GAUSSIAN, POISSON, Leaf
from rpukit.errors import ParameterError

__all__ = ["Gaussian", "Poisson"]

FloatArray = Any  # numpy.ndarray of float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussian(Leaf):
    """A normal density.

    Parameters
    ----------
    mean, std : float
        Where initial parameters are drawn around.
    min_std : float
        Least standard deviation that learning may reach. Parameters: (n_node, 2), mean and
        standard deviation.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.Gaussian(std=2.0).TABLE
    False
    """

    KIND: ClassVar[int] = GAUSSIAN
    TABLE: ClassVar[bool] = False
    mean: float = 0.0
    std: float = 1.0
    min_std: float = 0.01

    def _check(self) -> None:
        if not (self.std > 0 and self.min_std > 0):
            raise ParameterError(
                f"std, min_std: got {self.std}, {self.min_std}, need positive numbers"
            )

    @property
    def n_parameters(self) -> int:
        return 2

    def constants(self) -> tuple[float, float, float]:
        return 0.0, 0.0, self.min_std

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        spread = self.std * math.sqrt(12) * (uniform[:, 0] - 0.5)
        std = np.maximum(self.std * np.exp(-0.04 * perturbation * uniform[:, 1]), self.min_std)
        return np.stack([self.mean + spread, std], axis=1)

    def _check_range(self, array: FloatArray) -> None:
        if array[:, 1].min() <= 0:
            raise ParameterError(
                f"parameters of Gaussian: got a standard deviation of {array[:, 1].min():g}, need "
                "positive ones"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(Leaf):
    """A count from 0, with no upper bound. Parameters: (n_node, 1) rates.

    Parameters
    ----------
    rate : float
        Where initial parameters are drawn around.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.Poisson(rate=3.0).n_parameters
    1
    """

    KIND: ClassVar[int] = POISSON
    TABLE: ClassVar[bool] = False
    COUNTS: ClassVar[bool] = True
    rate: float = 1.0

    def _check(self) -> None:
        if not self.rate > 0:
            raise ParameterError(f"rate: got {self.rate}, need a positive number")

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        return self.rate * np.exp(perturbation * (uniform - 0.5))

    def _check_range(self, array: FloatArray) -> None:
        if array.min() <= 0:
            raise ParameterError(
                f"parameters of Poisson: got a rate of {array.min():g}, need positive ones"
            )
