"""Emissions of `HMM`: leaves, initial parameters, M steps and draws.

The formulas and their priors are those of hmmlearn (Huang, Acero, Hon, "Spoken Language
Processing", 2001, pp. 443 to 445).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from rpukit.circuits import Categorical, Leaf, Poisson
from rpukit.errors import NonFiniteError, ParameterError, ShapeError

__all__ = [
    "CategoricalEmission",
    "Emission",
    "LeafEmission",
    "PoissonEmission",
    "need_array",
    "need_rows",
]

Array = Any
Model = Any  # an `HMM`, which holds the parameters

_LEAST_RATE = 1e-30
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


class CategoricalEmission(Emission):
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


class PoissonEmission(Emission):
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


class LeafEmission(Emission):
    """Any leaf of circuits, for all columns; the circuit itself takes the M step."""

    LETTERS: ClassVar[dict[str, str]] = {"e": "emissionparams_"}

    def __init__(self, leaf: Leaf) -> None:
        self.leaf, self.WHOLE = leaf, leaf.TABLE

    def begin(self, hmm: Model, x: Array, rng: np.random.RandomState) -> None:
        if hmm._begins("e", "emissionparams_"):
            shape, each = (hmm.n_components, self.leaf.n_parameters), self.leaf.n_columns
            if x.shape[1] % each:
                raise ShapeError(f"X: got {x.shape[1]} columns, need a multiple of {each}")
            n = x.shape[1] // each
            drawn = [self.leaf.drawn(rng.random_sample(shape), 2.0) for _ in range(n)]
            hmm.emissionparams_ = np.stack(drawn)

    def check(self, hmm: Model) -> int:
        shape = (None, hmm.n_components, self.leaf.n_parameters)
        given = need_array(hmm, "emissionparams_", shape)
        checked = [self.leaf.checked(array, hmm.n_components) for array in given]
        hmm.emissionparams_ = np.stack(checked)
        return len(checked) * self.leaf.n_columns

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
