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
    copiers: int = 0  # warps that only copy: factors may begin anywhere, sums may have any length

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
        return self.stages * (self.rows + self.columns) * 2 * _DEPTH + barriers

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
_THIN = (  # rows, columns, warps along both, warps that copy
    (16, 8, (1, 1), 2),
    (32, 16, (2, 1), 4),
    (64, 16, (4, 1), 4),
    (16, 8, (1, 1), 8),
    (16, 16, (1, 1), 8),
    (32, 16, (2, 1), 8),
    (64, 16, (4, 1), 8),
)
THIN_TILES = tuple(
    WarpTile(f"thin {i}x{j}/{copiers}", i, j, warps, 16, True, copiers)
    for i, j, warps, copiers in _THIN
)
_WIDE = {tile.name: tile for tile in TILES}
BY_NAME: dict[str, Tile | WarpTile] = {
    **_WIDE,
    **{tile.name: tile for tile in (*WARP_TILES, *THIN_TILES)},
}


@cache
def has_warpgroups(device: Device) -> bool:
    """Whether a device has the warpgroup instructions of det_gemm_tensor.cu."""
    if device.kind == "cpu":
        return True
    return str(_device.cupy().cuda.Device(device.index).compute_capability) == "90"


@cache
def pick(m: int, n: int, k: int, a_along: bool, b_along: bool, device: Device) -> Tile | WarpTile:
    """Choose the tile for a product of m rows, n columns and k terms, of aligned factors.

    ``a_along``, ``b_along``: a, b have their rows, columns along their lines in memory.
    """
    if not has_warpgroups(device):
        if m <= 16:
            return BY_NAME["warps turned 32x16"]
        return BY_NAME["warps turned 64x64" if m <= 64 else "warps 128x128"]
    n_multi = multiprocessors(device)
    if m <= 64 and not a_along:  # the batch in one tile, so that weights are read once
        return _WIDE[_streaming(m, -(-n // 64) / n_multi)]
    fitting = [t for t in TILES if t.takes(a_along if t.turned else b_along)]
    fitting = [t for t in fitting if t.columns >= 64]
    return min(fitting, key=lambda tile: cycles(tile, m, n, k, n_multi))


@cache
def pick_thin(
    m: int, n: int, k: int, a_along: bool, b_along: bool, begins: tuple[int, int], device: Device
) -> WarpTile | None:
    """Choose a tile with warps that copy, if it is estimated to be faster than `pick`.

    ``begins``: elements at whose multiples the rows of a and b begin in memory.
    """
    usual, begin = pick(m, n, k, a_along, b_along, device), min(begins)
    if not isinstance(usual, Tile) or (b_along and begin == 8):
        return None  # short pieces of aligned rows take as long as whole ones
    n_multi = multiprocessors(device)
    times = {
        tile: thin_microseconds(tile, m, n, k, begin, n_multi)
        for tile in THIN_TILES
        if (tile.name, begin) in _THIN_PACES
    }
    thin = min(times, key=times.__getitem__)
    limit = microseconds(usual, m, n, k, begins, n_multi)
    return thin if _SURE * times[thin] < limit else None


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
    if width == 64 and load <= 1.3:  # a tile of 64 columns more would double a block's work
        return "turned 128x64"
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


# Microseconds of a launch, a stage, a tile besides its stages; fitted to 86 products on an H200.
_PACES = {
    "128x256": (1.43, 0.5618, 3.13),
    "128x192": (1.25, 0.4371, 2.46),
    "128x128": (1.46, 0.2978, 1.88),
    "128x64": (1.65, 0.2044, 1.24),
    "192x192": (0.86, 0.618, 3.69),
    "192x128": (1.15, 0.433, 2.6),
    "64x64": (2.4, 0.1532, 0.74),
    "64x128": (2.13, 0.1944, 1.13),
    "64x192": (1.89, 0.2511, 1.7),
    "64x256": (1.75, 0.3389, 2.06),
    "turned 64x16 deep": (2.47, 0.1285, 0.34),
    "turned 64x32 deep": (2.27, 0.1327, 0.45),
    "turned 64x64 deep": (2.19, 0.1508, 0.64),
    "turned 64x16": (1.97, 0.1748, 0.47),
    "turned 64x16 in threes": (1.51, 0.1773, 0.89),
    "turned 64x32": (1.63, 0.1645, 0.81),
    "turned 64x32 in threes": (0.06, 0.1805, 2.23),
    "turned 64x64": (1.24, 0.1915, 1.42),
    "turned 64x128": (1.64, 0.1676, 1.3),
    "turned 64x192": (1.28, 0.2472, 1.87),
    "turned 128x64": (2.07, 0.1987, 1.04),
    "turned 128x128": (1.46, 0.2963, 1.98),
}
_COPY, _COPIED = 2.2, 2.8e6  # microseconds of a launch that copies; bytes a microsecond
_LONG = 0.77  # factor on the time of sums of several segments
_MEMORY = 4.0e6  # bytes a microsecond, of a product that reads its factors once


def microseconds(
    tile: Tile, m: int, n: int, k: int, begins: tuple[int, int], n_multi: int
) -> float:
    """Estimate the time of a product by warpgroups, with the copies that it needs."""
    start, stage, end = _PACES[tile.name]
    rows, columns = (n, m) if tile.turned else (m, n)
    rounds = -(-tile.count(rows, columns) // (n_multi * tile.blocks))
    copied = 2 * k * sum(x for x, begin in zip((m, n), begins, strict=True) if begin < 8)
    copies = _COPY + 2 * copied / _COPIED if copied else 0.0
    time = start + rounds * (-(-k // _DEPTH) * stage + end)
    return max(time * (_LONG if k > 16384 else 1.0), _least(m, n, k)) + copies


def _least(m: int, n: int, k: int) -> float:
    """Microseconds of a launch that moves each matrix once."""
    return 2.0 + 2 * (m * k + k * n + m * n) / _MEMORY


def thin_microseconds(tile: WarpTile, m: int, n: int, k: int, begin: int, n_multi: int) -> float:
    """Estimate the time of a product by warps some of which copy."""
    others = -(-tile.count(n, m) // n_multi) - 1
    first, other = _THIN_PACES[tile.name, begin]
    time = -(-k // _DEPTH) * (first + others * other) + others * _THIN_BLOCK
    return _THIN_START + max(time, 2 * k * (m + n) / _THIN_MEMORY)


# Microseconds of a stage of a multiprocessor's first block, and of each other one, by the tile and
# the elements at whose multiples rows begin: of 80 products on an H200.
_THIN_PACES = {
    ("thin 16x8/2", 8): (0.09, 0.09),
    ("thin 16x8/2", 2): (0.155, 0.11),
    ("thin 32x16/4", 2): (0.2, 0.318),
    ("thin 64x16/4", 2): (0.28, 0.7),
    ("thin 16x8/8", 2): (0.1, 0.12),
    ("thin 16x16/8", 2): (0.13, 0.14),
    ("thin 32x16/8", 2): (0.18, 0.18),
    ("thin 64x16/8", 2): (0.26, 0.24),
    ("thin 16x8/8", 1): (0.11, 0.2),
    ("thin 16x16/8", 1): (0.18, 0.21),
    ("thin 32x16/8", 1): (0.3, 0.24),
    ("thin 64x16/8", 1): (0.44, 0.38),
}
_THIN_BLOCK = 0.9  # microseconds of each other block, besides its stages
_THIN_START, _THIN_MEMORY = 2.6, 3.3e6  # microseconds of a launch; bytes a microsecond
_SURE = 1.08  # what another tile has to take by the model, beside a thin one


# What factors whose rows begin within sectors of L2 add to the time of a large product, as a part:
# a alone, b alone, both. Measured on an H200 with 4096 x 4096 x 4096 and 1024 x 4096 x 8192.
_CROSSING = {
    (False, False): 0.0,
    (True, False): 0.02,
    (False, True): 0.29,
    (True, True): 0.57,
}
_MUCH_WORK, _RATE = 3e9, 3.75e8  # multiply-adds, from which on it was seen; a microsecond
_ALIGNED = 3.5e6  # bytes a microsecond of a copy of chunks of 16 bytes


@cache
def copied(
    m: int, n: int, k: int, crossing: tuple[bool, bool], device: Device
) -> tuple[bool, bool]:
    """Which factors to copy to whole sectors, of those whose rows begin within them."""
    if m * n * k < _MUCH_WORK or not has_warpgroups(device):
        return False, False

    def time(choice: tuple[bool, bool]) -> float:
        left = crossing[0] and not choice[0], crossing[1] and not choice[1]
        moved = sum(4 * k * x for x, wanted in zip((m, n), choice, strict=True) if wanted)
        return (1 + _CROSSING[left]) * m * n * k / _RATE + moved / _ALIGNED + _COPY * any(choice)

    return min(_CROSSING, key=time)


def named(name: str) -> Tile | WarpTile:
    """Return the tile of a name."""
    if name not in BY_NAME:
        raise ParameterError(f"tile: got {name!r}, need one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def grid(tile: Tile, n_tile: int, device: Device) -> int:
    """Number of blocks of a launch of warpgroups."""
    return min(n_tile, multiprocessors(device) * tile.blocks)
