"""Let each allocation of a call fail: the object is as before, complete, or says that it is not.

    python tools/fuzz_memory.py --device gpu
    python tools/fuzz_memory.py --objects tile circuit

Every object makes its call once for each allocation that the call makes, and that allocation
fails, as it does when a GPU has no memory left. On a GPU these are the allocations of CuPy; on a
CPU, where the CUDA sources run under g++, those of `fuzz_interrupts.Allocations`. What may become
of an object is what `fuzz_interrupts.run` says. Each object is tried new, and after a few calls,
when launches are replayed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import rpukit as rk  # noqa: E402
from rpukit import _device  # noqa: E402
from rpukit.errors import RpukitError  # noqa: E402
from tools.fuzz_interrupts import Allocations, quiet, run  # noqa: E402
from tools.interrupt_cases import Case  # noqa: E402

WARM = 3  # calls before the one that is cut short, in every second trial
PAIR = "devices=(rk.SoftBounds(), rk.SoftBounds())"
CELLS = {
    "tile": "rk.SoftBounds(dw_min=0.01)",
    "chopped": f"rk.ChoppedTransfer({PAIR})",
    "buffered": f"rk.BufferedTransfer({PAIR})",
    "mixed": "rk.MixedPrecision(device=rk.SoftBounds())",
}


class GpuAllocations(Allocations):
    """Counts the allocations of CuPy on the current GPU, and lets one of them fail."""

    def __enter__(self) -> GpuAllocations:
        self._cuda = _device.cupy().cuda
        self._before = self._cuda.get_allocator()
        self._cuda.set_allocator(self._allocate)
        return self

    def __exit__(self, *_: object) -> None:
        self._cuda.set_allocator(self._before)

    def _allocate(self, size: int) -> Any:
        self.n += 1
        if self.n == self.at + 1:
            self.place = f"allocation {self.at} of {size} bytes"
            raise self._cuda.memory.OutOfMemoryError(size, 0)
        return self._before(size)


class Chosen:
    """Stands for a random generator: the number that it draws is set before."""

    def __init__(self, number: int) -> None:
        self.number, self.n = number, 0

    def integers(self, stop: int) -> int:
        self.n = stop
        return self.number


# --- objects -------------------------------------------------------------------------------------


def _rows(device: str, *shapes: tuple[int, int]) -> list[Any]:
    rng = np.random.default_rng(4)
    made = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes)
    return [_device.to_device(a, _device.parse_device(device)) for a in made]


def tile(name: str, device: str) -> Any:
    x, d = _rows(device, (40, 7), (40, 5))

    def make() -> Any:
        return rk.AnalogTile((5, 7), eval(CELLS[name]), seed=3, device=device)

    return make, {
        "update": lambda t: t.update(x, d, 0.1),
        "forward": lambda t: t.forward(x),
        "post_step": lambda t: t.post_step(),
    }


def inference_tile(device: str) -> Any:
    x, d = _rows(device, (6, 7), (6, 5))

    def make() -> Any:
        return rk.InferenceTile((5, 7), seed=3, device=device)

    return make, {
        "update": lambda t: t.update(x, d, 0.1),
        "forward": lambda t: t.forward(x),
        "program": lambda t: t.program(),
    }


def circuit(device: str) -> Any:
    codes = np.random.default_rng(5).integers(0, 4, (70, 5))
    x = _device.to_device(codes, _device.parse_device(device))

    def make() -> Any:
        return rk.Circuit(rk.circuits.hmm(5, 3, 4), seed=1, device=device)

    return make, {
        "em_step": lambda t: t.em_step(x, step=0.5, pseudocount=0.1),
        "accumulate": lambda t: t.accumulate(x),
        "gradient_step": lambda t: t.gradient_step(x),
        "fit": lambda t: t.fit(x, n_epochs=1, batch_size=40),
        "log_likelihood": lambda t: t.log_likelihood(x),
    }


def product(device: str) -> Any:
    rows = [a.astype(np.float16) for a in _rows(device, (37, 3), (37, 4))]

    def make() -> Any:
        return rk.gemm.WeightGradient((3, 4), np.float16, device)

    return make, {"add": lambda t: t.add(*rows), "result": lambda t: t.result()}


def trainer(device: str) -> Any:
    b = rk.tiled.Builder("net")
    x, y = b.input("x", (4, 5)), b.input("y", (4, 2))
    w = np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)
    out = b.apply("Gemm", x, b.parameter("w", w))
    training = b.training(b.apply("MSELoss", out, y), rk.tiled.SGD(lr=0.1))
    levels = rk.tiled.gpu(40_000) if device == "gpu" else rk.tiled.siracusa_l2()
    plan = rk.tiled.plan(training, levels)
    batch = tuple(_rows("cpu", (4, 5), (4, 2)))

    def make() -> Any:
        return plan.trainer(training, device=device)

    return make, {"step": lambda t: t.step(batch)}


OBJECTS: dict[str, Callable[[str], Any]] = {
    **{name: lambda device, name=name: tile(name, device) for name in CELLS},
    "inference": inference_tile,
    "circuit": circuit,
    "product": product,
    "trainer": trainer,
}


# --- trials --------------------------------------------------------------------------------------


def trials(name: str, device: str, warm: int, most: int) -> tuple[Counter[str], list[str]]:
    """Let up to `most` allocations of each call of an object fail, one a trial: ends, faults."""
    make, calls = OBJECTS[name](device)
    watch = GpuAllocations if device == "gpu" else Allocations
    counts, faults = Counter[str](), list[str]()
    for call_name, call in calls.items():

        def made(call: Any = call) -> Any:
            thing = make()
            for _ in range(warm):
                call(thing)
            return thing

        chosen, text = Chosen(0), f"{name} {call_name} after {warm} calls"
        one = Case(text, made, call, call)
        while True:
            try:
                with quiet():
                    end = run(one, watch, chosen)
            except (AssertionError, RpukitError, MemoryError) as error:
                faults.append(str(error) if text in str(error) else f"{text}: {error!r}")
                end = "FAULT"
            counts[end] += 1
            chosen.number += max(1, chosen.n // most) if end != "nothing to cut" else 1
            if end == "nothing to cut" or chosen.number >= chosen.n:
                break
    return counts, faults


def det_gemm(device: str) -> int:
    """Let each allocation of a product fail; how many there are. The next product is right."""
    a, b = _rows(device, (33, 17), (17, 31))
    expected = _device.to_numpy(rk.gemm.det_gemm(a, b))
    watch = GpuAllocations if device == "gpu" else Allocations
    with watch() as count:
        rk.gemm.det_gemm(a, b)
    for at in range(count.n):
        try:
            with watch(at):
                rk.gemm.det_gemm(a, b)
        except MemoryError:
            pass
        np.testing.assert_array_equal(_device.to_numpy(rk.gemm.det_gemm(a, b)), expected)
    return count.n


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--objects", nargs="*", default=list(OBJECTS), choices=list(OBJECTS))
    parser.add_argument("--most", type=int, default=10_000, help="allocations of a call to fail")
    args = parser.parse_args()
    if args.device == "cpu":
        from tests.on_cpu import runner

        rk.testing.set_runner(runner.run)
    wrong, total, begin = 0, Counter[str](), time.perf_counter()
    with rk.testing.on_cpu() if args.device == "cpu" else nullcontext():
        for name in args.objects:
            for warm in (0, WARM):
                counts, faults = trials(name, args.device, warm, args.most)
                total += counts
                wrong += len(faults)
                print(f"{name:10} after {warm} calls  {dict(counts)}", *faults[:3], flush=True)
        print(f"det_gemm: {det_gemm(args.device)} allocations")
    print(f"{total.total()} trials, {dict(total)}, {time.perf_counter() - begin:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
