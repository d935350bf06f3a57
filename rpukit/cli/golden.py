"""``golden``: show that this machine gives the recorded bits."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.cli.arguments import chosen_device, named
from rpukit.cli.output import print_json, print_table, print_text
from rpukit.elementwise import random_fill, softmax_cross_entropy, tanh
from rpukit.errors import ParameterError
from rpukit.random import Stream

__all__ = ["RECORDED", "add_arguments", "run", "smoke_cases"]

Array = Any

# sha256 of types, shapes and bits, of the mirrors; tests/golden has those of a GPU by kernel.
RECORDED = {
    "random numbers": "7899259ed25991108f483b7ecc82574b1b8a5083d3717f4f5b5479a5687db99d",
    "tanh, softmax": "018097cfb2d0a565d1b73939a5979270a5f41938403d2de1a03b30f776651ff8",
    "det_gemm float32": "458588f1c99a66aaa6a092057ae9775fca1a5b11759bcb95a6a3876c0b23d660",
    "det_gemm float64": "d5903cc75047b40e385108234e546db3bf2da7ff44d55354aaf2fcdffefde12f",
    "tile, soft bounds": "22e87b89b351d0613511757be4e2c56b68c1b6f49f0388ff5c967337e7d9d9c0",
    "tile, transfer": "b146ca72505102332fd9f09bbc5ebe533268b436fb9aa0ba1600e8b758ea5493",
    "circuit": "dcd927d1ede0b5d5c2d819df57ffdcc9e117d4a610d19d8140fb727e9a5017c1",
    "inference tile": "d154766ad21fd0bc7fcaa123d6c1da21b7688eddee38881d3330a4ff2e2e7fd4",
}

_EPILOG = """Without names, a few calls of each part of the library are computed and compared
with recorded hashes; the first run on a machine compiles for a minute or so.
Names of kernels, or --all, need the source tree: they compute the cases of
tests/golden.

