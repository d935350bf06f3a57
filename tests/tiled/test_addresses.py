"""Addresses and promotion against the best that is known."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpukit.errors import FormatError
from rpukit.tiled import Block, Candidate, live_bytes, pack, promote, read_csv, write_csv
from rpukit.tiled.planner.addresses import peak
from tests.reference.planner import cases

pytest.importorskip("ortools")


def assert_apart(blocks, offsets):
    for k, one in enumerate(blocks):
        assert offsets[one.name] >= 0
        for other in blocks[:k]:
            if one.lower < other.upper and other.lower < one.upper:
                assert (
                    offsets[one.name] + one.size <= offsets[other.name]
                    or offsets[other.name] + other.size <= offsets[one.name]
                ), (one, other)


def test_peaks_are_the_best_known():
    for case in cases("alloc/instances"):
        blocks = [Block(*block) for block in case["buffers"]]
        offsets = pack(blocks, limit=case["best_peak"])
        assert_apart(blocks, offsets)
        assert live_bytes(blocks) == case["lower_bound"]
        assert peak(blocks, offsets) <= case["best_peak"], case["name"]


@settings(deadline=None)  # pauses of a busy machine are no fault
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 64)), max_size=14),
    st.sampled_from([1, 4, 16]),
)
def test_any_blocks_are_placed_apart_and_aligned(spans, align):
    blocks = [Block(str(k), lo, lo + n, size) for k, (lo, n, size) in enumerate(spans)]
    offsets = pack(blocks, align=align, effort=0)
    assert_apart(blocks, offsets)
    assert all(offset % align == 0 for offset in offsets.values())
    assert offsets == pack(blocks, align=align, effort=0)


def test_the_solver_finds_what_greedy_orders_miss():
    blocks = [Block(*b) for b in cases("alloc/instances")[-1]["buffers"]]
    low = peak(blocks, pack(blocks, effort=2))
    assert low == live_bytes(blocks)


@pytest.mark.parametrize("number", range(3))
def test_promotion_saves_the_most_that_can_be_saved(number):
    case = cases("alloc/promotion")[number]
    tensors = [Candidate(*tensor) for tensor in case["tensors"]]
    offsets = promote(tensors, case["budget"])
    chosen = [tensor for tensor in tensors if tensor.name in offsets]
    assert_apart(chosen, offsets)
    assert max(offsets[c.name] + c.size for c in chosen) <= case["budget"]
    assert sum(c.saved for c in chosen) == case["best_saved"]
    alone = promote(tensors, case["budget"], effort=0)
    assert (
        sum(c.saved for c in tensors if c.name in alone) >= 0.97 * case["greedy_nacc_per_length"]
    )


def test_files_of_minimalloc_go_there_and_back(tmp_path):
    blocks = [Block("a", 0, 2, 8), Block("b,c", 1, 3, 4)]
    for offsets in ({}, {"a": 4, "b,c": 0}):
        write_csv(tmp_path / "blocks.csv", blocks, offsets)
        assert read_csv(tmp_path / "blocks.csv") == (blocks, offsets)
    (tmp_path / "bad.csv").write_text("id,lower,upper\na,0,1\n")
    with pytest.raises(FormatError, match="line 2"):
        read_csv(tmp_path / "bad.csv")
