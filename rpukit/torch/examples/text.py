"""Text for the examples: sentences of a small grammar, and their characters as numbers."""

from __future__ import annotations

import random
from typing import Any

from rpukit.torch._torch import torch

__all__ = ["ALPHABET", "batches", "encoded", "sentences"]

Tensor = Any
ALPHABET = " .abcdefghijklmnopqrstuvwxyz"
_WHO = ("the baker", "a sailor", "my sister", "the old judge", "a young fox", "our teacher")
_DOES = ("sees", "paints", "follows", "forgets", "carries", "admires")
_WHAT = ("the river", "a small lamp", "seven stones", "the garden wall", "his letter", "a song")
_WHERE = ("at night", "in the rain", "behind the mill", "near the harbour", "before dawn")


def sentences(n: int, seed: int = 0) -> str:
    """Write sentences; each word of a kind is as likely as the others."""
    draw = random.Random(seed)
    parts = (_WHO, _DOES, _WHAT, _WHERE)
    return " ".join(" ".join(draw.choice(words) for words in parts) + "." for _ in range(n))


def encoded(text: str) -> Tensor:
    """Return the number of each character, int64."""
    return torch.tensor([ALPHABET.index(letter) for letter in text])


def batches(text: Tensor, length: int, batch: int, generator: Any, n: int) -> Any:
    """Yield pieces of a text and their next characters, (batch, length) each."""
    for _ in range(n):
        starts = torch.randint(len(text) - length - 1, (batch,), generator=generator).tolist()
        pieces = torch.stack([text[s : s + length + 1] for s in starts])
        yield pieces[:, :-1], pieces[:, 1:]
