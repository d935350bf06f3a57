"""Which tasks use a block of memory, and which blocks share addresses."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from rpukit.tiled.tile_space import Box

__all__ = ["BlockLog", "BlocksInUse"]


class BlockLog:
    """Log of the readers and writers of a block so far."""

    def __init__(self, entry: set[int]) -> None:
        self.entry = entry  # the last users of the memory before this block
        self.writers: list[tuple[int, object, Box]] = []
        self.readers: list[tuple[int, object, Box]] = []

    def read(self, task: int, shape: object, rectangle: Box) -> set[int]:
        found = {t for t, s, r in self.writers if _meet(s, r, shape, rectangle)}
        self.readers.append((task, shape, rectangle))
        return found or self.entry

    def write(self, task: int, shape: object, rectangle: Box) -> set[int]:
        both = (self.writers, self.readers)
        found = {t for log in both for t, s, r in log if _meet(s, r, shape, rectangle)}
        for log in both:
            log[:] = [one for one in log if not _inside(one[1], one[2], shape, rectangle)]
        self.writers.append((task, shape, rectangle))
        return (found | self.entry) - {task}

    def users(self) -> set[int]:
        """Collect all users of the block; its writers already depend on those of the entry."""
        own = {one[0] for one in (*self.writers, *self.readers)}
        return own if self.writers else own | self.entry


def _meet(shape: object, one: Box, other_shape: object, other: Box) -> bool:
    if shape is None or shape != other_shape:
        return True
    for (a, b), (c, d) in zip(one, other, strict=True):  # plans ask a million times: no generator
        if a >= d or c >= b:
            break
    else:
        return True
    return False


def _inside(shape: object, one: Box, other_shape: object, other: Box) -> bool:
    if other_shape is None:
        return True
    if shape != other_shape:
        return False
    for (a, b), (c, d) in zip(one, other, strict=True):
        if a < c or d < b:
            break
    else:
        return True
    return False


class BlocksInUse:
    """The blocks that tasks have used so far, where no later block has replaced them, by address.

    Parameters
    ----------
    spans : mapping of str to (int, int, int)
        Level and addresses of every block: the first, and one after the last.
    n_levels : int
    """

    def __init__(self, spans: Mapping[str, tuple[int, int, int]], n_levels: int) -> None:
        self.spans = spans
        # By level: where pieces of blocks begin, and the end and the block of each piece
        self.starts: list[list[int]] = [[] for _ in range(n_levels)]
        self.pieces: list[list[tuple[int, str]]] = [[] for _ in range(n_levels)]

    def begin(self, block: str) -> set[str]:
        """Add a block, name those whose addresses it shares, and replace them there.

        What a later block covers of an earlier one is dropped: its first users depend on those of
        the earlier block already.
        """
        level, lo, hi = self.spans[block]
        starts, pieces = self.starts[level], self.pieces[level]
        if lo >= hi:
            return set()
        first = max(bisect_right(starts, lo) - 1, 0)
        if first < len(starts) and pieces[first][0] <= lo:
            first += 1
        stop = bisect_left(starts, hi)
        old = list(zip(starts[first:stop], pieces[first:stop], strict=True))
        new = [(lo, (hi, block))]
        if old and old[0][0] < lo:
            new.insert(0, (old[0][0], (lo, old[0][1][1])))
        if old and old[-1][1][0] > hi:
            new.append((hi, old[-1][1]))
        starts[first:stop] = [start for start, _ in new]
        pieces[first:stop] = [piece for _, piece in new]
        return {name for _, (_, name) in old}
