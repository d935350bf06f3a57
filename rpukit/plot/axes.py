"""Matplotlib, imported when the first figure is drawn."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rpukit.errors import PlotError

Axes = Any


def pyplot() -> Any:
    """Import Matplotlib, or say what to install."""
    try:
        return import_module("matplotlib.pyplot")
    except ImportError as error:
        raise PlotError('figures need matplotlib: pip install "rpukit[plot]"') from error


def axes(ax: Axes | None) -> Axes:
    """Use the given Axes, or make one."""
    return pyplot().subplots(figsize=(5, 3.2), layout="constrained")[1] if ax is None else ax
