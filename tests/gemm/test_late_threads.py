"""Kernels of products, det_gemm, det_gemm_mma and det_gemm_tensor, with threads that come late.

On a CPU the lanes of a warp go from one meeting to the next together, so that a missing meeting is
not noticed. Here all lanes but the first, or all warps but one, give way some times in between.
"""

import pytest

from rpukit.testing import assert_same_bits, on_cpu
from tests.golden.cases.edges.gemm import (
    Product,
    by_parts,
    by_short_segments,
    by_tiles,
    ring,
)
from tests.golden.cases.gemm import gemm_in_turns, thin_gemm
from tests.on_cpu import runner

LANES, WARPS = "threadIdx.x % 32", "threadIdx.x / 32 % 4"  # which are late, if not 0
LATE = {  # which threads are late, before what, in which work
    "copies": (LANES, "of_p.skip(", thin_gemm(17, 16, 75, "bfloat16", "thin 32x16/4", 2)),
    "chains": (
        LANES,
        "v[(2 * t + u + further) % RING].read(shared",
        thin_gemm(17, 16, 1300, "bfloat16", "thin 32x16/4", 2),
    ),
    "shares": (
        LANES,
        "mine[x * N_THREAD] = make_float4",
        by_short_segments("thin 16x16/8 joined", 18, 40, 3, 1024),
    ),
    "few": (LANES, "chain_stage(acc, v", gemm_in_turns(17, 16, 1100, "f4", "16x16 few", 5)),
    "rows": (
        WARPS,
        "multiply_pair(acc, a, v.b[0][j]",
        by_tiles("f8", [Product("64x64 tensor", 64, 65, 4 * 16 + 3)]),
    ),
    "sums": (LANES, "read_box(d, part", by_parts("128x64", 130, 64)),
    "results": (
        WARPS,
        "*(uint4 *)(out + (u64)(j + row)",
        ring("turned 64x16", 40, 400, 64, (1, 1), "u2", 400),
    ),
}


@pytest.mark.parametrize("name", LATE)
def test_kernel_with_late_threads(name, monkeypatch):
    """The same bits, whichever threads come late."""
    threads, place, work = LATE[name]
    text_of, edited = runner.text_of, []

    def late(variant):
        text = text_of(variant)
        if place not in text:
            return text
        edited.append(variant.source.name)
        wait = f"[&] {{ for (int n = {threads} ? 50 : 0; n; --n) rk_yield(); }}(), "
        return text.replace(place, wait + place)

    with on_cpu():
        expected = work("cpu")
        monkeypatch.setattr(runner, "text_of", late)
        for got, one in zip(work("cpu"), expected, strict=True):
            assert_same_bits(got, one)
    assert edited


@pytest.mark.parametrize(
    ("name", "m", "n_segment", "left"),
    [
        ("thin 32x16/4 apart", 16, 2, "Kept<R, 32>(room, (u64)number * parts + part).put(d);"),
        ("64x64 apart", 16, 3, "Kept<R, 128>(room, part).put(d);"),  # those that wait add shares
        ("turned 64x48 apart", 60, 2, "Kept<R, 128>(room, part).put(d);"),
        ("turned 128x80 apart", 90, 3, "Kept<R, 128>(room, part).put(d);"),
        ("turned 64x16 apart", 16, 2, "Kept<R, 128>(room, part).put(d);"),
    ],
)
def test_blocks_that_run_side_by_side(name, m, n_segment, left, monkeypatch):
    """Blocks of a tile at the same time; of the first one most lanes leave results late.

    The first lane of a warp counts what its lanes have left, which other blocks then read.
    """
    work, text_of = by_short_segments(name, m, 64, n_segment, 1024), runner.text_of
    late = f"for (int n = blockIdx.x || {LANES} == 0 ? 0 : 200; n; --n) rk_yield();\n"
    edited = []

    def side_by_side(variant):
        text = text_of(variant)
        if left not in text:
            return text
        edited.append(variant)
        for old, new in (
            ('#include "cuda_on_cpu.h"\n', '{}#include "clusters.h"\n'),
            (left, f"{late}{{}}"),
            (f"ON_CPU_EXPORT({variant.entry})", "#undef CLUSTER\n#define CLUSTER grid[0]\n{}"),
        ):
            assert text.count(old) == 1
            text = text.replace(old, new.replace("{}", old))
        return text

    expected = work("cpu")  # by the mirror, which leaves no results of segments in memory
    monkeypatch.setattr(runner, "text_of", side_by_side)
    for order in (0, 1, 7):
        with on_cpu(order):
            for got, one in zip(work("cpu"), expected, strict=True):
                assert_same_bits(got, one)
    assert edited
