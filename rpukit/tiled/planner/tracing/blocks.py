"""Which tasks use a block of memory, and which blocks share addresses."""

from __future__ import annotations

from collections.abc import Mapping

from rpukit.tiled.tile_space import Box

__all__ = ["BlockLog", "BlocksInUse"]

_PARTS = 1024  # of a level, in which blocks are looked up


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
    """The blocks that tasks have used so far and that no later block has replaced, by address.

    Parameters
    ----------
    spans : mapping of str to (int, int, int)
        Level and addresses of every block: the first, and one after the last.
    n_levels : int
    """

    def __init__(self, spans: Mapping[str, tuple[int, int, int]], n_levels: int) -> None:
        self.spans = spans
        self.grain = [1] * n_levels  # bytes of a part of each level
        for level, _, hi in spans.values():
            self.grain[level] = max(self.grain[level], -(-hi // _PARTS))
        self.parts: dict[tuple[int, int], set[str]] = {}  # by level and part

    def begin(self, block: str) -> set[str]:
        """Add a block, and name those whose addresses it shares; it replaces those within it."""
        _, lo, hi = self.spans[block]
        own = self._places(block)
        found: set[str] = set()
        for place in own:
            found |= self.parts.get(place, set())
        found = {name for name in found if self.spans[name][1] < hi and lo < self.spans[name][2]}
        for name in found:
            if lo <= self.spans[name][1] and self.spans[name][2] <= hi:
                for place in self._places(name):
                    self.parts[place].discard(name)
        for place in own:
            self.parts.setdefault(place, set()).add(block)
        return found

    def _places(self, block: str) -> list[tuple[int, int]]:
        level, lo, hi = self.spans[block]
        grain = self.grain[level]
        return [(level, part) for part in range(lo // grain, -(-hi // grain))]
