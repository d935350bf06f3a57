"""Posteriors, samples and most probable assignments: against enumeration and reference data."""

import itertools

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.testing import assert_same_bits
from tests.reference import circuits as reference

DISCRETE = [
    name for name in reference.NAMES if "gauss" not in name and name not in ("mixed_leaves",)
]


@pytest.mark.parametrize("name", DISCRETE)
def test_conditional(name):
    root, _, _ = reference.build(name)
    data, pc = reference.arrays(name), rk.Circuit(root, dtype="float64")
    got = pc.conditional(data["data"], missing=data["missing"])
    possible = np.isfinite(data["ll_missing"])
    seen = 0
    for v in range(pc.n_variables):
        want = data.get(f"cond_{v}")
        if want is not None:
            off = np.abs(got[possible, v, : want.shape[1]] - want[possible])
            assert np.nanmax(off) < 1e-9
            seen += 1
    assert seen


def test_marginal():
    pc = rk.Circuit(circuits.hmm(4, 3, 2), dtype="float64", seed=3)
    every = np.array(list(itertools.product(range(2), repeat=4)))
    joint = np.exp(pc.log_likelihood(every))
    for some in ([0, 2], 3):
        alike = (every[:, None, some] == every[None, :, some]).reshape(16, 16, -1).all(axis=2)
        np.testing.assert_allclose(np.exp(pc.marginal(every, some)), alike @ joint, atol=1e-14)
    for bad in ([], [4], -1, [0.5]):
        with pytest.raises(rk.errors.ParameterError, match="variables"):
            pc.marginal(every, bad)


@pytest.mark.parametrize("name", reference.NAMES)
def test_largest_product(name):
    root, _, _ = reference.build(name)
    data, pc = reference.arrays(name), rk.Circuit(root, dtype="float64")
    for key, missing in (("mpe_value", None), ("mpe_value_missing_max", data["missing"])):
        if key in data:
            filled, value = pc.most_probable(data["data"], missing=missing)
            want = data[key].reshape(-1)
            same = (value == want) | (np.abs(value - want) < 1e-9)
            assert same.all()
            known_part = ~(np.zeros_like(data["missing"]) if missing is None else missing)
            assert (filled == data["data"])[known_part & np.isfinite(want)[:, None]].all()


def test_leaves_of_one_variable_with_other_numbers_of_values():
    """Beside tables that end early lie those of other leaves: nobody reads on there."""
    three = circuits.inputs(0, circuits.Categorical(n_values=3), 1, parameters=[[0.2, 0.3, 0.5]])
    two = circuits.inputs(0, circuits.Bernoulli(), 1, parameters=[0.25])
    pc = rk.Circuit(circuits.sum(two, three, n_nodes=1, parameters=[[0.5, 0.5]]), dtype="float64")
    want = np.add([0.75, 0.25, 0], [0.2, 0.3, 0.5]) / 2
    np.testing.assert_allclose(np.exp(pc.log_likelihood([[0], [1], [2]])), want, atol=1e-15)
    np.testing.assert_allclose(pc.conditional([[np.nan]])[0, 0], want, atol=1e-15)
    soft = np.array([[[0.5, 1, 2]]])
    found = pc.conditional(None, soft=soft)[0, 0]
    np.testing.assert_allclose(found, want * soft[0, 0] / (want @ soft[0, 0]), atol=1e-15)
    drawn = np.bincount(pc.sample(4000)[:, 0]) / 4000
    assert np.abs(drawn - want).max() < 0.03
    pc.em_step([[2], [0], [2], [np.nan]])
    np.testing.assert_allclose(pc.parameters(two), [[0.125 / (0.375 / 0.475 + 0.5)]], atol=1e-15)
    counts = np.add([0.1 / 0.475, 0, 2], [0.1, 0.15, 0.25])
    np.testing.assert_allclose(pc.parameters(three), [counts / counts.sum()], atol=1e-15)


def test_deterministic_circuits_give_the_exact_maximum():
    root, _, _ = reference.build("det_mpe")
    data, pc = reference.arrays("det_mpe"), rk.Circuit(root, dtype="float64")
    filled, value = pc.most_probable(data["data"], missing=data["missing"])
    np.testing.assert_allclose(value, data["map_value"].reshape(-1), rtol=0, atol=1e-12)
    np.testing.assert_allclose(pc.log_likelihood(filled), value, rtol=0, atol=1e-12)


