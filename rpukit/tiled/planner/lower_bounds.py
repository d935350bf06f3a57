"""Lower bound on an op's cycles, given its neighbours: what no schedule can hide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rpukit.tiled.machine import Hierarchy
from rpukit.tiled.planner.tasks import Task

__all__ = ["bounds"]

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
