"""Making graphs: parts for composed ops, order, shapes, checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rpukit.errors import GraphError
from rpukit.tiled import ops
from rpukit.tiled.ir import Graph, Node, Tensor, sort_nodes

__all__ = ["make_graph"]


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
        Ops that are made of others (normalisations of a batch, losses) are replaced by these.
    inputs : sequence of Tensor
    outputs : sequence of str
    constants : mapping of str to array, optional

    Returns
    -------
    Graph

    Raises
    ------
    GraphError
        Unknown ops (all of them named), tensors that nobody makes or that are made twice, nodes
        in a circle, shapes and dtypes that do not fit.

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
        raise GraphError(f"{name}: ops {', '.join(unknown)} are not known")
    tensors = {tensor.name: tensor for tensor in inputs}
    if len(tensors) != len(inputs):
        raise GraphError(f"{name}: two inputs have one name")
    for key, value in constants.items():
        tensors[key] = Tensor(key, value.shape, value.dtype.name)
    done: list[Node] = []
    names = {node.name for node in nodes}
    if len(names) != len(nodes):
        raise GraphError(f"{name}: two nodes have one name")
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
            raise GraphError(f"{name}: nobody makes output {output}")
    _check_updates(name, done)
    return Graph(
        name, tuple(done), tensors, tuple(t.name for t in inputs), tuple(outputs), constants
    )


def _check_updates(name: str, nodes: Sequence[Node]) -> None:
    """Refuse a tensor that is read after it was changed in place, or changed twice."""
    changed: dict[str, str] = {}
    root: dict[str, str] = {}
    for node in nodes:
        op = ops.find(node.op)
        sources = {root.get(source, source) for source in filter(None, node.inputs)}
        for source in sources & set(changed):
            raise GraphError(
                f"{name}: node {node.name} needs {source}, which {changed[source]} has changed"
            )
        for output, source in op.aliases(node):
            if op.view:
                root[output] = root.get(source, source)
            else:
                changed[root.get(source, source)] = node.name
