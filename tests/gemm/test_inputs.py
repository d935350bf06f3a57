"""What det_gemm takes: every kind of array, vectors, and rows with any number of leading axes."""

import numpy as np
import pytest

import rpukit as rk
from rpukit.errors import DTypeError, ShapeError
from rpukit.testing import assert_same_bits
from tests.foreign import OnlyArray, OnlyDLPack

RNG = np.random.default_rng(4)
# Whole numbers, so that every kind holds the same values.
A, B = (RNG.integers(-3, 4, shape).astype("f4") for shape in ((6, 5), (5, 3)))


KINDS = {"DLPack": OnlyDLPack, "__array__": OnlyArray, "list": lambda a: a.tolist(), "rows": tuple}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_bits(kind):
    to = KINDS[kind]
    want = rk.det_gemm(A, B)
    assert_same_bits(rk.det_gemm(to(A), B), want)
    assert_same_bits(rk.det_gemm(A, to(B)), want)
    dc = RNG.integers(-2, 3, want.shape).astype("f4")
    for got, expected in zip(
        rk.det_gemm_backward(to(A), B, to(dc)), rk.det_gemm_backward(A, B, dc), strict=True
    ):
        assert_same_bits(got, expected)


def test_lists_alone_are_float64():
    assert_same_bits(
        rk.det_gemm(A.tolist(), B.tolist()), rk.det_gemm(A.astype(float), B.astype(float))
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_rows_with_leading_axes(dtype):
    a = RNG.normal(size=(2, 3, 4, 7)).astype(dtype)
    b = RNG.normal(size=(7, 5)).astype(dtype)
    flat = rk.det_gemm(a.reshape(-1, 7), b)
    assert_same_bits(rk.det_gemm(a, b), flat.reshape(2, 3, 4, 5))
    assert_same_bits(
        rk.det_gemm(a, np.ascontiguousarray(b.T), trans_b=True), flat.reshape(2, 3, 4, 5)
    )
    assert_same_bits(rk.det_gemm(a[0, 0, 0], b), flat[0])
    out = np.empty((2, 3, 4, 5), dtype)
    assert rk.det_gemm(a, b, out=out) is out
    assert_same_bits(out, flat.reshape(out.shape))
    dc = RNG.normal(size=out.shape).astype(dtype)
    da, db = rk.det_gemm_backward(a, b, dc)
    want = rk.det_gemm_backward(a.reshape(-1, 7), b, dc.reshape(-1, 5))
    assert_same_bits(da, want[0].reshape(a.shape))
    assert_same_bits(db, want[1])


def test_what_is_no_product():
    with pytest.raises(ShapeError, match="axes, need 2"):
        rk.det_gemm(np.float32(3), B)
    with pytest.raises(ShapeError, match="axes, need 2"):
        rk.det_gemm(A[None], B, trans_a=True)
    with pytest.raises(ShapeError, match="inner lengths"):
        rk.det_gemm(A[None, :, 1:], B)
    with pytest.raises(ShapeError, match="out"):
        rk.det_gemm(A[None], B, out=np.empty((6, 3), "f4"))
    with pytest.raises(ShapeError, match="dc"):
        rk.det_gemm_backward(A[None], B, np.ones((6, 3), "f4"))
    with pytest.raises(DTypeError, match="complex"):
        rk.det_gemm(A + 0j, B)
    with pytest.raises(ShapeError, match="no array"):
        rk.det_gemm([[1, 2], [3]], B)
