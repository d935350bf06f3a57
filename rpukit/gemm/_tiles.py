"""Tiles of products on tensor cores; all give the same bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from rpukit import _device
from rpukit._device import Device, multiprocessors
from rpukit.errors import ParameterError

DEPTH = 64  # of a stage
SEGMENT = 4096  # terms after which a chain is restarted
_WORK = 40  # registers of a thread besides accumulators and sums
EARLY_STAGES = 12  # from which on a turned tile's launch begins early
GROUP = 8  # lines of tiles that advance along i together, so that neighbours share data in L2


@dataclass(frozen=True, slots=True)
class Tile:
    """Part of the result that a block computes at a time, by warpgroups (det_gemm_tensor.cu).

    ``turned``: the tensor core computes the transposed product. The weights' columns fill its 64
    rows and the batch its columns, which may be few, so that a small batch wastes little.
    """

    name: str
    groups: int  # of 64 rows, one warpgroup each
    columns: int
    stages: int
    turned: bool = False
    blocks: int = 1  # a multiprocessor
    apart: bool = False  # a block makes one segment of a sum at a time

    @property
    def rows(self) -> int:
        return 64 * self.groups

    def valid(self, n_batch: int) -> bool:
        """Whether the tile takes the batch: always."""
        return n_batch > 0

    @property
    def threads(self) -> int:
        return 128 * (self.groups + 1)

    @property
    def streams(self) -> bool:
        """Whether one tile holds the batch, so that each block reads different weights."""
        return self.turned and self.columns <= 64

    def shared(self, wide: bool) -> int:
        """Bytes of shared memory; ``wide``: float32 results, which bypass it if turned."""
        boxes = 8192 * (1 if self.groups == 3 else 2)
        staging = self.groups * (boxes if not self.turned else 0 if wide else self.columns * 128)
        stage = (self.rows + self.columns) * 2 * DEPTH
        return 1024 + self.stages * stage + staging + 16 * self.stages + 16

    @property
    def held(self) -> tuple[int, int]:
        """How many of a thread's sums of segments are in its registers, and in shared memory."""
        sums, free = self.columns // 2, {2: 232, 3: 152}.get(self.groups, 224)
        if self.blocks > 1:
            free = 256 // self.blocks
        held = min(sums, (free - sums - _WORK) // 4 * 4)
        staged = 0 if self.turned else 16 if self.groups == 3 else 32
        return held, min(staged, sums - held)

    @property
    def left(self) -> int:
        """How many of a thread's sums of segments wait in global memory."""
        return self.columns // 2 - sum(self.held)

    @property
    def macros(self) -> dict[str, int]:
        return {
            "NC": self.groups,
            "BN": self.columns,
            "ST": self.stages,
            "BLOCKS": self.blocks,
            "OUT_T": int(self.turned),
        }

    def takes(self, along_columns: bool) -> bool:
        """Whether the factor of the tensor core's columns may have them along its lines."""
        return not along_columns or self.columns % 64 == 0

    def count(self, n_rows: int, n_columns: int) -> int:
        """Number of tiles of a product, given its rows and columns on the tensor core."""
        return -(-n_rows // self.rows) * -(-n_columns // self.columns)


@dataclass(frozen=True, slots=True)
class WarpTile:
    """Part of the result that a block computes at a time, by single warps (det_gemm_mma.cu)."""

    name: str
    rows: int
    columns: int
    warps: tuple[int, int]  # along rows and columns
    stages: int
    turned: bool = False
    copiers: int = 0  # warps that only copy: factors may begin anywhere, sums may have any length
    apart: bool = False  # a block makes one segment of a sum

    def valid(self, n_batch: int) -> bool:
        """Whether the tile takes the batch: always."""
        return n_batch > 0

    @property
    def threads(self) -> int:
        return 32 * (self.warps[0] * self.warps[1] + self.copiers)

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        barriers = 16 * self.stages if self.copiers else 0
        return self.stages * (self.rows + self.columns) * 2 * DEPTH + barriers

    @property
    def macros(self) -> dict[str, int]:
        copiers = {"COPIERS": self.copiers} if self.copiers else {}
        return {
            "BI": self.rows,
            "BJ": self.columns,
            "WI": self.warps[0],
            "WJ": self.warps[1],
            "ST": self.stages,
            "OUT_T": int(self.turned),
            **copiers,
        }

    def takes(self, along_columns: bool) -> bool:
        """Whether the tile takes the layout: always."""
        return True

    def count(self, n_rows: int, n_columns: int) -> int:
        """Number of tiles of a product, given its rows and columns on the tensor core."""
        return -(-n_rows // self.rows) * -(-n_columns // self.columns)


TILES = (
    Tile("128x256", 2, 256, 4),
    Tile("128x192", 2, 192, 4),
    Tile("128x128", 2, 128, 6),
    Tile("128x64", 2, 64, 8),
    Tile("192x192", 3, 192, 4),
    Tile("192x128", 3, 128, 5),
    Tile("64x64", 1, 64, 12),
    Tile("64x128", 1, 128, 8),
    Tile("64x192", 1, 192, 6),
    Tile("64x256", 1, 256, 4),
    Tile("turned 64x16 deep", 1, 16, 20, turned=True),
    Tile("turned 64x32 deep", 1, 32, 16, turned=True),
    Tile("turned 64x64 deep", 1, 64, 12, turned=True),
    Tile("turned 64x16", 1, 16, 10, turned=True, blocks=2),
    Tile("turned 64x16 in threes", 1, 16, 6, turned=True, blocks=3),
    Tile("turned 64x32", 1, 32, 8, turned=True, blocks=2),
    Tile("turned 64x32 in threes", 1, 32, 6, turned=True, blocks=3),
    Tile("turned 64x64", 1, 64, 6, turned=True, blocks=2),
    Tile("turned 64x128", 1, 128, 8, turned=True),
    Tile("turned 64x192", 1, 192, 5, turned=True),
    Tile("turned 128x64", 2, 64, 8, turned=True),
    Tile("turned 128x128", 2, 128, 6, turned=True),
)
WARP_TILES = (
    WarpTile("warps 128x128", 128, 128, (2, 4), 3),
    WarpTile("warps 64x64", 64, 64, (2, 2), 4),
    WarpTile("warps turned 16x16", 16, 16, (1, 1), 16, turned=True),
    WarpTile("warps turned 16x32", 16, 32, (1, 2), 16, turned=True),
    WarpTile("warps turned 32x16", 32, 16, (2, 1), 14, turned=True),
    WarpTile("warps turned 32x32", 32, 32, (2, 2), 12, turned=True),
    WarpTile("warps turned 32x64", 32, 64, (2, 2), 8, turned=True),
    WarpTile("warps turned 64x64", 64, 64, (4, 2), 6, turned=True),
)
_THIN = (  # rows, columns, warps along both, stages, warps that copy
    (16, 8, (1, 1), 16, 2),
    (32, 16, (2, 1), 16, 4),
    (64, 16, (4, 1), 16, 4),
    (16, 8, (1, 1), 16, 8),
    (16, 16, (1, 1), 16, 8),
    (32, 16, (2, 1), 16, 8),
    (64, 16, (4, 1), 16, 8),
    (64, 32, (4, 1), 8, 8),
    (64, 64, (4, 2), 8, 4),
)
THIN_TILES = tuple(
    WarpTile(f"thin {i}x{j}/{copiers}", i, j, warps, stages, True, copiers)
    for i, j, warps, stages, copiers in _THIN
)
BY_NAME: dict[str, Tile | WarpTile] = {
    **{tile.name: tile for tile in TILES},
    **{tile.name: tile for tile in (*WARP_TILES, *THIN_TILES)},
}


@cache
def apart(tile: Tile | WarpTile) -> Tile | WarpTile:
    """Return the tile whose blocks make one segment of a sum each."""
    return replace(tile, name=f"{tile.name} apart", apart=True)


@cache
def has_warpgroups(device: Device) -> bool:
    """Whether a device has the warpgroup instructions of det_gemm_tensor.cu."""
    if device.kind == "cpu":
        return True
    return str(_device.cupy().cuda.Device(device.index).compute_capability) == "90"


def named(name: str) -> Tile | WarpTile:
    """Return the tile of a name; "... apart": with a block for each segment."""
    base = name.removesuffix(" apart")
    if base not in BY_NAME:
        raise ParameterError(f"tile: got {name!r}, need one of {', '.join(BY_NAME)}")
    return BY_NAME[base] if base == name else apart(BY_NAME[base])


def grid(tile: Tile, n_tile: int, device: Device) -> int:
    """Number of blocks of a launch of warpgroups."""
    return min(n_tile, multiprocessors(device) * tile.blocks)
