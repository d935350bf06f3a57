"""A small transformer language model, fine-tuned hardware-aware and aged over a year.

    python -m rpukit.torch.examples.transformer [--epochs 6] [--seeds 3] [--figure FILE]

The projections of attention and the feed-forward layers are in PCM-like cells; embedding, norms
and the head are digital. The head's log-probabilities are those of `rk.torch.linear_logprob`,
whose bits do not depend on the batch that a character is in. The figure of merit is the
cross-entropy of a character of other sentences, in bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from rpukit.torch._torch import torch
from rpukit.torch.conversion import convert
from rpukit.torch.examples import common, text
from rpukit.torch.examples.resnet import AWARE, PLAIN
from rpukit.torch.optim import AnalogAdam
from rpukit.torch.products import linear_logprob
from rpukit.torch.weight import AnalogWeight

__all__ = ["LanguageModel", "main"]

Tensor = Any
nn = torch.nn
N_LETTER, LENGTH, BATCH = len(text.ALPHABET), 32, 16


class LanguageModel(torch.nn.Module):  # type: ignore[misc]
    """Characters and places, two layers of causal attention, a digital head."""

    def __init__(self, width: int = 32, n_head: int = 4, n_layer: int = 2) -> None:
        super().__init__()
        self.letters = nn.Embedding(N_LETTER, width)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(
            width, n_head, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, n_layer, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Parameter(torch.randn(N_LETTER, width) / math.sqrt(width))

    def forward(self, letters: Tensor) -> Tensor:
        """Compute the hidden states, (n, length, width)."""
        n = letters.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(n)
        h = self.letters(letters) + self.places[:n]
        return self.norm(self.body(h, mask=mask, is_causal=True))

    def log_probabilities(self, letters: Tensor, targets: Tensor) -> Tensor:
        """Compute the log-probability of each next character, (n * length,)."""
        hidden = self(letters).flatten(0, 1)
        return linear_logprob(hidden, self.head, targets.flatten())


def bits(model: Any, letters: Tensor) -> float:
    """Compute the mean cross-entropy of a character, in bits."""
    n = len(letters) // (LENGTH + 1) * (LENGTH + 1)
    pieces = letters[:n].reshape(-1, LENGTH + 1)
    model.eval()
    with torch.no_grad():
        found = model.log_probabilities(pieces[:, :-1], pieces[:, 1:])
    return -float(found.mean()) / math.log(2)


def main(arguments: Sequence[str] | None = None) -> common.Table:
    """Train, program and age the models; print the table."""
    given = common.parsed(common.options(__doc__, epochs=6), arguments)
    n_step = 2 if given.quick else 100
    letters, test = (text.encoded(text.sentences(n, seed=n)) for n in (600, 80))
    score, trained = partial(bits, letters=test), {}

    def train(model: Any, seed: int, tile_lr: float) -> Any:
        tiles = [p for p in model.parameters() if isinstance(p, AnalogWeight)]
        rest = [p for p in model.parameters() if not isinstance(p, AnalogWeight)]
        groups = [{"params": rest}, *([{"params": tiles, "lr": tile_lr}] if tiles else [])]
        optimiser = AnalogAdam(groups, lr=3e-3)
        draw = torch.Generator().manual_seed(seed)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, given.epochs)
        for _ in range(given.epochs):
            model.train()
            for x, y in text.batches(letters, LENGTH, BATCH, draw, n_step):
                optimiser.zero_grad()
                (-model.log_probabilities(x, y).mean()).backward()
                optimiser.step()
            schedule.step()
        return model

    def digital(seed: int) -> list[float]:
        torch.manual_seed(seed)
        trained[seed] = train(LanguageModel(), seed, 0.0)
        return [score(trained[seed])] * len(common.AGES)

    def plain(seed: int) -> list[float]:
        return common.aged(convert(trained[seed], PLAIN, seed=seed), score)

    def aware(seed: int) -> list[float]:
        model = convert(trained[seed], AWARE, seed=seed)
        return common.aged(train(model, seed, 0.05), score)

    seeds = range(given.seeds)
    table = common.Table("Transformer on PCM-like cells", "bits a character", ticks=common.AGES)
    table.run("digital", seeds, digital)
    table.run("programmed as it is", seeds, plain)
    table.run("fine-tuned hardware-aware", seeds, aware)
    if given.figure:
        table.draw(given.figure, "time after programming")
    return table


if __name__ == "__main__":
    main()
