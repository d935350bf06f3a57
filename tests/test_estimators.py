"""The estimators keep scikit-learn's rules, find what is in the data, and repeat to the bit."""

import pickle
from unittest import SkipTest

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import rpukit as rk
from rpukit.errors import ParameterError
from rpukit.estimators import (
    AnalogClassifier,
    AnalogRegressor,
    ChowLiuMixture,
    CircuitClassifier,
    CircuitDensity,
)
from rpukit.estimators.network import Scale
from rpukit.estimators.probabilities import softmax

ESTIMATORS = [
    CircuitDensity(2, n_epochs=2),
    CircuitClassifier(2, n_epochs=2),
    ChowLiuMixture(2, n_epochs=2),
    AnalogClassifier((8,), epochs=10, learning_rate=0.05, random_state=0),
    AnalogClassifier((8,), epochs=10, learning_rate=0.05, read_noise=False, random_state=0),
    AnalogRegressor((8,), epochs=10, learning_rate=0.05, random_state=0),
]
ANALOG = [AnalogClassifier, AnalogRegressor]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_rules_of_scikit_learn(estimator):
    failed, passed = [], 0
    for own, check in estimator_checks_generator(estimator):
        try:
            check(own)
            passed += 1
        except SkipTest:  # one that needs an environment variable of SciPy
            continue
        except Exception as error:
            failed.append(f"{check.func.__name__}: {error!r}")
    assert not failed, "\n".join(failed)
    assert passed > 30


# ---- densities --------------------------------------------------------------------------------


def test_finds_dependence():
    rng = np.random.default_rng(0)
    hidden = rng.integers(0, 2, 500)
    x = (hidden[:, None] ^ (rng.random((500, 6)) < 0.1)).astype(float)
    alone = -6 * np.log(2)
    assert cross_val_score(CircuitDensity(2, random_state=0), x, cv=3).mean() > alone + 1
    fitted = CircuitDensity(2, random_state=0).fit(x)
    drawn = fitted.sample(500)
    assert drawn.shape == (500, 6)
    assert np.corrcoef(drawn.T)[np.triu_indices(6, 1)].min() > 0.3


def test_mixture_of_trees():
    """Two groups with other pairs of columns that belong together, beside numbers."""
    rng = np.random.default_rng(0)
    group, x = rng.integers(0, 2, 800), rng.integers(0, 2, (800, 4)).astype(float)
    x[:, 1] = np.where(group, x[:, 0], x[:, 1])
    x[:, 3] = np.where(group, x[:, 3], x[:, 2])
    x = np.column_stack([x, rng.normal(5.0 * group, 1)])
    found = ChowLiuMixture(2, random_state=0).fit(x)
    one = ChowLiuMixture(1, random_state=0).fit(x)
    assert found.score(x) > one.score(x) + 0.1
    assert np.diff(found.trace_).min() > -1e-3
    assert found.n_components_ == 2
    drawn = found.sample(2000)
    np.testing.assert_allclose(drawn.mean(axis=0), x.mean(axis=0), atol=0.2)
    assert set(np.unique(drawn[:, 0])) == {0.0, 1.0}
    grid = np.linspace(x[:, 4].min(), x[:, 4].max(), 2001)[:-1] + 1e-9
    column = ChowLiuMixture(1).fit(x[:, 4:])
    density = np.exp(column.score_samples(grid[:, None]))
    np.testing.assert_allclose(density.sum() * (grid[1] - grid[0]), 1, rtol=1e-2)
    assert column.score_samples([[1e3]]) < density.min()  # outside of the range
    with pytest.raises(ParameterError, match="n_components"):
        ChowLiuMixture(0).fit(x)


def test_missing_and_mixed_columns():
    rng = np.random.default_rng(1)
    group = rng.integers(0, 2, 400)
    x = np.stack([group, rng.normal(6 * group, 1)], axis=1).astype(float)
    x[rng.random(x.shape) < 0.1] = np.nan
    fitted = CircuitDensity(3, n_epochs=30, random_state=2).fit(x)
    half = fitted.circuit_.conditional([[np.nan, 6.0]])[0, 0]
    assert half[1] > 0.95
    assert np.isfinite(fitted.score_samples(x)).all()
    assert rk.estimators.CircuitDensity is CircuitDensity


