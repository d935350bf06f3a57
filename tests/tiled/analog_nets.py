"""A small network of analog tiles, as a training graph."""

from __future__ import annotations

import numpy as np

import rpukit as rk
from rpukit import tiled

NOISY = rk.IOParameters(inp_noise=0.02, out_noise=0.05, out_noise_std=0.3, out_sto_round=True)
# Weights and inputs that need several rounds of bound management
TIGHT = rk.IOParameters(out_bound=0.4, bound_management="iterative_worst_case")
TILES = {
    "constant": (rk.ConstantStep(dw_min=0.01), rk.IOParameters(out_bound=0.5), {"desired_bl": 50}),
    "counts": (rk.ConstantStep(dw_min=0.01), TIGHT, {"pulse_type": "MEAN_COUNT"}),
    "ideal": (rk.Ideal(), rk.IOParameters(is_perfect=True), {}),
}


def make(name, shape, seed):
    cell, io, update = TILES[name]
    parameters = rk.UpdateParameters(**update)
    tile = rk.AnalogTile(shape, cell, forward=io, backward=NOISY, update=parameters, seed=seed)
    rng = np.random.default_rng(seed)
    return tile.set_weights(rng.uniform(-0.3, 0.3, shape).astype(np.float32))


def built(name, sizes=(12, 9, 5)):
    """Two tiles with a rectifier between, data for three steps, and the tiles themselves."""
    n_in, n_hidden, n_out = sizes
    tiles = [make(name, (n_hidden, n_in), 3), make(name, (n_out, n_hidden), 4)]
    b = tiled.Builder("analog")
    x = b.input("x", (6, n_in))
    h = b.apply("Relu", b.analog(x, tiles[0], lr=0.1, name="first"), name="h")
    y = b.analog(h, tiles[1], lr=0.2, name="second")
    loss = b.apply("MSELoss", y, b.input("t", (6, n_out)), name="loss")
    rng = np.random.default_rng(1)
    steps = [(rng.normal(size=(6, n_in)), rng.normal(size=(6, n_out))) for _ in range(3)]
    steps[0][0][2] = 0  # a sample of nothing
    return b.training(loss), [(x.astype("f4"), t.astype("f4")) for x, t in steps], tiles
