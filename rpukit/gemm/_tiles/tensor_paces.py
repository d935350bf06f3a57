"""Models of the times of tiles of products on tensor cores, fitted on an H200."""

from __future__ import annotations

from typing import NamedTuple

from rpukit.gemm._tiles.tensor_tiles import DEPTH, SEGMENT, SHARED, Tile, WarpTile, usable

# Microseconds of 64 terms of the sum and of a tile besides them, of tiles of few columns where a
# multiprocessor has as many blocks as it can.
_PACES = {
    "turned 64x16 deep": (0.0581, 0.53),
    "turned 64x16 long": (0.0642, 0.46),
    "turned 64x16": (0.1324, 0.55),
    "turned 64x16 in threes": (0.2385, 0.52),
    "turned 64x32 deep": (0.0706, 0.38),
    "turned 64x32": (0.1753, 0.53),
    "turned 64x32 in threes": (0.2307, 1.48),
    "turned 64x48": (0.2361, 0.51),
    "turned 64x64": (0.2599, 0.59),
}
# The same of other tiles, by the columns that warpgroups multiply and by the lines of both factors
# that are fetched; a line that begins within a pair of sectors counts for more.
_COLUMN, _LINE, _STAGE, _SHARPER = 0.00122, 0.00056, 0.0734, 6.4
_CROSSED, _CROSSED_L2 = 1.24, 0.74
_CROSSED_FEW = 0.50, 0.15  # the same for tiles of few columns: as a part of the whole stage
_ALONG = 0.35  # as a part of a stage of few columns, copying whole boxes of those along memory
_END, _END_COLUMN, _END_TURNED = 0.27, 0.0021, 0.0037
_START, _CLUSTER = 2.18, 0.38  # microseconds of a launch, and more of one in clusters
_TOGETHER = 1.04  # how much longer a stage of a cluster takes
_FEWER = 0.96  # power of their number by which fewer blocks take less time
_LOOSE, _LOOSE_TURNED = 1.72, 1.46  # microseconds of 64 columns of results that begin anywhere
_L2, _MEMORY = 16.5e6, 4.10e6  # bytes a microsecond that tiles fetch; of each matrix once
_SOFT = 2.3  # power by which the slowest of several limits counts most
_MET, _MET_NARROW = 1.0, 0.8  # microseconds of adding segments by a cluster; of few lines
_MET_EACH = 0.05  # of each segment
_CUT = 1 / 32  # of a tile, by which shares of streamed tiles differ
_PASSING = 1.06, 1.12  # how much longer a stage then takes, of whole tiles and of segments
_PASS, _PASSED = 2.0, 0.01  # microseconds of passing a chain on; of a column of a tile
_JOIN, _JOINED = 2.0, 7.8e6  # microseconds of adding segments; bytes a microsecond
_COPY, _COPIED = 3.6, 5.6e6  # microseconds of a launch that copies; bytes a microsecond


