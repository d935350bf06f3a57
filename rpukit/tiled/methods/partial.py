"""Partial training: frozen parameters, the last layers alone, some rows of a parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rpukit._checks import shown, takes
from rpukit.errors import ParameterError
from rpukit.tiled.graph.make import make_graph
from rpukit.tiled.graph.tape import finite_array
from rpukit.tiled.ir import BaseGraph, Node, Tensor, Training
from rpukit.tiled.methods._select import (
    forward_nodes,
    live_nodes,
    matching,
    need_accumulators,
    readers_of,
)

__all__ = ["freeze", "parameter_layers", "train_last", "train_rows"]

_PRODUCTS = ("Gemm", "MatMul", "Conv")


@takes()
def freeze(
    training: Training, *patterns: str, values: Mapping[str, Any] | None = None
) -> Training:
    """Stop training some parameters: they become constants, and their gradients disappear.

    Parameters
    ----------
    training : Training
        With accumulators, that is before `rpukit.tiled.fuse_updates`.
    *patterns : str
        Names of parameters, or patterns such as ``"encoder.*"``. Each has to match one.
    values : mapping of str to array, optional
        Values of the frozen parameters; default: those that they have to begin with.

    Returns
    -------
    Training
        Without the nodes that only the gradients of frozen parameters needed, without their
        accumulators and without their optimiser's state. The other parameters and the loss have
        the bits of the given training as long as the frozen values are the same.

    Raises
    ------
    ParameterError
        If a pattern matches nothing, nothing is left to train, or a value is missing.
    GraphError

    Examples
    --------
    >>> import rpukit as rk
    >>> b = rk.tiled.Builder("two")
    >>> x, y = b.input("x", (1, 4)), b.input("y", (1, 2))
    >>> h = b.apply("Gemm", x, b.parameter("first", [[0.1] * 3] * 4))
    >>> h = b.apply("Gemm", h, b.parameter("last", [[0.1] * 2] * 3))
    >>> training = b.training(b.apply("MSELoss", h, y))
    >>> part = rk.tiled.methods.freeze(training, "first")
    >>> part.parameters, len(training.train.nodes), len(part.train.nodes)
    (('last',), 9, 6)
    """
    need_accumulators(training)
    frozen = matching(patterns, training.parameters, "patterns")
    if len(frozen) == len(training.parameters) and not training.kept:
        raise ParameterError("patterns: all parameters match; need at least one to train")
    given = {**training.initial, **(values or {})}
    constants = dict(training.train.constants)
    for name in frozen:
        tensor = training.train.tensors[name]
        if name not in given:
            raise ParameterError(f"values: {name} has no value to keep; pass it as values=")
        value = finite_array(given[name], tensor.dtype, f"values of {name}")
        if value.shape != tensor.shape:
            raise ParameterError(f"values of {name}: got {value.shape}, need {tensor.shape}")
        constants[name] = value
    return _without(training, frozen, constants)


def _without(
    training: Training, frozen: list[str], constants: Mapping[str, np.ndarray]
) -> Training:
    pairs = zip(training.parameters, training.accumulators, strict=True)
    gone = {name: total for name, total in pairs if name in frozen}
    train, update = training.train, training.optimiser
    ends = {alias for alias, root in train.aliases.items() if root in gone.values()}
    outputs = [name for name in train.outputs if name not in ends]
    nodes = live_nodes(train.nodes, outputs)
    used = {name for node in nodes for name in node.inputs} | {*training.batch, training.reset}
    inputs = [train.tensors[name] for name in train.inputs if name in used and name not in gone]
    lasting = {name: value for name, value in constants.items() if name in used}
    whole = make_graph(train.name, nodes, inputs, outputs, lasting)
    own = [node for node in update.nodes if node.inputs[0] not in gone]
    kept = {name for node in own for name in node.inputs}
    made = {name for node in own for name in node.outputs}
    step = make_graph(
        update.name,
        own,
        [update.tensors[name] for name in update.inputs if name in kept],
        [name for name in update.outputs if name in made],
        {name: value for name, value in update.constants.items() if name in kept},
    )
    names = {*gone, *(name for name in training.state if name not in kept)}
    return replace(
        training,
        train=whole,
        optimiser=step,
        parameters=tuple(name for name in training.parameters if name not in gone),
        accumulators=tuple(n for n in training.accumulators if n not in gone.values()),
        state=tuple(name for name in training.state if name in kept),
        initial={name: value for name, value in training.initial.items() if name not in names},
    )


@takes()
def parameter_layers(training: Training) -> tuple[tuple[str, ...], ...]:
    """Group the parameters by layers, in the order of the forward pass.

    Parameters
    ----------
    training : Training

    Returns
    -------
    tuple of tuple of str
        A layer begins with a product (Gemm, MatMul, Conv) of a parameter with what depends on
        the data. Biases, scales and normalisations belong to the product before them, those
        before the first product to the first layer.

    Examples
    --------
    >>> import rpukit as rk
    >>> b = rk.tiled.Builder("two")
    >>> x, y = b.input("x", (1, 4)), b.input("y", (1, 2))
    >>> h = b.apply("Gemm", x, b.parameter("w", [[0.1] * 3] * 4), b.parameter("c", [0.0] * 3))
    >>> h = b.apply("Gemm", h, b.parameter("v", [[0.1] * 2] * 3))
    >>> rk.tiled.methods.parameter_layers(b.training(b.apply("MSELoss", h, y)))
    (('w', 'c'), ('v',))
    """
    fed = set(training.batch)  # tensors that depend on the data
    parts = {name: {name} for name in training.parameters}  # parameters behind other tensors
    layers: list[list[str]] = [[]]
    for node in forward_nodes(training):
        own = [parts.get(name, set()) for name in node.inputs if name not in fed]
        found = set().union(*own)
        if fed.isdisjoint(node.inputs):  # such as a transposed weight
            parts.update((name, found) for name in node.outputs)
            continue
        fed.update(filter(None, node.outputs))
        new = [n for n in training.parameters if n in found and not any(n in k for k in layers)]
        if new and node.op in _PRODUCTS and any(layers):
            layers.append([])
        layers[-1] += new
    return tuple(tuple(layer) for layer in layers if layer)


@takes()
def train_last(training: Training, n_layers: int) -> Training:
    """Train the last layers alone; the backward pass ends where they begin.

    Parameters
    ----------
    training : Training
    n_layers : int
        Number of layers, as `parameter_layers` counts them.

    Returns
    -------
    Training
        As by `freeze`.

    Raises
    ------
    ParameterError, GraphError

    Examples
    --------
    >>> import rpukit as rk
    >>> b = rk.tiled.Builder("two")
    >>> x, y = b.input("x", (1, 4)), b.input("y", (1, 2))
    >>> h = b.apply("Gemm", x, b.parameter("first", [[0.1] * 3] * 4))
    >>> h = b.apply("Gemm", h, b.parameter("last", [[0.1] * 2] * 3))
    >>> training = b.training(b.apply("MSELoss", h, y))
    >>> rk.tiled.methods.train_last(training, 1).parameters
    ('last',)
    """
    layers = parameter_layers(training)
    if not 1 <= n_layers <= len(layers):
        raise ParameterError(f"n_layers: got {n_layers}, need an integer from 1 to {len(layers)}")
    frozen = [name for layer in layers[: len(layers) - n_layers] for name in layer]
    if not frozen:
        need_accumulators(training)
        return training
    return freeze(training, *(_literal(name) for name in frozen))


def _literal(name: str) -> str:
    """Write a name as a pattern that matches it alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


