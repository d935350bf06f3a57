"""Long chains of sums in float32: values in float64, flows that are scaled; kernel scale_flows.

The formula is the scaled forward-backward recursion of hidden Markov models, in float64.
"""

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit._exact.math import round_up32
from rpukit.circuits._mirror import scaling
from rpukit.circuits.graph.nodes import InputNodes
from rpukit.circuits.ops import scaling as ops
from rpukit.testing import assert_same_bits, on_cpu


def shares(rng, *shape):
    """Rows of probabilities that float32 holds exactly: multiples of 1 / 4096."""
    cuts = np.sort(rng.integers(1, 4096, (*shape[:-1], shape[-1] - 1)), axis=-1)
    ends = np.full((*shape[:-1], 1), 4096)
    found = np.diff(np.concatenate([0 * ends, cuts, ends], axis=-1)) / 4096
    return np.where(found > 0, found, 0)


def model(n_states, n_symbols, seed):
    rng = np.random.default_rng(seed)
    return (
        shares(rng, n_states),
        shares(rng, n_states, n_states),
        shares(rng, n_states, n_symbols),
    )


def recursion(start, transition, emission, x):
    """Log-likelihood of one sequence, posterior of each state, expected transitions."""
    n, k = len(x), len(start)
    after = np.ones((n, k))
    for t in range(n - 2, -1, -1):
        after[t] = transition @ (emission[:, x[t + 1]] * after[t + 1])
        after[t] /= after[t].sum()
    state, log_p = start * emission[:, x[0]], 0.0
    posterior, moves = np.empty((n, k)), np.zeros((k, k))
    for t in range(n):
        log_p += np.log(state.sum())
        state = state / state.sum()
        posterior[t] = state * after[t] / (state * after[t]).sum()
        if t + 1 < n:
            joint = state[:, None] * transition * (emission[:, x[t + 1]] * after[t + 1])
            moves += joint / joint.sum()
            state = (state @ transition) * emission[:, x[t + 1]]
    return log_p, posterior, moves


def compared(n_states, length, n_sample, n_symbols=8, **options):
    """A circuit in float32 and the recursion on the same sequences."""
    given = model(n_states, n_symbols, n_states)
    start, transition, emission = given
    root = circuits.hmm(
        length,
        n_states,
        n_symbols,
        start=start,
        transition=transition,
        emission=emission,
    )
    x = np.random.default_rng(length).integers(0, n_symbols, (n_sample, length))
    x = np.where(emission[:, x].max(axis=0) > 0, x, 0)
    return rk.Circuit(root, **options), x, [recursion(*given, line) for line in x]


def posteriors(pc, x):
    """Flows of the leaves, (n_sample, length, n_states)."""
    flows = pc.flows(x)
    leaves = {n.var: f for n, f in flows.items() if isinstance(n, InputNodes)}
    return np.stack([leaves[v] for v in range(pc.n_variables)], axis=1)


@pytest.mark.parametrize(
    ("n_states", "length", "n_sample"),
    [(5, 64, 3), (4, 2000, 3), (18, 100, 2)],  # sums of a few, and of more than vectors take
)
def test_long_sequences_agree_with_the_recursion(n_states, length, n_sample):
    pc, x, expected = compared(n_states, length, n_sample)
    got = pc.log_likelihood(x)
    assert got.dtype == np.float32
    log_p = np.array([line[0] for line in expected])
    # Leaves' logarithms are rounded to float32, and the result is: half a unit each.
    assert (np.abs(got - log_p) <= np.spacing(np.abs(got))).all()
    # 16 sums between two scalings, each with a few roundings of 6e-8.
    found, whole = posteriors(pc, x), np.stack([line[1] for line in expected])
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-6)
    pc.accumulate(x)
    moved = next(n for n in pc.layout.nodes if isinstance(n, circuits.SumNodes))
    flow = pc.parameter_flows(moved.source).sum(axis=0)  # one tile: blocks are of all states
    moves = np.add.reduce([line[2] for line in expected])
    np.testing.assert_allclose(flow.sum(), n_sample * (length - 1), rtol=1e-6)
    if len(flow) == n_states:
        np.testing.assert_allclose(flow, moves, rtol=0, atol=2e-6 * n_sample * length)


