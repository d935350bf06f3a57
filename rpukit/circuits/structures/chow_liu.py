"""Chow-Liu trees: mutual information of pairs, and structures with a hidden tree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import (
    MOST,
    TINY,
    Kind,
    Many,
    Maybe,
    Real,
    Whole,
    need_memory,
    real_array,
    takes,
)
from rpukit._exact.twins import mirror
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.graph.leaves import Categorical, Leaf
from rpukit.circuits.graph.nodes import InputNodes, Nodes, SumNodes, inputs, product, sum
from rpukit.circuits.structures.hmm import _block_of, _leaf_of
from rpukit.circuits.structures.region_graph import boxes, build_regions
from rpukit.elementwise import exp, log
from rpukit.errors import DTypeError, NonFiniteError, ParameterError, ShapeError

__all__ = ["chow_liu_tree", "hclt", "mutual_information", "pd_hclt"]

Array = Any
_BINS: dict[str, Kind] = {"n_bins": Maybe(Whole(2)), "sigma": Maybe(Real(TINY))}

_MIRROR = "rpukit.circuits._mirror.soft_bins"
_EXACT = 1 << 20  # samples whose counts are added in float32


@takes(**_BINS)
def mutual_information(x: Any, *, n_bins: int | None = None, sigma: float | None = None) -> Array:
    """Estimate the mutual information of all pairs of variables.

    Parameters
    ----------
    x : array, shape (n_sample, n_variables)
        Integers from 0 for the exact estimate, numbers for bins.
    n_bins : int, optional
        Soft bins over the range of the data, for many values or few samples. Default: counts of
        the values themselves.
    sigma : float, optional
        Width of the bins, as part of the range; default 0.5 / n_bins.

    Returns
    -------
    array, shape (n_variables, n_variables), float64, nats

    Raises
    ------
    ShapeError, ParameterError

    Notes
    -----
    By values: the plug-in estimate of counts. By bins: entropies of mean responsibilities
    exp(-(x - bin)^2 / (2 sigma^2)), x scaled to [0, 1], with 1e-4 inside the logarithms;
    normalised for single variables, not for pairs, as PyJuice does.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.array([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]])
    >>> rk.circuits.mutual_information(x).round(3)
    array([[0.693, 0.693, 0.   ],
           [0.693, 0.693, 0.   ],
           [0.   , 0.   , 0.693]])
    """
    data = _samples(x)
    if n_bins is None:
        return _by_values(data)
    bins = n_bins
    need_memory(4 * data.size * bins, f"mutual_information of {bins} bins")
    low, high = float(data.min()), float(data.max())
    scaled = (data - low) / (high - low if high > low else 1.0)
    centres = np.arange(bins) / (bins - 1)
    width = 0.5 / bins if sigma is None else sigma
    soft = exp(-((scaled[:, :, None] - centres) ** 2) / (2 * width**2))
    return _by_bins(soft)


def _samples(x: Any) -> Array:
    """Convert data to a matrix of finite numbers."""
    if _device.speaks_of_memory(x):
        x = _device.any_array(x, None, "x")
    data = _device.unmasked(x, "x") if isinstance(x, np.ndarray) else _device.listed(x, "x")
    if data.dtype.kind not in "iubf":
        raise DTypeError(f"x: got {data.dtype}, need integers or floats")
    if data.ndim != 2 or not data.size:
        raise ShapeError(f"x: got shape {data.shape}, need (n_sample, n_variables)")
    if data.dtype.kind == "f" and not np.isfinite(data).all():
        raise NonFiniteError("x: got NaN or infinity, need finite numbers")
    if data.dtype.kind == "f" and max(-float(data.min()), float(data.max())) > MOST:
        raise ParameterError(f"x: got numbers beyond {MOST:g}, whose squares are too large")
    return data


def _by_values(data: Array) -> Array:
    if data.dtype.kind not in "iub" or data.min() < 0:
        raise ParameterError(
            f"x: got {data.dtype} from {data.min()}, need integers from 0, or n_bins for other "
            "numbers"
        )
    n, n_variables = data.shape
    n_values = int(data.max()) + 1
    need_memory(3 * 8 * (n_variables * n_values) ** 2, f"counts of pairs of {n_values} values")
    joint = np.zeros((n_variables * n_values,) * 2)
    for first in range(0, n, _EXACT):
        some = data[first : first + _EXACT]
        hot = np.zeros((len(some), n_variables * n_values), np.float32)
        rows = np.repeat(np.arange(len(some)), n_variables)
        hot[rows, (np.arange(n_variables) * n_values + some).reshape(-1)] = 1
        joint += hot.T @ hot  # counts below 2^24: exact in float32 for any order of the sum
    shape = (n_variables, n_values, n_variables, n_values)
    joint = (joint / n).reshape(shape).transpose(0, 2, 1, 3)
    single = np.einsum("vvii->vi", joint)
    expected = single[:, None, :, None] * single[None, :, None, :]
    seen = joint > 0
    ratio = np.where(seen, joint, 1.0) / np.where(seen, expected, 1.0)
    return np.maximum(_added(joint * log(ratio), 2), 0)


def _by_bins(soft: Array) -> Array:
    n, n_variables, bins = soft.shape
    flat = np.ascontiguousarray(soft.reshape(n, -1))
    pairs: Array = np.zeros((flat.shape[1],) * 2)
    grain = max(1, work_grain(n * flat.shape[1]))
    run_rows(mirror(_MIRROR, np.float32).pair_sums, len(pairs), flat, pairs, grain=grain)
    lower = np.tril_indices(len(pairs), -1)
    pairs[lower] = pairs.T[lower]
    pairs = pairs.reshape(n_variables, bins, n_variables, bins).transpose(0, 2, 1, 3)
    pairs = pairs / _added(pairs, 2)[:, :, None, None]
    shares = soft / _added(soft, 1)[:, :, None]
    single = np.add.accumulate(shares, axis=0)[-1] / n
    h1 = -_added(single * log(single + 1e-4), 1)
    h2 = -_added(pairs * log(pairs + 1e-4), 2)
    return h1[:, None] + h1[None, :] - h2


def _added(terms: Array, n_axis: int) -> Array:
    """Sum over the last axes in ascending order, for the same bits on every CPU."""
    flat = terms.reshape(*terms.shape[:-n_axis], -1)
    return np.add.accumulate(flat, axis=-1)[..., -1]


def chow_liu_tree(information: Any) -> tuple[Array, int]:
    """Find the spanning tree of most mutual information, rooted at its centre.

    Parameters
    ----------
    information : array, shape (n_variables, n_variables)

    Returns
    -------
    parents : array of int, shape (n_variables,)
        Parent of each variable; -1 for the root.
    root : int
        The variable from which the farthest one is nearest; the lowest of several.

    Notes
    -----
    Source: Chow, Liu, IEEE Trans. Inf. Theory 14, 462 (1968).

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> parents, root = rk.circuits.chow_liu_tree([[0, 2, 1], [2, 0, 3], [1, 3, 0]])
    >>> parents.tolist(), root
    ([1, -1, 1], 1)
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    weights = np.array(real_array(information, "information"))
    n = len(weights) if weights.ndim else 0
    if weights.shape != (n, n) or not n:
        raise ShapeError(f"information: got shape {weights.shape}, need a square matrix")
    if not np.isfinite(weights).all():
        raise NonFiniteError("information: got NaN or infinity, need finite numbers")
    if n == 1:
        return np.array([-1]), 0
    np.fill_diagonal(weights, 0)
    cost = weights.max() + 1 - weights  # positive: a spanning tree takes 0 for no edge
    np.fill_diagonal(cost, 0)
    tree = minimum_spanning_tree(csr_array(cost))
    both = csr_array(tree + tree.T)
    root = _middle(both, n)
    order, before = breadth_first_order(both, root, directed=False)
    parents = np.full(n, -1)
    parents[order[1:]] = before[order[1:]]
    return parents, root