@takes()
def train_rows(training: Training, rows: Mapping[str, tuple[int, int]]) -> Training:
    """Train some rows of parameters: channels, or blocks of channels, of their first axis.

    The gradient of the other rows is not computed, and accumulators and the optimiser's state
    have the size of the trained rows.

    Parameters
    ----------
    training : Training
        With accumulators, that is before `rpukit.tiled.fuse_updates`.
    rows : mapping of str to (int, int)
        For names of parameters, or patterns: the first row, and the one after the last. Of the
        weights of a Conv, or of a Gemm with ``transB=1``, rows are output channels.

    Returns
    -------
    Training
        The trained rows and the loss have the bits of a step of the given training after which
        the other rows are restored.

    Raises
    ------
    ParameterError, GraphError

    Examples
    --------
    >>> import rpukit as rk
    >>> b = rk.tiled.Builder("line")
    >>> x, y = b.input("x", (1, 4)), b.input("y", (1, 6))
    >>> h = b.apply("Gemm", x, b.parameter("w", [[0.1] * 4] * 6), transB=1)
    >>> training = b.training(b.apply("MSELoss", h, y))
    >>> part = rk.tiled.methods.train_rows(training, {"w": (0, 2)})
    >>> part.train.tensors[part.accumulators[0]].shape
    (2, 4)
    """
    need_accumulators(training)
    if not isinstance(rows, Mapping):
        raise ParameterError(f"rows: got {shown(rows)}, need names with (first, after the last)")
    parts: dict[str, tuple[int, int]] = {}
    for pattern, part in rows.items():
        for name in matching([pattern], training.parameters, "rows"):
            parts[name] = _range(name, part, training.train.tensors[name].shape)
    if not parts:
        raise ParameterError("rows: got none, need at least one name with its rows")
    return _Rows(training, parts).made()


