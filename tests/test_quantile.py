"""The normal quantile: every uniform that a draw can be, tiny p, and float64 around its joints."""

import math

import numba as nb
import numpy as np
from scipy.special import log_ndtr, ndtri

import rpukit as rk
from rpukit._exact import math as _math
from rpukit.testing import assert_same_bits

E = rk.elementwise


@nb.njit(nogil=True)
def draws(words, out):
    for i in range(words.size):
        p = np.float32(np.float32(words[i]) + np.float32(0.5)) * np.float32(2.0**-23)
        out[i] = _math.normal_quantile_draw32(np.float32(p))


def test_quantile_of_every_uniform():
    """All 2^23 uniforms: finite, strictly increasing, odd about 1/2, nearer than 1e-6."""
    words = np.arange(1 << 23, dtype=np.uint32)
    q = np.empty(words.size, np.float32)
    draws(words, q)
    p = (words + 0.5) / 2.0**23
    assert np.isfinite(q).all()
    assert (np.diff(q) > 0).all()
    assert_same_bits(q, -q[::-1])
    assert np.abs(q - ndtri(p)).max() < 1e-6
    assert 5.29 < q[-1] < 5.3  # device models rely on the reach
    assert_same_bits(E.normal_quantile(p.astype(np.float32)), q)


def test_quantile_of_tiny_p():
    """Below 2^-24 the error is relative; float32 reaches down to its subnormal numbers."""
    p = np.geomspace(1.5e-45, 2.0**-24, 20_001).astype(np.float32)
    q = E.normal_quantile(p)
    assert (np.diff(q.astype(np.float64))[np.diff(p) > 0] >= 0).all()
    assert np.abs(q / ndtri(p.astype(np.float64)) - 1).max() < 5e-7
    assert np.abs(log_ndtr(q.astype(np.float64)) / np.log(p.astype(np.float64)) - 1).max() < 1e-6


def test_quantile64_is_odd_and_increasing():
    k = np.random.default_rng(0).integers(0, 1 << 52, 200_000)
    p = np.sort((k + 0.5) / 2.0**52)
    q = E.normal_quantile(p)
    assert_same_bits(E.normal_quantile(1 - p), -q)
    assert (np.diff(q) >= 0).all()


def test_quantile64_joins_its_pieces():
    """Steps of p around the joints of the pieces, of about 12 ulp of q: strictly increasing."""
    for w in (5.0, 16.0, 64.0, 256.0):
        middle = math.exp(-w) / (2 * (1 + math.sqrt(-math.expm1(-w))))
        p = middle * (1 + np.arange(-500, 500) * 1e-12)
        q = E.normal_quantile(p)
        assert (np.diff(q) > 0).all(), w
