"""Traversal of graphs of node vectors, and checks of their sizes and edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rpukit._checks import integer, integers, real_array, shown
from rpukit.errors import ParameterError, ShapeError, StructureError

__all__ = [
    "brief",
    "columns_of",
    "edge_pairs",
    "edge_table",
    "named",
    "normalised_tiles",
    "sized",
    "walk",
]

_MOST_VARIABLES = 1 << 24


def sized(n_node: Any, block_size: Any) -> tuple[int, int]:
    for name, value in (("n_nodes", n_node), ("block_size", block_size)):
        integer(value, name, low=1, what="nodes")
    if block_size & (block_size - 1):
        raise ParameterError(f"block_size: got {block_size}, need a power of two")
    if n_node % block_size:
        raise ParameterError(f"n_nodes: got {n_node}, need a multiple of block_size {block_size}")
    return int(n_node), int(block_size)


def brief(scope: int) -> str:
    """Name the first variables of a scope, which may be long: "0, 1, 2, 3, ..."."""
    first: list[str] = []
    while scope and len(first) < 4:
        first.append(str((scope & -scope).bit_length() - 1))
        scope &= scope - 1
    return ", ".join(first) + (", ..." if scope else "")


def named(scope: int) -> str:
    bits = [v for v, bit in enumerate(bin(scope)[:1:-1]) if bit == "1"]
    return "variables " + ", ".join(map(str, bits[:8])) + (", ..." if len(bits) > 8 else "")


def columns_of(var: Any, n: int) -> tuple[int, ...]:
    """Check the variables of a leaf of n of them."""
    limits: dict[str, Any] = {"low": 0, "high": _MOST_VARIABLES, "what": "a column of the data"}
    if n == 1 and not isinstance(var, (tuple, list, np.ndarray)):
        return (integer(var, "var", **limits),)
    given = np.atleast_1d(integers(var, "var")).tolist()
    if len(given) == 1:
        given = list(range(given[0], given[0] + n))
    if len(given) != n or len(set(given)) < n:
        raise ParameterError(f"var: got {shown(var)}, need {n} different variables, or the first")
    return tuple(integer(v, "var", **limits) for v in given)


def edge_table(table: Any, sizes: list[int], size: int, name: str) -> np.ndarray:
    """Check a table of blocks of `size` nodes; give the table of nodes."""
    table = integers(table, name)
    if table.ndim != 2 or table.shape[1] != len(sizes) or table.dtype.kind not in "iu":
        raise ShapeError(f"{name}: got shape {table.shape}, need integers (n, {len(sizes)})")
    most = np.array(sizes) // size
    if len(table) == 0 or table.min() < 0 or (table >= most).any():
        raise ParameterError(f"{name}: need numbers from 0 to {(most - 1).tolist()}")
    wide = table.astype(np.int64)[:, None, :] * size + np.arange(size)[None, :, None]
    flat: np.ndarray = wide.reshape(-1, len(sizes))
    return flat


def edge_pairs(edges: Any, n_block: int, n_child_block: int) -> np.ndarray:
    if edges is None:
        grid: np.ndarray = np.indices((n_block, n_child_block)).reshape(2, -1)
        return grid
    pairs = integers(edges, "edges")
    if pairs.dtype == bool and pairs.shape == (n_block, n_child_block):
        pairs = np.array(np.nonzero(pairs))
    if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.dtype.kind not in "iu":
        raise ShapeError(
            f"edges: got shape {pairs.shape}, need (2, n_edge) of int or "
            f"({n_block}, {n_child_block}) of bool"
        )
    pairs = pairs.astype(np.int64)
    if pairs.size and (pairs.min() < 0 or (pairs.max(axis=1) >= (n_block, n_child_block)).any()):
        raise ParameterError(f"edges: need blocks below {n_block} and {n_child_block}")
    if not np.bincount(pairs[0], minlength=n_block).all():
        raise StructureError(
            f"edges: a block of sums has no child, need one or more for each of {n_block} blocks"
        )
    keys = pairs[0] * n_child_block + pairs[1]
    if (np.diff(keys) <= 0).any() and (np.diff(np.sort(keys)) == 0).any():
        raise StructureError("edges: a pair of blocks comes twice, need distinct pairs")
    return pairs


def normalised_tiles(nodes: Any, n_child: int, parameters: Any) -> np.ndarray:
    """Check the weights of sums over `n_child` nodes, and normalise them."""
    array = real_array(parameters, f"parameters of {nodes!r}")
    shape = nodes.parameter_shape
    if array.ndim == 2 and array.shape == (nodes.n_node, n_child):
        n, c = nodes.n_block, array.shape[1] // nodes.child_block_size
        tiles = array.reshape(n, nodes.block_size, c, nodes.child_block_size).swapaxes(1, 2)
        array = tiles[nodes.edges[0], nodes.edges[1]]
    if array.shape != shape:
        raise ShapeError(
            f"parameters of {nodes!r}: got shape {np.shape(parameters)}, need {shape}, or "
            f"({nodes.n_node}, {n_child})"
        )
    if not np.isfinite(array).all() or array.min() < 0:
        raise ParameterError(
            f"parameters of {nodes!r}: got negative numbers, NaN or infinity, need finite "
            "weights from 0"
        )
    totals = np.zeros((nodes.n_block, nodes.block_size))
    np.add.at(totals, nodes.edges[0], array.sum(axis=2))
    if totals.min() <= 0:
        raise ParameterError(f"parameters of {nodes!r}: a node has no positive weight")
    made: np.ndarray = np.ascontiguousarray(array / totals[nodes.edges[0]][:, :, None])
    return made


def walk(roots: Sequence[Any]) -> Iterator[Any]:
    """Iterate over all nodes below some roots, children first; without recursion."""
    done: set[int] = set()
    above: set[int] = set()  # on the path from a root
    stack: list[tuple[Any, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        nodes, ready = stack.pop()
        if nodes.number in done:
            continue
        if ready:
            above.discard(nodes.number)
            done.add(nodes.number)
            yield nodes
            continue
        if nodes.number in above:
            raise StructureError(f"the graph has a cycle through {nodes!r}")
        above.add(nodes.number)
        stack.append((nodes, True))
        stack.extend((child, False) for child in reversed(nodes.children))
