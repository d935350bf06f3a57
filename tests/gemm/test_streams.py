"""Streamed tiles: equal shares of the last tiles, whose chains go on in other blocks."""

import numpy as np
import pytest

from rpukit import _device
from rpukit._kernels.launch import recording
from rpukit.errors import ParameterError
from rpukit.gemm import tensor
from rpukit.gemm._tiles import tensor_choice, tensor_tiles
from rpukit.testing import assert_same_bits, on_cpu
from tests.gemm.gemm_cases import words
from tests.gemm.test_tensor import sums_of_segments

STREAMED = [
    ("128x64", 3, 584),
    ("64x80 cluster 2x1", 8, 584),
    ("turned 64x48", 3, 248),
    *(
        pytest.param(*case, marks=pytest.mark.sweep)
        for case in (
            ("turned 64x32 deep", 5, 584),
            ("64x64", 2, 1104),
            ("64x192 cluster 4x1", 6, 1104),
            ("128x256", 2, 584),
            ("192x192", 2, 584),
            ("turned 64x208 cluster 2x1", 4, 336),
        )
    ),
]


@pytest.mark.parametrize(("name", "n_multi", "k"), STREAMED)
@pytest.mark.parametrize("apart", [False, True])
def test_chains_go_on_in_other_blocks(name, n_multi, k, apart, monkeypatch):
    """Blocks, run in any order, compute equal shares of the last tiles, and pass chains on."""
    monkeypatch.setattr(tensor, "SEGMENT", 256)
    monkeypatch.setattr(tensor_tiles, "multiprocessors", lambda device: n_multi)
    tile = tensor_tiles.named(name + " apart" * apart + " streamed")
    expected = sums_of_segments(None, k, _device.CPU)
    for order in (0, 1, 7):
        with on_cpu(order), recording() as launches:
            got = sums_of_segments(tile, k, _device.CPU)
        if not apart:
            assert all("STREAM" in dict(x.variant.macros) for x in launches)
        for x, y in zip(got, expected, strict=True):
            assert_same_bits(x, y)


def test_shares_are_no_shorter_than_a_piece():
    """Else a chain would have more than two blocks, and the last would wait for all others."""
    tile = tensor_tiles.streamed(tensor_tiles.named("128x128"))
    assert [tile.streams(count, 4096, 132) for count in (131, 132, 133)] == [False, True, True]
    assert not tensor_tiles.named("128x128").streams(200, 4096, 132)
    assert not tile.streams(200, 0, 132)
    by_segments = tensor_tiles.streamed(tensor_tiles.apart(tensor_tiles.named("128x128")))
    assert by_segments.streams(40, 4 * 4096, 132)  # 160 segments
    assert not by_segments.streams(40, 3 * 4096, 132)
    assert not by_segments.streams(132, 4 * 4096, 132)  # whole tiles alone


def test_sums_that_go_on_are_not_streamed(monkeypatch):
    """Nor is a tile that begins with sums chosen with a cluster, or with a part of a box."""
    monkeypatch.setattr(tensor_tiles, "multiprocessors", lambda _: 2)
    p = tensor.factor(words((130, 64), "float16", 1), 1)
    sums = tensor.aligned((130, 130), np.float32, _device.CPU)
    tile = tensor_tiles.named("64x64 streamed")
    plan = tensor.prepare(p, p, sums, (0, 64), tile, going=True)
    assert "STREAM" not in plan.variant.macros
    assert "STREAM" in tensor.prepare(p, p, sums, (0, 64), tile).variant.macros
    for n in (272, 1000):
        alone = tensor_choice.pick_alone.__wrapped__(6000, n, 3000, False, False, _device.CPU)
        assert alone.goes_on
    with pytest.raises(ParameterError, match="need a tile without a cluster"):
        tensor.multiply(p, p, sums, total=sums, tile=tensor_tiles.named("64x80"))
