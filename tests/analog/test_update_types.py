"""Pulse types and parameters of the update: formulas, both sides, and defects not inherited."""

import numpy as np
import pytest

import rpukit as rk
from rpukit.analog.update import launch as _launch_update
from rpukit.analog.update import ops as update
from rpukit.errors import ParameterError
from rpukit.testing import assert_same_bits, on_cpu

SHAPE = (13, 132)
TYPES = [p.value for p in rk.PulseType]
EXACT = ("NONE", "NONE_WITH_DEVICE")
PLAIN = {"dw_min_std": 0, "dw_min_dtod": 0, "up_down_dtod": 0, "w_max_dtod": 0, "w_min_dtod": 0}


def batch(n, seed=0, scale=0.3):
    rng = np.random.default_rng(seed)
    return (
        rng.uniform(-1, 1, (n, SHAPE[1])).astype(np.float32),
        rng.normal(0, scale, (n, SHAPE[0])).astype(np.float32),
    )


def updated(cell, x, d, lr, seed=4, **parameters):
    tile = rk.AnalogTile(SHAPE, cell, update=rk.UpdateParameters(**parameters), seed=seed)
    tile.update(x, d, lr=lr)
    return np.asarray(tile), tile.n_pulses


@pytest.mark.parametrize("cell", [rk.ConstantStep(dw_min=0.01), rk.SoftBounds(dw_min=0.01)])
@pytest.mark.parametrize("kind", TYPES)
def test_kernels_give_the_bits_of_the_mirror(kind, cell, order):
    x, d = batch(37)
    expected = updated(cell, x, d, 0.1, pulse_type=kind)
    with on_cpu(order):
        got = updated(cell, x, d, 0.1, pulse_type=kind)
    assert_same_bits(got[0], expected[0])
    assert got[1] == expected[1]
    assert (expected[1] == 0) == (kind in EXACT)


