"""Tiles of products on tensor cores, and which of them to take: all give the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rpukit import _device
from rpukit._device import Device

_DEPTH = 64  # of a stage
_GROUP = 8  # lines of tiles that go along i together, so that neighbours find each other in L2


@dataclass(frozen=True, slots=True)
class Tile:
    """Part of the result that a block makes at a time, and how it is made.

    ``turned``: the weights' columns take the rows of the tensor core, which has 64 of them, and
    the batch its columns, which may be few; then a small batch wastes little.
    """

    name: str
    groups: int  # of 64 rows, one warpgroup each
    columns: int
    stages: int
    turned: bool = False
    blocks: int = 1  # a multiprocessor

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

    def takes(self, along_columns: bool) -> bool:
        """Whether the factor of the tensor core's columns may have them along its lines."""
        return not along_columns or self.columns % 64 == 0

    def count(self, n_rows: int, n_columns: int) -> int:
        """Tiles of a product with so many rows and columns of the tensor core."""
        return -(-n_rows // self.rows) * -(-n_columns // self.columns)


TILES = (
    Tile("128x256", 2, 256, 4),
    Tile("128x192", 2, 192, 4),
    Tile("128x128", 2, 128, 6),
    Tile("128x64", 2, 64, 8),
    Tile("64x256", 1, 256, 4),
    Tile("64x128", 1, 128, 4, blocks=2),
    Tile("turned 64x16", 1, 16, 10, turned=True, blocks=2),
    Tile("turned 64x32", 1, 32, 8, turned=True, blocks=2),
    Tile("turned 64x64", 1, 64, 6, turned=True, blocks=2),
    Tile("turned 128x64", 2, 64, 8, turned=True),
    Tile("turned 128x128", 2, 128, 6, turned=True),
)
BY_NAME = {tile.name: tile for tile in TILES}


@cache
def multiprocessors(device: Device) -> int:
    """Number of multiprocessors; a few for the runner on the CPU."""
    if device.kind == "cpu":
        return 3
    properties = _device.cupy().cuda.runtime.getDeviceProperties(device.index)
    return int(properties["multiProcessorCount"])


@cache
def pick(m: int, n: int, a_along: bool, device: Device) -> Tile:
    """Tile for a product of m rows and n columns; ``a_along``: a has its rows along its lines."""
    if m <= 64:
        names = ["turned 64x16", "turned 64x32", "turned 64x64"]
        fitting = [BY_NAME[name] for name in names if BY_NAME[name].columns >= m]
        return next(tile for tile in fitting if tile.takes(a_along))
    if m <= 128:
        return BY_NAME["turned 64x64" if n <= 8192 else "turned 128x128"]
    n_multi = multiprocessors(device)
    large, medium = BY_NAME["128x256"], BY_NAME["128x128"]
    return large if large.count(m, n) >= n_multi else medium


def grid(tile: Tile, n_tile: int, device: Device) -> int:
    """Blocks of a launch."""
    return min(n_tile, multiprocessors(device) * tile.blocks)


def group() -> int:
    """Lines of tiles that go along i together."""
    return _GROUP
