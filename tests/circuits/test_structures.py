"""Structures and transformations: distributions stay distributions, likelihoods what they were."""

import hashlib
import itertools

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from tests.reference import circuits as reference

RNG = np.random.default_rng(8)
X3 = RNG.integers(0, 2, (60, 6))
X3[:, 3] = X3[:, 0] ^ (RNG.random(60) < 0.1)


def assert_is_distribution(root, n_values):
    pc = rk.Circuit(root, dtype="float64", seed=3)
    every = np.array(list(itertools.product(range(n_values), repeat=pc.n_variables)))
    assert abs(np.exp(pc.log_likelihood(every)).sum() - 1) < 1e-11


MADE = {
    "pd": lambda seed: circuits.pd((2, 3), 4, circuits.Bernoulli(), max_products=1, seed=seed),
    "pd_hclt": lambda seed: circuits.pd_hclt(X3, (2, 3), 3, n_splits=1, seed=seed),
    "hclt": lambda seed: circuits.hclt(X3, 3, n_bins=4),
    "rat_spn": lambda seed: circuits.rat_spn(6, 3, circuits.Bernoulli(), seed=seed),
    "hmm": lambda seed: circuits.hmm(6, 4, 2, homogeneous=seed == 1),
    "random_regions": lambda seed: circuits.region_graph(
        circuits.random_regions(6, n_pieces=2 + seed, n_partitions=3, depth=2, seed=seed),
        4,
        circuits.Bernoulli(),
        max_products=2,
        seed=seed,
    ),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("seed", [0, 1])
class TestStructures:
    def test_is_a_distribution(self, name, seed):
        assert_is_distribution(MADE[name](seed), 2)

    def test_one_seed_one_structure(self, name, seed):
        ll = [rk.Circuit(MADE[name](seed), seed=1).log_likelihood(X3) for _ in range(2)]
        assert (ll[0] == ll[1]).all()


def test_region_graph_as_written():
    regions = {(0, 1, 2): [[(0,), (1, 2)], [(0, 1), (2,)], [(0,), (1,), (2,)]], (1, 2): []}
    root = circuits.region_graph(regions, 4, circuits.Categorical(n_values=3), n_roots=2)
    assert root.n_node == 2
    assert [len(child.children) for child in root.children] == [2, 2, 3]
    root = circuits.region_graph(regions, 4, circuits.Categorical(n_values=3))
    assert_is_distribution(root, 3)


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {(0, 1): [[(0,), (0, 1)]]},
        {(0, 1, 2): [[(0,), (1,)]]},
        {(0, 1): [[(0,), (1,)]], (2,): []},
        {(0, 0): []},
    ],
)
def test_bad_regions(bad):
    with pytest.raises(rk.errors.StructureError):
        circuits.region_graph(bad, 2, circuits.Bernoulli())


def likelihood(graph, x, missing=None, seed=0):
    return rk.Circuit(graph, dtype="float64", seed=seed).log_likelihood(x, missing=missing)


def near(a, b):
    possible = np.isfinite(a) | np.isfinite(b)
    np.testing.assert_allclose(a[possible], b[possible], rtol=0, atol=1e-11)


def n_owned(graph):
    return sum(nodes.source is nodes for nodes in graph.walk())


@pytest.mark.parametrize("name", reference.NAMES)
class TestTransformations:
    """On all known circuits: likelihoods, with and without gaps, are what they were."""

    def test_deepcopy(self, name):
        root, data = reference.build(name)[0], reference.arrays(name)
        learned = rk.Circuit(root, dtype="float64")
        learned.em_step(data["data"], pseudocount=0.1)
        copy = circuits.deepcopy(learned)
        near(likelihood(copy, data["data"]), learned.log_likelihood(data["data"]))
        assert n_owned(copy) == n_owned(root)
        n = learned.n_variables
        turned = circuits.deepcopy(root, variables=range(n - 1, -1, -1))
        near(likelihood(turned, data["data"][:, ::-1]), data["ll"])
        near(likelihood(root, data["data"]), data["ll"])  # the old one is as it was

    @pytest.mark.parametrize("size", [1, 2, 16])
    def test_reblock(self, name, size):
        root, data = reference.build(name)[0], reference.arrays(name)
        new = circuits.reblock(root, size, max_padding=0.5)
        near(likelihood(new, data["data"], data["missing"]), data["ll_missing"])
        assert n_owned(new) == n_owned(root)
        assert rk.Circuit(new).n_edges <= 1.5 * rk.Circuit(root).n_edges
        assert max(nodes.block_size for nodes in new.walk()) <= size

    def test_grow(self, name):
        root, data = reference.build(name)[0], reference.arrays(name)
        new = circuits.grow(root, noise=0.0)
        near(likelihood(new, data["data"], data["missing"]), data["ll_missing"])
        assert [n.n_node for n in new.walk()][:-1] == [2 * n.n_node for n in root.walk()][:-1]
        assert n_owned(new) == n_owned(root)

    def test_prune_what_is_not_used(self, name):
        """Without evidence the flow of a weight is 0 only where its weight is."""
        root, data = reference.build(name)[0], reference.arrays(name)
        pc = rk.Circuit(circuits.reblock(root, 1), dtype="float64")
        pc.accumulate(np.full((1, pc.n_variables), np.nan))
        new = circuits.prune(pc, least=1e-300)
        near(likelihood(new, data["data"]), data["ll"])
        assert rk.Circuit(new).n_edges <= pc.n_edges

    def test_merge(self, name):
        root, data = reference.build(name)[0], reference.arrays(name)
        other = rk.Circuit(circuits.deepcopy(root), dtype="float64")
        other.em_step(data["data"], pseudocount=0.5)
        other.write_back()
        both = likelihood(circuits.merge(root, *other.layout.roots), data["data"])
        near(both[:, 0], data["ll"])
        near(both[:, 1], other.log_likelihood(data["data"]))


