"""Rounds of bound management: forecasts that come true and that do not, of few and many samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import rpukit as rk
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import uniform

SHAPE = (68, 36)
BOUNDS = {"few": 0.04, "some": 0.5, "late": 0.012}


def rounds(numbers, bound, management, dtype="float32"):
    """Inputs of sizes from 1/64 to 1; the third is 0. Unscaled ones are clipped."""

    def run(device):
        io = rk.IOParameters(out_bound=bound, noise_management=management)
        tile = rk.AnalogTile(SHAPE, rk.Ideal(), forward=io, device=device, seed=81, dtype=dtype)
        w = uniform(SHAPE, 82) / np.float32(8)
        w[:, ::7] *= -1
        tile.set_weights(put(w.astype(dtype), device))
        made = []
        for n in numbers:
            sizes = np.float32(2) ** -np.floor(uniform((n, 1), 84) * np.float32(7))
            x = uniform((n, SHAPE[1]), 83) * sizes
            x[2:3] = 0
            x = x if management == "abs_max" else x * np.float32(6)
            made.append(tile.forward(put(x.astype(dtype), device), first_sample=2**33))
        return made

    return run


def cases() -> Iterator[tuple[str, Case]]:
    for name, bound in BOUNDS.items():
        for management in ("abs_max", "none"):
            for some, numbers in (("6", (1, 6)), ("20", (9, 20, 32)), ("listed", (33, 40))):
                run = rounds(numbers, bound, management)
                yield "tile_forward", Case(f"rounds-{name}-{management}-{some}", run)
