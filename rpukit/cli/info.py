"""``info``: versions, devices, compiler, cache and missing packages."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import shutil
from collections.abc import Callable

from rpukit import _device
from rpukit._kernels import compile as nvrtc
from rpukit._kernels import launch, source
from rpukit._version import __version__
from rpukit.cli.output import print_json, print_table
from rpukit.errors import DeviceError

__all__ = ["add_arguments", "run"]


def version(package: str) -> str:
    """Version of an installed package, "" if it is missing.

    Parameters
    ----------
    package : str

    Returns
    -------
    str
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``info``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Print versions, devices, the compiler, the cache, and missing packages.

    Parameters
    ----------
    args : argparse.Namespace

    Returns
    -------
    int
    """
    rows = [("rpukit", __version__), ("Python", platform.python_version())]
    rows += [
        (name, version(name) or "missing: pip install rpukit")
        for name in ("numpy", "scipy", "numba")
    ]
    cupy = next((f"{p} {version(p)}" for p in ("cupy-cuda12x", "cupy-cuda13x") if version(p)), "")
    rows.append(("CuPy", cupy or 'not installed: pip install "rpukit[cuda12x]" for GPUs'))
    rows.append(("GPUs", _gpus()))
    rows.append(("NVRTC", _said(nvrtc.compiler_version)))
    rows.append(("kernels", f"{len(source.names())} in {source.folder()}"))
    rows.append(("cache", launch.describe_cache()))
    compiler = shutil.which("g++")
    rows.append(("g++", compiler or "not found: only the tests need it (apt-get install g++)"))
    for extra, package in (
        ("plot", "matplotlib"),
        ("demo", "scikit-learn"),
        ("onnx", "onnx"),
        ("torch", "torch"),
    ):
        found = version(package)
        rows.append((package, found or f'not installed: pip install "rpukit[{extra}]"'))
    if args.json:
        print_json(dict(rows))
    else:
        print_table(rows)
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
