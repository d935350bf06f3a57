"""Rows of a table by their indices, as embeddings use them, and the gradient of the table."""

from __future__ import annotations

from rpukit.tiled.ir import Node, Tensor
from rpukit.tiled.ops._base import (
    REALS,
    Numbers,
    Tensors,
    Tiled,
    attribute,
    extents,
    fault,
    numbers,
)
from rpukit.tiled.tile_space import Axis, Box, Cut, Operand, TileSpace


def _check(node: Node, tensors: Tensors) -> tuple[Tensor, Tensor]:
    """Check a matrix of floats and a vector of indices."""
    matrix, indices = (tensors[name] for name in node.inputs)
    if len(matrix.shape) != 2 or matrix.dtype not in REALS:
        raise fault(node, f"got {matrix.dtype} {matrix.shape}, need a matrix of floats")
    if len(indices.shape) != 1 or indices.dtype != "int64":
        raise fault(node, f"got indices of {indices.dtype} {indices.shape}, need [N] of int64")
    return matrix, indices


class GatherRows(Tiled):
    """Row of a table for each index; NaN where an index is out of range."""

    kernel, module, buffers = "tiled_gather_rows", "lookups", 3

    def __init__(self) -> None:
        super().__init__("GatherRows", (2, 2))

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        table, indices = _check(node, tensors)
        return [Tensor(node.outputs[0], (indices.size, table.shape[1]), table.dtype)]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        n_row, width = tensors[node.inputs[0]].shape
        axes = (
            Axis("n", tensors[node.inputs[1]].size),
            Axis("d", width),
            Axis("v", n_row, "reduce"),
        )
        operands = (
            Operand(node.inputs[0], "in", (Cut(2), Cut(1)), 0),
            Operand(node.inputs[1], "in", (Cut(0),), 1),
            Operand(node.outputs[0], "out", (Cut(0), Cut(1)), 2),
        )
        return TileSpace(axes, operands, divide=max(n_row, 1))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        n, d, v = extents(box)
        ints = [n, d, box[2][0], v, self.space(node, tensors).first(box)]
        return numbers(ints, (), tensors[node.outputs[0]].dtype)


class ScatterRows(Tiled):
    """Gradient of a table: for each row, the sum of the gradients of those that were taken."""

    kernel, module, buffers = "tiled_scatter_rows", "lookups", 3

    def __init__(self) -> None:
        super().__init__("ScatterRows", (2, 2))

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        slope, indices = _check(node, tensors)
        if slope.shape[0] != indices.size:
            raise fault(node, f"got {indices.size} indices for {slope.shape[0]} rows")
        size = attribute(node, "size", 0)
        if not isinstance(size, int) or size < 1:
            raise fault(node, f"size: got {size}, need the number of rows of the table")
        return [Tensor(node.outputs[0], (size, slope.shape[1]), slope.dtype)]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        (n, width), size = tensors[node.inputs[0]].shape, attribute(node, "size", 0)
        axes = (Axis("v", size), Axis("d", width), Axis("n", n, "reduce"))
        operands = (
            Operand(node.inputs[0], "in", (Cut(2), Cut(1)), 0),
            Operand(node.inputs[1], "in", (Cut(2),), 1),
            Operand(node.outputs[0], "out", (Cut(0), Cut(1)), 2),
        )
        return TileSpace(axes, operands, divide=max(1, size * n // max(size + n, 1)))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        v, d, n = extents(box)
        ints = [v, d, box[0][0], n, self.space(node, tensors).first(box)]
        return numbers(ints, (), tensors[node.outputs[0]].dtype)


OPS = [GatherRows(), ScatterRows()]
