"""Golden cases of updates by a few samples in one launch.

They are cases of pulsed_update, cut into calls of a few samples each: the same names, the same
results, the same hashes, which there come from one batch and two kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import rpukit as rk
from rpukit.analog.update.few_samples import MOST_SAMPLES
from tests.golden.cases.case import Case, batch, put
from tests.golden.cases.devices import CELLS as DEVICES
from tests.golden.cases.tiles import UPDATES, tile_of

SHAPES = ((13, 132), (67, 257))
TRAINS = (
    *(("constant", how) for how in ("managed", "fixed_31", "rounded")),
    ("soft_write_noise", "managed"),
)
LEARNING = ("soft_reference", "exp", "exp_write_noise", "pow_reference", "piecewise_many")


def pulsed(shape: tuple[int, int], make: Callable[[str], rk.AnalogTile], seed: int):
    def run(device: str) -> list[Any]:
        tile = make(device)
        x, d = (put(v, device) for v in batch(shape, 40, seed))
        for k in range(0, 40, MOST_SAMPLES):
            tile.update(x[k : k + MOST_SAMPLES], d[k : k + MOST_SAMPLES], lr=0.1)
        tile.update(x[:1], d[:1], lr=-0.05)
        return [tile.get_weights(), np.array([tile.n_pulses])]

    return run


def named(shape: tuple[int, int], cell: str, how: str):
    return lambda device: tile_of(shape, cell, device, 2, update=UPDATES[how])


def modelled(shape: tuple[int, int], cell: rk.PulsedCell):
    return lambda device: rk.AnalogTile(shape, cell, device=device, seed=21)


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the name of its kernel."""
    for shape in SHAPES:
        at, small = f"{shape[0]}x{shape[1]}", shape[1] < 200
        for cell, how in TRAINS:
            run = pulsed(shape, named(shape, cell, how), 2)
            yield "pulsed_samples", Case(f"{cell}-{how}-{at}", run, small=small)
        for name in LEARNING:
            run = pulsed(shape, modelled(shape, DEVICES[name]), 21)
            yield "pulsed_samples", Case(f"{name}-{at}", run, small=small)
