"""Slow processes: check_finite, clip_weights, decay, diffusion, drift, reset, write_noise.

Each source gives the bits of its mirror for every order of threads, and both the formula.
"""

from contextlib import nullcontext

import numpy as np
import pytest

import rpukit as rk
from rpukit import elementwise
from rpukit.analog import deferred_errors as _guard
from rpukit.analog.processes import ops as slow
from rpukit.analog.update import ops as update
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
        spared = np.zeros(shape, np.float32)
        spared[::2] = 1
        options["chosen"] = spared
        part = both(lambda v: slow.reset(v, first, n, 0.6, 0.1, bias, bounds, **options), w, order)
        assert_same_bits(part, np.where(spared == 1, got, w))

    def test_write_noise(self, shape, bounded, order):
        (w,) = arrays(shape, "weight")
        options = {"stream": STREAM, "event": 9, "status": OK}
        got = both(lambda v: slow.write_noise(w, v, 0.05, **options), np.zeros_like(w), order)
        exact = w + 0.05 * normals(shape, Op.WRITE_NOISE, 9)
        np.testing.assert_allclose(got, exact, atol=3e-7)


DRIFTS = {
    "plain": rk.DriftParameters(nu=0.06),
    "everything": rk.DriftParameters(
        nu=0.1, nu_std=0.3, nu_k=0.02, log_g0=-1.0, wg_ratio=0.5, g_offset=0.7, w_offset=0.1,
        w_noise_std=0.01,
    ),
}  # fmt: skip


class Drifting:
    """A weight and what drift remembers of it."""

    def __init__(self, shape, nu):
        self.weight, self.low, self.high = arrays(shape, "weight", "low", "high")
        self.memory = slow.DriftMemory(
            np.zeros(shape, np.float32),
            np.zeros(shape, np.float32),
            np.zeros(shape, np.float64),
            nu,
        )

    def to(self, now, event, parameters, bounded):
        bounds = (self.low, self.high) if bounded else None
        options = {"stream": STREAM, "event": event, "status": OK}
        slow.drift(self.weight, now, parameters, self.memory, bounds, **options)

    def all(self):
        memory = self.memory
        return self.weight, memory.origin, memory.previous, memory.written


def exact_drift(w, w0, age, p, nu, event):
    """The formula in float64: the new weights before the clip."""
    nu = nu * (1 + p.nu_std * normals(w.shape, Op.DRIFT, event))
    if p.nu_k:
        g = (w - p.w_offset) / p.wg_ratio + p.g_offset
        nu = np.where(g > 0, nu - p.nu_k * (np.log(np.where(g > 0, g, 1)) - p.log_g0), nu)
    f = np.maximum(age, 1) ** -nu
    a = p.g_offset * p.wg_ratio + p.w_offset
    xi = elementwise.random_fill(STREAM, w.shape, "normal", op=Op.DRIFT, sample=event, draw=1)
    return w0 * f + a * (f - 1) + p.w_noise_std * xi.astype("f8")


@pytest.mark.parametrize("name", DRIFTS)
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("per_cell", [False, True])
def test_drift(shape, bounded, per_cell, name, order):
    p = DRIFTS[name]
    nu = arrays(shape, "rate")[0] if per_cell else None
    mirror, source = Drifting(shape, nu), Drifting(shape, nu)
    exact_nu = p.nu if nu is None else nu.astype("f8")
    w0, written = mirror.weight.astype("f8"), np.zeros(shape)
    for event, now in enumerate((3.0, 5e4, 7e4, 1e9)):
        if event == 2:  # write half of the cells
            for side in (mirror, source):
                side.weight[::2] += np.float32(0.05)
        before = mirror.weight.astype("f8")
        mirror.to(now, event, p, bounded)
        with on_cpu(order):
            source.to(now, event, p, bounded)
        for ours, theirs in zip(mirror.all(), source.all(), strict=True):
            assert_same_bits(theirs, ours)
        exact = exact_drift(before, w0, now - written, p, exact_nu, event)
        exact = np.clip(exact, mirror.low, mirror.high) if bounded else exact
        if event == 2:
            exact[::2] = w0[::2] = before[::2]
            written[::2] = now
        # float32 in the exponent, at most 21 nu = 10: 1e-6 of the factor, which is at most 1.
        np.testing.assert_allclose(mirror.weight, exact, atol=2e-6)


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(37, 1), (5, 40)])
def test_rank_update_of_few_cells_by_many_samples(shape, dtype, order):
    rng, n = np.random.default_rng(1), 601
    x, d = (rng.uniform(-1, 1, (n, size)).astype(dtype) for size in (shape[1], shape[0]))
    d[7, 2], d[9, 2] = np.finfo(dtype).max / 4, -np.finfo(dtype).max / 4  # infinite on the way
    w = rng.uniform(-1, 1, shape).astype(dtype)
    assert update._rank_shape(n, *shape)[2] == min(shape[1], 32)
    both(lambda v: update.rank_update(v, x, d, 100.0, status=OK), w, order)
    bounds = w - dtype(0.1), w + dtype(0.1)
    got = both(lambda v: update.rank_update(v, x, d, 0.1, bounds=bounds, status=OK), w, order)
    assert (got >= bounds[0]).all() and (got <= bounds[1]).all()


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
        lambda v: slow.drift(
            v, 9.0, DRIFTS["plain"], Drifting(shape, None).memory, None, **options
        ),
        lambda v: update.rank_update(v, x, d, 0.1, status=raised),
    ]
    for step in steps:
        got = w.copy()
        with on_cpu():
            step(got)
        assert_same_bits(got, w)


@pytest.mark.parametrize("first", [7, 2**33 + 7])
@pytest.mark.parametrize("process", ["diffusion", "drift", "reset"])
def test_rows_of_a_larger_tile(process, first):
    """Draws are those of the cells of the whole tile, however many it has."""
    w, rate, low, high = arrays((3, 40), "weight", "rate", "low", "high")
    own = {"first_cell": first, "stream": STREAM, "event": 2, "status": OK}

    def step(v, first_cell=first):
        how = {**own, "first_cell": first_cell}
        if process == "diffusion":
            slow.diffusion(v, rate, (low, high), **how)
        elif process == "reset":
            slow.reset(v, 0, 40, 0.5, 0.1, None, (low, high), **how)
        else:
            memory = slow.DriftMemory(w.copy(), v.copy(), np.zeros_like(w, np.float64), None)
            parameters = rk.DriftParameters(nu=0.1, nu_std=0.3)
            slow.drift(v, 5.0, parameters, memory, (low, high), **how)

    got = both(step, w, 1)
    other = w.copy()
    step(other, first_cell=first % 2**32 + (first < 2**32))
    assert (got != other).any()


@pytest.mark.parametrize("process", ["diffusion", "reset"])
def test_strips_are_the_whole(process):
    w, rate, low, high = arrays((31, 33), "weight", "rate", "low", "high")
    whole, parts = w.copy(), w.copy()
    own = {"stream": STREAM, "event": 2, "status": OK}

    def step(v, rows):
        how = {"first_cell": 33 * rows.start, **own}
        if process == "diffusion":
            slow.diffusion(v[rows], rate[rows], (low[rows], high[rows]), **how)
        else:
            slow.reset(v[rows], 30, 8, 0.5, 0.1, None, (low[rows], high[rows]), **how)

    step(whole, slice(0, 31))
    for rows in (slice(0, 4), slice(4, 30), slice(30, 31)):
        step(parts, rows)
    assert_same_bits(parts, whole)
