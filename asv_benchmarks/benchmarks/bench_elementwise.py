"""Elementwise operations: random numbers, mathematics, the loss of the demo."""

import numpy as np

import rpukit as rk

from .common import DEVICES, put, require, synchronise

SIZES = [1 << 12, 1 << 16, 1 << 20]


class RandomFill:
    params = (SIZES, ["uniform", "normal", "bits"], DEVICES)
    param_names = ["size", "kind", "device"]

    def setup(self, size, kind, device):
        require(device)
        self.stream = rk.Stream.from_seed(1)
        self.time_fill(size, kind, device)

    def time_fill(self, size, kind, device):
        rk.elementwise.random_fill(self.stream, (size,), kind, device=device)
        synchronise(device)


class Maths:
    params = (["exp", "log", "tanh", "normal_quantile"], SIZES, ["float32", "float64"], DEVICES)
    param_names = ["function", "size", "dtype", "device"]

    def setup(self, function, size, dtype, device):
        require(device)
        self.function = getattr(rk.elementwise, function)
        self.x = put(((np.arange(size) + 0.5) / size).astype(dtype), device)
        self.out = self.function(self.x)
        synchronise(device)

    def time_map(self, function, size, dtype, device):
        self.function(self.x, out=self.out)
        synchronise(device)


class SoftmaxCrossEntropy:
    params = ([32, 1024], [10, 1000], DEVICES)
    param_names = ["n_batch", "n_class", "device"]

    def setup(self, n_batch, n_class, device):
        require(device)
        draws = rk.elementwise.random_fill(rk.Stream.from_seed(2), (n_batch, n_class), "normal")
        self.logits = put(draws, device)
        self.labels = put(np.arange(n_batch, dtype=np.int32) % n_class, device)
        self.time_loss(n_batch, n_class, device)

    def time_loss(self, n_batch, n_class, device):
        rk.elementwise.softmax_cross_entropy(self.logits, self.labels)
        synchronise(device)
