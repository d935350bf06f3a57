"""Normalisations: of batches, layers, groups and instances."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rpukit.tiled.graph.rewrites.reading import Parts, Reading, Rewrite
from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import attribute, fault, present

__all__ = ["REWRITES", "without_normalisations"]


def _layer_norm(node: Node, reading: Reading) -> list[Node]:
    """Normalise the last axes, as one; a missing bias is 0."""
    x, scale = node.inputs[:2]
    axis, shape = attribute(node, "axis", -1), reading.shapes.get(x)
    several = shape is not None and axis not in (-1, len(shape) - 1)
    if present(node.inputs, 2) and not several:
        return [node]
    own = reading.shapes.get(scale)
    if own is None:
        return [node]
    bias = present(node.inputs, 2) or reading.constant(f"{node.name}/no_bias", np.zeros(own))
    if shape is None or not several:
        return [replace(node, inputs=(x, scale, bias))]
    parts, size = Parts(node, reading), math.prod(shape[axis:])
    if math.prod(own) != size:
        raise fault(node, f"{scale}: got shape {own}, need {shape[axis:]}")
    rows = parts.reshape(x, (*shape[:axis], size))
    vectors = [parts.reshape(name, (size,)) for name in (scale, bias)]
    more = {"axis": -1, "epsilon": attribute(node, "epsilon", 1e-5)}
    return parts.done(
        parts.reshape(parts.add("LayerNormalization", rows, *vectors, **more), shape)
    )


def _rms_norm(node: Node, reading: Reading) -> list[Node]:
    """x / sqrt(mean of squares + epsilon), times the scale."""
    parts, (x, scale) = Parts(node, reading), node.inputs[:2]
    rank = len(reading.shape(node, x))
    axes = tuple(range(attribute(node, "axis", -1) % rank, rank))
    mean = parts.add("ReduceMean", parts.add("Mul", x, x), axes=axes, keepdims=1)
    inv = parts.add("Pow", parts.plus(mean, attribute(node, "epsilon", 1e-5)), exponent=-0.5)
    return parts.done(parts.add("Mul", parts.add("Mul", x, inv), scale))


def _group_norm(node: Node, reading: Reading) -> list[Node]:
    """Normalise groups of channels of each sample, as if they were channels of one sample."""
    parts, (x, scale, bias) = Parts(node, reading), node.inputs[:3]
    shape = reading.shape(node, x)
    n, c, image = shape[0], shape[1], (1,) * (len(shape) - 2)
    groups = attribute(node, "num_groups", c)
    rows = parts.reshape(x, (1, n * groups, math.prod(shape) // (n * groups)))
    ones, zeros = parts.array(np.ones(n * groups)), parts.array(np.zeros(n * groups))
    epsilon = attribute(node, "epsilon", 1e-5)
    y = parts.add("BatchNormInternal", rows, ones, zeros, epsilon=epsilon)
    y = parts.reshape(y, shape)
    if reading.shape(node, scale) == (groups,) and groups != c:  # before opset 21
        whole = (groups, c // groups)
        scale, bias = (
            parts.reshape(
                parts.add("Broadcast", parts.reshape(v, (groups, 1)), shape=whole, by=1), (c,)
            )
            for v in (scale, bias)
        )
    y = parts.add("Mul", y, parts.reshape(scale, (c, *image)))
    return parts.done(parts.add("Add", y, parts.reshape(bias, (c, *image))))


def _batch_norm(node: Node, reading: Reading) -> list[Node]:
    """Use statistics of the batch in training mode, else those of the file."""
    epsilon, end = attribute(node, "epsilon", 1e-5), node.outputs[:1]
    training = attribute(node, "training_mode", 0) or any(node.outputs[1:])  # before opset 14
    if training or reading.batch_statistics:
        return [Node(node.name, "BatchNormInternal", node.inputs[:3], end, {"epsilon": epsilon})]
    x, scale, bias, mean, variance = node.inputs
    for name in (mean, variance):
        if not reading.fixed(name):
            raise fault(node, f"{name}: got a tensor that changes, need a constant statistic")
    deviation = np.sqrt(reading.constants[variance].astype(np.float64) + epsilon)
    inv = reading.constant(f"{node.name}/inv_std", 1.0 / deviation)
    return [Node(node.name, "BatchNormApply", (x, mean, inv, scale, bias), end, {})]


def _lp_norm(node: Node, reading: Reading) -> list[Node]:
    """Divide by the sum of squares' root (p = 2), or by the sum of absolute values (p = 1)."""
    parts, x = Parts(node, reading), node.inputs[0]
    more = {"axes": (attribute(node, "axis", -1),), "keepdims": 1}
    if attribute(node, "p", 2) == 2:
        total = parts.add("ReduceSum", parts.add("Mul", x, x), **more)
        return parts.done(parts.add("Div", x, parts.add("Sqrt", total)))
    size = parts.add("Sub", parts.add("Relu", x), parts.add("Clip", x, max=0.0))
    return parts.done(parts.add("Div", x, parts.add("ReduceSum", size, **more)))


def without_normalisations(nodes: Sequence[Node], reading: Reading) -> list[Node]:
    """Fold normalisations by constants into the product before, if its weights are constants."""
    makers = {node.outputs[0]: node for node in nodes if node.outputs}
    readers = Counter(name for node in nodes for name in node.inputs)
    gone: dict[str, Node] = {}  # by the name of the product: what takes its place
    dropped = set()
    for node in nodes:
        product = makers.get(node.inputs[0]) if node.op == "BatchNormApply" else None
        if product is None or product.op not in ("Conv", "Gemm") or product.name in gone:
            continue
        values = [name for name in (*product.inputs[1:], *node.inputs[1:]) if name]
        alone = readers[product.outputs[0]] == 1 and product.outputs[0] not in reading.outputs
        if alone and all(map(reading.fixed, values)):
            gone[product.name] = _scaled(product, node, reading)
            dropped.add(node.name)
    return [gone.get(node.name, node) for node in nodes if node.name not in dropped]


def _scaled(product: Node, norm: Node, reading: Reading) -> Node:
    """Scale the weights of a product, and change its bias, as a normalisation after it does."""

    def value(name: str) -> Any:
        return reading.constants[name].astype(np.float64)

    mean, inv, scale, bias = map(value, norm.inputs[1:])
    factor, attributes = scale * inv, dict(product.attributes)
    weight = value(product.inputs[1])
    bias_of = present(product.inputs, 2)
    old = value(bias_of) * attributes.pop("beta", 1.0) if bias_of else 0.0
    if product.op == "Conv" or attributes.get("transB", 0):
        weight = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
    else:
        weight = weight * factor
    names = [
        reading.constant(f"{norm.name}/weight", weight),
        reading.constant(f"{norm.name}/bias", (old - mean) * factor + bias),
    ]
    return replace(
        product,
        inputs=(product.inputs[0], *names),
        outputs=norm.outputs,
        attributes=attributes,
    )


REWRITES: Mapping[str, Rewrite] = {
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _group_norm,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_norm,
    "RMSNormalization": _rms_norm,
}
