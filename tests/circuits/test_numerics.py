"""What rounding must not spoil: data far from 0, impossible samples, columns of any scale."""

import math
from contextlib import nullcontext

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.testing import on_cpu

RNG = np.random.default_rng(0)


def one_gaussian(dtype="float32", **leaf):
    return rk.Circuit(circuits.mixture(1, 1, circuits.Gaussian(**leaf)), dtype=dtype, seed=1)


def near(mean, n=1000):
    return (mean + RNG.normal(size=(n, 1))).astype(np.float32)


class TestGaussiansFarFromZero:
    @pytest.mark.parametrize("mean", [0.0, 2000.0, 5000.0, 1e5])
    def test_em_finds_the_moments(self, mean):
        x, pc = near(mean), one_gaussian(mean=mean)
        for _ in range(3):
            pc.em_step(x)
        got = pc.parameters(pc.layout.inputs[0])[0]
        # A mean in float32 has half a unit in the last place; deviations 24 bits less the chain's.
        np.testing.assert_allclose(got[0], x.astype(float).mean(), rtol=1.2e-7, atol=1e-6)
        np.testing.assert_allclose(got[1], x.astype(float).std(), rtol=2e-5)

    def test_em_never_lowers_the_likelihood(self):
        """Also from a mean that is 2000 deviations away, where one step finds no variance."""
        for start in (0.0, 2000.0):
            x, pc = near(2000.0), one_gaussian(mean=start)
            trace = [float(pc.em_step(x).mean(dtype=float)) for _ in range(6)]
            assert (np.diff(trace) > -1e-5).all()  # values near 1.4 in float32
            assert trace[-1] == pytest.approx(-1.3954, abs=0.1)

    @pytest.mark.parametrize("method", ["em", "scaled_em", "sgd", "adam"])
    def test_float32_learns_as_float64(self, method):
        x = np.concatenate([near(700.0, 300), near(720.0, 300)])
        learned = []
        for dtype in ("float32", "float64"):
            root = circuits.mixture(1, 2, circuits.Gaussian(mean=710.0, std=10.0))
            pc = rk.Circuit(root, dtype=dtype, seed=1)
            pc.fit(x, n_epochs=5, method=method, momentum=0.5, pseudocount=0.0)
            learned.append(pc.log_likelihood(x.astype(dtype)).mean(dtype=float))
        assert learned[0] == pytest.approx(learned[1], abs=2e-4)  # float32 means near 700

    def test_counts_are_about_zero_for_users(self):
        x, pc = near(50.0, 300), one_gaussian("float64", mean=50.0)
        pc.accumulate(x)
        flow = pc.parameter_flows(pc.layout.inputs[0])[0]
        wide = x.astype(float)
        want = [wide.sum(), (wide * wide).sum(), 300.0, 0.0]
        np.testing.assert_allclose(flow, want, rtol=1e-13)

    def test_counts_of_files_of_older_versions(self):
        """They are about 0, and no key of the header says otherwise."""
        x = near(3.0, 300)
        for split in (100, 256):
            pc = one_gaussian("float64", mean=3.0)
            pc.accumulate(x[:split])
            state = pc.state()
            older = {**state, "header": {**state["header"]}, "arrays": dict(state["arrays"])}
            del older["header"]["centred"]
            raw = pc.parameter_flows(pc.layout.inputs[0]).reshape(-1)
            older["arrays"]["leaf_totals"], older["arrays"]["leaf_chains"] = raw, 0 * raw
            again = rk.Circuit.from_state(older)
            for circuit in (pc, again):
                circuit.em_step(x[split:])
            got, want = (c.parameters(c.layout.inputs[0]) for c in (again, pc))
            np.testing.assert_allclose(got, want, rtol=1e-13)


