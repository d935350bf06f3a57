"""The choice among tiles of products on tensor cores, by models of times fitted on an H200."""

from __future__ import annotations

from functools import cache
from typing import Any

from rpukit._device import Device, multiprocessors
from rpukit._kernels import tune
from rpukit.gemm._tiles import (
    BY_NAME,
    DEPTH,
    SEGMENT,
    THIN_TILES,
    TILES,
    Tile,
    WarpTile,
    apart,
    has_warpgroups,
)

_NEAR = 4  # tiles that are tried
_MOST_KEPT = 1 << 25  # bytes of the results of segments that blocks of their own leave


@cache
def pick(m: int, n: int, k: int, a_along: bool, b_along: bool, device: Device) -> Tile | WarpTile:
    """Choose the tile for a product of m rows, n columns and k terms, of aligned factors.

    ``a_along``, ``b_along``: a, b have their rows, columns along their lines in memory.
    """
    if not has_warpgroups(device):
        if m <= 16:
            return BY_NAME["warps turned 32x16"]
        return BY_NAME["warps turned 64x64" if m <= 64 else "warps 128x128"]
    return _by_time(m, n, k, a_along, b_along, device)[0]


@cache
def pick_thin(
    m: int, n: int, k: int, a_along: bool, b_along: bool, begins: tuple[int, int], device: Device
) -> WarpTile | None:
    """Choose a tile with warps that copy, if it is estimated to be faster than `pick`.

    ``begins``: elements at whose multiples the rows of a and b begin in memory.
    """
    if not has_warpgroups(device):
        return None
    usual, begin = _by_time(m, n, k, a_along, b_along, device)[0], min(begins)
    n_multi = multiprocessors(device)
    times = {
        tile: thin_microseconds(tile, m, n, k, begin, b_along, n_multi)
        for thin in THIN_TILES
        if (thin.name, begin) in _THIN_PACES
        for tile in _ways(thin, m, n, k)
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
    rounded = tune.bucket(m)  # times are kept by that
    every = _by_time(rounded, n, k, a_along, b_along, device)
    others = [t for t in every if t.apart != every[0].apart][:1]  # which the model compares worst
    near = dict.fromkeys([*every[: _NEAR - 1], *others, *every[_NEAR - 1 : _NEAR]])
    return [first, *(t for t in list(near)[:_NEAR] if t is not first)]


@cache
def _by_time(
    m: int, n: int, k: int, a_along: bool, b_along: bool, device: Device
) -> tuple[Tile, ...]:
    """Tiles of warpgroups for aligned factors, the fastest first."""
    least, n_multi = (64 if a_along else 16), multiprocessors(device)
    fitting = [
        way
        for tile in TILES
        if tile.takes(a_along if tile.turned else b_along)
        and (tile.columns if tile.turned else tile.rows) <= max(least, 2 * m)
        for way in _ways(tile, m, n, k)
    ]
    aligned = (8, 8)
    return tuple(sorted(fitting, key=lambda t: microseconds(t, m, n, k, aligned, n_multi)))


def _ways(tile: Any, m: int, n: int, k: int) -> list[Any]:
    """Return the tile, and the one whose blocks make a segment each, where that makes sense."""
    rows, columns = (n, m) if tile.turned else (m, n)
    n_part = tile.count(rows, columns) * -(-k // SEGMENT)
    if k <= SEGMENT or 4 * n_part * tile.rows * tile.columns > _MOST_KEPT or tile.columns > 192:
        return [tile]
    return [tile, apart(tile)]


# Microseconds of a launch, a stage and a tile besides its stages, where a multiprocessor has as
# many blocks as it can: fitted to 2400 times of 150 products on an H200.
_PACES = {
    "128x256": (1.31, 0.7033, 2.54),
    "128x192": (1.48, 0.5068, 2.11),
    "128x128": (2.03, 0.3421, 1.28),
    "128x64": (1.84, 0.2465, 0.96),
    "192x192": (0.59, 0.7857, 3.3),
    "192x128": (1.32, 0.5289, 2.17),
    "64x64": (2.33, 0.1512, 0.62),
    "64x128": (2.31, 0.1902, 0.75),
    "64x192": (2.37, 0.2479, 1.12),
    "64x256": (1.69, 0.4602, 1.37),
    "turned 64x16 deep": (1.86, 0.119, 0.72),
    "turned 64x32 deep": (1.86, 0.139, 0.62),
    "turned 64x64 deep": (2.25, 0.153, 0.57),
    "turned 64x16": (1.91, 0.1917, 0.88),
    "turned 64x16 in threes": (2.03, 0.276, 0.83),
    "turned 64x32": (2.02, 0.2269, 0.69),
    "turned 64x32 in threes": (1.31, 0.3437, 2.08),
    "turned 64x64": (2.08, 0.3025, 0.77),
    "turned 64x128": (2.1, 0.1958, 1.18),
    "turned 64x192": (2.0, 0.3114, 1.37),
    "turned 128x64": (2.28, 0.2312, 0.72),
    "turned 128x128": (1.86, 0.3357, 1.59),
}
_FEWER = 0.66  # power of their number by which fewer blocks take less time
_LOOSE, _LOOSE_TURNED = 0.92, 1.35  # microseconds of 64 columns of results that begin anywhere
_L2, _MEMORY = 13.2e6, 3.74e6  # bytes a microsecond that tiles fetch; of each matrix once
_SOFT = 5.0  # power by which the slowest of several limits counts most
_JOIN, _JOINED = 2.25, 5.1e6  # microseconds of adding segments; bytes a microsecond
_COPY, _COPIED = 3.5, 3.73e6  # microseconds of a launch that copies; bytes a microsecond


def microseconds(
    tile: Tile, m: int, n: int, k: int, begins: tuple[int, int], n_multi: int
) -> float:
    """Estimate the time of a product by warpgroups, with the copies that it needs."""
    start, stage, end = _PACES[tile.name.removesuffix(" apart")]
    rows, columns = (n, m) if tile.turned else (m, n)
    count, steps = tile.count(rows, columns), -(-k // DEPTH)
    work = count * -(-k // SEGMENT) if tile.apart else count
    rounds, rest = divmod(work, n_multi * tile.blocks)
    load = rounds + (-(-rest // n_multi) / tile.blocks) ** _FEWER
    if n % 8:
        across = tile.columns if tile.turned else min(tile.columns, -(-columns // 64) * 64)
        end += (_LOOSE_TURNED if tile.turned else _LOOSE) * across / 64
    limits = (
        load * (min(steps, SEGMENT // DEPTH if tile.apart else steps) * stage + end),
        2 * DEPTH * count * steps * (tile.rows + min(tile.columns, columns)) / _L2,
        2 * (m * k + k * n + m * n) / _MEMORY,
    )
    time: float = start + sum(x**_SOFT for x in limits) ** (1 / _SOFT)
    if tile.apart:
        time += _JOIN + 8 * work * tile.rows * tile.columns / _JOINED
    copied = 2 * k * sum(x for x, begin in zip((m, n), begins, strict=True) if begin < 8)
    return time + (_COPY + 2 * copied / _COPIED if copied else 0.0)


def thin_microseconds(
    tile: WarpTile, m: int, n: int, k: int, begin: int, b_along: bool, n_multi: int
) -> float:
    """Estimate the time of a product by warps some of which copy."""
    alone, each = _THIN_PACES[tile.name.removesuffix(" apart"), begin]
    n_segment = -(-k // SEGMENT) if tile.apart else 1
    blocks = -(-tile.count(n, m) * n_segment // n_multi)
    if begin == 8 and not b_along:
        each *= _WHOLE_LINES
    steps = -(-min(k, SEGMENT if tile.apart else k) // DEPTH)
    time = steps * _soft(alone, blocks * each)
    time += _THIN_JOIN if tile.apart else (blocks - 1) * _THIN_BLOCK
    return _THIN_START + _soft(time, 2 * k * (m + n) / _THIN_MEMORY)


def _soft(x: float, y: float) -> float:
    return float((x**_THIN_SOFT + y**_THIN_SOFT) ** (1 / _THIN_SOFT))


# Microseconds of a stage, of a block alone and of each of many on a multiprocessor, by the tile
# and the elements at whose multiples rows begin: fitted to 374 times on an H200.
_THIN_PACES = {
    ("thin 16x8/2", 8): (0.098, 0.068),
    ("thin 16x8/2", 2): (0.123, 0.087),
    ("thin 32x16/4", 2): (0.174, 0.165),
    ("thin 64x16/4", 2): (0.103, 0.250),
    ("thin 16x8/8", 2): (0.100, 0.094),
    ("thin 16x16/8", 2): (0.174, 0.149),
    ("thin 32x16/8", 2): (0.139, 0.193),
    ("thin 64x16/8", 2): (0.093, 0.262),
    ("thin 64x32/8", 2): (0.35, 0.31),
    ("thin 64x64/4", 2): (0.5, 0.46),
    ("thin 16x8/8", 1): (0.119, 0.111),
    ("thin 16x16/8", 1): (0.163, 0.152),
    ("thin 32x16/8", 1): (0.115, 0.234),
    ("thin 64x16/8", 1): (0.098, 0.292),
    ("thin 64x32/8", 1): (0.57, 0.6),
}
_WHOLE_LINES = 0.55  # of the time of many blocks, if they read 128 bytes at a place
_THIN_BLOCK = 0.65  # microseconds of each other block, besides its stages
_THIN_START, _THIN_MEMORY = 2.66, 2.72e6  # microseconds of a launch; bytes a microsecond
_THIN_JOIN = 0.42  # microseconds of adding segments
_THIN_SOFT = 4.0  # power by which the slower of two limits counts more
_SURE = 1.04  # what another tile has to take by the model, beside a thin one


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
_LAUNCH = 2.2  # microseconds of such a copy


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
        return (1 + _CROSSING[left]) * m * n * k / _RATE + moved / _ALIGNED + _LAUNCH * any(choice)

    return min(_CROSSING, key=time)
