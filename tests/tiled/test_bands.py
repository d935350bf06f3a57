"""Ops that take turns, and products that go twice through their tiles: the same bits."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from rpukit import tiled
from rpukit.testing import assert_same_bits


def levels(budget):
    """A GPU's link and kernels, slowed down as much as the network is smaller."""
    host, device = tiled.gpu(budget).levels
    work = replace(tiled.gpu(budget).compute, launch=200, macs=940)
    return tiled.Hierarchy((host, replace(device, setup=100, row=1)), work)


@pytest.fixture(scope="module")
def chain():
    """Three layers whose activations are larger than their weights, and a mini-batch."""
    rng = np.random.default_rng(4)
    b, width, n = tiled.Builder("chain"), 256, 384
    h, y = b.input("x", (n, width)), b.input("y", (n, width))
    for k in range(3):
        w = rng.standard_normal((width, width), np.float32) / np.float32(16)
        h = b.apply("Gemm", h, b.parameter(f"w{k}", w), transB=1)
        h = b.apply("Relu", h) if k < 2 else h
    training = b.training(b.apply("MSELoss", h, y), tiled.SGD(lr=0.1))
    batch = tuple(rng.standard_normal((n, width), np.float32) for _ in range(2))
    return tiled.fuse_activations(training), batch


@pytest.mark.parametrize("transfers", ["at_issue", "at_wait", "mixed"])
def test_halves_have_the_bits_of_the_whole(chain, transfers):
    training, batch = chain
    plan = tiled.plan(training, levels(6 * 256 * 256))
    ops = plan.programs[0].ops
    bands = Counter(op.band for op in ops if op.band)
    twice = [op for op in ops if bands[op.band] == 1]
    assert {op.op for op in twice} == {"Gemm"}
    assert max(bands.values()) > 1
    for op in twice:  # half of a factor in the outermost loop, and all rows with each
        assert op.extents[0][op.orders[0][0]] == 128
        assert op.n_tiles > 2
    trainer = plan.trainer(training, transfers=transfers, seed=5)
    whole = tiled.plan(training, levels(1 << 26), buffering="single").trainer(training)
    assert_same_bits(trainer.fit([batch] * 2), whole.fit([batch] * 2))
    for name, value in whole.parameters(everything=True).items():
        assert_same_bits(trainer.parameters(everything=True)[name], value)
