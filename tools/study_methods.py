"""Print what methods of training on devices take, and what they give on digits.

    python tools/study_methods.py [--epochs N] [--seeds N] [--only TEXT]

A small convolutional network is trained on scikit-learn's digits of 8 x 8. Then the images are
turned by a quarter, and each method adapts the network to them, by the same mini-batches of 8 and
an update after each. Memory is that of all values between ops (L2) in a plan over 64 kB of L1;
cycles are those of the model for a step and an update. Accuracy is that on 360 other images.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rpukit import demo, tiled
from rpukit.tiled import methods

BATCH = 8
LEVELS = tiled.siracusa_l2(l1=64_000)
Values = dict[str, np.ndarray]
Made = tuple[tiled.Builder, list[tiled.Training]]


def sketch(values: Values) -> tiled.Builder:
    """The network with given weights: its loss is called "loss", its scores "scores"."""
    b = tiled.Builder("digits")
    x, labels = b.input("x", (BATCH, 1, 8, 8)), b.input("labels", (BATCH,), np.int64)
    w = {name: b.parameter(name, value) for name, value in values.items()}
    h = b.apply("Relu", b.apply("Conv", x, w["conv1.w"], w["conv1.b"], pads=(1, 1, 1, 1)))
    h = b.apply("Relu", b.apply("Conv", h, w["conv2.w"], w["conv2.b"], pads=(1, 1, 1, 1)))
    h = b.apply("Flatten", b.apply("MaxPool", h, kernel_shape=(2, 2), strides=(2, 2)))
    h = b.apply("Relu", b.apply("Gemm", h, w["fc.w"], w["fc.b"], transB=1))
    scores = b.apply("Gemm", h, w["head.w"], w["head.b"], transB=1, name="scores")
    b.apply("SoftmaxCrossEntropyLoss", scores, labels, name="loss")
    return b


def start(seed: int) -> Values:
    """Draw weights."""
    rng = np.random.default_rng(seed)
    sizes = {"conv1": (16, 1, 3, 3), "conv2": (16, 16, 3, 3), "fc": (64, 256), "head": (10, 64)}
    found = {}
    for name, size in sizes.items():
        found[f"{name}.w"] = rng.normal(size=size) * np.sqrt(2 / np.prod(size[1:]))
        found[f"{name}.b"] = np.zeros(size[0])
    return found


def ways(b: tiled.Builder, batches: list[tuple[np.ndarray, ...]]) -> dict[str, Callable[[], Made]]:
    """Name the methods, with what makes the forward pass and the trainings that take turns."""
    sgd = tiled.SGD(lr=0.05)
    whole = b.training("loss", sgd)
    plan = tiled.plan(whole, LEVELS)
    limit = int(0.9 * plan.peaks["L2"])
    few = methods.freeze(whole, "conv?.w", "fc.w")
    rows = {"conv2.w": 16, "conv2.b": 16, "fc.w": 64, "fc.b": 64}

    def quarter(k: int) -> tiled.Training:
        parts = {name: (k * n // 4, (k + 1) * n // 4) for name, n in rows.items()}
        return methods.train_rows(methods.freeze(whole, "conv1*"), parts)

    def adapted() -> Made:
        small = methods.add_lora(b, "fc.w", "head.w", rank=4)
        return small, [methods.freeze(small.training("loss", sgd), "conv*")]

    def rounded(**options: object) -> Made:
        small = methods.quantise(b, batches[:8], **options)
        return small, [small.training("loss", sgd)]

    def stored(**options: object) -> Made:
        small, (own,) = rounded(stored=True, **options)
        return small, [methods.store_narrow(own)]

    def fused(made: Made) -> Made:
        return made[0], [tiled.fuse(own) for own in made[1]]

    return {
        "everything": lambda: (b, [whole]),
        "everything, `recompute`": lambda: (b, [methods.recompute(whole, LEVELS, limit=limit)]),
        "everything, `fuse_updates`": lambda: (b, [tiled.fuse_updates(whole)]),
        "the last layer, `train_last`": lambda: (b, [methods.train_last(whole, 1)]),
        "the last two layers": lambda: (b, [methods.train_last(whole, 2)]),
        "biases and the last layer, `freeze`": lambda: (b, [few]),
        "a quarter of the channels, `train_rows`": lambda: (b, [quarter(0)]),
        "the quarters in turn, `Rotation`": lambda: (b, [quarter(k) for k in range(4)]),
        "adapters of rank 4, `add_lora`": adapted,
        "int8, `quantise`": rounded,
        "int8, learned scales": lambda: rounded(learn_scales=True),
        "int4 weights, int8 activations": lambda: rounded(weights="int4"),
        "fp16": lambda: rounded(weights="fp16", activations="fp16"),
        "int8, `quantise`, `fuse`": lambda: fused(rounded()),
        "int8, learned scales, `fuse`": lambda: fused(rounded(learn_scales=True)),
        "everything, `store_narrow`, fp16": lambda: (
            b, [methods.store_narrow(whole, others="fp16")],
        ),
        "int8, stored, `store_narrow`": stored,
        "fp16, stored, `store_narrow`": lambda: stored(weights="fp16", activations="fp16"),
        "fp16, `fuse`": lambda: fused(rounded(weights="fp16", activations="fp16")),
    }  # fmt: skip


def train(
    trainings: list[tiled.Training], plans: list[tiled.Plan], batches: list[tuple[np.ndarray, ...]]
) -> Values:
    """Train by the plans in turn; return the values of all parameters."""
    pairs = zip(plans, trainings, strict=True)
    rotation = methods.Rotation([plan.trainer(own) for plan, own in pairs])
    rotation.fit(batches)
    return rotation.parameters()


def accuracy(b: tiled.Builder, values: Values, images: np.ndarray, labels: np.ndarray) -> float:
    """Share of images whose label has the highest score."""
    graph, right = b.graph("scores"), 0
    own = {**b._parameters, **values}
    for k in range(0, len(images) - BATCH + 1, BATCH):
        given = {**own, "x": images[k : k + BATCH]}
        scores = graph.run({name: given[name] for name in graph.inputs})["scores"]
        right += int((scores.argmax(1) == labels[k : k + BATCH]).sum())
    return right / (len(images) // BATCH * BATCH)


def batches_of(
    x: np.ndarray, y: np.ndarray, epochs: int, seed: int
) -> list[tuple[np.ndarray, ...]]:
    """Shuffle samples into mini-batches."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(x))[: len(x) // BATCH * BATCH] for _ in range(epochs)]
    return [(x[k], y[k]) for order in orders for k in order.reshape(-1, BATCH)]


