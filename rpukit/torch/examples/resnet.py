"""A small residual network on images of 3 x 32 x 32, trained hardware-aware, aged over a year.

    python -m rpukit.torch.examples.resnet [--data FOLDER] [--epochs 4] [--seeds 3] [--figure FILE]

Without ``--data`` the images are synthetic: ten classes of smooth random patterns, shifted and
with noise. ``--data`` reads CIFAR-10 from its Python files (``data_batch_1`` and so on). A digital
network is trained first; it is written to PCM-like cells as it is, and after some epochs in which
each step sees noisy weights; at last the statistics of batch normalisation are measured again at
each time.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rpukit.inference.grid.cell import InferenceCell
from rpukit.inference.grid.scale import OutputScale
from rpukit.inference.training.limits import ClipType, WeightClip
from rpukit.inference.training.modifiers import ModifierType, WeightModifier
from rpukit.torch._torch import torch
from rpukit.torch.conversion import convert
from rpukit.torch.examples import common
from rpukit.torch.models import compensate
from rpukit.torch.optim import AnalogSGD
from rpukit.torch.settings import AnalogSettings

__all__ = ["ResNet", "cifar", "main", "patterns"]

Tensor = Any
nn = torch.nn
BATCH = 32
# Cells use their range whatever the size of the weights is: factors of the outputs are digital.
SCALE = OutputScale(omega=1.0, per="column")
BARE = AnalogSettings(cell=InferenceCell(compensation="global"))
PLAIN = replace(BARE, output_scale=SCALE)
AWARE = AnalogSettings(
    cell=InferenceCell(
        modifier=WeightModifier(type=ModifierType.ADD_NORMAL, std_dev=0.05),
        weight_clip=WeightClip(type=ClipType.LAYER_GAUSSIAN, sigma=2.5),
        compensation="global",
    ),
    output_scale=SCALE,
)


class Block(torch.nn.Module):  # type: ignore[misc]
    """Two convolutions beside a shortcut."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(n_out), nn.BatchNorm2d(n_out)])
        same = n_in == n_out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(n_in, n_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs of the block."""
        h = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(h)) + self.shortcut(x))


class ResNet(torch.nn.Module):  # type: ignore[misc]
    """A stem, three blocks of `width`, twice and four times `width` channels, a linear head."""

    def __init__(self, width: int = 8, n_class: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2)]
        self.blocks = nn.Sequential(*(Block(*size) for size in sizes))
        self.head = nn.Linear(4 * width, n_class)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits of images, (n, n_class)."""
        h = self.blocks(torch.relu(self.norm(self.stem(x))))
        return self.head(h.mean((2, 3)))


def patterns(n: int = 1280, n_test: int = 400, *, noise: float = 3.0, seed: int = 0) -> Any:
    """Make images of ten classes: smooth random patterns, shifted, with noise."""
    draw = torch.Generator().manual_seed(seed)
    coarse = torch.randn(10, 3, 8, 8, generator=draw)
    smooth = nn.functional.interpolate(coarse, size=32, mode="bicubic")
    y = torch.randint(10, (n + n_test,), generator=draw)
    shifts = torch.randint(-4, 5, (n + n_test, 2), generator=draw).tolist()
    moved = [
        torch.roll(smooth[c], tuple(s), (1, 2)) for c, s in zip(y.tolist(), shifts, strict=True)
    ]
    x = torch.stack(moved)
    x = x + noise * torch.randn(x.shape, generator=draw)
    return common.Images(x[:n], y[:n], x[n:], y[n:])


def cifar(folder: str) -> Any:
    """Read CIFAR-10 from its Python files, with channels of mean 0 and deviation 1."""

    def read(names: Sequence[str]) -> tuple[Tensor, Tensor]:
        parts = []
        for name in names:
            with open(Path(folder) / name, "rb") as file:
                parts.append(pickle.load(file, encoding="bytes"))
        pixels = torch.cat([torch.from_numpy(part[b"data"]) for part in parts])
        labels = torch.tensor([label for part in parts for label in part[b"labels"]])
        return pixels.reshape(-1, 3, 32, 32).float() / 255, labels

    (x, y), (x_test, y_test) = read([f"data_batch_{k}" for k in range(1, 6)]), read(["test_batch"])
    mean, std = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    return common.Images((x - mean) / std, y, (x_test - mean) / std, y_test)


def main(arguments: Sequence[str] | None = None) -> common.Table:
    """Train, program and age the networks; print the table."""
    parser = common.options(__doc__, epochs=4)
    parser.add_argument("--data", metavar="FOLDER", help="of CIFAR-10's Python files")
    given = common.parsed(parser, arguments)
    if given.data:
        data = cifar(given.data)
    else:
        data = patterns(*((32, 32) if given.quick else ()))
    score = partial(common.accuracy, data=data)
    trained: dict[int, Any] = {}
    tuned: dict[int, Any] = {}

    def train(model: Any, seed: int, lr: float, first: int) -> Any:
        optimiser = AnalogSGD(model.parameters(), lr=lr, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, given.epochs)
        for epoch in range(first, first + given.epochs):
            rows = common.order(len(data.x), BATCH, seed, epoch)
            common.train_epoch(model, optimiser, data, rows)
            schedule.step()
        return model

    def digital(seed: int) -> list[float]:
        torch.manual_seed(seed)
        trained[seed] = train(ResNet(), seed, 0.05, 0)
        return [score(trained[seed])] * len(common.AGES)

    def renewed(model: Any) -> float:
        return score(compensate(model, data.x[:256].split(BATCH)))

    def plain(seed: int, settings: Any = PLAIN) -> list[float]:
        return common.aged(convert(trained[seed], settings, seed=seed), score)

    def aware(seed: int) -> list[float]:
        model = convert(trained[seed], AWARE, seed=seed)
        tuned[seed] = train(model, seed, 0.02, given.epochs)
        return common.aged(tuned[seed], score)

    def measured(seed: int) -> list[float]:
        return common.aged(tuned[seed], renewed)

    table = common.Table("Residual network on PCM-like cells", "accuracy", ticks=common.AGES)
    seeds = range(given.seeds)
    table.run("digital", seeds, digital)
    table.run("programmed, cells not filled", seeds, partial(plain, settings=BARE))
    table.run("programmed as it is", seeds, plain)
    table.run("trained hardware-aware", seeds, aware)
    table.run("the same, statistics renewed", seeds, measured)
    if given.figure:
        table.draw(given.figure, "time after programming")
    return table


if __name__ == "__main__":
    main()
