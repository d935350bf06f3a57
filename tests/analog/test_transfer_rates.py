"""The transfer family: rates that follow a schedule, thresholds and periods by their formulas."""

import numpy as np
import pytest

import rpukit as rk
from rpukit._device import to_device, to_numpy

FINE = rk.ConstantStep(dw_min=1e-4, dw_min_dtod=0, dw_min_std=0, up_down_dtod=0)
PERFECT = rk.IOParameters(is_perfect=True)
SCHEDULE = (0.04, 0.02, 0.01)
# One sample is one number of pulses, rounded: half a step is the error.
COUNTED = rk.UpdateParameters(pulse_type="deterministic_implicit", desired_bl=1000)


def step(tile, x, d, lr):
    """Give a batch of one sample of equal entries, on the device of the tile."""
    sides = ((x, tile.shape[1]), (d, tile.shape[0]))
    tile.update(*(to_device(np.full((1, n), v, np.float32), tile._device) for v, n in sides), lr)


def weights(tile, k):
    return to_numpy(tile.arrays[k].get_weights())


@pytest.mark.parametrize("cls", [rk.Transfer, rk.BufferedTransfer, rk.ChoppedTransfer])
@pytest.mark.parametrize("scale", [False, True])
def test_the_fast_rate_follows_a_schedule(cls, scale, device):
    cell = cls(devices=(FINE,) * 2, scale_fast_lr=scale, fast_lr=0.5, transfer_every=0)
    tile = rk.AnalogTile((1, 1), cell, update=COUNTED, device=device)
    for lr in SCHEDULE:
        before = weights(tile, 0)
        step(tile, 1.0, -0.1, lr)
        moved = float((weights(tile, 0) - before)[0, 0])
        assert cell.fast_rate(lr) == 0.5 * (lr if scale else 1)
        assert moved == pytest.approx(0.1 * cell.fast_rate(lr), abs=0.51e-4)


@pytest.mark.parametrize("cls", [rk.ChoppedTransfer, rk.DynamicTransfer])
@pytest.mark.parametrize("scale", [False, True])
def test_an_auto_scaled_fast_rate_follows_a_schedule(cls, scale, device):
    cell = cls(
        devices=(FINE,) * 2, scale_fast_lr=scale, fast_lr=0.5, auto_scale=True, transfer_every=0
    )
    tile = rk.AnalogTile((1, 1), cell, update=COUNTED, device=device)
    for lr in SCHEDULE:
        before = weights(tile, 0)
        step(tile, 1.0, -0.1, lr)
        # |x| = m_x and |d| = m_d: what is left of the product is fast_lr L g_A (lr).
        moved = float((weights(tile, 0) - before)[0, 0])
        assert moved == pytest.approx(0.5 * 1000 * 1e-4 * (lr if scale else 1), abs=0.51e-4)
    running = tile.state()["arrays"]["running"]
    np.testing.assert_allclose(running, [1, 0.1], rtol=1e-6)  # lr_A can be computed from these


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("cls", [rk.BufferedTransfer, rk.ChoppedTransfer, rk.DynamicTransfer])
def test_the_transfer_rate_follows_a_schedule(cls, scale, auto, device):
    """The buffer of a column grows by lr_t z, or by lr_t z over the threshold."""
    how = {} if cls is rk.BufferedTransfer else {"auto_scale": auto, "in_chop_prob": 0.0}
    if cls is rk.BufferedTransfer:
        how = {"units_in_mbatch": False, "thres_scale": 1e6}
    cell = cls(
        devices=(FINE,) * 2, transfer_lr=1e-3, scale_transfer_lr=scale, transfer_forward=PERFECT,
        **how,
    )  # fmt: skip
    tile = rk.AnalogTile((2, 1), cell, device=device)
    tile.arrays[0].set_weights(to_device(np.full((2, 1), 0.01, np.float32), tile._device))
    unit = 1 if cls is rk.BufferedTransfer else cell.threshold(tile.shape)
    past = np.zeros(2)
    for lr in SCHEDULE:
        step(tile, 0.0, 0.0, lr)
        buffer = tile.state()["arrays"]["buffer"].reshape(2).astype("f8")
        assert cell.transfer_rate(0, lr) == 1e-3 * (lr if scale else 1)
        grown = cell.transfer_rate(0, lr) * 0.01 / unit
        if cls is rk.DynamicTransfer and lr != SCHEDULE[0]:
            grown = (buffer - past)[0]  # the reference moves: by hand in test_transfer.py
            assert grown <= cell.transfer_rate(0, lr) * 0.01 / unit * 1.001
        np.testing.assert_allclose(buffer - past, grown, rtol=1e-3)
        past = buffer


