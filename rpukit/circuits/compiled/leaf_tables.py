"""Index tables of leaves: offsets of parameters, tables and statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rpukit.circuits.compiled.layout import Layout
from rpukit.circuits.graph.leaves import INDICATOR, Leaf, LeafTraits
from rpukit.circuits.graph.nodes import InputNodes

__all__ = [
    "LeafNodes",
    "LeafRows",
    "LeafRun",
    "LeafSource",
    "leaf_nodes",
    "leaf_rows",
    "leaf_runs",
    "leaf_sources",
    "support_of",
]

Array = Any


@dataclass(slots=True)
class LeafRows:
    """Kind, variable and offset of each row of leaves."""

    kinds: Array
    variable: Array
    place: Array
    sizes: Array  # values of its table, 0 for numbers
    # Of each variable: the rows that are tables, ascending.
    first: Array
    rows: Array
    support: Array  # of each variable, 0 for numbers
    table: Array
    parameters: Array
    most: int  # values of the largest table; 0 where some leaves are numbers


@dataclass(slots=True)
class LeafNodes:
    """Statistics of the leaves that own parameters: number, offsets and uses."""

    kinds: Array
    n_statistic: Array
    place: Array  # of a node's first statistic
    centre: Array  # of a Gaussian's mean among the parameters; else of no use
    use_first: Array
    use_row: Array
    tile_first: Array  # of up to 32 nodes of one vector
    tile_size: Array
    most: int  # statistics of a node


@dataclass(slots=True)
class LeafSource:
    """A vector of leaves that owns parameters, and its slices of the arrays."""

    nodes: InputNodes
    parameter: slice
    table: slice
    statistic: slice
    first_node: int
    leaf: Leaf = field(init=False)
    traits: LeafTraits = field(init=False)

    def __post_init__(self) -> None:
        self.leaf = self.nodes.leaf
        self.traits = self.leaf._traits()


@dataclass(slots=True)
class LeafRun:
    """Adjacent vectors of one kind of leaf."""

    leaf: Leaf
    n_node: int
    parameter: slice
    table: slice
    statistic: slice
    traits: LeafTraits = field(init=False)

    def __post_init__(self) -> None:
        self.traits = self.leaf._traits()


def leaf_sources(layout: Layout) -> list[LeafSource]:
    """List the vectors of leaves that own parameters, with their slices."""
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


def leaf_runs(sources: list[LeafSource]) -> list[LeafRun]:
    """Join adjacent vectors of one kind of leaf, which one launch may learn."""
    made: list[LeafRun] = []
    for source in sources:
        parts = (source.parameter, source.table, source.statistic)
        if made and made[-1].leaf == source.leaf:
            last = made[-1]
            last.n_node += source.nodes.n_node
            last.parameter, last.table, last.statistic = (
                slice(getattr(last, name).start, part.stop)
                for name, part in zip(("parameter", "table", "statistic"), parts, strict=True)
            )
        else:
            made.append(LeafRun(source.leaf, source.nodes.n_node, *parts))
    return made


def leaf_rows(
    layout: Layout, sources: list[LeafSource]
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Make the tables of `LeafRows` that learning does not change."""
    by_number = {s.nodes.number: s for s in sources}
    kinds, variables, places, sizes = [], [], [], []
    for nodes in layout.inputs:
        source, n = by_number[nodes.source.number], nodes.n_node
        leaf = source.leaf
        width = leaf.support if leaf.TABLE else leaf.n_parameters
        first = source.table.start if leaf.TABLE else source.parameter.start
        kinds.append(np.full(n, min(leaf.KIND, INDICATOR) if leaf.TABLE else leaf.KIND, np.int32))
        variables.append(np.full(n, nodes.var, np.int32))
        places.append(first + width * np.arange(n, dtype=np.int64))
        sizes.append(np.full(n, leaf.support, np.int32))
    kind, variable = np.concatenate(kinds), np.concatenate(variables)
    rows = np.argsort(variable, kind="stable").astype(np.int32)
    rows = rows[kind[rows] <= INDICATOR]
    counts = np.bincount(variable[rows], minlength=layout.n_variable)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return kind, variable, np.concatenate(places), np.concatenate(sizes), first, rows


def support_of(layout: Layout) -> Array:
    """Number of values of each variable; 0 for numbers."""
    support = np.zeros(layout.n_variable, np.int32)
    for nodes in layout.inputs:
        support[nodes.var] = max(support[nodes.var], nodes.leaf.support)
    return support


def _spread(sources: list[LeafSource], value: Any, dtype: Any) -> Array:
    return np.concatenate([np.full(s.nodes.n_node, value(s), dtype) for s in sources])


def _places(source: LeafSource) -> Array:
    width = source.leaf.n_statistics + 1
    return source.statistic.start + width * np.arange(source.nodes.n_node)


def _centres(source: LeafSource) -> Array:
    width = source.leaf.n_parameters
    return source.parameter.start + width * np.arange(source.nodes.n_node)


def leaf_nodes(layout: Layout, sources: list[LeafSource]) -> LeafNodes:
    """Make the tables of the nodes of all sources; rows that use a node ascend."""
    first = {s.nodes.number: s.first_node for s in sources}
    nodes = np.concatenate([first[n.source.number] + np.arange(n.n_node) for n in layout.inputs])
    starts = np.concatenate([s.first_node + _cut(s.nodes.n_node)[0] for s in sources])
    return LeafNodes(
        _spread(sources, lambda s: s.leaf.KIND, np.int32),
        _spread(sources, lambda s: s.leaf.n_statistics, np.int32),
        np.concatenate([_places(s) for s in sources]).astype(np.int64),
        np.concatenate([_centres(s) for s in sources]).astype(np.int64),
        np.concatenate([[0], np.cumsum(np.bincount(nodes))]).astype(np.int64),
        np.argsort(nodes, kind="stable").astype(np.int32),
        starts.astype(np.int32),
        np.concatenate([_cut(s.nodes.n_node)[1] for s in sources]).astype(np.int32),
        max(s.leaf.n_statistics for s in sources) + 1,
    )


def _cut(n: int) -> tuple[Array, Array]:
    """Split n nodes into tiles of 32."""
    first = np.arange(0, n, 32)
    return first, np.minimum(32, n - first)
