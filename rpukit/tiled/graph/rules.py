"""Gradients of ops, one rule for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rpukit.tiled.graph.backward import Backward
from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import attribute, fault, present
from rpukit.tiled.ops.moves import SLICE

Slopes = list[str]  # gradient of each output; "" where there is none
Rule = Callable[[Backward, Node, Slopes], list[str]]  # gradient of each input


def _gemm(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    """Y = alpha op(A) op(B) + beta C, or Relu of it."""
    a, b, (dy,) = node.inputs[0], node.inputs[1], slopes
    if attribute(node, "activation", ""):
        dy = back.add("ReluGrad", dy, node.outputs[0])
    ta, tb = (bool(attribute(node, name, 0)) for name in ("transA", "transB"))
    alpha = attribute(node, "alpha", 1.0)
    scale = {} if alpha == 1 else {"alpha": alpha}
    da = db = dc = ""
    if back.need(a):
        pair = (b, dy, int(tb), 1) if ta else (dy, b, 0, int(not tb))
        da = back.add("Gemm", *pair[:2], transA=pair[2], transB=pair[3], **scale)
        da = back.summed_to(da, a)
    if back.need(b):
        if not ta and len(back.shape(b)) == 2 < len(back.shape(a)):  # one sum over all rows
            a, dy_rows = (back.like(v, (-1, back.shape(v)[-1])) for v in (a, dy))
        else:
            dy_rows = dy
        pair = (dy_rows, a, 1, int(ta)) if tb else (a, dy_rows, int(not ta), 0)
        db = back.add("Gemm", *pair[:2], transA=pair[2], transB=pair[3], **scale)
        db = back.summed_to(db, b)
    bias = present(node.inputs, 2)
    if bias and back.need(bias):
        dc = back.times(back.summed_to(dy, bias), attribute(node, "beta", 1.0))
    return [da, db, dc]


def _add(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    return [back.summed_to(slopes[0], name) if back.need(name) else "" for name in node.inputs]


def _sub(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    first, second = _add(back, node, slopes)
    return [first, second and back.times(second, -1.0)]


def _mul(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    a, b = node.inputs
    return [
        back.summed_to(back.add("Mul", slopes[0], other), name) if back.need(name) else ""
        for name, other in ((a, b), (b, a))
    ]


def _div(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    a, b = node.inputs
    part = back.add("Div", slopes[0], b)
    da = back.summed_to(part, a) if back.need(a) else ""
    if not back.need(b):
        return [da, ""]
    product = back.add("Mul", part, node.outputs[0])
    return [da, back.times(back.summed_to(product, b), -1.0)]


def _pow(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    exponent = node.attributes["exponent"]
    less = back.add("Pow", node.inputs[0], exponent=exponent - 1.0)
    return [back.times(back.add("Mul", slopes[0], less), exponent)]


def _sqrt(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    return [back.times(back.add("Div", slopes[0], node.outputs[0]), 0.5)]


def _exp(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    return [back.add("Mul", slopes[0], node.outputs[0])]


def _log(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    return [back.add("Div", slopes[0], node.inputs[0])]


def _by_input(op: str) -> Rule:
    """Make the rule of an op whose gradient is computed from dY and the input."""
    return lambda back, node, slopes: [back.add(op, slopes[0], node.inputs[0], **node.attributes)]


def _by_output(op: str) -> Rule:
    """Make the rule of an op whose gradient is computed from dY and the output."""
    return lambda back, node, slopes: [back.add(op, slopes[0], node.outputs[0], **node.attributes)]


def _view(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    return [back.like(slopes[0], back.shape(node.inputs[0]))]


def _transpose(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    rank = len(back.shape(node.inputs[0]))
    perm = attribute(node, "perm", tuple(range(rank))[::-1])
    return [back.add("Transpose", slopes[0], perm=tuple(perm.index(i) for i in range(rank)))]


def _slice(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    shape, slope = back.shape(node.inputs[0]), slopes[0]
    for axis, kept in enumerate(SLICE.ranges(node, shape)):
        if kept.step != 1 and len(kept) > 1:
            raise fault(node, f"has no gradient for a step of {kept.step}; need 1")
        if len(kept) != shape[axis]:
            slope = back.add("Place", slope, axis=axis, before=kept.start, size=shape[axis])
    return [slope]


def _concat(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    found, rank = [], len(back.shape(node.inputs[0]))
    axis = attribute(node, "axis", 0) % rank
    begin = attribute(node, "before", 0)
    for name in node.inputs:
        end = begin + back.shape(name)[axis]
        part = {"starts": (begin,), "ends": (end,), "axes": (axis,)}
        found.append(back.add("Slice", slopes[0], **part) if back.need(name) else "")
        begin = end
    return found


def _reduce(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    shape = back.shape(node.inputs[0])
    axes = attribute(node, "axes", None)
    if not axes:
        axes = () if attribute(node, "noop_with_empty_axes", 0) else range(len(shape))
    axes = {axis % len(shape) for axis in axes}
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    by = math.prod(shape[i] for i in axes) if node.op == "ReduceMean" else 1
    return [back.add("Broadcast", back.like(slopes[0], kept), shape=shape, by=by)]


def _conv(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    x, w = node.inputs[:2]
    bias = present(node.inputs, 2)
    kernel = {"kernel_shape": back.shape(w)[2:]}
    wanted = tuple(bool(name) and back.need(name) for name in (x, w, bias))
    made = back.sketch.add("ConvGrad", (slopes[0], x, w), wanted, {**node.attributes, **kernel})
    return list(made)


def _layer_norm(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    inputs = (slopes[0], *node.inputs[:2], *node.outputs[1:3])
    wanted = tuple(map(back.need, node.inputs))
    return list(back.sketch.add("LayerNormalizationGrad", inputs, wanted, node.attributes))


def _batch_norm(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    inputs = (slopes[0], *node.inputs[:2], *node.outputs[3:5])
    wanted = (back.need(node.inputs[0]), True, True)  # the first needs the others
    return list(back.sketch.add("BatchNormalizationGrad", inputs, wanted, node.attributes))


def _average_pool(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    shape = back.shape(node.inputs[0])
    return [back.add("AveragePoolGrad", slopes[0], **{**node.attributes, "input_shape": shape})]


def _global_pool(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    kernel = back.shape(node.inputs[0])[2:]
    return [back.add("GlobalAveragePoolGrad", slopes[0], kernel_shape=kernel)]


def _broadcast(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    total = back.summed_to(slopes[0], node.inputs[0])
    return [back.times(total, 1.0 / node.attributes["by"])]


def _mse(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    slope = back.add("MSELossGrad", *node.inputs)
    if slopes[0]:
        slope = back.add("Mul", slope, slopes[0])
    return [slope, back.times(slope, -1.0) if back.need(node.inputs[1]) else ""]


def _cross_entropy(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    if present(slopes, 1):
        raise fault(
            node, "its second output, the log-probabilities, has no gradient: use the loss alone"
        )
    return _label_loss(back, node, slopes[0], node.outputs[1])


def _negative_log_likelihood(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    return _label_loss(back, node, slopes[0], node.inputs[0])


def _label_loss(back: Backward, node: Node, slope: str, logprob: str) -> list[str]:
    weights = [name for name in node.inputs[2:] if name]
    if any(map(back.need, weights)):
        raise fault(node, "weights of classes have no gradient; need a constant")
    if weights and not slope:
        slope = back.sketch.number(1.0)
    given = [slope] if slope else []
    inputs = (*given, logprob, node.inputs[1], *weights)
    return [back.add(f"{node.op}Grad", *inputs, **node.attributes)]


def _affine_channels(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    """Normalisation by given statistics: s (x - m) inv + b for each channel."""
    (dy,), (x, mean, inv, scale, bias) = slopes, node.inputs
    if back.need(mean) or back.need(inv):
        raise fault(node, "statistics have no gradient; need constants")
    dx = dscale = dbias = ""
    if back.need(x):
        factor = back.add("Mul", scale, inv)
        shape = (*back.shape(scale), *(1,) * (len(back.shape(x)) - 2))
        dx = back.add("Mul", dy, back.like(factor, shape))
    if back.need(scale):
        dscale = back.add("ChannelProduct", dy, x, mean, inv)
    if back.need(bias):
        dbias = back.add("ChannelSum", dy)
    return [dx, "", "", dscale, dbias]


def _analog(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    """A backward product where it is needed, and then the update, which changes the weights."""
    x, (dy,) = node.inputs[0], slopes
    tile, n_batch = back.sketch.tiles[node.outputs[0]], back.shape(x)[0]
    used, dx = ["forward", "update"], ""
    if back.need(x):
        attributes, spread = tile.ways["backward"]
        inputs = (dy, tile.weight, tile.clocks["backward"], *spread)
        dx = back.sketch.add("AnalogForward", inputs, 1, attributes)[0]
        used.append("backward")
    learn = (tile.weight, x, dy, tile.clocks["update"], *tile.cells)
    back.changed += back.sketch.add("AnalogLearn", learn, 1, tile.learn, f"{tile.weight}_updated")
    for way in used:
        clock = tile.clocks[way]
        by = {"by": n_batch}
        back.changed += back.sketch.add("AdvanceClock", (clock,), 1, by, f"{clock}_updated")
    return [dx]


def _relu_grad(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    """What a mask chooses; a change of the mask has no effect, almost everywhere."""
    slope, mask = node.inputs
    if not back.need(slope):
        return ["", ""]
    return [back.summed_to(back.add("ReluGrad", slopes[0], mask), slope), ""]


def _turned_conv(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    """Gradient of the gradient of a convolution: ConvTranspose."""
    x, w = node.inputs
    more = {key: value for key, value in node.attributes.items() if key != "input_shape"}
    more["kernel_shape"] = back.shape(w)[2:]
    dx = back.add("Conv", slopes[0], w, **more) if back.need(x) else ""
    return [dx, back.add("ConvGradW", x, slopes[0], **more) if back.need(w) else ""]


def _quantize(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    """Straight through, where integers are not at their bounds; of integers, slopes are those of
    the numbers that they stand for."""
    if any(map(back.need, node.inputs[1:])):
        raise fault(node, "scales have no gradient; need constants")
    if attribute(node, "to", "int8") != "int8":
        return [slopes[0], ""]
    return [back.add("QuantizeGrad", slopes[0], node.outputs[0]), ""]


def _gather_rows(back: Backward, node: Node, slopes: Slopes) -> list[str]:
    table, indices = node.inputs
    return [back.add("ScatterRows", slopes[0], indices, size=back.shape(table)[0]), ""]


LOSSES = (
    "MSELoss",
    "SoftmaxCrossEntropyLoss",
    "NegativeLogLikelihoodLoss",
)  # their rules support an upstream gradient of 1
RULES: Mapping[str, Rule] = {
    "Gemm": _gemm,
    "MatMul": _gemm,
    "AnalogForward": _analog,
    "Conv": _conv,
    "ConvGradX": _turned_conv,
    "GatherRows": _gather_rows,
    "ReluGrad": _relu_grad,
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Relu": _by_output("ReluGrad"),
    "Gelu": _by_input("GeluGrad"),
    "Tanh": _by_output("TanhGrad"),
    "Sigmoid": _by_output("SigmoidGrad"),
    "Clip": _by_input("ClipGrad"),
    "LeakyRelu": _by_input("LeakyReluGrad"),
    "HardSigmoid": _by_output("HardSigmoidGrad"),
    "HardSwish": _by_input("HardSwishGrad"),
    "Erf": _by_input("ErfGrad"),
    "Pow": _pow,
    "Sqrt": _sqrt,
    "Exp": _exp,
    "Log": _log,
    "LogSoftmax": _by_output("LogSoftmaxGrad"),
    "Softmax": _by_output("SoftmaxGrad"),
    "LayerNormalization": _layer_norm,
    "BatchNormInternal": _batch_norm,
    "BatchNormApply": _affine_channels,
    "Broadcast": _broadcast,
    "Quantize": _quantize,
    "Dequantize": lambda back, node, slopes: [slopes[0], ""],
    "Slice": _slice,
    "Concat": _concat,
    "Place": _concat,
    "MaxPool": _by_input("MaxPoolGrad"),
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool,
    "Transpose": _transpose,
    "Reshape": _view,
    "Flatten": _view,
    "Squeeze": _view,
    "Unsqueeze": _view,
    "Identity": _view,
    "StopGradient": lambda back, node, slopes: [""],
    "ReduceSum": _reduce,
    "ReduceMean": _reduce,
    "MSELoss": _mse,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
}
