"""Leaves that are evaluated by functions: densities, EM, draws, and those that users register."""

import numpy as np
import pytest
from scipy import stats

import rpukit as rk
from rpukit import circuits
from rpukit._exact.math64 import log64
from rpukit.testing import assert_same_bits, on_cpu
from tests.golden.cases.circuits import data_of_functions, of_functions

KERNELS = ("leaf_density", "leaf_statistic", "function_maximise")  # all run in what follows
COUNTS = np.array([0, 1, 2, 3, 7, 40, 1000.0])
POSITIVE = np.array([1e-6, 0.1, 0.5, 1, 2.3, 7, 100.0])
REALS = np.concatenate([-POSITIVE, [0.0], POSITIVE])
ANGLES = np.linspace(-3.1415, 3.1415, 9)

CASES = {
    "geometric": (circuits.Geometric(), [0.3], stats.geom(0.3, loc=-1), COUNTS),
    "negative binomial": (
        circuits.NegativeBinomial(n_successes=2.5),
        [0.3],
        stats.nbinom(2.5, 0.3),
        COUNTS,
    ),
    "exponential": (circuits.Exponential(), [1.7], stats.expon(scale=1 / 1.7), POSITIVE),
    "gamma": (circuits.Gamma(), [2.3, 1.7], stats.gamma(2.3, scale=1 / 1.7), POSITIVE),
    "gamma below 1": (circuits.Gamma(), [0.4, 0.7], stats.gamma(0.4, scale=1 / 0.7), POSITIVE),
    "log-normal": (
        circuits.LogNormal(),
        [0.3, 0.8],
        stats.lognorm(0.8, scale=np.exp(0.3)),
        POSITIVE,
    ),
    "Student": (circuits.StudentT(dof=3.5), [0.3, 0.8], stats.t(3.5, 0.3, 0.8), REALS),
    "von Mises": (circuits.VonMises(), [0.3, 0.8], stats.vonmises(0.8, 0.3), ANGLES),
    "von Mises 19": (circuits.VonMises(), [0.3, 19.0], stats.vonmises(19, 0.3), ANGLES),
    "von Mises 2500": (circuits.VonMises(), [0.3, 2500.0], stats.vonmises(2500, 0.3), ANGLES),
}
LEAVES = {
    "geometric": circuits.Geometric(),
    "negative binomial": circuits.NegativeBinomial(n_successes=2.5),
    "exponential": circuits.Exponential(),
    "gamma": circuits.Gamma(),
    "log-normal": circuits.LogNormal(),
    "Student": circuits.StudentT(),
    "von Mises": circuits.VonMises(),
}
each_leaf = pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)


def of_one(leaf, parameters, dtype="float64"):
    leaves = circuits.inputs(0, leaf, 1, parameters=[parameters])
    return rk.Circuit(circuits.sum(leaves, n_nodes=1), dtype=dtype)


def data_of(leaf, n=90):
    """Samples of two circuits, so that a mixture has something to find."""
    parts = [
        rk.Circuit(circuits.mixture(2, 1, leaf), seed=seed, dtype="float64").sample(n)
        for seed in (3, 4)
    ]
    return np.concatenate(parts)