example:
  python -m rpukit golden --device gpu"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``golden``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.epilog = _EPILOG
    text = "kernels whose cases are computed (of tests/golden in the source tree)"
    parser.add_argument("kernel", nargs="*", help=text)
    parser.add_argument("--all", action="store_true", help="the cases of all kernels")
    text = '"cpu", "gpu", "gpu:1", or "auto": a GPU if there is one'
    parser.add_argument("--device", default="auto", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Compute cases and compare their hashes with the recorded ones.

    Parameters
    ----------
    args : argparse.Namespace

    Returns
    -------
    int
        1 if a hash differs.
    """
    device = chosen_device(args.device)
    found = _recorded_cases(args, device) if args.kernel or args.all else _smoke(device)
    rows, wrong, begin = [], [], time.perf_counter()
    for name, n, differing in found:
        rows.append((name, str(n), "differs" if differing else "same bits"))
        wrong += [f"{name}: {case}" for case in differing]
    seconds = time.perf_counter() - begin
    n_case = sum(int(row[1]) for row in rows)
    if args.json:
        print_json({"device": device, "cases": n_case, "differing": wrong, "seconds": seconds})
        return 1 if wrong else 0
    print_table([("what", "cases", "result"), *rows], right=(1,))
    for line in wrong:
        print(f"DIFFERS: {line}")
    print_text(
        f"\n{n_case - len(wrong)} of {n_case} cases have the recorded bits, on {device}, "
        f"in {seconds:.1f} s"
    )
    return 1 if wrong else 0


def _smoke(device: str) -> Iterator[tuple[str, int, list[str]]]:
    """Yield the result of each case that comes with the package."""
    for name, case in smoke_cases().items():
        yield name, 1, [] if _digest(case(device)) == RECORDED[name] else ["sha256"]


def _recorded_cases(args: argparse.Namespace, device: str) -> Iterator[tuple[str, int, list[str]]]:
    """Yield the result of each kernel, over all its cases in the source tree."""
    root = Path(__file__).resolve().parents[2]
    hashes = root / "tests" / "golden" / "hashes"
    if not hashes.is_dir():
        raise ParameterError(
            "the cases of kernels are in the source tree, not in an installed package: run "
            "`python -m rpukit golden` without names, or clone the repository"
        )
    sys.path.insert(0, str(root))
    try:
        golden = import_module("tests.golden.cases")
    finally:
        sys.path.remove(str(root))
    for kernel in [named(name, "kernel", golden.CASES) for name in args.kernel] or golden.CASES:
        known = json.loads((hashes / f"{kernel}.json").read_text(encoding="utf-8"))["cases"]
        cases = golden.CASES[kernel]
        differing = [c.name for c in cases if golden.digest(c.run(device)) != known.get(c.name)]
        yield kernel, len(cases), differing


def smoke_cases() -> dict[str, Callable[[str], list[Array]]]:
    """Return the cases that come with the package: functions of a device, by name.

    Returns
    -------
    dict of str to callable
    """
    return {
        "random numbers": lambda device: [
            random_fill(Stream.from_seed(7), (1001,), kind, device=device)
            for kind in ("bits", "uniform", "normal")
        ],
        "tanh, softmax": _functions,
        "det_gemm float32": lambda device: _product(device, np.float32),
        "det_gemm float64": lambda device: _product(device, np.float64),
        "tile, soft bounds": lambda device: _tile(device, "SoftBounds"),
        "tile, transfer": lambda device: _tile(device, "BufferedTransfer"),
        "circuit": _circuit,
        "inference tile": _inference,
    }


def _digest(arrays: list[Array]) -> str:
    found = hashlib.sha256()
    for array in (np.ascontiguousarray(_device.to_numpy(one)) for one in arrays):
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _uniform(shape: tuple[int, ...], seed: int, device: str, dtype: Any = np.float32) -> Array:
    """Draw numbers in [-1, 1), the same on every machine."""
    drawn = random_fill(Stream.from_seed(seed), shape, "uniform") * 2 - 1
    return _device.to_device(drawn.astype(dtype), _device.parse_device(device))


def _functions(device: str) -> list[Array]:
    x = _uniform((33, 10), 1, device) * 5
    labels = _device.to_device(np.arange(33, dtype=np.int32) % 10, _device.parse_device(device))
    return [tanh(x), *softmax_cross_entropy(x, labels)]


def _product(device: str, dtype: Any) -> list[Array]:
    det_gemm = import_module("rpukit.gemm").det_gemm
    return [det_gemm(_uniform((37, 129), 2, device, dtype), _uniform((129, 65), 3, device, dtype))]


def _tile(device: str, kind: str) -> list[Array]:
    """Run a tile forwards, backwards and through updates: noise, converters and pulses."""
    analog = import_module("rpukit.analog")
    cell = analog.SoftBounds(dw_min=0.01) if kind == "SoftBounds" else analog.BufferedTransfer()
    tile = analog.AnalogTile((31, 45), cell, seed=5, device=device)
    tile.set_weights(_uniform((31, 45), 6, device) / 4)
    y = tile.forward(_uniform((17, 45), 7, device))
    x = tile.backward(_uniform((17, 31), 8, device))
    for step in range(3):
        tile.update(
            _uniform((17, 45), 10 + step, device), _uniform((17, 31), 20 + step, device), 0.1
        )
        tile.post_step()
    return [y, x, tile.get_weights()]


def _circuit(device: str) -> list[Array]:
    circuits = import_module("rpukit.circuits")
    bits = random_fill(Stream.from_seed(9), (64, 6), "bits") % 5
    data = _device.to_device(bits.astype(np.int64), _device.parse_device(device))
    circuit = circuits.Circuit(circuits.hmm(6, 4, 5), seed=3, device=device)
    circuit.em_step(data)
    return [circuit.log_likelihood(data)]


def _inference(device: str) -> list[Array]:
    inference = import_module("rpukit.inference")
    tile = inference.InferenceTile((20, 30), seed=4, device=device)
    tile.set_weights(_uniform((20, 30), 5, device) / 2)
    tile.program().drift_to(3600.0)
    return [tile.forward(_uniform((9, 30), 6, device))]
