"""A small LeNet on scanned digits: SoftBounds devices by plain SGD, and by Tiki-Taka v2 to v4.

    python -m rpukit.torch.examples.lenet [--epochs 12] [--seeds 3] [--figure lenet.png] [--hash]

All weights and biases are in tiles. The step of a SoftBounds device falls towards its bound b on
the way up and grows on the way down: with n pulses in each direction, a weight w loses about
``2 n dw_min w / b``. So plain SGD ends where w / b is the mean of a sample's gradient over the
mean of its absolute value, and not where the mean gradient is 0. Gradients of single samples are
mostly noise, and so these weights stay near 0, whatever the learning rate is. They need a wide
range, so that w / b is small; or Tiki-Taka, where only the fast device suffers from this, and its
weights are transferred to a slow one. ``--hash`` prints the hash of the weights after one epoch,
the same on every CPU and GPU and for mini-batches in any parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

from rpukit.analog.cells import SoftBounds
from rpukit.analog.cells.chopped_transfer import ChoppedTransfer, DynamicTransfer
from rpukit.torch._torch import torch
from rpukit.torch.conversion import convert
from rpukit.torch.examples import common
from rpukit.torch.functional import cross_entropy, tanh
from rpukit.torch.optim import AnalogSGD
from rpukit.torch.settings import AnalogSettings

__all__ = ["CELLS", "Tanh", "epoch_hash", "lenet", "main"]

PAIR = (SoftBounds(), SoftBounds())


def transfer(kind: Any, *, chop: float, fast_lr: float) -> Any:
    """Make a cell of two devices whose rates follow the gradients."""
    managed = {"auto_granularity": 500.0, "auto_scale": True}
    return kind(devices=PAIR, in_chop_prob=chop, fast_lr=fast_lr, **managed)


CELLS: dict[str, Any] = {
    "digital": None,
    "SoftBounds": SoftBounds(),
    "SoftBounds, 5 times the range": SoftBounds(w_max=3.0, w_min=-3.0),
    "SoftBounds, Tiki-Taka v2": transfer(ChoppedTransfer, chop=0.0, fast_lr=0.1),
    "SoftBounds, Tiki-Taka v3": transfer(ChoppedTransfer, chop=0.001, fast_lr=0.1),
    "SoftBounds, Tiki-Taka v4": transfer(DynamicTransfer, chop=0.01, fast_lr=0.5),
}
BATCH, RATE = 16, 0.1


class Tanh(torch.nn.Module):  # type: ignore[misc]
    """The hyperbolic tangent with the same bits on CPU and GPU."""

    def forward(self, x: Any) -> Any:
        """Compute it for each element."""
        return tanh(x)


def lenet(cell: Any, seed: int) -> Any:
    """Make the network; its weights are in tiles unless the cell is None."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 8, 3, padding=1), Tanh(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Conv2d(8, 16, 3, padding=1), Tanh(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Linear(64, 32), Tanh(), torch.nn.Linear(32, 10)),
    )
    if cell is None:
        return model
    return convert(model, AnalogSettings(cell=cell, analog_bias=True), seed=seed)


def epoch_hash(
    *, n_part: int = 1, device: str = "cpu", cell: Any = None, n_step: int | None = None
) -> str:
    """Train for an epoch, or some steps, and hash the weights; mini-batches may come in parts."""
    found = CELLS["SoftBounds, 5 times the range"] if cell is None else cell
    data, model = common.digits(), lenet(found, 0).to(device)
    optimiser = AnalogSGD(model.parameters(), lr=RATE)
    for rows in islice(common.order(len(data.x), BATCH, 0, 0), n_step):
        optimiser.zero_grad()
        for part in rows.chunk(n_part):
            x, y = data.x[part].to(device), data.y[part].to(device)
            loss = cross_entropy(model(x), y, reduction="sum")
            (loss / len(rows)).backward()
        optimiser.step()
    return common.sha256(model)


def main(arguments: Sequence[str] | None = None) -> common.Table:
    """Train all networks and print the table."""
    parser = common.options(__doc__, epochs=12)
    parser.add_argument("--hash", action="store_true", help="the hash after one epoch")
    parser.add_argument("--device", default="cpu", help="of the epoch that is hashed")
    given = common.parsed(parser, arguments)
    table = common.Table("LeNet on digits, 8 x 8", "accuracy")
    if given.hash:
        print(epoch_hash(device=given.device))
        return table
    data = common.digits()

    def one(cell: Any, seed: int) -> list[float]:
        model, curve = lenet(cell, seed), []
        optimiser = AnalogSGD(model.parameters(), lr=RATE)
        for epoch in range(given.epochs):
            rows = common.order(len(data.x), BATCH, seed, epoch)
            common.train_epoch(model, optimiser, data, rows)
            curve.append(common.accuracy(model, data))
        return curve

    for name, cell in CELLS.items():
        table.run(name, range(given.seeds), partial(one, cell))
    if given.figure:
        table.draw(given.figure, "epoch")
    return table


if __name__ == "__main__":
    main()
