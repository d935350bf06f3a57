"""linear_logprob: logprob_blocks, logprob_rows, logprob_gradient = mirrors = formula.

The same bits in any batch, for any slices and number of threads.
"""

import sys

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.errors import DeviceError, DTypeError, ParameterError, ShapeError, TorchError
from rpukit.gemm import logprob
from rpukit.testing import assert_same_bits, on_cpu
from rpukit.torch.bridge import pytorch
from tests.gemm.gemm_cases import bound, values, words

FORMS = ("float32", "float64", "float16", "bfloat16")


def head(n_row, n_vocab, n_in, form, seed=0, scale=0.3):
    """Hidden states, weights, targets."""
    rng = np.random.default_rng(seed)

    def matrix(shape, seed, scale):
        if form in ("float16", "bfloat16"):
            return words(shape, form, seed, scale)
        return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(form)

    targets = rng.integers(0, n_vocab, n_row)
    return matrix((n_row, n_in), seed, 1), matrix((n_vocab, n_in), seed + 1, scale), targets


def exact(x):
    return values(x) if x.itemsize == 2 else x.astype(np.float64)


def formula(hidden, weight, targets):
    """Log-probabilities and probabilities in float64."""
    z = exact(hidden) @ exact(weight).T
    z -= z.max(1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    return log_p[np.arange(len(targets)), targets], np.exp(log_p)


def tolerance(hidden, weight, real):
    """Twice what the logits may be off, and what the sum of exponentials adds to that.

    That sum has 6 + 5 additions in trees, a chain of n_block / 32, and two exponentials, one ulp
    each; exponents of up to 40 are rounded, and so are differences and logarithm.
    """
    h, w = exact(hidden), exact(weight)
    u = np.finfo(real).eps
    n_step = h.shape[1] / 2 if hidden.itemsize > 2 else 0
    logits = bound(h, w.T) if hidden.itemsize == 2 else n_step * 2 * u * (abs(h) @ abs(w).T)
    size = abs(h @ w.T).max(1)
    return 2 * logits.max(1) + u * (30 + w.shape[0] / 2048 + 4 * size)


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [(1, 1, 1), (5, 63, 17), (3, 65, 40), (131, 700, 24)])
def test_kernel_mirror_formula(size, form, order):
    hidden, weight, targets = head(*size, form)
    got, normaliser = rk.linear_logprob(hidden, weight, targets, with_normaliser=True)
    with on_cpu(order):
        again = rk.linear_logprob(hidden, weight, targets.astype(np.int32), with_normaliser=True)
    assert_same_bits(again[0], got)
    assert_same_bits(again[1], normaliser)
    expected, _ = formula(hidden, weight, targets)
    assert (abs(got - expected) <= tolerance(hidden, weight, got.dtype)).all()
    assert got.dtype == (np.float64 if form == "float64" else np.float32)


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
def test_backward(form, order):
    hidden, weight, targets = head(37, 200, 24, form)
    targets[5] = -1
    _, normaliser = rk.linear_logprob(hidden, weight, targets, with_normaliser=True)
    slope = np.random.default_rng(3).standard_normal(37).astype(normaliser.dtype)
    wide = {"out_dtype": normaliser.dtype}
    got = rk.linear_logprob_backward(hidden, weight, targets, slope, normaliser=normaliser, **wide)
    for options in ({}, {"normaliser": normaliser}):
        with on_cpu(order):
            again = rk.linear_logprob_backward(hidden, weight, targets, slope, **options, **wide)
        for x, y in zip(again, got, strict=True):
            assert_same_bits(x, y)
    _, p = formula(hidden, weight, targets)
    dz = slope[:, None] * ((np.arange(200) == targets[:, None]) - p)
    dz[5] = 0
    # Gradients by logits have errors of p (those of log-probabilities), and are rounded to the
    # type of the factors; then come chains of 200 and of 37 terms.
    step = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(form, np.finfo(wide["out_dtype"]).eps)
    off = abs(slope[:, None]) * p * tolerance(hidden, weight, normaliser.dtype)[:, None]
    off += step * abs(dz) + (2.0**-24 if form == "float16" else 0)
    h, w = exact(hidden), exact(weight)
    chain = 5.25 * 2.0**-23 if form != "float64" else 2.0**-52
    for value, left, loose, right in ((got[0], dz, off, w), (got[1], dz.T, off.T, h)):
        length = left.shape[1] if form.startswith("float") else -(-left.shape[1] // 16)
        limit = loose @ abs(right) + chain * length * ((abs(left) + loose) @ abs(right))
        assert (abs(value - left @ right) <= limit).all()
    rounded = rk.linear_logprob_backward(hidden, weight, targets, slope)
    assert [x.dtype for x in rounded] == [hidden.dtype] * 2
    if form == "bfloat16":
        assert_same_bits(rounded[0], rk.gemm.to_bfloat16(got[0]))


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_batch_slices_and_threads_do_not_matter(form, device, monkeypatch):
    hidden, weight, targets = head(150, 900, 72, form)
    if device == "gpu":
        gpu = _device.parse_device("gpu")
        hidden, weight, targets = (_device.to_device(x, gpu) for x in (hidden, weight, targets))

    def run(rows, **options):
        found = rk.linear_logprob(hidden[rows], weight, targets[rows], **options)
        return [_device.to_numpy(x) for x in (found if options else [found])]

    whole = run(slice(None), with_normaliser=True)
    slope = whole[0] if device != "gpu" else _device.to_device(whole[0], gpu)
    gradient, _ = rk.linear_logprob_backward(hidden, weight, targets, slope)
    for rows in (slice(0, 1), slice(7, 8), slice(3, 67), slice(70, 150)):
        for part, all_rows in zip(run(rows, with_normaliser=True), whole, strict=True):
            assert_same_bits(part, all_rows[rows])
        part, _ = rk.linear_logprob_backward(hidden[rows], weight, targets[rows], slope[rows])
        assert_same_bits(part, _device.to_numpy(gradient)[rows])
    for size, most in ((1, 64), (1 << 18, 1000)):
        monkeypatch.setattr(logprob, "_SLICE", {"cpu": size, "gpu": size})
        monkeypatch.setattr(logprob, "_MOST_ROWS", most)
        assert_same_bits(run(slice(None))[0], whole[0])
    rk.set_num_threads(3)
    try:
        assert_same_bits(run(slice(None))[0], whole[0])
    finally:
        rk.set_num_threads(None)


def test_more_blocks_than_lanes():
    """130 blocks: the lanes of a warp take several each."""
    hidden, weight, targets = head(3, 64 * 130 - 5, 8, "float32", scale=1.5)
    got = rk.linear_logprob(hidden, weight, targets)
    with on_cpu(1):
        assert_same_bits(rk.linear_logprob(hidden, weight, targets), got)
    expected, _ = formula(hidden, weight, targets)
    assert (abs(got - expected) <= tolerance(hidden, weight, np.float32)).all()


def test_probabilities_add_to_one():
    hidden, weight, _ = head(1, 777, 16, "float16")
    every = rk.linear_logprob(np.repeat(hidden, 777, axis=0), weight, np.arange(777))
    # each has an absolute error of a few ulp of 10, the largest logarithm here
    assert abs(np.exp(every.astype(np.float64)).sum() - 1) < 2e-5


def test_padding_and_values_that_are_not_finite(device):
    """NaN stays in its row; -inf is a probability of 0; padding is 0 whatever it holds."""
    weight = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    hidden = np.array([[1, 2], [np.nan, 0], [np.nan, 1], [3e38, 0], [np.inf, 0]], np.float32)
    weight = np.concatenate([weight, np.float32([[-10, 0]])])
    targets = np.array([0, 1, -7, 3, 0])
    where = _device.parse_device(device)
    inputs = [_device.to_device(x, where) for x in (hidden, weight, targets)]
    got = _device.to_numpy(rk.linear_logprob(*inputs))
    z = np.array([1, 2, -1, -10])
    assert abs(got[0] - (1 - np.log(np.exp(z).sum()))) < 1e-6
    assert_same_bits(np.isnan(got), np.array([False, True, False, False, True]))
    assert_same_bits(got[2:4], np.array([0, -np.inf], np.float32))
    slope = _device.to_device(np.ones(5, np.float32), where)
    dhidden = _device.to_numpy(rk.linear_logprob_backward(*inputs, slope)[0])
    assert_same_bits(np.isnan(dhidden).any(1), np.isnan(got))
    assert_same_bits(abs(dhidden[2]), np.zeros(2, np.float32))


def test_a_block_of_nothing():
    """All 64 logits of a block -inf: it adds nothing, and no NaN."""
    hidden = np.float32([[1e30]])
    weight = np.concatenate([np.full((64, 1), -1e30), np.zeros((3, 1))]).astype(np.float32)
    got = rk.linear_logprob(hidden, weight, np.array([65]))
    assert abs(got[0] + np.log(3)) < 1e-6
    with on_cpu():
        assert_same_bits(rk.linear_logprob(hidden, weight, np.array([65])), got)


def test_bad_calls():
    hidden, weight, targets = head(4, 10, 6, "float16")
    with pytest.raises(ShapeError, match="n_vocab"):
        rk.linear_logprob(hidden, weight[:, :5], targets)
    with pytest.raises(ShapeError, match="n_vocab"):
        rk.linear_logprob(hidden, weight[:0], targets)
    with pytest.raises(ShapeError, match="n_row"):
        rk.linear_logprob(hidden, weight, targets[:3])
    with pytest.raises(DTypeError, match="same"):
        rk.linear_logprob(hidden, weight.astype(np.float32), targets)
    with pytest.raises(DTypeError, match="targets"):
        rk.linear_logprob(hidden, weight, targets.astype(np.float32))
    whole = rk.linear_logprob(hidden, weight, targets)
    assert_same_bits(rk.linear_logprob(hidden, weight, targets.tolist()), whole)
    with pytest.raises(DTypeError, match="int16"):
        rk.linear_logprob(*(x.astype(np.int16) for x in (hidden, weight)), targets)
    with pytest.raises(DTypeError, match="dlogprob"):
        rk.linear_logprob_backward(hidden, weight, targets, np.ones(4, np.complex64))
    one = np.ones(4, np.float32)
    with pytest.raises(ShapeError, match="normaliser"):
        rk.linear_logprob_backward(hidden, weight, targets, one, normaliser=one)
    targets[2] = 10
    with pytest.raises(ParameterError, match="at most 9"):
        rk.linear_logprob(hidden, weight, targets)
    with on_cpu():  # as on a GPU: no look at values, its row becomes NaN
        assert_same_bits(np.isnan(rk.linear_logprob(hidden, weight, targets)), np.arange(4) == 2)
        bad, _ = rk.linear_logprob_backward(hidden, weight, targets, np.ones(4, np.float32))
        assert_same_bits(np.isnan(bad).all(1), np.arange(4) == 2)
    empty = rk.linear_logprob(hidden[:0], weight, targets[:0])
    assert empty.shape == (0,)


def test_without_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # what is not installed cannot be imported
    pytorch.cache_clear()
    with pytest.raises(TorchError, match="pip install"):
        rk.torch.det_gemm(1, 2)


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
def test_gpu(form):
    gpu = _device.parse_device("gpu")
    hidden, weight, targets = head(70, 5000, 136, form)
    slope = np.random.default_rng(1).standard_normal(70)
    slope = slope.astype(np.float64 if form == "float64" else np.float32)
    cpu = (hidden, weight, targets)
    there = [_device.to_device(x, gpu) for x in cpu]
    assert_same_bits(rk.linear_logprob(*there), rk.linear_logprob(*cpu))
    got = rk.linear_logprob_backward(*there, _device.to_device(slope, gpu))
    for x, y in zip(got, rk.linear_logprob_backward(*cpu, slope), strict=True):
        assert_same_bits(x, y)
    with pytest.raises(DeviceError):
        rk.linear_logprob(there[0], weight, targets)
