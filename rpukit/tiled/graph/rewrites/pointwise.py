"""Functions of one element, comparisons and choices, by ops of this package."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from rpukit.tiled.graph.rewrites.reading import Parts, Reading, Rewrite, identity, text_of
from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import attribute, fault, present

__all__ = ["REWRITES"]

_FLOATS, _INTEGERS = ("float16", "float32", "float64", "bfloat16"), ("int32", "int64")


def _cast(node: Node, reading: Reading) -> list[Node]:
    onnx_type, source = node.attributes["to"], reading.types.get(node.inputs[0], "unknown")
    target = text_of(onnx_type)
    if node.inputs[0] in reading.masks and target in (*_FLOATS, "bool"):
        if target == "bool":
            reading.masks.add(node.outputs[0])
        return identity(node)
    for group in (_FLOATS, _INTEGERS):
        if source in group and target in group:
            return identity(node)
    raise fault(node, f"got a cast from {source} to {target}, need floats, or signed integers")


def _clip(node: Node, reading: Reading) -> list[Node]:
    ends = {"min": reading.number(node, 1, "min"), "max": reading.number(node, 2, "max")}
    given = {name: value for name, value in ends.items() if value is not None}
    return [replace(node, inputs=node.inputs[:1], attributes={**node.attributes, **given})]


def _pow(node: Node, reading: Reading) -> list[Node]:
    base = reading.scalar(node.inputs[0])
    if base is not None and base > 0 and not reading.fixed(node.inputs[1]):
        parts = Parts(node, reading)
        return parts.done(parts.add("Exp", parts.times(node.inputs[1], math.log(base))))
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
        return identity(node)
    made = []
    for k, other in enumerate(others):
        last = k == len(others) - 1
        end = node.outputs[0] if last else f"{node.name}/{k}"
        made.append(Node(node.name if last else end, "Add", (first, other), (end,), {}))
        first = end
    return made


def _mean(node: Node, reading: Reading) -> list[Node]:
    parts, (total, *others) = Parts(node, reading), node.inputs
    for other in others:
        total = parts.add("Add", total, other)
    return parts.done(parts.times(total, 1.0 / len(node.inputs)))


def _largest(sign: float) -> Rewrite:
    """Make the rewrite of Max (1) or Min (-1): a Clip by a number, else a choice."""

    def rewrite(node: Node, reading: Reading) -> list[Node]:
        parts, (first, *others) = Parts(node, reading), sorted(node.inputs, key=reading.fixed)
        for other in others:
            bound = reading.scalar(other)
            size = max(math.prod(reading.shapes.get(name, (2,))) for name in (first, other))
            if bound is not None and size == math.prod(reading.shapes.get(first, (0,))):
                first = parts.add("Clip", first, **{"min" if sign > 0 else "max": bound})
                continue
            pair = (first, other) if sign > 0 else (other, first)
            first = parts.choose(parts.step(parts.add("Sub", *pair)), first, other)
        return parts.done(first)

    return rewrite


def _where(node: Node, reading: Reading) -> list[Node]:
    """Choose by a mask; of a constant one, multiply by it and add constants."""
    mask, *choices = node.inputs
    if mask in reading.masks:
        parts = Parts(node, reading)
        return parts.done(parts.choose(mask, *choices))
    if not reading.fixed(mask):
        raise fault(
            node, f"{mask}: got a mask of truth values that are an input; need numbers 0 and 1, "
            "or a mask that comparisons compute"
        )  # fmt: skip
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


def _compare(kind: str) -> Rewrite:
    """Make the rewrite of a comparison, whose result is 1 or 0."""

    def rewrite(node: Node, reading: Reading) -> list[Node]:
        parts, (a, b) = Parts(node, reading), node.inputs
        for name in (a, b):
            if not reading.fixed(name) and reading.types.get(name, "float32") not in _FLOATS:
                raise fault(node, f"{name}: got {reading.types[name]}, need floats to compare")
        reading.masks.add(node.outputs[0])
        more = parts.step(parts.add("Sub", a, b)) if kind != "Less" else ""
        less = parts.step(parts.add("Sub", b, a)) if kind != "Greater" else ""
        if kind == "Equal":
            return parts.done(parts.add("Sub", parts.number(1.0), parts.add("Add", more, less)))
        return parts.done(more or less)

    return rewrite


def _not(node: Node, reading: Reading) -> list[Node]:
    parts, x = Parts(node, reading), _mask(node, reading, node.inputs[0])
    reading.masks.add(node.outputs[0])
    return parts.done(parts.add("Sub", parts.number(1.0), x))


def _both(node: Node, reading: Reading) -> list[Node]:
    parts, (a, b) = Parts(node, reading), (_mask(node, reading, name) for name in node.inputs)
    reading.masks.add(node.outputs[0])
    if node.op == "And":
        return parts.done(parts.add("Mul", a, b))
    return parts.done(parts.step(parts.add("Add", a, b)))


def _no_less(kind: str) -> Rewrite:
    """Make the rewrite of a comparison that equal numbers pass."""

    def rewrite(node: Node, reading: Reading) -> list[Node]:
        strict = replace(node, outputs=(f"{node.name}/strict",))
        reading.types[strict.outputs[0]] = "bool"
        nodes = _compare("Less" if kind == "GreaterOrEqual" else "Greater")(strict, reading)
        last = replace(node, name=f"{node.name}/not", inputs=strict.outputs)
        return [*nodes, *_not(last, reading)]

    return rewrite


def _mask(node: Node, reading: Reading, name: str) -> str:
    """Find a truth value as numbers."""
    if name in reading.masks:
        return name
    if reading.fixed(name):
        value = reading.constants[name].astype(np.float64)
        return reading.constant(f"{node.name}/mask_{name}", value)
    raise fault(node, f"{name}: got truth values that are an input; need numbers 0 and 1")


Function = Callable[[Parts, str, Node], str]


def _of(function: Function) -> Rewrite:
    """Make the rewrite of a function of the first input."""

    def rewrite(node: Node, reading: Reading) -> list[Node]:
        parts = Parts(node, reading)
        return parts.done(function(parts, node.inputs[0], node))

    return rewrite


def _below(parts: Parts, x: str) -> str:
    return parts.add("Clip", x, max=0.0)


def _exponential(parts: Parts, x: str, alpha: float, scale: float, by: float) -> str:
    """scale (x where x > 0, else alpha (exp(x / by) - 1))."""
    low = parts.times(_below(parts, x), 1.0 / by)
    less = parts.times(parts.plus(parts.add("Exp", low), -1.0), alpha * scale)
    return parts.add("Add", parts.times(parts.add("Relu", x), scale), less)


def _elu(parts: Parts, x: str, node: Node) -> str:
    return _exponential(parts, x, attribute(node, "alpha", 1.0), 1.0, 1.0)


def _selu(parts: Parts, x: str, node: Node) -> str:
    alpha = attribute(node, "alpha", 1.67326319217681884765625)
    return _exponential(parts, x, alpha, attribute(node, "gamma", 1.05070102214813232421875), 1.0)


def _celu(parts: Parts, x: str, node: Node) -> str:
    alpha = attribute(node, "alpha", 1.0)
    return _exponential(parts, x, alpha, 1.0, alpha)


def _abs(parts: Parts, x: str, node: Node) -> str:
    return parts.add("Sub", parts.add("Relu", x), _below(parts, x))


def _softplus(parts: Parts, x: str, node: Node | None = None) -> str:
    """Relu(x) + log(1 + exp(-|x|)), which does not overflow."""
    low = parts.times(parts.add("LeakyRelu", x, alpha=-1.0), -1.0)
    rest = parts.add("Log", parts.plus(parts.add("Exp", low), 1.0))
    return parts.add("Add", parts.add("Relu", x), rest)


def _softsign(parts: Parts, x: str, node: Node) -> str:
    return parts.add("Div", x, parts.plus(_abs(parts, x, node), 1.0))


def _mish(parts: Parts, x: str, node: Node) -> str:
    return parts.add("Mul", x, parts.add("Tanh", _softplus(parts, x)))


def _swish(parts: Parts, x: str, node: Node) -> str:
    inner = parts.times(x, attribute(node, "alpha", 1.0))
    return parts.add("Mul", x, parts.add("Sigmoid", inner))


def _prelu(parts: Parts, x: str, node: Node) -> str:
    low = parts.add("Mul", _below(parts, x), node.inputs[1])
    return parts.add("Add", parts.add("Relu", x), low)


def _sign(parts: Parts, x: str, node: Node) -> str:
    return parts.add("Sub", parts.step(x), parts.step(parts.times(x, -1.0)))


def _thresholded(parts: Parts, x: str, node: Node) -> str:
    return parts.add("ReluGrad", x, parts.plus(x, -attribute(node, "alpha", 1.0)))


def _shrink(parts: Parts, x: str, node: Node) -> str:
    far, bias = attribute(node, "lambd", 0.5), attribute(node, "bias", 0.0)
    high = parts.add("ReluGrad", parts.plus(x, -bias), parts.plus(x, -far))
    minus = parts.plus(parts.times(x, -1.0), -far)
    return parts.add("Add", high, parts.add("ReluGrad", parts.plus(x, bias), minus))


def _gelu(node: Node, reading: Reading) -> list[Node]:
    """0.5 x (1 + tanh(c (x + 0.044715 x^3))); the other one is an op of its own."""
    if attribute(node, "approximate", "none") != "tanh":
        return [node]
    parts, x = Parts(node, reading), node.inputs[0]
    cube = parts.times(parts.add("Pow", x, exponent=3.0), 0.044715)
    inner = parts.times(parts.add("Add", x, cube), math.sqrt(2.0 / math.pi))
    far = parts.plus(parts.add("Tanh", inner), 1.0)
    return parts.done(parts.add("Mul", parts.times(x, 0.5), far))


def _dropout(node: Node, reading: Reading) -> list[Node]:
    name = present(node.inputs, 2)
    training = bool(reading.number(node, 2, "training_mode")) if name else False
    ratio = reading.number(node, 1, "ratio")
    if training and (ratio is None or ratio > 0):
        raise fault(node, "it is in training mode; need inference mode, or a ratio of 0")
    return identity(node)


REWRITES: Mapping[str, Rewrite] = {
    "Abs": _of(_abs),
    "And": _both,
    "Cast": _cast,
    "Celu": _of(_celu),
    "Clip": _clip,
    "Dropout": _dropout,
    "Elu": _of(_elu),
    "Equal": _compare("Equal"),
    "Gelu": _gelu,
    "Greater": _compare("Greater"),
    "GreaterOrEqual": _no_less("GreaterOrEqual"),
    "Less": _compare("Less"),
    "LessOrEqual": _no_less("LessOrEqual"),
    "Max": _largest(1.0),
    "Mean": _mean,
    "Min": _largest(-1.0),
    "Mish": _of(_mish),
    "Neg": _neg,
    "Not": _not,
    "Or": _both,
    "PRelu": _of(_prelu),
    "Pow": _pow,
    "Reciprocal": _reciprocal,
    "Selu": _of(_selu),
    "Shrink": _of(_shrink),
    "Sign": _of(_sign),
    "Softplus": _of(_softplus),
    "Softsign": _of(_softsign),
    "Sum": _sum,
    "Swish": _of(_swish),
    "ThresholdedRelu": _of(_thresholded),
    "Where": _where,
}
