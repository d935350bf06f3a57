"""Products of tiles by the kernel of `det_gemm`: cut sums go on with the chains that are there."""

import numpy as np
import pytest

import rpukit as rk
from rpukit.gemm._tiles.real_tiles import DOUBLE_TILES, FLOAT_TILES, LONG_SEGMENT
from rpukit.gemm.real import product
from rpukit.testing import assert_same_bits, on_cpu

TILES = {"float32": FLOAT_TILES[:3], "float64": DOUBLE_TILES[2:4]}


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", TILES)
def test_a_cut_product_has_the_bits_of_the_whole(dtype, order):
    rng = np.random.default_rng(1)
    m, n, k = 132, 140, 76
    for number, tile in enumerate(TILES[dtype]):
        trans_a, trans_b = number == 1, number == 2
        a = rng.standard_normal((k, m) if trans_a else (m, k)).astype(dtype)
        b = rng.standard_normal((n, k) if trans_b else (k, n)).astype(dtype)
        out = np.full((m, n), np.nan, dtype)
        with on_cpu(order):
            for first, last in ((0, 4), (4, 41), (41, k)):
                at = slice(first, last)
                parts = a[at] if trans_a else a[:, at], b[:, at] if trans_b else b[at]
                parts = [np.ascontiguousarray(part) for part in parts]
                product(*parts, out, trans_a, trans_b, tile, add=2 if first else 0)
        whole = rk.det_gemm(a, b, trans_a=trans_a, trans_b=trans_b)
        assert_same_bits(out, whole)
        with on_cpu(order):
            product(a, b, out, trans_a, trans_b, tile, add=3, alpha=-0.3)
        assert_same_bits(out, whole - out.dtype.type(0.3) * whole)


def test_a_long_product_is_cut_between_segments():
    rng, n, long = np.random.default_rng(2), LONG_SEGMENT, {"segment": LONG_SEGMENT}
    a, b = (rng.standard_normal(s).astype("f4") for s in ((3, n + 40), (n + 40, 4)))
    out, whole = np.empty((3, 4), np.float32), np.empty((3, 4), np.float32)
    with on_cpu():
        product(a[:, :n].copy(), b[:n], out, False, False, **long)
        product(a[:, n:].copy(), b[n:], out, False, False, add=1, **long)
    product(a, b, whole, False, False, **long)
    assert_same_bits(out, whole)