def _middle(tree: Any, n: int) -> int:
    """Find the centre of a tree: the middle of its longest path."""
    from scipy.sparse.csgraph import breadth_first_order

    def path_from(start: int) -> list[int]:
        order, before = breadth_first_order(tree, start, directed=False)
        depth = np.zeros(n, int)
        for v in order[1:]:
            depth[v] = depth[before[v]] + 1
        path = [int(np.argmax(depth))]
        while path[-1] != start:
            path.append(int(before[path[-1]]))
        return path

    longest = path_from(path_from(0)[0])
    half = (len(longest) - 1) // 2
    middles = {longest[half], longest[len(longest) - 1 - half]}
    return min(middles)


@takes(n_nodes=Whole(1), n_roots=Whole(1), **_BINS)
def hclt(
    x: Any,
    n_nodes: int,
    leaf: Leaf | list[Leaf] | None = None,
    *,
    n_bins: int | None = None,
    sigma: float | None = None,
    n_roots: int = 1,
) -> SumNodes:
    """Make a hidden Chow-Liu tree for data.

    Parameters
    ----------
    x : array, shape (n_sample, n_variables)
        Data to find the tree from.
    n_nodes : int
        States of each hidden variable.
    leaf : Leaf or list of Leaf, optional
        Default: `Categorical` with the values that x has.
    n_bins, sigma : optional
        As in `mutual_information`.
    n_roots : int

    Returns
    -------
    SumNodes

    Raises
    ------
    ShapeError, ParameterError, DTypeError

    Notes
    -----
    The hidden variable of each inner node v of the tree has one product for each state, of the
    leaf of v and of what its children say; a sum over it for each state of the parent. A variable
    at the tips has no hidden one: its leaf goes into the parent's product.
    Source: Liu, Van den Broeck, "Tractable regularization of probabilistic circuits",
    NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.random.default_rng(0).integers(0, 2, (100, 6))
    >>> rk.Circuit(rk.circuits.hclt(x, 4)).n_variables
    6
    """
    data = _samples(x)
    kinds: Any = Categorical(n_values=int(data.max()) + 1) if leaf is None else leaf
    top = _tree(data, range(data.shape[1]), n_nodes, kinds, n_bins, sigma)
    return sum(top, n_nodes=n_roots)


