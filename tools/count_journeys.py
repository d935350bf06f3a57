"""Count the files of rpukit that one call enters: ``python tools/count_journeys.py [--names]``.

A call that goes through few files can be read. Each call is made several times; counted are the
files whose functions the last one enters, in any thread (for the rows that say so, the first one).
Kernels are run by the tests' runner on the CPU, by a GPU with ``--gpu``, where launches come again
from their records. The output is a table in Markdown; ``--names`` lists the files as well.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import testing, tiled
from tests.on_cpu import runner

PACKAGE = str(Path(rk.__file__).parent)
SHAPE = (31, 33)


@contextmanager
def recording(files: set[str]) -> Iterator[None]:
    """Collect the files of all functions that are entered, in this thread and in new ones."""

    def enter(frame: Any, event: str, _argument: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    threading.setprofile_all_threads(enter) if sys.version_info >= (3, 12) else None
    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        threading.setprofile_all_threads(None) if sys.version_info >= (3, 12) else None


def entered(call: Callable[[], Any], n_before: int = 3) -> list[str]:
    """List the files of rpukit that a call enters after some that are not counted.

    What the runner of the tests asks of `rpukit.testing` is no part of a call.
    """
    for _ in range(n_before):
        call()
    files: set[str] = set()
    with recording(files):
        call()
    ours = {Path(f).relative_to(PACKAGE).as_posix() for f in files if f.startswith(PACKAGE)}
    return sorted(ours - {"testing.py"})


Make = Callable[[str], Callable[[], Any]]
RNG = np.random.default_rng(0)
SOFT = rk.SoftBounds()
TTV3 = rk.ChoppedTransfer(devices=(SOFT, SOFT))


def put(device: str, *arrays: np.ndarray) -> list[Any]:
    """Place arrays on the device of a call."""
    if device == "cpu":
        return list(arrays)
    import cupy

    return [cupy.asarray(array) for array in arrays]


def batch(device: str, n: int) -> list[Any]:
    return put(device, *(RNG.uniform(-1, 1, (n, k)).astype("f4") for k in (SHAPE[1], SHAPE[0])))


def update(n: int, cell: rk.Cell = SOFT) -> Make:
    def make(device: str) -> Callable[[], Any]:
        tile = rk.AnalogTile(SHAPE, cell, device=device, seed=1)
        x, d = batch(device, n)
        return lambda: tile.update(x, d, lr=0.1)

    return make


def forward(device: str) -> Callable[[], Any]:
    tile = rk.AnalogTile(SHAPE, SOFT, device=device, seed=1)
    x, _ = batch(device, 3)
    return lambda: tile.forward(x)


def em_step(device: str) -> Callable[[], Any]:
    pc = rk.Circuit(rk.circuits.hmm(5, 8, 7), device=device, seed=1)
    (x,) = put(device, RNG.integers(0, 7, (9, 5)))

    def step() -> None:
        pc.accumulate(x)
        pc.em_step()

    return step


def product(dtype: str) -> Make:
    def make(device: str) -> Callable[[], Any]:
        a, b = put(device, *(RNG.uniform(-1, 1, (32, 32)).astype(dtype) for _ in range(2)))
        return lambda: rk.det_gemm(a, b)

    return make


def network() -> tuple[tiled.Training, np.ndarray, np.ndarray]:
    """A dense network of two layers, and a batch."""
    b = tiled.Builder("net")
    x, y = b.input("x", (8, 12)), b.input("y", (8,), np.int64)
    h = b.apply("Relu", b.apply("Gemm", x, b.parameter("w", RNG.uniform(-1, 1, (12, 16)))))
    z = b.apply("Gemm", h, b.parameter("v", RNG.uniform(-1, 1, (16, 10))))
    loss = b.apply("SoftmaxCrossEntropyLoss", z, y)
    return b.training(loss, tiled.SGD(lr=0.1)), RNG.uniform(-1, 1, (8, 12)), np.arange(8)


def planned(_device: str) -> Callable[[], Any]:
    training, *_ = network()
    return lambda: tiled.plan(training, tiled.siracusa_l2(l1=4_000))


def trainer_made(_device: str) -> Callable[[], Any]:
    training, *_ = network()
    plan = tiled.plan(training, tiled.siracusa_l2(l1=4_000))
    return lambda: plan.trainer(training)


def trainer_step(_device: str) -> Callable[[], Any]:
    training, x, y = network()
    trainer = tiled.plan(training, tiled.siracusa_l2(l1=4_000)).trainer(training)
    return lambda: trainer.step((x.astype("f4"), y))


CPU, KERNELS = "cpu", "kernels"
# Row, what is made, by mirrors or by kernels, calls before the one that is counted.
CALLS: list[tuple[str, Make, str, int]] = [
    ("`tile.update`, 3 samples, CPU", update(3), CPU, 3),
    ("`tile.update`, 3 samples, kernels", update(3), KERNELS, 3),
    ("`tile.update`, 128 samples, kernels", update(128), KERNELS, 3),
    ("`tile.update` of `ChoppedTransfer`, CPU", update(3, TTV3), CPU, 3),
    ("`tile.forward`, CPU", forward, CPU, 3),
    ("`tile.forward`, kernels", forward, KERNELS, 3),
    ("step of EM, CPU", em_step, CPU, 3),
    ("step of EM, kernels, the first one", em_step, KERNELS, 0),
    ("step of EM, kernels", em_step, KERNELS, 3),
    ("`det_gemm`, float32, CPU", product("float32"), CPU, 3),
    ("`det_gemm`, float32, kernels", product("float32"), KERNELS, 3),
    ("`det_gemm`, float16, kernels", product("float16"), KERNELS, 3),
    ("`tiled.plan`", planned, CPU, 1),
    ("`plan.trainer`", trainer_made, CPU, 1),
    ("`trainer.step`", trainer_step, CPU, 3),
]


def count(make: Make, way: str, n_before: int, *, gpu: bool) -> list[str]:
    """List the files that a call enters, by mirrors or by kernels."""
    kernels = way == KERNELS
    with testing.on_cpu() if kernels and not gpu else nullcontext():
        return entered(make("gpu" if kernels and gpu else "cpu"), n_before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="run kernels on a GPU")
    parser.add_argument("--names", action="store_true", help="list the files of each call")
    args = parser.parse_args()
    testing.set_runner(runner.run)
    rows = [(row, count(make, way, n, gpu=args.gpu)) for row, make, way, n in CALLS]
    print("| call | files |", "|---|---|", sep="\n")
    for row, files in rows:
        print(f"| {row} | {len(files)} |")
    for row, files in rows if args.names else ():
        print(f"\n{row}: {', '.join(files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
