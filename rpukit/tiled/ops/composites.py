"""Lowering of composite ONNX ops to ops of this package, so that each part can be tiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import Tensors, attribute, fault, present

_MOST_AXES = 4  # of a transpose
# node, fresh name by what it is for, tensors -> nodes
Fresh = Callable[[str], str]
Lowering = Callable[[Node, Fresh, Tensors], list[Node]]


class _Parts:
    """Collects the nodes that one node becomes."""

    def __init__(self, node: Node, fresh: Fresh) -> None:
        self.node, self.fresh, self.nodes = node, fresh, list[Node]()

    def name(self, place: int, purpose: str) -> str:
        """Name an output of the node, or a new tensor where it is absent."""
        return present(self.node.outputs, place) or self.fresh(purpose)

    def add(self, op: str, inputs: list[str], *outputs: str, **more: Any) -> str:
        """Add a node with the attributes of the whole."""
        attributes = {**self.node.attributes, **more, "origin": self.node.origin}
        name = self.node.name if not self.nodes else f"{self.node.name}/{op}"
        self.nodes.append(Node(name, op, tuple(inputs), outputs, attributes))
        return outputs[0]


def _batch_norm(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    """Compute batch statistics, then normalise the elements; running statistics do not change."""
    if not attribute(node, "training_mode", 1):
        raise fault(node, "training_mode: got 0, need 1 (statistics of the batch)")
    parts, (x, scale, bias) = _Parts(node, fresh), node.inputs[:3]
    mean = parts.add("ChannelMean", [x], parts.name(3, "mean"))
    inv = parts.add("ChannelInvStd", [x, mean], parts.name(4, "inv_std"))
    parts.add("BatchNormApply", [x, mean, inv, scale, bias], node.outputs[0])
    return parts.nodes


def _batch_norm_grad(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    parts, (dy, x, scale, mean, inv) = _Parts(node, fresh), node.inputs
    dscale = parts.add("ChannelProduct", [dy, x, mean, inv], parts.name(1, "dscale"))
    dbias = parts.add("ChannelSum", [dy], parts.name(2, "dbias"))
    if present(node.outputs, 0):
        inputs = [dy, x, scale, mean, inv, dscale, dbias]
        parts.add("BatchNormGradX", inputs, node.outputs[0])
    return parts.nodes


def _layer_norm_grad(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    parts, (dy, x, scale, mean, inv) = _Parts(node, fresh), node.inputs
    if attribute(node, "axis", -1) not in (-1, len(tensors[x].shape) - 1):
        raise fault(node, f"axis: got {node.attributes['axis']}, need the last one, -1")
    if present(node.outputs, 0):
        parts.add("LayerNormGradX", [dy, x, scale, mean, inv], node.outputs[0])
    if present(node.outputs, 1):
        parts.add("RowsProduct", [dy, x, mean, inv], node.outputs[1])
    if present(node.outputs, 2):
        parts.add("RowsSum", [dy], node.outputs[2])
    return parts.nodes


def _weighted(parts: _Parts, scores: str, given: list[str], tensors: Tensors) -> list[str]:
    """Add weights of samples, and their total, to labels and weights of classes, if needed."""
    node = parts.node
    if len(given) == 1 and attribute(node, "ignore_index", None) is None:
        return given
    scored = tensors[scores]
    if len(scored.shape) != 2:
        raise fault(node, f"got scores of shape {scored.shape}, need [N, C]")
    more = {"n_class": scored.shape[1], "dtype": scored.dtype}
    weights = parts.add("LabelWeights", given, parts.fresh("weights"), **more)
    if attribute(node, "reduction", "mean") != "mean":
        return [given[0], weights]
    total = parts.add("ReduceSum", [weights], parts.fresh("total"), keepdims=0)
    return [given[0], weights, total]


def _cross_entropy(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    parts, (scores, *given) = _Parts(node, fresh), node.inputs
    logprob = parts.add("LogSoftmax", [scores], parts.name(1, "log_prob"), axis=1)
    if present(node.outputs, 0):
        labels = _weighted(parts, scores, given, tensors)
        parts.add("NLLLoss", [logprob, *labels], node.outputs[0])
    return parts.nodes


def _negative_log_likelihood(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    parts, (logprob, *given) = _Parts(node, fresh), node.inputs
    parts.add("NLLLoss", [logprob, *_weighted(parts, logprob, given, tensors)], node.outputs[0])
    return parts.nodes


def _label_loss_grad(op: str) -> Lowering:
    """Make the lowering of log-probabilities and labels; from three inputs on after the slope."""

    def lowering(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
        parts, inputs = _Parts(node, fresh), list(node.inputs)
        slope = [inputs.pop(0)] if len(inputs) > 2 else []
        labels = _weighted(parts, inputs[0], inputs[1:], tensors)
        out = fresh("gradient") if slope else node.outputs[0]
        parts.add(op, [inputs[0], *labels], out)
        if slope:
            parts.add("Mul", [out, slope[0]], node.outputs[0])
        return parts.nodes

    return lowering


def _conv_grad(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    parts, (dy, x, w) = _Parts(node, fresh), node.inputs
    if present(node.outputs, 0):
        shape = tensors[x].shape
        parts.add("ConvGradX", [dy, w], node.outputs[0], input_shape=shape)
    if present(node.outputs, 1):
        parts.add("ConvGradW", [dy, x], node.outputs[1])
    if present(node.outputs, 2):
        parts.add("ConvGradB", [dy], node.outputs[2])
    return parts.nodes


def _reshape_like(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    parts = _Parts(node, fresh)
    parts.add("Reshape", [node.inputs[0]], node.outputs[0], shape=tensors[node.inputs[1]].shape)
    return parts.nodes


def _analog_forward(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    """Convert inputs for all rounds, multiply them in one product, then choose rounds."""
    parts, (x, weight, clock, *spread) = _Parts(node, fresh), node.inputs
    a = node.attributes
    if a["perfect"]:
        parts.add("Gemm", [x, weight], node.outputs[0], alpha=a["io"][8])
        return parts.nodes
    scale = parts.add("AnalogScale", [x], fresh("scale"))
    inputs = parts.add("AnalogInputs", [x, scale, clock], fresh("inputs"), tag=a["in_op"])
    sums = parts.add("Gemm", [inputs, weight], fresh("sums"))
    parts.add("AnalogOutputs", [sums, scale, clock, *spread], node.outputs[0], tag=a["out_op"])
    return parts.nodes


def _analog_learn(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    parts, (weight, x, d, clock, *cells) = _Parts(node, fresh), node.inputs
    if not cells:
        parts.add("AnalogRankUpdate", [weight, x, d], node.outputs[0])
        return parts.nodes
    trains = (fresh("x_train"), fresh("d_train"))
    parts.add("AnalogTrains", [x, d, clock], *trains)
    parts.add("AnalogUpdate", [weight, *cells, *trains, clock], node.outputs[0])
    return parts.nodes


def _transpose(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    """Merge axes that stay neighbours, of more axes than the kernel takes."""
    shape = tensors[node.inputs[0]].shape
    perm = tuple(attribute(node, "perm", range(len(shape))[::-1]))
    if len(shape) <= _MOST_AXES or sorted(perm) != list(range(len(shape))):
        return [node]
    runs: list[list[int]] = []
    for axis in (axis for axis in perm if shape[axis] != 1):
        earlier = runs[-1][-1] if runs else len(shape)
        between = shape[earlier + 1 : axis]
        if earlier < axis and all(n == 1 for n in between):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    order = sorted(range(len(runs)), key=lambda k: runs[k])  # runs, as they lie in the input
    merged = tuple(math.prod(shape[axis] for axis in runs[k]) for k in order)
    parts, (x, end) = _Parts(node, fresh), (node.inputs[0], node.outputs[0])
    x = parts.add("Reshape", [x], fresh("merged"), shape=merged, allowzero=1)
    perm_of_runs = tuple(order.index(k) for k in range(len(runs)))
    x = parts.add("Transpose", [x], fresh("turned"), perm=perm_of_runs)
    whole = tuple(shape[axis] for axis in perm)
    parts.nodes.append(
        Node(f"{node.name}/split", "Reshape", (x,), (end,), {"shape": whole, "allowzero": 1})
    )
    return parts.nodes


LOWERINGS: dict[str, tuple[Lowering, int]] = {  # op -> lowering, least number of inputs
    "BatchNormInternal": (_batch_norm, 3),
    "BatchNormalizationGrad": (_batch_norm_grad, 5),
    "LayerNormalizationGrad": (_layer_norm_grad, 5),
    "SoftmaxCrossEntropyLoss": (_cross_entropy, 2),
    "SoftmaxCrossEntropyLossGrad": (_label_loss_grad("CrossEntropyGrad"), 2),
    "NegativeLogLikelihoodLoss": (_negative_log_likelihood, 2),
    "NegativeLogLikelihoodLossGrad": (_label_loss_grad("NLLLossGrad"), 2),
    "ConvGrad": (_conv_grad, 3),
    "Transpose": (_transpose, 1),
    "ReshapeLike": (_reshape_like, 2),
    "AnalogForward": (_analog_forward, 3),
    "AnalogLearn": (_analog_learn, 4),
}


def lower(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    """Replace a composite node by its parts; any other node is returned as it is.

    Raises
    ------
    GraphError
    """
    inputs = node.inputs
    while inputs and not inputs[-1]:  # absent ones at the end
        inputs = inputs[:-1]
    if inputs != node.inputs:
        node = replace(node, inputs=inputs)
    if node.op not in LOWERINGS:
        return [node]
    how, least = LOWERINGS[node.op]
    if len(node.inputs) < least or not all(node.inputs[:least]):
        raise fault(node, f"got {len(node.inputs)} inputs, need {least}")
    return how(node, fresh, tensors)
