"""Tiles of samples and outputs that the blocks of a product work on: all with the same bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from rpukit import _device

_LARGEST_SHARED = 227 * 1024  # bytes of shared memory that a block may have, on the largest GPUs
_STATIC_SHARED = 4096  # what the kernel takes of them besides its stages
_FILLS_A_GPU = 100  # blocks that keep most of a large GPU busy


@dataclass(frozen=True, slots=True, eq=False)
class ProductTile:
    """Samples, outputs and inputs that a block works on at a time: a candidate of the tuner."""

    name: str
    samples: int
    outputs: int
    depth: int
    samples_per_thread: int
    outputs_per_thread: int
    stages: int
    lanes: int = 8  # of a warp along the outputs
    helpers: int = 128  # threads that copy, and convert inputs, where the block does that

    def valid(self, n_batch: int) -> bool:
        return n_batch > 0

    @property
    def macros(self) -> dict[str, int]:
        return {
            "TILE_M": self.samples,
            "TILE_N": self.outputs,
            "TILE_K": self.depth,
            "RM": self.samples_per_thread,
            "RN": self.outputs_per_thread,
            "ST": self.stages,
            "LANES_N": self.lanes,
        }

    @property
    def threads(self) -> int:
        return self.samples // self.samples_per_thread * (self.outputs // self.outputs_per_thread)

    def shared(self, transposed: bool) -> int:
        """Bytes of shared memory; lines along the sum are padded."""
        inputs = self.samples * (self.depth + 4)
        lines = self.depth if transposed else self.outputs
        row = self.outputs if transposed else self.depth + 4
        return 4 * self.stages * (inputs + lines * row)


# All with the same bits. The first three take any call, the others those that read four elements
# at a time, have no noise of reading and one segment of the chain, or registers would run out.
ONE = ProductTile("one", 1, 32, 256, 1, 1, 4, lanes=32)
FEW = ProductTile("few", 8, 32, 256, 2, 1, 4, lanes=32)
MEDIUM = ProductTile("medium", 32, 32, 64, 2, 4, 5)
FLAT = ProductTile("flat", 32, 32, 128, 4, 2, 4)
HALF = ProductTile("half", 16, 32, 128, 2, 2, 5)
TALL = ProductTile("tall", 64, 32, 64, 4, 4, 4)
SQUARE = ProductTile("square", 64, 64, 32, 8, 4, 4)
LARGE = ProductTile("large", 64, 128, 16, 8, 8, 4)
HUGE = ProductTile("huge", 128, 128, 16, 8, 8, 4)
TILES = (ONE, FEW, MEDIUM, FLAT, HALF, TALL, SQUARE, LARGE, HUGE)
_MIDDLE = (FLAT, HALF)
_MANY = (MEDIUM, TALL, SQUARE, LARGE, HUGE)


@cache
def candidates(n_batch: int, n_out: int, lean: bool) -> tuple[ProductTile, ...]:
    """Tiles for round 0 of a batch, the static rule's first.

    ``lean``: elements are read four at a time, without noise of reading and in one segment.
    """
    if n_batch <= FEW.samples:
        return (ONE if n_batch == 1 else FEW,)
    if not lean:
        return (MEDIUM,)
    if n_batch <= MEDIUM.samples:
        return _MIDDLE
    large = (tile for tile in (HUGE, SQUARE, TALL) if _fills(tile, n_batch, n_out))
    plain = next(large, MEDIUM)
    return (plain, *(tile for tile in _MANY if tile is not plain))


def further_tile(n_row: int, n_out: int, lean: bool) -> ProductTile:
    """Tile for all further rounds: as large as leaves enough of them."""
    if n_row <= FEW.samples:
        return FEW
    if not lean:
        return MEDIUM
    return next((tile for tile in (SQUARE, TALL) if _fills(tile, n_row, n_out)), FLAT)


def _fills(tile: ProductTile, n_row: int, n_out: int) -> bool:
    return -(-n_row // tile.samples) * -(-n_out // tile.outputs) >= _FILLS_A_GPU


@cache
def shared_limit(device: _device.Device) -> int:
    """Bytes of shared memory that a block may have."""
    if device.kind == "cpu":
        return _LARGEST_SHARED
    properties = _device.cupy().cuda.runtime.getDeviceProperties(device.index)
    return int(properties["sharedMemPerBlockOptin"])


@cache
def fitted(tile: ProductTile, limit: int) -> ProductTile:
    """The tile with as many stages, and as deep ones, as shared memory holds."""
    while max(tile.shared(False), tile.shared(True)) > limit - _STATIC_SHARED:
        if tile.stages > 3:
            tile = replace(tile, stages=tile.stages - 1)
        else:
            tile = replace(tile, depth=tile.depth // 2, stages=4)
    return tile
