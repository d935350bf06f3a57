"""The contract of circuits: bits for any batch, exact sums, learning that never loses, errors."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.testing import assert_same_bits
from tests.reference import circuits as reference

RNG = np.random.default_rng(5)


def some_circuit(dtype="float32", seed=3):
    """Tied chains, sparse blocks, more than one segment of children, three kinds of leaves."""
    chain = circuits.hmm(4, 96, 5)
    blocks = np.array([3, 0, 5, 1, 4, 2])
    number = circuits.inputs(4, circuits.Gaussian(), 24, block_size=4)
    count = circuits.inputs(5, circuits.Binomial(n_trials=3), 24, block_size=4)
    pair = circuits.product(number, count, edges=np.stack([np.arange(6), blocks], axis=1))
    mask = np.ones((2, 6), bool)
    mask[1, 3:] = False
    mixed = circuits.sum(pair, n_nodes=8, block_size=4, edges=mask)
    both = circuits.product(
        circuits.sum(*chain.children, n_nodes=8, block_size=4), mixed, block_size=4
    )
    return rk.Circuit(circuits.sum(both, n_nodes=1), dtype=dtype, seed=seed)


def some_data(n, seed=0):
    rng = np.random.default_rng(seed)
    x = np.concatenate(
        [rng.integers(0, 5, (n, 4)), rng.normal(size=(n, 1)), rng.integers(0, 4, (n, 1))], axis=1
    )
    return x, rng.random(x.shape) < 0.2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
class TestBits:
    def test_a_sample_does_not_know_its_batch(self, dtype):
        pc, (x, missing) = some_circuit(dtype), some_data(70)
        whole = pc.log_likelihood(x, missing=missing)
        for cut in (1, 17, 64):
            assert_same_bits(pc.log_likelihood(x[:cut], missing=missing[:cut]), whole[:cut])
            assert_same_bits(pc.log_likelihood(x[cut:], missing=missing[cut:]), whole[cut:])

    @pytest.mark.parametrize("sizes", [(1, 299), (33, 267), (100, 100, 100), (256, 44)])
    def test_statistics_do_not_know_the_batches(self, dtype, sizes):
        x, missing = some_data(300)
        learned = []
        for cuts in ((300,), sizes):
            pc = some_circuit(dtype)
            first = 0
            for n in cuts:
                pc.accumulate(x[first : first + n], missing=missing[first : first + n])
                first += n
            pc.em_step(step=0.5, pseudocount=0.1)
            learned.append(pc)
        for a, b in zip(*(list(pc._core.parameters._owners()) for pc in learned), strict=True):
            assert_same_bits(learned[0].parameters(a), learned[1].parameters(b))

    def test_threads(self, dtype):
        results = []
        x, missing = some_data(300)
        try:
            for n in (1, 2, 5):
                rk.set_num_threads(n)
                pc = some_circuit(dtype)
                first = pc.em_step(x, missing=missing, pseudocount=0.1)
                results.append((first, pc.log_likelihood(x)))
        finally:
            rk.set_num_threads(None)
        for result in results[1:]:
            for a, b in zip(results[0], result, strict=True):
                assert_same_bits(a, b)

    def test_drawn_weights(self, dtype):
        """Of many blocks, and of more children than are drawn at a time: as one array."""
        leaves = circuits.inputs(0, circuits.Bernoulli(), 1 << 13, block_size=4)
        root = circuits.sum(leaves, n_nodes=136, block_size=2, edges=np.tri(68, 2048, dtype=bool))
        dense = circuits.sum(leaves, n_nodes=256, block_size=2)
        pc = rk.Circuit([root, dense], dtype=dtype, seed=9)
        for number, nodes in enumerate(pc._core.parameters._owners()):
            if isinstance(nodes, circuits.SumNodes):
                stream = rk.Stream.from_seed(9).child(number)
                uniform = rk.elementwise.random_fill(stream, nodes.parameter_shape, "uniform")
                want = nodes.checked(np.exp(-2.0 * uniform.astype(float)))
                assert_same_bits(pc.parameters(nodes), want.astype(dtype).astype(float))

    def test_one_seed_one_circuit(self, dtype):
        x, _ = some_data(3)
        same = [some_circuit(dtype, seed=s).log_likelihood(x) for s in (1, 1, 2)]
        assert_same_bits(same[0], same[1])
        assert (same[0] != same[2]).all()


class TestFlows:
    def test_conservation(self):
        """Each sample's flow through a sum that all samples pass is 1: counts add up to n."""
        pc, (x, missing) = some_circuit(), some_data(1000)
        for n in (*range(1, 131), 1000):
            pc._core.statistics.clear()
            pc.accumulate(x[:n], missing=missing[:n])
            # float32 flows, added in float64: the error is that of single flows.
            assert abs(pc.parameter_flows(pc.layout.roots[0]).sum() - n) < 1e-5 * n

    def test_every_variable_gets_the_whole_flow(self):
        pc, (x, missing) = some_circuit("float64"), some_data(20)
        totals = np.zeros((20, 6))
        for nodes, flow in pc.flows(x, missing=missing).items():
            if isinstance(nodes, circuits.InputNodes):
                totals[:, nodes.var] += flow.sum(axis=1)
        np.testing.assert_allclose(totals, 1, rtol=0, atol=1e-12)

    def test_impossible_samples_add_nothing(self):
        leaves = circuits.inputs(0, circuits.Categorical(n_values=2), 1, parameters=[[1.0, 0.0]])
        pc = rk.Circuit(circuits.sum(leaves, n_nodes=1))
        ll = pc.accumulate([[0], [1], [0]])
        assert ll.tolist() == [0, -np.inf, 0]
        assert pc.parameter_flows(pc.layout.roots[0]).sum() == 2
        pc.em_step(pseudocount=0)
        assert pc.log_likelihood([[0]])[0] == 0

    def test_edges_far_apart_keep_their_flow(self):
        """The past says state 1, the future state 2, by more than floats hold: the edge counts."""
        a = circuits.inputs(0, circuits.Gaussian(), 2, parameters=[[0, 1], [25, 1]])
        b = circuits.inputs(1, circuits.Gaussian(), 2, parameters=[[0, 1], [25, 1]])
        stay = circuits.sum(b, n_nodes=2, parameters=np.eye(2))
        root = circuits.sum(circuits.product(a, stay), n_nodes=1, parameters=[[0.5, 0.5]])
        pc = rk.Circuit(root, dtype="float32")
        pc.accumulate([[0.0, 25.0], [25.0, 0.0]])
        flows = pc.parameter_flows(stay).reshape(2, 2)
        # Each sample has two equal ways. Values near -312 are float32: steps of 3e-5.
        np.testing.assert_allclose(flows, np.eye(2), rtol=0, atol=1e-4)

    def test_long_chains_stay_finite(self):
        """Of about 3^-1024, where float32 ends at 3^-94 and float64 at 3^-678."""
        pc = rk.Circuit(circuits.hmm(1024, 4, 3))
        x = RNG.integers(0, 3, (2, 1024))
        ll = pc.em_step(x, pseudocount=0.01)
        assert np.isfinite(ll).all()
        assert np.isfinite(pc.log_likelihood(x)).all()


