"""Demo: train a two-layer network of analog tiles on handwritten digits.

Every operation gives the same bits on CPU and GPU: the tiles, and tanh, softmax and cross-entropy
from `rpukit.elementwise`. The sha256 of the conductances after training therefore does not depend
on the device or the number of threads.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._files.writing import write_text
from rpukit._workers import get_num_threads
from rpukit.analog import AnalogTile, Cell, ConstantStep, Ideal, IOParameters, SoftBounds
from rpukit.costs import preset, total
from rpukit.elementwise import random_fill, softmax_cross_entropy, tanh
from rpukit.errors import RpukitError
from rpukit.random import Stream

__all__ = ["Digits", "Network", "Run", "add_arguments", "draw", "load_digits", "main", "train"]

Array = Any

CELLS: dict[str, type[Cell]] = {
    "ConstantStep": ConstantStep,
    "SoftBounds": SoftBounds,
    "Ideal": Ideal,
}
PERFECT = IOParameters(is_perfect=True)


@dataclass(frozen=True, slots=True)
class Digits:
    """Scanned digits, split into a training set and a test set.

    Parameters
    ----------
    x_train, x_test : array, shape (n, 65), float32
        8 x 8 pixels in [0, 1], followed by a constant 1.
    y_train, y_test : array, shape (n,), int32
        Labels 0 to 9.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


@dataclass(slots=True)
class Run:
    """Accuracy, times and final weights of one training run.

    Parameters
    ----------
    name : str
    accuracy : list of float
        Accuracy on the test set after each epoch, 0 to 1.
    seconds : list of float
        Time of each epoch.
    n_pulses : int
    sha256 : str
        Of the final weights.
    tiles : list of AnalogTile
    """

    name: str
    accuracy: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    n_pulses: int = 0
    sha256: str = ""
    tiles: list[AnalogTile] = field(default_factory=list)


def load_digits(seed: int = 0) -> Digits:
    """Load scikit-learn's digits, shuffle them, and keep every fifth for testing.

    Parameters
    ----------
    seed : int

    Returns
    -------
    Digits

    Raises
    ------
    RpukitError
        If scikit-learn is not installed.
    """
    try:
        raw = import_module("sklearn.datasets").load_digits()
    except ImportError as error:
        raise RpukitError('the demo needs scikit-learn: pip install "rpukit[demo]"') from error
    n = raw.data.shape[0]
    keys = random_fill(Stream.from_seed(seed).child(100), (n,), "bits")
    order = np.argsort(keys, kind="stable")
    x = np.concatenate([raw.data[order] / 16, np.ones((n, 1))], axis=1).astype(np.float32)
    y = raw.target[order].astype(np.int32)
    test = np.arange(n) % 5 == 0
    return Digits(x[~test], y[~test], x[test], y[test])


class Network:
    """Network of two tiles with tanh between them; the last input of each is a constant 1.

    Parameters
    ----------
    n_in, n_hidden, n_class : int
        n_in counts the bias.
    cell : Cell
    io : IOParameters
        Periphery of both tiles, forward and backward.
    seed : int
    device : str
    """

    def __init__(
        self,
        n_in: int,
        n_hidden: int,
        n_class: int,
        cell: Cell,
        io: IOParameters,
        seed: int,
        device: str,
    ) -> None:
        stream = Stream.from_seed(seed)
        self.tiles = []
        for layer, shape in enumerate(((n_hidden, n_in), (n_class, n_hidden + 1))):
            tile = AnalogTile(
                shape, cell, forward=io, backward=io, seed=stream.child(layer), device=device
            )
            reach = np.float32(np.sqrt(6 / sum(shape)))
            start = random_fill(stream.child(10 + layer), shape, "uniform") * 2 - 1
            tile.set_weights(self._put(start * reach, tile))
            self.tiles.append(tile)

    @staticmethod
    def _put(array: np.ndarray, tile: AnalogTile) -> Array:
        return _device.to_device(array, _device.parse_device(tile.device), np.float32)

    def hidden(self, x: Array) -> Array:
        """Compute the activations of the hidden layer, followed by a constant 1 for the bias.

        Parameters
        ----------
        x : array, shape (n_batch, n_in), float32

        Returns
        -------
        array, shape (n_batch, n_hidden + 1), float32
        """
        xp = _device.namespace(x)
        h = tanh(self.tiles[0].forward(x))
        return xp.concatenate([h, xp.ones((h.shape[0], 1), np.float32)], axis=1)

    def step(self, x: Array, y: Array, lr: float) -> None:
        """Train on one mini-batch.

        Parameters
        ----------
        x : array, shape (n_batch, n_in), float32
        y : array, shape (n_batch,), int32
        lr : float
        """
        h = self.hidden(x)
        _, error = softmax_cross_entropy(self.tiles[1].forward(h), y)
        back = self.tiles[1].backward(error)[:, :-1]
        inner = h[:, :-1]
        xp = _device.namespace(x)
        self.tiles[1].update(h, error, lr)
        self.tiles[0].update(x, xp.ascontiguousarray(back * (1 - inner * inner)), lr)
        for tile in self.tiles:
            tile.post_step()

    def accuracy(self, x: Array, y: Array) -> float:
        """Compute the accuracy, 0 to 1.

        Parameters
        ----------
        x : array, shape (n_batch, n_in), float32
        y : array, shape (n_batch,), int32

        Returns
        -------
        float
        """
        logits = self.tiles[1].forward(self.hidden(x))
        return float((logits.argmax(axis=1) == y).mean())


