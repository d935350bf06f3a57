"""Pointwise fusion: chains of elementwise ops become one op of one kernel."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from rpukit._checks import takes
from rpukit.tiled import ops
from rpukit.tiled.graph.make import Graph, with_nodes
from rpukit.tiled.ir import BaseGraph, Node, Training
from rpukit.tiled.ops.elementwise import Broadcast, Map, Spread, Transpose
from rpukit.tiled.ops.moves import Slice
from rpukit.tiled.ops.pointwise.chain import Chain, chain_of

__all__ = ["fuse_pointwise"]

_KINDS = (Map, Broadcast, Spread, Transpose, Slice)
AnyGraph = TypeVar("AnyGraph", BaseGraph, Training)


@takes()
def fuse_pointwise(graph: AnyGraph) -> AnyGraph:
    """Fuse chains of elementwise ops, so that results between them are not stored.

    Parameters
    ----------
    graph : Graph or Training

    Returns
    -------
    Graph or Training
        Elementwise ops of one shape that follow one another are one node ``FusedPointwise``. It
        computes their steps for each element in their order, so that all results have the bits of
        the given graph. Results that other nodes read, those of the backward pass among them, are
        outputs of the node. Broadcasts and transposes that only such a node reads become its
        strides. Apply other methods (`fuse_activations`, `fuse_updates`, `methods`) before.

    Examples
    --------
    >>> import rpukit as rk
    >>> b = rk.tiled.Builder("silu")
    >>> x = b.input("x", (4, 8))
    >>> graph = b.graph(b.apply("Mul", x, b.apply("Sigmoid", x)))
    >>> [node.attributes["ops"] for node in rk.tiled.fuse_pointwise(graph).nodes]
    ['Sigmoid, Mul']
    """
    if isinstance(graph, Training):
        return replace(graph, train=_fused(graph.train))
    return cast(AnyGraph, _fused(graph))


@dataclass(slots=True)
class _Unit:
    """Nodes that run as one: a chain, or a single node of any op."""

    members: list[int]
    chain: Chain | None = None


def _fused(graph: BaseGraph) -> Graph:
    search = _Search(graph)
    for number in range(len(graph.nodes)):
        search.add(number)
    nodes = [search.node(unit) for unit in search.sorted()]
    return with_nodes(graph, nodes)


class _Search:
    """Greedy search: each elementwise node joins the units of its operands, where it may.

    Sets of nodes are integers with a bit for each. `before` holds all that a node has to wait for:
    producers of what it reads, readers of what it changes in place, and what these wait for.
    """

    def __init__(self, graph: BaseGraph) -> None:
        self.graph = graph
        self.units: list[_Unit] = []  # that of each node
        self.waits = _waits(graph)
        self.before: list[int] = []
        self.readers: dict[str, set[int]] = {}
        self.maker: dict[str, int] = {}
        for number, node in enumerate(graph.nodes):
            for name in filter(None, node.inputs):
                self.readers.setdefault(name, set()).add(number)
            self.maker.update(dict.fromkeys(filter(None, node.outputs), number))
        self.numbers = {
            name: float(value.reshape(-1)[0])
            for name, value in graph.constants.items()
            if value.size == 1 and value.dtype.kind == "f"
        }

    def add(self, number: int) -> None:
        """Add the next node, and join it with the units of its operands."""
        self.units.append(_Unit([number]))
        self.before.append(self._behind([number]))
        if not self._pointwise(number):
            return
        node = self.graph.nodes[number]
        op = cast(Map, ops.find(node.op))
        shape = self.graph.tensors[node.outputs[0]].shape
        whole = [
            self.maker[name]
            for place, name in enumerate(node.inputs)
            if self.graph.tensors[name].shape == shape
            and op.places(node, self.graph.tensors, place) == list(range(len(shape)))
            and name in self.maker
        ]
        for source in sorted(set(whole), reverse=True):
            if self.units[source] is not self.units[number] and self._pointwise(source):
                self._join(self.units[source], self.units[number])

    def node(self, unit: _Unit) -> Node:
        """Make the node of a unit."""
        nodes = [self.graph.nodes[k] for k in unit.members]
        if unit.chain is None:
            return nodes[0]
        chain = unit.chain
        shape = self.graph.tensors[nodes[-1].outputs[0]].shape
        attributes = chain.attributes(shape, ", ".join(node.op for node in nodes))
        inputs = tuple(name for name, *_ in chain.sources)
        return Node(nodes[-1].name, "FusedPointwise", inputs, tuple(chain.results), attributes)

    def sorted(self) -> list[_Unit]:
        """Sort the units: each after what it waits for, else by its last node."""
        units = list({id(unit): unit for unit in self.units}.values())
        place = {id(unit): k for k, unit in enumerate(units)}
        waits = [
            {place[id(self.units[w])] for n in unit.members for w in self.waits[n]} - {k}
            for k, unit in enumerate(units)
        ]
        freed: list[list[int]] = [[] for _ in units]
        for k, own in enumerate(waits):
            for other in own:
                freed[other].append(k)
        left = [len(own) for own in waits]
        ready = [(unit.members[-1], k) for k, unit in enumerate(units) if not left[k]]
        heapq.heapify(ready)
        found = []
        while ready:
            _, k = heapq.heappop(ready)
            found.append(units[k])
            for other in freed[k]:
                left[other] -= 1
                if not left[other]:
                    heapq.heappush(ready, (units[other].members[-1], other))
        assert len(found) == len(units), "units wait for one another"
        return found

    def _pointwise(self, number: int) -> bool:
        node = self.graph.nodes[number]
        op = ops.find(node.op)
        if isinstance(op, Slice) and any(step != 1 for step in node.attributes.get("steps", ())):
            return False
        return type(op) in _KINDS and node.outputs[0] != ""

    def _behind(self, members: Sequence[int]) -> int:
        """Find all nodes that some nodes wait for, and these themselves."""
        found = 0
        for number in members:
            found |= 1 << number
            for other in self.waits[number]:
                found |= self.before[other]
        return found

    def _join(self, first: _Unit, last: _Unit) -> None:
        """Join two units, if no other node has to run between them and one kernel can run both."""
        own = sum(1 << k for k in (*first.members, *last.members))
        for unit in (first, last):
            for number in unit.members:
                for other in self.waits[number]:
                    if not own >> other & 1 and self.before[other] & own:
                        return
        members = sorted((*first.members, *last.members))
        chain = self._chain(members)
        if chain is None:
            return
        joined = _Unit(members, chain)
        behind = 0
        for number in members:
            self.units[number] = joined
            behind |= self.before[number]
        for number in range(len(self.before)):  # members of other units may come first
            if self.before[number] & own:
                self.before[number] |= behind

    def _chain(self, members: Sequence[int]) -> Chain | None:
        graph, inside = self.graph, set(members)
        nodes = [graph.nodes[k] for k in members]
        wanted = [
            node.outputs[0]
            for node in nodes
            if node.outputs[0] in graph.outputs
            or self.readers.get(node.outputs[0], set()) - inside
        ]
        chain = chain_of(nodes, graph.tensors, self.numbers, wanted, lambda n: ops.find(n.op))
        return chain if chain and chain.sources and chain.results else None


def _waits(graph: BaseGraph) -> list[set[int]]:
    """Find the nodes that each node directly waits for.

    A node that changes a value in place waits for the readers of the value before.
    """
    maker: dict[str, int] = {}
    readers: dict[str, set[int]] = {}
    found = []
    for number, node in enumerate(graph.nodes):
        op, own = ops.find(node.op), set[int]()
        for name in filter(None, node.inputs):
            if name in maker:
                own.add(maker[name])
        for _, source in op.aliases(node):
            if not op.view:
                own |= readers.get(graph.aliases.get(source, source), set())
        for name in filter(None, node.inputs):
            readers.setdefault(graph.aliases.get(name, name), set()).add(number)
        own.discard(number)
        found.append(own)
        maker.update(dict.fromkeys(filter(None, node.outputs), number))
    return found
