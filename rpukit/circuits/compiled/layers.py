"""Tables of a compiled circuit: blocks of weights, layers of products and sums, the layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rpukit.circuits.graph.nodes import InputNodes, Nodes, SumNodes

__all__ = ["Block", "Layout", "ProductLayer", "SumLayer"]

IntArray = Any


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
    shared: bool = False  # some row is in two elements
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
    n_wide: int = 0  # rows at the end, of products of many rows: no nodes of their own
    root_rows: IntArray = None
    columns: tuple[IntArray, ...] = ()  # see `columns_of`

    @property
    def n_node(self) -> int:
        """Number of inputs, sums and kept products."""
        return self.n_row - self.n_wide

    @property
    def n_edge(self) -> int:
        """Number of weights, tied ones counted once for each use."""
        return sum(layer.n_weight for layer in self.layers if isinstance(layer, SumLayer))
