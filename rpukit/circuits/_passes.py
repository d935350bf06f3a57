"""The passes of a circuit over samples: up (values), down (flows), and into the statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rpukit.circuits import ops
from rpukit.circuits._layout import ProductLayer, SumLayer
from rpukit.circuits._parameters import BLOCK, Parameters, Statistics

__all__ = ["Pass", "gather", "run_down", "run_inner", "run_leaves", "run_up"]

Array = Any


@dataclass(slots=True)
class Pass:
    """Arrays of one pass over n samples: values, flows, lifts (n, n_row); elements by layer."""

    codes: Array
    numbers: Array
    values: Array
    elements: dict[int, Array] = field(default_factory=dict)
    element_flows: dict[int, Array] = field(default_factory=dict)
    flows: Array = None
    lift: Array = None


def run_up(parameters: Parameters, codes: Array, numbers: Array, *, keep: bool = False) -> Pass:
    """Compute the values of all rows; ``keep`` the elements for a pass down."""
    return run_inner(parameters, run_leaves(parameters, codes, numbers), keep=keep)


def run_leaves(parameters: Parameters, codes: Array, numbers: Array) -> Pass:
    """Compute the values of the rows of leaves."""
    shape = (len(codes), parameters.layout.n_row)
    run = Pass(codes, numbers, np.empty(shape, parameters.theta.dtype))
    ops.leaf_forward(parameters.rows, codes, numbers, run.values)
    return run


def run_inner(parameters: Parameters, run: Pass, *, keep: bool = False) -> Pass:
    """Compute the values of the rows above those of leaves."""
    layout, theta = parameters.layout, parameters.theta
    for number, layer in enumerate(layout.layers):
        if isinstance(layer, ProductLayer):
            ops.product_forward(layer, run.values, run.values)
            continue
        elements = np.empty((len(run.values), layer.n_element), theta.dtype)
        ops.product_forward(layer.elements, run.values, elements)
        ops.sum_forward(layer, theta, elements, run.values)
        if keep:
            run.elements[number] = elements
    return run


def run_down(parameters: Parameters, run: Pass, root_flows: Array) -> Pass:
    """Compute the flows of all rows and elements; ``root_flows`` is (n, n_root)."""
    layout, theta = parameters.layout, parameters.theta
    run.flows = np.zeros_like(run.values)
    run.lift = np.empty_like(run.values)
    for k, row in enumerate(layout.root_rows):
        possible = run.values[:, row] > -np.inf
        run.flows[:, row] += np.where(possible, root_flows[:, k], 0)
    for number in reversed(range(len(layout.layers))):
        layer = layout.layers[number]
        if isinstance(layer, ProductLayer):
            ops.product_backward(layer, run.flows, run.flows)
            continue
        elements = run.elements[number]
        flows = np.empty_like(elements)
        rows = _rows_of(layer)
        ops.sum_lift(run.values, run.flows, run.lift, rows)
        ops.sum_backward(layer, theta, run.lift, elements, flows)
        run.element_flows[number] = flows
        ops.product_backward(layer.elements, flows, run.flows)
    return run


def gather(parameters: Parameters, run: Pass, statistics: Statistics) -> None:
    """Add a pass to the statistics; it must not reach over the end of a block of samples."""
    layout = parameters.layout
    for blocks in layout.blocks.values():
        for block in blocks:
            uses = parameters.uses[block.first]
            n_step = len(run.values) * len(uses)
            up = np.empty((n_step, block.n_node), run.values.dtype)
            child = np.empty((n_step, block.n_child), run.values.dtype)
            for k, use in enumerate(uses):
                layer: Any = layout.layers[use.layer]
                row = layer.group_row[use.group]
                first = layer.list_first[layer.group_list[use.group]]
                ids = layer.list_elements[first : first + block.n_child]
                up[k :: len(uses)] = run.lift[:, row : row + block.n_node]
                child[k :: len(uses)] = run.elements[use.layer][:, ids]
            part = slice(block.first, block.first + block.size)
            ops.sum_flow(block.n_child, parameters.theta[part], up, child, statistics.chains[part])
    ops.leaf_flow(statistics, parameters.rows, run.codes, run.numbers, run.flows)
    statistics.n_sample += len(run.values)
    if statistics.n_sample % BLOCK == 0:
        statistics.settle()


def _rows_of(layer: SumLayer) -> tuple[int, int]:
    """First row of a layer of sums, and the end."""
    return int(layer.group_row.min()), int((layer.group_row + layer.group_size).max())
