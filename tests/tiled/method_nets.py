"""A small convolutional network for the tests of training methods, and its mini-batches."""

from __future__ import annotations

import numpy as np

from rpukit import tiled

LEVELS = tiled.siracusa_l2(l1=6_000)


def sketch(dtype="float32"):
    """The builder of the network, its input and its labels, and the name of its loss."""
    rng = np.random.default_rng(3)
    b = tiled.Builder("net", dtype=dtype)
    x, labels = b.input("x", (4, 2, 6, 6)), b.input("labels", (4,), np.int64)
    kernel = b.parameter("conv.w", rng.normal(size=(6, 2, 3, 3)) * 0.3)
    h = b.apply("Conv", x, kernel, b.parameter("conv.b", np.zeros(6)), pads=(1, 1, 1, 1))
    kernel = b.parameter("deep.w", rng.normal(size=(4, 6, 3, 3)) * 0.2)
    h = b.apply("Relu", b.apply("Conv", b.apply("Relu", h), kernel, pads=(1, 1, 1, 1)))
    h = b.apply("Flatten", b.apply("MaxPool", h, kernel_shape=(2, 2), strides=(2, 2)))
    w = b.parameter("fc.w", rng.normal(size=(16, 36)) * 0.2)
    h = b.apply("Gemm", h, w, b.parameter("fc.b", np.zeros(16)), transB=1)
    v = b.parameter("head.w", rng.normal(size=(5, 16)) * 0.2)
    h = b.apply("Gemm", b.apply("Relu", h), v, b.parameter("head.b", np.zeros(5)), transB=1)
    return b, b.apply("SoftmaxCrossEntropyLoss", h, labels)


def gated():
    """The builder of a network whose gates are a chain, the name of its loss, and mini-batches."""
    rng = np.random.default_rng(5)
    b = tiled.Builder("gated")
    x, y = b.input("x", (16, 32)), b.input("y", (16, 32))
    h = b.apply("Gemm", x, b.parameter("w", rng.normal(size=(32, 64)) * 0.2))
    h, gate = (b.apply("Slice", h, starts=(k,), ends=(k + 32,), axes=(1,)) for k in (0, 32))
    h = b.apply("Add", b.apply("Relu", h), x)
    h = b.apply("Mul", b.apply("Sigmoid", gate), h)
    h = b.apply("Gelu", b.apply("Gemm", h, b.parameter("v", rng.normal(size=(32, 32)) * 0.2)))
    loss = b.apply("MSELoss", h, y)
    return b, loss, [tuple(rng.normal(size=(2, 16, 32)).astype(np.float32))] * 3


def network(optimiser=None, dtype="float32"):
    """The network as a training."""
    b, loss = sketch(dtype)
    return b.training(loss, optimiser or tiled.SGD(lr=0.1))


def mini_batches(n, dtype="float32"):
    """Images and labels."""
    rng = np.random.default_rng(4)
    images = rng.normal(size=(n, 4, 2, 6, 6)).astype(dtype)
    return [(image, rng.integers(0, 5, 4)) for image in images]


def trainer_of(training, levels=LEVELS, buffering="double", **options):
    """A trainer of a plan."""
    return tiled.plan(training, levels, buffering=buffering).trainer(training, **options)
