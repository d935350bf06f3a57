"""Measure circuits on a GPU: a step of learning over sizes and batches, beside its floor.

    python tools/measure_circuits.py [--states 128 1024] [--batches 1 8 64] [--json out.json]
        [--precision bf16]

A step is a pass up, a pass down and the statistics of all parameters, of a homogeneous hidden
Markov model of 32 times and 4023 symbols. Times are medians of CUDA events in microseconds after
warm-up: of a replayed graph, and of eager calls on data that was checked before. The floor is the
larger of the bytes that have to move over 4.3 TB/s (weights twice, or once if 50 MB of cache hold
them; counts read and written) and of the fp32 operations over 60 TFLOP/s. With ``--check`` log-
likelihoods and statistics are compared with the mirrors, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device
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


def floor(k: int, n: int) -> float:
    """Least time of a step in microseconds."""
    weights = 4.0 * k * k
    passes = 2 * (N_TIME - 1) if weights > CACHE else 1
    moved = (passes + 2) * weights / BANDWIDTH
    return 1e6 * max(moved, 3 * 2.0 * n * k * k * (N_TIME - 1) / FLOPS)


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


def line(pc: rk.Circuit, k: int, n: int, repeats: int) -> dict[str, float]:
    """Measure the times of one batch size."""
    cupy = _device.cupy()
    x = cupy.asarray(np.random.default_rng(0).integers(0, N_SYMBOL, (n, N_TIME)))
    step = pc.captured(n)
    step(x)
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
        "floor": floor(k, n),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, nargs="*", default=[128, 1024, 4096])
    parser.add_argument(
        "--batches", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32, 64, 256, 512]
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
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
    rows = []
    print(f"{'states':>6} {'batch':>6} {'graph':>8} {'eager':>8} {'floor':>8}")
    for k in args.states:
        root = rk.circuits.hmm(N_TIME, k, N_SYMBOL)
        pc = rk.Circuit(root, device="gpu", precision=args.precision)
        for n in args.batches:
            rows.append(line(pc, k, n, args.repeats))
            r = rows[-1]
            print(f"{k:6} {n:6} {r['graph']:8.0f} {r['eager']:8.0f} {r['floor']:8.0f}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
