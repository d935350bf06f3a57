"""Tiles of products of float32 and float64, and the choice among them; all give the same bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

SEGMENT = 1024  # terms after which a chain of a product is restarted
LONG_SEGMENT = 16384  # the same of analog tiles and of tiled training
SPLITS = (1, 2, 4, 8)  # blocks that may share a tile: they make different segments
IN_TURNS = 0  # a block makes one segment, and blocks add theirs to the result in turns
AT_ONCE = -1  # a block makes one segment, and the last block, or several, add all of them
# Blocks make equal shares of all segments: one that is cut goes on in the next block.
STREAMED = -2
_LEAST_SHARED = 200  # numbers that a thread adds, from which several blocks share them
_SHARED, _SHARED_OF_BLOCK = 233472, 232448  # bytes of shared memory of a multiprocessor


@dataclass(frozen=True, slots=True)
class RealTile:
    """Part of the result that a block computes at a time."""

    rows: int
    columns: int
    depth: int  # of the sum, a stage
    rows_per_thread: int
    columns_per_thread: int
    stages: int
    tensor: bool = False  # float64 on tensor cores: the same chain
    turn: bool = False  # copies transpose factors along the sum, or with `copiers` across it
    across: bool = False  # for a b whose columns lie along its lines
    copiers: int = 0  # threads that only copy, so that few results take the time of their chains
    held: tuple[int, int] | None = None  # depth and stages beside the sums of segments
    most: int = 16  # blocks a multiprocessor, for which it has registers
    bound: bool = False  # whether the compiler is told to leave registers for that many
    beside: int = 0  # blocks a multiprocessor, for which it gives up stages
    word: str = ""  # for its name, of two of one size

    @property
    def name(self) -> str:
        kind = " tensor" * self.tensor + " few" * (self.copiers > 0)
        return f"{self.rows}x{self.columns}{kind}{self.word}"

    def count(self, m: int, n: int) -> int:
        """Count the tiles of a result of m rows and n columns."""
        return -(-m // self.rows) * -(-n // self.columns)

    @property
    def threads(self) -> int:
        """Number of threads of a block."""
        each = self.rows // self.rows_per_thread * (self.columns // self.columns_per_thread)
        return each + self.copiers

    @property
    def macros(self) -> dict[str, int]:
        return {
            "TILE_M": self.rows,
            "TILE_N": self.columns,
            "TILE_K": self.depth,
            "RM": self.rows_per_thread,
            "RN": self.columns_per_thread,
            "ST": self.stages,
            "DMMA": int(self.tensor),
            "TURN": int(self.turn),
            "COPIERS": self.copiers,
            "BLOCKS": self.most if self.bound else 1,
        }

    def shared(self, trans_a: bool, trans_b: bool, size: int, room: str = "") -> int:
        """Bytes of shared memory, for elements of `size` bytes; ``room``: see `fitted`."""
        unit = 4 if self.tensor else 16 // size
        elements = 0
        for lines, across in ((self.rows, trans_a), (self.columns, not trans_b)):
            turned = self.turn and across == (self.copiers > 0)
            padding = 0 if across and not turned and not self.tensor else unit
            if across != turned:
                elements += self.depth * (lines + padding)
            else:
                elements += lines * (self.depth + padding)
        stages, results = elements * self.stages, self.rows * self.columns if room else 0
        barriers = 16 * self.stages if self.copiers else 0
        return barriers + size * (stages + results if room == "beside" else max(stages, results))

    def fitted(
        self, trans_a: bool, trans_b: bool, size: int, limit: int, room: str = ""
    ) -> RealTile:
        """Return the tile with as many of its stages as fit into shared memory.

        ``room``: where the sums of segments are: "beside" the stages, in their "place", or not in
        shared memory.
        """
        depth, stages = (self.depth, self.stages)
        if room == "beside":
            depth, stages = self.held or (depth, stages)
            limit -= self.rows * self.columns * size
        one = replace(self, depth=depth, stages=1).shared(trans_a, trans_b, size)
        if self.beside and not room:
            limit = min(limit, _SHARED // self.beside - 1024)
        least = 3 if self.copiers else 2
        return replace(self, depth=depth, stages=max(least, min(stages, limit // one)))

    def adds_shares(self, n_segment: int) -> bool:
        """Whether several blocks add the segments of a tile, each a share of its results."""
        each = self.rows_per_thread * self.columns_per_thread
        return each % 4 == 0 and each * n_segment >= _LEAST_SHARED

    def together(self, trans_a: bool, trans_b: bool, size: int, room: str) -> int:
        """Number of blocks that a multiprocessor runs at a time."""
        fitted = self.fitted(trans_a, trans_b, size, _SHARED_OF_BLOCK, room)
        shared = fitted.shared(trans_a, trans_b, size, room) + 1024
        return max(1, min(self.most, 2048 // self.threads, _SHARED // shared))

    def room(self, n_segment: int, split: int, add: int) -> str:
        """Where the sums of segments are, see `fitted`."""
        if split <= 0:
            return ""
        if split > 1:
            return "beside" if n_segment > split else "place"
        return "beside" if n_segment > 1 and add == 0 and (self.held or self.copiers) else ""


FLOAT_TILES = (
    RealTile(128, 128, 8, 16, 8, 8, turn=True, most=2),
    RealTile(64, 128, 16, 8, 8, 4, turn=True, held=(16, 3), most=3, bound=True),
    RealTile(64, 64, 32, 8, 4, 3, turn=True, held=(16, 3), most=4),
    RealTile(32, 64, 64, 4, 4, 4, held=(64, 4)),
    RealTile(32, 32, 64, 2, 4, 6, held=(64, 6)),
    RealTile(8, 64, 64, 2, 4, 4, held=(64, 4)),
    RealTile(4, 32, 256, 1, 1, 6, across=True, held=(256, 6)),
    RealTile(4, 16, 128, 1, 1, 7, held=(128, 7)),
    RealTile(4, 8, 128, 1, 1, 8, turn=True, copiers=64),
    RealTile(4, 16, 128, 1, 1, 8, copiers=64),
    RealTile(8, 16, 128, 2, 1, 8, turn=True, copiers=64),
    RealTile(8, 32, 128, 2, 1, 6, copiers=64),
    RealTile(16, 16, 64, 2, 2, 8, copiers=64),
    RealTile(16, 32, 64, 1, 4, 6, copiers=64),
    RealTile(16, 64, 64, 2, 4, 4, copiers=64),
    RealTile(32, 64, 64, 4, 4, 3, copiers=64),
    RealTile(128, 64, 16, 8, 8, 4, turn=True, held=(16, 3), most=3, bound=True),
    RealTile(96, 64, 16, 12, 4, 4, turn=True, held=(16, 4), most=4, bound=True),
    RealTile(32, 64, 32, 4, 4, 4, word=" flat", held=(32, 4)),
    RealTile(64, 32, 64, 4, 4, 3),
    RealTile(16, 32, 64, 4, 4, 4),
    RealTile(4, 64, 32, 1, 4, 6, across=True, held=(32, 6)),
    RealTile(4, 128, 32, 1, 4, 6, across=True, held=(32, 6)),
    RealTile(4, 128, 32, 1, 4, 3, across=True, held=(32, 6), word=" flat"),
    RealTile(1, 32, 64, 1, 1, 6, copiers=128),
    RealTile(1, 64, 64, 1, 1, 4, copiers=64),
)
DOUBLE_TILES = (
    RealTile(128, 128, 32, 8, 8, 3, tensor=True, most=1),
    RealTile(128, 64, 16, 8, 8, 3, tensor=True, most=2),
    RealTile(64, 64, 16, 4, 8, 4, tensor=True, most=3, beside=3),
    RealTile(32, 32, 32, 2, 4, 4, tensor=True, held=(32, 4), most=3),
    RealTile(64, 64, 16, 4, 4, 4, most=4),
    RealTile(32, 32, 16, 2, 2, 4, held=(16, 4)),
    RealTile(4, 32, 32, 1, 1, 10, held=(32, 9)),
    RealTile(16, 8, 128, 2, 2, 6, tensor=True, copiers=64),
    RealTile(16, 16, 128, 2, 2, 5, tensor=True, copiers=64),
    RealTile(16, 32, 32, 2, 2, 6, tensor=True, copiers=64),
    RealTile(16, 64, 32, 2, 4, 6, tensor=True, copiers=64),
    RealTile(32, 32, 32, 4, 4, 4, tensor=True, copiers=64),
    RealTile(64, 32, 32, 4, 4, 3, tensor=True, copiers=64),
    RealTile(4, 16, 64, 1, 1, 6, copiers=64),
    RealTile(80, 64, 16, 10, 4, 4, tensor=True, most=2),
    RealTile(48, 64, 32, 6, 4, 3, tensor=True, most=3),
    RealTile(32, 64, 16, 2, 8, 4, tensor=True, held=(16, 4), most=3),
    RealTile(64, 32, 16, 4, 4, 5, tensor=True, held=(16, 5), most=3),
    RealTile(96, 128, 32, 6, 8, 3, tensor=True, most=1),
    RealTile(32, 64, 32, 2, 8, 3, tensor=True, most=3, word=" deep"),
    RealTile(4, 64, 32, 1, 4, 6, across=True, held=(32, 6)),
    RealTile(4, 64, 16, 1, 4, 4, across=True, held=(32, 6), word=" flat"),
    RealTile(48, 64, 16, 6, 4, 4, tensor=True, most=3, word=" flat"),
    RealTile(1, 32, 32, 1, 1, 6, copiers=128),
    RealTile(1, 64, 32, 1, 1, 4, copiers=64),
)


class Problem(NamedTuple):
    """Product whose tile is to be chosen: sizes, layouts, and how the factors lie in memory."""

    m: int
    n: int
    k: int
    size: int  # bytes of an element
    trans_a: bool
    trans_b: bool
    whole: bool  # rows of the factors begin and end at multiples of 16 bytes
    segment: int = SEGMENT

    @property
    def n_segment(self) -> int:
        """Number of segments of a sum."""
        return -(-self.k // self.segment)


class Pace(NamedTuple):
    """Times of a tile, in microseconds: a launch's, and those of a step of the sum."""

    start: float
    step: float  # of a block, however few there are on its multiprocessor
    work: float  # of a block, where a multiprocessor has many
    ragged: float  # what rows that do not end at multiples of 16 bytes add, as a part
    upright: float  # what a b whose columns lie across its lines adds, as a part
    edge: float  # what tiles that reach beyond the result add, as a part
    long: float  # what sums of several segments in one block add, as a part


