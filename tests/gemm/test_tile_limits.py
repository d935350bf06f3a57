"""Tiles of 16-bit products: their names, and the parts, layouts and segments that they take."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.errors import ParameterError
from rpukit.gemm import tensor
from rpukit.gemm._tiles import tensor_choice, tensor_paces, tensor_tiles
from rpukit.testing import assert_same_bits, on_cpu
from tests.gemm.gemm_cases import factors, words


@pytest.mark.parametrize("tile", ["turned 64x16 deep", "64x64", "128x128 cluster 2x1"])
@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize("part", [(0, 192), (64, 150)])
def test_a_part_may_end_within_a_stage(tile, along, part):
    """A stage has up to 256 terms."""
    a, b = factors(20, 72, 330, "bfloat16", False, not along)
    p, q = tensor.factor(a, 1), tensor.factor(b, 1 - along)
    inside = slice(*part)
    some = b[inside] if along else b[:, inside]
    alone = rk.det_gemm(a[:, inside], some, trans_b=not along, out_dtype=np.float32)
    out = tensor.aligned((20, 72), np.float32, _device.CPU)
    with on_cpu(5):
        tensor.multiply(p, q, out, part=part, tile=tensor_tiles.named(tile))
    assert_same_bits(out, alone)


def test_tiles_that_cannot_make_a_product_are_named():
    p = tensor.factor(words((64, 64), "float16", 1), 1)
    sums = tensor.aligned((64, 64), np.float32, _device.CPU)
    tile = tensor_tiles.named("64x128 cluster 4x1")
    with pytest.raises(ParameterError, match="4x1' with partial or total, need a tile without"):
        tensor.multiply(p, p, sums, partial=sums, tile=tile)
    p = tensor.factor(words((8, 7 * 4096), "float16", 1), 1)
    out = np.zeros((8, 8), np.uint16)
    for name, numbers in (("turned 64x16", "1, 2, 3"), ("64x64 cluster 2x1", "1, 2, 3, 4\\)")):
        need = f"joined' for a sum of 7 segments, need one of .{numbers}"
        with pytest.raises(ParameterError, match=need):
            tensor.multiply(p, p, out, tile=tensor_tiles.named(f"{name} joined"))
    tile = tensor_tiles.named("64x80")
    with pytest.raises(ParameterError, match="need a tile .* with a multiple of 64 columns"):
        tensor.multiply(p, p, np.zeros((8, 8), np.float32), total=out, part=(0, 64), tile=tile)


@pytest.mark.parametrize(("m", "some"), [(1, False), (65, True), (2000, True), (5000, False)])
def test_tiles_fitted_to_rows(m, some):
    """They have room on a multiprocessor, and names by which they are found."""
    found = tensor_choice.fitted(m)
    assert bool(found) is some
    for tile in found:
        assert tensor_tiles.named(tile.name) == tile
        assert tile.stages >= 3
        assert tile.shared(wide=False) <= _device.shared_limit(_device.CPU)
        assert tile.count(640, m) % tile.together == 0
    for tile in tensor_choice.fitted_columns(m):
        assert tensor_tiles.named(tile.name) == tile
        assert tile.stages >= 3
        for along in (False, True):
            found = tile.for_columns(along)
            assert found.shared(wide=True) <= _device.shared_limit(_device.CPU)


@pytest.mark.parametrize(
    "name", ["2x2", "turned 64x40", "turned 192x208", "turned 96x64", "64x88"]
)
def test_tiles_that_do_not_exist(name):
    with pytest.raises(ParameterError, match=f"tile: got '{name}', need one of 128x256"):
        tensor_tiles.named(name)


@pytest.mark.parametrize("name", ["warps 64x64 joined", "short 64x8 joined", "64x64 joined apart"])
def test_names_of_tiles_that_cannot_split_a_sum(name):
    with pytest.raises(ParameterError, match=f"tile: got '{name}', need"):
        tensor_tiles.named(name)


@pytest.mark.parametrize("name", ["64x64", "192x192", "turned 128x144 cluster 2x1", "thin 16x8/2"])
def test_tiles_that_split_a_sum_know_their_base(name):
    tile = tensor_tiles.named(name)
    assert tile.base == tensor_tiles.apart(tile).base == name
    assert tensor_tiles.named(f"{name} apart") == tensor_tiles.apart(tile)
    if tensor_tiles.joins(tile, 2):
        assert tensor_tiles.named(f"{name} joined") == tensor_tiles.joined(tile)
        assert tensor_tiles.joined(tile).base == name


def test_sums_to_go_on_from_take_no_cluster(monkeypatch):
    monkeypatch.setattr(tensor_tiles, "multiprocessors", lambda _: 132)
    monkeypatch.setattr(tensor_choice, "multiprocessors", lambda _: 132)
    shape = (300, 8192, 3584, False, False)
    tile = tensor_choice.pick.__wrapped__(*shape, _device.CPU)
    assert tile.together > 1
    alone = tensor_tiles.lone(tile)
    assert (alone.together, alone.macros.get("CLUSTER")) == (1, None)
    assert (alone.rows, alone.columns) == (tile.rows, tile.columns)


def test_a_short_last_segment_takes_a_short_time():
    """24 tiles of six segments: 120 blocks have whole ones, 24 the last one."""
    tile = tensor_tiles.apart(tensor_tiles.named("64x96"))

    def time(k):
        return tensor_paces.microseconds(tile, 345, 344, k, (8, 8), (False, False), 132)

    whole, more = time(5 * tensor.SEGMENT), time(6 * tensor.SEGMENT)
    assert whole < time(5 * tensor.SEGMENT + 32) < whole + 0.2 * (more - whole)


@pytest.mark.parametrize("k", [0, 1, tensor.SEGMENT + 1])
def test_any_sum_has_tiles(k, monkeypatch):
    monkeypatch.setattr(tensor_choice, "multiprocessors", lambda device: 132)
    found = tensor_choice.by_time(77, 96, k, False, True, _device.CPU)
    assert len(set(found)) == len(found) > 50
    assert {tile.cluster for tile in found} == {(1, 1), *tensor_tiles.CLUSTERS}
    assert all(tensor_tiles.named(tile.name).name == tile.name for tile in found)
