"""Elementwise ops, and copies that transpose or broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

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
    strides_by_axis,
)
from rpukit.tiled.tile_space import Axis, Box, Operand, TileSpace

AXES, _INPUTS = 4, 7  # most axes and inputs of the kernel
_MOST_EXPONENT = 64
# Kinds of tiled_map, by number
KINDS = (
    "copy",
    "add",
    "sub",
    "mul",
    "div",
    "divide",
    "relu",
    "relu_grad",
    "gelu",
    "gelu_grad",
    "tanh",
    "tanh_grad",
    "sigmoid",
    "sigmoid_grad",
    "mse_grad",
    "batch_norm",
    "batch_norm_grad",
    "clip",
    "leaky_relu",
    "hard_sigmoid",
    "hard_swish",
    "sqrt",
    "exp",
    "log",
    "erf",
    "power",
    "clip_grad",
    "leaky_relu_grad",
    "hard_sigmoid_grad",
    "hard_swish_grad",
    "erf_grad",
)
Floats = Callable[[Node, Tensors], Sequence[float]]


class Map(Tiled):
    """Elementwise op with one output, to whose shape the inputs are broadcast.

    Parameters
    ----------
    name : str
    kind : str
        One of `KINDS`.
    n_inputs : int
    floats : callable, optional
        Function of node and tensors that gives the constants of the kernel.
    channel : int, optional
        The first input that has one value for each index of axis 1.
    """

    kernel, module, buffers = "tiled_map", "elementwise", _INPUTS + 1

    def __init__(
        self,
        name: str,
        kind: str,
        n_inputs: int,
        floats: Floats = lambda node, tensors: (),
        channel: int = _INPUTS,
    ) -> None:
        super().__init__(name, (n_inputs, n_inputs))
        self.kind, self._floats, self._channel = KINDS.index(kind), floats, channel

    def shape(self, node: Node, tensors: Tensors) -> tuple[int, ...]:
        """Find the shape of the result."""
        shapes = [tensors[name].shape for name in node.inputs[: self._channel]]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            raise fault(node, f"shapes {', '.join(map(str, shapes))} do not match") from None
        for name in node.inputs[self._channel :]:
            if tensors[name].shape != shape[1:2]:
                raise fault(node, f"{name} of shape {tensors[name].shape}, need {shape[1:2]}")
        return shape

    def places(self, node: Node, tensors: Tensors, place: int) -> list[int]:
        """Find the axis of the result that each dimension of an input follows; -1 for none."""
        if place >= self._channel:
            return [1]
        shape = tensors[node.inputs[place]].shape
        ahead = len(tensors[node.outputs[0]].shape) - len(shape)
        whole = tensors[node.outputs[0]].shape
        return [ahead + i if size == whole[ahead + i] else -1 for i, size in enumerate(shape)]

    def starts(self, node: Node, tensors: Tensors, place: int) -> tuple[int, ...]:
        """Find where the part of an input begins that is read; () for all of it."""
        return ()

    def constants(self, node: Node, tensors: Tensors) -> Sequence[float]:
        """Compute the constants of the kernel."""
        return self._floats(node, tensors)

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        if attribute(node, "approximate", "none") != "none":
            raise fault(node, f"approximate: got {node.attributes['approximate']}, need none")
        real, shape = real_of(node, tensors), self.shape(node, tensors)
        self._floats(node, tensors)  # refuses constants that the kernel cannot use
        if len(shape) > AXES:
            raise fault(node, f"got a result of {len(shape)} axes, need at most {AXES}")
        return [Tensor(node.outputs[0], shape, real)]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        shape = tensors[node.outputs[0]].shape
        axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(shape))
        operands = [
            Operand(
                name,
                "in",
                spans_of(tensors[name].shape, self.places(node, tensors, place)),
                place,
            )
            for place, name in enumerate(node.inputs)
        ]
        operands.append(
            Operand(node.outputs[0], "out", spans_of(shape, range(len(shape))), _INPUTS)
        )
        return TileSpace(axes, tuple(operands))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space = self.space(node, tensors)
        pad = (0,) * (AXES - len(box))
        sizes = (*(1,) * len(pad), *extents(box))
        ints = [math.prod(sizes[:3]), self.kind, *sizes]
        for slot in range(_INPUTS + 1):
            ints += (*pad, *strides_by_axis(space, by_slot(space, slot), box, len(box)))
        return numbers(ints, self._floats(node, tensors), tensors[node.outputs[0]].dtype)


class Transpose(Map):
    """Transpose: a copy with permuted axes."""

    def __init__(self) -> None:
        super().__init__("Transpose", "copy", 1)

    def _order(self, node: Node, rank: int) -> tuple[int, ...]:
        order = tuple(attribute(node, "perm", range(rank)[::-1]))
        if sorted(order) != list(range(rank)):
            raise fault(node, f"perm: got {order}, need an order of {rank} axes")
        return order

    def shape(self, node: Node, tensors: Tensors) -> tuple[int, ...]:
        shape = tensors[node.inputs[0]].shape
        return tuple(shape[i] for i in self._order(node, len(shape)))

    def places(self, node: Node, tensors: Tensors, place: int) -> list[int]:
        rank = len(tensors[node.inputs[0]].shape)
        order = self._order(node, rank)
        return [order.index(i) for i in range(rank)]


class Spread(Map):
    """Gradient of a mean over an image: each pixel gets an equal share."""

    def __init__(self) -> None:
        super().__init__("GlobalAveragePoolGrad", "divide", 1, _pixels)

    def shape(self, node: Node, tensors: Tensors) -> tuple[int, ...]:
        shape = tensors[node.inputs[0]].shape
        kernel = tuple(attribute(node, "kernel_shape", ()))
        if len(shape) != 4 or shape[2:] != (1, 1) or len(kernel) != 2:
            raise fault(node, f"got shape {shape} and kernel_shape {kernel}, need [N, C, 1, 1]")
        return (*shape[:2], *kernel)

    def places(self, node: Node, tensors: Tensors, place: int) -> list[int]:
        return [0, 1, -1, -1]


class Broadcast(Map):
    """Broadcast: a copy with the shape of the attribute `shape`."""

    def __init__(self) -> None:
        super().__init__("Broadcast", "divide", 1, lambda node, _: (node.attributes["by"],))

    def shape(self, node: Node, tensors: Tensors) -> tuple[int, ...]:
        shape, own = tuple(node.attributes["shape"]), tensors[node.inputs[0]].shape
        if np.broadcast_shapes(shape, own) != shape:
            raise fault(node, f"{own} cannot be broadcast to {shape}")
        return shape


def _pixels(node: Node, tensors: Tensors) -> Sequence[float]:
    return (math.prod(attribute(node, "kernel_shape", ())),)


def _count(node: Node, tensors: Tensors) -> Sequence[float]:
    return (tensors[node.inputs[0]].size,)


def _per_channel(node: Node, tensors: Tensors) -> Sequence[float]:
    shape = tensors[node.inputs[0]].shape
    return (math.prod(shape) // max(shape[1], 1),)


def _bounds(node: Node, tensors: Tensors) -> Sequence[float]:
    """Read the bounds of a Clip; an absent one is the largest finite number, as in ONNX."""
    limits = np.finfo(tensors[node.inputs[0]].dtype)
    low, high = attribute(node, "min", limits.min), attribute(node, "max", limits.max)
    return float(low), float(high)


def _slope_below(node: Node, tensors: Tensors) -> Sequence[float]:
    return (attribute(node, "alpha", 0.01),)


def _line(node: Node, tensors: Tensors) -> Sequence[float]:
    return attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5)


def _exponent(node: Node, tensors: Tensors) -> Sequence[float]:
    """Split an exponent into a whole one and whether it is that of the root."""
    exponent = float(attribute(node, "exponent", math.nan))
    root = not exponent.is_integer()
    whole = 2 * exponent if root else exponent
    if not whole.is_integer() or abs(whole) > _MOST_EXPONENT:
        raise fault(
            node,
            f"exponent: got {exponent}, need a constant multiple of 0.5, of {_MOST_EXPONENT} at "
            f"most; else write it as Exp(exponent * Log(x))",
        )
    return whole, float(root)


OPS = [
    Map("Add", "add", 2),
    Map("Sub", "sub", 2),
    Map("Mul", "mul", 2),
    Map("Div", "div", 2),
    Map("Relu", "relu", 1),
    Map("ReluGrad", "relu_grad", 2),
    Map("Gelu", "gelu", 1),
    Map("GeluGrad", "gelu_grad", 2),
    Map("Tanh", "tanh", 1),
    Map("TanhGrad", "tanh_grad", 2),
    Map("Sigmoid", "sigmoid", 1),
    Map("SigmoidGrad", "sigmoid_grad", 2),
    Map("Clip", "clip", 1, _bounds),
    Map("ClipGrad", "clip_grad", 2, _bounds),
    Map("LeakyRelu", "leaky_relu", 1, _slope_below),
    Map("LeakyReluGrad", "leaky_relu_grad", 2, _slope_below),
    Map("HardSigmoid", "hard_sigmoid", 1, _line),
    Map("HardSigmoidGrad", "hard_sigmoid_grad", 2, _line),
    Map("HardSwish", "hard_swish", 1),
    Map("HardSwishGrad", "hard_swish_grad", 2),
    Map("Sqrt", "sqrt", 1),
    Map("Exp", "exp", 1),
    Map("Log", "log", 1),
    Map("Erf", "erf", 1),
    Map("ErfGrad", "erf_grad", 2),
    Map("Pow", "power", 1, _exponent),
    Map("MSELossGrad", "mse_grad", 2, _count),
    Map("BatchNormApply", "batch_norm", 5, channel=1),  # x, mean, inv_std, scale, bias
    # dy, x, scale, mean, inv_std, dscale, dbias
    Map("BatchNormGradX", "batch_norm_grad", 7, _per_channel, channel=2),
    Transpose(),
    Spread(),
    Broadcast(),
]
