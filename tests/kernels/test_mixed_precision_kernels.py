"""Kernels of mixed precision: quantise_rows and take_pulses.

Each source gives the bits of its mirror for every order of threads, and both the formula.
"""

import numpy as np
import pytest

import rpukit as rk
from rpukit.analog.arrays import mixed_precision_ops as mixed_precision
from rpukit.elementwise import random_fill
from rpukit.random import Op
from rpukit.testing import assert_same_bits, on_cpu

OK = np.zeros(1, np.int32)
STREAM = rk.Stream.from_seed(5)


def values(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("n_bins", [2, 7, 64])
@pytest.mark.parametrize("n_line", [1, 33, 260])
def test_quantise_rows(n_line, n_bins, stochastic, order):
    v, first = values(5, n_line), 2**33 + 1
    v[1] = 0
    how = {"op": Op.UPDATE_D, "stochastic": stochastic, "stream": STREAM}
    got = mixed_precision.quantise_rows(v, n_bins, **how, first_sample=first, status=OK)
    with on_cpu(order):
        source = mixed_precision.quantise_rows(v, n_bins, **how, first_sample=first, status=OK)
    assert_same_bits(source, got)
    half = n_bins // 2
    for s, (row, ours) in enumerate(zip(v.astype("f8"), got, strict=True)):
        width = np.float32(abs(row).max() / half) or 1.0
        q = (v[s] / np.float32(width)).astype(np.float32)  # ties are decided by this quotient
        if stochastic:
            words = [random_fill(STREAM, (n_line,), "uniform", op=6, sample=first + s, draw=65532)]
            q = q + (words[0] - np.float32(0.5))
        exact = np.clip(np.rint(q), -half, half) * width
        np.testing.assert_allclose(ours, exact, rtol=1e-6)  # one rounding of the product
        assert abs(ours - row).max() <= width * (1 if stochastic else 0.5) * (1 + 1e-5)


def test_stochastic_rounding_is_unbiased():
    v = np.broadcast_to(np.array([1, 0.3, -0.05], np.float32), (4000, 3)).copy()
    how = {"op": Op.UPDATE_X, "stochastic": True, "stream": STREAM}
    got = mixed_precision.quantise_rows(v, 8, **how, first_sample=0, status=OK)
    # Steps of 1/4: a Bernoulli of at most 1/8 deviation, over 4000 samples, 4 deviations.
    np.testing.assert_allclose(got.mean(0), v[0], atol=4 * 0.125 / np.sqrt(4000))


@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (13, 132)])
@pytest.mark.parametrize("all_rows", [False, True])
def test_take_pulses(shape, all_rows, order):
    start, step = values(*shape), 0.037
    first, n_row = shape[0] - 1, shape[0] if all_rows else (shape[0] + 1) // 2
    chi, source = start.copy(), start.copy()
    pulses, line = mixed_precision.take_pulses(chi, first, n_row, step, status=OK)
    with on_cpu(order):
        theirs = mixed_precision.take_pulses(source, first, n_row, step, status=OK)
    assert_same_bits(source, chi)
    assert_same_bits(theirs[0], pulses)
    assert_same_bits(theirs[1], line)
    rows = (first + np.arange(n_row)) % shape[0]
    np.testing.assert_array_equal(pulses, np.trunc(start[rows] / np.float32(step)))
    np.testing.assert_array_equal(line, np.eye(shape[0])[rows])
    exact = start.astype("f8")
    exact[rows] -= np.float32(step).astype("f8") * pulses
    np.testing.assert_allclose(chi, exact, atol=1e-8)  # one rounding of a number below the step
    assert abs(chi[rows]).max() < step * (1 + 1e-4)


def test_a_raised_status_stops_both():
    raised, chi = np.ones(1, np.int32), np.full((2, 3), 5, np.float32)
    with on_cpu():
        mixed_precision.take_pulses(chi, 0, 2, 0.1, status=raised)
        assert (chi == 5).all()
        how = {"op": Op.UPDATE_X, "stochastic": False, "stream": STREAM, "first_sample": 0}
        kept = mixed_precision.quantise_rows(chi, 4, **how, status=raised)
        moved = mixed_precision.quantise_rows(chi, 4, **how, status=OK)
    assert (moved == 5).all()
    assert not (kept == 5).any()
