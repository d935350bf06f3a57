"""Choose a tile for a product of float32 or float64, and how many blocks share it."""

from __future__ import annotations

from functools import cache

from rpukit.gemm._tiles.real_paces import microseconds
from rpukit.gemm._tiles.real_tiles import (
    DOUBLE_TILES,
    FLOAT_TILES,
    IN_TURNS,
    SPLITS,
    STREAMED,
    WORDS,
    Problem,
    RealTile,
    Way,
    room_at_once,
    shares,
)

_FEW = 16  # blocks a multiprocessor, up to which copying threads were found to pay
_MOST_SHARED = 1 << 15  # bytes of the results of a tile that several blocks share, at most
_MOST_TURNS, _MOST_AT_ONCE = 256, 1 << 26  # segments of a sum; bytes of their results
_LEAST_STREAMED, _MOST_ROUNDS = 32, 8  # rows of tiles that are streamed; rounds of their pieces
_NO_TURNS = ("128x128", "128x128 tensor")  # which lose by them
_NEAR = {4: 6, 8: 8}  # ways that are timed, by the bytes of an element
_NEARLY = 1.4  # their time by the model, at most, as a multiple of the least
_OF_BATCH, _ALIKE = 4, 2  # so many of them for the exact batch; of one tile
_TIMED = (2.8, 2e4)  # microseconds of a product: where ways differ, and in less than a second


@cache
def pick(problem: Problem, tensor: bool, n_multi: int = 132, most: int = 1) -> Way:
    """Choose the tile of a product, and the number of blocks that share it: at most ``most``.

    ``tensor``: the tensor cores are known to compute the chain.
    """
    return min(
        ways(problem, tensor, n_multi, most),
        key=lambda way: microseconds(way.tile, way.split, problem, n_multi),
    )


@cache
def candidates(problem: Problem, tensor: bool, n_multi: int, most: int, n_batch: int) -> list[Way]:
    """Ways that may be the fastest, the choice of `pick` first; ``n_batch``: as times are kept."""
    first, near = pick(problem, tensor, n_multi, most), _NEAR[problem.size]
    if not _TIMED[0] <= microseconds(first.tile, first.split, problem, n_multi) <= _TIMED[1]:
        return [first]
    found = [first]
    for size in (problem, problem._replace(m=n_batch)):
        times = {
            way: microseconds(way.tile, way.split, size, n_multi)
            for way in ways(size, tensor, n_multi, most)
        }
        limit = _NEARLY * min(times.values())
        for way in sorted(times, key=times.__getitem__):
            enough = min(_OF_BATCH, near) if size is problem else near
            alike = sum(way.tile is one.tile for one in found)
            if len(found) < enough and times[way] <= limit and alike < _ALIKE and way not in found:
                found.append(way)
    return found


def ways(problem: Problem, tensor: bool, n_multi: int, most: int) -> list[Way]:
    """List the ways that may be the fastest: tiles, and how many blocks share one."""
    tiles = DOUBLE_TILES if problem.size == 8 else FLOAT_TILES
    return [
        Way(tile, split)
        for tile in tiles
        if not (tile.across and problem.trans_b) and (tensor or not tile.tensor)
        for split in (*SPLITS[: 1 + SPLITS.index(most)], *(WORDS if most > 1 else ()))
        if _may_win(tile, split, problem, n_multi)
    ]


def _may_win(tile: RealTile, split: int, problem: Problem, n_multi: int) -> bool:
    """Whether a tile can be split like this, and may then be the fastest."""
    m, n, size, n_segment = problem.m, problem.n, problem.size, problem.n_segment
    parts = problem.parts(split)
    if tile.copiers and parts * tile.count(m, n) > _FEW * n_multi:
        return False
    if split > 0:
        small = split == 1 or tile.rows * tile.columns * size <= _MOST_SHARED
        return small and parts < 2 * n_segment and tile.splits_by(split)
    if n_segment > _MOST_TURNS or tile.name in _NO_TURNS:
        return False
    if split != IN_TURNS and room_at_once(tile, m, n, n_segment) * size > _MOST_AT_ONCE:
        return False
    return _streams(tile, problem, n_multi) if split == STREAMED else n_segment > 1


def _streams(tile: RealTile, problem: Problem, n_multi: int) -> bool:
    """Whether equal shares may be faster, since a last round of whole segments is not full."""
    blocks = shares(tile, problem, n_multi)
    if tile.rows < _LEAST_STREAMED or not blocks:
        return False
    pieces = tile.count(problem.m, problem.n) * problem.n_segment
    return pieces % blocks > 0 and pieces <= _MOST_ROUNDS * blocks
