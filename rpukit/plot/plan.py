"""Figure of a plan: memory use over the ops, and the timeline of every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit._checks import Maybe, Whole, shown, takes
from rpukit.errors import ParameterError
from rpukit.plot.axes import axes, pyplot
from rpukit.tiled import Graph, Plan, Training, simulate

__all__ = ["plot_plan"]

Axes = Any

_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown")


@takes(program=Whole(0), first=Whole(0), last=Maybe(Whole(0)))
def plot_plan(
    plan: Plan,
    graph: Graph | Training,
    *,
    program: int = 0,
    level: str | None = None,
    first: int = 0,
    last: int | None = None,
    ax: Sequence[Axes] | None = None,
) -> tuple[Axes, Axes]:
    """Draw the memory use of a level over the ops of a program, and the engines' timeline.

    Parameters
    ----------
    plan : Plan
    graph : Graph or Training
    program : int
        0 for the graph or the training graph, 1 for the optimiser's.
    level : str, optional
        Default: the innermost one.
    first, last : int
        Ops to draw, the last excluded; default: all.
    ax : pair of matplotlib Axes, optional

    Returns
    -------
    memory, pipeline : matplotlib Axes

    Raises
    ------
    ParameterError, PlotError
    """
    names = [one.name for one in plan.hierarchy.levels]
    if not 0 <= program < len(plan.programs):
        raise ParameterError(f"program: got {program}, need 0 to {len(plan.programs) - 1}")
    level = names[-1] if level is None else plan.hierarchy[plan.hierarchy.index(level)].name
    own = plan.programs[program].ops
    last = len(own) if last is None else min(last, len(own))
    if not 0 <= first < last:
        raise ParameterError(f"first and last: got {first} and {last}, need 0 <= first < last")
    if ax is None:
        ax = pyplot().subplots(2, 1, figsize=(8, 6), layout="constrained")[1]
    if not isinstance(ax, (Sequence, np.ndarray)) or len(ax) != 2:
        raise ParameterError(f"ax: got {shown(ax)}, need a pair of Axes of matplotlib")
    ax = [axes(one) for one in ax]
    _draw_memory(ax[0], plan, program, level, first, last)
    _draw_pipeline(ax[1], plan, graph, program, first, last)
    return ax[0], ax[1]


def _draw_memory(ax: Axes, plan: Plan, program: int, level: str, first: int, last: int) -> None:
    """Draw a bar for each block: its addresses against the ops that it is allocated for."""
    ahead = sum(len(one.ops) for one in plan.programs[:program])
    blocks = {}
    for home in plan.homes:
        if home.level == level:
            blocks[home.value, 0] = (home.address, home.bytes, home.lower, home.upper, 0)
    for op in plan.programs[program].ops:
        for operand in op.operands:
            for place in operand.places:
                if place.level != level:
                    continue
                colour = 1 if place.kind == "resident" else 2 + (operand.mode != "in")
                for k, address in enumerate(place.addresses):
                    span = place.bytes, place.lower, place.upper, colour
                    blocks[place.block, k] = (address, *span)
    for address, size, lower, upper, colour in blocks.values():
        start, end = max(lower - ahead, first), min(upper - ahead, last)
        if start < end:
            bar = [(start, end - start)], (address, size)
            ax.broken_barh(*bar, facecolors=_COLOURS[colour], edgecolor="white", lw=0.4)
    ax.axhline(plan.peaks[level], color="k", lw=0.8, ls="--")
    ax.set(xlim=(first, last), ylim=(0, None), xlabel="op", ylabel=f"bytes of {level}")
    ax.set_title(
        "homes blue, residents orange, fetched green, results red", fontsize="small", loc="left"
    )


def _draw_pipeline(
    ax: Axes, plan: Plan, graph: Graph | Training, program: int, first: int, last: int
) -> None:
    """Draw a row for each engine; consecutive ops have different colours."""
    busy = [one for one in simulate(plan, graph, program) if first <= one.step < last]
    rows = ["compute"]
    for link in plan.hierarchy.levels[:0:-1]:
        rows += [f"{link.name} in", f"{link.name} out"]
    for one in busy:
        bar = [(one.start, one.end - one.start)], (rows.index(one.engine) - 0.4, 0.8)
        ax.broken_barh(*bar, facecolors=_COLOURS[one.step % len(_COLOURS)])
    ax.set_yticks(range(len(rows)), rows)
    ax.invert_yaxis()
    ax.set_xlabel("cycles")
