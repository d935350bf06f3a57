"""Accounting of pulses: counts of cells, the trains themselves, energy."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.testing import assert_same_bits, on_cpu

SHAPE = (5, 12)
CELLS = {
    "constant": rk.ConstantStep(dw_min=0.01),
    "soft": rk.SoftBounds(dw_min=0.01),
    "vector": rk.Vector(devices=(rk.SoftBounds(dw_min=0.01), rk.ConstantStep(dw_min=0.01))),
    "one_sided": rk.OneSided(device=rk.SoftBounds(dw_min=0.01, w_min=0)),
}


def batch(n):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (n, SHAPE[1])).astype(np.float32)
    return x, rng.uniform(-0.3, 0.3, (n, SHAPE[0])).astype(np.float32)


@pytest.mark.sweep
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
@pytest.mark.parametrize("length", [31, 70])
def test_counts_are_the_coincidences_of_the_trains(cell, length):
    update = rk.UpdateParameters(desired_bl=length)
    tile = rk.AnalogTile(SHAPE, cell, update=update, seed=3, count_pulses=True)
    x, d = batch(9)
    x_train, d_train = tile.pulse_trains(x, d, 0.1)
    assert x_train.shape == (9, length, SHAPE[1])
    assert d_train.shape == (9, length, SHAPE[0])
    before = tile.clocks, np.asarray(tile)
    tile.pulse_trains(x, d, 0.1)
    assert tile.clocks == before[0]
    assert_same_bits(np.asarray(tile), before[1])
    tile.update(x, d, 0.1)
    # int64 sums of products: |x| and |d| are 1 where a line fires.
    expected = np.einsum("bsi,bsj->ij", abs(d_train).astype(int), abs(x_train).astype(int))
    copies = 2 if isinstance(cell, rk.Vector) else 1  # all of its devices get every pulse
    np.testing.assert_array_equal(tile.pulse_counts, copies * expected)
    assert tile.n_pulses == tile.pulse_counts.sum() > 0
    assert tile.energy(2e-15) == pytest.approx(tile.n_pulses * 2e-15)
    rising = np.einsum("bsi,bsj->ij", d_train.astype(int), x_train.astype(int)) < 0
    if isinstance(cell, rk.ConstantStep):
        assert ((np.asarray(tile) > before[1]) == rising)[expected > 12].all()


def test_trains_carry_the_signs_of_their_lines():
    tile = rk.AnalogTile(SHAPE, CELLS["constant"], seed=3)
    x, d = batch(4)
    for train, v in zip(tile.pulse_trains(x, d, 0.1), (x, d), strict=True):
        assert set(np.unique(train)) == {-1, 0, 1}
        assert (train * np.sign(v)[:, None] >= 0).all()


def test_counts_survive_copies_and_splits(order):
    x, d = batch(20)
    whole = rk.AnalogTile(SHAPE, CELLS["soft"], seed=3, count_pulses=True).update(x, d, 0.1)
    parts = rk.AnalogTile(SHAPE, CELLS["soft"], seed=3, count_pulses=True)
    parts.update(x[:7], d[:7], 0.1)
    parts = parts.copy()
    with on_cpu(order):
        parts.update(x[7:], d[7:], 0.1)
    np.testing.assert_array_equal(parts.pulse_counts, whole.pulse_counts)
    assert_same_bits(np.asarray(parts), np.asarray(whole))


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_pulses_of_one_update(cell, device):
    x, d = batch(9)
    tile = rk.AnalogTile(SHAPE, cell, seed=3, count_pulses=True, device=device)
    assert tile.update_pulses == 0
    x, d = (_device.to_device(v, _device.parse_device(device)) for v in (x, d))
    before, sent = 0, []
    for n, lr in ((9, 0.1), (1, -0.2), (4, 0.05)):
        tile.update(x[:n], d[:n], lr)
        sent.append(tile.n_pulses - before)
        assert tile.update_pulses == sent[-1] > 0
        before = tile.n_pulses
    assert len(set(sent)) == 3
    assert tile.copy().update_pulses == 0
    assert tile.update(x, d, 0).update_pulses == 0


def test_what_cannot_be_told_is_refused():
    x, d = batch(2)
    tile = rk.AnalogTile(SHAPE, CELLS["soft"])
    with pytest.raises(rk.errors.ParameterError, match="count_pulses=True"):
        _ = tile.pulse_counts
    with pytest.raises(rk.errors.ParameterError, match="sends no pulses"):
        tile.pulse_trains(x, d, 0)
    with pytest.raises(rk.errors.ParameterError, match="count_pulses=True"):
        _ = tile.update_pulses
    with pytest.raises(rk.errors.ParameterError, match="energy_per_pulse"):
        tile.energy(-1)
    implicit = rk.UpdateParameters(pulse_type="deterministic_implicit")
    mixed = rk.MixedPrecision(granularity=0.1)
    for cell, update in ((rk.Ideal(), None), (mixed, None), (CELLS["soft"], implicit)):
        with pytest.raises(rk.errors.ParameterError, match="no trains"):
            rk.AnalogTile(SHAPE, cell, update=update).pulse_trains(x, d, 0.1)
