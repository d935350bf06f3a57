"""Measure circuits of images on a GPU: steps of learning beside their floors, and an epoch of EM.

    python tools/measure_structures.py [--structures hclt pd rat] [--batches 1 8] [--json out.json]

Variables are the 784 pixels of an image, categorical with 256 values. A step is a pass up, a pass
down and the statistics of all parameters, as one graph; an epoch is 60,000 samples with a step of
EM after each batch, as graphs. Times are medians of CUDA events in microseconds after warm-up. The
floor of a step is the larger of the bytes that have to move over 4.3 TB/s (weights by both passes
and the statistics, counts read and written; values and flows of all nodes, written and read) and
of the fp32 operations over 60 TFLOP/s. Without a GPU the floors alone are printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from measure_circuits import BANDWIDTH, FLOPS, measure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device

N_EPOCH, N_VALUE, SHAPE = 60000, 256, (28, 28)
NODES = {"hclt": 256, "pd": 64, "rat": 128}
NEAR = 9  # pixels that vary together


def made(name: str, n_nodes: int):
    """Build a structure."""
    leaf = rk.circuits.Categorical(n_values=N_VALUE)
    if name == "pd":
        return rk.circuits.pd(SHAPE, n_nodes, leaf, n_splits=7)
    if name == "rat":
        return rk.circuits.rat_spn(SHAPE[0] * SHAPE[1], n_nodes, leaf, n_repetitions=1)
    return rk.circuits.hclt(samples(512), n_nodes, leaf, n_bins=8)


def samples(n: int) -> np.ndarray:
    """Samples of smooth noise, whose tree branches as that of images does."""
    noise = np.random.default_rng(0).standard_normal((n, SHAPE[0] + NEAR, SHAPE[1] + NEAR))
    sums = noise.cumsum(axis=1).cumsum(axis=2)
    rows = sums[:, NEAR:] - sums[:, :-NEAR]
    field = (rows[:, :, NEAR:] - rows[:, :, :-NEAR]) / NEAR
    levels = np.clip(N_VALUE * (0.5 + field / 4), 0, N_VALUE - 1)
    return levels.astype(np.int64).reshape(n, -1)


def floor(pc: rk.Circuit, n: int) -> float:
    """Least time of a step in microseconds."""
    size, layout = pc.dtype.itemsize, pc.layout
    n_theta = layout.n_theta + pc._parameters.rows.parameters.size
    moved = 5.0 * n_theta * size + 4.0 * n * layout.n_row * size
    return 1e6 * max(moved / BANDWIDTH, 3 * 2.0 * n * layout.n_edge / FLOPS)


def times(pc: rk.Circuit, n: int, repeats: int) -> dict[str, float]:
    """Times of a step and of an epoch of EM with batches of one size."""
    x = _device.cupy().asarray(samples(n))
    with pc.captured(n) as step:
        step(x)
        graph = measure(step.replay, repeats)
    with pc.captured(n, step=0.1, pseudocount=0.1) as step:
        step(x)
        em = measure(step.replay, repeats)
    return {"graph": graph, "em": em, "epoch": em * -(-N_EPOCH // n) * 1e-6}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--structures", nargs="*", default=list(NODES))
    parser.add_argument("--nodes", type=int, nargs="*", default=list(NODES.values()))
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32, 64, 256, 512])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = "gpu" if _device.gpu_count() else "cpu"
    rows = []
    for name, n_nodes in zip(args.structures, args.nodes, strict=True):
        pc = rk.Circuit(made(name, n_nodes), device=device)
        print(f"{name}: {n_nodes} states, {pc}")
        for n in args.batches:
            row = {"structure": name, "edges": pc.n_edges, "batch": n, "floor": floor(pc, n)}
            row |= times(pc, n, args.repeats) if device == "gpu" else {}
            rows.append(row)
            named = {key: value for key, value in row.items() if isinstance(value, float)}
            print(f"{n:6}", *(f"{key} {v:.4g}" for key, v in named.items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
