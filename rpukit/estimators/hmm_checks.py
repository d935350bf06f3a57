"""Checks of `HMM`, and its M step of starts and transitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit._checks import integer, is_number, one_of, real_type
from rpukit.errors import ParameterError, ShapeError
from rpukit.estimators._scikit import validate_data
from rpukit.estimators.hmm_emissions import Emission, emission_of

__all__ = ["DECODERS", "checked_settings", "normalised_counts", "read_samples", "variances_of"]

Array = Any
Model = Any  # an `HMM`

COVARIANCES = ("diag", "spherical")
DECODERS = ("viterbi", "map")


def checked_settings(hmm: Model) -> Emission:
    """Check the settings of an `HMM`; return its emission."""
    integer(hmm.n_components, "n_components", low=1)
    real_type(hmm.dtype)
    one_of(hmm.algorithm, "algorithm", DECODERS)
    one_of(hmm.covariance_type, "covariance_type", COVARIANCES)
    emission = emission_of(hmm.emission)
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
    """Read covariances as variances, (n_components, n_columns)."""
    array = np.asarray(covars, np.float64)
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


def normalised_counts(old: Array, counts: Array, prior: Any) -> Array:
    """Normalise counts and a prior; a row without any stays as it was."""
    found = np.where(old == 0, 0, np.maximum(np.asarray(prior) - 1 + counts, 0))
    total = found.sum(axis=-1, keepdims=True)
    return np.where(total > 0, found / np.where(total > 0, total, 1), old)
