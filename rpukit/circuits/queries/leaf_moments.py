"""Supports, moments, entropies and cross-entropies of leaves, in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rpukit.circuits.graph.evaluated import FunctionLeaf
from rpukit.circuits.graph.leaves import GAUSSIAN, Leaf
from rpukit.circuits.graph.normal import MultivariateNormal
from rpukit.circuits.ops import layers as ops
from rpukit.elementwise import exp, lgamma, log
from rpukit.errors import StructureError

__all__ = ["cross_entropy", "entropy", "moments", "support"]

Array = Any
LeafNodes = tuple[Leaf, Array]

_FAR = 40.0  # standard deviations above the rate that a sum over Poisson counts covers


def added(terms: Array) -> Array:
    """Sum along the last axis in ascending order."""
    return np.add.accumulate(terms, axis=-1)[..., -1]


def support(leaf: Leaf, parameters: Array) -> Array:
    """Mask possible values (n_node, n_values); a density counts as one value."""
    if not leaf.TABLE:
        return np.ones((len(parameters), 1), bool)
    return np.isfinite(_table(leaf, parameters))


def moments(leaf: Leaf, parameters: Array) -> tuple[Array, Array]:
    """Mean and mean square of each node."""
    if leaf.TABLE:
        p, values = exp(_table(leaf, parameters)), np.arange(leaf.support, dtype=np.float64)
        return added(p * values), added(p * (values * values))
    if isinstance(leaf, FunctionLeaf):
        return leaf.moments(parameters)
    mean = parameters[:, 0]
    variance = parameters[:, 1] * parameters[:, 1] if leaf.KIND == GAUSSIAN else mean
    return mean, mean * mean + variance


def entropy(leaf: Leaf, parameters: Array) -> Array:
    """Entropy of each node, nats; differential for a density."""
    same = (leaf, parameters)
    crossed = cross_entropy(same, same, pairs=False)[1]
    return -crossed[:, 0]


def cross_entropy(p: LeafNodes, q: LeafNodes, *, pairs: bool = True) -> tuple[Array, Array]:
    """Sum p [q > 0], and p log q where q > 0, for all pairs or for corresponding nodes."""
    (leaf, own), (other, theirs) = p, q
    apart = leaf.TABLE != other.TABLE or (not leaf.TABLE and leaf.KIND != other.KIND)
    normal = isinstance(leaf, MultivariateNormal) and isinstance(other, MultivariateNormal)
    if normal and leaf.n_columns == other.n_columns:  # nodes of one scope
        cross = leaf.expected_log(own, theirs)  # type: ignore[attr-defined]
        cross = cross if pairs else np.diagonal(cross)[:, None]
        return np.ones_like(cross), cross
    if apart or isinstance(leaf, FunctionLeaf):
        raise StructureError(
            f"leaves {leaf} and {other}: the cross-entropy of these kinds is not tractable"
        )
    if leaf.KIND == GAUSSIAN:
        mean, std = (own[:, None, k] for k in (0, 1))
        mean2, std2 = (theirs[None, :, k] if pairs else theirs[:, None, k] for k in (0, 1))
        z2 = (std * std + (mean - mean2) * (mean - mean2)) / (std2 * std2)
        cross = -0.5 * z2 - (0.5 * math.log(2 * math.pi) + log(std2 + np.zeros_like(z2)))
        return np.ones_like(cross), cross
    if leaf.TABLE:
        a, b = _table(leaf, own), _table(other, theirs)
        width = max(a.shape[1], b.shape[1])
        a, b = (_widened(table, width) for table in (a, b))
    else:
        a, b = _counts(own, _most(own, theirs)), _counts(theirs, _most(own, theirs))
    mass_of, logs = exp(a), np.where(b > -np.inf, b, 0.0)
    possible = (b > -np.inf).astype(np.float64)
    mass, cross = np.zeros((2, len(a), len(b) if pairs else 1))
    for x in range(a.shape[1]):
        right = (
            (possible[None, :, x], logs[None, :, x])
            if pairs
            else (
                possible[:, None, x],
                logs[:, None, x],
            )
        )
        mass += mass_of[:, None, x] * right[0]
        cross += mass_of[:, None, x] * right[1]
    return mass, cross


def _table(leaf: Leaf, parameters: Array) -> Array:
    table = np.empty(len(parameters) * leaf.support)
    ops.leaf_table(leaf._traits(), np.ascontiguousarray(parameters).reshape(-1), table)
    return table.reshape(-1, leaf.support)


def _widened(table: Array, width: int) -> Array:
    return np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=-np.inf)


def _most(*rates: Array) -> int:
    most = max(float(rate.max()) for rate in rates)
    return int(most + _FAR * math.sqrt(most) + _FAR)


def _counts(rates: Array, most: int) -> Array:
    """Log-probabilities of the counts 0 to most - 1."""
    k = np.arange(most, dtype=np.float64)
    return k * log(rates) - rates - lgamma(k + 1)
