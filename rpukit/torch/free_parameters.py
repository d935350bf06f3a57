"""Parameters of circuits as tensors without bounds: logits of weights, logarithms of scales.

Conversions run in float64, with functions and sums that have the same bits on CPU and GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits import (
    Bernoulli,
    Binomial,
    Categorical,
    Gaussian,
    InputNodes,
    MaskedCategorical,
    Nodes,
    Poisson,
    SumNodes,
)
from rpukit.circuits.core import Core
from rpukit.circuits.parameters import Statistics
from rpukit.elementwise import exp, sigmoid

__all__ = ["LEARNED", "begin", "put", "shape_of", "slopes", "total"]

Array = Any

LEARNED = (Categorical, Bernoulli, Binomial, Gaussian, Poisson)
_SURE = 1e-12  # least distance of a probability from 0 and 1, to begin with


def shape_of(owner: Nodes) -> tuple[int, ...]:
    """Shape of the free parameters of a node vector, which is that of its parameters."""
    if isinstance(owner, SumNodes):
        return owner.parameter_shape
    assert isinstance(owner, InputNodes)
    return owner.n_node, owner.leaf.n_parameters


def begin(core: Core, owner: Any) -> Array:
    """Convert the parameters of a node vector to free ones, float64 on the CPU."""
    array = core.parameters.get(owner)
    if isinstance(owner, SumNodes) or isinstance(owner.leaf, Categorical):
        with np.errstate(divide="ignore"):  # a weight of 0 stays 0
            return np.log(array)
    if isinstance(owner.leaf, (Bernoulli, Binomial)):
        array = np.clip(array, _SURE, 1 - _SURE)
        return np.log(array) - np.log1p(-array)
    if isinstance(owner.leaf, Gaussian):
        return np.stack([array[:, 0], np.log(array[:, 1])], axis=1)
    return np.log(array)


def put(core: Core, owner: Any, free: Array) -> None:
    """Set the parameters of a circuit from free ones, which are float64 on its device."""
    parameters, xp = core.parameters, _device.namespace(free)
    dtype = parameters.theta.dtype
    if isinstance(owner, SumNodes):
        if owner.zero_mask is not None:
            free = xp.where(parameters.on_device(owner.zero_mask), -np.inf, free)
        for block in core.layout.blocks[owner.number]:
            rows = xp.ascontiguousarray(_gathered(core, block, free))
            weights = _normalised(rows).astype(dtype)
            parameters.theta[block.first : block.first + block.size] = weights.reshape(-1)
        return
    source = next(s for s in parameters.sources if s.nodes is owner)
    parameters.rows.parameters[source.parameter] = _natural(owner.leaf, free).reshape(-1)
    parameters.refresh(source)


def slopes(core: Core, owner: Any, statistics: Statistics) -> Array:
    """Compute the slopes of free parameters from the expected counts of samples, float64."""
    parameters = core.parameters
    if isinstance(owner, SumNodes):
        out = _device.zeros(owner.parameter_shape, np.float64, core.device)
        for block in core.layout.blocks[owner.number]:
            part = slice(block.first, block.first + block.size)
            theta = parameters.theta[part].astype(np.float64).reshape(block.n_child, block.n_node)
            counts = statistics.totals[part] + statistics.chains[part]
            flow = theta * counts.reshape(theta.shape)
            _scatter(core, block, flow - theta * total(flow), out)
        return out
    source = next(s for s in parameters.sources if s.nodes is owner)
    flow = statistics.leaf_totals[source.statistic] + statistics.leaf_chains[source.statistic]
    held = parameters.rows.parameters[source.parameter].astype(np.float64)
    shape = (owner.n_node, -1)
    return _leaf_slopes(owner.leaf, held.reshape(shape), flow.reshape(shape))


def _leaf_slopes(leaf: Any, held: Array, flow: Array) -> Array:
    """Slopes by statistics, whose last column is the flow of missing values."""
    xp, flow = _device.namespace(flow), flow[:, :-1]
    if isinstance(leaf, Categorical):
        return flow - held * total(flow.T)[:, None]
    if isinstance(leaf, Gaussian):  # statistics are about the mean
        inverse = 1 / (held[:, 1] * held[:, 1])
        return xp.stack([flow[:, 0] * inverse, flow[:, 1] * inverse - flow[:, 2]], axis=1)
    if isinstance(leaf, Poisson):
        return (flow[:, 0] - held[:, 0] * flow[:, 2])[:, None]
    values = xp.arange(leaf.support, dtype=np.float64)
    n_trial = leaf.support - 1
    seen, count = total((flow * values).T), total(flow.T)
    return (seen - n_trial * held[:, 0] * count)[:, None]


def _natural(leaf: Any, free: Array) -> Array:
    """Parameters as a circuit holds them."""
    xp = _device.namespace(free)
    if isinstance(leaf, MaskedCategorical):
        masked = xp.ones(leaf.support, bool)
        masked[list(leaf.allowed)] = False
        free = xp.where(masked, -np.inf, free)
    if isinstance(leaf, Categorical):
        return _normalised(xp.ascontiguousarray(free.T)).T
    if isinstance(leaf, (Bernoulli, Binomial)):
        return sigmoid(xp.ascontiguousarray(free))
    if isinstance(leaf, Gaussian):
        return xp.stack([free[:, 0], exp(xp.ascontiguousarray(free[:, 1]))], axis=1)
    return exp(xp.ascontiguousarray(free))


def _normalised(rows: Array) -> Array:
    """Softmax along the first axis."""
    weights = exp(rows - rows.max(axis=0))
    return weights / total(weights)


def total(rows: Array) -> Array:
    """Add up along the first axis, by halves: the same order on every device."""
    xp = _device.namespace(rows)
    while len(rows) > 1:
        half = len(rows) // 2
        pairs = rows[:half] + rows[half : 2 * half]
        rows = xp.concatenate([pairs, rows[2 * half :]]) if len(rows) % 2 else pairs
    return rows[0]


def _gathered(core: Core, block: Any, tiles: Array) -> Array:
    """As `Block.gather`, of tiles on the circuit's device."""
    chosen = tiles[core.parameters.on_device(block.edges)]
    return chosen.transpose(1, 3, 0, 2).reshape(block.n_child, block.n_node)


def _scatter(core: Core, block: Any, weights: Array, tiles: Array) -> None:
    """As `Block.scatter`, of tiles on the circuit's device."""
    n_block, n_child_block = block.edges.shape
    shape = (n_child_block, tiles.shape[2], n_block, tiles.shape[1])
    tiles[core.parameters.on_device(block.edges)] = weights.reshape(shape).transpose(2, 0, 3, 1)