class TestLearning:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_full_steps_never_lower_the_likelihood(self, dtype):
        x, missing = some_data(120)
        pc = some_circuit(dtype)
        trace = [pc.em_step(x, missing=missing).astype(float).mean() for _ in range(8)]
        assert (np.diff(trace) > -1e-6).all()
        assert trace[-1] - trace[0] > 0.2

    def test_sums_to_one(self):
        pc = rk.Circuit(circuits.rat_spn(4, 3, circuits.Categorical(n_values=3)), dtype="float64")
        every = np.stack(np.meshgrid(*[range(3)] * 4), axis=-1).reshape(-1, 4)
        assert abs(np.exp(pc.log_likelihood(every)).sum() - 1) < 1e-12
        pc.em_step(RNG.integers(0, 3, (50, 4)), step=0.3, pseudocount=0.2)
        assert abs(np.exp(pc.log_likelihood(every)).sum() - 1) < 1e-12

    @pytest.mark.parametrize(
        "leaf",
        [
            circuits.Bernoulli(),
            circuits.Binomial(n_trials=4),
            circuits.Categorical(n_values=5),
            circuits.MaskedCategorical(n_values=5, allowed=(1, 3)),
            circuits.DiscreteLogistic(n_values=6, low=0, high=6),
        ],
        ids=lambda leaf: type(leaf).__name__,
    )
    def test_tables_are_distributions(self, leaf):
        pc = rk.Circuit(circuits.mixture(1, 3, leaf), dtype="float64")
        values = np.arange(leaf.support)[:, None]
        assert abs(np.exp(pc.log_likelihood(values)).sum() - 1) < 1e-9
        data = np.array([1, 3, 3, 1])[:, None] % leaf.support
        before = pc.em_step(data).mean()
        assert pc.log_likelihood(data).mean() > before
        assert abs(np.exp(pc.log_likelihood(values)).sum() - 1) < 1e-9

    def test_poisson_finds_the_rate(self):
        x = np.random.default_rng(1).poisson(4.0, (2000, 1))
        pc = rk.Circuit(circuits.mixture(1, 1, circuits.Poisson()), dtype="float64")
        pc.em_step(x)
        leaves = pc.layout.inputs[0]
        assert abs(pc.parameters(leaves)[0, 0] - x.mean()) < 1e-9
        k = np.arange(60)[:, None]
        assert abs(np.exp(pc.log_likelihood(k)).sum() - 1) < 1e-9

    def test_the_graph_is_not_changed(self):
        root = circuits.hmm(5, 4, 3)
        pc = rk.Circuit(root)
        pc.em_step(RNG.integers(0, 3, (30, 5)))
        assert all(n.parameters is None for n in root.walk())
        pc.write_back()
        again = rk.Circuit(root)
        x = RNG.integers(0, 3, (4, 5))
        assert_same_bits(pc.log_likelihood(x), again.log_likelihood(x))


