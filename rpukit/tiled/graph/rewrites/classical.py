"""Operators of ONNX for classical models, as converters of scikit-learn write them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rpukit.tiled.graph.rewrites.reading import Parts, Reading, Rewrite
from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import attribute, fault

__all__ = ["REWRITES"]

_AFTER = {"NONE": "", "SOFTMAX": "Softmax", "LOGISTIC": "Sigmoid"}


def _scaler(node: Node, reading: Reading) -> list[Node]:
    """(x - offset) scale."""
    parts, x = Parts(node, reading), node.inputs[0]
    for name, op in (("offset", "Sub"), ("scale", "Mul")):
        x = parts.add(op, x, parts.array(np.array(attribute(node, name, (0.0,)), np.float64)))
    return parts.done(x)


def _linear(node: Node, reading: Reading) -> list[Node]:
    """Products with coefficients, which can be trained by their names."""
    parts, classifier = Parts(node, reading), node.op == "LinearClassifier"
    shape, more = reading.shape(node, node.inputs[0]), node.attributes
    weights = np.array(more["coefficients"], np.float64).reshape(-1, shape[-1])
    bias = np.array(more.get("intercepts", (0.0,) * len(weights)), np.float64)
    labels = more.get("classlabels_ints", more.get("classlabels_strings", ()))
    after = attribute(node, "post_transform", "NONE")
    if after not in _AFTER or (classifier and len(labels) != len(weights)):
        raise fault(
            node, f"post_transform {after}, {len(weights)} rows of coefficients for {len(labels)} "
            f"classes; need a row for each, and one of {', '.join(_AFTER)}"
        )  # fmt: skip
    if classifier and not node.outputs[1:]:
        raise fault(node, "labels are not computed; need its scores, the second output")
    names = [
        reading.constant(f"{node.name}/{key}", value)
        for key, value in (("coefficients", weights), ("intercepts", bias))
    ]
    y = parts.add("Gemm", node.inputs[0], *names, transB=1)
    y = parts.add(_AFTER[after], y) if _AFTER[after] else y
    return parts.done(y, node.outputs[1] if classifier else node.outputs[0])


def _normalizer(node: Node, reading: Reading) -> list[Node]:
    """Divide each row by its norm."""
    parts, x, norm = Parts(node, reading), node.inputs[0], attribute(node, "norm", "MAX")
    more = {"axes": (1,), "keepdims": 1}
    if norm == "L2":
        total = parts.add("ReduceSum", parts.add("Mul", x, x), **more)
        return parts.done(parts.add("Div", x, parts.add("Sqrt", total)))
    if norm != "L1":
        raise fault(node, f"norm: got {norm}, need L1 or L2")
    size = parts.add("Sub", parts.add("Relu", x), parts.add("Clip", x, max=0.0))
    return parts.done(parts.add("Div", x, parts.add("ReduceSum", size, **more)))


REWRITES: Mapping[str, Rewrite] = {
    "LinearClassifier": _linear,
    "LinearRegressor": _linear,
    "Normalizer": _normalizer,
    "Scaler": _scaler,
}
