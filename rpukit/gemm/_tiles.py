"""Tiles of products on tensor cores and the choice among them; all give the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rpukit import _device
from rpukit._device import Device, multiprocessors
from rpukit._kernels import tune
from rpukit.errors import ParameterError

_DEPTH = 64  # of a stage
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
        stage = (self.rows + self.columns) * 2 * _DEPTH
        return 1024 + self.stages * stage + staging + 16 * self.stages

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

    def valid(self, n_batch: int) -> bool:
        """Whether the tile takes the batch: always."""
        return n_batch > 0

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
BY_NAME: dict[str, Tile | WarpTile] = {tile.name: tile for tile in (*TILES, *WARP_TILES)}


@cache
def has_warpgroups(device: Device) -> bool:
    """Whether a device has the warpgroup instructions of det_gemm_tensor.cu."""
    if device.kind == "cpu":
        return True
    return str(_device.cupy().cuda.Device(device.index).compute_capability) == "90"


@cache
def pick(m: int, n: int, k: int, a_along: bool, b_along: bool, device: Device) -> Tile | WarpTile:
    """Choose the tile for a product of m rows, n columns and k terms.

    ``a_along``, ``b_along``: a, b have their rows, columns along their lines in memory.
    """
    if not has_warpgroups(device):
        if m <= 16:
            return BY_NAME["warps turned 32x16"]
        return BY_NAME["warps turned 64x64" if m <= 64 else "warps 128x128"]
    n_multi = multiprocessors(device)
    if m <= 64 and not a_along:  # the batch in one tile, so that weights are read once
        return BY_NAME[_streaming(m, -(-n // 64) / n_multi)]
    fitting = [t for t in TILES if t.takes(a_along if t.turned else b_along)]
    fitting = [t for t in fitting if t.columns >= 64]
    return min(fitting, key=lambda tile: cycles(tile, m, n, k, n_multi))


def candidates(
    m: int, n: int, k: int, a_along: bool, b_along: bool, device: Device
) -> list[Tile | WarpTile]:
    """Tiles that may be the fastest, the choice of `pick` first.

    For few rows `pick` knows the fastest; in a trial the weights would come from L2.
    """
    first = pick(m, n, k, a_along, b_along, device)
    if not isinstance(first, Tile) or (m <= 64 and not a_along):
        return [first]
    near = [t for t in TILES if t.takes(a_along if t.turned else b_along) and t.columns >= 64]
    n_multi, rounded = multiprocessors(device), tune.bucket(m)  # times are kept by that
    near = sorted(near, key=lambda t: cycles(t, rounded, n, k, n_multi))[:_NEAR]
    return [first, *(t for t in near if t is not first)]


def _streaming(m: int, load: float) -> str:
    """Tile for few rows, given the number of tiles of 64 columns per multiprocessor."""
    width = max(16, 1 << (m - 1).bit_length())
    if load <= 1:
        return f"turned 64x{width} deep"
    return f"turned 64x{width}{' in threes' if width < 64 and 1 < load <= 2.5 else ''}"


_NEAR = 4  # tiles that are tried

# Fitted to times of 150 products on an H200; the mean loss against the best tile is 1%.
_LATENCY = 1500.0  # cycles from the request for a stage to its arrival
_BYTES = 44.0  # a cycle into a multiprocessor
_LEAST = 160.0  # cycles a stage
_END = 1400.0  # cycles a tile, besides its stages
_SLOWER = 1.8  # factor on the tensor core's own time


def cycles(tile: Tile, m: int, n: int, k: int, n_multi: int) -> float:
    """Estimate the time of a product: rounds of tiles, each limited by its slowest resource."""
    rows, columns = (n, m) if tile.turned else (m, n)
    count = tile.count(rows, columns)
    together = min(tile.blocks, -(-count // n_multi))
    rounds = -(-count // (n_multi * together))
    multiply = 2 * tile.groups * tile.columns * _SLOWER
    fetch = (tile.rows + min(tile.columns, columns)) * 2 * _DEPTH / _BYTES
    stage = max(together * multiply, together * fetch, _LATENCY / tile.stages, _LEAST)
    return rounds * (-(-k // _DEPTH) * stage + _END * together)


def named(name: str) -> Tile | WarpTile:
    """Return the tile of a name."""
    if name not in BY_NAME:
        raise ParameterError(f"tile: got {name!r}, need one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def grid(tile: Tile, n_tile: int, device: Device) -> int:
    """Number of blocks of a launch of warpgroups."""
    return min(n_tile, multiprocessors(device) * tile.blocks)
