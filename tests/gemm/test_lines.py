"""Copies of factors to aligned rows, and to rows that begin with lines of L2."""

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


def test_rows_that_cross_lines_are_copied_where_that_pays(monkeypatch):
    a, b = words((40, 72), "bfloat16", 1), words((72, 136), "bfloat16", 2)
    p, q = tensor.in_place(a, 1), tensor.in_place(b, 0)
    monkeypatch.setattr(lines, "fits", lambda words: True)
    assert lines.tight(p, q, lines=(True, True))[0] is p  # short rows
    monkeypatch.setattr(lines, "_LONG", 100)
    kept, copied = lines.tight(p, q, lines=(True, True))
    assert kept is p
    assert copied.words.shape == q.words.shape
    assert copied.words.strides[0] == 384
    assert lines.tight(p, q, lines=(True, False))[1] is q
    assert not lines.crosses(copied)


@pytest.mark.parametrize("k", [75, 16500])
def test_copies_do_not_change_bits(k, monkeypatch):
    m, n = 5 if k > 1000 else 70, 136
    a, b = words((m, k), "bfloat16", 3), words((k, n), "bfloat16", 4)
    expected = rk.det_gemm(a, b)
    monkeypatch.setattr(lines, "_LONG", 64)
    monkeypatch.setattr(tensor, "copied_lines", lambda *_: (True, True))
    monkeypatch.setattr(tensor, "pick_thin", lambda *_: None)
    with on_cpu(7), recording() as launches:
        assert_same_bits(rk.det_gemm(a, b), expected)
    entries = [launch.variant.entry for launch in launches]
    assert entries[0] == "align_rows"
    assert launches[0].early
    assert launches[1].early == (launches[1].variant.macros.get("BLOCKS", 1) == 1)
    assert set(entries[1:]) == {"det_gemm_tensor"}
