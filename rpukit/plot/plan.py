"""Figures of plans: memory over the ops, the engines' timeline, cycles over sizes and targets."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from rpukit._checks import Maybe, Whole, number, shown, takes
from rpukit.errors import ParameterError
from rpukit.plot.axes import axes, pyplot
from rpukit.tiled import Graph, LevelSweep, Plan, TargetComparison, Training
from rpukit.tiled.verify.timeline import Span, blocks, engines, spans

__all__ = ["plot_plan", "plot_sweep", "plot_targets"]

Axes = Any

# What memory holds in the upper half is what a copy moves in the lower one.
_COLOURS = {
    "home": "tab:blue",
    "resident": "tab:orange",
    "fetched": "tab:green",
    "result": "tab:red",
}
_WORDS = {
    "home": "home: lives here between ops",
    "resident": "resident: whole, for several tiles or ops",
    "fetched": "fetched: operands, in parts",
    "result": "result or changed in place, in parts",
}
_KERNELS = ("0.45", "0.7")  # of even and odd ops
_ROOM = 40  # bars of a kernel wider than one part in this many are numbered


@takes(program=Whole(0), first=Whole(0), last=Maybe(Whole(0)))
def plot_plan(
    plan: Plan,
    graph: Graph | Training,
    *,
    program: int = 0,
    level: str | None = None,
    first: int = 0,
    last: int | None = None,
    time: tuple[float, float] | None = None,
    ax: Sequence[Axes] | None = None,
) -> tuple[Axes, Axes]:
    """Draw the memory use of a level over the ops of a program, and the engines' timeline.

    Colours mean the same in both halves: what lies in memory, and what a copy moves. Kernels are
    grey, ops alternately dark and light, with their numbers where there is room.

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
    time : (float, float), optional
        Cycles to draw, from and to: of the ops from `first` to `last`, those that run then.
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
    busy = [one for one in spans(plan, graph, program) if first <= one.step < last]
    if time is not None:
        time = _window(time, plan.programs[program].cycles)
        busy = [one for one in busy if one.start < time[1] and one.end > time[0]]
        if not busy:
            raise ParameterError(
                f"time: got {time}, need a part in which ops {first} to {last - 1} run"
            )
        first, last = min(one.step for one in busy), max(one.step for one in busy) + 1
    if ax is None:
        ax = pyplot().subplots(2, 1, figsize=(8, 6), layout="constrained")[1]
    if not isinstance(ax, (Sequence, np.ndarray)) or getattr(ax, "ndim", 1) != 1 or len(ax) != 2:
        raise ParameterError(f"ax: got {shown(ax)}, need a pair of Axes of matplotlib")
    ax = [axes(one) for one in ax]
    shown_kinds = _draw_memory(ax[0], plan, program, level, first, last)
    _draw_pipeline(ax[1], plan, busy, time)
    _key(ax[0], shown_kinds | {one.kind for one in busy})
    return ax[0], ax[1]


def _window(time: Any, cycles: int) -> tuple[float, float]:
    """Check a part of the time."""
    if (
        not isinstance(time, (Sequence, np.ndarray))
        or getattr(time, "ndim", 1) != 1
        or len(time) != 2
    ):
        raise ParameterError(f"time: got {shown(time)}, need a pair of cycles, from and to")
    start, end = (number(one, "time") for one in time)
    if not 0 <= start < end or start >= cycles:
        raise ParameterError(f"time: got {shown(time)}, need 0 <= from < to, from below {cycles}")
    return start, min(end, float(cycles))


def _draw_memory(
    ax: Axes, plan: Plan, program: int, level: str, first: int, last: int
) -> set[str]:
    """Draw a bar for each block: its addresses against the ops that it is allocated for."""
    drawn = set()
    for address, size, lower, upper, kind in blocks(plan, program, level):
        start, end = max(lower, first), min(upper, last)
        if start < end:
            bar = [(start, end - start)], (address, size)
            ax.broken_barh(*bar, facecolors=_COLOURS[kind], edgecolor="white", lw=0.4)
            drawn.add(kind)
    peak = plan.peaks[level]
    ax.axhline(peak, color="k", lw=0.8, ls="--")
    ax.set(xlim=(first, last), xlabel="number of the op", ylabel=f"address in {level} (bytes)")
    ax.set_ylim(0, 1.08 * peak or 1)  # the greatest use is below the edge
    words = (
        f"memory of {level}: {peak} of {plan.hierarchy[plan.hierarchy.index(level)].bytes} bytes"
    )
    ax.set_title(f"{words} (dashed)", fontsize="small", loc="left")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return drawn