@pytest.mark.parametrize("name", CASES)
def test_log_density_is_that_of_scipy(name):
    leaf, parameters, known, x = CASES[name]
    of = known.logpmf if leaf.COUNTS else known.logpdf
    found = of_one(leaf, parameters).log_likelihood(x[:, None])
    np.testing.assert_allclose(found, of(x), rtol=1e-12)
    single = x.astype(np.float32)
    found = of_one(leaf, parameters, "float32").log_likelihood(single[:, None])
    np.testing.assert_allclose(found, of(single.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_samples_and_modes_are_those_of_scipy(name):
    leaf, parameters, known, _ = CASES[name]
    pc = of_one(leaf, parameters)
    x = pc.sample(3000)[:, 0]
    if leaf.COUNTS:
        for value in range(4):
            assert abs((x == value).mean() - known.pmf(value)) < 0.03
    else:
        turned = x if name != "von Mises" else np.where(x < 0.3 - np.pi, x + 2 * np.pi, x)
        assert stats.kstest(turned, known.cdf).pvalue > 1e-3
    mode, value = pc.most_probable([[np.nan]])
    np.testing.assert_allclose(value, pc.log_likelihood(mode))
    if name != "gamma below 1":  # whose density has no largest value
        assert value >= pc.log_likelihood(x[:, None]).max()


@pytest.mark.sweep
@each_leaf
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_em_never_lowers_the_likelihood(leaf, dtype):
    x = data_of(leaf)
    missing = np.random.default_rng(1).random(x.shape) < 0.2
    for gaps in (None, missing):
        pc = rk.Circuit(circuits.mixture(2, 3, leaf), seed=1, dtype=dtype)
        trace = [pc.em_step(x, missing=gaps, step=s).sum() for s in (1, 1, 0.3, 1, 1, 1)]
        assert np.diff(trace).min() > -2e-6 * abs(trace[0])
        assert trace[-1] > trace[0]


@each_leaf
def test_one_step_reaches_the_largest_likelihood(leaf):
    """Of one leaf; Student's needs many, since its precisions are hidden."""
    x = data_of(leaf)[:, :1]
    pc = rk.Circuit(circuits.mixture(1, 1, leaf), seed=1, dtype="float64")
    for _ in range(60 if isinstance(leaf, circuits.StudentT) else 1):
        pc.em_step(x)
    nodes = pc.layout.inputs[0]
    best, found = pc.log_likelihood(x).sum(), pc.parameters(nodes)
    for k in range(found.shape[1]):
        for factor in (0.99, 1.01):
            other = found.copy()
            other[0, k] *= factor
            pc.set_parameters(nodes, other)
            assert pc.log_likelihood(x).sum() < best


@pytest.mark.sweep
def test_bits_of_both_sides(order):
    """All of them in one circuit: values, statistics, draws, steps."""

    def everything(dtype):
        low = [circuits.inputs(v, leaf, 2) for v, leaf in enumerate(LEAVES.values())]
        low.append(low[-1].duplicate(var=len(low)))
        pc = rk.Circuit(circuits.sum(circuits.product(*low), n_nodes=1), seed=5, dtype=dtype)
        x = np.concatenate(
            [data_of(leaf, 12)[:, :1] for leaf in (*LEAVES.values(), low[-1].leaf)], 1
        )
        missing = np.random.default_rng(2).random(x.shape) < 0.2
        out = [pc.log_likelihood(x), pc.sample(3), *pc.most_probable(x, missing=missing)]
        pc.accumulate(x[:7], missing=missing[:7])
        pc.em_step(x[7:], pseudocount=0.5, step=0.7)
        pc.accumulate(x)
        arrays = pc.state()["arrays"]
        return [*out, *(arrays[name] for name in sorted(arrays))]

    for dtype in ("float32", "float64"):
        expected = everything(dtype)
        with on_cpu(order):
            for found, known in zip(everything(dtype), expected, strict=True):
                assert_same_bits(found, known)


def test_many_samples_end_chains():
    """Statistics of any cut of the data are the same, and as NumPy adds them up."""
    x = np.abs(np.random.default_rng(3).normal(1, 0.3, (700, 1)))
    pc = of_one(circuits.Exponential(), [1.0], "float32")
    pc.accumulate(x)
    whole = pc.parameter_flows(pc.layout.inputs[0])
    np.testing.assert_allclose(whole[0], [700, x.sum(), 0], rtol=1e-6)
    other = of_one(circuits.Exponential(), [1.0], "float32")
    for part in (slice(300), slice(300, 301), slice(301, 700)):
        other.accumulate(x[part])
    assert_same_bits(other.parameter_flows(other.layout.inputs[0]), whole)
    third = of_one(circuits.Exponential(), [1.0], "float32")
    third.absorb([third.partials(x[k : k + 256], first_sample=k) for k in (256, 512, 0)])
    assert_same_bits(third.parameter_flows(third.layout.inputs[0]), whole)


@pytest.mark.parametrize(
    ("leaf", "x", "match"),
    [
        (circuits.Exponential(), -0.5, "variable 0 takes numbers from 0, got -0.5"),
        (circuits.Gamma(), 0.0, "variable 0 takes positive numbers, got 0.0"),
        (circuits.LogNormal(), -2.0, "variable 0 takes positive numbers"),
        (circuits.VonMises(), 4.0, "from -3.14159 to 3.14159, got 4.0"),
        (circuits.Geometric(), 1.5, "variable 0 counts, got 1.5"),
        (circuits.NegativeBinomial(n_successes=2), -1.0, "variable 0 counts"),
    ],
)
def test_values_outside_the_domain(leaf, x, match):
    pc = rk.Circuit(circuits.mixture(1, 2, leaf), seed=0)
    with pytest.raises(rk.errors.ParameterError, match=match):
        pc.log_likelihood([[1.0], [x]])


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: circuits.Geometric(probability=1.0), "probability"),
        (lambda: circuits.NegativeBinomial(n_successes=0), "n_successes"),
        (lambda: circuits.Exponential(rate=0), "rate"),
        (lambda: circuits.Gamma(shape=-1), "shape"),
        (lambda: circuits.StudentT(dof=0), "dof"),
        (lambda: circuits.inputs(0, circuits.Gamma(), 1, parameters=[[0, 1]]), "shape of 0"),
        (lambda: circuits.inputs(0, circuits.Geometric(), 1, parameters=[[0]]), "probabilities"),
    ],
)
def test_parameters_out_of_range(make, match):
    with pytest.raises(rk.errors.ParameterError, match=match):
        make()


