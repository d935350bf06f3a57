"""Counts of weights from the steps of a pass: tied weights on tensor cores, or all in float32.

``Circuit(..., precision="bf16x3")`` counts weights that have `TIES` or more uses by pairs of
bfloat16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact.twins import mirror, real
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.compiled.arena import empty
from rpukit.circuits.compiled.tables import Uses, weight_tiles
from rpukit.circuits.ops.layers import spread
from rpukit.circuits.ops.staging import StagedLifts
from rpukit.circuits.ops.sum_launch import dynamic_limit, mix_weights
from rpukit.circuits.ops.sum_tensor_core import Tile

__all__ = [
    "TIES",
    "Steps",
    "count_weights",
    "flow_steps",
    "steps_of",
    "sum_flow",
    "tensor_flow",
]

Array = Any
Steps = tuple[Array, Array, Array]
Counted = tuple[tuple[Uses, bool], ...]  # uses, and whether they go to tensor cores

TIES = 8  # uses of weights from which tensor cores count them

_MIRROR = "rpukit.circuits._mirror.tensor_counts"
_LEARNING = "rpukit.circuits._mirror.learning"
_FLOW_STEPS = Kernel("flow_steps")
_TENSOR_FLOW = Kernel("tensor_flow")
_MANY = 128  # samples from which threads read some together
_BLOCKS = 120  # of a launch that keeps a GPU busy
_DEPTH = 64  # steps of a stage

# Children and nodes of a block; the largest first: it reads least.
_TILES = (
    Tile(64, 128, (2, 4), 4, planes=2),
    Tile(64, 64, (2, 4), 6, planes=2),
    Tile(32, 32, (2, 2), 6, planes=2),
    Tile(16, 16, (1, 1), 8, planes=2),
)


def steps_of(
    counted: Counted,
    lift: Array | None,
    elements: Array | None,
    values: Array,
    flows: Array,
    lifts: StagedLifts | None = None,
) -> list[Steps]:
    """Prepare the steps of all counts, for `count_weights`.

    ``lifts``: what the pass kept of them.
    """
    made = (lift, elements, values, flows)
    there = lifts if lift is None and lifts is not None and lifts.flows is flows else None
    return [
        flow_steps(uses, *made, split=split, lifts=there if there and there.uses is uses else None)
        for uses, split in counted
    ]


def count_weights(held: Any, counted: Counted, theta: Array, steps: list[Steps]) -> None:
    """Accumulate the counts of all weights."""
    for (uses, split), made in zip(counted, steps, strict=True):
        (tensor_flow if split else sum_flow)(held, uses, theta, made)


def flow_steps(
    uses: Uses,
    lift: Array | None,
    elements: Array | None,
    values: Array,
    flows: Array,
    *,
    split: bool = False,
    lifts: StagedLifts | None = None,
) -> tuple[Array, Array, Array]:
    """Prepare the steps of `sum_flow` from lifts (n_sample, n_row) and the elements of all layers.

    Without elements the kernel computes both from values and flows; with ``lifts``, of which
    ``up`` is taken, elements alone.

    Returns
    -------
    up, child, wide : array
        (n_sample, uses.n_up), (n_sample, uses.n_x), and (n_sample, n_use) of int32. With
        ``split``, on a GPU, the first two are uint16 of twice the width: high and low words of
        `tensor_flow`.
    """
    (n, n_row), dtype, device = values.shape, flows.dtype, _device.device_of(values)
    kernels, kind, planes = _device.takes_kernels(values), dtype, 1
    if split and kernels:
        kind, planes = np.dtype(np.uint16), 2
    up = empty((n, planes * uses.n_up), kind, device) if lifts is None else lifts.up
    child = empty((n, planes * uses.n_x), kind, device)
    wide = empty((n, len(uses.row)), np.int32, device)
    of_children = (uses.child, uses.count, uses.base, uses.width_of, uses.x)
    tables = (uses.row, uses.up, uses.size, *of_children)
    if not len(uses.row):
        pass
    elif kernels:
        sizes = (n, len(uses.row), n_row, uses.n_up, uses.n_x)
        width = uses.width if elements is None else 0
        few, threads, held = _shape_of_steps(n, uses)
        grid, macros = spread(len(uses.row), n, few), {"REAL": real(dtype), "WIDTH": width}
        macros |= {"FEW": few, "WORD": real(dtype), "N_THREAD": threads, "HELD": held}
        if split:
            macros |= {"SPLIT": 1, "WORD": "u16"}
        macros |= {} if lifts is None else {"LIFTED": 1}
        top = None if lifts is None else lifts.top
        given = (uses.children, uses.child_rows, values, flows, lift, elements, top)
        arrays = (*given, up, child, wide)
        _FLOW_STEPS.launch(grid, (threads,), (*sizes, *tables, *arrays), macros=macros, early=True)
    else:
        args = (*tables, uses.children, lift, elements, up, child, wide)
        grain = work_grain(20 * (uses.n_x + n_row))
        run_rows(mirror(_LEARNING, dtype).flow_steps, n, *args, grain=grain)
    return up, child, wide


def _shape_of_steps(n: int, uses: Uses) -> tuple[int, int, int]:
    """Samples together, threads, and values of a thread in registers, by the nodes of a use."""
    usual = (uses.n_up + uses.n_x) // (2 * len(uses.row))
    if usual <= 512:
        return 2 if n >= _MANY else 1, 128, 1 if usual <= 128 else 2
    return 1, 256, 4


def sum_flow(held: Any, uses: Uses, theta: Array, steps: tuple[Array, Array, Array]) -> None:
    """Accumulate the counts of all weights from the steps of `flow_steps`."""
    (up, child, wide), chains, totals = steps, held.chains, held.totals
    if not len(uses.row):
        return
    if _device.takes_kernels(theta):
        mix_weights(held, uses, theta, steps)
        return
    go_on = mirror(_LEARNING, theta.dtype).sum_flow
    for k, (first, n_child, size) in enumerate(uses.theta):
        own, part = slice(uses.first[k], uses.first[k + 1]), slice(first, first + n_child * size)
        args = (held.n_sample, size, own.start, uses.up[own], uses.x[own], theta[part], up, child)
        grain = work_grain(len(up) * size * (own.stop - own.start))
        run_rows(go_on, n_child, *args, wide, chains[part], totals[part], grain=grain)


def tensor_flow(held: Any, uses: Uses, theta: Array, steps: Steps) -> None:
    """Accumulate the counts of weights of many uses from the steps of `flow_steps`."""
    (up, child, wide), chains, totals = steps, held.chains, held.totals
    if _device.takes_kernels(theta):
        _launch(held, uses, theta, steps)
        return
    go_on = mirror(_MIRROR, np.float32).tensor_flow
    for k, (first, n_child, size) in enumerate(uses.theta):
        own, part = slice(uses.first[k], uses.first[k + 1]), slice(first, first + n_child * size)
        args = (held.n_sample, size, own.start, uses.up[own], uses.x[own], theta[part], up, child)
        grain = work_grain(50 * len(up) * size * (own.stop - own.start))
        run_rows(go_on, n_child, *args, wide, chains[part], totals[part], grain=grain)


def _launch(held: Any, uses: Uses, theta: Array, steps: Steps) -> None:
    up, child, wide = steps
    limit = dynamic_limit(_device.device_of(theta)) - 4 * _DEPTH * _TILES[-1].stages
    for shape in _TILES:
        tiles = weight_tiles(uses, shape.outputs, shape.samples)
        if len(tiles[0]) >= _BLOCKS:
            break
    shape = shape.fitted(limit)
    ties = int(np.diff(uses.first).max())
    sizes = (len(up), len(uses.row), uses.n_up, uses.n_x, held.clock)
    blocks = (uses.block_theta, uses.block_first, uses.up, uses.size, uses.count, uses.x)
    args = (*sizes, *blocks, *tiles, theta, up, child, wide, held.chains, held.totals)
    macros = shape.macros | {"UNITS": min(4, -(-ties // 16))}
    del macros["SPLIT"]  # as always here
    shared = shape.stages * (2 * 2 * _DEPTH * (shape.outputs + shape.samples) + 4 * _DEPTH)
    grid = (len(tiles[0]),)
    _TENSOR_FLOW.launch(grid, (shape.threads,), args, shared=shared, macros=macros, early=True)
