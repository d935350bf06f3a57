"""Measure steps of learning beside PyJuice on one GPU: the same circuits, one after another.

    python tools/measure_pyjuice.py [--structures hclt hmm16] [--batches 1 8] [--json out.json]

Needs PyTorch and PyJuice, whose kernels are built at their first use (``--kernels DIR`` takes
them built, from a directory). Circuits are those of measure_structures.py, "hmm16" one with
blocks of 16 states, said again in PyJuice's words; with ``--check`` log-likelihoods of small
ones are compared. A step is a pass up, a pass down and the statistics of all parameters, in one
graph on both sides; times are medians of CUDA events in microseconds after warm-up: ours,
theirs, ratio, our floor. PyJuice's products of 16 samples and more are of bfloat16 on tensor
cores, but with ``--full``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from measure_circuits import floor, measure
from measure_structures import made, samples

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device
from rpukit.circuits.graph.nodes import InputNodes, ProductNodes

SMALL, WARM = 32, 4


def translated(root: rk.circuits.Nodes, values: bool = False) -> Any:
    """Convert a circuit to PyJuice, with its parameters if requested."""
    torch, pyjuice = import_module("torch"), import_module("pyjuice")
    said: dict[int, Any] = {}
    owners: dict[int, Any] = {}
    for nodes in root.walk():
        below = [said[id(child)] for child in nodes.children]
        size = {"num_node_blocks": nodes.n_block, "block_size": nodes.block_size}
        if isinstance(nodes, ProductNodes):
            table = torch.from_numpy(nodes.edges[:: nodes.block_size] // nodes.block_size)
            said[id(nodes)] = pyjuice.multiply(*below, edge_ids=table)
            continue
        ends = [pyjuice.multiply(child) if child.is_sum() else child for child in below]
        owner = owners.get(nodes.source.number)
        if owner is not None:
            other = [nodes.var] if isinstance(nodes, InputNodes) else ends
            said[id(nodes)] = owner.duplicate(*other, tie_params=True)
            continue
        if isinstance(nodes, InputNodes):
            dist = pyjuice.nodes.distributions.Categorical(num_cats=nodes.leaf.support)
            own = pyjuice.inputs(nodes.var, dist=dist, **size)
        else:
            own = pyjuice.summate(*ends, edge_ids=torch.tensor(nodes.edges), **size)
        if values:
            own.set_params(torch.tensor(np.asarray(nodes.parameters, np.float32)))
        said[id(nodes)] = owners[nodes.source.number] = own
    return said[id(root)]


def load_kernels(folder: Path) -> None:
    """Let PyJuice use kernels that were built before."""
    load = import_module("torch.utils.cpp_extension")._import_module_from_library
    kernels = import_module("pyjuice.layer.kernels.c")
    kernels._jit = kernels._jit_plain = lambda name, _: load(name, str(folder), True)


def check(name: str) -> float:
    """Greatest difference of log-likelihoods of a small circuit."""
    torch, pyjuice = import_module("torch"), import_module("pyjuice")
    root = made(name, SMALL)
    own = rk.Circuit(root, device="gpu").write_back()
    other = pyjuice.compile(translated(root, values=True), verbose=False).to("cuda")
    x = samples(name, 32)
    expected = _device.to_numpy(own.log_likelihood(_device.cupy().asarray(x)))
    got = other(torch.from_numpy(x).cuda())[:, 0].detach().cpu().numpy()
    return float(np.abs(got - expected).max())


def their_step(pc: Any, x: np.ndarray, full: bool) -> Any:
    """PyJuice's step, after calls that build and choose its kernels."""
    torch = import_module("torch")
    given = torch.from_numpy(x).cuda()

    def step() -> None:
        pc(given, force_use_fp32=full)
        pc.backward(given, flows_memory=1.0, force_use_fp32=full)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(WARM):
            step()
    torch.cuda.synchronize()
    return step


def their_time(pc: Any, x: np.ndarray, repeats: int, full: bool) -> float:
    """Time of PyJuice's step as one graph."""
    step, graph = their_step(pc, x, full), import_module("torch").cuda.CUDAGraph()
    with import_module("torch").cuda.graph(graph):
        step()
    return measure(graph.replay, repeats)


def our_time(pc: rk.Circuit, x: np.ndarray, repeats: int) -> float:
    """Time of our step as one graph."""
    with pc.captured(len(x)) as step:
        step(_device.cupy().asarray(x))
        return measure(step.replay, repeats)


def prepared(name: str, args: argparse.Namespace) -> tuple[rk.Circuit, Any]:
    """Build a structure in both libraries, and compile all kernels."""
    start = time.perf_counter()
    if args.kernels:
        load_kernels(args.kernels)
    if args.check:
        print(f"{name}: log-likelihoods of a small one differ by {check(name):.2g}", flush=True)
    root = made(name)
    own = rk.Circuit(root, device="gpu")
    other = import_module("pyjuice").compile(translated(root), verbose=False).to("cuda")
    for n in args.batches:
        our_time(own, samples(name, n), 1)
        their_step(other, samples(name, n), args.full)
        print(f"{name}: {n} samples after {time.perf_counter() - start:.0f} s", flush=True)
    return own, other


def compare(name: str, args: argparse.Namespace, ready: Any, alone: Any, rows: Any) -> None:
    """Prepare a structure beside others, and measure it when all are ready and it is alone."""
    try:
        own, other = prepared(name, args)
    except BaseException:
        ready.abort()
        raise
    ready.wait()
    with alone:
        print(f"{name}: {own}")
        for n in args.batches:
            x = samples(name, n)
            ours = our_time(own, x, args.repeats)
            theirs = their_time(other, x, args.repeats, args.full)
            rows.append({"structure": name, "batch": n, "ours": ours, "theirs": theirs})
            line = f"{n:6} {ours:9.0f} {theirs:9.0f} {theirs / ours:6.2f} {floor(own, n):9.0f}"
            print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--structures", nargs="*", default=["hclt", "pd", "rat", "hmm16"])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32, 64, 256])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kernels", type=Path)
    parser.add_argument("--full", action="store_true", help="no bfloat16 in PyJuice's products")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    here = multiprocessing.get_context("spawn")
    ready, alone = here.Barrier(len(args.structures)), here.Lock()
    with here.Manager() as manager:
        rows = manager.list()
        workers = [
            here.Process(target=compare, args=(name, args, ready, alone, rows))
            for name in args.structures
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found = list(rows)
    if args.json:
        args.json.write_text(json.dumps(found))
    return int(len(found) < len(args.structures) * len(args.batches))


if __name__ == "__main__":
    sys.exit(main())
