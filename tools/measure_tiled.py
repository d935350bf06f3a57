"""Measure training out of core on a GPU: plans of deep networks over host and device memory.

    python tools/measure_tiled.py [--net dense|analog] [--width 4096] [--depth 8]
        [--batches 128 2048 8192] [--buffering auto] [--fused] [--plans FOLDER] [--ops]
        [--waits] [--rates preset measured] [--no-whole]

The device budget is a quarter of what lasts (weights, cells, accumulated gradients). For each
program of each plan the whole is timed, as a graph and launch by launch, and its tiles and its
copies alone, one way and both ways at once; the whole is held against the tiles or the copies both
ways, and "hidden" is the part of the time that could be hidden and was. Losses and weights are
compared, bit for bit, with a plan whose budget holds everything, and the memory that a step takes
is watched. ``--plans`` keeps plans as files and takes those that are there; with ``--no-gpu`` that
is all. ``--ops`` times the tiles of each op, ``--waits`` how long they wait for copies. ``--rates
measured`` plans by the rates of `rk.tiled.calibrate`. With ``--no-whole`` plans are compared with
one another alone.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device, tiled
from rpukit.testing import assert_same_bits

WHOLE = 1 << 36


def dense(width: int, depth: int, n: int, fused: bool) -> tiled.Training:
    """Make a chain of dense layers with Relu and a mean squared error."""
    rng = np.random.default_rng(1)
    b = tiled.Builder("dense")
    h, y = b.input("x", (n, width)), b.input("y", (n, width))
    for k in range(depth):
        w = rng.standard_normal((width, width), np.float32) * np.float32((2 / width) ** 0.5)
        h = b.apply("Gemm", h, b.parameter(f"w{k}", w), transB=1)
        h = b.apply("Relu", h) if k < depth - 1 else h
    training = b.training(b.apply("MSELoss", h, y), tiled.SGD(lr=0.01))
    return tiled.fuse_updates(tiled.fuse_activations(training)) if fused else training


def analog(width: int, depth: int, n: int, fused: bool) -> tiled.Training:
    """Make a chain of analog tiles with Relu; they learn by pulses as soon as they can."""
    b = tiled.Builder("analog")
    h, y = b.input("x", (n, width)), b.input("y", (n, width))
    io = rk.IOParameters(out_noise=0.02, out_bound=12.0)
    for k in range(depth):
        cell = rk.ConstantStep(dw_min=0.001, w_max=0.6, w_min=-0.6)
        tile = rk.AnalogTile((width, width), cell, forward=io, backward=io, seed=k)
        rng = np.random.default_rng(k)
        weights = rng.standard_normal((width, width), np.float32)
        tile.set_weights(weights * np.float32((2 / width) ** 0.5))
        h = b.analog(h, tile, lr=0.01, name=f"tile{k}")
        h = b.apply("Relu", h) if k < depth - 1 else h
    return b.training(b.apply("MSELoss", h, y))


def state(training: tiled.Training) -> int:
    """Bytes of persistent data: parameters, accumulators, state, cells of analog tiles."""
    tensors = training.train.tensors
    names = {*training.parameters, *training.accumulators, *training.state, *training.kept}
    size = sum(tensors[k].nbytes for k in names if k in tensors)
    return size + sum(value.nbytes for value in training.train.constants.values())


def planned(
    training: tiled.Training, levels: tiled.Hierarchy, buffering: str, file: Path | None
) -> tiled.Plan:
    """Compute a plan, or read an existing one."""
    if file and file.exists():
        return tiled.Plan.from_json(file.read_text())
    begin = time.perf_counter()
    plan = tiled.plan(training, levels, buffering=buffering)
    print(f"{file or buffering}: planned in {time.perf_counter() - begin:.1f} s", flush=True)
    if file:
        file.parent.mkdir(exist_ok=True)
        file.write_text(plan.to_json())
    return plan


def op_times(executor: tiled.GpuExecutor, k: int) -> Iterator[tuple[str, int, float]]:
    """Time the tiles of each op, without copies: op, tiles, milliseconds."""
    for node, group in groupby(executor.tile_times(k), key=lambda tile: tile[0].node):
        times = [1e3 * seconds for _, seconds in group]
        yield node, len(times), sum(times)


def print_ops(executor: tiled.GpuExecutor, k: int) -> None:
    """Print times of tiles by kind of op and tile, with those of the model."""
    about = {op.node: op for op in executor.plan.programs[k].ops}
    sums = defaultdict(lambda: [0, 0, 0.0])
    for node, n, time_ms in op_times(executor, k):
        row = sums[about[node].op, about[node].extents[-1]]
        for place, value in enumerate((1, n, time_ms)):
            row[place] += value
    for (op, extents), (ops, n, time_ms) in sorted(sums.items(), key=lambda one: -one[1][2]):
        tile = "x".join(map(str, extents))
        print(f"    {op:14}{tile:18}{ops:3} ops {n:5} tiles {time_ms:8.2f} ms"
              f" {1e3 * time_ms / n:8.1f} us a tile")  # fmt: skip


def print_waits(executor: tiled.GpuExecutor, k: int, most: int = 16) -> None:
    """Print how long tiles waited for copies, by direction and tensor; digits are left out."""
    sums = defaultdict(lambda: [0, 0, 0.0])
    for copy, seconds in executor.waits(k):
        row = sums[copy.engine, re.sub(r"\d+", "", copy.tensor)]
        for place, value in enumerate((1, math.prod(copy.shape), 1e3 * seconds)):
            row[place] += value
    total = sum(row[2] for row in sums.values())
    print(f"    waits: {total:.2f} ms")
    for (engine, name), (n, size, time_ms) in sorted(sums.items(), key=lambda one: -one[1][2])[
        :most
    ]:
        print(f"    {engine:4}{name:34}{n:6} waits {size / n / 1e6:8.3f} MB {time_ms:8.2f} ms")


class Watch:
    """Peak GPU memory that was requested, and the number of requests."""

    def __init__(self) -> None:
        cp = _device.cupy()
        self.used, self.most, self.calls = 0, 0, 0
        watch = self

        class Hook(cp.cuda.MemoryHook):
            name = "watch"

            def malloc_postprocess(self, **given):
                watch.used += given["mem_size"]
                watch.most, watch.calls = max(watch.most, watch.used), watch.calls + 1

            def free_postprocess(self, **given):
                watch.used -= given["mem_size"]

        self.hook = Hook()


def measured(plan: tiled.Plan, training: tiled.Training, batches: list, args) -> tuple:
    """Train by a plan and time its programs; return losses and persistent data."""
    watch = Watch()
    with watch.hook:
        trainer = plan.trainer(training, device="gpu")
        losses = [trainer.step(batch) for batch in batches[:2]]
        before = watch.calls
        losses += [trainer.step(batch) for batch in batches[2:]]
    end = trainer.parameters(everything=True)
    budget = plan.hierarchy[1].bytes
    if budget < WHOLE // 2:
        print(f"      most {watch.most >> 10} KiB of the GPU, arena {budget >> 10}; a step later "
              f"on asks {watch.calls - before} times", flush=True)  # fmt: skip
    executor = trainer._executor
    for k, program in enumerate(plan.programs):
        if not program.instructions or budget > WHOLE // 2:
            continue
        totals, own = [], executor._capture[k]
        for captured in (not own, own):
            executor._capture[k] = captured
            o = executor.measure(k, args.repeats)
            totals.insert(captured, o.total)
        eager, graph = totals
        parts = (o.compute, o.inward, o.outward, o.copies)
        times = [1e3 * v for v in (o.total, eager, graph, *parts)]
        print(
            f"{plan.buffering:9} {program.name[:9]:9}"
            + "".join(f"{v:8.2f}" for v in times)
            + f"{o.total / max(o.compute, o.copies):8.3f} {o.fraction:7.2f}"
            + f" {program.cycles * 1e-6:8.2f}",
            flush=True,
        )
        if args.ops:
            print_ops(executor, k)
        if args.waits:
            print_waits(executor, k)
    return losses, end


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", default="dense", choices=("dense", "analog"))
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--batches", type=int, nargs="*", default=[128, 2048, 8192])
    parser.add_argument("--buffering", nargs="*", default=["single", "double", "auto"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--share", type=int, default=4, help="state over budget")
    parser.add_argument("--fused", action="store_true", help="updates and Relu in products")
    parser.add_argument("--rates", nargs="*", default=["preset"], choices=("preset", "measured"))
    parser.add_argument("--no-whole", action="store_true")
    parser.add_argument("--plans", type=Path)
    parser.add_argument("--no-gpu", action="store_true")
    parser.add_argument("--ops", action="store_true")
    parser.add_argument("--waits", action="store_true")
    args = parser.parse_args()
    rng = np.random.default_rng(2)
    print("program            whole   eager   graph   tiles      in     out    both  whole/max "
          "hidden  model (ms)")  # fmt: skip
    for n in args.batches:
        training = globals()[args.net](args.width, args.depth, n, args.fused)
        budget = state(training) // args.share
        name = f"{args.net}{'_fused' * args.fused}_{args.width}x{args.depth}_{n}"
        print(f"{name}: state {state(training) >> 20} MiB, budget {budget >> 20} MiB", flush=True)
        shape, want = (n, args.width), None
        batches = [
            tuple(rng.standard_normal(shape, np.float32) for _ in range(2)) for _ in range(3)
        ]
        ways = [("single", "whole")] * (not args.no_whole)
        ways += [(b, rates) for rates in args.rates for b in args.buffering]
        for buffering, rates in ways:
            levels = tiled.gpu(WHOLE if rates == "whole" else budget)
            if rates == "measured":
                levels = tiled.calibrate("gpu").levels(budget)
            last = f"_{rates}" * (rates != "preset")
            file = args.plans / f"{name}_{buffering}{last}.json" if args.plans else None
            plan = planned(training, levels, buffering, file)
            print(f"      rates: {rates}")
            if args.no_gpu:
                continue
            losses, end = measured(plan, training, batches, args)
            _device.cupy().get_default_memory_pool().free_all_blocks()
            want = want or (losses, end)
            assert_same_bits(np.array(losses), np.array(want[0]))
            for key, value in end.items():
                assert_same_bits(value, want[1][key])
        print(f"{name}: all bits equal" * (not args.no_gpu), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