class TestImpossibleSamples:
    @pytest.mark.parametrize(("dtype", "far"), [("float32", 1e20), ("float64", 1e160)])
    @pytest.mark.parametrize("step", ["em_step", "scaled_em_step", "gradient_step"])
    def test_a_value_too_far_adds_nothing(self, dtype, far, step):
        learned = []
        for x in ([[0.0], [1.0], [far]], [[0.0], [1.0]]):
            root = circuits.mixture(1, 2, circuits.Gaussian())
            pc = rk.Circuit(root, dtype=dtype, seed=1)
            found = getattr(pc, step)(x)
            assert (found[2:] == -np.inf).all()
            learned.append(pc.parameters(pc.layout.inputs[0]))
        np.testing.assert_array_equal(*learned)

    def test_validation_with_an_impossible_sample_keeps_what_was_learned(self):
        x = RNG.integers(0, 2, (200, 3))
        x[:, 1] = x[:, 0]
        leaf = circuits.MaskedCategorical(n_values=3, allowed=(0, 1))
        pc = rk.Circuit(circuits.mixture(3, 3, leaf), seed=1)
        before = pc.log_likelihood(x).mean()
        trace = pc.fit(x, n_epochs=30, x_valid=np.concatenate([x[:50], [[2, 2, 2]]]))
        assert trace["valid"][-1] == -np.inf
        assert pc.log_likelihood(x).mean() > before + 0.2

    def test_validation_prefers_fewer_impossible_samples(self):
        """One epoch makes a sample impossible: the parameters before it are kept."""
        leaves = circuits.inputs(0, circuits.Categorical(n_values=2), 1, parameters=[[0.5, 0.5]])
        pc = rk.Circuit(circuits.sum(leaves, n_nodes=1), dtype="float64")
        trace = pc.fit([[1], [1]], n_epochs=1, pseudocount=0.0, x_valid=[[0], [1]])
        assert trace["valid"] == [-np.inf]
        trace = pc.fit([[0], [1]], n_epochs=2, pseudocount=1.0, x_valid=[[0], [1]])
        assert np.isfinite(trace["valid"][-1])


class TestSamplesThatAreRefused:
    def test_counts_are_whole(self):
        pc = rk.Circuit(circuits.mixture(1, 2, circuits.Poisson()))
        for bad in (1.5, -1.0):
            with pytest.raises(rk.errors.ParameterError, match=f"got {bad}, need integers from 0"):
                pc.log_likelihood([[bad]])
        assert np.isfinite(pc.log_likelihood([[3.0], [1e18]])[0])

    @pytest.mark.parametrize("leaf", [circuits.Poisson(), circuits.Gaussian()])
    def test_numbers_that_float32_does_not_hold(self, leaf):
        pc = rk.Circuit(circuits.mixture(1, 2, leaf))
        with pytest.raises(rk.errors.NonFiniteError, match="exceeds 3.40282e.38.*float64"):
            pc.log_likelihood([[1e39]])
        assert not np.isnan(rk.Circuit(pc.layout.roots, dtype="float64").log_likelihood([[1e39]]))

    @pytest.mark.parametrize(("dtype", "value"), [("float32", 1e36), ("float64", 1e300)])
    def test_sums_of_large_counts_are_finite(self, dtype, value):
        """Squares overflow, and so do sums of 600 of them; the rate is finite then, too."""
        leaf = circuits.inputs(0, circuits.Poisson(), 1, parameters=[2.0])
        x, states = np.full((600, 1), value), []
        for where in (nullcontext(), on_cpu(order=5)):
            pc = rk.Circuit(circuits.sum(leaf, n_nodes=1), dtype=dtype)
            with where:
                pc.accumulate(x[:1])
                pc.accumulate(x[1:])
                states.append(pc.state()["arrays"])
                pc.em_step()
            assert all(np.isfinite(states[-1][k]).all() for k in ("leaf_chains", "leaf_totals"))
            rate = pc.state()["arrays"]["leaf_parameters"]
            assert 1e30 < rate[0] < 1.001 * value
        assert states[0].keys() == states[1].keys()
        for name, array in states[0].items():
            assert array.tobytes() == states[1][name].tobytes(), name

    @pytest.mark.parametrize(
        ("x", "error"),
        [
            ([[0, 1], [0]], rk.errors.ShapeError),
            (None, rk.errors.DTypeError),
            ("abc", rk.errors.DTypeError),
            ([0, 1, 0], rk.errors.ShapeError),
        ],
    )
    def test_no_raw_errors(self, x, error):
        pc = rk.Circuit(circuits.mixture(2, 2, circuits.Bernoulli()))
        for call in (pc.fit, pc.log_likelihood, pc.flows, pc.conditional):
            with pytest.raises(error):
                call(x)

    def test_steps_are_numbers(self):
        pc = rk.Circuit(circuits.mixture(2, 2, circuits.Bernoulli()))
        for call, name in ((pc.em_step, "step"), (pc.scaled_em_step, "momentum")):
            for bad in ("a", None, np.nan):
                with pytest.raises(rk.errors.ParameterError, match=name):
                    call([[0, 1]], **{name: bad})
        with pytest.raises(rk.errors.ParameterError, match="step"):
            pc.fit([[0, 1]], step="a")


