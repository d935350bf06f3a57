"""Matplotlib, imported when the first figure is drawn."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rpukit._checks import shown
from rpukit.errors import ParameterError, PlotError

Axes = Any


def pyplot() -> Any:
    """Import Matplotlib, or say what to install."""
    try:
        return import_module("matplotlib.pyplot")
    except ImportError as error:
        raise PlotError('figures need matplotlib: pip install "rpukit[plot]"') from error


def axes(ax: Axes | None) -> Axes:
    """Use the given Axes, or make one."""
    if ax is None:
        return pyplot().subplots(figsize=(5, 3.2), layout="constrained")[1]
    if not isinstance(ax, import_module("matplotlib.axes").Axes):
        raise ParameterError(f"ax: got {shown(ax)}, need an Axes of matplotlib")
    return ax


def mark_break(ax: Axes, unit: str = "") -> None:
    """Begin a y axis at 0 or, where that would hide the data, mark that it begins elsewhere."""
    low, high = ax.get_ylim()
    if low <= 0:
        return
    if 2 * low < high:
        ax.set_ylim(0, high)
        return
    ax.set_ylim(low - 0.08 * (high - low), high)  # room for the mark below the data
    for at in (0.0, 0.025):
        ax.plot((-0.015, 0.015), (at + 0.01, at + 0.035), color="k", lw=0.8, clip_on=False,
                transform=ax.transAxes)  # fmt: skip
    words = f"axis begins at {ax.get_ylim()[0]:.3g} {unit}".strip()
    ax.text(0.03, 0.02, words, transform=ax.transAxes, fontsize="x-small", color="0.35")
