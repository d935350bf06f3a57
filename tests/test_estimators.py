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
