"""Matrices over tiles, layers for PyTorch, split tiles, statistics that travel between workers."""

import importlib.util

import numpy as np

import rpukit as rk

from .common import DEVICES, batch, require, synchronise


class Arrays:
    params = ([256, 1024], ["ConstantStep", "SoftBounds"], DEVICES)
    param_names = ["size", "cell", "device"]

    def setup(self, size, cell, device):
        require(device)
        made = getattr(rk, cell)()
        self.array = rk.TileArray((size, size), made, tile_shape=(256, 256), seed=1, device=device)
        self.x, self.d = batch(32, size, device)
        self.device = device
        self.array.update(self.x, self.d, lr=0.01)
        self.array.forward(self.x)
        synchronise(device)

    def time_forward(self, *_):
        self.array.forward(self.x)
        synchronise(self.device)

    def time_update(self, *_):
        self.array.update(self.x, self.d, lr=0.01)
        synchronise(self.device)


class Layers:
    """A small LeNet on digits: evaluation, and a whole training step."""

    params = (["ConstantStep", "ChoppedTransfer"], DEVICES)
    param_names = ["cell", "device"]

    def setup(self, cell, device):
        require(device)
        if importlib.util.find_spec("torch") is None:
            raise NotImplementedError("no PyTorch")
        import torch

        from rpukit.torch import optim
        from rpukit.torch.examples.lenet import lenet

        where = "cpu" if device == "cpu" else "cuda"
        self.torch, self.device = torch, device
        self.model = lenet(getattr(rk, cell)(), 0).to(where)
        self.optimiser = optim.AnalogSGD(self.model.parameters(), lr=0.01)
        self.x = torch.rand(16, 1, 8, 8, device=where)
        self.y = torch.arange(16, device=where) % 10
        self.time_step()
        self.captured = rk.torch.captured_step(self.model, rk.torch.cross_entropy, self.optimiser)
        for _ in range(6):  # three are compared, and on a GPU the next one is captured
            self.captured(self.x, self.y)

    def time_captured_step(self, *_):
        self.captured(self.x, self.y)
        synchronise(self.device)

    def time_forward(self, *_):
        with self.torch.no_grad():
            self.model(self.x)
        synchronise(self.device)

    def time_step(self, *_):
        self.optimiser.zero_grad()
        rk.torch.cross_entropy(self.model(self.x), self.y).backward()
        self.optimiser.step()
        synchronise(self.device)


class Sharded:
    params = ([1, 2, 4],)
    param_names = ["blocks"]

    def setup(self, blocks):
        self.tile = rk.ShardedTile((512, 512), rk.ConstantStep(), ("cpu",) * blocks, seed=1)
        self.x, self.d = batch(32, 512, "cpu")
        self.tile.update(self.x, self.d, lr=0.01)
        self.tile.forward(self.x)

    def time_forward(self, blocks):
        self.tile.forward(self.x)

    def time_update(self, blocks):
        self.tile.update(self.x, self.d, lr=0.01)


class Partials:
    params = ([8, 64],)
    param_names = ["states"]

    def setup(self, states):
        self.x = np.random.default_rng(0).integers(0, 5, (512, 16))
        self.circuit = rk.Circuit(rk.circuits.hmm(16, states, 5), seed=1)
        self.parts = self.circuit.partials(self.x, first_sample=0)

    def time_partials(self, states):
        self.circuit.partials(self.x, first_sample=0)

    def track_bytes_per_block(self, states):
        """Bytes of the statistics of a block of 256 samples."""
        chains = (self.parts.chains, self.parts.leaf_chains)
        return sum(np.asarray(a).nbytes for a in chains) / 2

    track_bytes_per_block.unit = "bytes"
