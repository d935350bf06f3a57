"""Chow-Liu trees as circuits, and mixtures of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit._checks import Real, Whole, need_memory, real_array, takes
from rpukit.circuits.graph.leaves import Indicator
from rpukit.circuits.graph.nodes import InputNodes, Nodes, SumNodes, inputs, product, sum
from rpukit.circuits.structures.chow_liu import _added, _samples, chow_liu_tree
from rpukit.elementwise import exp, log, random_fill
from rpukit.errors import ParameterError, ShapeError
from rpukit.random import Stream

__all__ = [
    "Tree",
    "chow_liu",
    "chow_liu_mixture",
    "codes_of",
    "fit_tree",
    "hard_clusters",
    "indicators",
    "inner_edges",
    "learn_trees",
]

Array = Any

_GRID = float(1 << 20)  # weights are multiples of 1 / _GRID: their sums are exact in any order
_STEPS = float(1 << 24)  # logarithms, too, are such multiples
_ROUNDS = 30  # most of hard EM
_LOOKED_AT = 4096  # samples among which those that begin clusters are drawn
_MOST_VALUES = 256


class Tree:
    """Chow-Liu tree of integers: parents, and tables P(value | value of the parent).

    Attributes
    ----------
    parents : array of int, shape (n_variables,)
        -1 for the root.
    tables : array, shape (n_variables, n_values, n_values), float64
        [v, value of the parent, value]; the root has one row, for any parent.
    """

    def __init__(self, parents: Array, tables: Array) -> None:
        self.parents, self.tables = parents, tables

    def log_likelihood(self, codes: Array) -> Array:
        """Compute log p of each sample, variables added in ascending order."""
        n, logs = len(codes), log(self.tables)
        whole = np.zeros(n)
        for v, parent in enumerate(self.parents):
            above = codes[:, parent] if parent >= 0 else np.zeros(n, np.int64)
            whole += logs[v, above, codes[:, v]]
        return whole

    def circuit(self, variables: Sequence[int], leaves: dict[int, InputNodes]) -> SumNodes:
        """Make nodes of the tree; ``leaves`` holds the indicators of each variable."""
        children: list[list[int]] = [[] for _ in self.parents]
        for v, parent in enumerate(self.parents):
            if parent >= 0:
                children[parent].append(v)
        order = [int(np.flatnonzero(self.parents < 0)[0])]
        for v in order:
            order.extend(children[v])
        said: dict[int, SumNodes] = {}
        for v in reversed(order):
            own, size = leaves[int(variables[v])], leaves[int(variables[v])].n_node
            below: Nodes = (
                product(own, *(said.pop(c) for c in children[v])) if children[v] else own
            )
            parent = self.parents[v]
            n = leaves[int(variables[parent])].n_node if parent >= 0 else 1
            said[v] = sum(below, n_nodes=n, parameters=self.tables[v, :n, :size])
        return said[order[0]]


def fit_tree(codes: Array, sizes: Array, weights: Array | None, pseudocount: float) -> Tree:
    """Find the tree of largest weighted likelihood, its tables smoothed by a pseudocount."""
    n, n_variables = codes.shape
    most = int(sizes.max())
    ones = np.ones(n) if weights is None else np.rint(weights * _GRID) / _GRID
    need_memory(8 * n_variables * most * (2 * n + 4 * n_variables * most), "a Chow-Liu tree")
    hot = np.zeros((n, n_variables * most))
    at = (np.arange(n_variables) * most + codes).reshape(-1)
    hot[np.repeat(np.arange(n), n_variables), at] = 1
    joint = hot.T @ (ones[:, None] * hot)  # exact, see _GRID
    joint = joint.reshape(n_variables, most, n_variables, most).transpose(0, 2, 1, 3)
    there = np.arange(most) < sizes[:, None]
    pairs = there[:, None, :, None] & there[None, :, None, :]
    cells = (sizes[:, None] * sizes[None, :])[:, :, None, None]
    joint = np.where(pairs, joint + pseudocount / cells, 0.0)
    if n_variables == 1:
        single = joint[0, 0].sum(axis=0)[None, None]
        return Tree(np.array([-1]), np.repeat(single / single.sum(), most, axis=1))
    share = joint / _added(joint, 2)[:, :, None, None]
    left, right = _added(share, 1), _added(share.transpose(0, 1, 3, 2), 1)
    expected = left[:, :, :, None] * right[:, :, None, :]
    seen = (share > 0) & (expected > 0)
    ratio = np.where(seen, share, 1.0) / np.where(seen, expected, 1.0)
    parents, root = chow_liu_tree(np.maximum(_added(share * log(ratio), 2), 0))
    tables = np.full((n_variables, most, most), 1.0 / most)
    for v, parent in enumerate(parents):
        given = joint[parent, v] if parent >= 0 else right[root - 1, v][None, :]
        whole = given.sum(axis=1, keepdims=True)
        some = there[v] / sizes[v]
        tables[v, : len(given)] = np.where(whole > 0, given / np.where(whole > 0, whole, 1), some)
    return Tree(parents, tables)


def codes_of(x: Any) -> tuple[Array, Array]:
    """Check whole numbers from 0; give them as int64, and the values of each variable."""
    data = _samples(x)
    if (
        data.dtype.kind == "f"
        and (data == np.floor(data)).all()
        and float(abs(data).max()) < 2**31
    ):
        data = data.astype(np.int64)
    if data.dtype.kind not in "iub" or data.min() < 0 or data.max() >= _MOST_VALUES:
        raise ParameterError(
            f"x: got {data.dtype} from {data.min()} to {data.max()}, need whole numbers from 0 to "
            f"{_MOST_VALUES - 1}"
        )
    codes = data.astype(np.int64)
    return codes, codes.max(axis=0) + 1


def indicators(sizes: Array) -> dict[int, InputNodes]:
    """Make the indicators of each variable, one node a value; trees share them."""
    return {
        v: inputs(v, Indicator(n_values=int(n)), int(n), parameters=np.arange(int(n))[:, None])
        for v, n in enumerate(sizes)
    }


@takes(pseudocount=Real(0))
def chow_liu(x: Any, *, weights: Any = None, pseudocount: float = 1.0) -> SumNodes:
    """Make the Chow-Liu tree of data: the tree-shaped Bayesian network of largest likelihood.

    Parameters
    ----------
    x : array, shape (n_sample, n_variables)
        Whole numbers from 0 to 255.
    weights : array, shape (n_sample,), optional
        Of the samples; rounded to multiples of 2^-20.
    pseudocount : float
        Added to each table of two variables, in equal parts.

    Returns
    -------
    SumNodes
        One node, with parameters: nothing is left to learn. No variable is hidden, so the
        circuit is deterministic.

    Raises
    ------
    ShapeError, ParameterError, NonFiniteError

    Notes
    -----
    Source: Chow, Liu, IEEE Trans. Inf. Theory 14, 462 (1968).

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.repeat(np.random.default_rng(0).integers(0, 2, (100, 2)), 2, axis=1)
    >>> pc = rk.Circuit(rk.circuits.chow_liu(x))
    >>> pc.is_deterministic(), round(float(pc.log_likelihood(x).mean()), 2)
    (True, -1.38)
    """
    codes, sizes = codes_of(x)
    given = None
    if weights is not None:
        given = np.array(real_array(weights, "weights"))
        if given.shape != (len(codes),):
            raise ShapeError(f"weights: got shape {given.shape}, need ({len(codes)},)")
        if not (np.isfinite(given).all() and given.min() >= 0):
            raise ParameterError("weights: got NaN, infinity or a negative number, need from 0")
    tree = fit_tree(codes, sizes, given, pseudocount)
    return tree.circuit(range(codes.shape[1]), indicators(sizes))


@takes(
    n_components=Whole(1), n_epochs=Whole(0), pseudocount=Real(0), tolerance=Real(), seed=Whole(0)
)
def chow_liu_mixture(
    x: Any,
    n_components: int,
    *,
    n_epochs: int = 30,
    pseudocount: float = 1.0,
    tolerance: float = 1e-4,
    seed: int = 0,
) -> SumNodes:
    """Learn a mixture of Chow-Liu trees by EM: each step finds new trees, too.

    Parameters
    ----------
    x : array, shape (n_sample, n_variables)
        Whole numbers from 0 to 255.
    n_components : int
        Trees. One that no sample belongs to is left out.
    n_epochs : int
        Most steps of EM.
    pseudocount : float
        Added to each table of two variables of a tree, in equal parts.
    tolerance : float
        EM ends when a step gains less of the mean log-likelihood, in nats.
    seed : int
        Of the first clusters, which `hard_clusters` finds.

    Returns
    -------
    SumNodes
        One node, with parameters.

    Raises
    ------
    ShapeError, ParameterError, NonFiniteError

    Notes
    -----
    Source: Meila, Jordan, "Learning with mixtures of trees", JMLR 1, 1 (2000). Posteriors are
    rounded to multiples of 2^-20, so that their sums have the same bits on every CPU.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.random.default_rng(0).integers(0, 2, (100, 6))
    >>> rk.Circuit(rk.circuits.chow_liu_mixture(x, 3)).n_variables
    6
    """
    codes, sizes = codes_of(x)
    numbers = (n_components, n_epochs, pseudocount, tolerance)
    trees, shares, _ = learn_trees(codes, sizes, *numbers, Stream.from_seed(seed))
    leaves, variables = indicators(sizes), range(codes.shape[1])
    made = [tree.circuit(variables, leaves) for tree in trees]
    return sum(*made, n_nodes=1, parameters=shares[None, :])


def learn_trees(
    codes: Array,
    sizes: Array,
    n_components: int,
    n_epochs: int,
    pseudocount: float,
    tolerance: float,
    stream: Stream,
) -> tuple[list[Tree], Array, list[float]]:
    """Learn a mixture of trees by EM; give trees, their shares and mean log-likelihoods."""
    labels = hard_clusters(codes, sizes, n_components, stream)
    posterior = (labels[:, None] == np.arange(n_components)).astype(np.float64)
    trace: list[float] = []
    for epoch in range(n_epochs + 1):
        counts = _added(posterior.T, 1)
        posterior, counts = posterior[:, counts > 0], counts[counts > 0]
        trees = [fit_tree(codes, sizes, own, pseudocount) for own in posterior.T]
        shares = counts / counts.sum()
        values = np.stack([tree.log_likelihood(codes) for tree in trees], axis=1) + log(shares)
        most = values.max(axis=1, keepdims=True)
        parts = exp(values - most)
        whole = _added(parts, 1)[:, None]
        mean = float(_added((most + log(whole))[:, 0], 1)) / len(codes)
        trace.append(mean)
        if epoch == n_epochs or (epoch and mean - trace[-2] < tolerance):
            break
        posterior = np.rint(parts / whole * _GRID) / _GRID
    return trees, shares, trace


def inner_edges(column: Array, n_bins: int) -> Array:
    """Edges between up to n_bins bins of about equally many values; none of them is empty."""
    ordered = np.sort(column)
    edges = np.unique(ordered[(np.arange(1, n_bins) * len(column)) // n_bins])
    return edges[edges > ordered[0]]


def hard_clusters(codes: Array, sizes: Array, n_clusters: int, stream: Stream) -> Array:
    """Cluster samples by hard EM of a mixture of independent variables; labels from 0.

    The first clusters are those nearest to different samples that are drawn.
    """
    n, n_variables = codes.shape
    most = int(sizes.max())
    need_memory(8 * n_clusters * (n + 3 * n_variables * most), f"{n_clusters} clusters")
    hot = np.zeros((n, n_variables * most), np.float32)
    at = (np.arange(n_variables) * most + codes).reshape(-1)
    hot[np.repeat(np.arange(n), n_variables), at] = 1
    order = np.argsort(random_fill(stream.child(0), (n,), "bits"), kind="stable")
    agree = hot @ hot[_different(codes[order[:_LOOKED_AT]], order, n_clusters)].T  # exact
    labels = agree.argmax(axis=1)
    there = (np.arange(most) < sizes[:, None]).reshape(-1)
    for _ in range(_ROUNDS):
        own = labels[:, None] == np.arange(n_clusters)
        counts = own.astype(np.float32).T @ hot
        n_own = own.sum(axis=0).astype(np.float64)
        p = (counts + 1.0 / np.repeat(sizes, most)) / (n_own[:, None] + 1)
        logs = np.where(there, np.rint(log(np.where(there, p, 1.0)) * _STEPS) / _STEPS, 0)
        shares = np.rint(log((n_own + 1) / (n + n_clusters)) * _STEPS) / _STEPS
        new = (hot.astype(np.float64) @ logs.T + shares).argmax(axis=1)
        if (new == labels).all():
            break
        labels = new
    return labels


def _different(drawn: Array, order: Array, most: int) -> Array:
    """Choose the first of different samples, in the order in which they were drawn."""
    _, first = np.unique(drawn, axis=0, return_index=True)
    return order[np.sort(first)[:most]]
