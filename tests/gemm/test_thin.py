"""Thin tiles of 16-bit products: warps that copy, factors that begin anywhere, long sums."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit._kernels.launch import recording
from rpukit.errors import ParameterError
from rpukit.gemm import lines, tensor
from rpukit.gemm._tiles import tensor_choice, tensor_tiles
from rpukit.testing import assert_same_bits, on_cpu
from tests.gemm.gemm_cases import factors

FEW = (
    ("thin 16x8/2", 0),
    ("thin 16x8/8", 1),
    ("thin 64x16/4", 2),
    ("short 64x8", 0),
    ("short 64x16", 1),
    ("short 64x64", 2),
)
SKIPS = {8: 0, 2: 2, 1: 1}  # by the elements at whose multiples rows then begin
ALL = [(t.name, skip) for begin, skip in SKIPS.items() for t in tensor_choice.copying(begin, 75)]


def shifted(x, skip):
    """The same matrix as a view that begins `skip` elements into longer rows."""
    width = x.shape[1] + skip
    room = np.full((x.shape[0], width + width % 2 * (skip == 2)), 0x7FC0, x.dtype)
    room[:, skip : skip + x.shape[1]] = x
    return room[:, skip : skip + x.shape[1]]


@pytest.mark.parametrize(
    ("name", "skip"),
    [*FEW, *(pytest.param(*x, marks=pytest.mark.slow) for x in ALL if x not in FEW)],
)
def test_factors_may_begin_anywhere(name, skip):
    m, n, k = 21, 40, 75 if skip else 136
    for trans_a, trans_b in ((False, True), (True, False)):
        a, b = factors(m, n, k, "bfloat16", trans_a, trans_b)
        expected = rk.det_gemm(a, b, trans_a=trans_a, trans_b=trans_b)
        p = lines.in_place(shifted(a, skip), 0 if trans_a else 1)
        q = lines.in_place(shifted(b, skip), 1 if trans_b else 0)
        got = np.zeros((m, n), np.uint16)
        with on_cpu(7):
            tensor.multiply(p, q, got, tile=tensor_tiles.named(name))
        assert_same_bits(got, expected)


def test_few_results_take_one_launch():
    """Where neither factor begins at multiples of 16 bytes; longer products copy them before."""
    a, b = factors(3, 9, 75, "float16")
    expected = rk.det_gemm(a, b)
    with on_cpu(), recording() as launches:
        assert_same_bits(rk.det_gemm(a, b), expected)
    assert [one.variant.entry for one in launches] == ["det_gemm_mma"]


@pytest.mark.parametrize("begins", [(8, 8), (2, 2), (1, 1)])
def test_thin_tiles_are_for_few_results(begins, monkeypatch):
    """Those meant for such rows are tried where results are few; none where they are many."""
    monkeypatch.setattr(tensor_choice, "multiprocessors", lambda _: 132)
    by_time = tensor_choice.by_time_of_all.__wrapped__
    for k in (200, 7886):
        tried = by_time(8, 66, k, False, False, begins, _device.CPU)
        found = [x for x in tried if isinstance(x, tensor_tiles.WarpTile)]
        assert found or k > 200
        assert all(
            tensor_tiles.named(x.base) in tensor_choice.copying(min(begins), k) for x in found
        )
        assert isinstance(tried[0], tensor_tiles.WarpTile) or tried[0].lines < 64
    many = by_time(4096, 4096, 4096, False, False, begins, _device.CPU)[0]
    assert isinstance(many, tensor_tiles.Tile)


def test_short_tiles_take_short_sums():
    (most,) = {64 * tile.stages for tile in tensor_tiles.SHORT_TILES if tile.name == "short 64x64"}
    assert (
        max(tile.shared(64 * tile.stages) for tile in tensor_tiles.SHORT_TILES)
        <= tensor_tiles.SHARED
    )
    p = lines.in_place(np.zeros((3, most + 1), np.float16), 1)
    out = np.zeros((3, 3), np.uint16)
    with pytest.raises(
        ParameterError, match=f"64x64' for a sum of {most + 1} terms, need at most"
    ):
        tensor.multiply(p, p, out, tile=tensor_tiles.named("short 64x64"))


def test_a_column_is_a_row():
    """A factor of one line may have any distance between lines."""
    column = lines.in_place(np.zeros((75, 1), np.float16), 0)
    assert (column.along, column.lines, column.depth) == (0, 1, 75)
    assert column.words.strides[0] % 16 == 0
