"""Print how long graphs of many layers take to plan and check, and the memory of the process.

    python tools/measure_planning.py [--l1 BYTES] [--most SECONDS] dense:256 lstm:100 ...

Each graph is planned in a process of its own, over L2 and L1, by ``auto``; seconds are CPU time.
"""

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rpukit import tiled


def dense(layers: int) -> tiled.Training:
    """Make layers of width 64 for 16 samples."""
    b = tiled.Builder("dense")
    h, y = b.input("x", (16, 64)), b.input("y", (16, 64))
    for k in range(layers):
        h = b.apply("Relu", b.apply("Gemm", h, b.parameter(f"w{k}", np.eye(64)), transB=1))
    return b.training(b.apply("MSELoss", h, y))


def conv(layers: int) -> tiled.Training:
    """Make convolutions of 8 channels for an image of 16 x 16."""
    rng, b = np.random.default_rng(0), tiled.Builder("conv")
    h, y = b.input("x", (1, 8, 16, 16)), b.input("y", (1, 8, 16, 16))
    for k in range(layers):
        w = b.parameter(f"w{k}", rng.normal(size=(8, 8, 3, 3)) * 0.1)
        h = b.apply("Relu", b.apply("Conv", h, w, pads=(1, 1, 1, 1)))
    return b.training(b.apply("MSELoss", h, y))


def transformer(layers: int, width: int = 32, tokens: int = 16) -> tiled.Training:
    """Make layers of attention and of a dense network."""
    b = tiled.Builder("transformer")
    h, y = b.input("x", (tokens, width)), b.input("y", (tokens, width))

    def matrix(name: str, n: int, m: int) -> str:
        return b.parameter(name, np.full((n, m), 0.01))

    def norm(x: str, name: str) -> str:
        own = b.parameter(f"{name}.s", np.ones(width)), b.parameter(f"{name}.c", np.zeros(width))
        return b.apply("LayerNormalization", x, *own)

    for k in range(layers):
        z = norm(h, f"a{k}")
        q, u, v = (b.apply("MatMul", z, matrix(f"{part}{k}", width, width)) for part in "quv")
        scores = b.apply("MatMul", q, b.apply("Transpose", u, perm=(1, 0)))
        a = b.apply("MatMul", b.apply("Softmax", scores, axis=-1), v)
        h = b.apply("Add", h, b.apply("MatMul", a, matrix(f"o{k}", width, width)))
        z = b.apply("Gelu", b.apply("MatMul", norm(h, f"b{k}"), matrix(f"up{k}", width, 64)))
        h = b.apply("Add", h, b.apply("MatMul", z, matrix(f"down{k}", 64, width)))
    return b.training(b.apply("MSELoss", h, y))


def lstm(steps: int, units: int = 16) -> tiled.Training:
    """Make the steps of an LSTM for 4 sequences."""
    b, n = tiled.Builder("lstm"), 4
    x, y = b.input("x", (steps, n, units)), b.input("y", (n, units))
    w, u = (b.parameter(name, np.full((units, 4 * units), 0.01)) for name in "wu")
    c = h = b.constant("zero", np.zeros((n, units)))
    for k in range(steps):
        now = b.apply("Slice", x, starts=(k,), ends=(k + 1,), axes=(0,))
        now = b.apply("Gemm", b.apply("Reshape", now, shape=(n, units)), w)
        every = b.apply("Add", now, b.apply("Gemm", h, u))
        ends = range(0, 5 * units, units)
        i, o, f, g = (
            b.apply("Slice", every, starts=(first,), ends=(end,), axes=(1,))
            for first, end in pairwise(ends)
        )
        kept = b.apply("Mul", b.apply("Sigmoid", f), c)
        c = b.apply("Add", kept, b.apply("Mul", b.apply("Sigmoid", i), b.apply("Tanh", g)))
        h = b.apply("Mul", b.apply("Sigmoid", o), b.apply("Tanh", c))
    return b.training(b.apply("MSELoss", h, y))


KINDS: dict[str, Callable[[int], tiled.Training]] = {
    "dense": dense,
    "conv": conv,
    "transformer": transformer,
    "lstm": lstm,
}


def measured(name: str, l1: int) -> None:
    """Plan one graph and print a line of the table."""
    kind, size = name.split(":")
    training = KINDS[kind](int(size))
    begin = time.process_time()
    plan = tiled.plan(training, tiled.siracusa_l2(l1=l1, l2=1 << 40))
    seconds = time.process_time() - begin
    ops = sum(len(program.ops) for program in plan.programs)
    tiles = sum(op.n_tiles for program in plan.programs for op in program.ops)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:18} {ops:6} ops {tiles:7} tiles {seconds:8.1f} s {memory:7.0f} MiB "
          f"{plan.cycles} cycles", flush=True)  # fmt: skip


def main() -> int:
    """Plan each graph in a process of its own, several at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+", help="kind:layers")
    parser.add_argument("--l1", type=int, default=32_000)
    parser.add_argument("--most", type=float, default=3600, help="seconds for all of them")
    args = parser.parse_args()
    start = multiprocessing.get_context("spawn").Process
    running = [start(target=measured, args=(name, args.l1)) for name in args.graphs]
    for one in running:
        one.start()
    end = time.monotonic() + args.most
    late = 0
    for name, one in zip(args.graphs, running, strict=True):
        one.join(max(0.0, end - time.monotonic()))
        if one.is_alive():
            one.kill()
            print(f"{name:18} not planned in {args.most:.0f} s", flush=True)
            late = 1
    return late


if __name__ == "__main__":
    sys.exit(main())
