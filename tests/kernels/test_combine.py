"""Cells of several devices: combine_devices and select_refresh.

Each source gives the bits of its mirror for every order of threads, and both the formula.
"""

import numpy as np
import pytest

from rpukit.analog.arrays import compound_ops as combine
from rpukit.testing import assert_same_bits, on_cpu

OK = np.zeros(1, np.int32)
SHAPES = [(1, 1), (31, 33), (9, 130)]


@pytest.mark.parametrize("n_device", [1, 2, 5])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_combine_devices(shape, signed, n_device, order):
    rng = np.random.default_rng(0)
    devices = rng.uniform(-1, 1, (n_device, *shape)).astype(np.float32)
    gamma = rng.uniform(-2, 2, n_device).astype(np.float32)
    signs = tuple(rng.choice(np.array([-1, 1], np.int8), n) if signed else None for n in shape)
    mirror, source = np.empty(shape, np.float32), np.empty(shape, np.float32)
    combine.combine_devices(mirror, devices, gamma, signs, status=OK)
    with on_cpu(order):
        combine.combine_devices(source, devices, gamma, signs, status=OK)
    assert_same_bits(source, mirror)
    exact = devices.astype("f8")
    if signed:
        exact[0] *= np.outer(*signs)
    exact = np.einsum("k,kij->ij", gamma.astype("f8"), exact)
    np.testing.assert_allclose(mirror, exact, atol=n_device * 2 * 2**-24 * 4)


def test_devices_that_do_not_count_may_hold_anything(order):
    devices = np.array([[[np.nan]], [[0.5]]], np.float32)
    with on_cpu(order):
        weight = np.empty((1, 1), np.float32)
        combine.combine_devices(weight, devices, np.array([0, 2], np.float32), status=OK)
    assert weight[0, 0] == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_select_refresh(shape, order):
    rng = np.random.default_rng(1)
    n_out, n_in = shape
    first, n_col = n_in // 3, n_in - n_in // 3
    plus, minus = (rng.uniform(0, 1, (n_col, n_out)).astype(np.float32) for _ in range(2))
    results = []
    for context in (None, on_cpu(order)):
        chosen = np.full(shape, 7, np.float32)
        args = (chosen, plus, minus, first, 0.6, 0.2)
        if context is None:
            rises = combine.select_refresh(*args, status=OK)
        else:
            with context:
                rises = combine.select_refresh(*args, status=OK)
        results.append((chosen, *rises))
    for ours, theirs in zip(*results, strict=True):
        assert_same_bits(theirs, ours)
    chosen, rise_plus, rise_minus = results[0]
    full, some = np.float32(0.6), np.float32(0.2)
    take = (np.maximum(plus, minus) > full) & (np.minimum(plus, minus) > some)
    assert_same_bits(chosen[:, first:], take.T.astype(np.float32))
    assert (chosen[:, :first] == 7).all()
    assert_same_bits(rise_plus, np.where(take & (plus > minus), plus - minus, np.float32(0)))
    assert_same_bits(rise_minus, np.where(take & (plus <= minus), minus - plus, np.float32(0)))


def test_a_raised_status_stops_every_step():
    raised = np.ones(1, np.int32)
    weight = np.full((2, 3), 5, np.float32)
    devices = np.ones((1, 2, 3), np.float32)
    with on_cpu():
        combine.combine_devices(weight, devices, np.ones(1, np.float32), status=raised)
        reads = np.ones((3, 2), np.float32)
        combine.select_refresh(weight, reads, reads, 0, 0.1, 0.1, status=raised)
    assert (weight == 5).all()
