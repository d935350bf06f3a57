"""Measure steps of learning beside PyJuice on one GPU: the same circuits, one after another.

    python tools/measure_pyjuice.py [--structures hclt hmm16] [--batches 1 8] [--json out.json]
        [--random 8 --seed 23]

Needs PyTorch and PyJuice, whose kernels are built at their first use, one after the other, or
before by ``--build`` side by side, which needs no free GPU (``--kernels DIR`` takes them built,
from a directory). Circuits are those of measure_structures.py, said again in
PyJuice's words; with ``--check`` log-likelihoods of small ones are compared. ``--random`` adds
circuits of random_circuits.py whose nodes have blocks of 16 or more; where PyJuice raises an
error, that is printed instead of a time. A step is a pass up, a pass down and the statistics of
all parameters, in one graph on both sides; times are medians of CUDA events in microseconds after
warm-up: ours in fp32 and bf16, theirs, its ratio to ours of like precision and to the faster of
ours, our floor. PyJuice's products of 16 samples and more are of bfloat16 on tensor cores, but
with ``--full``: fp32 then is the more exact of ours, bf16 the like.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from measure_circuits import floor, measure
from measure_structures import made, samples
from random_circuits import Drawn, draw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device
from rpukit.circuits.graph.nodes import InputNodes, ProductNodes

SMALL, WARM = 64, 4
BUILT = (  # of the package of PyJuice's kernels, and of that of its leaves
    "is_available",
    "ele_is_available",
    "par_is_available",
    "smallbatch_fw_is_available",
    "smallbatch_ele_is_available",
    "smallbatch_par_is_available",
    "input_layers.cat_backward_is_available",
)
HALF = 16  # samples from which PyJuice's products are of bfloat16, and nodes of its blocks


def drawn(name: str) -> Drawn:
    """Return circuit number i of those that a seed draws, of a name "random<seed>.<i>"."""
    seed, place = map(int, name.removeprefix("random").split("."))
    return next(islice((d for d in draw(seed) if d.n_nodes % HALF == 0), place, None))


def build(name: str) -> rk.circuits.Nodes:
    """Build the circuit of a name."""
    return drawn(name).root() if name.startswith("random") else made(name)


def data(name: str, n: int) -> np.ndarray:
    """Make samples for the circuit of a name."""
    if not name.startswith("random"):
        return samples(name, n)
    one = drawn(name)
    return np.random.default_rng(0).integers(0, one.n_values, (n, one.columns()))


def batches(name: str, args: argparse.Namespace) -> list[int]:
    """Return the batches of a structure."""
    return [drawn(name).batch] if name.startswith("random") else args.batches


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


def is_built(name: str) -> bool:
    """Build one of PyJuice's kernels; without its source, as in the wheel of 2.6.3, it is not."""
    folder, _, name = f"pyjuice.layer.kernels.c.{name}".rpartition(".")
    return bool(getattr(import_module(folder), name)())


def build_kernels() -> None:
    """Build PyJuice's kernels, each in its own process, into TORCH_EXTENSIONS_DIR."""
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(len(BUILT)) as pool:
        for name, there in zip(BUILT, pool.imap(is_built, BUILT), strict=True):
            print(name, there, f"after {time.perf_counter() - start:.0f} s", flush=True)


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


def prepared(name: str, args: argparse.Namespace) -> tuple[dict[str, rk.Circuit], Any]:
    """Build a structure in both libraries, and compile all kernels."""
    start = time.perf_counter()
    if args.kernels:
        load_kernels(args.kernels)
    if args.check and not name.startswith("random"):
        print(f"{name}: log-likelihoods of a small one differ by {check(name):.2g}", flush=True)
    root = build(name)
    own = {kind: rk.Circuit(root, device="gpu", precision=kind) for kind in ("fp32", "bf16")}
    for n in batches(name, args):
        for pc in kinds(own, n, args).values():
            our_time(pc, data(name, n), 1)
    try:
        other = import_module("pyjuice").compile(translated(root), verbose=False).to("cuda")
        for n in batches(name, args):
            their_step(other, data(name, n), args.full)
    except Exception as error:  # of PyJuice, at some sizes
        print(f"{name}: PyJuice fails: {type(error).__name__}: {str(error)[:200]}", flush=True)
        other = None
    print(f"{name}: ready after {time.perf_counter() - start:.0f} s", flush=True)
    return own, other


