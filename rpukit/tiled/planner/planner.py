"""The planner: from a graph to tiles, homes, residents, addresses and instructions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from rpukit._checks import takes
from rpukit.errors import ParameterError, PlanError
from rpukit.tiled.ir import BaseGraph, Training
from rpukit.tiled.machine import MOST, Hierarchy
from rpukit.tiled.plan import Plan
from rpukit.tiled.planner.bands import Bands
from rpukit.tiled.planner.buffering import Wish, check_names, wishes
from rpukit.tiled.planner.draft import OpDraft
from rpukit.tiled.planner.homes import promoted
from rpukit.tiled.planner.instructions import Scheduled, overlapped, schedule
from rpukit.tiled.planner.lifetimes import Lifetimes, Step
from rpukit.tiled.planner.lower_bounds import apart, bounds, least_cycles, sizes_below
from rpukit.tiled.planner.residents import Placement
from rpukit.tiled.planner.tasks import Task, trace
from rpukit.tiled.planner.tile_search import Choice, Problem
from rpukit.tiled.planner.timing.alone import OpTimes, shape_of
from rpukit.tiled.program import Home, OpPlan, Program
from rpukit.tiled.verify.check_plan import check_plan

__all__ = ["plan"]

_LOG = logging.getLogger(__name__)
_BANDS = (2, 3, 4)  # most ops of a band: all are tried


@takes()
def plan(
    graph: BaseGraph | Training,
    levels: Hierarchy,
    *,
    buffering: str = "auto",
    single: Collection[str] = (),
    monotone: bool = False,
) -> Plan:
    """Plan a graph over levels of memory.

    Parameters
    ----------
    graph : Graph or Training
        A training graph is planned together with its optimiser's: they share persistent values.
    levels : Hierarchy
    buffering : {"auto", "deeploy_buffers", "double", "double_outer", "single"}
        "auto" chooses tiles, buffers and residents by the cycle model and overlaps transfers
        with the kernels of all ops; it takes no longer than any other. "double" and "single" give
        every operand that is no scalar two buffers or one. "double_outer" gives two on the slowest
        hop only. "deeploy_buffers" (or "deeploy") gives as many buffers as Deeploy's training
        strategy, but finds tiles by the cycle model: they are not those that Deeploy would choose.
    single : collection of str
        Ops ("SGD") and nodes that get one buffer under any strategy.
    monotone : bool
        Plan for sizes of a fixed series instead of the innermost level's own, up to it, and keep
        the fastest plan: 125 2^k times 4, 5, 6 and 7 bytes, such as 8, 10, 12, 14 and 16 kB. Then
        no plan takes more cycles than one for any smaller size, which is not certain of plans that
        are made for their own size. Planning takes some ten times as long.

    Returns
    -------
    Plan
        Checked by `check_plan`.

    Raises
    ------
    PlanError
        If the smallest tile of an op, or all values that live at once, do not fit.
    ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> x, y = (rk.tiled.Tensor(name, (64, 64)) for name in "xy")
    >>> node = rk.tiled.Node("relu", "Relu", ("x",), ("y",))
    >>> graph = rk.tiled.make_graph("one", [node], [x], ["y"])
    >>> rk.tiled.plan(graph, rk.tiled.siracusa_l2(l1=16_000)).programs[0].ops[0].n_tiles
    11
    """
    lifetimes = Lifetimes(graph)
    check_names(lifetimes, single)
    if not lifetimes.steps:
        raise PlanError(
            f"graph {lifetimes.graphs[0].name} has no node that computes; need at least one"
        )
    planner = _Planner(lifetimes, check_levels(levels), buffering, frozenset(single))
    made = planner.smaller() if monotone else planner.run()
    check_plan(made, graph)
    return made


@dataclass
class _Made:
    """Raw plan: homes, peaks, and the ops, tasks and schedule of each program."""

    homes: dict[str, Home]
    peaks: dict[str, int]
    runs: list[tuple[list[tuple[Step, OpPlan]], list[Task], Scheduled]]

    @property
    def cycles(self) -> int:
        """Cycles of all programs."""
        return sum(sum(done.cycles.values()) for _, _, done in self.runs)


class _Planner:
    def __init__(
        self, lifetimes: Lifetimes, levels: Hierarchy, buffering: str, single: frozenset[str]
    ) -> None:
        self.lifetimes, self.levels, self.buffering = lifetimes, levels, buffering
        self.single = single
        self.n_hops = len(levels) - 1
        self.problems: dict[Any, Problem] = {}
        self.best: dict[Any, tuple[list[Choice], str]] = {}
        self.times = OpTimes(lifetimes, levels)

    def run(self) -> Plan:
        auto = self.buffering == "auto"
        homes = promoted(self.lifetimes, self.levels) if auto and self.n_hops > 1 else [{}]
        found, error = [], PlanError("")
        for way in homes:
            try:
                found.append(self.with_homes(way))
            except PlanError as reason:
                _LOG.debug("a choice of homes was dropped: %s", reason)
                error = reason
        if not found:
            raise error
        made = min(found, key=lambda one: one.cycles)
        made = self.no_slower(made) if auto else made
        programs = tuple(self.program(p, made) for p in range(len(self.lifetimes.graphs)))
        return Plan(self.levels, self.buffering, tuple(made.homes.values()), programs, made.peaks)

    def smaller(self) -> Plan:
        """Make the fastest of the plans for sizes of the series, up to the innermost level's."""
        *outer, inner = self.levels.levels
        best: Plan | None = None
        for size in sizes_below(inner.bytes, self.least_size()):
            levels = Hierarchy([*outer, replace(inner, bytes=size)], self.levels.compute)
            if best and least_cycles(self.lifetimes, levels) >= best.cycles:
                break  # nor is any plan for a smaller size faster
            try:
                made = _Planner(self.lifetimes, levels, self.buffering, self.single).run()
            except PlanError as error:
                _LOG.debug("%d bytes of %s were dropped: %s", size, inner.name, error)
                continue
            if best is None or made.cycles < best.cycles:
                best = replace(made, hierarchy=self.levels)
        return best or self.run()

    def least_size(self) -> int:
        """Compute the bytes of the innermost level that every op fits in, in its smallest tile."""
        *outer, inner = self.levels.levels
        whole = Hierarchy([*outer, replace(inner, bytes=MOST)], self.levels.compute)
        planner = _Planner(self.lifetimes, whole, "single", self.single)
        placement = Placement(self.lifetimes, whole, False, {})
        found = [1]
        for step in self.lifetimes.steps:
            extents = tuple(axis.extent for axis in step.space.axes)
            problem = planner.problem(step, placement, self.n_hops - 1, extents)
            found.append(planner.known(problem).least()[1])
        return max(found)

    def no_slower(self, made: _Made) -> _Made:
        """Return the plan of another strategy if that is faster than one made by "auto"."""
        names = ("double", "single", "deeploy_buffers", "double_outer")
        for buffering in names[: 2 + self.n_hops]:  # the last differs over several hops alone
            other = _Planner(self.lifetimes, self.levels, buffering, self.single)
            other.problems, other.times = self.problems, self.times
            placement = Placement(self.lifetimes, self.levels, False, {})
            try:
                drafts = [other.draft(step, placement) for step in self.lifetimes.steps]
                bounds = apart(drafts, self.levels)
                cycles = self.times.one_by_one(drafts, placement, bounds, made.cycles)
                if cycles < made.cycles:
                    made = min(made, other.made(placement, drafts), key=lambda one: one.cycles)
            except PlanError as error:
                _LOG.debug("strategy %s was dropped: %s", buffering, error)
        return made

    def with_homes(self, homes: Mapping[str, int]) -> _Made:
        """Make a plan with some values at home in the second level."""
        auto = self.buffering == "auto"
        placement = Placement(self.lifetimes, self.levels, auto, homes)
        drafts = [self.draft(step, placement) for step in self.lifetimes.steps]
        made = self.made(placement, drafts)
        if auto and self.n_hops == 1:  # worth more tries where it is quick
            made = self.best_of(placement, drafts, made)
        return made

    def best_of(self, placement: Placement, drafts: list[OpDraft], made: _Made) -> _Made:
        """Try other placements of the ops, and the best two with longer-lived buffers."""
        ways = [(drafts, False, False), *self.banded(drafts)]
        found, best = [(made.cycles, 0)], [made]  # one plan at a time: they are large

        def attempt(number: int) -> None:
            way, placement.prefetch, placement.reserve = ways[number]
            try:
                other = self.made(placement, way)
            except PlanError as error:
                _LOG.debug("a way to plan was dropped: %s", error)
                return
            if (other.cycles, number) < min(found):
                best[0] = other
            found.append((other.cycles, number))

        for number in range(1, len(ways)):
            attempt(number)
        placement.far = True
        for _, number in sorted(found)[:2]:
            attempt(number)
        return best[0]

    def banded(self, drafts: list[OpDraft]) -> Iterator[tuple[list[OpDraft], bool, bool]]:
        """Yield ops alone and in bands, with whether to prefetch operands and reserve memory."""
        yield drafts, True, False
        finder = Bands(drafts, self.lifetimes, self.levels[1], self.levels.compute)
        seen = set()
        found = [finder.find(longest) for longest in _BANDS]
        found.append([band for band in found[-1] if band.last > band.first])
        for bands in found:
            spans = tuple((band.first, band.last) for band in bands)
            if not bands or spans in seen:
                continue
            seen.add(spans)
            joined = list(drafts)
            for band in bands:
                for number, choice in enumerate(band.choices, band.first):
                    joined[number] = replace(drafts[number], choices=[choice], band=band)
                    joined[number].reason = ""
            yield joined, True, False
            yield joined, False, True

    def made(self, placement: Placement, drafts: list[OpDraft]) -> _Made:
        """Assign addresses to what was chosen, and schedule the instructions."""
        homes, ops, peaks = placement.place(drafts)
        runs = []
        for p in range(len(self.lifetimes.graphs)):
            own = [(s, ops[s.number]) for s in self.lifetimes.steps if s.program == p]
            tasks = trace(self.lifetimes, self.levels, homes, own)
            done = schedule(tasks, [(step.number, op) for step, op in own], self.levels)
            runs.append((own, tasks, done))
        return _Made(homes, peaks, runs)

    def program(self, p: int, made: _Made) -> Program:
        """Describe one program, and each of its ops alone."""
        own, tasks, done = made.runs[p]
        parts: dict[int, list[int]] = {}
        for n, task in enumerate(tasks):
            parts.setdefault(task.step, []).append(n)
        values = {(step.number, o.tensor): o.value for step, op in own for o in op.operands}
        timed = []
        for step, op in own:
            place = {n: k for k, n in enumerate(parts[step.number])}
            part = [
                replace(tasks[n], before={place[t] for t in tasks[n].before if t in place})
                for n in place
            ]
            overlap: Any = "inside" if op.overlap == "across" else op.overlap
            alone = schedule(part, [(step.number, replace(op, overlap=overlap))], self.levels)
            serial, least = bounds(tasks, parts[step.number], values, self.levels)
            timed.append(
                replace(
                    op,
                    cycles=done.cycles[step.number],
                    alone=alone.cycles[step.number],
                    serial=serial,
                    least=least,
                )
            )
        name, moved = self.lifetimes.graphs[p].name, _moved(tasks, self.levels)
        cycles, both = sum(done.cycles.values()), overlapped(done.busy)
        return Program(name, tuple(timed), done.instructions, cycles, moved, *both)

    def draft(self, step: Step, placement: Placement) -> OpDraft:
        """Choose tiles; over several hops, the best of three searches by the cycle model."""
        asked = wishes(self.lifetimes, step, self.buffering, self.single, self.n_hops)
        if self.n_hops == 1 or asked[0][0] != "auto":
            return self.cut(step, placement, asked)
        here = tuple(placement.here(step, hop + 1) for hop in range(self.n_hops))
        rooms = tuple(placement.base)
        key = (*shape_of(step.space), placement.sizes(step), here, rooms, "draft")
        if key not in self.best:
            ways = asked, [("double", "")] * self.n_hops, [("single", "slower")] * self.n_hops
            drafts = [self.cut(step, placement, list(way)) for way in ways]
            apart = list({tuple(draft.choices): draft for draft in drafts}.values())
            times = (
                [self.times.cycles(draft, placement) for draft in apart] if len(apart) > 1 else [0]
            )
            best = apart[times.index(min(times)) if times else 0]
            double = any(max(c.slots, default=0) > 1 for c in best.choices)
            whole = prod(c.n_tiles for c in best.choices) == 1
            one = "one tile" if whole else "two buffers are no faster"
            self.best[key] = best.choices, "" if double else one
        choices, reason = self.best[key]
        return OpDraft(step, asked, list(choices), reason)

    def cut(self, step: Step, placement: Placement, asked: list[Wish]) -> OpDraft:
        """Choose tiles hop by hop, from the slowest link inwards."""
        draft = OpDraft(step, asked)
        bounds = tuple(axis.extent for axis in step.space.axes)
        reasons = []
        for hop in range(self.n_hops):
            problem = self.known(self.problem(step, placement, hop, bounds))
            if problem.keep_sums and problem.best("single") is None:
                problem = self.known(replace(problem, keep_sums=False))
            choice, reason = self.choose(problem, asked[hop], step)
            draft.choices.append(choice)
            bounds = choice.extents
            reasons.append(reason)
        draft.reason = "; ".join(dict.fromkeys(filter(None, reasons))) if all(reasons) else ""
        return draft

    def problem(
        self, step: Step, placement: Placement, hop: int, bounds: tuple[int, ...]
    ) -> Problem:
        """State the tile search of an op on one hop."""
        return Problem(
            step.space,
            bounds,
            placement.sizes(step),
            self.levels[hop + 1],
            self.levels.compute,
            placement.room(step, hop + 1),
            placement.here(step, hop + 1),
            keep_free=self.cuts_sum(step, bounds),
            keep_sums=hop + 1 < self.n_hops,
            op=step.node.op if self.levels.compute.rates else "",
        )

    def cuts_sum(self, step: Step, bounds: tuple[int, ...]) -> bool:
        ranges = zip(step.space.axes, bounds, strict=True)
        return any(a.kind == "reduce" and n < a.extent for a, n in ranges)

    def choose(self, problem: Problem, wish: Wish, step: Step) -> tuple[Choice, str]:
        """Choose for one hop; the reason says why there is one buffer."""
        kind, reason = wish
        if kind == "double":
            double = problem.best("double")
            if double is not None:
                only = max(double.slots, default=0) < 2
                return double, "scalars only" if only else ""
            reason = f"two buffers of the smallest tile do not fit {problem.link.name}"
        single = problem.best("single")
        if kind != "auto":
            if single is None:
                raise self.too_small(problem, step)
            return single, reason
        found = [single, problem.best("rotate")]
        if any(operand.mode == "inout" for operand in step.space.operands):
            found.append(problem.best("rotate two"))
        choices = [choice for choice in found if choice is not None]
        if not choices:
            raise self.too_small(problem, step)
        best = min(
            choices, key=lambda c: (c.cycles, c.n_tiles, problem.footprint(c.extents, c.slots))
        )
        if max(best.slots, default=0) > 1:
            return best, ""
        return best, "one tile" if best.n_tiles == 1 else "two buffers are no faster"

    def known(self, problem: Problem) -> Problem:
        """Return the first equal problem, so that its solutions are reused."""
        key = (
            *shape_of(problem.space), problem.bounds, problem.sizes, problem.link, problem.budget,
            problem.here, problem.keep_free, problem.keep_sums, problem.op,
        )  # fmt: skip
        return self.problems.setdefault(key, problem)

    def too_small(self, problem: Problem, step: Step) -> PlanError:
        extents, need = problem.least()
        parts = [
            f"{o.tensor} {'x'.join(map(str, lengths)) or 'scalar'} "
            f"({problem.link.rounded(prod(lengths) * size)})"
            for k, (o, size) in enumerate(zip(step.space.operands, problem.sizes, strict=True))
            for lengths in [step.space.worst(o, extents)]
            if k not in problem.here
        ]
        level = problem.link
        return PlanError(
            f"{level.name}: {step.node.op} {step.node.name} needs {need} bytes for its "
            f"smallest tile with one buffer each: {', '.join(parts)}; {problem.budget} of "
            f"{level.bytes} are available. Give {level.name} {need} bytes or more"
        )


def _moved(tasks: Iterable[Task], levels: Hierarchy) -> dict[str, tuple[int, int]]:
    """Count the bytes over each link, in and out."""
    found = {level.name: [0, 0] for level in levels.levels[1:]}
    for task in tasks:
        if task.engine:
            found[levels[task.hop].name][task.engine == "out"] += prod(task.shape)
    return {name: (both[0], both[1]) for name, both in found.items()}


def check_levels(levels: object) -> Hierarchy:
    """Refuse levels that are not a Hierarchy.

    Parameters
    ----------
    levels : object

    Returns
    -------
    Hierarchy

    Raises
    ------
    ParameterError
    """
    if not isinstance(levels, Hierarchy):
        raise ParameterError(f"levels: got {type(levels).__name__}, need a Hierarchy")
    return levels
