"""Gradient steps and scaled EM: against differences, written-out formulas, any batch split.

Steps up the gradient run sum_climb and leaf_climb.
"""

from itertools import pairwise

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.testing import assert_same_bits
from tests.circuits import leaf_formulas
from tests.circuits.test_circuit import some_circuit, some_data
from tests.reference import circuits as reference

LEAVES = {
    "categorical": circuits.Categorical(n_values=3),
    "masked": circuits.MaskedCategorical(n_values=4, allowed=(0, 1, 2)),
    "bernoulli": circuits.Bernoulli(),
    "binomial": circuits.Binomial(n_trials=3),
    "logistic": circuits.DiscreteLogistic(n_values=5, low=0, high=5),
    "gaussian": circuits.Gaussian(std=2.0),
    "poisson": circuits.Poisson(rate=2.0),
}


def of_leaf(name):
    """Two variables of one kind, 3 components, 40 samples with gaps."""
    rng = np.random.default_rng(3)
    pc = rk.Circuit(circuits.mixture(2, 3, LEAVES[name]), dtype="float64", seed=2)
    most = LEAVES[name].support or 6
    x = rng.integers(0, min(most, 3), (40, 2)).astype(float)
    x[rng.random(x.shape) < 0.2] = np.nan
    return pc, x


def mean_ll(pc, x):
    return pc.log_likelihood(x).mean()


@pytest.mark.parametrize("name", LEAVES)
class TestLeaves:
    def test_each_free_parameter(self, name):
        """Move one free parameter of one leaf: the likelihood changes by its score."""
        pc, x = of_leaf(name)
        nodes, n = pc.layout.inputs[0], len(x)
        p = pc.parameters(nodes)
        pc.accumulate(x)
        slope = leaf_formulas.score(nodes.leaf, p, pc.parameter_flows(nodes)) / n
        for i, j in np.ndindex(*slope.shape):
            values = []
            for sign in (1, -1):
                change = np.zeros_like(slope)
                change[i, j] = sign * 1e-5
                pc.set_parameters(nodes, leaf_formulas.moved(nodes.leaf, p, change))
                values.append(mean_ll(pc, x))
            assert abs((values[0] - values[1]) / 2e-5 - slope[i, j]) < 1e-8
        pc.set_parameters(nodes, p)
        pc.gradient_step(method="sgd", rate=0.3, momentum=0.0)
        want = leaf_formulas.moved(nodes.leaf, p, 0.3 * slope)
        np.testing.assert_allclose(pc.parameters(nodes), want, rtol=1e-13, atol=1e-14)

    @pytest.mark.parametrize("method", ["em", "scaled_em", "sgd", "adam"])
    def test_every_method_learns(self, name, method):
        pc, x = of_leaf(name)
        before = mean_ll(pc, x)
        trace = pc.fit(x, n_epochs=12, method=method, final_step=None, pseudocount=0.01)["train"]
        assert trace[0] == pytest.approx(before, abs=1e-12)
        assert mean_ll(pc, x) > before + 0.01
        if LEAVES[name].support:
            every = np.stack(np.meshgrid(*[range(LEAVES[name].support)] * 2), -1).reshape(-1, 2)
            assert abs(np.exp(pc.log_likelihood(every)).sum() - 1) < 1e-9


def test_sums_climb_their_gradient():
    """Log weights move by rate times the slope of the likelihood in them, tied ones included."""
    pc = rk.Circuit(circuits.hmm(4, 4, 4), dtype="float64", seed=1)
    x, rate = np.random.default_rng(2).integers(0, 4, (30, 4)), 1e-3
    for nodes in (n for n in pc.layout.nodes if isinstance(n, circuits.SumNodes)):
        old = pc.parameters(nodes)
        slope = np.zeros_like(old)
        for at in np.ndindex(*old.shape):
            for sign in (1, -1):
                change = np.zeros_like(old)
                change[at] = sign * 1e-5
                pc.set_parameters(nodes, old * np.exp(change))
                slope[at] += sign * mean_ll(pc, x) / 2e-5
        pc.set_parameters(nodes, old)
        pc.gradient_step(x, method="sgd", rate=rate, momentum=0.0)
        want = old * np.exp(rate * slope)
        want /= want.sum(axis=(0, 2), keepdims=True)
        np.testing.assert_allclose(pc.parameters(nodes), want, rtol=0, atol=1e-11)


