"""Densities that are evaluated by functions: Exponential, Gamma, LogNormal, VonMises, StudentT."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rpukit.circuits.graph.evaluated import FunctionLeaf
from rpukit.circuits.graph.special import bessel_ratio_rest, digamma, trigamma
from rpukit.elementwise import exp, lgamma, log, log1p, normal_quantile
from rpukit.errors import ParameterError

__all__ = ["Exponential", "Gamma", "LogNormal", "StudentT", "VonMises"]

FloatArray = Any  # numpy.ndarray of float64

_STEPS = 6  # of Newton's method
_ROOT_12 = math.sqrt(12)
_POSITIVE = (5e-324, np.inf)
_PI = 3.1415928  # no float32 of pi is outside


def _need_positive(leaf: Any, array: FloatArray, columns: dict[int, str]) -> None:
    for k, name in columns.items():
        if array[:, k].min() <= 0:
            raise ParameterError(
                f"parameters of {type(leaf).__name__}: got a {name} of {array[:, k].min():g}, "
                "need positive ones"
            )


def _need_settings(leaf: Any, *names: str) -> None:
    for name in names:
        if not getattr(leaf, name) > 0:
            raise ParameterError(f"{name}: got {getattr(leaf, name)}, need a positive number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential(FunctionLeaf):
    """An exponential density of numbers from 0.

    Parameters
    ----------
    rate : float, positive
        Where initial parameters are drawn around. Parameters: (n_node, 1) rates.

    Notes
    -----
    The M step is closed: 1 / mean.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.Exponential(rate=2.0).DOMAIN
    (0.0, inf)
    """

    FUNCTION: ClassVar[str] = "exponential_leaf"
    DOMAIN: ClassVar[tuple[float, float]] = (0.0, np.inf)
    rate: float = 1.0

    def _check(self) -> None:
        _need_settings(self, "rate")

    def _check_range(self, array: FloatArray) -> None:
        _need_positive(self, array, {0: "rate"})

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        return self.rate * np.exp(perturbation * (uniform - 0.5))

    def maximise(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        return statistics[:, :1] / statistics[:, 1:]

    def slopes(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        return statistics[:, :1] - parameters * statistics[:, 1:]

    def quantile(self, parameters: FloatArray, u: FloatArray) -> FloatArray:
        return -log1p(-u) / parameters[:, 0]

    def mode(self, parameters: FloatArray) -> FloatArray:
        return np.zeros(len(parameters))

    def moments(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean = 1 / parameters[:, 0]
        return mean, 2 * mean * mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma(FunctionLeaf):
    """A gamma density of positive numbers.

    Parameters
    ----------
    shape, rate : float, positive
        Where initial parameters are drawn around. Parameters: (n_node, 2), shape and rate; the
        mean is shape / rate.
    max_shape : float
        Largest shape that learning may reach.

    Notes
    -----
    The shape has no closed M step: six steps of Newton's method from an approximation find it
    (Minka, "Estimating a Gamma distribution", 2002). With a shape up to 1 the density has no
    mode; `Circuit.most_probable` takes the mean then.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.Gamma(shape=3.0).n_parameters
    2
    """

    FUNCTION: ClassVar[str] = "gamma_leaf"
    N_PARAMETERS: ClassVar[int] = 2
    N_STATISTICS: ClassVar[int] = 2
    DOMAIN: ClassVar[tuple[float, float]] = _POSITIVE
    shape: float = 2.0
    rate: float = 1.0
    max_shape: float = 1e6

    def _check(self) -> None:
        _need_settings(self, "shape", "rate", "max_shape")

    def _check_range(self, array: FloatArray) -> None:
        _need_positive(self, array, {0: "shape", 1: "rate"})

    def _limit(self) -> float:
        return self.max_shape

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        start = np.array([self.shape, self.rate])
        return start * np.exp(perturbation * (uniform - 0.5))

    def maximise(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        flow, a, b = statistics.T
        a, b = a / flow, b / flow  # of x / mean - 1, and of what its logarithm is below it
        spread = np.maximum(log1p(a) - a - b, 0.5 / self.max_shape)  # log mean - mean log
        root = np.sqrt((spread - 3) * (spread - 3) + 24 * spread)
        shape = (3 - spread + root) / (12 * spread)
        for _ in range(_STEPS):
            slope = shape * shape * (1 / shape - trigamma(shape))
            inverse = 1 / shape + (log(shape) - digamma(shape) - spread) / slope
            shape = np.where(inverse > 0, 1 / inverse, shape)
        shape = np.minimum(shape, self.max_shape)
        mean = parameters[:, 0] / parameters[:, 1] * (1 + a)
        return np.stack([shape, shape / mean], axis=1)

    def slopes(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        (flow, a, b), shape = statistics.T, parameters[:, 0]
        rise = shape * (flow * (log(shape) - digamma(shape)) + a + b)
        return np.stack([rise, -shape * a], axis=1)

    def quantile(self, parameters: FloatArray, u: FloatArray) -> FloatArray:
        from scipy.special import gammaincinv

        return np.maximum(gammaincinv(parameters[:, 0], u) / parameters[:, 1], 1e-37)

    def mode(self, parameters: FloatArray) -> FloatArray:
        shape, rate = parameters.T
        return np.where(shape > 1, shape - 1, shape) / rate

    def moments(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        shape, rate = parameters.T
        mean = shape / rate
        return mean, mean * mean + mean / rate


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal(FunctionLeaf):
    """A density of positive numbers whose logarithm is normal.

    Parameters
    ----------
    mean, std : float
        Of the logarithm, where initial parameters are drawn around. Parameters: (n_node, 2), mean
        and standard deviation of the logarithm.
    min_std : float
        Least standard deviation that learning may reach.

    Notes
    -----
    The M step is closed: moments of the logarithm.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.LogNormal(std=0.5).n_statistics
    3
    """

    FUNCTION: ClassVar[str] = "log_normal_leaf"
    N_PARAMETERS: ClassVar[int] = 2
    N_STATISTICS: ClassVar[int] = 2
    DOMAIN: ClassVar[tuple[float, float]] = _POSITIVE
    mean: float = 0.0
    std: float = 1.0
    min_std: float = 0.01

    def _check(self) -> None:
        _need_settings(self, "std", "min_std")

    def _check_range(self, array: FloatArray) -> None:
        _need_positive(self, array, {1: "standard deviation"})

    def _limit(self) -> float:
        return self.min_std

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        return _drawn_around(self.mean, self.std, self.min_std, uniform, perturbation)

    def maximise(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        flow, first, second = statistics.T
        return _by_moments(parameters, first / flow, second / flow, self.min_std)

    def slopes(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        (flow, first, second), std = statistics.T, parameters[:, 1]
        return np.stack([first / std, second / (std * std) - flow], axis=1)

    def moved(self, parameters: FloatArray, change: FloatArray) -> FloatArray:
        """Change the mean in units of the deviation, and the logarithm of the deviation."""
        return _shifted(parameters, change, self.min_std)

    def quantile(self, parameters: FloatArray, u: FloatArray) -> FloatArray:
        return exp(parameters[:, 0] + parameters[:, 1] * normal_quantile(u))

    def mode(self, parameters: FloatArray) -> FloatArray:
        mean, std = parameters.T
        return exp(mean - std * std)

    def moments(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean, std = parameters.T
        return exp(mean + 0.5 * std * std), exp(2 * (mean + std * std))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudentT(FunctionLeaf):
    """Student's t density: a normal one with outliers.

    Parameters
    ----------
    dof : float, positive
        Degrees of freedom. They are fixed, not learned.
    mean, scale : float
        Where initial parameters are drawn around. Parameters: (n_node, 2), location and scale.
    min_scale : float
        Least scale that learning may reach.

    Notes
    -----
    EM sees each value as normal with an unknown precision, drawn from a gamma distribution; with
    its expectation the M step is closed, and never lowers the likelihood (Peel, McLachlan,
    Statistics and Computing 10, 339, 2000).

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.StudentT(dof=3.0).n_parameters
    2
    """

    FUNCTION: ClassVar[str] = "student_t_leaf"
    N_PARAMETERS: ClassVar[int] = 2
    N_STATISTICS: ClassVar[int] = 3
    dof: float = 4.0
    mean: float = 0.0
    scale: float = 1.0
    min_scale: float = 0.01

    def _check(self) -> None:
        _need_settings(self, "dof", "scale", "min_scale")

    def _check_range(self, array: FloatArray) -> None:
        _need_positive(self, array, {1: "scale"})

    def constants(self) -> tuple[float, float, float]:
        half = np.array([0.5 * self.dof, 0.5 * (self.dof + 1), self.dof * math.pi])
        low, high = lgamma(half[:2])
        return float(self.dof), float(high - low - 0.5 * log(half)[2]), 0.0

    def _limit(self) -> float:
        return self.min_scale

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        return _drawn_around(self.mean, self.scale, self.min_scale, uniform, perturbation)

    def maximise(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        flow, precision, first, second = statistics.T
        shift = first / precision
        var = (second - first * shift) / flow
        scale = np.sqrt(np.maximum(var, self.min_scale**2))
        return np.stack([parameters[:, 0] + shift, scale], axis=1)

    def slopes(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        (flow, _, first, second), scale = statistics.T, parameters[:, 1]
        return np.stack([first / scale, second / (scale * scale) - flow], axis=1)

    def moved(self, parameters: FloatArray, change: FloatArray) -> FloatArray:
        """Change the mean in units of the deviation, and the logarithm of the deviation."""
        return _shifted(parameters, change, self.min_scale)

    def quantile(self, parameters: FloatArray, u: FloatArray) -> FloatArray:
        from scipy.special import stdtrit

        return parameters[:, 0] + parameters[:, 1] * stdtrit(self.dof, u)

    def mode(self, parameters: FloatArray) -> FloatArray:
        return parameters[:, 0]

    def moments(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean, scale = parameters.T
        centre = mean if self.dof > 1 else np.full_like(mean, np.nan)
        ratio = self.dof / (self.dof - 2) if self.dof > 2 else math.inf
        return centre, centre * centre + ratio * scale * scale


@dataclass(frozen=True, slots=True, kw_only=True)
class VonMises(FunctionLeaf):
    """The von Mises density of angles, -pi to pi.

    Parameters
    ----------
    concentration : float, positive
        Where initial parameters are drawn around. Parameters: (n_node, 2), direction of the mode
        in radians, which is drawn from the whole circle, and concentration.
    max_concentration : float
        Largest concentration that learning may reach.

    Notes
    -----
    The direction has a closed M step; six steps of Newton's method find the concentration
    (Mardia, Jupp, "Directional statistics", 2000, section 5.3). `moments` are not defined.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.VonMises(concentration=4.0).n_parameters
    2
    """

    FUNCTION: ClassVar[str] = "von_mises_leaf"
    N_PARAMETERS: ClassVar[int] = 2
    N_STATISTICS: ClassVar[int] = 2
    DOMAIN: ClassVar[tuple[float, float]] = (-_PI, _PI)
    concentration: float = 1.0
    max_concentration: float = 1e6

    def _check(self) -> None:
        _need_settings(self, "concentration", "max_concentration")

    def _check_range(self, array: FloatArray) -> None:
        _need_positive(self, array, {1: "concentration"})

    def _limit(self) -> float:
        return self.max_concentration

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        grown = self.concentration * np.exp(perturbation * (uniform[:, 1] - 0.5))
        return np.stack([math.pi * (2 * uniform[:, 0] - 1), grown], axis=1)

    def maximise(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        flow, c, s = statistics.T
        c, s = c / flow, s / flow  # means of 1 - cos d and of sin d
        length = np.sqrt((1 - c) * (1 - c) + s * s)
        # 1 - length, without loss.
        rest = np.clip((2 * c - c * c - s * s) / (1 + length), 0.5 / self.max_concentration, 1)
        r = 1 - rest
        kappa = r * (2 - r * r) / (rest * (1 + r))
        kappa = np.maximum(kappa, 1e-6)
        for _ in range(_STEPS):
            found = bessel_ratio_rest(kappa)
            ratio = 1 - found
            slope = found * (1 + ratio) - ratio / kappa
            new = kappa + (found - rest) / slope
            kappa = np.where(new > 0, new, 0.5 * kappa)
        kappa = np.minimum(kappa, self.max_concentration)
        return np.stack([parameters[:, 0] + np.arctan2(s, 1 - c), kappa], axis=1)

    def slopes(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        (flow, c, s), kappa = statistics.T, parameters[:, 1]
        return np.stack([kappa * s, kappa * (flow * bessel_ratio_rest(kappa) - c)], axis=1)

    def moved(self, parameters: FloatArray, change: FloatArray) -> FloatArray:
        """Change the angle, and the logarithm of the concentration."""
        kappa = np.minimum(parameters[:, 1] * exp(change[:, 1]), self.max_concentration)
        return np.stack([_wrapped(parameters[:, 0] + change[:, 0]), kappa], axis=1)

    def blended(self, old: FloatArray, new: FloatArray, share: FloatArray) -> FloatArray:
        """Go the way in the plane, where the expected log-likelihood is concave."""
        ways = [
            p[:, 1:] * np.stack([np.cos(p[:, 0]), np.sin(p[:, 0])], axis=1) for p in (old, new)
        ]
        x, y = FunctionLeaf.blended(self, ways[0], ways[1], share).T
        length = np.maximum(np.sqrt(x * x + y * y), 1e-6)
        part = np.stack([np.arctan2(y, x), length], axis=1)
        whole = np.stack([_wrapped(new[:, 0]), new[:, 1]], axis=1)
        return np.where(share == 1, whole, part)

    def quantile(self, parameters: FloatArray, u: FloatArray) -> FloatArray:
        from scipy.stats import vonmises

        low, high = (np.full(len(u), bound) for bound in (-math.pi, math.pi))
        for _ in range(52):
            middle = 0.5 * (low + high)
            enough = vonmises.cdf(middle, parameters[:, 1]) >= u
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return _wrapped(parameters[:, 0] + high)

    def mode(self, parameters: FloatArray) -> FloatArray:
        return _wrapped(parameters[:, 0])


def _wrapped(angle: FloatArray) -> FloatArray:
    """Bring angles to [-pi, pi]."""
    return np.clip(angle - 2 * math.pi * np.rint(angle / (2 * math.pi)), -math.pi, math.pi)


def _drawn_around(
    mean: float, std: float, least: float, uniform: FloatArray, perturbation: float
) -> FloatArray:
    """Draw means as those of a `Gaussian`, and deviations a little below that given."""
    spread = std * _ROOT_12 * (uniform[:, 0] - 0.5)
    deviation = np.maximum(std * np.exp(-0.04 * perturbation * uniform[:, 1]), least)
    return np.stack([mean + spread, deviation], axis=1)


def _shifted(parameters: FloatArray, change: FloatArray, least: float) -> FloatArray:
    """Move means in units of the deviation, and logarithms of deviations."""
    mean, std = parameters.T
    made = [mean + std * change[:, 0], np.maximum(std * exp(change[:, 1]), least)]
    return np.stack(made, axis=1)


def _by_moments(
    parameters: FloatArray, first: FloatArray, second: FloatArray, least: float
) -> FloatArray:
    """Move mean and standard deviation by mean moments about the mean."""
    var = np.maximum(second - first * first, least * least)
    return np.stack([parameters[:, 0] + first, np.sqrt(var)], axis=1)