_FEW = 16  # blocks a multiprocessor, up to which copying threads were found to pay
_MOST_SHARED = 1 << 15  # bytes of the results of a tile that several blocks share, at most
# Fitted on an H200 to 5400 times of products of random shapes (tools/scan_tiles.py, fit_paces.py;
# seeds 8, 911 to 913, 2003, 2011, 2012, 6001, 6002, and those that lost of 1031, 1033 and 2110);
# tiles of one row to 390 times of 120 products of one row.
_PACES = {
    "128x128": Pace(5.08, 0.0922, 0.087, 0.0648, 0.0493, 0.0237, -0.0124),
    "64x128": Pace(4.34, 0.0445, 0.0403, 0.0234, 0.0492, 0.0361, 0.00928),
    "64x64": Pace(3.81, 0.0244, 0.0236, 0.0376, 0.0787, -0.00363, 0.00024),
    "32x64": Pace(3.36, 0.0174, 0.0126, 0.164, 0.156, 0.09, -0.0267),
    "32x32": Pace(2.4, 0.00806, 0.00896, 0.203, 0.0548, 0.139, -0.0386),
    "8x64": Pace(2.85, 0.00618, 0.00654, 0.123, 0.1, 0.183, 0.000377),
    "4x32": Pace(1.9, 0.00314, 0.00511, 0.186, 0.0, 0.0358, 0.0342),
    "4x16": Pace(2.21, 0.00374, 0.00283, 0.271, -0.235, 0.0, 0.0),
    "4x8 few": Pace(1.82, 0.00271, 0.00236, 0.0644, -0.126, -0.0571, 0.0212),
    "4x16 few": Pace(2.0, 0.00315, 0.00337, 0.217, -0.143, -0.087, -0.103),
    "8x16 few": Pace(2.24, 0.00331, 0.00335, 0.124, -0.0912, -0.0371, -0.0291),
    "8x32 few": Pace(2.19, 0.00479, 0.00477, 0.259, 0.000418, -0.0889, 0.0227),
    "16x16 few": Pace(2.05, 0.00457, 0.00506, 0.143, 0.000573, -0.109, 0.0315),
    "16x32 few": Pace(2.0, 0.00615, 0.00682, 0.304, 0.106, -0.0662, -0.035),
    "16x64 few": Pace(2.32, 0.0102, 0.0102, 0.103, 0.17, -0.0842, -0.0415),
    "32x64 few": Pace(3.75, 0.019, 0.0158, 0.249, 0.0206, 0.00309, 0.0),
    "128x64": Pace(4.86, 0.0468, 0.0428, 0.0008, 0.0482, 0.000385, 0.00539),
    "96x64": Pace(4.39, 0.0356, 0.0323, 0.0065, 0.0583, 0.046, 0.0184),
    "32x64 flat": Pace(3.34, 0.013, 0.0124, 0.0969, 0.0939, 0.0678, 0.0181),
    "64x32": Pace(4.19, 0.0137, 0.0126, 0.167, 0.152, 0.0269, 0.00015),
    "16x32": Pace(4.0, 0.0115, 0.00466, 0.0791, 0.154, 0.0852, 0.00934),
    "4x64": Pace(1.94, 0.0055, 0.0068, 0.25, 0.0, 0.0244, -0.0304),
    "4x128": Pace(1.76, 0.0104, 0.0115, 0.136, 0.0, 0.0167, -0.00339),
    "4x128 flat": Pace(2.04, 0.0126, 0.0126, 0.135, 0.0, 0.0144, -0.0119),
    "1x32 few": Pace(1.71, 0.00333, 0.00431, 0.1, -0.0827, 0.00206, -0.015),
    "1x64 few": Pace(1.49, 0.0037, 0.00701, 0.306, 0.0485, 0.0623, 0.00501),
}
_DOUBLE_PACES = {
    "128x128 tensor": Pace(7.56, 0.0683, 0.0727, 0.111, 0.0451, 0.0943, 0.0412),
    "128x64 tensor": Pace(2.86, 0.045, 0.0351, 0.0969, 0.038, 0.0403, 0.0388),
    "64x64 tensor": Pace(3.1, 0.0226, 0.0173, 0.134, 0.0753, 0.0626, 0.0598),
    "32x32 tensor": Pace(2.77, 0.00757, 0.00775, 0.261, 0.068, -0.0387, 0.0419),
    "64x64": Pace(3.37, 0.0529, 0.051, 0.0, 0.0376, 0.0704, -0.0126),
    "32x32": Pace(2.64, 0.0248, 0.0229, 0.0767, 0.014, 0.038, 0.03),
    "4x32": Pace(2.29, 0.00704, 0.00845, -0.0138, 0.0326, 0.0563, 0.0),
    "16x8 tensor few": Pace(2.12, 0.00355, 0.0035, 0.0563, 0.0177, 0.00637, 0.037),
    "16x16 tensor few": Pace(2.19, 0.00414, 0.00484, 0.0823, 0.0248, 0.102, -0.0948),
    "16x32 tensor few": Pace(1.82, 0.00571, 0.00622, 0.287, 0.122, 0.0145, 0.00699),
    "16x64 tensor few": Pace(1.84, 0.00871, 0.0108, 0.298, 0.212, -0.0848, 0.0),
    "32x32 tensor few": Pace(2.83, 0.0106, 0.0102, 0.0209, 0.068, -0.0607, 0.000378),
    "64x32 tensor few": Pace(2.01, 0.0214, 0.0214, 0.0632, -0.0834, 0.125, -0.02),
    "4x16 few": Pace(2.09, 0.00443, 0.00468, -0.0116, -0.059, 0.0722, -0.0224),
    "80x64 tensor": Pace(2.97, 0.0336, 0.0234, 0.0992, 0.0583, 0.0642, 0.0499),
    "48x64 tensor": Pace(3.47, 0.0166, 0.0143, 0.128, 0.0442, 0.0711, 0.0565),
    "32x64 tensor": Pace(2.69, 0.0162, 0.0115, 0.141, 0.126, 0.00981, 0.000913),
    "64x32 tensor": Pace(2.88, 0.0142, 0.0111, 0.183, 0.0337, 0.000693, 0.000503),
    "96x128 tensor": Pace(3.5, 0.0481, 0.0523, 0.0658, 0.0801, 0.0553, 0.0398),
    "32x64 tensor deep": Pace(2.7, 0.0152, 0.0124, 0.168, 0.0971, 0.0182, 0.0517),
    "4x64": Pace(2.29, 0.0111, 0.0141, -0.0248, 0.0, 0.0426, 0.0182),
    "4x64 flat": Pace(2.49, 0.0144, 0.0144, -0.0202, 0.0, 0.0458, 0.0182),
    "48x64 tensor flat": Pace(4.93, 0.0184, 0.0142, 0.16, 0.0192, 0.0554, 0.0458),
    "1x32 few": Pace(1.71, 0.0051, 0.00779, 0.00552, 0.0563, 0.00843, -0.00946),
    "1x64 few": Pace(1.62, 0.006, 0.0161, 0.0175, 0.0128, 0.00882, -0.00636),
}
# What blocks that share a tile add to segments of 1024 terms, as a part, by the bytes of an
# element and their number.
_SHARING = {
    4: {1: 0.0, 2: 0.153, 4: 0.153, 8: 0.185, IN_TURNS: 0.08, AT_ONCE: 0.0, STREAMED: 0.04},
    8: {1: 0.0, 2: 0.181, 4: 0.197, 8: 0.278, IN_TURNS: 0.08, AT_ONCE: 0.0, STREAMED: 0.1},
}
# Microseconds on an H200: of each turn that nothing hides, by the bytes of an element; of the last
# block, which adds all segments.
_TURN, _AT_ONCE = {4: 1.2, 8: 2.3}, 1.5
_READ, _KEPT = 1e5, 2e6  # bytes a microsecond that the last block reads; that all blocks write
_WRITTEN = 4e6  # bytes a microsecond of results
# Microseconds of the begin and end of each further round of blocks, by the bytes of an element and
# whether some threads only copy.
_ROUND = {(4, False): 0.9, (4, True): 1.5, (8, False): 0.7, (8, True): 2.3}
_PASS = 3.0  # microseconds of passing chains on
_MOST_TURNS, _MOST_AT_ONCE = 256, 1 << 26  # segments of a sum; bytes of their results
_LEAST_STREAMED, _MOST_ROUNDS = 32, 8  # rows of tiles that are streamed; rounds of their pieces
_NO_TURNS = ("128x128", "128x128 tensor")  # which lose by them
# Part of an H200's multiprocessors that clusters of 4 and 8 blocks can fill.
_CLUSTERED = {4: 0.93, 8: 0.91}

