"""``fit``: fit device models to measured pulses, and save the cell."""

from __future__ import annotations

import argparse
import warnings
from importlib import import_module
from math import isfinite
from typing import Any

from rpukit.cli.arguments import existing, writable
from rpukit.cli.output import print_json, print_table, print_text, save_figure
from rpukit.errors import ParameterError

__all__ = ["add_arguments", "run"]

_DATA = (
    "a CSV file with a line for each read: device, pulse, direction (up or down) and conductance; "
    "the heading says the unit, as in conductance (uS)"
)
_EPILOG = """columns: device (a name or number), pulse (its number), direction (up, down, 1
or -1), conductance; and, if known, read_noise and cycle. The first line of a
device is its read before the first pulse.

examples:
  python -m rpukit fit pulses.csv
  python -m rpukit fit pulses.csv --model all --out fit.json --figure fit.png
  python -m rpukit fit pulses.csv --model SoftBounds --unit nS --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fit``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.epilog = _EPILOG
    parser.add_argument("data", nargs="?", help=_DATA)
    text = "device model, several (SoftBounds,ExpStep), or all; default: SoftBounds"
    parser.add_argument("--model", default="SoftBounds", metavar="NAME[,NAME]", help=text)
    text = "of conductances, where their heading does not say it: S, mS, uS, nS or pS"
    parser.add_argument("--unit", choices=("S", "mS", "uS", "nS", "pS"), metavar="UNIT", help=text)
    text = "heading of a column, where it is another: 'device=cell id'; may be given again"
    parser.add_argument("--column", action="append", default=[], metavar="NAME=TEXT", help=text)
    text = "save the fit, with its cell, as JSON; rk.studies.load_fit reads it"
    parser.add_argument("--out", metavar="FILE", help=text)
    text = "draw the fit over the reads of a device, and its residuals, into a file"
    parser.add_argument("--figure", metavar="FILE", help=text)
    text = "device of the figure; default: the first"
    parser.add_argument("--plotted", metavar="DEVICE", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Fit models to a file of pulses; print, save and draw the best one.

    Parameters
    ----------
    args : argparse.Namespace

    Returns
    -------
    int
    """
    if args.data is None:
        raise ParameterError(f"no data given, need {_DATA}")
    existing(args.data, _DATA)
    for option in ("out", "figure"):
        if getattr(args, option):
            writable(getattr(args, option), f"--{option}")
    studies = import_module("rpukit.studies")
    data = studies.read_pulses(args.data, unit=args.unit, columns=_columns(args.column))
    if args.plotted is not None and args.plotted not in data.devices:
        raise ParameterError(f"--plotted {args.plotted}: there are {', '.join(data.devices)}")
    names = args.model.split(",")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = studies.fit_device(data, names[0] if len(names) == 1 else names)
    notes = [str(one.message) for one in said if issubclass(one.category, RuntimeWarning)]
    if args.json:
        print_json(_facts(fit, notes))
    else:
        _tell(fit, notes)
    if args.out:
        fit.save(args.out)
    if args.figure:
        _draw(args.figure, fit, data, args.plotted)
    return 0


def _columns(texts: list[str]) -> dict[str, str]:
    """Read headings: NAME=TEXT."""
    pairs = [text.partition("=") for text in texts]
    if not all(name and given and heading for name, given, heading in pairs):
        raise ParameterError(f"--column {' '.join(texts)}: need NAME=TEXT, as 'device=cell id'")
    return {name.strip(): heading.strip() for name, _, heading in pairs}


def _facts(fit: Any, notes: list[str]) -> dict[str, Any]:
    """Gather what a script wants of a fit."""

    def plain(group: Any) -> dict[str, Any]:
        return {
            name: {"value": one.value, "error": one.error if isfinite(one.error) else None}
            for name, one in group.items()
        }

    return {
        "model": fit.model,
        "reads": fit.n_read,
        "devices": list(fit.devices),
        "parameters": plain(fit.parameters),
        "noise": plain(fit.noise),
        "g_zero_uS": fit.scale.g_zero,
        "g_per_weight_uS": fit.scale.g_per_weight,
        "ranking": [line._asdict() for line in fit.ranking],
        "notes": notes,
    }


def _tell(fit: Any, notes: list[str]) -> None:
    """Print parameters with their standard errors, and the ranking of several models."""
    print_text(f"{fit.model} fitted to {fit.n_read} reads of {len(fit.devices)} devices\n")
    rows = [("parameter", "value", "standard error")]
    for name, one in {**fit.parameters, **_prefixed(fit.noise)}.items():
        error = f"{one.error:.2g}" if isfinite(one.error) else "not determined by the data"
        rows.append((name, f"{one.value:.4g}", error))
    print_table(rows, right=(1,))
    print()
    print_text("in weight units; noise of steps: relative; noise of reads: one standard deviation")
    scale = fit.scale
    print_text(
        f"conductance = {scale.g_zero:.4g} uS + weight x {scale.g_per_weight:.4g} uS", indent=4
    )
    if len(fit.ranking) > 1:
        print()
        lines = [("model", "AIC", "error on left-out cycles (uS)", "parameters")]
        for line in fit.ranking:
            error = "" if line.left_out_error is None else f"{line.left_out_error:.4g}"
            lines.append((line.model, f"{line.aic:.1f}", error, str(line.n_parameter)))
        print_table(lines, right=(1, 2))
        print_text("\nthe smallest AIC is best; a difference of 10 or more is decisive")
    for note in notes:
        print_text(f"note: {note}", indent=4)


def _prefixed(noise: Any) -> dict[str, Any]:
    return {f"noise of {name}s": one for name, one in noise.items()}


def _draw(path: str, fit: Any, data: Any, device: str | None) -> None:
    """Draw the fit over the reads of a device, and its residuals."""
    plot, pyplot = import_module("rpukit.plot"), import_module("rpukit.plot.axes").pyplot()
    pyplot.switch_backend("Agg")
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    plot.plot_fit(fit, data, device, ax=axes[0])
    plot.plot_residuals(fit, data, device, ax=axes[1])
    save_figure(figure, path)
