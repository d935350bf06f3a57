"""Entropies, divergences, moments: against enumeration of all samples, and closed forms."""

import itertools

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from tests.reference import circuits as reference


def viterbi_chain(seed, n_time=3, n_state=3, order=None):
    """A hidden Markov model whose states are variables: deterministic."""
    rng = np.random.default_rng(seed)
    state, above = circuits.Indicator(n_values=n_state), None
    for t in range(n_time - 1, -1, -1):
        emission = rng.dirichlet(np.ones(2), n_state)
        leaf = circuits.Categorical(n_values=2)
        parts = [
            circuits.inputs(t, leaf, n_state, parameters=emission),
            circuits.inputs(n_time + t, state, n_state),
        ]
        if above is not None:
            moves = rng.dirichlet(np.ones(n_state), n_state)
            parts.append(circuits.sum(above, n_nodes=n_state, parameters=moves))
        above = circuits.product(*parts[:: 1 if order is None else -1])
    start = rng.dirichlet(np.ones(n_state))[None]
    return rk.Circuit(circuits.sum(above, n_nodes=1, parameters=start), dtype="float64")


def every_sample(pc):
    sizes = [0] * pc.n_variables
    for nodes in pc.layout.inputs:
        sizes[nodes.var] = max(sizes[nodes.var], nodes.leaf.support)
    return np.array(list(itertools.product(*map(range, sizes))))


def log_and_mass(pc, x):
    ll = pc.log_likelihood(x)
    return ll, np.exp(ll)


class TestDeterministic:
    def test_entropy(self):
        pc = viterbi_chain(1)
        ll, p = log_and_mass(pc, every_sample(pc))
        assert abs(pc.entropy() + (p[p > 0] * ll[p > 0]).sum()) < 1e-12

    def test_divergence(self):
        p, q = viterbi_chain(1), viterbi_chain(2, order=-1)
        x = every_sample(p)
        (ll, mass), (other, _) = log_and_mass(p, x), log_and_mass(q, x)
        possible = mass > 0
        want = (mass[possible] * (ll - other)[possible]).sum()
        assert abs(p.kl(q) - want) < 1e-12
        assert abs(p.kl(p)) < 1e-12

    def test_outside_the_support(self):
        p = viterbi_chain(1)
        q = viterbi_chain(2)
        q.set_parameters(q.layout.roots[0], [[0.5, 0.5, 0.0]])
        assert p.kl(q) == np.inf
        assert np.isfinite(q.kl(p))

    def test_reference_circuit(self):
        pc = rk.Circuit(reference.build("det_mpe")[0], dtype="float64")
        ll, p = log_and_mass(pc, every_sample(pc))
        assert abs(pc.entropy() + (p[p > 0] * ll[p > 0]).sum()) < 1e-12

    def test_numbers(self):
        """Two switched Gaussians and counts: closed forms."""

        def made(w, mean, std, rate):
            side = circuits.inputs(0, circuits.Indicator(n_values=2), 2)
            number = circuits.inputs(
                1, circuits.Gaussian(), 2, parameters=[[mean, std], [1.0, 2.0]]
            )
            count = circuits.inputs(2, circuits.Poisson(), 2, parameters=[rate, 3.0])
            both = circuits.product(side, number, count)
            root = circuits.sum(both, n_nodes=1, parameters=[[w, 1 - w]])
            return rk.Circuit(root, dtype="float64")

        p, q = made(0.25, 0.5, 1.5, 2.0), made(0.5, -0.5, 1.0, 2.5)
        normal = np.log(1.0 / 1.5) + (1.5**2 + 1.0) / 2 - 0.5
        count = 2.0 * np.log(2.0 / 2.5) - 2.0 + 2.5
        want = 0.25 * (np.log(0.5) + normal + count) + 0.75 * np.log(1.5)
        assert abs(p.kl(q) - want) < 1e-12
        k = np.arange(80)
        poisson = [
            np.exp(rk.elementwise.log(r) * k - r - rk.elementwise.lgamma(k + 1.0))
            for r in (2.0, 3.0)
        ]
        counts = [-(x[x > 0] * np.log(x[x > 0])).sum() for x in poisson]
        densities = [0.5 * np.log(2 * np.pi * np.e * s * s) for s in (1.5, 2.0)]
        parts = [
            c + d - np.log(w) for c, d, w in zip(counts, densities, (0.25, 0.75), strict=True)
        ]
        assert abs(p.entropy() - (0.25 * parts[0] + 0.75 * parts[1])) < 1e-11


def test_what_is_not_tractable():
    mixed = rk.Circuit(circuits.mixture(2, 2, circuits.Bernoulli()))
    assert not mixed.is_deterministic()
    assert viterbi_chain(1).is_deterministic()
    with pytest.raises(rk.errors.StructureError, match="not deterministic"):
        mixed.entropy()
    chain = viterbi_chain(1)
    with pytest.raises(rk.errors.StructureError, match="not deterministic"):
        viterbi_chain(1, n_time=1).kl(mixed)
    with pytest.raises(rk.errors.ParameterError, match="as of this one"):
        chain.kl(viterbi_chain(1, n_time=2))
    sides = [circuits.inputs(v, circuits.Indicator(n_values=2), 2) for v in range(3)]

    def split(a, b, c):
        inner = circuits.sum(circuits.product(b, c), n_nodes=2)
        return rk.Circuit(circuits.sum(circuits.product(a, inner), n_nodes=1))

    with pytest.raises(rk.errors.StructureError, match="not compatible"):
        split(*sides).kl(split(*sides[::-1]))
    several = rk.Circuit(circuits.sum(sides[0], n_nodes=2))
    with pytest.raises(rk.errors.ParameterError, match="roots, need one"):
        several.entropy()


@pytest.mark.parametrize("name", ["hclt_6v_k4", "det_mpe", "mix_bernoulli"])
@pytest.mark.parametrize("power", [1, 2])
def test_expectation_of_tables(name, power):
    pc, data = rk.Circuit(reference.build(name)[0], dtype="float64"), reference.arrays(name)
    x, missing = data["data"], data["missing"]
    posterior = pc.conditional(x, missing=missing)
    possible = np.isfinite(data["ll_missing"])
    want = posterior @ np.arange(posterior.shape[2], dtype=float) ** power
    got = pc.expectation(x, missing=missing, power=power)
    np.testing.assert_allclose(got[possible], want[possible], rtol=0, atol=1e-12)
    assert (got[~missing] == x[~missing].astype(float) ** power).all()


def test_expectation_of_numbers():
    leaves = [
        circuits.inputs(0, circuits.Gaussian(), 2, parameters=[[-3, 0.5], [4, 1]]),
        circuits.inputs(1, circuits.Poisson(), 2, parameters=[2.0, 9.0]),
    ]
    root = circuits.sum(circuits.product(*leaves), n_nodes=1, parameters=[[0.3, 0.7]])
    pc = rk.Circuit(root, dtype="float64")
    nothing = np.full((1, 2), np.nan)
    np.testing.assert_allclose(pc.expectation(nothing), [[1.9, 6.9]], rtol=1e-13)
    squares = [[0.3 * 9.25 + 0.7 * 17, 0.3 * 6 + 0.7 * 90]]
    np.testing.assert_allclose(pc.expectation(nothing, power=2), squares, rtol=1e-13)
    seen = np.array([[4.0, np.nan]])  # surely the second one
    np.testing.assert_allclose(pc.expectation(seen), [[4, 9]], rtol=0, atol=1e-6)
    with pytest.raises(rk.errors.ParameterError, match="power"):
        pc.expectation(nothing, power=3)
