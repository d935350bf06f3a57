"""Ops of circuits: each runs a kernel, or its mirror over samples or nodes.

`rpukit.circuits.Circuit` checks what users give; ops check nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact.twins import mirror, real
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.compiled.layout import ProductLayer, SumLayer
from rpukit.circuits.compiled.leaf_tables import LONG
from rpukit.circuits.compiled.tables import Program, node_tiles
from rpukit.circuits.graph.leaves import LeafTraits
from rpukit.circuits.ops.sum_launch import mix_down, mix_up

__all__ = [
    "choose_down",
    "flows_down",
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
    "root_flows",
    "spread",
    "sum_backward",
    "sum_backward_joined",
    "sum_forward",
    "sum_lift",
    "values_up",
]

Array = Any
_LAYERS, _LEARNING = "rpukit.circuits._mirror.layers", "rpukit.circuits._mirror.learning"
_LEAVES = "rpukit.circuits._mirror.leaves"
_QUERIES = "rpukit.circuits._mirror.queries"
_PASSES, _NARROW = "rpukit.circuits._mirror.passes", "rpukit.circuits._mirror.narrow"
_SINGLE = "rpukit.circuits._mirror.single"

_CHOOSE_DOWN = Kernel("choose_down")
_LARGEST_FORWARD = Kernel("largest_forward")
_LEAF_CHOOSE = Kernel("leaf_choose")
_LEAF_FLOW = Kernel("leaf_flow")
_LEAF_FORWARD = Kernel("leaf_forward")
_LEAF_MAXIMISE = Kernel("leaf_maximise")
_LEAF_POSTERIOR = Kernel("leaf_posterior")
_LEAF_TABLE = Kernel("leaf_table")
_MARK_PRODUCTS = Kernel("mark_products")
_PRODUCT_BACKWARD = Kernel("product_backward")
_PRODUCT_FORWARD = Kernel("product_forward")
_ROOT_FLOWS = Kernel("root_flows")
_SUM_LIFT = Kernel("sum_lift")

_MOST_ROWS = 65535  # largest grid along y
_BLOCKS = 8192  # of a grid that fills a GPU several times
_HOLDING = 1600  # blocks with tables in shared memory that fill a GPU twice
_MANY = 32  # samples from which threads read several together
_FEW = 4


def product_forward(layer: ProductLayer, values: Array, out: Array) -> None:
    """Add rows of ``values`` (n_sample, n_row) into columns of ``out`` from layer.target on."""
    target = max(layer.target, 0)
    if _device.takes_kernels(values):
        n_out = len(layer.first) - 1
        sizes = (len(values), n_out, values.shape[1], out.shape[1], target)
        tables = (layer.first, layer.rows)
        _over(_PRODUCT_FORWARD, n_out, None, *sizes, *tables, values, out, few=_FEW)
        return
    args = (layer.first, layer.rows, values, out, target)
    grain = work_grain(layer.rows.size)
    run_rows(mirror(_LAYERS, np.float32).product_forward, len(values), *args, grain=grain)


def product_backward(layer: ProductLayer, above: Array, flows: Array) -> None:
    """Add flows of products, columns of ``above`` from layer.target on, to those of their rows."""
    target, tables = max(layer.target, 0), (layer.used, layer.back_first, layer.back)
    if _device.takes_kernels(flows):
        sizes = (len(flows), layer.used.size, above.shape[1], flows.shape[1], target)
        given = (*sizes, *tables, above, flows)
        _over(_PRODUCT_BACKWARD, layer.used.size, flows.dtype, *given, few=_FEW)
        return
    args = (*tables, above, target, flows)
    grain = work_grain(layer.rows.size)
    run_rows(mirror(_LAYERS, flows.dtype).product_backward, len(flows), *args, grain=grain)


def sum_forward(
    layer: SumLayer,
    theta: Array,
    elements: Array | None,
    values: Array,
    room: Array | None = None,
) -> None:
    """Mix elements (n_sample, n_element) into the rows of the layer's groups.

    Without elements the kernel computes them from their rows, see `SumLayer.list_rows`.
    ``room``: see `sum_launch.room_for`.
    """
    if _device.takes_kernels(values):
        mix_up(layer, theta, elements, values, room)
        return
    args = (*_groups(layer), theta, elements, values)
    grain = work_grain(layer.n_weight)
    run_rows(mirror(_LAYERS, theta.dtype).sum_forward, len(values), *args, grain=grain)


def values_up(program: Program, theta: Array, values: Array, elements: Array) -> None:
    """Compute the rows above leaves, and elements, of all layers on a CPU, sample by sample."""
    args = (*_program(program), theta, values, elements)
    go = _passes(program, theta, len(values)).values_up
    run_rows(go, len(values), *args, grain=work_grain(program.n_edge + 20 * values.shape[1]))


def flows_down(
    program: Program,
    theta: Array,
    values: Array,
    elements: Array,
    flows: Array,
    lift: Array,
) -> None:
    """Compute the flows of all rows from those of the roots on a CPU, sample by sample."""
    args = (*_program(program), theta, values, elements, flows, lift)
    go = _passes(program, theta, len(values)).flows_down
    run_rows(go, len(values), *args, grain=work_grain(program.n_edge + 20 * values.shape[1]))


def root_flows(
    roots: Array,
    first: int,
    weights: Array,
    values: Array,
    flows: Array,
    out: Array,
    *,
    alone: bool = False,
) -> None:
    """Set the flows of all rows at the start of a pass down; roots are from row ``first`` on.

    ``out`` (n_sample, n_root) gets the values of the roots. ``alone``: on a GPU, leave the flows
    of the rows before ``first`` as they are.
    """
    args = (roots, weights, values, flows, out)
    if _device.takes_kernels(values):
        start = first if alone else 0
        sizes = (*values.shape, roots.size, start, first)
        _over(_ROOT_FLOWS, values.shape[1] - start, flows.dtype, *sizes, *args)
        return
    go = mirror(_LAYERS, flows.dtype).root_flows
    run_rows(go, len(values), *args, grain=work_grain(values.shape[1]))


def _passes(program: Program, theta: Array, n_sample: int) -> Any:
    """Choose the mirror of whole passes: by sample, or vectors over samples, for small sums."""
    most = program.most
    if n_sample <= 4 and most <= 32 and n_sample * most <= 64:
        return mirror(_SINGLE, theta.dtype)
    narrow = most <= (16 if n_sample >= 16 else 8)
    return mirror(_NARROW if narrow else _PASSES, theta.dtype)


def sum_lift(values: Array, flows: Array, lift: Array, rows: tuple[int, int]) -> None:
    """Compute lift = log flow - value, -inf without flow, of rows rows[0] to rows[1] - 1."""
    args, n_row = (*rows, values, flows, lift), rows[1] - rows[0]
    if _device.takes_kernels(values):
        _over(_SUM_LIFT, n_row, flows.dtype, *values.shape, *args)
        return
    grain = work_grain(20 * n_row)
    run_rows(mirror(_LAYERS, flows.dtype).sum_lift, len(values), *args, grain=grain)


def sum_backward(
    layer: SumLayer,
    theta: Array,
    lift: Array,
    elements: Array,
    flows: Array,
    room: Array | None = None,
) -> None:
    """Compute flows of elements (n_sample, n_element) from the lifts of the sums above them."""
    if _device.takes_kernels(flows):
        mix_down(layer, theta, None, lift, elements, None, flows, room)
        return
    parents = (layer.parent_first, layer.parent_group, layer.parent_place)
    args = (*_groups(layer), *parents, theta, lift, elements, flows)
    grain = work_grain(layer.n_weight)
    run_rows(mirror(_LAYERS, flows.dtype).sum_backward, len(flows), *args, grain=grain)


def sum_backward_joined(
    layer: SumLayer,
    theta: Array,
    values: Array,
    row_flows: Array,
    flows: Array | None,
    room: Array | None,
    *,
    tree: bool = False,
) -> None:
    """Fuse `sum_lift`, `sum_backward` and `product_backward`, on a GPU.

    With ``flows``, those of elements go there, for `product_backward`. ``tree``: flows of rows
    are set, not added to; see `Layout.tree`.
    """
    mix_down(layer, theta, values, None, None, row_flows, flows, room, tree=tree)


def leaf_table(leaf: LeafTraits, parameters: Array, table: Array) -> None:
    """Compute the log-probabilities of one vector of leaves of finite support."""
    kind, n_values = leaf.kind, leaf.support
    c0, c1, _ = (parameters.dtype.type(c) for c in leaf.constants)
    if _device.takes_kernels(table):
        sizes = (table.size, n_values, kind, leaf.n_parameters)
        grid, macros = (-(-table.size // 256),), {"REAL": real(table.dtype)}
        _LEAF_TABLE.launch(grid, (256,), (*sizes, c0, c1, parameters, table), macros=macros)
        return
    args = (kind, n_values, c0, c1, parameters, table)
    grain = work_grain(20 * n_values)
    run_rows(mirror(_LEAVES, table.dtype).leaf_table, table.size // n_values, *args, grain=grain)


def leaf_forward(rows: Any, codes: Array, numbers: Array, values: Array) -> None:
    """Compute the values of all leaves, the first columns of ``values``."""
    tables = (rows.kinds, rows.variable, rows.place, rows.sizes)
    args = (*tables, codes, numbers, rows.table, rows.parameters, values)
    dtype = rows.parameters.dtype
    if _device.takes_kernels(values):
        of, n = rows.nodes, len(values)
        sizes = (n, rows.kinds.size, codes.shape[1], values.shape[1])
        uses = (
            (None,) * 4 if of is None else (of.use_first, of.use_row, of.tile_first, of.tile_size)
        )
        args = (*args[:-1], *uses, values)
        steps = 0 if of is None else n * (rows.kinds.size // len(of.kinds))
        if dtype.itemsize == 4 and n >= 2 * _MANY and 2 * steps >= rows.most > LONG:
            grid = len(of.tile_first), -(-rows.most // LONG)
            macros = {"REAL": real(dtype), "FEW": _FEW, "PART": LONG}
            _LEAF_FORWARD.launch(grid, (256,), (*sizes, *args), macros=macros)
            return
        if dtype.itemsize > 4 or len(values) < 2 * _MANY or not 16 < rows.most <= LONG:
            _over(_LEAF_FORWARD, rows.kinds.size, dtype, *sizes, *args, few=_FEW)
            return
        held = max(32, 1 << (rows.most - 1).bit_length())
        n_block = -(-rows.kinds.size // 32)  # each reads its tables
        grid = n_block, min(-(-len(values) // (8 * _FEW)), max(1, _HOLDING // n_block))
        macros = {"REAL": real(dtype), "FEW": _FEW, "HELD": held}
        _LEAF_FORWARD.launch(grid, (256,), (*sizes, *args), macros=macros)
        return
    grain = work_grain(rows.kinds.size)
    run_rows(mirror(_LEAVES, dtype).leaf_forward, len(values), *args, grain=grain)


def leaf_flow(held: Any, rows: Any, codes: Array, numbers: Array, flows: Array) -> None:
    """Accumulate the statistics of the leaves that own parameters."""
    of, gathered = held.leaves, (held.leaf_chains, held.leaf_totals)
    data = (codes, numbers, rows.parameters, flows, *gathered)
    tables = (
        of.kinds,
        of.n_statistic,
        of.use_first,
        of.use_row,
        rows.variable,
        of.place,
        of.centre,
    )
    if _device.takes_kernels(flows):
        sizes = (len(flows), codes.shape[1], flows.shape[1])
        n_tile, room = len(of.tile_first), 1056 // flows.dtype.itemsize  # as in the kernel
        grid = (n_tile, max(-(-of.most // room), min(64, 512 // n_tile), 1))
        launched = (*sizes, held.clock, *tables, of.tile_first, of.tile_size, *data)
        _LEAF_FLOW.launch(grid, (256,), launched, macros={"REAL": real(flows.dtype)})
        return
    args = (held.n_sample, *tables, *data)
    go_on, grain = mirror(_LEARNING, flows.dtype).leaf_flow, work_grain(len(flows))
    run_rows(go_on, of.kinds.size, *args, grain=grain)


def leaf_maximise(
    leaf: LeafTraits,
    n_node: int,
    step: float,
    pseudocount: float,
    keep_zeros: bool,
    chains: Array,
    totals: Array,
    parameters: Array,
) -> None:
    """Take an EM step of one vector of leaves, in place."""
    numbers = tuple(np.float64(v) for v in (*leaf.constants, step, pseudocount))
    data = (*numbers, keep_zeros, chains, totals, parameters)
    if _device.takes_kernels(parameters):
        sizes = (n_node, leaf.kind, leaf.support, leaf.n_parameters, leaf.n_statistics)
        macros = {"REAL": real(parameters.dtype)}
        _LEAF_MAXIMISE.launch((-(-n_node // 2),), (64,), (*sizes, *data), macros=macros)
        return
    args = (leaf.kind, leaf.support, *data)
    grain = work_grain(10 * (leaf.n_statistics + 1))
    run_rows(mirror(_LEARNING, chains.dtype).leaf_maximise, n_node, *args, grain=grain)


def leaf_posterior(rows: Any, codes: Array, flows: Array, out: Array) -> None:
    """Compute probabilities of unknown values; ``out`` (n, n_variables, most) holds 0."""
    if _device.takes_kernels(out):
        sizes = (*out.shape[:2], flows.shape[1], out.shape[2])
        tables = (rows.first, rows.rows, rows.place, rows.sizes, rows.support, rows.table)
        grid, macros = (out.shape[1], min(len(out), _MOST_ROWS)), {"REAL": real(out.dtype)}
        _LEAF_POSTERIOR.launch(grid, (128,), (*sizes, *tables, codes, flows, out), macros=macros)
        return
    grain = work_grain(rows.kinds.size * 10)
    args = (rows.sizes, rows.variable, rows.place, rows.support, rows.table, codes, flows, out)
    run_rows(mirror(_QUERIES, out.dtype).leaf_posterior, len(out), *args, grain=grain)


def largest_forward(layer: SumLayer, log_theta: Array, elements: Array, values: Array) -> None:
    """Compute the largest log theta + element of each sum instead of the mixture."""
    arrays = (log_theta, elements, values)
    if _device.takes_kernels(values):
        sizes = (len(values), elements.shape[1], values.shape[1])
        tiles = node_tiles(layer, 32)
        macros = {"REAL": real(log_theta.dtype)}
        grid = (len(tiles[0]), min(len(values), _MOST_ROWS))
        args = (*sizes, *_groups(layer), *tiles, *arrays)
        _LARGEST_FORWARD.launch(grid, (32,), args, macros=macros)
        return
    grain = work_grain(layer.n_weight)
    go = mirror(_QUERIES, log_theta.dtype).largest_forward
    run_rows(go, len(values), *_groups(layer), *arrays, grain=grain)


def choose_down(
    layer: SumLayer,
    draws: tuple[Any, ...],
    theta: Array,
    elements: Array,
    chosen: Array,
) -> None:
    """Mark a child of each marked sum; ``draws``: best, first_sample, key words, op."""
    inside = (layer.elements.first, layer.elements.rows)
    if _device.takes_kernels(theta):
        best, first_sample, key0, key1, op = draws
        tiles = node_tiles(layer, 32)
        sizes = (len(chosen), elements.shape[1], chosen.shape[1], best, first_sample, op)
        arrays = (*_groups(layer), *tiles, *inside, theta, elements, chosen.view(np.uint8))
        grid, macros = (len(tiles[0]), min(len(chosen), _MOST_ROWS)), {"REAL": real(theta.dtype)}
        _CHOOSE_DOWN.launch(grid, (32,), (*sizes, *arrays, key0, key1), macros=macros)
        return
    args = (*draws, *_groups(layer), *inside, theta, elements, chosen)
    grain = work_grain(layer.n_element)
    run_rows(mirror(_QUERIES, theta.dtype).choose_down, len(chosen), *args, grain=grain)


def mark_products(layer: ProductLayer, chosen: Array, dtype: Any) -> None:
    """Mark the rows of marked products."""
    if _device.takes_kernels(chosen):
        n_out, marks = len(layer.first) - 1, chosen.view(np.uint8)
        grid = (-(-n_out // 256), min(len(chosen), _MOST_ROWS))
        args = (len(chosen), n_out, chosen.shape[1], layer.target, layer.first, layer.rows, marks)
        _MARK_PRODUCTS.launch(grid, (256,), args)
        return
    grain = work_grain(layer.rows.size)
    marked = (layer.first, layer.rows, layer.target, chosen)
    run_rows(mirror(_QUERIES, dtype).mark_products, len(chosen), *marked, grain=grain)


def leaf_choose(
    rows: Any, draws: tuple[Any, ...], codes: Array, numbers: Array, chosen: Array
) -> None:
    """Set unknown variables to a value of their marked leaf, in place."""
    tables = (rows.kinds, rows.variable, rows.place, rows.sizes, rows.table, rows.parameters)
    if _device.takes_kernels(numbers):
        best, first_sample, key0, key1, op = draws
        sizes = (len(chosen), rows.kinds.size, codes.shape[1], chosen.shape[1])
        args = (*sizes, best, first_sample, op, *tables, codes, numbers, chosen.view(np.uint8))
        _over(_LEAF_CHOOSE, rows.kinds.size, numbers.dtype, *args, key0, key1)
        return
    args = (*draws, *tables, codes, numbers, chosen)
    grain = work_grain(rows.kinds.size)
    run_rows(mirror(_QUERIES, numbers.dtype).leaf_choose, len(chosen), *args, grain=grain)


def _over(
    kernel: Kernel, n: int, dtype: np.dtype[Any] | None, n_sample: int, *args: Any, few: int = 1
) -> None:
    """Launch a kernel with one thread per column, and samples along the second axis.

    ``few``: samples that a thread reads together, if there are many.
    """
    macros: dict[str, Any] = {} if dtype is None else {"REAL": real(dtype)}
    if few > 1:
        few = macros["FEW"] = few if n_sample >= _MANY else 1
    grid = spread(-(-n // 256), n_sample, few)
    kernel.launch(grid, (256,), (n_sample, *args), macros=macros)


def spread(n_block: int, n_sample: int, few: int) -> tuple[int, int]:
    """Compute a grid along columns and samples that fills a GPU."""
    return n_block, min(-(-n_sample // few), max(1, _BLOCKS // n_block))


def _program(program: Program) -> tuple[Array, ...]:
    at = (program.at_wide, program.at_narrow)
    return (program.layers, *at, program.wide, program.narrow)


def _groups(layer: SumLayer) -> tuple[Array, ...]:
    return (
        layer.list_first,
        layer.list_elements,
        layer.group_list,
        layer.group_row,
        layer.group_size,
        layer.group_theta,
    )