class TestFit:
    def test_learns_and_repeats(self):
        x = np.repeat(RNG.integers(0, 3, (6, 5)), 20, axis=0)
        options = {"n_epochs": 6, "batch_size": 32, "step": 0.5, "final_step": 0.1}
        traces, parameters = [], []
        for _ in range(2):
            pc = rk.Circuit(circuits.hmm(5, 4, 3), seed=7)
            traces.append(pc.fit(x, **options)["train"])
            parameters.append(pc.log_likelihood(x))
        assert traces[0] == traces[1]
        assert_same_bits(*parameters)
        assert traces[0][-1] > traces[0][0] + 0.05

    def test_early_stopping_keeps_the_best(self):
        rng = np.random.default_rng(2)
        train, valid = rng.integers(0, 2, (12, 6)), rng.integers(0, 2, (200, 6))
        pc = rk.Circuit(circuits.mixture(6, 16, circuits.Bernoulli()), seed=1)
        options = {"n_epochs": 60, "pseudocount": 0.0, "x_valid": valid, "patience": 3}
        trace = pc.fit(train, **options)
        assert len(trace["valid"]) < 60  # it learns twelve samples by heart, and is stopped
        assert pc.log_likelihood(valid).mean(dtype=float) == max(trace["valid"])

    def test_errors(self):
        pc = rk.Circuit(circuits.mixture(2, 2, circuits.Bernoulli()))
        for bad in ({"n_epochs": 0}, {"batch_size": -1}, {"patience": 2}):
            with pytest.raises(rk.errors.ParameterError):
                pc.fit([[0, 1]], **bad)


class TestFiles:
    def test_a_file_continues(self, tmp_path):
        pc, (x, missing) = some_circuit(), some_data(300)
        pc.accumulate(x[:100], missing=missing[:100])
        rk.save(tmp_path / "circuit.npz", pc)
        again = rk.load(tmp_path / "circuit.npz")
        for circuit in (pc, again):
            circuit.accumulate(x[100:], missing=missing[100:])
            circuit.em_step(step=0.7, pseudocount=0.1)
        assert_same_bits(again.log_likelihood(x), pc.log_likelihood(x))
        assert_same_bits(again.sample(5), pc.sample(5))

    @pytest.mark.parametrize("name", reference.NAMES)
    def test_every_structure_comes_back(self, name, tmp_path):
        pc = rk.Circuit(reference.build(name)[0])
        rk.save(tmp_path / "circuit.npz", pc)
        x = reference.arrays(name)["data"]
        again = rk.load(tmp_path / "circuit.npz")
        assert_same_bits(again.log_likelihood(x), pc.log_likelihood(x))
        assert repr(again) == repr(pc)

    def test_damaged_files(self):
        state = rk.Circuit(circuits.mixture(2, 2, circuits.Bernoulli())).state()
        newer = {**state, "header": {**state["header"], "version": 99}}
        with pytest.raises(rk.errors.FormatError, match="version 99"):
            rk.Circuit.from_state(newer)
        less = {**state, "arrays": {k: v for k, v in state["arrays"].items() if k != "theta"}}
        with pytest.raises(rk.errors.FormatError, match="theta"):
            rk.Circuit.from_state(less)


