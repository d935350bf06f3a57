"""Chains of the mirrors of products: one order of steps, wherever the weights lie."""

import numba as nb
import numpy as np
import pytest

from rpukit import _device
from rpukit._exact import chains as _math_chains
from rpukit._exact import math as _math
from rpukit.testing import assert_same_bits


@nb.njit
def in_order(weight, along, v, first, last, y):
    for s in range(v.shape[0]):
        for i in range(y.shape[1]):
            for k in range(first, last):
                y[s, i] = _math.fma32(weight[k, i] if along else weight[i, k], v[s, k], y[s, i])


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize(("n_out", "n_in"), [(1, 16), (130, 96), (64, 33), (208, 48)])
def test_chains_do_not_depend_on_where_weights_lie(n_out, n_in, offset):
    """One sample, whose blocks are turned where rows begin with lines of the cache; or a few."""
    rng = np.random.default_rng(0)
    v = rng.normal(size=(3, n_in)).astype(np.float32)
    for along in (False, True):
        shape = (n_in, n_out) if along else (n_out, n_in)
        weight = _device.empty((n_out * n_in + (1 << 14),), np.float32, _device.CPU)
        weight = weight[offset : offset + n_out * n_in].reshape(shape)
        weight[...] = rng.normal(size=shape)
        for samples, first, last in ((1, 0, n_in), (1, 5, n_in - 3), (3, 0, n_in)):
            start = rng.normal(size=(samples, n_out)).astype(np.float32)
            found, exact = start.copy(), start.copy()
            _math_chains.go_on(weight, along, False, v[:samples], first, last, found)
            in_order(weight, along, v[:samples], first, last, exact)
            assert_same_bits(found, exact)


@pytest.mark.parametrize("shape", [(1 << 15,), (129, 257)])
def test_large_arrays_begin_with_a_line_of_the_cache(shape):
    made = (
        _device.empty(shape, np.float32, _device.CPU),
        _device.zeros(shape, np.float64, _device.CPU),
        _device.to_device(np.ones(shape), _device.CPU, np.float32),
    )
    for array, dtype in zip(made, ("f4", "f8", "f4"), strict=True):
        assert array.shape == shape
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.ctypes.data % 64 == 0
    assert not made[1].any()
    assert (made[2] == 1).all()
