"""Stored cells beside those that are drawn when they are needed: memory, and time of an update."""

import rpukit as rk

from .common import DEVICES, batch, require, synchronise

CELLS = {
    "ConstantStep": rk.ConstantStep(),
    "SoftBounds": rk.SoftBounds(),
    "PowStep": rk.PowStep(),
    "ChoppedTransfer": rk.ChoppedTransfer(),
}


class Storage:
    params = ([1, 128], list(CELLS), ["stored", "procedural"], DEVICES)
    param_names = ["n_batch", "cell", "storage", "device"]

    def setup(self, n_batch, cell, storage, device):
        require(device)
        size = 1024
        self.device, self.given = device, ((size, size), CELLS[cell])
        self.tile = rk.AnalogTile(*self.given, seed=1, device=device, storage=storage)
        self.x, self.d = batch(n_batch, size, device)
        self.time_update()

    def time_update(self, *_):
        self.tile.update(self.x, self.d, lr=0.01)
        synchronise(self.device)

    def time_create(self, n_batch, cell, storage, device):
        rk.AnalogTile(*self.given, seed=1, device=device, storage=storage)
        synchronise(device)

    def track_bytes_per_cell(self, *_):
        """Memory that the tile keeps of each cell."""
        return self.tile.nbytes / (self.tile.shape[0] * self.tile.shape[1])

    track_bytes_per_cell.unit = "bytes"
