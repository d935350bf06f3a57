"""Ops that need a whole row: softmax and layer normalisation, and their gradients."""

from __future__ import annotations

import math

from rpukit.tiled.ir import Node, Tensor
from rpukit.tiled.ops._base import (
    Numbers,
    Tensors,
    Tiled,
    attribute,
    by_slot,
    extents,
    fault,
    numbers,
    real_of,
    spans_of,
)
from rpukit.tiled.tile_space import Axis, Box, Operand, TileSpace


class Rows(Tiled):
    """Op on whole rows along one axis, or along the last ones, which are not cut.

    Parameters
    ----------
    name, kernel : str
    kind : int
    shared : dict of int to str
        Inputs and outputs (numbered after the inputs) with one value per row ("row") or one value
        per position in a row ("place").
    n_inputs, n_outputs : int
    """

    module = "rows"

    def __init__(
        self,
        name: str,
        kernel: str,
        n_inputs: int,
        n_outputs: int = 1,
        kind: int = 0,
        shared: dict[int, str] | None = None,
    ) -> None:
        super().__init__(name, (n_inputs, n_inputs), (1, n_outputs))
        self.kernel, self.kind = kernel, kind
        self._shared = shared or {}
        self._n_in = n_inputs
        self.buffers = n_inputs + n_outputs

    def _axes(self, node: Node, tensors: Tensors) -> range:
        """Find the axes of a row."""
        rank = len(tensors[node.inputs[0]].shape)
        axis = attribute(node, "axis", -1)
        if not -rank <= axis < rank:
            raise fault(node, f"axis: got {axis} for {rank} axes")
        axis %= rank
        return range(axis, rank) if self._shared else range(axis, axis + 1)

    def _shape(self, node: Node, tensors: Tensors, place: int) -> tuple[int, ...]:
        whole, row = tensors[node.inputs[0]].shape, self._axes(node, tensors)
        manner = self._shared.get(place)
        if manner == "row":
            return tuple(1 if i in row else n for i, n in enumerate(whole))
        return tuple(whole[i] for i in row) if manner == "place" else whole

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        real = real_of(node, tensors)
        for place, name in enumerate(node.inputs):
            want = self._shape(node, tensors, place)
            if tensors[name].shape != want:
                raise fault(node, f"{name}: got shape {tensors[name].shape}, need {want}")
        return [
            Tensor(name, self._shape(node, tensors, self._n_in + k), real)
            for k, name in enumerate(node.outputs)
            if name
        ]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        shape, row = tensors[node.inputs[0]].shape, self._axes(node, tensors)
        axes = tuple(
            Axis(f"d{i}", n, quantum=max(n, 1) if i in row else 1) for i, n in enumerate(shape)
        )
        operands = []
        for place, name in [*enumerate(node.inputs), *enumerate(node.outputs, self._n_in)]:
            if not name:
                continue
            manner = self._shared.get(place)
            dims = list(row) if manner == "place" else list(range(len(shape)))
            if manner == "row":
                dims = [-1 if i in row else i for i in dims]
            spans = spans_of(self._shape(node, tensors, place), dims)
            mode = "in" if place < self._n_in else "out"
            operands.append(Operand(name, mode, spans, place))
        return TileSpace(axes, tuple(operands))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space = self.space(node, tensors)
        row, sizes = self._axes(node, tensors), extents(box)
        inner = math.prod(sizes[row.stop :])
        length = math.prod(sizes[row.start : row.stop])
        rows = math.prod(sizes[: row.start]) * inner
        outputs = [by_slot(space, self._n_in + k) is not None for k in range(1, 3)]
        ints = [rows, self.kind, length, inner, *outputs]
        floats = [attribute(node, "epsilon", 1e-5)]
        return numbers(ints, floats, tensors[node.outputs[0]].dtype)


class ArgMax(Tiled):
    """Index of the largest element along an axis, int64."""

    kernel, module, buffers = "tiled_arg_max", "rows", 2

    def __init__(self) -> None:
        super().__init__("ArgMax", (1, 1))

    def _axis(self, node: Node, tensors: Tensors) -> int:
        shape, axis = tensors[node.inputs[0]].shape, attribute(node, "axis", 0)
        if not -len(shape) <= axis < len(shape) or not shape[axis]:
            raise fault(node, f"axis: got {axis} for shape {shape}, need one with an element")
        return int(axis % len(shape))

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        real_of(node, tensors)
        axis, shape = self._axis(node, tensors), tensors[node.inputs[0]].shape
        kept = (1,) if attribute(node, "keepdims", 1) else ()
        return [Tensor(node.outputs[0], (*shape[:axis], *kept, *shape[axis + 1 :]), "int64")]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        axis, shape = self._axis(node, tensors), tensors[node.inputs[0]].shape
        order = [i - (i > axis) if i != axis else len(shape) - 1 for i in range(len(shape))]
        axes = [Axis(f"d{i}", size) for i, size in enumerate(shape) if i != axis]
        axes.append(Axis("row", shape[axis], quantum=shape[axis]))
        kept = [-1] if attribute(node, "keepdims", 1) else []
        places = [*order[:axis], *kept, *order[axis + 1 :]]
        return TileSpace(
            tuple(axes),
            (
                Operand(node.inputs[0], "in", spans_of(shape, order), 0),
                Operand(
                    node.outputs[0], "out", spans_of(tensors[node.outputs[0]].shape, places), 1
                ),
            ),
        )

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        axis, (*free, row) = self._axis(node, tensors), extents(box)
        ints = [math.prod(free), row, math.prod(free[axis:])]
        last = bool(attribute(node, "select_last_index", 0))
        return numbers([*ints, last], (), tensors[node.inputs[0]].dtype)


OPS = [
    ArgMax(),
    Rows("Softmax", "tiled_softmax", 1),
    Rows("LogSoftmax", "tiled_softmax", 1, kind=1),
    Rows("SoftmaxGrad", "tiled_softmax_grad", 2),  # dy, y
    Rows("LogSoftmaxGrad", "tiled_softmax_grad", 2, kind=1),
    Rows(
        "LayerNormalization",
        "tiled_layer_norm",
        3,  # x, scale, bias
        3,  # y, mean, inv_std
        shared={1: "place", 2: "place", 4: "row", 5: "row"},
    ),
    Rows(
        "LayerNormGradX",
        "tiled_layer_norm_grad",
        5,  # dy, x, scale, mean, inv_std
        shared={2: "place", 3: "row", 4: "row"},
    ),
]
