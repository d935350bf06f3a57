"""Powers, largest terms, tempered counts, soft evidence: reference data and written-out formulas.

Their kernels are largest_down, leaf_soft and soft_posterior.
"""

import itertools
from contextlib import nullcontext

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.testing import assert_same_bits, on_cpu
from tests.circuits.test_circuit import some_circuit, some_data
from tests.reference import circuits as reference

HARD, DOUBLE = circuits.Rule(exponent=np.inf), circuits.Rule(exponent=2.0)
RULES = {
    "hard": HARD,
    "double": DOUBLE,
    "flat": circuits.Rule(temperature=2.0),
    "flatter": circuits.Rule(temperature=2.0, temper_elements=True),
}


def near(got, want, tolerance=1e-9):
    want = np.asarray(want, np.float64).reshape(np.shape(got))
    assert ((got == want) | (np.abs(got - np.where(got == want, 0, want)) < tolerance)).all()


@pytest.mark.parametrize("name", reference.NAMES)
def test_values(name):
    root, nodes, _ = reference.build(name)
    data = reference.arrays(name)
    pc, x, missing = rk.Circuit(root, dtype="float64"), data["data"], data["missing"]
    near(pc.log_likelihood(x, rule=HARD), data["mpe_value"])
    near(pc.log_likelihood(x, missing=missing, rule=HARD), data["mpe_value_missing_marg"])
    rule = circuits.Rule(exponent=float(data["general_alpha"]))
    near(pc.log_likelihood(x, rule=rule), data["general_ll"])
    values, seen = pc.values(x), 0
    for number, own in nodes.items():
        if own in values and f"node_logval_{number}" in data:
            near(values[own], data[f"node_logval_{number}"])
            seen += 1
    assert seen >= 2


def brute_counts(pc, x, rule):
    """Counts of the root's weights of a mixture of products of leaves, in float64."""
    root = pc.layout.roots[0]
    theta = pc.parameters(root).reshape(-1)
    terms = np.stack(
        [
            rk.Circuit(known_component(pc, k), dtype="float64").log_likelihood(x)
            for k in range(theta.size)
        ],
        axis=1,
    ) + np.log(theta)
    if rule.exponent == np.inf:
        return np.eye(theta.size)[terms.argmax(axis=1)].sum(axis=0)
    power = rule.exponent if rule.temperature == 1 else 1 / rule.temperature
    share = np.exp(power * (terms - terms.max(axis=1, keepdims=True)))
    return (share / share.sum(axis=1, keepdims=True)).sum(axis=0)


def known_component(pc, k):
    """One component of a mixture as a circuit."""
    leaves = []
    for n in pc.layout.inputs:
        leaf = circuits.inputs(n.var, n.leaf, 1, parameters=pc.parameters(n)[k : k + 1])
        leaves.append(leaf)
    return circuits.sum(circuits.product(*leaves), n_nodes=1, parameters=[[1.0]])


