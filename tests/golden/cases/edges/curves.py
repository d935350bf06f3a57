"""Conductances at the nodes of tables, and where curves end; arrays of no whole vectors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import rpukit as rk
from tests.golden.cases.case import Case, put

NOISES = {
    "nodes": rk.inference.Measured(
        g_max=32.0,
        g_nodes=(0.0, 8.0, 16.0, 32.0),
        nu_mean=(0.75, 0.0123456, 0.5432, 0.001234),
        nu_std=(0.3, 0.0012345, 0.2, 0.00077),
        read_std=(0.25, 0.0054321, 0.125, 0.0321),
    ),
    "ends": rk.inference.Hermes(g_max=16.0, prog_noise_scale=0.0),
}
WEIGHTS = {
    "nodes": [[0.0, 0.25, 0.5], [1.0, -0.5, -1.0]],
    "ends": [[0.0945, 0.3055, 0.16], [1.0, -0.0945, -0.16]],
}


def held(device, name):
    """A programmed tile, and its weights after a day."""
    tile = rk.InferenceTile((2, 3), seed=19, device=device, noise=NOISES[name])
    tile.set_weights(put(np.array(WEIGHTS[name], np.float32), device)).program(event=5)
    found = [tile.conductances.copy()]
    return [*found, tile.drift_to(86400.0, number=3).get_weights()]


def cases() -> Iterator[tuple[str, Case]]:
    for name in NOISES:
        for kernel in ("program_conductance", "drift_conductance"):
            yield kernel, Case(f"curves-{name}", partial(held, name=name))
