"""Launch shapes of sum layers on a GPU: outputs, segments and samples of a block.

With few samples each block computes the exponentials that it needs; with many samples, or wide
layers, a separate launch computes them once for all blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact.twins import real
from rpukit._kernels import Kernel
from rpukit.circuits.compiled.arena import empty
from rpukit.circuits.compiled.layout import SumLayer
from rpukit.circuits.compiled.tables import (
    Uses,
    element_tiles,
    group_segments,
    list_segments,
    node_tiles,
    weight_tiles,
)

__all__ = [
    "Mixing",
    "dynamic_limit",
    "mix_down",
    "mix_up",
    "mix_weights",
    "mixing",
    "power",
    "room_for",
    "staged_lines",
    "sum_stage",
    "vec",
]

Array = Any

_SUM_BACKWARD = Kernel("sum_backward")
_SUM_FLOW = Kernel("sum_flow")
_SUM_FORWARD = Kernel("sum_forward")
_SUM_STAGE = Kernel("sum_stage")

_BLOCKS = 120  # of a launch that keeps a GPU busy
_SEGMENT = 64
_NARROW = 4  # rows of an element for which 512 threads have registers enough
_WAVES = 1500  # blocks from which several to a multiprocessor pay
_CROWDED = 360  # tiles of weights from which three to a multiprocessor pay
_FEW = 4  # segments of a sum that are few
_STAGED = 3  # samples from which exponentials have a launch of their own
_MANY = 64  # samples for which layers of few segments are staged, however short those are
_SPARSE = 132  # blocks of sum_stage.cu that leave no multiprocessor a second one
_STEPS, _STAGES = 16, 4  # of circuit_tiles.cuh


@dataclass(frozen=True, slots=True)
class Mixing:
    """Shape of a block of circuit_mix.cuh or, with rows of a thread, of circuit_tiles.cuh."""

    outputs: int
    lanes: int
    samples: int
    rows: int = 0
    columns: int = 4  # of a thread with rows
    stages: int = _STAGES

    @property
    def threads(self) -> int:
        """Threads of a block."""
        if self.rows:
            return self.outputs // self.rows * self.samples // self.columns * self.lanes
        return min(self.outputs, 32) * self.lanes

    def shared(self, dtype: np.dtype[Any]) -> int:
        """Bytes of dynamic shared memory."""
        n = self.samples
        if self.rows:
            stage = max(_STEPS * self.outputs, (_STEPS + 4) * self.outputs) + _STEPS * n
            part = self.outputs * (n + (4 if n < 16 else 8))
            size = self.lanes * (self.stages * stage + part + 4 * n)
        else:
            stride = _SEGMENT * (n if n < 8 else n + 4) + (4 if n < 4 else n)
            size = self.lanes * max(stride, n * (self.outputs + 1))
        return -(-size * dtype.itemsize // 16) * 16

    def macros(self, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Macros of the kernel."""
        shape = {"OUTPUTS": self.outputs, "LANES": self.lanes, "SAMPLES": self.samples}
        staged = {"STAGED": 1, "ROWS": self.rows, "COLUMNS": self.columns} if self.rows else {}
        if self.rows and self.stages != _STAGES:
            staged["ST"] = self.stages
        return {"REAL": real(dtype)} | shape | staged

    def roomy(self, width: int) -> Mixing:
        """Return a shape with fewer threads if elements have many rows: more registers each."""
        crowded = self.rows and self.threads > 256 and width > _NARROW
        return replace(self, columns=8) if crowded else self

    def fitted(self, n_segment: int, dtype: np.dtype[Any], limit: int) -> Mixing:
        """Limit segments per stage by their number and by shared memory."""
        made = replace(self, lanes=min(self.lanes, max(2, n_segment)))
        while made.lanes > 1 and made.shared(dtype) > limit:
            made = replace(made, lanes=made.lanes // 2)
        return made


# The largest tile first: it reads least. Those at the end are for few blocks.
_TILES = (
    Mixing(64, 4, 64, 8, 4),
    Mixing(64, 4, 32, 8),
    Mixing(32, 8, 32, 8),
    Mixing(32, 8, 16, 4),
    Mixing(16, 16, 16, 4),
    Mixing(16, 16, 8, 4),
)

_MANY_BLOCKS = Mixing(64, 1, 64, 8, 4)  # four to a multiprocessor
_SHORT = Mixing(32, 2, 32, 4, 4)  # of short sums


@cache
def mixing(
    n_sample: int,
    n_out: int,
    n_in: int,
    dtype: np.dtype[Any],
    dense: bool,
    limit: int,
    down: bool = False,
) -> Mixing:
    """Choose a shape by the number of samples, outputs, and inputs of the largest group.

    ``dense``: whether segments of inputs are full enough to be staged; ``limit``: bytes of shared
    memory of a block; ``down``: for flows.
    """
    single = dtype.itemsize == 4
    n_segment = power(-(-n_in // _SEGMENT))
    if single and dense and n_sample >= _STAGED:

        def blocks(tile: Mixing) -> int:
            enough = tile.samples < 2 * n_sample
            return enough * -(-n_out // tile.outputs) * -(-n_sample // tile.samples)

        if blocks(_MANY_BLOCKS) >= _WAVES:
            return _MANY_BLOCKS
        if down and n_segment <= _FEW and blocks(_SHORT) >= _BLOCKS:
            return _SHORT
        for tile in _TILES:
            if blocks(tile) >= _BLOCKS:
                break
        return tile.fitted(n_segment, dtype, limit)
    samples = min(power(n_sample), 16 if single else 8)
    outputs = 32
    while outputs > 8 and -(-n_out // outputs) * -(-n_sample // samples) < _BLOCKS:
        outputs //= 2
    least = 1 if outputs == 32 else 8  # many small blocks have no idle threads, few have many
    return Mixing(outputs, min(16, max(least, n_segment)), samples)


def mix_up(
    layer: SumLayer, theta: Array, elements: Array | None, values: Array, room: Array | None
) -> None:
    """Launch `ops.sum_forward`."""
    n, dtype, apart = len(values), theta.dtype, elements is not None
    first, count, of_list = list_segments(layer)
    dense = _dense(layer.list_elements.size, len(first), n)
    limit = dynamic_limit(_device.device_of(values))
    shape = mixing(n, layer.end_row - layer.first_row, layer.most_in, dtype, dense, limit)
    shape = shape if apart else shape.roomy(layer.width)
    tiles = node_tiles(layer, shape.outputs)
    staged: tuple[Any, ...] = (None, None)
    if shape.rows:
        rows, of = (layer.list_elements, elements) if apart else (layer.list_rows, values)
        staged = sum_stage(
            (first, count), rows, of, None, 1 if apart else layer.width, dtype, room
        )
    lists = (layer.list_first, layer.list_elements, None if apart else layer.list_rows, of_list)
    groups = (layer.group_list, layer.group_row, layer.group_size, layer.group_theta)
    sizes = (n, layer.n_element, values.shape[1], len(tiles[0]), _columns(n))
    args = (*sizes, *lists, *groups, *tiles, theta, elements, *staged, values)
    more = {"WIDTH": 0 if apart else layer.width}
    if shape.rows:
        more["VEC"] = vec(layer, theta)
    _launch(_SUM_FORWARD, shape, n, len(tiles[0]), args, dtype, more)


def mix_down(
    layer: SumLayer,
    theta: Array,
    values: Array | None,
    lift: Array | None,
    elements: Array | None,
    row_flows: Array | None,
    flows: Array | None,
    room: Array | None,
    *,
    tree: bool = False,
) -> None:
    """Launch `ops.sum_backward`, or with values and flows of rows `ops.sum_backward_joined`."""
    joined = values is not None
    of: Array = row_flows if joined else flows
    n, dtype = len(of), of.dtype
    first, count, of_group = group_segments(layer)
    dense = _dense(layer.end_row - layer.first_row, len(first), n)
    limit = dynamic_limit(_device.device_of(of))
    shape = mixing(n, layer.n_element, int(layer.most_out), dtype, dense, limit, True)
    shape = shape.roomy(layer.width) if joined else shape
    tiles = element_tiles(layer, shape.outputs)
    staged: tuple[Any, ...] = (None, None)
    if shape.rows:
        above = (values, row_flows) if lift is None else (lift, None)
        staged = sum_stage((first, count), None, *above, 0, dtype, room)
    groups = (layer.group_row, layer.group_size, layer.group_theta, of_group)
    parents = (layer.parent_first, layer.parent_group, layer.parent_place)
    n_row = (lift if lift is not None else values).shape[1]  # type: ignore[union-attr]
    arrays = (theta, values, lift, elements, *staged, row_flows, flows)
    rows = layer.element_rows if joined else None
    sizes = (n, layer.n_element, n_row, len(tiles[0]), _columns(n))
    args = (*sizes, *groups, *parents, rows, *tiles, *arrays)
    more = {
        "WIDTH": layer.width if joined else 0,
        "LIFT": int(lift is not None),
        "VEC": vec(layer, theta),
        "TREE": int(tree),
        "SHARED": int(joined and flows is not None),
    }
    _launch(_SUM_BACKWARD, shape, n, len(tiles[0]), args, dtype, more)


def staged_lines(layers: Sequence[Any]) -> int:
    """Numbers per sample for the exponentials of the widest layer."""
    sums = [y for y in layers if isinstance(y, SumLayer)]
    most = max(
        (len(make(y)[0]) for y in sums for make in (list_segments, group_segments)), default=0
    )
    return (_SEGMENT + 1) * most


def room_for(layers: Sequence[Any], theta: Array, n_sample: int) -> Array | None:
    """Allocate scratch for the exponentials of any layer of a pass."""
    if theta.dtype.itemsize != 4 or n_sample < _STAGED:
        return None
    size = staged_lines(layers) * _columns(n_sample)
    return empty((size,), theta.dtype, _device.device_of(theta))


@dataclass(frozen=True, slots=True)
class Gathering:
    """Shape of a block of sum_flow.cu: weights of it, and of a thread."""

    children: int
    nodes: int
    rows: int
    columns: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.children // self.rows * (self.nodes // self.columns)

    def shared(self, dtype: np.dtype[Any], vec: int) -> int:
        """Bytes of dynamic shared memory, where ``vec`` values are copied at a time."""
        depth, stages = (32 if vec == 4 else 16), 3
        return depth * stages * ((self.children + self.nodes) * dtype.itemsize + 4)

    def macros(self, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Macros of the kernel."""
        block = {"CHILDREN": self.children, "NODES": self.nodes}
        return {"REAL": real(dtype)} | block | {"ROWS": self.rows, "COLUMNS": self.columns}


_GATHERINGS = (
    Gathering(64, 64, 8, 4),
    Gathering(32, 32, 4, 4),
    Gathering(16, 16, 4, 2),
    Gathering(16, 16, 2, 1),
)


def mix_weights(held: Any, uses: Uses, theta: Array, steps: tuple[Array, Array, Array]) -> None:
    """Launch `ops.sum_flow`."""
    (up, child, wide), dtype = steps, theta.dtype
    for shape in _GATHERINGS:
        tiles = weight_tiles(uses, shape.children, shape.nodes)
        fits = shape.children < 2 * max(uses.most, 16)
        if fits and len(tiles[0]) * shape.threads >= 128 * _BLOCKS:
            break
    aligned = dtype.itemsize == 4 and not (_device.address(up) | _device.address(child)) % 16
    vec = 4 if aligned else 1
    sizes = (len(up), len(uses.row), up.shape[1], child.shape[1], held.clock)
    blocks = (uses.block_theta, uses.block_first, uses.up, uses.size, uses.count, uses.x)
    args = (*sizes, *blocks, *tiles, theta, up, child, wide, held.chains, held.totals)
    macros = shape.macros(dtype) | {"VEC": vec}
    if vec == 4 and len(tiles[0]) >= _CROWDED:
        macros["BLOCKS"] = 3
    grid, shared = (len(tiles[0]),), shape.shared(dtype, vec)
    _SUM_FLOW.launch(grid, (shape.threads,), args, shared=shared, macros=macros, early=True)


def sum_stage(
    segments: tuple[Array, Array],
    rows: Array | None,
    values: Array,
    flows: Array | None,
    width: int,
    dtype: np.dtype[Any],
    room: Array | None = None,
) -> tuple[Array, Array]:
    """Compute the exponentials of all segments of a layer, and their maxima.

    Parameters
    ----------
    segments : (array, array)
        First input of each segment, and how many there are.
    rows : array, shape (n_input, width), or None
        What each input is the product of; without, input k is column k.
    values : array, shape (n_sample, n_value), float64
    flows : array, optional
        Inputs are lifts, made of values and flows.
    width : int
    dtype : dtype
        Of the exponentials.
    room : array, optional
        Where the results go; see `room_for`.

    Returns
    -------
    array, array
        (n_segment * 64, n_column), and (n_segment, n_column); samples side by side.
    """
    (n, n_value), device = values.shape, _device.device_of(values)
    n_segment, n_column = len(segments[0]), _columns(n)
    n_line = n_segment * _SEGMENT
    if room is None:
        room = empty(((n_line + n_segment) * n_column,), dtype, device)
    w = room[: n_line * n_column].reshape(n_line, n_column)
    top = room[n_line * n_column : (n_line + n_segment) * n_column].reshape(n_segment, n_column)
    grid = (n_segment, min(-(-n_column // 32), 65535))
    macros = {"REAL": real(dtype), "WIDTH": width, "LIFT": int(flows is not None)}
    warps = macros["WARPS"] = _warps(grid[0] * grid[1])
    args = (n, n_column, n_value, *segments, rows, values, flows, w, top)
    _SUM_STAGE.launch(grid, (32 * warps,), args, macros=macros, early=True)
    return w, top


def _warps(n_block: int) -> int:
    """Warps of a block of sum_stage.cu: more where blocks are few."""
    return 32 if n_block <= _SPARSE else 16 if n_block <= 2 * _SPARSE else 8


def _launch(
    kernel: Kernel,
    shape: Mixing,
    n: int,
    n_tile: int,
    args: tuple[Any, ...],
    dtype: np.dtype[Any],
    more: dict[str, int],
) -> None:
    """Launch a kernel over tiles and samples."""
    grid, macros = (n_tile * -(-n // shape.samples),), shape.macros(dtype) | more
    shared = shape.shared(dtype)
    kernel.launch(grid, (shape.threads,), args, shared=shared, macros=macros, early=True)


def _dense(n_input: int, n_segment: int, n_sample: int) -> bool:
    """Whether inputs are staged: segments are full enough, or too few to matter."""
    return 2 * n_input >= _SEGMENT * n_segment or (n_segment <= 2 and n_sample >= _MANY)


def dynamic_limit(device: _device.Device) -> int:
    """Bytes of dynamic shared memory of a block; 1024 are left for static arrays."""
    return _device.shared_limit(device) - 1024


def vec(layer: SumLayer, theta: Array) -> int:
    """Number of weights of one vector load."""
    return layer.vec if theta.dtype.itemsize == 4 and _device.address(theta) % 16 == 0 else 1


def _columns(n: int) -> int:
    """Samples rounded up to whole vector loads."""
    return -(-n // 4) * 4


def power(n: int) -> int:
    """Smallest power of two that is n or more."""
    return 1 << (n - 1).bit_length()
