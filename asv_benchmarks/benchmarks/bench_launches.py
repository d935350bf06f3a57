"""Launches of one call, counted without a GPU and without running them: exact on every machine."""

import numpy as np

import rpukit as rk
from rpukit.testing import on_cpu, set_runner


def forward(tile, x, d):
    return lambda: tile.forward(x)


def backward(tile, x, d):
    return lambda: tile.backward(d)


def update(tile, x, d):
    return lambda: tile.update(x, d, lr=0.01)


def product(tile, x, d):
    weight = np.ones(tile.shape, np.float32)
    return lambda: rk.det_gemm(x, weight, trans_b=True)


def flows(tile, x, d):
    pc = rk.Circuit(rk.circuits.hmm(8, 64, 20), seed=0)
    codes = np.zeros((len(x), 8), np.int64)
    return lambda: pc.accumulate(codes)


CALLS = {
    "AnalogTile.forward": forward,
    "AnalogTile.backward": backward,
    "AnalogTile.update": update,
    "det_gemm": product,
    "Circuit.accumulate": flows,
}


class Launches:
    """Launches of the second call: the first one prepares tables."""

    params = (list(CALLS), [1, 8, 32, 128])
    param_names = ["call", "n_batch"]

    def setup(self, call, n_batch):
        tile = rk.AnalogTile((64, 64), rk.SoftBounds(), seed=1)
        x, d = np.ones((n_batch, 64), np.float32), np.full((n_batch, 64), 0.1, np.float32)
        body, names = CALLS[call](tile, x, d), []
        set_runner(lambda variant, *_: names.append(variant.entry))
        try:
            with on_cpu():
                body()
                names.clear()
                body()
        finally:
            set_runner(None)
        self.names = names

    def track_launches(self, *_):
        return len(self.names)

    track_launches.unit = "launches"
