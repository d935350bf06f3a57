"""An LSTM that predicts the next character of a text, with its weights in tiles.

    python -m rpukit.torch.examples.lstm [--epochs 4] [--seeds 3] [--figure lstm.png]

The text has sentences of a small grammar. The matrices of the LSTM and of the head are in tiles
and learn by pulses: with constant steps, and by Tiki-Taka v2 on EcRam devices. The figure of merit
is the cross-entropy of a character, in bits, on other sentences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from rpukit.analog.cells import ConstantStep
from rpukit.presets import config
from rpukit.torch._torch import torch
from rpukit.torch.conversion import convert
from rpukit.torch.examples import common, text
from rpukit.torch.functional import cross_entropy
from rpukit.torch.optim import AnalogSGD

__all__ = ["CELLS", "Reader", "main"]

Tensor = Any
nn = torch.nn
N_LETTER, LENGTH, BATCH = len(text.ALPHABET), 32, 16
# Cell and learning rate.
CELLS: dict[str, Any] = {
    "digital": (None, 5.0),
    "constant steps": (ConstantStep(dw_min=0.001), 5.0),
    "EcRam, Tiki-Taka v2": (config("TTv2EcRam"), 0.5),
}


class Reader(torch.nn.Module):  # type: ignore[misc]
    """One-hot characters, an LSTM, logits of the next character."""

    def __init__(self, hidden: int = 48) -> None:
        super().__init__()
        self.lstm = nn.LSTM(N_LETTER, hidden, batch_first=True)
        self.head = nn.Linear(hidden, N_LETTER)

    def forward(self, letters: Tensor) -> Tensor:
        """Compute the logits after each character, (n, length, n_letter)."""
        h, _ = self.lstm(nn.functional.one_hot(letters, N_LETTER).float())
        return self.head(h)


def bits(model: Any, letters: Tensor) -> float:
    """Compute the mean cross-entropy of a character, in bits."""
    n = len(letters) // (LENGTH + 1) * (LENGTH + 1)
    pieces = letters[:n].reshape(-1, LENGTH + 1)
    model.eval()
    with torch.no_grad():
        logits = model(pieces[:, :-1]).reshape(-1, N_LETTER)
        found = cross_entropy(logits, pieces[:, 1:].reshape(-1))
    return float(found) / math.log(2)


def main(arguments: Sequence[str] | None = None) -> common.Table:
    """Train all networks and print the table."""
    given = common.parsed(common.options(__doc__, epochs=4), arguments)
    n_step = 4 if given.quick else 50
    train, test = (text.encoded(text.sentences(n, seed=n)) for n in (600, 80))

    def one(cell: Any, rate: float, seed: int) -> list[float]:
        torch.manual_seed(seed)
        model = Reader()
        model = model if cell is None else convert(model, cell, seed=seed)
        optimiser = AnalogSGD(model.parameters(), lr=rate)
        draw, curve = torch.Generator().manual_seed(seed), []
        for _ in range(given.epochs):
            model.train()
            for x, y in text.batches(train, LENGTH, BATCH, draw, n_step):
                optimiser.zero_grad()
                cross_entropy(model(x).reshape(-1, N_LETTER), y.reshape(-1)).backward()
                if cell is None:
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
            curve.append(bits(model, test))
        return curve

    table = common.Table("LSTM on sentences of a grammar", "bits a character")
    for name, (cell, rate) in CELLS.items():
        table.run(name, range(given.seeds), partial(one, cell, rate))
    if given.figure:
        table.draw(given.figure, f"epochs of {n_step} steps")
    return table


if __name__ == "__main__":
    main()
