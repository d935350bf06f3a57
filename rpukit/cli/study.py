"""``study``: what a device does under pulses, as a table and a figure."""

from __future__ import annotations

import argparse
import ast
import warnings
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from rpukit._checks import did_you_mean, integer
from rpukit.analog import presets
from rpukit.analog.cells import Cell
from rpukit.cli.arguments import chosen_device, writable
from rpukit.cli.output import print_json, print_table, print_text, save_figure
from rpukit.errors import ParameterError

__all__ = ["add_arguments", "run"]

MODELS = (
    *("ConstantStep", "ExpStep", "LinearStep", "PiecewiseStep", "PowStep", "PowStepReference"),
    *("SoftBounds", "SoftBoundsPmax", "SoftBoundsReference"),
)
_MOST_PULSES = 4000  # up, if not said otherwise
_EPILOG = """examples:
  python -m rpukit study ReRamES --figure reram.png
  python -m rpukit study SoftBounds --set dw_min=0.01 --set up_down=0.2 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``study``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.epilog = _EPILOG
    text = f"a preset ({', '.join(presets.device_names())}) or a model ({', '.join(MODELS)})"
    parser.add_argument("name", metavar="DEVICE", nargs="?", help=text)
    text = "another value of a parameter of the device; may be given again"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=text)
    text = "up pulses, and as many down pulses; default: twice the states of the device, 20 to "
    parser.add_argument("--pulses", type=int, metavar="N", help=f"{text}{_MOST_PULSES}")
    parser.add_argument("--cells", type=int, default=100, metavar="N", help="default: 100")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    text = 'computes: "cpu" (default), "gpu", "gpu:1", or "auto": a GPU if there is one'
    parser.add_argument("--device", default="cpu", help=text)
    text = "draw response, steps, states and symmetric points into a file such as reram.png"
    parser.add_argument("--figure", metavar="FILE", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def cell_of(name: str | None, settings: list[str]) -> tuple[str, Cell]:
    """Make the cell of a preset or model, with other values of some parameters.

    Parameters
    ----------
    name : str
    settings : list of str
        ``NAME=VALUE``.

    Returns
    -------
    name : str
    cell : Cell

    Raises
    ------
    ParameterError, DTypeError
    """
    known = (*presets.device_names(), *MODELS)
    if name is None:
        raise ParameterError(f"no device given, need one of {', '.join(known)}")
    lower = {one.lower(): one for one in known}
    plain = name.lower().removesuffix("device").removesuffix("preset")
    found = lower.get(plain) or lower.get(plain.replace("ise", "ize"))  # Idealised
    if found is None:
        hint = did_you_mean(plain, known)
        raise ParameterError(f"no device {name!r}: there are {', '.join(known)}{hint}")
    values = dict(_value(text) for text in settings)
    if found in MODELS:
        cell: Cell = getattr(import_module("rpukit.analog"), found)(**values)
        return found, cell
    cell = presets.device(found)
    unknown = [one for one in values if one not in cell.__dataclass_fields__]
    if unknown:
        hint = did_you_mean(unknown[0], cell.__dataclass_fields__)
        raise ParameterError(f"--set: {type(cell).__name__} has no parameter {unknown[0]!r}{hint}")
    return found, replace(cell, **values)


def _value(text: str) -> tuple[str, Any]:
    name, given, value = text.partition("=")
    if not given:
        raise ParameterError(f"--set {text}: need NAME=VALUE, such as dw_min=0.01")
    try:
        return name.strip(), ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        return name.strip(), value.strip()


def run(args: argparse.Namespace) -> int:
    """Measure a device and print, write or draw what was found.

    Parameters
    ----------
    args : argparse.Namespace

    Returns
    -------
    int
    """
    studies = import_module("rpukit.studies")
    if args.figure:
        writable(args.figure, "--figure")
    name, cell = cell_of(args.name, args.set)
    if args.pulses is not None:
        integer(args.pulses, "--pulses", low=1, high=10**7)
    nominal = float(getattr(cell, "n_states", 1000))
    n = args.pulses or int(min(_MOST_PULSES, max(20, round(2 * nominal))))
    common = {"n_cell": args.cells, "seed": args.seed, "device": chosen_device(args.device)}
    response = studies.pulse_response(cell, np.repeat([True, False], n), **common)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a range that is not covered: a note says it
        states = studies.count_states(response)
    points = studies.symmetric_point(cell, n_pulse=2000, **common)
    facts = _facts(response, states, points, nominal)
    if args.json:
        head = {"device": name, "model": type(cell).__name__, "pulses": [n, n]}
        print_json({**head, "cells": args.cells, "seed": args.seed, **facts})
    else:
        _tell(name, cell, n, args.cells, facts)
    if args.figure:
        title = f"{name}: {args.cells} cells, {n} pulses up, then {n} down"
        _draw(args.figure, title, studies, response, states, points)
    return 0


def _facts(response: Any, states: Any, points: Any, nominal: float) -> dict[str, Any]:
    """Gather figures over cells: the median, and the range of the middle nine tenths."""
    # Weights on which pulses act, where writing noise makes others visible.
    weight = response.states.astype(np.float64)
    low, high = weight.min(axis=0), weight.max(axis=0)
    cells = {key: array.ravel() for key, array in response.tile.to("cpu").cells.items()}
    bounds = [cells.get("w_min"), cells.get("w_max")]
    third = (high - low) / 3
    before, step = weight[:-1], np.diff(weight, axis=0)
    middle = (before > low + third) & (before < high - third)
    found: dict[str, Any] = {"lowest": _spread(low), "highest": _spread(high)}
    if bounds[0] is not None and bounds[1] is not None:
        range_ = np.maximum(bounds[1].astype(np.float64) - bounds[0], 1e-30)
        found["range"] = _spread(np.minimum((high - low) / range_, 1.0))
    for name, up in (("step up", True), ("step down", False)):
        steps = step[middle & (response.up == up)[:, None]]
        found[name] = _spread(steps) if steps.size else None
    both = [found["step up"], found["step down"]]
    if all(both):
        up, down = both[0]["mean"], -both[1]["mean"]
        found["asymmetry"] = (up - down) / (up + down) if up + down else None
    good = states[np.isfinite(states)]
    found["states"] = _spread(good) if good.size else None
    found["nominal states"] = nominal
    found["symmetric point"] = _spread(points)
    return found


def _spread(values: Any) -> dict[str, float]:
    values = np.asarray(values, np.float64)
    low, median, high = (float(v) for v in np.quantile(values, (0.05, 0.5, 0.95)))
    return {"mean": float(values.mean()), "median": median, "low": low, "high": high}


def _tell(name: str, cell: Cell, n: int, n_cell: int, facts: dict[str, Any]) -> None:
    kind = "a model" if name == type(cell).__name__ else f"a preset of {type(cell).__name__}"
    print_text(f"{name}, {kind}: {n_cell} cells, {n} pulses up from the lower bound, {n} down\n")
    rows = [("over the cells, in weight units", "median", "5 % to 95 %")]
    for key, what in (
        ("lowest", "lowest weight reached"),
        ("highest", "highest weight reached"),
        ("step up", "change by an up pulse, mid-range"),
        ("step down", "change by a down pulse, mid-range"),
        ("states", "states: range / mean step"),
        ("symmetric point", "symmetric point"),
    ):
        one = facts[key]
        spread = (
            (f"{one['median']:.4g}", f"{one['low']:.4g} to {one['high']:.4g}") if one else None
        )
        rows.append((what, *(spread or ("none", "no step in the middle third"))))
    print_table(rows, right=(1,))
    print()
    print_text("mid-range: from the middle third of the range of a cell", indent=4)
    print_text("symmetric point: where alternating up and down pulses lead", indent=4)
    if facts.get("asymmetry") is not None:
        text = "(mean step up - mean step down) / their sum, 0 for equal steps"
        print_text(f"asymmetry: {facts['asymmetry']:.3g}, {text}", indent=4)
    print_text(f"nominal states of the mean device: {facts['nominal states']:.4g}", indent=4)
    covered = facts.get("range")
    if covered and covered["median"] < 0.9:
        text = "the states are those of that part; --pulses N sends more"
        share = f"{100 * covered['median']:.0f} %"
        print_text(f"note: the pulses reach {share} of the range between the bounds; {text}", 4)


def _draw(path: str, title: str, studies: Any, response: Any, states: Any, points: Any) -> None:
    """Draw four panels: response, steps, states, symmetric points."""
    plot, pyplot = import_module("rpukit.plot"), import_module("rpukit.plot.axes").pyplot()
    pyplot.switch_backend("Agg")
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6), layout="constrained")
    plot.plot_response(response, n_shown=3, ax=axes[0, 0])
    plot.plot_steps(response, ax=axes[0, 1])
    for ax, values, label in (
        (axes[1, 0], states[np.isfinite(states)], "states of a cell"),
        (axes[1, 1], points, "symmetric point (weight units)"),
    ):
        ax.hist(values, 30, color="0.6", histtype="stepfilled")
        if values.size:
            middle = float(np.median(values))
            ax.axvline(middle, color="tab:red", lw=1, label=f"median {middle:.4g}")
            ax.legend(frameon=False, fontsize="small")
        ax.set(xlabel=label, ylabel="number of cells")
    figure.suptitle(title)
    save_figure(figure, path)
