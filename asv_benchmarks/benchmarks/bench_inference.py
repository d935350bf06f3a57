"""Programming, drift and products of inference tiles over sizes and compute devices."""

import numpy as np

import rpukit as rk

from .common import DEVICES, put, require, synchronise


class Inference:
    params = ([512, 1024, 4096], ["PCMLike", "Hermes", "StateIndependent"], DEVICES)
    param_names = ["size", "noise", "device"]

    def setup(self, size, noise, device):
        require(device)
        if device == "cpu" and size > 1024:
            raise NotImplementedError("seconds on a CPU")
        rng = np.random.default_rng(0)
        model = getattr(rk.inference, noise)()
        modifier = rk.inference.WeightModifier(type="add_normal", std_dev=0.1)
        self.tile, self.learner = (
            rk.InferenceTile((size, size), noise=model, modifier=modifier, seed=1, device=device)
            for _ in range(2)
        )
        weight = put(rng.uniform(-1, 1, (size, size)).astype(np.float32), device)
        self.x = put(rng.uniform(-1, 1, (32, size)).astype(np.float32), device)
        self.device, self.number = device, 0
        self.learner.set_weights(weight).post_step()
        self.tile.set_weights(weight).program().drift_to(3600.0).forward(self.x)
        synchronise(device)

    def time_program(self, *_):
        self.tile.program()
        synchronise(self.device)

    def time_drift(self, *_):
        self.number = (self.number + 1) % 1000
        self.tile.drift_to(3600.0, number=self.number)
        synchronise(self.device)

    def time_forward(self, *_):
        self.tile.forward(self.x)
        synchronise(self.device)

    def time_modify(self, *_):
        self.learner.post_step()
        synchronise(self.device)

    def track_bytes_per_cell(self, *_):
        """Memory of a tile for each of its cells."""
        arrays = self.tile._arrays.values()
        return sum(a.nbytes for a in arrays) / (self.tile.shape[0] * self.tile.shape[1])

    track_bytes_per_cell.unit = "bytes"
