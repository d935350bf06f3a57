"""Figures of models that age."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit.errors import ParameterError
from rpukit.plot.axes import axes as _axes

__all__ = ["plot_ageing"]

Axes = Any
_MARKS = {1.0: "1 s", 3600.0: "1 h", 86400.0: "1 d", 2.592e6: "30 d", 3.15e7: "1 y"}


def plot_ageing(
    ageing: Any, *, label: str | None = None, unit: str = "accuracy", ax: Axes | None = None
) -> Axes:
    """Draw the scores of a programmed model against the time after programming.

    Parameters
    ----------
    ageing : Ageing
        From `rpukit.torch.over_time`. Its mean is drawn with the range over programmings, and the
        score of the digital weights as a dashed line of the same colour.
    label : str, optional
    unit : str
        Name of the score.
    ax : matplotlib Axes, optional
        Draw several models into the same Axes to compare them.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ParameterError, PlotError
    """
    if not all(hasattr(ageing, name) for name in ("times", "scores", "digital")):
        raise ParameterError(f"ageing: got {type(ageing).__name__}, need what over_time returns")
    if (np.asarray(ageing.times) <= 0).any():
        raise ParameterError("ageing: its times need to be positive for an axis of logarithms")
    ax = _axes(ax)
    (line,) = ax.plot(ageing.times, ageing.mean, "o-", ms=4, label=label)
    low, high = ageing.scores.min(axis=0), ageing.scores.max(axis=0)
    ax.fill_between(ageing.times, low, high, color=line.get_color(), alpha=0.2, lw=0)
    ax.axhline(ageing.digital, color=line.get_color(), ls="--", lw=0.8)
    ax.set(xscale="log", xlabel="time after programming", ylabel=unit)
    ticks = [t for t in _MARKS if min(ageing.times) <= t <= max(ageing.times)]
    if len(ticks) > 1:
        ax.set_xticks(ticks, [_MARKS[t] for t in ticks])
        ax.minorticks_off()
    if label is not None:
        ax.legend(frameon=False, fontsize="small")
    return ax
