"""Checks of `HMM`, and its M step of starts and transitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit._checks import integer, is_number, one_of, real_type
from rpukit.circuits import Leaf, MultivariateNormal
from rpukit.errors import ParameterError, ShapeError
from rpukit.estimators._scikit import validate_data
from rpukit.estimators.hmm_emissions import (
    CategoricalEmission,
    Emission,
    LeafEmission,
    PoissonEmission,
)
from rpukit.estimators.hmm_gaussian import FullEmission, GaussianEmission

__all__ = [
    "DECODERS",
    "checked_settings",
    "emission_of",
    "normalised_counts",
    "read_samples",
    "variances_of",
]

Array = Any
Model = Any  # an `HMM`

FULL = ("full", "tied")
COVARIANCES = ("diag", "spherical", *FULL)
DECODERS = ("viterbi", "map")


_NAMED: dict[str, type[Emission]] = {
    "gaussian": GaussianEmission,
    "categorical": CategoricalEmission,
    "poisson": PoissonEmission,
}


def emission_of(hmm: Model) -> Emission:
    """Return the emission of a model, given by its name or as a leaf."""
    given = hmm.emission
    if isinstance(given, Leaf):
        return LeafEmission(given)
    if not isinstance(given, str) or given not in _NAMED:
        raise ParameterError(
            f"emission: got {given!r}, need one of {', '.join(_NAMED)}, or a leaf such as "
            "rpukit.circuits.Binomial(n_trials=5)"
        )
    if given == "gaussian" and hmm.covariance_type in FULL:
        return FullEmission()
    return _NAMED[given]()


def checked_settings(hmm: Model) -> Emission:
    """Check the settings of an `HMM`; return its emission."""
    integer(hmm.n_components, "n_components", low=1)
    real_type(hmm.dtype)
    one_of(hmm.algorithm, "algorithm", DECODERS)
    one_of(hmm.covariance_type, "covariance_type", COVARIANCES)
    emission = emission_of(hmm)
    for name in ("params", "init_params"):
        if not isinstance(getattr(hmm, name), str):
            raise ParameterError(f"{name}: got {getattr(hmm, name)!r}, need letters")
    if not is_number(hmm.tol):
        raise ParameterError(f"tol: got {hmm.tol!r}, need a number")
    return emission


def read_samples(hmm: Model, X: Any, emission: Emission, *, reset: bool) -> Array:
    """Check samples by the rules of scikit-learn, and those of counts and symbols."""
    finite = "allow-nan"
    x = validate_data(hmm, X, reset=reset, dtype=np.float64, ensure_all_finite=finite)
    with np.errstate(invalid="ignore"):
        if emission.WHOLE and ((x < 0) | (x != np.floor(x)))[~np.isnan(x)].any():
            raise ParameterError(
                f"X: emissions {hmm.emission!r} need integers from 0, or NaN where missing"
            )
    return x


def variances_of(hmm: Model, covars: Any) -> Array:
    """Return variances, (n_components, n_columns); full and tied covariances stay matrices."""
    array = np.asarray(covars, np.float64)
    if hmm.covariance_type in FULL:
        return _matrices_of(hmm, array)
    if array.ndim == 3:
        own = np.diagonal(array, axis1=1, axis2=2).copy()
        if array.shape[1] != array.shape[2] or np.count_nonzero(array) > np.count_nonzero(own):
            raise ParameterError(
                f"covars_: got matrices of shape {array.shape}, need diagonal ones"
            )
        array = own
    if array.ndim == 1 and hmm.covariance_type == "spherical":
        columns = np.shape(getattr(hmm, "means_", np.zeros((1, 1))))[1]
        array = np.repeat(array[:, None], columns, axis=1)
    if array.ndim != 2 or len(array) != hmm.n_components:
        raise ShapeError(
            f"covars_: got shape {array.shape}, need ({hmm.n_components}, n_features)"
        )
    if not np.isfinite(array).all() or not array.min() > 0:
        raise ParameterError("covars_: got a variance that is not positive and finite")
    return array


def _matrices_of(hmm: Model, array: Array) -> Array:
    """Check covariances, (n_components, n_columns, n_columns); tied ones may be one matrix."""
    if hmm.covariance_type == "tied" and array.ndim == 2:
        array = np.tile(array, (hmm.n_components, 1, 1))
    n, d = hmm.n_components, array.shape[-1] if array.ndim else 0
    if array.shape != (n, d, d) or not d:
        raise ShapeError(f"covars_: got shape {array.shape}, need ({n}, n_features, n_features)")
    if not np.isfinite(array).all():
        raise ParameterError("covars_: got NaN or infinity, need finite numbers")
    MultivariateNormal(n_variables=d).packed(np.zeros((n, d)), array)  # symmetric and definite
    return array.copy()


def normalised_counts(old: Array, counts: Array, prior: Any) -> Array:
    """Normalise counts and a prior; a row without any stays as it was."""
    found = np.where(old == 0, 0, np.maximum(np.asarray(prior) - 1 + counts, 0))
    total = found.sum(axis=-1, keepdims=True)
    return np.where(total > 0, found / np.where(total > 0, total, 1), old)
