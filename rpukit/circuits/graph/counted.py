"""Leaves of counts that are evaluated by functions: Geometric, NegativeBinomial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rpukit.circuits.graph.evaluated import FunctionLeaf
from rpukit.elementwise import exp, log1p
from rpukit.errors import ParameterError

__all__ = ["Geometric", "NegativeBinomial"]

FloatArray = Any  # numpy.ndarray of float64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failures(FunctionLeaf):
    """Base of numbers of failures before successes of one probability."""

    DOMAIN: ClassVar[tuple[float, float]] = (0.0, np.inf)
    COUNTS: ClassVar[bool] = True
    probability: float = 0.5

    def _check(self) -> None:
        if not 0 < self.probability < 1:
            raise ParameterError(f"probability: got {self.probability}, need a number in (0, 1)")

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        odds = self.probability / (1 - self.probability) * np.exp(perturbation * (uniform - 0.5))
        return odds / (1 + odds)

    def moved(self, parameters: FloatArray, change: FloatArray) -> FloatArray:
        """Change the logit of the probability."""
        up = parameters * exp(change)
        return up / (up + (1 - parameters))

    def _check_range(self, array: FloatArray) -> None:
        if array.min() <= 0 or array.max() > 1:
            raise ParameterError(
                f"parameters of {type(self).__name__}: got {array.min():g} to {array.max():g}, "
                "need probabilities in (0, 1]"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometric(_Failures):
    """Number of failures before the first success, from 0.

    Parameters
    ----------
    probability : float, in (0, 1)
        Of success, where initial parameters are drawn around. Parameters: (n_node, 1)
        probabilities of success.

    Notes
    -----
    The M step is closed: successes over trials. ``scipy.stats.geom`` counts the success too.

    Examples
    --------
    >>> import rpukit as rk
    >>> coin = rk.circuits.inputs(0, rk.circuits.Geometric(), 1, parameters=[[0.25]])
    >>> pc = rk.Circuit(rk.circuits.sum(coin, n_nodes=1))
    >>> round(float(pc.log_likelihood([[2]])[0]), 4)  # log(0.25 * 0.75^2)
    -1.9617
    """

    FUNCTION: ClassVar[str] = "geometric_leaf"

    def maximise(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        flow, total = statistics.T
        return (flow / (flow + total))[:, None]

    def slopes(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        return _slopes(parameters, statistics, 1.0)

    def quantile(self, parameters: FloatArray, u: FloatArray) -> FloatArray:
        p = parameters[:, 0]
        sure = p >= 1
        fall = np.where(sure, -1.0, log1p(-np.where(sure, 0.5, p)))
        return np.where(sure, 0.0, np.maximum(np.ceil(log1p(-u) / fall) - 1, 0))

    def mode(self, parameters: FloatArray) -> FloatArray:
        return np.zeros(len(parameters))

    def moments(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        return _moments(parameters[:, 0], 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativeBinomial(_Failures):
    """Number of failures before ``n_successes`` successes, from 0.

    Parameters
    ----------
    n_successes : float, positive
        It is fixed, not learned, and need not be whole.
    probability : float, in (0, 1)
        Of success, where initial parameters are drawn around. Parameters: (n_node, 1)
        probabilities of success.

    Notes
    -----
    With ``n_successes`` fixed the M step is closed: r n / (r n + sum x). A mixture of leaves
    with several ``n_successes`` makes up for the dispersion that is not learned.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.NegativeBinomial(n_successes=2.5).COUNTS
    True
    """

    FUNCTION: ClassVar[str] = "negative_binomial_leaf"
    n_successes: float

    def _check(self) -> None:
        _Failures._check(self)
        if not self.n_successes > 0:
            raise ParameterError(f"n_successes: got {self.n_successes}, need a positive number")

    def constants(self) -> tuple[float, float, float]:
        return float(self.n_successes), 0.0, 0.0

    def maximise(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        hits = self.n_successes * statistics[:, 0]
        return (hits / (hits + statistics[:, 1]))[:, None]

    def slopes(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        return _slopes(parameters, statistics, self.n_successes)

    def quantile(self, parameters: FloatArray, u: FloatArray) -> FloatArray:
        """Find the least count whose cumulative probability reaches u, by bisection."""
        from scipy.special import betainc

        p, r = parameters[:, 0], self.n_successes
        low, high = np.full(len(p), -1.0), np.ones(len(p))
        while (short := betainc(r, high + 1, p) < u).any():
            high = np.where(short, 2 * high, high)
        while (high - low > 1).any():
            middle = np.floor((low + high) / 2)
            enough = betainc(r, middle + 1, p) >= u
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def mode(self, parameters: FloatArray) -> FloatArray:
        p = parameters[:, 0]
        return np.floor(np.maximum((self.n_successes - 1) * (1 - p) / p, 0))

    def moments(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        return _moments(parameters[:, 0], self.n_successes)


def _slopes(p: FloatArray, statistics: FloatArray, r: float) -> FloatArray:
    return r * statistics[:, :1] * (1 - p) - statistics[:, 1:] * p


def _moments(p: FloatArray, r: float) -> tuple[FloatArray, FloatArray]:
    mean = r * (1 - p) / p
    return mean, mean * mean + mean / p