@pytest.mark.slow
def test_ten_thousand_times_conserve_the_number_of_samples():
    length = 10_000
    pc, x, [(log_p, expected, _)] = compared(4, length, 1)
    assert abs(float(pc.accumulate(x)[0]) - log_p) <= np.spacing(np.float32(abs(log_p)))
    statistics = pc._core.statistics
    counts = pc._core.parameters.theta * (statistics.totals + statistics.chains)
    np.testing.assert_allclose(counts.sum(), length, rtol=1e-6)
    np.testing.assert_allclose(posteriors(pc, x)[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_kernels_scale_as_the_mirrors_do(precision):
    root, x = circuits.hmm(36, 3, 4), np.random.default_rng(0).integers(0, 4, (5, 36))
    held = []
    for emulated in (False, True):
        pc = rk.Circuit(root, seed=1, precision=precision)
        assert [len(part) for part in pc._core.parameters.downward] == [16, 16, 4]
        with on_cpu(7) if emulated else np.errstate():
            held.append([pc.accumulate(x), *pc.flows(x).values(), *pc.state()["arrays"].values()])
    for a, b in zip(*held, strict=True):
        assert_same_bits(a, b)


def test_chains_of_statistics_end_in_the_kernels_where_they_do_in_the_mirrors():
    """Tied weights and leaves, a batch cut in parts: chains of 4096 steps of up to 256 samples."""
    x = np.random.default_rng(0).integers(0, 3, (300, 18))
    held = []
    for cuts in ((300,), (256, 300), (100, 299, 300)):
        pc = rk.Circuit(circuits.hmm(18, 2, 3), seed=1)
        with on_cpu() if len(cuts) == 2 else np.errstate():
            for first, end in zip((0, *cuts[:-1]), cuts, strict=True):
                pc.accumulate(x[first:end])
        held.append(list(pc.state()["arrays"].values()))
    for other in held[1:]:
        for a, b in zip(held[0], other, strict=True):
            assert_same_bits(a, b)


def test_scaled_flows_add_up_to_the_root(order):
    rng = np.random.default_rng(1)
    flows = rng.random((19, 90), np.float32)
    flows[3, :70], flows[4, 89] = 0, 0
    scaled = np.array([[0, 70, 89], [71, 5, 89]], np.int32)
    expected, got = flows.copy(), flows.copy()
    scaling.scale_flows(0, 19, scaled, expected)
    turned = np.ascontiguousarray(flows.T)
    scaling.scale_columns(scaled, turned)
    with on_cpu(order):
        ops.scale_flows(scaled, got)
    assert_same_bits(got, expected)
    assert_same_bits(np.ascontiguousarray(turned.T), expected)
    for first, n, root in scaled:
        total = flows[:, first : first + n].sum(1, keepdims=True, dtype=float)
        formula = np.where(total > 0, flows[:, [root]] / np.where(total > 0, total, 1), 1)
        formula = formula * flows[:, first : first + n]
        np.testing.assert_allclose(got[:, first : first + n], formula, rtol=2e-7)


def test_only_vectors_that_all_flow_goes_through_are_scaled():
    chain = circuits.hmm(40, 3, 4)
    layers = rk.Circuit(chain).layout.layers
    assert [len(y.scaled) for y in layers][::-1].count(1) == 2
    low = [circuits.inputs(0, circuits.Bernoulli(), 2) for _ in range(2)]
    ways = [circuits.sum(nodes, n_nodes=2) for nodes in low]
    for _ in range(20):
        ways = [circuits.sum(nodes, n_nodes=2) for nodes in ways]
    parted = circuits.sum(*ways, n_nodes=1)  # each way has a part of the flow
    assert not any(len(y.scaled) for y in rk.Circuit(parted).layout.layers)


def test_references_are_rounded_up_to_float32():
    rng = np.random.default_rng(2)
    far = np.array([1e39, -1e39, 1e-50, -1e-50, 0.0, -0.0, np.inf, -np.inf, 0.5, -16777217.0])
    for v in np.concatenate([far, rng.normal(scale=1e4, size=50), 1e-40 * rng.normal(size=9)]):
        with np.errstate(over="ignore"):
            near, got = np.float32(v), round_up32(v)
        assert np.float64(got) >= v
        assert got == (near if near >= v else np.nextafter(near, np.float32(np.inf)))
