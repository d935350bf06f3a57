"""The batch-invariant product: kernel = mirror = chain of fma, near the float64 product."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _workers
from rpukit._kernels import tune
from rpukit._kernels.launch import recording
from rpukit.errors import DTypeError, KernelCompileError, ShapeError
from rpukit.gemm import real
from rpukit.gemm._tiles import real_choice, real_tiles
from rpukit.gemm._tiles.real_tiles import AT_ONCE, DOUBLE_TILES, FLOAT_TILES, IN_TURNS, STREAMED
from rpukit.testing import assert_same_bits, on_cpu
from tests.on_cpu import runner

SIZES = [
    (1, 1, 1),
    (1, 33, 31),
    (65, 64, 17),
    (67, 1, 130),
    (128, 66, 16),
    (0, 3, 4),
    (3, 0, 4),
    (3, 4, 0),
]


def matrices(m, n, k, dtype, trans_a=False, trans_b=False, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((k, m) if trans_a else (m, k)).astype(dtype)
    b = rng.standard_normal((n, k) if trans_b else (k, n)).astype(dtype)
    return a, b


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES)
def test_kernel_mirror_formula(size, dtype, order):
    for trans_a, trans_b in ((False, False), (True, False), (False, True), (True, True)):
        a, b = matrices(*size, dtype, trans_a, trans_b)
        mirror = rk.det_gemm(a, b, trans_a=trans_a, trans_b=trans_b)
        with on_cpu(order):
            assert_same_bits(rk.det_gemm(a, b, trans_a=trans_a, trans_b=trans_b), mirror)
        left, right = (a.T if trans_a else a).astype("f8"), (b.T if trans_b else b).astype("f8")
        # a chain of k fmas: at most k roundings of half an ulp of the sum of absolute products
        bound = size[2] * np.finfo(dtype).eps * (abs(left) @ abs(right)) + 1e-300
        assert (abs(mirror - left @ right) <= bound).all()


@pytest.mark.parametrize("k", [1023, 1024, 1025, 5000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_chain_restarts_at_every_segment(k, dtype):
    """Results of segments of 1024 terms, each a chain of its own, are added left to right."""
    a, b = matrices(3, 20, k, dtype)
    got = rk.det_gemm(a, b)
    total = rk.det_gemm(a[:, :1024].copy(), b[:1024])
    for first in range(1024, k, 1024):
        part = slice(first, first + 1024)
        total += rk.det_gemm(a[:, part].copy(), b[part])
    assert_same_bits(got, total)
    for rows in (slice(0, 1), slice(1, 3)):
        assert_same_bits(rk.det_gemm(a[rows], b), got[rows])
    with on_cpu(7):
        assert_same_bits(rk.det_gemm(a, b), got)


def test_rows_do_not_know_their_batch(monkeypatch):
    monkeypatch.setattr(_workers, "_WORTH_A_THREAD", 1)
    a, b = matrices(100, 40, 50, np.float32)
    whole = rk.det_gemm(a, b)
    for rows in (slice(0, 1), slice(7, 40), slice(63, 100)):
        assert_same_bits(rk.det_gemm(a[rows], b), whole[rows])
    for n in (1, 2, 16):
        rk.set_num_threads(n)
        try:
            assert_same_bits(rk.det_gemm(a, b), whole)
        finally:
            rk.set_num_threads(None)


def test_views_and_out():
    a, b = matrices(9, 8, 7, np.float32)
    whole = rk.det_gemm(a, b)
    out = np.full((9, 8), np.nan, np.float32)
    assert rk.det_gemm(np.asfortranarray(a), b[:, ::-1][:, ::-1], out=out) is out
    assert_same_bits(out, whole)
    assert_same_bits(rk.det_gemm(a.T.copy().T, b), whole)


def test_bad_calls():
    a, b = matrices(3, 4, 5, np.float32)
    with pytest.raises(ShapeError, match="inner"):
        rk.det_gemm(a, a)
    with pytest.raises(ShapeError, match="axes"):
        rk.det_gemm(a, b[None])
    with pytest.raises(DTypeError, match="float64"):
        rk.det_gemm(a, b.astype("f8"))
    with pytest.raises(DTypeError, match="int"):
        rk.det_gemm(a.astype(int), b.astype(int))
    with pytest.raises(ShapeError, match="out"):
        rk.det_gemm(a, b, out=np.empty((4, 3), np.float32))
    square = np.ones((3, 3), np.float32)
    with pytest.raises(ShapeError, match="overlaps"):
        rk.det_gemm(square, square.copy(), out=square)
    with pytest.raises(ShapeError, match="inner"):
        rk.det_gemm(a, [[1.0]])


TILES = FLOAT_TILES + DOUBLE_TILES


def compare(tile, size, layouts, split=1, orders=(7,)):
    dtype = np.float64 if tile in DOUBLE_TILES else np.float32
    for trans_a, trans_b in layouts:
        a, b = matrices(*size, dtype, trans_a, trans_b)
        expected = rk.det_gemm(a, b, trans_a=trans_a, trans_b=trans_b)
        for order in orders:
            got = np.empty_like(expected)
            with on_cpu(order):
                real.product(a, b, got, trans_a, trans_b, tile, split=split)
            assert_same_bits(got, expected)


@pytest.mark.parametrize("tile", [t for t in TILES if t.copiers], ids=lambda t: t.name)
def test_tiles_with_threads_that_copy(tile):
    """More stages than the ring has, rows that begin anywhere, a sum ending in the last grain."""
    layouts = ((False, False), (False, True), (True, False))
    size = (tile.rows + 1, 9, (tile.stages + 2) * tile.depth - 3)
    compare(tile, size, [layouts[2 if tile.turn else TILES.index(tile) % 3]])


@pytest.mark.parametrize("tile", [t for t in TILES if t.rows == 1], ids=lambda t: t.name)
def test_tiles_of_one_row(tile):
    """Any layout, and a turned factor whose rows other tiles copy 16 bytes at a time."""
    layouts = [(turned, across) for turned in (False, True) for across in (False, True)]
    compare(tile, (1, tile.columns + 4, 3 * tile.depth + 8), layouts)
    compare(tile, (4, 9, 3 * tile.depth + 8), layouts)
    compare(tile, (1, 40, 3 * 1024 + 5), [(False, True)], split=AT_ONCE)


SPLIT = (  # tile, blocks that share it, terms
    (FLOAT_TILES[2], 2, 4 * 1024 + 3),
    (next(t for t in FLOAT_TILES if t.copiers), 8, 9 * 1024 + 70),
    (DOUBLE_TILES[3], 4, 3 * 1024),  # sums in the place of stages
    (next(t for t in DOUBLE_TILES if t.copiers), 2, 2 * 1024 + 1),
)


@pytest.mark.parametrize(("tile", "split", "k"), SPLIT)
def test_blocks_that_share_a_sum(tile, split, k):
    """More segments than blocks, and fewer; rows and columns beyond the result."""
    layouts = ((False, True), (True, False))
    number = SPLIT.index((tile, split, k))
    compare(tile, (tile.rows + 1, 5, k), [layouts[number % 2]], split, orders=(0, 1, 7))


TURNS = (  # tile, terms
    (FLOAT_TILES[4], 2 * 1024 + 3),
    (FLOAT_TILES[9], 5 * 1024),
    (DOUBLE_TILES[3], 3 * 1024 + 70),
    (DOUBLE_TILES[8], 900),  # one segment
    (DOUBLE_TILES[10], 6 * 1024 + 7),  # more of them than are asked for together
)


@pytest.fixture(params=[1, 1 << 30], ids=["several blocks", "the last block"])
def adding(request, monkeypatch):
    """Segments that are added by those blocks that end last, or by one."""
    monkeypatch.setattr(real_tiles, "_LEAST_SHARED", request.param)


@pytest.mark.sweep
@pytest.mark.parametrize("tile", TILES, ids=lambda t: t.name)
def test_every_way_of_a_tile_compiles(tile):
    """However blocks may share it, with copies of any width, each in one of the layouts."""
    size, number = 8 if tile in DOUBLE_TILES else 4, TILES.index(tile)
    for split in filter(tile.splits_by, (*real_tiles.SPLITS, *real_tiles.WORDS)):
        for wide in (1, 2, 4)[: 2 if size == 8 else 3]:
            number += 1
            given = (700, 520, 9100), size, number % 2 > 0, number % 4 > 1, (wide, wide, wide)
            runner.check(real.start(tile, *given, 232448, split=split, n_multi=132).variant)


@pytest.mark.parametrize("split", [2, 4, 8])
def test_which_tiles_blocks_can_share(split):
    """A way is listed if, and only if, the kernel has equal shares for so many blocks."""
    problem = real_tiles.Problem(100, 90, 10 * 1024, 4, False, False, True)
    listed = {way.tile for way in real_choice.ways(problem, True, 132, 8) if way.split == split}
    small = {t for t in FLOAT_TILES if not t.copiers and t.rows * t.columns * 4 <= 1 << 15}
    taken = {tile for tile in small if tile.splits_by(split)}
    assert {tile for tile in listed if not tile.copiers} == taken
    for tile in small - taken:
        sizes = (100, 90, 10 * 1024), 4, False, False, (4, 4, 4)
        with pytest.raises(KernelCompileError, match="equal turns"):
            runner.check(real.start(tile, *sizes, 232448, split=split).variant)


@pytest.mark.sweep
@pytest.mark.usefixtures("adding")
@pytest.mark.parametrize("split", [IN_TURNS, AT_ONCE])
@pytest.mark.parametrize(("tile", "k"), TURNS)
def test_blocks_that_add_a_segment_each(tile, k, split):
    """The blocks of a tile begin in any order, and count as they begin, or as they end."""
    layouts = ((False, True), (True, False))
    size = (tile.rows + 1, tile.columns + 3, k)
    compare(tile, size, [layouts[k % 2]], split, orders=(0, 1, 7))


@pytest.mark.usefixtures("adding")
@pytest.mark.parametrize("number", [8, 14])
@pytest.mark.parametrize("split", [IN_TURNS, AT_ONCE])
def test_blocks_in_turns_continue_sums(split, number):
    """Segments are added to what the result holds, and the numbers of turns are 0 again."""
    a, b = matrices(3, 20, 2100, np.float32)
    start, tile = np.full((3, 20), 0.5, np.float32), FLOAT_TILES[number]
    expected, got = start.copy(), start.copy()
    real.product(a, b, expected, False, False, add=1)
    with on_cpu(), recording() as launches:
        real.product(a, b, got, False, False, tile, split=split, add=1)
    assert_same_bits(got, expected)
    (launch,) = launches
    assert not launch.args[-2].any()


STREAMS = (  # tile, rows, columns, terms, multiprocessors
    (FLOAT_TILES[4], 65, 61, 150, 5),  # sums of one segment
    (FLOAT_TILES[2], 128, 68, 1024 + 300, 3),
    (DOUBLE_TILES[16], 33, 64, 2 * 1024, 2),
    (DOUBLE_TILES[17], 192, 61, 90, 4),
)


@pytest.mark.usefixtures("adding")
@pytest.mark.parametrize(("tile", "m", "n", "k", "n_multi"), STREAMS)
def test_blocks_that_make_equal_shares(tile, m, n, k, n_multi, monkeypatch):
    """Chains are passed on within a segment; the numbers by which blocks wait are 0 again."""
    with recording() as launches:
        for number in (n_multi, 1):
            monkeypatch.setattr(real, "multiprocessors", lambda _, number=number: number)
            compare(tile, (m, n, k), [(False, True)], STREAMED, orders=(0, 1, 7))
    assert {one.grid[0] % n_multi for one in launches[:3]} == {0}
    assert len({one.grid[0] for one in launches}) == 2
    assert all(int(one.variant.macros["STREAM"]) for one in launches)
    assert not any(one.args[-2].any() for one in launches)


@pytest.mark.usefixtures("adding")
@pytest.mark.parametrize("number", [4, 17])
def test_equal_shares_of_any_sizes(number, monkeypatch):
    """Wherever the shares are cut: at and within segments, in whole tiles and short last ones."""
    tile = FLOAT_TILES[4] if number == 4 else DOUBLE_TILES[17]
    rng, streamed = np.random.default_rng(number), 0
    while streamed < 12:
        m, n = (int(rng.integers(1, 4 * x)) | 1 for x in (tile.rows, tile.columns))
        k = int(rng.choice([rng.integers(150, 1024), rng.integers(1024, 2300)])) | 1
        if tile.count(m, n) * tile.rows * tile.columns * k > 6e6:  # multiply-adds of the runner
            continue
        n_multi = int(rng.integers(1, 4))
        monkeypatch.setattr(real, "multiprocessors", lambda _, number=n_multi: number)
        with recording() as launches:
            compare(tile, (m, n, k), [(False, True)], STREAMED)
        streamed += sum("STREAM" in one.variant.macros for one in launches)


@pytest.mark.parametrize(("number", "n_multi"), [(4, 5), (10, 2)])
def test_tiles_without_equal_shares(number, n_multi, monkeypatch):
    """A block makes each tile: shares would be shorter than a segment, or some threads copy."""
    tile = FLOAT_TILES[number]
    monkeypatch.setattr(real, "multiprocessors", lambda _: n_multi)
    with recording() as launches:
        compare(tile, (2 * tile.rows + 1, tile.columns, 70), [(False, False)], STREAMED)
    assert [one.grid for one in launches] == [(3,)]


@pytest.mark.usefixtures("adding")
@pytest.mark.parametrize("split", [IN_TURNS, AT_ONCE, STREAMED])
def test_blocks_that_run_side_by_side(split, monkeypatch):
    """All blocks at the same time; of the first one most lanes come late.

    The first lane of a warp counts what its lanes have made, which another block then reads.
    """
    text_of = runner.text_of
    late = "for (int n = blockIdx.x || threadIdx.x % 32 == 0 ? 0 : 100; n; --n) rk_yield();\n"
    edits = (
        ('#include "cuda_on_cpu.h"\n', '{}#include "clusters.h"\n'),
        ("int k, const Sharing &share) {\n", f"{{}}{late}"),
        *([("say(ready + block", late + "{}")] if split == STREAMED else []),
        ("ON_CPU_EXPORT(det_gemm)", "#undef CLUSTER\n#define CLUSTER grid[0]\n{}"),
    )

    def side_by_side(variant):
        text = text_of(variant)
        for old, new in edits:
            assert text.count(old) == 1
            text = text.replace(old, new.replace("{}", old))
        return text

    monkeypatch.setattr(runner, "text_of", side_by_side)
    monkeypatch.setattr(real, "multiprocessors", lambda _: 2)
    tile = FLOAT_TILES[4] if split == STREAMED else FLOAT_TILES[14]  # the other one has copiers
    size = (tile.rows + 1, tile.columns, 2 * 1024 + 70)
    compare(tile, size, [(False, True)], split, orders=(0, 1, 7))


@pytest.mark.parametrize("tile", [FLOAT_TILES[4], DOUBLE_TILES[2], TILES[-1]])
def test_one_block_adds_segments(tile):
    """In shared memory, and in the result."""
    compare(tile, (5, tile.columns + 1, 2 * 1024 + 70), [(False, False)])


@pytest.mark.sweep
@pytest.mark.parametrize("tile", [t for t in TILES if not t.copiers], ids=lambda t: t.name)
def test_every_tile_has_the_same_bits(tile):
    deep = (tile.rows, tile.columns, (tile.stages + 2) * tile.depth + 4)  # copies between steps
    layouts = ((False, False), (False, True), (True, True), (True, False))
    first = TILES.index(tile) % 2 * 2  # two layouts a tile, as compiling takes most of the time
    odd = (*deep[:2], deep[2] + 1)  # and one by one
    for size, n_layout in (((150, 132, 140), 2), (deep, 2), (odd, 1), ((5, 67, 33), 1)):
        compare(tile, size, layouts[first : first + n_layout])


def test_a_gpu_with_little_shared_memory(monkeypatch):
    """Fewer stages, the same bits; every tile fits the 99 KB of compute capability 8.9."""
    for tile in (t for t in TILES if not t.tensor):
        for layout in ((False, False), (False, True), (True, False), (True, True)):
            size = 8 if tile in DOUBLE_TILES else 4
            assert tile.fitted(*layout, size, 101376).shared(*layout, size) <= 101376
    a, b = matrices(3, 20, 520, np.float32)
    monkeypatch.setattr(real, "shared_limit", lambda _: 30000)
    expected = rk.det_gemm(a, b)
    with on_cpu():
        assert_same_bits(rk.det_gemm(a, b), expected)


def test_a_sum_of_vanishing_terms_keeps_its_sign():
    """-0 as a result: a chain must not go on over zeros past its end."""
    a = np.full((3, 5), -1e-30, np.float32)
    b = np.full((5, 6), 1e-30, np.float32)
    got = rk.det_gemm(a, b)
    assert np.signbit(got).all()
    with on_cpu():
        assert_same_bits(rk.det_gemm(a, b), got)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_single_column_lies_like_a_row(dtype):
    """A vector is read along memory whichever of its two shapes it has."""
    a, b = matrices(1, 37, 70, dtype, True, False)
    expected = rk.det_gemm(a, b, trans_a=True)
    column, _ = matrices(70, 1, 33, dtype)
    with on_cpu(), recording() as launches:
        assert_same_bits(rk.det_gemm(a, b, trans_a=True), expected)
        rk.det_gemm(column, np.ones((33, 1), dtype))
    flags = [[int(one.variant.macros.get(f"TRANS_{x}", 0)) for x in "AB"] for one in launches]
    assert flags == [[0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("k", "n", "by_cache"), [(40, 64, 0), (42, 64, 1), (40, 66, 2), (42, 66, 3)]
)
def test_rows_of_doubles_within_sectors(k, n, by_cache):
    """Copies go through the L1 cache where rows begin at odd multiples of 16 bytes."""
    for tile, size, wide, expected in (
        (DOUBLE_TILES[2], 8, 2, by_cache),
        (DOUBLE_TILES[2], 8, 1, 0),  # copies of 8 bytes
        (FLOAT_TILES[3], 4, 2, 0),
    ):
        given = tile, (5, n, k), size, False, False, (wide, wide, wide), 232448
        assert int(real.start(*given).variant.macros.get("BY_CACHE", 0)) == expected
    compare(DOUBLE_TILES[2], (5, n, k), [(False, False)])


def test_which_launches_begin_early():
    """Those with a multiprocessor for each block, or with short blocks."""
    tile, options = FLOAT_TILES[3], {"n_multi": 132}
    sizes = 4, False, True, (4, 4, 4), 232448
    assert real.start(tile, (320, 640, 4096), *sizes, **options).early
    assert not real.start(tile, (320, 960, 4096), *sizes, **options).early
    assert real.start(tile, (320, 960, 256), *sizes, **options).early
    assert not real.start(tile, (32, 64, 4096), *sizes).early  # of a launch of another op


def test_ways_that_are_timed_are_of_several_tiles():
    problem = real_tiles.Problem(300, 640, 4096, 8, False, True, True)
    ways = real_choice.candidates(problem, True, 132, 8, 512)
    assert ways[0] == real_choice.pick(problem, True, 132, 8)
    assert len({way.tile.name for way in ways}) > 2 and len(set(ways)) == len(ways) == 8


def test_whatever_way_the_tuner_takes(monkeypatch):
    """Each way, made the fastest by a clock that says so, gives the bits of the mirror."""
    monkeypatch.setattr(real_choice, "_TIMED", (0.0, np.inf))
    monkeypatch.setattr(real_choice, "_NEAR", {4: 2})
    real_choice.candidates.cache_clear()
    a, b = matrices(5, 40, 1030, np.float32)
    expected, names = rk.det_gemm(a, b), []
    for turn in range(2):

        def measure(way, run, turn=turn):
            run()
            names.append(way.name)
            return abs(len(names) - 1 - turn) + 1.0

        names.clear()
        with tune.use_clock(measure), on_cpu():
            assert_same_bits(rk.det_gemm(a, b), expected)
        assert len(set(names)) == len(names) > 1
    real_choice.candidates.cache_clear()
