"""All device models: the kernel's bits, formulas in float64, edges, parameters, batch splits."""

from contextlib import nullcontext
from dataclasses import fields, replace

import numpy as np
import pytest

import rpukit as rk
from rpukit.testing import assert_same_bits, on_cpu

NOISE = {"dw_min": 0.02, "dw_min_std": 0.5}
CELLS = {
    "constant": rk.ConstantStep(**NOISE),
    "linear": rk.LinearStep(gamma_up=0.4, gamma_down=0.2, reverse_down=True, **NOISE),
    "linear_additive": rk.LinearStep(
        gamma_up=-0.4, allow_increasing=True, mean_bound_reference=False, mult_noise=False, **NOISE
    ),
    "soft": rk.SoftBounds(write_noise_std=2, **NOISE),
    "soft_pmax": rk.SoftBoundsPmax(p_max=100, alpha=0.02, dw_min_std=0.5),
    "soft_reference": rk.SoftBoundsReference(
        reference_mean=0.1, reference_std=0.1, subtract_symmetry_point=True, **NOISE
    ),
    "exp": rk.ExpStep(dw_min_std_add=0.01, dw_min_std_slope=0.1, write_noise_std=1, **NOISE),
    "pow": rk.PowStep(pow_gamma=1.7, **NOISE),
    "pow_reference": rk.PowStepReference(reference_std=0.2, subtract_symmetry_point=True, **NOISE),
    "piecewise": rk.PiecewiseStep(piecewise_up=(1.5, 1, 0.2), piecewise_down=(0.1, 2), **NOISE),
    "piecewise_many": rk.PiecewiseStep(
        piecewise_up=np.linspace(2, 0, 70), piecewise_down=(1,), write_noise_std=1, **NOISE
    ),
    "stuck": rk.PowStep(corrupt_devices_prob=0.5, perfect_bias=True, **NOISE),
}
each_cell = pytest.mark.parametrize("name", CELLS)


def batch(n, shape, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.uniform(-1, 1, (n, shape[1])).astype(np.float32),
        rng.normal(0, 0.3, (n, shape[0])).astype(np.float32),
    )


def learn(cell, shape, *, cuts=(), seed=5):
    """Weights after some updates, the same samples whole or cut."""
    tile = rk.AnalogTile(shape, cell, seed=seed)
    tile.set_weights(np.random.default_rng(1).uniform(-0.9, 0.9, shape).astype(np.float32))
    x, d = batch(12, shape)
    for part_x, part_d in zip(np.split(x, cuts), np.split(d, cuts), strict=True):
        tile.update(part_x, part_d, lr=0.3)
    return np.asarray(tile)


@pytest.mark.sweep
@each_cell
@pytest.mark.parametrize("shape", [(9, 132), (31, 33)])
def test_bits_of_the_mirror(name, shape, order):
    expected = learn(CELLS[name], shape)
    assert np.isfinite(expected).all()
    with on_cpu(order):
        assert_same_bits(learn(CELLS[name], shape), expected)


@each_cell
def test_a_batch_may_be_cut(name):
    shape = (9, 14)
    assert_same_bits(learn(CELLS[name], shape, cuts=(1, 5)), learn(CELLS[name], shape))


@each_cell
def test_threads_do_not_count(name):
    expected = learn(CELLS[name], (64, 70))
    n = rk.get_num_threads()
    try:
        rk.set_num_threads(1)
        assert_same_bits(learn(CELLS[name], (64, 70)), expected)
    finally:
        rk.set_num_threads(n)


@each_cell
def test_files_keep_everything(name, tmp_path):
    tile = rk.AnalogTile((3, 5), CELLS[name], seed=2)
    x, d = batch(3, tile.shape)
    tile.update(x, d, lr=0.1)
    rk.save(tmp_path / "tile.npz", tile)
    other = rk.load(tmp_path / "tile.npz")
    assert other.cell == tile.cell
    for t in (tile, other):
        t.update(x, d, lr=0.1)
    assert_same_bits(np.asarray(other), np.asarray(tile))


