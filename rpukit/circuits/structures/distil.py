"""Latent variable distillation: initial parameters from clusters of the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit._checks import Real, Whole, real_array, takes
from rpukit.circuits.graph.nodes import InputNodes, Nodes, ProductNodes, SumNodes
from rpukit.circuits.structures.chow_liu import _samples
from rpukit.circuits.structures.fitted import fitted
from rpukit.circuits.structures.trees import codes_of, hard_clusters
from rpukit.elementwise import random_fill
from rpukit.errors import ShapeError, StructureError
from rpukit.random import Stream

__all__ = ["distil"]

Array = Any
_ROUNDS = 30  # of k-means


@takes(pseudocount=Real(0), seed=Whole(0))
def distil(
    root: SumNodes, x: Any, *, embedding: Any = None, pseudocount: float = 1.0, seed: int = 0
) -> SumNodes:
    """Set the parameters of a tree of hidden variables from clusters of the samples.

    Parameters
    ----------
    root : SumNodes
        A circuit whose hidden variables form a tree, such as that of `hclt`.
    x : array, shape (n_sample, n_variables)
        Complete data.
    embedding : array, shape (n_sample, n_features), optional
        What another model says of each sample: k-means clusters of it are the states of every
        hidden variable. Default: the variables around a hidden variable in the tree, clustered
        for each of them.
    pseudocount : float
        Added to the counts of the weights of a node, and of a leaf, in equal parts.
    seed : int
        Of the clusters.

    Returns
    -------
    SumNodes
        ``root``; `Circuit` starts from its parameters.

    Raises
    ------
    StructureError
        If hidden variables do not form a tree.
    ShapeError, ParameterError, NonFiniteError

    Notes
    -----
    With a state of each hidden variable for each sample, weights are counts of pairs of states,
    and leaves are fitted to the samples of a state. EM goes on from there. This is the first stage
    of the method, on arrays; embeddings by networks and their training are the user's.
    Source: Liu, Zhang, Van den Broeck, "Scaling up probabilistic circuits by latent variable
    distillation", ICLR 2023.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.repeat(np.random.default_rng(0).integers(0, 2, (500, 2)), 3, axis=1)
    >>> root = rk.circuits.hclt(x, 4)
    >>> before = rk.Circuit(root, seed=0).log_likelihood(x).mean()
    >>> bool(rk.Circuit(rk.circuits.distil(root, x)).log_likelihood(x).mean() > before)
    True
    """
    data = _samples(x)
    n_variable = max(root.variables) + 1
    if data.shape[1] != n_variable:
        raise ShapeError(f"x: got shape {data.shape}, need (n_sample, {n_variable})")
    given = None
    if embedding is not None:
        given = np.array(real_array(embedding, "embedding"))
        if given.ndim != 2 or len(given) != len(data):
            raise ShapeError(f"embedding: got shape {given.shape}, need ({len(data)}, n_features)")
    search = _Search(data, given, pseudocount, Stream.from_seed(seed))
    waiting: list[tuple[Nodes, Array, list[int]]] = [(root, np.zeros(len(data), np.int64), [])]
    while waiting:
        nodes, states, near = waiting.pop()
        if isinstance(nodes, InputNodes):
            search.fit_leaves(nodes, states)
        elif isinstance(nodes, SumNodes):
            below = search.fit_weights(nodes, states, near)
            waiting.append((nodes.children[0], below, near))
        else:
            own = _direct(nodes)
            waiting += [(child, states, own) for child in nodes.children]
    return root


class _Search:
    """Data, and what was done with them so far."""

    def __init__(self, data: Array, given: Array | None, pseudocount: float, stream: Stream):
        self.data, self.given, self.pseudocount = data, given, pseudocount
        self.stream, self.seen = stream, set[int]()
        self.shared: dict[int, Array] = {}  # labels of the embedding for a number of clusters

    def fit_weights(self, nodes: SumNodes, states: Array, near: list[int]) -> Array:
        """Set the weights of a sum from pairs of states; give the states of its child."""
        child = nodes.children[0]
        self._once(nodes, alone=len(nodes.children) == 1)
        if isinstance(child, ProductNodes):
            self._once(child, alone=(child.edges == np.arange(child.n_node)[:, None]).all())
        below = self.labels(sorted({*near, *_around(child)}), child.n_node)
        joint = np.zeros((nodes.n_node, child.n_node))
        np.add.at(joint, (states, below), 1)
        nodes.set_parameters(joint + max(self.pseudocount / child.n_node, 1e-12))
        return below

    def fit_leaves(self, nodes: InputNodes, states: Array) -> None:
        """Fit leaves to the samples of their states; a state without samples takes all."""
        self._once(nodes, alone=True)
        if len(nodes.columns) > 1:
            raise StructureError(f"root: {nodes!r} is of several variables, need leaves of one")
        found = []
        for k in range(nodes.n_node):
            column = self.data[states == k, nodes.var]
            column = column if len(column) else self.data[:, nodes.var]
            found.append(fitted(nodes.leaf, column, self.pseudocount))
        if found[0] is not None:
            nodes.set_parameters(np.concatenate(found))

    def labels(self, variables: list[int], n: int) -> Array:
        """Cluster the samples by the embedding, or by some variables."""
        if n == 1:
            return np.zeros(len(self.data), np.int64)
        if self.given is None:
            return _clusters(self.data[:, variables], n, self.stream.child(len(self.seen)))
        if n not in self.shared:
            self.shared[n] = _means(self.given, n, self.stream)
        return self.shared[n]

    def _once(self, nodes: Nodes, *, alone: bool) -> None:
        """Check that nodes have parameters of their own and one place in the tree."""
        if not alone or nodes.source is not nodes or nodes.number in self.seen:
            raise StructureError(
                f"root: {nodes!r} is tied, has several parents, or mixes several vectors: need a "
                "tree of hidden variables, such as that of rk.circuits.hclt"
            )
        self.seen.add(nodes.number)


def _direct(nodes: Nodes) -> list[int]:
    """Variables of the leaves right below nodes, or of a vector of leaves itself."""
    if isinstance(nodes, InputNodes):
        return [nodes.var]
    return [child.var for child in nodes.children if isinstance(child, InputNodes)]


def _around(nodes: Nodes) -> list[int]:
    """Variables of the leaves of a vector and of the hidden variables below it."""
    below = [c.children[0] for c in nodes.children if isinstance(c, SumNodes)]
    return [v for one in (nodes, *below) for v in _direct(one)]


def _clusters(data: Array, n: int, stream: Stream) -> Array:
    """Cluster by hard EM of whole numbers, or by k-means of others."""
    whole = (data == np.floor(data)).all() and data.min() >= 0 and data.max() < 256
    if whole:
        return hard_clusters(*codes_of(data), n, stream)
    return _means(data, n, stream)


def _means(data: Array, n: int, stream: Stream) -> Array:
    """Labels of k-means of standardised features, from samples that are drawn."""
    data = data.astype(np.float64)
    spread = data.std(axis=0)
    scaled = (data - data.mean(axis=0)) / np.where(spread > 0, spread, 1)
    order = np.argsort(random_fill(stream.child(0), (len(data),), "bits"), kind="stable")
    centres, labels = scaled[order[:n]].copy(), np.zeros(len(data), np.int64)
    for _ in range(_ROUNDS):
        far = [((scaled - centre) ** 2).sum(axis=1) for centre in centres]
        labels = np.argmin(far, axis=0)
        for k in range(len(centres)):
            if (labels == k).any():
                centres[k] = scaled[labels == k].mean(axis=0)
    return labels
