"""Compilation of node vectors into layers of index tables for kernels and mirrors.

Every input and every sum is a *row* of the arrays of values and flows. Products are not kept (but
for those that are roots or children of products): each sum layer computes the *elements* that it
mixes, sums of rows. Sums with one list of children are a *group*, whose weights are dense, (child,
node): block sizes and edges of the graph only decide which groups there are. The graph is not
changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rpukit.circuits.graph.leaves import columns_of
from rpukit.circuits.graph.nodes import InputNodes, Nodes, ProductNodes, SumNodes
from rpukit.circuits.graph.traversal import walk
from rpukit.errors import StructureError

__all__ = ["Block", "Layout", "ProductLayer", "SumLayer", "make_layout"]

IntArray = Any

_WIDEST = 6  # most rows of an element that kernels gather themselves
_APART = 16  # sums above one another, after which flows are scaled


@dataclass(slots=True)
class Block:
    """Weights of a group: the blocks of the owner that it holds, and its offset in the array."""

    owner: SumNodes
    blocks: IntArray  # of sums
    edges: IntArray  # (n_block of the group, n_child_block): number of the edge
    first: int
    n_child: int
    n_node: int

    @property
    def size(self) -> int:
        return self.n_child * self.n_node

    def gather(self, tiles: Any) -> Any:
        """Convert tiles (n_edge, block_size, child_block_size) to weights (n_child, n_node)."""
        chosen = tiles[self.edges]  # (block, child block, node, child)
        return chosen.transpose(1, 3, 0, 2).reshape(self.n_child, self.n_node)

    def scatter(self, weights: Any, tiles: Any) -> None:
        """Write weights (n_child, n_node) back into tiles."""
        n_block, n_child_block = self.edges.shape
        shape = (n_child_block, tiles.shape[2], n_block, tiles.shape[1])
        tiles[self.edges] = weights.reshape(shape).transpose(2, 0, 3, 1)


@dataclass(slots=True)
class ProductLayer:
    """Sums of rows: those of output i are rows[first[i] : first[i + 1]]."""

    first: IntArray
    rows: IntArray
    target: int  # row of output 0, or -1: elements of a sum layer
    back_first: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    back: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))
    used: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))

    def turn(self) -> ProductLayer:
        """Make the transposed table: the outputs of each used row, ascending."""
        outputs = np.repeat(np.arange(len(self.first) - 1, dtype=np.int32), np.diff(self.first))
        order = np.argsort(self.rows, kind="stable")
        self.used, counts = np.unique(self.rows, return_counts=True)
        self.back_first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.back = outputs[order]
        return self


@dataclass(slots=True)
class SumLayer:
    """Groups of sums over the elements of one depth; groups with one list are adjacent."""

    elements: ProductLayer
    list_first: IntArray  # children of list i: list_elements[list_first[i] : list_first[i + 1]]
    list_elements: IntArray
    group_list: IntArray
    group_row: IntArray
    group_size: IntArray
    group_theta: IntArray
    # Parents of an element: groups, and its place in their lists.
    parent_first: IntArray
    parent_group: IntArray
    parent_place: IntArray
    first_row: int = 0
    end_row: int = 0
    n_weight: int = 0
    most_in: int = 0  # children of a group
    most_out: int = 0  # nodes of a group
    element_first: int = 0  # elements of the layers before it
    # Rows of each element, -1 for none, and of the children of all lists: see `_find_rows`.
    width: int = 0
    element_rows: IntArray = None
    list_rows: IntArray = None
    vec: int = 1  # weights of a child that lie at a multiple of 16 bytes
    # (n, 3): first row and rows of vectors whose flows are scaled to that of a root; its row.
    scaled: IntArray = field(default_factory=lambda: np.zeros((0, 3), np.int32))
    tiles: dict[Any, Any] = field(default_factory=dict)  # cached tables of launches, see tables.py

    @property
    def n_element(self) -> int:
        return len(self.elements.first) - 1


@dataclass(slots=True)
class Layout:
    """A compiled circuit."""

    roots: list[Nodes]
    nodes: list[Nodes]
    n_row: int = 0
    n_theta: int = 0
    n_variable: int = 0
    n_element: int = 0
    width: int = 0  # of all layers of sums
    shared: bool = False  # some row is in two elements of a layer
    tree: bool = False  # each row but roots is in one element: its flow comes from there alone
    rows: dict[int, IntArray] = field(default_factory=dict)  # of each node vector, by its number
    blocks: dict[int, list[Block]] = field(default_factory=dict)  # of each source of sums
    inputs: list[InputNodes] = field(default_factory=list)
    layers: list[ProductLayer | SumLayer] = field(default_factory=list)
    root_rows: IntArray = None
    columns: tuple[IntArray, ...] = ()  # see `columns_of`

    @property
    def n_edge(self) -> int:
        """Number of weights, tied ones counted once for each use."""
        return sum(layer.n_weight for layer in self.layers if isinstance(layer, SumLayer))


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
            layout.layers.append(_sum_layer(layout, sums, kept))
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


def _joined(tables: list[IntArray], target: int) -> ProductLayer:
    widths = np.concatenate([np.full(len(t), t.shape[1]) for t in tables])
    first = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
    rows = np.concatenate([t.reshape(-1) for t in tables]).astype(np.int32)
    return ProductLayer(first, rows, target).turn()


def _sum_layer(layout: Layout, sums: list[SumNodes], kept: set[int]) -> SumLayer:
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
    made = _with_parents(_joined(tables, -1), contents, np.array(groups, np.int64))
    made.first_row, made.end_row = first_row, layout.n_row
    made.element_first = layout.n_element
    layout.n_element += made.n_element
    made.most_in, made.most_out = int(np.diff(made.list_first).max()), int(made.group_size.max())
    if not ((made.group_size | made.group_theta) % 4).any():
        made.vec = 4
    made.n_weight = int(np.sum(made.group_size * np.diff(made.list_first)[made.group_list]))
    return made


def _find_rows(layers: list[SumLayer], layout: Layout) -> None:
    """List the rows of elements, if they are few."""
    counts = [np.diff(layer.elements.first) for layer in layers]
    width = max((int(count.max()) for count in counts), default=0)
    if width > _WIDEST:
        return
    layout.shared = any((np.diff(y.elements.back_first) > 1).any() for y in layers)
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
