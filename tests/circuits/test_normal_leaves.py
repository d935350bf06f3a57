"""Normal leaves of several variables with full covariance: densities, EM, draws, bits."""

import itertools

import numpy as np
import pytest
from scipy import stats

import rpukit as rk
from rpukit import circuits
from rpukit.testing import assert_same_bits, on_cpu
from tests.golden.cases.circuits import data_of_normals, of_normals

KERNELS = ("normal_density", "normal_statistic")  # both run in what follows
D = 3
COLUMNS = (2, 0, 1)  # not in the order of the data
WEIGHTS = np.array([0.3, 0.7])
leaf = circuits.MultivariateNormal(n_variables=D)


def components():
    rng = np.random.default_rng(3)
    factor = rng.normal(size=(2, D, D))
    return rng.normal(size=(2, D)), factor @ factor.swapaxes(1, 2) + 0.2 * np.eye(D)


def two(dtype="float64", seed=0):
    nodes = circuits.inputs(COLUMNS, leaf, 2, parameters=leaf.packed(*components()))
    root = circuits.sum(nodes, n_nodes=1, parameters=[WEIGHTS])
    return rk.Circuit(root, dtype=dtype, seed=seed)


def formula(x):
    """Log-density, component by component, of what is not NaN."""
    found = np.zeros(len(x))
    for k, line in enumerate(x[:, COLUMNS]):
        at = np.flatnonzero(~np.isnan(line))
        if len(at):
            parts = [
                stats.multivariate_normal(m[at], c[np.ix_(at, at)]).pdf(line[at])
                for m, c in zip(*components(), strict=True)
            ]
            found[k] = np.log(WEIGHTS @ parts)
    return found


def every_gap(n=4):
    """n samples with each set of missing variables."""
    gaps = np.array(list(itertools.product([False, True], repeat=D)))
    x = np.random.default_rng(1).normal(0, 2, (n * len(gaps), D))
    x[np.repeat(gaps, n, axis=0)] = np.nan
    return x


@pytest.mark.parametrize(("dtype", "near"), [("float64", 1e-12), ("float32", 2e-6)])
def test_density_and_marginals_are_those_of_scipy(dtype, near):
    x = every_gap()
    np.testing.assert_allclose(two(dtype).log_likelihood(x), formula(x), atol=near, rtol=near)


def test_conditional_draws_have_the_expected_moments():
    pc, x = two(), np.array([[np.nan, 0.7, np.nan]])
    drawn = pc.sample(x=np.repeat(x, 40000, axis=0))
    assert (drawn[:, 1] == 0.7).all()
    for power in (1, 2):
        expected = pc.expectation(x, power=power)[0]
        spread = (drawn**power).std(axis=0) / 200  # of the mean of 40,000
        assert (abs((drawn**power).mean(axis=0) - expected) <= 5 * spread + 1e-12).all()
    correlation = np.corrcoef(pc.sample(40000)[:, COLUMNS].T)
    means, covariances = components()
    about = means - WEIGHTS @ means
    whole = np.tensordot(WEIGHTS, covariances + about[:, :, None] * about[:, None, :], 1)
    scale = np.sqrt(np.diag(whole))
    np.testing.assert_allclose(correlation, whole / np.outer(scale, scale), atol=0.03)


def test_most_probable_has_the_largest_density():
    nodes = circuits.inputs(COLUMNS, leaf, 1, parameters=leaf.packed(*components())[:1])
    pc = rk.Circuit(circuits.sum(nodes, n_nodes=1), dtype="float64")
    x = every_gap(1)
    best, value = pc.most_probable(x)
    np.testing.assert_allclose(value, pc.log_likelihood(best), rtol=1e-12)
    near = best + 1e-3 * np.isnan(x) * np.random.default_rng(5).normal(size=x.shape)
    assert (pc.log_likelihood(near) <= value + 1e-12).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_em_never_lowers_the_likelihood(dtype):
    x = two().sample(300)
    gaps = np.random.default_rng(1).random(x.shape) < 0.3
    for missing in (None, gaps):
        pc = rk.Circuit(circuits.mixture(D, 2, leaf), seed=1, dtype=dtype)
        trace = [pc.em_step(x, missing=missing, step=s).sum() for s in (1, 1, 0.3, 1, 0.5, 1)]
        assert np.diff(trace).min() > -2e-6 * abs(trace[0])
        assert trace[-1] > trace[0]


