"""Live ranges and aliasing of values, from the graphs alone.

Steps number the nodes that compute, first those of the training graph, then those of the
optimiser's. A value is a piece of memory: a tensor with all its views and updates in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rpukit.tiled import ops
from rpukit.tiled.ir import BaseGraph, Node, Training, graphs_of
from rpukit.tiled.tile_space import TileSpace

__all__ = ["Lifetimes", "Step", "Value"]


@dataclass(frozen=True, slots=True)
class Step:
    """A node that computes, with its number in the order of execution.

    Parameters
    ----------
    number : int
    program : int
        0 for the graph or the training graph, 1 for the optimiser's.
    node : Node
    space : TileSpace
    """

    number: int
    program: int
    node: Node
    space: TileSpace


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor with all its views and updates in place, which share one piece of memory.

    Parameters
    ----------
    name : str
        That of its first tensor; "name@1" for values of the optimiser's graph alone.
    bytes, itemsize : int
    lower, upper : int
        It lives during the steps ``lower <= step < upper``.
    lasting : bool
        Whether it persists between runs: parameters, accumulators, state, constants.
    given : bool
        Whether it exists before the first step: an input, or lasting.
    wanted : bool
        Whether it is needed after the last step: an output, or lasting.
    uses : tuple of (int, str)
        Step and "in", "out" or "inout", in order.
    """

    name: str
    bytes: int
    itemsize: int
    lower: int
    upper: int
    lasting: bool
    given: bool
    wanted: bool
    uses: tuple[tuple[int, str], ...]


class Lifetimes:
    """All steps and values of one or two graphs.

    Parameters
    ----------
    graph : Graph or Training
    """

    def __init__(self, graph: BaseGraph | Training) -> None:
        self.graphs = graphs_of(graph)
        self.shared: frozenset[str] = (
            frozenset({*graph.parameters, *graph.accumulators, *graph.state})
            if isinstance(graph, Training)
            else frozenset()
        )
        self.roots = [self._roots(p) for p in range(len(self.graphs))]
        self.steps: list[Step] = []
        self.starts: list[int] = []
        for program, one in enumerate(self.graphs):
            self.starts.append(len(self.steps))
            for node in _early_updates(one):
                op = ops.find(node.op)
                if isinstance(op, ops.Tiled):
                    space = op.space(node, one.tensors)
                    self.steps.append(Step(len(self.steps), program, node, space))
        self.starts.append(len(self.steps))
        self.values: Mapping[str, Value] = self._values()

    def _roots(self, program: int) -> dict[str, str]:
        graph = self.graphs[program]
        aliases = graph.aliases
        roots = {}
        for name in graph.tensors:
            root = aliases.get(name, name)
            roots[name] = root if root in self.shared or not program else f"{root}@{program}"
        return roots

    def graph(self, step: Step) -> BaseGraph:
        """Find the graph of a step.

        Parameters
        ----------
        step : Step

        Returns
        -------
        Graph
        """
        return self.graphs[step.program]

    def root(self, step: Step, tensor: str) -> str:
        """Name the value that a tensor is a part of.

        Parameters
        ----------
        step : Step
        tensor : str

        Returns
        -------
        str
        """
        return self.roots[step.program][tensor]

    def _values(self) -> dict[str, Value]:
        uses: dict[str, list[tuple[int, str]]] = {}
        for step in self.steps:
            for operand in step.space.operands:
                uses.setdefault(self.root(step, operand.tensor), []).append(
                    (step.number, operand.mode)
                )
        values = {}
        for program, graph in enumerate(self.graphs):
            roots, (start, end) = self.roots[program], self.starts[program : program + 2]
            ends = {roots[name] for name in graph.outputs}
            inputs = {roots[name] for name in graph.inputs}
            fixed = {roots[name] for name in graph.constants}
            for name, tensor in graph.tensors.items():
                root = roots[name]
                if root in values or (root not in uses and root not in inputs | ends):
                    continue
                lasting = root in self.shared or root in fixed
                own = uses.get(root, [])
                given, wanted = lasting or root in inputs, lasting or root in ends
                lower = start if given or not own else own[0][0]
                upper = end if wanted else (own[-1][0] + 1 if own else start + 1)
                if lasting:
                    lower, upper = 0, self.starts[-1]
                values[root] = Value(
                    root, tensor.nbytes, tensor.itemsize, lower, upper, lasting, given, wanted,
                    tuple(own),
                )  # fmt: skip
        return values


def _early_updates(graph: BaseGraph) -> list[Node]:
    """Move updates in place as early as possible, so that their operands have short lives."""
    made: dict[str, int] = {}  # value: the node after which it is available
    used: dict[str, int] = {}  # value: the node after which it may be changed
    aliases = graph.aliases
    after: dict[int, list[Node]] = {}
    for number, node in enumerate(graph.nodes):
        op = ops.find(node.op)
        inputs = {aliases.get(name, name) for name in node.inputs if name}
        outputs = {aliases.get(name, name) for name in node.outputs if name}
        place = number
        if op.aliases(node) and not op.view:
            place = max([made.get(n, -1) for n in inputs] + [used.get(n, -1) for n in outputs])
        after.setdefault(place, []).append(node)
        for name in outputs:
            made[name] = max(made.get(name, -1), place)
        for name in inputs | outputs:
            used[name] = max(used.get(name, -1), place)
    return [node for place in sorted(after) for node in after[place]]


def merged(uses: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Merge the uses of a value within each step: reading and writing is "inout".

    Parameters
    ----------
    uses : sequence of (int, str)

    Returns
    -------
    list of (int, str)
    """
    found: dict[int, str] = {}
    for number, mode in uses:
        found[number] = mode if found.get(number, mode) == mode else "inout"
    return list(found.items())