def step_by_formula(cell, p, w, up):
    """One pulse without noise in float64, as the models are published; p by name."""
    u, q, low, high = p["step_up"], p["step_down"], p["w_min"], p["w_max"]
    v = w + p.get("reference", 0)
    rest = (high - v if up else v - low) / (high - low)
    if isinstance(cell, rk.LinearStep | rk.SoftBounds | rk.SoftBoundsReference):
        dw = u + p["slope_up"] * v if up else q + p["slope_down"] * v
    elif isinstance(cell, rk.ExpStep):
        z = 2 * cell.a * v / (high - low) + cell.b
        a, gamma = (cell.A_up, cell.gamma_up) if up else (cell.A_down, -cell.gamma_down)
        dw = (u if up else q) * np.maximum(1 - a * np.exp(gamma * z), 0)
    elif isinstance(cell, rk.PowStep | rk.PowStepReference):
        gamma = p["gamma_up"] if up else p["gamma_down"]
        dw = (u if up else q) * np.maximum(rest, 0) ** gamma
    elif isinstance(cell, rk.PiecewiseStep):
        nodes = cell.piecewise_up if up else cell.piecewise_down
        at = np.clip((v - low) / (high - low), 0, 1)
        dw = (u if up else q) * np.interp(at, np.linspace(0, 1, len(nodes)), nodes)
    else:
        dw = u if up else q
    return np.clip(v + dw if up else v - dw, low, high) - p.get("reference", 0)


@each_cell
@pytest.mark.parametrize("up", [True, False])
def test_one_pulse_by_formula(name, up):
    cell = replace(CELLS[name], dw_min_std=0.0, **no_write_noise(CELLS[name]))
    shape = (40, 5)
    one = rk.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)
    tile = rk.AnalogTile(shape, cell, update=one, seed=4)
    tile.set_weights(np.random.default_rng(2).uniform(-0.8, 0.8, shape).astype(np.float32))
    p = {key: np.asarray(value, np.float64) for key, value in tile.cells.items()}
    before = np.asarray(tile, np.float64)
    d = np.full((1, 40), -1.0 if up else 1.0, np.float32)
    tile.update(np.ones((1, 5), np.float32), d, lr=cell.granularity)
    with np.errstate(invalid="ignore", divide="ignore"):  # stuck cells have no range
        expected = step_by_formula(cell, p, before, up)
    stuck = p["w_min"] == p["w_max"]
    expected[stuck] = p["w_min"][stuck]
    # a few roundings of weights up to 60 (a column with hundredfold bounds) and else up to 2
    tolerance = 4 * 2**-24 * np.maximum(1, np.maximum(abs(before), p["w_max"] * 2))
    assert (abs(np.asarray(tile) - expected) <= tolerance).all()
    assert (np.asarray(tile) != before).any()


def no_write_noise(cell):
    known = {field.name for field in fields(cell)}
    return {"write_noise_std": 0.0} if "write_noise_std" in known else {}


def test_noise_of_a_step_has_its_size():
    """ExpStep: the deviation of a step is sigma (|dw| + add + slope |w|)."""
    n, w0 = 40_000, 0.2
    plain = {"dw_min_dtod": 0, "up_down_dtod": 0, "w_max_dtod": 0, "w_min_dtod": 0}
    cell = rk.ExpStep(
        dw_min=0.01, dw_min_std=0.3, dw_min_std_add=0.02, dw_min_std_slope=0.05, **plain
    )
    one = rk.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)
    tile = rk.AnalogTile((n, 1), cell, update=one, seed=4)
    tile.set_weights(np.full((n, 1), w0, np.float32))
    tile.update(np.ones((1, 1), np.float32), -np.ones((1, n), np.float32), lr=cell.granularity)
    dw = np.asarray(tile, np.float64)[:, 0] - w0
    z = 2 * cell.a * w0 / 1.2 + cell.b
    mean = 0.01 * (1 - cell.A_up * np.exp(cell.gamma_up * z))
    deviation = 0.3 * (mean + 0.02 + 0.05 * w0)
    assert abs(dw.mean() - mean) < 4 * deviation / np.sqrt(n)
    assert dw.std() == pytest.approx(deviation, rel=4 / np.sqrt(2 * n))