def test_one_step_reaches_mean_and_covariance():
    x = two().sample(200) + 1e4  # far from 0
    pc = rk.Circuit(circuits.mixture(D, 1, leaf), dtype="float64")
    for _ in range(2):
        pc.em_step(x)
    mean, covariance = leaf.unpacked(pc.parameters(pc.layout.inputs[0]))
    np.testing.assert_allclose(mean[0], x.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(covariance[0], np.cov(x.T, bias=True), rtol=1e-7)


def test_missing_values_take_their_expected_moments():
    """A step of EM by hand: Little, Rubin, Statistical analysis with missing data, 11.2."""
    x = every_gap(6)
    nodes = circuits.inputs(COLUMNS, leaf, 1, parameters=leaf.packed(*components())[:1])
    pc = rk.Circuit(circuits.sum(nodes, n_nodes=1), dtype="float64")
    mean, covariance = (a[0] for a in components())
    whole, square = [], np.zeros((D, D))
    for line in x[:, COLUMNS]:
        o, m = np.flatnonzero(~np.isnan(line)), np.flatnonzero(np.isnan(line))
        by = np.linalg.solve(covariance[np.ix_(o, o)], covariance[np.ix_(o, m)]).T
        line = line.copy()
        line[m] = mean[m] + by @ (line[o] - mean[o])
        whole.append(line)
        square[np.ix_(m, m)] += covariance[np.ix_(m, m)] - by @ covariance[np.ix_(o, m)]
    pc.em_step(x)
    found = leaf.unpacked(pc.parameters(pc.layout.inputs[0]))
    np.testing.assert_allclose(found[0][0], np.mean(whole, axis=0), rtol=1e-10)
    expected = np.cov(np.array(whole).T, bias=True) + square / len(x)
    np.testing.assert_allclose(found[1][0], expected, rtol=1e-10)


def test_deviations_have_a_floor():
    """Columns that are sums of others, and a constant one."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 100))
    x = np.stack([a, b, a + b, np.ones(100)], axis=1)
    own = circuits.MultivariateNormal(n_variables=4, min_std=(0.1, 0.1, 0.1, 0.02))
    pc = rk.Circuit(circuits.mixture(4, 1, own), dtype="float64")
    trace = [pc.em_step(x).sum() for _ in range(5)]
    assert np.diff(trace).min() > -1e-9 * abs(trace[0])
    covariance = own.unpacked(pc.parameters(pc.layout.inputs[0]))[1][0]
    assert np.isclose(covariance[2, 2] - covariance[0, 0] - covariance[1, 1] -
                      2 * covariance[0, 1], 0.1**2)  # fmt: skip
    assert np.isclose(covariance[3, 3], 0.02**2)
    assert np.isclose(pc.expectation([[1.0, 2.0, np.nan, np.nan]])[0, 2], 3.0)


def test_gradient_is_that_of_the_likelihood():
    x = two().sample(40)
    parameters = leaf.packed(*components())[:1]
    far = x[:, COLUMNS] - parameters[0, :D]
    rows, columns = np.tril_indices(D)
    second = (far.T @ far)[rows, columns]
    statistics = np.concatenate([[len(x)], far.sum(axis=0), second])[None]
    slopes = leaf.slopes(parameters, statistics)[0]
    nodes = circuits.inputs(COLUMNS, leaf, 1, parameters=parameters)
    pc = rk.Circuit(circuits.sum(nodes, n_nodes=1), dtype="float64")
    owner = pc.layout.inputs[0]
    for k, slope in enumerate(slopes):
        found = []
        for by in (-1e-4, 1e-4):
            change = np.zeros((1, len(slopes)))
            change[0, k] = by
            pc.set_parameters(owner, leaf.moved(parameters, change))
            found.append(pc.log_likelihood(x).sum())
        assert np.isclose((found[1] - found[0]) / 2e-4, slope, rtol=1e-5)
    pc = rk.Circuit(circuits.mixture(D, 2, leaf), seed=1, dtype="float64")
    trace = [pc.gradient_step(x, rate=0.05).mean() for _ in range(40)]
    assert trace[-1] > trace[0] + 1


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_of_both_sides(order, dtype):
    def everything():
        pc = rk.Circuit(of_normals(), seed=5, dtype=dtype)
        x, missing = data_of_normals("cpu")
        out = [pc.log_likelihood(x, missing=missing), *pc.flows(x[:5]).values()]
        out += [pc.sample(3), *pc.most_probable(x[:9], missing=missing[:9])]
        pc.em_step(x[:60], missing=missing[:60], step=0.7, pseudocount=0.5)
        pc.accumulate(x, missing=missing)
        arrays = pc.state()["arrays"]
        return [*out, *(arrays[name] for name in sorted(arrays))]

    expected = everything()
    with on_cpu(order):
        found = everything()
    for a, b in zip(found, expected, strict=True):
        assert_same_bits(a, b)


def test_bits_of_a_batch_cut_in_two_and_of_a_file(tmp_path):
    x, missing = data_of_normals("cpu")
    whole, cut = (rk.Circuit(of_normals(), seed=5) for _ in range(2))
    whole.accumulate(x, missing=missing)
    for part in (slice(0, 7), slice(7, None)):
        cut.accumulate(x[part], missing=missing[part])
    rk.save(tmp_path / "cut.npz", cut)
    again = rk.load(tmp_path / "cut.npz")
    for pc in (whole, cut, again):
        pc.em_step()
    for pc in (cut, again):
        for nodes in whole.layout.inputs:
            copy = pc.layout.nodes[whole.layout.nodes.index(nodes)]
            assert copy.columns == nodes.columns
            assert_same_bits(pc.parameters(copy), whole.parameters(nodes))


@pytest.mark.parametrize("columns", [[2, 0], [2, 0, 0], [2, 0, 1 << 40], [0, 1, 2]])
def test_columns_of_a_file_are_checked(columns):
    state = two().state()
    state["header"]["nodes"][0]["columns"] = columns
    with pytest.raises(rk.errors.FormatError, match="columns|var"):
        rk.Circuit.from_state(state)


def test_structures_and_transformations():
    pc = rk.Circuit(circuits.hmm(3, 2, leaf=leaf), seed=1, dtype="float64")
    assert (pc.n_variables, pc.layout.inputs[-1].columns) == (9, (6, 7, 8))
    x = pc.sample(5)
    turned = rk.Circuit(circuits.deepcopy(pc, variables=[*range(3, 9), 2, 1, 0]), dtype="float64")
    moved = np.concatenate([x[:, 8:5:-1], x[:, :6]], axis=1)
    np.testing.assert_allclose(turned.log_likelihood(moved), pc.log_likelihood(x), rtol=1e-13)
    grown = rk.Circuit(circuits.grow(pc, noise=0.0), dtype="float64")
    np.testing.assert_allclose(grown.log_likelihood(x), pc.log_likelihood(x), rtol=1e-13)
    one, other = (circuits.inputs(COLUMNS, leaf, 2) for _ in range(2))
    assert circuits.merge(one, other).columns == COLUMNS
    with pytest.raises(rk.errors.StructureError, match="differ"):
        circuits.merge(one, circuits.inputs((0, 1, 2), leaf, 2))


def test_entropy_and_divergence():
    (mean, mean2), (c, c2) = components()
    both = [
        rk.Circuit(
            circuits.sum(
                circuits.inputs(COLUMNS, leaf, 1, parameters=leaf.packed([m], [v])), n_nodes=1
            ),
            dtype="float64",
        )
        for m, v in ((mean, c), (mean2, c2))
    ]
    assert np.isclose(both[0].entropy(), stats.multivariate_normal(mean, c).entropy())
    far = mean2 - mean
    kl = np.trace(np.linalg.solve(c2, c)) + far @ np.linalg.solve(c2, far) - D
    kl += np.linalg.slogdet(c2)[1] - np.linalg.slogdet(c)[1]
    assert np.isclose(both[0].kl(both[1]), kl / 2)
    turned = rk.Circuit(circuits.mixture(D, 1, leaf), dtype="float64")
    with pytest.raises(rk.errors.StructureError, match="need one order"):
        both[0].kl(turned)


def test_what_is_not_supported_says_so():
    errors = rk.errors
    with pytest.raises(errors.ParameterError, match="need 3 different variables"):
        circuits.inputs((0, 1), leaf, 2)
    with pytest.raises(errors.ParameterError, match="not positive definite"):
        leaf.packed(np.zeros((1, D)), -np.eye(D)[None])
    with pytest.raises(errors.ParameterError, match="not symmetric"):
        leaf.packed(np.zeros((1, D)), np.tri(D)[None])
    with pytest.raises(errors.ParameterError, match="diagonal of a Cholesky factor"):
        circuits.inputs(0, leaf, 1, parameters=np.zeros((1, leaf.n_parameters)))
    with pytest.raises(errors.ParameterError, match="one of a single variable"):
        circuits.rat_spn(6, 2, leaf)
    with pytest.raises(errors.ParameterError, match="n_variables"):
        circuits.mixture(4, 2, leaf)
    with pytest.raises(errors.ParameterError, match="min_std"):
        circuits.MultivariateNormal(n_variables=2, min_std=(1.0, 0.0))
    with pytest.raises(errors.ParameterError, match="momentum"):
        two().scaled_em_step(every_gap(), momentum=0.5)
