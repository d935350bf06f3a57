"""Measure training out of core on a GPU: plans of dense networks over host and device memory.

    python tools/measure_tiled.py [--width 4096] [--depth 8] [--batches 128 2048 8192]

The device budget is a quarter of what lasts (weights and accumulated gradients). For each program
of each plan the whole is timed, and its tiles and its copies alone; "hidden" is the part of the
time that could be hidden and was. Losses and weights are compared, bit for bit, with a plan whose
budget holds everything.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rpukit import _device, tiled
from rpukit.testing import assert_same_bits


def network(width: int, depth: int, n: int) -> tiled.Training:
    """Make a chain of dense layers with Relu and a mean squared error."""
    rng = np.random.default_rng(1)
    b = tiled.Builder("dense")
    h, y = b.input("x", (n, width)), b.input("y", (n, width))
    for k in range(depth):
        w = rng.standard_normal((width, width), np.float32) * np.float32((2 / width) ** 0.5)
        h = b.apply("Gemm", h, b.parameter(f"w{k}", w), transB=1)
        h = b.apply("Relu", h) if k < depth - 1 else h
    return b.training(b.apply("MSELoss", h, y), tiled.SGD(lr=0.01))


def state(training: tiled.Training) -> int:
    """Bytes of what lasts: parameters, accumulators, state."""
    tensors = training.train.tensors
    lasting = (*training.parameters, *training.accumulators, *training.state)
    return sum(4 * int(np.prod(tensors[k].shape)) for k in lasting if k in tensors)


def trained(training: tiled.Training, budget: int, buffering: str, batches: list) -> tuple:
    """Train for a few steps; give the trainer, its losses, and what the plan took."""
    begin = time.perf_counter()
    plan = tiled.plan(training, tiled.gpu(budget), buffering=buffering)
    planned = time.perf_counter() - begin
    trainer = plan.trainer(training, device="gpu")
    return trainer, trainer.fit(batches), planned


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--batches", type=int, nargs="*", default=[128, 2048, 8192])
    parser.add_argument("--buffering", nargs="*", default=["single", "double", "auto"])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    cupy, rng = _device.cupy(), np.random.default_rng(2)
    print(
        "batch buffering program    whole  tiles     in    out  whole/max  hidden model  (in ms)"
    )
    for n in args.batches:
        training = network(args.width, args.depth, n)
        shape = (n, args.width)
        batches = [
            tuple(rng.standard_normal(shape, np.float32) for _ in range(2)) for _ in range(3)
        ]
        budget = state(training) // 4
        resident, losses, _ = trained(training, 1 << 36, "single", batches)
        weights = resident.parameters()
        del resident
        cupy.get_default_memory_pool().free_all_blocks()
        for buffering in args.buffering:
            trainer, got, planned = trained(training, budget, buffering, batches)
            assert_same_bits(got, losses)
            for key, value in trainer.parameters().items():
                assert_same_bits(value, weights[key])
            for k, program in enumerate(trainer.plan.programs):
                o = trainer._executor.measure(k, args.repeats)
                times = [1e3 * v for v in (o.total, o.compute, o.inward, o.outward)]
                print(
                    f"{n:5} {buffering:9} {program.name[:9]:9}"
                    + "".join(f"{v:7.1f}" for v in times)
                    + f"{times[0] / max(times[1:]):9.3f} {o.fraction:7.2f}"
                    + f" {program.cycles * 1e-6:7.1f}"
                    + f"   planned in {planned:.1f} s, budget {budget >> 20} MiB",
                    flush=True,
                )
            del trainer
            cupy.get_default_memory_pool().free_all_blocks()
        print(f"{n:5} all bits equal", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
