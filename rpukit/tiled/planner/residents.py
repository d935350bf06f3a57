"""Placement: homes, resident values and addresses in every level.

A value whose home is further out may stay in a level between two consecutive uses: a resident.
Residents are chosen greedily, by cycles saved for each byte and turn. A turn is an op, or the ops
of a band: these run interleaved, so what one of them needs is present all the time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import prod

import numpy as np

from rpukit.errors import PlanError
from rpukit.tiled.machine import Hierarchy, Level
from rpukit.tiled.planner.addresses import Block, live_bytes, pack, peak
from rpukit.tiled.planner.draft import OpDraft
from rpukit.tiled.planner.level_plan import LevelPlan, PlacementContext, Residency, Turns
from rpukit.tiled.planner.lifetimes import Lifetimes, Step, Value, merged
from rpukit.tiled.planner.prefetch import extend_buffers, prefetch_operands, prefetch_values
from rpukit.tiled.planner.tasks import nested_boxes
from rpukit.tiled.planner.tile_search import rows_of
from rpukit.tiled.program import Home, OperandPlan, OpPlan, Place

__all__ = ["Placement"]

# Shares of a level that residents may fill, and prefetched values as well
_SHARES = ((1.0, 0.9), (1.0, 0.75), (1.0, 0.6), (0.9, 0.5), (0.75, 0.5), (0.5, 0.5), (0.0, 0.0))
_REACH = 6  # most turns by which the life of a buffer grows, to be filled and emptied
_FEW = 500  # values that are packed with all effort
_MOST_TILES = 512  # an op of more tiles has no residents in the innermost level


class Placement:
    """Placement of values: homes, residents and addresses in every level.

    Parameters
    ----------
    lifetimes : Lifetimes
    levels : Hierarchy
    auto : bool
        Keep residents.
    promoted : mapping of str to int
        Addresses of values that live in the second level permanently.
    """

    def __init__(
        self, lifetimes: Lifetimes, levels: Hierarchy, auto: bool, promoted: Mapping[str, int]
    ) -> None:
        self.lifetimes, self.levels, self.auto = lifetimes, levels, auto
        self.far = len(levels) > 2  # whether buffers are filled more than a turn ahead
        self.prefetch = False  # whether transfer-bound ops get prefetched whole buffers
        self.reserve = False  # whether memory for prefetching is reserved before residents
        self.promoted = promoted
        self.runs: dict[Hashable, bool] = {}
        self.packed: dict[Hashable, tuple[dict[str, Home], int]] = {}
        self.base = [0] * len(levels)
        values = lifetimes.values
        self.base[1] = max(
            (a + values[name].bytes for name, a in self.promoted.items()), default=0
        )
        self.base[1] = levels[1].rounded(self.base[1])

    def home(self, value: str) -> int:
        """Find the index of the level in which a value lives."""
        return 1 if value in self.promoted else 0

    def here(self, step: Step, level: int) -> frozenset[int]:
        """Find the operands that live in a level or further in."""
        operands = enumerate(step.space.operands)
        return frozenset(
            k for k, o in operands if self.home(self.lifetimes.root(step, o.tensor)) >= level
        )

    def room(self, step: Step, level: int) -> int:
        """Count the bytes of a level that an op may take."""
        return self.levels[level].bytes - self.base[level]

    def sizes(self, step: Step) -> tuple[int, ...]:
        """Count the bytes of an element of each operand."""
        tensors = self.lifetimes.graph(step).tensors
        return tuple(tensors[o.tensor].itemsize for o in step.space.operands)

    def place(
        self, drafts: Sequence[OpDraft]
    ) -> tuple[dict[str, Home], dict[int, OpPlan], dict[str, int]]:
        """Assign addresses to all values and buffers.

        Parameters
        ----------
        drafts : sequence of OpDraft

        Returns
        -------
        homes : dict of str to Home
        ops : dict of int to OpPlan
        peaks : dict of str to int
        """
        self.turns = Turns(drafts, self.levels.compute)
        names = self.lifetimes.values
        places = {name: self.home(name) for name in names}
        self.context = PlacementContext(self.lifetimes, self.levels, places, self.turns)
        homes, peaks = self._homes()
        inner = len(self.levels) - 1
        found: dict[int, LevelPlan] = {}
        need_in = {
            (d.step.number, k)
            for d in drafts
            for k, o in enumerate(d.step.space.operands)
            if o.mode != "out"
        }
        need_out = {
            (d.step.number, k)
            for d in drafts
            for k, o in enumerate(d.step.space.operands)
            if o.mode != "in"
        }
        for index in range(inner, 0, -1):
            one = self._level(index, drafts, need_in, need_out)
            found[index] = one
            need_in, need_out = one.fetch, one.store
            top = self.base[index] + peak(one.blocks, one.offsets)
            peaks[self.levels[index].name] = top
        spans = {k: {block.name: block for block in one.blocks} for k, one in found.items()}
        ops = {d.step.number: self._op(d, found, spans) for d in drafts}
        return homes, ops, peaks

    def _homes(self) -> tuple[dict[str, Home], dict[str, int]]:
        """Assign addresses to the values; once for turns that begin and end at the same steps."""
        turns, values = self.turns, self.lifetimes.values
        spans = {
            v.name: (turns.steps[turns.of[v.lower]][0], turns.steps[turns.of[v.upper - 1]][1])
            for v in values.values()
        }
        key = tuple(spans.values())
        if key not in self.packed:
            self.packed[key] = self._pack_homes(spans)
        homes, top = self.packed[key]
        return homes, {self.levels[0].name: top}

    def _pack_homes(self, spans: Mapping[str, tuple[int, int]]) -> tuple[dict[str, Home], int]:
        level, values = self.levels[0], self.lifetimes.values
        blocks = [
            Block(v.name, *spans[v.name], level.rounded(v.bytes))
            for v in values.values()
            if v.name not in self.promoted
        ]
        rounds = 100 * _FEW**2 // max(len(blocks), _FEW) ** 2  # a packing takes as much as n^2
        offsets = pack(blocks, align=level.align, rounds=rounds, effort=0)
        top = peak(blocks, offsets)
        if top > level.bytes:
            raise PlanError(
                f"{level.name}: all values that live at once need {top} bytes (at least "
                f"{live_bytes(blocks)}), {level.bytes} are available. Give {level.name} {top} "
                "bytes or more"
            )
        homes = {}
        for v in values.values():
            k = self.home(v.name)
            address = self.promoted[v.name] if k else offsets[v.name]
            homes[v.name] = Home(
                v.name, self.levels[k].name, address, v.bytes, *spans[v.name], v.lasting
            )
        return homes, top

    def _level(
        self,
        index: int,
        drafts: Sequence[OpDraft],
        need_in: set[tuple[int, int]],
        need_out: set[tuple[int, int]],
    ) -> LevelPlan:
        """Plan residents and addresses of one level, with fewer residents until all fits."""
        level, room = self.levels[index], self.levels[index].bytes - self.base[index]
        inmost = index == len(self.levels) - 1
        here = {(d.step.number, k) for d in drafts for k in self.here(d.step, index)}
        inside = (need_in | need_out) - here
        tries = [(share, ahead, _REACH) for share, ahead in _SHARES]
        if inmost:
            tries = [*(tries[:4] if self.far else ()), *((s, s, 1) for s in dict(_SHARES))]
        for share, ahead, reach in tries:
            one = LevelPlan(index, need_in & inside, need_out & inside)
            if self.auto and share:
                self._choose_residents(one, drafts, inside, int(room * share))
            self._lighten(one, drafts)
            if self.auto and share and not inmost:
                prefetch_values(self.context, one, drafts, inside, int(room * ahead))
            self._blocks(one, drafts, inside, int(room * ahead) if self.auto else 0, reach)
            one.offsets = pack(one.blocks, align=level.align, limit=room, rounds=0, effort=0)
            if peak(one.blocks, one.offsets) <= room:
                return one
        raise PlanError(
            f"{level.name}: slots of one op need {peak(one.blocks, one.offsets)} bytes, "
            f"{room} are available. Give {level.name} more bytes"
        )

    def _choose_residents(
        self, one: LevelPlan, drafts: Sequence[OpDraft], inside: set[tuple[int, int]], room: int
    ) -> None:
        """Choose residents."""
        level, index = self.levels[one.index], one.index
        used = np.zeros(len(self.turns.steps), np.int64)
        slots: dict[tuple[int, str], int] = {}
        fit: dict[tuple[int, str], bool] = {}
        whole: dict[tuple[int, str], int] = {}  # bytes of values that are fetched as a whole
        for draft in drafts:
            number, turn = draft.step.number, self.turns.of[draft.step.number]
            for k, operand in enumerate(draft.step.space.operands):
                if (number, k) not in inside:
                    continue
                taken = (
                    self.context.slot_bytes(draft, k, index) * draft.choices[index - 1].slots[k]
                )
                name = self.lifetimes.root(draft.step, operand.tensor)
                fetched = (turn, name) not in slots and operand.mode != "out"
                if fetched and taken >= self.lifetimes.values[name].bytes:
                    whole[turn, name] = taken
                if (turn, name) not in slots or not draft.shares(name):
                    used[turn] += taken
                    slots[turn, name] = slots.get((turn, name), 0) + taken
                good = draft.overlap == "across" and (
                    index < len(self.levels) - 1 or self._contiguous(draft, k)
                )
                fit[turn, name] = fit.get((turn, name), True) and good
        for (turn, name), taken in whole.items() if self.reserve else ():
            if turn not in self.turns.starts and (turn - 1, name) not in slots:
                used[turn - 1] += taken
        for _, a, b, value in self._pairs(level, fit):
            size = level.rounded(value.bytes)
            more = np.full(b - a + 1, size)
            for place, number in ((0, a), (-1, b)):
                if (number, value.name) in one.residencies:
                    more[place] = 0
                else:
                    more[place] -= slots[number, value.name]
            if (used[a : b + 1] + more).max() > room:
                continue
            used[a : b + 1] += more
            self._join(one, value, a, b)
        if self.prefetch:
            prefetch_operands(self.context, one, drafts, slots, fit, used, room)

    def _pairs(
        self, level: Level, fit: Mapping[tuple[int, str], bool]
    ) -> list[tuple[float, int, int, Value]]:
        """List pairs of consecutive uses of a value, by cycles saved for each byte and turn."""
        pairs = []
        for value in self.lifetimes.values.values():
            uses = merged([(self.turns.of[n], mode) for n, mode in value.uses])
            for i in range(len(uses) - 1):
                (a, mode), (b, _) = uses[i : i + 2]
                if not fit.get((a, value.name)) or not fit.get((b, value.name)):
                    continue
                if any(a < start <= b for start in self.turns.starts):  # of two programs
                    continue
                saved = level.cycles(value.bytes)
                if mode != "in" and i + 2 == len(uses) and not value.wanted:
                    saved *= 2
                price = level.rounded(value.bytes) * (b - a + 1)
                pairs.append((-saved / price, a, b, value))
        return sorted(pairs, key=lambda pair: (*pair[:3], pair[3].name))

    def _join(self, one: LevelPlan, value: Value, a: int, b: int) -> None:
        left, right = one.residencies.get((a, value.name)), one.residencies.get((b, value.name))
        stay = left or right or Residency(value.name, a, b)
        stay.first, stay.last = min(stay.first, a), max(stay.last, b)
        if left and right and left is not right:
            left.first, left.last = min(left.first, right.first), max(left.last, right.last)
            for number, _ in value.uses:  # the turns of a stay are those of its uses
                key = self.turns.of[number], value.name
                if one.residencies.get(key) is right:
                    one.residencies[key] = left
        one.residencies[a, value.name] = one.residencies[b, value.name] = stay

    def _lighten(self, one: LevelPlan, drafts: Sequence[OpDraft]) -> None:
        """Drop the copies that residents and bands make unnecessary."""
        for draft in drafts:
            number, turn = draft.step.number, self.turns.of[draft.step.number]
            for k, operand in enumerate(draft.step.space.operands):
                name = self.lifetimes.root(draft.step, operand.tensor)
                stay = one.residencies.get((turn, name))
                if stay is None and not draft.shares(name):
                    continue
                first, last = (turn, turn) if stay is None else (stay.first, stay.last)
                if first < turn:
                    one.fetch.discard((number, k))
                value = self.lifetimes.values[name]
                writes = [n for n, mode in value.uses if mode != "in" and self.turns.of[n] <= last]
                later = value.wanted or self.turns.of[value.uses[-1][0]] > last
                if number != max(writes, default=-1) or not later:
                    one.store.discard((number, k))

    def _contiguous(self, draft: OpDraft, k: int) -> bool:
        """Tell whether every rectangle of an operand is one contiguous run of its value."""
        key = draft.step.number, k, *draft.choices
        if key not in self.runs:
            self.runs[key] = self._one_run(draft, k)
        return self.runs[key]

    def _one_run(self, draft: OpDraft, k: int) -> bool:
        step = draft.step
        if prod(c.n_tiles for c in draft.choices) > _MOST_TILES:
            return False
        shape = self.lifetimes.graph(step).tensors[step.space.operands[k].tensor].shape
        parts = {
            step.space.rectangle(step.space.operands[k], tile[-1])
            for tile in nested_boxes(
                step.space.whole,
                [c.extents for c in draft.choices],
                [c.order for c in draft.choices],
            )
        }
        return all(rows_of([hi - lo for lo, hi in part], shape) == 1 for part in parts)

    def _blocks(
        self,
        one: LevelPlan,
        drafts: Sequence[OpDraft],
        inside: set[tuple[int, int]],
        room: int,
        reach: int,
    ) -> None:
        """List the blocks that are taken, extended for prefetches and late stores if they fit."""
        used = np.zeros(len(self.turns.steps), np.int64)
        blocks: dict[str, tuple[Block, bool, bool]] = {}
        level = self.levels[one.index]
        for draft in drafts:
            number, across = draft.step.number, draft.overlap == "across"
            turn = self.turns.of[number]
            for k, operand in enumerate(draft.step.space.operands):
                if (number, k) not in inside:
                    continue
                name = self.lifetimes.root(draft.step, operand.tensor)
                early, late = across and operand.mode != "out", across and operand.mode != "in"
                stay = one.residencies.get((turn, name))
                if stay is not None and not stay.name:
                    size = level.rounded(self.lifetimes.values[name].bytes)
                    stay.name = f"{level.name}:{name}+{self.turns.steps[stay.first][0]}"
                    lower, upper = stay.first - stay.before, stay.last + 1 + stay.after
                    block = Block(stay.name, lower, upper, size)
                    blocks[stay.name] = block, early and not stay.before, False
                if stay is not None:
                    continue
                size = self.context.slot_bytes(draft, k, one.index)
                for n, slot in enumerate(self._slots(one, draft, k)):
                    block = Block(slot, turn, turn + 1, size)
                    old = blocks.get(slot, (block, early and n == 0, late))
                    blocks[slot] = block, old[1], old[2] or late
        for block, _, _ in blocks.values():
            used[block.lower : block.upper] += block.size
        one.blocks = extend_buffers([*blocks.values()], self.context, used, room, level, reach)

    def _slots(self, one: LevelPlan, draft: OpDraft, k: int) -> list[str]:
        """Name the buffers of an operand; ops of a band have one name for shared buffers."""
        name = self.lifetimes.root(draft.step, draft.step.space.operands[k].tensor)
        own = f"{draft.step.number}.{k}"
        if draft.shares(name):
            assert draft.band is not None
            own = f"{draft.band.first} to {draft.band.last}: {name}"
        return [f"{own}/{n}" for n in range(draft.choices[one.index - 1].slots[k])]

    def _op(
        self,
        draft: OpDraft,
        found: Mapping[int, LevelPlan],
        spans: Mapping[int, Mapping[str, Block]],
    ) -> OpPlan:
        step, tensors = draft.step, self.lifetimes.graph(draft.step).tensors
        operands = []
        for k, operand in enumerate(step.space.operands):
            value = self.lifetimes.root(step, operand.tensor)
            places = []
            for index in sorted(found):
                one, base = found[index], self.base[index]
                stay = one.residencies.get((self.turns.of[step.number], value))
                slots = self._slots(one, draft, k)
                names = slots if stay is None else [stay.name]
                if index <= self.home(value) or (names[:1] and names[0] not in one.offsets):
                    continue
                blocks = [spans[index][name] for name in names]
                level = self.levels[index].name
                places.append(
                    Place(
                        level,
                        "slots" if stay is None else "resident",
                        f"{level}:{names[0].rpartition('/')[0]}" if stay is None else stay.name,
                        tuple(base + one.offsets[name] for name in names),
                        blocks[0].size if stay is None else tensors[operand.tensor].nbytes,
                        self.turns.steps[min(b.lower for b in blocks)][0],
                        self.turns.steps[max(b.upper for b in blocks) - 1][1],
                        (step.number, k) in one.store,
                    )
                )
            operands.append(OperandPlan(operand.tensor, value, operand.mode, tuple(places)))
        return OpPlan(
            step.node.name,
            step.node.op,
            tuple(c.extents for c in draft.choices),
            tuple(c.order for c in draft.choices),
            tuple(operands),
            draft.overlap,
            draft.reason,
            prod(c.n_tiles for c in draft.choices),
            band=0 if draft.band is None else draft.band.first + 1,
        )
