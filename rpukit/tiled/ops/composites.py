"""Lowering of composite ONNX ops to ops of this package, so that each part can be tiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import Tensors, attribute, fault, present
from rpukit.tiled.ops.elementwise import OPS as ELEMENTWISE
from rpukit.tiled.ops.elementwise import Broadcast, Map

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
    merged = [math.prod(shape[axis] for axis in runs[k]) for k in order]
    parts, (x, end) = _Parts(node, fresh), (node.inputs[0], node.outputs[0])
    perm_of_runs = [order.index(k) for k in range(len(runs))]
    for k, (seen, turn) in enumerate(_turns(merged, perm_of_runs)):
        x = parts.add(
            "Reshape", [x], fresh(f"merged{k}" if k else "merged"), shape=seen, allowzero=1
        )
        x = parts.add("Transpose", [x], fresh(f"turned{k}" if k else "turned"), perm=turn)
    whole = tuple(shape[axis] for axis in perm)
    parts.nodes.append(
        Node(f"{node.name}/split", "Reshape", (x,), (end,), {"shape": whole, "allowzero": 1})
    )
    return _with_names(parts.nodes)


def _turns(
    lengths: list[int], perm: list[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Write a transpose as few of at most four axes: shapes, and orders of these."""
    if len(perm) <= _MOST_AXES:
        yield tuple(lengths), tuple(perm)
        return
    now = list(range(len(perm)))
    for i in range(len(perm)):
        at, n = now.index(perm[i]), 1
        if at == i:
            continue
        while at + n < len(now) and now[at : at + n + 1] == perm[i : i + n + 1]:
            n += 1
        blocks = (now[:i], now[i:at], now[at : at + n], now[at + n :])
        yield tuple(math.prod(lengths[k] for k in block) for block in blocks), (0, 2, 1, 3)
        now = [*blocks[0], *blocks[2], *blocks[1], *blocks[3]]


def _with_names(nodes: list[Node]) -> list[Node]:
    """Number nodes whose names are the same."""
    seen: dict[str, int] = {}
    made = []
    for node in nodes:
        count = seen[node.name] = seen.get(node.name, 0) + 1
        made.append(node if count == 1 else replace(node, name=f"{node.name}{count - 1}"))
    return made


def _groups(moves: list[tuple[bool, ...]], shape: tuple[int, ...]) -> list[list[int]]:
    """Group neighbouring axes along which the same tensors move; those of length 1 join any."""
    found: list[list[int]] = []
    last: tuple[bool, ...] | None = None
    for axis, own in enumerate(moves):
        if found and (shape[axis] == 1 or own == last or last is None):
            found[-1].append(axis)
        else:
            found.append([axis])
        last = own if shape[axis] != 1 else last
    return found


def _few_axes(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    """Merge neighbouring axes of an elementwise op of more axes than the kernel takes."""
    shapes = [tensors[name].shape for name in node.inputs if name in tensors]
    given = node.attributes.get("shape", ())
    rank = max((len(shape) for shape in (*shapes, given)), default=0)
    if rank <= _MOST_AXES or len(shapes) != len(node.inputs):
        return [node]
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    every = [*padded, (1,) * (rank - len(given)) + tuple(given)]
    whole = tuple(max(one[i] for one in every) for i in range(rank))
    groups = _groups([tuple(one[i] == whole[i] for one in padded) for i in range(rank)], whole)
    if len(groups) > _MOST_AXES:
        return [node]

    def merged(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(math.prod(shape[i] for i in group) for group in groups)

    views = [fresh(f"merged{k}") for k in range(len(shapes))]
    made = [
        Node(view, "Reshape", (name,), (view,), {"shape": merged(shape), "allowzero": 1})
        for view, name, shape in zip(views, node.inputs, padded, strict=True)
    ]
    attributes = dict(node.attributes)
    if given:
        attributes["shape"] = merged(whole)
    out = fresh("rows")
    made.append(replace(node, inputs=tuple(views), outputs=(out,), attributes=attributes))
    more = {"shape": whole, "allowzero": 1}
    return [*made, Node(f"{node.name}/split", "Reshape", (out,), node.outputs, more)]


def _few_sums(node: Node, fresh: Fresh, tensors: Tensors) -> list[Node]:
    """Merge neighbouring axes of a sum of more axes than the kernel takes."""
    shape = tensors[node.inputs[0]].shape
    axes, rank = attribute(node, "axes", None), len(shape)
    if rank <= _MOST_AXES or not axes or any(not -rank <= axis < rank for axis in axes):
        return [node]
    gone = {axis % rank for axis in axes}
    groups = _groups([(i in gone,) for i in range(rank)], shape)
    if len(groups) > _MOST_AXES:
        return [node]
    rows, out = fresh("merged"), fresh("rows")
    seen = tuple(math.prod(shape[i] for i in group) for group in groups)
    sums = tuple(
        k for k, group in enumerate(groups) if any(shape[i] != 1 and i in gone for i in group)
    )
    keep = attribute(node, "keepdims", 1)
    whole = tuple(1 if i in gone else n for i, n in enumerate(shape) if keep or i not in gone)
    return [
        Node(rows, "Reshape", (node.inputs[0],), (rows,), {"shape": seen, "allowzero": 1}),
        replace(node, inputs=(rows,), outputs=(out,), attributes={"axes": sums, "keepdims": 1,
                "noop_with_empty_axes": 1}),
        Node(f"{node.name}/split", "Reshape", (out,), node.outputs,
             {"shape": whole, "allowzero": 1}),
    ]  # fmt: skip


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
    "ReduceSum": (_few_sums, 1),
    "ReduceMean": (_few_sums, 1),
    **{op.name: (_few_axes, op.n_inputs[0]) for op in ELEMENTWISE if type(op) in (Map, Broadcast)},
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
