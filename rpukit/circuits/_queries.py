"""Queries that go down a circuit: posteriors, samples, most probable assignments."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import elementwise
from rpukit.circuits import ops
from rpukit.circuits._layout import ProductLayer
from rpukit.circuits._parameters import Parameters
from rpukit.circuits._passes import Pass, run_down, run_leaves, run_up
from rpukit.random import Op, Stream

__all__ = ["most_probable", "posterior", "sampled", "support_of"]

Array = Any


def support_of(parameters: Parameters) -> Array:
    """Number of values of each variable; 0 for numbers."""
    support = np.zeros(parameters.layout.n_variable, np.int32)
    for nodes in parameters.layout.inputs:
        support[nodes.var] = max(support[nodes.var], nodes.leaf.support)
    return support


def posterior(parameters: Parameters, codes: Array, numbers: Array) -> Array:
    """P(variable = value | evidence), (n, n_variables, most values)."""
    support = support_of(parameters)
    run = run_up(parameters, codes, numbers, keep=True)
    ones = np.ones((len(codes), parameters.layout.root_rows.size), run.values.dtype)
    run_down(parameters, run, ones)
    out = np.zeros((*codes.shape, max(1, int(support.max()))), run.values.dtype)
    ops.leaf_posterior(parameters.rows, support, codes, run.flows, out)
    return out


def sampled(
    parameters: Parameters, codes: Array, numbers: Array, stream: Stream, first_sample: int
) -> tuple[Array, Array]:
    """Fill in what is unknown by chance, given what is known; in place."""
    run = run_up(parameters, codes, numbers, keep=True)
    draws = (False, first_sample, *stream.words, int(Op.CIRCUIT))
    _go_down(parameters, run, draws, parameters.theta)
    return codes, numbers


def most_probable(parameters: Parameters, codes: Array, numbers: Array) -> tuple[Array, ...]:
    """Fill in what is unknown by the largest product; the codes, numbers and values."""
    layout = parameters.layout
    log_theta = elementwise.log(parameters.theta)
    run = run_leaves(parameters, codes, numbers)
    _raise_unknown(parameters, run)
    for number, layer in enumerate(layout.layers):
        if isinstance(layer, ProductLayer):
            ops.product_forward(layer, run.values, run.values)
            continue
        run.elements[number] = np.empty((len(codes), layer.n_element), run.values.dtype)
        ops.product_forward(layer.elements, run.values, run.elements[number])
        ops.largest_forward(layer, log_theta, run.elements[number], run.values)
    key = (np.uint32(0), np.uint32(0))
    _go_down(parameters, run, (True, 0, *key, int(Op.CIRCUIT)), log_theta)
    return codes, numbers, run.values[:, layout.root_rows]


def _raise_unknown(parameters: Parameters, run: Pass) -> None:
    """A leaf of an unknown variable takes the largest value that it can have."""
    rows = parameters.rows
    most = np.zeros(rows.kinds.size, run.values.dtype)
    first = 0
    for nodes in parameters.layout.inputs:
        part = slice(first, first + nodes.n_node)
        at, leaf = rows.place[part], nodes.leaf
        if leaf.TABLE:
            most[part] = rows.table[at[:, None] + np.arange(leaf.support)].max(axis=1)
        else:
            most[part] = _mode_values(parameters, nodes, at)
        unknown = run.codes[:, nodes.var] < 0
        if not leaf.TABLE:
            unknown = np.isnan(run.numbers[:, nodes.var])
        run.values[np.ix_(unknown, np.arange(first, part.stop))] = most[part]
        first = part.stop


def _mode_values(parameters: Parameters, nodes: Any, at: Array) -> Array:
    """Log-density of each leaf of numbers at its mode."""
    rows = parameters.rows
    n, n_variable = nodes.n_node, parameters.layout.n_variable
    modes = rows.parameters[at] if nodes.leaf.n_parameters == 2 else np.floor(rows.parameters[at])
    numbers = np.full((n, n_variable), np.nan, modes.dtype)
    numbers[:, nodes.var] = modes
    codes = np.full((n, n_variable), -1, np.int32)
    values = np.empty((n, parameters.layout.n_row), modes.dtype)
    ops.leaf_forward(rows, codes, numbers, values)
    first = int(parameters.layout.rows[nodes.number][0])
    return values[np.arange(n), first + np.arange(n)]


def _go_down(parameters: Parameters, run: Pass, draws: tuple[Any, ...], theta: Array) -> None:
    layout = parameters.layout
    chosen = np.zeros(run.values.shape, bool)
    chosen[:, layout.root_rows[0]] = run.values[:, layout.root_rows[0]] > -np.inf
    for number in reversed(range(len(layout.layers))):
        layer = layout.layers[number]
        if isinstance(layer, ProductLayer):
            ops.mark_products(layer, chosen, theta.dtype)
        else:
            ops.choose_down(layer, draws, theta, run.elements[number], chosen)
    support = support_of(parameters)
    ops.leaf_choose(parameters.rows, draws, support, run.codes, run.numbers, chosen)
