"""The choice among tiles of products on tensor cores, by models of times and by measured ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from rpukit import _device
from rpukit._device import Device, multiprocessors
from rpukit._kernels import Kernel, tune
from rpukit._kernels.launch import recording
from rpukit._kernels.replay import Replay
from rpukit.gemm._tiles.tensor_paces import microseconds, warp_microseconds
from rpukit.gemm._tiles.tensor_tiles import (
    ALONE,
    BRIEF,
    DEPTH,
    SEGMENT,
    SHORT_TILES,
    THIN_TILES,
    Tile,
    WarpTile,
    apart,
    clusters,
    early,
    joined,
    joins,
    lone,
    named,
    streamed,
    turned,
    usable,
    usual,
    widths,
)
from rpukit.gemm._warpgroups import has_warpgroups
from rpukit.gemm.lines import Factor

Array = Any

_NEAR, _ALIKE = 10, 6  # tiles that are tried; of these at most with the same rows and columns
_FAR = 1.4  # what these may take by the model, beside the fastest
_SURE = 0.97  # part of a copying tile's time that one of warpgroups has to take to come first
_STEPS = 8  # numbers of rows between two powers of two for which times are stored
_MOST_PARTS = 8  # of the rows of a result, by turned tiles that are fitted to them
_GROUPED = 20  # tiles that are the fastest alone, which are tried in clusters
_MOST_ROUNDS = 8  # of tiles whose last ones may be streamed
_LONE = "64x128"  # of whole long sums, faster than the model says where blocks are few
_MOST_KEPT = 1 << 25  # bytes of the results of segments that blocks of their own leave


@cache
def pick(m: int, n: int, k: int, a_along: bool, b_along: bool, device: Device) -> Tile | WarpTile:
    """Choose the tile for a product of m rows, n columns and k terms, of aligned factors.

    ``a_along``, ``b_along``: a, b have their rows, columns along their lines in memory.
    """
    if not has_warpgroups(device):
        if m <= 16:
            return named("warps turned 32x16")
        return named("warps turned 64x64" if m <= 64 else "warps 128x128")
    return by_time(m, n, k, a_along, b_along, device)[0]


@cache
def pick_alone(
    m: int, n: int, k: int, a_along: bool, b_along: bool, device: Device
) -> Tile | WarpTile:
    """Choose as `pick` a tile that may begin with sums, or add its own to some."""
    first = pick(m, n, k, a_along, b_along, device)
    if not isinstance(first, Tile):
        return first
    every = by_time(m, n, k, a_along, b_along, device)
    return next(tile for tile in map(lone, every) if isinstance(tile, Tile) and tile.goes_on)


@cache
def by_time_of_all(
    m: int, n: int, k: int, a_along: bool, b_along: bool, begins: tuple[int, int], device: Device
) -> tuple[Tile | WarpTile, ...]:
    """List tiles of all kinds that may be the fastest, the fastest by the models first.

    Those that are estimated to be far slower than the fastest are left out. ``begins``: elements
    at whose multiples the rows of a and b begin in memory.
    """
    if not has_warpgroups(device):
        return ()
    others, n_multi = by_time(m, n, k, a_along, b_along, device), multiprocessors(device)
    times: dict[Tile | WarpTile, float] = {
        tile: warp_microseconds(tile, m, n, k, begins, (a_along, b_along), n_multi)
        for one in copying(min(begins), k)
        for tile in _ways(one, m, n, k, n_multi)
    }
    for other in others[: 2 * _NEAR]:
        estimate = microseconds(other, m, n, k, begins, (a_along, b_along), n_multi)
        times[other] = estimate / _SURE
    found = sorted(times, key=times.__getitem__)
    near = varied([x for x in found if times[x] <= _FAR * times[found[0]]])
    return tuple(_either(_tried(near, m, n, k, n_multi), k))


def _tried(tiles: Sequence[Tile | WarpTile], m: int, n: int, k: int, n_multi: int) -> list[Any]:
    """Return the tiles that are tried: the first `_NEAR`.

    `_LONE` takes the place of the last of them for long sums that need no more blocks of it than
    there are multiprocessors, and at least half as many.
    """
    first, lone = list(tiles[:_NEAR]), named(_LONE)
    fills = n_multi <= 2 * lone.count(m, n) <= 2 * n_multi
    if k <= SEGMENT or not fills or lone in first:
        return first
    return [*first[: _NEAR - 1], lone]


def _either(tiles: Sequence[Tile | WarpTile], k: int) -> list[Tile | WarpTile]:
    """Return the tiles; for a long sum also their `early` forms, whose launches overlap.

    Only tiles of one block a multiprocessor have such a form: others' blocks take the first
    places that become free, and crowd there.
    """
    if k <= BRIEF:
        return list(tiles)
    alone = (tile for tile in tiles if isinstance(tile, Tile) and tile.blocks == 1)
    return [*tiles, *map(early, alone)]


def varied(tiles: Sequence[Tile | WarpTile]) -> list[Tile | WarpTile]:
    """Keep at most `_ALIKE` tiles of the same rows and columns."""
    found: list[Tile | WarpTile] = []
    for tile in tiles:
        alike = [x for x in found if _sizes(x) == _sizes(tile)]
        if len(alike) < _ALIKE:
            found.append(tile)
    return found


def _sizes(tile: Tile | WarpTile) -> tuple[Any, ...]:
    return type(tile), tile.turned, tile.rows, tile.columns


def candidates(
    m: int, n: int, k: int, a_along: bool, b_along: bool, device: Device
) -> list[Tile | WarpTile]:
    """Tiles that may be the fastest, the choice of `pick` first."""
    first = pick(m, n, k, a_along, b_along, device)
    if not isinstance(first, Tile):
        return [first]
    rounded = tune.bucket(m, _STEPS)
    near = varied(by_time(rounded, n, k, a_along, b_along, device))
    found = list(dict.fromkeys([first, *near]))
    return _either(_tried(found, m, n, k, multiprocessors(device)), k)


@cache
def by_time(
    m: int, n: int, k: int, a_along: bool, b_along: bool, device: Device
) -> tuple[Tile, ...]:
    """Tiles of warpgroups for aligned factors, the fastest first."""
    least, n_multi = (64 if a_along else 16), multiprocessors(device)
    times: dict[Tile, float] = {}

    def least_of(one: Tile) -> float:
        """Estimate the time of each way of a tile, note it in `times`, and return the least."""
        tile = one.for_columns(a_along if one.turned else b_along)
        if _across(tile) > max(least, 2 * m):
            return math.inf
        found = {
            way: microseconds(way, m, n, k, (8, 8), (a_along, b_along), n_multi)
            for way in _ways(tile, m, n, k, n_multi)
        }
        times.update(found)
        return min(found.values())

    alone = {tile: least_of(tile) for tile in (*ALONE, *fitted(m), *fitted_columns(n))}
    for tile in sorted(alone, key=alone.__getitem__)[:_GROUPED]:
        for one in clusters(tile):
            least_of(one)
    return tuple(sorted(times, key=times.__getitem__))


def _across(tile: Tile) -> int:
    """Return how many rows of the result a tile, or its cluster, takes."""
    if tile.turned:
        return tile.columns * tile.cluster[1]
    return tile.rows * tile.cluster[0]


@cache
def fitted(m: int) -> tuple[Tile, ...]:
    """Turned tiles a whole number of which are hardly more than m rows."""
    widths_of = {-(-m // (16 * parts)) * 16 for parts in range(1, _MOST_PARTS + 1)}
    return tuple(
        turned(groups, columns)
        for columns in sorted(widths_of)
        for groups in (1, 2, 3)
        if columns in widths(groups)
    )


@cache
def fitted_columns(n: int) -> tuple[Tile, ...]:
    """Tiles a whole number of which are hardly more than n columns."""
    widths_of = {-(-n // (16 * parts)) * 16 for parts in range(1, _MOST_PARTS + 1)}
    return tuple(
        usual(groups, columns)
        for columns in sorted(widths_of)
        for groups in (1, 2, 3)
        if columns in widths(groups) and columns % 64
    )


def _ways(tile: Any, m: int, n: int, k: int, n_multi: int) -> list[Any]:
    """Return the tile, and those of its joined, apart and streamed forms that may be faster."""
    rows, columns = (n, m) if tile.turned else (m, n)
    count, n_segment = tile.count(rows, columns), -(-k // SEGMENT)
    # If there are more small blocks than multiprocessors, clusters crowd on some of these.
    fits = isinstance(tile, Tile) or count * n_segment <= n_multi
    ways = [tile, joined(tile)] if fits and joins(tile, n_segment) else [tile]
    most = usable(tile, n_multi) if isinstance(tile, Tile) else 0
    rest = count % most if most else count
    results = tile.accumulators if isinstance(tile, Tile) else tile.rows * tile.columns
    kept = 4 * rest * n_segment * results
    if n_segment > 1 and 0 < kept <= _MOST_KEPT:
        ways.append(apart(tile))
    if not most or rest == 0 or count > _MOST_ROUNDS * most:
        return ways
    more = [streamed(way) for way in ways if not way.joined]
    return [*ways, *(way for way in more if way.streams(count, k, most // tile.together))]


def copying(begin: int, k: int) -> list[WarpTile]:
    """Tiles with warps that copy which are meant for rows that begin at such multiples."""
    copiers = {8: (2,), 4: (2, 4, 8), 2: (2, 4, 8), 1: (8,)}[begin]
    thin = [tile for tile in THIN_TILES if tile.copiers in copiers]
    return thin + [tile for tile in SHORT_TILES if k <= tile.stages * DEPTH]


def fastest(
    kernel: Kernel,
    key: tuple[Any, ...],
    found: Sequence[Tile | WarpTile],
    make_trial: Callable[[], tune.Trial],
    p: Factor,
    q: Factor,
) -> Tile | WarpTile:
    """Choose the tile with the fastest trials, half of which find nothing in L2.

    Before each of these, other data are written there. Large factors do not stay there anyway, and
    would have to wait until those data have gone to memory, so nothing is written before them.
    """
    chosen: Tile | WarpTile = tune.choose(
        kernel,
        key,
        found,
        make_trial,
        n_batch=p.lines,
        device=_device.device_of(p.words),
        in_graph=True,
        cold=p.words.nbytes + q.words.nbytes < tune.STAYS,
        steps=_STEPS,
    )
    return chosen


def repeated(run: Callable[[Any], None], made: Array) -> tune.Trial:
    """Return a trial that replays launches: calls take the host longer than some products take."""
    ready: dict[Tile | WarpTile, Callable[[], None]] = {}

    def trial(tile: Tile | WarpTile) -> list[Array]:
        if tile in ready:
            ready[tile]()
        else:
            with recording() as launches:
                run(tile)
            ready[tile] = Replay(launches, [], any_stream=True)
        return [made]

    return trial
