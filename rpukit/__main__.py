"""``python -m rpukit info | kernels | check | demo | plan | codegen``."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from rpukit import _device
from rpukit._kernels import compile as nvrtc
from rpukit._kernels import launch, source
from rpukit._version import __version__
from rpukit.errors import DeviceError, KernelCompileError, ParameterError, RpukitError


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _info(args: argparse.Namespace) -> int:
    """Print versions, devices, the compiler, the cache, and missing packages."""
    rows = [("rpukit", __version__), ("Python", platform.python_version())]
    rows += [
        (name, _version(name) or "missing: pip install rpukit")
        for name in ("numpy", "scipy", "numba")
    ]
    cupy = next(
        (f"{p} {_version(p)}" for p in ("cupy-cuda12x", "cupy-cuda13x") if _version(p)), ""
    )
    rows.append(("CuPy", cupy or 'not installed: pip install "rpukit[cuda12x]" for GPUs'))
    rows.append(("GPUs", _gpus()))
    rows.append(("NVRTC", _said(nvrtc.compiler_version)))
    rows.append(("kernels", f"{len(source.names())} in {source.folder()}"))
    rows.append(("cache", launch.describe_cache()))
    rows.append(
        ("g++", shutil.which("g++") or "not found: only the tests need it (apt-get install g++)")
    )
    for extra, package in (("plot", "matplotlib"), ("demo", "scikit-learn")):
        found = _version(package)
        rows.append((package, found or f'not installed: pip install "rpukit[{extra}]"'))
    _table(rows)
    return 0


def _gpus() -> str:
    try:
        n_gpu = _device.gpu_count(required=True)
    except DeviceError as error:
        return f"none ({_first_line(error)})"
    runtime = _device.cupy().cuda.runtime
    return ", ".join(runtime.getDeviceProperties(i)["name"].decode() for i in range(n_gpu))


def _said(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except DeviceError as error:
        return f"missing ({_first_line(error)})"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _kernels(args: argparse.Namespace) -> int:
    """List every kernel with its file, class of bit contract, op and mirror."""
    rows = [("kernel", "bits", "op", "mirror")]
    for name in source.names():
        header = source.load(name).header
        bits, op, mirror = (" ".join(header.get(key, ("?",))) for key in ("bits", "op", "mirror"))
        rows.append((f"{name}.cu", bits, op, mirror))
    _table(rows)
    return 0


def _check(args: argparse.Namespace) -> int:
    """Compile kernels for the architectures of their headers; no GPU is needed."""
    rows: list[tuple[str, ...]] = [
        ("kernel", "arch", "registers", "spilled bytes", "shared bytes", "macros")
    ]
    spilled = 0
    for name in args.name or source.names():
        text = source.load(name)
        known = " ".join(text.header.get("arch", ())).split()
        for macros in text.checks():
            if args.plain and macros:
                continue
            for arch in [arch for arch in known if not args.arch or arch in args.arch]:
                usage = nvrtc.usage(text, arch, text.settings(macros))[name]
                spilled += usage.spill_bytes > 0
                counts = (usage.registers, usage.spill_bytes, usage.shared_bytes)
                words = " ".join(f"{macro}={value}" for macro, value in macros.items())
                rows.append((name, arch, *map(str, counts), words or "-"))
    if len(rows) == 1:
        raise ParameterError(f"--arch {' '.join(args.arch)}: no selected kernel is built for it")
    _table(rows)
    version = nvrtc.compiler_version()
    print(f"\n{len(rows) - 1} binaries compiled with NVRTC {version}, {spilled} spill registers")
    return 1 if spilled else 0


def _table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [f"{text:{width}}" for text, width in zip(row, [*widths, 0], strict=True)]
        print("  ".join(cells).rstrip())


def _demo(args: argparse.Namespace) -> int:
    return int(import_module("rpukit.demo").main(args))


def _plan(args: argparse.Namespace) -> int:
    """Plan a training graph from a file and print the plan."""
    tiled = import_module("rpukit.tiled")
    if args.optimiser:
        graph = tiled.training_from_onnx(args.graph, args.optimiser)
    else:
        graph = tiled.from_onnx(args.graph)
    sizes = {"l1": args.l1} if args.l1 else {}
    levels = getattr(tiled, args.levels)(**sizes)
    made = tiled.plan(graph, levels, buffering=args.buffering, single=args.single)
    print(made)
    if args.json:
        import_module("rpukit._files.writing").write_text(args.json, made.to_json())
    return 0


def _plan_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("graph", help="ONNX file of a training graph")
    command.add_argument("--optimiser", help="ONNX file of the graph of its optimiser")
    command.add_argument("--levels", default="siracusa_l2", choices=("siracusa_l2", "siracusa_l3"))
    command.add_argument("--l1", type=int, help="bytes of the innermost level")
    strategies = ("auto", "deeploy_buffers", "deeploy", "double", "double_outer", "single")
    command.add_argument("--buffering", default="auto", choices=strategies)
    command.add_argument("--single", nargs="*", default=(), help="ops or nodes with one buffer")
    command.add_argument("--json", help="file to which the plan is written")


def _inputs(training: Any, path: str) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """Read initial parameters and mini-batches from a ``.npz`` file in the layout of Deeploy."""
    np = import_module("numpy")
    arrays = import_module("rpukit._files.archive").read_arrays(path)
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


def _codegen(args: argparse.Namespace) -> int:
    """Plan training graphs from files and write them as C99."""
    tiled = import_module("rpukit.tiled")
    training = tiled.training_from_onnx(args.graph, args.optimiser)
    with import_module("rpukit._files.schema").as_format_error(args.parameters):
        initial, batches = _inputs(training, args.parameters)
    sizes = {"l1": args.l1} if args.l1 else {}
    levels = getattr(tiled, args.levels)(**sizes)
    plan = tiled.plan(training, levels, buffering=args.buffering, single=args.single)
    values = {**training.initial, **initial}
    files = tiled.generate_c(plan, replace(training, initial=values), args.out, batches)
    print(f"{len(files)} files in {args.out}: `make run` there builds and trains")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rpukit", description="Analog tiles on CPU and GPU."
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, run, text in (
        ("info", _info, "versions, devices, compiler, cache and missing packages"),
        (
            "kernels",
            _kernels,
            "every kernel with its file, op, mirror and class of bit contract",
        ),
        ("check", _check, "compile kernels for their architectures, without a GPU"),
        ("demo", _demo, "train a network of analog tiles on handwritten digits"),
        ("plan", _plan, "plan a training graph over levels of memory"),
        ("codegen", _codegen, "write a planned training graph and its optimiser as C99"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        if run is _check:
            command.add_argument("name", nargs="*", help="kernels; default: all")
            text = "architectures, such as sm_90a; default: those of each kernel's header"
            command.add_argument("--arch", action="append", metavar="ARCH", help=text)
            text = "compile only with default macros, not the other sets of each kernel's header"
            command.add_argument("--plain", action="store_true", help=text)
        if run is _demo:
            import_module("rpukit.demo").add_arguments(command)
        if run in (_plan, _codegen):
            _plan_arguments(command)
        if run is _codegen:
            text = "npz: arr_0000 data, arr_0001 target, then parameters; mb1_arr_0000 and so on"
            command.add_argument("--parameters", required=True, help=text)
            command.add_argument("--out", required=True, help="folder to write to")
    args = parser.parse_args(argv)
    try:
        status = int(args.run(args))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader closed the pipe: `python -m rpukit kernels | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KernelCompileError, OSError) as error:  # OSError: a file is missing or not writable
        print(f"error: {error}", file=sys.stderr)
    except RpukitError as error:
        print(f"error: {_first_line(error)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
