"""The estimator keeps scikit-learn's rules, and finds what is in the data."""

from unittest import SkipTest

import numpy as np
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import estimator_checks_generator

import rpukit as rk
from rpukit.estimators import CircuitDensity


def test_rules_of_scikit_learn():
    failed = []
    for estimator, check in estimator_checks_generator(CircuitDensity(2, n_epochs=2)):
        try:
            check(estimator)
        except SkipTest:  # one that needs an environment variable of SciPy
            continue
        except Exception as error:
            failed.append(f"{check.func.__name__}: {error!r}")
    assert not failed, "\n".join(failed)


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
