"""Plans compared: over sizes of a level, and over targets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rpukit._checks import InstanceOf, integer, number, shown, takes
from rpukit.errors import ParameterError, PlanError
from rpukit.summaries import size
from rpukit.tiled.ir import BaseGraph, Training
from rpukit.tiled.machine import MOST, Hierarchy
from rpukit.tiled.plan import Plan
from rpukit.tiled.planner.planner import plan

__all__ = ["LevelSweep", "TargetComparison", "compare_targets", "sweep_levels"]

_LEVELS = InstanceOf((Hierarchy,))


@dataclass(frozen=True, slots=True)
class LevelSweep:
    """Cycles of plans over the size of one level.

    Attributes
    ----------
    level : str
        Name of the level whose size changes.
    sizes : tuple of int
        Bytes, ascending.
    cycles : mapping of str to tuple of (int or None)
        Of all programs by strategy of buffering; None where the graph does not fit.
    current : int
        Size of the level in the hierarchy that was given.
    """

    level: str
    sizes: tuple[int, ...]
    cycles: Mapping[str, tuple[int | None, ...]]
    current: int

    def __str__(self) -> str:
        head = [f"bytes of {self.level}", *self.cycles]
        rows = [head]
        for k, n in enumerate(self.sizes):
            mark = " *" if n == self.current else "  "
            cells = [one[k] for one in self.cycles.values()]
            rows.append([f"{n}{mark}", *("-" if c is None else str(c) for c in cells)])
        lines = _aligned(rows)
        lines += ["", "Cycles of all programs by strategy of buffering; -: does not fit"]
        if self.current in self.sizes:
            lines.append("*: the size given")
        return "\n".join(lines)


@takes(levels=_LEVELS)
def sweep_levels(
    graph: BaseGraph | Training,
    levels: Hierarchy,
    level: str | None = None,
    sizes: Sequence[int] | None = None,
    *,
    buffering: Sequence[str] = ("single", "double", "auto"),
    single: Collection[str] = (),
) -> LevelSweep:
    """Plan a graph for several sizes of one level: what more memory would buy.

    Parameters
    ----------
    graph : Graph or Training
    levels : Hierarchy
    level : str, optional
        Name of the level whose size changes; default: the innermost.
    sizes : sequence of int, optional
        Bytes. Default: the size of `levels`, its half, its double and so on, from 1/8 to 8 times.
    buffering : sequence of str
        Strategies, as for `plan`.
    single : collection of str
        As for `plan`.

    Returns
    -------
    LevelSweep
        ``print`` gives a table, `rpukit.plot.plot_sweep` a figure. Cycles are those of the fastest
        of the plans for a size and for the smaller ones, which fit as well.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit import tiled
    >>> x, y = (tiled.Tensor(name, (64, 64)) for name in "xy")
    >>> graph = tiled.make_graph("one", [tiled.Node("relu", "Relu", ("x",), ("y",))], [x], ["y"])
    >>> found = tiled.sweep_levels(graph, tiled.siracusa_l2(), "L1", [8, 8_000, 64_000])
    >>> found.cycles["auto"][0] is None, found.cycles["auto"][1] >= found.cycles["auto"][2]
    (True, True)
    """
    names = [one.name for one in levels.levels]
    place = len(levels) - 1 if level is None else levels.index(level)
    own = levels[place]
    if sizes is None:
        sizes = [n for k in range(-3, 4) if (n := int(own.bytes * 2.0**k)) >= 1]
    ordered = sorted({integer(n, "sizes", low=1, high=MOST, what="bytes") for n in sizes})
    if not ordered or not buffering or isinstance(buffering, str):
        raise ParameterError(
            f"sizes and buffering: got {shown(sizes)} and {shown(buffering)}, "
            "need a sequence of one or more of each"
        )
    cycles: dict[str, list[int | None]] = {strategy: [] for strategy in buffering}
    for n in ordered:
        changed = [
            replace(one, bytes=n) if k == place else one for k, one in enumerate(levels.levels)
        ]
        machine = Hierarchy(changed, levels.compute)
        for strategy, found in cycles.items():
            try:
                now = plan(graph, machine, buffering=strategy, single=single).cycles
            except PlanError:
                now = None
            smaller = [n for n in found[-1:] if n is not None]
            found.append(None if now is None else min((now, *smaller)))
    columns = {strategy: tuple(found) for strategy, found in cycles.items()}
    return LevelSweep(names[place], tuple(ordered), columns, own.bytes)


@dataclass(frozen=True, slots=True)
class TargetComparison:
    """One graph planned for several targets.

    Attributes
    ----------
    plans : mapping of str to (Plan or None)
        By the name of the target; None where the graph does not fit.
    reasons : mapping of str to str
        Why a graph does not fit, by the names of those targets.
    clocks : mapping of str to float
        Cycles per second, of the targets for which that is known.
    """

    plans: Mapping[str, Plan | None]
    reasons: Mapping[str, str]
    clocks: Mapping[str, float]

    def seconds(self, target: str) -> float | None:
        """Time of all programs on a target, if it fits and its clock is known.

        Parameters
        ----------
        target : str

        Returns
        -------
        float or None
        """
        made, clock = self.plans[target], self.clocks.get(target)
        return None if made is None or clock is None else made.cycles / clock

    def __str__(self) -> str:
        head = ["target", "cycles", "time", "hidden %", "used", "moved"]
        rows = [head] if self.clocks else [[*head[:2], *head[3:]]]
        for name, made in self.plans.items():
            if made is None:
                rows.append([name, "-", *[""] * (len(rows[0]) - 2)])
                continue
            levels = made.hierarchy.levels
            used = ", ".join(f"{one.name} {size(made.peaks[one.name])}" for one in levels[1:])
            outer = levels[1].name
            moved = sum(sum(program.moved[outer]) for program in made.programs)
            seconds = self.seconds(name)
            time = ["" if seconds is None else _time(seconds)] if self.clocks else []
            cells = [name, str(made.cycles), *time, _hidden(made), used]
            rows.append([*cells, f"{size(moved)}"])
        lines = _aligned(rows, left=(0, len(rows[0]) - 2, len(rows[0]) - 1))
        lines += [
            "",
            "hidden %: share of the transfers' time in which a kernel runs as well",
            "used: of the levels inside the outermost one",
            "moved: in and out between the two outermost levels",
        ]
        if any(name not in self.clocks for name, made in self.plans.items() if made):
            lines.append("cycles: of each target's own clock")
        lines += [f"{name} does not fit: {text}" for name, text in self.reasons.items()]
        return "\n".join(lines)


@takes()
def compare_targets(
    graph: BaseGraph | Training,
    targets: Mapping[str, Hierarchy],
    *,
    buffering: str = "auto",
    single: Collection[str] = (),
    clocks: Mapping[str, float] | None = None,
) -> TargetComparison:
    """Plan a graph for several targets.

    Parameters
    ----------
    graph : Graph or Training
    targets : mapping of str to Hierarchy
        By name.
    buffering : str
        As for `plan`.
    single : collection of str
        As for `plan`.
    clocks : mapping of str to float, optional
        Cycles per second of targets by name, such as 1e9 for `gpu`. Cycles of targets with
        different clocks cannot be compared without them.

    Returns
    -------
    TargetComparison
        ``print`` gives a table, `rpukit.plot.plot_targets` a figure.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit import tiled
    >>> x, y = (tiled.Tensor(name, (64, 64)) for name in "xy")
    >>> graph = tiled.make_graph("one", [tiled.Node("relu", "Relu", ("x",), ("y",))], [x], ["y"])
    >>> targets = {"L2": tiled.siracusa_l2(), "L3": tiled.siracusa_l3()}
    >>> found = tiled.compare_targets(graph, targets, clocks={"L2": 5e8, "L3": 5e8})
    >>> found.seconds("L2") < found.seconds("L3")
    True
    """
    if not targets or not all(isinstance(name, str) for name in targets):
        raise ParameterError(f"targets: got {shown(targets)}, need levels by name, one or more")
    for name in clocks or {}:
        if name not in targets:
            raise ParameterError(f"clocks: got {shown(name)}, need names of targets")
    made: dict[str, Plan | None] = {}
    reasons: dict[str, str] = {}
    for name, levels in targets.items():
        try:
            made[name] = plan(graph, levels, buffering=buffering, single=single)
        except PlanError as error:
            made[name], reasons[name] = None, str(error).splitlines()[0]
    rates = {
        name: number(rate, f"clocks[{name!r}]", low=1.0) for name, rate in (clocks or {}).items()
    }
    return TargetComparison(made, reasons, rates)


def _aligned(rows: list[list[str]], left: tuple[int, ...] = ()) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(
            text.ljust(width) if k in left else text.rjust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _time(seconds: float) -> str:
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _hidden(made: Plan) -> str:
    moving = sum(program.transferring for program in made.programs)
    hidden = sum(program.hidden for program in made.programs)
    return f"{100 * hidden / moving:.0f}" if moving else ""
