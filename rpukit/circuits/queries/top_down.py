"""Top-down passes of queries: posteriors, ancestral samples, most probable assignments."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits.compiled.layout import ProductLayer
from rpukit.circuits.graph.evaluated import FunctionLeaf
from rpukit.circuits.graph.normal import MultivariateNormal
from rpukit.circuits.ops import layers as ops
from rpukit.circuits.ops.evaluated import choose_functions, leaf_values, mode_of
from rpukit.circuits.ops.normal import normal_density
from rpukit.circuits.parameters import Parameters, support_of
from rpukit.circuits.queries.passes import Pass, run_inner, run_leaves
from rpukit.circuits.queries.propagation import FIRST_OF_BEST, MaxProduct
from rpukit.circuits.queries.soft_evidence import soft_posterior
from rpukit.random import Op, Stream

__all__ = ["most_probable", "posterior", "sampled"]

Array = Any


def posterior(parameters: Parameters, run: Pass, soft: Array) -> Array:
    """P(variable = value | evidence), (n, n_variables, most values), after a pass both ways."""
    most = max(1, int(support_of(parameters.layout).max()))
    shape = (*run.codes.shape, most)
    out = _device.zeros(shape, parameters.theta.dtype, parameters.device)
    if soft is None:
        ops.leaf_posterior(parameters.rows, run.codes, run.flows, out)
    else:
        soft_posterior(parameters.rows, run.codes, run.values, run.flows, soft, out)
    return out


def sampled(
    parameters: Parameters, codes: Array, numbers: Array, stream: Stream, first_sample: int
) -> tuple[Array, Array]:
    """Draw unknown values given the known ones, in place."""
    run = run_leaves(parameters, codes, numbers)
    run_inner(parameters, run, keep=True, elements=True)
    draws = (False, first_sample, *stream.words, int(Op.CIRCUIT))
    _go_down(parameters, run, draws, parameters.theta)
    return codes, numbers


def most_probable(parameters: Parameters, codes: Array, numbers: Array) -> tuple[Array, ...]:
    """Set unknown values to those of the largest product; give codes, numbers and values."""
    propagation = MaxProduct(parameters)
    run = propagation.leaves(codes, numbers)
    _raise_unknown(parameters, run)
    propagation.up(run, keep=True)
    _go_down(parameters, run, FIRST_OF_BEST, propagation.log_theta)
    return codes, numbers, run.values[:, parameters.layout.root_rows]


def _raise_unknown(parameters: Parameters, run: Pass) -> None:
    """Set leaves of unknown variables to the largest value that they can have."""
    rows, xp = parameters.rows, _device.namespace(run.values)
    first = 0
    for nodes in parameters.layout.inputs:
        part = slice(first, first + nodes.n_node)
        at, leaf, first = rows.place[part], nodes.leaf, part.stop
        if isinstance(leaf, MultivariateNormal):
            continue
        if leaf.TABLE:
            most = rows.table[at[:, None] + xp.arange(leaf.support)].max(axis=1)
            unknown = run.codes[:, nodes.var] < 0
        else:
            most = _mode_values(parameters, nodes, at)
            unknown = xp.isnan(run.numbers[:, nodes.var])
        run.values[:, part] = xp.where(unknown[:, None], most, run.values[:, part])
    for one in rows.functions:
        if isinstance(one.leaf, MultivariateNormal):
            normal_density(one, rows.parameters, run.numbers, run.values, best=True)


def _mode_values(parameters: Parameters, nodes: Any, at: Array) -> Array:
    """Log-density of each leaf of numbers at its mode."""
    rows, layout, xp = parameters.rows, parameters.layout, _device.namespace(at)
    n, modes = nodes.n_node, rows.parameters[at]
    if isinstance(nodes.leaf, FunctionLeaf):
        modes = mode_of(nodes.leaf, rows.parameters, at)
    elif nodes.leaf.n_parameters != 2:
        modes = xp.floor(modes)
    numbers = xp.full((n, layout.n_variable), np.nan, modes.dtype)
    numbers[:, nodes.var] = modes
    codes = xp.full((n, layout.n_variable), -1, np.int32)
    values = xp.empty((n, layout.n_row))
    leaf_values(rows, codes, numbers, values)
    first, each = int(layout.rows[nodes.number][0]), xp.arange(n)
    return values[each, first + each]


def _go_down(parameters: Parameters, run: Pass, draws: tuple[Any, ...], theta: Array) -> None:
    root = int(parameters.layout.root_rows[0])
    chosen = _device.zeros(run.values.shape, np.bool_, parameters.device)
    chosen[:, root] = run.values[:, root] > -np.inf
    for layer in reversed(parameters.layers):
        if isinstance(layer, ProductLayer):
            ops.mark_products(layer, chosen, theta.dtype)
        else:
            ops.choose_down(layer, draws, theta, run.of_layer(layer), chosen)
    ops.leaf_choose(parameters.rows, draws, run.codes, run.numbers, chosen)
    for one in parameters.rows.functions:
        choose_functions(one, parameters.rows.parameters, draws, run.codes, run.numbers, chosen)
