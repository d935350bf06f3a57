"""Figures as a device physicist would draw them; each takes ``ax=None`` and returns the Axes.

Matplotlib is imported by the first call (``pip install "rpukit[plot]"``); nothing is ever shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from rpukit.analog.tile import AnalogTile
from rpukit.errors import PlotError
from rpukit.studies import PulseResponse

__all__ = ["plot_conductances", "plot_learning", "plot_response", "plot_spread", "plot_steps"]

Axes = Any


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        pyplot = import_module("matplotlib.pyplot")
    except ImportError as error:
        raise PlotError('figures need matplotlib: pip install "rpukit[plot]"') from error
    return pyplot.subplots(figsize=(5, 3.2), layout="constrained")[1]


def plot_response(response: PulseResponse, *, n_shown: int = 5, ax: Axes | None = None) -> Axes:
    """Draw weights against the number of pulses: some cells, their mean and spread.

    Parameters
    ----------
    response : PulseResponse
        From `rpukit.studies.pulse_response`.
    n_shown : int
        Number of single cells to draw.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
    """
    ax = _axes(ax)
    pulses = np.arange(response.weight.shape[0])
    ax.plot(pulses, response.weight[:, :n_shown], lw=0.7, color="tab:blue", alpha=0.6)
    mean, std = response.weight.mean(axis=1), response.weight.std(axis=1)
    if response.weight.shape[1] > n_shown:
        ax.fill_between(
            pulses, mean - std, mean + std, color="0.85", zorder=0, label="spread (1 std)"
        )
        ax.plot(pulses, mean, color="k", lw=1.2, label=f"mean of {response.weight.shape[1]} cells")
        ax.legend(frameon=False, fontsize="small")
    ax.set(xlabel="pulse number", ylabel="weight", xlim=(0, pulses[-1]))
    return ax


def plot_steps(response: PulseResponse, *, n_bin: int = 40, ax: Axes | None = None) -> Axes:
    """Draw the size of a step against the weight, mean and deviation of up and of down pulses.

    Parameters
    ----------
    response : PulseResponse
    n_bin : int
        Number of weight bins.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
    """
    ax = _axes(ax)
    before, step = response.weight[:-1], np.diff(response.weight, axis=0)
    edges = np.linspace(before.min(), before.max() + 1e-6, n_bin + 1)
    for way, name, colour in ((True, "up", "tab:red"), (False, "down", "tab:blue")):
        w, dw = before[response.up == way].ravel(), step[response.up == way].ravel()
        if not w.size:
            continue
        where = np.digitize(w, edges) - 1
        n = np.bincount(where, minlength=n_bin)
        kept = n > 5
        mean = np.bincount(where, dw, n_bin)[kept] / n[kept]
        std = np.sqrt(np.maximum(np.bincount(where, dw**2, n_bin)[kept] / n[kept] - mean**2, 0))
        centre = (edges[:-1] + edges[1:])[kept] / 2
        ax.plot(centre, mean, color=colour, label=f"{name} pulses")
        ax.fill_between(centre, mean - std, mean + std, color=colour, alpha=0.2, lw=0)
    ax.axhline(0, color="0.7", lw=0.6)
    ax.set(xlabel="weight", ylabel="step")
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_spread(
    tile: AnalogTile,
    names: Sequence[str] = ("w_min", "w_max"),
    *,
    n_bin: int = 60,
    ax: Axes | None = None,
) -> Axes:
    """Draw histograms of per-cell parameters: the device-to-device variation.

    Parameters
    ----------
    tile : AnalogTile
    names : sequence of str
        Names of `AnalogTile.cells`.
    n_bin : int
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
    """
    ax = _axes(ax)
    cells = tile.to("cpu").cells
    for name in names:
        ax.hist(cells[name].ravel(), n_bin, histtype="stepfilled", alpha=0.5, label=name)
    ax.set(xlabel="weight units", ylabel="cells")
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_conductances(
    tiles: Mapping[str, AnalogTile], *, n_bin: int = 60, ax: Axes | None = None
) -> Axes:
    """Draw histograms of the weights of some tiles.

    Parameters
    ----------
    tiles : mapping of str to AnalogTile
    n_bin : int
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
    """
    ax = _axes(ax)
    for name, tile in tiles.items():
        weight = np.asarray(tile.to("cpu")).ravel()
        ax.hist(weight, n_bin, density=True, histtype="stepfilled", alpha=0.5, label=name)
    ax.set(xlabel="weight", ylabel="density")
    ax.locator_params(axis="x", nbins=6)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_learning(curves: Mapping[str, Sequence[float]], *, ax: Axes | None = None) -> Axes:
    """Draw test accuracy against epochs.

    Parameters
    ----------
    curves : mapping of str to sequence of float
        Accuracy after each epoch, 0 to 1, by name.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
    """
    ax = _axes(ax)
    for name, accuracy in curves.items():
        ax.plot(
            np.arange(1, len(accuracy) + 1), 100 * np.asarray(accuracy), marker=".", label=name
        )
    ax.set(xlabel="epoch", ylabel="test accuracy (%)")
    ax.locator_params(axis="x", nbins=8, integer=True)
    ax.legend(frameon=False, fontsize="small")
    return ax