def microseconds(
    tile: Tile,
    m: int,
    n: int,
    k: int,
    begins: tuple[int, int],
    along: tuple[bool, bool],
    n_multi: int,
) -> float:
    """Estimate the microseconds of a product by a tile of warpgroups, and of copying its factors.

    ``begins``, ``along``: elements at whose multiples rows of a and b begin in memory, and whether
    the sum runs across these.

    The constants are fitted to 2800 times of 200 random products on an H200, and some of them to
    the choice among the tiles of 520 more.
    """
    rows, columns = (n, m) if tile.turned else (m, n)
    count, steps = tile.count(rows, columns), -(-k // DEPTH)
    wide = -(-tile.columns // 64) * 64 if tile.along else tile.columns
    fetched = min(wide, columns) if tile.cluster[0] == 1 and not tile.along else wide
    lines = tile.rows / tile.cluster[1], fetched / tile.cluster[0]
    widths = [x if across else k for x, across in zip((m, n), along, strict=True)]
    crossing = widths[0] % 32 != 0, widths[1] % 32 != 0  # rows begin within pairs of sectors
    more = crossing[::-1] if tile.turned else crossing
    if tile.lines < 64:
        there = tile.rows, min(tile.columns, columns)
        stage, end = _narrow_pace(tile, there, widths[::-1], along[::-1]), _NARROW_END
    else:
        stage, end = _pace(tile, lines, more)
    n_segment = -(-k // SEGMENT)
    most = usable(tile, n_multi, n_segment)
    whole = 0 if tile.joined else count // most * most if tile.apart else count
    pieces = (count - whole) * n_segment
    if n % 8:
        across = tile.columns if tile.turned else min(tile.columns, -(-columns // 64) * 64)
        end += (_LOOSE_TURNED if tile.turned else _LOOSE) * across / 64
    from_l2 = sum(x * (1 + _CROSSED_L2 * cross) for x, cross in zip(lines, more, strict=True))
    streams = tile.streams(count, k, most // tile.together)
    if streams:
        work = (count / most + _CUT) * (steps * stage + end) * _PASSING[tile.apart]
    else:
        work = _rounds(whole, most, tile.blocks) * (steps * stage + end)
        stages = [-(-terms // DEPTH) for terms in (min(k, SEGMENT), (k - 1) % SEGMENT + 1)]
        times = [number * stage + end for number in stages]  # of a segment, of the last one
        if tile.joined:  # blocks of a cluster end together
            work += _rounds(pieces, most, tile.blocks) * times[0]
        else:
            work += _rounds_of_segments(count - whole, n_segment, stages, times, most, tile.blocks)
    limits = (
        work,
        2 * DEPTH * count * steps * from_l2 / _L2,
        2 * (m * k + k * n + m * n) / _MEMORY,
    )
    time: float = _START + sum(x**_SOFT for x in limits) ** (1 / _SOFT)
    time += _CLUSTER * (tile.together > 1) + (_PASS + _PASSED * tile.columns) * streams
    if tile.joined:
        time += (_MET if tile.lines == 64 else _MET_NARROW) + _MET_EACH * n_segment
    elif pieces:
        time += _JOIN + 8 * pieces * tile.accumulators / _JOINED
    copied = 2 * k * sum(x for x, begin in zip((m, n), begins, strict=True) if begin < 8)
    return time + (_COPY + 2 * copied / _COPIED if copied else 0.0)


def _rounds(work: int, most: int, blocks: int) -> float:
    """Rounds of ``work`` pieces by ``most`` blocks, ``blocks`` a multiprocessor."""
    rounds, rest = divmod(work, most)
    return rounds + float((-(-rest * blocks // most) / blocks) ** _FEWER)


def _rounds_of_segments(
    count: int, n_segment: int, stages: list[int], times: list[float], most: int, blocks: int
) -> float:
    """Estimate the microseconds of ``count`` tiles where a block computes one segment of one tile.

    ``stages``, ``times``: of a segment, and of the last one of a sum; ``most``, ``blocks``: see
    `_rounds`. Blocks that have one whole segment fewer take several last ones.
    """
    if count <= 0:
        return 0.0
    whole, last = count * (n_segment - 1), stages[1]
    busy = whole % most
    free, each = most - busy, 1 + stages[0] // (last + max(1, stages[0] // 16))
    taken = min(count, free * each) if busy else 0
    begun = whole // most * times[0] + -(-taken // free) * times[1]
    time = max(_rounds(whole, most, blocks) * times[0], begun)
    return time + _rounds(count - taken, most, blocks) * times[1]


def _pace(
    tile: Tile, lines: tuple[float, float], crossing: tuple[bool, bool]
) -> tuple[float, float]:
    """Estimate the microseconds of 64 terms of a tile, and of its begin and end."""
    known = _PACES.get(tile.base)
    if known is not None:
        slower = sum(x * cross for x, cross in zip(_CROSSED_FEW, crossing, strict=True))
        return known[0] * (1 + slower + _ALONG * tile.along), known[1]
    columns = tile.groups * tile.columns
    fetched = sum(x * (1 + _CROSSED * cross) for x, cross in zip(lines, crossing, strict=True))
    waiting = _LINE * fetched + _STAGE / tile.slabs
    stage = ((_COLUMN * columns) ** _SHARPER + waiting**_SHARPER) ** (1 / _SHARPER)
    stage *= _TOGETHER if tile.together > 1 else 1.0
    return stage, _END + (_END_TURNED if tile.turned else _END_COLUMN) * columns


# Microseconds of 64 terms of tiles of few lines: of the chain, by columns; of a sector of a line
# that the sum runs along, and of one of a row across it. Rows of 64 bytes at multiples of that are
# as quick as one sector.
_NARROW_CHAIN = {16: 0.0467, 32: 0.0502}
_SECTOR, _ROW_SECTOR, _NARROW_END = 0.00028, 0.00072, 0.65


def _narrow_pace(
    tile: Tile, lines: tuple[int, int], widths: list[int], along: tuple[bool, ...]
) -> float:
    """Estimate the microseconds of 64 terms of a tile of few lines.

    Of p and of q: ``lines`` that the tile fetches, ``widths`` of rows in memory, and whether they
    lie ``along`` these rows, so that the sum runs across.
    """
    fetched = 0.0
    for there, width, across in zip(lines, widths, along, strict=True):
        crosses = -(-width // 8) % 2  # every other row, if rows begin at multiples of 16 bytes
        if not across:
            fetched += _SECTOR * there * (4 + crosses)
        elif crosses and there > 8:
            fetched += _ROW_SECTOR * DEPTH * (0.5 + there / 16)
        else:
            fetched += _ROW_SECTOR * DEPTH * (1.5 if there > 16 and width % 32 else 1)
    return max(_NARROW_CHAIN[tile.columns], fetched)


class Paces(NamedTuple):
    """Microseconds of the parts of a product by copying warps; fitted to times on an H200."""

    start: float  # of a launch
    block: float  # of a block alone, besides its stages
    other: float  # of each block of a multiprocessor, one after another
    result: float  # of 1024 results of a block, likewise
    copy: dict[int, float]  # of a warp's turn to copy; elements at whose multiples rows begin
    crowded: dict[int, float]  # of the same where many warps copy
    through: float  # of a stage that goes through registers
    memory: float  # bytes a microsecond
    chains: dict[str, float]  # of 64 terms


_BY_COPIERS = Paces(
    start=1.42,
    block=0.8,
    other=0.245,
    result=0.114,
    copy={8: 0.0029, 4: 0.0057, 2: 0.0057, 1: 0.072},
    crowded={8: 0.0023, 4: 0.0017, 2: 0.0017, 1: 0.007},
    through=0.15,
    memory=11.2e6,
    chains={
        "thin 16x16/8": 0.072,
        "thin 16x8/2": 0.055,
        "thin 16x8/8": 0.055,
        "thin 32x16/4": 0.067,
        "thin 32x16/8": 0.074,
        "thin 64x16/4": 0.066,
        "thin 64x16/8": 0.076,
        "thin 64x32/8": 0.12,
        "thin 64x64/4": 0.14,
    },
)
_AT_ONCE = Paces(
    start=1.61,
    block=0.04,
    other=0.0,
    result=0.128,
    copy={8: 0.0, 4: 0.0, 2: 0.0, 1: 0.069},
    crowded={8: 0.0075, 4: 0.0029, 2: 0.0029, 1: 0.0167},
    through=0.2,
    memory=7.16e6,
    chains={
        "short 64x8": 0.085,
        "short 64x16": 0.101,
        "short 64x32": 0.145,
        "short 64x64": 0.176,
    },
)
_JOINED_WARPS, _MET_WARPS = 0.85, 0.6  # microseconds of adding segments, and by a cluster
_RESIDENT = 512  # threads that copy and multiply, of a multiprocessor at a time


def warp_microseconds(
    tile: WarpTile,
    m: int,
    n: int,
    k: int,
    begins: tuple[int, int],
    along: tuple[bool, bool],
    n_multi: int,
) -> float:
    """Estimate the time of a product by warps that copy: all of them, or some for the others."""
    paces = _AT_ONCE if tile.short else _BY_COPIERS
    parts = tile.parts(-(-k // SEGMENT))
    steps = -(-min(k, SEGMENT if parts > 1 else k) // DEPTH)
    n_block = tile.count(n, m) * parts
    most = min(tile.short or _RESIDENT // tile.threads, SHARED // (tile.shared(k) + 1024))
    turns = [
        _turns(lines, there, begin, whole)
        for lines, there, begin, whole in zip(
            (tile.columns, tile.rows), (m, n), begins, along, strict=True
        )
    ]
    copy, crowded = (
        sum(x * pace[begin] for x, begin in zip(turns, begins, strict=True))
        for pace in (paces.copy, paces.crowded)
    )
    copy += paces.through * (min(begins) == 1)
    chain = paces.chains[tile.base]
    if tile.short:
        alone = paces.block + steps * (copy * 32 / tile.threads + chain)
    else:
        alone = paces.block + copy + steps * max(chain, copy / tile.copiers)
    each = steps * crowded + paces.other + paces.result * tile.rows * tile.columns / 1024
    return (
        paces.start
        + -(-n_block // (n_multi * max(1, most))) * alone
        + -(-n_block // n_multi) * each
        + 2 * (k * (m + n) + m * n) / paces.memory
        + (_MET_WARPS if tile.joined else _JOINED_WARPS) * (parts > 1)
    )


def _turns(lines: int, there: int, begin: int, along: bool) -> float:
    """How often a warp copies for a stage of so many lines, of which some are there."""
    rows, width = (DEPTH, lines) if along else (min(lines, there), DEPTH)
    return rows * min(32, width // (8 if begin == 1 else begin)) / 32
