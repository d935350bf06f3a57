"""Structures and first parameters from data: Chow-Liu trees, LearnSPN, clusters."""

from itertools import product

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.circuits.structures.fitted import fitted
from rpukit.testing import assert_same_bits


def chain(n=400, n_variables=6, flip=0.1, seed=0):
    """Bits each of which is that before but for a few."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (n, 1))
    for _ in range(n_variables - 1):
        x = np.concatenate([x, x[:, -1:] ^ (rng.random((n, 1)) < flip)], axis=1)
    return x


def groups(n=400, seed=1):
    """Two clusters with other dependences."""
    x = chain(n, seed=seed)
    x[n // 2 :] = chain(n - n // 2, seed=seed + 1)[:, [0, 3, 1, 5, 2, 4]]
    x[n // 2 :, ::2] |= chain(n - n // 2, seed=9)[:, ::2]
    return x


def everything(n_variables, n_values=2):
    return np.array(list(product(range(n_values), repeat=n_variables)))


def mean(root, x):
    return float(rk.Circuit(root, dtype="float64").log_likelihood(x).mean())


# ---- trees --------------------------------------------------------------------------------------


def test_chow_liu_tree_is_its_formula():
    """The likelihood of counts along the tree: entropies of variables, less information."""
    x = chain()
    pc = rk.Circuit(circuits.chow_liu(x, pseudocount=0), dtype="float64")
    information = circuits.mutual_information(x)
    parents, _ = circuits.chow_liu_tree(information)
    gained = sum(information[v, p] for v, p in enumerate(parents) if p >= 0)
    expected = gained - np.diag(information).sum()
    np.testing.assert_allclose(pc.log_likelihood(x).mean(), expected, rtol=1e-12)
    np.testing.assert_allclose(np.exp(pc.log_likelihood(everything(6))).sum(), 1, rtol=1e-12)
    assert pc.is_deterministic()
    assert pc.most_probable(x[:3], missing=np.arange(6) > 2)[0].shape == (3, 6)


def test_chow_liu_tree_of_unequal_supports_and_one_variable():
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(0, 3, 200), rng.integers(0, 5, 200)], axis=1)
    x[:, 1] = (x[:, 0] + (rng.random(200) < 0.2)) % 5
    x[0, 1] = 4
    pc = rk.Circuit(circuits.chow_liu(x), dtype="float64")
    grid = np.array(list(product(range(3), range(5))))
    np.testing.assert_allclose(np.exp(pc.log_likelihood(grid)).sum(), 1, rtol=1e-12)
    assert mean(circuits.chow_liu(x[:, :1], pseudocount=0), x[:, :1]) > -np.log(3) - 0.01


def test_weights_of_samples_count_them():
    x = chain(60)
    twice = circuits.chow_liu(np.concatenate([x, x[:20]]))
    weighed = circuits.chow_liu(x, weights=1.0 + (np.arange(60) < 20))
    assert_same_bits(
        rk.Circuit(twice).log_likelihood(everything(6)),
        rk.Circuit(weighed).log_likelihood(everything(6)),
    )


def test_mixture_of_trees_beats_one():
    x = groups()
    root = circuits.chow_liu_mixture(x, 2, pseudocount=0.1)
    assert mean(root, x) > mean(circuits.chow_liu(x, pseudocount=0.1), x) + 0.05
    again = circuits.chow_liu_mixture(x, 2, pseudocount=0.1)
    pc = rk.Circuit(root, dtype="float64")
    assert_same_bits(rk.Circuit(again, dtype="float64").log_likelihood(x), pc.log_likelihood(x))
    np.testing.assert_allclose(np.exp(pc.log_likelihood(everything(6))).sum(), 1, rtol=1e-9)


# ---- LearnSPN -----------------------------------------------------------------------------------


def test_learn_spn_splits_what_is_independent():
    x = np.concatenate([chain(seed=1)[:, :3], chain(seed=7)[:, :3]], axis=1)
    root = circuits.learn_spn(x, min_samples=350)
    assert root.children[0].KIND == "product"
    scopes = [child.variables for child in root.children[0].children]
    assert sorted(scopes) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("leaves", ["independent", "trees"])
def test_learn_spn_learns(leaves):
    x = groups(1200)
    root = circuits.learn_spn(x, min_samples=150, leaves=leaves, seed=3)
    assert mean(root, x) > mean(circuits.learn_spn(x, min_samples=10_000), x) + 0.3
    pc = rk.Circuit(root, dtype="float64")
    np.testing.assert_allclose(np.exp(pc.log_likelihood(everything(6))).sum(), 1, rtol=1e-9)
    same = rk.Circuit(circuits.learn_spn(x, min_samples=150, leaves=leaves, seed=3))
    assert_same_bits(same.log_likelihood(x), rk.Circuit(root).log_likelihood(x))
    trace = [pc.em_step(x).mean() for _ in range(3)]
    assert np.diff(trace).min() > 0


def test_learn_spn_of_numbers():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 600)
    x = np.stack([rng.normal(6.0 * group, 1), rng.gamma(2 + 20 * group), 1.0 * group], axis=1)
    leaf = [circuits.Gaussian(), circuits.Gamma(), circuits.Bernoulli()]
    root = circuits.learn_spn(x, leaf, min_samples=250)
    single = circuits.learn_spn(x, leaf, min_samples=10_000)
    assert mean(root, x) > mean(single, x) + 1
    assert rk.Circuit(root).sample(4).shape == (4, 3)


def test_what_learn_spn_refuses():
    with pytest.raises(rk.errors.ParameterError, match="name leaves"):
        circuits.learn_spn([[0.5, 1], [1, 0]])
    with pytest.raises(rk.errors.ParameterError, match="trees"):
        circuits.learn_spn([[0, 1], [1, 0]], circuits.Bernoulli(), leaves="trees")
    with pytest.raises(rk.errors.NonFiniteError, match="NaN"):
        circuits.learn_spn([[0, np.nan], [1, 0]])
    with pytest.raises(rk.errors.ShapeError, match="weights"):
        circuits.chow_liu([[0, 1], [1, 0]], weights=[1.0])
    with pytest.raises(rk.errors.ParameterError, match="whole numbers"):
        circuits.chow_liu([[0.5, 1], [1, 0]])


@pytest.mark.parametrize(
    ("leaf", "column"),
    [
        (circuits.Categorical(n_values=3), [0, 1, 1, 2, 1]),
        (circuits.MaskedCategorical(n_values=3, allowed=(0, 1)), [0, 1, 1, 0, 1]),
        (circuits.Bernoulli(), [0, 1, 1, 0, 1]),
        (circuits.Binomial(n_trials=4), [0, 1, 4, 2, 1]),
        (circuits.Gaussian(), [0.5, 1.0, -2.0]),
        (circuits.Poisson(), [0, 3, 5]),
        (circuits.Geometric(), [0, 3, 5]),
        (circuits.LogNormal(), [0.2, 3, 5]),
        (circuits.Gamma(), [0.2, 3, 5]),
        (circuits.VonMises(), [0.2, 1.3, -0.5]),
        (circuits.StudentT(), [0.2, 1.3, -0.5, 40]),
    ],
    ids=repr,
)
def test_fitted_leaves_are_where_em_stays(leaf, column):
    x = np.array(column, dtype=float)[:, None]
    node = circuits.inputs(0, leaf, 1, parameters=fitted(leaf, x[:, 0], 0.0))
    pc = rk.Circuit(circuits.sum(node, n_nodes=1), dtype="float64")
    before = pc.em_step(x).sum()
    np.testing.assert_allclose(pc.log_likelihood(x).sum(), before, rtol=1e-6)


# ---- distillation -------------------------------------------------------------------------------


def test_distilled_parameters_are_counts_of_states():
    """One hidden variable whose states are the values of a variable that is given."""
    x = chain(300, 4)
    root = circuits.distil(circuits.hclt(x, 2), x, embedding=x[:, :1], pseudocount=0)
    pc = rk.Circuit(root, dtype="float64")
    assert pc.log_likelihood(x).mean() > -4 * np.log(2) * 0.75
    weights = np.sort(root.parameters.reshape(-1))
    share = x[:, 0].mean()
    np.testing.assert_allclose(weights, np.sort([share, 1 - share]), atol=1e-9)


def test_distillation_saves_epochs():
    x = groups(1000)
    plain = rk.Circuit(circuits.hclt(x, 8), seed=1)
    helped = rk.Circuit(circuits.distil(circuits.hclt(x, 8), x), seed=1)
    assert helped.log_likelihood(x).mean() > plain.log_likelihood(x).mean() + 0.5
    plain.fit(x, n_epochs=3)
    helped.fit(x, n_epochs=3)
    assert helped.log_likelihood(x).mean() > plain.log_likelihood(x).mean()


def test_distillation_of_numbers_and_what_it_refuses():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, 500)
    x = rng.normal(4.0 * group[:, None], 1, (500, 5))
    root = circuits.hclt(x, 3, circuits.Gaussian(), n_bins=6)
    drawn = mean(root, x)
    assert mean(circuits.distil(root, x), x) > drawn + 1
    with pytest.raises(rk.errors.StructureError, match="tied"):
        circuits.distil(circuits.hmm(4, 2, 2), chain(50, 4))
    with pytest.raises(rk.errors.ShapeError, match="embedding"):
        circuits.distil(root, x, embedding=x[:3])
    with pytest.raises(rk.errors.ShapeError, match="x: got shape"):
        circuits.distil(root, x[:, :3])
