"""Tiles of products on tensor cores, and which of them to take: all give the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rpukit import _device
from rpukit._device import Device
from rpukit.errors import ParameterError

_DEPTH = 64  # of a stage
GROUP = 8  # lines of tiles that go along i together, so that neighbours find each other in L2


@dataclass(frozen=True, slots=True)
class Tile:
    """Part of the result that a block makes at a time, by warpgroups (det_gemm_tensor.cu).

    ``turned``: the weights' columns take the rows of the tensor core, which has 64 of them, and
    the batch its columns, which may be few; then a small batch wastes little.
    """

    name: str
    groups: int  # of 64 rows, one warpgroup each
    columns: int
    stages: int
    turned: bool = False
    blocks: int = 1  # a multiprocessor
    warps: bool = False  # by mma.sync, whose steps follow each other sooner

    @property
    def rows(self) -> int:
        return 64 * self.groups

    @property
    def threads(self) -> int:
        return 128 * (self.groups + 1)

    def shared(self, wide: bool) -> int:
        """Bytes of shared memory; ``wide``: results are float32 and go straight out."""
        staging = self.groups * (self.columns * 128 if self.turned else 16384)
        stage = (self.rows + self.columns) * 2 * _DEPTH
        return 1024 + self.stages * stage + (0 if wide else staging) + 16 * self.stages

    @property
    def macros(self) -> dict[str, int]:
        return {
            "NC": self.groups,
            "BN": self.columns,
            "ST": self.stages,
            "BLOCKS": self.blocks,
            "OUT_T": int(self.turned),
            "WARPS": int(self.warps),
        }

    def takes(self, along_columns: bool) -> bool:
        """Whether the factor of the tensor core's columns may have them along its lines."""
        return not along_columns or (self.columns % 64 == 0 and not self.warps)

    def count(self, n_rows: int, n_columns: int) -> int:
        """Tiles of a product with so many rows and columns of the tensor core."""
        return -(-n_rows // self.rows) * -(-n_columns // self.columns)


@dataclass(frozen=True, slots=True)
class WarpTile:
    """The same by single warps (det_gemm_mma.cu)."""

    name: str
    rows: int
    columns: int
    warps: tuple[int, int]  # along rows and columns
    stages: int
    turned: bool = False

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return self.stages * (self.rows + self.columns) * 2 * _DEPTH

    @property
    def macros(self) -> dict[str, int]:
        return {
            "BI": self.rows,
            "BJ": self.columns,
            "WI": self.warps[0],
            "WJ": self.warps[1],
            "ST": self.stages,
            "OUT_T": int(self.turned),
        }

    def takes(self, along_columns: bool) -> bool:
        """Any layout will do."""
        return True

    def count(self, n_rows: int, n_columns: int) -> int:
        """Tiles of a product with so many rows and columns of the tensor core."""
        return -(-n_rows // self.rows) * -(-n_columns // self.columns)


TILES = (
    Tile("128x256", 2, 256, 4),
    Tile("128x192", 2, 192, 4),
    Tile("128x128", 2, 128, 6),
    Tile("128x64", 2, 64, 8),
    Tile("64x64", 1, 64, 12),
    Tile("64x128", 1, 128, 8),
    Tile("64x192", 1, 192, 6),
    Tile("64x256", 1, 256, 4),
    Tile("turned 64x16", 1, 16, 10, turned=True, blocks=2),
    Tile("turned 64x16 in threes", 1, 16, 6, turned=True, blocks=3),
    Tile("turned 64x32", 1, 32, 8, turned=True, blocks=2),
    Tile("turned 64x64", 1, 64, 6, turned=True, blocks=2),
    Tile("turned 64x16 deep", 1, 16, 20, turned=True),
    Tile("turned 64x32 deep", 1, 32, 16, turned=True),
    Tile("turned 64x64 deep", 1, 64, 12, turned=True),
    Tile("turned 64x16 by warps", 1, 16, 20, turned=True, warps=True),
    Tile("turned 64x32 by warps", 1, 32, 16, turned=True, warps=True),
    Tile("turned 64x128", 1, 128, 8, turned=True),
    Tile("turned 64x192", 1, 192, 5, turned=True),
    Tile("turned 128x64", 2, 64, 8, turned=True),
    Tile("turned 128x128", 2, 128, 6, turned=True),
)
WARP_TILES = (
    WarpTile("warps 128x128", 128, 128, (2, 4), 3),
    WarpTile("warps 64x64", 64, 64, (2, 2), 4),
    WarpTile("warps turned 32x16", 32, 16, (2, 1), 14, turned=True),
    WarpTile("warps turned 32x32", 32, 32, (2, 2), 12, turned=True),
    WarpTile("warps turned 32x64", 32, 64, (2, 2), 8, turned=True),
    WarpTile("warps turned 64x64", 64, 64, (4, 2), 6, turned=True),
)
BY_NAME: dict[str, Tile | WarpTile] = {tile.name: tile for tile in (*TILES, *WARP_TILES)}


@cache
def multiprocessors(device: Device) -> int:
    """Number of multiprocessors; a few for the runner on the CPU."""
    if device.kind == "cpu":
        return 3
    properties = _device.cupy().cuda.runtime.getDeviceProperties(device.index)
    return int(properties["multiProcessorCount"])


@cache
def has_warpgroups(device: Device) -> bool:
    """Whether det_gemm_tensor.cu runs there."""
    if device.kind == "cpu":
        return True
    return str(_device.cupy().cuda.Device(device.index).compute_capability) == "90"


@cache
def pick(m: int, n: int, a_along: bool, device: Device) -> Tile | WarpTile:
    """Tile for a product of m rows and n columns; ``a_along``: a has its rows along its lines."""
    if not has_warpgroups(device):
        if m <= 16:
            return BY_NAME["warps turned 32x16"]
        return BY_NAME["warps turned 64x64" if m <= 64 else "warps 128x128"]
    if m <= 64:
        names = ["turned 64x16", "turned 64x32", "turned 64x64"]
        fitting = [BY_NAME[name] for name in names if BY_NAME[name].columns >= m]
        return next(tile for tile in fitting if tile.takes(a_along))
    if m <= 128:
        return BY_NAME["turned 64x64" if n <= 8192 else "turned 128x128"]
    n_multi = multiprocessors(device)
    large, medium = BY_NAME["128x256"], BY_NAME["128x128"]
    return large if large.count(m, n) >= n_multi else medium


def named(name: str) -> Tile | WarpTile:
    """Tile of a name."""
    if name not in BY_NAME:
        raise ParameterError(f"tile {name!r}: there are {', '.join(BY_NAME)}")
    return BY_NAME[name]


def grid(tile: Tile, n_tile: int, device: Device) -> int:
    """Blocks of a launch of warpgroups."""
    return min(n_tile, multiprocessors(device) * tile.blocks)
