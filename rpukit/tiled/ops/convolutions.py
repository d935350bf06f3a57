"""Convolutions of images and their gradients; layout N, C, H, W."""

from __future__ import annotations

from dataclasses import dataclass

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
)
from rpukit.tiled.tile_space import (
    Axis,
    Back,
    Box,
    Cut,
    Operand,
    Scaled,
    Span,
    TileSpace,
    Whole,
    Window,
)

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Windows over an image: kernel, stride, dilation, padding (top and left; total)."""

    kernel: Pair
    stride: Pair
    dilation: Pair
    pad: Pair
    pads: Pair

    @property
    def reach(self) -> Pair:
        """Lengths of a window, dilation included."""
        (p, q), (dh, dw) = self.kernel, self.dilation
        return (p - 1) * dh + 1, (q - 1) * dw + 1

    def outputs(self, image: Pair) -> Pair:
        """Count the windows of an image."""
        (h, w), (ph, pw), (rh, rw), (sh, sw) = image, self.pads, self.reach, self.stride
        return (h + ph - rh) // sh + 1, (w + pw - rw) // sw + 1

    def inputs(self, windows: Pair) -> Pair:
        """Compute the smallest image that has so many windows."""
        (h, w), (ph, pw), (rh, rw), (sh, sw) = windows, self.pads, self.reach, self.stride
        return (h - 1) * sh + rh - ph, (w - 1) * sw + rw - pw

    def window(self, i: int, over: Span, size: int) -> Window:
        """Make the span of rows (i = 0) or columns of an image that windows read."""
        return Window(over, size, self.stride[i], self.pad[i], self.reach[i])

    def back(self, i: int, over: Span, size: int) -> Back:
        """Make the span of windows that read rows (i = 0) or columns of an image."""
        return Back(over, size, self.stride[i], self.pad[i], self.reach[i])


def geometry(node: Node, kernel: tuple[int, ...]) -> Geometry:
    """Read the attributes of windows."""
    stride = tuple(attribute(node, "strides", (1, 1)))
    dilation = tuple(attribute(node, "dilations", (1, 1)))
    pads = tuple(attribute(node, "pads", (0, 0, 0, 0)))
    told = tuple(attribute(node, "kernel_shape", kernel))
    if attribute(node, "auto_pad", "NOTSET") != "NOTSET" or attribute(node, "ceil_mode", 0):
        raise fault(node, "auto_pad and ceil_mode are not supported; use pads")
    if told != kernel or len(kernel) != 2 or min(*kernel, *stride, *dilation) < 1:
        raise fault(node, f"kernel_shape {told}, strides {stride}, dilations {dilation}")
    if (len(stride), len(dilation), len(pads)) != (2, 2, 4) or min(pads) < 0:
        raise fault(node, f"strides {stride}, dilations {dilation}, pads {pads}: need 2, 2, 4")
    (p, q), (t, left, b, r) = kernel, pads
    sh, sw = stride
    return Geometry((p, q), (sh, sw), (dilation[0], dilation[1]), (t, left), (t + b, left + r))


class _Convolution(Tiled):
    """Base class of convolutions: sizes of images, weights and results."""

    module = "convolutions"

    def _channels(self, node: Node, w: tuple[int, ...], ci: int, co: int) -> tuple[int, int, int]:
        """Find the number of groups, and the input and output channels of a group."""
        group = attribute(node, "group", 1)
        fits = group >= 1 and ci % group == 0 and co % group == 0
        if not fits or len(w) != 4 or w[:2] != (co, ci // group):
            raise fault(
                node,
                f"weights {w} and group {group} do not match {ci} input and {co} output channels",
            )
        return group, ci // group, co // group

    def _image(self, node: Node, shape: tuple[int, ...]) -> Pair:
        if len(shape) != 4:
            raise fault(node, f"got shape {shape}, need (N, C, H, W)")
        return shape[2], shape[3]


class Conv(_Convolution):
    """Convolution: Y[n, co, oh, ow] = sum over ci, p, q of X W, then the bias."""

    kernel, buffers = "tiled_conv", 4

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        x, w = (tensors[name].shape for name in node.inputs[:2])
        image = self._image(node, x)
        self._channels(node, w, x[1], w[0])
        out = geometry(node, w[2:]).outputs(image)
        if min(out) < 1:
            raise fault(node, f"no window fits into an image of {image}")
        if len(node.inputs) > 2 and tensors[node.inputs[2]].shape != w[:1]:
            raise fault(node, f"bias of shape {tensors[node.inputs[2]].shape}, need {w[:1]}")
        return [Tensor(node.outputs[0], (x[0], w[0], *out), real_of(node, tensors))]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        x, w, y = (tensors[name].shape for name in (*node.inputs[:2], node.outputs[0]))
        group, cig, cog = self._channels(node, w, x[1], w[0])
        g = geometry(node, w[2:])
        axes = (
            Axis("n", y[0]),
            Axis("co", y[1], quantum=cog if group > 1 else 1),
            Axis("oh", y[2]),
            Axis("ow", y[3]),
            Axis("ci", cig, "reduce", cig if group > 1 else 1),
            Axis("p", w[2], "reduce", w[2]),
            Axis("q", w[3], "reduce", w[3]),
        )
        channel: Span = Cut(4) if group == 1 else Scaled(1, cig, cog)
        see = (g.window(0, Cut(2), x[2]), g.window(1, Cut(3), x[3]))
        operands = [
            Operand(node.inputs[0], "in", (Cut(0), channel, *see), 0),
            Operand(node.inputs[1], "in", (Cut(1), Cut(4), Cut(5), Cut(6)), 1),
        ]
        if len(node.inputs) > 2:
            operands.append(Operand(node.inputs[2], "in", (Cut(1),), 2))
        operands.append(Operand(node.outputs[0], "out", tuple(map(Cut, range(4))), 3))
        return TileSpace(axes, tuple(operands), product=True)

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space = self.space(node, tensors)
        w = tensors[node.inputs[1]].shape
        g = geometry(node, w[2:])
        n, co, oh, ow, ci, p, q = extents(box)
        seen = space.rectangle(space.operands[0], box)
        _, xc, xh, xw = extents(seen)
        top, left = (box[2 + i][0] * g.stride[i] - g.pad[i] - seen[2 + i][0] for i in range(2))
        cog = w[0] // attribute(node, "group", 1) if attribute(node, "group", 1) > 1 else co
        ints = [n * co, co, oh, ow, ci, p, q, *g.stride, *g.dilation, top, left, xc, xh, xw]
        bias = by_slot(space, 2) is not None
        ints += [cog, space.first(box), space.last(box), bias]
        return numbers(ints, (), tensors[node.outputs[0]].dtype)


class ConvGradX(_Convolution):
    """Gradient of the input: dX[n, ci, h, w] = sum over co, p, q of dY W, where dY exists."""

    kernel, buffers = "tiled_conv_grad_x", 3

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        dy, w = (tensors[name].shape for name in node.inputs)
        self._image(node, dy)
        g, group = geometry(node, w[2:]), attribute(node, "group", 1)
        default = (dy[0], w[1] * group, *g.inputs((dy[2], dy[3])))
        shape = tuple(attribute(node, "input_shape", default))
        self._channels(node, w, shape[1], dy[1])
        if g.outputs(self._image(node, shape)) != dy[2:] or shape[0] != dy[0]:
            raise fault(node, f"dY of shape {dy} does not match an input of {shape}")
        return [Tensor(node.outputs[0], shape, real_of(node, tensors))]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        dy, w, x = (tensors[name].shape for name in (*node.inputs, node.outputs[0]))
        group, cig, cog = self._channels(node, w, x[1], w[0])
        g = geometry(node, w[2:])
        axes = (
            Axis("n", x[0]),
            Axis("ci", x[1], quantum=cig if group > 1 else 1),
            Axis("h", x[2]),
            Axis("w", x[3]),
            Axis("co", cog, "reduce", cog if group > 1 else 1),
            Axis("p", w[2], "reduce", w[2]),
            Axis("q", w[3], "reduce", w[3]),
        )
        channel: Span = Cut(4) if group == 1 else Scaled(1, cog, cig)
        inner: Span = Cut(1) if group == 1 else Whole(cig)
        met = (g.back(0, Cut(2), dy[2]), g.back(1, Cut(3), dy[3]))
        operands = (
            Operand(node.inputs[0], "in", (Cut(0), channel, *met), 0),
            Operand(node.inputs[1], "in", (channel, inner, Cut(5), Cut(6)), 1),
            Operand(node.outputs[0], "out", tuple(map(Cut, range(4))), 2),
        )
        return TileSpace(axes, operands, product=True, divide=g.stride[0] * g.stride[1])

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space = self.space(node, tensors)
        w = tensors[node.inputs[1]].shape
        g, group = geometry(node, w[2:]), attribute(node, "group", 1)
        n, ci, h, wide, co, p, q = extents(box)
        met = space.rectangle(space.operands[0], box)
        _, yc, yh, yw = extents(met)
        top, left = (met[2 + i][0] * g.stride[i] - g.pad[i] - box[2 + i][0] for i in range(2))
        cig = w[1] if group > 1 else ci
        ints = [n * ci, ci, h, wide, co, p, q, *g.stride, *g.dilation, top, left, yc, yh, yw]
        ints += [cig, space.first(box)]
        return numbers(ints, (), tensors[node.outputs[0]].dtype)


class ConvGradW(_Convolution):
    """Gradient of the weights: dW[co, ci, p, q] = sum over n, oh, ow of dY X."""

    kernel, buffers = "tiled_conv_grad_w", 3

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        dy, x = (tensors[name].shape for name in node.inputs)
        kernel = tuple(attribute(node, "kernel_shape", ()))
        g, group = geometry(node, kernel), attribute(node, "group", 1)
        shape = (dy[1], x[1] // max(group, 1), *kernel)
        self._channels(node, shape, x[1], dy[1])
        if g.outputs(self._image(node, x)) != dy[2:] or x[0] != dy[0]:
            raise fault(node, f"dY of shape {dy} does not match an input of {x}")
        return [Tensor(node.outputs[0], shape, real_of(node, tensors))]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        dy, x, w = (tensors[name].shape for name in (*node.inputs, node.outputs[0]))
        group, cig, cog = self._channels(node, w, x[1], dy[1])
        g = geometry(node, w[2:])
        axes = (
            Axis("co", w[0], quantum=cog if group > 1 else 1),
            Axis("ci", cig, quantum=cig if group > 1 else 1),
            Axis("p", w[2], quantum=w[2]),
            Axis("q", w[3], quantum=w[3]),
            Axis("n", dy[0], "reduce"),
            Axis("oh", dy[2], "reduce"),
            Axis("ow", dy[3], "reduce"),
        )
        channel: Span = Cut(1) if group == 1 else Scaled(0, cig, cog)
        see = (g.window(0, Cut(5), x[2]), g.window(1, Cut(6), x[3]))
        operands = (
            Operand(node.inputs[0], "in", (Cut(4), Cut(0), Cut(5), Cut(6)), 0),
            Operand(node.inputs[1], "in", (Cut(4), channel, *see), 1),
            Operand(node.outputs[0], "out", tuple(map(Cut, range(4))), 2),
        )
        return TileSpace(axes, operands, product=True)

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space = self.space(node, tensors)
        g, group = (
            geometry(node, tuple(node.attributes["kernel_shape"])),
            attribute(node, "group", 1),
        )
        co, ci, p, q, n, oh, ow = extents(box)
        seen = space.rectangle(space.operands[1], box)
        _, xc, xh, xw = extents(seen)
        top, left = (box[5 + i][0] * g.stride[i] - g.pad[i] - seen[2 + i][0] for i in range(2))
        cog = tensors[node.inputs[0]].shape[1] // group if group > 1 else co
        ints = [co, ci, p, q, n, oh, ow, *g.stride, *g.dilation, top, left, xc, xh, xw]
        ints += [cog, space.first(box)]
        return numbers(ints, (), tensors[node.outputs[0]].dtype)


OPS = [Conv("Conv", (2, 3)), ConvGradX("ConvGradX", (2, 2)), ConvGradW("ConvGradW", (2, 2))]
