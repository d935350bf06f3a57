"""Print what values of 8 and 16 bits save: memory, bytes over each link and cycles of plans.

    python tools/measure_narrow.py [--l1 BYTES] [--l2 BYTES] [lenet mobilenet]

Each network is planned by ``auto`` over L2 and L1, and over L3, L2 and L1: as it is, with what the
backward pass needs in float16, with factors of products rounded to int8 and to float16, and with
int8 in float32 for comparison. Cycles and bytes are those of a mini-batch.
"""

import argparse
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rpukit import tiled
from rpukit.tiled import methods

Made = tuple[tiled.Builder, str, list[tuple[np.ndarray, ...]]]


class Sketch:
    """A builder with random weights."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.rng, self.b = np.random.default_rng(0), tiled.Builder(name)
        self.x, self.labels = self.b.input("x", shape), self.b.input("y", shape[:1], np.int64)
        self.shape = shape

    def weight(self, name: str, *shape: int) -> str:
        """Add a weight."""
        value = self.rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:]))
        return self.b.parameter(name, value)

    def relu(self, op: str, x: str, w: str, **more: Any) -> str:
        """Add a product and a Relu."""
        return self.b.apply("Relu", self.b.apply(op, x, w, **more))

    def made(self, scores: str) -> Made:
        """Add the loss; draw a mini-batch."""
        loss = self.b.apply("SoftmaxCrossEntropyLoss", scores, self.labels)
        data = self.rng.normal(size=self.shape).astype(np.float32)
        return self.b, loss, [(data, self.rng.integers(0, 10, self.shape[0]))]


def lenet(n: int = 16) -> Made:
    """Make LeNet for images of 28 x 28."""
    s = Sketch("lenet", (n, 1, 28, 28))
    pool = {"kernel_shape": (2, 2), "strides": (2, 2)}
    h = s.relu("Conv", s.x, s.weight("c1", 6, 1, 5, 5), pads=(2, 2, 2, 2))
    h = s.relu("Conv", s.b.apply("MaxPool", h, **pool), s.weight("c2", 16, 6, 5, 5))
    h = s.b.apply("Flatten", s.b.apply("MaxPool", h, **pool))
    h = s.relu("Gemm", h, s.weight("f1", 120, 400), transB=1)
    h = s.relu("Gemm", h, s.weight("f2", 84, 120), transB=1)
    return s.made(s.b.apply("Gemm", h, s.weight("f3", 10, 84), transB=1))


def mobilenet(n: int = 2, side: int = 48) -> Made:
    """Make nine convolutions of a MobileNet, half of them by channel, without normalisation."""
    s, width = Sketch("mobilenet", (n, 3, side, side)), (8, 16, 32, 32, 64)
    around = {"pads": (1, 1, 1, 1)}
    h = s.relu("Conv", s.x, s.weight("c", width[0], 3, 3, 3), strides=(2, 2), **around)
    for k, (n_in, n_out) in enumerate(pairwise(width)):
        step = {"group": n_in, "strides": (2, 2) if k % 2 else (1, 1), **around}
        h = s.relu("Conv", h, s.weight(f"d{k}", n_in, 1, 3, 3), **step)
        h = s.relu("Conv", h, s.weight(f"p{k}", n_out, n_in, 1, 1))
    h = s.b.apply("Flatten", s.b.apply("GlobalAveragePool", h))
    return s.made(s.b.apply("Gemm", h, s.weight("f", 10, width[-1]), transB=1))


NETWORKS = {"lenet": lenet, "mobilenet": mobilenet}


def ways(made: Made) -> dict[str, tiled.Training]:
    """Name the ways to store values, with the training of each."""
    b, loss, batches = made
    halves = {"weights": "fp16", "activations": "fp16"}

    def stored(**options: str) -> tiled.Training:
        small = methods.quantise(b, batches, stored=True, **options)
        return methods.store_narrow(small.training(loss))

    return {
        "float32": b.training(loss),
        "float32, kept as fp16": methods.store_narrow(b.training(loss), others="fp16"),
        "fp16": stored(**halves),
        "int8": stored(),
        "int8 in float32, fused": tiled.fuse(methods.quantise(b, batches).training(loss)),
    }


def main() -> None:
    """Print a row for each network and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=[*NETWORKS])
    parser.add_argument("--l1", type=int, default=64_000)
    parser.add_argument("--l2", type=int, default=150_000)
    args = parser.parse_args()
    print("| network | values | L2 | cycles | to L1, from L1 | L3 | cycles | to L2, from L2 |")
    print("|" + "---|" * 8)
    for network in args.networks:
        for name, training in ways(NETWORKS[network]()).items():
            cells = [network, name]
            for levels in (
                tiled.siracusa_l2(l1=args.l1, l2=1 << 30),
                tiled.siracusa_l3(l1=args.l1, l2=args.l2),
            ):
                plan = tiled.plan(training, levels)
                first = plan.programs[0]
                moved = first.moved[levels.levels[1].name]
                cells += [f"{plan.peaks[levels.levels[0].name]:,}", f"{first.cycles:,}"]
                cells.append(", ".join(f"{n:,}" for n in moved))
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
