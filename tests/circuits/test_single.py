"""Passes of few samples through small sums have the bits of the layers' mirrors."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.circuits.ops import layers as ops
from rpukit.circuits.queries.passes import run_down, run_inner, run_leaves
from rpukit.testing import assert_same_bits

TYPES = ["float32", "float64"]


def passes(pc, x, weights, mirror_of):
    """Values, elements, flows and lifts by one mirror of whole passes."""
    core = pc._core
    run = run_leaves(core.parameters, *core.encoder(x, None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "_passes", lambda program, theta, n: mirror_of(theta.dtype))
        run_inner(core.parameters, run, keep=True)
        run.lift = None
        run_down(core.parameters, run, weights)
    layers = [layer for layer in pc.layout.layers if hasattr(layer, "first_row")]
    rows = np.concatenate([np.arange(layer.first_row, layer.end_row) for layer in layers])
    return run.values, run.elements, run.flows, run.lift[:, rows]


def assert_same_passes(pc, x, weights=None):
    if weights is None:
        weights = np.ones((len(x), pc.layout.root_rows.size), pc.dtype)
    names = (ops._PASSES, ops._SINGLE)
    found = [passes(pc, x, weights, lambda dtype, m=name: ops.mirror(m, dtype)) for name in names]
    for wide, single in zip(*found, strict=True):
        assert_same_bits(single, wide)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n_states", [1, 3, 7, 8, 9, 16, 31])
def test_chains(n_states, dtype):
    pc = rk.Circuit(circuits.hmm(20, n_states, 6), dtype=dtype, seed=n_states)
    x = np.random.default_rng(0).integers(0, 6, (3, 20)).astype(float)
    x[1, 3:9] = np.nan
    assert_same_passes(pc, x)
    program, theta = pc._core.parameters.program, pc._core.parameters.theta
    assert ops._passes(program, theta, 1) is ops.mirror(ops._SINGLE, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["rat", "deep", "hclt", "pd", "mixture"])
def test_structures(name, dtype):
    rng = np.random.default_rng(1)
    x, leaf = rng.integers(0, 2, (3, 12)), circuits.Bernoulli()
    made = {
        "rat": lambda: circuits.rat_spn(12, 5, leaf, depth=2),
        "deep": lambda: circuits.rat_spn(12, 3, leaf),
        "hclt": lambda: circuits.hclt(rng.integers(0, 2, (50, 12)), 6),
        "pd": lambda: circuits.pd((3, 4), 4, leaf),
        "mixture": lambda: circuits.mixture(12, 9, circuits.Gaussian()),
    }
    assert_same_passes(rk.Circuit(made[name](), dtype=dtype, seed=3), x)


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_impossible_or_tiny(dtype):
    steps = np.eye(4) * 0.7 + np.eye(4, k=1) * 0.3
    steps[3, 3] = 1
    emission = np.eye(4)
    emission[3] = [0, 0, 0.5, 0.5]
    pc = rk.Circuit(
        circuits.hmm(6, 4, 4, start=[1, 0, 0, 0], transition=steps, emission=emission), dtype=dtype
    )
    x = np.sort(np.random.default_rng(2).integers(0, 4, (40, 6)), axis=1)
    assert np.isneginf(pc.log_likelihood(x)).any()
    assert_same_passes(pc, x)
    # Totals below the normal numbers: children with hardly any weight have the largest values.
    far = circuits.hmm(
        6,
        4,
        leaf=circuits.Gaussian(),
        emission=[[0, 0.01], [5, 0.01], [10, 0.01], [15, 0.01]],
        transition=np.full((4, 4), 1e-30) + np.eye(4),
    )
    y = 10 * np.random.default_rng(3).normal(size=(20, 6))
    assert_same_passes(rk.Circuit(far, dtype=dtype), y)


@pytest.mark.parametrize("dtype", TYPES)
def test_several_roots(dtype):
    leaf = circuits.inputs(0, circuits.Bernoulli(), 3)
    pc = rk.Circuit([circuits.sum(leaf, n_nodes=n) for n in (2, 1)], dtype=dtype)
    weights = np.random.default_rng(4).random((3, 3)).astype(dtype)
    assert_same_passes(pc, np.array([[0], [1], [1]]), weights)


def test_nodes_keep_their_order():
    """Flows come in the order of the node vectors, of whatever sizes and places."""
    sides = [circuits.inputs(v, circuits.Bernoulli(), 2 + v) for v in range(3)]
    sums = [circuits.sum(side, n_nodes=4) for side in sides]
    pc = rk.Circuit(circuits.sum(circuits.product(*sums), n_nodes=1), dtype="float64")
    flows = pc.flows([[0, 1, 1], [1, 0, 1]])
    assert list(flows) == [n for n in pc.layout.nodes if n.number in pc.layout.rows]
    for nodes, flow in flows.items():
        assert flow.shape == (2, nodes.n_node)
        np.testing.assert_allclose(flow.sum(axis=1), 1, rtol=1e-14)
