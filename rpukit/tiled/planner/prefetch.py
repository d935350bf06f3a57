"""Prefetching of whole values, and live ranges of their buffers.

A buffer of a whole value can be filled while earlier turns run, and emptied while later ones run,
if memory is free for so long. The copies of a level are done in the order of the turns, so values
that are needed first get free memory first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

import numpy as np

from rpukit.tiled.machine import Level
from rpukit.tiled.planner.addresses import Block
from rpukit.tiled.planner.draft import OpDraft
from rpukit.tiled.planner.level_plan import (
    Lengths,
    LevelPlan,
    PlacementContext,
    Residency,
    ValueUse,
)

__all__ = ["extend_buffers", "prefetch_operands", "prefetch_values", "windows"]


def windows(
    uses: Sequence[Mapping[str, ValueUse]],
    work: Sequence[int],
    starts: Collection[int],
    used: np.ndarray,
    room: int,
) -> tuple[Lengths, Lengths]:
    """Find how early whole values can be prefetched, and how late written back.

    Parameters
    ----------
    uses : sequence of mapping of str to ValueUse
        Of each turn, by value.
    work : sequence of int
        Cycles that each turn takes when all its operands are present.
    starts : collection of int
        First turns of the programs, and the number of turns: no buffer is kept beyond them.
    used : array, shape (n_turns,), int64, in bytes
        Bytes taken already; changed in place.
    room : int
        Bytes there are.

    Returns
    -------
    before, after : dict of (int, str) to int
        By turn and value, for how many more turns a whole buffer exists. A value in neither has
        no such buffer, or the one it had.

    Examples
    --------
    >>> import numpy as np
    >>> from rpukit.tiled.planner.level_plan import ValueUse
    >>> from rpukit.tiled.planner.prefetch import windows
    >>> late = ValueUse(8, 2, 25, True, False, False, True, True)
    >>> windows([{}, {}, {}, {"w": late}], [10] * 4, {0, 4}, np.array([0, 4, 0, 2]), 10)
    ({(3, 'w'): 1}, {})
    """
    first = fetched = stored = 0  # turn; cycles when the last copy of a direction is done
    begin = np.zeros(len(uses) + 1, np.int64)  # cycles, of each turn
    before: Lengths = {}
    after: Lengths = {}
    for turn, own in enumerate(uses):
        if turn in starts:
            first = turn
            begin[turn] = fetched = stored = max(int(begin[turn]), fetched, stored)
        for value, use in own.items():
            since, more = max(turn - 1, first), 0 if use.whole else use.size - use.taken
            able = use.whole or (use.able and turn > first and used[turn] + more <= room)
            if use.fetched and able:
                late = np.searchsorted(begin[first : turn + 1], fetched, side="right")
                since = first + max(int(late) - 1, 0)
                full = np.flatnonzero(used[since:turn] + use.size > room)
                since += int(full[-1]) + 1 if len(full) else 0
                used[since:turn] += use.size
                used[turn] += more
                before[turn, value] = turn - since
            if use.fetched:
                fetched = max(fetched, int(begin[since])) + use.cycles
        end = max(int(begin[turn]) + work[turn], fetched)
        begin[turn + 1] = end
        for value, use in own.items():
            if not use.stored:
                continue
            stored, now, until = max(stored, end) + use.cycles, end, turn + 1
            if not use.last or not (use.whole or (turn, value) in before):
                continue
            while until not in starts and now < stored and used[until] + use.size <= room:
                used[until] += use.size
                now, until = now + work[until], until + 1
            after[turn, value] = until - turn - 1
    return before, after


def prefetch_values(
    context: PlacementContext,
    one: LevelPlan,
    drafts: Sequence[OpDraft],
    inside: Collection[tuple[int, int]],
    room: int,
) -> None:
    """Prefetch whole values several turns ahead, and write them back several turns later.

    Parameters
    ----------
    context : PlacementContext
    one : LevelPlan
        Of a level that is not the innermost; gets residencies that are new or longer.
    drafts : sequence of OpDraft
    inside : collection of (int, int)
        Steps and operands that pass through the level.
    room : int
        Bytes there are.
    """
    level, n = context.levels[one.index], len(context.turns.steps)
    values = context.lifetimes.values
    used, work = np.zeros(n, np.int64), [0] * n
    uses: list[dict[str, ValueUse]] = [{} for _ in range(n)]
    for draft in drafts:
        number, turn = draft.step.number, context.turns.of[draft.step.number]
        work[turn] += draft.choices[-1].cycles * prod(c.n_tiles for c in draft.choices[:-1])
        for k, operand in enumerate(draft.step.space.operands):
            if (number, k) not in inside:
                continue
            value = values[context.lifetimes.root(draft.step, operand.tensor)]
            stay, old = one.residencies.get((turn, value.name)), uses[turn].get(value.name)
            taken = 0
            if stay is None:
                n_slots = draft.choices[one.index - 1].slots[k]
                taken = context.slot_bytes(draft, k, one.index) * n_slots
            used[turn] += taken
            uses[turn][value.name] = ValueUse(
                level.rounded(value.bytes),
                taken + (old.taken if old else 0),
                level.cycles(value.bytes),
                (number, k) in one.fetch or (old is not None and old.fetched),
                (number, k) in one.store or (old is not None and old.stored),
                stay is not None,
                draft.overlap == "across" and (old is None or old.able),
                stay is None or stay.last == turn,
            )
    for stay in {id(stay): stay for stay in one.residencies.values()}.values():
        used[stay.first : stay.last + 1] += level.rounded(values[stay.value].bytes)
    before, after = windows(uses, work, context.turns.starts, used, room)
    for (turn, name), length in before.items():
        one.residencies.setdefault((turn, name), Residency(name, turn, turn)).before = length
    for key, length in after.items():
        one.residencies[key].after = length


def extend_buffers(
    blocks: Sequence[tuple[Block, bool, bool]],
    context: PlacementContext,
    used: np.ndarray,
    room: int,
    level: Level,
    reach: int,
) -> list[Block]:
    """Extend the live ranges of buffers, so that they are filled earlier and emptied later.

    Parameters
    ----------
    blocks : sequence of (Block, bool, bool)
        Each with whether it may begin earlier, and end later.
    context : PlacementContext
    used : array, shape (n_turns,), int64, in bytes
        Changed in place.
    room : int
        Bytes there are.
    level : Level
    reach : int
        Most turns by which a live range grows, on either side.

    Returns
    -------
    list of Block
    """
    spans = [[block.lower, block.upper] for block, _, _ in blocks]
    beside = [[0, 0] for _ in blocks]  # cycles of kernels, before and after
    for far in range(reach):
        for span, gained, (block, *free) in zip(spans, beside, blocks, strict=True):
            need = level.cycles(block.size) if far else 1
            for end, step in ((0, -1), (1, 1)):
                turn = span[end] - (end == 0)
                if not free[end] or span[end] in context.turns.starts or gained[end] >= need:
                    continue
                if used[turn] + block.size > room:
                    gained[end] = need
                    continue
                used[turn] += block.size
                gained[end] += context.turns.kernels[turn]
                span[end] += step
    return [
        b._replace(lower=lo, upper=hi) for (b, *_), (lo, hi) in zip(blocks, spans, strict=True)
    ]


def prefetch_operands(
    context: PlacementContext,
    one: LevelPlan,
    drafts: Sequence[OpDraft],
    slots: Mapping[tuple[int, str], int],
    fit: Mapping[tuple[int, str], bool],
    used: np.ndarray,
    room: int,
) -> None:
    """Prefetch whole operands of a transfer-bound turn while the one before runs.

    Parameters
    ----------
    context : PlacementContext
    one : LevelPlan
        Gets residencies of one turn.
    drafts : sequence of OpDraft
    slots : mapping of (int, str) to int
        Bytes that a value takes in a turn.
    fit : mapping of (int, str) to bool
        Whether a value may have a whole buffer.
    used : array, shape (n_turns,), int64, in bytes
        Changed in place.
    room : int
        Bytes there are.
    """
    level = context.levels[one.index]
    own = [drafts[slice(*steps)] for steps in context.turns.steps]
    slack = [sum(_slack(context, one, draft) for draft in every) for every in own]
    for turn in range(1, len(own)):
        if slack[turn] >= 0 or slack[turn - 1] <= 0 or turn in context.turns.starts:
            continue
        for step, operand in ((d.step, o) for d in own[turn] for o in d.step.space.operands):
            name = context.lifetimes.root(step, operand.tensor)
            key = turn, name
            if operand.mode == "out" or key in one.residencies or not fit.get(key):
                continue
            size = level.rounded(context.lifetimes.values[name].bytes)
            more = size, size - slots[key]
            if (used[turn - 1 : turn + 1] + more).max() > room:
                continue
            used[turn - 1 : turn + 1] += more
            one.residencies[key] = Residency(name, turn, turn)


def _slack(context: PlacementContext, one: LevelPlan, draft: OpDraft) -> int:
    """Compute the cycles of an op's kernels less those of its copies inwards."""
    step, level = draft.step, context.levels[one.index]
    work = context.levels.compute.tile(step.node.op, step.space, step.space.whole)
    for operand in step.space.operands:
        name = context.lifetimes.root(step, operand.tensor)
        value = context.lifetimes.values[name]
        stay = one.residencies.get((context.turns.of[step.number], name))
        fetched = stay is None or stay.first == context.turns.of[step.number]
        if operand.mode != "out" and fetched and context.homes[name] < one.index:
            work -= level.cycles(value.bytes)
    return work
