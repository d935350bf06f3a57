"""math_map: kernel = mirror, bit for bit; arguments, shapes, types, errors."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.elementwise.ops import FUNCTIONS, FUNCTIONS_OF_TWO
from rpukit.errors import DeviceError, DTypeError, ParameterError, ShapeError
from rpukit.testing import assert_same_bits, on_cpu
from tests import ulp

E = rk.elementwise
SPECIAL = [0, -0.0, 1, -1, 2, 0.5, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 88.7, -104, 3.4e38]


def walk(dtype):
    """More than a million numbers: evenly over the bit patterns, and where it matters."""
    if dtype is np.float32:
        return np.arange(0, 1 << 32, 4001, dtype=np.uint64).astype(np.uint32).view(np.float32)
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 1 << 64, 500_000, dtype=np.uint64).view(np.float64)
    ranges = [rng.normal(0, 30, 300_000), rng.uniform(0, 1, 200_000), SPECIAL, [5e-324, 1e-310]]
    return np.concatenate([patterns, *ranges])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernel_is_mirror(name, dtype):
    x = walk(dtype)
    assert x.size > 1_000_000
    mirror = E.math_map(name, x)
    with on_cpu():
        assert_same_bits(E.math_map(name, x), mirror)
    assert not np.isnan(mirror).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS_OF_TWO)
def test_kernel_is_mirror_of_two(name, dtype):
    rng = np.random.default_rng(1)
    x = walk(dtype)
    y = rng.permutation(x)
    y[::2] = rng.normal(0, 20, y[::2].size)
    mirror = E.math_map(name, x, y)
    with on_cpu():
        assert_same_bits(E.math_map(name, x, y), mirror)
    grid = np.array(SPECIAL, dtype)
    with on_cpu():
        kernel = E.math_map(name, grid[:, None], grid)
    assert_same_bits(kernel, E.math_map(name, grid[:, None], grid))
    assert kernel.shape == (grid.size, grid.size)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [*FUNCTIONS, *FUNCTIONS_OF_TWO])
def test_gpu_is_mirror(name, dtype):
    x = walk(dtype)
    y = np.random.default_rng(1).permutation(x) if name in FUNCTIONS_OF_TWO else None
    public = getattr(E, name)
    assert_same_bits(ulp.call(name, x, "gpu", y), public(x) if y is None else public(x, y))


@pytest.mark.parametrize("n", [0, 1, 31, 255, 256, 257, 70_001])
def test_sizes_threads_and_orders(n, order):
    x = np.random.default_rng(n).normal(0, 5, n).astype(np.float32)
    whole = E.exp(x)
    for threads in (1, 2, 5):
        rk.set_num_threads(threads)
        try:
            assert_same_bits(E.exp(x), whole)
        finally:
            rk.set_num_threads(None)
    with on_cpu(order):
        assert_same_bits(E.exp(x), whole)
    for i in range(0, n, max(1, n // 5)):  # an element does not know its neighbours
        assert_same_bits(E.exp(x[i : i + 1]), whole[i : i + 1])


def test_shapes_and_strides(device):
    x = np.random.default_rng(0).uniform(0.1, 2, (4, 6)).astype(np.float32)
    want = np.log(x.astype(np.float64))
    np.testing.assert_allclose(ulp.call("log", x, device), want, rtol=2e-7, atol=1e-7)
    if device == "cpu":
        np.testing.assert_allclose(E.log(x.T), want.T, rtol=2e-7, atol=1e-7)
        np.testing.assert_allclose(E.log(x[:, ::2]), want[:, ::2], rtol=2e-7, atol=1e-7)
    zero_d = ulp.call("log", np.array(1, np.float32), device)
    assert zero_d.shape == ()
    assert zero_d == 0


def test_types():
    assert E.exp(np.zeros(2, np.float32)).dtype == np.float32
    assert E.exp(np.zeros(2)).dtype == np.float64
    assert E.exp([0, 1]).dtype == np.float64
    assert E.exp(np.arange(2)).dtype == np.float64
    assert E.power(np.ones(2, np.float32), 2).dtype == np.float32
    assert E.power(2, np.ones(2, np.float32)).dtype == np.float32
    assert E.power(2.0, 3.0) == 8
    with pytest.raises(DTypeError, match="float16"):
        E.exp(np.zeros(2, np.float16))
    with pytest.raises(DTypeError, match="complex"):
        E.exp(np.zeros(2, complex))
    wide = E.power(np.full(2, 0.1, np.float32), np.full(2, 0.3))
    assert_same_bits(wide, E.power(np.full(2, 0.1, np.float32).astype(float), np.full(2, 0.3)))
    assert_same_bits(E.exp(np.ones(2, ">f4")), E.exp(np.ones(2, np.float32)))


def test_broadcasting():
    x, y = np.array([[1.0], [2.0], [3.0]]), np.array([0.0, 1.0, 2.0, 3.0])
    assert_same_bits(E.power(x, y), np.array([[1, 1, 1, 1], [1, 2, 4, 8], [1, 3, 9, 27]], float))
    assert E.logaddexp(np.zeros((2, 0)), np.zeros((1, 0))).shape == (2, 0)
    with pytest.raises(ShapeError, match="no broadcast"):
        E.power(np.ones(3), np.ones(4))


def test_out(device):
    place = _device.parse_device(device)
    x = _device.to_device(np.linspace(-2, 2, 1000, dtype=np.float32), place)
    want = E.tanh(x)
    out = x * 0
    assert E.tanh(x, out=out) is out
    assert_same_bits(_device.to_numpy(out), _device.to_numpy(want))
    assert E.tanh(x, out=x) is x
    assert_same_bits(_device.to_numpy(x), _device.to_numpy(want))


def test_input_is_not_written():
    x = np.linspace(0.1, 2, 100)
    x.flags.writeable = False
    E.log(x)
    with pytest.raises(ParameterError, match="read-only"):
        E.log(x.copy(), out=x)


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (np.empty(4, np.float32), ShapeError),
        (np.empty(3), DTypeError),
        (np.empty(6, np.float32)[::2], ShapeError),
        ([0, 0, 0], DTypeError),
    ],
)
def test_wrong_out(out, error):
    with pytest.raises(error, match="out"):
        E.exp(np.zeros(3, np.float32), out=out)


def test_wrong_names_and_counts():
    x = np.ones(3)
    with pytest.raises(ParameterError, match="sine"):
        E.math_map("sine", x)
    with pytest.raises(ParameterError, match="one argument"):
        E.math_map("power", x)
    with pytest.raises(ParameterError, match="two arguments"):
        E.math_map("exp", x, x)


@pytest.mark.gpu
def test_devices_are_not_mixed():
    x = np.ones(3, np.float32)
    with pytest.raises(DeviceError):
        E.exp(rk._device.to_device(x, rk._device.parse_device("gpu")), out=x)
