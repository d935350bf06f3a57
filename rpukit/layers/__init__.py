"""Networks of tiles without a framework: convolutions, pooling and dense layers on plain arrays.

>>> import numpy as np, rpukit as rk
>>> L, cell = rk.layers, rk.SoftBounds()
>>> net = L.Network(
...     [L.Conv2d(1, 4, 3, cell, seed=1), L.Tanh(), L.MaxPool2d(2), L.Flatten()]
...     + [L.Dense(36, 10, cell, seed=2)]
... )
>>> net.forward(np.ones((5, 1, 8, 8), np.float32)).shape
(5, 10)
"""

from rpukit.layers.network import Network
from rpukit.layers.plain import AvgPool2d, Flatten, Layer, MaxPool2d, ReLU, Tanh
from rpukit.layers.weights import Conv2d, Dense, TileLayer

__all__ = [
    "AvgPool2d",
    "Conv2d",
    "Dense",
    "Flatten",
    "Layer",
    "MaxPool2d",
    "Network",
    "ReLU",
    "Tanh",
    "TileLayer",
]
