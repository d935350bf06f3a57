"""Tiles of products of float32 and float64, and the choice among them; all give the same bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

SEGMENT = 1024  # terms after which a chain of a product is restarted
LONG_SEGMENT = 16384  # the same of analog tiles and of tiled training
SPLITS = (1, 2, 4, 8)  # blocks that may share a tile: they make different segments
IN_TURNS = 0  # a block makes one segment, and blocks add theirs to the result in turns
AT_ONCE = -1  # a block makes one segment, and the last block adds all of them
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
    turn: bool = False  # transpose factors that lie along the sum on the way to shared memory
    across: bool = False  # for a b whose columns lie along its lines
    copiers: int = 0  # threads that only copy, so that few results take the time of their chains
    held: tuple[int, int] | None = None  # depth and stages beside the sums of segments
    most: int = 16  # blocks a multiprocessor, for which it has registers
    beside: int = 0  # blocks a multiprocessor, for which it gives up stages

    @property
    def name(self) -> str:
        kind = " tensor" * self.tensor + " few" * (self.copiers > 0)
        return f"{self.rows}x{self.columns}{kind}"

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
        }

    def shared(self, trans_a: bool, trans_b: bool, size: int, room: str = "") -> int:
        """Bytes of shared memory, for elements of `size` bytes; ``room``: see `fitted`."""
        unit = 4 if self.tensor else 16 // size
        elements = 0
        for lines, across in ((self.rows, trans_a), (self.columns, not trans_b)):
            padding = 0 if across and not self.tensor else unit
            if across or self.turn:
                elements += self.depth * (lines + padding)
            else:
                elements += lines * (self.depth + padding)
        stages, results = elements * self.stages, self.rows * self.columns if room else 0
        return size * (stages + results if room == "beside" else max(stages, results))

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
    RealTile(64, 128, 16, 8, 8, 4, turn=True, held=(16, 3), most=3),
    RealTile(64, 64, 32, 8, 4, 3, turn=True, held=(16, 3), most=4),
    RealTile(32, 64, 64, 4, 4, 4, held=(64, 4)),
    RealTile(32, 32, 64, 2, 4, 6, held=(64, 6)),
    RealTile(8, 64, 64, 2, 4, 5, held=(64, 5)),
    RealTile(4, 32, 256, 1, 1, 6, across=True, held=(256, 6)),
    RealTile(4, 16, 128, 1, 1, 7, held=(128, 7)),
    RealTile(4, 16, 128, 1, 1, 8, copiers=64),
    RealTile(8, 32, 128, 2, 1, 4, copiers=64),
    RealTile(16, 32, 64, 1, 4, 6, copiers=64),
    RealTile(16, 64, 64, 2, 4, 4, copiers=64),
    RealTile(32, 64, 64, 4, 4, 3, copiers=64),
    RealTile(128, 64, 16, 8, 8, 4, turn=True, held=(16, 3), most=3),
    RealTile(96, 64, 16, 12, 4, 4, turn=True, held=(16, 4), most=4),
)
DOUBLE_TILES = (
    RealTile(128, 128, 32, 8, 8, 3, tensor=True, most=1),
    RealTile(128, 64, 16, 8, 8, 3, tensor=True, most=4),
    RealTile(64, 64, 16, 4, 8, 4, tensor=True, most=4, beside=3),
    RealTile(32, 32, 32, 2, 4, 4, tensor=True, held=(32, 4), most=3),
    RealTile(64, 64, 16, 4, 4, 4, most=4),
    RealTile(32, 32, 16, 2, 2, 4, held=(16, 4)),
    RealTile(4, 32, 32, 1, 1, 10, held=(32, 9)),
    RealTile(16, 16, 64, 2, 2, 6, tensor=True, copiers=64),
    RealTile(16, 32, 32, 2, 2, 6, tensor=True, copiers=64),
    RealTile(16, 64, 32, 2, 4, 6, tensor=True, copiers=64),
    RealTile(32, 32, 32, 4, 4, 4, tensor=True, copiers=64),
    RealTile(64, 32, 32, 4, 4, 3, tensor=True, copiers=64),
    RealTile(4, 16, 64, 1, 1, 6, copiers=64),
    RealTile(80, 64, 16, 10, 4, 4, tensor=True, most=2),
    RealTile(48, 64, 32, 6, 4, 3, tensor=True, most=3),
    RealTile(32, 64, 16, 2, 8, 4, tensor=True, held=(16, 4), most=4),
    RealTile(64, 32, 16, 4, 4, 5, tensor=True, held=(16, 5), most=4),
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
# Fitted to 322 products of random shapes on an H200 (tools/scan_tiles.py, seeds 911 to 913); by
# hand: `long` of 128x128 tensor, `ragged` of 128x64 tensor. Tiles of 32x64 results and more but
# these two, and 32x32 tensor: to 66 products of seeds 1031 and 2001 and whole tiles. Of the four
# ways that are timed the best one loses 1 to 2 %.
_PACES = {
    "128x128": Pace(4.51, 0.11, 0.0975, 0.077, 0.0911, 0.0293, 0.00527),
    "64x128": Pace(5.62, 0.0529, 0.0457, 0.147, 0.0669, 0.0453, 0.00639),
    "64x64": Pace(4.13, 0.0293, 0.0249, 0.0734, 0.0844, 0.0, 0.00835),
    "32x64": Pace(3.58, 0.0168, 0.0125, 0.151, 0.136, 0.138, 0.00652),
    "32x32": Pace(2.84, 0.00806, 0.00943, 0.249, -0.0239, 0.189, -0.02),
    "8x64": Pace(3.37, 0.00688, 0.00598, 0.28, 0.175, 0.303, 0.0118),
    "4x32": Pace(3.47, 0.00399, 0.00623, 0.708, 0.0, 0.0, 0.0362),
    "4x16": Pace(3.06, 0.00377, 0.00308, 0.501, -0.2, 0.0282, 0.00857),
    "4x16 few": Pace(2.91, 0.00362, 0.00386, 0.287, -0.2, 0.0, -0.02),
    "8x32 few": Pace(2.95, 0.00525, 0.00615, 0.402, -0.2, 0.0, -0.0199),
    "16x32 few": Pace(3.08, 0.00729, 0.00768, 0.216, -0.031, 0.0472, -0.02),
    "16x64 few": Pace(3.34, 0.00808, 0.00927, 0.287, 0.0262, 0.112, -0.02),
    "32x64 few": Pace(3.49, 0.0176, 0.0139, 0.484, 0.0238, 0.0813, -0.02),
    "128x64": Pace(6.1, 0.0527, 0.0458, 0.126, 0.0459, 0.0379, 0.00619),
    "96x64": Pace(4.63, 0.0426, 0.0354, 0.14, 0.0603, 0.0284, 0.00776),
}
_DOUBLE_PACES = {
    "128x128 tensor": Pace(7.0, 0.0683, 0.0835, 0.12, -0.0382, 0.0979, 0.03),
    "128x64 tensor": Pace(6.28, 0.0491, 0.044, 0.25, 0.0468, 0.0151, 0.022),
    "64x64 tensor": Pace(4.61, 0.0271, 0.0206, 0.132, 0.0481, 0.0, 0.0116),
    "32x32 tensor": Pace(3.33, 0.0101, 0.00764, 0.0867, 0.0303, 0.0222, 0.0133),
    "64x64": Pace(3.37, 0.0529, 0.051, 0.0, 0.0376, 0.0704, -0.0126),
    "32x32": Pace(2.64, 0.0248, 0.0229, 0.0767, 0.014, 0.038, 0.03),
    "4x32": Pace(2.32, 0.00704, 0.00876, 0.0227, 0.0, 0.104, 0.0109),
    "16x16 tensor few": Pace(2.58, 0.00346, 0.00477, 0.276, -0.112, 0.185, -0.02),
    "16x32 tensor few": Pace(2.6, 0.0065, 0.00653, 0.214, -0.00803, 0.134, -0.0164),
    "16x64 tensor few": Pace(2.92, 0.0092, 0.0105, 0.34, 0.0505, 0.101, -0.0197),
    "32x32 tensor few": Pace(3.56, 0.0116, 0.00927, 0.0877, 0.00443, 0.0759, -0.02),
    "64x32 tensor few": Pace(2.21, 0.0226, 0.0158, 0.151, -0.0852, 0.138, -0.02),
    "4x16 few": Pace(2.51, 0.00576, 0.00478, 0.0288, 0.0585, 0.0, -0.00823),
    "80x64 tensor": Pace(4.87, 0.031, 0.0271, 0.131, -0.0192, 0.0767, 0.0115),
    "48x64 tensor": Pace(3.51, 0.0212, 0.0168, 0.0991, 0.00584, 0.0394, 0.00932),
    "32x64 tensor": Pace(3.45, 0.0175, 0.0125, 0.108, -0.0211, 0.0329, 0.0119),
    "64x32 tensor": Pace(2.6, 0.0164, 0.012, 0.162, 0.0788, 0.0326, 0.01),
}
# What blocks that share a tile add to segments of 1024 terms, as a part, by the bytes of an
# element and their number.
_SHARING = {
    4: {1: 0.0, 2: 0.153, 4: 0.153, 8: 0.185, IN_TURNS: 0.08, AT_ONCE: 0.0},
    8: {1: 0.0, 2: 0.181, 4: 0.197, 8: 0.278, IN_TURNS: 0.08, AT_ONCE: 0.0},
}
# Microseconds on an H200: of each turn that nothing hides, by the bytes of an element; of the last
# block, which adds all segments.
_TURN, _AT_ONCE = {4: 1.2, 8: 2.3}, 1.5
_READ, _KEPT = 1e5, 2e6  # bytes a microsecond that the last block reads; that all blocks write
_MOST_TURNS, _MOST_AT_ONCE = 256, 1 << 25  # segments of a sum; bytes of their results
_NO_TURNS = ("128x128", "128x128 tensor")  # which lose by them
# Part of an H200's multiprocessors that clusters of 4 and 8 blocks can fill.
_CLUSTERED = {4: 0.93, 8: 0.91}

WORDS = {IN_TURNS: "turns", AT_ONCE: "at once"}


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


_NEAR, _NEARLY = 4, 1.4  # ways that are timed; their time by the model, as a multiple of the least
_TIMED = (4.0, 2e4)  # microseconds of a product: where ways differ, and in less than a second


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
    rounded = problem._replace(m=n_batch)
    times = {
        way: microseconds(way.tile, way.split, rounded, n_multi)
        for way in ways(rounded, tensor, n_multi, most)
    }
    near = sorted((way for way in times if way != first), key=times.__getitem__)
    limit = _NEARLY * min(times.values())
    return [first, *(way for way in near[: _NEAR - 1] if times[way] <= limit)]


def ways(problem: Problem, tensor: bool, n_multi: int, most: int) -> list[Way]:
    """List the tiles and the numbers of blocks that share one, which may be the fastest."""
    m, n, size = problem.m, problem.n, problem.size
    return [
        Way(tile, split)
        for tile in (DOUBLE_TILES if size == 8 else FLOAT_TILES)
        if not (tile.across and problem.trans_b) and (tensor or not tile.tensor)
        for split in (*SPLITS[: 1 + SPLITS.index(most)], *(WORDS if most > 1 else ()))
        if _parts(problem, split) < 2 * problem.n_segment
        and (split < 2 or tile.rows * tile.columns * size <= _MOST_SHARED)
        and (split > 0 or (1 < problem.n_segment <= _MOST_TURNS and tile.name not in _NO_TURNS))
        and (
            split != AT_ONCE or room_at_once(tile, m, n, problem.n_segment) * size <= _MOST_AT_ONCE
        )
        and (not tile.copiers or _parts(problem, split) * tile.count(m, n) <= _FEW * n_multi)
    ]


def _parts(problem: Problem, split: int) -> int:
    """Count the blocks that share a tile."""
    return split if split > 0 else problem.n_segment


def room_at_once(tile: RealTile, m: int, n: int, n_segment: int) -> int:
    """Count the partial sums that `AT_ONCE` keeps: those of all tiles and segments."""
    return tile.count(m, n) * tile.rows * tile.columns * n_segment


def microseconds(tile: RealTile, split: int, problem: Problem, n_multi: int) -> float:
    """Estimate the time of a product: blocks share a multiprocessor, in rounds."""
    m, n, k, size, trans_a, trans_b, whole, segment = problem
    pace = (_DOUBLE_PACES if size == 8 else _PACES)[tile.name]
    parts = _parts(problem, split)
    each = -(-problem.n_segment // parts)  # segments of a block
    chain, mean = min(k, each * segment), k / min(parts, problem.n_segment)
    together = tile.together(trans_a, trans_b, size, tile.room(problem.n_segment, split, 0))
    full = together * int(n_multi * _CLUSTERED.get(split, 1.0))  # blocks of a round
    rounds, blocks = divmod(tile.count(m, n) * parts, full)
    rest = -(-blocks // n_multi)
    time = rounds * max(pace.step * chain, together * pace.work * mean)
    if rest:
        time += max(pace.step * chain, rest * pace.work * mean)
    part = 1 + (0 if whole else pace.ragged) + (pace.upright if trans_b else 0)
    if m % tile.rows or n % tile.columns:
        part += pace.edge
    if problem.n_segment > 1 and split == 1:
        part += pace.long
    sharing = _SHARING[size][split] * min(1.0, SEGMENT / segment)  # once a segment
    start = pace.start
    if split == IN_TURNS:  # of the blocks that end together
        start += _TURN[size] * min(problem.n_segment, 1 + full / tile.count(m, n))
    if split == AT_ONCE:
        last = problem.n_segment * tile.rows * tile.columns * size
        start += _AT_ONCE + last / _READ + last * tile.count(m, n) / _KEPT
    return start + (part + sharing) * time
