"""Products of float32 and float64: one chain of fused multiply-adds per result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rpukit import _device
from rpukit._device import multiprocessors, shared_limit
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

    def count(self, m: int, n: int) -> int:
        """Number of tiles of a product of m rows and n columns."""
        return -(-m // self.rows) * -(-n // self.columns)

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
    RealTile(64, 64, 32, 8, 4, 3, turn=True),
    RealTile(32, 64, 64, 4, 4, 4),
    RealTile(32, 32, 64, 2, 4, 6),
    RealTile(16, 32, 128, 2, 2, 6),
    RealTile(8, 64, 64, 2, 4, 5),
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


class Pace(NamedTuple):
    """Times of a tile, in microseconds: a launch's, and those of a step of the sum."""

    start: float
    step: float  # of a block, however few there are on its multiprocessor
    work: float  # of a block, where a multiprocessor has many
    together: int  # blocks that a multiprocessor runs at a time
    ragged: float  # what rows that do not end at multiples of 16 bytes add, as a part


# Fitted to 82 products of random shapes on an H200 (tools/measure_gemm.py); the choice among them
# loses 3.5 % of the time of the fastest tile.
_PACES = {
    "128x128": Pace(2.3, 0.157, 0.102, 2, 0.09),
    "64x128": Pace(3.2, 0.0523, 0.0523, 1, 0.09),
    "64x64": Pace(2.0, 0.0338, 0.0283, 6, 0.01),
    "32x64": Pace(2.3, 0.0171, 0.0149, 3, 0.22),
    "32x32": Pace(2.4, 0.0100, 0.00669, 1, 0.24),
    "16x32": Pace(2.7, 0.0105, 0.0105, 2, 0.19),
    "8x64": Pace(1.9, 0.00987, 0.00636, 2, 0.55),
    "8x32": Pace(2.5, 0.00011, 0.00569, 5, 0.63),
    "4x32": Pace(4.2, 0.00085, 0.00509, 4, 0.53),
    "4x16": Pace(2.3, 0.00343, 0.0023, 3, 0.87),
}
# By results of a tile of doubles: how many such tiles keep a GPU busy.
_ENOUGH = {4096: 96, 8192: 96, 16384: 240}


@cache
def pick(
    m: int,
    n: int,
    k: int,
    double: bool,
    tensor: bool,
    across: bool,
    whole: bool,
    n_multi: int = 132,
) -> RealTile:
    """Choose the tile for m rows, n columns and k terms.

    ``tensor``: the tensor cores are known to compute the chain. ``across``: b is (k, n).
    ``whole``: rows of the factors begin and end at multiples of 16 bytes.
    """
    if not double:
        tiles = [t for t in FLOAT_TILES if across or not t.across]
        return min(tiles, key=lambda tile: microseconds(tile, m, n, k, whole, n_multi))
    *large, least = DOUBLE_TILES
    for tile in large:
        if tile.tensor and not tensor:
            continue
        enough = tile.count(m, n) >= _ENOUGH.get(tile.rows * tile.columns, 1)
        if enough and m > tile.rows // (4 if tile.tensor and tile.rows == 32 else 2):
            return tile
    return least


def microseconds(tile: RealTile, m: int, n: int, k: int, whole: bool, n_multi: int) -> float:
    """Estimate the time of a product: blocks share a multiprocessor, in rounds."""
    pace = _PACES[tile.name]
    rounds, rest = divmod(-(-tile.count(m, n) // n_multi), pace.together)
    step = rounds * max(pace.step, pace.together * pace.work)
    if rest:
        step += max(pace.step, rest * pace.work)
    return pace.start + (1 if whole else 1 + pace.ragged) * k * step


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

    It can also continue from the contents of `out`. With ``add=2`` that holds chains of a segment
    that ends with these factors or later. Only on kernels: with ``add=1`` it holds sums of whole
    segments, and with ``add=3`` they add `alpha` times a product of one segment to it.
    """
    m, n = out.shape
    k = a.shape[0] if trans_a else a.shape[1]
    xp = _device.namespace(a, b, out)
    a, trans_a = _contiguous(a, trans_a, xp)
    b, trans_b = _contiguous(b, trans_b, xp)
    if not _device.runs_kernels(xp):
        left = np.ascontiguousarray(a.T) if trans_a else a
        right = np.ascontiguousarray(b.T) if trans_b else b
        mirror = _mirror(out.dtype)
        one = mirror.continue_chains if add == 2 else mirror.det_gemm
        run_rows(one, m, left, right, out, grain=work_grain(n * k))
        return
    size = a.dtype.itemsize
    device = _device.device_of(out)
    unit, limit = 16 // size, shared_limit(device)
    whole = a.shape[1] % unit == 0 and b.shape[1] % unit == 0 and _aligned(a) and _aligned(b)
    if tile is None:
        on_tensor, n_multi = has_warpgroups(device), multiprocessors(device)
        tile = pick(m, n, k, size == 8, on_tensor, not trans_b, whole, n_multi)
    for start in launches(tile, (m, n, k), size, trans_a, trans_b, whole, limit, add, alpha):
        start.variant.launch(start.grid, start.block, (*start.sizes, a, b, out), start.shared)


@cache
def _mirror(dtype: np.dtype[Any]) -> Any:
    return twins.mirror("rpukit.gemm._mirror.real", dtype)


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
    n_tile = tile.count(m, n)
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
