"""Copies of factors to aligned rows, and to rows of whole sectors."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit._kernels.launch import recording
from rpukit.gemm import lines, tensor
from rpukit.testing import assert_same_bits, on_cpu
from tests.gemm.gemm_cases import words


@pytest.mark.parametrize("order", [0, 1, 7])
@pytest.mark.parametrize("skip", [0, 1, 2, 8])
def test_rows_are_padded_with_zeros(order, skip):
    given = [words(shape, "bfloat16", i)[:, skip:] for i, shape in enumerate([(3, 75), (31, 600)])]
    for step in (8, 64):
        rooms = [lines.aligned(x.shape, np.uint16, _device.CPU, step) for x in given]
        for room in rooms:
            assert room.shape[1] % step == 0
            room[...] = 7
        with on_cpu(order):
            lines.align_rows(*zip(given, rooms, strict=True))
        for x, room in zip(given, rooms, strict=True):
            assert_same_bits(room[:, : x.shape[1]].copy(), x.copy())
            assert not room[:, x.shape[1] :].any()


def test_rows_that_begin_within_sectors():
    p, q = (tensor.in_place(words((40, n), "bfloat16", n), 1) for n in (72, 80))
    for f in lines.tight(p, q, too=(True, True)):
        assert not lines.crosses(f) or f.words.ctypes.data % 32
        assert f.words.strides[0] == 160


def test_copies_of_large_factors_pay():
    both, many = (True, True), (16384, 16384, 16384)
    assert lines.copied(*many, both, _device.CPU) == (True, True)
    assert lines.copied(*many, (True, False), _device.CPU) == (True, False)
    assert lines.copied(*many, (False, False), _device.CPU) == (False, False)
    assert lines.copied(4096, 4096, 4096, both, _device.CPU) == (False, False)
    assert lines.copied(442, 11728, 16384, both, _device.CPU) == (True, False)


@pytest.mark.parametrize("k", [75, 16500])
def test_copies_do_not_change_bits(k, monkeypatch):
    m, n = 5 if k > 1000 else 70, 136
    a, b = words((m, k), "bfloat16", 3), words((k, n), "bfloat16", 4)
    expected = rk.det_gemm(a, b)
    monkeypatch.setattr(tensor, "copied", lambda *_: (True, True))
    monkeypatch.setattr(tensor, "choose_of_all", lambda *_: None)
    with on_cpu(7), recording() as launches:
        assert_same_bits(rk.det_gemm(a, b), expected)
    entries = [launch.variant.entry for launch in launches]
    assert entries[0] == "align_rows"
    assert set(entries[1:]) == {"det_gemm_tensor"}
