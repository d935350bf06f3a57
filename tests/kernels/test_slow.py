"""Slow processes: check_finite, clip_weights, decay, diffusion, reset, write_noise, rank_update.

Each source gives the bits of its mirror for every order of threads, and both the formula.
"""

from contextlib import nullcontext

import numpy as np
import pytest

import rpukit as rk
from rpukit import elementwise
from rpukit.analog import _guard, slow, update
from rpukit.random import Op
from rpukit.testing import assert_same_bits, on_cpu

STREAM = rk.Stream.from_seed(3)
OK = np.zeros(1, np.int32)
SHAPES = [(1, 1), (31, 33), (67, 11)]


def arrays(shape, *names):
    """Weights in (-1, 1) and per-cell arrays of the same shape, by name."""
    rng = np.random.default_rng(0)
    made = {"weight": rng.uniform(-1, 1, shape)}
    made |= {"low": rng.uniform(-0.8, -0.2, shape), "high": rng.uniform(0.2, 0.8, shape)}
    made |= {"rate": rng.uniform(0, 0.3, shape), "bias": rng.uniform(-0.1, 0.1, shape)}
    return [made[name].astype(np.float32) for name in names]


def both(step, weight, order):
    """Run a step by the mirror and by the source; give the result."""
    mirror, source = weight.copy(), weight.copy()
    step(mirror)
    with on_cpu(order):
        step(source)
    assert_same_bits(source, mirror)
    return mirror


def normals(shape, op, event):
    return elementwise.random_fill(STREAM, shape, "normal", op=op, sample=event).astype("f8")


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
class TestSteps:
    def clipped(self, exact, low, high, bounded):
        return np.clip(exact, low, high) if bounded else exact

    def test_clip_weights(self, shape, bounded, order):
        w, low, high = arrays(shape, "weight", "low", "high")
        got = both(lambda v: slow.clip_weights(v, (low, high), status=OK), w, order)
        assert_same_bits(got, np.clip(w, low, high))

    def test_decay(self, shape, bounded, order):
        w, rate, bias, low, high = arrays(shape, "weight", "rate", "bias", "low", "high")
        bounds = (low, high) if bounded else None
        scale = 1 - rate
        got = both(lambda v: slow.decay(v, 0.7, scale, bias, bounds, status=OK), w, order)
        exact = (w.astype("f8") - bias) * (1 + 0.7 * (scale.astype("f8") - 1)) + bias
        np.testing.assert_allclose(got, self.clipped(exact, low, high, bounded), atol=2e-7)
        plain = both(lambda v: slow.decay(v, 0.7, scale, None, bounds, status=OK), w, order)
        exact = w.astype("f8") * (1 + 0.7 * (scale.astype("f8") - 1))
        np.testing.assert_allclose(plain, self.clipped(exact, low, high, bounded), atol=2e-7)

    def test_diffusion(self, shape, bounded, order):
        w, rate, low, high = arrays(shape, "weight", "rate", "low", "high")
        bounds = (low, high) if bounded else None
        options = {"stream": STREAM, "event": 2**40 + 1, "status": OK}
        got = both(lambda v: slow.diffusion(v, rate, bounds, **options), w, order)
        exact = w + rate.astype("f8") * normals(shape, Op.DIFFUSION, 2**40 + 1)
        np.testing.assert_allclose(got, self.clipped(exact, low, high, bounded), atol=3e-7)

    def test_reset(self, shape, bounded, order):
        w, bias, low, high = arrays(shape, "weight", "bias", "low", "high")
        n_in = shape[1]
        first, n = n_in - 1, (n_in + 1) // 2
        bounds = (low, high) if bounded else None
        options = {"stream": STREAM, "event": 5, "status": OK}
        got = both(lambda v: slow.reset(v, first, n, 0.6, 0.1, bias, bounds, **options), w, order)
        u = elementwise.random_fill(STREAM, shape, "uniform", op=Op.RESET, sample=5)
        xi = elementwise.random_fill(STREAM, shape, "normal", op=Op.RESET, sample=5, draw=1)
        chosen = np.zeros(shape, bool)
        chosen[:, (first + np.arange(n)) % n_in] = True
        chosen &= u < np.float32(0.6)
        exact = self.clipped(bias + 0.1 * xi.astype("f8"), low, high, bounded)
        np.testing.assert_allclose(got[chosen], exact[chosen], atol=2e-7)
        assert_same_bits(got[~chosen], w[~chosen])

    def test_write_noise(self, shape, bounded, order):
        (w,) = arrays(shape, "weight")
        options = {"stream": STREAM, "event": 9, "status": OK}
        got = both(lambda v: slow.write_noise(w, v, 0.05, **options), np.zeros_like(w), order)
        exact = w + 0.05 * normals(shape, Op.WRITE_NOISE, 9)
        np.testing.assert_allclose(got, exact, atol=3e-7)


@pytest.mark.parametrize("n", [1, 17, 40])
@pytest.mark.parametrize("shape", [*SHAPES, (65, 130)])
def test_rank_update(shape, n, order):
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (n, shape[1])).astype(np.float32)
    d = rng.uniform(-1, 1, (n, shape[0])).astype(np.float32)
    (w,) = arrays(shape, "weight")
    got = both(lambda v: update.rank_update(v, x, d, 0.1, status=OK), w, order)
    exact = w - 0.1 * d.T.astype("f8") @ x.astype("f8")
    np.testing.assert_allclose(got, exact, atol=(n + 2) * 2**-24)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_check_finite(bad, order):
    for at in (0, 300, 1030):
        x = np.full(1031, 3e38, np.float32)
        for context in (nullcontext(), on_cpu(order)):
            status = np.zeros(1, np.int32)
            with context:
                _guard.check_finite(x, status=status, call=7)
                assert status[0] == 0
                x[at] = bad
                _guard.check_finite(x, status=status, call=7)
                _guard.check_finite(x, status=status, call=8)
                assert status[0] == 7  # the first stays
                x[at] = 0


def test_a_raised_status_stops_every_step():
    raised = np.ones(1, np.int32)
    shape = (9, 10)
    w, rate, low, high = arrays(shape, "weight", "rate", "low", "high")
    options = {"stream": STREAM, "event": 1, "status": raised}
    x, d = np.ones((2, 10), np.float32), np.ones((2, 9), np.float32)
    steps = [
        lambda v: slow.clip_weights(v, (low, high), status=raised),
        lambda v: slow.decay(v, 1.0, rate, None, None, status=raised),
        lambda v: slow.diffusion(v, rate, None, **options),
        lambda v: slow.reset(v, 0, 10, 1.0, 0.1, None, None, **options),
        lambda v: slow.write_noise(rate, v, 0.1, **options),
        lambda v: update.rank_update(v, x, d, 0.1, status=raised),
    ]
    for step in steps:
        got = w.copy()
        with on_cpu():
            step(got)
        assert_same_bits(got, w)
