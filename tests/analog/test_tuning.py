"""The tuner on real tiles: whatever it picks, primed by any batch, the bits stay."""

from dataclasses import replace

import numpy as np
import pytest

import rpukit as rk
from rpukit._kernels import tune
from rpukit.analog.update import launch as _launch_update
from rpukit.analog.update import ops as update
from rpukit.testing import assert_same_bits, on_cpu
from tests.reference import analog as reference

SHAPE = (16, 32)


@pytest.fixture(autouse=True)
def forget_candidates():
    """Candidates are kept by size; some tests plant others."""
    _launch_update._candidates.cache_clear()
    yield
    _launch_update._candidates.cache_clear()


def example():
    s = reference.sets("b_pr763_example")["example"]
    cell = rk.ConstantStep(
        dw_min=s["dw_min"],
        dw_min_dtod=0,
        dw_min_std=0,
        up_down_dtod=0,
        w_max=1,
        w_min=-1,
        w_max_dtod=0,
        w_min_dtod=0,
    )
    parameters = rk.UpdateParameters(desired_bl=s["desired_bl"], update_bl_management=False)
    return rk.AnalogTile((s["out_size"], s["in_size"]), cell, update=parameters), s["lr"]


def ones(n):
    return np.ones((n, SHAPE[1]), np.float32), np.ones((n, SHAPE[0]), np.float32)


class OneSample(_launch_update.LaunchShape):
    """A planted variant: it reads the first sample only, as the reference's single kernel did."""

    @property
    def name(self):
        return "one_sample"

    def valid(self, n_batch):
        return n_batch == 1


def first_sample_only(launch):
    def run(call, shape):
        if isinstance(shape, OneSample):
            trains = _launch_update.Trains(
                call.trains.x[:1], call.trains.d[:1], call.trains.implicit
            )
            call = replace(call, trains=trains)
        launch(call, shape)

    return run


def likes(name):
    """A clock under which one variant is by far the fastest."""

    def measure(candidate, run):
        run()
        return 1e-6 if candidate.name == name else 1e-3

    return measure


def test_a_variant_for_one_sample_never_serves_a_batch(monkeypatch):
    monkeypatch.setattr(_launch_update, "SHAPES", (OneSample(1, 1), *_launch_update.SHAPES))
    for module in (update, _launch_update):
        monkeypatch.setattr(module, "launch", first_sample_only(_launch_update.launch))
    tile, lr = example()
    with on_cpu(), tune.use_clock(likes("one_sample")):
        tile.update(*ones(1), lr=lr)
        picked = [r.times for _, r in tune.records() if r.kernel == "pulsed_update"]
        assert any("one_sample" in times for times in picked)  # it was there, and fastest
        tile.set_weights(np.zeros(SHAPE, np.float32))
        tile.update(*ones(128), lr=lr)
    expected = reference.arrays("b_pr763_example")["example/m128"]
    np.testing.assert_allclose(np.asarray(tile), expected, atol=1e-5)
    assert (expected == -1).all()


class WrongBits(_launch_update.LaunchShape):
    @property
    def name(self):
        return "wrong_bits"


def test_verification_rejects_other_bits(monkeypatch, caplog):
    def spoiled(launch):
        def run(call, shape):
            launch(call, shape)
            if isinstance(shape, WrongBits):
                call.array.weight[0, 0] = np.nextafter(call.array.weight[0, 0], np.float32(2))

        return run

    monkeypatch.setattr(_launch_update, "SHAPES", (WrongBits(1, 1), *_launch_update.SHAPES))
    for module in (update, _launch_update):
        monkeypatch.setattr(module, "launch", spoiled(_launch_update.launch))
    monkeypatch.setenv("RPUKIT_TUNE_VERIFY", "1")
    tile, lr = example()
    plain, _ = example()
    plain.update(*ones(3), lr=lr)
    with on_cpu(), tune.use_clock(likes("wrong_bits")):
        tile.update(*ones(3), lr=lr)
    assert_same_bits(np.asarray(tile), np.asarray(plain))
    assert "wrong_bits is rejected" in caplog.text


@pytest.mark.sweep
@pytest.mark.parametrize("name", [shape.name for shape in _launch_update.SHAPES])
def test_any_choice_gives_the_same_bits(name):
    x, d = ones(20)
    x[::3, ::2] *= -0.4
    d[::2] *= 0.01
    cell = rk.SoftBounds(dw_min=0.01)
    plain, tuned = (rk.AnalogTile(SHAPE, cell, seed=1) for _ in range(2))
    seen = [plain.forward(x), plain.update(x, d, 0.1).backward(d)]
    with on_cpu(), tune.use_clock(likes(name)):
        got = [tuned.forward(x), tuned.update(x, d, 0.1).backward(d)]
    for a, b in zip((*got, np.asarray(tuned)), (*seen, np.asarray(plain)), strict=True):
        assert_same_bits(a, b)
