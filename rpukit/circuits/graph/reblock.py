"""Change of block sizes: `reblock`."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit._checks import Real, Whole, shown, takes
from rpukit.circuits.graph.nodes import (
    InputNodes,
    Nodes,
    ProductNodes,
    SumNodes,
    inputs,
    product,
    sum,
)
from rpukit.circuits.graph.transform import opened, rebuilt
from rpukit.circuits.graph.traversal import walk
from rpukit.errors import ParameterError

__all__ = ["reblock"]

Array = Any


@takes(block_size=Whole(1), max_padding=Real(0))
def reblock(circuit: Any, block_size: int, *, max_padding: float = 0.25) -> Any:
    """Rebuild a circuit with other block sizes.

    Parameters
    ----------
    circuit : Circuit, Nodes or sequence of Nodes
    block_size : int, a power of two
        Wanted for every node vector; smaller where it does not divide the number of nodes.
    max_padding : float, from 0
        Larger blocks join weights that were no edges: they are 0 and masked, and at most this
        part of a sum's weights; else its blocks stay smaller.

    Returns
    -------
    Nodes or list of Nodes
        With the same likelihoods, but for rounding. Learning with ``keep_zeros`` keeps the
        padding at 0.

    Raises
    ------
    DTypeError, ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> root = rk.circuits.reblock(rk.circuits.hmm(4, 8, 5), 2)
    >>> sorted({nodes.block_size for nodes in root.walk()})
    [1, 2]
    """
    if block_size & (block_size - 1):
        raise ParameterError(f"block_size: got {shown(block_size)}, need a power of two")
    roots, _ = opened(circuit)
    sizes = _sizes(list(walk(roots)), block_size, max_padding)

    def remake(nodes: Nodes, children: list[Nodes], parameters: Any) -> Nodes:
        size = sizes[nodes.number]
        if isinstance(nodes, InputNodes):
            copy: Nodes = inputs(nodes.columns, nodes.leaf, nodes.n_node, block_size=size)
            copy._parameters = parameters
            return copy
        if isinstance(nodes, ProductNodes):
            return product(*children, node_edges=nodes.edges, block_size=size)
        assert isinstance(nodes, SumNodes)
        return _retiled(nodes, children, parameters, size)

    return rebuilt(circuit, remake)


def _sizes(every: list[Nodes], wanted: int, most: float) -> dict[int, int]:
    """Block size of each vector: one for all children of a sum, one for all tied vectors."""
    group = {nodes.number: nodes.number for nodes in every}

    def leader(number: int) -> int:
        while group[number] != number:
            group[number] = group[group[number]]
            number = group[number]
        return number

    firsts: dict[int, Nodes] = {}
    for nodes in every:
        first = firsts.setdefault(nodes.source.number, nodes)
        group[leader(nodes.number)] = leader(first.number)
        if isinstance(nodes, SumNodes):
            for child in (*nodes.children, *first.children):
                group[leader(child.number)] = leader(nodes.children[0].number)
    size = dict.fromkeys(group, wanted)
    for nodes in every:
        at = leader(nodes.number)
        size[at] = min(size[at], nodes.n_node & -nodes.n_node)
    sums = [nodes for nodes in firsts.values() if isinstance(nodes, SumNodes)]
    shrinks = True
    while shrinks:
        shrinks = False
        for nodes in sums:
            above, below = leader(nodes.number), leader(nodes.children[0].number)
            old = (nodes.block_size, nodes.child_block_size)
            tiles, _ = _tiles(nodes, size[above], size[below])
            weights = tiles.shape[1] * size[above] * size[below]
            if weights > (1 + most) * nodes.edges.shape[1] * old[0] * old[1]:
                shrinks = True
                for at, least in ((above, old[0]), (below, old[1])):
                    size[at] = max(size[at] // 2, min(size[at], least))
    return {nodes.number: size[leader(nodes.number)] for nodes in every}


def _tiles(nodes: SumNodes, size: int, child_size: int) -> tuple[Array, tuple[Array, ...]]:
    """Give new edges, and of each old piece: its edge, its place there, new edge, place there.

    A piece is the largest part of a tile that is whole in the old and in the new blocks.
    """
    old, child_old = nodes.block_size, nodes.child_block_size
    high, wide = min(old, size), min(child_old, child_size)
    edge, i, j = np.indices((nodes.edges.shape[1], old // high, child_old // wide)).reshape(3, -1)
    row = nodes.edges[0][edge] * old + i * high
    column = nodes.edges[1][edge] * child_old + j * wide
    n_column = int(column.max()) // child_size + 1
    keys, new = np.unique(row // size * n_column + column // child_size, return_inverse=True)
    places = (edge, i * high, j * wide, new.reshape(-1), row % size, column % child_size)
    return np.stack([keys // n_column, keys % n_column]), places


def _retiled(nodes: SumNodes, children: list[Nodes], parameters: Any, size: int) -> Nodes:
    child_size = children[0].block_size
    edges, (edge, i, j, new, row, column) = _tiles(nodes, size, child_size)
    high = np.arange(min(nodes.block_size, size))[None, :, None]
    wide = np.arange(min(nodes.child_block_size, child_size))[None, None, :]
    take = tuple(np.reshape(a, (-1, 1, 1)) for a in (edge, i, j, new, row, column))
    old_at = (take[0], take[1] + high, take[2] + wide)
    new_at = (take[3], take[4] + high, take[5] + wide)
    mask = np.ones((edges.shape[1], size, child_size), bool)
    mask[new_at] = False if nodes.zero_mask is None else nodes.zero_mask[old_at]
    copy = sum(*children, n_nodes=nodes.n_node, edges=edges, block_size=size)
    copy.zero_mask = mask if mask.any() else None
    if parameters is not None:
        weights = np.zeros(mask.shape)
        weights[new_at] = parameters[old_at]
        copy._parameters = weights
    return copy