WORDS = {IN_TURNS: "turns", AT_ONCE: "at once", STREAMED: "streamed"}


class Way(NamedTuple):
    """Tile size of a product, and how many blocks work on each tile."""

    tile: RealTile
    split: int

    @property
    def name(self) -> str:
        return f"{self.tile.name} / {WORDS.get(self.split, self.split)}"

    def valid(self, n_batch: int) -> bool:
        """Whether the tile takes the batch: always."""
        return n_batch > 0


_NEAR, _NEARLY = 6, 1.4  # ways that are timed; their time by the model, as a multiple of the least
_OF_BATCH, _ALIKE = 3, 2  # so many of them for the exact batch; of one tile
_TIMED = (2.8, 2e4)  # microseconds of a product: where ways differ, and in less than a second


@cache
def pick(problem: Problem, tensor: bool, n_multi: int = 132, most: int = 1) -> Way:
    """Choose the tile of a product, and how many blocks share it, at most `most`.

    ``tensor``: the tensor cores are known to compute the chain.
    """
    return min(
        ways(problem, tensor, n_multi, most),
        key=lambda way: microseconds(way.tile, way.split, problem, n_multi),
    )


@cache
def candidates(problem: Problem, tensor: bool, n_multi: int, most: int, n_batch: int) -> list[Way]:
    """Ways that may be the fastest, the choice of `pick` first; ``n_batch``: as times are kept."""
    first = pick(problem, tensor, n_multi, most)
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
            enough = min(_OF_BATCH, _NEAR) if size is problem else _NEAR
            alike = sum(way.tile is one.tile for one in found)
            if len(found) < enough and times[way] <= limit and alike < _ALIKE and way not in found:
                found.append(way)
    return found


