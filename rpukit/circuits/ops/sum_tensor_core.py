"""Ops of sums on tensor cores: bfloat16 weights and exponentials, float32 chains.

``Circuit(..., precision="bf16")`` uses these instead of `sum_forward` and `sum_backward`.
"""

from __future__ import annotations

from dataclasses import dataclass
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
_MOST_ROWS = 65535  # of a grid along y


@dataclass(slots=True)
class Rounded:
    """Weights as bfloat16: blocks as in theta, lines of a multiple of 8."""

    words: Array
    block_words: Array  # where blocks begin, in the order of `Uses.block_theta`
    theta: Array  # the same two on the host
    first: Array

    def of(self, group_theta: Array) -> Array:
        """Offsets of groups, from their offsets in theta; on the host."""
        return self.first[np.searchsorted(self.theta, group_theta)]


def rounded_weights(uses: Uses, device: _device.Device) -> Rounded:
    """Allocate rounded weights of the blocks of ``uses``."""
    first, n_child, n_node = np.array(uses.theta, np.int64).reshape(-1, 3).T
    ends = np.concatenate([[0], np.cumsum(n_child * _line(n_node))]).astype(np.int64)
    words = _device.zeros((int(ends[-1]),), np.uint16, device)
    on_device = ends[:-1] if device.kind == "cpu" else _device.to_device(ends[:-1], device)
    return Rounded(words, on_device, first, ends[:-1])


def round_weights(uses: Uses, theta: Array, rounded: Rounded) -> None:
    """Round all weights to bfloat16."""
    if not uses.theta:
        return
    if _device.takes_kernels(theta):
        tiles = weight_tiles(uses, 64, 64)
        blocks = (uses.block_theta, rounded.block_words, uses.block_first, uses.size, uses.count)
        _ROUND_WEIGHTS.launch((len(tiles[0]),), (256,), (*blocks, *tiles, theta, rounded.words))
        return
    go = mirror(_MIRROR, theta.dtype).round_weights
    for (first, n_child, n_node), at in zip(uses.theta, rounded.first, strict=True):
        weights = theta[first : first + n_child * n_node].reshape(n_child, n_node)
        words = rounded.words[at : at + n_child * _line(n_node)].reshape(n_child, -1)
        run_rows(go, n_child, weights, words, grain=work_grain(n_node))


