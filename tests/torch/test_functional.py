"""Functions between layers: those of PyTorch within rounding, the same bits for any batch."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors

torch = pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def where(request):
    """Device of the tensors."""
    return request.param


def numbers(*shape):
    return torch.from_numpy(np.random.default_rng(0).normal(0, 2, shape).astype(np.float32))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction, where):
    logits = numbers(7, 5).to(where).requires_grad_()
    targets = torch.arange(7, device=where) % 5
    twin = logits.detach().clone().requires_grad_()
    for x, function in (
        (logits, rk.torch.cross_entropy),
        (twin, torch.nn.functional.cross_entropy),
    ):
        loss = function(x, targets, reduction=reduction)
        (
            loss * torch.linspace(1, 2, loss.numel(), device=where).reshape(loss.shape)
        ).sum().backward()
        x.loss = loss.detach()
    # a few roundings of logarithms and exponentials of sums of five numbers
    torch.testing.assert_close(logits.loss, twin.loss, rtol=2e-6, atol=1e-6)
    torch.testing.assert_close(logits.grad, twin.grad, rtol=2e-6, atol=1e-6)
    with pytest.raises(errors.ParameterError, match="reduction"):
        rk.torch.cross_entropy(logits, targets, reduction="max")


def test_tanh(where):
    x = numbers(33).to(where).requires_grad_()
    y = rk.torch.tanh(x)
    y.sum().backward()
    exact = torch.tanh(x.detach().cpu().double())
    torch.testing.assert_close(y.detach().cpu().double(), exact, rtol=3e-7, atol=0)  # 2.5 ulp
    # 1 - y^2 loses digits where y is near 1
    torch.testing.assert_close(x.grad.cpu().double(), 1 - exact**2, rtol=0, atol=3e-7)
    alone = torch.stack([rk.torch.tanh(v.reshape(1))[0] for v in x.detach()])
    assert torch.equal(alone, y.detach())