@pytest.mark.parametrize("name", RULES)
def test_counts(name):
    rng = np.random.default_rng(2)
    pc = rk.Circuit(circuits.mixture(3, 5, circuits.Bernoulli()), dtype="float64", seed=4)
    x = rng.integers(0, 2, (37, 3))
    root, rule = pc.layout.roots[0], RULES[name]
    want = brute_counts(pc, x, rule)
    pc.accumulate(x, rule=rule)
    np.testing.assert_allclose(pc.parameter_flows(root).reshape(-1), want, rtol=0, atol=1e-11)
    pc.em_step()
    got = pc.parameters(root).reshape(-1)
    np.testing.assert_allclose(got, want / want.sum(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", RULES)
class TestAnyCircuit:
    """Tied chains, sparse blocks, three kinds of leaves, gaps."""

    def test_conservation(self, name, dtype):
        pc, (x, missing) = some_circuit(dtype), some_data(50)
        flows = pc.flows(x, missing=missing, rule=RULES[name])
        totals = np.zeros((50, 6))
        for nodes, flow in flows.items():
            if isinstance(nodes, circuits.InputNodes):
                totals[:, nodes.var] += flow.sum(axis=1)
        # float32: weights to a power and their logarithms are rounded once more.
        np.testing.assert_allclose(totals, 1, rtol=0, atol=3e-5 if dtype == "float32" else 1e-12)
        pc.accumulate(x, missing=missing, rule=RULES[name])
        for nodes in {n.source for n in pc.layout.nodes if isinstance(n, circuits.SumNodes)}:
            uses = [n for n in pc.layout.nodes if n.source is nodes]
            want = sum(flows[n].sum(dtype=float) for n in uses)
            assert abs(pc.parameter_flows(nodes).sum() - want) < 2e-4 * len(uses)

    def test_no_batch_changes_it(self, name, dtype):
        x, missing = some_data(300)
        made = []
        for cuts in ((0, 300), (0, 1, 34, 300)):
            pc = some_circuit(dtype)
            for a, b in itertools.pairwise(cuts):
                pc.accumulate(x[a:b], missing=missing[a:b], rule=RULES[name])
            pc.em_step(step=0.5, pseudocount=0.1)
            made.append((pc._core.parameters.theta, pc._core.parameters.rows.parameters))
        for a, b in zip(*made, strict=True):
            assert_same_bits(a, b)


@pytest.mark.parametrize("name", ["double", "flat", "flatter", "scaled"])
def test_kernels_give_the_bits_of_the_mirrors(name):
    x, missing = some_data(20)
    states = []
    for emulated in (False, True):
        pc = some_circuit()
        with on_cpu() if emulated else nullcontext():
            pc.accumulate(x, missing=missing, rule=RULES.get(name))
            if name == "scaled":
                pc.scaled_em_step(momentum=0.5, pseudocount=0.1)
            else:
                pc.em_step(step=0.5)
            states.append((pc.log_likelihood(x), *pc.state()["arrays"].values()))
    for a, b in zip(*states, strict=True):
        assert_same_bits(a, b)


def test_hard_em_climbs():
    x, missing = some_data(120)
    pc = some_circuit("float64")
    rule = {"missing": missing, "rule": HARD}
    trace = [pc.em_step(x, **rule).mean() for _ in range(6)]
    assert (np.diff(trace) > -1e-12).all()
    assert trace[-1] > trace[0] + 0.1
    other = some_circuit("float64")
    other.fit(x, n_epochs=6, pseudocount=0.0, **rule)
    assert_same_bits(other.log_likelihood(x), pc.log_likelihood(x))


class TestSoft:
    @pytest.fixture
    def pc(self):
        return rk.Circuit(circuits.hmm(4, 5, 3), dtype="float64", seed=1)

    def test_sums_over_all_values(self, pc):
        soft = np.random.default_rng(3).random((3, 4, 3))
        soft[2, 1] = 0
        every = np.array(list(itertools.product(range(3), repeat=4)))
        joint = np.exp(pc.log_likelihood(every))
        factors = soft[:, np.arange(4), every].prod(axis=2)
        with np.errstate(divide="ignore"):
            near(pc.log_likelihood(None, soft=soft), np.log(factors @ joint), 1e-12)
        posterior = pc.conditional(None, soft=soft)
        for v, c in np.ndindex(4, 3):
            want = (factors * joint)[:2, every[:, v] == c].sum(axis=1) / (factors @ joint)[:2]
            near(posterior[:2, v, c], want, 1e-12)

    def test_of_known_and_unknown(self, pc):
        x = np.array([[0, np.nan, 2, np.nan]])
        ones = np.ones((1, 4, 3))
        near(pc.log_likelihood(x, soft=ones), pc.log_likelihood(x), 1e-12)
        near(pc.conditional(x, soft=ones), pc.conditional(x), 1e-12)
        sure = ones.copy()
        sure[0, 1] = [0, 1, 0]
        filled = x.copy()
        filled[0, 1] = 1
        near(pc.log_likelihood(x, soft=sure), pc.log_likelihood(filled), 1e-12)
        near(pc.conditional(x, soft=sure), pc.conditional(filled), 1e-12)

    def test_errors(self, pc):
        for soft, error in (
            (np.ones((2, 4)), rk.errors.ShapeError),
            (np.full((1, 4, 3), np.nan), rk.errors.NonFiniteError),
            (-np.ones((1, 4, 3)), rk.errors.ParameterError),
        ):
            with pytest.raises(error):
                pc.log_likelihood(None, soft=soft)
        with pytest.raises(rk.errors.ShapeError):
            pc.conditional([[0, 0, 0, 0]], soft=np.ones((2, 4, 3)))
        with pytest.raises(rk.errors.ParameterError, match="no table of values"):
            some_circuit().log_likelihood(None, soft=np.full((1, 6, 5), 0.5))


def test_rule_errors():
    for bad in ({"exponent": 0.0}, {"temperature": np.inf}, {"exponent": 2.0, "temperature": 2.0}):
        with pytest.raises(rk.errors.ParameterError):
            circuits.Rule(**bad)
    pc = rk.Circuit(circuits.mixture(2, 2, circuits.Bernoulli()))
    with pytest.raises(rk.errors.DTypeError):
        pc.log_likelihood([[0, 1]], rule="max")
    pc.accumulate([[0, 1]], rule=DOUBLE)
    with pytest.raises(rk.errors.ParameterError, match="counts of exponent"):
        pc.accumulate([[0, 1]])
    again = rk.Circuit.from_state(pc.state())
    for circuit in (pc, again):
        circuit.em_step()
    assert_same_bits(again.parameters(again.layout.roots[0]), pc.parameters(pc.layout.roots[0]))
    with pytest.raises(rk.errors.ParameterError, match="takes none"):
        pc.fit([[0, 1]], method="adam", rule=HARD)
    two = rk.Circuit(circuits.sum(circuits.inputs(0, circuits.Bernoulli(), 2), n_nodes=2))
    with pytest.raises(rk.errors.ParameterError, match="one of the 2 roots"):
        two.flows([[0]], rule=HARD)


@pytest.mark.gpu
def test_a_gpu_answers_every_query():
    """Those that are computed on the host, too; the others are among the golden cases."""
    side = circuits.inputs(0, circuits.Indicator(n_values=2), 2)
    root = circuits.sum(side, n_nodes=1, parameters=[[0.25, 0.75]])
    host, pc = rk.Circuit(root), rk.Circuit(root, device="gpu")
    assert pc.is_deterministic()
    assert pc.entropy() == host.entropy()
    assert pc.kl(host) == 0
    assert_same_bits(pc.expectation([[np.nan]]), host.expectation([[np.nan]]))