@pytest.mark.sweep
@pytest.mark.parametrize("shape", _launch_update.SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("parameters", [{"pulse_type": "mean_count"}, {"desired_bl": 100}])
def test_all_launch_shapes_take_long_trains_and_counts(shape, parameters, monkeypatch):
    """The reference packs trains of up to 31 slots only; here one kernel takes all."""
    x, d = batch(9)
    parameters = {"update_bl_management": False, **parameters}
    expected = updated(rk.SoftBounds(), x, d, 0.2, **parameters)
    with monkeypatch.context() as patch, on_cpu():
        patch.setattr(update, "pick", lambda _: shape)
        got = updated(rk.SoftBounds(), x, d, 0.2, **parameters)
    assert_same_bits(got[0], expected[0])
    assert got[1] == expected[1] > 0


@pytest.mark.parametrize("kind", TYPES)
def test_a_batch_may_be_cut(kind):
    x, d = batch(20)
    parameters = rk.UpdateParameters(pulse_type=kind)
    whole, cut = (rk.AnalogTile(SHAPE, rk.SoftBounds(), update=parameters) for _ in range(2))
    whole.update(x, d, lr=0.1)
    for part in (slice(0, 1), slice(1, 8), slice(8, 20)):
        cut.update(x[part], d[part], lr=0.1)
    assert_same_bits(np.asarray(cut), np.asarray(whole))


def test_mean_counts_by_formula():
    """``n = rint(n_x n_d / BL)``, ``n_v = clip(rint(BL |v| scale), 0, BL)``, unmanaged."""
    length, step, lr = 31, 1e-3, 0.02
    x, d = batch(1, scale=0.5)
    cell = rk.ConstantStep(dw_min=step, **PLAIN)
    how = {"update_management": False, "update_bl_management": False, "desired_bl": length}
    got, _ = updated(cell, x, d, lr, pulse_type="mean_count", **how)
    scale = np.sqrt(lr / (step * length))
    n_x, n_d = (
        np.clip(np.rint(np.float32(length * (np.abs(v[0]).astype("f8") * scale))), 0, length)
        for v in (x, d)
    )
    pulses = np.rint(np.float32(np.outer(n_d, n_x) / length)) * -np.outer(np.sign(d), np.sign(x))
    # float32 rounds a product next to a half otherwise than float64: one cell in some thousand
    off = np.abs(got / step - pulses) > 0.01
    assert off.mean() < 0.005
    assert np.abs(got / step - pulses).max() < 1.01
    assert np.abs(pulses).max() > 5


@pytest.mark.parametrize("kind", EXACT)
def test_exact_updates_by_formula(kind):
    x, d = batch(30)
    cell = rk.ConstantStep(w_max=0.3, w_min=-0.2, **PLAIN)
    got, _ = updated(cell, x, d, 0.5, pulse_type=kind)
    exact = -0.5 * d.T.astype("f8") @ x.astype("f8")
    assert exact.max() > 0.31 and exact.min() < -0.21
    if kind == "NONE_WITH_DEVICE":
        exact = np.zeros(SHAPE)
        for x_s, d_s in zip(x.astype("f8"), d.astype("f8"), strict=True):
            exact = np.clip(exact - 0.5 * np.outer(d_s, x_s), -0.2, 0.3)
    np.testing.assert_allclose(got, exact, atol=30 * 2**-22)


@pytest.mark.parametrize("storage", ["stored", "procedural"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_hold_after_each_sample(storage, dtype, order):
    """So 128 samples in one call and in several have the same bits."""
    x, d = (v.astype(dtype) for v in batch(128))
    how = {"update": rk.UpdateParameters(pulse_type="none_with_device"), "seed": 4}
    tiles = [
        rk.AnalogTile(SHAPE, rk.SoftBounds(), storage=storage, dtype=dtype, **how)
        for _ in range(3)
    ]
    whole, cut, kernels = tiles
    whole.update(x, d, lr=0.5)
    for part in (slice(0, 1), slice(1, 70), slice(70, 128)):
        cut.update(x[part], d[part], lr=0.5)
    with on_cpu(order):
        kernels.update(x, d, lr=0.5)
    assert_same_bits(np.asarray(cut), np.asarray(whole))
    assert_same_bits(np.asarray(kernels), np.asarray(whole))
    low, high = (whole.cells[name].astype("f8") for name in ("w_min", "w_max"))
    exact = np.zeros(SHAPE)
    for x_s, d_s in zip(x.astype("f8"), d.astype("f8"), strict=True):
        exact = np.clip(exact - 0.5 * np.outer(d_s, x_s), low, high)
    np.testing.assert_allclose(np.asarray(whole), exact, atol=128 * 2**-23)
    at_bounds = (exact == low) | (exact == high)
    assert 0.05 < at_bounds.mean() < 0.95


@pytest.mark.parametrize("kind", TYPES)
def test_a_negative_rate_turns_the_change_round(kind):
    """The reference's dense pulse types lose the sign."""
    x, d = batch(3)
    cell = rk.ConstantStep(w_max=9, w_min=-9, **PLAIN)
    up, down = (updated(cell, x, d, lr, pulse_type=kind)[0] for lr in (0.05, -0.05))
    assert np.array_equal(down, -up)  # but for the sign of zero
    assert (up != 0).any()


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("STOCHASTIC", "res"),
        ("MEAN_COUNT", "res"),
        ("DETERMINISTIC_IMPLICIT", "x_res_implicit"),
        ("DETERMINISTIC_IMPLICIT", "d_res_implicit"),
    ],
)
def test_resolutions_above_one_are_numbers_of_steps(kind, field):
    """The reference drops the conversion, and such a resolution then sends no pulses."""
    x, d = batch(4)
    by_steps, by_size = (
        updated(rk.ConstantStep(), x, d, 0.1, pulse_type=kind, **{field: value})
        for value in (20.0, 1 / 20)
    )
    assert_same_bits(by_steps[0], by_size[0])
    assert by_steps[1] == by_size[1] > 0
    assert (by_steps[0] != updated(rk.ConstantStep(), x, d, 0.1, pulse_type=kind)[0]).any()


def test_noise_of_mixed_directions_has_no_drift():
    """One kernel of the reference adds the deviation of summed runs without a random factor."""
    n = 400
    x = np.full((n, SHAPE[1]), 0.7, np.float32)
    d = np.where(np.arange(n)[:, None] % 2, 0.4, -0.4) * np.ones((1, SHAPE[0]))
    cell = rk.ConstantStep(**{**PLAIN, "dw_min_std": 0.5, "w_max": 9, "w_min": -9})
    change, _ = updated(cell, x, d.astype(np.float32), 0.01, update_bl_management=False)
    quiet, _ = updated(
        rk.ConstantStep(**{**PLAIN, "w_max": 9, "w_min": -9}),
        x,
        d.astype(np.float32),
        0.01,
        update_bl_management=False,
    )
    noise = (change - quiet) / 1e-3  # in steps; its deviation is 0.5 sqrt(pulses of a cell)
    pulses = updated(cell, x, d.astype(np.float32), 0.01, update_bl_management=False)[1]
    deviation = 0.5 * np.sqrt(pulses / quiet.size)
    assert abs(noise.std() / deviation - 1) < 0.1  # 1716 cells: known to 2%
    assert abs(noise.mean()) < 5 * deviation / np.sqrt(noise.size)


def test_exact_updates_refuse_what_has_no_meaning():
    x, d = batch(2)
    with pytest.raises(ParameterError, match="write noise"):
        updated(rk.SoftBounds(write_noise_std=1), x, d, 0.1, pulse_type="NONE")
    with pytest.raises(ParameterError, match="STOCHASTIC, STOCHASTIC_COMPRESSED, MEAN_COUNT"):
        rk.UpdateParameters(pulse_type="often")


@pytest.mark.parametrize("grown", [False, True])
def test_bit_lengths_that_grow_with_the_rate(grown):
    """Without a fixed length, the trains of a large rate have ``ceil(lr / dw_min)`` slots."""
    lr, step = 0.1, 0.001
    parameters = rk.UpdateParameters(
        fixed_bl=not grown, update_management=False, update_bl_management=False
    )
    x, d = np.ones((1, SHAPE[1]), np.float32), -np.ones((1, SHAPE[0]), np.float32)
    tile = rk.AnalogTile(SHAPE, rk.ConstantStep(dw_min=step, **PLAIN), update=parameters)
    tile.update(x, d, lr=lr)
    np.testing.assert_allclose(np.asarray(tile), 100 * step if grown else 31 * step, rtol=1e-5)
