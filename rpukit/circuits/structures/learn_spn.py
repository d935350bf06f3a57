"""Structure learning from data: LearnSPN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit._checks import OneOf, Real, Whole, takes
from rpukit.circuits.graph.leaves import Categorical, Leaf
from rpukit.circuits.graph.nodes import InputNodes, Nodes, SumNodes, inputs, product, sum
from rpukit.circuits.structures.chow_liu import _samples, mutual_information
from rpukit.circuits.structures.fitted import fitted
from rpukit.circuits.structures.hmm import _leaf_of
from rpukit.circuits.structures.trees import (
    codes_of,
    fit_tree,
    hard_clusters,
    indicators,
    inner_edges,
)
from rpukit.errors import ParameterError
from rpukit.random import Stream

__all__ = ["learn_spn"]

Array = Any


@dataclass(slots=True)
class _Search:
    """Data and settings of a search for a structure."""

    data: Array
    codes: Array
    sizes: Array
    leaf: Any
    min_samples: int
    p_value: float
    n_clusters: int
    pseudocount: float
    shared: dict[int, InputNodes] | None  # indicators, where the leaves are trees
    n_split: int = 0

    def nodes(self, rows: Array, variables: Array, stream: Stream, *, split: bool) -> Nodes:
        """Make one node for the samples of some rows; ``split`` by variables was tried already."""
        if len(variables) == 1 or len(rows) < self.min_samples:
            return self.bottom(rows, variables)
        if not split:
            groups = self.independent(rows, variables)
            if groups.max() > 0:
                parts = [
                    self.nodes(rows, variables[groups == k], stream, split=True)
                    for k in range(groups.max() + 1)
                ]
                return _product(parts)
        own, self.n_split = stream.child(self.n_split), self.n_split + 1
        codes, sizes = self.codes[np.ix_(rows, variables)], self.sizes[variables]
        labels = hard_clusters(codes, sizes, self.n_clusters, own)
        found, labels = np.unique(labels, return_inverse=True)
        if len(found) == 1:
            return self.bottom(rows, variables)
        counts = np.bincount(labels)
        parts = [
            self.nodes(rows[labels == k], variables, stream, split=False)
            for k in range(len(found))
        ]
        return sum(*parts, n_nodes=1, parameters=(counts / counts.sum())[None])

    def independent(self, rows: Array, variables: Array) -> Array:
        """Group variables: those of different groups pass a G-test of independence."""
        from scipy.sparse.csgraph import connected_components
        from scipy.special import chdtrc

        codes = self.codes[np.ix_(rows, variables)]
        g = 2 * len(rows) * mutual_information(codes)
        seen = np.array([len(np.unique(column)) for column in codes.T])
        freedom = np.maximum(np.outer(seen - 1, seen - 1), 1)
        depends = (chdtrc(freedom, g) < self.p_value) & (np.outer(seen, seen) > seen)
        groups: Array = connected_components(depends & depends.T, directed=False)[1]
        return groups

    def bottom(self, rows: Array, variables: Array) -> Nodes:
        """Make the nodes of a slice that is not split further."""
        if self.shared is not None:
            codes, sizes = self.codes[np.ix_(rows, variables)], self.sizes[variables]
            tree = fit_tree(codes, sizes, None, self.pseudocount)
            return tree.circuit(variables.tolist(), self.shared)
        return _product([self.one(rows, int(v)) for v in variables])

    def one(self, rows: Array, var: int) -> Nodes:
        """Make one leaf of one variable."""
        leaf = _leaf_of(self.leaf, var)
        parameters = fitted(leaf, self.data[rows, var], self.pseudocount)
        return inputs(var, leaf, 1, parameters=parameters)


@takes(
    min_samples=Whole(2),
    p_value=Real(0, 1),
    n_clusters=Whole(2),
    pseudocount=Real(0),
    n_bins=Whole(2),
    leaves=OneOf(("trees", "independent")),
    seed=Whole(0),
)
def learn_spn(
    x: Any,
    leaf: Leaf | list[Leaf] | None = None,
    *,
    min_samples: int = 200,
    p_value: float = 1e-6,
    n_clusters: int = 2,
    leaves: str = "independent",
    pseudocount: float = 1.0,
    n_bins: int = 8,
    seed: int = 0,
) -> SumNodes:
    """Learn a structure and its parameters from data by LearnSPN.

    Parameters
    ----------
    x : array, shape (n_sample, n_variables)
        Complete data.
    leaf : Leaf or list of Leaf, optional
        Default: `Categorical` with the values that each variable has. Numbers need one, such as
        `Gaussian`.
    min_samples : int
        A slice of the data with fewer samples is not split.
    p_value : float
        Variables count as dependent if the G-test of their independence gives less.
    n_clusters : int
        Most clusters of samples that a slice is split into.
    leaves : {"independent", "trees"}
        What a slice that is not split becomes: independent variables, or a Chow-Liu tree, for
        whole numbers from 0 to 255 and without ``leaf``.
    pseudocount : float
        Added to the counts of a leaf or a table, in equal parts.
    n_bins : int
        Tests and clusters see a variable of numbers, or of more than 256 values, by its quantiles.
    seed : int
        Of the clusters.

    Returns
    -------
    SumNodes
        One node, with parameters; `Circuit.fit` makes them better.

    Raises
    ------
    ShapeError, ParameterError, NonFiniteError

    Notes
    -----
    Variables that a G-test holds for independent, in connected components, become a product;
    else the samples are clustered by hard EM of a mixture of independent variables and become a
    sum, whose weights are the shares of the clusters. The result is the same for the same seed.
    Source: Gens, Domingos, "Learning the structure of sum-product networks", ICML 2013; two
    clusters at a time and trees at the bottom: Vergari, Di Mauro, Esposito, "Simplifying,
    regularizing and strengthening sum-product network structure learning", ECML PKDD 2015.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.repeat(np.random.default_rng(0).integers(0, 2, (500, 2)), 3, axis=1)
    >>> pc = rk.Circuit(rk.circuits.learn_spn(x))
    >>> bool(pc.log_likelihood(x).mean() > -1.6)  # two free bits: -1.39
    True
    """
    data = _samples(x)
    whole = data.dtype.kind in "iub" or bool((data == np.floor(data)).all())
    coded = whole and data.min() >= 0 and data.max() < 256
    if leaf is None and not coded:
        raise ParameterError("leaf: x holds other numbers than 0 to 255, name leaves for them")
    if leaves == "trees" and (leaf is not None or not coded):
        raise ParameterError(
            'leaves: got "trees" with leaves of other kinds or numbers, need whole numbers from 0 '
            "to 255 and no leaf"
        )
    codes, sizes = codes_of(data) if coded else _quantiles(data, n_bins)
    kinds = [Categorical(n_values=int(n)) for n in sizes] if leaf is None else leaf
    shared = indicators(sizes) if leaves == "trees" else None
    numbers = (min_samples, p_value, n_clusters, pseudocount)
    search = _Search(data, codes, sizes, kinds, *numbers, shared)
    rows, variables = np.arange(len(data)), np.arange(data.shape[1])
    top = search.nodes(rows, variables, Stream.from_seed(seed), split=False)
    return top if isinstance(top, SumNodes) else sum(top, n_nodes=1)


def _quantiles(data: Array, n_bins: int) -> tuple[Array, Array]:
    """Number the quantiles that values lie in, and the bins of each variable."""
    codes = np.empty(data.shape, np.int64)
    for v, column in enumerate(data.T):
        codes[:, v] = np.searchsorted(inner_edges(column, n_bins), column, side="right")
    return codes, codes.max(axis=0) + 1


def _product(parts: list[Nodes]) -> Nodes:
    return product(*parts) if len(parts) > 1 else parts[0]
