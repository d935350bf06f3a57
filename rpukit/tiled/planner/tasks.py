"""Task graph of a program: its serial run, and the dependences between tasks.

Tasks are made in the order of a run with nothing in parallel. Dependences follow from the memory
that tasks touch, so any order that keeps them gives the same values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rpukit.tiled.machine import Hierarchy, Level
from rpukit.tiled.planner.lifetimes import Lifetimes, Step
from rpukit.tiled.planner.tile_search import boxes
from rpukit.tiled.planner.tracing.blocks import BlockLog, BlocksInUse
from rpukit.tiled.program import Home, OpPlan, Place
from rpukit.tiled.tile_space import Box, Operand

__all__ = ["Task", "nested_boxes", "trace"]

_PIECE = 12  # shortest piece of a long copy, in multiples of the setup time
_MOST_PIECES = 64


@dataclass(slots=True)
class Task:
    """A copy or a kernel of one tile.

    Parameters
    ----------
    step : int
    cycles : int
    hop : int
        Index of the inner level of a copy; -1 for a kernel.
    engine : str
        "in", "out", or "" for a kernel.
    tensor : str
    source, target : (str, int)
    shape, source_strides, target_strides : tuple of int
    box : Box
    addresses : tuple of int
    before : set of int
        Tasks that have to end first.
    """

    step: int
    cycles: int
    hop: int = -1
    engine: Any = ""
    tensor: str = ""
    source: tuple[str, int] = ("", 0)
    target: tuple[str, int] = ("", 0)
    shape: tuple[int, ...] = ()
    source_strides: tuple[int, ...] = ()
    target_strides: tuple[int, ...] = ()
    box: Box = ()
    addresses: tuple[int, ...] = ()
    before: set[int] = field(default_factory=set)


class _Spot(NamedTuple):
    """The memory around a rectangle: a packed buffer, or a whole value."""

    block: str
    level: int
    address: int
    origin: tuple[int, ...]
    strides: tuple[int, ...]
    shape: tuple[int, ...] | None  # of a whole value


def nested_boxes(
    whole: Box, extents: Sequence[Sequence[int]], orders: Sequence[Sequence[int]]
) -> Iterator[tuple[Box, ...]]:
    """Cut a box level by level, and yield each innermost tile with the tiles that contain it.

    Parameters
    ----------
    whole : Box
    extents, orders : sequence of sequence of int
        From the outermost cut inwards.

    Yields
    ------
    tuple of Box
    """
    if not extents:
        yield ()
        return
    for box in boxes(whole, extents[0], orders[0]):
        for rest in nested_boxes(box, extents[1:], orders[1:]):
            yield (box, *rest)


class _Tracer:
    def __init__(
        self,
        lifetimes: Lifetimes,
        hierarchy: Hierarchy,
        homes: Mapping[str, Home],
        ops: Sequence[tuple[Step, OpPlan]],
    ) -> None:
        self.lifetimes, self.hierarchy, self.homes, self.ops = lifetimes, hierarchy, homes, ops
        self.names = [level.name for level in hierarchy.levels]
        self.tasks: list[Task] = []
        self.logs: dict[str, BlockLog] = {}
        self.present: dict[str, np.ndarray] = {}
        self.buffers: dict[str, tuple[dict[int, int], dict[int, dict[int, Box]]]] = {}
        self.spans: dict[str, tuple[int, int, int]] = {}  # block: level, addresses
        for home in homes.values():
            level = hierarchy.index(home.level)
            self.spans[home.value] = (level, home.address, home.address + home.bytes)
        for _, op in ops:
            for operand in op.operands:
                for place in operand.places:
                    level = hierarchy.index(place.level)
                    for k, address in enumerate(place.addresses):
                        self.spans[_slot(place, k)] = (level, address, address + place.bytes)
        self.blocks = BlocksInUse(self.spans, len(hierarchy))

    def log(self, block: str) -> BlockLog:
        """Find the log of a block; a new one depends on the last users of its memory."""
        if block not in self.logs:
            entry: set[int] = set()
            for old in self.blocks.begin(block):
                entry |= self.logs[old].users()
            kernels = [t for t in entry if not self.tasks[t].engine]
            entry = {t for t in entry if self.tasks[t].engine} | {max(kernels, default=-1)}
            self.logs[block] = BlockLog(entry - {-1})
        return self.logs[block]

    def run(self) -> list[Task]:
        for band, group in groupby(self.ops, lambda one: one[1].band or -one[0].number - 1):
            if band > 0:
                self.buffers.clear()
            tracers = [_OpTracer(self, step, op) for step, op in group]
            for i in range(max(len(one.tiles) for one in tracers)):  # equal within a band
                for one in tracers:
                    one.tile(i)
        return self.tasks


def _slot(place: Place, k: int) -> str:
    return f"{place.block}/{k}" if place.kind == "slots" else place.block


class _OpTracer:
    """Traces the tiles of one op in serial order."""

    def __init__(self, all_: _Tracer, step: Step, op: OpPlan) -> None:
        self.all, self.step, self.op = all_, step, op
        self.space = step.space
        self.tensors = all_.lifetimes.graph(step).tensors
        self.inner = len(all_.hierarchy) - 1
        n = len(op.operands)
        self.at: list[dict[int, int]] = [{} for _ in range(n)]  # level: buffer in use
        self.holds: list[dict[int, dict[int, Box]]] = [{} for _ in range(n)]  # level: contents
        for k, operand in enumerate(op.operands if op.band else ()):
            if operand.places:  # ops of a band share the contents of buffers
                both = self.at[k], self.holds[k]
                both = all_.buffers.setdefault(operand.places[-1].block, both)
                self.at[k], self.holds[k] = both
        self.home = [all_.hierarchy.index(all_.homes[o.value].level) for o in op.operands]
        self.places: list[dict[int, Place]] = [
            {all_.hierarchy.index(p.level): p for p in o.places} for o in op.operands
        ]
        self.tiles = list(nested_boxes(self.space.whole, op.extents, op.orders))

    def tile(self, i: int) -> None:
        """Write the copies and the kernel of a tile."""
        tile = self.tiles[i]
        following = self.tiles[i + 1] if i + 1 < len(self.tiles) else None
        for k, operand in enumerate(self.space.operands):
            self.ensure(k, operand, self.inner, tile)
        self.compute(tile[-1])
        for k, operand in enumerate(self.space.operands):
            if operand.mode != "in":
                self.store(k, operand, tile, following)

    def rectangle(self, operand: Operand, level: int, tile: tuple[Box, ...]) -> Box:
        return self.space.rectangle(operand, tile[level - 1])

    def ensure(self, k: int, operand: Operand, level: int, tile: tuple[Box, ...]) -> None:
        """Fetch what a tile needs of an operand to a level, through the levels outside."""
        if level <= self.home[k]:
            return
        place, rectangle = self.places[k][level], self.rectangle(operand, level, tile)
        if place.kind == "resident":
            shape = self.tensors[operand.tensor].shape
            value = self.all.lifetimes.values[self.op.operands[k].value]
            if place.block not in self.all.present:
                self.all.present[place.block] = np.zeros(value.bytes // value.itemsize, bool)
            mask = self.all.present[place.block]
            where: Any = (*(slice(lo, hi) for lo, hi in rectangle), ...)
            part = mask.reshape(shape)[where]
            if operand.mode != "out" and part.all():
                return
            part[...] = True
            if operand.mode == "out":
                return
        elif self.turn(k, operand, level, rectangle, len(place.addresses)):
            return
        self.ensure(k, operand, level - 1, tile)
        source, target = self.spot(k, operand, level - 1, tile), self.spot(k, operand, level, tile)
        self.copy("in", operand, level, rectangle, source, target)

    def turn(self, k: int, operand: Operand, level: int, rectangle: Box, n: int) -> bool:
        """Choose a buffer; tell whether it already holds the rectangle."""
        held = self.holds[k].setdefault(level, {})
        if held.get(self.at[k].get(level, -1)) == rectangle:
            return True
        if operand.mode == "in" and rectangle in held.values():
            self.at[k][level] = next(i for i, part in held.items() if part == rectangle)
            return True
        self.at[k][level] = (self.at[k].get(level, -1) + 1) % n
        held[self.at[k][level]] = rectangle
        return operand.mode == "out"

    def spot(self, k: int, operand: Operand, level: int, tile: tuple[Box, ...]) -> _Spot:
        """Find where an operand lies in a level."""
        tensor = self.tensors[operand.tensor]
        plan = self.op.operands[k]
        if level > self.home[k] and self.places[k][level].kind == "slots":
            place, n = self.places[k][level], self.at[k][level]
            rectangle = self.holds[k][level][n]
            lengths = tuple(hi - lo for lo, hi in rectangle)
            origin = tuple(lo for lo, _ in rectangle)
            strides = _strides(lengths, tensor.itemsize)
            return _Spot(_slot(place, n), level, place.addresses[n], origin, strides, None)
        if level > self.home[k]:
            place = self.places[k][level]
            block, address = place.block, place.addresses[0]
        else:
            block, address = plan.value, self.all.homes[plan.value].address
        origin = (0,) * len(tensor.shape)
        strides = _strides(tensor.shape, tensor.itemsize)
        return _Spot(block, level, address, origin, strides, tensor.shape)

    def copy(
        self, engine: str, operand: Operand, hop: int, part: Box, source: _Spot, target: _Spot
    ) -> None:
        if not _size(part):
            return
        tensor, link = self.tensors[operand.tensor], self.all.hierarchy[hop]
        names = self.all.names
        logs = self.all.log(source.block), self.all.log(target.block)
        before: set[int] = set()
        for n, piece in enumerate(self.pieces(part, tensor.shape, tensor.itemsize, link)):
            number = len(self.all.tasks)
            if n:  # pieces of one copy do not wait for each other
                logs[0].readers.append((number, source.shape, piece))
                logs[1].writers.append((number, target.shape, piece))
            else:
                before |= logs[0].read(number, source.shape, part)
                before |= logs[1].write(number, target.shape, part)
            lengths = tuple(hi - lo for lo, hi in piece)
            shape, here, there = _merged(lengths, source.strides, target.strides, tensor.itemsize)
            task = Task(
                self.step.number,
                link.cycles(prod(shape), prod(shape[:-1])),
                hop,
                engine,
                operand.tensor,
                (names[source.level], _address(source, piece)),
                (names[target.level], _address(target, piece)),
                shape,
                here,
                there,
                before=before,  # one set for all pieces
            )
            self.all.tasks.append(task)

    def pieces(
        self, part: Box, shape: tuple[int, ...], itemsize: int, link: Level
    ) -> Iterator[Box]:
        """Cut a long copy into pieces, so that others can run in between."""
        cycles = link.cycles(_size(part) * itemsize)
        n = min(cycles // (_PIECE * max(link.setup, 1)), _MOST_PIECES)
        whole = all(hi - lo == d for (lo, hi), d in zip(part, shape, strict=True))
        a = next((d for d, (lo, hi) in enumerate(part) if hi - lo > 1), None)
        if self.op.overlap != "across" or n < 2 or not whole or a is None:
            yield part
            return
        lo, hi = part[a]
        step = -(-(hi - lo) // n)
        for start in range(lo, hi, step):
            yield (*part[:a], (start, min(start + step, hi)), *part[a + 1 :])

    def compute(self, box: Box) -> None:
        number = len(self.all.tasks)
        machine = self.all.hierarchy.compute
        task = Task(self.step.number, machine.tile(self.step.node.op, self.space, box))
        tile = (box,) * self.inner
        addresses = []
        for k, operand in enumerate(self.space.operands):
            part = self.space.rectangle(operand, box)
            spot = self.spot(k, operand, self.inner, tile)
            addresses.append(_address(spot, part) if _size(part) else spot.address)
            log = self.all.log(spot.block)
            if operand.mode != "out":
                task.before |= log.read(number, spot.shape, part)
            if operand.mode != "in":
                task.before |= log.write(number, spot.shape, part)
        task.before.discard(number)
        task.box, task.addresses = box, tuple(addresses)
        self.all.tasks.append(task)

    def store(
        self, k: int, operand: Operand, tile: tuple[Box, ...], following: tuple[Box, ...] | None
    ) -> None:
        """Store finished results outwards, as far as needed."""
        if not self.space.last(tile[-1]):
            return
        for level in range(self.inner, self.home[k], -1):
            place, rectangle = self.places[k][level], self.rectangle(operand, level, tile)
            if not place.store:
                return
            more = level < self.inner and following
            if more and self.rectangle(operand, level, following or tile) == rectangle:
                return
            self.place_out(k, operand, level - 1, tile)
            source = self.spot(k, operand, level, tile)
            target = self.spot(k, operand, level - 1, tile)
            self.copy("out", operand, level, rectangle, source, target)

    def place_out(self, k: int, operand: Operand, level: int, tile: tuple[Box, ...]) -> None:
        """Choose the buffer of a level that a result goes to."""
        if level > self.home[k] and operand.mode == "out":
            self.ensure(k, operand, level, tile)


def _size(part: Box) -> int:
    return prod(hi - lo for lo, hi in part)


@lru_cache(maxsize=1 << 12)
def _strides(lengths: tuple[int, ...], size: int) -> tuple[int, ...]:
    return tuple(prod(lengths[i + 1 :]) * size for i in range(len(lengths)))


def _address(spot: _Spot, part: Box) -> int:
    steps = zip(part, spot.origin, spot.strides, strict=True)
    return spot.address + sum((lo - origin) * stride for (lo, _), origin, stride in steps)


@lru_cache(maxsize=1 << 12)
def _merged(
    lengths: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...], size: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Join axes that are contiguous on both sides; the last axis is a run of bytes."""
    axes = [(size, 1, 1)]
    for n, here, there in zip(reversed(lengths), reversed(source), reversed(target), strict=True):
        if n == 1:
            continue
        last, last_here, last_there = axes[-1]
        if here == last * last_here and there == last * last_there:
            axes[-1] = (n * last, last_here, last_there)
        else:
            axes.append((n, here, there))
    shape, here_, there_ = zip(*reversed(axes), strict=True)
    return shape, here_, there_


def trace(
    lifetimes: Lifetimes,
    hierarchy: Hierarchy,
    homes: Mapping[str, Home],
    ops: Sequence[tuple[Step, OpPlan]],
) -> list[Task]:
    """Trace the serial run of a program.

    Parameters
    ----------
    lifetimes : Lifetimes
    hierarchy : Hierarchy
    homes : mapping of str to Home
    ops : sequence of (Step, OpPlan)
        Of one program, with addresses.

    Returns
    -------
    list of Task
    """
    return _Tracer(lifetimes, hierarchy, homes, ops).run()
