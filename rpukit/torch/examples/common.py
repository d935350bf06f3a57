"""What the examples share: data, mini-batches, tables over seeds, figures, command lines."""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rpukit.demo import load_digits
from rpukit.plot.axes import pyplot
from rpukit.torch._torch import torch
from rpukit.torch.functional import cross_entropy
from rpukit.torch.models import analog_layers, over_time

Tensor = Any
Module = Any


@dataclass(frozen=True, slots=True)
class Images:
    """Images and labels for training, and others for the test."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor


def digits() -> Images:
    """Load scanned digits, (n, 1, 8, 8)."""
    found = load_digits()
    x, x_test = (torch.from_numpy(a[:, :64]) for a in (found.x_train, found.x_test))
    labels = (torch.from_numpy(a) for a in (found.y_train, found.y_test))
    y, y_test = labels
    return Images(x.reshape(-1, 1, 8, 8), y, x_test.reshape(-1, 1, 8, 8), y_test)


def order(n: int, batch: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Return the rows of each mini-batch of an epoch; the order depends on nothing else."""
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    yield from torch.randperm(n, generator=generator).split(batch)


def train_epoch(model: Module, optimiser: Any, data: Images, rows: Iterator[Tensor]) -> None:
    """Train on mini-batches."""
    model.train()
    for part in rows:
        optimiser.zero_grad()
        cross_entropy(model(data.x[part]), data.y[part]).backward()
        optimiser.step()


def accuracy(model: Module, data: Images) -> float:
    """Classify the images of the test; leaves the model in evaluation."""
    model.eval()
    with torch.no_grad():
        found = [model(part).argmax(1) for part in data.x_test.split(256)]
    return float((torch.cat(found) == data.y_test).float().mean())


AGES = ("digital", "1 s", "1 h", "1 d", "30 d", "1 y")


def aged(model: Module, score: Callable[[Module], float]) -> list[float]:
    """Score a model with digital weights, and a second to a year after programming."""
    found = over_time(model, score)
    return [found.digital, *found.mean.tolist()]


def sha256(model: Module) -> str:
    """Hash the weights of all layers that are in tiles."""
    found = hashlib.sha256()
    for layer in analog_layers(model).values():
        found.update(layer.get_weights().cpu().numpy().tobytes())
    return found.hexdigest()


@dataclass(slots=True)
class Table:
    """Curves of several runs of each name, one run a seed."""

    title: str
    unit: str
    curves: dict[str, list[list[float]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    ticks: Sequence[str] = ()

    def run(self, name: str, seeds: Sequence[int], one: Callable[[int], list[float]]) -> None:
        """Run a function for each seed; print and keep what it returns."""
        start = time.perf_counter()
        self.curves[name] = [one(seed) for seed in seeds]
        self.seconds[name] = (time.perf_counter() - start) / len(seeds)
        last = [curve[-1] for curve in self.curves[name]]
        spread = statistics.stdev(last) if len(last) > 1 else 0.0
        mean, took = statistics.mean(last), self.seconds[name]
        line = f"{mean:8.3f} +- {spread:.3f} {self.unit}, {took:6.1f} s a run, {len(last)} seeds"
        print(f"{name:34}{line}", flush=True)
        if self.ticks:
            points = zip(self.ticks, zip(*self.curves[name], strict=True), strict=True)
            print("  " + ", ".join(f"{t} {statistics.mean(p):.3f}" for t, p in points))

    def draw(self, file: str, label: str) -> None:
        """Draw means and ranges of the curves."""
        figure, axis = pyplot().subplots(figsize=(6, 3.6), layout="constrained")
        for name, curves in self.curves.items():
            points = list(zip(*curves, strict=True))
            steps = range(1, len(points) + 1)
            means = [statistics.mean(p) for p in points]
            (line,) = axis.plot(steps, means, "o-", ms=3, label=name)
            lows, highs = [min(p) for p in points], [max(p) for p in points]
            axis.fill_between(steps, lows, highs, color=line.get_color(), alpha=0.15, lw=0)
        if self.ticks:
            axis.set_xticks(range(1, len(self.ticks) + 1), self.ticks)
        axis.set(xlabel=label, ylabel=self.unit, title=self.title)
        axis.legend(frameon=False, fontsize="small")
        figure.savefig(file, dpi=150)
        pyplot().close(figure)


def options(description: str | None, *, epochs: int, seeds: int = 3) -> argparse.ArgumentParser:
    """Return a parser of the options that all examples have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--figure", metavar="FILE", help="draw the curves")
    parser.add_argument("--quick", action="store_true", help="one epoch, one seed")
    return parser


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> Any:
    """Parse the command line; results do not depend on the number of threads."""
    found = parser.parse_args(arguments)
    if found.quick:
        found.epochs = found.seeds = 1
    return found
