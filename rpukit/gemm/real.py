"""Products of float32 and float64: one chain of fused multiply-adds per result."""

from __future__ import annotations

import math
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
    copiers: int = 0  # threads that only copy, so that few results take the time of their chains

    @property
    def name(self) -> str:
        kind = " tensor" * self.tensor + " few" * (self.copiers > 0)
        return f"{self.rows}x{self.columns}{kind}"

    def count(self, m: int, n: int) -> int:
        """Number of tiles of a product of m rows and n columns."""
        return -(-m // self.rows) * -(-n // self.columns)

    @property
    def side(self) -> int:
        """Segments that a launch may make side by side: two sets of stages have to fit."""
        return 2 if self.copiers and self.rows * self.columns <= 2048 else 1

    def threads(self, side: int = 1) -> int:
        """Number of threads that make ``side`` segments side by side."""
        each = self.rows // self.rows_per_thread * (self.columns // self.columns_per_thread)
        return side * each + self.copiers

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
            "COPIERS": self.copiers,
        }

    def shared(self, trans_a: bool, trans_b: bool, size: int, side: int = 1) -> int:
        """Bytes of shared memory, for elements of `size` bytes and segments side by side."""
        unit = 4 if self.tensor else 16 // size
        elements = 0
        for lines, across in ((self.rows, trans_a), (self.columns, not trans_b)):
            padding = 0 if across and not self.tensor else unit
            if across or self.turn:
                elements += self.depth * (lines + padding)
            else:
                elements += lines * (self.depth + padding)
        return elements * size * self.stages * side

    def fitted(
        self, trans_a: bool, trans_b: bool, size: int, limit: int, side: int = 1
    ) -> RealTile:
        """Return the tile with as many of its stages as fit into shared memory."""
        stage = replace(self, stages=1).shared(trans_a, trans_b, size, side)
        least = 3 if self.copiers else 2
        return replace(self, stages=max(least, min(self.stages, limit // stage)))


FLOAT_TILES = (
    RealTile(128, 128, 32, 16, 8, 3, turn=True),
    RealTile(64, 128, 32, 8, 8, 3, turn=True),
    RealTile(64, 64, 32, 8, 4, 3, turn=True),
    RealTile(32, 64, 64, 4, 4, 4),
    RealTile(32, 32, 64, 2, 4, 6),
    RealTile(8, 64, 64, 2, 4, 5),
    RealTile(4, 32, 256, 1, 1, 6, across=True),
    RealTile(4, 16, 128, 1, 1, 7),
    RealTile(4, 16, 128, 1, 1, 8, copiers=64),
    RealTile(8, 32, 128, 2, 1, 4, copiers=64),
    RealTile(16, 32, 64, 1, 4, 6, copiers=64),
    RealTile(16, 64, 64, 2, 4, 4, copiers=64),
    RealTile(32, 64, 64, 4, 4, 3, copiers=64),
)
DOUBLE_TILES = (
    RealTile(128, 128, 32, 8, 8, 3, tensor=True),
    RealTile(128, 64, 16, 8, 8, 3, tensor=True),
    RealTile(64, 64, 16, 4, 8, 4, tensor=True),
    RealTile(32, 32, 16, 2, 4, 6, tensor=True),
    RealTile(64, 64, 16, 4, 4, 4),
    RealTile(32, 32, 16, 2, 2, 4),
    RealTile(4, 32, 32, 1, 1, 10),
    RealTile(16, 16, 64, 2, 2, 6, tensor=True, copiers=64),
    RealTile(16, 32, 32, 2, 2, 6, tensor=True, copiers=64),
    RealTile(16, 64, 32, 2, 4, 6, tensor=True, copiers=64),
    RealTile(32, 32, 32, 4, 4, 4, tensor=True, copiers=64),
    RealTile(64, 32, 32, 4, 4, 3, tensor=True, copiers=64),
    RealTile(4, 16, 64, 1, 1, 6, copiers=64),
)


class Pace(NamedTuple):
    """Times of a tile, in microseconds: a launch's, and those of a step of the sum."""

    start: float
    step: float  # of a block, however few there are on its multiprocessor
    work: float  # of a block, where a multiprocessor has many
    together: int  # blocks that a multiprocessor runs at a time
    ragged: float  # what rows that do not end at multiples of 16 bytes add, as a part
    upright: float  # what a b whose columns lie across its lines adds, as a part
    edge: float  # what tiles that reach beyond the result add, as a part


_FEW = 16  # blocks a multiprocessor, up to which copying threads were found to pay
# Fitted to products of random shapes on an H200 (tools/scan_tiles.py), that of 128x128 to large
# ones without edges as well; the choice loses 2 to 5 % of the time of the fastest tile.
_PACES = {
    "128x128": Pace(4.47, 0.0, 0.0865, 1, 0.102, 0.0344, 0.521),
    "64x128": Pace(3.74, 0.0496, 0.0444, 2, 0.0, 0.13, 0.108),
    "64x64": Pace(3.19, 0.0, 0.0285, 1, 0.0, 0.00446, 0.0793),
    "32x64": Pace(2.99, 0.0154, 0.0139, 2, 0.136, 0.000154, 0.0801),
    "32x32": Pace(2.88, 0.00966, 0.00931, 2, 0.2, -0.0402, 0.0798),
    "8x64": Pace(2.89, 0.00842, 0.00534, 2, 0.426, 0.154, 0.08),
    "4x32": Pace(5.0, 0.0, 0.00585, 1, 0.229, -0.00438, 0.000187),
    "4x16": Pace(3.83, 0.00331, 0.00218, 3, 0.534, -0.2, 0.0799),
    "4x16 few": Pace(3.04, 0.00289, 0.0026, 2, 0.335, -0.2, 0.0825),
    "8x32 few": Pace(2.83, 0.00512, 0.00472, 2, 0.41, -0.2, 0.08),
    "16x32 few": Pace(2.87, 0.00668, 0.00587, 4, 0.375, 0.0395, 0.08),
    "16x64 few": Pace(2.79, 0.00844, 0.00697, 3, 0.566, 0.188, 0.08),
    "32x64 few": Pace(2.98, 0.0159, 0.0124, 2, 0.425, 0.2, 0.08),
}
_DOUBLE_PACES = {
    "128x128 tensor": Pace(8.43, 0.000545, 0.0711, 2, 0.139, 0.0209, 0.08),
    "128x64 tensor": Pace(4.96, 0.0454, 0.0433, 4, 0.0899, -0.00379, 0.08),
    "64x64 tensor": Pace(3.53, 0.0269, 0.0225, 6, 0.105, 0.0299, 0.08),
    "32x32 tensor": Pace(2.42, 0.0103, 0.00818, 2, 0.177, -0.00359, 0.08),
    "64x64": Pace(2.73, 0.052, 0.0492, 3, 0.0338, 0.00164, 0.08),
    "32x32": Pace(2.37, 0.0226, 0.0192, 2, 0.141, 0.00032, 0.08),
    "4x32": Pace(2.49, 0.00762, 0.00673, 6, 0.182, -0.000543, 0.08),
    "16x16 tensor few": Pace(2.38, 0.00505, 0.0, 1, 0.302, 0.2, 0.08),
    "16x32 tensor few": Pace(2.23, 0.0071, 0.00561, 2, 0.212, 0.103, 0.08),
    "16x64 tensor few": Pace(2.59, 0.0, 0.00944, 2, 0.208, 0.185, 0.0795),
    "32x32 tensor few": Pace(2.8, 0.0118, 0.00829, 2, 0.0501, 0.088, 0.08),
    "64x32 tensor few": Pace(1.95, 0.0226, 0.0146, 2, 0.0, 0.0, 0.08),
    "4x16 few": Pace(2.79, 0.00503, 0.00381, 3, 0.102, 0.00666, 0.08),
}


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
    fitting = [
        tile
        for tile in (DOUBLE_TILES if double else FLOAT_TILES)
        if (across or not tile.across)
        and (tensor or not tile.tensor)
        and (not tile.copiers or tile.count(m, n) <= _FEW * n_multi)
    ]
    return min(fitting, key=lambda t: microseconds(t, m, n, k, double, across, whole, n_multi))


def microseconds(
    tile: RealTile,
    m: int,
    n: int,
    k: int,
    double: bool,
    across: bool,
    whole: bool,
    n_multi: int,
) -> float:
    """Estimate the time of a product: blocks share a multiprocessor, in rounds."""
    pace = (_DOUBLE_PACES if double else _PACES)[tile.name]
    rounds, rest = divmod(-(-tile.count(m, n) // n_multi), pace.together)
    chain = min(k, SEGMENT) if k <= tile.side * SEGMENT else k / tile.side  # one after another
    time = rounds * max(pace.step * chain, pace.together * pace.work * k)
    if rest:
        time += max(pace.step * chain, rest * pace.work * k)
    part = 1 + (0 if whole else pace.ragged) + (0 if across else pace.upright)
    if m % tile.rows or n % tile.columns:
        part += pace.edge
    return pace.start * -(-k // (tile.side * SEGMENT)) + part * time


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
    vectors, limit = (vector(a), vector(b)), shared_limit(device)
    if tile is None:
        on_tensor, n_multi = has_warpgroups(device), multiprocessors(device)
        whole = min(vectors) * size == ALIGNMENT
        tile = pick(m, n, k, size == 8, on_tensor, not trans_b, whole, n_multi)
    for start in launches(tile, (m, n, k), size, trans_a, trans_b, vectors, limit, add, alpha):
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
    vectors: tuple[int, int],
    limit: int,
    add: int = 0,
    alpha: float = 1.0,
) -> Iterator[Start]:
    """List the launches of a product of (m, n, k) elements of ``size`` bytes.

    ``vectors``: elements of each factor that a copy may take, see `vector`; ``limit``: bytes of
    shared memory; ``add``, ``alpha``: see `product`. A launch makes one segment, or two of them
    side by side where the tile has threads for that.
    """
    m, n, k = shape
    fits = tile.fitted(trans_a, trans_b, size, limit, tile.side)
    if fits.shared(trans_a, trans_b, size, tile.side) > limit:
        most = SEGMENT
    else:
        most = tile.side * SEGMENT
    for start, stop in pairwise([*range(0, k, most), k]):
        side = 2 if stop - start > SEGMENT else 1
        fitted = tile.fitted(trans_a, trans_b, size, limit, side)
        macros = {
            "REAL": "double" if size == 8 else "float",
            "TRANS_A": int(trans_a),
            "TRANS_B": int(trans_b),
            "VEC_A": vectors[0],
            "VEC_B": vectors[1],
            **fitted.macros,
            "SIDE": side,
            **({"ALPHA": alpha.hex()} if add == 3 else {}),
        }
        variant = _DET_GEMM.variant({**macros, "ADD": add if start == 0 else 1})
        grid, block = (tile.count(m, n),), (tile.threads(side),)
        shared = fitted.shared(trans_a, trans_b, size, side)
        yield Start(variant, grid, block, shared, (m, n, k, start, stop))


def vector(x: Array) -> int:
    """Number of elements that one copy may take: rows begin and end at multiples of them."""
    address = x.data.ptr if _device.is_cupy(x) else x.ctypes.data
    step = math.gcd(int(address), int(x.shape[1]) * x.itemsize, ALIGNMENT)
    return max(1, step // int(x.itemsize))


def _contiguous(x: Array, transposed: bool, xp: Any) -> tuple[Array, bool]:
    """Use a transposed view in place; copy an array that is not contiguous."""
    if not x.flags.c_contiguous and x.flags.f_contiguous:
        return x.T, not transposed
    return xp.ascontiguousarray(x), transposed
