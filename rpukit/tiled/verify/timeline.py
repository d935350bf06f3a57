"""Timeline of a plan: when each tile and each copy runs, what it is for, what it waits for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import chain
from math import prod

from rpukit.tiled.ir import BaseGraph, Training
from rpukit.tiled.program import BasePlan, ComputeTile, Copy, Instruction, Program, Wait
from rpukit.tiled.verify.simulate import simulate

__all__ = ["KINDS", "Span", "blocks", "engines", "kind_of", "live_bytes_by_step", "spans"]

# What memory holds, and what a copy moves; a kernel is "compute".
KINDS = {
    "home": "values that live here between ops",
    "resident": "whole values that stay for several tiles or ops",
    "fetched": "operands, part by part",
    "result": "results and what is changed in place, part by part",
}


@dataclass(frozen=True, slots=True)
class Span:
    """Time during which an engine runs one instruction.

    Parameters
    ----------
    engine : str
        "compute", or "L1 in" with the name of the inner level.
    start, end : int
        Cycles from the beginning of the program.
    step : int
        Number of the op that it computes or copies for.
    name : str
        The node, or the tensor that is copied.
    kind : str
        "compute", or one of `KINDS`.
    bytes : int
        That are copied; 0 for a kernel.
    rows : int
        Contiguous runs of the copy.
    waited : int
        Cycles that the program waited for copies before it issued this one.
    waits_for : tuple of int
        Numbers of the spans that it had to wait for.
    """

    engine: str
    start: int
    end: int
    step: int
    name: str
    kind: str
    bytes: int
    rows: int
    waited: int
    waits_for: tuple[int, ...]


def engines(plan: BasePlan) -> list[str]:
    """List the engines of a plan: compute, then the links from the innermost outwards.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    list of str
    """
    rows = ["compute"]
    for link in plan.hierarchy.levels[:0:-1]:
        rows += [f"{link.name} in", f"{link.name} out"]
    return rows


def spans(plan: BasePlan, graph: BaseGraph | Training, program: int = 0) -> list[Span]:
    """Say of each tile and each copy of a program when it runs, and what it waits for.

    Parameters
    ----------
    plan : Plan
    graph : Graph or Training
    program : int
        0 for the graph or the training graph, 1 for the optimiser's.

    Returns
    -------
    list of Span
        In order of issue. The times are those of `simulate`. A copy is for the op that uses it or
        made what it stores. A copy outwards waits for the kernel before it.
    """
    own = plan.programs[program]
    busy, steps = simulate(plan, graph, program), _steps(own)
    found: list[Span] = []
    copies: dict[int, tuple[int, Copy]] = {}  # by token: its number and itself
    pending: dict[int, tuple[int, Copy]] = {}  # waited for, and not yet needed: cycles and copy
    now, last = 0, -1  # the last kernel's number
    for instruction in own.instructions:
        if isinstance(instruction, Wait):
            number, copy = copies[instruction.token]
            pending[number] = max(0, found[number].end - now), copy
            now = max(now, found[number].end)
            continue
        number, one = len(found), busy[len(found)]
        times = one.engine, one.start, one.end, steps[number]
        if isinstance(instruction, ComputeTile):
            waited, before = sum(cycles for cycles, _ in pending.values()), set(pending)
            pending, now, last = {}, one.end, number
            rest = Span(*times, instruction.node, "compute", 0, 1, waited, tuple(sorted(before)))
        else:
            copies[instruction.token] = number, instruction
            before = {n for n, (_, copy) in pending.items() if _meet(copy, instruction)}
            waited = sum(pending.pop(n)[0] for n in before)
            before |= {last} - {-1} if instruction.engine == "out" else set()
            size = prod(instruction.shape), prod(instruction.shape[:-1])
            what = instruction.tensor, _kind(own, instruction, steps[number])
            rest = Span(*times, *what, *size, waited, tuple(sorted(before)))
        found.append(rest)
    return found


def _meet(one: Copy, other: Copy) -> bool:
    """Tell whether two copies use the same addresses of a level."""
    return any(
        level == its_level and first < its_end and its_first < end
        for level, first, end in _touched(one)
        for its_level, its_first, its_end in _touched(other)
    )


def _touched(copy: Copy) -> list[tuple[str, int, int]]:
    ends = (copy.source, copy.source_strides), (copy.target, copy.target_strides)
    return [
        (
            level,
            address,
            address + 1 + sum((n - 1) * s for n, s in zip(copy.shape, strides, strict=True)),
        )
        for (level, address), strides in ends
    ]


def _steps(program: Program) -> list[int]:
    """Number of the op that each tile or copy is for, in order of issue."""
    place = {op.node: number for number, op in enumerate(program.ops)}
    listed: list[Instruction] = list(program.instructions)
    user: dict[int, int] = {}  # of the copy with a token: the op that computes after its wait
    ahead = len(program.ops) - 1
    for instruction in reversed(listed):
        if isinstance(instruction, ComputeTile):
            ahead = place[instruction.node]
        elif isinstance(instruction, Wait):
            user[instruction.token] = ahead
    steps, last = [], 0
    uses = _uses(program)
    for instruction in listed:
        if isinstance(instruction, ComputeTile):
            last = place[instruction.node]
            steps.append(last)
        elif isinstance(instruction, Copy):
            into = instruction.engine == "in"
            level = (instruction.target if into else instruction.source)[0]
            near = user.get(instruction.token, last) if into else last
            own = uses.get((level, instruction.tensor), [near])
            k = bisect_left(own, near) if into else bisect_right(own, near) - 1
            steps.append(own[min(max(k, 0), len(own) - 1)])
    return steps


def _uses(program: Program) -> dict[tuple[str, str], list[int]]:
    """List the ops that have a place in a level for a tensor, in their order."""
    uses: dict[tuple[str, str], list[int]] = {}
    for step, op in enumerate(program.ops):
        for operand in op.operands:
            for place in operand.places:
                own = uses.setdefault((place.level, operand.tensor), [])
                own += [step] * (step not in own[-1:])
    return uses


def _kind(program: Program, copy: Copy, step: int) -> str:
    """Tell whether a copy fills or empties a resident value, or rotating buffers."""
    level, address = copy.target if copy.engine == "in" else copy.source
    for op in chain((program.ops[step],), program.ops):  # the likely one first
        for operand in op.operands:
            for place in operand.places if operand.tensor == copy.tensor else ():
                inside = any(a <= address < a + place.bytes for a in place.addresses)
                if place.level == level and inside:
                    return kind_of(place.kind, operand.mode)
    return "fetched" if copy.engine == "in" else "result"


def kind_of(place: str, mode: str) -> str:
    """Name what a place holds, by its kind and the mode of its operand.

    Parameters
    ----------
    place : {"slots", "resident"}
    mode : str

    Returns
    -------
    str
    """
    return "resident" if place == "resident" else "fetched" if mode == "in" else "result"


Block = tuple[int, int, int, int, str]


def blocks(plan: BasePlan, program: int, level: str) -> list[Block]:
    """List what lies in a level: (address, bytes, lower, upper, kind) by the steps of a program.

    Parameters
    ----------
    plan : Plan
    program : int
    level : str

    Returns
    -------
    list of (int, int, int, int, str)
        Steps count from the first op of the program, so they may begin before and end after it.
    """
    ahead = sum(len(one.ops) for one in plan.programs[:program])
    found: dict[tuple[str, int], Block] = {}
    for home in plan.homes:
        if home.level == level:
            lower, upper = home.lower - ahead, home.upper - ahead
            found[home.value, 0] = (home.address, home.bytes, lower, upper, "home")
    for op in plan.programs[program].ops:
        for operand in op.operands:
            for place in operand.places:
                if place.level == level:
                    kind = kind_of(place.kind, operand.mode)
                    lower, upper = place.lower - ahead, place.upper - ahead
                    for k, address in enumerate(place.addresses):
                        found[place.block, k] = (address, place.bytes, lower, upper, kind)
    return list(found.values())


def live_bytes_by_step(plan: BasePlan, program: int, level: str) -> list[dict[str, int]]:
    """Count the bytes that are taken of a level while each op runs, by kind.

    Memory that one op leaves to the next while it runs counts once, by the first kind of `KINDS`.

    Parameters
    ----------
    plan : Plan
    program : int
    level : str

    Returns
    -------
    list of dict of str to int
        One for each op.
    """
    rank = {kind: number for number, kind in enumerate(KINDS)}
    by_step: list[list[Block]] = [[] for _ in plan.programs[program].ops]
    for block in blocks(plan, program, level):
        for step in range(max(block[2], 0), min(block[3], len(by_step))):
            by_step[step].append(block)
    found = []
    for here in by_step:
        taken, covered = dict.fromkeys(KINDS, 0), list[tuple[int, int]]()
        for first, size, _, _, kind in sorted(here, key=lambda block: rank[block[4]]):
            pieces = [(first, first + size)]
            for low, high in covered:
                cut = [((a, min(b, low)), (max(a, high), b)) for a, b in pieces]
                pieces = [(a, b) for both in cut for a, b in both if a < b]
            taken[kind] += sum(b - a for a, b in pieces)
            covered += pieces
        found.append(taken)
    return found