def ways(problem: Problem, tensor: bool, n_multi: int, most: int) -> list[Way]:
    """List the tiles and the numbers of blocks that share one, which may be the fastest."""
    tiles = DOUBLE_TILES if problem.size == 8 else FLOAT_TILES
    return [
        Way(tile, split)
        for tile in tiles
        if not (tile.across and problem.trans_b) and (tensor or not tile.tensor)
        for split in (*SPLITS[: 1 + SPLITS.index(most)], *(WORDS if most > 1 else ()))
        if _may_win(tile, split, problem, n_multi)
    ]


def _may_win(tile: RealTile, split: int, problem: Problem, n_multi: int) -> bool:
    """Whether a tile can be shared in this way, and may then be the fastest."""
    m, n, size, n_segment = problem.m, problem.n, problem.size, problem.n_segment
    parts = _parts(problem, split)
    if tile.copiers and parts * tile.count(m, n) > _FEW * n_multi:
        return False
    if split > 0:
        small = split == 1 or tile.rows * tile.columns * size <= _MOST_SHARED
        return small and parts < 2 * n_segment
    if n_segment > _MOST_TURNS or tile.name in _NO_TURNS:
        return False
    if split != IN_TURNS and room_at_once(tile, m, n, n_segment) * size > _MOST_AT_ONCE:
        return False
    return _streams(tile, problem, n_multi) if split == STREAMED else n_segment > 1


