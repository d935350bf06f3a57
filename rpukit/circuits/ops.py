"""Ops of circuits: check nothing, pick the mirror of a dtype, run it over samples or nodes.

What users call is `rpukit.circuits.Circuit`, which checks; here arrays are as the layout says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit._precision import mirror
from rpukit._workers import run_rows, work_grain
from rpukit.circuits._layout import ProductLayer, SumLayer

__all__ = [
    "choose_down",
    "largest_forward",
    "leaf_choose",
    "leaf_flow",
    "leaf_forward",
    "leaf_maximise",
    "leaf_posterior",
    "leaf_table",
    "mark_products",
    "product_backward",
    "product_forward",
    "settle",
    "sum_backward",
    "sum_flow",
    "sum_forward",
    "sum_lift",
    "sum_maximise",
]

Array = Any
_LAYERS, _LEARNING = "rpukit.circuits._mirror.layers", "rpukit.circuits._mirror.learning"
_QUERIES = "rpukit.circuits._mirror.queries"


def product_forward(layer: ProductLayer, values: Array, out: Array) -> None:
    """Add up rows of ``values`` (n_sample, n_row) into columns of ``out`` from layer.target on."""
    args = (layer.first, layer.rows, values, out, max(layer.target, 0))
    grain = work_grain(layer.rows.size)
    run_rows(mirror(_LAYERS, values.dtype).product_forward, len(values), *args, grain=grain)


def product_backward(layer: ProductLayer, above: Array, flows: Array) -> None:
    """Add flows of products, columns of ``above`` from layer.target on, to those of their rows."""
    args = (layer.used, layer.back_first, layer.back, above, max(layer.target, 0), flows)
    grain = work_grain(layer.rows.size)
    run_rows(mirror(_LAYERS, flows.dtype).product_backward, len(flows), *args, grain=grain)


def sum_forward(layer: SumLayer, theta: Array, elements: Array, values: Array) -> None:
    """Mix elements (n_sample, n_element) into the rows of the layer's groups."""
    args = (*_groups(layer), theta, elements, values)
    run_rows(
        mirror(_LAYERS, values.dtype).sum_forward,
        len(values),
        *args,
        grain=work_grain(_n_weight(layer)),
    )


def sum_lift(values: Array, flows: Array, lift: Array, rows: tuple[int, int]) -> None:
    """Lift = log flow - value, -inf where there is no flow, of rows rows[0] to rows[1] - 1."""
    args = (*rows, values, flows, lift)
    grain = work_grain(20 * (rows[1] - rows[0]))
    run_rows(mirror(_LAYERS, values.dtype).sum_lift, len(values), *args, grain=grain)


def sum_backward(
    layer: SumLayer, theta: Array, lift: Array, elements: Array, flows: Array
) -> None:
    """Flows of elements (n_sample, n_element) from the lifts of the sums above them."""
    parents = (layer.parent_first, layer.parent_group, layer.parent_place)
    args = (*_groups(layer), *parents, theta, lift, elements, flows)
    run_rows(
        mirror(_LAYERS, flows.dtype).sum_backward,
        len(flows),
        *args,
        grain=work_grain(_n_weight(layer)),
    )


def sum_flow(n_child: int, theta: Array, up: Array, child: Array, chains: Array) -> None:
    """Go on with the chains of a block of weights by steps (sample, use)."""
    grain = work_grain(len(up) * up.shape[1])
    run_rows(
        mirror(_LEARNING, chains.dtype).sum_flow,
        n_child,
        n_child,
        theta,
        up,
        child,
        chains,
        grain=grain,
    )


def settle(chains: Array, totals: Array) -> None:
    """Add chains to totals (float64) and start them anew."""
    run_rows(mirror(_LEARNING, chains.dtype).settle, chains.size, chains, totals, grain=1 << 16)


def sum_maximise(
    n_child: int,
    step: float,
    pseudocount: float,
    keep_zeros: bool,
    chains: Array,
    totals: Array,
    theta: Array,
) -> None:
    """EM step of a block of weights, in place."""
    args = (n_child, np.float64(step), np.float64(pseudocount), keep_zeros, chains, totals, theta)
    run_rows(
        mirror(_LEARNING, chains.dtype).sum_maximise,
        theta.size // n_child,
        *args,
        grain=work_grain(n_child),
    )


