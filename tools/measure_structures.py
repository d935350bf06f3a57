"""Measure circuits of images on a GPU: steps of learning beside their floors, and an epoch of EM.

    python tools/measure_structures.py [--structures hclt hmm] [--batches 1 8] [--json out.json]
        [--precision bf16x3] [--kernels]

Variables are the 784 pixels of an image, categorical with 256 values; those of "hmm", a
homogeneous hidden Markov model, 32 words of 4023 kinds. "hmm16" has 1024 states in blocks of 16,
"hmm16x64x256" 256 states over 64 words. A step is a pass up, a pass down and the
statistics of all parameters, as one graph; an epoch is 60,000 samples with a step of EM after
each batch, as graphs. Times are medians of CUDA events in microseconds after warm-up; with
``--host`` of calls, by the host's clock: until they are back, and until the GPU is ready. The
floor of a step is the larger of the bytes that have to move over 4.3 TB/s (weights by both
passes and the statistics, counts read and written, of leaves what samples touch; values and
flows of all nodes, written and read) and of the fp32 operations over 60 TFLOP/s. Without a GPU
the floors alone are printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure_circuits import N_SYMBOL, N_TIME, floor, measure, print_kernels

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device

N_EPOCH, N_VALUE, SHAPE = 60000, 256, (28, 28)
NODES = {"hclt": 256, "pd": 64, "rat": 128, "hmm": 1024}
NEAR = 9  # pixels that vary together


def made(name: str, n_nodes: int | None = None) -> rk.circuits.Nodes:
    """Build a structure."""
    if name.startswith("hmm"):
        block, n_time, states = sizes_of(name)
        return hmm(n_nodes or states, block, n_time)
    n_nodes = n_nodes or NODES[name]
    leaf = rk.circuits.Categorical(n_values=N_VALUE)
    if name == "pd":
        return rk.circuits.pd(SHAPE, n_nodes, leaf, n_splits=7)
    if name == "rat":
        return rk.circuits.rat_spn(SHAPE[0] * SHAPE[1], n_nodes, leaf, n_repetitions=1)
    return rk.circuits.hclt(samples(name, 512), n_nodes, leaf, n_bins=8)


def sizes_of(name: str) -> tuple[int, int, int]:
    """Return block, words and states of a model's name."""
    given = [int(size) for size in name[3:].split("x") if size]
    usual = [1, N_TIME, NODES["hmm"]]
    block, n_time, states = given + usual[len(given) :]
    return block, n_time, states


def hmm(n_nodes: int, block: int, n_time: int = N_TIME) -> rk.circuits.Nodes:
    """Build a model whose transitions are tied, of blocks of states."""
    sizes = {"n_nodes": n_nodes, "block_size": block}
    leaf = rk.circuits.Categorical(n_values=N_SYMBOL)
    first = rk.circuits.inputs(n_time - 1, leaf, n_nodes, block_size=block)
    below: Any = first
    tied: Any = None
    for t in reversed(range(n_time - 1)):
        tied = tied.duplicate(below) if tied else rk.circuits.sum(below, **sizes)
        below = rk.circuits.product(first.duplicate(t), tied)
    return rk.circuits.sum(below, n_nodes=1)


def samples(name: str, n: int) -> np.ndarray:
    """Random symbols, or smooth noise whose tree branches like that of images."""
    if name.startswith("hmm"):
        return np.random.default_rng(0).integers(0, N_SYMBOL, (n, sizes_of(name)[1]))
    noise = np.random.default_rng(0).standard_normal((n, SHAPE[0] + NEAR, SHAPE[1] + NEAR))
    sums = noise.cumsum(axis=1).cumsum(axis=2)
    rows = sums[:, NEAR:] - sums[:, :-NEAR]
    field = (rows[:, :, NEAR:] - rows[:, :, :-NEAR]) / NEAR
    levels = np.clip(N_VALUE * (0.5 + field / 4), 0, N_VALUE - 1)
    return levels.astype(np.int64).reshape(n, -1)


def times(pc: rk.Circuit, x: np.ndarray, repeats: int, kernels: bool) -> dict[str, float]:
    """Times of a step and of an epoch of EM with batches of one size."""
    n, given = len(x), _device.cupy().asarray(x)
    with pc.captured(n) as step:
        step(given)
        graph = measure(step.replay, repeats)
        if kernels:
            print_kernels(step)
    with pc.captured(n, step=0.1, pseudocount=0.1) as step:
        step(given)
        em = measure(step.replay, repeats)
    return {"graph": graph, "em": em, "epoch": em * -(-N_EPOCH // n) * 1e-6}


def host_times(pc: rk.Circuit, x: np.ndarray, repeats: int) -> dict[str, float]:
    """Times until a call returns and until the GPU has finished, for successive calls."""
    n, given = len(x), _device.cupy().asarray(x)
    numbers = {"step": 0.1, "pseudocount": 0.1}
    found = {}
    with pc.captured(n) as gather, pc.captured(n, **numbers) as learn:
        calls = {
            "accumulate": lambda: pc.accumulate(given),
            "em_step": lambda: pc.em_step(given, **numbers),
            "captured": lambda: learn(given),
            "deferred": lambda: learn(given, validate="deferred"),
            "captured_accumulate": lambda: gather(given),
        }
        for name, call in calls.items():
            taken = []
            for _ in range(repeats + 3):
                _device.cupy().cuda.Device().synchronize()
                start = time.perf_counter()
                call()
                back = time.perf_counter()
                _device.cupy().cuda.Device().synchronize()
                taken.append((back - start, time.perf_counter() - start))
            both = np.median(taken[3:], axis=0) * 1e6
            found |= {f"{name}_back": float(both[0]), f"{name}_ready": float(both[1])}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--structures", nargs="*", default=["hclt", "pd", "rat"])
    parser.add_argument("--nodes", type=int, nargs="*", help="of each structure")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32, 64, 256, 512])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--precision", choices=("fp32", "bf16", "bf16x3"), default="fp32")
    parser.add_argument("--kernels", action="store_true", help="times of each kernel of a step")
    parser.add_argument("--host", action="store_true", help="times of calls by the host's clock")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = "gpu" if _device.gpu_count() else "cpu"
    rows = []
    nodes = args.nodes or [None] * len(args.structures)
    for name, n_nodes in zip(args.structures, nodes, strict=True):
        pc = rk.Circuit(made(name, n_nodes), device=device, precision=args.precision)
        print(f"{name}: {pc}")
        for n in args.batches:
            row = {"structure": name, "edges": pc.n_edges, "batch": n, "floor": floor(pc, n)}
            if device == "gpu":
                x = samples(name, n)
                if args.host:
                    row |= host_times(pc, x, args.repeats)
                else:
                    row |= times(pc, x, args.repeats, args.kernels)
            rows.append(row)
            named = {key: value for key, value in row.items() if isinstance(value, float)}
            print(f"{n:6}", *(f"{key} {v:.4g}" for key, v in named.items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
