"""Updates in place: gradient accumulation, SGD, SGD with momentum, Adam."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rpukit.tiled.ir import Node, Tensor
from rpukit.tiled.ops._base import (
    Numbers,
    Tensors,
    Tiled,
    attribute,
    fault,
    numbers,
    real_of,
    spans_of,
)
from rpukit.tiled.tile_space import Axis, Box, Cut, Operand, TileSpace, Whole, Window

_KINDS = ("SGD", "MomentumSGD", "Adam", "AdamPowers")


class InPlace(Tiled):
    """Base class of ops that change some of their inputs in place.

    Parameters
    ----------
    name : str
    changed : sequence of int
        Inputs that are changed, in the order of the outputs.
    n_inputs : int
    """

    def __init__(self, name: str, changed: Sequence[int], n_inputs: int) -> None:
        super().__init__(name, (n_inputs, n_inputs), (len(changed), len(changed)))
        self._changed = tuple(changed)

    def aliases(self, node: Node) -> list[tuple[str, str]]:
        return [(node.outputs[k], node.inputs[place]) for k, place in enumerate(self._changed)]

    def scalar(self, place: int) -> bool:
        """Tell whether an input is the same for all elements."""
        return False

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        own = [i for i in range(len(node.inputs)) if not self.scalar(i)]
        real = real_of(node, tensors, *own)
        shapes = {tensors[node.inputs[i]].shape for i in own}
        if len(shapes) != 1:
            raise fault(node, f"got shapes {sorted(shapes)}, need one")
        return [
            Tensor(name, tensors[node.inputs[place]].shape, real)
            for name, place in zip(node.outputs, self._changed, strict=True)
        ]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        shape = tensors[node.inputs[0]].shape
        axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(shape))
        operands = []
        for place, name in enumerate(node.inputs):
            if self.scalar(place):
                spans = tuple(Whole(n) for n in tensors[name].shape)
                operands.append(Operand(name, "in", spans, self.slot(place)))
                continue
            changed = place in self._changed
            alias = self._changed.index(place) if changed else None
            cuts = spans_of(shape, range(len(shape)))
            mode = "inout" if changed else "in"
            operands.append(Operand(name, mode, cuts, self.slot(place), alias))
        return TileSpace(axes, tuple(operands))

    def slot(self, place: int) -> int:
        """Find the buffer of an input."""
        return place


class Accumulate(InPlace):
    """Add a gradient to its accumulator, or overwrite the accumulator with it."""

    kernel, module, buffers = "tiled_accumulate", "elementwise", 3

    def __init__(self) -> None:
        super().__init__("InPlaceAccumulatorV2", [0], 3)

    def scalar(self, place: int) -> bool:
        return place == 2

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        flag = tensors[node.inputs[2]]
        if flag.dtype != "bool" or flag.size != 1:
            raise fault(node, f"reset: got {flag.dtype} {flag.shape}, need one bool")
        return super().infer(node, tensors)

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        return numbers([_size(box)], [], tensors[node.inputs[0]].dtype)


class Update(InPlace):
    """A step of an optimiser; with `first`, of the rows of the weight from that one onwards."""

    kernel, module, buffers = "tiled_update", "elementwise", 5

    def scalar(self, place: int) -> bool:
        return self.name == "Adam" and place == 4

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        weight = tensors[node.inputs[0]]
        if self.name == "AdamPowers" and weight.shape != (2,):
            raise fault(node, f"got shape {weight.shape}, need (2,)")
        first, kept = attribute(node, "first", None), tensors
        if first is not None:  # the gradient and the state have fewer rows than the weight
            rows = tensors[node.inputs[1]].shape
            if len(rows) != len(weight.shape) or not 0 <= first <= weight.shape[0] - rows[0]:
                raise fault(node, f"first: got {first} for {rows} of {weight.shape}")
            part = Tensor(weight.name, (rows[0], *weight.shape[1:]), weight.dtype)
            kept = {**tensors, weight.name: part}
        found = super().infer(node, kept)
        return [Tensor(node.outputs[0], weight.shape, weight.dtype), *found[1:]]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        if self.name == "AdamPowers":
            return TileSpace((Axis("d0", 2, quantum=2),), super().space(node, tensors).operands)
        first, weight = attribute(node, "first", None), tensors[node.inputs[0]]
        if first is None:
            return super().space(node, tensors)
        part = Tensor(weight.name, tensors[node.inputs[1]].shape, weight.dtype)
        space = super().space(node, {**tensors, weight.name: part})
        own = space.operands[0]
        rows = Window(Cut(0), weight.shape[0], 1, -first, 1)
        own = replace(own, spans=(rows, *own.spans[1:]))
        return TileSpace(space.axes, (own, *space.operands[1:]))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        kind = _KINDS.index(self.name)
        floats = [attribute(node, "lr", 0.001)]
        if self.name == "MomentumSGD":
            floats.append(attribute(node, "momentum", 0.9))
        elif kind > 1:
            floats += [attribute(node, "beta1", 0.9), attribute(node, "beta2", 0.999)]
            floats.append(attribute(node, "epsilon", 1e-8))
        return numbers([_size(box), kind], floats, tensors[node.inputs[0]].dtype)


def _size(box: Box) -> int:
    return math.prod(hi - lo for lo, hi in box)


OPS = [
    Accumulate(),
    Update("SGD", [0], 2),  # weight, gradient
    Update("MomentumSGD", [0, 2], 3),  # weight, gradient, momentum
    Update("Adam", [0, 2, 3], 5),  # weight, gradient, first and second moment, powers
    Update("AdamPowers", [0], 1),  # powers of the two decays, one step on
]