def train(
    name: str,
    cell: Cell,
    io: IOParameters,
    data: Digits,
    *,
    epochs: int,
    lr: float,
    n_hidden: int,
    batch: int,
    seed: int,
    device: str,
    progress: bool,
) -> Run:
    """Train a network and measure it after every epoch.

    Parameters
    ----------
    name : str
    cell : Cell
    io : IOParameters
    data : Digits
    epochs : int
    lr : float
        Learning rate of the first epochs; it falls to a fifth after two thirds of them.
    n_hidden, batch, seed : int
    device : str
    progress : bool
        Show a progress bar (needs tqdm).

    Returns
    -------
    Run
    """
    net = Network(data.x_train.shape[1], n_hidden, 10, cell, io, seed, device)
    put = {
        k: _device.to_device(getattr(data, k), _device.parse_device(device))
        for k in ("x_train", "y_train", "x_test", "y_test")
    }
    run, stream, n = (
        Run(name, tiles=net.tiles),
        Stream.from_seed(seed).child(50),
        len(data.y_train),
    )
    for epoch in _shown(range(epochs), name, progress):
        start = time.perf_counter()
        order = np.argsort(random_fill(stream.child(epoch), (n,), "bits"), kind="stable")
        order = _device.to_device(order, _device.parse_device(device))
        rate = lr if 3 * epoch < 2 * epochs else lr / 5
        for first in range(0, n, batch):
            part = order[first : first + batch]
            net.step(put["x_train"][part], put["y_train"][part], rate)
        for tile in net.tiles:
            tile.get_weights()  # waits for the device
        run.seconds.append(time.perf_counter() - start)
        run.accuracy.append(net.accuracy(put["x_test"], put["y_test"]))
    run.n_pulses = sum(tile.n_pulses for tile in net.tiles)
    digest = hashlib.sha256()
    for tile in net.tiles:
        digest.update(np.ascontiguousarray(_device.to_numpy(tile.get_weights())).tobytes())
    run.sha256 = digest.hexdigest()
    return run


def _shown(epochs: range, name: str, progress: bool) -> Iterator[int]:
    if not progress:
        yield from epochs
        return
    yield from import_module("tqdm.auto").tqdm(
        epochs, desc=f"{name:>14}", unit="epoch", leave=False
    )


