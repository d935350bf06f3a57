"""Figures of devices: pulse responses, step sizes, conductances and learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rpukit._checks import Maybe, Whole, one_of, real_array, takes
from rpukit.analog.cells import Cell
from rpukit.analog.tile.tile import AnalogTile
from rpukit.plot.axes import axes as _axes
from rpukit.plot.axes import pyplot as _pyplot
from rpukit.random import Stream
from rpukit.studies import PulseResponse, pulse_response, step_statistics

__all__ = [
    "plot_conductances",
    "plot_devices",
    "plot_learning",
    "plot_response",
    "plot_spread",
    "plot_steps",
]

Axes = Any


@takes(n_shown=Whole(0))
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


@takes(n_bin=Whole(1, 1 << 20))
def plot_steps(response: PulseResponse, *, n_bin: int = 40, ax: Axes | None = None) -> Axes:
    """Draw the mean and deviation of the step size against the weight, for up and down pulses.

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
    steps = step_statistics(response, n_bin=n_bin)
    for way, name, colour in ((1, "up", "tab:red"), (0, "down", "tab:blue")):
        kept = steps.count[way] > 5
        if not kept.any():
            continue
        w, mean, std = steps.weight[kept], steps.mean[way, kept], steps.std[way, kept]
        ax.plot(w, mean, color=colour, label=f"{name} pulses")
        ax.fill_between(w, mean - std, mean + std, color=colour, alpha=0.2, lw=0)
    ax.axhline(0, color="0.7", lw=0.6)
    ax.set(xlabel="weight", ylabel="step")
    ax.legend(frameon=False, fontsize="small")
    return ax


@takes(n_pulse=Maybe(Whole(1)), n_cell=Whole(1), n_column=Whole(1, 100))
def plot_devices(
    cells: Mapping[str, Cell],
    *,
    n_pulse: int | None = None,
    n_cell: int = 30,
    n_column: int = 3,
    seed: int | Stream = 0,
) -> Any:
    """Draw the responses of devices side by side, to up pulses and then as many down pulses.

    Parameters
    ----------
    cells : mapping of str to Cell
        Pulsed cells by name.
    n_pulse : int, optional
        Number of up pulses; default: as many as a cell has states.
    n_cell : int
        Number of cells of each kind.
    n_column : int
        Axes side by side.
    seed : int or Stream

    Returns
    -------
    array of matplotlib Axes, shape (n_device,)

    Raises
    ------
    PlotError, ParameterError
    """
    n_row = -(-len(cells) // n_column)
    size = (3.2 * n_column, 2.4 * n_row)
    figure = _pyplot().figure(figsize=size, layout="constrained")
    axes = figure.subplots(n_row, n_column, squeeze=False).ravel()
    for ax in axes[len(cells) :]:
        ax.remove()
    for ax, (name, cell) in zip(axes, cells.items(), strict=False):
        n = n_pulse or min(2000, max(20, round(getattr(cell, "n_states", 1000))))
        pulses = np.repeat([True, False], n)
        response = pulse_response(cell, pulses, n_cell=n_cell, seed=seed)
        plot_response(response, n_shown=3, ax=ax).set_title(name, fontsize="medium")
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    return axes[: len(cells)]


@takes(n_bin=Whole(1, 1 << 20))
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
        ax.hist(
            cells[one_of(name, "names", cells)].ravel(),
            n_bin,
            histtype="stepfilled",
            alpha=0.5,
            label=name,
        )
    ax.set(xlabel="weight units", ylabel="cells")
    ax.legend(frameon=False, fontsize="small")
    return ax


@takes(n_bin=Whole(1, 1 << 20))
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


@takes()
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
            np.arange(1, len(accuracy) + 1),
            100 * real_array(accuracy, name),
            marker=".",
            label=name,
        )
    ax.set(xlabel="epoch", ylabel="test accuracy (%)")
    ax.locator_params(axis="x", nbins=8, integer=True)
    ax.legend(frameon=False, fontsize="small")
    return ax
