"""Numbers at the edge of float32: what lasts stays finite, the same on both sides."""

import warnings
from dataclasses import fields

import numpy as np
import pytest

import rpukit as rk
from rpukit.errors import DTypeError, NonFiniteError, ParameterError
from rpukit.testing import assert_same_bits, on_cpu

LARGE = 3.4e38
SLOW = {
    "diffusion": 1e30,
    "lifetime": 2.0,
    "reset_std": 1e30,
    "drift": rk.DriftParameters(nu=-50.0, nu_std=1e30, w_noise_std=1e30, wg_ratio=1e29, nu_k=1e30),
}
PAIR = (rk.SoftBounds(), rk.SoftBounds())
CELLS = {
    "ideal": rk.Ideal(),
    "ideal, large": rk.Ideal(**SLOW),
    "bounds, large": rk.SoftBounds(dw_min=1e30, w_max=1e30, w_min=-1e30, **SLOW),
    "write noise": rk.LinearStep(dw_min=0.01, write_noise_std=1e30),
    "transfer": rk.Transfer(gamma=1e30),
    "buffered": rk.BufferedTransfer(),
    "dynamic": rk.DynamicTransfer(),
    "mixed": rk.MixedPrecision(granularity=1e-30),
    "vector": rk.Vector(devices=PAIR, gamma_vec=(1e30, -1e30)),
}
PERFECT = rk.IOParameters(is_perfect=True)


