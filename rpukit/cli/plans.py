"""``plan`` plans a graph over levels of memory; ``codegen`` writes the plan as C99."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rpukit._files.writing import write_text
from rpukit.cli.arguments import PRESETS, existing, parse_levels, parse_size, writable
from rpukit.cli.output import print_text, save_figure, wrapped
from rpukit.errors import ParameterError

__all__ = ["add_codegen_arguments", "add_plan_arguments", "run_codegen", "run_plan"]

_BUFFERING = ("auto", "single", "double", "double_outer", "deeploy_buffers", "deeploy")
_GRAPH = "an ONNX file of a training graph"
_OPTIMISER = "an ONNX file of the graph of the optimiser, as exported beside the training graph"
_LEVELS = (
    f"{', '.join(PRESETS)}; sizes such as l1=64k,l2=1M,l3=64M (k, M: powers of 1000, Ki, Mi: of "
    "1024); or both: gpu,budget=2GiB"
)
_EXAMPLES = """examples:
  python -m rpukit plan train.onnx --optimiser update.onnx --levels l1=64k,l2=1M
  python -m rpukit plan train.onnx --levels siracusa_l3 --trace timeline.html
  python -m rpukit plan train.onnx --sweep L1
  python -m rpukit plan train.onnx --compare siracusa_l3 --compare gpu,budget=1M"""
_PARAMETERS = """The file of --parameters holds the first mini-batch (arr_0000 data, arr_0001
target), then the parameters in the order of the graph (arr_0002, ...), and
further mini-batches (mb1_arr_0000, mb1_arr_0001, mb2_arr_0000, ...).

example:
  python -m rpukit codegen train.onnx --optimiser update.onnx \\
      --parameters inputs.npz --out out
  make -C out run"""


def _add_common(parser: argparse.ArgumentParser, *, json_for: str) -> None:
    parser.add_argument("graph", nargs="?", help=_GRAPH)
    parser.add_argument("--optimiser", "--optimizer", metavar="FILE", help=_OPTIMISER)
    parser.add_argument("--levels", default="siracusa_l2", metavar="LEVELS", help=_LEVELS)
    text = "size of the level L1, such as 64k"
    parser.add_argument("--l1", type=parse_size, metavar="SIZE", help=text)
    text = f"buffers of each operand: {', '.join(_BUFFERING)}; default: auto"
    parser.add_argument(
        "--buffering", default="auto", choices=_BUFFERING, metavar="HOW", help=text
    )
    text = "ops or nodes that get one buffer, such as SGD,node_17; may be given again"
    parser.add_argument("--single", action="append", default=[], metavar="NAME[,NAME]", help=text)
    text = "write the timeline: .json for ui.perfetto.dev, .html for a browser"
    parser.add_argument("--trace", metavar="FILE", help=text)
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help=json_for)


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``plan``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.epilog = _EXAMPLES
    text = "write the result as JSON to a file; without a file, print it instead of the text"
    _add_common(parser, json_for=text)
    text = "print lines as long as they need be, not of 80 characters"
    parser.add_argument("--wide", action="store_true", help=text)
    text = "draw the plan (or the sweep, or the comparison) into a file such as plan.png"
    parser.add_argument("--figure", metavar="FILE", help=text)
    text = "instead: cycles for several sizes of a level, such as L1, around its own"
    parser.add_argument("--sweep", metavar="LEVEL", help=text)
    text = "instead: compare with other levels (written as for --levels); may be given again"
    parser.add_argument("--compare", action="append", default=[], metavar="LEVELS", help=text)


def add_codegen_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``codegen``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.epilog = _PARAMETERS
    _add_common(parser, json_for="write the plan as JSON to a file; without a file, print it")
    text = "npz file of mini-batches and initial parameters, see below"
    parser.add_argument("--parameters", metavar="FILE", help=text)
    parser.add_argument("--out", metavar="FOLDER", help="folder to write to")


def _given(args: argparse.Namespace) -> str:
    """Check the files of the command line; return the graph's."""
    if args.graph is None and args.json not in (None, "-"):
        args.graph, args.json = args.json, "-"  # `plan --json train.onnx` names the graph
    if args.graph is None:
        raise ParameterError(f"no graph given, need {_GRAPH}: python -m rpukit plan train.onnx")
    for option in ("json", "trace", "figure"):
        path = getattr(args, option, None)
        if path not in (None, "-"):
            writable(path, f"--{option}")
    if args.trace and not args.trace.endswith((".json", ".html")):
        raise ParameterError(f"--trace {args.trace}: need a name that ends in .json or .html")
    return existing(args.graph, _GRAPH)


def _read(args: argparse.Namespace) -> Any:
    """Read the graph, with its optimiser's where one is given."""
    tiled, path = import_module("rpukit.tiled"), _given(args)
    if args.optimiser:
        return tiled.training_from_onnx(path, existing(args.optimiser, _OPTIMISER))
    return tiled.from_onnx(path)


def _single(args: argparse.Namespace) -> list[str]:
    return [name for text in args.single for name in text.split(",") if name]


