"""List scheduling of tasks: each copy is issued as early as its dependences allow.

Between two kernels, every copy is issued whose dependences are done by then in the cycle model,
followed by waits for the copies that the next kernel needs. An op without overlap waits for each
copy at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from rpukit.tiled.machine import Hierarchy
from rpukit.tiled.planner.tasks import Task
from rpukit.tiled.program import Busy, ComputeTile, Copy, Instruction, OpPlan, Wait

__all__ = ["Scheduled", "overlapped", "schedule"]

_LOOK_AHEAD = 24  # copies of one engine that are looked at


class Scheduled(NamedTuple):
    """A schedule: instructions, the cycles of each step, and the work of all engines."""

    instructions: tuple[Instruction, ...]
    cycles: dict[int, int]
    busy: list[Busy]


def schedule(
    tasks: Sequence[Task], ops: Sequence[tuple[int, OpPlan]], hierarchy: Hierarchy
) -> Scheduled:
    """Order tasks as instructions.

    Parameters
    ----------
    tasks : sequence of Task
        The serial run.
    ops : sequence of (int, OpPlan)
        Step and plan of each op.
    hierarchy : Hierarchy

    Returns
    -------
    Scheduled
    """
    return _Scheduler(tasks, hierarchy).run(ops)


def overlapped(busy: Sequence[Busy]) -> tuple[int, int]:
    """Count the cycles of all transfers, and those of them in which a kernel runs as well.

    Parameters
    ----------
    busy : sequence of Busy

    Returns
    -------
    int
    int
    """
    kernels = sorted((b.start, b.end) for b in busy if b.engine == "compute")
    starts = [start for start, _ in kernels]
    until = [0]  # cycles of the kernels that end before each start
    for start, end in kernels:
        until.append(until[-1] + end - start)

    def worked(now: int) -> int:
        k = bisect_right(starts, now)
        return until[k] - max(0, kernels[k - 1][1] - now) if k else 0

    transfers = [b for b in busy if b.engine != "compute"]
    hidden = sum(worked(b.end) - worked(b.start) for b in transfers)
    return sum(b.end - b.start for b in transfers), hidden


class _Queue:
    """Copies of one engine: those that are ready, and the oldest that is not issued yet."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.ready: list[int] = []  # heap of ranks
        self.issued: list[bool] = []
        self.head = 0

    def next(self, limit: int) -> tuple[int, bool]:
        """Find the next copy to issue (-1: none), and whether it overtakes an older one."""
        while self.head < len(self.issued) and self.issued[self.head]:
            self.head += 1
        if not self.ready or self.ready[0] >= self.head + _LOOK_AHEAD:
            return -1, False
        number = self.numbers[self.ready[0]]
        return (number, self.ready[0] > self.head) if number < limit else (-1, False)

    def take(self, rank: int = -1) -> None:
        """Note that the next copy is issued, or the one of this rank ahead of older ones."""
        if rank < 0 or rank == self.ready[0]:
            rank = heappop(self.ready)
        else:
            self.ready.remove(rank)
            heapify(self.ready)
        self.issued[rank] = True


