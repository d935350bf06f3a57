"""Tile search of one op for one hop: extents, loop order, buffers of each operand.

Candidates for the extent of an axis of length D are the distinct ceil(D / k), rounded up to even
numbers where D is long. Times with one buffer have a closed form; with two, the best few by their
bound are run through the cycle model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations, product
from typing import Any

import numpy as np

from rpukit.tiled.machine import Compute, Level
from rpukit.tiled.planner.cycle_model import TileCycles, double_buffered
from rpukit.tiled.tile_space import Axis, Box, Span, TileSpace, axis_of

__all__ = ["Choice", "Problem", "boxes", "candidates", "rows_of"]

_MOST_COMBINATIONS = 3000  # of extents that are tried; longer lists are thinned
_MOST_TILES = 4096
_KEPT = 200  # candidates of each order, the best by their bound
_EFFORT = 4000  # tiles that are simulated by the cycle model for one op
_LINE = 64  # bytes; memory aligned to as many or more has long axes cut at multiples

Extents = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """How an op is cut for one hop.

    Parameters
    ----------
    extents : tuple of int
        Of each axis of the op's space.
    order : tuple of int
        Axes, the outermost loop first; sums are innermost.
    slots : tuple of int
        Buffers of each operand; 0 where nothing is copied.
    cycles : int
        Of the op alone, in the cycle model.
    n_tiles : int
    """

    extents: tuple[int, ...]
    order: tuple[int, ...]
    slots: tuple[int, ...]
    cycles: int
    n_tiles: int


def boxes(bounds: Box, extents: Sequence[int], order: Sequence[int]) -> Iterator[Box]:
    """Cut a box into tiles, in the order of the loops.

    Parameters
    ----------
    bounds : Box
    extents, order : sequence of int

    Yields
    ------
    Box
    """
    ranges = [
        [(lo, min(lo + extents[a], bounds[a][1])) for lo in range(*bounds[a], extents[a])]
        for a in order
    ]
    back = [list(order).index(a) for a in range(len(order))]
    for tile in product(*ranges):
        yield tuple(tile[place] for place in back)


def rows_of(extents: Sequence[int], dims: Sequence[int]) -> int:
    """Count the contiguous runs of a rectangle in an array.

    Parameters
    ----------
    extents, dims : sequence of int

    Returns
    -------
    int

    Examples
    --------
    >>> from rpukit.tiled.planner.tile_search import rows_of
    >>> rows_of((2, 3, 4), (8, 3, 4)), rows_of((2, 3, 1), (8, 3, 4))
    (1, 6)
    """
    for i in range(len(dims) - 1, -1, -1):
        if extents[i] != dims[i]:
            return math.prod(extents[:i])
    return 1


def candidates(axis: Axis, extent: int, link: Level) -> list[int]:
    """List the extents of an axis that the search tries, longest first.

    Parameters
    ----------
    axis : Axis
    extent : int
        Length of the axis in the box that is cut.
    link : Level

    Returns
    -------
    list of int
    """
    if axis.quantum >= extent:
        return [extent]
    root, even = math.isqrt(extent), link.align // 4 if link.align >= _LINE else 1
    found = {-(-extent // k) for k in range(1, root + 2)} | set(range(1, root + 1))
    if extent >= 4 * even:
        found = {n if n < even else -(-n // even) * even for n in found}
    found = {min(extent, -(-n // axis.quantum) * axis.quantum) for n in found}
    return sorted(found, reverse=True)


def _thin(lists: list[list[int]]) -> list[list[int]]:
    while math.prod(map(len, lists)) > _MOST_COMBINATIONS:
        longest = max(lists, key=len)
        if len(longest) < 4:
            break
        longest[1:-1] = longest[2:-1:2]
    return lists


@dataclass
class Problem:
    """Tile search problem of one op on one hop.

    Parameters
    ----------
    space : TileSpace
    bounds : tuple of int
        Extents that are cut: the whole op, or a tile of the next outer level.
    sizes : tuple of int
        Bytes of an element of each operand.
    link : Level
    compute : Compute
    budget : int
        Bytes of the level that this op may take.
    here : frozenset of int
        Operands that are in the level already: they need no copies and no buffers.
    keep_free : bool
        Free axes stay whole: a sum is cut further out.
    keep_sums : bool
        Sums stay whole: further in, the free axes are cut.
    op : str
        Name of the op, for its measured rate.
    """

    space: TileSpace
    bounds: tuple[int, ...]
    sizes: tuple[int, ...]
    link: Level
    compute: Compute
    budget: int
    here: frozenset[int] = frozenset()
    keep_free: bool = False
    keep_sums: bool = False
    op: str = ""
    _cost: dict[tuple[int, Extents], int] = field(default_factory=dict, init=False)
    _tables: dict[tuple[int, int, int], np.ndarray] = field(default_factory=dict, init=False)
    _best: dict[str, Choice | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        operands = self.space.operands
        self.dims = [self.space.worst(o, self.bounds) for o in operands]
        self.axes = [[axis_of(span) for span in o.spans] for o in operands]
        self.depends = [
            frozenset(a for a in axes if a >= 0 and self.bounds[a] > 1) for axes in self.axes
        ]

    @cached_property
    def extents(self) -> np.ndarray:
        """Legal extents, one candidate a row, large ones first."""
        axes = self.space.axes
        free = [a for a, axis in enumerate(axes) if axis.kind != "reduce"]
        sums = [a for a, axis in enumerate(axes) if axis.kind == "reduce"]
        lists = [
            [n] if self.keep_free else candidates(axes[a], n, self.link)
            for a, n in [(a, self.bounds[a]) for a in free]
        ]
        tails = [tuple(self.bounds[a] for a in sums)]
        for i, a in enumerate(() if self.keep_sums else sums):
            if any(axes[b].quantum > 1 for b in sums[:i] if self.bounds[b] > 1):
                break
            rest = tuple(self.bounds[b] for b in sums[i + 1 :])
            lengths = candidates(axes[a], self.bounds[a], self.link)[1:]
            tails += [(1,) * i + (n, *rest) for n in lengths]
        tails = list(dict.fromkeys(tails))
        *lists, kept = _thin([*lists, list(range(len(tails)))])
        rows = [head + tails[t] for head in product(*lists) for t in kept]
        return np.array(rows, np.int64).reshape(len(rows), len(axes))

    @cached_property
    def slot_bytes(self) -> list[np.ndarray]:
        """Bytes of a buffer of each operand, for all candidates."""
        found = []
        for k, size in enumerate(self.sizes):
            sides = self._sides(k, {a: 2 for a in self.axes[k] if a >= 0})
            found.append(-(-_product(sides) * size // self.link.align) * self.link.align)
        return found

    def footprint(self, extents: Sequence[int], slots: Sequence[int]) -> int:
        """Count the bytes of all buffers."""
        return sum(
            n * self.link.rounded(math.prod(self.space.worst(o, extents)) * size)
            for o, n, size in zip(self.space.operands, slots, self.sizes, strict=True)
            if n
        )

    def _slots(self, counts: np.ndarray, buffers: str) -> list[np.ndarray]:
        """Count the buffers of each operand: "single", "double" (except scalars), "rotate"."""
        found = []
        for k, operand in enumerate(self.space.operands):
            n = np.ones(len(counts), np.int64)
            if k in self.here:
                n[:] = 0
            elif buffers == "double" and math.prod(self.dims[k]) > 1:
                n[:] = 2
            elif buffers.startswith("rotate"):
                most = 3 if buffers == "rotate" and operand.mode == "inout" else 2
                n[(counts[:, sorted(self.depends[k])] > 1).any(1)] = most
            found.append(n)
        return found

    def cost(self, k: int, lengths: Extents) -> int:
        """Count the cycles of one copy of an operand's rectangle."""
        key = (k, lengths)
        if key not in self._cost:
            n = math.prod(lengths) * self.sizes[k]
            self._cost[key] = self.link.cycles(n, rows_of(lengths, self.dims[k])) if n else 0
        return self._cost[key]

    def _table(self, span: Span, a: int, kind: int) -> np.ndarray:
        """Tabulate lengths of a dimension: in inner tiles (0), the last one (1), at worst (2)."""
        unique, place = np.unique(self.extents[:, a], return_inverse=True)
        box = [(0, n) for n in self.bounds]
        found = []
        for e in map(int, unique):
            n = self.bounds[a]
            if kind == 2:
                found.append(span.worst([e if b == a else m for b, m in enumerate(self.bounds)]))
                continue
            lo = (n - n % e) if kind else (e if n // e > 2 else 0)
            box[a] = (lo, n if kind else lo + e)
            first, last = span.range(box) if box[a][0] < box[a][1] else (0, 0)
            found.append(last - first)
        return np.array(found, np.int64)[place.reshape(-1)]

    def _sides(self, k: int, kinds: Mapping[int, int]) -> list[np.ndarray]:
        """Compute the sides of an operand's rectangle in tiles of given kinds on each axis."""
        found = []
        spans = zip(self.space.operands[k].spans, self.axes[k], self.dims[k], strict=True)
        for d, (span, a, whole) in enumerate(spans):
            if a not in kinds:
                found.append(np.full(len(self.extents), whole))
                continue
            key = (k, d, kinds[a])
            if key not in self._tables:
                self._tables[key] = self._table(span, a, kinds[a])
            found.append(self._tables[key])
        return found

    def _cycles(self, k: int, sides: list[np.ndarray]) -> np.ndarray:
        """Compute `cost` of many rectangles at once."""
        n = _product(sides) * self.sizes[k]
        rows, ahead = n * 0 + 1, n * 0 + 1
        for side, whole in zip(sides, self.dims[k], strict=True):
            rows = np.where(side != whole, ahead, rows)
            ahead = ahead * side
        link = self.link
        return np.where(n > 0, link.setup + rows * link.row - (-n // link.width), 0)

    @cached_property
    def guesses(self) -> list[tuple[Extents, np.ndarray, np.ndarray]]:
        """List orders with the cycles of one buffer, exact but for rims, and a bound for two."""
        bounds, extents, guesses = np.array(self.bounds), self.extents, []
        full, rest = bounds // extents, bounds % extents
        counts = full + (rest > 0)
        once, ends = [], np.zeros(len(extents), np.int64)
        for k, operand in enumerate(self.space.operands):
            total = np.zeros(len(extents), np.int64)
            own = sorted(self.depends[k])
            for kinds in product((0, 1), repeat=len(own)) if k not in self.here else ():
                pairs = list(zip(own, kinds, strict=True))
                if any(s and not rest[:, a].any() for a, s in pairs):
                    continue
                n = _product([rest[:, a] > 0 if s else full[:, a] for a, s in pairs])
                cost = self._cycles(k, self._sides(k, dict(pairs)))
                total = total + n * cost
                if not any(kinds) and operand.mode != "out":
                    ends += cost
                if operand.mode != "in":
                    last = [(rest[:, a] > 0) == bool(s) for a, s in pairs]
                    ends += np.where(np.all(last, axis=0) if own else True, cost, 0)
            once.append(total)
        work, last_work = self._work(full, rest)
        store = sum(t for t, o in zip(once, self.space.operands, strict=True) if o.mode != "in")
        for order in self.orders():
            fetch = np.zeros(len(extents), np.int64)
            for k, operand in enumerate(self.space.operands):
                if operand.mode == "out" or k in self.here:
                    continue
                again, inside = np.ones(len(extents), np.int64), np.zeros(len(extents), bool)
                for a in reversed(order):
                    if a in self.depends[k]:
                        inside |= counts[:, a] > 1
                    else:
                        again *= np.where(inside, counts[:, a], 1)
                fetch += once[k] * again
            least = np.maximum(ends + work, np.maximum(fetch + last_work, store))
            if not self.link.duplex:
                least = np.maximum(least, fetch + store)
            guesses.append((order, fetch + work + store, least))
        return guesses

    def _work(self, full: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count the cycles of all kernels, and of the last."""
        extents = self.extents
        cut = [a for a in range(len(self.bounds)) if self.bounds[a] > 1]
        total, end = np.zeros(len(extents), np.int64), np.zeros(len(extents), np.int64)
        for kinds in product((0, 1), repeat=len(cut)):
            pairs = list(zip(cut, kinds, strict=True))
            if any(s and not rest[:, a].any() for a, s in pairs):
                continue
            n = _product([rest[:, a] > 0 if s else full[:, a] for a, s in pairs])
            lengths: list[Any] = [np.int64(n) for n in self.bounds]
            for a, s in pairs:
                lengths[a] = (rest if s else extents)[:, a]
            cycles = self.compute.tiles(self.op, self.space, lengths)
            total = total + n * cycles
            last = [(rest[:, a] > 0) == bool(s) for a, s in pairs]
            end = np.where(np.all(last, axis=0) if pairs else True, cycles, end)
        return total, end

    def orders(self) -> Iterator[Extents]:
        """Yield the loop orders whose costs may differ; sums are innermost."""
        axes = range(len(self.bounds))
        free = [a for a in axes if self.space.axes[a].kind != "reduce"]
        sums = tuple(a for a in axes if self.space.axes[a].kind == "reduce")
        reads = [k for k, o in enumerate(self.space.operands) if o.mode != "out"]
        same = {frozenset(self.depends[k] & set(free)) for k in reads if k not in self.here}
        turned = sorted(
            (a for a in free if any(a in s for s in same) and not all(a in s for s in same)),
            key=lambda a: -self.bounds[a],
        )[:3]
        rest = tuple(a for a in free if a not in turned)
        for turn in permutations(sorted(turned)):
            yield rest + turn + sums
            if rest and turn:
                yield turn + rest + sums

    def tiles(self, extents: Sequence[int], order: Sequence[int]) -> list[TileCycles]:
        """List the cycles of each tile; operands that are already present are not fetched."""
        there: dict[int, Box] = {}
        found = []
        reduces = [a for a, axis in enumerate(self.space.axes) if axis.kind == "reduce"]
        work: dict[Extents, int] = {}
        operands = [
            (k, o, o.mode != "out", o.mode != "in")
            for k, o in enumerate(self.space.operands)
            if k not in self.here
        ]
        for box in boxes(tuple((0, n) for n in self.bounds), extents, order):
            fetch = store = 0
            last = all(box[a][1] == self.bounds[a] for a in reduces)
            for k, operand, read, written in operands:
                if not read and not last:
                    continue
                rectangle = tuple([span.range(box) for span in operand.spans])
                if read and there.get(k) != rectangle:
                    fetch += self.cost(k, _lengths_of(rectangle))
                    there[k] = rectangle
                if written and last:
                    store += self.cost(k, _lengths_of(rectangle))
            lengths = _lengths_of(box)
            if lengths not in work:
                work[lengths] = self.compute.tile(self.op, self.space, box)
            found.append(TileCycles(fetch, work[lengths], store))
        return found

    def best(self, buffers: str) -> Choice | None:
        """Find the choice of fewest cycles, then fewest tiles; None if nothing fits."""
        if buffers not in self._best:
            self._best[buffers] = self._search(buffers)
        return self._best[buffers]

    def _search(self, buffers: str) -> Choice | None:
        single = buffers == "single"
        extents = self.extents
        counts = -(-np.array(self.bounds) // extents)
        n_tiles = counts.prod(axis=1)
        slots = self._slots(counts, buffers)
        taken = np.sum([n * b for n, b in zip(slots, self.slot_bytes, strict=True)], axis=0)
        kept = np.flatnonzero((taken <= self.budget) & (n_tiles <= _MOST_TILES))
        if not len(kept):
            return None
        found: list[tuple[int, int, int, Extents]] = []
        for order, alone, least in self.guesses:
            guess = alone if single else least
            few = kept[np.argsort(guess[kept], kind="stable")[:_KEPT]]
            found += [(int(guess[i]), int(n_tiles[i]), int(i), order) for i in few]
        found.sort()
        best, effort = None, _EFFORT
        for least_, n_tile, i, order in found:
            if best and (single or least_ > best.cycles or effort < 0):
                break
            effort -= n_tile
            shape, own = tuple(map(int, extents[i])), tuple(int(every[i]) for every in slots)
            alone_ = Choice(shape, order, own, least_, n_tile)
            one = alone_ if single else self.run(shape, order, own)
            if best is None or (one.cycles, one.n_tiles) < (best.cycles, best.n_tiles):
                best = one
        return best

    def run(self, extents: Extents, order: Extents, slots: Extents) -> Choice:
        """Simulate one candidate with the cycle model of two buffers."""
        tiles = self.tiles(extents, order)
        shared = any(
            o.mode == "inout" and n == 2 for o, n in zip(self.space.operands, slots, strict=True)
        )
        cycles = double_buffered(tiles, duplex=self.link.duplex, in_place=shared)
        return Choice(extents, order, slots, cycles, len(tiles))

    def least(self) -> tuple[Extents, int]:
        """Find the smallest tile with one buffer each, and its bytes."""
        slots = self._slots(-(-np.array(self.bounds) // self.extents), "single")
        sizes = np.sum([n * b for n, b in zip(slots, self.slot_bytes, strict=True)], axis=0)
        place = int(np.argmin(sizes))
        return tuple(map(int, self.extents[place])), int(sizes[place])


def _product(factors: Sequence[Any]) -> Any:
    """Multiply arrays of integers."""
    return math.prod(factors[1:], start=factors[0] * np.int64(1)) if factors else np.int64(1)


def _lengths_of(rectangle: Box) -> Extents:
    return tuple([hi - lo for lo, hi in rectangle])
