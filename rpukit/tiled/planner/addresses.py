"""Address assignment: blocks with overlapping lifetimes get disjoint addresses.

Greedy orders first, then local search. Where OR-tools is installed and the bound is not reached,
its CP-SAT solver improves the result with one worker and a deterministic limit, so that a plan is
always the same.
"""

from __future__ import annotations

import csv
import io
import random
import reprlib
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rpukit._checks import Maybe, Real, Whole, shown, takes
from rpukit._files.schema import DAMAGE, as_format_error
from rpukit._files.writing import write_text
from rpukit.errors import FormatError, ParameterError

__all__ = ["Block", "live_bytes", "pack", "peak", "read_csv", "write_csv"]

_MOST_BYTES = 1 << 40  # of a block, and of a multiple of addresses


class Block(NamedTuple):
    """A block of memory with a lifetime.

    Parameters
    ----------
    name : str
    lower, upper : int
        It lives during the steps ``lower <= step < upper``.
    size : int
        Bytes.
    """

    name: str
    lower: int
    upper: int
    size: int


def live_bytes(blocks: Iterable[Block]) -> int:
    """Compute the most bytes that live at one step: a lower bound of every packing.

    Parameters
    ----------
    blocks : iterable of Block

    Returns
    -------
    int

    Examples
    --------
    >>> from rpukit.tiled import Block, live_bytes
    >>> live_bytes([Block("a", 0, 2, 8), Block("b", 1, 3, 4), Block("c", 2, 3, 4)])
    12
    """
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.lower] = changes.get(block.lower, 0) + block.size
        changes[block.upper] = changes.get(block.upper, 0) - block.size
    live = most = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most


def peak(blocks: Iterable[Block], offsets: Mapping[str, int]) -> int:
    """Compute the end of the highest block.

    Parameters
    ----------
    blocks : iterable of Block
    offsets : mapping of str to int

    Returns
    -------
    int
    """
    return max((offsets[block.name] + block.size for block in blocks), default=0)


_SHORT = 16  # steps of a life that is short
_MANY = 64  # ranges of addresses that are searched as an array
_ORDERS: tuple[Callable[[Block], Any], ...] = (
    lambda b: (-b.size, b.lower - b.upper),
    lambda b: (b.lower - b.upper, -b.size),
    lambda b: (-b.size * (b.upper - b.lower), b.lower),
    lambda b: (b.lower, -b.size),
    lambda b: (-b.upper, -b.size),
)


def check_spans(blocks: Sequence[Any], name: str) -> None:
    """Check that the numbers of blocks are integers: the first step, a later one, a size."""
    for b in blocks:
        whole = all(isinstance(n, int) and 0 <= n < _MOST_BYTES for n in b[1:])
        if not (whole and b.lower < b.upper):
            raise ParameterError(f"{name}: got {shown(b)}, need integers from 0, lower < upper")


