"""Lower bounds on cycles: of an op, given its neighbours, and of every plan of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from rpukit.tiled.machine import Hierarchy
from rpukit.tiled.planner.draft import OpDraft
from rpukit.tiled.planner.lifetimes import Lifetimes, Step
from rpukit.tiled.planner.tasks import Task
from rpukit.tiled.tile_space import Cut, Operand, Whole

__all__ = ["apart", "bounds", "least_cycles", "sizes_below"]

Values = Mapping[tuple[int, str], str]  # value of an op's tensor, by step and tensor


def bounds(
    tasks: Sequence[Task], own: Sequence[int], values: Values, levels: Hierarchy
) -> tuple[int, int]:
    """Compute the cycles of an op's tasks one after another, and a lower bound of its cycles.

    Parameters
    ----------
    tasks : sequence of Task
        The serial run of a program.
    own : sequence of int
        Indices of the op's tasks, in order; with gaps where other ops are interleaved.
    values : mapping of (int, str) to str
        The value that a tensor is a part of, by step and tensor.
    levels : Hierarchy

    Returns
    -------
    serial : int
    least : int
        The cycles of the busiest engine, or more where copies cannot overlap with any kernel: the
        first fetches of a program, its last stores, and fetches of what the previous op computes
        with its last tile.
    """
    engines: dict[tuple[int, str], int] = {}
    for task in (tasks[n] for n in own):
        duplex = task.hop < 0 or levels[task.hop].duplex
        key = task.hop, task.engine if duplex else ""
        engines[key] = engines.get(key, 0) + task.cycles
    kernels = [n for n in own if not tasks[n].engine]
    work = sum(tasks[n].cycles for n in kernels)
    ahead = next((n for n in range(own[0] - 1, -1, -1) if not tasks[n].engine), -1)
    least = max(*engines.values(), _fill(tasks, own, kernels, values, ahead))
    if own[-1] == len(tasks) - 1:
        least = max(least, work + _drain(tasks, own, kernels))
    return sum(engines.values()), least


def _fill(
    tasks: Sequence[Task], own: Sequence[int], kernels: Sequence[int], values: Values, ahead: int
) -> int:
    """Bound the cycles from the previous kernel to the op's last, by copies that depend on it."""
    ready: dict[int, int] = {}  # copies that depend on the previous kernel: earliest end
    late: dict[int, list[int]] = {}  # the same copies by hop
    for n in own:
        task = tasks[n]
        if task.engine != "in":
            continue
        own_value = values[task.step, task.tensor]
        waits = [ready[t] for t in task.before if t in ready]
        waits += [
            tasks[t].cycles
            for t in task.before
            if t < own[0]
            and tasks[t].engine == "out"
            and tasks[t].hop == task.hop
            and ahead in tasks[t].before
            and values[tasks[t].step, tasks[t].tensor] == own_value
        ]
        if waits or ahead < 0:
            ready[n] = max(waits, default=0) + task.cycles
            late.setdefault(task.hop, []).append(n)
    work = [tasks[n].cycles for n in kernels]
    first = max((ready[t] for t in tasks[kernels[0]].before if t in ready), default=0)
    found = [first + sum(work)]
    together = own[-1] - own[0] == len(own) - 1
    for every in late.values() if together else ():
        begin = min(ready[n] - tasks[n].cycles for n in every)
        found.append(begin + sum(tasks[n].cycles for n in every) + min(work))
    return max(found)


def _drain(tasks: Sequence[Task], own: Sequence[int], kernels: Sequence[int]) -> int:
    """Count the cycles of the stores that follow one another after the last kernel."""
    done = {kernels[-1]: 0}
    for n in (n for n in own if n > kernels[-1]):
        waits = [done[t] for t in tasks[n].before if t in done]
        if waits:
            done[n] = max(waits) + tasks[n].cycles
    return max(done.values())