def test_defaults_are_those_of_the_reference():
    """Every default of every model, as recorded."""
    from tests.reference import analog as reference

    theirs = reference.presets()["defaults"]["devices"]
    for name, cls in reference.CELLS.items():
        if name not in theirs:
            continue
        cell = cls()
        for key, value in theirs[name].items():
            if key in reference.NOT_OURS or value is None:
                continue
            ours = getattr(cell, key)
            ours = list(ours) if isinstance(ours, tuple) else ours
            assert ours == value, f"{name}.{key}"


def test_granularity_of_exp_step():
    """The pulse length follows the down step alone, as in the reference, or both when asked."""
    cell = rk.ExpStep(A_up=0.2, A_down=0.5, gamma_up=1, gamma_down=1, b=0, dw_min=0.01)
    assert cell.granularity == pytest.approx(0.005)
    assert replace(cell, mean_granularity=True).granularity == pytest.approx(0.0065)
    assert rk.ExpStep(A_down=100).granularity == 0.001  # no step down at all


def test_powers_of_nothing_stay_at_the_upper_bound():
    """Where V is set beyond its bound, the reference meets a NaN and jumps to the lower bound."""
    from tests.reference import analog as reference

    s = reference.sets("a_device_det")["powref_symm_NAN_QUIRK"]
    one = rk.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)
    w0 = np.array(s["w0"], np.float32)[:, None]
    tile = rk.AnalogTile(w0.shape, reference.cell(s["device"]), update=one).set_weights(w0)
    high = (tile.cells["w_max"] - tile.cells["reference"])[-1, 0]
    assert w0[-1, 0] > high
    d = -np.ones((1, len(w0)), np.float32)
    tile.update(np.ones((1, 1), np.float32), d, lr=tile.cell.granularity)
    assert np.asarray(tile)[-1, 0] == high
    theirs = reference.arrays("a_device_det")["powref_symm_NAN_QUIRK/w"][1, -1]
    assert theirs < -0.7  # what is not reproduced


def test_set_weights_clips_what_is_seen():
    cell = rk.SoftBoundsReference(reference_mean=0.3, w_max_dtod=0, w_min_dtod=0)
    tile = rk.AnalogTile((1, 1), cell).set_weights(np.full((1, 1), 2, np.float32))
    assert np.asarray(tile)[0, 0] == np.float32(0.6)  # V = 0.9 is beyond its bound
    one = rk.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)
    tile = rk.AnalogTile((1, 1), cell, update=one).set_weights(np.full((1, 1), 2, np.float32))
    tile.update(np.ones((1, 1), np.float32), np.ones((1, 1), np.float32), lr=0.001)
    assert np.asarray(tile)[0, 0] == np.float32(0.6) - np.float32(0.3)


@pytest.mark.parametrize(
    ("cls", "wrong", "said"),
    [
        (rk.LinearStep, {"gamma_up_dtod": -1}, "gamma_up_dtod"),
        (rk.LinearStep, {"reverse_offset": 0}, "reverse_offset"),
        (rk.SoftBounds, {"write_noise_std": -1}, "write_noise_std"),
        (rk.SoftBoundsPmax, {"dw_min": 0.1}, "it follows from p_max"),
        (rk.SoftBoundsPmax, {"alpha": 0}, "alpha"),
        (rk.SoftBoundsPmax, {"p_max": "many"}, "p_max"),
        (rk.SoftBoundsPmax, {"range_max": -1}, "above range_min"),
        (rk.SoftBoundsReference, {"reference_std": -1}, "reference_std"),
        (rk.ExpStep, {"dw_min_std_add": -1}, "dw_min_std_add"),
        (rk.PowStep, {"pow_gamma": -1}, "pow_gamma"),
        (rk.PowStepReference, {"n_estimation_steps": 1.5}, "an integer"),
        (rk.PiecewiseStep, {"piecewise_up": ()}, "one or more numbers"),
        (rk.PiecewiseStep, {"piecewise_down": (1, float("nan"))}, "finite number"),
        (rk.PiecewiseStep, {"piecewise_down": "abc"}, "need a tuple"),
    ],
)
def test_wrong_parameters(cls, wrong, said):
    with pytest.raises(rk.errors.ParameterError, match=said):
        cls(**wrong)


