"""Costs, sliced tiles, converters with tables, wires, and networks on plain arrays."""

import numpy as np

import rpukit as rk
from rpukit import layers as L
from rpukit.crossbar import Adc, SlicedTile, Wires, effective_conductance

from .common import DEVICES, put, require, synchronise


class Totals:
    """Counts and costs of an array of 64 tiles."""

    def setup(self):
        self.array = rk.TileArray((512, 512), rk.ConstantStep(), tile_shape=(64, 64), seed=1)
        self.table = rk.costs.preset("example")
        self.time_total()

    def time_total(self):
        rk.costs.total(self.array, self.table)


class Slices:
    """A product of 64 samples in slices, and conversions with a table for each line."""

    params = ([64, 256], DEVICES)
    param_names = ["size", "device"]

    def setup(self, size, device):
        require(device)
        rng = np.random.default_rng(0)
        self.adc = Adc.of_kind("sar", 8, float(size), mismatch=0.02, n_line=size, seed=1)
        self.tile = SlicedTile((size, size), rk.Ideal(), adc=self.adc, device=device)
        self.tile.set_weights(put(rng.uniform(-1, 1, (size, size)).astype(np.float32), device))
        self.x = put(rng.uniform(-1, 1, (64, size)).astype(np.float32), device)
        self.time_forward(size, device)

    def time_forward(self, size, device):
        self.tile.forward(self.x)
        synchronise(device)

    def time_convert(self, size, device):
        self.adc.convert(self.x)
        synchronise(device)


class Nodes:
    """Nodal analysis of a crossbar."""

    params = [32, 128]
    param_names = ["size"]

    def setup(self, size):
        self.g = np.random.default_rng(0).uniform(0, 2e-5, (size, size))
        self.time_solve(size)

    def time_solve(self, size):
        effective_conductance(self.g, Wires(r_in=1.0, r_out=1.0))


class Convolutions:
    """A step of a small convolutional network with 10 images."""

    params = [DEVICES]
    param_names = ["device"]

    def setup(self, device):
        require(device)
        options = {"cell": rk.ConstantStep(), "device": device}
        self.net = L.Network(
            [
                L.Conv2d(1, 8, 3, padding=1, seed=1, **options),
                L.Tanh(),
                L.MaxPool2d(2),
                L.Flatten(),
                L.Dense(128, 10, seed=2, **options),
            ]
        )
        images = np.random.default_rng(0).normal(size=(10, 1, 8, 8)).astype(np.float32)
        self.x, self.y = put(images, device), put(np.arange(10, dtype=np.int32), device)
        self.time_learn(device)

    def time_learn(self, device):
        self.net.learn(self.x, self.y, 0.02)
        synchronise(device)
