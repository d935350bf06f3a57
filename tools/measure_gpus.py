"""Measure a step of EM on one GPU and on several, and compare the bits.

    python tools/measure_gpus.py [--gpus 2] [--structures hmm hclt] [--repeats 30]
        [--json out.json] [--profile]

A step is `Circuit.em_step` on samples that are on the first GPU: checks, passes, counts, new
parameters, and their copies on the other GPUs. Times are medians of the wall clock in ms, from
an idle machine to an idle machine. "weak" keeps 512 samples a GPU, "strong" 2048 in all. The
structures are those of `measure_structures.py`: a homogeneous hidden Markov model of 32 times and
1024 states, and a tree of 784 pixels and 208 states each. Hashes are of the statistics after an
open batch, and of the parameters after four steps, and after four captured ones, on samples whose
weights spread over 24 decades. "captured" are steps as CUDA graphs (`Circuit.captured`). With
``--profile`` the parts of a step on several GPUs are timed, each from an idle machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure_structures import made, samples

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device
from rpukit.circuits.graph.nodes import Nodes
from rpukit.circuits.learning.blocks import add_rows, block_step, counted
from rpukit.circuits.queries.passes import propagation_of

NODES = {"hmm": 1024, "hclt": 208}
WEAK, STRONG = 512, 2048
ON_ARRAYS = ("chains", "totals", "leaf_chains", "leaf_totals")


def structure(name: str) -> tuple[Nodes, np.ndarray]:
    """Make a graph, and samples of it."""
    return made(name, NODES[name]), samples(name, 8 * WEAK)


def wait(n_gpu: int) -> None:
    """Wait until all GPUs have nothing to do."""
    for k in range(n_gpu):
        with _device.cupy().cuda.Device(k) as device:
            device.synchronize()


def measured(call: Callable[[], Any], n_gpu: int, repeats: int) -> float:
    """Median time of a call in ms."""
    times = []
    for k in range(repeats + 5):
        wait(n_gpu)
        before = time.perf_counter()
        call()
        wait(n_gpu)
        if k >= 5:
            times.append(1e3 * (time.perf_counter() - before))
    return statistics.median(times)


def hashes(root: Nodes, x: np.ndarray, devices: tuple[str, ...]) -> dict[str, str]:
    """Hash statistics and parameters after steps on spread weights."""
    cupy = _device.cupy()
    pc = rk.Circuit(root, seed=1, devices=devices)
    weights = cupy.asarray(10.0 ** np.random.default_rng(1).uniform(-12, 12, len(x)))
    data = cupy.asarray(x)
    for first in (0, 700, 1100, 1300):
        pc.em_step(data[first : first + 700], weights=weights[first : first + 700], step=0.5)
    pc.accumulate(data[:300], weights=weights[:300])
    likely = pc.accumulate(data[300:1500], weights=weights[300:1500])
    arrays = pc.state()["arrays"]
    learnt = captured_parameters(root, devices, data, weights)
    held = {
        "log-likelihoods": [_device.to_numpy(likely)],
        "statistics": [arrays[name] for name in ON_ARRAYS],
        "parameters": [arrays["theta"], arrays["leaf_parameters"]],
        "parameters, captured": learnt,
    }
    found = {}
    for name, parts in held.items():
        digest = hashlib.sha256()
        for part in parts:
            digest.update(np.ascontiguousarray(part).data)
        found[name] = digest.hexdigest()[:16]
    return found


def captured_parameters(
    root: Nodes, devices: tuple[str, ...], data: Any, weights: Any
) -> list[np.ndarray]:
    """Parameters after captured steps; a block of samples is open in each."""
    pc = rk.Circuit(root, seed=1, devices=devices)
    with pc.captured(1300, step=0.5) as step:
        for first in (0, 700, 1100, 1300):
            part = slice(first, first + 1300)
            step(data[part], weights=weights[part])
    arrays = pc.state()["arrays"]
    return [arrays["theta"], arrays["leaf_parameters"]]


def parts_of_a_step(pc: rk.Circuit, x: Any, n_gpu: int, repeats: int) -> dict[str, float]:
    """Time the parts of a step on several GPUs."""
    core, share = pc._core, len(x) // n_gpu
    peers, n_row = core.peers, share // 256 * len(pc._core.pieces)
    held = core.statistics
    rows = [_device.zeros((n_row, a.size), core.dtype, core.device)
            for a in (held.chains, held.leaf_chains)]  # fmt: skip
    codes, numbers = core.encoder(x[:share], None)

    def changed() -> None:
        core.parameters.version += 1
        peers.update()

    def by_rows() -> None:
        step = block_step(core)
        parts = (slice(k, k + step) for k in range(0, share, step))
        counted(core, propagation_of(core.parameters, None), share,
                ((part, codes[part], numbers[part]) for part in parts), None)  # fmt: skip

    calls = {
        "check the data": lambda: core.encoder(x, None),
        "copy parameters": changed,
        "copy totals": lambda: peers.hand_on(peers.cores[0], core),
        "add rows": lambda: add_rows(held, *rows, share, core.pieces),
        "count a share by rows": by_rows,
        "accumulate": lambda: pc.accumulate(x),
        "accumulate a share on one": lambda: pc_of_one.accumulate(x[:share]),
        "step of EM for a share on one": lambda: pc_of_one.em_step(x[:share], step=0.1),
    }
    pc_of_one = rk.Circuit(pc.layout.roots, seed=1, device="gpu")
    return {name: measured(call, n_gpu, repeats) for name, call in calls.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--structures", nargs="*", default=["hmm"])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cupy, lines = _device.cupy(), []
    counts = [k for k in (1, 2, 4, 8) if k <= args.gpus]
    for name in args.structures:
        root, x = structure(name)
        line: dict[str, Any] = {"structure": name}
        for n_gpu in counts:
            devices = tuple(f"gpu:{k}" for k in range(n_gpu))
            found = hashes(root, x, devices)
            pc = rk.Circuit(root, seed=1, devices=devices)
            print(f"{name}, {pc.n_edges} edges, {n_gpu} GPU(s): {found}", flush=True)
            line[f"hashes {n_gpu}"] = found
            for kind, n in (("weak", WEAK * n_gpu), ("strong", STRONG)):
                batch = cupy.asarray(x[:n])
                taken = measured(
                    lambda pc=pc, batch=batch: pc.em_step(batch, step=0.1), n_gpu, args.repeats
                )
                line[f"{kind} {n_gpu}"] = taken
                with pc.captured(n, step=0.1) as step:
                    graphs = measured(
                        lambda step=step, batch=batch: step(batch), n_gpu, args.repeats
                    )
                line[f"{kind} captured {n_gpu}"] = graphs
                share = n_gpu if kind == "weak" else 1
                gains = [share * line[f"{how} 1"] / line[f"{how} {n_gpu}"]
                         for how in (kind, f"{kind} captured")]  # fmt: skip
                print(f"  {kind}: {n} samples {taken:.3f} ms, {gains[0]:.2f} x one GPU; "
                      f"captured {graphs:.3f} ms, {gains[1]:.2f} x", flush=True)  # fmt: skip
                if args.profile and n_gpu > 1:
                    parts = parts_of_a_step(pc, batch, n_gpu, args.repeats)
                    for part, ms in parts.items():
                        print(f"    {part}: {ms:.3f} ms")
            if found != line["hashes 1"]:
                print("  the bits DIFFER from those of one GPU")
        lines.append(line)
    if args.json:
        args.json.write_text(json.dumps(lines, indent=1) + "\n")
    return int(any(line[f"hashes {k}"] != line["hashes 1"] for line in lines for k in counts))


if __name__ == "__main__":
    sys.exit(main())
