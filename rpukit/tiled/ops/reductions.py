"""Reductions with a specified order of summation: sums, squared errors, batch statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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
    packed,
    real_of,
    spans_of,
)
from rpukit.tiled.tile_space import Axis, Box, Cut, Operand, TileSpace

_AXES, _INPUTS = 4, 4  # most free axes (and as many of sums) and inputs of the kernel
# Kinds of tiled_reduce, by number
KINDS = ("sum", "mean", "inv_std", "normalised", "square")
Axes = Callable[[Node, Tensors], Sequence[int]]


def _given(node: Node, tensors: Tensors) -> Sequence[int]:
    rank = len(tensors[node.inputs[0]].shape)
    axes = attribute(node, "axes", None)
    if not axes:
        return () if attribute(node, "noop_with_empty_axes", 0) else range(rank)
    if any(not -rank <= axis < rank for axis in axes):
        raise fault(node, f"axes: got {tuple(axes)}, need axes of {rank}")
    return sorted({axis % rank for axis in axes})


def _all_but_channel(node: Node, tensors: Tensors) -> Sequence[int]:
    rank = len(tensors[node.inputs[0]].shape)
    return [axis for axis in range(rank) if axis != 1]


def _image(node: Node, tensors: Tensors) -> Sequence[int]:
    return range(2, len(tensors[node.inputs[0]].shape))


def _all(node: Node, tensors: Tensors) -> Sequence[int]:
    return range(len(tensors[node.inputs[0]].shape))


def _all_but_last(node: Node, tensors: Tensors) -> Sequence[int]:
    return _all(node, tensors)[:-1]


class Reduce(Tiled):
    """Sum over axes of the first input, in ascending order, rows of the last axis first.

    Parameters
    ----------
    name : str
    kind : str
        One of `KINDS`.
    n_inputs : int
    axes : callable
        Function of node and tensors that gives the axes of the sum, ascending.
    keepdims : bool, optional
        Default: the attribute of the node.

    Notes
    -----
    Other inputs have the shape of the first or of the result, or length 1 on axes where they are
    constant.
    """

    kernel, module, buffers = "tiled_reduce", "reductions", _INPUTS + 1

    def __init__(
        self, name: str, kind: str, n_inputs: int, axes: Axes, keepdims: bool | None = None
    ) -> None:
        super().__init__(name, (n_inputs, n_inputs))
        self.kind, self._axes, self._keep = KINDS.index(kind), axes, keepdims

    def _keeps(self, node: Node) -> bool:
        return bool(attribute(node, "keepdims", 1)) if self._keep is None else self._keep

    def _dims(self, node: Node, tensors: Tensors, place: int) -> list[int]:
        """Find the axis of the first input that each dimension of an input follows."""
        first, own = tensors[node.inputs[0]].shape, tensors[node.inputs[place]].shape
        summed = self._axes(node, tensors)
        free = [axis for axis in range(len(first)) if axis not in summed]
        if len(own) == len(first):
            at = list(range(len(first)))
        elif len(own) == len(free):
            at = free
        else:
            raise fault(node, f"input of shape {own} does not match {first}")
        if any(n not in (1, first[axis]) for axis, n in zip(at, own, strict=True)):
            raise fault(node, f"input of shape {own} does not match {first}")
        return [axis if n == first[axis] else -1 for axis, n in zip(at, own, strict=True)]

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        real, shape = real_of(node, tensors), tensors[node.inputs[0]].shape
        if len(shape) > _AXES:
            raise fault(node, f"got {len(shape)} axes, need at most {_AXES}")
        for place in range(len(node.inputs)):
            self._dims(node, tensors, place)
        summed = self._axes(node, tensors)
        if any(shape[axis] == 0 for axis in summed):
            raise fault(node, f"got shape {shape}, need at least one element to sum")
        if self._keeps(node):
            shape = tuple(1 if axis in summed else n for axis, n in enumerate(shape))
        else:
            shape = tuple(n for axis, n in enumerate(shape) if axis not in summed)
        return [Tensor(node.outputs[0], shape, real)]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        shape, summed = tensors[node.inputs[0]].shape, list(self._axes(node, tensors))
        free = [axis for axis in range(len(shape)) if axis not in summed]
        order = {axis: place for place, axis in enumerate(free + summed)}
        axes = [Axis(f"d{axis}", shape[axis]) for axis in free]
        for axis in summed:
            row = len(summed) > 1 and axis == summed[-1]
            axes.append(Axis(f"d{axis}", shape[axis], "reduce", shape[axis] if row else 1))
        operands = []
        for slot, name in enumerate(node.inputs):
            dims = [order.get(d, -1) for d in self._dims(node, tensors, slot)]
            operands.append(Operand(name, "in", spans_of(tensors[name].shape, dims), slot))
        out = tensors[node.outputs[0]].shape
        kept = range(len(free)) if len(out) == len(free) else [
            order[axis] if axis in free else -1 for axis in range(len(shape))
        ]  # fmt: skip
        operands.append(Operand(node.outputs[0], "out", spans_of(out, list(kept)), _INPUTS))
        return TileSpace(tuple(axes), tuple(operands))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space = self.space(node, tensors)
        sizes, n_free = extents(box), sum(axis.kind == "free" for axis in space.axes)
        free, summed = sizes[:n_free], sizes[n_free:]
        if len(summed) == 1:
            summed = (*summed, 1)  # rows of one element
        shape = ((1,) * (_AXES - len(free)), free, (1,) * (_AXES - len(summed)), summed)
        whole = [n for part in shape for n in part]
        ints = [math.prod(free), self.kind, space.first(box), space.last(box), *whole]
        for slot in range(_INPUTS + 1):
            ints += _strides(space, by_slot(space, slot), box, n_free)
        count = math.prod(axis.extent for axis in space.axes if axis.kind == "reduce")
        floats = (count, attribute(node, "epsilon", 1e-5))
        return numbers(ints, floats, tensors[node.outputs[0]].dtype)


def _strides(space: TileSpace, operand: Operand | None, box: Box, n_free: int) -> list[int]:
    """Compute strides over four free axes and four of sums; 0 where an operand is constant."""
    found = [0] * (2 * _AXES)
    if operand is None:
        return found
    n_sum = len(space.axes) - n_free
    single = n_sum == 1
    steps = packed(extents(space.rectangle(operand, box)))
    for span, step in zip(operand.spans, steps, strict=True):
        if isinstance(span, Cut):
            axis = span.axis
            if axis < n_free:
                found[_AXES - n_free + axis] = step
            else:
                found[2 * _AXES - n_sum - single + axis - n_free] = step
    return found


OPS = [
    Reduce("ReduceSum", "sum", 1, _given),
    Reduce("ReduceMean", "mean", 1, _given),
    Reduce("GlobalAveragePool", "mean", 1, _image, keepdims=True),
    Reduce("MSELoss", "square", 2, _all, keepdims=False),
    Reduce("ChannelMean", "mean", 1, _all_but_channel, keepdims=False),
    Reduce("ChannelInvStd", "inv_std", 2, _all_but_channel, keepdims=False),  # x, mean
    Reduce("ChannelSum", "sum", 1, _all_but_channel, keepdims=False),
    Reduce("ConvGradB", "sum", 1, _all_but_channel, keepdims=False),
    # dy, x, mean, inv_std
    Reduce("ChannelProduct", "normalised", 4, _all_but_channel, keepdims=False),
    Reduce("RowsSum", "sum", 1, _all_but_last, keepdims=False),
    Reduce("RowsProduct", "normalised", 4, _all_but_last, keepdims=False),
]
