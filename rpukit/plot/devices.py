"""Figures of devices: pulse responses, step sizes, conductances and learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rpukit._checks import Maybe, Whole, need_memory, one_of, real_array, shown, takes
from rpukit.analog.cells import Cell
from rpukit.analog.tile.tile import AnalogTile
from rpukit.errors import ParameterError
from rpukit.inference import InferenceTile
from rpukit.plot.axes import axes as _axes
from rpukit.plot.axes import mark_break
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

_UNITS = "weight units"
_FEW_STEPS = 5
_MOST_PULSES = 20_000  # up, of a panel
# Of the parameters of cells that are no weights, these have another unit, or none.
_WEIGHTS = ("w_min", "w_max", "step_up", "step_down", "reset", "diffusion", "reference")


@takes(n_shown=Whole(0))
def plot_response(
    response: PulseResponse, *, n_shown: int = 5, scale: Any = None, ax: Axes | None = None
) -> Axes:
    """Draw weights against the number of pulses: some cells, their mean and spread.

    Parameters
    ----------
    response : PulseResponse
        From `rpukit.studies.pulse_response`.
    n_shown : int
        Number of single cells to draw.
    scale : object, optional
        With methods ``conductance(weight)``, in microsiemens, and ``weight(conductance)``: a
        second axis shows the conductances.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError, ParameterError
    """
    ax = _axes(ax)
    n_cell = response.weight.shape[1]
    pulses = np.arange(response.weight.shape[0])
    few = min(n_shown, n_cell)
    if few:
        own = ax.plot(pulses, response.weight[:, :few], lw=0.7, color="tab:blue", alpha=0.6)
        own[0].set_label(f"{few} of the cells" if few < n_cell else f"cells ({n_cell})")
    if n_cell > n_shown:
        mean, std = response.weight.mean(axis=1), response.weight.std(axis=1)
        ax.fill_between(
            pulses, mean - std, mean + std, color="0.85", zorder=0, label="spread (1 std)"
        )
        ax.plot(pulses, mean, color="k", lw=1.2, label=f"mean of {n_cell} cells")
    ax.legend(frameon=False, fontsize="small")
    ax.set(xlabel="pulse number", ylabel=f"weight ({_UNITS})", xlim=(0, max(pulses[-1], 1)))
    if scale is not None:
        _second_axis(ax, scale)
    return ax


def _second_axis(ax: Axes, scale: Any) -> None:
    """Show conductances beside the weights."""
    if not all(callable(getattr(scale, name, None)) for name in ("conductance", "weight")):
        raise ParameterError(
            f"scale: got {shown(scale)}, need an object with conductance(weight) and "
            "weight(conductance)"
        )
    second = ax.secondary_yaxis("right", functions=(scale.conductance, scale.weight))
    second.set_ylabel("conductance (\u00b5S)")


@takes(n_bin=Whole(1, 1 << 20))
def plot_steps(response: PulseResponse, *, n_bin: int = 40, ax: Axes | None = None) -> Axes:
    """Draw the mean and deviation of the step size against the weight, for up and down pulses.

    Bins with five steps or fewer are left out, unless there are no others.

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
    PlotError, ParameterError
    """
    ax = _axes(ax)
    steps = step_statistics(response, n_bin=n_bin)
    for way, name, colour in ((1, "up", "tab:red"), (0, "down", "tab:blue")):
        kept = steps.count[way] > _FEW_STEPS
        kept = kept if kept.any() else steps.count[way] > 0
        if not kept.any():
            ax.plot([], [], color=colour, label=f"{name} pulses: none")
            continue
        w, mean, std = steps.weight[kept], steps.mean[way, kept], steps.std[way, kept]
        ax.plot(w, mean, color=colour, label=f"{name} pulses, mean")
        ax.fill_between(
            w, mean - std, mean + std, color=colour, alpha=0.2, lw=0, label="spread (1 std)"
        )
    ax.axhline(0, color="0.7", lw=0.6)
    ax.set(xlabel=f"weight before the pulse ({_UNITS})", ylabel=f"step ({_UNITS})")
    ax.legend(frameon=False, fontsize="small", ncols=2)
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

    Dotted lines are the mean bounds, and the response of even steps between them. An inset has
    the mean step against the weight, which tells models apart whose responses look alike. The key
    is below the panels.

    Parameters
    ----------
    cells : mapping of str to Cell
        Pulsed cells by name, one or more.
    n_pulse : int, optional
        Number of up pulses; default: as many as a cell has states, 20 to 20,000.
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
    if not cells:
        raise ParameterError("cells: got none, need pulsed cells by name")
    n_column = min(n_column, len(cells))
    n_row = -(-len(cells) // n_column)
    size = (3.2 * n_column, 2.4 * n_row + 0.5)
    figure = _pyplot().figure(figsize=size, layout="constrained")
    axes = figure.subplots(n_row, n_column, squeeze=False).ravel()
    for ax in axes[len(cells) :]:
        ax.remove()
    key: dict[str, Any] = {}
    for ax, (name, cell) in zip(axes, cells.items(), strict=False):
        if n_pulse:
            need_memory(8 * n_pulse * n_cell, f"{n_pulse} pulses on {n_cell} cells")
        n = n_pulse or min(_MOST_PULSES, max(20, round(getattr(cell, "n_states", 1000))))
        pulses = np.repeat([True, False], n)
        response = pulse_response(cell, pulses, n_cell=n_cell, seed=seed)
        plot_response(response, n_shown=3, ax=ax).set_title(name, fontsize="medium")
        _draw_even_steps(ax, cell, n)
        _draw_inset(ax, response)
        handles, labels = ax.get_legend_handles_labels()
        key.update(zip(labels, handles, strict=True))
        ax.get_legend().remove()
        ax.locator_params(axis="x", nbins=5)
    figure.legend(
        key.values(), key.keys(), loc="outside lower center", ncols=4, frameon=False,
        fontsize="small",
    )  # fmt: skip
    return axes[: len(cells)]


def _draw_even_steps(ax: Axes, cell: Cell, n: int) -> None:
    """Draw the mean bounds, which the axis then covers, and what even steps would do."""
    low, high = (getattr(cell, name, None) for name in ("w_min", "w_max"))
    if low is None or high is None or not low < high:
        return
    step = getattr(cell, "granularity", None) or (high - low) / n
    rise = np.minimum(low + step * np.arange(n + 1), high)
    fall = np.maximum(rise[-1] - step * np.arange(1, n + 1), low)
    even = np.concatenate([rise, fall])
    ax.plot(even, color="tab:green", lw=1.2, ls=":", label="even steps", zorder=4)
    for bound in (low, high):
        line = ax.axhline(bound, color="0.5", lw=0.8, ls=":")
    line.set_label("mean bounds")


def _draw_inset(ax: Axes, response: PulseResponse) -> None:
    """Draw the mean steps against the weight, without numbers, under the peak of the response."""
    steps = step_statistics(response, n_bin=20)
    inset = ax.inset_axes((0.35, 0.07, 0.3, 0.34))
    for way, colour, name in ((1, "tab:red", "up"), (0, "tab:purple", "down")):
        kept = steps.count[way] > 0
        label = f"mean {name} step against weight (inset)"
        inset.plot(steps.weight[kept], steps.mean[way, kept], color=colour, lw=1)
        ax.plot([], [], color=colour, lw=1, label=label)
    inset.axhline(0, color="0.6", lw=0.5)
    inset.set(xticks=[], yticks=[])
    inset.patch.set_alpha(0.7)


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
    if not names:
        raise ParameterError("names: got none, need at least one array of cells")
    for name in names:
        ax.hist(
            cells[one_of(name, "names", cells)].ravel(),
            n_bin,
            histtype="stepfilled",
            alpha=0.5,
            label=name,
        )
    unit = f" ({_UNITS})" if all(name in _WEIGHTS for name in names) else ""
    ax.set(xlabel=f"parameter of a cell{unit}", ylabel="number of cells")
    ax.legend(frameon=False, fontsize="small")
    return ax


@takes(n_bin=Whole(1, 1 << 20))
def plot_conductances(
    tiles: Mapping[str, AnalogTile | InferenceTile], *, n_bin: int = 60, ax: Axes | None = None
) -> Axes:
    """Draw histograms of the weights of tiles, or of the conductances of programmed ones.

    Parameters
    ----------
    tiles : mapping of str to (AnalogTile or InferenceTile)
        By name. If all are programmed `InferenceTile`, their conductances are drawn, of all
        devices of a cell, as they were written.
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
    known = [isinstance(tile, InferenceTile) and tile.time is not None for tile in tiles.values()]
    if not tiles:
        raise ParameterError("tiles: got none, need tiles by name")
    for name, tile in tiles.items():
        here: Any = tile.to("cpu")
        values = np.asarray(here.conductances if all(known) else here.get_weights()).ravel()
        ax.hist(values, n_bin, density=True, histtype="stepfilled", alpha=0.5, label=name)
    what, unit = ("conductance", "\u00b5S") if all(known) else ("weight", _UNITS)
    ax.set(xlabel=f"{what} ({unit})", ylabel=f"density (1 / {unit.removesuffix('s')})")
    ax.locator_params(axis="x", nbins=6)
    ax.legend(frameon=False, fontsize="small")
    return ax


@takes()
def plot_learning(curves: Mapping[str, Sequence[float]], *, ax: Axes | None = None) -> Axes:
    """Draw test accuracy against epochs; an axis that does not begin at 0 has a mark and says so.

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
    PlotError, ParameterError
    """
    ax = _axes(ax)
    if not curves:
        raise ParameterError("curves: got none, need accuracies by name")
    for name, accuracy in curves.items():
        ax.plot(
            np.arange(1, len(accuracy) + 1),
            100 * real_array(accuracy, name),
            marker=".",
            label=name,
        )
    ax.set(xlabel="epoch", ylabel="test accuracy (%)")
    ax.locator_params(axis="x", nbins=8, integer=True)
    ax.legend(frameon=False, fontsize="small", loc="best")
    mark_break(ax, "%")
    return ax
