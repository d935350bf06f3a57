"""Mixtures of Chow-Liu trees as an estimator; imported when first used."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from rpukit._checks import integer, number
from rpukit.circuits import Circuit
from rpukit.circuits.graph.nodes import sum as sum_nodes
from rpukit.circuits.structures.trees import indicators, inner_edges, learn_trees
from rpukit.elementwise import random_fill
from rpukit.estimators._scikit import (
    BaseEstimator,
    MeanScore,
    check_is_fitted,
    check_random_state,
    validate_data,
)
from rpukit.random import Stream

__all__ = ["ChowLiuMixture"]

Array = Any
_MOST_VALUES = 256


class ChowLiuMixture(MeanScore, BaseEstimator):  # type: ignore[misc]
    """Density estimation by a mixture of Chow-Liu trees.

    Parameters
    ----------
    n_components : int
        Trees.
    n_epochs : int
        Most steps of EM; each finds new trees.
    pseudocount : float
        Added to each table of two columns of a tree, in equal parts.
    tol : float
        EM ends when a step gains less of the mean log-likelihood, in nats.
    n_bins : int
        Of columns of numbers: they become histograms of that many equally full bins.
    random_state : int, RandomState or None

    Attributes
    ----------
    circuit_ : rpukit.Circuit
        Over values, and over bins of columns of numbers.
    trees_ : list of Tree
        With ``parents`` and ``tables``.
    weights_ : array, shape (n_trees,)
    n_components_ : int
        Trees that samples belong to.
    trace_ : list of float
        Mean log-likelihood of each step of EM, of values or bins.
    n_features_in_ : int

    Notes
    -----
    Columns of whole numbers from 0 to 255 are taken as they are. Data must be complete. A value
    outside of those of the fit has the probability p / (k (n + p)), with n samples, k values or
    bins and p the pseudocount, and the rest of its sample is scored as usual.
    Source: Meila, Jordan, "Learning with mixtures of trees", JMLR 1, 1 (2000).

    Examples
    --------
    >>> import numpy as np
    >>> from rpukit.estimators import ChowLiuMixture
    >>> x = np.random.default_rng(0).integers(0, 2, (200, 5)).astype(float)
    >>> ChowLiuMixture(3, random_state=0).fit(x).score_samples(x).shape
    (200,)
    """

    _n_drawn: int

    def __init__(
        self,
        n_components: int = 8,
        *,
        n_epochs: int = 30,
        pseudocount: float = 1.0,
        tol: float = 1e-4,
        n_bins: int = 16,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_epochs = n_epochs
        self.pseudocount = pseudocount
        self.tol = tol
        self.n_bins = n_bins
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn trees and their weights.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
        y : None
            Not used.

        Returns
        -------
        ChowLiuMixture
            The estimator.

        Raises
        ------
        ParameterError
        ValueError
            From scikit-learn's check of X.
        """
        n_components = integer(self.n_components, "n_components", low=1, what="trees")
        n_epochs = integer(self.n_epochs, "n_epochs", low=0, what="steps of EM")
        n_bins = integer(self.n_bins, "n_bins", low=1, high=_MOST_VALUES, what="bins")
        pseudocount = number(self.pseudocount, "pseudocount", low=0)
        tol = number(self.tol, "tol")
        data = validate_data(self, X, dtype=np.float64)
        edges = [_edges(column, n_bins) for column in data.T]
        sizes = np.array([_size(column, e) for column, e in zip(data.T, edges, strict=True)])
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        stream = Stream.from_seed(seed)
        codes = _coded(data, edges)
        numbers = (n_components, n_epochs, pseudocount, tol)
        trees, shares, trace = learn_trees(codes, sizes, *numbers, stream)
        leaves, variables = indicators(sizes), range(len(sizes))
        made = [tree.circuit(variables, leaves) for tree in trees]
        root = sum_nodes(*made, n_nodes=1, parameters=shares[None, :])
        with np.errstate(divide="ignore"):  # without a pseudocount unseen values are impossible
            unseen = np.log(pseudocount / (sizes * (len(data) + pseudocount)))
        self.__dict__.update(
            _edges=edges,
            _sizes=sizes,
            _log_unseen=unseen,
            _stream=stream.child(1),
            _n_drawn=0,
            circuit_=Circuit(root, seed=seed, dtype="float64"),
            trees_=trees,
            weights_=shares,
            n_components_=len(trees),
            trace_=trace,
        )
        return self

    def score_samples(self, X: Any) -> Array:
        """Compute the log-likelihood of each sample, nats.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)

        Returns
        -------
        array, shape (n_samples,)
        """
        check_is_fitted(self)
        data = validate_data(self, X, reset=False, dtype=np.float64)
        coded, found = np.empty(data.shape), np.zeros(len(data))
        for v, (column, edges) in enumerate(zip(data.T, self._edges, strict=True)):
            if edges is None:
                inside = (column >= 0) & (column < self._sizes[v]) & (column == np.floor(column))
                coded[:, v] = column
            else:
                inside = (column >= edges[0]) & (column <= edges[-1])
                bins = _bins(column, edges)
                coded[:, v] = bins
                found -= np.where(inside, np.log(np.diff(edges))[bins], 0.0)
            found += np.where(inside, 0.0, self._log_unseen[v])
            coded[~inside, v] = np.nan
        return found + self.circuit_.log_likelihood(coded)

    def sample(self, n_samples: int = 1) -> Array:
        """Draw samples; within a bin all numbers are equally probable.

        Parameters
        ----------
        n_samples : int

        Returns
        -------
        array, shape (n_samples, n_features)
        """
        check_is_fitted(self)
        drawn = self.circuit_.sample(n_samples).astype(np.float64)
        own = self._stream.child(self._n_drawn)
        self._n_drawn += 1
        u = random_fill(own, drawn.shape, "uniform").astype(np.float64)
        for v, edges in enumerate(self._edges):
            if edges is not None:
                k = drawn[:, v].astype(np.int64)
                drawn[:, v] = edges[k] + u[:, v] * np.diff(edges)[k]
        return drawn


def _edges(column: Array, n_bins: int) -> Array | None:
    """Edges of the bins of a column of numbers; None for one of whole numbers."""
    whole = (column == np.floor(column)).all()
    if whole and column.min() >= 0 and column.max() < _MOST_VALUES:
        return None
    low, high = float(column.min()), float(column.max())
    if not high > low:  # one value: a narrow bin around it
        half = 1e-6 * (abs(low) or 1.0)
        return np.array([low - half, low + half])
    return np.concatenate([[low], inner_edges(column, n_bins), [np.nextafter(high, np.inf)]])


def _size(column: Array, edges: Array | None) -> int:
    return int(column.max()) + 1 if edges is None else len(edges) - 1


def _bins(column: Array, edges: Array) -> Array:
    return np.clip(np.searchsorted(edges, column, side="right") - 1, 0, len(edges) - 2)


def _coded(data: Array, edges: list[Array | None]) -> Array:
    """Number the values, or the bins that they lie in."""
    pairs = zip(data.T, edges, strict=True)
    columns = [column if e is None else _bins(column, e) for column, e in pairs]
    return np.stack(columns, axis=1).astype(np.int64)