class TestParts:
    def test_copies_share_nothing_that_changes(self):
        pc, (x, _) = some_circuit(), some_data(40)
        pc.accumulate(x)
        before = pc.log_likelihood(x)
        for other in (copy.copy(pc), pickle.loads(pickle.dumps(pc))):
            other.em_step()
            other.sample(3)
            assert_same_bits(pc.log_likelihood(x), before)
            assert (other.log_likelihood(x) != before).any()
        assert_same_bits(pc.sample(2), some_circuit().sample(2, first_sample=0))
        pc.em_step()
        assert_same_bits(pc.log_likelihood(x), other.log_likelihood(x))

    def test_fit_takes_the_steps_of_a_subclass(self):
        class Counting(rk.Circuit):
            calls = 0

            def em_step(self, *args, **kwargs):
                self.calls += 1
                return super().em_step(*args, **kwargs)

        pc = Counting(circuits.mixture(2, 2, circuits.Bernoulli()))
        pc.fit([[0, 1], [1, 1]], n_epochs=3, batch_size=1)
        assert pc.calls == 6
        assert isinstance(copy.copy(pc), Counting)
        assert copy.copy(pc).calls == 6

    def test_methods_teach(self):
        for name in ("fit", "em_step", "log_likelihood", "sample", "captured"):
            method = getattr(rk.Circuit, name)
            assert next(iter(inspect.signature(method).parameters)) == "self"
            assert "Parameters\n----------" in inspect.getdoc(method)


class TestErrors:
    def test_not_smooth(self):
        a, b = (circuits.inputs(v, circuits.Bernoulli(), 2) for v in range(2))
        with pytest.raises(rk.errors.StructureError, match="not smooth.*variables 0, 1"):
            circuits.sum(a, b, n_nodes=1)

    def test_not_decomposable(self):
        a = circuits.inputs(0, circuits.Bernoulli(), 2)
        b = circuits.inputs(0, circuits.Bernoulli(), 2)
        with pytest.raises(rk.errors.StructureError, match="not decomposable.*variables 0"):
            circuits.product(a, b)
        with pytest.raises(rk.errors.StructureError, match="not decomposable.*variables 0"):
            circuits.product(a, a)

    @pytest.mark.parametrize(
        ("x", "error"),
        [
            ([[0, 0, 5]], rk.errors.ParameterError),
            ([[0, -1, 0]], rk.errors.ParameterError),
            ([[0.5, 0, 0]], rk.errors.ParameterError),
            ([[np.inf, 0, 0]], rk.errors.NonFiniteError),
            ([[0, 0]], rk.errors.ShapeError),
            (np.zeros((0, 3), int), rk.errors.ShapeError),
            (np.array([["a", "b", "c"]]), rk.errors.DTypeError),
        ],
    )
    def test_bad_data_changes_nothing(self, x, error):
        pc = rk.Circuit(circuits.mixture(3, 2, circuits.Categorical(n_values=3)))
        with pytest.raises(error):
            pc.em_step(x)
        with pytest.raises(rk.errors.ParameterError, match="nothing was accumulated"):
            pc.em_step()

    def test_bad_steps(self):
        pc = rk.Circuit(circuits.mixture(3, 2, circuits.Bernoulli()))
        for bad in ({"step": 0.0}, {"step": 1.5}, {"pseudocount": -1.0}):
            with pytest.raises(rk.errors.ParameterError):
                pc.em_step([[0, 0, 0]], **bad)

    @pytest.mark.parametrize("roots", [3, None, [], [1, 2], "hmm"])
    def test_bad_roots(self, roots):
        with pytest.raises(rk.errors.DTypeError, match="need node vectors"):
            rk.Circuit(roots)

    def test_bad_parameters(self):
        leaf = circuits.Categorical(n_values=2)
        with pytest.raises(rk.errors.ParameterError, match="sum to 1"):
            circuits.inputs(0, leaf, 1, parameters=[[0.5, 0.6]])
        with pytest.raises(rk.errors.ShapeError):
            circuits.inputs(0, leaf, 2, parameters=[[0.5, 0.5]])
        leaves = circuits.inputs(0, leaf, 2)
        with pytest.raises(rk.errors.ParameterError, match="no positive weight"):
            circuits.sum(leaves, n_nodes=1, parameters=[[0, 0]])
        with pytest.raises(rk.errors.StructureError, match="has no child"):
            circuits.sum(leaves, n_nodes=2, edges=np.array([[0], [0]]))
        with pytest.raises(rk.errors.StructureError, match="comes twice"):
            circuits.sum(leaves, n_nodes=2, edges=np.array([[0, 1, 0], [1, 0, 1]]))

    def test_foreign_nodes(self):
        pc = rk.Circuit(circuits.mixture(2, 2, circuits.Bernoulli()))
        with pytest.raises(rk.errors.ParameterError, match="need inputs or sums of this circuit"):
            pc.parameters(circuits.inputs(0, circuits.Bernoulli(), 2))


def test_all_circuits_of_the_file_are_known():
    assert {"hmm_tied_t5", "pd_2x3", "mixed_leaves", "zeros_tree"} <= set(reference.NAMES)