def least_cycles(lifetimes: Lifetimes, levels: Hierarchy) -> int:
    """Compute cycles that no plan over these levels, or over a smaller inner level, falls below.

    Parameters
    ----------
    lifetimes : Lifetimes
    levels : Hierarchy

    Returns
    -------
    int
        Of all programs. Each takes at least as long as its kernels, in so many tiles that the
        operands of each fit, and, over two levels, as the copies that cannot be avoided in either
        direction. With measured rates 0: no number of tiles is known to take longest.
    """
    link, compute = levels.levels[-1], levels.compute
    if compute.rates:
        return 0
    work = [0 for _ in lifetimes.graphs]
    moved: list[dict[str, list[int]]] = [{} for _ in work]
    for step in lifetimes.steps:
        size = sum(_whole_bytes(lifetimes, step, operand) for operand in step.space.operands)
        whole = compute.tile(step.node.op, step.space, step.space.whole)
        work[step.program] += whole + max(0, -(-size // link.bytes) - 1) * compute.launch
        for operand in step.space.operands:
            name = lifetimes.root(step, operand.tensor)
            copy = -(-_whole_bytes(lifetimes, step, operand) // link.width)
            both = moved[step.program].setdefault(name, [-1, 0])
            if both[0] < 0:  # its first use in this program
                both[0] = copy * (lifetimes.values[name].given and operand.mode != "out")
            if operand.mode != "in":
                both[1] = copy * lifetimes.values[name].wanted
    if len(levels) > 2:
        return sum(work)
    copies = [[sum(both[way] for both in own.values()) for way in (0, 1)] for own in moved]
    return sum(max(cycles, *both) for cycles, both in zip(work, copies, strict=True))


def _whole_bytes(lifetimes: Lifetimes, step: Step, operand: Operand) -> int:
    """Count the bytes that an op uses of an operand; 0 where its tiles may leave some out."""
    if not all(isinstance(span, (Cut, Whole)) for span in operand.spans):
        return 0
    return lifetimes.graph(step).tensors[operand.tensor].nbytes


def apart(drafts: Sequence[OpDraft], levels: Hierarchy) -> list[int]:
    """Compute lower bounds on the cycles of ops whose transfers overlap with no other op.

    Parameters
    ----------
    drafts : sequence of OpDraft
    levels : Hierarchy

    Returns
    -------
    list of int
        Of each op: its kernels, over two levels also its first fetches. With measured rates 0.
    """
    return [0 if levels.compute.rates else _apart(draft, levels) for draft in drafts]


def _apart(draft: OpDraft, levels: Hierarchy) -> int:
    compute, link, step, choice = levels.compute, levels.levels[-1], draft.step, draft.choices[-1]
    n_tiles = max(one.n_tiles for one in draft.choices)
    found = compute.tile(step.node.op, step.space, step.space.whole)
    found += (n_tiles - 1) * compute.launch
    box = tuple((0, n) for n in choice.extents)
    for operand in step.space.operands if len(levels) == 2 else ():
        rectangle = step.space.rectangle(operand, box)
        if operand.mode != "out":  # of one byte an element, at least
            found += -(-prod(hi - lo for lo, hi in rectangle) // link.width)
    return found


def sizes_below(size: int, least: int) -> Iterator[int]:
    """Yield the sizes of an inner level that are planned for, the largest first.

    They are 125 2^k times 4, 5, 6 and 7, not above the given size, and the least one that the ops
    of the graph fit in. So larger sizes are planned for whatever smaller ones are.

    Parameters
    ----------
    size, least : int
        Bytes.

    Yields
    ------
    int

    Examples
    --------
    >>> from itertools import islice
    >>> from rpukit.tiled.planner.lower_bounds import sizes_below
    >>> list(islice(sizes_below(100_000, 60_000), 5))
    [96000, 80000, 64000, 60000]
    """
    if size < least:
        return
    k = max(size.bit_length() - 8, 0)
    found = {125 * n << j for j in range(k + 1) for n in (4, 5, 6, 7)}
    yield from sorted((n for n in found if least < n <= size), reverse=True)
    yield least
