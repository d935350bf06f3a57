"""Updates of cells that hold several arrays: the transfer family, mixed precision."""

import numpy as np

import rpukit as rk

from .common import DEVICES, put, require, synchronise

PAIR = (rk.SoftBounds(), rk.SoftBounds())
CELLS = {
    "Transfer": rk.Transfer(devices=PAIR, units_in_mbatch=False),
    "BufferedTransfer": rk.BufferedTransfer(devices=PAIR, units_in_mbatch=False),
    "ChoppedTransfer": rk.ChoppedTransfer(devices=PAIR),
    "DynamicTransfer": rk.DynamicTransfer(devices=PAIR),
    "MixedPrecision": rk.MixedPrecision(device=PAIR[0]),
    "MixedPrecision, bins": rk.MixedPrecision(device=PAIR[0], n_x_bins=16, n_d_bins=16),
}


class Compounds:
    """A transfer after every sample; with mixed precision, after every mini-batch."""

    params = ([128, 512], [1, 32], list(CELLS), DEVICES)
    param_names = ["size", "n_batch", "cell", "device"]

    def setup(self, size, n_batch, cell, device):
        require(device)
        rng = np.random.default_rng(0)
        self.device = device
        self.tile = rk.AnalogTile((size, size), CELLS[cell], seed=1, device=device)
        self.x = put(rng.uniform(-1, 1, (n_batch, size)).astype(np.float32), device)
        self.d = put(rng.normal(0, 0.01, (n_batch, size)).astype(np.float32), device)
        self.time_update()

    def time_update(self, *_):
        self.tile.update(self.x, self.d, lr=0.01)
        synchronise(self.device)
