"""Construction of graphs: composite ops lowered, nodes sorted, shapes inferred, all checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit.errors import GraphError
from rpukit.tiled import ops
from rpukit.tiled.ir import BaseGraph, Node, Tensor, sort_nodes
from rpukit.tiled.runtime.reference import run

__all__ = ["Graph", "infer", "make_graph", "with_nodes"]


@dataclass(frozen=True, slots=True, repr=False)
class Graph(BaseGraph):
    """Nodes in an order in which they can run, and the tensors between them.

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

    Notes
    -----
    Made by `Builder.graph`, `from_onnx` or `make_graph`, which check all that can be checked.
    """

    def __post_init__(self) -> None:
        found: dict[str, str] = {}
        for node in self.nodes:
            for output, source in ops.find(node.op).aliases(node):
                found[output] = found.get(source, source)
        object.__setattr__(self, "aliases", found)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Compute the graph node by node, each as one tile: the reference of all executors.

        Parameters
        ----------
        inputs : mapping of str to array
            All inputs, shapes and dtypes as `tensors` says. They are not changed.

        Returns
        -------
        dict of str to array
            The outputs.

        Raises
        ------
        ShapeError, DTypeError, GraphError
        """
        done = run(self, inputs)
        return {name: done[name] for name in self.outputs}


def make_graph(
    name: str,
    nodes: Iterable[Node],
    inputs: Sequence[Tensor],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
) -> Graph:
    """Make a graph of nodes in any order.

    Parameters
    ----------
    name : str
    nodes : iterable of Node
        Composite ops (batch normalisation, losses) are replaced by simpler ones.
    inputs : sequence of Tensor
    outputs : sequence of str
    constants : mapping of str to array, optional

    Returns
    -------
    Graph

    Raises
    ------
    GraphError
        If there are unknown ops (all of them are named), tensors without a producer or with two,
        cycles, or shapes or dtypes that do not match.

    Examples
    --------
    >>> import rpukit as rk
    >>> from rpukit.tiled import Node, Tensor
    >>> x = Tensor("x", (4, 3))
    >>> graph = rk.tiled.make_graph("g", [Node("r", "Relu", ("x",), ("y",))], [x], ["y"])
    >>> graph.tensors["y"].shape
    (4, 3)
    """
    nodes, constants = list(nodes), dict(constants or {})
    unknown = sorted({node.op for node in nodes if not ops.known(node.op)})
    if unknown:
        raise GraphError(f"{name}: unknown ops: {', '.join(unknown)}")
    tensors = {tensor.name: tensor for tensor in inputs}
    if len(tensors) != len(inputs):
        raise GraphError(f"{name}: two inputs have the same name")
    for key, value in constants.items():
        tensors[key] = Tensor(key, value.shape, value.dtype.name)
    done: list[Node] = []
    names = {node.name for node in nodes}
    if len(names) != len(nodes):
        raise GraphError(f"{name}: two nodes have the same name")
    for node in sort_nodes(nodes, tensors):
        base = node.name

        def fresh(purpose: str, base: str = base) -> str:
            return f"{base}/{purpose}"

        for part in ops.lower(node, fresh, tensors):
            op = ops.find(part.op)
            op.check(part, tensors)
            for tensor in op.infer(part, tensors):
                tensors[tensor.name] = tensor
            done.append(part)
    for output in outputs:
        if output not in tensors:
            raise GraphError(f"{name}: output {output} is not produced by any node")
    _check_updates(name, done)
    return Graph(
        name, tuple(done), tensors, tuple(t.name for t in inputs), tuple(outputs), constants
    )


def with_nodes(
    graph: BaseGraph, nodes: Sequence[Node], more: Mapping[str, np.ndarray] | None = None
) -> Graph:
    """Make a graph of other nodes, with the same inputs and outputs, and with more constants.

    Constants that no node reads any more are left out.
    """
    read = {name for node in nodes for name in node.inputs} | set(graph.outputs)
    inputs = [graph.tensors[name] for name in graph.inputs]
    every = {**graph.constants, **(more or {})}
    constants = {name: value for name, value in every.items() if name in read}
    return make_graph(graph.name, nodes, inputs, graph.outputs, constants)


def infer(node: Node, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Infer the tensors that a node produces, those of its parts included.

    Parameters
    ----------
    node : Node
    tensors : mapping of str to Tensor

    Returns
    -------
    dict of str to Tensor

    Raises
    ------
    GraphError
    """
    known = dict(tensors)
    for part in ops.lower(node, lambda purpose: f"{node.name}/{purpose}", known):
        found = ops.find(part.op)
        found.check(part, known)
        known.update((tensor.name, tensor) for tensor in found.infer(part, known))
    return {name: tensor for name, tensor in known.items() if name not in tensors}


def _check_updates(name: str, nodes: Sequence[Node]) -> None:
    """Check that no tensor is read after it was changed in place, or changed twice."""
    changed: dict[str, str] = {}
    root: dict[str, str] = {}
    for node in nodes:
        op = ops.find(node.op)
        sources = {root.get(source, source) for source in filter(None, node.inputs)}
        for source in sources & set(changed):
            raise GraphError(
                f"{name}: node {node.name} reads {source}, which {changed[source]} has "
                f"changed in place"
            )
        for output, source in op.aliases(node):
            if op.view:
                root[output] = root.get(source, source)
            else:
                changed[root.get(source, source)] = node.name