def test_what_such_leaves_do_not_have():
    pc = rk.Circuit(circuits.mixture(1, 2, circuits.VonMises()), seed=0)
    with pytest.raises(rk.errors.ParameterError, match="momentum"):
        pc.scaled_em_step([[0.1]], momentum=0.9)
    with pytest.raises(rk.errors.StructureError, match="moments"):
        pc.expectation([[np.nan]])
    with pytest.raises(rk.errors.StructureError, match="cross-entropy"):
        of_one(circuits.Exponential(), [1.0]).entropy()


@each_leaf
@pytest.mark.parametrize(("step", "pseudocount"), [(1.0, 0.0), (0.3, 0.5)])
def test_a_step_of_em_is_that_of_numpy(leaf, step, pseudocount):
    """What kernel and mirror compute is `maximise` of the class, and a share of the way there."""
    x = data_of(leaf, 30)[:, :1]
    x[3:9] = np.nan
    pc = rk.Circuit(circuits.mixture(1, 3, leaf), seed=2, dtype="float64")
    nodes = pc.layout.inputs[0]
    for _ in range(2):
        pc.accumulate(x)
        old, flow = pc.parameters(nodes), pc.parameter_flows(nodes)
        new = leaf.maximise(old, flow[:, :-1])
        share = step * flow[:, :1] / (flow[:, :1] + flow[:, -1:] + pseudocount)
        pc.em_step(step=step, pseudocount=pseudocount)
        expected = leaf.blended(old, new, share)
        np.testing.assert_allclose(pc.parameters(nodes), expected, rtol=1e-12, atol=1e-14)


def test_angles_have_a_step_at_every_direction():
    """The mode goes to the data's, through the whole circle, and from the opposite side."""
    for k in range(16):
        there = -np.pi + np.pi / 8 * k + 0.05
        x = np.full((5, 1), there)
        pc = of_one(circuits.VonMises(), [0.0, 1.0])
        pc.em_step(x)
        np.testing.assert_allclose(pc.parameters(pc.layout.inputs[0])[0, 0], there, atol=1e-12)


@pytest.mark.gpu
def test_a_captured_step_learns_them():
    x, _ = data_of_functions("cpu")
    pairs = [rk.Circuit(of_functions(), seed=2, device=device) for device in ("cpu", "gpu")]
    given = pairs[1]._core.parameters.on_device(x)
    with pairs[1].captured(len(x), step=0.5, pseudocount=0.25) as step:
        for _ in range(3):
            expected = pairs[0].em_step(x, step=0.5, pseudocount=0.25)
            assert_same_bits(step(given).get(), expected)


@each_leaf
def test_gradients_are_differences(leaf):
    """A small step of SGD moves free parameters by rate times slope; these by finite steps."""
    x = data_of(leaf, 20)[:, :1]
    x[3] = np.nan
    pc = rk.Circuit(circuits.mixture(1, 1, leaf), seed=2, dtype="float64")
    nodes, n = pc.layout.inputs[0], len(x)
    start = pc.parameters(nodes)
    slopes = []
    for k in range(start.shape[1]):
        ends = []
        for by in (1e-5, -1e-5):
            change = np.zeros_like(start)
            change[0, k] = by
            pc.set_parameters(nodes, leaf.moved(start, change))
            ends.append(pc.log_likelihood(x).sum() / n)
        slopes.append((ends[0] - ends[1]) / 2e-5)
    pc.set_parameters(nodes, start)
    pc.gradient_step(x, method="sgd", rate=1e-3, momentum=0.0, clip=1e6)
    expected = leaf.moved(start, 1e-3 * np.array([slopes]))
    np.testing.assert_allclose(pc.parameters(nodes), expected, rtol=1e-7)
    before = pc.gradient_step(x, rate=0.01).sum()
    for _ in range(5):
        pc.gradient_step(x, rate=0.01)
    assert pc.log_likelihood(x).sum() > before