def test_full_covariance_finds_what_independent_columns_need_more_components_for():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)) @ np.array([[1, 0.9, 0], [0, 0.3, 0.5], [0, 0, 0.2]])
    x = np.column_stack([1e4 + 100 * x, rng.integers(0, 3, 400)])
    x[rng.random(x.shape) < 0.1] = np.nan
    settings = {"structure": "mixture", "n_epochs": 15, "random_state": 1}
    full = CircuitDensity(1, covariance_type="full", **settings).fit(x)
    assert full.score(x) > CircuitDensity(4, **settings).fit(x).score(x)
    assert np.diff(full.trace_).min() > -1e-9
    assert full.circuit_.layout.inputs[-1].columns == (0, 1, 2)
    with pytest.raises(ParameterError, match="hclt"):
        CircuitDensity(covariance_type="full", structure="hclt").fit(x)


def test_classes_far_from_zero():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    x = (1e8 + 2 * y + 0.5 * rng.normal(size=300))[:, None]
    assert CircuitClassifier(2, random_state=0).fit(x, y).score(x, y) > 0.95


# ---- what is learned ----------------------------------------------------------------------------


def digits():
    """Scanned digits, every fifth for testing."""
    x, y = load_digits(return_X_y=True)
    test = np.arange(len(y)) % 5 == 0
    return x[~test], y[~test], x[test], y[test]


def test_analog_classifier_reads_digits():
    x, y, x_test, y_test = digits()
    found = AnalogClassifier((64,), epochs=6, random_state=0).fit(x, y)
    assert found.score(x_test, y_test) > 0.9
    assert found.loss_curve_[-1] < found.loss_curve_[0] / 3
    assert found.n_pulses_ > 1e6
    assert [tile.shape for tile in found.tiles_] == [(64, 65), (10, 65)]


def test_circuit_classifier_reads_digits():
    x, y, x_test, y_test = digits()
    found = CircuitClassifier(4, n_epochs=5, random_state=0).fit(x, y)
    assert found.score(x_test, y_test) > 0.87
    half = x_test.copy()
    half[:, :32] = np.nan
    assert found.score(half, y_test) > 0.7


def test_regressor_learns_two_targets():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (300, 3))
    y = np.stack([1e3 * np.sin(2 * x[:, 0]) + 5e3, x[:, 1] - x[:, 2]], axis=1)
    found = make_pipeline(StandardScaler(), AnalogRegressor((16,), random_state=0)).fit(x, y)
    assert found.score(x, y) > 0.8
    assert found.predict(x[:4]).shape == (4, 2)


def data_for(kind):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 4))
    y = x[:, 0] + 0.1 * rng.normal(size=60)
    return x, (y > 0).astype(int) if kind is AnalogClassifier else y


def bits_of(found):
    return [np.asarray(tile).tobytes() for tile in found.tiles_]


@pytest.mark.parametrize("kind", ANALOG)
def test_same_bits(kind):
    x, y = data_for(kind)
    made = kind((5, 4), epochs=3, random_state=7)
    first = made.fit(x, y)
    bits, answer = bits_of(first), first.predict(x)
    before = rk.get_num_threads()
    try:
        rk.set_num_threads(1 if before > 1 else 2)
        again = kind((5, 4), epochs=3, random_state=7).fit(x, y)
        assert bits_of(again) == bits
        np.testing.assert_array_equal(again.predict(x), answer)
    finally:
        rk.set_num_threads(None)
    assert bits_of(kind((5, 4), epochs=3, random_state=8).fit(x, y)) != bits
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).predict(x), answer)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ANALOG)
def test_same_bits_on_a_gpu(kind):
    x, y = data_for(kind)
    here, there = (
        kind((5, 4), epochs=3, random_state=7, device=device).fit(x, y)
        for device in ("cpu", "gpu")
    )
    assert [tile.get_weights().get().tobytes() for tile in there.tiles_] == bits_of(here)
    np.testing.assert_array_equal(here.predict(x), there.predict(x))
    assert here.loss_curve_ == there.loss_curve_


