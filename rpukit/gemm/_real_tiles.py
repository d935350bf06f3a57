"""Tiles of products of float32 and float64, and the choice among them; all give the same bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

SEGMENT = 1024  # terms after which a chain of a product is restarted
LONG_SEGMENT = 16384  # the same of analog tiles and of tiled training
SPLITS = (1, 2, 4, 8)  # blocks that may share a tile: they make different segments
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

    @property
    def name(self) -> str:
        kind = " tensor" * self.tensor + " few" * (self.copiers > 0)
        return f"{self.rows}x{self.columns}{kind}"

    def count(self, m: int, n: int) -> int:
        """Number of tiles of a product of m rows and n columns."""
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
        least = 3 if self.copiers else 2
        return replace(self, depth=depth, stages=max(least, min(stages, limit // one)))

    def together(self, trans_a: bool, trans_b: bool, size: int, room: str) -> int:
        """Number of blocks that a multiprocessor runs at a time."""
        fitted = self.fitted(trans_a, trans_b, size, _SHARED_OF_BLOCK, room)
        shared = fitted.shared(trans_a, trans_b, size, room) + 1024
        return max(1, min(self.most, 2048 // self.threads, _SHARED // shared))

    def room(self, n_segment: int, split: int, add: int) -> str:
        """Where the sums of segments are, see `fitted`."""
        if split > 1:
            return "beside" if n_segment > split else "place"
        return "beside" if n_segment > 1 and add == 0 and (self.held or self.copiers) else ""


FLOAT_TILES = (
    RealTile(128, 128, 32, 16, 8, 3, turn=True, most=2),
    RealTile(64, 128, 32, 8, 8, 3, turn=True, held=(16, 3), most=4),
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
)
DOUBLE_TILES = (
    RealTile(128, 128, 32, 8, 8, 3, tensor=True, most=1),
    RealTile(128, 64, 16, 8, 8, 3, tensor=True, most=4),
    RealTile(64, 64, 16, 4, 8, 4, tensor=True, most=4),
    RealTile(32, 32, 16, 2, 4, 6, tensor=True, held=(16, 5)),
    RealTile(64, 64, 16, 4, 4, 4, most=4),
    RealTile(32, 32, 16, 2, 2, 4, held=(16, 4)),
    RealTile(4, 32, 32, 1, 1, 10, held=(32, 9)),
    RealTile(16, 16, 64, 2, 2, 6, tensor=True, copiers=64),
    RealTile(16, 32, 32, 2, 2, 6, tensor=True, copiers=64),
    RealTile(16, 64, 32, 2, 4, 6, tensor=True, copiers=64),
    RealTile(32, 32, 32, 4, 4, 4, tensor=True, copiers=64),
    RealTile(64, 32, 32, 4, 4, 3, tensor=True, copiers=64),
    RealTile(4, 16, 64, 1, 1, 6, copiers=64),
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
# Fitted to 214 products of random shapes on an H200 (tools/scan_tiles.py, seeds 911 and 912);
# the choice loses 3 to 4 % of the time of the fastest tile.
_PACES = {
    "128x128": Pace(3.73, 0.185, 0.0918, 0.0545, 0.238, 0.111, 0.0253),
    "64x128": Pace(4.46, 0.0591, 0.0428, 0.108, 0.283, 0.123, -0.0061),
    "64x64": Pace(3.89, 0.0327, 0.0267, 0.105, 0.173, 0.000855, -0.078),
    "32x64": Pace(3.24, 0.0158, 0.0145, 0.194, 0.178, 0.125, -0.0875),
    "32x32": Pace(2.56, 0.00874, 0.0107, 0.167, -0.0155, 0.141, -0.1),
    "8x64": Pace(3.4, 0.00722, 0.00651, 0.258, 0.129, 0.251, 0.0366),
    "4x32": Pace(3.16, 0.00302, 0.00642, 0.8, 0.0, 0.0378, 0.0362),
    "4x16": Pace(2.81, 0.00387, 0.00324, 0.534, -0.2, 0.0806, 0.00862),
    "4x16 few": Pace(2.74, 0.00383, 0.00421, 0.266, -0.2, 0.0, -0.1),
    "8x32 few": Pace(2.82, 0.00549, 0.00648, 0.402, -0.2, 0.0, -0.0307),
    "16x32 few": Pace(3.0, 0.00727, 0.0081, 0.164, -0.0598, 0.0856, -0.0673),
    "16x64 few": Pace(3.24, 0.00965, 0.0108, 0.3, 0.00458, 0.0, -0.1),
    "32x64 few": Pace(3.3, 0.019, 0.0154, 0.401, 0.0242, 0.0489, -0.1),
}
_DOUBLE_PACES = {
    "128x128 tensor": Pace(5.11, 0.0499, 0.0838, 0.135, -0.0465, 0.0993, -0.0193),
    "128x64 tensor": Pace(5.86, 0.0497, 0.0447, 0.00281, 0.0214, 0.0279, 0.0113),
    "64x64 tensor": Pace(3.68, 0.0279, 0.0208, 0.0509, -0.0108, 0.121, -0.000617),
    "32x32 tensor": Pace(2.72, 0.0107, 0.0087, 0.234, 0.0415, 0.0231, -0.0485),
    "64x64": Pace(3.3, 0.053, 0.0509, 0.0, 0.0422, 0.0635, -0.00869),
    "32x32": Pace(2.95, 0.0249, 0.0226, 0.0924, 0.0146, 0.0108, 0.03),
    "4x32": Pace(2.35, 0.00783, 0.00764, 0.00878, 0.0414, 0.185, 0.043),
    "16x16 tensor few": Pace(2.61, 0.0036, 0.00488, 0.273, -0.2, 0.248, -0.1),
    "16x32 tensor few": Pace(2.61, 0.00667, 0.00637, 0.248, 0.00298, 0.129, -0.0192),
    "16x64 tensor few": Pace(3.0, 0.00955, 0.0108, 0.347, 0.0335, 0.0756, -0.066),
    "32x32 tensor few": Pace(3.55, 0.0121, 0.00977, 0.11, -0.00954, 0.0313, -0.0219),
    "64x32 tensor few": Pace(2.09, 0.0265, 0.02, 0.0719, -0.138, 0.0, -0.1),
    "4x16 few": Pace(2.52, 0.00588, 0.00485, 0.0, 0.0484, 0.0276, 0.0105),
}
# What blocks that share a tile add, as a part, by their number and the bytes of an element.
_SHARING = {
    4: {1: 0.0, 2: 0.12, 4: 0.075, 8: 0.159},
    8: {1: 0.0, 2: 0.163, 4: 0.181, 8: 0.252},
}


@cache
def pick(
    problem: Problem, tensor: bool, n_multi: int = 132, most: int = 1
) -> tuple[RealTile, int]:
    """Choose the tile of a product, and how many blocks share it, at most `most`.

    ``tensor``: the tensor cores are known to compute the chain.
    """
    return min(
        ways(problem, tensor, n_multi, most),
        key=lambda way: microseconds(way[0], way[1], problem, n_multi),
    )


def ways(problem: Problem, tensor: bool, n_multi: int, most: int) -> list[tuple[RealTile, int]]:
    """List the tiles and the numbers of blocks that share one, which may be the fastest."""
    m, n, size = problem.m, problem.n, problem.size
    return [
        (tile, split)
        for tile in (DOUBLE_TILES if size == 8 else FLOAT_TILES)
        if not (tile.across and problem.trans_b) and (tensor or not tile.tensor)
        for split in SPLITS[: 1 + SPLITS.index(most)]
        if split < 2 * problem.n_segment
        and (split == 1 or tile.rows * tile.columns * size <= _MOST_SHARED)
        and (not tile.copiers or split * tile.count(m, n) <= _FEW * n_multi)
    ]


def microseconds(tile: RealTile, split: int, problem: Problem, n_multi: int) -> float:
    """Estimate the time of a product: blocks share a multiprocessor, in rounds."""
    m, n, k, size, trans_a, trans_b, whole, segment = problem
    pace = (_DOUBLE_PACES if size == 8 else _PACES)[tile.name]
    each = -(-problem.n_segment // split)  # segments of a block
    chain, mean = min(k, each * segment), k / min(split, problem.n_segment)
    together = tile.together(trans_a, trans_b, size, tile.room(problem.n_segment, split, 0))
    rounds, rest = divmod(-(-tile.count(m, n) * split // n_multi), together)
    time = rounds * max(pace.step * chain, together * pace.work * mean)
    if rest:
        time += max(pace.step * chain, rest * pace.work * mean)
    part = 1 + (0 if whole else pace.ragged) + (pace.upright if trans_b else 0)
    if m % tile.rows or n % tile.columns:
        part += pace.edge
    if problem.n_segment > 1 and split == 1:
        part += pace.long
    return pace.start + (part + _SHARING[size][split]) * time