def _parts(problem: Problem, split: int) -> int:
    """Count the blocks that share a tile."""
    return split if split > 0 else problem.n_segment


def room_at_once(tile: RealTile, m: int, n: int, n_segment: int) -> int:
    """Count the partial sums that `AT_ONCE` and `STREAMED` keep: of all tiles and segments."""
    return tile.count(m, n) * tile.rows * tile.columns * n_segment


@cache
def shares(tile: RealTile, problem: Problem, n_multi: int) -> int:
    """Count the blocks that make equal shares, each as long as a segment at least.

    0 if that is less than one a multiprocessor, or if some threads only copy.
    """
    if tile.copiers:
        return 0
    m, n, k, size, trans_a, trans_b, _, segment = problem
    whole, last = (-(-x // tile.depth) for x in (min(k, segment), (k - 1) % segment + 1))
    stages = tile.count(m, n) * (whole * (problem.n_segment - 1) + last)
    together = tile.together(trans_a, trans_b, size, "")
    return n_multi * min(together, stages // (whole * n_multi))


def _streams(tile: RealTile, problem: Problem, n_multi: int) -> bool:
    """Whether equal shares may be faster: a last round of whole segments would not be full."""
    blocks = shares(tile, problem, n_multi)
    if tile.rows < _LEAST_STREAMED or not blocks:
        return False
    pieces = tile.count(problem.m, problem.n) * problem.n_segment
    return pieces % blocks > 0 and pieces <= _MOST_ROUNDS * blocks


def microseconds(tile: RealTile, split: int, problem: Problem, n_multi: int) -> float:
    """Estimate the time of a product: blocks share a multiprocessor, in rounds."""
    m, n, k, size, trans_a, trans_b, whole, segment = problem
    pace = (_DOUBLE_PACES if size == 8 else _PACES)[tile.name]
    parts = _parts(problem, split)
    each = -(-problem.n_segment // parts)  # segments of a block
    chain, mean = min(k, each * segment), k / min(parts, problem.n_segment)
    count = tile.count(m, n)
    together = tile.together(trans_a, trans_b, size, tile.room(problem.n_segment, split, 0))
    full = together * int(n_multi * _CLUSTERED.get(split, 1.0))  # blocks of a round
    rounds, blocks = divmod(count * parts, full)
    rest = -(-blocks // n_multi)
    if split > 0:
        time = rounds * max(pace.step * chain, together * pace.work * mean)
        if rest:
            time += max(pace.step * chain, rest * pace.work * mean)
    elif split == STREAMED:
        full = shares(tile, problem, n_multi)
        time = max(pace.work, pace.step * n_multi / full) * count * k / n_multi
    else:  # blocks of whole segments first, then those of the last one
        n_whole, terms = count * (k // segment), k % segment
        most = max(-(-n_whole // n_multi) * segment, count * k / n_multi)
        if terms and -n_whole % n_multi < count:
            most += terms / 2
        time = max(pace.step * min(k, segment) * (rounds + (blocks > 0)), pace.work * most)
    part = 1 + (0 if whole else pace.ragged) + (pace.upright if trans_b else 0)
    if m % tile.rows or n % tile.columns:
        part += pace.edge
    if problem.n_segment > 1 and split == 1:
        part += pace.long
    sharing = _SHARING[size][split] * min(1.0, SEGMENT / segment)  # once a segment
    start = pace.start
    if split == IN_TURNS:  # of the blocks that end together
        start += _TURN[size] * min(problem.n_segment, 1 + full / count)
    if split == STREAMED:
        start += _PASS
    if split == AT_ONCE or (split == STREAMED and problem.n_segment > 1):
        last = problem.n_segment * tile.rows * tile.columns * size
        start += _AT_ONCE + last / _READ + last * count / _KEPT
    further = max(0.0, count * parts / full - (split != STREAMED))  # a share has a part more
    start += _ROUND[size, tile.copiers > 0] * further + m * n * size / _WRITTEN
    return start + (part + sharing) * time
