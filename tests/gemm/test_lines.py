"""Copies of factors to aligned rows, and to rows of whole sectors."""

import ctypes
import mmap

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
def test_the_kernel_pads_rows_with_zeros(order, skip):
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


@pytest.fixture
def page():
    """Bytes between two pages that may not be read: reading outside ends the process."""
    room = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    given = np.frombuffer(room, np.uint8)
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    borders = [given.ctypes.data + k * mmap.PAGESIZE for k in (0, 2)]
    for border in borders:
        assert protect(border, mmap.PAGESIZE, 0) == 0
    yield given[mmap.PAGESIZE : -mmap.PAGESIZE]
    for border in borders:
        protect(border, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.mark.parametrize("columns", range(17, 25))
@pytest.mark.parametrize("skip", [0, 1, 3])
def test_the_kernel_reads_nothing_outside_a_matrix(page, columns, skip):
    """A GPU reads whole aligned lines of 16 bytes, which lie in the pages of the matrix."""
    x = words((3, columns), "bfloat16", columns)
    for place in (page[2 * skip :], page[len(page) - x.nbytes - 2 * skip :]):
        given = place[: x.nbytes].view(np.uint16).reshape(x.shape)
        given[...] = x
        room = lines.aligned(x.shape, np.uint16, _device.CPU)
        with on_cpu(7):
            lines.align_rows((given, room))
        assert_same_bits(room[:, :columns].copy(), x)


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
