"""Gradients: the same bits however rows are cut, padded, packed or permuted."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rpukit as rk
from rpukit.errors import DeviceError, DTypeError, ParameterError, ShapeError
from rpukit.gemm import WeightGradient, tensor
from rpukit.testing import assert_same_bits, on_cpu
from tests.gemm.gemm_cases import FORMATS, bound, factors, values, words

K, N = 20, 12


def rows(n, seed=0, form="bfloat16"):
    return words((n, K), form, seed), words((n, N), form, seed + 1)


def summed(pieces, form="bfloat16"):
    gradient = WeightGradient((K, N), np.uint16 if form == "bfloat16" else np.float16)
    for a, dc in pieces:
        gradient.add(a, dc)
    return gradient


@pytest.mark.parametrize("form", FORMATS)
def test_backward(form):
    a, b = factors(37, 24, 50, form)
    dc = words((37, 24), form, 9)
    for trans_a, trans_b in ((False, False), (True, False), (False, True), (True, True)):
        x = np.ascontiguousarray(a.T) if trans_a else a
        y = np.ascontiguousarray(b.T) if trans_b else b
        options = {"trans_a": trans_a, "trans_b": trans_b, "out_dtype": np.float32}
        da, db = rk.det_gemm_backward(x, y, dc, **options)
        assert da.shape == x.shape
        assert db.shape == y.shape
        da, db = (da.T if trans_a else da), (db.T if trans_b else db)
        va, vb, vdc = values(a), values(b), values(dc)
        assert (abs(da - vdc @ vb.T) <= bound(vdc, vb.T)).all()
        assert (abs(db - va.T @ vdc) <= bound(va.T, vdc)).all()
        assert_same_bits(da[5:9], rk.det_gemm(dc[5:9], b, trans_b=True, out_dtype=np.float32))


def test_backward_of_float64():
    a, b = (
        np.random.default_rng(s).standard_normal(shape) for s, shape in enumerate(((5, 7), (7, 3)))
    )
    da, db = rk.det_gemm_backward(a, b, np.ones((5, 3)))
    np.testing.assert_allclose(da, np.ones((5, 3)) @ b.T, rtol=1e-14)
    np.testing.assert_allclose(db, a.T @ np.ones((5, 3)), rtol=1e-14)
    with pytest.raises(ShapeError, match="dc"):
        rk.det_gemm_backward(a, b, np.ones((3, 5)))


@given(st.lists(st.integers(0, 50), max_size=6), st.sampled_from(FORMATS))
@settings(max_examples=40, deadline=None)
def test_cuts_do_not_matter(lengths, form):
    a, dc = rows(sum(lengths), form=form)
    edges = np.cumsum([0, *lengths])
    pieces = [(a[i:j], dc[i:j]) for i, j in pairwise(edges)]
    gradient = summed(pieces, form)
    assert gradient.n_rows == a.shape[0]
    assert_same_bits(gradient.result(), rk.det_gemm(a, dc, trans_a=True))
    wide = rk.det_gemm(a, dc, trans_a=True, out_dtype=np.float32)
    assert_same_bits(gradient.result(np.float32), wide)


def test_cuts_do_not_matter_in_the_kernel():
    a, dc = rows(150)
    expected = rk.det_gemm(a, dc, trans_a=True)
    with on_cpu(7):
        gradient = summed([(a[:7], dc[:7]), (a[7:90], dc[7:90]), (a[90:], dc[90:])])
        assert_same_bits(gradient.result(), expected)
        assert_same_bits(gradient.result(), expected)  # looking changes nothing


def test_segments(monkeypatch):
    """Many segments, of 64 rows instead of 4096."""
    monkeypatch.setattr(tensor, "SEGMENT", 64)
    a, dc = rows(330)
    whole = rk.det_gemm(a, dc, trans_a=True, out_dtype=np.float32)
    plain = rk.det_gemm(a[:64], dc[:64], trans_a=True, out_dtype=np.float32)
    for i in range(64, 330, 64):
        plain = plain + rk.det_gemm(
            a[i : i + 64], dc[i : i + 64], trans_a=True, out_dtype=np.float32
        )
    assert_same_bits(whole, plain)
    for cuts in ((), (64,), (5, 63, 128, 129), (192, 320)):
        edges = [0, *cuts, 330]
        pieces = [(a[i:j], dc[i:j]) for i, j in pairwise(edges)]
        for n in (len(pieces), 1):
            gradient = summed(pieces[:n])
            rest = pieces[n:]
            for piece in rest:
                n_row = gradient.n_rows
                so_far = rk.det_gemm(a[:n_row], dc[:n_row], trans_a=True)
                assert_same_bits(gradient.result(), so_far)
                gradient.add(*piece)
            assert_same_bits(gradient.result(np.float32), whole)


def test_zero_rows_at_the_end_change_nothing():
    a, dc = rows(45)
    zero = np.zeros((19, K), np.uint16), np.zeros((19, N), np.uint16)
    padded = summed([(a, dc), zero])
    assert_same_bits(padded.result(), rk.det_gemm(a, dc, trans_a=True))


def sequences():
    lengths = [5, 17, 32, 1]
    return [rows(n, 10 * i) for i, n in enumerate(lengths)]


def canonical(parts):
    """Each sequence with zero rows up to a multiple of 16, one after another."""
    made = []
    for x in parts:
        made += [x, np.zeros((-x.shape[0] % 16, x.shape[1]), x.dtype)]
    return np.concatenate(made)


def test_layouts_and_orders_agree():
    parts = sequences()
    expected = rk.det_gemm(*(canonical([p[i] for p in parts]) for i in (0, 1)), trans_a=True)
    packed = [np.concatenate([p[i] for p in parts]) for i in (0, 1)]
    lengths = [p[0].shape[0] for p in parts]
    edges = np.cumsum([0, *lengths])
    gradient = WeightGradient((K, N), np.uint16)
    gradient.add(*packed, cu_seqlens=edges)
    assert_same_bits(gradient.result(), expected)

    # padded on the left to 40 rows a sequence with NaN, sequences in another order
    a, dc = (np.full((4 * 40, c), 0x7FC1, np.uint16) for c in (K, N))
    ids, places = np.full(160, -1), np.zeros(160, int)
    for slot, s in enumerate((2, 0, 3, 1)):
        at = slice(slot * 40 + 40 - lengths[s], slot * 40 + 40)
        a[at], dc[at] = parts[s]
        ids[at], places[at] = s, np.arange(lengths[s])
    gradient = WeightGradient((K, N), np.uint16)
    gradient.add(a, dc, keys=(ids, places))
    assert_same_bits(gradient.result(), expected)

    # every row on its own place
    order = np.random.default_rng(1).permutation(len(ids))
    gradient = WeightGradient((K, N), np.uint16)
    gradient.add(a[order], dc[order], keys=(ids[order], places[order]))
    assert_same_bits(gradient.result(), expected)
    with on_cpu():
        assert_same_bits(gradient.result(), expected)


def test_rows_outside_the_sequences_are_left_out():
    a, dc = rows(30)
    gradient = WeightGradient((K, N), np.uint16)
    gradient.add(a, dc, cu_seqlens=[4, 4, 20])
    assert_same_bits(gradient.result(), rk.det_gemm(a[4:20], dc[4:20], trans_a=True))
    gradient = WeightGradient((K, N), np.uint16)
    gradient.add(a, dc, cu_seqlens=[0])
    assert gradient.n_rows == 0
    assert not gradient.result().any()


def test_bad_calls():
    gradient = WeightGradient((K, N), np.uint16)
    a, dc = rows(5)
    with pytest.raises(DTypeError, match="a: got"):
        gradient.add(a.view(np.float16), dc)
    with pytest.raises(ShapeError, match="dc"):
        gradient.add(a, dc[:4])
    with pytest.raises(ParameterError, match="cu_seqlens"):
        gradient.add(a, dc, cu_seqlens=[0, 6])
    with pytest.raises(ParameterError, match="one of them"):
        gradient.add(a, dc, cu_seqlens=[0, 5], keys=(np.arange(5), np.arange(5)))
    with pytest.raises(ParameterError, match="same"):
        gradient.add(a, dc, keys=(np.zeros(5, int), np.zeros(5, int)))
    with pytest.raises(ShapeError, match="positions"):
        gradient.add(a, dc, keys=(np.arange(5), np.arange(4)))
    with pytest.raises(DTypeError, match="out_dtype"):
        gradient.result(np.float64)
    with pytest.raises(DTypeError, match="16-bit"):
        WeightGradient((K, N), np.float32)
    with pytest.raises(ShapeError, match="shape"):
        WeightGradient((K, 0), np.uint16)
    with pytest.raises(DeviceError):
        WeightGradient((K, N), np.uint16, device="gpu:99")
    assert gradient.n_rows == 0


@pytest.mark.gpu
def test_gpu():
    import cupy

    a, dc = words((20000, 200), "bfloat16"), words((20000, 104), "bfloat16", 1)
    expected = rk.det_gemm(a, dc, trans_a=True)
    ga, gdc = cupy.asarray(a), cupy.asarray(dc)
    assert_same_bits(rk.det_gemm(ga, gdc, trans_a=True), expected)
    gradient = WeightGradient((200, 104), np.uint16, device="gpu")
    for i, j in ((0, 7), (7, 5000), (5000, 8192), (8192, 20000)):
        gradient.add(ga[i:j], gdc[i:j])
    assert_same_bits(gradient.result(), expected)
    keyed = WeightGradient((200, 104), np.uint16, device="gpu")
    keyed.add(ga, gdc, cu_seqlens=[0, 4000, 20000])
    assert_same_bits(keyed.result(), expected)