def draw(analog: Run, exact: Run, path: Path) -> None:
    """Write a figure of learning curves, conductances and the device's pulse response.

    Parameters
    ----------
    analog, exact : Run
    path : path
    """
    matplotlib = import_module("matplotlib")
    figure_class = import_module("matplotlib.figure").Figure
    plot, studies = import_module("rpukit.plot"), import_module("rpukit.studies")
    with matplotlib.rc_context({"font.size": 9}):
        figure = figure_class(figsize=(11, 3.3), layout="constrained")
        learning, weights, response = figure.subplots(1, 3)
        plot.plot_learning({analog.name: analog.accuracy, exact.name: exact.accuracy}, ax=learning)
        learning.set_title("learning digits")
        plot.plot_conductances(
            {"hidden layer": analog.tiles[0], "output layer": analog.tiles[1]}, ax=weights
        )
        weights.set_title(f"weights of {analog.name} cells")
        cell = analog.tiles[0].cell
        if cell.PULSED:
            pulses = np.repeat([True, False], 1500)
            plot.plot_response(studies.pulse_response(cell, pulses, n_cell=200), ax=response)
            response.set_title("1,500 up, then 1,500 down pulses")
        else:
            response.text(0.5, 0.5, "ideal cells take no pulses", ha="center", va="center")
            response.set_axis_off()
        figure.savefig(path, dpi=150)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options to a parser.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.add_argument(
        "--cell", choices=sorted(CELLS), default="ConstantStep", help="default: ConstantStep"
    )
    text = 'computes: "cpu" (default), "gpu", "gpu:1", or "auto": a GPU if there is one'
    parser.add_argument("--device", default="cpu", help=text)
    parser.add_argument("--epochs", type=int, default=15, help="passes over the data; default: 15")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate; default: 0.02")
    parser.add_argument("--hidden", type=int, default=128, help="hidden units; default: 128")
    parser.add_argument(
        "--batch", type=int, default=10, help="samples in a mini-batch; default: 10"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers; default: 0")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo_out"),
        help="folder of the figure and JSON; default: demo_out",
    )
    parser.add_argument("--no-figure", action="store_true", help="do not draw the figure")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def main(args: argparse.Namespace) -> int:
    """Run the demo.

    Parameters
    ----------
    args : argparse.Namespace
        As `add_arguments` describes them.

    Returns
    -------
    int
        0, the exit status.
    """
    if args.epochs < 1 or args.hidden < 1 or args.batch < 1:
        raise RpukitError("--epochs, --hidden and --batch: each must be at least 1")
    if args.device == "auto":
        args.device = "gpu" if _device.gpu_count() else "cpu"
    _device.parse_device(args.device)
    data = load_digits(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)  # before minutes of training
    print(f"Digits: {len(data.y_train)} scans to train on, {len(data.y_test)} to test on")
    widths = f"{data.x_train.shape[1]}-{args.hidden}-10"
    print(f"Network: {widths} of {args.cell} cells on {args.device}")
    common = {
        "epochs": args.epochs,
        "lr": args.lr,
        "n_hidden": args.hidden,
        "batch": args.batch,
        "seed": args.seed,
        "device": args.device,
        "progress": not args.quiet,
    }
    print(f"Compiled in {_warm_up(data, args):.1f} s")
    analog = train(args.cell, CELLS[args.cell](), IOParameters(), data, **common)
    exact = train("floating point", Ideal(), PERFECT, data, **common)
    _report(analog, exact)
    written = [args.out / "digits.json"]
    write_text(written[0], json.dumps(_summary(args, analog, exact), indent=1) + "\n")
    if not args.no_figure:
        written.append(args.out / "digits.png")
        draw(analog, exact, written[1])
    print("Written:", ", ".join(str(path) for path in written))
    return 0


def _warm_up(data: Digits, args: argparse.Namespace) -> float:
    """Compile all kernels by one step of temporary networks; return the seconds taken."""
    start = time.perf_counter()
    short = Digits(data.x_train[:10], data.y_train[:10], data.x_test[:10], data.y_test[:10])
    common = {"epochs": 1, "lr": args.lr, "n_hidden": args.hidden, "batch": 10, "seed": 0}
    for cell, io in ((CELLS[args.cell](), IOParameters()), (Ideal(), PERFECT)):
        train("", cell, io, short, device=args.device, progress=False, **common)
    return time.perf_counter() - start


def _report(analog: Run, exact: Run) -> None:
    print(f"\n{'epoch':>5}  {analog.name:>14}  {exact.name:>14}  {'seconds':>8}")
    for k, pair in enumerate(zip(analog.accuracy, exact.accuracy, analog.seconds, strict=True), 1):
        print(f"{k:5d}  {100 * pair[0]:13.1f}%  {100 * pair[1]:13.1f}%  {pair[2]:8.2f}")
    seconds = sum(analog.seconds)
    if analog.n_pulses:
        print(
            f"\n{analog.n_pulses:,} pulses in {seconds:.1f} s of training: "
            f"{analog.n_pulses / seconds / 1e6:.1f} million a second"
        )
    print(f"sha256 of the final weights: {analog.sha256}")


def _summary(args: argparse.Namespace, analog: Run, exact: Run) -> dict[str, Any]:
    options = {k: v for k, v in vars(args).items() if isinstance(v, (int, float, str, bool))}
    return {
        "options": options,
        "threads": get_num_threads(),
        "sha256": analog.sha256,
        "n_pulses": analog.n_pulses,
        "seconds": analog.seconds,
        "accuracy": {analog.name: analog.accuracy, exact.name: exact.accuracy},
        "costs": total(analog.tiles, preset("example")).as_dict(),
    }
