"""Fusion of transposes, scales, biases and residuals into products, with unchanged bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import cast

from rpukit._checks import takes
from rpukit.tiled import ops
from rpukit.tiled.graph.make import Graph, with_nodes
from rpukit.tiled.graph.pointwise_fusion import AnyGraph, fuse_pointwise
from rpukit.tiled.ir import BaseGraph, Node, Training

__all__ = ["fuse", "fuse_epilogues"]


@takes()
def fuse(graph: AnyGraph) -> AnyGraph:
    """Fuse all that can be fused without changing a bit: `fuse_epilogues`, `fuse_pointwise`.

    Parameters
    ----------
    graph : Graph or Training

    Returns
    -------
    Graph or Training
        Losses, gradients, parameters and state have the bits of the given graph. Apply other
        methods (`methods`, `fuse_activations`, `fuse_updates`) before.

    Examples
    --------
    >>> import rpukit as rk
    >>> b = rk.tiled.Builder("line")
    >>> x, w, c = b.input("x", (4, 8)), b.parameter("w", [[0.1] * 2] * 8), b.parameter("c", [0, 0])
    >>> h = b.apply("Add", b.apply("MatMul", x, w), c)
    >>> graph = b.graph(b.apply("Mul", h, b.apply("Sigmoid", h)))
    >>> [node.op for node in rk.tiled.fuse(graph).nodes]
    ['Gemm', 'FusedPointwise']
    """
    return fuse_pointwise(fuse_epilogues(graph))


@takes()
def fuse_epilogues(graph: AnyGraph) -> AnyGraph:
    """Fuse transposes, scales, biases and residuals into products.

    Parameters
    ----------
    graph : Graph or Training

    Returns
    -------
    Graph or Training
        A product that is only read by a Mul with a constant number has this number as ``alpha``;
        one that is only read by an Add is a Gemm with the other term as its third input. A
        Transpose of the last two axes of a factor becomes ``transA`` or ``transB``, one of a
        product of matrices a product of its turned factors. Sums and roundings have the same
        order, so that all results have the bits of the given graph.

    Examples
    --------
    >>> import rpukit as rk
    >>> b = rk.tiled.Builder("line")
    >>> x, w, c = b.input("x", (4, 8)), b.parameter("w", [[0.1] * 2] * 8), b.parameter("c", [0, 0])
    >>> graph = b.graph(b.apply("Add", b.apply("MatMul", x, w), c))
    >>> [(node.op, node.inputs) for node in rk.tiled.fuse_epilogues(graph).nodes]
    [('Gemm', ('x', 'w', 'c'))]
    """
    if isinstance(graph, Training):
        return replace(graph, train=_fused(graph.train))
    return cast(AnyGraph, _fused(graph))


def _fused(graph: BaseGraph) -> Graph:
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    readers.update(graph.outputs)
    products: dict[str, Node] = {}  # by their results; each is read once
    changed: set[str] = set()  # values changed in place by the nodes so far
    done: dict[str, Node] = {}
    turned: dict[str, str] = {}  # transposed matrices, and what they are transposed from
    for node in graph.nodes:
        node = _straight(graph, node, turned, changed)
        if node.op == "Transpose" and _swaps(graph, node):
            turned[node.outputs[0]] = node.inputs[0]
        for product in [products[name] for name in node.inputs if name in products]:
            roots = {graph.aliases.get(name, name) for name in product.inputs}
            ended = None if roots & changed else _ended(graph, product, node)
            if ended is not None:
                del done[product.name]
                node = ended
                break
        done[node.name] = node
        op = ops.find(node.op)
        if op.name in ("Gemm", "MatMul") and readers[node.outputs[0]] == 1:
            products[node.outputs[0]] = node
        if not op.view:
            changed.update(graph.aliases.get(source, source) for _, source in op.aliases(node))
    return with_nodes(graph, _needed(list(done.values()), graph.outputs))


def _needed(nodes: Sequence[Node], outputs: Sequence[str]) -> list[Node]:
    """Leave out transposes that no node reads any more."""
    read = {name for node in nodes for name in node.inputs} | set(outputs)
    return [node for node in nodes if node.op != "Transpose" or node.outputs[0] in read]


def _swaps(graph: BaseGraph, node: Node) -> bool:
    """Tell whether a Transpose swaps the last two axes alone."""
    rank = len(graph.tensors[node.inputs[0]].shape)
    order = list(node.attributes.get("perm", range(rank)[::-1]))
    return rank > 1 and order == [*range(rank - 2), rank - 1, rank - 2]


def _straight(graph: BaseGraph, node: Node, turned: Mapping[str, str], changed: Set[str]) -> Node:
    """Let a product read the sources of transposed factors."""
    if node.op not in ("Gemm", "MatMul"):
        return node
    inputs, attributes = list(node.inputs), dict(node.attributes)
    for k, key in enumerate(("transA", "transB")):
        source = turned.get(inputs[k], "")
        if source and graph.aliases.get(source, source) not in changed:
            inputs[k], attributes[key] = source, 1 - attributes.get(key, 0)
    if tuple(inputs) == node.inputs:
        return node
    return replace(node, op="Gemm", inputs=tuple(inputs), attributes=attributes)


def _ended(graph: BaseGraph, product: Node, node: Node) -> Node | None:
    """Make the product that computes what a node makes of its result; None if there is none."""
    a, made = product.attributes, product.outputs[0]
    if node.op == "Transpose":
        return _swapped(graph, product, node)
    others = [name for name in node.inputs if name != made]
    shapes = {graph.tensors[name].shape for name in (made, *node.outputs)}
    if len(others) != 1 or len(shapes) != 1 or a.get("activation") or len(product.inputs) > 2:
        return None
    attributes = {key: a[key] for key in ("transA", "transB", "alpha") if key in a}
    inputs: Sequence[str] = product.inputs
    if node.op == "Add":
        inputs = (*inputs, others[0])
    elif node.op == "Mul" and a.get("alpha", 1.0) == 1.0:
        value = graph.constants.get(others[0])
        if value is None or value.size != 1:
            return None
        attributes["alpha"] = float(value.reshape(-1)[0])
    else:
        return None
    return Node(node.name, "Gemm", tuple(inputs), node.outputs, attributes)


def _swapped(graph: BaseGraph, product: Node, node: Node) -> Node | None:
    """Make a transposed product of two matrices: transposed factors in reverse order."""
    a, (first, second, *rest) = product.attributes, product.inputs
    ranks = {len(graph.tensors[name].shape) for name in (first, second)}
    if rest or ranks != {2} or not _swaps(graph, node):
        return None
    flags = {"transA": 1 - a.get("transB", 0), "transB": 1 - a.get("transA", 0)}
    more = {key: a[key] for key in ("alpha", "activation") if key in a}
    return Node(node.name, "Gemm", (second, first), node.outputs, {**flags, **more})