def kinds(own: dict[str, rk.Circuit], n: int, args: argparse.Namespace) -> dict[str, rk.Circuit]:
    """Choose the precisions that are measured with n samples."""
    return own if n >= HALF and not args.full else {"fp32": own["fp32"]}


def compare(
    name: str, args: argparse.Namespace, ready: Any, go: Any, alone: Any, rows: Any
) -> None:
    """Prepare a structure beside others, and measure it when they are ready and it is alone."""
    own, other = prepared(name, args)
    ready.append(name)
    go.wait()
    with alone:
        print(f"{name}: {drawn(name) if name.startswith('random') else own['fp32']}")
        for n in batches(name, args):
            x = data(name, n)
            row = {"structure": name, "batch": n, "floor": floor(own["fp32"], n)}
            for kind, pc in kinds(own, n, args).items():
                row[kind] = our_time(pc, x, args.repeats)
            line = f"{n:6} {row['fp32']:9.0f} {row.get('bf16', float('nan')):9.0f}"
            if other is not None:
                row["theirs"] = their_time(other, x, args.repeats, args.full)
                like, best = ratios(row)
                line += f" {row['theirs']:9.0f} {like:6.2f} {best:6.2f}"
            rows.append(row)
            print(f"{line} {row['floor']:9.0f}", flush=True)


def ratios(row: dict[str, Any]) -> tuple[float, float]:
    """PyJuice's time over ours of like precision, and over the faster of ours."""
    like = row.get("bf16", row["fp32"])
    return row["theirs"] / like, row["theirs"] / min(like, row["fp32"])


def mean_and_worst(rows: list[dict[str, Any]]) -> str:
    """Describe the ratios of PyJuice's times to ours: of like precision, and the faster."""
    of = [row for row in rows if "theirs" in row]
    if not of:
        return "no times of PyJuice"
    said = []
    for kind, found in zip(("like", "faster"), zip(*map(ratios, of), strict=True), strict=True):
        least, mean = int(np.argmin(found)), np.exp(np.log(found).mean())
        worst = f"{of[least]['structure']}, batch {of[least]['batch']}"
        said.append(f"{kind} mean {mean:.2f}, worst {found[least]:.2f} ({worst})")
    return f"{len(of)} of {len(rows)} cells: " + "; ".join(said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--structures", nargs="*", default=["hclt", "pd", "rat", "hmm16"])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32, 64, 256])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kernels", type=Path)
    parser.add_argument("--build", action="store_true", help="build PyJuice's kernels, and end")
    parser.add_argument("--patience", type=float, default=600, help="seconds to get ready")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", action="store_true", help="no bfloat16 in PyJuice's products")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.build:
        build_kernels()
        return 0
    here = multiprocessing.get_context("spawn")
    names = args.structures + [f"random{args.seed}.{i}" for i in range(args.random)]
    go, alone = here.Event(), here.Lock()
    with here.Manager() as manager:
        rows, ready = manager.list(), manager.list()
        workers = {
            name: here.Process(target=compare, args=(name, args, ready, go, alone, rows))
            for name in names
        }
        for worker in workers.values():
            worker.start()
        until = time.monotonic() + args.patience
        while time.monotonic() < until and any(
            worker.is_alive() and name not in ready for name, worker in workers.items()
        ):
            time.sleep(0.2)
        for name, worker in workers.items():
            if name not in ready:
                worker.terminate()
                print(f"{name}: not ready", flush=True)
        go.set()
        for worker in workers.values():
            worker.join()
        found = list(rows)
    if args.json:
        args.json.write_text(json.dumps(found))
    print(mean_and_worst(found))
    return int(len(found) < sum(len(batches(name, args)) for name in names))


if __name__ == "__main__":
    sys.exit(main())
