"""Products of float32 and float64: one chain of fused multiply-adds per result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._device import shared_limit
from rpukit._exact import twins
from rpukit._kernels import Kernel, Variant
from rpukit._kernels.tensor_map import ALIGNMENT
from rpukit._workers import run_rows, work_grain
from rpukit.gemm._tiles import has_warpgroups

Array = Any

SEGMENT = 16384  # terms after which a chain is restarted; RK_SEGMENT of the kernels
_DET_GEMM = Kernel("det_gemm")


@dataclass(frozen=True, slots=True)
class RealTile:
    """Part of the result that a block computes at a time."""

    rows: int
    columns: int
    depth: int  # of the sum, a stage
    rows_per_thread: int
    columns_per_thread: int
    stages: int
    tensor: bool = False  # float64 on tensor cores: the same chain
    turn: bool = False  # transpose factors that lie along the sum on the way to shared memory
    across: bool = False  # for a b whose columns lie along its lines

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.columns}{' tensor' if self.tensor else ''}"

    @property
    def threads(self) -> int:
        return self.rows // self.rows_per_thread * (self.columns // self.columns_per_thread)

    @property
    def macros(self) -> dict[str, int]:
        return {
            "TILE_M": self.rows,
            "TILE_N": self.columns,
            "TILE_K": self.depth,
            "RM": self.rows_per_thread,
            "RN": self.columns_per_thread,
            "ST": self.stages,
            "DMMA": int(self.tensor),
            "TURN": int(self.turn),
        }

    def shared(self, trans_a: bool, trans_b: bool, size: int) -> int:
        """Bytes of shared memory, for elements of `size` bytes."""
        unit = 4 if self.tensor else 16 // size
        elements = 0
        for lines, across in ((self.rows, trans_a), (self.columns, not trans_b)):
            padding = 0 if across and not self.tensor else unit
            if across or self.turn:
                elements += self.depth * (lines + padding)
            else:
                elements += lines * (self.depth + padding)
        return elements * size * self.stages

    def fitted(self, trans_a: bool, trans_b: bool, size: int, limit: int) -> RealTile:
        """Return the tile with as many of its stages as fit into shared memory."""
        stage = replace(self, stages=1).shared(trans_a, trans_b, size)
        return replace(self, stages=max(2, min(self.stages, limit // stage)))


FLOAT_TILES = (
    RealTile(128, 128, 32, 16, 8, 3, turn=True),
    RealTile(64, 128, 32, 8, 8, 3, turn=True),
    RealTile(32, 64, 64, 4, 4, 4),
    RealTile(32, 32, 64, 2, 4, 6),
    RealTile(16, 32, 128, 2, 2, 6),
    RealTile(8, 32, 128, 2, 1, 6),
    RealTile(4, 32, 256, 1, 1, 6, across=True),
    RealTile(4, 16, 128, 1, 1, 7),
)
DOUBLE_TILES = (
    RealTile(128, 128, 32, 8, 8, 3, tensor=True),
    RealTile(128, 64, 16, 8, 8, 3, tensor=True),
    RealTile(64, 64, 16, 4, 8, 4, tensor=True),
    RealTile(32, 32, 16, 2, 4, 6, tensor=True),
    RealTile(64, 64, 16, 4, 4, 4),
    RealTile(32, 32, 16, 2, 2, 4),
    RealTile(4, 32, 32, 1, 1, 10),
)
# By results of a tile: how many such tiles keep a GPU busy.
_ENOUGH = {128: 96, 2048: 96, 4096: 96, 8192: 96, 16384: 240}


@cache
def pick(m: int, n: int, double: bool, tensor: bool, across: bool) -> RealTile:
    """Choose the largest tile that fits and gives enough blocks for m rows and n columns.

    ``tensor``: the tensor cores are known to compute the chain. ``across``: b is (k, n).
    """
    *large, least = DOUBLE_TILES if double else FLOAT_TILES
    for tile in large:
        if (tile.tensor and not tensor) or (tile.across and not across):
            continue
        count = -(-m // tile.rows) * -(-n // tile.columns)
        enough = count >= _ENOUGH.get(tile.rows * tile.columns, 1)
        if enough and (tile.across or m > tile.rows // 2):
            return tile
    return least


def product(
    a: Array,
    b: Array,
    out: Array,
    trans_a: bool,
    trans_b: bool,
    tile: RealTile | None = None,
    *,
    add: int = 0,
    alpha: float = 1.0,
) -> None:
    """Multiply into `out`, which is C-contiguous; see `rpukit.gemm.det_gemm`.

    Kernels can also continue from the contents of `out`. With ``add=1`` it holds sums of whole
    segments, with ``add=2`` chains of a segment that ends with these factors or later. With
    ``add=3`` they add `alpha` times a product of one segment to it.
    """
    m, n = out.shape
    k = a.shape[0] if trans_a else a.shape[1]
    xp = _device.namespace(a, b, out)
    a, trans_a = _contiguous(a, trans_a, xp)
    b, trans_b = _contiguous(b, trans_b, xp)
    if not _device.runs_kernels(xp):
        left = np.ascontiguousarray(a.T) if trans_a else a
        right = np.ascontiguousarray(b.T) if trans_b else b
        run_rows(_mirror(out.dtype), m, left, right, out, grain=work_grain(n * k))
        return
    size = a.dtype.itemsize
    device = _device.device_of(out)
    tile = tile or pick(m, n, size == 8, has_warpgroups(device), not trans_b)
    unit, limit = 16 // size, shared_limit(device)
    whole = a.shape[1] % unit == 0 and b.shape[1] % unit == 0 and _aligned(a) and _aligned(b)
    for start in launches(tile, (m, n, k), size, trans_a, trans_b, whole, limit, add, alpha):
        start.variant.launch(start.grid, start.block, (*start.sizes, a, b, out), start.shared)


@cache
def _mirror(dtype: np.dtype[Any]) -> Any:
    return twins.mirror("rpukit.gemm._mirror.real", dtype).det_gemm


@dataclass(frozen=True, slots=True)
class Start:
    """Launch of the kernel without the arrays a, b, c."""

    variant: Variant
    grid: tuple[int]
    block: tuple[int]
    shared: int
    sizes: tuple[int, ...]


def launches(
    tile: RealTile,
    shape: tuple[int, int, int],
    size: int,
    trans_a: bool,
    trans_b: bool,
    whole: bool,
    limit: int,
    add: int = 0,
    alpha: float = 1.0,
) -> Iterator[Start]:
    """List the launches of a product of (m, n, k) elements of ``size`` bytes, one per segment.

    ``whole``: rows of the factors begin, and end, at multiples of 16 bytes; ``limit``: bytes of
    shared memory; ``add``, ``alpha``: see `product`.
    """
    tile, unit = tile.fitted(trans_a, trans_b, size, limit), 16 // size
    (m, n, k), shared = shape, tile.shared(trans_a, trans_b, size)
    macros = {
        "REAL": "double" if size == 8 else "float",
        "TRANS_A": int(trans_a),
        "TRANS_B": int(trans_b),
        "VEC": unit if whole else 1,
        **tile.macros,
        **({"ALPHA": alpha.hex()} if add == 3 else {}),
    }
    n_tile = -(-m // tile.rows) * -(-n // tile.columns)
    for start, stop in pairwise([*range(0, k, SEGMENT), k]):
        variant = _DET_GEMM.variant({**macros, "ADD": add if start == 0 else 1})
        yield Start(variant, (n_tile,), (tile.threads,), shared, (m, n, k, start, stop))


def _contiguous(x: Array, transposed: bool, xp: Any) -> tuple[Array, bool]:
    """Use a transposed view in place; copy an array that is not contiguous."""
    if not x.flags.c_contiguous and x.flags.f_contiguous:
        return x.T, not transposed
    return xp.ascontiguousarray(x), transposed


def _aligned(x: Array) -> bool:
    address = x.data.ptr if _device.is_cupy(x) else x.ctypes.data
    return bool(address % ALIGNMENT == 0)