@dataclass(frozen=True, slots=True)
class Tile:
    """Outputs and samples of a block, its warps along both, and its stages."""

    outputs: int
    samples: int
    warps: tuple[int, int]
    stages: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps[0] * self.warps[1]

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: of the stages, or of the totals after them."""
        stages = self.stages * (self.outputs + self.samples) * 2 * _DEPTH
        return max(stages, self.samples * (self.outputs + 4) * 4)

    @property
    def macros(self) -> dict[str, int]:
        """Macros of the kernel."""
        size = {"BI": self.outputs, "BJ": self.samples, "ST": self.stages}
        return size | {"WI": self.warps[0], "WJ": self.warps[1]}


# The largest first: it reads least. Shared memory fits GPUs that have 99 KiB a block.
_TILES = (
    Tile(128, 128, (2, 4), 3),
    Tile(64, 64, (4, 2), 6),
    Tile(32, 32, (2, 2), 10),
    Tile(32, 16, (2, 1), 14),
)


@cache
def tile_for(n_sample: int, n_out: int) -> Tile:
    """Choose the largest tile that still fills a GPU, by samples and outputs."""
    for tile in _TILES[:-1]:
        count = -(-n_out // tile.outputs) * -(-n_sample // tile.samples)
        if count >= _BLOCKS and tile.samples < 2 * n_sample:
            return tile
    return _TILES[-1]


def tensor_stage(
    lists: tuple[Array, Array, Array, int],
    rows: Array | None,
    values: Array,
    flows: Array | None,
    width: int,
    room: Array | None = None,
) -> tuple[Array, Array]:
    """Compute the exponentials of lists of inputs, as bfloat16, and their maxima.

    Parameters
    ----------
    lists : (array, array, array, int)
        First input of each list, how many there are, its first column; number of columns.
    rows : array, shape (n_input, width), or None
        What each input is the product of; without, input k is column k.
    values : array, shape (n_sample, n_value), float64
    flows : array, optional
        Inputs are lifts, made of values and flows. On a GPU.
    width : int
    room : array, optional
        Where the results go; see `_mixing.room_for`.

    Returns
    -------
    array, array
        (n_sample, n_column) bits, and (n_sample, n_list).
    """
    *tables, n_column = lists
    (n, n_value), n_list, device = values.shape, len(tables[0]), _device.device_of(values)
    n_word, n_top = n * n_column // 2, n * n_list  # columns are even
    if room is None:
        room = empty((n_word + n_top,), np.float32, device)
    staged = room[:n_word].view(np.uint16).reshape(n, n_column)
    top = room[n_word : n_word + n_top].reshape(n, n_list)
    if _device.takes_kernels(values):
        macros = {"WIDTH": width, "LIFT": int(flows is not None)}
        args = (n, n_value, n_list, n_column, *tables, rows, values, flows, staged, top)
        grid = (n_list, min(n, _MOST_ROWS))
        _TENSOR_STAGE.launch(grid, (128,), args, macros=macros, early=True)
        return staged, top
    if rows is None:
        rows = np.arange(n_value, dtype=np.int32)
    go, args = mirror(_MIRROR, np.float32).tensor_stage, (rows.reshape(len(rows), -1), values)
    run_rows(go, n, *tables, *args, staged, top, grain=work_grain(20 * n_column))
    return staged, top


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
    staged = tensor_stage(lists, rows, of, None, width or 1, room)
    words = (_words(layer, rounded), rounded.words)
    if not _device.takes_kernels(values):
        args = (*_groups(layer, lists[2]), words[0], theta, words[1], *staged, elements, values)
        go = mirror(_MIRROR, theta.dtype).tensor_forward
        run_rows(go, n, *args, grain=work_grain(8 * layer.n_weight))
        return
    tile = tile_for(n, layer.end_row - layer.first_row)
    tiles = node_tiles(layer, tile.outputs)
    sizes = (n, layer.n_element, values.shape[1], len(tiles[0]), lists[3], len(lists[0]))
    inside = (layer.list_first, layer.list_elements, None if apart else layer.list_rows, lists[2])
    groups = (layer.group_list, layer.group_row, layer.group_size, layer.group_theta, words[0])
    args = (*sizes, *inside, *groups, *tiles, theta, words[1], *staged, elements, values)
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
) -> None:
    """Compute flows of elements from lifts; or, on a GPU, of rows from values and flows."""
    joined = values is not None
    groups = _columns(layer, "groups")
    above = (values, row_flows) if lift is None else (lift, None)
    staged = tensor_stage(groups, None, *above, 0, room)
    at, words = groups[2], (_words(layer, rounded), rounded.words)
    parents = (layer.parent_first, layer.parent_group, layer.parent_place)
    n, n_row = above[0].shape  # type: ignore[union-attr]
    if not _device.takes_kernels(theta):
        of = _groups(layer, None)
        args = (*of, words[0], at, *parents, theta, words[1], *staged, lift, elements, flows)
        go = mirror(_MIRROR, theta.dtype).tensor_backward
        run_rows(go, n, *args, grain=work_grain(8 * layer.n_weight))
        return
    tile = tile_for(n, layer.n_element)
    tiles = element_tiles(layer, tile.outputs)
    sizes = (n, layer.n_element, n_row, len(tiles[0]), groups[3], len(at))
    own = (layer.group_row, layer.group_size, layer.group_theta, words[0], at, *parents)
    rows = layer.element_rows if joined else None
    arrays = (theta, values, lift, elements, words[1], *staged, row_flows, flows)
    more = {"WIDTH": layer.width if joined else 0, "LIFT": int(lift is not None)}
    args = (*sizes, *own, rows, *tiles, *arrays)
    _launch(_TENSOR_BACKWARD, tile, n, len(tiles[0]), args, more)


def _launch(
    kernel: Kernel, tile: Tile, n: int, n_tile: int, args: tuple[Any, ...], more: dict[str, int]
) -> None:
    """Launch a kernel over tiles and samples."""
    grid = (n_tile * -(-n // tile.samples),)
    macros = tile.macros | more
    kernel.launch(grid, (tile.threads,), args, shared=tile.shared, macros=macros, early=True)


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
    """First input, inputs and first column of each list, or group; number of all columns."""

    def make(host: SumLayer) -> tuple[Any, ...]:
        lists = (host.list_first[:-1], np.diff(host.list_first))
        first, count = lists if of == "lists" else (host.group_row, host.group_size)
        ends = np.concatenate([[0], np.cumsum(_line(count))])
        tables = (first.astype(np.int64), count.astype(np.int32), ends[:-1].astype(np.int32))
        return (*tables, int(ends[-1]))

    return kept(layer, (of, "columns"), make, layer.group_row)


def _words(layer: SumLayer, rounded: Rounded) -> Array:
    """Offsets of the rounded weights of each group."""

    def make(host: SumLayer) -> tuple[Array]:
        return (rounded.of(host.group_theta),)

    return kept(layer, ("words",), make, layer.group_row)[0]


def _line(n: Any) -> Any:
    """Rounded up to whole copies of 16 bytes."""
    return -(-n // 8) * 8
