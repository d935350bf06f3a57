"""`HMM` agrees with hmmlearn, takes sequences of any lengths, and repeats to the bit."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import rpukit as rk
from rpukit.errors import DTypeError, NonFiniteError, ParameterError, ShapeError
from rpukit.estimators import HMM
from rpukit.testing import assert_same_bits, on_cpu

# Written by tools/record_hmmlearn.py with hmmlearn 0.3.3.
GOLDEN = np.load(Path(__file__).parent / "data" / "circuits" / "hmmlearn.npz")
LENGTHS = GOLDEN["lengths"]
PRIORS = {"startprob_prior": 1.5, "transmat_prior": 1.2}
OPTIONS = {
    "diag": {},
    "spherical": {
        "covariance_type": "spherical",
        **PRIORS,
        "means_prior": 1.0,
        "means_weight": 0.3,
    },
    "categorical": {"emission": "categorical", **PRIORS, "emissionprob_prior": 1.1},
    "poisson": {"emission": "poisson", "lambdas_prior": 0.5, "lambdas_weight": 0.2},
    "full": {
        "covariance_type": "full",
        **PRIORS,
        "means_prior": 1.0,
        "means_weight": 0.3,
    },
    "tied": {"covariance_type": "tied", "covars_weight": 6.0},
}


def begun(name: str, **options) -> tuple[HMM, np.ndarray]:
    """Make a model with the parameters that hmmlearn began with, and its samples."""
    settings = {"init_params": "", "n_iter": 8, "tol": -np.inf, **OPTIONS[name], **options}
    model = HMM(3, **settings)
    for key in GOLDEN:
        if key.startswith(f"{name}.begin."):
            setattr(model, key.rpartition(".")[2], GOLDEN[key])
    return model, GOLDEN[f"{name}.x"]


@pytest.mark.parametrize("name", OPTIONS)
class TestAgainstHmmlearn:
    def test_queries(self, name):
        model, x = begun(name)
        score, posteriors = model.score_samples(x, LENGTHS)
        np.testing.assert_allclose(score, GOLDEN[f"{name}.score"], rtol=1e-12)
        assert score == model.score(x, LENGTHS)
        np.testing.assert_allclose(posteriors, GOLDEN[f"{name}.posteriors"], atol=1e-11)
        for criterion in ("aic", "bic"):
            got = getattr(model, criterion)(x, LENGTHS)
            np.testing.assert_allclose(got, GOLDEN[f"{name}.{criterion}"], rtol=1e-12)

    @pytest.mark.parametrize("way", ["viterbi", "map"])
    def test_decode(self, name, way):
        model, x = begun(name, algorithm=way)
        value, states = model.decode(x, LENGTHS)
        np.testing.assert_allclose(value, GOLDEN[f"{name}.{way}"], rtol=1e-12)
        np.testing.assert_array_equal(states, GOLDEN[f"{name}.{way}.states"])
        np.testing.assert_array_equal(model.predict(x, LENGTHS), states)

    def test_eight_steps(self, name):
        model, x = begun(name)
        model.fit(x, LENGTHS)
        np.testing.assert_allclose(model.monitor_.history, GOLDEN[f"{name}.history"], rtol=1e-11)
        ends = [key for key in GOLDEN if key.startswith(f"{name}.end.")]
        assert len(ends) >= 3
        for key in ends:
            own = key.rpartition(".")[2]
            got = getattr(model, own)
            if own == "covars_" and GOLDEN[key].shape != got.shape:
                tied = name == "tied"
                got = got[0] if tied else np.stack([np.diag(c) for c in got])
            np.testing.assert_allclose(got, GOLDEN[key], rtol=1e-9, atol=1e-11)

    def test_float32_is_near(self, name):
        model, x = begun(name, dtype="float32")
        np.testing.assert_allclose(model.score(x, LENGTHS), GOLDEN[f"{name}.score"], rtol=1e-6)
        got = model.predict_proba(x, LENGTHS)
        np.testing.assert_allclose(got, GOLDEN[f"{name}.posteriors"], atol=2e-5)


# ---- sequences --------------------------------------------------------------------------------


def test_a_sequence_does_not_depend_on_others():
    model, x = begun("diag")
    ends = np.cumsum(LENGTHS)
    together, states = model.predict_proba(x, LENGTHS), model.predict(x, LENGTHS)
    alone = [clone_of(model) for _ in LENGTHS]
    pieces = [x[end - n : end] for end, n in zip(ends, LENGTHS, strict=True)]
    scores = [one.score(piece) for one, piece in zip(alone, pieces, strict=True)]
    assert model.score(x, LENGTHS) == np.add.accumulate(scores)[-1]
    single = [one.predict_proba(piece) for one, piece in zip(alone, pieces, strict=True)]
    assert_same_bits(together, np.concatenate(single))
    best = [one.predict(piece) for one, piece in zip(alone, pieces, strict=True)]
    np.testing.assert_array_equal(states, np.concatenate(best))


def clone_of(model: HMM) -> HMM:
    """Copy a model with its parameters, but without the circuits that it has built."""
    return pickle.loads(pickle.dumps(model))


def test_order_and_threads_do_not_matter_to_posteriors():
    model, x = begun("poisson")
    back = np.concatenate(np.split(x, np.cumsum(LENGTHS)[:-1])[::-1])
    want = np.concatenate(np.split(model.predict_proba(x, LENGTHS), np.cumsum(LENGTHS)[:-1])[::-1])
    assert_same_bits(model.predict_proba(back, LENGTHS[::-1]), want)
    try:
        rk.set_num_threads(1)
        first = clone_of(model).fit(x, LENGTHS)
        rk.set_num_threads(3)
        second = clone_of(model).fit(x, LENGTHS)
    finally:
        rk.set_num_threads(None)
    assert_same_bits(first.lambdas_, second.lambdas_)
    assert first.monitor_.history == second.monitor_.history


def test_many_lengths_and_passes(monkeypatch):
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 40, 60)
    x = rng.normal(size=(lengths.sum(), 1)) + 3 * rng.integers(0, 2, (lengths.sum(), 1))
    whole = HMM(2, n_iter=3, random_state=0).fit(x, lengths)
    monkeypatch.setattr("rpukit.estimators.hmm_sequences._MOST_VALUES", 1000)
    cut = HMM(2, n_iter=3, random_state=0).fit(x, lengths)
    assert_same_bits(cut.means_, whole.means_)
    assert_same_bits(cut.predict_proba(x, lengths), whole.predict_proba(x, lengths))


def test_missing_values_are_summed_over():
    model, x = begun("categorical")
    x = x[:4].astype(float)
    x[2] = np.nan
    every = [np.where(np.isnan(x), symbol, x) for symbol in range(5)]
    whole = np.logaddexp.reduce([model.score(one) for one in every])
    np.testing.assert_allclose(model.score(x), whole, rtol=1e-13)
    assert np.isfinite(model.fit(x).emissionprob_).all()


def test_decode_by_trying_all():
    model, x = begun("diag")
    x, n = x[:5], 5
    means, variances = model.means_, np.stack([np.diag(c) for c in model.covars_])
    density = -0.5 * ((x[:, None] - means) ** 2 / variances + np.log(2 * np.pi * variances)).sum(
        axis=2
    )
    ways = np.indices((3,) * n).reshape(n, -1)
    value = np.log(model.startprob_)[ways[0]] + density[0][ways[0]]
    for t in range(1, n):
        value = value + np.log(model.transmat_)[ways[t - 1], ways[t]] + density[t][ways[t]]
    got, states = model.decode(x)
    np.testing.assert_allclose(got, value.max(), rtol=1e-13)
    np.testing.assert_array_equal(states, ways[:, value.argmax()])


# ---- learning ---------------------------------------------------------------------------------


def test_finds_the_model_that_drew_the_data():
    truth = HMM(2, emission="gaussian")
    truth.startprob_, truth.transmat_ = np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.2, 0.8]])
    truth.means_, truth.covars_ = np.array([[0.0], [4.0]]), np.ones((2, 1))
    drawn = [truth.sample(300, random_state=k)[0] for k in range(4)]
    found = HMM(2, n_iter=40, tol=1e-3, random_state=0).fit(np.concatenate(drawn), [300] * 4)
    order = found.means_.ravel().argsort()
    np.testing.assert_allclose(found.means_[order], truth.means_, atol=0.2)
    np.testing.assert_allclose(found.transmat_[order][:, order], truth.transmat_, atol=0.06)
    np.testing.assert_allclose(
        found.get_stationary_distribution()[order], [2 / 3, 1 / 3], atol=0.1
    )
    assert found.monitor_.converged
    assert np.diff(found.monitor_.history).min() > -1e-3


def test_zeros_stay_and_params_are_kept():
    model, x = begun("diag", params="st", n_iter=4)
    model.startprob_ = np.array([1.0, 0.0, 0.0])
    model.transmat_ = np.array([[0.8, 0.2, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]])
    means = model.means_.copy()
    model.fit(x, LENGTHS)
    np.testing.assert_array_equal(model.startprob_, [1, 0, 0])
    assert (model.transmat_[np.tril_indices(3, -1)] == 0).all()
    assert model.transmat_[0, 2] == 0
    np.testing.assert_array_equal(model.means_, means)


def test_far_from_zero():
    rng = np.random.default_rng(4)
    state = np.repeat([0, 1, 0, 1], 50)
    x = (rng.normal(size=200) + 6 * state)[:, None]
    near, far = (HMM(2, n_iter=5, random_state=1).fit(x + at, [200]) for at in (0.0, 2.0**26))
    near_std, far_std = (np.sqrt(m.covars_.ravel()) for m in (near, far))
    np.testing.assert_allclose(far_std, near_std, rtol=1e-5)


def test_other_leaves():
    rng = np.random.default_rng(5)
    state = np.repeat([0, 1, 0, 1], 40)
    x = rng.binomial(5, np.where(state, 0.8, 0.2), (2, 160)).T
    leaf = rk.circuits.Binomial(n_trials=5)
    model = HMM(2, emission=leaf, n_iter=20, random_state=0).fit(x, [100, 60])
    assert np.diff(model.monitor_.history).min() > -1e-9
    np.testing.assert_allclose(
        np.sort(model.emissionparams_.ravel()), [0.2, 0.2, 0.8, 0.8], atol=0.06
    )
    same = max((model.predict(x, [100, 60]) == s).mean() for s in (state, 1 - state))
    assert same > 0.95
    with pytest.raises(ParameterError, match="Circuit.sample"):
        model.sample(3)


@pytest.mark.parametrize(
    ("leaf", "drawn"),
    [
        (rk.circuits.Exponential(), lambda rng, s: rng.exponential(np.where(s, 5.0, 0.3))),
        (rk.circuits.VonMises(), lambda rng, s: rng.vonmises(np.where(s, 2.0, -1.0), 6)),
    ],
    ids=["Exponential", "VonMises"],
)
def test_leaves_with_closed_steps(leaf, drawn):
    state = np.repeat([0, 1, 0, 1], 40)
    x = drawn(np.random.default_rng(6), state)[:, None]
    model = HMM(2, emission=leaf, n_iter=15, tol=1e-3, random_state=0).fit(x, [100, 60])
    assert np.diff(model.monitor_.history).min() > -1e-9
    same = (model.predict(x, [100, 60]) == state).mean()
    assert max(same, 1 - same) > 0.9


def test_spare_states_stay_finite():
    x = np.repeat([[0.0], [5.0]], 10, axis=0)
    for kind in ("gaussian", "poisson", "categorical"):
        model = HMM(5, emission=kind, n_iter=5, random_state=0).fit(x, [10, 10])
        for name in ("startprob_", "transmat_"):
            np.testing.assert_allclose(getattr(model, name).sum(axis=-1), 1)
        assert np.isfinite(model.score(x, [10, 10]))


# ---- manners ----------------------------------------------------------------------------------


def test_rules_of_scikit_learn():
    model = HMM(3, emission="poisson", n_iter=2, random_state=7)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(n_components=2).n_components == 2
    x = np.random.default_rng(0).poisson(3, (50, 1))
    model.fit(x, [20, 30])
    again = clone(model).fit(x, [20, 30])
    assert_same_bits(model.lambdas_, again.lambdas_)
    assert_same_bits(clone_of(model).predict_proba(x), model.predict_proba(x))
    assert not hasattr(copy, "startprob_")
    with pytest.raises(NotFittedError):
        copy.score(x)


def test_samples_follow_hmmlearn():
    """Draws of symbols are those that hmmlearn takes from the same generator."""
    model, _ = begun("categorical")
    x, states = model.sample(6, random_state=1)
    rng = np.random.RandomState(1)
    state = (np.cumsum(model.startprob_) > rng.rand()).argmax()
    for t in range(6):
        assert states[t] == state
        assert x[t, 0] == (np.cumsum(model.emissionprob_[state]) > rng.rand()).argmax()
        state = (np.cumsum(model.transmat_[state]) > rng.rand()).argmax()
    assert model.sample(2, random_state=1, currstate=2)[1][0] == 2


def test_the_monitor_speaks(capsys):
    model, x = begun("diag", n_iter=2, verbose=True)
    model.fit(x, LENGTHS)
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert model.monitor_.iter == 2


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"emission": "normal"}, ParameterError, "gaussian, categorical, poisson"),
        ({"n_components": 0}, ParameterError, "n_components"),
        ({"algorithm": "best"}, ParameterError, "viterbi"),
        ({"covariance_type": "dense"}, ParameterError, "diag"),
        ({"dtype": "int32"}, DTypeError, "float"),
        ({"tol": "small"}, ParameterError, "tol"),
        ({"params": 3}, ParameterError, "letters"),
    ],
)
def test_settings_are_checked(change, error, match):
    with pytest.raises(error, match=match):
        HMM(**{"n_components": 2, **change}).fit(np.zeros((4, 1)))


@pytest.mark.parametrize(
    ("name", "value", "error", "match"),
    [
        ("startprob_", [0.5, 0.5], ShapeError, "startprob_"),
        ("startprob_", [0.5, 0.5, 0.5], ParameterError, "sum to 1"),
        ("transmat_", np.eye(2), ShapeError, "transmat_"),
        ("means_", [[np.nan] * 2] * 3, NonFiniteError, "means_"),
        ("means_", np.zeros((3, 4)), ShapeError, "covars_"),
    ],
)
def test_parameters_are_checked(name, value, error, match):
    model, x = begun("diag")
    setattr(model, name, value)
    with pytest.raises(error, match=match):
        model.score(x, LENGTHS)


def test_samples_are_checked():
    model, x = begun("categorical")
    for bad, match in ((x + 5, "0 to 4"), (x - 1, "integers from 0"), (x + 0.5, "integers")):
        with pytest.raises(ParameterError, match=match):
            model.score(bad, LENGTHS)
    with pytest.raises(ShapeError, match="sum of 3"):
        model.score(x, [3])
    with pytest.raises(ParameterError, match="integers from 1"):
        model.score(x, [0, len(x)])
    with pytest.raises(ValueError, match="2D"):
        model.score(x[:, 0])
    with pytest.raises(ShapeError, match="one, of symbols"):
        HMM(2, emission="categorical").fit(np.zeros((4, 2)))
    gauss = begun("diag")[0]
    for wrong in (np.zeros((3, 2)), np.full((3, 2, 2), 1.0), np.ones((2, 2))):
        with pytest.raises((ParameterError, ShapeError), match="covars_"):
            gauss.covars_ = wrong


# ---- roots of several lengths -----------------------------------------------------------------


def test_best_ways_from_several_roots():
    """Rules of exponent inf go down from the root that has the weight."""
    leaf = rk.circuits.inputs(0, rk.circuits.Bernoulli(), 2, parameters=[0.1, 0.8])
    roots = [rk.circuits.sum(leaf, n_nodes=1, parameters=[w]) for w in ([0.9, 0.1], [0.2, 0.8])]
    pc, rule = rk.Circuit(roots, dtype="float64"), rk.circuits.Rule(exponent=np.inf)
    x, weights = np.ones((2, 1), int), np.eye(2)
    flows = pc.flows(x, weights=weights, rule=rule)[leaf]
    np.testing.assert_array_equal(flows, [[1, 0], [0, 1]])
    with pytest.raises(ParameterError, match="one of the 2 roots"):
        pc.flows(x, rule=rule)


def test_roots_of_different_scopes():
    a, b = (
        rk.circuits.inputs(v, rk.circuits.Bernoulli(), 2, parameters=[0.1, 0.8]) for v in (0, 1)
    )
    below = rk.circuits.sum(b, n_nodes=1, parameters=[[0.5, 0.5]])
    above = rk.circuits.sum(rk.circuits.product(a, b), n_nodes=1, parameters=[[0.5, 0.5]])
    pc = rk.Circuit([above, below], dtype="float64")
    got = np.exp(pc.log_likelihood([[1, 1], [np.nan, 1]]))
    np.testing.assert_allclose(got, [[0.325, 0.45], [0.45, 0.45]], rtol=1e-14)
    flows = pc.flows([[1, 1]], weights=[[0.0, 1.0]])
    assert not flows[a].any()
    np.testing.assert_allclose(flows[b], [[1 / 9, 8 / 9]], rtol=1e-14)
    again = rk.Circuit.from_state(pc.state())
    assert_same_bits(again.log_likelihood([[1, 1]]), pc.log_likelihood([[1, 1]]))


# ---- kernels ----------------------------------------------------------------------------------


def learned(device="cpu"):
    """Parameters after three steps of EM, posteriors and best states."""
    rng = np.random.default_rng(0)
    lengths = [9, 8, 7, 2, 1]
    x = rng.normal(size=(27, 2)) + 3 * rng.integers(0, 2, (27, 1))
    x[3] = np.nan
    model = HMM(3, n_iter=3, tol=-np.inf, device=device, random_state=0).fit(x, lengths)
    found = model.predict_proba(x, lengths), model.predict(x, lengths).astype(float)
    return model.means_, model.covars_, model.transmat_, *found


def test_kernels_have_the_bits_of_the_mirrors():
    with on_cpu(1):
        by_kernels = learned()
    for a, b in zip(learned(), by_kernels, strict=True):
        assert_same_bits(a, b)


@pytest.mark.gpu
def test_a_gpu_has_the_bits_of_a_cpu():
    for a, b in zip(learned(), learned("gpu"), strict=True):
        assert_same_bits(a, b)


# ---- full covariances -------------------------------------------------------------------------


def test_full_covariances_are_found_also_with_gaps():
    rng = np.random.default_rng(0)
    factor = np.array(
        [[[1.0, 0, 0], [0.8, 0.6, 0], [0, 0, 1]], [[1, 0, 0], [-0.8, 0.6, 0], [0, 0, 1]]]
    )
    states = np.repeat([0, 1, 0, 1], 150)
    x = np.einsum("nij,nj->ni", factor[states], rng.normal(size=(600, 3))) + 3 * states[:, None]
    x[rng.random(x.shape) < 0.1] = np.nan
    model = HMM(2, covariance_type="full", n_iter=15, random_state=0).fit(x, [300, 300])
    first, second = model.covars_[np.argsort(model.means_[:, 0]), 0, 1]
    assert 0.6 < first < 1.0
    assert -1.0 < second < -0.6
    hits = (model.predict(x) == states).mean()
    assert max(hits, 1 - hits) > 0.97
    drawn, along = model.sample(4000, random_state=1)
    for state in range(2):
        some = np.cov(drawn[along == state].T)
        np.testing.assert_allclose(some, model.covars_[state], atol=0.25)


def test_full_covariances_are_checked():
    model, x = begun("full")
    with pytest.raises(ShapeError, match="covars_"):
        model.covars_ = np.ones((3, 2))
    with pytest.raises(ParameterError, match="positive definite"):
        model.covars_ = np.tile([[1.0, 2.0], [2.0, 1.0]], (3, 1, 1))
    assert model.score(x, LENGTHS) == begun("full")[0].score(x, LENGTHS)


def test_leaves_of_several_columns_as_emissions():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)) + 4 * np.repeat([0, 1, 0], 20)[:, None]
    leaf = rk.circuits.MultivariateNormal(n_variables=2, mean=2.0, std=2.0)
    model = HMM(2, emission=leaf, n_iter=5, random_state=1).fit(x)
    assert model.emissionparams_.shape == (2, 2, leaf.n_parameters)
    assert np.diff(model.monitor_.history).min() > 0
    with pytest.raises(ShapeError, match="multiple of 2"):
        HMM(2, emission=leaf).fit(x[:, :3])
