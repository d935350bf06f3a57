"""Tiles of products of float32 and float64; all give the same bits."""

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
    pipe: bool = False  # operands are read across stages, which takes registers: for few blocks
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
            "PIPE": int(self.pipe),
        }

    def shared(self, trans_a: bool, trans_b: bool, size: int, room: str = "") -> int:
        """Return a block's shared memory in bytes.

        ``size``: bytes of an element; ``room``: see `fitted`.
        """
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

    @property
    def each(self) -> int:
        """Number of results that a thread computes."""
        return self.rows_per_thread * self.columns_per_thread

    def adds_shares(self, n_segment: int) -> bool:
        """Whether several blocks add the segments of a tile, each for a share of its results."""
        return self.each % 4 == 0 and self.each * n_segment >= _LEAST_SHARED

    def splits_by(self, split: int) -> bool:
        """Whether ``split`` blocks can each add an equal share of a tile's results.

        Always for the values in `WORDS`, which do not need equal shares.
        """
        return split < 1 or self.each % split == 0 or self.each < split

    def together(self, trans_a: bool, trans_b: bool, size: int, room: str) -> int:
        """Number of blocks that a multiprocessor runs at a time."""
        fitted = self.fitted(trans_a, trans_b, size, _SHARED_OF_BLOCK, room)
        shared = fitted.shared(trans_a, trans_b, size, room) + 1024
        return max(1, min(self.most, 2048 // self.threads, _SHARED // shared))

    def room(self, n_segment: int, split: int, add: int) -> str:
        """Return where a block keeps the sums of segments: the ``room`` of `fitted`."""
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
    RealTile(24, 64, 32, 3, 4, 4, held=(32, 4), most=4, pipe=True),
    RealTile(40, 64, 32, 5, 4, 4, held=(32, 4), most=3, pipe=True),
    RealTile(48, 64, 32, 6, 4, 4, held=(32, 4), most=2, pipe=True),
    RealTile(48, 64, 32, 6, 4, 4, held=(32, 4), most=3, word=" dense"),
    RealTile(64, 48, 32, 4, 6, 4, held=(32, 4), most=3),
    RealTile(56, 64, 32, 7, 4, 4, held=(32, 4), most=3),
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

    def parts(self, split: int) -> int:
        """Return how many blocks share a tile; ``split``: that number, or one of `WORDS`."""
        return split if split > 0 else self.n_segment


WORDS = {IN_TURNS: "turns", AT_ONCE: "at once", STREAMED: "streamed"}


class Way(NamedTuple):
    """A tile for a product, and how many blocks share each tile of the result."""

    tile: RealTile
    split: int

    @property
    def name(self) -> str:
        return f"{self.tile.name} / {WORDS.get(self.split, self.split)}"

    def valid(self, n_batch: int) -> bool:
        """Whether the tile takes the batch: always."""
        return n_batch > 0


def room_at_once(tile: RealTile, m: int, n: int, n_segment: int) -> int:
    """Count the numbers that `AT_ONCE` and `STREAMED` keep: all segments' results of all tiles."""
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
