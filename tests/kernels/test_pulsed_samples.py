"""pulsed_samples: the bits of trains and update in two launches, for every launch shape."""

import numpy as np
import pytest

import rpukit as rk
from rpukit.analog.update import few_samples as samples
from rpukit.analog.update import replay as _writing
from rpukit.testing import assert_same_bits, on_cpu

SHAPE = (19, 132)
CELLS = (
    rk.ConstantStep(dw_min=0.01),
    rk.SoftBounds(dw_min=0.01, write_noise_std=1),
    rk.ExpStep(dw_min=0.01),
)
UPDATES = {
    "managed": rk.UpdateParameters(),
    "fixed": rk.UpdateParameters(update_management=False, update_bl_management=False),
    "rounded": rk.UpdateParameters(desired_bl=20, res=0.05, sto_round=True),
    "stochastic": rk.UpdateParameters(pulse_type="stochastic", um_grad_scale=0.5),
}


def batch(n, shape=SHAPE, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.uniform(-1, 1, (n, shape[1])).astype(np.float32),
        rng.normal(0, 0.3, (n, shape[0])).astype(np.float32),
    )


def tiles(n, cell, parameters=None, shape=SHAPE):
    return (
        rk.AnalogTile(shape, cell, update=parameters, seed=2, count_pulses=True) for _ in range(n)
    )


def assert_same_tiles(got, expected):
    assert_same_bits(np.asarray(got), np.asarray(expected))
    assert_same_bits(got.pulse_counts, expected.pulse_counts)
    assert got.n_pulses == expected.n_pulses > 0


@pytest.mark.sweep
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.STEP)
@pytest.mark.parametrize("parameters", UPDATES.values(), ids=UPDATES)
@pytest.mark.parametrize("lr", [0.2, -0.005])
def test_same_bits_as_two_kernels(cell, parameters, lr, order, monkeypatch):
    x, d = batch(samples.MOST_SAMPLES)
    one, two, plain = tiles(3, cell, parameters)
    for n in (1, 3):
        plain.update(x[:n], d[:n], lr)
        with on_cpu(order):
            one.update(x[:n], d[:n], lr)
        with monkeypatch.context() as patch, on_cpu(order):
            patch.setattr(_writing, "takes_samples", lambda *_: False)
            two.update(x[:n], d[:n], lr)
    assert_same_tiles(one, plain)
    assert_same_tiles(two, plain)


@pytest.mark.parametrize("shape", [*samples._SHAPES, (4, 3), (1, 1)])
def test_every_launch_shape_and_the_mirror(shape, monkeypatch):
    x, d = batch(2)
    plain, one, mirrored = tiles(3, CELLS[1])
    plain.update(x, d, 0.1)
    samples.pulsed_samples(
        mirrored.arrays[0].record,
        x,
        d,
        0.1,
        mirrored.update_parameters,
        stream=mirrored.stream,
        first_sample=0,
    )
    assert_same_tiles(mirrored, plain)
    monkeypatch.setattr(samples, "_shape", lambda *_: shape)
    samples._prepared.cache_clear()
    with on_cpu(1):
        one.update(x, d, 0.1)
    samples._prepared.cache_clear()
    assert_same_tiles(one, plain)


@pytest.mark.parametrize(("bad", "where"), [(np.nan, 0), (np.inf, 1)])
def test_a_bad_value_changes_nothing(bad, where, order):
    inputs = batch(2)
    (tile,) = tiles(1, CELLS[0])
    tile.set_weights(np.full(SHAPE, 0.1, np.float32))
    before = np.asarray(tile)
    inputs[where][1, 7] = bad
    with on_cpu(order):
        tile.update(*inputs, 0.1)  # both launches do nothing
        tile.update(*batch(1), 0.1)
        with pytest.raises(rk.errors.NonFiniteError, match="x or d"):
            tile.get_weights()
        assert tile.clocks["update"] == 0
        assert_same_bits(np.asarray(tile), before)
        assert tile.n_pulses == 0


def test_what_is_left_to_two_kernels():
    few = UPDATES["managed"]
    assert samples.takes_samples(1, (1024, 1024), few)
    assert samples.takes_samples(samples.MOST_SAMPLES, (256, 256), few)
    for n, shape, parameters in (
        (0, SHAPE, few),
        (samples.MOST_SAMPLES + 1, SHAPE, few),
        (2, (1024, 1024), few),
        (1, (2048, 2048), few),
        (1, SHAPE, rk.UpdateParameters(desired_bl=32)),
        (1, SHAPE, rk.UpdateParameters(fixed_bl=False, update_bl_management=False)),
        (1, SHAPE, rk.UpdateParameters(pulse_type="mean_count")),
        (1, SHAPE, rk.UpdateParameters(pulse_type="none")),
    ):
        assert not samples.takes_samples(n, shape, parameters)
