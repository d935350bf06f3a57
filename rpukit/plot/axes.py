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
