"""Pools over windows of an image, and their gradients."""

from __future__ import annotations

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
from rpukit.tiled.ops.convolutions import Geometry, geometry
from rpukit.tiled.tile_space import Axis, Box, Cut, Operand, TileSpace

_PLANE = (Cut(0), Cut(1))


def _geometry(node: Node) -> Geometry:
    kernel = tuple(attribute(node, "kernel_shape", ()))
    if len(kernel) != 2:
        raise fault(node, f"kernel_shape: got {kernel}, need two numbers")
    g = geometry(node, kernel)
    if g.dilation != (1, 1):
        raise fault(node, f"dilations: got {g.dilation}, need 1")
    if any(pad >= n for pad, n in zip(attribute(node, "pads", ()), kernel * 2, strict=False)):
        raise fault(node, "pads: got a window of padding only")
    return g


def _image_axes(shape: tuple[int, ...], g: Geometry) -> tuple[Axis, ...]:
    names = ("n", "c", "h", "w")
    free = [Axis(name, size) for name, size in zip(names, shape, strict=True)]
    (p, q) = g.kernel
    return (*free, Axis("p", p, "reduce", p), Axis("q", q, "reduce", q))


class Pool(Tiled):
    """Pooling: the maximum or the mean of each window, without padding.

    Parameters
    ----------
    name : str
    kind : int
        0 largest, 1 mean.
    """

    kernel, module, buffers = "tiled_pool", "pools", 2

    def __init__(self, name: str, kind: int) -> None:
        super().__init__(name, (1, 1))
        self.kind = kind

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        x = tensors[node.inputs[0]].shape
        if len(x) != 4:
            raise fault(node, f"got shape {x}, need (N, C, H, W)")
        out = _geometry(node).outputs((x[2], x[3]))
        if min(out) < 1:
            raise fault(node, f"no window fits into an image of {x[2:]}")
        return [Tensor(node.outputs[0], (*x[:2], *out), real_of(node, tensors))]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        x, y = (tensors[name].shape for name in (node.inputs[0], node.outputs[0]))
        g = _geometry(node)
        see = (g.window(0, Cut(2), x[2]), g.window(1, Cut(3), x[3]))
        operands = (
            Operand(node.inputs[0], "in", (*_PLANE, *see), 0),
            Operand(node.outputs[0], "out", (*_PLANE, Cut(2), Cut(3)), 1),
        )
        return TileSpace(_image_axes(y, g), operands)

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space, g = self.space(node, tensors), _geometry(node)
        n, c, oh, ow, p, q = extents(box)
        seen = space.rectangle(space.operands[0], box)
        xh, xw = extents(seen)[2:]
        top, left = (box[2 + i][0] * g.stride[i] - g.pad[i] - seen[2 + i][0] for i in range(2))
        include = attribute(node, "count_include_pad", 0)
        ints = [n * c, self.kind, oh, ow, p, q, *g.stride, top, left, xh, xw, include]
        return numbers(ints, (), tensors[node.outputs[0]].dtype)


class PoolGrad(Tiled):
    """Gradient of pooling: to the first maximum of each window, or equal shares for a mean.

    Parameters
    ----------
    name : str
    kind : int
        0 largest: inputs dY, X; 1 mean: input dY.
    """

    kernel, module, buffers = "tiled_pool_grad", "pools", 3

    def __init__(self, name: str, kind: int) -> None:
        super().__init__(name, (2 - kind, 2 - kind))
        self.kind = kind

    def _shape(self, node: Node, tensors: Tensors) -> tuple[int, ...]:
        dy, g = tensors[node.inputs[0]].shape, _geometry(node)
        if len(dy) != 4:
            raise fault(node, f"got shape {dy}, need (N, C, H, W)")
        if self.kind == 0:
            return tensors[node.inputs[1]].shape
        default = (*dy[:2], *g.inputs((dy[2], dy[3])))
        return tuple(attribute(node, "input_shape", default))

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        dy, shape = tensors[node.inputs[0]].shape, self._shape(node, tensors)
        out = _geometry(node).outputs((shape[2], shape[3])) if len(shape) == 4 else ()
        if (*shape[:2], *out) != dy:
            raise fault(node, f"dY of shape {dy} does not match an input of {shape}")
        return [Tensor(node.outputs[0], shape, real_of(node, tensors))]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        dy, x = (tensors[name].shape for name in (node.inputs[0], node.outputs[0]))
        g = _geometry(node)
        met = (g.back(0, Cut(2), dy[2]), g.back(1, Cut(3), dy[3]))
        operands = [Operand(node.inputs[0], "in", (*_PLANE, *met), 0)]
        if self.kind == 0:
            see = (g.window(0, met[0], x[2]), g.window(1, met[1], x[3]))
            operands.append(Operand(node.inputs[1], "in", (*_PLANE, *see), 1))
        operands.append(Operand(node.outputs[0], "out", (*_PLANE, Cut(2), Cut(3)), 2))
        return TileSpace(_image_axes(x, g), tuple(operands))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space, g = self.space(node, tensors), _geometry(node)
        n, c, h, w, p, q = extents(box)
        met = space.rectangle(space.operands[0], box)
        yh, yw = extents(met)[2:]
        starts = [met[2 + i][0] * g.stride[i] - g.pad[i] for i in range(2)]
        seen = space.rectangle(space.operands[1], box) if self.kind == 0 else box
        image = tensors[node.outputs[0]].shape[2:]
        ints = [n * c, self.kind, h, w, p, q, *g.stride, *starts, yh, yw, *image]
        ints += [box[2][0], box[3][0], seen[2][0], seen[3][0], *extents(seen)[2:4]]
        ints.append(attribute(node, "count_include_pad", 0))
        return numbers(ints, (), tensors[node.outputs[0]].dtype)


OPS = [
    Pool("MaxPool", 0),
    Pool("AveragePool", 1),
    PoolGrad("MaxPoolGrad", 0),
    PoolGrad("AveragePoolGrad", 1),
]