def used(cell, dtype, lr=LARGE):
    """A tile after calls with the largest numbers, and its state after each."""
    rng = np.random.default_rng(3)
    x, d = (rng.uniform(-LARGE, LARGE, (4, n)).astype(dtype) for n in (4, 3))
    x[0, 0] = d[1, 1] = 0
    tile = rk.AnalogTile((3, 4), cell, forward=PERFECT, seed=5, dtype=dtype)
    for call in (
        lambda: tile.update(x, d, lr),
        lambda: tile.forward(x),
        lambda: tile.backward(d),
        lambda: tile.decay(LARGE),
        tile.diffuse,
        lambda: tile.drift(LARGE),
        lambda: tile.reset(0, 2, 0.5),
        lambda: tile.set_weights(np.full((3, 4), LARGE)),
        tile.diffuse,
        lambda: tile.update(x, d, -lr),
        lambda: tile.drift(1e9),
    ):
        call()
        yield tile.state()["arrays"]


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CELLS)
def test_what_lasts_is_finite(name, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step, arrays in enumerate(used(CELLS[name], dtype)):
            for key, array in arrays.items():
                assert array.dtype.kind != "f" or np.isfinite(array).all(), (step, key)


@pytest.mark.parametrize("name", ["ideal", "ideal, large", "dynamic", "mixed"])
def test_kernels_hold_the_same_numbers(name):
    want = list(used(CELLS[name], "float32"))
    with on_cpu():
        for one, other in zip(used(CELLS[name], "float32"), want, strict=True):
            for key in other:
                assert_same_bits(one[key], other[key])


def test_an_ideal_cell_is_held_after_each_sample():
    """Bounds of the type: a cut batch, and a single pass over it, agree."""
    top = float(np.finfo(np.float32).max)
    x = np.array([[1, 1e-30], [1, 0], [1, 0]], np.float32)
    d = np.array([[-3e38], [-3e38], [3e38]], np.float32)
    whole, cut = (rk.AnalogTile((1, 2), rk.Ideal()) for _ in range(2))
    whole.update(x, d, 1.0)
    for k in range(3):
        cut.update(x[k : k + 1], d[k : k + 1], 1.0)
    assert_same_bits(np.asarray(whole), np.asarray(cut))
    after = np.float32(top) - np.float32(3e38)
    assert_same_bits(np.asarray(whole)[:, :1], np.array([[after]], np.float32))
    # The rate times an error is held, too, so that 0 times it is 0.
    tile = rk.AnalogTile((1, 2), rk.Ideal()).update([[0, 1e-10]], [[3e38]], 1e10)
    np.testing.assert_allclose(np.asarray(tile), [[0, -1e-10 * top]], rtol=1e-6)


def test_inference_tiles_stay_finite():
    tile = rk.InferenceTile((2, 3), seed=1)
    with pytest.raises(ParameterError, match="lr: got 1e\\+300"):
        tile.update(np.ones((1, 3)), np.ones((1, 2)), 1e300)
    assert_same_bits(np.asarray(tile), np.zeros((2, 3), np.float32))
    tile.update(np.full((2, 3), 3e38), np.full((2, 2), 3e38), 3e38)
    tile.update_scales(np.full((2, 2), 3e38), np.full((2, 2), 3e38), 3e38)
    assert all(np.isfinite(a).all() for a in tile.state()["arrays"].values())


def test_results_follow_numpy():
    """A product beyond the type is infinite, without a warning; the next call refuses it."""
    tile = rk.AnalogTile((1, 1), rk.Ideal(), forward=PERFECT).set_weights([[3e38]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = tile.forward([[10.0]])
    assert np.isposinf(y).all()
    with pytest.raises(NonFiniteError, match="d holds"):
        tile.backward(y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.update([[1, 1]], [[1]], 1e300), "lr: got 1e\\+300, need a finite number"),
        (lambda t: t.update([[1, 1]], [[1]], float("nan")), "lr: got nan"),
        (lambda t: t.decay(10**400), "alpha: got 1000"),
        (lambda t: t.drift(1e39), "dt: got 1e\\+39"),
        (lambda t: t.reset(1, 5, "x"), "n_col: got 5"),
        (lambda t: t.energy(None), "energy_per_pulse: got None"),
    ],
)
def test_numbers_are_refused_before_anything_changes(call, message):
    tile = rk.AnalogTile((1, 2), rk.SoftBounds(), seed=1).set_weights([[0.1, -0.2]])
    before = tile.state()
    with pytest.raises((ParameterError, DTypeError), match=message):
        call(tile)
    after = tile.state()
    assert after["header"] == before["header"]
    for key, array in before["arrays"].items():
        assert_same_bits(after["arrays"][key], array)


MODELS = [rk.ConstantStep, rk.LinearStep, rk.SoftBounds, rk.ExpStep, rk.PowStep, rk.PiecewiseStep]
REFERENCES = [rk.SoftBoundsReference, rk.PowStepReference, rk.SoftBoundsPmax]


def test_cells_that_can_be_drawn_beyond_float32_are_refused():
    with pytest.raises(ParameterError, match="dw_min: got 1e\\+30, need .* one can reach 7e\\+60"):
        rk.ConstantStep(dw_min=1e30, dw_min_dtod=1e30)
    with pytest.raises(ParameterError, match="LinearStep.dw_min: .* one can reach"):
        rk.LinearStep(dw_min=1e30, gamma_down_dtod=1e10)
    assert rk.LinearStep(dw_min=1e30, w_max_dtod=0, w_min_dtod=0).dw_min == 1e30


def test_any_cell_that_is_taken_is_finite_and_stays_so():
    rng = np.random.default_rng(0)
    sizes, n_taken = [1e30, 1e20, 1e10, 1e3, -1e30, 1e-30, 0.0, 1.0, 5.0], 0
    for k in range(360):
        model = (MODELS + REFERENCES)[k % 9]
        names = [f.name for f in fields(model) if isinstance(f.default, float)]
        drawn = {str(n): float(rng.choice(sizes)) for n in rng.choice(names, 3, replace=False)}
        try:
            cell = model(**drawn)
        except ParameterError:
            continue
        tile = rk.AnalogTile((2, 3), cell, seed=k)
        assert all(np.isfinite(plane).all() for plane in tile.cells.values()), cell
        tile.update(np.ones((2, 3)), np.ones((2, 2)), lr=0.1)
        assert np.isfinite(np.asarray(tile)).all(), cell
        n_taken += 1
    assert n_taken > 100
