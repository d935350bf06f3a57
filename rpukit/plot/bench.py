"""Figures of the bench: fits over measured pulses, residuals, rankings, retention, endurance."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit._checks import takes
from rpukit.plot.axes import axes as _axes
from rpukit.studies import DeviceFit, Endurance, PulseData, Retention

__all__ = ["plot_endurance", "plot_fit", "plot_ranking", "plot_residuals", "plot_retention"]

Axes = Any
_SMALL = {"frameon": False, "fontsize": "small"}
_TIGHT = {**_SMALL, "handlelength": 1.2, "handletextpad": 0.4, "columnspacing": 1.0}


@takes()
def plot_fit(
    fit: DeviceFit, data: PulseData, device: str | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the measured response of a device and the mean response of a fit over it.

    Parameters
    ----------
    fit : DeviceFit
    data : PulseData
    device : str, optional
        Name of the device; default: the first.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Conductances in microsiemens on the left, weights on the right.

    Raises
    ------
    PlotError, ParameterError
    """
    overlay, ax = fit.overlay(data, device), _axes(ax)
    name = data.devices[0] if device is None else device
    ax.plot(overlay.pulse, overlay.measured, ".", ms=2.5, color="0.55", label="measured")
    ax.plot(overlay.pulse, overlay.mean, lw=1.4, color="tab:blue", label=f"mean of {fit.model}")
    right = ax.secondary_yaxis("right", functions=(fit.scale.weight, fit.scale.conductance))
    right.set_ylabel("weight (weight units)")
    ax.set(xlabel="pulse number", ylabel="conductance (µS)", title=name)
    ax.set_xlim(overlay.pulse[0], overlay.pulse[-1])
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.16 * (high - low))  # room for the legend
    ax.legend(loc="upper center", ncols=2, markerscale=3, **_TIGHT)
    return ax


@takes()
def plot_residuals(
    fit: DeviceFit, data: PulseData, device: str | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the errors of the predictions of a fit, each from the reads before it.

    Parameters
    ----------
    fit : DeviceFit
    data : PulseData
    device : str, optional
        Name of the device; default: the first.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Errors in microsiemens; the shade is twice the deviation that the fit gives to them. Reads
        beyond four deviations have crosses.

    Raises
    ------
    PlotError, ParameterError
    """
    overlay, ax = fit.overlay(data, device), _axes(ax)
    name = data.devices[0] if device is None else device
    wide = 2 * np.where(overlay.error == 0, np.nan, overlay.deviation)
    ax.fill_between(overlay.pulse, -wide, wide, color="0.88", lw=0, label="±2 deviations")
    far = np.abs(overlay.error) > 2 * np.nan_to_num(wide, nan=np.inf)
    ax.plot(overlay.pulse[~far], overlay.error[~far], ".", ms=2.5, color="tab:blue", label="reads")
    if far.any():
        ax.plot(overlay.pulse[far], overlay.error[far], "x", color="tab:red", label="beyond ±4")
    ax.axhline(0, color="0.5", lw=0.6)
    ax.set(xlabel="pulse number", ylabel="measured - predicted (µS)", title=name)
    ax.set_xlim(overlay.pulse[0], overlay.pulse[-1])
    most = 1.45 * np.abs(overlay.error).max()
    ax.set_ylim(-most, most)
    ax.legend(loc="upper center", ncols=3, **_TIGHT)
    return ax


@takes()
def plot_ranking(fit: DeviceFit, *, ax: Axes | None = None) -> Axes:
    """Draw how much worse than the best model the others are, by AIC and on left-out cycles.

    Parameters
    ----------
    fit : DeviceFit
        Of several models.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Bars of AIC, on a scale that is linear up to 10 and then logarithmic; the error on
        left-out cycles is written at their ends.

    Raises
    ------
    PlotError
    """
    ax = _axes(ax)
    lines = fit.ranking[::-1]
    excess = np.array([line.aic for line in lines]) - fit.ranking[0].aic
    ax.barh([line.model for line in lines], excess, color="tab:blue", height=0.6)
    ax.set_xscale("symlog", linthresh=10.0)
    ax.set_xlim(0, 60 * max(excess.max(), 10.0))
    ax.axvline(10, color="0.6", lw=0.8, ls=":")
    for k, line in enumerate(lines):
        if line.left_out_error is not None:
            text = f"  {line.left_out_error:#.3g} µS left out"
            ax.annotate(text, (excess[k], k), va="center", fontsize="small")
    ax.set(xlabel="AIC above that of the best (dotted: 10, decisive)")
    return ax


@takes()
def plot_retention(kept: Retention, *, ax: Axes | None = None) -> Axes:
    """Draw weights against the time since they were written, on a logarithmic axis.

    Parameters
    ----------
    kept : Retention
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Mean and spread over the cells of each level.

    Raises
    ------
    PlotError
    """
    ax = _axes(ax)
    shown = kept.time > 0
    time, weight = kept.time[shown], kept.weight[shown].astype(np.float64)
    for k in np.argsort(-kept.level):  # the legend in the order of the lines
        mean, std = weight[:, k].mean(axis=1), weight[:, k].std(axis=1)
        (line,) = ax.plot(time, mean, "o-", ms=3, lw=1.2, label=f"written {kept.level[k]:g}")
        ax.fill_between(time, mean - std, mean + std, color=line.get_color(), alpha=0.2, lw=0)
    ax.set(
        xscale="log", xlabel="time since writing (s)", ylabel="weight (weight units; mean, 1 std)"
    )
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.18 * (high - low))  # room for the legend
    ax.legend(loc="upper center", ncols=max(kept.level.size, 1), **_TIGHT)
    return ax


@takes()
def plot_endurance(worn: Endurance, *, ax: Axes | None = None) -> Axes:
    """Draw the number of states of cells over their cycles.

    Parameters
    ----------
    worn : Endurance
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
    """
    ax = _axes(ax)
    ax.plot(worn.pulse, worn.states, lw=0.8, color="tab:blue", alpha=0.4)
    median = np.nanmedian(worn.states, axis=1)
    ax.plot(worn.pulse, median, "ko-", ms=3, lw=1.2, label="median of cells")
    ax.set(xlabel="pulses before the cycle", ylabel="states of a cell")
    ax.set_ylim(0, 1.2 * float(np.nanmax(worn.states)))
    ax.legend(loc="lower left", **_SMALL)
    return ax
