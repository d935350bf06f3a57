"""Arrays that a circuit owns: weights, parameters of leaves, and what learning gathers."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit.circuits import ops
from rpukit.circuits._layout import Layout, SumLayer
from rpukit.circuits.leaves import INDICATOR, Leaf
from rpukit.circuits.nodes import InputNodes, SumNodes
from rpukit.elementwise import random_fill
from rpukit.random import Stream

__all__ = ["BLOCK", "LeafRows", "LeafSource", "Parameters", "Statistics", "Use"]

Array = Any

BLOCK = 256  # samples whose statistics are one chain
PERTURBATION = 2.0


@dataclass(slots=True)
class LeafRows:
    """What the rows of leaves read: kind, variable, place in the table or among parameters."""

    kinds: Array
    variable: Array
    place: Array
    table: Array
    parameters: Array


@dataclass(slots=True)
class LeafSource:
    """One vector of leaves that owns parameters: where they and its statistics lie."""

    nodes: InputNodes
    parameter: slice
    table: slice
    statistic: slice
    first_node: int

    @property
    def leaf(self) -> Leaf:
        return self.nodes.leaf


@dataclass(slots=True)
class Use:
    """One use of a block of weights: layer, group."""

    layer: int
    group: int


class Parameters:
    """Weights (children, nodes) of all groups, and parameters and tables of all leaves."""

    def __init__(self, layout: Layout, stream: Stream, dtype: Any) -> None:
        self.layout = layout
        self.theta = np.empty(layout.n_theta, dtype)
        self.sums = [n for n in layout.nodes if isinstance(n, SumNodes) and n.source is n]
        self.uses = _uses(layout)
        self.sources = _leaf_sources(layout)
        ends = self.sources[-1]
        n_parameter, n_table = ends.parameter.stop, ends.table.stop
        self.rows = LeafRows(
            *_leaf_rows(layout, self.sources),
            np.empty(n_table, dtype),
            np.empty(n_parameter, dtype),
        )
        for number, nodes in enumerate(self._owners()):
            given = nodes.parameters
            if given is None:
                given = _drawn(nodes, stream.child(number))
            if isinstance(nodes, SumNodes) and nodes.zero_mask is not None:
                given = nodes.checked(np.where(nodes.zero_mask, 0.0, given))
            self.put(nodes, given)

    def _owners(self) -> list[Any]:
        owned = {n.source.number: n.source for n in self.layout.nodes}
        kinds = (SumNodes, InputNodes)
        return [n for n in owned.values() if isinstance(n, kinds)]

    def put(self, nodes: Any, given: Array) -> None:
        """Take parameters of a node vector that owns them."""
        if isinstance(nodes, SumNodes):
            for block in self.layout.blocks[nodes.number]:
                self.theta[block.first : block.first + block.size] = block.gather(given).reshape(
                    -1
                )
        else:
            source = next(s for s in self.sources if s.nodes is nodes)
            self.rows.parameters[source.parameter] = given.reshape(-1)
            self.refresh(source)

    def get(self, nodes: Any) -> Array:
        """Give parameters as a user sets them, float64."""
        if isinstance(nodes, SumNodes):
            tiles = np.zeros(nodes.parameter_shape)
            for block in self.layout.blocks[nodes.number]:
                weights = self.theta[block.first : block.first + block.size]
                block.scatter(weights.reshape(block.n_child, block.n_node), tiles)
            return tiles
        source = next(s for s in self.sources if s.nodes is nodes)
        parameters = self.rows.parameters[source.parameter].astype(np.float64)
        return parameters.reshape(nodes.n_node, nodes.leaf.n_parameters)

    def refresh(self, source: LeafSource) -> None:
        """Make the table of leaves anew after their parameters changed."""
        if source.leaf.TABLE:
            ops.leaf_table(
                source.leaf, self.rows.parameters[source.parameter], self.rows.table[source.table]
            )

    def copied(self) -> tuple[Array, Array]:
        """Copy all parameters."""
        return self.theta.copy(), self.rows.parameters.copy()

    def take(self, arrays: tuple[Array, Array]) -> None:
        """Go back to parameters that were copied."""
        self.theta[:], self.rows.parameters[:] = arrays
        self.refresh_all()

    def refresh_all(self) -> None:
        """Make all tables anew."""
        for source in self.sources:
            self.refresh(source)


class Statistics:
    """Expected counts since the last step: running chains, and totals of finished blocks."""

    def __init__(self, parameters: Parameters) -> None:
        dtype = parameters.theta.dtype
        self.chains = np.zeros(parameters.theta.size, dtype)
        self.totals = np.zeros(parameters.theta.size, np.float64)
        n = parameters.sources[-1].statistic.stop
        self.leaf_chains, self.leaf_totals = np.zeros(n, dtype), np.zeros(n, np.float64)
        self.n_sample = 0
        self.weight = 0.0
        sources, layout = parameters.sources, parameters.layout
        self.kinds = _spread(sources, lambda s: s.leaf.KIND, np.int32)
        self.n_statistic = _spread(sources, lambda s: s.leaf.n_statistics, np.int32)
        first = np.concatenate([_places(s) for s in sources])
        self.place = first.astype(np.int64)
        self.use_first, self.use_row = _leaf_uses(layout, sources)

    def fresh(self) -> Statistics:
        """Make empty statistics of the same circuit."""
        other = copy(self)
        other.chains, other.leaf_chains = (
            np.zeros_like(self.chains),
            np.zeros_like(self.leaf_chains),
        )
        other.totals, other.leaf_totals = (
            np.zeros_like(self.totals),
            np.zeros_like(self.leaf_totals),
        )
        other.n_sample, other.weight = 0, 0.0
        return other

    def clear(self) -> None:
        """Forget everything that was gathered."""
        for array in (self.chains, self.totals, self.leaf_chains, self.leaf_totals):
            array[:] = 0
        self.n_sample, self.weight = 0, 0.0

    def weigh(self, flows: Array) -> None:
        """Count flows of roots (n_sample, n_root), one after another: no batch changes the sum."""
        chain = np.add.accumulate(np.append(self.weight, flows.astype(np.float64)))
        self.weight = float(chain[-1])

    def settle(self) -> None:
        """End a block of samples."""
        ops.settle(self.chains, self.totals)
        ops.settle(self.leaf_chains, self.leaf_totals)


def _drawn(nodes: Any, stream: Stream) -> Array:
    if isinstance(nodes, SumNodes):
        uniform = random_fill(stream, nodes.parameter_shape, "uniform").astype(np.float64)
        return nodes.checked(np.exp(-PERTURBATION * uniform))
    shape = (nodes.n_node, nodes.leaf.n_parameters)
    uniform = random_fill(stream, shape, "uniform").astype(np.float64)
    return nodes.leaf.drawn(uniform, PERTURBATION)


def _uses(layout: Layout) -> dict[int, list[Use]]:
    """Uses of each block of weights (by its first weight), in the order of the layers."""
    uses: dict[int, list[Use]] = {}
    for number, layer in enumerate(layout.layers):
        if isinstance(layer, SumLayer):
            for group, first in enumerate(layer.group_theta.tolist()):
                uses.setdefault(first, []).append(Use(number, group))
    return uses


def _leaf_sources(layout: Layout) -> list[LeafSource]:
    made: dict[int, LeafSource] = {}
    parameter = table = statistic = node = 0
    for nodes in layout.inputs:
        owner: Any = nodes.source
        if owner.number in made:
            continue
        leaf, n = owner.leaf, owner.n_node
        n_parameter, n_table = n * leaf.n_parameters, n * leaf.support
        n_statistic = n * (leaf.n_statistics + 1)
        made[owner.number] = LeafSource(
            owner,
            slice(parameter, parameter + n_parameter),
            slice(table, table + n_table),
            slice(statistic, statistic + n_statistic),
            node,
        )
        parameter, table = parameter + n_parameter, table + n_table
        statistic, node = statistic + n_statistic, node + n
    return list(made.values())


def _leaf_rows(layout: Layout, sources: list[LeafSource]) -> tuple[Array, Array, Array]:
    by_number = {s.nodes.number: s for s in sources}
    kinds, variables, places = [], [], []
    for nodes in layout.inputs:
        source, n = by_number[nodes.source.number], nodes.n_node
        leaf = source.leaf
        width = leaf.support if leaf.TABLE else leaf.n_parameters
        first = source.table.start if leaf.TABLE else source.parameter.start
        kinds.append(np.full(n, min(leaf.KIND, INDICATOR) if leaf.TABLE else leaf.KIND, np.int32))
        variables.append(np.full(n, nodes.var, np.int32))
        places.append(first + width * np.arange(n, dtype=np.int64))
    return np.concatenate(kinds), np.concatenate(variables), np.concatenate(places)


def _spread(sources: list[LeafSource], value: Any, dtype: Any) -> Array:
    return np.concatenate([np.full(s.nodes.n_node, value(s), dtype) for s in sources])


def _places(source: LeafSource) -> Array:
    width = source.leaf.n_statistics + 1
    return source.statistic.start + width * np.arange(source.nodes.n_node)


def _leaf_uses(layout: Layout, sources: list[LeafSource]) -> tuple[Array, Array]:
    """Rows that use each node that owns parameters, ascending."""
    first = {s.nodes.number: s.first_node for s in sources}
    nodes = np.concatenate([first[n.source.number] + np.arange(n.n_node) for n in layout.inputs])
    counts = np.bincount(nodes)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return ends, np.argsort(nodes, kind="stable").astype(np.int32)