def _range(name: str, part: Any, shape: tuple[int, ...]) -> tuple[int, int]:
    whole = isinstance(part, (tuple, list)) and len(part) == 2
    if not whole or not all(isinstance(n, (int, np.integer)) for n in part):
        raise ParameterError(f"rows of {name}: got {shown(part)}, need two integers")
    lo, hi = int(part[0]), int(part[1])
    if not shape or not 0 <= lo < hi <= shape[0]:
        n = shape[0] if shape else 0
        raise ParameterError(f"rows of {name}: got ({lo}, {hi}), need a range within {n} rows")
    return lo, hi


class _Rows:
    """Cuts gradients, accumulators and updates down to the trained rows."""

    def __init__(self, training: Training, parts: Mapping[str, tuple[int, int]]) -> None:
        self.training, self.parts = training, parts
        self.readers = readers_of(training.train)
        self.nodes = list(training.train.nodes)
        self.makers = {name: node for node in self.nodes for name in node.outputs if name}
        totals = zip(training.accumulators, training.parameters, strict=True)
        self.of = {total: name for total, name in totals if name in parts}

    def made(self) -> Training:
        training, train, step = self.training, self.training.train, self.training.optimiser
        nodes: list[Node] = []
        for node in train.nodes:
            if node.inputs and node.inputs[0] in self.of:
                nodes += self.cut(node, self.parts[self.of[node.inputs[0]]])
            else:
                nodes.append(node)
        whole = make_graph(
            train.name,
            live_nodes(nodes, train.outputs),
            [self.shorter(train, name) for name in train.inputs],
            train.outputs,
            train.constants,
        )
        updates = [self.update(node) for node in step.nodes]
        inputs = [self.shorter(step, name) for name in step.inputs]
        own = make_graph(step.name, updates, inputs, step.outputs, step.constants)
        initial = dict(training.initial)
        for name in training.state:
            lo, hi = self.parts.get(self.owner(step, name), (0, None))
            initial |= {name: initial[name][lo:hi]} if name in initial else {}
        return replace(training, train=whole, optimiser=own, initial=initial)

    def owner(self, graph: BaseGraph, name: str) -> str:
        """Find the parameter that an accumulator or a state of the optimiser belongs to."""
        if name not in self.training.state:
            return self.of.get(name, "")
        return next((n.inputs[0] for n in graph.nodes if name in n.inputs[2:4]), "")

    def shorter(self, graph: BaseGraph, name: str) -> Tensor:
        """Cut an accumulator or a state of the optimiser down to the trained rows."""
        tensor, owner = graph.tensors[name], self.owner(graph, name)
        if owner not in self.parts:
            return tensor
        lo, hi = self.parts[owner]
        return Tensor(name, (hi - lo, *tensor.shape[1:]), tensor.dtype)

    def update(self, node: Node) -> Node:
        if node.inputs[0] not in self.parts:
            return node
        return replace(
            node, attributes={**node.attributes, "first": self.parts[node.inputs[0]][0]}
        )

    def cut(self, adder: Node, part: tuple[int, int]) -> list[Node]:
        """Replace the gradient that an accumulator gets by its trained rows."""
        total, slope, *rest = adder.inputs
        maker, own = self.makers.get(slope), f"{slope}/rows"
        alone = self.readers[slope] == [adder] and slope not in self.training.train.outputs
        made = self.product(maker, own, part) if maker is not None and alone else None
        made = made or [self.slice(f"{own}/slice", slope, own, 0, part)]
        return [*made, replace(adder, inputs=(total, own, *rest))]

    def product(self, maker: Node, own: str, part: tuple[int, int]) -> list[Node] | None:
        """Compute some rows of a gradient alone, if it is a product without other readers."""
        a = maker.inputs[0]
        tensors, name = self.training.train.tensors, f"{own}/{a}"
        if maker.op == "Gemm" and len(tensors[maker.outputs[0]].shape) == 2:
            if len([one for one in maker.inputs if one]) != 2 or len(tensors[a].shape) != 2:
                return None
            axis, attributes = int(bool(maker.attributes.get("transA", 0))), maker.attributes
        elif maker.op == "ConvGradW" and maker.attributes.get("group", 1) == 1:
            axis, attributes = 1, maker.attributes
        else:
            return None
        first = self.slice(f"{own}/slice", a, name, axis, part)
        inputs = (name, *maker.inputs[1:])
        return [first, Node(f"{own}/{maker.op}", maker.op, inputs, (own,), attributes)]

    def slice(self, node: str, source: str, made: str, axis: int, part: tuple[int, int]) -> Node:
        attributes = {"starts": (part[0],), "ends": (part[1],), "axes": (axis,)}
        return Node(node, "Slice", (source,), (made,), attributes)
