"""Gaussian emissions of `HMM`: diagonal, spherical, full and tied covariances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from rpukit.circuits import Gaussian, Leaf, MultivariateNormal
from rpukit.errors import ShapeError
from rpukit.estimators.hmm_emissions import Emission, need_array

__all__ = ["FullEmission", "GaussianEmission"]

Array = Any
Model = Any  # an `HMM`, which holds the parameters

_LEAST_VARIANCE = 1e-12
_ROUNDS = 50  # of k-means


class GaussianEmission(Emission):
    """Columns that are independent given the state."""

    LETTERS: ClassVar[dict[str, str]] = {"m": "means_", "c": "covars_"}

    def begin(self, hmm: Model, x: Array, rng: np.random.RandomState) -> None:
        if hmm._begins("m", "means_"):
            hmm.means_ = k_means(x, hmm.n_components, rng)
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
            raise ShapeError(f"covars_: got variances of shape {got}, means_ need {shape}")
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


class FullEmission(Emission):
    """All columns together, with a covariance of each state or, tied, one of all."""

    LETTERS: ClassVar[dict[str, str]] = {"m": "means_", "c": "covars_"}

    def begin(self, hmm: Model, x: Array, rng: np.random.RandomState) -> None:
        if hmm._begins("m", "means_"):
            hmm.means_ = k_means(x, hmm.n_components, rng)
        if hmm._begins("c", "covars_"):
            about = x - np.nanmean(x, axis=0)
            about = np.where(np.isnan(about), 0.0, about)
            products = [(about * column[:, None]).sum(axis=0) for column in about.T]
            covariance = np.stack(products) / max(len(x) - 1, 1)
            covariance = covariance + hmm.min_covar * np.eye(x.shape[1])
            hmm._variances = np.tile(covariance, (hmm.n_components, 1, 1))

    def check(self, hmm: Model) -> int:
        means = need_array(hmm, "means_", (hmm.n_components, None))
        hmm.means_, shape = means, (*means.shape, means.shape[1])
        got = getattr(hmm, "_variances", np.zeros(0)).shape
        if got != shape:
            raise ShapeError(f"covars_: got shape {got or 'none'}, need {shape} as of means_")
        return int(shape[1])

    def leaves(self, hmm: Model) -> tuple[Leaf, ...]:
        n, least = int(hmm.means_.shape[1]), float(np.sqrt(_LEAST_VARIANCE))
        return (MultivariateNormal(n_variables=n, min_std=least),)

    def parameters(self, hmm: Model) -> list[Array]:
        (leaf,) = self.leaves(hmm)
        made: list[Array] = [leaf._made(hmm.means_, hmm._variances)]  # type: ignore[attr-defined]
        return made

    def step(self, hmm: Model, counts: list[Array], by_circuit: Callable[[], list[Array]]) -> None:
        (d, old), (found,) = (hmm.means_.shape[1], hmm.means_), counts
        n, first = found[:, :1], found[:, 1 : d + 1]
        second = np.zeros((len(n), d, d))
        rows, columns = np.tril_indices(d)
        second[:, rows, columns] = second[:, columns, rows] = found[:, d + 1 : -1]
        prior, weight, reached = hmm.means_prior, hmm.means_weight, n > 0
        if "m" in hmm.params:
            whole = np.where(reached, weight + n, 1.0)
            hmm.means_ = np.where(reached, old + (first + weight * (prior - old)) / whole, old)
        if "c" in hmm.params:  # statistics are about the old means
            by, far = hmm.means_ - old, hmm.means_ - prior
            crossed = _outer(first, by)
            about = second - crossed - crossed.swapaxes(1, 2) + n[:, :, None] * _outer(by, by)
            about = about + weight * _outer(far, far)
            more, n = np.maximum(hmm.covars_weight - d, 0), n[:, :, None]
            if hmm.covariance_type == "tied":
                about = np.broadcast_to(np.add.accumulate(about)[-1], about.shape)
                n = np.broadcast_to(np.add.accumulate(n)[-1], n.shape)
            made = (hmm.covars_prior + about) / np.maximum(more + n, 1e-5)
            hmm._variances = np.where(n > 0, made, hmm._variances)

    def n_free(self, hmm: Model) -> int:
        n, d = hmm.means_.shape
        return int(n * d + (1 if hmm.covariance_type == "tied" else n) * d * (d + 1) // 2)

    def draw(self, hmm: Model, state: int, rng: np.random.RandomState) -> Array:
        (leaf,), (own,) = self.leaves(hmm), self.parameters(hmm)
        factor = leaf._factor(own[state : state + 1])[0]  # type: ignore[attr-defined]
        x = hmm.means_[state]
        for column, noise in zip(factor.T, rng.normal(size=len(x)), strict=True):
            x = x + column * noise
        return x


def _outer(a: Array, b: Array) -> Array:
    return a[:, :, None] * b[:, None, :]


def k_means(x: Array, n: int, rng: np.random.RandomState) -> Array:
    """Find centres by k-means from a k-means++ start; sums are in the order of samples."""
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
