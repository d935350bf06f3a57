"""Parts of tensors: slices, concatenations and places within zeros."""

from __future__ import annotations

import math

from rpukit.tiled.ir import Node, Tensor
from rpukit.tiled.ops._base import (
    Numbers,
    Tensors,
    Tiled,
    attribute,
    extents,
    fault,
    numbers,
    real_of,
)
from rpukit.tiled.ops.elementwise import Map
from rpukit.tiled.tile_space import Axis, Back, Box, Cut, Operand, Span, TileSpace, Window

_INPUTS = 7  # most inputs of the kernel


class Slice(Map):
    """A part of a tensor: a copy of every step-th element between two bounds of some axes."""

    def __init__(self) -> None:
        super().__init__("Slice", "copy", 1)

    def ranges(self, node: Node, shape: tuple[int, ...]) -> list[range]:
        """Find the indices of each axis that are kept."""
        found = [range(n) for n in shape]
        starts, ends = attribute(node, "starts", ()), attribute(node, "ends", ())
        axes = attribute(node, "axes", range(len(starts)))
        steps = attribute(node, "steps", (1,) * len(starts))
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            if not -len(shape) <= axis < len(shape):
                raise fault(node, f"axes: got {axis} for {len(shape)} axes")
            if step < 1:
                raise fault(node, f"steps: got {step}, need 1 or more")
            found[axis] = found[axis][start:end:step]
        if not all(found):
            raise fault(node, f"got {[len(one) for one in found]} elements, need at least one")
        return found

    def places(self, node: Node, tensors: Tensors, place: int) -> list[int]:
        return [*range(len(tensors[node.inputs[0]].shape))]

    def starts(self, node: Node, tensors: Tensors, place: int) -> tuple[int, ...]:
        return tuple(one.start for one in self.ranges(node, tensors[node.inputs[0]].shape))

    def shape(self, node: Node, tensors: Tensors) -> tuple[int, ...]:
        return tuple(map(len, self.ranges(node, tensors[node.inputs[0]].shape)))

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        shape, (source, end) = tensors[node.inputs[0]].shape, (node.inputs[0], node.outputs[0])
        kept = self.ranges(node, shape)
        spans: list[Span] = [
            Cut(i) if one == range(n) else Window(Cut(i), n, one.step, -one.start, 1)
            for i, (one, n) in enumerate(zip(kept, shape, strict=True))
        ]
        axes = tuple(Axis(f"d{i}", len(one)) for i, one in enumerate(kept))
        whole = tuple(Cut(i) for i in range(len(kept)))
        return TileSpace(
            axes, (Operand(source, "in", tuple(spans), 0), Operand(end, "out", whole, _INPUTS))
        )


class Concat(Tiled):
    """Tensors side by side along one axis.

    Parameters
    ----------
    name : str
    most : int
        Largest number of inputs.
    """

    kernel, module, buffers = "tiled_concat", "elementwise", _INPUTS + 1

    def __init__(self, name: str, most: int) -> None:
        super().__init__(name, (1, most))

    def axis(self, node: Node, tensors: Tensors) -> int:
        """Find the axis along which the tensors lie side by side."""
        rank, axis = len(tensors[node.inputs[0]].shape), attribute(node, "axis", 0)
        if not -rank <= axis < rank:
            raise fault(node, f"axis: got {axis} for {rank} axes")
        return int(axis) % rank

    def begins(self, node: Node, tensors: Tensors) -> list[int]:
        """Find where each input begins, and the length of the whole."""
        axis, found = self.axis(node, tensors), [0]
        for name in node.inputs:
            found.append(found[-1] + tensors[name].shape[axis])
        return found

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        real, axis = real_of(node, tensors), self.axis(node, tensors)
        shapes = [tensors[name].shape for name in node.inputs]
        total = self.begins(node, tensors)[-1]
        whole = [(*shape[:axis], total, *shape[axis + 1 :]) for shape in shapes]
        if len(set(whole)) != 1:
            raise fault(node, f"shapes {', '.join(map(str, shapes))} do not match")
        return [Tensor(node.outputs[0], whole[0], real)]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        shape, axis = tensors[node.outputs[0]].shape, self.axis(node, tensors)
        operands = []
        for place, (name, begin) in enumerate(
            zip(node.inputs, self.begins(node, tensors), strict=False)
        ):
            spans: list[Span] = [Cut(i) for i in range(len(shape))]
            spans[axis] = Back(Cut(axis), tensors[name].shape[axis], 1, -begin, 1)
            operands.append(Operand(name, "in", tuple(spans), place))
        whole = tuple(Cut(i) for i in range(len(shape)))
        operands.append(Operand(node.outputs[0], "out", whole, _INPUTS))
        axes = tuple(Axis(f"d{i}", n) for i, n in enumerate(shape))
        return TileSpace(axes, tuple(operands))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space, axis, sizes = self.space(node, tensors), self.axis(node, tensors), extents(box)
        outer, inner = math.prod(sizes[:axis]), math.prod(sizes[axis + 1 :])
        ints = [outer, len(node.inputs), sizes[axis], inner]
        begins = self.begins(node, tensors)
        for operand, begin in zip(space.operands, begins[: len(node.inputs)], strict=False):
            first, last = operand.spans[axis].range(box)
            ints += [begin + first - box[axis][0], last - first]
        ints += [0, 0] * (_INPUTS - len(node.inputs))
        return numbers(ints, (), tensors[node.outputs[0]].dtype)


class Place(Concat):
    """A tensor within zeros along one axis: `before` of them ahead, `size` elements in all."""

    def __init__(self) -> None:
        super().__init__("Place", 1)

    def begins(self, node: Node, tensors: Tensors) -> list[int]:
        before, size = attribute(node, "before", 0), attribute(node, "size", 0)
        n = tensors[node.inputs[0]].shape[self.axis(node, tensors)]
        if before < 0 or size < before + n:
            raise fault(node, f"before, size: got {before}, {size} for {n} elements")
        return [before, size]


SLICE = Slice()
OPS = [SLICE, Concat("Concat", _INPUTS), Place()]