def leaf_table(leaf: Any, parameters: Array, table: Array) -> None:
    """Log-probabilities of the values of one vector of leaves of finite support."""
    kind, n_values = leaf.KIND, leaf.support
    c0, c1, _ = (parameters.dtype.type(c) for c in leaf.constants())
    args = (kind, n_values, c0, c1, parameters, table)
    run_rows(
        mirror(_LEARNING, table.dtype).leaf_table,
        table.size // n_values,
        *args,
        grain=work_grain(20 * n_values),
    )


def leaf_forward(rows: Any, codes: Array, numbers: Array, values: Array) -> None:
    """Values of all leaves, the first columns of ``values``."""
    args = (rows.kinds, rows.variable, rows.place, codes, numbers, rows.table, rows.parameters)
    run_rows(
        mirror(_LEARNING, values.dtype).leaf_forward,
        len(values),
        *args,
        values,
        grain=work_grain(rows.kinds.size),
    )


def leaf_flow(sources: Any, rows: Any, codes: Array, numbers: Array, flows: Array) -> None:
    """Go on with the statistics of the leaves that own parameters."""
    args = (
        sources.kinds,
        sources.n_statistic,
        sources.use_first,
        sources.use_row,
        rows.variable,
        sources.place,
        codes,
        numbers,
        flows,
        sources.leaf_chains,
    )
    run_rows(
        mirror(_LEARNING, flows.dtype).leaf_flow,
        sources.kinds.size,
        *args,
        grain=work_grain(len(flows)),
    )


def leaf_maximise(
    leaf: Any,
    n_node: int,
    step: float,
    pseudocount: float,
    keep_zeros: bool,
    chains: Array,
    totals: Array,
    parameters: Array,
) -> None:
    """EM step of one vector of leaves, in place."""
    numbers = (np.float64(v) for v in (*leaf.constants(), step, pseudocount))
    args = (leaf.KIND, leaf.support, *numbers, keep_zeros, chains, totals, parameters)
    grain = work_grain(10 * (leaf.n_statistics + 1))
    run_rows(mirror(_LEARNING, chains.dtype).leaf_maximise, n_node, *args, grain=grain)


def leaf_posterior(rows: Any, support: Array, codes: Array, flows: Array, out: Array) -> None:
    """Probabilities of the values of unknown variables; ``out`` (n, n_variables, most) holds 0."""
    args = (rows.kinds, rows.variable, rows.place, support, rows.table, codes, flows, out)
    grain = work_grain(rows.kinds.size * 10)
    run_rows(mirror(_QUERIES, out.dtype).leaf_posterior, len(out), *args, grain=grain)


def largest_forward(layer: SumLayer, log_theta: Array, elements: Array, values: Array) -> None:
    """Largest log theta + element instead of the mixture."""
    args = (*_groups(layer), log_theta, elements, values)
    grain = work_grain(_n_weight(layer))
    run_rows(mirror(_QUERIES, values.dtype).largest_forward, len(values), *args, grain=grain)


def choose_down(
    layer: SumLayer,
    draws: tuple[Any, ...],
    theta: Array,
    elements: Array,
    chosen: Array,
) -> None:
    """Choose a child for each chosen sum; ``draws``: best, first_sample, key words, op."""
    inside = (layer.elements.first, layer.elements.rows)
    args = (*draws, *_groups(layer), *inside, theta, elements, chosen)
    grain = work_grain(layer.n_element)
    run_rows(mirror(_QUERIES, theta.dtype).choose_down, len(chosen), *args, grain=grain)


def mark_products(layer: ProductLayer, chosen: Array, dtype: Any) -> None:
    """Choose the rows of chosen products."""
    args = (layer.first, layer.rows, layer.target, chosen)
    grain = work_grain(layer.rows.size)
    run_rows(mirror(_QUERIES, dtype).mark_products, len(chosen), *args, grain=grain)


def leaf_choose(
    rows: Any,
    draws: tuple[Any, ...],
    support: Array,
    codes: Array,
    numbers: Array,
    chosen: Array,
) -> None:
    """Give unknown variables a value of their chosen leaf, in place."""
    tables = (rows.kinds, rows.variable, rows.place, support, rows.table, rows.parameters)
    args = (*draws, *tables, codes, numbers, chosen)
    grain = work_grain(rows.kinds.size)
    run_rows(mirror(_QUERIES, numbers.dtype).leaf_choose, len(chosen), *args, grain=grain)


def _groups(layer: SumLayer) -> tuple[Array, ...]:
    return (
        layer.list_first,
        layer.list_elements,
        layer.group_list,
        layer.group_row,
        layer.group_size,
        layer.group_theta,
    )


def _n_weight(layer: SumLayer) -> int:
    return int(np.sum(layer.group_size * np.diff(layer.list_first)[layer.group_list]))
