"""Index tables of leaves: offsets of parameters, tables and statistics."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits.compiled.layout import Layout
from rpukit.circuits.graph.leaves import FUNCTION, INDICATOR, Leaf, LeafTraits
from rpukit.circuits.graph.nodes import InputNodes

__all__ = [
    "LONG",
    "FunctionNodes",
    "LeafNodes",
    "LeafRows",
    "LeafRun",
    "LeafSource",
    "function_nodes",
    "leaf_nodes",
    "leaf_rows",
    "leaf_runs",
    "leaf_sources",
    "support_of",
]

Array = Any
LONG = 256  # values of a table that shared memory holds for 32 leaves; longer ones by parts


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
    functions: tuple[FunctionNodes, ...] = ()  # leaves of `kinds` INDICATOR without a table
    nodes: LeafNodes | None = None  # where tables are long


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
class FunctionNodes:
    """Leaves of one kind that are evaluated by functions: their rows, and their owners' nodes."""

    leaf: Any
    constants: Array
    rows: Array
    variable: Array  # the leaf's n_columns of each row
    place: Array  # of a row's first parameter
    statistic: Array  # of a node's first statistic, and of its first parameter
    parameter: Array
    use_first: Array
    use_row: Array
    use_variable: Array  # n_columns of each

    def on(self, device: _device.Device) -> FunctionNodes:
        """Copy the tables to a device; the constants stay."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        moved = {
            name: _device.to_device(array, device)
            for name, array in arrays.items()
            if name not in ("leaf", "constants")
        }
        return replace(self, **moved)


@dataclass(slots=True)
class LeafSource:
    """A vector of leaves that owns parameters, and its slices of the arrays."""

    nodes: InputNodes
    parameter: slice
    table: slice
    statistic: slice
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
    parameter = table = statistic = 0
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
        )
        parameter, table = parameter + n_parameter, table + n_table
        statistic = statistic + n_statistic
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
        kinds.append(np.full(n, _kind_of_row(leaf), np.int32))
        variables.append(np.full(n, nodes.var, np.int32))
        places.append(first + width * np.arange(n, dtype=np.int64))
        sizes.append(np.full(n, leaf.support, np.int32))
    kind, variable = np.concatenate(kinds), np.concatenate(variables)
    rows = np.argsort(variable, kind="stable").astype(np.int32)
    rows = rows[(kind[rows] <= INDICATOR) & (np.concatenate(sizes)[rows] > 0)]
    counts = np.bincount(variable[rows], minlength=layout.n_variable)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return kind, variable, np.concatenate(places), np.concatenate(sizes), first, rows


def _kind_of_row(leaf: Leaf) -> int:
    """Kind as `leaf_forward` reads it: an empty table for functions, which run after it."""
    if leaf.KIND == FUNCTION:
        return INDICATOR
    return min(leaf.KIND, INDICATOR) if leaf.TABLE else leaf.KIND


def function_nodes(layout: Layout, sources: list[LeafSource]) -> tuple[FunctionNodes, ...]:
    """Gather the leaves that are evaluated by functions, those of one leaf together."""
    by_number = {s.nodes.number: s for s in sources}
    parts: dict[Leaf, list[tuple[Array, ...]]] = {}
    first_row = 0
    for nodes in layout.inputs:
        source, rows = by_number[nodes.source.number], first_row + np.arange(nodes.n_node)
        first_row += nodes.n_node
        if source.traits.kind == FUNCTION:
            every = np.tile(nodes.columns, (nodes.n_node, 1))
            own = (rows, every, _centres(source), _places(source))
            parts.setdefault(source.leaf, []).append(own)
    made = []
    for leaf, some in parts.items():
        row, variable, place, statistic = (np.concatenate(a) for a in zip(*some, strict=True))
        begin, owner = np.unique(statistic, return_inverse=True)
        order = np.argsort(owner, kind="stable")
        parameter = np.zeros(len(begin), np.int64)
        parameter[owner] = place
        tables = (row.astype(np.int32), variable.astype(np.int32), place.astype(np.int64))
        uses = np.concatenate([[0], np.cumsum(np.bincount(owner))]).astype(np.int64)
        used = (begin.astype(np.int64), parameter, uses, *(a[order] for a in tables[:2]))
        arrays: tuple[Array, ...] = (*tables, *used)
        flat = (a.reshape(-1) for a in arrays)
        made.append(FunctionNodes(leaf, np.array(leaf.constants()), *flat))
    return tuple(made)


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
    """Make the tables of all leaves but those of functions; the rows of a node are ascending."""
    sources = [s for s in sources if s.traits.kind != FUNCTION]
    if not sources:
        whole, ids = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return LeafNodes(ids, ids, whole, whole, np.zeros(1, np.int64), ids, ids, ids, 0)
    sizes = [s.nodes.n_node for s in sources]
    starts_of = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    first = {s.nodes.number: int(k) for s, k in zip(sources, starts_of, strict=True)}
    nodes, row, found = [], 0, []
    for n in layout.inputs:
        if n.source.number in first:
            nodes.append(first[n.source.number] + np.arange(n.n_node))
            found.append(row + np.arange(n.n_node))
        row += n.n_node
    owner, rows = np.concatenate(nodes), np.concatenate(found)
    starts = np.concatenate([first[s.nodes.number] + _cut(s.nodes.n_node)[0] for s in sources])
    return LeafNodes(
        _spread(sources, lambda s: s.leaf.KIND, np.int32),
        _spread(sources, lambda s: s.leaf.n_statistics, np.int32),
        np.concatenate([_places(s) for s in sources]).astype(np.int64),
        np.concatenate([_centres(s) for s in sources]).astype(np.int64),
        np.concatenate([[0], np.cumsum(np.bincount(owner))]).astype(np.int64),
        rows[np.argsort(owner, kind="stable")].astype(np.int32),
        starts.astype(np.int32),
        np.concatenate([_cut(s.nodes.n_node)[1] for s in sources]).astype(np.int32),
        max(s.leaf.n_statistics for s in sources) + 1,
    )


def _cut(n: int) -> tuple[Array, Array]:
    """Split n nodes into tiles of 32."""
    first = np.arange(0, n, 32)
    return first, np.minimum(32, n - first)
