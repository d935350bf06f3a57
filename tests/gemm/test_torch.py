"""The bridge to PyTorch: gradients near those of float64, bits of the library, nothing copied."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.errors import DeviceError, DTypeError, ShapeError
from rpukit.testing import assert_same_bits
from tests.gemm.gemm_cases import bound

torch = pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")

FORMS = ("float32", "float64", "float16", "bfloat16")
each_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def where(request):
    """Device of the tensors."""
    return request.param


def tensor(shape, form, where, seed=0, scale=1.0):
    x = np.random.default_rng(seed).standard_normal(shape) * scale
    return torch.tensor(x, device=where).to(getattr(torch, form)).requires_grad_()


def words(x):
    """NumPy array of a tensor; bfloat16 as its bits."""
    x = x.detach().cpu()
    return x.view(torch.int16).numpy().view(np.uint16) if x.dtype == torch.bfloat16 else x.numpy()


def double(x):
    return x.detach().cpu().double().requires_grad_()


def unit(form):
    """Half an ulp of 1."""
    bits = {"float32": 24, "float64": 53, "float16": 11, "bfloat16": 8}
    return 2.0 ** -bits[form]


@each_form
@pytest.mark.parametrize("trans", [(False, False), (True, False), (False, True), (True, True)])
def test_products_and_their_gradients(form, trans, where):
    m, n, k = 37, 21, 50
    options = dict(zip(("trans_a", "trans_b"), trans, strict=True))
    a = tensor((k, m) if trans[0] else (m, k), form, where, 1)
    b = tensor((n, k) if trans[1] else (k, n), form, where, 2)
    dc = tensor((m, n), form, where, 3).detach()
    c = rk.torch.det_gemm(a, b, **options)
    c.backward(dc)
    assert (c.dtype, c.device.type) == (a.dtype, where)
    assert_same_bits(words(c), rk.det_gemm(words(a), words(b), **options))
    expected = rk.det_gemm_backward(*(words(x) for x in (a, b, dc)), **options)
    for x, bits in zip((a, b), expected, strict=True):
        assert_same_bits(words(x.grad), bits)
    a64, b64 = double(a), double(b)
    left, right = a64.T if trans[0] else a64, b64.T if trans[1] else b64
    (left @ right).backward(double(dc).detach())
    for x, x64, length in ((a, a64, n), (b, b64, m)):
        # one rounding to the type, and the chain's: at most 2^-20 a term of a size up to 4 x 4
        limit = unit(form) * abs(x64.grad) + length * 16 * min(unit(form) * 2, 2.0**-20)
        assert (abs(double(x.grad) - x64.grad) <= limit).all()


@each_form
def test_log_probabilities_and_their_gradients(form, where):
    hidden, weight = tensor((40, 24), form, where, 1), tensor((300, 24), form, where, 2, 0.3)
    targets = torch.arange(40, device=where) * 7
    slope = torch.linspace(-1, 1, 40, device=where)
    slope = slope.double() if form == "float64" else slope
    got = rk.torch.linear_logprob(hidden, weight, targets)
    got.backward(slope)
    inputs = [words(x) for x in (hidden, weight, targets)]
    assert_same_bits(words(got), rk.linear_logprob(*inputs))
    expected = rk.linear_logprob_backward(*inputs, words(slope))
    for x, bits in zip((hidden, weight), expected, strict=True):
        assert_same_bits(words(x.grad), bits)
    h, w = double(hidden), double(weight)
    rows = torch.log_softmax(h @ w.T, dim=1)[torch.arange(40), targets.cpu()]
    rows.backward(slope.cpu().double())
    values, weights = (x.detach().numpy() for x in (h, w))
    logits = bound(values, weights.T).max() if form != "float64" else 1e-14
    fine = 100 * (2.0**-24 if form != "float64" else 2.0**-53)  # sums of exponentials, logarithm
    assert abs(double(got) - rows).max() <= 2 * logits + fine
    # By logits: off by what log-probabilities are, and rounded, each of at most 1 and all of a
    # row of at most 2 together; then a product with factors of at most 5.
    off = 2 * (2 * logits + fine + 2 * unit(form))
    for x, x64, terms in ((hidden, h, 1), (weight, w, 40)):
        limit = unit(form) * abs(x64.grad) + 5 * off * terms
        assert (abs(double(x.grad) - x64.grad) <= limit).all()


def test_gradients_of_finite_differences():
    """PyTorch's own check, in float64."""
    hidden, weight = (tensor(shape, "float64", "cpu", 5) for shape in ((3, 4), (6, 4)))
    targets = torch.tensor([0, 5, 2], dtype=torch.int32)
    assert torch.autograd.gradcheck(
        lambda h, w: rk.torch.linear_logprob(h, w, targets), (hidden, weight)
    )
    assert torch.autograd.gradcheck(
        lambda a, b: rk.torch.det_gemm(a, b, trans_b=True), (hidden, weight)
    )


def test_only_what_is_needed(where):
    a, b = tensor((4, 5), "float32", where), tensor((5, 6), "float32", where).detach()
    rk.torch.det_gemm(a, b).sum().backward()
    assert a.grad is not None
    assert b.grad is None
    assert not rk.torch.det_gemm(a.detach(), b).requires_grad
    weight = tensor((9, 5), "float32", where)
    targets = torch.zeros(4, dtype=torch.int64, device=where)
    rk.torch.linear_logprob(a.detach(), weight, targets).sum().backward()
    assert weight.grad.shape == (9, 5)


def test_rows_do_not_know_their_batch(where):
    """In a rollout one at a time, in training together: the ratio of probabilities is 1."""
    hidden, weight = tensor((50, 64), "bfloat16", where), tensor((500, 64), "bfloat16", where, 1)
    targets = torch.arange(50, device=where)
    together = rk.torch.linear_logprob(hidden, weight, targets)
    alone = torch.cat(
        [rk.torch.linear_logprob(hidden[i : i + 1], weight, targets[i : i + 1]) for i in range(50)]
    )
    assert torch.equal(alone, together)
    assert torch.equal(torch.exp(together - alone), torch.ones(50, device=where))


def test_bad_calls():
    a = torch.zeros(3, 4)
    with pytest.raises(DTypeError, match="Tensor of float32"):
        rk.torch.det_gemm(a.numpy(), a)
    with pytest.raises(DTypeError, match="int16"):
        rk.torch.det_gemm(a.to(torch.int16), a)
    with pytest.raises(DTypeError, match="need a Tensor"):
        rk.torch.linear_logprob(a, a, [1, 2, 3])
    with pytest.raises(ShapeError, match="inner"):
        rk.torch.det_gemm(a, a)
    with pytest.raises(DeviceError, match="meta"):
        rk.torch.det_gemm(a.to("meta"), a.to("meta"))


@pytest.mark.gpu
def test_work_goes_to_the_stream_of_pytorch():
    """A product waits for what its stream does before, and later work waits for it."""
    stream = torch.cuda.Stream()
    a, b = (tensor((512, 512), "bfloat16", "cuda", s).detach() for s in (0, 1))
    expected = rk.torch.det_gemm(a + 1, b)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        later = rk.torch.det_gemm(a + 1, b) * 1
    stream.synchronize()
    assert torch.equal(later, expected)
    with pytest.raises(DeviceError):
        rk.torch.det_gemm(a, b.cpu())
    assert _device.gpu_count() >= 1
