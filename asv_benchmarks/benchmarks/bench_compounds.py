"""Updates of cells that hold several arrays: the transfer family, mixed precision."""

import rpukit as rk

from .common import DEVICES, batch, require, synchronise

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
        self.device = device
        self.tile = rk.AnalogTile((size, size), CELLS[cell], seed=1, device=device)
        self.x, self.d = batch(n_batch, size, device)
        self.time_update()

    def time_update(self, *_):
        self.tile.update(self.x, self.d, lr=0.01)
        synchronise(self.device)
