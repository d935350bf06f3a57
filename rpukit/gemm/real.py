"""Products of float32 and float64: one chain of fused multiply-adds a result."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel
from rpukit._kernels.tensor_map import ALIGNMENT
from rpukit._workers import run_rows, work_grain

Array = Any

SEGMENT = 16384  # where a chain begins anew; RK_SEGMENT of the kernels
_DET_GEMM = Kernel("det_gemm")


@dataclass(frozen=True, slots=True)
class RealTile:
    """Part of the result that a block makes at a time."""

    rows: int
    columns: int
    depth: int  # of the sum, a stage
    rows_per_thread: int
    columns_per_thread: int
    stages: int

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.columns}"

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
        }

    def shared(self, trans_a: bool, trans_b: bool, size: int) -> int:
        """Bytes of shared memory, for elements of `size` bytes."""
        padded = self.depth + 16 // size
        a = self.rows * (self.depth if trans_a else padded)
        b = self.columns * (padded if trans_b else self.depth)
        return (a + b) * size * self.stages


FLOAT_TILES = (
    RealTile(128, 128, 16, 8, 8, 4),
    RealTile(64, 64, 16, 4, 4, 4),
    RealTile(32, 32, 32, 4, 2, 6),
    RealTile(16, 32, 64, 2, 2, 8),
    RealTile(4, 32, 64, 1, 1, 10),
)
DOUBLE_TILES = (
    RealTile(64, 64, 16, 4, 4, 4),
    RealTile(32, 32, 16, 2, 2, 4),
    RealTile(4, 32, 32, 1, 1, 10),
)


@cache
def pick(m: int, n: int, double: bool) -> RealTile:
    """Tile for a product of m rows and n columns."""
    tiles = DOUBLE_TILES if double else FLOAT_TILES
    for tile in tiles:
        if m > tile.rows // 2 and (m * n >= 64 * tile.rows * tile.columns or tile.rows <= 32):
            return tile
    return tiles[-1]


def product(
    a: Array, b: Array, out: Array, trans_a: bool, trans_b: bool, tile: RealTile | None = None
) -> None:
    """Multiply into `out`, which is C-contiguous; see `rpukit.gemm.det_gemm`."""
    m, n = out.shape
    k = a.shape[0] if trans_a else a.shape[1]
    xp = _device.namespace(a, b, out)
    a, trans_a = _contiguous(a, trans_a, xp)
    b, trans_b = _contiguous(b, trans_b, xp)
    if not _device.runs_kernels(xp):
        left = np.ascontiguousarray(a.T) if trans_a else a
        right = np.ascontiguousarray(b.T) if trans_b else b
        mirror = import_module("rpukit.gemm._mirror.real").det_gemm
        run_rows(mirror, m, left, right, out, grain=work_grain(n * k))
        return
    size = a.dtype.itemsize
    tile = tile or pick(m, n, size == 8)
    unit = 16 // size
    whole = a.shape[1] % unit == 0 and b.shape[1] % unit == 0 and _aligned(a) and _aligned(b)
    macros = {
        "REAL": "double" if size == 8 else "float",
        "TRANS_A": int(trans_a),
        "TRANS_B": int(trans_b),
        "VEC": unit if whole else 1,
        **tile.macros,
    }
    n_tile = -(-m // tile.rows) * -(-n // tile.columns)
    for start, stop in pairwise([*range(0, k, SEGMENT), k]):
        _DET_GEMM.launch(
            (n_tile,),
            (tile.threads,),
            (m, n, k, start, stop, a, b, out),
            shared=tile.shared(trans_a, trans_b, size),
            macros={**macros, "ADD": int(start > 0)},
        )


def _contiguous(x: Array, transposed: bool, xp: Any) -> tuple[Array, bool]:
    """Take a transposed view as it lies; copy what is not contiguous."""
    if not x.flags.c_contiguous and x.flags.f_contiguous:
        return x.T, not transposed
    return xp.ascontiguousarray(x), transposed


def _aligned(x: Array) -> bool:
    address = x.data.ptr if _device.is_cupy(x) else x.ctypes.data
    return bool(address % ALIGNMENT == 0)
