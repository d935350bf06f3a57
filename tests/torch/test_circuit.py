"""Circuits as modules: gradients by finite differences, bits of any batch, networks that learn."""

import copy

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits, errors
from rpukit.testing import assert_same_bits, on_cpu

torch = pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")

F8 = torch.float64
LEAVES = [
    circuits.Gaussian(),
    circuits.Categorical(n_values=3),
    circuits.MaskedCategorical(n_values=4, allowed=(1, 3)),
    circuits.Bernoulli(),
    circuits.Binomial(n_trials=4),
    circuits.Poisson(rate=2.0),
]
X = [
    [0.3, 2, 1, 1, 4, 2],
    [-1.2, 0, 3, 0, 0, 0],
    [np.nan, 1, np.nan, np.nan, 2, np.nan],
    [2.0, np.nan, 1, 1, np.nan, 5],
]


@pytest.fixture(autouse=True)
def one_thread():
    """Let PyTorch's small products run on one thread: more wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def where(request):
    """Device of the tensors."""
    return request.param


def module(nodes, where="cpu", **options):
    device = "cpu" if where == "cpu" else "gpu"
    return rk.torch.Circuit(nodes, device=device, **{"dtype": "float64", "seed": 1, **options})


def tensors(pc):
    """Copy the parameters of a module, with gradients, under their nodes."""
    owners = [pc._owner(k) for k in pc._places.values()]
    copies = [pc.free[name].detach().clone().requires_grad_() for name in pc._places]
    return owners, copies


def masked():
    """Make sums some of whose weights are 0, over blocks of which not all are connected."""
    a = circuits.inputs(0, circuits.Categorical(n_values=3), 4, block_size=2)
    b = circuits.inputs(1, circuits.Categorical(n_values=3), 4, block_size=2)
    mask = np.zeros((3, 2, 2), bool)
    mask[0, 0, 1] = mask[2, 1, 0] = True
    edges = np.array([[0, 0, 1], [0, 1, 1]])
    inner = circuits.sum(
        circuits.product(a, b), n_nodes=4, edges=edges, block_size=2, zero_mask=mask
    )
    return circuits.sum(inner, n_nodes=1)


@pytest.mark.parametrize(
    ("nodes", "x"),
    [
        (circuits.mixture(6, 3, LEAVES), X),
        (circuits.hmm(5, 3, 4), [[0, 1, 2, 3, 0], [1, 1, 0, 3, 2]]),
        (masked(), [[0, 2], [1, 1], [2, 2]]),
    ],
    ids=["leaves", "tied", "blocks"],
)
def test_slopes_of_parameters(nodes, x, where):
    pc, x = module(nodes, where), torch.tensor(x, dtype=F8, device=where)
    owners, given = tensors(pc)
    assert given

    def value(*free):
        # Signs differ, so that flows go down twice.
        found = pc(x, parameters=dict(zip(owners, free, strict=True)))
        return found * torch.linspace(-1, 1, len(x), dtype=F8, device=where)

    assert torch.autograd.gradcheck(value, given)


def test_slopes_of_inputs(where):
    nodes = circuits.mixture(
        3, 4, [circuits.Gaussian(), circuits.Gaussian(), circuits.Bernoulli()]
    )
    pc = module(nodes, where)
    x = torch.tensor([[0.5, -1, 1], [2, 0.3, 0]], dtype=F8, device=where)

    def value(numbers):
        return pc(torch.cat([numbers, x[:, 2:]], dim=1))

    assert torch.autograd.gradcheck(value, [x[:, :2].clone().requires_grad_()])
    x[0, 1] = torch.nan
    x.requires_grad_()
    pc(x).sum().backward()
    assert x.grad[0, 1] == 0
    assert not x.grad[:, 2].any()
    assert x.grad[1, :2].all()


def test_slopes_of_inputs_with_full_covariance(where):
    leaf = circuits.MultivariateNormal(n_variables=3)
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(4, 3, 3))
    own = leaf.packed(rng.normal(size=(4, 3)), factor @ factor.swapaxes(1, 2) + np.eye(3))
    first = circuits.inputs((3, 0, 2), leaf, 4, parameters=own)
    single = circuits.inputs(1, circuits.Gaussian(), 4)
    other = [circuits.inputs(v, circuits.Gaussian(), 4) for v in range(4)]
    parts = [circuits.product(first, single), circuits.product(*other)]
    pc = module(circuits.sum(*parts, n_nodes=1), where)
    x = torch.tensor(rng.normal(size=(3, 4)), dtype=F8, device=where)
    assert torch.autograd.gradcheck(pc, [x.clone().requires_grad_()])
    known = torch.tensor([0, 1, 3], device=where)

    def value(numbers):
        gaps = torch.full((3, 4), torch.nan, dtype=F8, device=where)
        return pc(gaps.index_copy(1, known, numbers))

    assert torch.autograd.gradcheck(value, [x[:, known].clone().requires_grad_()])


def test_slopes_of_soft_evidence(where):
    pc = module(circuits.hmm(4, 3, leaf=circuits.Indicator(n_values=3)), where)
    x = torch.tensor([[torch.nan] * 4, [torch.nan, 1, torch.nan, torch.nan]], device=where)
    given = [torch.randn(2, 3, dtype=F8, device=where, requires_grad=True) for _ in range(4)]
    assert torch.autograd.gradcheck(lambda *s: pc(x, soft=dict(enumerate(s))), given)


def test_soft_evidence_is_that_of_circuits():
    pc = module(circuits.hmm(3, 2, leaf=circuits.Indicator(n_values=2)))
    logs = {v: torch.randn(5, 2, dtype=F8) * 200 for v in range(3)}
    x = torch.full((5, 3), torch.nan)
    x[1, 0] = 1
    soft = np.stack([np.exp(v.numpy() - 300) for v in logs.values()], axis=1)
    want = pc.update_circuit().log_likelihood(x.numpy(), soft=soft) + 900
    want[1] -= 300
    torch.testing.assert_close(pc(x, soft=logs), torch.from_numpy(want), rtol=1e-12, atol=1e-12)


def test_roots_of_their_own():
    leaf = circuits.inputs(0, circuits.Gaussian(), 3)
    nodes = circuits.sum(leaf, n_nodes=2)
    pc = module(nodes)
    owners, given = tensors(pc)
    x = torch.tensor([[0.4], [1.5]], dtype=F8, requires_grad=True)

    def ratio(x, *free):
        found = pc(x, parameters=dict(zip(owners, free, strict=True)))
        return found[:, 0] - 0.5 * found[:, 1]

    assert torch.autograd.gradcheck(ratio, [x, *given])


# ---- bits -------------------------------------------------------------------------------------


def gradients(pc, x, parts):
    """Gradients of inputs, in batches, and of parameters by all batches together."""
    pc.zero_grad()
    found = []
    for part in x.split(parts):
        own = part.clone().requires_grad_()
        value = pc(own)
        value.sum().backward()
        found.append(torch.cat([own.grad, value.detach()[:, None]], dim=1))
    return torch.cat(found).numpy(), [p.grad.numpy() for p in pc.parameters()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_of_any_batch(dtype):
    nodes = circuits.hmm(6, 5, leaf=circuits.Gaussian())
    pc = module(nodes, dtype=dtype)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(70, 6)).astype(dtype))
    whole, slopes = gradients(pc, x, 70)
    for parts in (1, 16, 33):
        assert_same_bits(gradients(pc, x, parts)[0], whole)
    before = rk.get_num_threads()
    try:
        rk.set_num_threads(1 if before > 1 else 3)
        again = gradients(pc, x, 70)
    finally:
        rk.set_num_threads(None)
    small = module(nodes, dtype=dtype, budget=300_000)
    assert len(list(small.circuit._core.parts(70))) > 1
    for same in (again, gradients(small, x, 70)):
        assert_same_bits(same[0], whole)
        for a, b in zip(same[1], slopes, strict=True):
            assert_same_bits(a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_have_the_bits_of_the_mirrors(dtype):
    pc = module(circuits.mixture(6, 3, LEAVES), dtype=dtype)
    x = torch.tensor(X, dtype=F8)
    whole = gradients(pc, x, len(x))
    with on_cpu(1):
        by_kernels = gradients(module(circuits.mixture(6, 3, LEAVES), dtype=dtype), x, len(x))
    assert_same_bits(by_kernels[0], whole[0])
    for a, b in zip(by_kernels[1], whole[1], strict=True):
        assert_same_bits(a, b)


def test_float32_is_near_float64():
    nodes = circuits.mixture(6, 3, LEAVES)
    wide, narrow = module(nodes), module(nodes, dtype="float32")
    x = torch.tensor(X, dtype=F8)
    for pc in (wide, narrow):
        pc(x).sum().backward()
    for a, b in zip(wide.parameters(), narrow.parameters(), strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(b.grad.double(), a.grad, rtol=2e-5, atol=2e-6)


def test_counts_are_those_of_the_circuit():
    nodes = circuits.hmm(5, 3, 4)
    pc = module(nodes)
    x = np.random.default_rng(0).integers(0, 4, (300, 5))
    pc(torch.from_numpy(x)).sum().backward()
    plain = pc.circuit
    plain.accumulate(x)
    counts = plain.parameter_flows(nodes)
    want = counts - plain.parameters(nodes) * counts.sum()
    np.testing.assert_allclose(pc.free_parameters(nodes).grad, want, rtol=0, atol=1e-11)


def test_impossible_samples_pull_nowhere():
    leaf = circuits.inputs(0, circuits.Categorical(n_values=2), 1, parameters=[[1.0, 0.0]])
    pc = module(circuits.sum(leaf, n_nodes=1))
    pc(torch.tensor([[1], [0]])).sum().backward()
    for p in pc.parameters():
        assert torch.isfinite(p.grad).all()


# ---- networks ---------------------------------------------------------------------------------


def test_two_calls_before_one_backward():
    nodes = circuits.mixture(2, 3, circuits.Gaussian())
    pc = module(nodes, outside=[nodes])
    x = torch.randn(4, 2, dtype=F8)
    both = [torch.randn(3, 1, 1, dtype=F8, requires_grad=True) for _ in range(2)]
    (pc(x, parameters={nodes: both[0]}) * pc(x, parameters={nodes: both[1]})).sum().backward()
    twins = [t.detach().clone().requires_grad_() for t in both]
    for twin, other in zip(twins, both[::-1], strict=True):
        scale = pc(x, parameters={nodes: other}).detach()
        (pc(x, parameters={nodes: twin}) * scale).sum().backward()
    for a, b in zip(both, twins, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-14)


def test_a_network_chooses_the_component():
    """P(x | c): a network of c gives the weights of each sample's mixture, by soft evidence."""
    torch.manual_seed(0)
    chosen = circuits.inputs(0, circuits.Indicator(n_values=2), 2)
    value = circuits.inputs(1, circuits.Gaussian(), 2)
    pc = module(
        circuits.sum(circuits.product(chosen, value), n_nodes=1, parameters=[[0.5, 0.5]]), seed=3
    )
    gate = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    rng = np.random.default_rng(0)
    c = torch.from_numpy(rng.uniform(-1, 1, (400, 1)).astype(np.float32))
    y = torch.from_numpy(np.where(c.numpy() > 0, 2.0, -2.0) + 0.5 * rng.normal(size=(400, 1)))
    x = torch.cat([torch.full_like(y, torch.nan), y], dim=1)
    optimiser = torch.optim.Adam([*gate.parameters(), *pc.parameters()], lr=0.05)
    for _ in range(80):
        optimiser.zero_grad()
        weights = torch.log_softmax(gate(c), dim=1) + np.log(2)
        loss = -pc(x, soft={0: weights}).mean()
        loss.backward()
        optimiser.step()
    # the entropy of a deviation of 0.5 is 0.73 nats; without c it is 1.4
    assert loss < 0.85