@takes(
    align=Whole(1, _MOST_BYTES),
    limit=Maybe(Whole(0)),
    rounds=Whole(0, 1 << 20),
    effort=Real(0, 1e6),
)
def pack(
    blocks: Sequence[Block],
    *,
    align: int = 4,
    limit: int | None = None,
    rounds: int = 300,
    effort: float = 2.0,
) -> dict[str, int]:
    """Assign addresses to blocks, with a small peak.

    Parameters
    ----------
    blocks : sequence of Block
        With different names.
    align : int
        Sizes are rounded up to a multiple of it, so that addresses are multiples too.
    limit : int, optional
        The search stops at a peak of at most this.
    rounds : int
        Steps of local search from each of three greedy orders.
    effort : float
        Limit of CP-SAT's deterministic time, in seconds, after that.

    Returns
    -------
    dict of str to int
        Address of each block.

    Examples
    --------
    >>> from rpukit.tiled import Block, pack
    >>> pack([Block("a", 0, 2, 8), Block("b", 1, 3, 4), Block("c", 2, 3, 4)])
    {'a': 0, 'b': 8, 'c': 0}
    """
    check_spans(blocks, "blocks")
    rounded = [b._replace(size=-(-b.size // align) * align) for b in blocks]
    ends = min((b.lower for b in blocks), default=0), max((b.upper for b in blocks), default=0)
    below: dict[str, int] = {}  # blocks that live all the time: no order of them is better
    top = 0
    for block in rounded:
        if (block.lower, block.upper) == ends:
            below[block.name] = top
            top += block.size
    rest = [block for block in rounded if block.name not in below]
    limit = None if limit is None else max(0, limit - top)
    above = _packed(rest, align, limit, rounds, effort) if rest else {}
    return {b.name: below[b.name] if b.name in below else top + above[b.name] for b in blocks}


def _packed(
    rounded: Sequence[Block], align: int, limit: int | None, rounds: int, effort: float
) -> dict[str, int]:
    enough = max(live_bytes(rounded), limit or 0)
    best: dict[str, int] = {}
    lowest = -1
    for best_fit in (False, True):
        for order in _ORDERS:
            offsets = _place(sorted(rounded, key=order), best_fit)
            height = peak(rounded, offsets)
            if lowest < 0 or height < lowest:
                best, lowest = offsets, height
            if lowest <= enough:
                return best
    for order in _ORDERS[:3] if rounds else ():
        offsets = _improve(sorted(rounded, key=order), enough, rounds)
        if peak(rounded, offsets) < lowest:
            best, lowest = offsets, peak(rounded, offsets)
        if lowest <= enough:
            return best
    return _polish(rounded, best, enough, align, effort) if effort else best


def _place(blocks: Sequence[Block], best_fit: bool) -> dict[str, int]:
    """Put each block in turn into the lowest gap that holds it, or into the tightest."""
    far = sum(b.upper - b.lower > _SHORT for b in blocks)
    long, short, near = _Ranges(far), _Ranges(len(blocks) - far), _Short()
    found: dict[str, int] = {}
    for block in blocks:
        is_long = block.upper - block.lower > _SHORT
        meets = long.during(block)
        taken = [] if is_long else [*near.during(block.lower, block.upper)]
        if is_long:
            meets = np.concatenate([meets, short.during(block)])
        if len(meets) < _MANY:
            own = _gap([*map(tuple, meets.tolist()), *taken], block.size, best_fit)
        else:
            both = np.concatenate([meets, np.array(taken, np.int64).reshape(-1, 2)])
            own = _gap_of_many(both, block.size, best_fit)
        found[block.name] = own
        (long if is_long else short).add(block, own)
        if not is_long:
            near.add(block, own)
    return found


class _Ranges:
    """Lifetimes and addresses of blocks, as arrays."""

    def __init__(self, n: int) -> None:
        self.lives, self.places, self.n = np.zeros((2, n), np.int64), np.zeros((n, 2), np.int64), 0

    def add(self, block: Block, offset: int) -> None:
        self.lives[:, self.n] = block.lower, block.upper
        self.places[self.n] = offset, offset + block.size
        self.n += 1

    def during(self, block: Block) -> np.ndarray:
        """List the ranges of addresses of the blocks that live while another one does."""
        lower, upper = self.lives[:, : self.n]
        found: np.ndarray = self.places[: self.n][(lower < block.upper) & (upper > block.lower)]
        return found


def _gap(taken: list[tuple[int, ...]], size: int, best_fit: bool) -> int:
    """Find the lowest gap between ranges of addresses that holds a size, or the tightest."""
    taken.sort()
    floor, best, tightest = 0, -1, 0
    for start, end in taken:
        room = start - floor
        if room >= size and (best < 0 or room < tightest):
            best, tightest = floor, room
            if not best_fit:
                break
        floor = max(floor, end)
    return floor if best < 0 else best


def _gap_of_many(taken: np.ndarray, size: int, best_fit: bool) -> int:
    """Find the gap of `_gap` between many ranges, one a row."""
    taken = taken[np.argsort(taken[:, 0], kind="stable")]
    floors = np.maximum.accumulate(np.append(0, taken[:, 1]))
    rooms = taken[:, 0] - floors[:-1]
    wide = np.flatnonzero(rooms >= size)
    if not len(wide):
        return int(floors[-1])
    return int(floors[wide[np.argmin(rooms[wide])] if best_fit else wide[0]])


class _Short:
    """Addresses of the blocks that live for a few steps, by step."""

    def __init__(self) -> None:
        self.at: dict[int, list[tuple[int, int]]] = {}
        self.steps: list[int] = []

    def add(self, block: Block, offset: int) -> None:
        for step in range(block.lower, block.upper):
            if step not in self.at:
                insort(self.steps, step)
            self.at.setdefault(step, []).append((offset, offset + block.size))

    def during(self, lower: int, upper: int) -> set[tuple[int, int]]:
        """Collect the ranges of addresses that are taken at some steps."""
        steps = self.steps[bisect_left(self.steps, lower) : bisect_left(self.steps, upper)]
        return set().union(*(self.at[step] for step in steps))


def _improve(order: list[Block], enough: int, rounds: int) -> dict[str, int]:
    """Move the highest block forward in the order repeatedly, while the peak does not grow."""
    rng = random.Random(1)
    best = offsets = _place(order, False)
    lowest = height = peak(order, offsets)
    for _ in range(rounds):
        if lowest <= enough:
            break
        trial = list(order)
        high = [i for i, block in enumerate(order) if offsets[block.name] + block.size == height]
        place = rng.choice(high)
        block = trial.pop(place)
        if rng.random() < 0.5 and trial:
            other = trial.pop(rng.randrange(len(trial)))
            trial.insert(rng.randrange(len(trial) + 1), other)
        trial.insert(rng.randrange(place + 1), block)
        placed = _place(trial, False)
        if peak(trial, placed) <= height:
            order, offsets, height = trial, placed, peak(trial, placed)
            if height < lowest:
                best, lowest = offsets, height
    return best


def _polish(
    blocks: Sequence[Block], start: dict[str, int], enough: int, align: int, effort: float
) -> dict[str, int]:
    """Lower the peak by CP-SAT; without OR-tools, return the start."""
    try:
        cp = import_module("ortools.sat.python.cp_model")
    except ImportError:
        return start
    top, goal = peak(blocks, start) // align, -(-enough // align)
    model = cp.CpModel()
    height = model.new_int_var(goal, top, "peak")
    place, times, spans = {}, [], []
    for b in blocks:
        units = b.size // align
        y = place[b.name] = model.new_int_var(0, top - units, "")
        model.add(y + units <= height)
        model.add_hint(y, start[b.name] // align)
        times.append(model.new_fixed_size_interval_var(b.lower, b.upper - b.lower, ""))
        spans.append(model.new_fixed_size_interval_var(y, units, ""))
    model.add_no_overlap_2d(times, spans)
    model.minimize(height)
    solver = cp.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(model)
    if status not in (cp.OPTIMAL, cp.FEASIBLE):
        return start
    return {name: solver.value(y) * align for name, y in place.items()}


def write_csv(path: str | Path, blocks: Iterable[Block], offsets: Mapping[str, int]) -> None:
    """Write blocks in MiniMalloc's CSV format: id, lower, upper, size, offset.

    Parameters
    ----------
    path : path
    blocks : iterable of Block
    offsets : mapping of str to int
        If empty, the column is left out, as in MiniMalloc's input.

    Raises
    ------
    SaveError
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "lower", "upper", "size"] + ["offset"] * bool(offsets))
    for block in blocks:
        writer.writerow([*block, offsets[block.name]] if offsets else block)
    write_text(path, text.getvalue())


def read_csv(path: str | Path) -> tuple[list[Block], dict[str, int]]:
    """Read blocks from a CSV file in MiniMalloc's format.

    Parameters
    ----------
    path : path

    Returns
    -------
    blocks : list of Block
    offsets : dict of str to int
        Empty where the file has no column `offset`.

    Raises
    ------
    FormatError
        If a column is missing, or not a number from 0.
    """
    blocks, offsets = [], {}
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.DictReader(file), start=2):
                with as_format_error(f"line {number}"):
                    blocks.append(_block(row))
                    if "offset" in row:
                        offsets[row["id"]] = _count(row, "offset")
    except (*DAMAGE, csv.Error) as error:
        raise FormatError(
            f"{path}: {error}; need the columns id, lower, upper, size and optionally offset"
        ) from error
    return blocks, offsets


def _block(row: dict[str, Any]) -> Block:
    lower, upper, size = (_count(row, name) for name in ("lower", "upper", "size"))
    if not isinstance(row["id"], str) or lower > upper:
        raise FormatError(f"got {reprlib.repr(row)}, need an id, and lower not above upper")
    return Block(row["id"], lower, upper, size)


def _count(row: dict[str, Any], name: str) -> int:
    text = row.get(name)
    if not isinstance(text, str) or not (text.isascii() and text.isdigit() and len(text) < 20):
        raise FormatError(f"{name}: got {reprlib.repr(text)}, need numbers from 0")
    return int(text)