@pytest.mark.parametrize("kind", ANALOG)
def test_predictions_leave_no_trace(kind):
    """Learning goes on as if nobody had asked, also with converters that remember inputs."""
    x, y = data_for(kind)
    io = rk.IOParameters(noise_management="AVERAGE_ABS_MAX")
    one, two = (
        kind((5,), forward=io, random_state=7).partial_fit(x, y, **more)
        for more in [{"classes": [0, 1]} if kind is AnalogClassifier else {}] * 2
    )
    first = one.predict(x)
    np.testing.assert_array_equal(one.predict(x), first)
    assert bits_of(one.partial_fit(x, y)) == bits_of(two.partial_fit(x, y))


@pytest.mark.parametrize("kind", ANALOG)
def test_parts_are_one_epoch(kind):
    """Samples in several calls, cut at whole mini-batches, give the bits of one call."""
    x, y = data_for(kind)
    x[0], y[0] = x.max(axis=0), y[0]
    more = {"classes": [0, 1]} if kind is AnalogClassifier else {}
    whole = kind((5,), random_state=7).partial_fit(x[:30], y[:30], **more).partial_fit(x, y)
    parts = kind((5,), random_state=7).partial_fit(x[:30], y[:30], **more)
    for first in (0, 20, 40):
        parts.partial_fit(x[first : first + 20], y[first : first + 20])
    assert bits_of(parts) == bits_of(whole)


def test_exact_predictions_need_no_batch():
    x, y = data_for(AnalogClassifier)
    found = AnalogClassifier((5,), epochs=3, read_noise=False, random_state=1).fit(x, y)
    whole = found.predict_proba(x)
    np.testing.assert_array_equal(np.vstack([found.predict_proba(row[None]) for row in x]), whole)
    np.testing.assert_array_equal(found.predict_proba(x[::-1])[::-1], whole)


def test_circuit_classifier_reads_tables():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 200)
    colour = np.where(rng.random(200) < 0.9, np.where(y, "red", "blue"), None)
    size = pd.array(rng.poisson(3 + 4 * y), dtype="Int64")
    size[::7] = pd.NA
    frame = pd.DataFrame({"colour": pd.Categorical(colour), "size": size})
    found = CircuitClassifier(2, n_epochs=5, random_state=0).fit(frame, y)
    assert found.score(frame, y) > 0.9
    assert list(found.feature_names_in_) == ["colour", "size"]
    # The same values under categories in another order are the same values.
    other = frame.assign(colour=frame["colour"].cat.reorder_categories(["red", "blue"]))
    np.testing.assert_array_equal(found.predict_proba(other), found.predict_proba(frame))
    with pytest.raises(ParameterError, match="'green' is not among the categories"):
        found.predict(pd.DataFrame({"colour": pd.Categorical(["green"]), "size": [1]}))


# ---- numbers ------------------------------------------------------------------------------


def test_softmax():
    scores = np.array([[0.0, 1.0, 2.0], [1e4, 0.0, -np.inf], [-np.inf] * 3])
    found = softmax(scores)
    want = np.exp(scores[0]) / np.exp(scores[0]).sum()
    np.testing.assert_allclose(found[0], want, rtol=1e-14)
    np.testing.assert_array_equal(found[1], [1, 0, 0])
    np.testing.assert_allclose(found[2], 1 / 3, rtol=1e-14)


@pytest.mark.parametrize("how", ["minmax", "standard", "none"])
def test_scales(how):
    x = np.array([[1.0, 5.0, 1e308], [3.0, 5.0, -1e308], [2.0, 5.0, 0.0]])
    scale = Scale.of(x[:, :2] if how == "standard" else x, how)
    found = scale.apply(x[:, : len(scale.width)])
    want = {"minmax": [-1, 1, 0], "standard": [-np.sqrt(1.5), np.sqrt(1.5), 0], "none": [1, 3, 2]}
    np.testing.assert_allclose(found[:, 0], want[how], rtol=1e-6)
    np.testing.assert_array_equal(found[:, 1], [5.0] * 3 if how == "none" else [0.0] * 3)
    np.testing.assert_allclose(scale.undo(found)[:, :2], x[:, :2], rtol=1e-6)


