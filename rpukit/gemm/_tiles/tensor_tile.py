"""A tile of a product on tensor cores: its sizes, macros and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

DEPTH = 64  # terms of a slab of a stage
SEGMENT = 4096  # terms after which a chain is restarted
SHARED = 226 * 1024  # bytes that a block may have
_OTHER = 1536  # bytes of shared memory besides stages and results
APART, JOINED, STREAMED, EARLY = " apart", " joined", " streamed", " early"  # endings of names
_WORK = 40  # registers of a thread besides accumulators and sums
_PASSING = 12, 20  # and besides these to pass chains on, by several warpgroups and by one
_SHARING = 8  # or for segments that several blocks make
_UNITS = 16  # of a piece, at which `streamed` tiles are cut


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
    joined: bool = False  # blocks of a cluster compute a segment each, and add shares of all
    along: bool = False  # the factor of the columns has them along its lines in memory
    streamed: bool = False  # the last tiles are cut into equal shares, which pass chains on
    lines: int = 64  # of a warpgroup's 64 rows those that the tile has: 8, 16, 32 or all
    early: bool = False  # launches of long sums, too, may begin while the one before ends

    @property
    def base(self) -> str:
        """Name of the tile whose blocks compute whole sums."""
        return base_of(self.name)

    @property
    def rows(self) -> int:
        return self.lines * self.groups

    @property
    def accumulators(self) -> int:
        """Sums that a block holds: 64 rows of each warpgroup, also where the tile has fewer."""
        return 64 * self.groups * self.columns

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
        """Return the tile for a factor of the columns that has them along its lines, or not.

        More than 32 such columns come in boxes of 64, so that there may be room for fewer stages.
        """
        if not along or self.columns % box_of(self.columns) == 0:
            return self
        return replace(self, along=True).filled(self.stages)

    def filled(self, most: int) -> Tile:
        """Return the tile with as many stages as there is room for, at most ``most``."""
        room = SHARED // self.blocks - _OTHER - self._staging(wide=False)
        return replace(self, stages=min(most, room // self._stage))

    @property
    def held(self) -> tuple[int, int]:
        """How many of a thread's sums of segments are in its registers, and in shared memory."""
        sums, free = self.columns // 2, {2: 232, 3: 152}.get(self.groups, 224)
        if self.blocks > 1:
            free = 256 // self.blocks
        held = min(sums, (free - sums - _WORK) // 4 * 4)
        if held < sums:  # what else it takes to share segments, or to pass chains on
            held -= _PASSING[self.groups == 1] if self.streamed else _SHARING * self.apart
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
            **({"BM": self.rows} if self.lines < 64 else {}),
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
            blocks = n_segment * self.together
            return {"PARTS": 3, "SEGMENT": segment, "JOINED": n_segment, "CLUSTER": blocks}
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
            turns = 2 * rest * self.groups
            room = blocks * 128 * self.groups * self.left + rest * n_segment * self.accumulators
        if streams:
            turns += 1 + blocks * self.groups
            sums = 2 if several and not self.apart else 1  # and the accumulators of a chain
            room += blocks * sums * self.accumulators
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
    joined: bool = False  # blocks of a cluster compute a segment each, and add shares of all
    short: int = 0  # blocks a multiprocessor: sums of at most `stages`; factors may begin anywhere

    @property
    def base(self) -> str:
        """Name of the tile whose blocks compute whole sums."""
        return base_of(self.name)

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
        others = 16 * self.stages if self.copiers else 0  # barriers; results of a segment
        others += 4 * self.rows * self.columns if self.joined else 0
        stages = -(-depth // DEPTH) if self.short else self.stages
        return stages * (self.rows + self.columns) * 2 * DEPTH + others

    def parts(self, n_segment: int) -> int:
        """Return the number of blocks of a tile: one, or one for each of its segments."""
        return n_segment if self.apart or self.joined else 1

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


def box_of(lines: int) -> int:
    """Return how many lines a copy takes if they lie side by side in memory."""
    return lines if lines <= 32 else 64


def base_of(name: str) -> str:
    """Return the name without the endings of `apart`, `joined`, `streamed` and `early`."""
    name = name.removesuffix(EARLY).removesuffix(STREAMED)
    return name.removesuffix(APART if name.endswith(APART) else JOINED)