def test_viterbi():
    """States as variables: each hidden state is an indicator beside its emission."""
    data = reference.arrays("hmm_k3_v4_t12")
    n_time, n_state = data["X"].shape[1], 3
    leaf, state = circuits.Categorical(n_values=4), circuits.Indicator(n_values=n_state)
    above = None
    for t in range(n_time - 1, -1, -1):
        parts = [
            circuits.inputs(t, leaf, n_state, parameters=data["B"]),
            circuits.inputs(n_time + t, state, n_state, parameters=np.arange(n_state)),
        ]
        if above is not None:
            parts.append(circuits.sum(above, n_nodes=n_state, parameters=data["A"]))
        above = circuits.product(*parts)
    pc = rk.Circuit(circuits.sum(above, n_nodes=1, parameters=[data["pi"]]), dtype="float64")
    x = np.concatenate([data["X"], np.full_like(data["X"], -1)], axis=1).astype(float)
    x[x < 0] = np.nan
    filled, value = pc.most_probable(x)
    np.testing.assert_allclose(value, data["viterbi_value"], rtol=0, atol=1e-9)
    assert (filled[:, n_time:] == data["viterbi_path"]).all()


class TestSamples:
    def test_frequencies(self):
        """A chi-square test of all states at level 1e-4, of a fixed seed."""
        pc = rk.Circuit(circuits.rat_spn(4, 3, circuits.Categorical(n_values=3)), seed=4)
        every = np.array(list(itertools.product(range(3), repeat=4)))
        expected = np.exp(pc.log_likelihood(every).astype(float)) * 20000
        drawn = pc.sample(20000)
        counts = np.bincount(drawn @ 3 ** np.arange(3, -1, -1), minlength=81)
        chi = ((counts - expected) ** 2 / expected).sum()
        assert chi < 80 + 3.72 * np.sqrt(2 * 80) + 8

    def test_given_evidence(self):
        pc = rk.Circuit(circuits.hmm(4, 5, 3), seed=1)
        evidence = np.array([2, np.nan, np.nan, 0])
        drawn = pc.sample(x=np.repeat(evidence[None], 20000, axis=0))
        assert (drawn[:, [0, 3]] == [2, 0]).all()
        want = pc.conditional(evidence)[0]
        for v in (1, 2):
            share = np.bincount(drawn[:, v], minlength=3) / len(drawn)
            assert np.abs(share - want[v]).max() < 4.5 * 0.5 / np.sqrt(len(drawn))

    def test_numbers(self):
        leaves = [
            circuits.inputs(0, circuits.Gaussian(), 2, parameters=[[-3, 0.5], [4, 1]]),
            circuits.inputs(1, circuits.Poisson(), 2, parameters=[2.0, 9.0]),
        ]
        root = circuits.sum(circuits.product(*leaves), n_nodes=1, parameters=[[0.3, 0.7]])
        drawn = rk.Circuit(root, dtype="float64", seed=3).sample(40000)
        second = drawn[:, 0] > 0.75
        assert abs(second.mean() - 0.7) < 0.01
        assert abs(drawn[second, 0].mean() - 4) < 0.03
        assert abs(drawn[second, 1].mean() - 9) < 0.08
        assert abs(drawn[~second, 1].var() - 2) < 0.15

    def test_cut_in_two(self):
        root = circuits.hmm(6, 4, 3)
        whole = rk.Circuit(root, seed=5).sample(1500)
        pc = rk.Circuit(root, seed=5)
        assert_same_bits(np.concatenate([pc.sample(1), pc.sample(1499)]), whole)
        assert_same_bits(pc.sample(1000, first_sample=500), whole[500:])
        assert len(np.unique(whole, axis=0)) > 300  # nothing repeats with a period

    def test_errors(self):
        pc = rk.Circuit(circuits.hmm(3, 2, 2))
        for bad in ({}, {"n_sample": 0}, {"n_sample": 1, "x": [[0, 0, 0]]}):
            with pytest.raises(rk.errors.ParameterError):
                pc.sample(**bad)