class _Scheduler:
    def __init__(self, tasks: Sequence[Task], hierarchy: Hierarchy) -> None:
        self.tasks, self.hierarchy = tasks, hierarchy
        self.nodes: dict[int, str] = {}
        self.now = 0
        self.free: dict[tuple[int, str], int] = {}
        self.pending: dict[int, int] = {}  # end of each copy that was not waited for
        self.ends: list[tuple[int, int]] = []  # heap of ends to come
        self.done: set[int] = set()  # kernels that have run, copies that were waited for
        self.out: list[Instruction] = []
        self.busy: list[Busy] = []
        self.queues: dict[tuple[int, str], _Queue] = {}
        self.rank: dict[int, int] = {}
        self.groups: list[list[int]] = []  # tasks that depend on the same ones
        self.left: list[int] = []  # of these, the number that are not done, for each group
        self.after: list[list[int]] = [[] for _ in tasks]  # groups that depend on each task
        known: dict[int, int] = {}
        for number, task in enumerate(tasks):
            group = known.setdefault(id(task.before), len(self.groups))
            if group < len(self.groups):
                self.groups[group].append(number)
            else:
                self.groups.append([number])
                self.left.append(len(task.before))
                for t in task.before:
                    self.after[t].append(group)
            if task.engine:
                queue = self.queues.setdefault((task.hop, task.engine), _Queue())
                self.rank[number] = len(queue.numbers)
                queue.numbers.append(number)
                queue.issued.append(False)
        for group, n in enumerate(self.left):
            if not n:
                self.offer(group)

    def offer(self, group: int) -> None:
        for number in self.groups[group]:
            task = self.tasks[number]
            if task.engine:
                heappush(self.queues[task.hop, task.engine].ready, self.rank[number])

    def complete(self, number: int) -> None:
        """Note that a task has ended, and offer those whose dependences are now all done."""
        for group in self.after[number]:
            self.left[group] -= 1
            if not self.left[group]:
                self.offer(group)

    def advance(self, now: int) -> None:
        self.now = max(self.now, now)
        while self.ends and self.ends[0][0] <= self.now:
            self.complete(heappop(self.ends)[1])

    def waiting(self, stop: int) -> set[int]:
        """Find the copies before a place in the serial run that are not issued."""
        found = set()
        for queue in self.queues.values():
            for rank in range(queue.head, bisect_left(queue.numbers, stop)):
                if not queue.issued[rank]:
                    found.add(queue.numbers[rank])
        return found

    def run(self, ops: Sequence[tuple[int, OpPlan]]) -> Scheduled:
        self.nodes = {step: op.node for step, op in ops}
        overlap = {step: op.overlap for step, op in ops}
        tasks, n = self.tasks, len(self.tasks)
        stops = {n}  # no copy crosses these: the ends of ops that overlap with no other
        for number, task in enumerate(tasks):
            if overlap[task.step] != "across":
                stops |= {m for m in (number, number + 1) if not self.inside(m)}
        limits = iter(sorted(stops - {0}))
        limit, before = next(limits, n), 0
        cycles = dict.fromkeys(self.nodes, 0)
        for number, task in enumerate(tasks):
            if not task.engine:
                self.kernel(number, number if overlap[task.step] == "none" else limit)
            elif overlap[task.step] == "none":
                self.at_once(number)
            if number + 1 == limit:
                limit = next(limits, n)
                if number + 1 == n or overlap[task.step] != "across":
                    self.finish(number + 1)
            cycles[task.step] += self.now - before
            before = self.now
        return Scheduled(tuple(self.out), cycles, self.busy)

    def inside(self, number: int) -> bool:
        """Tell whether the tasks before and after a place belong to the same op."""
        tasks = self.tasks
        return 0 < number < len(tasks) and tasks[number - 1].step == tasks[number].step

    def at_once(self, number: int) -> None:
        """Issue a copy of the serial run, after those that it needs, and wait for it."""
        task = self.tasks[number]
        self.reach(task.before - self.done, number)
        self.queues[task.hop, task.engine].take(self.rank[number])
        self.begin(number, (task.hop, task.engine))
        self.wait(number)

    def kernel(self, number: int, limit: int) -> None:
        task = self.tasks[number]
        need = task.before - self.done
        self.reach(need, limit)
        for t in sorted(need - self.done):
            self.wait(t)
        self.issue(limit, self.now + task.cycles)
        self.out.append(ComputeTile(self.nodes[task.step], task.box, task.addresses))
        self.busy.append(Busy("compute", task.step, self.now, self.now + task.cycles))
        self.done.add(number)
        self.advance(self.now + task.cycles)
        self.complete(number)

    def reach(self, need: set[int], limit: int) -> None:
        """Advance time, one completed copy after another, until the needed copies are done."""
        while True:
            self.issue(limit)
            left = need - self.done
            if all(self.pending.get(t, self.now + 1) <= self.now for t in left):
                return
            self.wait(min(self.pending, key=lambda t: (self.pending[t], t)))

    def wait(self, number: int) -> None:
        self.advance(self.pending.pop(number))
        self.done.add(number)
        self.out.append(Wait(number))

    def issue(self, limit: int, horizon: int = 0) -> None:
        """Issue every copy before a limit whose dependences are done by now.

        A copy that overtakes an older one has to begin before the horizon, when the older one may
        be ready.
        """
        for key, queue in self.queues.items():
            number, early = queue.next(limit)
            while number >= 0:
                start = max(self.now, self.free.get(self.engine(key), 0))
                if early and start >= horizon:
                    break
                queue.take()
                self.begin(number, key)
                number, early = queue.next(limit)

    def engine(self, key: tuple[int, str]) -> tuple[int, str]:
        return key if self.hierarchy[key[0]].duplex else (key[0], "")

    def begin(self, number: int, key: tuple[int, str]) -> None:
        task = self.tasks[number]
        for t in sorted(task.before - self.done):
            self.wait(t)
        link, engine = self.hierarchy[task.hop], self.engine(key)
        start = max(self.now, self.free.get(engine, 0))
        self.free[engine] = self.pending[number] = start + task.cycles
        heappush(self.ends, (start + task.cycles, number))
        self.busy.append(Busy(f"{link.name} {task.engine}", task.step, start, start + task.cycles))
        where = task.source, task.target, task.shape, task.source_strides, task.target_strides
        self.out.append(Copy(number, task.engine, task.tensor, *where))

    def drain(self) -> None:
        for number in sorted(self.pending, key=lambda t: (self.pending[t], t)):
            self.wait(number)

    def finish(self, stop: int) -> None:
        """Issue all remaining copies before a place in the serial run, and wait for them."""
        self.reach(self.waiting(stop), stop)
        self.drain()