def test_scales_of_columns_whose_squares_overflow():
    x = np.random.default_rng(0).normal(size=(50, 2))
    usual, large = Scale.of(x, "standard"), Scale.of(x * [1.0, 2.0**1000], "standard")
    np.testing.assert_array_equal(large.centre, usual.centre * [1.0, 2.0**1000])
    np.testing.assert_array_equal(large.width, usual.width * [1.0, 2.0**1000])


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        (AnalogClassifier, {"hidden_sizes": 5}, "hidden_sizes: got 5, need a tuple"),
        (
            AnalogClassifier,
            {"hidden_sizes": (5, 0)},
            "hidden_sizes: got 0, need an integer",
        ),
        (AnalogClassifier, {"epochs": 2.5}, "epochs: got 2.5"),
        (AnalogRegressor, {"batch_size": 0}, "batch_size: got 0"),
        (AnalogRegressor, {"learning_rate": -1}, "learning_rate: got -1, need a positive"),
        (AnalogRegressor, {"scaling": "max"}, "scaling: got 'max', need one of minmax"),
        (AnalogRegressor, {"cell": 5}, "cell: got 5"),
        (CircuitClassifier, {"structure": "tree"}, "structure: got 'tree', need one of auto"),
        (CircuitClassifier, {"prior": "flat"}, "prior: got 'flat'"),
    ],
)
def test_settings_are_checked(kind, setting, message):
    with pytest.raises(ParameterError, match=message):
        kind(**setting).fit(np.eye(4), [0, 1, 0, 1])


def test_classes_are_checked():
    x, y = data_for(AnalogClassifier)
    with pytest.raises(ParameterError, match="the first call of partial_fit needs all"):
        AnalogClassifier().partial_fit(x, y)
    found = AnalogClassifier((3,)).partial_fit(x, y, classes=[0, 1])
    with pytest.raises(ParameterError, match=r"got \[0, 2\], the first call gave \[0, 1\]"):
        found.partial_fit(x, y, classes=[0, 2])
    with pytest.raises(ParameterError, match="y: got 7, which is not among"):
        found.partial_fit(x, np.where(y, 7, 0))
    number = AnalogRegressor((3,)).partial_fit(x, y)
    with pytest.raises(ParameterError, match="targets a sample"):
        number.partial_fit(x, np.stack([y, y], axis=1))


def test_values_never_seen_are_less_likely_than_any_seen():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 3, (200, 4)).astype(float)
    fitted = CircuitDensity(2, n_epochs=3, random_state=0).fit(x)
    strange = x[:3].copy()
    strange[0, 1], strange[1], strange[2, :2] = 7, 7, [-1, 0.5]
    usual, odd = fitted.score_samples(x), fitted.score_samples(strange)
    assert np.isfinite(odd).all()
    assert odd.max() < usual.min()
    assert odd[1] < odd[2] < odd[0]  # four, two and one unseen values
    bare = CircuitDensity(2, n_epochs=1, pseudocount=0.0).fit(x)
    assert bare.score_samples([[7.0] * 4])[0] == -np.inf


def test_columns_of_any_offset_and_scale():
    """Densities of a column in other units differ by the logarithm of the unit."""
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.normal(0, 1, (150, 2)), rng.normal(6, 1, (150, 2))])
    found = {}
    for unit, offset in ((1.0, 0.0), (1e-9, 0.0), (1.0, 1e9), (1e12, 0.0)):
        fitted = CircuitDensity(2, n_epochs=10, random_state=1).fit(unit * x + offset)
        scores = fitted.score_samples(unit * x + offset)
        found[unit, offset] = scores.mean() + 2 * np.log(unit)
    np.testing.assert_allclose(list(found.values()), found[1.0, 0.0], rtol=0, atol=1e-5)
    constant = np.stack([x[:, 0], np.full(300, 1e-12)], axis=1)
    assert np.isfinite(CircuitDensity(1, random_state=1).fit(constant).score(constant))
