"""Emissions of `HMM`: leaves, initial parameters, M steps and draws.

The formulas and their priors are those of hmmlearn (Huang, Acero, Hon, "Spoken Language
Processing", 2001, pp. 443 to 445).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from rpukit.circuits import Categorical, Gaussian, Leaf, Poisson
from rpukit.errors import NonFiniteError, ParameterError, ShapeError

__all__ = ["Emission", "emission_of", "need_array", "need_rows"]

Array = Any
Model = Any  # an `HMM`, which holds the parameters

_LEAST_VARIANCE = 1e-12
_LEAST_RATE = 1e-30
_ROUNDS = 50  # of k-means
_NEAR = 1e-5  # of sums of probabilities to 1


class Emission(ABC):
    """Distribution of the observations of one time, given the state."""

    LETTERS: ClassVar[dict[str, str]]  # in `params` and `init_params`: names of parameters
    WHOLE = False  # whether observations are integers from 0

    @abstractmethod
    def begin(self, hmm: Model, x: Array, rng: np.random.RandomState) -> None:
        """Set the parameters that `fit` has to find a start for."""

    @abstractmethod
    def check(self, hmm: Model) -> int:
        """Check the parameters; return the number of columns of X."""

    @abstractmethod
    def leaves(self, hmm: Model) -> tuple[Leaf, ...]:
        """Return the leaf of each column."""

    @abstractmethod
    def parameters(self, hmm: Model) -> list[Array]:
        """Return the parameters of the leaves of each column, (n_components, n_parameters)."""

    @abstractmethod
    def step(self, hmm: Model, counts: list[Array], by_circuit: Callable[[], list[Array]]) -> None:
        """Take an M step by the statistics of the leaves of each column.

        ``by_circuit`` gives the parameters that the circuit's own step of EM leads to.
        """

    @abstractmethod
    def n_free(self, hmm: Model) -> int:
        """Count the free parameters."""

    @abstractmethod
    def draw(self, hmm: Model, state: int, rng: np.random.RandomState) -> Array:
        """Draw an observation."""


class _Gaussian(Emission):
    LETTERS: ClassVar[dict[str, str]] = {"m": "means_", "c": "covars_"}

    def begin(self, hmm: Model, x: Array, rng: np.random.RandomState) -> None:
        if hmm._begins("m", "means_"):
            hmm.means_ = _k_means(x, hmm.n_components, rng)
        if hmm._begins("c", "covars_"):
            variance = np.nanvar(x, axis=0, ddof=min(1, len(x) - 1)) + hmm.min_covar
            if hmm.covariance_type == "spherical":
                variance = np.full_like(variance, variance.mean())
            hmm._variances = np.tile(variance, (hmm.n_components, 1))

    def check(self, hmm: Model) -> int:
        means = need_array(hmm, "means_", (hmm.n_components, None))
        hmm.means_, shape = means, means.shape
        if getattr(hmm, "_variances", np.zeros(0)).shape != shape:
            got = getattr(getattr(hmm, "_variances", None), "shape", "none")
            raise ShapeError(f"covars_: got variances of shape {got}, need {shape} as of means_")
        return int(shape[1])

    def leaves(self, hmm: Model) -> tuple[Leaf, ...]:
        return (Gaussian(),) * int(hmm.means_.shape[1])

    def parameters(self, hmm: Model) -> list[Array]:
        both = np.stack([hmm.means_, np.sqrt(hmm._variances)], axis=2)
        return list(both.swapaxes(0, 1))

    def step(self, hmm: Model, counts: list[Array], by_circuit: Callable[[], list[Array]]) -> None:
        first, second, n = (np.stack([c[:, k] for c in counts], axis=1) for k in range(3))
        old, prior, weight = hmm.means_, hmm.means_prior, hmm.means_weight
        reached = n > 0
        if "m" in hmm.params:
            whole = np.where(reached, weight + n, 1.0)
            shift = (first + weight * (prior - old)) / whole
            hmm.means_ = np.where(reached, old + shift, old)
        if "c" in hmm.params:  # statistics are about the old means
            by = hmm.means_ - old
            about = second - 2 * by * first + by * by * n + weight * (hmm.means_ - prior) ** 2
            found = (hmm.covars_prior + about) / np.maximum(
                np.maximum(hmm.covars_weight - 1, 0) + n, 1e-5
            )
            found = np.where(reached, np.maximum(found, _LEAST_VARIANCE), hmm._variances)
            if hmm.covariance_type == "spherical":
                found = np.tile(found.mean(axis=1)[:, None], (1, found.shape[1]))
            hmm._variances = found

    def n_free(self, hmm: Model) -> int:
        n, columns = hmm.means_.shape
        return int(n * columns + (n if hmm.covariance_type == "spherical" else n * columns))

    def draw(self, hmm: Model, state: int, rng: np.random.RandomState) -> Array:
        return rng.normal(hmm.means_[state], np.sqrt(hmm._variances[state]))


class _Categorical(Emission):
    LETTERS: ClassVar[dict[str, str]] = {"e": "emissionprob_"}
    WHOLE = True

    def begin(self, hmm: Model, x: Array, rng: np.random.RandomState) -> None:
        if x.shape[1] != 1:
            raise ShapeError(
                f"X: got {x.shape[1]} columns, categorical emissions need one, of symbols from 0"
            )
        n = hmm.n_features
        if n is None:
            known = x[~np.isnan(x)]
            n = int(known.max()) + 1 if known.size else 1
            if not hmm._begins("e", "emissionprob_"):
                n = max(n, np.shape(hmm.emissionprob_)[-1])
        if hmm._begins("e", "emissionprob_"):
            drawn = rng.random_sample((hmm.n_components, n))
            hmm.emissionprob_ = drawn / drawn.sum(axis=1, keepdims=True)

    def check(self, hmm: Model) -> int:
        hmm.emissionprob_ = need_rows(hmm, "emissionprob_", (hmm.n_components, None))
        return 1

    def leaves(self, hmm: Model) -> tuple[Leaf, ...]:
        return (Categorical(n_values=hmm.emissionprob_.shape[1]),)

    def parameters(self, hmm: Model) -> list[Array]:
        return [hmm.emissionprob_]

    def step(self, hmm: Model, counts: list[Array], by_circuit: Callable[[], list[Array]]) -> None:
        if "e" in hmm.params:
            found = np.maximum(hmm.emissionprob_prior - 1 + counts[0][:, :-1], 0)
            total = found.sum(axis=1, keepdims=True)
            kept = hmm.emissionprob_
            hmm.emissionprob_ = np.where(total > 0, found / np.where(total > 0, total, 1), kept)

    def n_free(self, hmm: Model) -> int:
        n, symbols = hmm.emissionprob_.shape
        return int(n * (symbols - 1))

    def draw(self, hmm: Model, state: int, rng: np.random.RandomState) -> Array:
        return np.array([(np.cumsum(hmm.emissionprob_[state]) > rng.random_sample()).argmax()])


class _Poisson(Emission):
    LETTERS: ClassVar[dict[str, str]] = {"l": "lambdas_"}
    WHOLE = True

    def begin(self, hmm: Model, x: Array, rng: np.random.RandomState) -> None:
        if hmm._begins("l", "lambdas_"):
            mean, variance = max(float(np.nanmean(x)), 1e-3), max(float(np.nanvar(x)), 1e-3)
            size = (hmm.n_components, x.shape[1])
            drawn = rng.gamma(shape=mean**2 / variance, scale=variance / mean, size=size)
            hmm.lambdas_ = np.maximum(drawn, 1e-3 * mean)

    def check(self, hmm: Model) -> int:
        rates = need_array(hmm, "lambdas_", (hmm.n_components, None))
        if rates.min() < 0:
            raise ParameterError(f"lambdas_: got a rate of {rates.min():g}, need rates from 0")
        hmm.lambdas_ = rates
        return int(rates.shape[1])

    def leaves(self, hmm: Model) -> tuple[Leaf, ...]:
        return (Poisson(),) * int(hmm.lambdas_.shape[1])

    def parameters(self, hmm: Model) -> list[Array]:
        return list(np.maximum(hmm.lambdas_, _LEAST_RATE).T[:, :, None])

    def step(self, hmm: Model, counts: list[Array], by_circuit: Callable[[], list[Array]]) -> None:
        if "l" in hmm.params:
            seen, n = (np.stack([c[:, k] for c in counts], axis=1) for k in (0, 2))
            whole, mean = n.sum(axis=0), seen / np.where(n > 0, n, 1)
            found = hmm.lambdas_prior + whole * mean
            found = found / np.where(n > 0, hmm.lambdas_weight + whole, 1)
            hmm.lambdas_ = np.where(n > 0, found, hmm.lambdas_)

    def n_free(self, hmm: Model) -> int:
        return int(hmm.lambdas_.size)

    def draw(self, hmm: Model, state: int, rng: np.random.RandomState) -> Array:
        return rng.poisson(hmm.lambdas_[state])


class _OfLeaf(Emission):
    """Any leaf of circuits, for each column; the circuit itself takes the M step."""

    LETTERS: ClassVar[dict[str, str]] = {"e": "emissionparams_"}

    def __init__(self, leaf: Leaf) -> None:
        self.leaf, self.WHOLE = leaf, leaf.TABLE

    def begin(self, hmm: Model, x: Array, rng: np.random.RandomState) -> None:
        if hmm._begins("e", "emissionparams_"):
            shape = (hmm.n_components, self.leaf.n_parameters)
            drawn = [self.leaf.drawn(rng.random_sample(shape), 2.0) for _ in range(x.shape[1])]
            hmm.emissionparams_ = np.stack(drawn)

    def check(self, hmm: Model) -> int:
        shape = (None, hmm.n_components, self.leaf.n_parameters)
        given = need_array(hmm, "emissionparams_", shape)
        checked = [self.leaf.checked(array, hmm.n_components) for array in given]
        hmm.emissionparams_ = np.stack(checked)
        return len(checked)

    def leaves(self, hmm: Model) -> tuple[Leaf, ...]:
        return (self.leaf,) * len(hmm.emissionparams_)

    def parameters(self, hmm: Model) -> list[Array]:
        return list(hmm.emissionparams_)

    def step(self, hmm: Model, counts: list[Array], by_circuit: Callable[[], list[Array]]) -> None:
        if "e" in hmm.params:
            hmm.emissionparams_ = np.stack(by_circuit())

    def n_free(self, hmm: Model) -> int:
        return int(hmm.emissionparams_.size)

    def draw(self, hmm: Model, state: int, rng: np.random.RandomState) -> Array:
        raise ParameterError(
            f"sample: draws of {type(self.leaf).__name__} need a circuit: take "
            "rpukit.circuits.hmm and Circuit.sample"
        )


_NAMED: dict[str, type[Emission]] = {
    "gaussian": _Gaussian,
    "categorical": _Categorical,
    "poisson": _Poisson,
}


def emission_of(given: Any) -> Emission:
    """Find the emission of a name or a leaf."""
    if isinstance(given, Leaf):
        return _OfLeaf(given)
    if not isinstance(given, str) or given not in _NAMED:
        raise ParameterError(
            f"emission: got {given!r}, need one of {', '.join(_NAMED)}, or a leaf such as "
            "rpukit.circuits.Binomial(n_trials=5)"
        )
    return _NAMED[given]()


def need_array(hmm: Model, name: str, shape: tuple[int | None, ...]) -> Array:
    """Read an attribute as finite float64 of a shape, of which None is free."""
    if not hasattr(hmm, name):
        raise ParameterError(f"{name}: not set; call fit, or set it before")
    array = np.asarray(getattr(hmm, name), np.float64)
    fits = array.ndim == len(shape) and all(
        want in (None, got) for want, got in zip(shape, array.shape, strict=True)
    )
    if not fits or not array.size:
        need = tuple("any" if n is None else n for n in shape)
        raise ShapeError(f"{name}: got shape {array.shape}, need {need}")
    if not np.isfinite(array).all():
        raise NonFiniteError(f"{name}: got NaN or infinity, need finite numbers")
    return array


def need_rows(hmm: Model, name: str, shape: tuple[int | None, ...]) -> Array:
    """Read an attribute whose last axis holds probabilities."""
    array = need_array(hmm, name, shape)
    sums = array.sum(axis=-1)
    if array.min() < 0 or np.abs(sums - 1).max() > _NEAR:
        raise ParameterError(
            f"{name}: got numbers from {array.min():g} and sums from {sums.min():g} to "
            f"{sums.max():g}, need probabilities that sum to 1"
        )
    return array


def _k_means(x: Array, n: int, rng: np.random.RandomState) -> Array:
    """Find centres by k-means, from a start by k-means++; sums go sample by sample."""
    known = ~np.isnan(x)
    mean = np.where(known, x, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    x = np.where(known, x, mean)
    centres = x[[rng.randint(len(x))]]
    nearest = _distances(x, centres[0])
    while len(centres) < n:
        along = np.cumsum(nearest)
        drawn = np.searchsorted(along, rng.random_sample() * along[-1], side="right")
        centres = np.concatenate([centres, x[[min(int(drawn), len(x) - 1)]]])
        nearest = np.minimum(nearest, _distances(x, centres[-1]))
    for _ in range(_ROUNDS):
        closest = np.stack([_distances(x, centre) for centre in centres]).argmin(axis=0)
        count = np.bincount(closest, minlength=n)[:, None]
        total = [np.bincount(closest, weights=column, minlength=n) for column in x.T]
        moved = np.where(count > 0, np.stack(total, axis=1) / np.maximum(count, 1), centres)
        if (moved == centres).all():
            break
        centres = moved
    return centres


def _distances(x: Array, centre: Array) -> Array:
    total = np.zeros(len(x))
    for column, value in zip(x.T, centre, strict=True):
        total += (column - value) ** 2
    return total
