"""Tiles of products on tensor cores; all give the same bits."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

from rpukit import _device
from rpukit._device import Device, multiprocessors
from rpukit.errors import ParameterError

DEPTH = 64  # terms of a slab of a stage
SEGMENT = 4096  # terms after which a chain is restarted
SHARED = 226 * 1024  # bytes that a block may have
EARLY_STAGES = 12  # slabs, from which on a turned tile's launch begins early
CLUSTER_SIZES = 2, 3, 4, 5, 6, 8  # of joined tiles; a GPU has room for too few clusters of 7
GROUP = 8  # lines of tiles that advance along i together, so that neighbours share data in L2
_OTHER = 1536  # bytes of shared memory besides stages and results
_WORK = 40  # registers of a thread besides accumulators and sums
_PASSING = 12, 20  # and besides these to pass chains on, by several warpgroups and by one
_CLUSTERED = 0.91  # of an H200's multiprocessors, which clusters of 4 blocks can fill
_FEW, _SLABS = 64, 80  # columns up to which tiles of several blocks exist, and stages are longer
_UNITS = 16  # of a piece, at which `streamed` tiles are cut
_APART, _JOINED, _STREAMED = " apart", " joined", " streamed"  # endings of names


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
    apart: bool = False  # tiles that are fewer than the blocks are computed by segments
    cluster: tuple[int, int] = (1, 1)  # blocks with neighbouring rows and columns, which share
    slabs: int = 1  # 64 terms each, of a stage
    joined: bool = False  # each block of a cluster computes one segment; the first adds them
    along: bool = False  # the factor of the columns has them along its lines in memory
    streamed: bool = False  # the last tiles are cut into equal shares, which pass chains on

    @property
    def base(self) -> str:
        """Name of the tile whose blocks compute whole sums."""
        return _base(self.name)

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
    def reads_alone(self) -> bool:
        """Whether one tile holds the batch, so that each block reads different weights."""
        return self.turned and self.columns <= 64

    def shared(self, wide: bool) -> int:
        """Bytes of shared memory; ``wide``: float32 results, which bypass it if turned."""
        return 1024 + self.stages * (self._stage + 16) + self._staging(wide) + 16

    def _staging(self, wide: bool) -> int:
        boxes = 8192 * (1 if self.groups == 3 else 2)
        return self.groups * (boxes if not self.turned else 0 if wide else self.columns * 128)

    @property
    def _stage(self) -> int:
        """Bytes of a stage; columns along memory come in boxes of 64."""
        columns = -(-self.columns // 64) * 64 if self.along else self.columns
        return (self.rows + columns) * 2 * DEPTH * self.slabs

    def for_columns(self, along: bool) -> Tile:
        """Return the tile with as many stages as there is room for, if its columns lie so."""
        if not along or self.columns % 64 == 0:
            return self
        tile = replace(self, along=True)
        room = SHARED // self.blocks - _OTHER - tile._staging(wide=False)
        return replace(tile, stages=min(self.stages, room // tile._stage))

    @property
    def held(self) -> tuple[int, int]:
        """How many of a thread's sums of segments are in its registers, and in shared memory."""
        sums, free = self.columns // 2, {2: 232, 3: 152}.get(self.groups, 224)
        if self.blocks > 1:
            free = 256 // self.blocks
        held = min(sums, (free - sums - _WORK) // 4 * 4)
        if self.streamed and held < sums:  # what else it takes to pass chains on
            held -= _PASSING[self.groups == 1]
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
            **({"SLABS": self.slabs} if self.slabs > 1 else {}),
            **({"CLUSTER": self.together, "CI": self.cluster[0]} if self.together > 1 else {}),
        }

    def segment_macros(
        self, n_segment: int, segment: int = SEGMENT, *, streams: bool = False
    ) -> dict[str, int]:
        """Macros for a sum of ``n_segment`` segments, of ``segment`` terms each but the last.

        ``streams``: whether there is enough work for a tile that is `streamed`.
        """
        stream = {"STREAM": 1} if streams else {}
        if n_segment <= 1:
            return {"PARTS": 0, **stream}
        if self.joined:
            return {"PARTS": 3, "SEGMENT": segment, "CLUSTER": n_segment}
        held, staged = self.held
        parts = 2 if self.apart else 1
        return {"PARTS": parts, "SEGMENT": segment, "HELD": held, "STAGED": staged, **stream}

    def segment_memory(
        self, count: int, n_segment: int, blocks: int, *, streams: bool = False
    ) -> tuple[int, int]:
        """Sizes of `_turns.Parts` for ``count`` tiles, computed by ``blocks`` blocks."""
        turns = room = 0
        several = n_segment > 1 and not self.joined
        if several:
            rest = count % blocks if self.apart else 0
            turns = rest * self.groups
            room = (
                blocks * 128 * self.groups * self.left
                + rest * n_segment * self.rows * self.columns
            )
        if streams:
            turns += 1 + blocks * self.groups
            sums = 2 if several and not self.apart else 1  # and the accumulators of a chain
            room += blocks * sums * self.rows * self.columns
        return turns, room

    def streams(self, count: int, depth: int, workers: int, segment: int = SEGMENT) -> bool:
        """Whether equal shares of the last of ``count`` tiles are no shorter than a piece.

        A piece is a tile, or a segment if the tile is `apart`. ``workers``: blocks that run at a
        time, or clusters of them; ``depth``: terms of the sum.
        """
        if not self.streamed or depth == 0:
            return False
        count //= self.together
        if not self.apart or depth <= segment:
            return count >= workers
        n_unit = min(_UNITS, segment // (DEPTH * self.slabs))
        return count % workers * -(-depth * n_unit // segment) // workers >= n_unit

    @property
    def together(self) -> int:
        """Blocks of a cluster, each of which fetches a part of what several of them need."""
        return self.cluster[0] * self.cluster[1]

    @property
    def goes_on(self) -> bool:
        """Whether the tile may begin with sums, or add its own to some."""
        return self.together == 1 and (self.turned or self.columns % 64 == 0)

    def count(self, n_rows: int, n_columns: int) -> int:
        """Number of tiles of a product, given its rows and columns on the tensor core."""
        rows, columns = self.cluster[0] * self.rows, self.cluster[1] * self.columns
        return -(-n_rows // rows) * -(-n_columns // columns) * self.together


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
    apart: bool = False  # a block computes one segment of a sum
    short: int = 0  # blocks a multiprocessor: sums of at most `stages`; factors may begin anywhere

    @property
    def base(self) -> str:
        """Name of the tile whose blocks compute whole sums."""
        return _base(self.name)

    def valid(self, n_batch: int) -> bool:
        """Whether the tile takes the batch: always."""
        return n_batch > 0

    @property
    def threads(self) -> int:
        return 32 * (self.warps[0] * self.warps[1] + self.copiers)

    @property
    def anywhere(self) -> bool:
        """Whether factors may begin anywhere in memory."""
        return self.copiers > 0 or self.short > 0

    def shared(self, depth: int) -> int:
        """Bytes of shared memory for a sum of ``depth`` terms."""
        barriers = 16 * self.stages if self.copiers else 0
        stages = -(-depth // DEPTH) if self.short else self.stages
        return stages * (self.rows + self.columns) * 2 * DEPTH + barriers

    @property
    def macros(self) -> dict[str, int]:
        kind = {"SHORT": self.short, "COPIERS": self.copiers}
        return {
            "BI": self.rows,
            "BJ": self.columns,
            "WI": self.warps[0],
            "WJ": self.warps[1],
            "ST": self.stages,
            "OUT_T": int(self.turned),
            **{macro: number for macro, number in kind.items() if number},
        }

    def segment_memory(self, count: int, n_segment: int) -> tuple[int, int]:
        """Sizes of `_turns.Parts` for ``count`` tiles."""
        if n_segment <= 1 or not self.apart:
            return 0, 0
        warps = self.warps[0] * self.warps[1]
        return count * warps, count * n_segment * self.rows * self.columns

    def count(self, n_rows: int, n_columns: int) -> int:
        """Number of tiles of a product, given its rows and columns on the tensor core."""
        return -(-n_rows // self.rows) * -(-n_columns // self.columns)


@cache
def turned(groups: int, columns: int, blocks: int = 1) -> Tile:
    """Return the turned tile of 64 `groups` rows and as many stages as there is room for.

    Blocks of ``blocks`` neighbouring parts of the rows run as a cluster and share the columns.
    """
    few = groups == 1 and columns <= _FEW
    slabs = 2 if groups == 1 and columns <= _SLABS else 1
    line = 2 * DEPTH * slabs
    room = SHARED - _OTHER - groups * columns * 128
    stages = min(20 // slabs, room // ((64 * groups + columns) * line))
    name = f"turned {64 * groups}x{columns}" + " deep" * few
    tile = Tile(name, groups, columns, stages, turned=True, slabs=slabs)
    return clustered(tile, (blocks, 1)) if blocks > 1 else tile


@cache
def usual(groups: int, columns: int, blocks: int = 1) -> Tile:
    """Return the tile of 64 `groups` rows and any multiple of 16 columns; see `turned`."""
    room = SHARED - _OTHER - groups * 8192 * (1 if groups == 3 else 2)
    stages = min(8, room // ((64 * groups + columns) * 2 * DEPTH))
    tile = Tile(f"{64 * groups}x{columns}", groups, columns, stages)
    return clustered(tile, (blocks, 1)) if blocks > 1 else tile


def clustered(tile: Tile, cluster: tuple[int, int]) -> Tile:
    """Return the tile whose blocks run in clusters: ``cluster`` along rows and columns."""
    name = f"{tile.name} cluster {cluster[0]}x{cluster[1]}"
    return replace(tile, name=name, cluster=cluster)


def lone(tile: Tile | WarpTile) -> Tile | WarpTile:
    """Return the tile without a cluster: clusters cannot continue sums."""
    return named(tile.base.split(" cluster")[0]) if isinstance(tile, Tile) else tile


_USUAL = (
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
    "turned 64x64 deep": ((2, 2),),
    "turned 128x64": ((2, 2),),
}
TILES = (
    *_USUAL,
    *(clustered(tile, way) for tile in _USUAL for way in _CLUSTERS.get(tile.name, ())),
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
    """Return the tile of a name, which may end in " apart", " joined" or " streamed".

    Tiles may have any multiple of 16 columns from 48 on: "turned 128x144 cluster 2x1".
    """
    base = _base(name)
    tile = _BY_NAME.get(base) or _wide(base)
    if tile is None:
        raise ParameterError(f"tile: got {name!r}, need one of {', '.join(_BY_NAME)}")
    if base == name:
        return tile
    if name.endswith(_STREAMED) and isinstance(tile, Tile):
        return streamed(cast("Tile", named(name.removesuffix(_STREAMED))))
    if name.endswith(_APART):
        return apart(tile)
    if not joins(tile, CLUSTER_SIZES[0]):
        raise ParameterError(
            f"tile: got {name!r}, need the name of a tile of 64 rows, of at most "
            f"{_FEW} columns and without a cluster before {_JOINED!r}"
        )
    return joined(cast("Tile", tile))


def _base(name: str) -> str:
    """Return the name without the endings of `apart`, `joined` and `streamed`."""
    name = name.removesuffix(_STREAMED)
    return name.removesuffix(_APART if name.endswith(_APART) else _JOINED)


@cache
def apart(tile: Tile | WarpTile) -> Tile | WarpTile:
    """Return the tile whose blocks compute one segment of a sum each."""
    return replace(tile, name=tile.name + _APART, apart=True)


@cache
def joined(tile: Tile) -> Tile:
    """Return the tile computed by a cluster: a segment by each block, added by the first."""
    return replace(tile, name=tile.name + _JOINED, joined=True)


@cache
def streamed(tile: Tile) -> Tile:
    """Return the tile of whose last ones each block, or cluster, computes an equal share."""
    return replace(tile, name=tile.name + _STREAMED, streamed=True)


def joins(tile: Tile | WarpTile, n_segment: int) -> bool:
    """Whether the tile can be `joined` for sums of ``n_segment`` segments."""
    alone = isinstance(tile, Tile) and tile.groups == 1 and tile.together == 1
    return alone and tile.columns <= _FEW and n_segment in CLUSTER_SIZES


def _wide(name: str) -> Tile | None:
    """Return the tile of `turned` or `usual` with this name, or None."""
    found = re.fullmatch(r"(turned )?(\d+)x(\d+)(?: deep)?(?: cluster ([24])x1)?", name)
    if found is None:
        return None
    rows, columns, blocks = (int(x or 1) for x in found.groups()[1:])
    if rows not in (64, 128, 192) or columns not in widths(rows // 64):
        return None
    tile = (turned if found[1] else usual)(rows // 64, columns, blocks)
    return tile if tile.name == name else None


@cache
def widths(groups: int) -> range:
    """Numbers of columns that tiles of ``groups`` warpgroups may have."""
    return range(48, (192 if groups == 3 else 256) + 1, 16)


@cache
def has_warpgroups(device: Device) -> bool:
    """Whether a device has the warpgroup instructions of det_gemm_tensor.cu."""
    if device.kind == "cpu":
        return True
    return str(_device.cupy().cuda.Device(device.index).compute_capability) == "90"


def usable(tile: Tile, n_multi: int) -> int:
    """Blocks that a GPU of ``n_multi`` multiprocessors runs at a time."""
    most = n_multi * tile.blocks
    if tile.together > 2 or tile.joined:  # not all multiprocessors have a place in a cluster
        most = int(_CLUSTERED * most)
    return max(1, most // tile.together) * tile.together


def resident(tile: Tile, device: Device) -> int:
    """Blocks that a device runs at a time."""
    return usable(tile, multiprocessors(device))
