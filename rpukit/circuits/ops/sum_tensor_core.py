"""Ops of sums on tensor cores: bfloat16 weights and exponentials, float32 chains.

``Circuit(..., precision="bf16")`` uses these instead of `sum_forward` and `sum_backward`, and
``precision="bf16x3"`` with pairs of bfloat16: what rounding leaves is rounded likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact.twins import mirror
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.compiled.arena import empty, taken_by
from rpukit.circuits.compiled.layout import Layout, SumLayer
from rpukit.circuits.compiled.tables import Uses, element_tiles, kept, node_tiles, weight_tiles
from rpukit.circuits.ops.staging import StagedLifts, Staging
from rpukit.circuits.ops.sum_launch import dynamic_limit

__all__ = [
    "Rounded",
    "Tile",
    "most_of_tensor",
    "round_weights",
    "rounded_weights",
    "tensor_backward",
    "tensor_forward",
    "tensor_stage",
    "tile_for",
]

Array = Any

_MIRROR = "rpukit.circuits._mirror.tensor"
_ROUND_WEIGHTS = Kernel("round_weights")
_TENSOR_BACKWARD = Kernel("tensor_backward")
_TENSOR_FORWARD = Kernel("tensor_forward")
_TENSOR_STAGE = Kernel("tensor_stage")

_BLOCKS = 120  # of a launch that keeps a GPU busy
_DEPTH = 64  # inputs of a stage
_SHORT = 128  # inputs of a sum that are few
_TEAMS = 4224  # blocks of 128 threads that fill a GPU twice


@dataclass(slots=True)
class Rounded:
    """Weights as bfloat16: blocks as in theta, lines of a multiple of 8.

    ``words`` (planes, n_word): of pairs the second plane is what the first leaves.
    """

    words: Array
    block_words: Array  # where blocks begin, in the order of `Uses.block_theta`
    theta: Array  # the same two on the host
    first: Array

    @property
    def split(self) -> bool:
        """Whether weights are pairs."""
        return len(self.words) > 1

    def of(self, group_theta: Array) -> Array:
        """Offsets of groups, from their offsets in theta; on the host."""
        return self.first[np.searchsorted(self.theta, group_theta)]


def rounded_weights(uses: Uses, device: _device.Device, *, split: bool = False) -> Rounded:
    """Allocate rounded weights of the blocks of ``uses``; ``split``: as pairs."""
    first, n_child, n_node = np.array(uses.theta, np.int64).reshape(-1, 3).T
    ends = np.concatenate([[0], np.cumsum(n_child * _line(n_node))]).astype(np.int64)
    words = _device.zeros((split + 1, int(ends[-1])), np.uint16, device)
    on_device = ends[:-1] if device.kind == "cpu" else _device.to_device(ends[:-1], device)
    return Rounded(words, on_device, first, ends[:-1])


def round_weights(uses: Uses, theta: Array, rounded: Rounded) -> None:
    """Round all weights to bfloat16."""
    if not uses.theta:
        return
    if _device.takes_kernels(theta):
        tiles = weight_tiles(uses, 64, 64)
        blocks = (uses.block_theta, rounded.block_words, uses.block_first, uses.size, uses.count)
        args = (*blocks, *tiles, theta, _apart(rounded.words), rounded.words)
        _ROUND_WEIGHTS.launch((len(tiles[0]),), (256,), args, macros=_split(rounded.words))
        return
    go = mirror(_MIRROR, theta.dtype).round_weights
    for (first, n_child, n_node), at in zip(uses.theta, rounded.first, strict=True):
        weights = theta[first : first + n_child * n_node].reshape(n_child, n_node)
        words = rounded.words[:, at : at + n_child * _line(n_node)]
        words = words.reshape(len(words), n_child, -1)
        run_rows(go, n_child, weights, *_planes(words), grain=work_grain(n_node))


@dataclass(frozen=True, slots=True)
class Tile:
    """Outputs and samples of a block, its warps along both, and its stages."""

    outputs: int
    samples: int
    warps: tuple[int, int]
    stages: int
    planes: int = 1  # of each factor

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps[0] * self.warps[1]

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: of the stages, or of the totals after them."""
        stages = self.stages * self.planes * (self.outputs + self.samples) * 2 * _DEPTH
        return max(stages, self.samples * (self.outputs + 4) * 4)

    @property
    def macros(self) -> dict[str, int]:
        """Macros of the kernel."""
        size = {"BI": self.outputs, "BJ": self.samples, "ST": self.stages}
        more = {} if self.planes == 1 else {"SPLIT": 1}
        return size | {"WI": self.warps[0], "WJ": self.warps[1]} | more

    def fitted(self, limit: int, n_in: int | None = None) -> Tile:
        """Limit the stages by shared memory and the inputs of a chain: more blocks fit then."""
        most = self.stages if n_in is None else min(self.stages, max(2, -(-n_in // _DEPTH) + 1))
        made = replace(self, stages=most)
        while made.stages > 2 and made.shared > limit:
            made = replace(made, stages=made.stages - 1)
        return made


# The largest first: it reads least. Shared memory fits GPUs that have 99 KiB a block.
_TILES = (
    Tile(128, 128, (2, 4), 3),
    Tile(64, 64, (4, 2), 6),
    Tile(32, 32, (2, 2), 10),
    Tile(32, 16, (2, 1), 14),
)
# Of pairs; as many stages as there is room for.
_SPLIT_TILES = (
    Tile(128, 64, (4, 2), 4, planes=2),
    Tile(64, 64, (4, 2), 6, planes=2),
    Tile(64, 32, (4, 2), 8, planes=2),
    Tile(32, 32, (2, 2), 8, planes=2),
    Tile(32, 16, (2, 1), 10, planes=2),
)


@cache
def tile_for(
    n_sample: int,
    n_out: int,
    n_in: int,
    split: bool = False,
    limit: int = 0,
    most: int | None = None,
) -> Tile:
    """Choose the largest tile that still fills a GPU, by samples and outputs.

    ``n_in``: most inputs of an output; ``limit``: bytes of shared memory of a block; ``most``:
    outputs of the largest group, of which alone a tile is made.
    """
    tiles: tuple[Tile, ...] = _SPLIT_TILES if split else _TILES
    if not split and (n_in <= _SHORT or (most or n_out) < tiles[0].outputs):
        tiles = tiles[1:]  # several blocks to a multiprocessor cover each other's begin and end
    chosen = tiles[-1]
    for tile in tiles[:-1]:
        count = -(-n_out // tile.outputs) * -(-n_sample // tile.samples)
        if count >= _BLOCKS and tile.samples < 2 * n_sample:
            chosen = tile
            break
    return chosen.fitted(limit, n_in)


def tensor_stage(
    lists: tuple[Array, Array, Array, int, int],
    rows: Array | None,
    values: Array,
    flows: Array | None,
    width: int,
    room: Array | None = None,
    *,
    split: bool = False,
    into: Staging | None = None,
) -> Staging:
    """Compute the exponentials of lists of inputs, as bfloat16, and their maxima.

    Parameters
    ----------
    lists : (array, array, array, int, int)
        First input of each list, how many there are, its first column; number of columns; most
        inputs of a list.
    rows : array, shape (n_input, width), or None
        What each input is the product of; without, input k is column k.
    values : array, shape (n_sample, n_value), float64
    flows : array, optional
        Inputs are lifts, made of values and flows. On a GPU.
    width : int
    room : array, optional
        Where the results go; see `sum_launch.room_for`.
    split : bool
        Make pairs.
    into : Staging, optional
        Where the results go instead. On a GPU.

    Returns
    -------
    Staging
        Words (planes, n_sample, n_column) and maxima (n_sample, n_list), or those of `into`.
    """
    *tables, n_column, most = lists
    (n, n_value), n_list, device = values.shape, len(tables[0]), _device.device_of(values)
    planes = split + 1
    n_word, n_top = planes * n * n_column // 2, n * n_list  # columns are even
    if into is None or into.words is None:
        if room is None:
            room = empty((n_word + n_top,), np.float32, device)
        staged = room[:n_word].view(np.uint16).reshape(planes, n, n_column)
        top = room[n_word : n_word + n_top].reshape(n, n_list)
        into = _usual(staged, top) if into is None else _with_words(into, staged)
    staged, top = into.words, into.top
    if _device.takes_kernels(values):
        team, held = _team(most)
        macros = {"WIDTH": width, "LIFT": int(flows is not None), "TEAM": team, "HELD": held}
        sizes = (n, n_value, into.line, into.top_line, into.top_step)
        args = (*sizes, *tables, rows, values, flows, into.apart, staged, top, *into.kept)
        threads = max(128, team)
        across = min(-(-n * team // threads), max(1, _TEAMS * 128 // threads // n_list))
        macros |= {"SPLIT": 1} if split else {"KEEP": 1} if into.kept[0] else {}
        _TENSOR_STAGE.launch((n_list, across), (threads,), args, macros=macros, early=True)
        return into
    if rows is None:
        rows = np.arange(n_value, dtype=np.int32)
    go, args = mirror(_MIRROR, np.float32).tensor_stage, (rows.reshape(len(rows), -1), values)
    run_rows(go, n, *tables, *args, *_planes(staged), top, grain=work_grain(20 * n_column))
    return into


def _team(most: int) -> tuple[int, int]:
    """Threads of a list, and values of a thread in registers, by the inputs of the longest."""
    if most <= 256:
        return 32, 2 if most <= 64 else 4 if most <= 128 else 8
    return (128, 4) if most <= 512 else (256, 4)


def tensor_forward(
    layer: SumLayer,
    rounded: Rounded,
    theta: Array,
    elements: Array | None,
    values: Array,
    room: Array | None = None,
) -> None:
    """Mix elements (n_sample, n_element) into the rows of the layer's groups.

    Without elements the kernel computes them from their rows; ``room``: see `sum_launch.room_for`.
    """
    n, apart = len(values), elements is not None
    lists = _columns(layer, "lists")
    rows, of = (layer.list_elements, elements) if apart else (layer.list_rows, values)
    width = 0 if apart else layer.width
    split = rounded.split
    made = tensor_stage(lists, rows, of, None, width or 1, room, split=split)
    staged, top, words = made.words, made.top, _words(layer, rounded)
    if not _device.takes_kernels(values):
        factors = (*_planes(rounded.words), *_planes(staged), top)
        args = (*_groups(layer, lists[2]), words, theta, *factors, elements, values)
        go = mirror(_MIRROR, theta.dtype).tensor_forward
        run_rows(go, n, *args, grain=work_grain(8 * layer.n_weight))
        return
    kind, n_out = _kind(rounded, values), layer.end_row - layer.first_row
    tile = tile_for(n, n_out, layer.most_in, *kind, layer.most_out)
    tiles = node_tiles(layer, tile.outputs)
    sizes = (n, layer.n_element, values.shape[1], len(tiles[0]), lists[3], len(lists[0]))
    inside = (layer.list_first, layer.list_elements, None if apart else layer.list_rows, lists[2])
    groups = (layer.group_list, layer.group_row, layer.group_size, layer.group_theta, words)
    factors = (rounded.words, _apart(rounded.words), staged, made.apart, top)
    args = (*sizes, *inside, *groups, *tiles, theta, *factors, elements, values)
    _launch(_TENSOR_FORWARD, tile, n, len(tiles[0]), args, {"WIDTH": width})


def tensor_backward(
    layer: SumLayer,
    rounded: Rounded,
    theta: Array,
    values: Array | None,
    lift: Array | None,
    elements: Array | None,
    row_flows: Array | None,
    flows: Array | None,
    room: Array | None = None,
    *,
    tree: bool = False,
    lifts: StagedLifts | None = None,
) -> None:
    """Compute flows of elements from lifts; or, on a GPU, of rows from values and flows.

    With ``flows`` and values those of elements go there. ``tree``: flows of rows are set, not
    added to; see `Layout.tree`. ``lifts``: where exponentials are kept for the counts.
    """
    joined = values is not None
    groups = _columns(layer, "groups")
    above = (values, row_flows) if lift is None else (lift, None)
    into, found = None, None if lifts is None else lifts.of_layer(layer, groups)
    if found is not None:
        groups, into = found
    made = tensor_stage(groups, None, *above, 0, room, split=rounded.split, into=into)
    staged, top = made.words, made.top
    at, words = groups[2], _words(layer, rounded)
    parents = (layer.parent_first, layer.parent_group, layer.parent_place)
    n, n_row = above[0].shape  # type: ignore[union-attr]
    if not _device.takes_kernels(theta):
        of = _groups(layer, None)
        factors = (*_planes(rounded.words), *_planes(staged), top)
        args = (*of, words, at, *parents, theta, *factors, lift, elements, flows)
        go = mirror(_MIRROR, theta.dtype).tensor_backward
        run_rows(go, n, *args, grain=work_grain(8 * layer.n_weight))
        return
    kind = _kind(rounded, theta)
    tile = tile_for(n, layer.n_element, layer.most_out, *kind, layer.most_in)
    tiles = element_tiles(layer, tile.outputs)
    lines = (made.line, made.top_line, made.top_step)
    sizes = (n, layer.n_element, n_row, len(tiles[0]), *lines)
    own = (layer.group_row, layer.group_size, layer.group_theta, words, at, *parents)
    rows = layer.element_rows if joined else None
    factors = (rounded.words, _apart(rounded.words), staged, made.apart, top)
    arrays = (theta, values, lift, elements, *factors, row_flows, flows)
    more = {"WIDTH": layer.width if joined else 0, "LIFT": int(lift is not None)}
    more |= {"TREE": int(tree), "SHARED": int(joined and flows is not None)}
    args = (*sizes, *own, rows, *tiles, *arrays)
    _launch(_TENSOR_BACKWARD, tile, n, len(tiles[0]), args, more)


def _launch(
    kernel: Kernel, tile: Tile, n: int, n_tile: int, args: tuple[Any, ...], more: dict[str, int]
) -> None:
    """Launch a kernel over tiles and samples."""
    grid = (n_tile * -(-n // tile.samples),)
    macros = tile.macros | more
    kernel.launch(grid, (tile.threads,), args, shared=tile.shared, macros=macros, early=True)


def _split(words: Array) -> dict[str, int]:
    """Return the macro of kernels that pairs need."""
    return {"SPLIT": 1} if len(words) > 1 else {}


def _usual(staged: Array, top: Array) -> Staging:
    """Describe exponentials (planes, n_sample, n_column) and maxima (n_sample, n_list)."""
    return Staging(staged, top, staged.shape[2], _apart(staged), top.shape[1], 1)


def _with_words(into: Staging, staged: Array) -> Staging:
    """Return `into`, which has no words of its own, with those of `staged`."""
    return replace(into, words=staged, line=staged.shape[2], apart=_apart(staged))


def _apart(words: Array) -> int:
    """Words from the first plane to the second."""
    return int(words[0].size) if len(words) > 1 else 0


def _planes(words: Array) -> tuple[Array, Array]:
    """Return both planes; the second is empty where there is none."""
    return words[0], words[1] if len(words) > 1 else words[0][:0]


def _kind(rounded: Rounded, beside: Array) -> tuple[bool, int]:
    """Return whether tiles are of pairs, and the shared memory of a block."""
    return rounded.split, dynamic_limit(_device.device_of(beside))


def _groups(layer: SumLayer, list_at: Array | None) -> tuple[Array, ...]:
    at = () if list_at is None else (list_at,)
    groups = (layer.group_list, layer.group_row, layer.group_size, layer.group_theta)
    return (layer.list_first, layer.list_elements, *at, *groups)


def most_of_tensor(layout: Layout) -> int:
    """Bytes of the tables of this file, beside those of `tables.most_of_tiles`."""
    total = 0
    for layer in layout.layers:
        if isinstance(layer, SumLayer):
            columns = _columns(layer, "lists")[:3] + _columns(layer, "groups")[:3]
            total += sum(taken_by(table.nbytes) for table in columns)
            total += taken_by(8 * len(layer.group_row))  # where words begin
            tiles = node_tiles(layer, _TILES[0].outputs) + element_tiles(layer, _TILES[0].outputs)
            total += sum(taken_by(table.nbytes) for table in tiles)
    return total


def _columns(layer: SumLayer, of: str) -> tuple[Any, ...]:
    """First input, inputs and first column of each list, or group; all columns; most inputs."""

    def make(host: SumLayer) -> tuple[Any, ...]:
        lists = (host.list_first[:-1], np.diff(host.list_first))
        first, count = lists if of == "lists" else (host.group_row, host.group_size)
        ends = np.concatenate([[0], np.cumsum(_line(count))])
        tables = (first.astype(np.int64), count.astype(np.int32), ends[:-1].astype(np.int32))
        return (*tables, int(ends[-1]), int(count.max()))

    return kept(layer, (of, "columns"), make, layer.group_row)


def _words(layer: SumLayer, rounded: Rounded) -> Array:
    """Offsets of the rounded weights of each group."""

    def make(host: SumLayer) -> tuple[Array]:
        return (rounded.of(host.group_theta),)

    return kept(layer, ("words",), make, layer.group_row)[0]


def _line(n: Any) -> Any:
    """Rounded up to whole copies of 16 bytes."""
    return -(-n // 8) * 8