def main() -> None:
    """Adapt the network by each method, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="methods whose names have this text")
    args = parser.parse_args()
    raw = demo.load_digits(0)
    x = np.concatenate([raw.x_train, raw.x_test])[:, :-1].reshape(-1, 1, 8, 8).astype(np.float32)
    y = np.concatenate([raw.y_train, raw.y_test]).astype(np.int64)
    turned = np.ascontiguousarray(np.rot90(x, axes=(2, 3)))
    n = len(raw.x_train)
    rows: dict[str, tuple[int, int, int, int]] = {}
    found: dict[str, list[float]] = {}
    for seed in range(args.seeds):
        first = sketch(start(seed)).training("loss", tiled.SGD(lr=0.05))
        plan = tiled.plan(first, LEVELS)
        upright = train([first], [plan], batches_of(x[:n], y[:n], 3, seed))
        b = sketch(upright)
        found.setdefault("before", []).append(accuracy(b, {}, turned[n:], y[n:]))
        found.setdefault("upright", []).append(accuracy(b, {}, x[n:], y[n:]))
        batches = batches_of(turned[:n], y[:n], args.epochs, seed)
        for name, make in ways(b, batches).items():
            if args.only not in name:
                continue
            forward, trainings = make()
            plans = [tiled.plan(own, LEVELS) for own in trainings]
            values = train(trainings, plans, batches)
            found.setdefault(name, []).append(accuracy(forward, values, turned[n:], y[n:]))
            cycles = max((p.programs[0].cycles, p.programs[1].cycles) for p in plans)
            size = sum(v.size for v in values.values())
            totals = trainings[0].accumulators
            if totals:
                size = sum(trainings[0].train.tensors[name].size for name in totals)
            rows[name] = (size, max(p.peaks["L2"] for p in plans), *cycles)
    print(
        f"Before: {100 * np.mean(found['upright']):.1f} % of upright images, "
        f"{100 * np.mean(found['before']):.1f} % of turned ones.\n"
    )
    head = ("what is trained", "trained values", "bytes in L2", "cycles of a step", "of an update")
    print("| " + " | ".join((*head, "accuracy, %")) + " |\n|" + "---|" * 6)
    for name, numbers in rows.items():
        cells = [f"{n:,}" for n in numbers]
        print("| " + " | ".join((name, *cells, f"{100 * np.mean(found[name]):.1f}")) + " |")


if __name__ == "__main__":
    main()
