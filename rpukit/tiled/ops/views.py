"""Views: ops that change the shape only; the output shares the memory of the input."""

from __future__ import annotations

import math
from collections.abc import Callable

from rpukit.tiled.ir import Node, Tensor
from rpukit.tiled.ops._base import Op, Tensors, attribute, fault

Shape = tuple[int, ...]


class View(Op):
    """Op that changes the shape only and needs no computation."""

    view = True

    def __init__(self, name: str, shape: Callable[[Node, Shape], Shape]) -> None:
        super().__init__(name, (1, 1))
        self._shape = shape

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        source = tensors[node.inputs[0]]
        shape = self._shape(node, source.shape)
        if math.prod(shape) != source.size:
            raise fault(node, f"cannot reshape {source.shape} to {shape}")
        return [Tensor(node.outputs[0], shape, source.dtype)]

    def aliases(self, node: Node) -> list[tuple[str, str]]:
        return [(node.outputs[0], node.inputs[0])]


def _reshape(node: Node, shape: Shape) -> Shape:
    want = list(attribute(node, "shape", ()))
    if not attribute(node, "allowzero", 0):
        if any(n == 0 and i >= len(shape) for i, n in enumerate(want)):
            raise fault(node, f"shape: got {tuple(want)} for an input of {shape}")
        want = [shape[i] if n == 0 else n for i, n in enumerate(want)]
    if want.count(-1) > 1 or any(n < -1 for n in want):
        raise fault(node, f"shape: got {tuple(want)}, need lengths from 0 and at most one -1")
    rest = math.prod(n for n in want if n != -1)
    return tuple(math.prod(shape) // max(rest, 1) if n == -1 else n for n in want)


def _flatten(node: Node, shape: Shape) -> Shape:
    axis = attribute(node, "axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise fault(node, f"axis: got {axis} for {len(shape)} axes")
    axis += len(shape) if axis < 0 else 0
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def _squeeze(node: Node, shape: Shape) -> Shape:
    axes = attribute(node, "axes", None)
    gone = (
        {i for i, n in enumerate(shape) if n == 1}
        if axes is None
        else {axis % max(len(shape), 1) for axis in axes}
    )
    return tuple(n for i, n in enumerate(shape) if i not in gone)


def _unsqueeze(node: Node, shape: Shape) -> Shape:
    axes = attribute(node, "axes", ())
    rank = len(shape) + len(axes)
    rest = iter(shape)
    made = {axis % max(rank, 1) for axis in axes}
    if len(made) != len(axes):
        raise fault(node, f"axes: got {tuple(axes)}, need different ones")
    return tuple(1 if i in made else next(rest) for i in range(rank))


OPS = [
    View("Identity", lambda node, shape: shape),
    View("StopGradient", lambda node, shape: shape),
    View("Reshape", _reshape),
    View("Flatten", _flatten),
    View("Squeeze", _squeeze),
    View("Unsqueeze", _unsqueeze),
]