def test_scaled_em_and_moments():
    x = data_of(circuits.Gamma())
    pc = rk.Circuit(circuits.mixture(2, 2, circuits.Gamma()), seed=1)
    trace = [pc.scaled_em_step(x, step=0.4).mean() for _ in range(8)]
    assert trace[-1] > trace[0]
    assert_same_bits(rk.Circuit.from_state(pc.state()).log_likelihood(x), pc.log_likelihood(x))
    known = stats.gamma(2.3, scale=1 / 1.7)
    single = of_one(circuits.Gamma(), [2.3, 1.7])
    np.testing.assert_allclose(single.expectation([[np.nan]]), [[known.mean()]])
    square = known.var() + known.mean() ** 2
    np.testing.assert_allclose(single.expectation([[np.nan]], power=2), [[square]])


def laplace(x, p, c):
    """Log-density with p[0] the centre and p[1] the scale."""
    return -abs(x - p[0]) / p[1] - log64(2.0 * p[1])


def laplace_statistic(x, p, c, t):
    t[0] = abs(x - p[0])


LAPLACE = """
__device__ double laplace(double x, const double *p, const double *) {
    return -fabs(x - p[0]) / p[1] - rk_log(2.0 * p[1]);
}
__device__ void laplace_statistic(double x, const double *p, const double *, double *t) {
    t[0] = fabs(x - p[0]);
}
"""


BODIES = "return -fabs(x - p[0]) / p[1] - rk_log(2.0 * p[1]);", "t[0] = fabs(x - p[0]);"


class Laplace(circuits.FunctionLeaf):
    """The centre stays where it was drawn, the scale is learned."""

    FUNCTION, N_PARAMETERS = "laplace", 2

    def drawn(self, uniform, perturbation):
        return np.stack([4 * uniform[:, 0] - 2, 0.5 + uniform[:, 1]], axis=1)

    def maximise(self, parameters, statistics):
        return np.stack([parameters[:, 0], statistics[:, 1] / statistics[:, 0]], axis=1)

    def quantile(self, p, u):
        return p[:, 0] - p[:, 1] * np.sign(u - 0.5) * np.log1p(-2 * np.abs(u - 0.5))

    def mode(self, p):
        return p[:, 0]


@pytest.mark.sweep
@pytest.mark.parametrize("cuda", [LAPLACE, BODIES])
def test_a_leaf_of_ones_own(order, tmp_path, cuda):
    circuits.register_leaf("laplace", laplace, laplace_statistic, cuda)
    assert Laplace() == Laplace()
    assert hash(Laplace()) == hash(Laplace())
    x = np.random.default_rng(0).laplace(0.5, 0.8, (40, 2))
    np.testing.assert_allclose(
        of_one(Laplace(), [0.5, 0.8]).log_likelihood(x[:, :1]),
        stats.laplace(0.5, 0.8).logpdf(x[:, 0]),
        rtol=1e-12,
    )

    def learnt():
        pc = rk.Circuit(circuits.mixture(2, 3, Laplace()), seed=1)
        trace = [pc.em_step(x).sum() for _ in range(4)]
        assert np.diff(trace).min() > 0
        return pc

    pc = learnt()
    assert pc.sample(5).shape == (5, 2)
    with pytest.raises(rk.errors.ParameterError, match="Laplace defines no slopes"):
        pc.gradient_step(x)
    with on_cpu(order):
        assert_same_bits(learnt().log_likelihood(x), pc.log_likelihood(x))
    rk.save(tmp_path / "laplace.npz", pc)
    assert_same_bits(rk.load(tmp_path / "laplace.npz").log_likelihood(x), pc.log_likelihood(x))


def test_what_register_leaf_refuses(tmp_path):
    with pytest.raises(rk.errors.ParameterError, match="laplace_statistic"):
        circuits.register_leaf(
            "laplace", laplace, laplace_statistic, "__device__ double laplace(){}"
        )
    for cuda in (BODIES[:1], (BODIES[0], 1), None):
        with pytest.raises(rk.errors.ParameterError, match="pair of str"):
            circuits.register_leaf("laplace", laplace, laplace_statistic, cuda)
    with pytest.raises(rk.errors.ParameterError, match="built into"):
        circuits.register_leaf("gamma_leaf", laplace, laplace_statistic, LAPLACE)
    with pytest.raises(rk.errors.ParameterError, match="identifier"):
        circuits.register_leaf("a leaf", laplace, laplace_statistic, LAPLACE)
    state = of_one(circuits.Exponential(), [1.0]).state()
    state["header"]["nodes"][0]["leaf"] = "Unheard"
    with pytest.raises(rk.errors.FormatError, match="define its class"):
        rk.Circuit.from_state(state)
