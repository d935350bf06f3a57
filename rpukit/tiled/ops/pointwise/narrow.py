"""Ops that round numbers to 8 or 16 bits and widen them, and the gradient of rounding."""

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
    present,
    spans_of,
)
from rpukit.tiled.tile_space import Axis, Box, Operand, TileSpace

_INTEGER, _HALF, _PLAIN = range(3)  # kinds of the kernels


class _Narrow(Tiled):
    """Base class of elementwise conversions, whose scale may differ along one axis."""

    module, buffers = "narrow", 3

    def scales(self, node: Node, tensors: Tensors) -> list[int]:
        """Find the axis that each dimension of the scale follows; -1 for none."""
        name, shape = present(node.inputs, 1), tensors[node.inputs[0]].shape
        if not name:
            return []
        own = tensors[name]
        fits = len(own.shape) == len(shape) and own.dtype == "float32"
        places = [i if n > 1 else -1 for i, n in enumerate(own.shape)]
        if not fits or any(i >= 0 and shape[i] != own.shape[i] for i in places):
            raise fault(
                node,
                f"scale: got {own.dtype} of shape {own.shape}, need float32 for values of {shape}",
            )
        if sum(place >= 0 for place in places) > 1:
            raise fault(node, f"scale: got {own.shape}, need lengths of 1 but for one axis")
        return places

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        shape = tensors[node.inputs[0]].shape
        axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(shape))
        cuts, name = spans_of(shape, range(len(shape))), present(node.inputs, 1)
        operands = [Operand(node.inputs[0], "in", cuts, 0)]
        if name:
            spans = spans_of(tensors[name].shape, self.scales(node, tensors))
            operands.append(Operand(name, "in", spans, 1))
        operands.append(Operand(node.outputs[0], "out", cuts, 2))
        return TileSpace(axes, tuple(operands))

    def kind(self, node: Node, tensors: Tensors) -> int:
        """Return the number of the conversion in the kernel."""
        raise NotImplementedError

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        sizes = extents(box)
        axis = max(self.scales(node, tensors), default=-1)
        split, channels = (axis + 1, sizes[axis]) if axis >= 0 else (max(len(sizes) - 1, 0), 1)
        ints = [math.prod(sizes[:split]), math.prod(sizes[split:]), channels]
        return numbers([*ints, self.kind(node, tensors)], (), "float32")


class Quantize(_Narrow):
    """Numbers rounded to integers of -127 to 127 in units of a scale, or to float16 (`to`)."""

    kernel = "tiled_quantise"

    def __init__(self) -> None:
        super().__init__("Quantize", (1, 2))

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        source, to = tensors[node.inputs[0]], attribute(node, "to", "int8")
        if source.dtype != "float32" or to not in ("int8", "float16"):
            raise fault(node, f"got {source.dtype} to {to}, need float32 to int8 or float16")
        if bool(present(node.inputs, 1)) != (to == "int8"):
            raise fault(node, "need a scale for int8, and none for float16")
        self.scales(node, tensors)
        return [Tensor(node.outputs[0], source.shape, to)]

    def kind(self, node: Node, tensors: Tensors) -> int:
        return _INTEGER if attribute(node, "to", "int8") == "int8" else _HALF

    def macros(self, node: Node) -> dict[str, str]:
        return {"NARROW": "i8" if attribute(node, "to", "int8") == "int8" else "u16"}


class Positive(_Narrow):
    """Whether numbers are positive, as int8 of 0 and 1: what the gradient of a Relu needs."""

    kernel = "tiled_quantise"

    def __init__(self) -> None:
        super().__init__("Positive", (1, 1))

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        source = tensors[node.inputs[0]]
        if source.dtype != "float32":
            raise fault(node, f"got {source.dtype}, need float32")
        return [Tensor(node.outputs[0], source.shape, "int8")]

    def kind(self, node: Node, tensors: Tensors) -> int:
        return _PLAIN


class Dequantize(_Narrow):
    """Numbers of 8 or 16 bits (attribute `of`) as float32; integers times a scale, if given."""

    kernel = "tiled_dequantise"

    def __init__(self) -> None:
        super().__init__("Dequantize", (1, 2))

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        source = tensors[node.inputs[0]]
        of = attribute(node, "of", "int8")
        if source.dtype != of or of not in ("int8", "float16"):
            raise fault(node, f"got {source.dtype}, of={of!r}; need int8 or float16")
        if source.dtype == "float16" and present(node.inputs, 1):
            raise fault(node, "need no scale for float16")
        self.scales(node, tensors)
        return [Tensor(node.outputs[0], source.shape, "float32")]

    def kind(self, node: Node, tensors: Tensors) -> int:
        if attribute(node, "of", "int8") == "float16":
            return _HALF
        return _INTEGER if present(node.inputs, 1) else _PLAIN

    def macros(self, node: Node) -> dict[str, str]:
        return {"NARROW": "i8" if attribute(node, "of", "int8") == "int8" else "u16"}


class QuantizeGrad(Tiled):
    """Gradient of rounding to int8: that of the result where its integer is between two bounds."""

    kernel, module, buffers = "tiled_quantise_grad", "narrow", 3

    def __init__(self) -> None:
        super().__init__("QuantizeGrad", (2, 2))

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        slope, integers = (tensors[name] for name in node.inputs)
        if (slope.dtype, integers.dtype) != ("float32", "int8") or slope.shape != integers.shape:
            raise fault(
                node,
                f"got {slope.dtype} {slope.shape} and {integers.dtype} {integers.shape}, need "
                "float32 and int8 of one shape",
            )
        return [Tensor(node.outputs[0], slope.shape, "float32")]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        shape = tensors[node.inputs[0]].shape
        axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(shape))
        cuts = spans_of(shape, range(len(shape)))
        names = (*node.inputs, node.outputs[0])
        modes = ("in", "in", "out")
        return TileSpace(
            axes,
            tuple(
                Operand(name, mode, cuts, slot)
                for slot, (name, mode) in enumerate(zip(names, modes, strict=True))
            ),
        )

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        low, high = attribute(node, "low", -127), attribute(node, "high", 127)
        return numbers([math.prod(extents(box)), low, high], (), "float32")


OPS = [Quantize(), Positive(), Dequantize(), QuantizeGrad()]