@takes(
    n_nodes=Whole(1),
    n_splits=Whole(0),
    max_products=Whole(1),
    seed=Whole(0),
    n_bins=Maybe(Whole(2)),
    sigma=Maybe(Real(TINY)),
)
def pd_hclt(
    x: Any,
    shape: Sequence[int],
    n_nodes: int,
    leaf: Leaf | list[Leaf] | None = None,
    *,
    split_points: Sequence[Sequence[int]] | None = None,
    n_splits: int = 2,
    max_products: int = 4,
    seed: int = 0,
    n_bins: int | None = None,
    sigma: float | None = None,
) -> SumNodes:
    """Make a structure of cuts of an image (`pd`) with a hidden Chow-Liu tree in each small box.

    Parameters
    ----------
    x : array, shape (n_sample, n_variables)
        Data to find the trees from.
    shape : sequence of int
        Of the image or volume; variables are numbered in C order.
    n_nodes : int
        Nodes of each box, and states of each hidden variable.
    leaf : Leaf or list of Leaf, optional
        As in `hclt`.
    split_points, n_splits, max_products, seed : optional
        As in `pd`.
    n_bins, sigma : optional
        As in `mutual_information`.

    Returns
    -------
    SumNodes

    Raises
    ------
    ShapeError, ParameterError, DTypeError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.random.default_rng(0).integers(0, 2, (100, 16))
    >>> rk.Circuit(rk.circuits.pd_hclt(x, (4, 4), 2, n_splits=1)).n_variables
    16
    """
    data = _samples(x)
    shape = Many(Whole(1)).take(shape, "shape")
    n = math.prod(shape)
    if data.ndim != 2 or data.shape[1] != n or not len(data):
        raise ShapeError(f"x: got shape {data.shape}, need (n_sample, {n})")
    partitions = boxes(shape, split_points, n_splits)
    kinds: Any = Categorical(n_values=int(data.max()) + 1) if leaf is None else leaf

    def bottom(region: tuple[int, ...]) -> Nodes:
        top = _tree(data, region, n_nodes, kinds, n_bins, sigma)
        if isinstance(top, InputNodes):
            return top
        return sum(top, n_nodes=n_nodes, block_size=_block_of(n_nodes))

    return build_regions(partitions, n_nodes, bottom, most=max_products, seed=seed)


def _tree(
    data: Array,
    variables: Sequence[int],
    n_nodes: int,
    leaf: Any,
    n_bins: int | None,
    sigma: float | None,
) -> Nodes:
    """Make the tree over some variables, up to the product or leaf of its root."""
    information = mutual_information(data[:, list(variables)], n_bins=n_bins, sigma=sigma)
    parents, root = chow_liu_tree(information)
    block = _block_of(n_nodes)
    children: list[list[int]] = [[] for _ in parents]
    for v, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(v)
    order = [root]
    for v in order:
        order.extend(children[v])
    said: dict[int, Nodes] = {}
    for v in reversed(order):
        var = int(variables[v])
        own: Nodes = inputs(var, _leaf_of(leaf, var), n_nodes, block_size=block)
        if not children[v]:
            said[v] = own
            continue
        inner = product(*(said.pop(c) for c in children[v]), own)
        last = v == root
        said[v] = inner if last else sum(inner, n_nodes=n_nodes, block_size=block)
    return said[root]
