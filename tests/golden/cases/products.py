"""Golden cases of products of large batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import rpukit as rk
from rpukit.elementwise import random_fill
from tests.golden.cases.case import Case, put
from tests.golden.cases.tiles import PRODUCTS

SHAPE, N = (1028, 1024), 128  # from here on det_gemm makes the sums


def products(io: str) -> Callable[[str], list[Any]]:
    """Seven samples meet the default bound, most of them a smaller one."""

    def run(device: str) -> list[Any]:
        stream = rk.Stream.from_seed(8)
        tile = rk.AnalogTile(
            SHAPE, rk.Ideal(), forward=PRODUCTS[io], backward=PRODUCTS[io], device=device, seed=8
        )
        w = (random_fill(stream.child(1), SHAPE, "uniform") - np.float32(0.5)) * np.float32(0.3)
        tile.set_weights(put(w, device))
        x, d = (
            random_fill(stream.child(2 + k), (N, SHAPE[1 - k]), "uniform") - np.float32(0.5)
            for k in (0, 1)
        )
        x[:7] = abs(x[:7]) * np.sign(w[:7])  # large outputs
        x[7] = 0
        return [tile.forward(put(x, device)), tile.backward(put(d, device))]

    return run


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the name of its kernel."""
    for io in ("default", "small_bound", "worst_case"):
        yield "tile_outputs", Case(f"{io}-batch{N}", products(io), small=io == "default")