class TestGraphsThatAreSpecial:
    @pytest.mark.parametrize("emulated", [False, True])
    @pytest.mark.parametrize("leaf", [circuits.Bernoulli(), circuits.Gaussian()])
    def test_an_input_is_a_circuit(self, leaf, emulated):
        """Of a single distribution, and of two that share no sum."""
        x = [[0.0], [1.0], [1.0]]
        with on_cpu() if emulated else nullcontext():
            for n in (1, 2):
                pc = rk.Circuit(circuits.inputs(0, leaf, n), seed=2)
                assert pc.log_likelihood(x).shape == ((3,) if n == 1 else (3, 2))
                assert len(pc.flows(x)) == 1
                before = pc.log_likelihood(x).sum()
                pc.em_step(x)
                pc.gradient_step(x)
                assert pc.log_likelihood(x).sum() > before
            one = rk.Circuit(circuits.inputs(0, leaf, 1), seed=2)
            assert one.sample(4).shape == (4, 1)
            assert one.most_probable([[np.nan]])[0].shape == (1, 1)
            assert one.conditional([[np.nan]]).shape[:2] == (1, 1)

    def test_a_cycle_is_found(self):
        leaf = circuits.inputs(0, circuits.Bernoulli(), 2)
        lower = circuits.sum(leaf, n_nodes=2)
        upper = circuits.sum(lower, n_nodes=2)
        lower.children = (upper,)
        with pytest.raises(rk.errors.StructureError, match="cycle"):
            rk.Circuit(upper)

    def test_a_leaf_for_each_variable(self):
        for leaf in ([circuits.Bernoulli()], 3, None):
            with pytest.raises(rk.errors.ParameterError, match="one for each variable"):
                circuits.mixture(2, 3, leaf)


def one_leaf(leaf, parameters, dtype="float32"):
    return rk.Circuit(circuits.inputs(0, leaf, 1, parameters=parameters), dtype=dtype)


class TestCountsOfAnySize:
    @pytest.mark.parametrize("rate", [0.25, 100.0, 1e5, 3e6])
    def test_poisson_is_its_formula(self, rate):
        x = np.floor(rate + np.sqrt(rate) * np.array([-2.0, -0.5, 0, 1, 6])).clip(0)
        expected = [k * math.log(rate) - rate - math.lgamma(k + 1) for k in x]
        got = one_leaf(circuits.Poisson(), [[rate]]).log_likelihood(x[:, None])
        np.testing.assert_allclose(got, expected, rtol=1.2e-7)  # one rounding to float32

    def test_binomial_is_its_formula(self):
        n, p, x = 5000, 0.375, np.array([0, 1800, 1875, 2000, 5000])
        ways = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in x]
        expected = np.array(ways) + x * math.log(p) + (n - x) * math.log(1 - p)
        got = one_leaf(circuits.Binomial(n_trials=n), [[p]]).log_likelihood(x[:, None])
        np.testing.assert_allclose(got, expected, rtol=1.2e-7)

    @pytest.mark.parametrize(("dtype", "most"), [("float32", 3e38), ("float64", 1e308)])
    def test_counts_that_overflow_are_impossible(self, dtype, most):
        pc = one_leaf(circuits.Poisson(), [[1e5]], dtype)
        assert pc.log_likelihood([[most]])[0] == -np.inf
        two = rk.Circuit(circuits.mixture(2, 1, circuits.Gaussian(std=1.0)))
        far = np.full((1, 2), 2.4e19)  # each leaf has a number of float32, their product none
        assert two.log_likelihood(far)[0] == two.accumulate(far)[0] == -np.inf
        assert not any(flow.any() for flow in two.flows(far).values())

    def test_draws_have_the_mean_of_the_rate(self):
        got = one_leaf(circuits.Poisson(), [[1e5]]).sample(50)
        assert abs(got.mean() - 1e5) < 6 * np.sqrt(1e5 / 50)
        assert abs(got.std() / np.sqrt(1e5) - 1) < 0.5


def test_one_sample_of_one_variable_is_a_vector():
    pc = rk.Circuit(circuits.mixture(1, 2, circuits.Bernoulli()))
    np.testing.assert_array_equal(pc.log_likelihood(np.array([1])), pc.log_likelihood([[1]]))
    with pytest.raises(rk.errors.ShapeError, match=r"got shape \(2,\)"):
        pc.log_likelihood(np.array([0, 1]))
