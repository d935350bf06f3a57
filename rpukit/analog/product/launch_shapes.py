"""Tiles of samples and outputs for the blocks of a product; all give the same bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

_MOST_PEAK = 32
_STATIC_SHARED = 4096  # bytes of shared memory that the kernel takes besides its stages


@dataclass(frozen=True, slots=True, eq=False)
class ProductTile:
    """Numbers of samples, outputs and inputs that a block works on at a time."""

    name: str
    samples: int
    outputs: int
    depth: int
    samples_per_thread: int
    outputs_per_thread: int
    stages: int
    lanes: int = 8  # of a warp along the outputs
    deep: int = 1  # groups of four terms of the sum that a thread reads at a time
    ahead: bool = True  # whether it reads the next groups while it multiplies
    helpers: int = 128  # threads that copy, and convert inputs if the block does that

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
            "DEEP": self.deep,
            "AHEAD": int(self.ahead),
        }

    @property
    def peak(self) -> int:
        """Number of outputs of which the largest is passed to the next kernel."""
        return min(self.outputs, _MOST_PEAK)

    @property
    def threads(self) -> int:
        return self.samples // self.samples_per_thread * (self.outputs // self.outputs_per_thread)

    def shared(self, transposed: bool) -> int:
        """Bytes of shared memory; lines along the sum are padded."""
        inputs = self.samples * (self.depth + 4)
        lines = self.depth if transposed else self.outputs
        row = self.outputs if transposed else self.depth + 4
        return 4 * self.stages * (inputs + lines * row)


# All give the same bits. ONE, FEW, NARROW and MEDIUM take any call. The others would run out of
# registers unless a call reads four elements at a time, has no read noise, and one segment of the
# chain.
ONE = ProductTile("one", 1, 32, 256, 1, 1, 4, lanes=32, deep=4)
FEW = ProductTile("few", 8, 32, 256, 1, 2, 4, deep=4)
NARROW = ProductTile("narrow", 8, 16, 256, 1, 1, 4, deep=4)
HALF = ProductTile("half", 16, 32, 128, 2, 2, 4, deep=2)
FLAT = ProductTile("flat", 32, 32, 128, 2, 4, 4)
MEDIUM = ProductTile("medium", 32, 32, 64, 2, 4, 5)
WIDE = ProductTile("wide", 32, 64, 64, 2, 4, 4)
SQUARE = ProductTile("square", 64, 64, 64, 4, 4, 3)
LARGE = ProductTile("large", 64, 128, 32, 8, 8, 3, ahead=False)
TILES = (ONE, FEW, NARROW, HALF, FLAT, MEDIUM, WIDE, SQUARE, LARGE)
_FROM = 1 << 27  # multiply-adds
_MOST_NARROW = 2048  # outputs, on an H200
_MOST_FEW = 1 << 16  # results
# For many samples: the first tile with so many blocks was within 5% of the fastest on an H200.
_MANY = ((LARGE, 200), (SQUARE, 100), (WIDE, 100), (MEDIUM, 100))


@cache
def product_tile(n_batch: int, n_out: int, lean: bool, transposed: bool) -> ProductTile:
    """Choose the tile for round 0 of a batch.

    ``lean``: elements are read four at a time, without noise of reading and in one segment.
    """
    if n_batch <= FEW.samples:
        narrow = not transposed and n_out <= _MOST_NARROW
        return ONE if n_batch == 1 else NARROW if narrow else FEW
    if not lean:
        return MEDIUM
    if n_batch <= FLAT.samples:
        return FLAT if n_batch > HALF.samples and _n_block(FLAT, n_batch, n_out) >= 100 else HALF
    return next((t for t, least in _MANY if _n_block(t, n_batch, n_out) >= least), HALF)


def by_gemm(n_batch: int, n_out: int, n_in: int) -> bool:
    """Whether det_gemm is faster for the sums of a batch whose inputs have been converted.

    Its tiles are larger, but the outputs take another launch. Measured on an H200.
    """
    least = _FROM if n_batch > FLAT.samples else 4 * _FROM
    return n_batch > FEW.samples and n_batch * n_out * n_in >= least


def foretold_tiles(
    tile: ProductTile, n_batch: int, n_out: int, limit: int, lean: bool
) -> tuple[ProductTile, ...]:
    """Choose tiles for the forecast rounds, given the tile of round 0.

    Many samples have two tiles, the first for the case that few have failed. ``limit``: bytes of
    shared memory.
    """
    if FEW.samples < n_batch <= FLAT.samples:
        tile = HALF if lean and n_batch * n_out > _MOST_FEW else FEW
    if tile.samples <= HALF.samples:
        # Two blocks fit, as blocks for tried rounds are added to those that fill the GPU.
        return (fitted(tile, limit // 2),)
    return fitted(FEW, limit // 2), fitted(WIDE if lean else MEDIUM, limit)


def further_tile(n_row: int, lean: bool) -> ProductTile:
    """Choose the tile for all further rounds of the remaining samples."""
    if n_row <= FEW.samples:
        return FEW
    return FLAT if lean else MEDIUM


def _n_block(tile: ProductTile, n_row: int, n_out: int) -> int:
    return -(-n_row // tile.samples) * -(-n_out // tile.outputs)


@cache
def fitted(tile: ProductTile, limit: int) -> ProductTile:
    """Reduce the number and depth of a tile's stages until shared memory holds them."""
    while max(tile.shared(False), tile.shared(True)) > limit - _STATIC_SHARED:
        if tile.stages > 3:
            tile = replace(tile, stages=tile.stages - 1)
        else:
            tile = replace(tile, depth=tile.depth // 2, stages=4)
    return tile
