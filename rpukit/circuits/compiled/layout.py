"""Compilation of node vectors into layers of index tables for kernels and mirrors.

Every input and every sum is a *row* of the arrays of values and flows. Products are not kept (but
for those that are roots, children of products, or products of many): each sum layer computes the
*elements* that it mixes, sums of rows. Sums with one list of children are a *group*, whose weights
are dense, (child, node): block sizes and edges of the graph only decide which groups there are.
The graph is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit.circuits.compiled.layers import Block, Layout, ProductLayer, SumLayer
from rpukit.circuits.graph.leaves import columns_of
from rpukit.circuits.graph.nodes import InputNodes, Nodes, ProductNodes, SumNodes
from rpukit.circuits.graph.traversal import walk
from rpukit.errors import StructureError

__all__ = ["Block", "Layout", "ProductLayer", "SumLayer", "make_layout"]

IntArray = Any

_WIDEST = 6  # most rows of an element that kernels gather themselves
_LATER = 1 << 30  # products of more rows get rows after all others: this and more until then
_APART = 16  # sums above one another, after which flows are scaled


def make_layout(roots: Sequence[Nodes]) -> Layout:
    """Compile the circuit below some roots.

    Parameters
    ----------
    roots : sequence of Nodes
        Together they depend on variables 0 to n - 1.

    Returns
    -------
    Layout

    Raises
    ------
    StructureError
    """
    layout = Layout(list(roots), list(walk(roots)))
    scope = 0
    for root in roots:
        scope |= root.scope
    if scope & (scope + 1):
        raise StructureError(
            "roots: the circuit skips a variable below its largest; number variables from 0 "
            "without gaps (rk.circuits.deepcopy renumbers)"
        )
    layout.n_variable = scope.bit_length()
    kept = _kept_products(layout)
    depths = _depths(layout, kept)
    for nodes in layout.nodes:
        if isinstance(nodes, InputNodes):
            layout.inputs.append(nodes)
            _take_rows(layout, nodes, np.arange(nodes.n_node))
        if isinstance(nodes, SumNodes) and nodes.source.number not in layout.blocks:
            _make_blocks(layout, nodes.source)  # type: ignore[arg-type]
    for depth in range(1, max(depths.values(), default=0) + 1):
        here = [nodes for nodes in layout.nodes if depths[nodes.number] == depth]
        products = [n for n in here if isinstance(n, ProductNodes) and n.number in kept]
        sums = [n for n in here if isinstance(n, SumNodes)]
        if products:
            layout.layers.append(_product_layer(layout, products))
        if sums:
            layout.layers += _sum_layer(layout, sums, kept)
    _place_wide(layout)
    _find_rows([layer for layer in layout.layers if isinstance(layer, SumLayer)], layout)
    layout.root_rows = np.concatenate([layout.rows[root.number] for root in roots])
    layout.tree = _is_tree(layout)
    layout.columns = columns_of(
        {(v, n.leaf) for n in layout.inputs for v in n.columns}, layout.n_variable
    )
    _find_scaled(layout)
    return layout


def _kept_products(layout: Layout) -> set[int]:
    kept = {n.number for n in layout.roots if isinstance(n, ProductNodes)}
    for nodes in layout.nodes:
        if isinstance(nodes, ProductNodes):
            kept |= {c.number for c in nodes.children if isinstance(c, ProductNodes)}
    return kept


def _depths(layout: Layout, kept: set[int]) -> dict[int, int]:
    """Compute the depth of each vector: 0 for inputs; products that are not kept add none."""
    depths: dict[int, int] = {}
    for nodes in layout.nodes:
        below = max((depths[c.number] for c in nodes.children), default=-1)
        rises = isinstance(nodes, (InputNodes, SumNodes)) or nodes.number in kept
        depths[nodes.number] = below + int(rises)
    return depths


def _take_rows(layout: Layout, nodes: Nodes, order: IntArray) -> int:
    """Assign rows to the nodes of a vector, the k-th to node order[k]; returns the first."""
    rows = np.empty(nodes.n_node, np.int32)
    rows[order] = layout.n_row + np.arange(nodes.n_node)
    layout.rows[nodes.number] = rows
    layout.n_row += nodes.n_node
    return layout.n_row - nodes.n_node


def _make_blocks(layout: Layout, nodes: SumNodes) -> None:
    """Group blocks of sums with equal children."""
    order = np.argsort(nodes.edges[0], kind="stable")
    counts = np.bincount(nodes.edges[0], minlength=nodes.n_block)
    ends = np.cumsum(counts)
    same: dict[bytes, list[int]] = {}
    if (counts == counts[0]).all() and (
        nodes.edges[1][order].reshape(nodes.n_block, -1) == nodes.edges[1][order[: counts[0]]]
    ).all():
        same[b""] = list(range(nodes.n_block))  # fully connected: the common case, without a loop
    else:
        for b in range(nodes.n_block):
            children = nodes.edges[1][order[ends[b] - counts[b] : ends[b]]]
            same.setdefault(children.tobytes(), []).append(b)
    made = layout.blocks[nodes.number] = []
    for blocks in same.values():
        edges = np.stack([order[ends[b] - counts[b] : ends[b]] for b in blocks])
        block = Block(
            nodes,
            np.array(blocks),
            edges,
            layout.n_theta,
            edges.shape[1] * nodes.child_block_size,
            len(blocks) * nodes.block_size,
        )
        layout.n_theta += block.size
        made.append(block)


def _product_layer(layout: Layout, products: list[ProductNodes]) -> ProductLayer:
    target = layout.n_row
    tables = [_rows_of_products(layout, nodes) for nodes in products]
    for nodes in products:
        _take_rows(layout, nodes, np.arange(nodes.n_node))
    return _joined(tables, target)


def _rows_of_products(layout: Layout, nodes: ProductNodes) -> IntArray:
    columns = [
        layout.rows[child.number][nodes.edges[:, k]] for k, child in enumerate(nodes.children)
    ]
    return np.stack(columns, axis=1)


def _flat(tables: list[IntArray]) -> IntArray:
    return np.concatenate([table.reshape(-1) for table in tables])


def _joined(tables: list[IntArray], target: int) -> ProductLayer:
    widths = np.concatenate([np.full(len(t), t.shape[1]) for t in tables])
    first = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
    rows = _flat(tables).astype(np.int32)
    return ProductLayer(first, rows, target).turn()


def _sum_layer(
    layout: Layout, sums: list[SumNodes], kept: set[int]
) -> list[ProductLayer | SumLayer]:
    bases: dict[int, int] = {}
    tables: list[IntArray] = []
    n_element, first_row = 0, layout.n_row
    for child in (c for nodes in sums for c in nodes.children):
        if child.number in bases:
            continue
        bases[child.number] = n_element
        if isinstance(child, ProductNodes) and child.number not in kept:
            tables.append(_rows_of_products(layout, child))
        else:
            tables.append(layout.rows[child.number][:, None])
        n_element += child.n_node
    lists: dict[bytes, int] = {}
    contents: list[IntArray] = []
    groups: list[tuple[int, int, int, int]] = []
    for nodes in sums:
        ids = np.concatenate([bases[c.number] + np.arange(c.n_node) for c in nodes.children])
        ids = ids.reshape(-1, nodes.child_block_size)
        blocks = layout.blocks[nodes.source.number]
        inner = np.arange(nodes.block_size)
        order = np.concatenate(
            [(b.blocks[:, None] * nodes.block_size + inner).reshape(-1) for b in blocks]
        )
        row = _take_rows(layout, nodes, order)
        for block in blocks:
            children = ids[nodes.source.edges[1][block.edges[0]]].reshape(-1).astype(np.int32)  # type: ignore[attr-defined]
            number = lists.setdefault(children.tobytes(), len(lists))
            if number == len(contents):
                contents.append(children)
            groups.append((number, row, block.n_node, block.first))
            row += block.n_node
    groups.sort(key=lambda group: group[0])  # stable, so that groups of a list are adjacent
    before, tables = _wide_apart(layout, tables)
    made = _with_parents(_joined(tables, -1), contents, np.array(groups, np.int64))
    made.first_row, made.end_row = first_row, layout.n_row
    made.element_first = layout.n_element
    layout.n_element += made.n_element
    made.most_in, made.most_out = int(np.diff(made.list_first).max()), int(made.group_size.max())
    if not ((made.group_size | made.group_theta) % 4).any():
        made.vec = 4
    made.n_weight = int(np.sum(made.group_size * np.diff(made.list_first)[made.group_list]))
    return [*before, made]


def _wide_apart(
    layout: Layout, tables: list[IntArray]
) -> tuple[list[ProductLayer | SumLayer], list[IntArray]]:
    """Give rows of their own to elements of too many rows: kernels gather the others then.

    Not if a row is also in an element of few: its flows would be added in another order.
    """
    wide = [table for table in tables if table.shape[1] > _WIDEST]
    few = [table for table in tables if table.shape[1] <= _WIDEST]
    if not wide or (few and np.isin(_flat(few), _flat(wide)).any()):
        return [], tables
    target = at = _LATER + layout.n_wide
    made = []
    for table in tables:
        if table.shape[1] > _WIDEST:
            table, at = np.arange(at, at + len(table))[:, None], at + len(table)
        made.append(table)
    layout.n_wide = at - _LATER
    return [_joined(wide, target)], made


def _place_wide(layout: Layout) -> None:
    """Place the rows of `_wide_apart` after those of all nodes."""
    shift = layout.n_row - _LATER
    for layer in layout.layers:
        inner = layer.elements if isinstance(layer, SumLayer) else layer
        for table in (inner.rows, inner.used):
            table[table >= _LATER] += shift
        if inner.target >= _LATER:
            inner.target += shift
    layout.n_row += layout.n_wide


def _find_rows(layers: list[SumLayer], layout: Layout) -> None:
    """List the rows of elements, if they are few."""
    counts = [np.diff(layer.elements.first) for layer in layers]
    width = max((int(count.max()) for count in counts), default=0)
    if width > _WIDEST:
        return
    for layer in layers:
        layer.shared = bool((np.diff(layer.elements.back_first) > 1).any())
    layout.shared = any(layer.shared for layer in layers)
    layout.width = width
    for layer, count in zip(layers, counts, strict=True):
        rows = np.full((layer.n_element, width), -1, np.int32)
        rows[np.arange(width) < count[:, None]] = layer.elements.rows
        layer.width, layer.element_rows = width, rows
        layer.list_rows = rows[layer.list_elements]


def _is_tree(layout: Layout) -> bool:
    """Whether the flow of each row, but for roots, comes from one element that kernels gather."""
    sums = [layer for layer in layout.layers if isinstance(layer, SumLayer)]
    if not layout.width or len(sums) < len(layout.layers):
        return False
    used = np.zeros(layout.n_row, np.int64)
    for layer in sums:
        rows = layer.element_rows
        used += np.bincount(rows[rows >= 0], minlength=layout.n_row)
    used[layout.root_rows] += 1
    return bool((used == 1).all())


def _find_scaled(layout: Layout) -> None:
    """Find sums through which all of the root's flow goes: every 16th of a chain is scaled.

    Their flows add up to that of the root, but for roundings, which a long chain would pile up.
    """
    if layout.root_rows.size != 1:
        return
    parents: dict[int, list[Nodes]] = {}
    for nodes in layout.nodes:
        for child in nodes.children:
            parents.setdefault(child.number, []).append(nodes)
    since = {layout.roots[0].number: 0}  # sums since the last one that is scaled
    found: dict[int, tuple[int, int, int]] = {}
    for nodes in reversed(layout.nodes):
        above = parents.get(nodes.number, [])
        if len(above) != 1 or above[0].number not in since:
            continue
        if isinstance(above[0], SumNodes) and len(above[0].children) > 1:
            continue
        since[nodes.number] = since[above[0].number]
        if isinstance(nodes, SumNodes):
            since[nodes.number] = (since[nodes.number] + 1) % _APART
            if since[nodes.number] == 0:
                first = int(layout.rows[nodes.number].min())
                found[first] = (first, nodes.n_node, int(layout.root_rows[0]))
    for layer in layout.layers:
        if isinstance(layer, SumLayer):
            here = [found[r] for r in sorted(found) if layer.first_row <= r < layer.end_row]
            layer.scaled = np.array(here, np.int32).reshape(-1, 3)


def _with_parents(elements: ProductLayer, contents: list[IntArray], groups: IntArray) -> SumLayer:
    """Add the table of parents: the groups of each element, ascending, and its place in them."""
    sizes = np.array([len(c) for c in contents])
    list_first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    owner = np.repeat(np.arange(len(groups), dtype=np.int32), sizes[groups[:, 0]])
    members = np.concatenate([contents[k] for k in groups[:, 0]])
    places = np.concatenate([np.arange(sizes[k], dtype=np.int32) for k in groups[:, 0]])
    order = np.argsort(members, kind="stable")
    counts = np.bincount(members, minlength=len(elements.first) - 1)
    return SumLayer(
        elements,
        list_first,
        np.concatenate(contents),
        groups[:, 0].astype(np.int32),
        groups[:, 1].astype(np.int32),
        groups[:, 2].astype(np.int32),
        groups[:, 3].copy(),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        owner[order],
        places[order],
    )
