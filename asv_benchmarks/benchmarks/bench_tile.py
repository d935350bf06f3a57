"""Forward, backward and update of a tile over sizes, batches and compute devices."""

import numpy as np

import rpukit as rk

from .common import DEVICES, require, synchronise


class Tile:
    params = ([512, 1024, 2048], [1, 32, 128], ["ConstantStep", "SoftBounds"], DEVICES)
    param_names = ["size", "n_batch", "cell", "device"]
    dtype = np.float32

    def setup(self, size, n_batch, cell, device):
        require(device)
        if device == "cpu" and size * size * n_batch > 1024**2 * 32:
            raise NotImplementedError("minutes on a CPU")
        rng = np.random.default_rng(0)
        self.tile = rk.AnalogTile(
            (size, size), getattr(rk, cell)(), seed=1, device=device, dtype=self.dtype
        )
        xp = rk._device.namespace_of(rk._device.parse_device(device))
        self.x = xp.asarray(rng.uniform(-1, 1, (n_batch, size)).astype(self.dtype))
        self.d = xp.asarray(rng.normal(0, 0.01, (n_batch, size)).astype(self.dtype))
        self.device = device
        self.run_all()

    def run_all(self):
        self.tile.forward(self.x)
        self.tile.backward(self.d)
        self.tile.update(self.x, self.d, lr=0.01)
        synchronise(self.device)

    def time_forward(self, *_):
        self.tile.forward(self.x)
        synchronise(self.device)

    def time_backward(self, *_):
        self.tile.backward(self.d)
        synchronise(self.device)

    def time_update(self, *_):
        self.tile.update(self.x, self.d, lr=0.01)
        synchronise(self.device)

    def track_bytes_per_cell(self, *_):
        """Memory of a tile for each of its cells."""
        arrays = self.tile.state()["arrays"].values()
        return sum(a.nbytes for a in arrays) / (self.tile.shape[0] * self.tile.shape[1])

    track_bytes_per_cell.unit = "bytes"


class TileOfFloat64(Tile):
    params = ([512, 1024], [1, 32], ["SoftBounds"], DEVICES)
    dtype = np.float64


class Product:
    """One product: no bound is met, all samples meet it, and backward."""

    params = ([512, 2048], [1, 8, 32, 128], ["forward", "retries", "backward"], DEVICES)
    param_names = ["size", "n_batch", "kind", "device"]

    def setup(self, size, n_batch, kind, device):
        require(device)
        if device == "cpu" and size * size * n_batch > 512**2 * 128:
            raise NotImplementedError("seconds on a CPU")
        rng = np.random.default_rng(0)
        weight = rng.uniform(-0.1, 0.1, (size, size)).astype(np.float32)
        x = rng.uniform(-1, 1, (n_batch, size)).astype(np.float32)
        if kind == "retries":
            weight, x = 6 * abs(weight), abs(x)
        xp = rk._device.namespace_of(rk._device.parse_device(device))
        tile = rk.AnalogTile((size, size), rk.Ideal(), device=device)
        tile.set_weights(xp.asarray(weight))
        self.product = tile.backward if kind == "backward" else tile.forward
        self.x, self.device = xp.asarray(x), device
        for _ in range(3):
            self.time_product()

    def time_product(self, *_):
        self.product(self.x)
        synchronise(self.device)