def test_thresholds_and_periods_are_those_of_the_page():
    a, c = rk.SoftBounds(dw_min=0.02), rk.SoftBounds(dw_min=0.01)
    shape = (6, 4)
    plain = rk.ChoppedTransfer(devices=(a, c), buffer_granularity=3.0)
    assert plain.threshold(shape) == 3.0 * a.granularity
    auto = rk.ChoppedTransfer(devices=(a, c), auto_granularity=100.0, transfer_every=5)
    assert auto.threshold(shape) == pytest.approx(a.granularity * 100 / (4 * 5))
    rows = rk.ChoppedTransfer(
        devices=(a, c), auto_granularity=100.0, transfer_every=5, transfer_columns=False
    )
    assert rows.threshold(shape) == pytest.approx(a.granularity * 100 / (6 * 5))
    automatic = rk.ChoppedTransfer(devices=(a, c), transfer_every=-2)
    assert automatic.periods(shape, 8) == [round(a.n_states / 4 * 2), 0]
    batches = rk.BufferedTransfer(devices=(a, c), transfer_every=1.5)
    assert batches.periods(shape, 8) == [12, 0]
    chain = rk.Transfer(devices=(a, a, c), units_in_mbatch=False, transfer_every=2)
    assert chain.periods(shape, 8) == [2, 12, 0]


def test_the_buffer_pays_out_at_the_threshold():
    """A read of z grows the buffer by lr_t z / threshold, and 1 is worth a pulse."""
    cell = rk.ChoppedTransfer(
        devices=(FINE, FINE), buffer_granularity=20.0, in_chop_prob=0.0, transfer_lr=0.25,
        scale_transfer_lr=False, transfer_forward=PERFECT,
    )  # fmt: skip
    tile = rk.AnalogTile((1, 1), cell)
    tile.arrays[0].set_weights(np.full((1, 1), 1.01 * cell.threshold((1, 1)), np.float32))
    written = []
    for _ in range(8):
        step(tile, 0.0, 0.0, 0.1)
        written.append(round(float(weights(tile, 1)[0, 0]) / 1e-4))
    assert written == [0, 0, 0, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("columns", [False, True])
def test_the_visible_weight_after_everything_but_updates(columns, device):
    soft = rk.SoftBounds(
        dw_min=0.02, lifetime=50, diffusion=0.01, drift=rk.DriftParameters(nu=0.1)
    )
    cell = rk.ChoppedTransfer(
        devices=(soft, soft), gamma=0.4, in_chop_prob=0.5, out_chop_prob=0.5,
        transfer_columns=columns,
    )  # fmt: skip
    tile = rk.AnalogTile((5, 4), cell, seed=3, device=device)
    rng = np.random.default_rng(0)
    x, d = (to_device(rng.uniform(-1, 1, (23, n)).astype("f4"), tile._device) for n in (4, 5))
    tile.update(x, d, 0.3)
    start = to_device(rng.uniform(-0.2, 0.2, (5, 4)).astype("f4"), tile._device)

    def check(tile):
        arrays = tile.state()["arrays"]
        signs = np.outer(arrays["chopper_out"], arrays["chopper_in"])
        assert len(np.unique(signs)) == 2
        signs = signs if columns else signs.T
        fast, slow = (weights(tile, k).astype("f8") for k in (0, 1))
        exact = 0.4 * signs * fast + slow
        np.testing.assert_allclose(to_numpy(tile.get_weights()), exact, atol=3e-7)
        assert np.abs(exact - 0.4 * fast - slow).max() > 0.01

    check(tile)
    for change in (
        lambda: tile.arrays[1].set_weights(start),
        lambda: tile.arrays[0].set_weights(start),
        lambda: tile.decay(0.9),
        lambda: tile.diffuse(),
        lambda: tile.drift(100.0),
        lambda: tile.reset(1, 1, 1.0),
    ):
        change()
        check(tile)
    check(type(tile).from_state(tile.state(), tile.device))
    tile.set_weights(start)  # the fast array is 0 then
    np.testing.assert_array_equal(to_numpy(tile.get_weights()), to_numpy(start))


@pytest.mark.parametrize(
    ("cell", "most"),
    [
        (rk.ChoppedTransfer(), 15),
        (rk.ChoppedTransfer(gamma=0.1), 16),
        (rk.DynamicTransfer(), 17),
        (rk.BufferedTransfer(), 15),
        (rk.Transfer(), 14),
    ],
    ids=["ttv3", "ttv3_gamma", "ttv4", "ttv2", "ttv1"],
)
def test_memory_in_weights(cell, most):
    """Two arrays of SoftBounds are 14 weights; buffer, visible weight and two means 1 each."""
    tile = rk.AnalogTile((64, 128), cell)
    held = tile.nbytes
    assert most <= held / (64 * 128 * 4) < most + 0.05