def test_copies_and_files(tmp_path):
    nodes = circuits.mixture(2, 3, circuits.Gaussian())
    pc = module(nodes)
    x = torch.randn(4, 2, dtype=F8)
    pc(x)
    other = copy.deepcopy(pc)
    with torch.no_grad():
        for p in other.parameters():
            p += 0.1
    assert not torch.equal(other(x), pc(x))
    pc.load_state_dict(other.state_dict())
    torch.testing.assert_close(pc(x), other(x), rtol=0, atol=0)
    rk.save(tmp_path / "pc.npz", pc.update_circuit())
    assert_same_bits(
        rk.load(tmp_path / "pc.npz").log_likelihood(x.numpy()), pc(x).detach().numpy()
    )
    assert "2 variables" in repr(pc)


def test_errors():
    indicator = circuits.inputs(0, circuits.Indicator(n_values=2), 2)
    counted = circuits.inputs(1, circuits.Categorical(n_values=2), 2)
    nodes = circuits.sum(circuits.product(indicator, counted), n_nodes=1)
    pc = module(nodes, outside=[nodes])
    x, good = torch.full((3, 2), torch.nan), torch.zeros(2, 1, 1, dtype=F8)
    with pytest.raises(errors.ParameterError, match="is outside"):
        pc(x)
    with pytest.raises(errors.ShapeError, match="shared by the samples"):
        pc(x, parameters={nodes: torch.zeros(3, 2, 1, 1)})
    with pytest.raises(errors.DTypeError, match="Tensor of floats"):
        pc(x, parameters={nodes: [0.0, 0.0]})
    with pytest.raises(errors.NonFiniteError, match="NaN"):
        pc(x, parameters={nodes: good * torch.nan})
    with pytest.raises(errors.ParameterError, match="Indicator cannot learn"):
        module(nodes, outside=[indicator])
    with pytest.raises(errors.ParameterError, match="no parameters in this module"):
        pc.free_parameters(indicator)
    with pytest.raises(errors.ParameterError, match="soft evidence"):
        pc(x, parameters={nodes: good}, soft={1: torch.zeros(3, 2)})
    with pytest.raises(errors.ParameterError, match="table of values"):
        pc(x, parameters={nodes: good}, soft={7: torch.zeros(3, 2)})
    with pytest.raises(errors.ShapeError, match="soft"):
        pc(x, parameters={nodes: good}, soft={0: torch.zeros(3, 3)})
    with pytest.raises(errors.ParameterError, match="compiled already"):
        rk.torch.Circuit(rk.Circuit(nodes), dtype="float64")
    logistic = circuits.DiscreteLogistic(n_values=8)
    fixed = module(circuits.sum(circuits.inputs(0, logistic, 2), n_nodes=1))
    assert len(list(fixed.parameters())) == 1
    assert pc(x, parameters={nodes: good}).shape == (3,)
