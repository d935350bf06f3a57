"""The pulsed update over devices, bit lengths and batches, and its pulse trains alone."""

import numpy as np

import rpukit as rk

from .common import DEVICES, batch, put, require, synchronise

PARAMETERS = {
    "managed": rk.UpdateParameters(),
    "fixed": rk.UpdateParameters(update_management=False, update_bl_management=False),
    "mean_count": rk.UpdateParameters(pulse_type="mean_count"),
}


class Update:
    params = (
        [512, 1024],
        [1, 16, 128],
        ["ConstantStep", "SoftBounds", "ExpStep"],
        list(PARAMETERS),
        DEVICES,
    )
    param_names = ["size", "n_batch", "cell", "parameters", "device"]

    def setup(self, size, n_batch, cell, parameters, device):
        require(device)
        self.device = device
        self.tile = rk.AnalogTile(
            (size, size),
            getattr(rk, cell)(),
            update=PARAMETERS[parameters],
            seed=1,
            device=device,
        )
        self.x, self.d = batch(n_batch, size, device)
        self.time_update()

    def time_update(self, *_):
        self.tile.update(self.x, self.d, lr=0.01)
        synchronise(self.device)

    def track_pulses_per_cell(self, *_):
        """Pulses that a cell gets in one update, on average."""
        before = self.tile.n_pulses
        self.tile.update(self.x, self.d, lr=0.01)
        return (self.tile.n_pulses - before) / (self.tile.shape[0] * self.tile.shape[1])

    track_pulses_per_cell.unit = "pulses"


class Devices:
    """Every device model, one slot a sample and all of them; and the drawing of its cells."""

    params = (
        [
            "ConstantStep",
            "LinearStep",
            "SoftBounds",
            "SoftBoundsPmax",
            "SoftBoundsReference",
            "ExpStep",
            "PowStep",
            "PowStepReference",
            "PiecewiseStep",
        ],
        ["short", "long"],
        DEVICES,
    )
    param_names = ["cell", "trains", "device"]

    def setup(self, cell, trains, device):
        require(device)
        rng, self.device = np.random.default_rng(0), device
        self.cell = getattr(rk, cell)()
        self.tile = rk.AnalogTile((512, 512), self.cell, seed=1, device=device)
        self.x = put(rng.uniform(-1, 1, (16, 512)).astype(np.float32), device)
        largest, self.lr = (0.1, 0.01) if trains == "short" else (1, 0.1)
        self.d = put(rng.uniform(-largest, largest, (16, 512)).astype(np.float32), device)
        self.time_update()

    def time_update(self, *_):
        self.tile.update(self.x, self.d, self.lr)
        synchronise(self.device)

    def time_cell_planes(self, *_):
        rk.AnalogTile((512, 512), self.cell, seed=2, device=self.device)
        synchronise(self.device)


class OneSample:
    """Learning from one sample at a time: mostly the time of a call."""

    params = ([64, 512, 1024], ["ConstantStep", "ExpStep"], DEVICES)
    param_names = ["size", "cell", "device"]

    def setup(self, size, cell, device):
        require(device)
        self.device = device
        self.tile = rk.AnalogTile((size, size), getattr(rk, cell)(), seed=1, device=device)
        self.x, self.d = batch(1, size, device)
        self.time_update()

    def time_update(self, *_):
        self.tile.update(self.x, self.d, lr=0.01)
        synchronise(self.device)
