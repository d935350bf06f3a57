"""Small training graphs whose tiles are timed: most ops, each in tiles of several sizes."""

from __future__ import annotations

import numpy as np

from rpukit.analog import AnalogTile, ConstantStep, IOParameters
from rpukit.tiled.graph.builder import Builder
from rpukit.tiled.graph.make import Graph
from rpukit.tiled.graph.optimisers import Adam, MomentumSGD
from rpukit.tiled.ir import Training

__all__ = ["Probe", "analog", "dense", "images", "products"]

Probe = tuple[Training, tuple[np.ndarray, ...]]  # a training graph, and a mini-batch


def products(rows: int, columns: tuple[int, ...], depths: tuple[int, ...]) -> Graph:
    """Make a graph of products with results of `rows` rows, by columns and length of the sum."""
    b, names = Builder("products"), []
    for depth in depths:
        a = b.input(f"a{depth}", (rows, depth))
        for n in columns:
            name = f"product{n}x{depth}"
            names.append(b.apply("Gemm", a, b.input(f"b{n}x{depth}", (depth, n)), name=name))
    tiny = b.apply("Gemm", b.input("c", (1, 1)), b.input("d", (1, 1)), name="launch")
    return b.graph(*names, tiny)


def dense(rows: int, width: int, seed: int = 0) -> Probe:
    """Make a network of dense layers with attention within groups of 16 rows, and many maps."""
    rng = np.random.default_rng(seed)
    b, group = Builder("dense"), min(rows, 16)
    x = b.input("x", (rows, width))
    y = b.input("y", (rows, width))

    def matrix(name: str) -> str:
        return b.parameter(name, rng.standard_normal((width, width), np.float32) / width**0.5)

    h = b.apply("Gemm", x, matrix("w0"), b.parameter("c0", np.zeros(width)), transB=1)
    for op in ("Gelu", "Tanh", "Sigmoid", "HardSwish", "Erf", "Relu"):
        h = b.apply(op, h)
    h = b.apply(
        "LayerNormalization",
        h,
        b.parameter("g", np.ones(width)),
        b.parameter("z", np.zeros(width)),
    )
    t = b.apply("Reshape", h, shape=(rows // group, group, width))
    u = b.apply("MatMul", t, matrix("w1"))
    s = b.apply("Softmax", b.apply("MatMul", u, b.apply("Transpose", t, perm=(0, 2, 1))), axis=-1)
    t = b.apply("Mul", b.apply("Add", b.apply("MatMul", s, u), t), t)
    h = b.apply("Gemm", b.apply("Reshape", t, shape=(rows, width)), matrix("w2"), transB=1)
    training = b.training(b.apply("MSELoss", h, y), Adam(lr=1e-4))
    batch = rng.standard_normal((2, rows, width), np.float32)
    return training, (batch[0], batch[1])


def images(n: int, channels: int, side: int, seed: int = 0) -> Probe:
    """Make a network of convolutions and pools with a loss of labels."""
    rng = np.random.default_rng(seed)
    b = Builder("images")
    x, labels = b.input("x", (n, channels, side, side)), b.input("labels", (n,), np.int64)
    h = x
    for k, kernel in enumerate((3, 1)):
        shape = (channels, channels, kernel, kernel)
        w = b.parameter(f"w{k}", rng.standard_normal(shape, np.float32) * 0.1)
        h = b.apply("Conv", h, w, pads=(kernel // 2,) * 4)
        ones, zeros = np.ones(channels), np.zeros(channels)
        own = b.parameter(f"scale{k}", ones), b.parameter(f"bias{k}", zeros)
        fixed = b.constant(f"mean{k}", zeros), b.constant(f"variance{k}", ones)
        h = b.apply("Relu", b.apply("BatchNormInternal", h, *own, *fixed))
    h = b.apply("MaxPool", h, kernel_shape=(2, 2), strides=(2, 2))
    h = b.apply("AveragePool", h, kernel_shape=(2, 2), strides=(2, 2))
    h = b.apply("Flatten", b.apply("GlobalAveragePool", h))
    v = b.parameter("v", rng.standard_normal((8, channels), np.float32))
    h = b.apply("Gemm", h, v, transB=1)
    training = b.training(b.apply("SoftmaxCrossEntropyLoss", h, labels), MomentumSGD(lr=1e-4))
    data = rng.standard_normal((n, channels, side, side), np.float32)
    return training, (data, rng.integers(0, 8, n))


def analog(rows: int, width: int, seed: int = 0) -> Probe:
    """Make a network of two analog tiles with noise."""
    rng = np.random.default_rng(seed)
    b, io = Builder("analog"), IOParameters(out_noise=0.02)
    h, y = b.input("x", (rows, width)), b.input("y", (rows, width))
    for k in range(2):
        tile = AnalogTile((width, width), ConstantStep(), forward=io, backward=io, seed=k)
        h = b.apply("Relu", b.analog(h, tile, lr=0.01, name=f"tile{k}"))
    training = b.training(b.apply("MSELoss", h, y))
    batch = rng.standard_normal((2, rows, width), np.float32)
    return training, (batch[0], batch[1])
