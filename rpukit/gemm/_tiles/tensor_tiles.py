"""Tiles of products on tensor cores; all give the same bits."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import cast

from rpukit._device import Device, multiprocessors
from rpukit.errors import ParameterError
from rpukit.gemm._tiles.tensor_tile import (
    APART,
    DEPTH,
    EARLY,
    JOINED,
    SEGMENT,
    SHARED,
    STREAMED,
    Tile,
    WarpTile,
    base_of,
)

__all__ = ["DEPTH", "SEGMENT", "SHARED", "Tile", "WarpTile"]

BRIEF = 1024  # terms of a sum up to which every launch may begin early
CLUSTER_SIZES = 2, 3, 4, 5, 6, 8  # of joined tiles; a GPU has room for too few clusters of 7
CLUSTERS = (1, 2), (2, 1), (2, 2), (4, 1), (1, 4)  # of blocks that fetch for each other
GROUP = 8  # lines of tiles that advance along i together, so that neighbours share data in L2
# Part of an H200's multiprocessors that clusters of so many blocks fill, one block on each.
_FILLED = {1: 1.0, 2: 1.0, 3: 0.89, 4: 0.91, 5: 0.834, 6: 0.773, 8: 0.91}
_FEW, _SLABS = 64, 80  # columns up to which tiles of several blocks exist, and stages are longer


@cache
def turned(groups: int, columns: int) -> Tile:
    """Return the turned tile of 64 x `groups` rows, with as many stages as there is room for."""
    few = groups == 1 and columns <= _FEW
    slabs = 2 if groups == 1 and columns <= _SLABS else 1
    name = f"turned {64 * groups}x{columns}" + " deep" * few
    return Tile(name, groups, columns, 0, turned=True, slabs=slabs).filled(20 // slabs)


@cache
def usual(groups: int, columns: int) -> Tile:
    """Return the tile of 64 `groups` rows and any multiple of 16 columns; see `turned`."""
    return Tile(f"{64 * groups}x{columns}", groups, columns, 0).filled(8)


@cache
def clustered(tile: Tile, cluster: tuple[int, int]) -> Tile:
    """Return the tile whose blocks run in clusters: ``cluster`` along rows and columns."""
    name = f"{tile.name} cluster {cluster[0]}x{cluster[1]}"
    return replace(tile, name=name, cluster=cluster)


@cache
def clusters(tile: Tile) -> tuple[Tile, ...]:
    """Return the tile in each of `CLUSTERS`; nothing for a tile that cannot run in clusters."""
    if tile.blocks > 1 or tile.lines < 64:
        return ()
    return tuple(clustered(tile, cluster) for cluster in CLUSTERS)


def lone(tile: Tile | WarpTile) -> Tile | WarpTile:
    """Return the tile without a cluster: clusters cannot continue sums."""
    return named(tile.base.split(" cluster")[0]) if isinstance(tile, Tile) else tile


ALONE = (  # without clusters
    Tile("128x256", 2, 256, 4),
    Tile("128x192", 2, 192, 4),
    Tile("128x128", 2, 128, 6),
    Tile("128x64", 2, 64, 8),
    Tile("192x192", 3, 192, 4),
    Tile("192x128", 3, 128, 5),
    Tile("64x64", 1, 64, 6, slabs=2),
    Tile("64x128", 1, 128, 8),
    Tile("64x192", 1, 192, 6),
    Tile("64x256", 1, 256, 4),
    Tile("turned 64x16 deep", 1, 16, 5, turned=True, slabs=4),
    Tile("turned 64x16 long", 1, 16, 10, turned=True, slabs=2),
    Tile("turned 64x16", 1, 16, 5, turned=True, blocks=2, slabs=2),
    Tile("turned 64x16 in threes", 1, 16, 6, turned=True, blocks=3),
    Tile("turned 64x32 deep", 1, 32, 8, turned=True, slabs=2),
    Tile("turned 8x16", 1, 16, 12, turned=True, slabs=4, lines=8),
    Tile("turned 16x16", 1, 16, 10, turned=True, slabs=4, lines=16),
    Tile("turned 32x16", 1, 16, 8, turned=True, slabs=4, lines=32),
    Tile("turned 16x32", 1, 32, 8, turned=True, slabs=4, lines=16),
    Tile("turned 32x32", 1, 32, 6, turned=True, slabs=4, lines=32),
    Tile("turned 64x32", 1, 32, 4, turned=True, blocks=2, slabs=2),
    Tile("turned 64x32 in threes", 1, 32, 6, turned=True, blocks=3),
    Tile("turned 64x48", 1, 48, 3, turned=True, blocks=2, slabs=2),
    Tile("turned 64x64", 1, 64, 3, turned=True, blocks=2, slabs=2),
    turned(1, 64),
    turned(1, 128),
    turned(1, 192),
    turned(2, 64),
    turned(2, 128),
)
_CLUSTERS = {
    "128x256": ((2, 1), (1, 2)),
    "128x192": ((2, 1), (1, 2)),
    "128x128": ((2, 1),),
    "192x192": ((1, 2),),
    "192x128": ((1, 2),),
    "64x128": ((4, 1),),
    "64x192": ((4, 1),),
    "turned 64x16 deep": ((1, 4), (4, 1)),
    "turned 64x64 deep": ((2, 2),),
    "turned 128x64": ((2, 2),),
}
TILES = (
    *ALONE,
    *(clustered(tile, way) for tile in ALONE for way in _CLUSTERS.get(tile.name, ())),
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
_SHORT = (  # rows, columns, warps along both, stages, blocks a multiprocessor
    (64, 8, (4, 1), 16, 3),
    (64, 16, (4, 1), 16, 3),
    (64, 32, (4, 2), 16, 3),
    (64, 64, (4, 2), 12, 3),
)
SHORT_TILES = tuple(
    WarpTile(f"short {i}x{j}", i, j, warps, stages, turned=True, short=blocks)
    for i, j, warps, stages, blocks in _SHORT
)
EVERY: tuple[Tile | WarpTile, ...] = (*TILES, *WARP_TILES, *THIN_TILES, *SHORT_TILES)
_BY_NAME = {tile.name: tile for tile in EVERY}


def named(name: str) -> Tile | WarpTile:
    """Return the tile of a name, which may end in " apart", " joined", " streamed" or " early".

    Tiles may have any multiple of 16 columns from 48 on, and any of `CLUSTERS`: "turned 128x144
    cluster 2x1".
    """
    base = base_of(name)
    tile = _BY_NAME.get(base) or _wide(base) or _in_cluster(base)
    if tile is None:
        raise ParameterError(f"tile: got {name!r}, need one of {', '.join(_BY_NAME)}")
    if base == name:
        return tile
    if name.endswith(EARLY) and isinstance(tile, Tile):
        return early(cast("Tile", named(name.removesuffix(EARLY))))
    if name.endswith(STREAMED) and isinstance(tile, Tile):
        return streamed(cast("Tile", named(name.removesuffix(STREAMED))))
    if name.endswith(APART):
        return apart(tile)
    if not joins(tile, CLUSTER_SIZES[0]):
        raise ParameterError(
            f"tile: got {name!r}, need before {JOINED!r} the name of a tile of warpgroups, "
            f"in a cluster of at most {CLUSTER_SIZES[-1] // 2} blocks, or with warps that copy"
        )
    return joined(tile)


@cache
def apart(tile: Tile | WarpTile) -> Tile | WarpTile:
    """Return the tile whose blocks compute one segment of a sum each."""
    return replace(tile, name=tile.name + APART, apart=True)


@cache
def joined(tile: Tile | WarpTile) -> Tile | WarpTile:
    """Return the tile whose segments are computed by different blocks of one cluster."""
    return replace(tile, name=tile.name + JOINED, joined=True)


@cache
def streamed(tile: Tile) -> Tile:
    """Return the tile of whose last ones each block, or cluster, computes an equal share."""
    return replace(tile, name=tile.name + STREAMED, streamed=True)


@cache
def early(tile: Tile) -> Tile:
    """Return the tile with launches that may begin before the previous launch has ended."""
    return replace(tile, name=tile.name + EARLY, early=True)


def joins(tile: Tile | WarpTile, n_segment: int) -> bool:
    """Whether the tile can be `joined` for sums of ``n_segment`` segments."""
    if isinstance(tile, WarpTile):
        return tile.copiers > 0 and 1 < n_segment <= CLUSTER_SIZES[-1]
    return n_segment > 1 and n_segment * tile.together in CLUSTER_SIZES


def _wide(name: str) -> Tile | None:
    """Return the tile of `turned` or `usual` with this name, or None."""
    found = re.fullmatch(r"(turned )?(\d+)x(\d+)(?: deep)?", name)
    if found is None:
        return None
    rows, columns = int(found[2]), int(found[3])
    if rows not in (64, 128, 192) or columns not in widths(rows // 64):
        return None
    tile = (turned if found[1] else usual)(rows // 64, columns)
    return tile if tile.name == name else None


def _in_cluster(name: str) -> Tile | None:
    """Return the tile of a name like "128x64 cluster 2x1", or None."""
    alone = name.split(" cluster ")[0]
    tile = _BY_NAME.get(alone) or _wide(alone)
    found = clusters(tile) if isinstance(tile, Tile) else ()
    return next((one for one in found if one.name == name), None)


@cache
def widths(groups: int) -> range:
    """Numbers of columns that tiles of ``groups`` warpgroups may have."""
    return range(48, (192 if groups == 3 else 256) + 1, 16)


def usable(tile: Tile, n_multi: int, n_segment: int = 1) -> int:
    """Return how many blocks a GPU of ``n_multi`` multiprocessors runs at a time.

    ``n_segment``: segments of the sum; they count if the tile is `joined`.
    """
    cluster = tile.together * (n_segment if tile.joined else 1)
    most = int(_FILLED[cluster] * n_multi * tile.blocks)
    return max(1, most // cluster) * cluster


def resident(tile: Tile, device: Device) -> int:
    """Blocks that a device runs at a time."""
    return usable(tile, multiprocessors(device))
