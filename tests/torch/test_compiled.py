"""Models that ``torch.compile`` makes graphs of: no graph break, and the bits of eager ones."""

import copy

import pytest

import rpukit as rk
from rpukit.testing import assert_same_bits
from tests.torch.test_layers import LEARNED, words
from tests.torch.test_models import CELLS, Net, same, small, train

torch = pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")

from rpukit.torch import nn, optim  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's own, while it traces


def compiled(model, backend="aot_eager"):
    torch._dynamo.reset()
    return torch.compile(model, backend=backend, fullgraph=True)


class Several(torch.nn.Module):
    """Calls of one layer that a graph could drop, merge or swap; layers that share an input."""

    def __init__(self):
        super().__init__()
        scaled = nn.AnalogSettings(cell=rk.Ideal(), output_scale=LEARNED)
        self.first = nn.AnalogLinear(4, 4, cell=rk.SoftBounds(), seed=1)
        self.second = nn.AnalogLinear(4, 4, cell=scaled, seed=1)

    def forward(self, x):
        self.first(x)  # its result is not used, but the clock moves
        y = self.first(x) + self.first(x)
        return y + self.first(self.second(y)) + self.second(x.bfloat16()).float()


def run(model, net, n_step=3):
    """Train on batches of two sizes; return the outputs."""
    optimiser = optim.AnalogSGD(model.parameters(), lr=0.003)
    found = []
    for k in range(n_step):
        x = torch.randn(5 + k // 2, 4, generator=torch.Generator().manual_seed(k))
        optimiser.zero_grad()
        y = net(x)
        y.square().sum().backward()
        optimiser.step()
        found.append(y.detach())
    with torch.no_grad():
        found.append(net(x))
    with torch.autocast("cpu", torch.bfloat16):
        found.append(net(x).detach())
    return found


@pytest.mark.parametrize("cell", ["pulses", "inference"])
def test_training(cell):
    plain = small(CELLS[cell])
    other = copy.deepcopy(plain)
    for model, net in ((plain, plain), (other, compiled(other))):
        train(net, optim.AnalogSGD(model.parameters(), lr=0.05, momentum=0.9), 4)
    same(plain, other)


def test_every_call_counts():
    plain = Several()
    other = copy.deepcopy(plain)
    for a, b in zip(run(plain, plain), run(other, compiled(other)), strict=True):
        assert torch.equal(a, b)
    same(plain, other)
    for name in ("first", "second"):
        clocks = [getattr(model, name).array.clocks for model in (plain, other)]
        assert clocks[0] == clocks[1]
        assert clocks[0]["forward"] > 0


def test_every_kind_of_layer():
    torch.manual_seed(0)
    plain = rk.torch.convert(Net(), rk.SoftBounds(), seed=3)
    other = copy.deepcopy(plain)
    x = torch.randn(2, 1, 4, 4)
    for model, net in ((plain, plain), (other, compiled(other))):
        optimiser = optim.AnalogSGD(model.parameters(), lr=0.05)
        net(x).square().sum().backward()
        optimiser.step()
    same(plain, other)


@pytest.mark.slow  # a C++ compiler makes the loops
def test_inductor():
    plain = small(rk.SoftBounds(dw_min=0.01))
    other = copy.deepcopy(plain)
    for model, net in ((plain, plain), (other, compiled(other, "inductor"))):
        train(net, optim.AnalogSGD(model.parameters(), lr=0.05), 4)
    same(plain, other)


def test_before_operators_products_are_left_to_the_call(monkeypatch):
    """As with PyTorch 2.5: graph breaks, and the same bits."""
    monkeypatch.setattr("rpukit.torch.layers.compiled._IN_GRAPHS", False)
    plain = small(rk.SoftBounds(dw_min=0.01))
    other = copy.deepcopy(plain)
    torch._dynamo.reset()
    for model, net in ((plain, plain), (other, torch.compile(other, backend="eager"))):
        train(net, optim.AnalogSGD(model.parameters(), lr=0.05))
    same(plain, other)


def test_copies_are_layers_of_their_own():
    layer = nn.AnalogLinear(4, 3, cell=rk.SoftBounds(), seed=1)
    net, twin = compiled(layer), copy.deepcopy(layer)
    assert twin.handle != layer.handle
    x = torch.ones(2, 4)
    assert torch.equal(net(x), torch.compile(twin, backend="aot_eager", fullgraph=True)(x))
    assert layer.array.clocks == twin.array.clocks
    for a, b in zip(words(layer), words(twin), strict=True):
        assert_same_bits(a, b)


def test_functions_between_layers():
    perfect = rk.IOParameters(is_perfect=True)
    settings = nn.AnalogSettings(cell=rk.Ideal(), forward=perfect, backward=perfect)
    layer = nn.AnalogLinear(4, 3, cell=settings, seed=1)

    def loss(x, targets):
        return rk.torch.cross_entropy(layer(rk.torch.tanh(x)), targets)

    targets, found = torch.arange(5) % 3, []
    for function in (loss, compiled(loss)):
        x = torch.linspace(-1, 1, 20).reshape(5, 4).requires_grad_()
        value = function(x, targets)
        value.backward()
        found.append((value.detach(), x.grad))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_deterministic_products_are_left_to_the_call():
    """They are graph breaks; values and gradients are those of eager calls."""
    targets = torch.tensor([1, 2, 0, -1])

    def loss(hidden, weight):
        product = rk.torch.det_gemm(hidden * 2, weight, trans_b=True)
        return product.sum() + rk.torch.linear_logprob(hidden, weight, targets).sum()

    torch._dynamo.reset()
    found = []
    for function in (loss, torch.compile(loss, backend="aot_eager")):
        hidden = torch.linspace(-1, 1, 20).reshape(4, 5).requires_grad_()
        weight = torch.linspace(1, -2, 35).reshape(7, 5).requires_grad_()
        value = function(hidden, weight)
        value.backward()
        found.append((value.detach(), hidden.grad, weight.grad))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
