"""Measure circuits on a GPU: a step of learning over sizes and batches, beside its floor.

    python tools/measure_circuits.py [--states 128 1024] [--batches 1 8 64] [--json out.json]
        [--precision bf16x3] [--kernels] [--random 12 --seed 5]

A step is a pass up, a pass down and the statistics of all parameters, of a homogeneous hidden
Markov model of 32 times and 4023 symbols. Times are medians of CUDA events in microseconds after
warm-up: of a replayed graph, and of eager calls on data that was checked before. The floor is the
larger of the bytes that have to move over 4.3 TB/s (weights twice, or once if 50 MB of cache hold
them; counts read and written) and of the fp32 operations over 60 TFLOP/s. With ``--check`` log-
likelihoods and statistics are compared with the mirrors, bit for bit. With ``--kernels`` the
times of a step are added up by kernel: as PyTorch's profiler sees a replay, or without PyTorch
of launches that are timed alone. ``--random`` times
circuits that are drawn at random (random_circuits.py) instead, beside their floors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device
from rpukit._kernels.launch import Variant
from rpukit.circuits.learning.spread import add_pass
from rpukit.circuits.queries.passes import Propagation
from rpukit.testing import assert_same_bits

BANDWIDTH, FLOPS, CACHE = 4.3e12, 60e12, 50e6
N_TIME, N_SYMBOL = 32, 4023


def measure(call, n: int) -> float:
    """Median device time of a call in microseconds."""
    cupy = _device.cupy()
    for _ in range(2):
        call()
    times = []
    for _ in range(n):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop) * 1e3)
    return statistics.median(times)


def by_kernel(step: rk.circuits.Captured, repeats: int = 5) -> dict[str, tuple[float, int]]:
    """Median device time in microseconds of each kernel in a step, and its launches.

    Each launch is timed alone. The statistics of the circuit change.
    """
    cupy, start = _device.cupy(), Variant._start
    passes: list[list[tuple[str, object, object]]] = []

    def timed(self: Variant, *args: object) -> None:
        before, after = cupy.cuda.Event(), cupy.cuda.Event()
        before.record()
        start(self, *args)
        after.record()
        passes[-1].append((self.entry, before, after))

    Variant._start = timed
    try:
        for _ in range(repeats):
            passes.append([])
            step._run(step._core.statistics)
            cupy.cuda.get_current_stream().synchronize()
    finally:
        Variant._start = start
    times: dict[str, list[float]] = {}
    for made in zip(*passes, strict=True):
        each = [cupy.cuda.get_elapsed_time(a, b) * 1e3 for _, a, b in made]
        times.setdefault(made[0][0], []).append(statistics.median(each))
    return {name: (sum(found), len(found)) for name, found in times.items()}


def by_trace(step: rk.circuits.Captured, repeats: int = 5) -> dict[str, tuple[float, int]]:
    """Median share in microseconds of each kernel in a replayed step, and its launches.

    Launches of a graph overlap: each counts from the end of the one before it. The profiler is
    that of PyTorch.
    """
    torch, found = import_module("torch"), []
    torch.cuda.init()
    profiler = torch.profiler
    for _ in range(repeats):
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as trace:
            step.replay()
            _device.cupy().cuda.get_current_stream().synchronize()
        launches = sorted((e.time_range.end, e.time_range.start, e.name) for e in trace.events())
        before, own = 0.0, {}
        for end, start, name in launches:
            us, n = own.get(name, (0.0, 0))
            own[name] = (us + end - max(before, start), n + 1)
            before = end
        found.append(own)
    return {
        name: (statistics.median(own[name][0] for own in found), n)
        for name, (_, n) in found[0].items()
        if all(name in own for own in found)
    }


def print_kernels(step: rk.circuits.Captured) -> None:
    """Print the time of each kernel in a step, the longest first."""
    find = by_trace if find_spec("torch") else by_kernel
    found = sorted(find(step).items(), key=lambda item: -item[1][0])
    print("    ", ", ".join(f"{name} {us:.0f} in {n}" for name, (us, n) in found), flush=True)


def floor_of_hmm(k: int, n: int) -> float:
    """Least time of a step in microseconds."""
    weights = 4.0 * k * k
    passes = 2 * (N_TIME - 1) if weights > CACHE else 1
    moved = (passes + 2) * weights / BANDWIDTH
    return 1e6 * max(moved, 3 * 2.0 * n * k * k * (N_TIME - 1) / FLOPS)


def floor(pc: rk.Circuit, n: int) -> float:
    """Least time of a step in microseconds."""
    size, layout, leaves = pc.dtype.itemsize, pc.layout, pc._core.parameters.rows
    touched = min(n * leaves.kinds.size, leaves.parameters.size)
    moved = (5.0 * layout.n_theta + 3.0 * touched + 4.0 * n * layout.n_row) * size
    return 1e6 * max(moved / BANDWIDTH, 3 * 2.0 * n * layout.n_edge / FLOPS)


def check(k: int, n: int, precision: str) -> None:
    """Compare a step with the mirrors."""
    cupy = _device.cupy()
    root = rk.circuits.hmm(3, k, 50)
    x = np.random.default_rng(n).integers(0, 50, (n, 3))
    host = rk.Circuit(root, seed=1, precision=precision)
    gpu = host.to("gpu")
    step = gpu.captured(n)
    for _ in range(3):
        assert_same_bits(step(cupy.asarray(x)), host.accumulate(x))
    expected, got = host.state()["arrays"], gpu.state()["arrays"]
    for name in ("chains", "totals", "leaf_chains", "leaf_totals"):
        assert_same_bits(got[name], expected[name])
    assert host._core.statistics.weight == gpu._core.statistics.weight


def time_of_step(pc: rk.Circuit, x: np.ndarray) -> float:
    """Time of a captured step in microseconds."""
    with pc.captured(len(x)) as step:
        step(_device.cupy().asarray(x))
        return measure(step.replay, 10)


def line(pc: rk.Circuit, k: int, n: int, repeats: int, kernels: bool) -> dict[str, float]:
    """Measure the times of one batch size."""
    cupy = _device.cupy()
    x = cupy.asarray(np.random.default_rng(0).integers(0, N_SYMBOL, (n, N_TIME)))
    step = pc.captured(n)
    step(x)
    if kernels:
        print_kernels(step)
    codes, numbers = pc._core.encoder(x, None)
    weights = cupy.ones((n, 1), np.float32)
    out, usual = cupy.empty_like(weights), Propagation(pc._core.parameters)

    def eager() -> None:
        add_pass(pc._core, usual, (codes, numbers), weights, out)

    return {
        "states": k,
        "batch": n,
        "graph": measure(step.replay, repeats),
        "eager": measure(eager, max(3, repeats // 4)),
        "floor": floor_of_hmm(k, n),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, nargs="*", default=[128, 1024, 4096])
    parser.add_argument(
        "--batches", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32, 64, 256, 512]
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--precision", choices=("fp32", "bf16", "bf16x3"), default="fp32")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--random", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.check:
        for k, n in (
            (128, 1),
            (70, 5),
            (128, 16),
            (132, 37),
            (132, 130),
            (1030, 150),
            (1030, 450),
        ):
            check(k, n, args.precision)
        print("bits of the mirrors")
    if args.random:
        from random_circuits import measure as measure_random

        measure_random(time_of_step, floor, args.random, args.seed, args.precision, args.json)
        return 0
    rows = []
    print(f"{'states':>6} {'batch':>6} {'graph':>8} {'eager':>8} {'floor':>8}")
    for k in args.states:
        root = rk.circuits.hmm(N_TIME, k, N_SYMBOL)
        pc = rk.Circuit(root, device="gpu", precision=args.precision)
        for n in args.batches:
            rows.append(line(pc, k, n, args.repeats, args.kernels))
            r = rows[-1]
            print(f"{k:6} {n:6} {r['graph']:8.0f} {r['eager']:8.0f} {r['floor']:8.0f}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