def test_symmetry_point_by_few_steps():
    """Each pair of steps from 0 on adds their difference."""
    plain = {"dw_min_dtod": 0, "up_down_dtod": 0, "w_max_dtod": 0, "w_min_dtod": 0}
    cell = rk.PowStepReference(
        up_down=0.4,
        dw_min=0.01,
        pow_gamma_dtod=0,
        subtract_symmetry_point=True,
        n_estimation_steps=3,
        **plain,
    )
    sp = 0.0
    for _ in range(3):
        sp += 0.01 * (0.6 - sp) / 1.2 - 0.006 * (sp + 0.6) / 1.2
    tile = rk.AnalogTile((2, 2), cell)
    np.testing.assert_allclose(tile.cells["reference"], sp, rtol=1e-5)  # a few roundings
    np.testing.assert_allclose(tile.cells["reset_bias"], sp, rtol=1e-5)


@pytest.mark.parametrize("storage", ["stored", "procedural"])
@pytest.mark.parametrize(
    "cell",
    [
        rk.ConstantStep(corrupt_devices_prob=1),
        rk.SoftBounds(corrupt_devices_prob=0.5, write_noise_std=2),
        rk.LinearStep(enforce_consistency=False, w_min_dtod=3),
        rk.Vector(devices=(rk.ConstantStep(corrupt_devices_prob=1), rk.SoftBounds())),
        rk.OneSided(device=rk.ConstantStep(corrupt_devices_prob=1), copy_inverted=True),
    ],
    ids=lambda cell: type(cell).__name__,
)
def test_stuck_cells_of_a_fresh_tile_are_stuck(cell, storage, order):
    tile = rk.AnalogTile((9, 8), cell, seed=3, storage=storage)
    for array in tile.arrays:
        low, high = array.cells["w_min"], array.cells["w_max"]
        seen = array.get_weights()
        assert ((low <= seen) & (seen <= high)).all()
        assert array.cell.corrupt_devices_prob == 0 or (low == high).any()
    before = np.asarray(tile)
    assert before.any()
    with on_cpu(order):
        kernels = rk.AnalogTile((9, 8), cell, seed=3, storage=storage)
    assert_same_bits(np.asarray(kernels), before)


@pytest.mark.sweep
@pytest.mark.parametrize("noise", [0, 0.3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponential_steps_that_overflow_end_at_the_bound(noise, dtype, order):
    cell = rk.ExpStep(A_up=-1, gamma_up=1000, a=1, b=0, dw_min_std=noise, corrupt_devices_prob=0.2)
    once = rk.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)
    weights = []
    for context in (on_cpu(order), nullcontext()):
        tile = rk.AnalogTile((5, 6), cell, seed=1, update=once, dtype=dtype)
        tile.set_weights(np.full((5, 6), 0.1, dtype))
        with context:
            tile.update(np.ones((1, 6), dtype), -np.ones((1, 5), dtype), lr=cell.granularity)
        weights.append(np.asarray(tile))
    assert_same_bits(weights[0], weights[1])
    assert_same_bits(weights[1], np.asarray(tile.cells["w_max"]))


def test_exponential_parts_that_are_no_number_are_refused():
    with pytest.raises(rk.errors.ParameterError, match="A_up"):
        rk.ExpStep(A_up=-1, gamma_up=1000, b=1)


def test_response_of_a_device_given_by_its_range():
    """The formula of the docstring: the range is passed, as in the source of its parameters."""
    none = dict.fromkeys(("dw_min_dtod", "dw_min_std", "up_down_dtod"), 0.0)
    cell = rk.SoftBoundsPmax(**none, w_max_dtod=0, w_min_dtod=0)
    response = rk.studies.pulse_response(cell, np.ones(1000, int), n_cell=1, start=-1.0)
    p = np.arange(1001)
    want = -1 + (cell.w_max + 1) * (1 - np.exp(-p * cell.dw_min / cell.w_max))
    # Steps are finite: (1 - dw_min / w_max)^p stands for the exponential, 2e-4 of a range of 5.
    np.testing.assert_allclose(np.asarray(response.weight).reshape(-1)[-1001:], want, atol=1e-3)
