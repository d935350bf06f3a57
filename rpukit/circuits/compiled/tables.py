"""Index tables beside the layout: uses of weights for learning, tiles for launches."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits.compiled.arena import taken_by
from rpukit.circuits.compiled.layout import Layout, ProductLayer, SumLayer

__all__ = [
    "Program",
    "Uses",
    "by_ties",
    "element_tiles",
    "group_segments",
    "kept",
    "list_segments",
    "make_program",
    "make_uses",
    "most_of_tiles",
    "moved",
    "node_tiles",
    "weight_tiles",
]

Array = Any


@dataclass(slots=True)
class Uses:
    """Uses of blocks of weights: those of block k are first[k] to first[k + 1] - 1, by layer."""

    theta: list[tuple[int, int, int]]  # of each block: first weight, children, nodes
    first: list[int]
    row: Array  # first node's
    size: Array
    child: Array  # where its children stand in `children`
    count: Array
    base: Array  # elements of the layers before its layer, and of it
    width_of: Array
    x: Array  # column among all children of all uses
    up: Array  # column among all nodes of all uses
    children: Array
    child_rows: Array  # of the children, as in the layout
    block_theta: Array
    block_first: Array
    n_x: int
    n_up: int
    width: int
    column_block: Array  # of up to 32 nodes
    column_node: Array
    most: int  # children, or nodes, of a block
    tiles: dict[Any, Any] = field(default_factory=dict)  # cached tables of launches


def make_uses(layout: Layout) -> Uses:
    """List the uses of all blocks of weights."""
    found: dict[int, list[tuple[int, ...]]] = {}
    contents, rows = [np.zeros(0, np.int32)], [np.zeros((0, layout.width), np.int32)]
    n_child = 0
    for layer in layout.layers:
        if isinstance(layer, ProductLayer):
            continue
        first, lists = layer.list_first.tolist(), layer.group_list.tolist()
        for g, theta in enumerate(layer.group_theta.tolist()):
            k = lists[g]
            found.setdefault(theta, []).append(
                (
                    int(layer.group_row[g]),
                    int(layer.group_size[g]),
                    n_child + first[k],
                    first[k + 1] - first[k],
                    layer.element_first,
                    layer.n_element,
                )
            )
        contents.append(layer.list_elements)
        if layer.width:
            rows.append(layer.list_rows)
        n_child += layer.list_elements.size
    order = sorted(found)
    table = np.array([use for theta in order for use in found[theta]], np.int64).reshape(-1, 6)
    row, size, child, count, base, width = table.T
    (x, n_x), (up, n_up) = _lines(count, 4), _lines(size, 4)
    first_use = np.concatenate([[0], np.cumsum([len(found[theta]) for theta in order])])
    blocks = [(theta, found[theta][0][3], found[theta][0][1]) for theta in order]
    columns = np.array(
        [(k, m) for k, (_, _, n_m) in enumerate(blocks) for m in range(0, n_m, 32)], np.int32
    ).reshape(-1, 2)
    return Uses(
        blocks,
        first_use.tolist(),
        row.astype(np.int32),
        size.astype(np.int32),
        child.copy(),
        count.astype(np.int32),
        base.copy(),
        width.astype(np.int32),
        x,
        up.astype(np.int32),
        np.concatenate(contents),
        np.concatenate(rows),
        np.array(order, np.int64),
        first_use.astype(np.int32),
        n_x,
        n_up,
        layout.width,
        columns[:, 0].copy(),
        columns[:, 1].copy(),
        max((max(block[1:]) for block in blocks), default=0),
    )


def _lines(sizes: Array, unit: int) -> tuple[Array, int]:
    """Place lines one after the other, each at a multiple of ``unit``; where all end."""
    ends = np.concatenate([[0], np.cumsum(-(-sizes // unit) * unit)]).astype(np.int64)
    return ends[:-1], int(ends[-1])


def by_ties(uses: Uses, least: int) -> tuple[Uses, Uses]:
    """Split the uses on the host: of blocks with fewer than ``least`` uses, and of the others.

    Lines of the latter are at multiples of 8. Tables for steps of EM are left out.
    """
    made = []
    ties = np.diff(uses.first)
    for chosen, unit in ((ties < least, 4), (ties >= least, 8)):
        own = np.repeat(chosen, ties)
        (x, n_x), (up, n_up) = _lines(uses.count[own], unit), _lines(uses.size[own], unit)
        first = np.concatenate([[0], np.cumsum(ties[chosen])]).astype(np.int32)
        blocks = [block for block, keep in zip(uses.theta, chosen, strict=True) if keep]
        names = ("row", "size", "child", "count", "base", "width_of")
        part = replace(
            uses,
            theta=blocks,
            first=first.tolist(),
            x=x,
            up=up.astype(np.int32),
            block_theta=uses.block_theta[chosen],
            block_first=first,
            n_x=n_x,
            n_up=n_up,
            column_block=uses.column_block[:0],
            column_node=uses.column_node[:0],
            most=max((max(block[1:]) for block in blocks), default=0),
            tiles={},
            **{name: getattr(uses, name)[own] for name in names},
        )
        made.append(part)
    return made[0], made[1]


def weight_tiles(uses: Uses, children: int, nodes: int) -> tuple[Array, ...]:
    """Split blocks of weights into tiles: their blocks, and (first child, first node)."""

    def make(host: Uses) -> tuple[Array, ...]:
        _, n_child, n_node = np.array(host.theta, np.int64).reshape(-1, 3).T
        across = -(-n_node // nodes)
        counts = -(-n_child // children) * across
        block = np.repeat(np.arange(len(counts)), counts)
        k = np.arange(len(block)) - (np.cumsum(counts) - counts)[block]
        place = np.stack([k // across[block] * children, k % across[block] * nodes], axis=1)
        return block.astype(np.int32), place.astype(np.int32)

    return kept(uses, ("weights", children, nodes), make, uses.row)


@dataclass(slots=True)
class Program:
    """Concatenated tables of all layers, for whole passes on a CPU."""

    layers: Array  # (n_layer, 5): target or -1 of sums; elements, those before; rows from, to
    at_wide: Array  # (n_layer, 6): where tables of the layer begin; the last one's end
    at_narrow: Array
    wide: Array  # int64: first, back_first; of sums list_first, group_theta, parent_first
    narrow: Array  # int32: rows, used, back; list_elements, group_*, parent_*, scaled
    n_edge: int
    most: int  # children, or nodes, of a group


def make_program(layout: Layout) -> Program:
    """Concatenate the tables of all layers."""
    lines: list[tuple[int, ...]] = []
    tables: tuple[list[list[Array]], ...] = ([], [])
    for layer in layout.layers:
        inner = layer.elements if isinstance(layer, SumLayer) else layer
        wide, narrow = [inner.first, inner.back_first], [inner.rows, inner.used, inner.back]
        if isinstance(layer, SumLayer):
            wide += [layer.list_first, layer.group_theta, layer.parent_first]
            narrow += [layer.list_elements, layer.group_list, layer.group_row, layer.group_size]
            narrow += [layer.parent_group, layer.parent_place, layer.scaled.reshape(-1)]
            rows = (layer.first_row, layer.end_row)
            lines.append((-1, layer.n_element, layer.element_first, *rows))
        else:
            lines.append((layer.target, 0, 0, 0, 0))
        tables[0].append(wide + [wide[0][:0]] * (5 - len(wide)))
        tables[1].append(narrow + [narrow[0][:0]] * (10 - len(narrow)))
    joined = []
    for parts, dtype in zip(tables, (np.int64, np.int32), strict=True):
        flat = [table for layer in parts for table in layer]
        ends = np.cumsum([0] + [table.size for table in flat])
        step = len(parts[0]) if parts else 1
        at = np.zeros((len(parts), step + 1), np.int64)
        for k in range(len(parts)):
            at[k] = ends[k * step : (k + 1) * step + 1]
        joined.append((at, np.concatenate([np.zeros(0, dtype), *flat])))
    (at_wide, wide_flat), (at_narrow, narrow_flat) = joined
    table = np.array(lines, np.int64).reshape(-1, 5)
    sums = [layer for layer in layout.layers if isinstance(layer, SumLayer)]
    most = max((max(layer.most_in, layer.most_out) for layer in sums), default=0)
    return Program(table, at_wide, at_narrow, wide_flat, narrow_flat, layout.n_edge, most)


def moved(tables: Any, device: _device.Device) -> Any:
    """Copy a dataclass of tables to a device."""
    if device.kind == "cpu":
        return tables
    changed: dict[str, Any] = {}
    for each in fields(tables):
        value = getattr(tables, each.name)
        if isinstance(value, np.ndarray):
            changed[each.name] = _device.to_device(value, device)
        elif isinstance(value, ProductLayer):
            changed[each.name] = moved(value, device)
    if isinstance(tables, (SumLayer, Uses)):
        changed["tiles"] = {"host": tables}
    return replace(tables, **changed)


def node_tiles(layer: SumLayer, size: int) -> tuple[Array, ...]:
    """Split the groups of a layer into tiles of up to ``size`` nodes: group, first node."""

    def make(host: SumLayer) -> tuple[Array, Array]:
        counts = -(-host.group_size // size)
        group = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
        return group, ((np.arange(len(group)) - starts[group]) * size).astype(np.int32)

    return kept(layer, ("nodes", size), make, layer.group_row)


def element_tiles(layer: SumLayer, size: int) -> tuple[Array, ...]:
    """Split the elements into tiles of up to ``size`` that are adjacent in the same lists.

    Returns the first element of each, and how many there are.
    """

    def make(host: SumLayer) -> tuple[Array, Array]:
        counts = np.diff(host.parent_first)
        joins = np.zeros(host.n_element, bool)  # to the element before it
        joins[1:] = counts[1:] == counts[:-1]
        for k in range(int(counts.max(initial=0))):
            here = np.flatnonzero(joins & (counts > k))
            at, before = host.parent_first[here] + k, host.parent_first[here - 1] + k
            same = host.parent_group[at] == host.parent_group[before]
            same &= host.parent_place[at] == host.parent_place[before] + 1
            joins[here[~same]] = False
        starts = np.flatnonzero(~joins)
        lengths = np.diff(np.append(starts, host.n_element))
        tiles = -(-lengths // size)
        owner = np.repeat(np.arange(len(starts)), tiles)
        number = np.arange(len(owner)) - (np.cumsum(tiles) - tiles)[owner]
        first = starts[owner] + number * size
        end = np.minimum(first + size, (starts + lengths)[owner])
        return first.astype(np.int32), (end - first).astype(np.int32)

    return kept(layer, ("elements", size), make, layer.group_row)


def list_segments(layer: SumLayer) -> tuple[Array, ...]:
    """Split lists of children into segments: first child, children; first segment of a list."""

    def make(host: SumLayer) -> tuple[Array, ...]:
        return _segments(host.list_first[:-1], np.diff(host.list_first))

    return kept(layer, ("lists", 64), make, layer.group_row)


def group_segments(layer: SumLayer) -> tuple[Array, ...]:
    """Split groups of sums into segments: first row, rows; first segment of each group."""

    def make(host: SumLayer) -> tuple[Array, ...]:
        return _segments(host.group_row, host.group_size)

    return kept(layer, ("groups", 64), make, layer.group_row)


def most_of_tiles(layout: Layout, uses: Uses) -> int:
    """Upper bound on the bytes of tiles and segments of all sizes."""
    total = sum(taken_by(a.nbytes) for n in (16, 32, 64) for a in weight_tiles(uses, n, n))
    for layer in layout.layers:
        if isinstance(layer, ProductLayer):
            continue
        total += sum(taken_by(a.nbytes) for a in list_segments(layer) + group_segments(layer))
        n_run = len(element_tiles(layer, 64)[0])
        for size in (8, 16, 32, 64):
            n_node_tile = int((-(-layer.group_size // size)).sum())
            total += 2 * taken_by(4 * n_node_tile)
            total += 2 * taken_by(4 * (n_run + layer.n_element // size))
    return total


def _segments(first: Array, count: Array) -> tuple[Array, ...]:
    parts = -(-count // 64)
    ends = np.concatenate([[0], np.cumsum(parts)])
    owner = np.repeat(np.arange(len(parts)), parts)
    at = (np.arange(len(owner)) - ends[owner]) * 64
    counts = np.minimum(64, count[owner] - at)
    return (first[owner] + at).astype(np.int64), counts.astype(np.int32), ends.astype(np.int32)


def kept(of: SumLayer | Uses, key: tuple[Any, ...], make: Any, beside: Array) -> tuple[Array, ...]:
    """Make tables of a layer once per key, on the device of its other tables."""
    found = of.tiles.get(key)
    if found is None:
        made = make(of.tiles.get("host", of))
        device = _device.device_of(beside)
        if device.kind != "cpu":
            made = tuple(
                _device.to_device(a, device) if isinstance(a, np.ndarray) else a for a in made
            )
        found = of.tiles[key] = made
    tables: tuple[Array, ...] = found
    return tables
