"""Graphs as plain data: tensors, nodes in order of execution, roles in training."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rpukit.errors import GraphError

__all__ = ["BaseGraph", "Node", "Tensor", "Training", "graphs_of", "sort_nodes"]

DTYPES = ("float32", "float64", "int64", "uint32", "bool", "int8", "float16")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of a graph.

    Parameters
    ----------
    name : str
    shape : tuple of int
        A tensor of shape () has one element.
    dtype : {"float32", "float64", "int64", "uint32", "bool", "int8", "float16"}

    Raises
    ------
    GraphError
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise GraphError(f"tensor {self.name}: got dtype {self.dtype}, need one of {DTYPES}")
        if any(n < 0 for n in self.shape):
            raise GraphError(
                f"tensor {self.name}: got shape {self.shape}, need lengths of 0 or more"
            )

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    Parameters
    ----------
    name : str
    op : str
        Its name in `rpukit.tiled.ops`.
    inputs, outputs : tuple of str
        Names of tensors; "" stands for an absent one.
    attributes : mapping
        Numbers, strings and tuples of numbers. ``origin`` names the node that this one is part of.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Name of the node in the user's graph that this one is, or is a part of."""
        return str(self.attributes.get("origin", self.name))


@dataclass(frozen=True, slots=True)
class BaseGraph(ABC):
    """Data and interface of a graph; `rpukit.tiled.Graph` is the class to instantiate.

    Parameters
    ----------
    name : str
    nodes : tuple of Node
        Sorted: a node comes after those that produce its inputs.
    tensors : mapping of str to Tensor
    inputs, outputs : tuple of str
    constants : mapping of str to array
        Values that are part of the graph.

    Attributes
    ----------
    aliases : mapping of str to str
        For each tensor that is a view or an update in place, the tensor whose memory it shares.
    """

    name: str
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    aliases: Mapping[str, str] = field(init=False, compare=False)

    def __repr__(self) -> str:
        sizes = f"{len(self.nodes)} nodes, {len(self.tensors)} tensors"
        return f"Graph({self.name!r}, {sizes}, {len(self.inputs)} inputs)"

    @abstractmethod
    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Compute the graph node by node; see `rpukit.tiled.Graph.run`."""


@dataclass(frozen=True, slots=True)
class Training:
    """A training graph and its optimiser's graph, with the roles of their tensors.

    Parameters
    ----------
    train : Graph
        Forward, loss and backward; gradients are added to accumulators in place.
    optimiser : Graph
        Changes the parameters in place.
    data, target : str
        Inputs of `train` that change with every mini-batch.
    parameters : tuple of str
        Trained tensors, by their names in `train`.
    accumulators : tuple of str
        One for each parameter.
    reset : str
        Input of `train`, bool, shape (1,): whether gradients overwrite accumulators.
    loss : str
        Output of `train`.
    state : tuple of str
        Inputs of `optimiser` that only it uses, such as momenta.
    kept : tuple of str
        Inputs of `train` that it changes in place itself: weights and clocks of analog tiles.
    initial : mapping of str to array
        Initial values of parameters, `state` and `kept`.
    extra : tuple of str
        Inputs of `train` that change with every mini-batch too, such as masks.

    Notes
    -----
    Both graphs use the same names for parameters and accumulators, which persist between steps.
    """

    train: BaseGraph
    optimiser: BaseGraph
    data: str
    target: str
    parameters: tuple[str, ...]
    accumulators: tuple[str, ...]
    reset: str
    loss: str
    state: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    initial: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    extra: tuple[str, ...] = ()

    @property
    def batch(self) -> tuple[str, ...]:
        """The inputs that a mini-batch consists of, in its order."""
        return (self.data, self.target, *self.extra)

    def __repr__(self) -> str:
        values = [self.train.tensors[name] for name in (*self.parameters, *self.kept)]
        size = sum(tensor.size for tensor in values if tensor.dtype != "int64")
        return f"Training({self.train.name!r}, {len(self.train.nodes)} nodes, {size} parameters)"


def graphs_of(graph: BaseGraph | Training) -> tuple[BaseGraph, ...]:
    """List the graphs that are planned together.

    Parameters
    ----------
    graph : Graph or Training

    Returns
    -------
    tuple of Graph
    """
    return (graph.train, graph.optimiser) if isinstance(graph, Training) else (graph,)


def sort_nodes(nodes: Iterable[Node], known: Iterable[str]) -> tuple[Node, ...]:
    """Sort nodes topologically, as near to the given order as possible.

    Parameters
    ----------
    nodes : iterable of Node
    known : iterable of str
        Tensors that no node produces: inputs and constants.

    Returns
    -------
    tuple of Node

    Raises
    ------
    GraphError
        If a tensor has two producers or none, or the graph has a cycle.
    """
    nodes, known = list(nodes), set(known)
    maker: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in maker or name in known:
                raise GraphError(
                    f"node {node.name}: output {name} is already produced by another node or given"
                )
            maker[name] = number
    missing = {
        f"{name} of node {node.name}"
        for node in nodes
        for name in node.inputs
        if name and name not in known and name not in maker
    }
    if missing:
        raise GraphError(f"neither produced by a node nor an input: {', '.join(sorted(missing))}")
    order: list[int] = []
    state = [0] * len(nodes)  # 1: its inputs are being visited; 2: done
    for start in range(len(nodes)):
        stack = [start]
        while stack:
            number = stack[-1]
            if state[number] == 2:
                stack.pop()
                continue
            state[number] = 1
            need = [maker[name] for name in nodes[number].inputs if name in maker]
            wait = [other for other in need if state[other] != 2]
            if any(state[other] == 1 for other in wait):
                names = sorted({nodes[other].name for other in wait} | {nodes[number].name})
                raise GraphError(f"the graph has a cycle: {', '.join(names)}")
            if wait:
                stack += reversed(wait)
            else:
                state[number] = 2
                order.append(stack.pop())
    return tuple(nodes[number] for number in order)