def test_growing_helps_and_pruning_hardly_hurts():
    x = np.random.default_rng(4).integers(0, 2, (300, 8))
    x[:, 4:] = x[:, :4] ^ (np.random.default_rng(5).random((300, 4)) < 0.1)
    pc = rk.Circuit(circuits.hclt(x, 4), dtype="float64", seed=1)
    small = pc.fit(x, n_epochs=30, pseudocount=0.01)["train"][-1]
    grown = rk.Circuit(circuits.grow(pc, seed=2), dtype="float64")
    assert grown.n_edges > 3 * pc.n_edges
    first, *_, last = grown.fit(x, n_epochs=30, pseudocount=0.01)["train"]
    assert first > small - 0.2
    assert last > small + 0.01
    single = rk.Circuit(circuits.reblock(grown, 1), dtype="float64")
    single.accumulate(x)
    thin = rk.Circuit(circuits.prune(single, keep=0.5), dtype="float64")
    assert thin.n_edges <= 0.55 * grown.n_edges
    assert thin.log_likelihood(x).mean() > last - 0.1
    again = rk.Circuit.from_state(thin.state())
    assert (again.log_likelihood(x) == thin.log_likelihood(x)).all()


def test_transformation_errors():
    a = circuits.mixture(2, 2, circuits.Bernoulli())
    b = circuits.mixture(3, 2, circuits.Bernoulli())
    with pytest.raises(rk.errors.StructureError, match="differ in kind, scope or block size"):
        circuits.merge(a, b)
    with pytest.raises(rk.errors.StructureError, match="leaves of variable 0 differ"):
        circuits.merge(*(circuits.inputs(0, circuits.Binomial(n_trials=n), 1) for n in (2, 3)))
    pc = rk.Circuit(a)
    with pytest.raises(rk.errors.ParameterError, match="no counts are held"):
        circuits.prune(pc, keep=0.5)
    pc.accumulate([[0, 1]])
    for bad in ({}, {"keep": 0.0}, {"least": -1.0}, {"keep": 0.5, "least": 0.1}):
        with pytest.raises(rk.errors.ParameterError):
            circuits.prune(pc, **bad)
    with pytest.raises(rk.errors.DTypeError):
        circuits.prune(a, keep=0.5)
    for size in (0, 3, 1.0):
        with pytest.raises(rk.errors.ParameterError):
            circuits.reblock(a, size)
    with pytest.raises(rk.errors.ParameterError):
        circuits.grow(a, noise=-1)
    with pytest.raises(rk.errors.ParameterError):
        circuits.deepcopy(a, variables=[0])


@pytest.mark.parametrize(
    ("bins", "digest"),
    [(8, "b379958d6e4a63f9"), (None, "1357f364a108cf8b")],
)
def test_mutual_information_has_one_result_on_every_cpu(bins, digest):
    """A library's product or logarithm would give other low bits on another processor."""
    x = rk.elementwise.random_fill(rk.Stream.from_seed(1), (501, 9), "normal").astype(np.float64)
    x[:, 1] += x[:, 0]
    x[:, 4] -= x[:, 3]
    if bins is None:
        x = np.floor(np.clip(x * 2 + 4, 0, 8)).astype(int)
    found = circuits.mutual_information(x, n_bins=bins)
    assert hashlib.sha256(found.tobytes()).hexdigest()[:16] == digest


def test_mutual_information_by_bins_is_its_formula():
    x = np.random.default_rng(4).normal(size=(30, 3))
    scaled = (x - x.min()) / (x.max() - x.min())
    soft = np.exp(-((scaled[:, :, None] - np.arange(4) / 3) ** 2) / (2 * 0.125**2))
    pairs = np.einsum("nvi,nwj->vwij", soft, soft)
    pairs /= pairs.sum(axis=(2, 3), keepdims=True)
    single = (soft / soft.sum(axis=2, keepdims=True)).mean(axis=0)
    h1 = -(single * np.log(single + 1e-4)).sum(axis=1)
    h2 = -(pairs * np.log(pairs + 1e-4)).sum(axis=(2, 3))
    got = circuits.mutual_information(x, n_bins=4)
    np.testing.assert_allclose(got, h1[:, None] + h1 - h2, rtol=0, atol=1e-13)  # 16 terms