def test_scaled_em_is_its_formula():
    """Two steps with momentum, against counts mixed and normalised here."""
    root, nodes, spec = reference.build("hmm_tied_t5")
    data, pc = reference.arrays("hmm_tied_t5")["data"], rk.Circuit(root, dtype="float64")
    sums = [nodes[n["id"]] for n in spec if n["kind"] == "sum" and n.get("tied_to") is None]
    step, momentum, pseudocount, memory = 0.3, 0.8, 0.2, {}
    unknown = np.full((1, pc.n_variables), np.nan)
    for k in (1, 2):
        now = rk.Circuit(root, dtype="float64")
        for n in sums:
            now.set_parameters(n, pc.parameters(n))
        for n in pc.layout.inputs:
            now.set_parameters(n, pc.parameters(n))
        now.accumulate(unknown)
        prior = {n: now.parameter_flows(n) for n in sums}
        now.accumulate(data)
        want = {}
        for n in sums:
            new = (now.parameter_flows(n) - prior[n]) / len(data)
            memory[n] = momentum * memory.get(n, 0) + (1 - momentum) * new
            mixed = step * memory[n] / (1 - momentum**k) + (1 - step) * prior[n]
            n_child = n.edges.shape[1] / n.n_block * n.child_block_size
            mixed = mixed * len(data) + step * pseudocount / n_child
            totals = np.zeros((n.n_block, n.block_size))
            np.add.at(totals, n.edges[0], mixed.sum(axis=2))
            want[n] = mixed / totals[n.edges[0]][:, :, None]
        pc.scaled_em_step(data, step=step, momentum=momentum, pseudocount=pseudocount)
        for n in sums:
            np.testing.assert_allclose(pc.parameters(n), want[n], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", reference.NAMES)
def test_em_traces(name):
    """Full EM follows the reference's likelihoods, and never lowers them."""
    root, _, _ = reference.build(name)
    data, pc = reference.arrays(name), rk.Circuit(root, dtype="float64")
    if "em_trace_mean_ll" not in data:
        pytest.skip("no trace")
    want = data["em_trace_mean_ll"]
    got = np.array([np.mean(pc.em_step(data["data"])) for _ in want])
    possible = np.isfinite(want)
    np.testing.assert_allclose(got[possible], want[possible], rtol=0, atol=1e-9)
    assert (np.diff(got[possible]) > -1e-9).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", ["scaled_em", "sgd", "adam"])
def test_steps_do_not_know_the_batches(method, dtype, tmp_path):
    """Nor the threads, nor that the circuit was saved between steps."""
    x, missing = some_data(300)
    weights = np.random.default_rng(1).random(300)

    def stepped(sizes, through_a_file=False):
        pc, ends = some_circuit(dtype), np.cumsum((0, *sizes))
        for number in range(2):
            for a, b in pairwise(ends):
                pc.accumulate(x[a:b], missing=missing[a:b], weights=weights[a:b])
            if method == "scaled_em":
                pc.scaled_em_step(momentum=0.5, pseudocount=0.1)
            else:
                pc.gradient_step(method=method, rate=0.1)
            if through_a_file and number == 0:
                rk.save(tmp_path / "circuit.npz", pc)
                pc = rk.load(tmp_path / "circuit.npz")
        return pc

    try:
        rk.set_num_threads(2)
        whole = stepped([300])
    finally:
        rk.set_num_threads(None)
    for other in (stepped([1, 33, 266]), stepped([256, 44], through_a_file=True)):
        assert_same_bits(other._core.parameters.theta, whole._core.parameters.theta)
        assert_same_bits(
            other._core.parameters.rows.parameters, whole._core.parameters.rows.parameters
        )


def test_masked_values_stay_impossible():
    leaf = LEAVES["masked"]
    pc = rk.Circuit(circuits.mixture(1, 2, leaf), dtype="float64")
    pc.em_step([[0], [1], [1]], pseudocount=3.0)
    probability = np.exp(pc.log_likelihood(np.arange(4)[:, None]))
    assert probability[3] == 0
    assert abs(probability.sum() - 1) < 1e-12
    assert probability[2] > 0.1  # its third of the pseudocounts


def test_counts_and_masked_values_with_gaps():
    """One EM step of one component: gaps count as what the old parameters expect."""
    count = circuits.inputs(0, circuits.Poisson(), 1, parameters=[2.0])
    value = circuits.inputs(1, LEAVES["masked"], 1, parameters=[[0.5, 0.3, 0.2, 0.0]])
    pc = rk.Circuit(circuits.product(count, value), dtype="float64")
    pc.em_step([[5, np.nan], [np.nan, 2], [1, 0], [3, 2]])
    assert pc.parameters(count)[0, 0] == pytest.approx((5 + 1 + 3 + 2.0) / 4, abs=1e-14)
    want = np.add([1, 0, 2, 0], [0.5, 0.3, 0.2, 0]) / 4
    np.testing.assert_allclose(pc.parameters(value)[0], want, rtol=0, atol=1e-14)


def test_zeros_and_impossible_samples():
    leaf = circuits.inputs(0, circuits.Categorical(n_values=3), 2, parameters=np.eye(3)[:2])
    pc = rk.Circuit(circuits.sum(leaf, n_nodes=1, parameters=[[0.5, 0.5]]), dtype="float64")
    for step in (pc.scaled_em_step, pc.gradient_step):
        assert step([[2], [2]]).tolist() == [-np.inf] * 2
        assert pc.parameters(pc.layout.roots[0]).ravel().tolist() == [0.5, 0.5]
        step([[0], [2], [0]])
        assert pc.log_likelihood([[2]])[0] == -np.inf
        assert pc.log_likelihood([[0]])[0] > np.log(0.5)
        pc.set_parameters(pc.layout.roots[0], [[0.5, 0.5]])


@pytest.mark.parametrize(
    ("method", "bad"),
    [
        ("scaled_em_step", {"step": 0.0}),
        ("scaled_em_step", {"momentum": 1.0}),
        ("scaled_em_step", {"pseudocount": np.nan}),
        ("gradient_step", {"method": "newton"}),
        ("gradient_step", {"rate": 0.0}),
        ("gradient_step", {"clip": -1.0}),
        ("gradient_step", {"decay": 1.0}),
        ("fit", {"method": "newton"}),
    ],
)
def test_bad_steps_change_nothing(method, bad):
    pc = rk.Circuit(circuits.mixture(2, 2, circuits.Bernoulli()))
    with pytest.raises(rk.errors.ParameterError, match=next(iter(bad))):
        getattr(pc, method)([[0, 1]], **bad)
    with pytest.raises(rk.errors.ParameterError, match="nothing was accumulated"):
        pc.gradient_step()
