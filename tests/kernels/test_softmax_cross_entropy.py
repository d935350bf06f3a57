"""softmax_cross_entropy: kernel = mirror, near the float64 formula; labels and shapes."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device, testing
from rpukit.errors import DTypeError, ParameterError, ShapeError
from rpukit.testing import assert_same_bits, on_cpu
from tests.on_cpu import runner

loss_of = rk.elementwise.softmax_cross_entropy


def data(n_batch, n_class, scale=3.0, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, scale, (n_batch, n_class)).astype(np.float32)
    return logits, rng.integers(0, n_class, n_batch).astype(np.int32)


def same_bits(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize("size", [(1, 1), (0, 3), (1, 10), (33, 10), (129, 31), (5, 1009)])
def test_kernel_mirror_formula(size, order):
    logits, labels = data(*size)
    loss, gradient = loss_of(logits, labels)
    with on_cpu(order):
        same_bits(loss_of(logits, labels), (loss, gradient))
    z = logits.astype(np.float64)
    p = np.exp(z - z.max(1, keepdims=True, initial=-np.inf))
    p /= p.sum(1, keepdims=True)
    hot = np.arange(size[1]) == labels[:, None]
    # a chain of n_class additions of numbers up to 1; the errors of exp and log are smaller
    bound = (size[1] + 8) * 6e-8
    assert (np.abs(gradient - (p - hot)) <= bound).all()
    assert (np.abs(loss + np.log(p[hot])) <= bound * 10 + 2e-6).all()


def test_a_label_that_is_none(order):
    """On a GPU labels are not looked at before: those of no class give NaN."""
    logits, labels = data(4, 5)

    def run(variant, grid, block, args, shared):
        names = [p.name for p in variant.source.entries["softmax_cross_entropy"]]
        args[names.index("labels")][:] = 5, -1, 4, 0
        runner.run(variant, grid, block, args, shared)

    testing.set_runner(run)
    try:
        with on_cpu(order):
            loss, gradient = loss_of(logits, labels)
    finally:
        testing.set_runner(runner.run)
    for found in (loss, gradient.sum(1)):
        assert_same_bits(np.isnan(found), np.array([True, True, False, False]))


@pytest.mark.gpu
def test_gpu_is_mirror():
    logits, labels = data(1000, 10)
    gpu = _device.parse_device("gpu")
    got = loss_of(_device.to_device(logits, gpu), _device.to_device(labels, gpu))
    same_bits([_device.to_numpy(a) for a in got], loss_of(logits, labels))


def test_large_logits_do_not_overflow(device):
    logits = np.array([[1e4, -1e4, 0], [3e38, 3e38, -3e38], [-3e38, 0, 0]], np.float32)
    labels = np.array([1, 0, 1], np.int32)
    where = _device.parse_device(device)
    inputs = [_device.to_device(a, where) for a in (logits, labels)]
    loss, gradient = map(_device.to_numpy, loss_of(*inputs))
    assert np.isfinite(loss).all()
    np.testing.assert_allclose(loss, [2e4, 0, np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(gradient[1], [-0.5, 0.5, 0])


def test_gradient_is_the_derivative():
    logits, labels = data(4, 5)
    _, gradient = loss_of(logits, labels)
    step = np.float32(0.01)
    for k in range(5):
        up, down = logits.copy(), logits.copy()
        up[:, k] += step
        down[:, k] -= step
        slope = (loss_of(up, labels)[0] - loss_of(down, labels)[0]) / (2 * step)
        np.testing.assert_allclose(slope, gradient[:, k], atol=2e-4)


def test_rows_do_not_know_their_batch():
    logits, labels = data(5000, 10)
    whole = loss_of(logits, labels)
    for rows in (slice(0, 1), slice(17, 2500), slice(4999, 5000)):
        same_bits(loss_of(logits[rows], labels[rows]), [a[rows] for a in whole])
    for threads in (1, 4):
        rk.set_num_threads(threads)
        try:
            same_bits(loss_of(logits, labels), whole)
        finally:
            rk.set_num_threads(None)


def test_nan_stays_in_its_row(device):
    logits, labels = data(6, 4)
    logits[2, 1] = np.nan
    where = _device.parse_device(device)
    loss, gradient = loss_of(_device.to_device(logits, where), _device.to_device(labels, where))
    loss, gradient = _device.to_numpy(loss), _device.to_numpy(gradient)
    bad = np.arange(6) == 2
    assert_same_bits(np.isnan(loss), bad)
    assert np.isnan(gradient[2]).all()
    assert np.isfinite(gradient[~bad]).all()


@pytest.mark.parametrize("label", [-1, 4, 2**31 - 1])
def test_label_out_of_range(label):
    logits, labels = data(6, 4)
    labels[3] = label
    with pytest.raises(ParameterError, match="labels"):
        loss_of(logits, labels)
    with on_cpu():  # as on a GPU: no look at values, its row becomes NaN
        loss, gradient = loss_of(logits, labels)
    bad = np.arange(6) == 3
    assert_same_bits(np.isnan(loss), bad)
    assert_same_bits(np.isnan(gradient).all(1), bad)


def test_out():
    logits, labels = data(7, 4)
    out = (np.empty(7, np.float32), np.empty((7, 4), np.float32))
    got = loss_of(logits, labels, out=out)
    assert got[0] is out[0]
    assert got[1] is out[1]
    same_bits(out, loss_of(logits, labels))


def test_wrong_input():
    logits, labels = data(6, 4)
    with pytest.raises(DTypeError, match="labels"):
        loss_of(logits, labels.astype(np.float32))
    same_bits(loss_of(logits, labels.astype(np.int64)), loss_of(logits, labels))
    with pytest.raises(DTypeError, match="logits"):
        loss_of(logits.astype(complex), labels)
    same_bits(loss_of(logits.astype(np.float64), labels), loss_of(logits, labels))
    with pytest.raises(ShapeError, match="n_class"):
        loss_of(logits, labels[:5])
    with pytest.raises(ShapeError, match="n_class"):
        loss_of(logits[0], labels)
    with pytest.raises(ShapeError, match="n_class"):
        loss_of(logits[:, :0], labels)
    same_bits(loss_of(logits.tolist(), labels.tolist()), loss_of(logits, labels))