def run_plan(args: argparse.Namespace) -> int:
    """Plan a training graph from a file and print the plan, a sweep or a comparison.

    Parameters
    ----------
    args : argparse.Namespace

    Returns
    -------
    int
    """
    if args.sweep and args.compare:
        raise ParameterError("--sweep and --compare: got both, need one at a time")
    if args.trace and (args.sweep or args.compare):
        raise ParameterError("--trace: shows one plan, leave --sweep and --compare away")
    levels = parse_levels(args.levels, args.l1)
    graph = _read(args)
    if args.sweep:
        return _sweep(args, graph, levels)
    if args.compare:
        return _compare(args, graph, levels)
    tiled = import_module("rpukit.tiled")
    made = tiled.plan(graph, levels, buffering=args.buffering, single=_single(args))
    describe = import_module("rpukit.tiled.runtime.report").describe
    _tell(args, describe(made, None if args.wide else 80), made.to_json())
    _trace(args, made, graph)
    if args.figure:
        _draw(args.figure, lambda plot: plot.plot_plan(made, graph))
    return 0


def _sweep(args: argparse.Namespace, graph: Any, levels: Any) -> int:
    tiled = import_module("rpukit.tiled")
    names = {one.name.lower(): one.name for one in levels.levels}
    level = names.get(args.sweep.lower(), args.sweep)
    found = tiled.sweep_levels(graph, levels, level, single=_single(args))
    data = {"level": found.level, "bytes": found.sizes, "cycles": dict(found.cycles)}
    _tell(args, str(found), json.dumps(data))
    if args.figure:
        _draw(args.figure, lambda plot: plot.plot_sweep(found))
    return 0


def _compare(args: argparse.Namespace, graph: Any, levels: Any) -> int:
    tiled = import_module("rpukit.tiled")
    targets = {args.levels: levels} | {text: parse_levels(text) for text in args.compare}
    options = {"buffering": args.buffering, "single": _single(args)}
    found = tiled.compare_targets(graph, targets, **options)
    rows = {
        name: None if made is None else {"cycles": made.cycles, "peaks": dict(made.peaks)}
        for name, made in found.plans.items()
    }
    _tell(args, str(found), json.dumps({"targets": rows, "reasons": dict(found.reasons)}))
    if args.figure:
        _draw(args.figure, lambda plot: plot.plot_targets(found))
    return 0


def _tell(args: argparse.Namespace, text: str, data: str) -> None:
    """Print the text, or the JSON where that was asked for; write the JSON to a file if given."""
    if args.json == "-":
        print(data)
    else:
        print("\n".join(part for line in text.splitlines() for part in _fitted(args, line)))
    if args.json not in (None, "-"):
        write_text(Path(args.json), data)


def _fitted(args: argparse.Namespace, line: str) -> list[str]:
    return [line] if args.wide else wrapped(line, indent=4)


def _trace(args: argparse.Namespace, made: Any, graph: Any) -> None:
    if args.trace:
        tiled = import_module("rpukit.tiled")
        scale = 1e-3 if made.hierarchy[0].name == "host" else 1.0  # of `gpu` a cycle is 1 ns
        tiled.write_trace(made, graph, args.trace, microseconds=scale)


def _draw(path: str, draw: Any) -> None:
    """Write a figure, without a display."""
    plot = import_module("rpukit.plot")
    import_module("rpukit.plot.axes").pyplot().switch_backend("Agg")
    drawn = draw(plot)
    save_figure((drawn[0] if isinstance(drawn, tuple) else drawn).figure, path)


def _inputs(training: Any, arrays: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """Find initial parameters and mini-batches in arrays in the layout of Deeploy."""
    np = import_module("numpy")
    tensors, names = training.train.tensors, training.batch
    order = [arrays[name] for name in sorted(n for n in arrays if n.startswith("arr_"))]

    def fitting(name: str, value: Any) -> Any:
        tensor = tensors[name]
        return np.asarray(value, tensor.dtype).reshape(tensor.shape)

    start = zip(training.parameters, order[len(names) :], strict=False)
    initial = {name: fitting(name, value) for name, value in start}
    parts = [[order[k] for k in range(len(names))]]
    while f"mb{len(parts)}_arr_0000" in arrays:
        ahead = f"mb{len(parts)}_arr_000"
        parts.append([arrays[f"{ahead}{k}"] for k in range(len(names))])
    return initial, [tuple(map(fitting, names, part)) for part in parts]


def run_codegen(args: argparse.Namespace) -> int:
    """Plan training graphs from files and write them as C99.

    Parameters
    ----------
    args : argparse.Namespace

    Returns
    -------
    int
    """
    _given(args)
    for option, need in (
        ("optimiser", _OPTIMISER),
        ("parameters", "an npz file of mini-batches and parameters, see codegen --help"),
        ("out", "a folder to write to"),
    ):
        if getattr(args, option) is None:
            raise ParameterError(f"codegen: --{option} is missing, need {need}")
    existing(args.parameters, "an npz file of mini-batches and parameters, see codegen --help")
    levels, training = parse_levels(args.levels, args.l1), _read(args)
    arrays = import_module("rpukit._files.archive").read_arrays(args.parameters)
    with import_module("rpukit._files.schema").as_format_error(args.parameters):
        initial, batches = _inputs(training, arrays)
    tiled = import_module("rpukit.tiled")
    made = tiled.plan(training, levels, buffering=args.buffering, single=_single(args))
    values = {**training.initial, **initial}
    files = tiled.generate_c(made, replace(training, initial=values), args.out, batches)
    if args.json == "-":
        print(made.to_json())
    elif args.json:
        write_text(Path(args.json), made.to_json())
    _trace(args, made, training)
    if args.json != "-":
        print_text(f"{len(files)} files in {args.out}: `make run` there builds and trains")
    return 0
