"""Parameters of single leaves by maximum likelihood of a column of data."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit._exact.twins import mirror
from rpukit.circuits.graph.densities import Gaussian, Poisson
from rpukit.circuits.graph.evaluated import FunctionLeaf, functions_of
from rpukit.circuits.graph.leaves import (
    Bernoulli,
    Binomial,
    Categorical,
    DiscreteLogistic,
    Indicator,
    Leaf,
    MaskedCategorical,
)
from rpukit.errors import ParameterError

__all__ = ["fitted"]

Array = Any

_ROUNDS = 40  # of EM, for functions whose statistics are about the parameters
_SCALE = 1.8137993642342178  # standard deviation of a logistic distribution of scale 1


def fitted(leaf: Leaf, column: Array, pseudocount: float) -> Array:
    """Fit one node of a leaf to a column; None for an `Indicator`, which learns nothing.

    Parameters
    ----------
    leaf : Leaf
    column : array, shape (n_sample,)
    pseudocount : float
        Added to the counts of values, in equal parts.

    Returns
    -------
    array, shape (1, n_parameters), float64, or None
    """
    if isinstance(leaf, Indicator):
        return None
    if isinstance(leaf, Categorical):
        low, high = column.min(), column.max()
        if not 0 <= low <= high < leaf.n_values:
            raise ParameterError(
                f"x: got {low} to {high} for a leaf with values from 0 to {leaf.n_values - 1}"
            )
        counts = np.bincount(column.astype(np.int64), minlength=leaf.n_values).astype(np.float64)
        allowed = np.ones(leaf.n_values)
        if isinstance(leaf, MaskedCategorical):
            allowed = np.zeros(leaf.n_values)
            allowed[list(leaf.allowed)] = 1
        counts = counts * allowed + pseudocount / allowed.sum() * allowed
        return (counts / counts.sum())[None]
    mean = float(column.mean())
    if isinstance(leaf, (Bernoulli, Binomial)):
        hits, n = mean * len(column), len(column) * (leaf.support - 1)
        return np.array([[(hits + 0.5 * pseudocount) / (n + pseudocount)]])
    if isinstance(leaf, Gaussian):
        return np.array([[mean, max(float(column.std()), leaf.min_std)]])
    if isinstance(leaf, Poisson):
        return np.array([[max(mean, 1e-6)]])
    if isinstance(leaf, DiscreteLogistic):
        middles = leaf.low + (column + 0.5) * leaf.constants()[1]
        std = max(float(middles.std()), leaf.min_std)
        return np.array([[float(middles.mean()), std / _SCALE]])
    return _by_functions(leaf, column) if isinstance(leaf, FunctionLeaf) else None


def _by_functions(leaf: FunctionLeaf, column: Array) -> Array:
    """Take steps of EM from the middle of the parameters that a leaf draws."""
    numbers = np.ascontiguousarray(column, dtype=np.float64)[:, None]
    found = np.array(leaf.drawn(np.full((1, leaf.n_parameters), 0.5), 0.0), np.float64)
    add = mirror("rpukit.circuits._mirror.evaluated", np.float64).leaf_statistic
    none, ids = np.zeros(1, np.int64), np.zeros(1, np.int32)
    fixed = (functions_of(leaf.FUNCTION)[1], np.array(leaf.constants()))
    sizes = (leaf.n_parameters, leaf.N_STATISTICS)
    tables = (none, none, np.array([0, 1]), ids, ids)
    for _ in range(_ROUNDS):
        totals = np.zeros((2, leaf.n_statistics + 1))
        flows = np.ones_like(numbers)
        add(0, 1, 0, *fixed, *sizes, *tables, numbers, found.reshape(-1), flows, *totals)
        new = leaf.maximise(found, totals.sum(axis=0)[None, :-1])
        if not np.isfinite(new).all() or (new == found).all():
            break
        found = new
    return found
