"""Bands: neighbouring ops with one common tiling, interleaved tile by tile.

Where one op's result is the next one's operand and both are cut along the same axis, a part of it
can be used at once. It then needs two buffers of a part, and is neither stored nor fetched.
Transfers of one op overlap with the kernels of the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Any, NamedTuple

from rpukit.tiled.ir import Tensor
from rpukit.tiled.machine import Compute, Level
from rpukit.tiled.planner.cycle_model import TileCycles, double_buffered
from rpukit.tiled.planner.draft import Band, OpDraft, PartEstimate, TurnEstimate
from rpukit.tiled.planner.lifetimes import Lifetimes, Step
from rpukit.tiled.planner.tile_search import Choice, candidates, rows_of
from rpukit.tiled.planner.timing.alone import shape_of
from rpukit.tiled.tile_space import Cut, Operand, TileSpace, axis_of

__all__ = ["Bands"]

_MOST_PARTS = 512


@dataclass
class _Use:
    """How a band uses a value."""

    places: tuple[object, ...]  # for each dimension: that it is cut, or its range
    space: TileSpace
    operand: Operand
    axis: int
    tensor: Tensor
    read: bool  # whether the first op that uses it reads it
    written: bool
    moves: bool  # whether every part uses its own piece of the value

    def slot(self, part: int) -> tuple[int, int]:
        """Bytes of a part, and the number of contiguous rows in it."""
        extents = [part if a == self.axis else n.extent for a, n in enumerate(self.space.axes)]
        lengths = self.space.worst(self.operand, extents)
        return prod(lengths) * self.tensor.itemsize, rows_of(lengths, self.tensor.shape)

    @property
    def slots(self) -> int:
        """Number of its buffers."""
        return 1 if not self.moves else 3 if self.read and self.written else 2


class _Way(NamedTuple):
    """A way to join ops: estimated cycles, number and length of parts, axes."""

    cycles: int
    n: int
    part: int
    axes: tuple[int, ...]
    uses: dict[str, _Use]
    turn: TurnEstimate


class Bands:
    """Search for bands among the ops of a plan over two levels.

    Parameters
    ----------
    drafts : sequence of OpDraft
    lifetimes : Lifetimes
    link : Level
        The inner level.
    compute : Compute
    """

    def __init__(
        self, drafts: Sequence[OpDraft], lifetimes: Lifetimes, link: Level, compute: Compute
    ) -> None:
        self.drafts, self.lifetimes, self.link, self.compute = drafts, lifetimes, link, compute
        self.known: dict[tuple[int, int], Sequence[Band | None]] = {}
        self.kinds: dict[Hashable, tuple[list[str], Sequence[Band | None]]] = {}
        self.op_kinds: dict[int, int] = {}
        self.shapes: dict[Hashable, int] = {}
        self.turns: dict[int, TurnEstimate] = {}  # of ops alone

    def find(self, longest: int) -> list[Band]:
        """Join neighbours where the estimated cycles fall.

        Parameters
        ----------
        longest : int
            Most ops of a band.

        Returns
        -------
        list of Band
        """
        # For each last turn: cycles, estimate of that turn, bands so far (the last one first)
        best: list[list[tuple[int, TurnEstimate | None, Any]]] = [[(0, None, ())]]
        for stop in range(1, len(self.drafts) + 1):
            found: list[tuple[int, TurnEstimate | None, Any]] = []
            for first in range(stop - 1, max(-1, stop - longest - 1), -1):
                for band in self.bands(first, stop - 1):
                    if first not in self.turns:
                        self.turns[first] = self.alone(first)
                    turn = self.turns[first] if band is None else band.turn
                    ways = (
                        (cycles + self.after(before, turn), k)
                        for k, (cycles, before, _) in enumerate(best[first])
                    )
                    cycles, k = min(ways)
                    chain = best[first][k][2]
                    found.append((cycles, turn, chain if band is None else (band, chain)))
            best.append(found)
        chain, bands = min(best[-1], key=lambda way: way[0])[2], list[Band]()
        while chain:
            band, chain = chain
            bands.append(band)
        return bands[::-1]

    def after(self, before: TurnEstimate | None, turn: TurnEstimate) -> int:
        """Estimate the cycles from the last kernel of a turn to that of the next.

        The result of one turn is stored and fetched before the next can begin, unless it may stay
        as a whole. Operands that fit into memory beside the previous turn are fetched in time.
        """
        parts = before.parts if before else {}
        free = self.link.bytes if before else 0
        free -= sum(self.link.rounded(one.bytes) * one.slots for one in parts.values())
        inward, late = turn.inward, 0
        for name, part in turn.parts.items():
            size, own = self.lifetimes.values[name].bytes, parts.get(name)
            if not part.read:
                continue
            if own and own.rows == 1 and part.rows == 1:
                more = self.link.rounded(size) - self.link.rounded(own.bytes) * own.slots
                if more <= free:
                    free -= max(0, more)
                    inward -= self.link.cycles(size)
                    continue
            if own and own.written:
                late += self.link.cycles(own.bytes, own.rows)
            elif part.bytes <= free:
                free -= part.bytes
                continue
            late += self.link.cycles(part.bytes, part.rows)
        return max(turn.work, inward, turn.outward) + late

    def alone(self, number: int, choice: Choice | None = None) -> TurnEstimate:
        """Estimate the cycles of one op if all hideable transfers are hidden."""
        draft = self.drafts[number]
        step, choice = draft.step, choice or draft.choices[0]
        tensors = self.lifetimes.graph(step).tensors
        sides, parts = [0, 0], {}
        for operand, slots in zip(step.space.operands, choice.slots, strict=True):
            name, tensor = self.lifetimes.root(step, operand.tensor), tensors[operand.tensor]
            size = self.lifetimes.values[name].bytes
            read, written = operand.mode != "out", operand.mode != "in"
            sides[0] += self.link.cycles(size) * read * self.again(step, operand, choice)
            sides[1] += self.link.cycles(size) * written
            lengths = step.space.worst(operand, choice.extents)
            part, rows = prod(lengths) * tensor.itemsize, rows_of(lengths, tensor.shape)
            parts[name] = PartEstimate(part, rows, slots, part < size, read, written)
        work = self.work([step], [choice.extents], choice.n_tiles)
        return TurnEstimate(work, sides[0], sides[1], parts)

    def again(self, step: Step, operand: Operand, choice: Choice) -> int:
        """Count how often each part of an operand is fetched."""
        own, times, inside = {axis_of(span) for span in operand.spans}, 1, False
        for a in reversed(choice.order):
            n = -(-step.space.axes[a].extent // choice.extents[a])
            inside |= a in own and n > 1
            times *= n if inside and a not in own else 1
        return times

    def halves(self, number: int) -> list[Band]:
        """Find bands of one op that runs its tiles twice, with half of a whole operand each time.

        One half is fetched while the other is in use or the previous turn runs. Tiles of 2**k
        rows fill the multiprocessors of a GPU: 512 take as long as 384.
        """
        draft = self.drafts[number]
        step, choice = draft.step, draft.choices[0]
        axes = step.space.axes
        cut = [b for b, n in enumerate(choice.extents) if n < axes[b].extent]
        if draft.overlap != "across" or not step.space.product or len(cut) != 1:
            return []
        sizes, found = {cut[0]: 1 << (choice.extents[cut[0]] - 1).bit_length()}, []
        for a, axis in enumerate(axes):
            if a in cut or axis.kind == "reduce":
                continue
            sizes = {cut[0]: sizes[cut[0]], a: axis.extent // 2}
            if not all(n and _legal(step.space, b, n) for b, n in sizes.items()):
                continue
            if any(axes[b].extent % n for b, n in sizes.items()):
                continue
            extents = tuple(sizes.get(b, n) for b, n in enumerate(choice.extents))
            moves = [a in map(axis_of, operand.spans) for operand in step.space.operands]
            slots = tuple(max(2 * m, n) for m, n in zip(moves, choice.slots, strict=True))
            order = (a, *(b for b in choice.order if b != a))
            n = 2 * axes[cut[0]].extent // sizes[cut[0]]
            turn = self.alone(number, way := Choice(extents, order, slots, choice.cycles, n))
            if self.fits(turn, choice.cycles):
                found.append(Band(number, number, frozenset(), (way,), turn))
        return found

    def fits(self, turn: TurnEstimate, most: int) -> bool:
        """Tell whether an op's buffers fit, and it alone takes at most ``most`` cycles."""
        parts, link = turn.parts.values(), self.link
        ends = sum(link.cycles(p.bytes, p.rows) * (p.read + p.written) for p in parts)
        taken = sum(link.rounded(p.bytes) * p.slots for p in parts)
        return taken <= link.bytes and turn.work + ends <= most

    def work(self, steps: Sequence[Step], extents: Sequence[Sequence[int]], n: int) -> int:
        """Cycles of the kernels of steps that are cut into n tiles of these extents."""
        found = 0
        for step, lengths in zip(steps, extents, strict=True):
            if self.compute.rate(step.node.op):
                box = [(0, length) for length in lengths]
                found += n * self.compute.tile(step.node.op, step.space, box)
            else:
                whole = self.compute.tile(step.node.op, step.space, step.space.whole)
                found += (n - 1) * self.compute.launch + whole
        return found

    def bands(self, first: int, last: int) -> Sequence[Band | None]:
        """Find the best bands of some steps; None leaves an op as it is.

        In one of them, no op takes longer by itself than with its best tiling. The other saves
        more cycles than it makes ops wait, whatever runs beside it.
        """
        if (first, last) not in self.known:
            names, key = self.kind(first, last)
            if key not in self.kinds:
                alone = first == last
                found = [None, *self.halves(first)] if alone else self.best(first, last)
                self.kinds[key] = names, found
            old, known = self.kinds[key]
            new = dict(zip(old, names, strict=True))
            self.known[first, last] = [band and _moved(band, first, new) for band in known]
        return self.known[first, last]

    def kind(self, first: int, last: int) -> tuple[list[str], Hashable]:
        """List the values that some steps use, and make a key of all that their bands depend on.

        Steps with the same key have the same bands, but for the names of the values.
        """
        names: dict[str, int] = {}
        key: list[Hashable] = []
        for draft in self.drafts[first : last + 1]:
            step = draft.step
            for name in self.names(step):
                value = self.lifetimes.values[name]
                later = value.wanted or value.uses[-1][0] > last
                key += [names.setdefault(name, len(names)), value.bytes, later]
            key += [self.op_kind(draft), step.program]
        return list(names), tuple(key)

    def op_kind(self, draft: OpDraft) -> int:
        """Number the kind of an op: its tilings, its operands, and how it is cut by itself."""
        number = draft.step.number
        if number not in self.op_kinds:
            step, tensors = draft.step, self.lifetimes.graph(draft.step).tensors
            own = [tensors[operand.tensor] for operand in step.space.operands]
            key = (
                shape_of(step.space),
                tuple((one.shape, one.itemsize) for one in own),
                tuple(draft.choices),
                draft.overlap,
                step.node.op if self.compute.rates else "",
            )
            self.op_kinds[number] = self.shapes.setdefault(key, len(self.shapes))
        return self.op_kinds[number]

    def best(self, first: int, last: int) -> list[Band]:
        drafts = self.drafts[first : last + 1]
        if any(d.overlap != "across" or d.step.program != drafts[0].step.program for d in drafts):
            return []
        steps = [draft.step for draft in drafts]
        most = sum(self.alone(step.number).cycles for step in steps)
        ways = [
            way
            for axis in range(len(steps[0].space.axes))
            for axes in self.axes(steps, axis)
            for way in self.parts(steps, axes)
        ]
        ways.sort(key=lambda way: way[:3])
        quick = ways[:1] if ways and ways[0].cycles < most else []
        fair = (way for way in ways if all(self.fair(step, steps, way) for step in steps))
        found = quick + [way for way in islice(fair, 1) if not quick or way is not quick[0]]
        return [self.joined(steps, way) for way in found]

    def axes(self, steps: Sequence[Step], axis: int) -> Iterator[tuple[int, ...]]:
        """Yield axes, one for each op, that cut shared values alike, from an axis of the first."""
        extent = steps[0].space.axes[axis].extent
        axes = [axis]
        for k, step in enumerate(steps[1:], 1):
            before = {name for one in steps[:k] for name in self.names(one)}
            for a, own in enumerate(step.space.axes):
                uses = self.uses(steps[: k + 1], (*axes, a)) if own.extent == extent else None
                both = before & set(self.names(step)) if uses else ()
                if uses and any(uses[name].moves for name in both):
                    axes.append(a)
                    break
            else:
                return
        if extent > 1:
            yield tuple(axes)

    def names(self, step: Step) -> list[str]:
        """Values of the operands of an op."""
        return [self.lifetimes.root(step, o.tensor) for o in step.space.operands]

    def uses(self, steps: Sequence[Step], axes: Sequence[int]) -> dict[str, _Use] | None:
        """Find how each value is used; None where the ops may not be interleaved."""
        found: dict[str, _Use] = {}
        for step, axis in zip(steps, axes, strict=True):
            space, tensors = step.space, self.lifetimes.graph(step).tensors
            for operand, name in zip(space.operands, self.names(step), strict=True):
                places = tuple(
                    "cut" if span == Cut(axis) else "moves" if axis_of(span) == axis
                    else span.range(space.whole)
                    for span in operand.spans
                )  # fmt: skip
                read, written = operand.mode != "out", operand.mode != "in"
                moves = "cut" in places or "moves" in places
                tensor = tensors[operand.tensor]
                use = _Use(places, space, operand, axis, tensor, read, written, moves)
                old = found.setdefault(name, use)
                if old is use:
                    continue
                if old.places != places or "moves" in places:
                    return None
                if (old.written or written) and not moves:
                    return None
                old.written |= written
        return found

    def parts(self, steps: Sequence[Step], axes: tuple[int, ...]) -> Iterator[_Way]:
        """Yield lengths of a part, with the estimated cycles."""
        uses = self.uses(steps, axes)
        assert uses is not None
        axis, n_last = steps[0].space.axes[axes[0]], 1
        for part in candidates(axis, axis.extent, self.link):
            n = -(-axis.extent // part)
            if n > _MOST_PARTS or 4 * n < 5 * n_last:
                continue
            if all(_legal(step.space, a, part) for step, a in zip(steps, axes, strict=True)):
                n_last = n
                yield from self.guess(steps, uses, axes, part, n)

    def joined(self, steps: Sequence[Step], way: _Way) -> Band:
        """Make the band of some steps."""
        names = [name for step in steps for name in set(self.names(step))]
        choices = []
        for step, a in zip(steps, way.axes, strict=True):
            own = range(len(step.space.axes))
            (extents,) = _extents([step], [a], way.part)
            slots = tuple(way.uses[name].slots for name in self.names(step))
            choices.append(Choice(extents, (a, *(b for b in own if b != a)), slots, 0, way.n))
        shared = frozenset(name for name in names if names.count(name) > 1)
        return Band(steps[0].number, steps[-1].number, shared, tuple(choices), way.turn)

    def guess(
        self,
        steps: Sequence[Step],
        uses: dict[str, _Use],
        axes: tuple[int, ...],
        part: int,
        n: int,
    ) -> Iterator[_Way]:
        """Estimate the cycles, first fetches included that no band like this one can hide."""
        link, room, last = self.link, self.link.bytes, steps[-1].number
        sides, first, ahead, parts = [0, 0], 0, 0, {}
        for name, use in uses.items():
            value, (slot, rows) = self.lifetimes.values[name], use.slot(part)
            cycles, times = link.cycles(slot, rows), n if use.moves else 1
            room -= link.rounded(slot) * use.slots
            if use.read:
                sides[0] += cycles * times
                first += cycles
            if use.written and (value.wanted or value.uses[-1][0] > last):
                sides[1] += cycles * times
            ahead += link.rounded(slot) * (use.read or use.moves)
            parts[name] = PartEstimate(slot, rows, use.slots, use.moves, use.read, use.written)
        if room < 0:
            return
        fill = first if ahead > room else 0  # no room to begin a band like this one beside it
        work = self.work(steps, _extents(steps, axes, part), n)
        turn = TurnEstimate(work, sides[0], sides[1], parts)
        yield _Way(turn.cycles + fill + sum(sides) // n, n, part, axes, uses, turn)

    def fair(self, one: Step, steps: Sequence[Step], way: _Way) -> bool:
        """Tell whether an op in a band takes no longer by itself than with its best tiling."""
        last = steps[-1].number
        before = {name for step in steps if step.number < one.number for name in self.names(step)}
        once, each = [0, 0], [0, 0]
        for operand, name in zip(one.space.operands, self.names(one), strict=True):
            use, value = way.uses[name], self.lifetimes.values[name]
            cycles = self.link.cycles(*use.slot(way.part))
            writers = [number for number, mode in value.uses if mode != "in" and number <= last]
            goes = writers[-1:] == [one.number] and (value.wanted or value.uses[-1][0] > last)
            comes = operand.mode != "out" and name not in before
            for side, moved in enumerate((comes, goes and operand.mode != "in")):
                (each if use.moves else once)[side] += cycles * moved
        axis = way.axes[one.number - steps[0].number]
        work = self.work([one], _extents([one], [axis], way.part), way.n) // way.n
        tiles = [TileCycles(each[0], work, each[1])] * way.n
        tiles[0] = TileCycles(once[0] + each[0], work, each[1])
        tiles[-1] = tiles[-1]._replace(store=once[1] + each[1])
        return double_buffered(tiles) <= self.drafts[one.number].choices[0].cycles


def _moved(band: Band, first: int, names: Mapping[str, str]) -> Band:
    """Describe an equal band that begins at another step, with other names of its values."""
    parts = {names[name]: part for name, part in band.turn.parts.items()}
    last = first + band.last - band.first
    shared = frozenset(names[name] for name in band.shared)
    return Band(first, last, shared, band.choices, replace(band.turn, parts=parts))


def _extents(steps: Sequence[Step], axes: Sequence[int], part: int) -> list[tuple[int, ...]]:
    """Extents of the tiles of steps that are cut into parts along one axis each."""
    return [
        tuple(part if b == a else axis.extent for b, axis in enumerate(step.space.axes))
        for step, a in zip(steps, axes, strict=True)
    ]


def _legal(space: TileSpace, axis: int, part: int) -> bool:
    extent = space.axes[axis].extent
    ends = (0, min(part, extent)), ((extent - 1) // part * part, extent)
    return not any(
        space.problem((*space.whole[:axis], end, *space.whole[axis + 1 :])) for end in ends
    )
