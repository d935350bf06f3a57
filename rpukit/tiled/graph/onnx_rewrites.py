"""Rewriting of ONNX nodes: what is only constants, views or another op here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpukit.errors import GraphError
from rpukit.tiled import ops
from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import attribute, fault, present

__all__ = ["Reading", "rewritten"]

_MOST_INPUTS = 7  # of a Concat
_FLOATS, _INTEGERS = ("float16", "float32", "float64", "bfloat16"), ("int32", "int64")
# What could stand in for operators that cannot be read
_STAND_INS = {
    "Abs": "LeakyRelu with alpha -1",
    "ArgMax": "leave it outside of the model",
    "Elu": "LeakyRelu, or Exp, Sub and LeakyRelu",
    "GRU": "its steps written out as Gemm, Sigmoid and Tanh",
    "LSTM": "its steps written out as Gemm, Sigmoid and Tanh",
    "PRelu": "LeakyRelu, whose slope is a constant",
    "RNN": "its steps written out as Gemm and Tanh",
    "ReduceMax": "MaxPool over the axis",
    "Resize": "a convolution, or resized inputs",
    "Softplus": "Log(1 + Exp(x))",
}


@dataclass
class Reading:
    """What the rewriting of a node may look at and add to.

    Attributes
    ----------
    name : str
        Of the graph.
    constants : dict of str to array
    trained : collection of str
        Initialisers that training changes.
    types : mapping of str to str
        Dtypes of tensors, as far as they are known.
    shapes : mapping of str to tuple of int
    outputs : collection of str
        Outputs of the graph.
    """

    name: str
    constants: dict[str, np.ndarray]
    trained: Collection[str]
    types: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]
    outputs: Collection[str]

    def fixed(self, name: str) -> bool:
        """Tell whether a tensor is a constant that training does not change."""
        return name in self.constants and name not in self.trained

    def number(self, node: Node, place: int, what: str) -> float | None:
        """Read a constant of one element; None where the input is absent."""
        name = present(node.inputs, place)
        if not name:
            return None
        if not self.fixed(name) or self.constants[name].size != 1:
            raise fault(node, f"{what}: got the tensor {name}, need a constant of one element")
        return float(self.constants[name].reshape(()))

    def numbers(self, node: Node, place: int, what: str) -> tuple[int, ...] | None:
        """Read a constant of integers; None where the input is absent."""
        name = present(node.inputs, place)
        if not name:
            return None
        if not self.fixed(name):
            raise fault(node, f"{what}: {name} is computed, need a constant")
        return tuple(int(n) for n in self.constants[name].reshape(-1))

    def constant(self, name: str, value: np.ndarray) -> str:
        """Add a constant."""
        self.constants[name] = value
        return name


Rewrite = Callable[[Node, Reading], list[Node]]


def _identity(node: Node) -> list[Node]:
    return [Node(node.name, "Identity", node.inputs[:1], node.outputs[:1], {})]


def _dropout(node: Node, reading: Reading) -> list[Node]:
    name = present(node.inputs, 2)
    training = bool(reading.number(node, 2, "training_mode")) if name else False
    ratio = reading.number(node, 1, "ratio")
    if training and (ratio is None or ratio > 0):
        raise fault(node, "it is in training mode; need inference mode, or a ratio of 0")
    return _identity(node)


def _cast(node: Node, reading: Reading) -> list[Node]:
    onnx_type, source = node.attributes["to"], reading.types.get(node.inputs[0], "unknown")
    target = _type_name(onnx_type)
    for group in (_FLOATS, _INTEGERS):
        if source in group and target in group:
            return _identity(node)
    raise fault(node, f"got a cast from {source} to {target}, need floats, or signed integers")


def _type_name(number: int) -> str:
    return {1: "float32", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64",
            16: "bfloat16"}.get(number, f"type {number}")  # fmt: skip


def _clip(node: Node, reading: Reading) -> list[Node]:
    ends = {"min": reading.number(node, 1, "min"), "max": reading.number(node, 2, "max")}
    given = {name: value for name, value in ends.items() if value is not None}
    return [replace(node, inputs=node.inputs[:1], attributes={**node.attributes, **given})]


def _pow(node: Node, reading: Reading) -> list[Node]:
    exponent = reading.number(node, 1, "exponent")
    return [replace(node, inputs=node.inputs[:1], attributes={"exponent": exponent})]


def _reciprocal(node: Node, reading: Reading) -> list[Node]:
    return [replace(node, op="Pow", attributes={"exponent": -1.0})]


def _neg(node: Node, reading: Reading) -> list[Node]:
    minus = reading.constant(f"{node.name}/minus_one", np.array(-1.0))
    return [replace(node, op="Mul", inputs=(node.inputs[0], minus))]


def _sum(node: Node, reading: Reading) -> list[Node]:
    first, *others = node.inputs
    if not others:
        return _identity(node)
    made = []
    for k, other in enumerate(others):
        last = k == len(others) - 1
        end = node.outputs[0] if last else f"{node.name}/{k}"
        made.append(Node(node.name if last else end, "Add", (first, other), (end,), {}))
        first = end
    return made


def _where(node: Node, reading: Reading) -> list[Node]:
    """Multiply what a constant mask chooses by 1, the rest by 0, and add constants."""
    mask, *choices = node.inputs
    if not reading.fixed(mask):
        raise fault(node, f"{mask}: got a computed mask, need a constant, or Mul and Add")
    chosen = reading.constants[mask].astype(bool)
    fixed, moving, made = np.zeros(()), list[str](), list[Node]()
    for keep, name in zip((chosen, ~chosen), choices, strict=True):
        if reading.fixed(name):  # not by products: infinity times 0 is NaN
            fixed = np.where(keep, reading.constants[name], fixed)
        else:
            factor = reading.constant(f"{node.name}/mask_{name}", keep.astype(np.float64))
            made.append(Node(f"{node.name}/{name}", "Mul", (name, factor), (factor + "ed",), {}))
            moving.append(factor + "ed")
    if fixed.ndim:
        moving.append(reading.constant(f"{node.name}/rest", fixed))
    return [*made, *_sum(replace(node, inputs=tuple(moving)), reading)]


def _expand(node: Node, reading: Reading) -> list[Node]:
    shape, source = present(node.inputs, 1), reading.shapes.get(node.inputs[0])
    if not reading.fixed(shape) or source is None:
        raise fault(node, f"{shape} is computed, need a constant, and an input of known shape")
    whole = np.broadcast_shapes(source, tuple(int(n) for n in reading.constants[shape]))
    return [Node(node.name, "Broadcast", node.inputs[:1], node.outputs, {"shape": whole, "by": 1})]


def _slice(node: Node, reading: Reading) -> list[Node]:
    names = ("starts", "ends", "axes", "steps")
    given = {name: reading.numbers(node, 1 + k, name) for k, name in enumerate(names)}
    attributes = {key: value for key, value in given.items() if value is not None}
    return [replace(node, inputs=node.inputs[:1], attributes={**node.attributes, **attributes})]


def _split(node: Node, reading: Reading) -> list[Node]:
    """Make one Slice for each part."""
    x, n = node.inputs[0], len(node.outputs)
    axis, shape = attribute(node, "axis", 0), reading.shapes.get(x)
    sizes = reading.numbers(node, 1, "split") or attribute(node, "split", ())
    if not sizes:
        if shape is None:
            raise fault(node, f"{x} has an unknown shape; need one, or the sizes of parts")
        most = -(-shape[axis] // n)
        sizes = tuple(min(most, shape[axis] - k * most) for k in range(n))
    made, begin = [], 0
    for k, (size, end) in enumerate(zip(sizes, node.outputs, strict=True)):
        part = {"starts": (begin,), "ends": (begin + size,), "axes": (axis,)}
        made.append(Node(f"{node.name}/{k}", "Slice", (x,), (end,), part))
        begin += size
    return [one for one in made if one.outputs[0]]


def _gather(node: Node, reading: Reading) -> list[Node]:
    """Read one index of an axis as a Slice, without the axis where the index is a scalar."""
    (x, indices), axis, (end,) = node.inputs, attribute(node, "axis", 0), node.outputs
    if not reading.fixed(indices) or reading.constants[indices].size != 1:
        raise fault(
            node,
            f"indices: got the tensor {indices}, need one constant index (embeddings can "
            "be computed outside of the model, as its input)",
        )
    index = int(reading.constants[indices].reshape(()))
    stop = index + 1 if index != -1 else (1 << 62)
    part = {"starts": (index,), "ends": (stop,), "axes": (axis,)}
    if reading.constants[indices].ndim:
        return [Node(node.name, "Slice", (x,), (end,), part)]
    kept = f"{node.name}/kept"
    squeeze = Node(node.name, "Squeeze", (kept,), (end,), {"axes": (axis,)})
    return [Node(kept, "Slice", (x,), (kept,), part), squeeze]


def _concat(node: Node, reading: Reading) -> list[Node]:
    """Concatenate at most seven tensors at a time, as many as the kernel takes."""
    inputs, made = list(node.inputs), list[Node]()
    while len(inputs) > _MOST_INPUTS:
        end = f"{node.name}/{len(made)}"
        made.append(Node(end, "Concat", tuple(inputs[:_MOST_INPUTS]), (end,), node.attributes))
        inputs[:_MOST_INPUTS] = [end]
    return [*made, replace(node, inputs=tuple(inputs))]


def _pad(node: Node, reading: Reading) -> list[Node]:
    """Place a tensor within zeros, axis by axis."""
    shape, mode = reading.shapes.get(node.inputs[0]), attribute(node, "mode", "constant")
    pads = reading.numbers(node, 1, "pads") or attribute(node, "pads", ())
    value = reading.number(node, 2, "constant_value") or attribute(node, "value", 0.0)
    if mode != "constant" or value or shape is None or any(n < 0 for n in pads):
        raise fault(node, f"got mode {mode}, value {value}, pads {pads}, need zeros around")
    axes = reading.numbers(node, 3, "axes") or range(len(shape))
    made, (x, end) = list[Node](), (node.inputs[0], node.outputs[0])
    for k, axis in enumerate(axes):
        before, after = pads[k], pads[k + len(pads) // 2]
        if before or after:
            more = {"axis": axis, "before": before, "size": before + shape[axis] + after}
            name = f"{node.name}/{k}"
            made.append(Node(name, "Place", (x,), (name,), more))
            x = name
    if not made:
        return _identity(node)
    return [*made[:-1], replace(made[-1], outputs=(end,))]


def _layer_norm(node: Node, reading: Reading) -> list[Node]:
    scale = node.inputs[1]
    shape = reading.shapes.get(scale)
    if present(node.inputs, 2) or shape is None:
        return [node]
    bias = reading.constant(f"{node.name}/no_bias", np.zeros(shape))
    return [replace(node, inputs=(*node.inputs[:2], bias))]


def _batch_norm(node: Node, reading: Reading) -> list[Node]:
    """Use statistics of the batch in training mode, else those of the file."""
    epsilon = attribute(node, "epsilon", 1e-5)
    if attribute(node, "training_mode", 0) or any(node.outputs[1:]):  # before opset 14: by outputs
        return [Node(node.name, "BatchNormInternal", node.inputs[:3], node.outputs[:1],
                     {"epsilon": epsilon})]  # fmt: skip
    x, scale, bias, mean, variance = node.inputs
    for name in (mean, variance):
        if not reading.fixed(name):
            raise fault(node, f"{name}: got a tensor that changes, need a constant statistic")
    deviation = np.sqrt(reading.constants[variance].astype(np.float64) + epsilon)
    inv = reading.constant(f"{node.name}/inv_std", 1.0 / deviation)
    return [Node(node.name, "BatchNormApply", (x, mean, inv, scale, bias), node.outputs[:1], {})]


_REWRITES: Mapping[str, Rewrite] = {
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Dropout": _dropout,
    "Expand": _expand,
    "Gather": _gather,
    "LayerNormalization": _layer_norm,
    "Neg": _neg,
    "Pad": _pad,
    "Pow": _pow,
    "Reciprocal": _reciprocal,
    "Slice": _slice,
    "Split": _split,
    "Sum": _sum,
    "Where": _where,
}
_ONE_OUTPUT = ("BatchNormalization", "Dropout")  # others are not computed


def rewritten(nodes: Sequence[Node], reading: Reading, extra: Collection[str]) -> list[Node]:
    """Rewrite nodes, then fold normalisations into the products before them.

    Parameters
    ----------
    nodes : sequence of Node
        Sorted.
    reading : Reading
        Gets the constants that are added.
    extra : collection of str
        Ops that are known besides those of `rpukit.tiled.ops`.

    Returns
    -------
    list of Node

    Raises
    ------
    GraphError
        One error with all operators and nodes that cannot be read.
    """
    read = {name for node in nodes for name in node.inputs} | set(reading.outputs)
    made, problems, missing = list[Node](), list[str](), dict[str, list[str]]()
    for node in nodes:
        try:
            lost = [name for name in node.outputs[1:] if name in read]
            if node.op in _ONE_OUTPUT and lost:
                raise fault(node, f"its output {lost[0]} is used, and is not computed")
            parts = _REWRITES[node.op](node, reading) if node.op in _REWRITES else [node]
        except GraphError as error:
            problems.append(str(error))
            continue
        for part in parts:
            if not ops.known(part.op) and part.op not in extra:
                missing.setdefault(part.op, []).append(part.name)
        made += parts
    if problems or missing:
        raise GraphError(_refusal(reading.name, missing, problems))
    return _without_normalisations(made, reading)


def _refusal(name: str, missing: Mapping[str, Sequence[str]], problems: Sequence[str]) -> str:
    """Write one message with all that cannot be read, and what could stand in."""
    lines = []
    if missing:
        lines.append(f"{name}: unknown ops: {', '.join(sorted(missing))}")
    for op, names in sorted(missing.items()):
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        hint = f"; could stand in: {_STAND_INS[op]}" if op in _STAND_INS else ""
        lines.append(f"{op}: node{'s' * (len(names) > 1)} {shown}{hint}")
    if problems and not missing:
        lines.append(f"{name}: {len(problems)} node{'s' * (len(problems) > 1)} cannot be read")
    return "\n  ".join([*lines, *problems])


def _without_normalisations(nodes: Sequence[Node], reading: Reading) -> list[Node]:
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