def _draw_pipeline(
    ax: Axes, plan: Plan, busy: list[Span], time: tuple[float, float] | None
) -> None:
    """Draw a row for each engine: kernels by op, copies by what they move."""
    rows = engines(plan)
    start = min(one.start for one in busy) if time is None else time[0]
    end = max(one.end for one in busy) if time is None else time[1]
    for row, engine in enumerate(rows):
        own = [one for one in busy if one.engine == engine]
        colours = [
            _KERNELS[one.step % 2] if engine == "compute" else _COLOURS[one.kind] for one in own
        ]
        bars = [(one.start, one.end - one.start) for one in own]
        ax.broken_barh(bars, (row - 0.4, 0.8), facecolors=colours)
    written = -np.inf  # place of the last number: ops that are interleaved share places
    for step in sorted({one.step for one in busy}):
        own = [one for one in busy if one.step == step and one.engine == "compute"]
        low = max(min((one.start for one in own), default=start), start)
        high = min(max((one.end for one in own), default=start), end)
        middle = (low + high) / 2
        if _ROOM * (high - low) > end - start and _ROOM * (middle - written) > end - start:
            ax.text(middle, 0, str(step), ha="center", va="center", fontsize="x-small")
            written = middle
    ax.set_yticks(range(len(rows)), ["kernels", *rows[1:]])
    ax.set(xlim=(start, end), ylim=(len(rows) - 0.5, -0.5))
    ax.set_xlabel("time (cycles of the model)")
    ax.set_title("kernels, and copies over the link of each level", fontsize="small", loc="left")


def _key(ax: Axes, kinds: set[str]) -> None:
    """Write the key of both halves above them."""
    patch = import_module("matplotlib.patches").Patch
    colours = {kind: colour for kind, colour in _COLOURS.items() if kind in kinds}
    handles = [patch(color=colour, label=_WORDS[kind]) for kind, colour in colours.items()]
    pair = [patch(color=tone) for tone in _KERNELS]
    tuples = import_module("matplotlib.legend_handler").HandlerTuple(ndivide=None)
    ax.legend(
        handles=[*handles, tuple(pair)],
        labels=[*(one.get_label() for one in handles), "kernels, by turns with the op"],
        handler_map={tuple: tuples},
        loc="lower left",
        bbox_to_anchor=(0, 1.1),
        ncols=2,
        frameon=False,
        fontsize="small",
    )


@takes()
def plot_sweep(sweep: LevelSweep, *, ax: Axes | None = None) -> Axes:
    """Draw the cycles of plans over the size of a level: what more memory would buy.

    Parameters
    ----------
    sweep : LevelSweep
        From `rpukit.tiled.sweep_levels`.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError, ParameterError
    """
    ax = axes(ax)
    for strategy, cycles in sweep.cycles.items():
        drawn = [(n, c) for n, c in zip(sweep.sizes, cycles, strict=True) if c is not None]
        label = f'"{strategy}"' + ("" if drawn else ": fits in none")
        ax.plot(*zip(*drawn, strict=True) if drawn else ([], []), marker=".", label=label)
    ax.axvline(sweep.current, color="0.6", lw=0.8, ls="--", label="the size given")
    ax.set_xscale("log", base=2)
    ax.set_xticks(sweep.sizes, [f"{n:,}" for n in sweep.sizes], rotation=30, ha="right")
    ax.minorticks_off()
    ax.set(xlabel=f"size of {sweep.level} (bytes)", ylabel="time (cycles of the model)")
    ax.set_ylim(0)
    ax.legend(frameon=False, fontsize="small")
    return ax


@takes()
def plot_targets(comparison: TargetComparison, *, ax: Axes | None = None) -> Axes:
    """Draw the time of one graph on several targets, in seconds where all clocks are known.

    Parameters
    ----------
    comparison : TargetComparison
        From `rpukit.tiled.compare_targets`.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError, ParameterError
    """
    ax = axes(ax)
    timed = all(name in comparison.clocks for name in comparison.plans)
    for row, (name, made) in enumerate(comparison.plans.items()):
        if made is None:
            ax.text(0, row, " does not fit", va="center", fontsize="small")
            continue
        scale = 1e3 / comparison.clocks[name] if timed else 1.0
        left = 0.0
        for program, colour in zip(made.programs, ("tab:blue", "tab:cyan"), strict=False):
            ax.barh(row, program.cycles * scale, left=left, color=colour)
            left += program.cycles * scale
    ax.set_yticks(range(len(comparison.plans)), list(comparison.plans))
    ax.set_ylim(len(comparison.plans) - 0.4, -0.6)
    ax.locator_params(axis="x", nbins=5)
    ax.set_xlabel("time in the model (ms)" if timed else "time (cycles of each target)")
    patch = import_module("matplotlib.patches").Patch
    words = (("training graph", "tab:blue"), ("optimiser", "tab:cyan"))
    n = max((len(one.programs) for one in comparison.plans.values() if one), default=1)
    handles = [patch(color=colour, label=word) for word, colour in words[:n]]
    if n > 1:
        ax.legend(handles=handles, frameon=False, fontsize="small")
    return ax
