"""Products on tensor cores: det_gemm_tensor, det_gemm_mma = mirror = hardware, near float64."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit._kernels import tune
from rpukit.errors import DTypeError, LaunchError, ParameterError, ShapeError
from rpukit.gemm import tensor
from rpukit.gemm._tiles import tensor_choice, tensor_tiles
from rpukit.testing import assert_same_bits, on_cpu
from tests.gemm.gemm_cases import FORMATS, bound, factors, values, words

DATA = Path(__file__).parents[1] / "data/gemm/tensor_core_h200.npz"
SETS = sorted({name.rpartition("-")[0] for name in np.load(DATA).files})


def run(a, b, c, form, tile=None):
    """One chain each, from c: (16, K) times (24, K)."""
    a, b = (x if form == "bfloat16" else x.view(np.float16) for x in (a, b))
    p, q = tensor.factor(a, 1), tensor.factor(b, 1)
    out = tensor.aligned((16, 24), np.float32, _device.CPU)
    start = tensor.aligned((16, 24), np.float32, _device.CPU)
    start[:] = c.view(np.float32)
    tensor.multiply(p, q, out, partial=start, tile=tile)
    return out


@pytest.mark.parametrize("name", SETS)
def test_model_is_the_tensor_core(name):
    """Results that an H200 gave: all exponents, subnormals, overflow, infinities, NaN."""
    data, form = np.load(DATA), name.partition("-")[0]
    a, b, c, expected = (data[f"{name}-{part}"] for part in "abcd")
    got = run(a, b, c, form)
    assert_same_bits(got, expected.view(np.float32))
    with on_cpu(3):
        assert_same_bits(run(a, b, c, form), got)
        assert_same_bits(run(a, b, c, form, tensor_tiles.named("warps turned 32x16")), got)


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("size", [(1, 1, 1), (3, 200, 17), (130, 72, 128), (70, 33, 200)])
def test_kernel_mirror_formula(size, form, order):
    m, n, k = size
    for trans_a, trans_b in ((0, 0), (1, 0), (0, 1), (1, 1)):
        if order and trans_a + trans_b == 1:
            continue
        a, b = factors(m, n, k, form, trans_a, trans_b)
        options = {"trans_a": bool(trans_a), "trans_b": bool(trans_b)}
        wide = rk.det_gemm(a, b, out_dtype=np.float32, **options)
        with on_cpu(order):
            assert_same_bits(rk.det_gemm(a, b, out_dtype=np.float32, **options), wide)
        left, right = values(a.T if trans_a else a), values(b.T if trans_b else b)
        assert (abs(wide - left @ right) <= bound(left, right)).all()
        narrow = rk.det_gemm(a, b, **options)
        rounded = rk.gemm.to_bfloat16(wide) if form == "bfloat16" else wide.astype(np.float16)
        assert_same_bits(narrow, rounded)
        with on_cpu(order):
            assert_same_bits(rk.det_gemm(a, b, **options), narrow)


FITTED = [
    tensor_tiles.named(name)
    for name in (
        "turned 64x208 cluster 4x1",
        "turned 128x144 cluster 2x1",
        "turned 128x160 cluster 1x4",
        "turned 64x48 deep cluster 2x2",
        "turned 192x112",
        "64x80 cluster 2x1",
        "128x144",
        "192x112 cluster 2x1",
        "128x240 cluster 2x1",
        "192x80 cluster 2x2",
        "64x96 cluster 1x4",
    )
]


@pytest.mark.sweep
@pytest.mark.parametrize(
    "tile", [*tensor_tiles.TILES, *tensor_tiles.WARP_TILES, *FITTED], ids=lambda tile: tile.name
)
def test_every_tile_has_the_same_bits(tile):
    m, n, k = 130, 264, 136
    for trans_a, trans_b in ((False, False), (True, True)):
        a, b = factors(m, n, k, "bfloat16", trans_a, trans_b)
        p, q = tensor.factor(a, 1 - trans_a), tensor.factor(b, int(trans_b))
        for dtype in (np.uint16, np.float32):
            expected = tensor.aligned((m, n), dtype, _device.CPU)
            tensor.multiply(p, q, expected)
            got = tensor.aligned((m, n), dtype, _device.CPU)
            with on_cpu(7):
                tensor.multiply(p, q, got, tile=tile)
            assert_same_bits(got, expected)


def sums_that_go_on(tile, device):
    """Two halves, the second from where the first stopped: on top of a total, and in place."""
    m, n = (40, 24) if "turned" in tile else (130, 264)
    a, b = (_device.to_device(x, device) for x in factors(m, n, 96, "float16"))
    halves = [
        (tensor.factor(a[:, s], 1), tensor.factor(b[s], 0)) for s in (slice(48), slice(48, 96))
    ]
    half, got, total = (tensor.aligned((m, n), np.float32, device) for _ in range(3))
    total[:] = _device.to_device(words((m, n), "float16", 5), device)
    options = {"tile": tensor_tiles.named(tile)}
    tensor.multiply(*halves[0], half, **options)
    tensor.multiply(*halves[1], got, partial=half, total=total, **options)
    tensor.multiply(*halves[1], half, partial=half, **options)
    return got, half


@pytest.mark.sweep
@pytest.mark.parametrize(
    "tile", ["128x256", "64x192", "128x64", "turned 64x16", "warps 64x64", "warps turned 32x16"]
)
def test_chains_go_on_and_are_added(tile):
    """Several tiles a block."""
    m, n = (40, 24) if "turned" in tile else (130, 264)
    whole = rk.det_gemm(*factors(m, n, 96, "float16"), out_dtype=np.float32)
    total = words((m, n), "float16", 5)
    got, half = sums_that_go_on(tile, _device.CPU)
    assert_same_bits(got, total + whole)
    assert_same_bits(half, whole)
    with on_cpu(1):
        again = sums_that_go_on(tile, _device.CPU)
    assert_same_bits(again[0], got)
    assert_same_bits(again[1], half)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "tile", [tile.name for tile in tensor_tiles.EVERY if tensor_tiles.lone(tile) == tile]
)
def test_chains_go_on_on_a_gpu(tile):
    expected = sums_that_go_on(tile, _device.CPU)
    for got, wanted in zip(
        sums_that_go_on(tile, _device.parse_device("gpu")), expected, strict=True
    ):
        assert_same_bits(got, wanted)


def test_the_chain_restarts_at_every_segment():
    k = 2 * 4096 + 40
    a, b = factors(2, 9, k, "bfloat16")
    got = rk.det_gemm(a, b, out_dtype=np.float32)
    parts = [
        rk.det_gemm(a[:, s:e], b[s:e], out_dtype=np.float32)
        for s, e in ((0, 4096), (4096, 8192), (8192, k))
    ]
    assert_same_bits(got, (parts[0] + parts[1]) + parts[2])
    with on_cpu():
        assert_same_bits(rk.det_gemm(a, b, out_dtype=np.float32), got)
        assert_same_bits(rk.det_gemm(a, b), rk.gemm.to_bfloat16(got))


def sums_of_segments(tile, k, device):
    """Results by a tile, float32 and rounded; none if it does not take the layout."""
    a, b = (_device.to_device(x, device) for x in factors(130, 200, k, "bfloat16", False, True))
    p, q = tensor.in_place(a, 1), tensor.in_place(b, 1)
    made = [_device.empty((130, 200), dtype, device) for dtype in (np.float32, np.uint16)]
    for out in made:
        tensor.multiply(p, q, out, tile=tile)
    return made


JOINED = [tensor_tiles.joined(tile) for tile in tensor_tiles.TILES if tensor_tiles.joins(tile, 3)]
WITH_SEGMENTS = [
    *tensor_tiles.TILES,
    *(tensor_tiles.apart(tile) for tile in tensor_tiles.TILES),
    *JOINED,
    *FITTED,
    "warps 64x64",
]


@pytest.mark.sweep
@pytest.mark.parametrize("tile", WITH_SEGMENTS, ids=lambda tile: getattr(tile, "name", tile))
def test_every_tile_sums_segments(tile, monkeypatch):
    """One after another, or by blocks of their own, with sums where there is room for them."""
    monkeypatch.setattr(tensor, "SEGMENT", 256)
    tile = tensor_tiles.named(getattr(tile, "name", tile))
    expected = sums_of_segments(None, 584, _device.CPU)
    with on_cpu(7):
        got = sums_of_segments(tile, 584, _device.CPU)
    for x, y in zip(got, expected, strict=True):
        assert_same_bits(x, y)


@pytest.mark.parametrize("n_multi", [2, 3, 5, 7])  # the last segments to all blocks, or to some
@pytest.mark.parametrize(
    "name", ["64x64", "128x64", "192x192 cluster 1x2", "turned 64x32 in threes", "turned 64x48"]
)
def test_whole_tiles_then_segments(name, n_multi, monkeypatch):
    """More tiles than blocks: the last ones, which do not occupy all, are computed by segments."""
    monkeypatch.setattr(tensor, "SEGMENT", 256)
    monkeypatch.setattr(tensor_tiles, "multiprocessors", lambda device: n_multi)
    tile = tensor_tiles.apart(tensor_tiles.named(name))
    expected = sums_of_segments(None, 584, _device.CPU)
    with on_cpu(n_multi):
        got = sums_of_segments(tile, 584, _device.CPU)
    for x, y in zip(got, expected, strict=True):
        assert_same_bits(x, y)


@pytest.mark.parametrize("n", [200, 203])
def test_single_warps_sum_segments(n, monkeypatch):
    """Launches of one segment each, also where lines do not end at multiples of 16 bytes."""
    monkeypatch.setattr(tensor, "SEGMENT", 128)
    a, b = factors(33, n, 456, "float16", False, True)
    p, q = tensor.tight(tensor.in_place(a, 1), tensor.in_place(b, 1))
    expected, got = np.empty((33, n), np.float32), np.empty((33, n), np.float32)
    tensor.multiply(p, q, expected)
    with on_cpu(7):
        tensor.multiply(p, q, got, tile=tensor_tiles.named("warps 64x64"))
    assert_same_bits(got, expected)
    with pytest.raises(ParameterError, match="at most 128 terms"):
        tensor.multiply(p, q, got, total=expected)


@cache
def expected_sums(k):
    return sums_of_segments(None, k, _device.CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("tile", [*WITH_SEGMENTS, *tensor_tiles.THIN_TILES], ids=str)
def test_every_tile_sums_segments_on_a_gpu(tile, monkeypatch):
    tile, k = tensor_tiles.named(getattr(tile, "name", tile)), 2 * tensor.SEGMENT + 72
    for n_multi in (132, 3):  # with 3, some tiles are computed whole by their blocks
        monkeypatch.setattr(tensor_tiles, "multiprocessors", lambda device, n=n_multi: n)
        base = tensor_tiles.named(tile.base)
        ways = {tile, tensor_tiles.apart(base)}
        ways |= {tensor_tiles.joined(base)} if tensor_tiles.joins(base, 3) else set()
        if isinstance(tile, tensor_tiles.Tile):
            ways |= {tensor_tiles.streamed(way) for way in ways if not way.joined}
        for one in ways:
            got = sums_of_segments(one, k, _device.parse_device("gpu"))
            for x, y in zip(got, expected_sums(k), strict=True):
                assert_same_bits(_device.to_numpy(x), y)


@pytest.mark.parametrize("form", FORMATS)
def test_rows_do_not_know_their_batch(form, device):
    a, b = factors(200, 72, 100, form)
    if device == "gpu":
        a, b = (_device.to_device(x, _device.parse_device("gpu")) for x in (a, b))
    whole = _device.to_numpy(rk.det_gemm(a, b))
    a[150:] = np.nan if form == "float16" else 0x7FC0  # rows of padding, whatever they hold
    for rows in (
        slice(0, 1),
        slice(7, 8),
        slice(0, 16),
        slice(3, 67),
        slice(0, 150),
        slice(70, 150),
    ):
        assert_same_bits(rk.det_gemm(a[rows], b), whole[rows])
    assert_same_bits(rk.det_gemm(a, b)[:150], whole[:150])


def test_strides_do_not_change_bits():
    a, b = factors(37, 50, 61, "bfloat16")
    whole = rk.det_gemm(a, b)
    wide = np.zeros((80, 130), np.uint16)
    wide[::2, 3:125:2][:37] = a
    views = [a, np.asfortranarray(a), wide[::2, 3:125:2][:37], a[:, ::-1][:, ::-1], a[::-1][::-1]]
    for view in views:
        assert_same_bits(rk.det_gemm(view, b), whole)
        with on_cpu():
            assert_same_bits(rk.det_gemm(view, np.asfortranarray(b)), whole)
    out = np.zeros((37, 50), np.uint16)
    with on_cpu():
        assert rk.det_gemm(a, b, out=out) is out
    assert_same_bits(out, whole)


def test_empty_products():
    for m, n, k in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        a, b = factors(m, n, k, "float16")
        assert_same_bits(rk.det_gemm(a, b), np.zeros((m, n), np.float16))


def test_rounding_of_results():
    """All roundings of the mirror: ties, subnormals, overflow, against NumPy's float16."""
    x = np.arange(0, 1 << 32, 65521, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([x[np.isfinite(x)], np.float32([65519.9, 65520, 2**-25, 2**-24 * 1.5])])
    column = np.ascontiguousarray(x[: x.size // 8 * 8].reshape(-1, 8))
    zero = tensor.factor(np.zeros((column.shape[0], 8), np.float16), 1)
    zero_b = tensor.factor(np.zeros((8, 8), np.float16), 1)
    out = tensor.aligned((column.shape[0], 8), np.uint16, _device.CPU)
    tensor.multiply(zero, zero_b, out, total=column)
    with np.errstate(over="ignore"):
        assert_same_bits(out.view(np.float16), (column + np.float32(0)).astype(np.float16))


def test_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a, b = factors(9, 24, 33, "bfloat16")
    expected = rk.det_gemm(a, b)
    got = rk.det_gemm(a.view(ml_dtypes.bfloat16), b.view(ml_dtypes.bfloat16))
    assert got.dtype == ml_dtypes.bfloat16
    assert_same_bits(got.view(np.uint16), expected)
    x = np.float32([1.00390625, np.nan, -np.inf, 3e38, 1e-45])
    assert_same_bits(rk.gemm.to_bfloat16(x).view(ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16))


def test_bad_calls():
    a, b = factors(3, 4, 5, "float16")
    with pytest.raises(DTypeError, match="float32"):
        rk.det_gemm(a, b, out_dtype=np.float64)
    with pytest.raises(DTypeError, match="same"):
        rk.det_gemm(a, b.astype(np.float32))
    with pytest.raises(ShapeError, match="out"):
        rk.det_gemm(a, b, out=np.zeros((3, 4), np.float64))
    square = np.zeros((8, 8), np.float16)
    with pytest.raises(ShapeError, match="overlaps"):
        rk.det_gemm(square, square.copy(), out=square)
    with pytest.raises(DTypeError, match="uint16"):
        rk.gemm.from_bfloat16(np.zeros(2, np.float32))
    with pytest.raises(DTypeError, match="int32"):
        rk.gemm.arithmetic(np.int32)
    with pytest.raises(LaunchError, match="tensor map"):
        tensor.tensor_map(np.zeros((4, 5), np.uint16), 64)


@pytest.mark.parametrize("m", [40, 100])
def test_whatever_tile_the_tuner_takes(m):
    """Each candidate, made the fastest by a clock that says so, gives the bits of the mirror."""
    a, b = factors(m, 200, 96, "bfloat16")
    expected = rk.det_gemm(a, b)
    names = [t.name for t in tensor_choice.candidates(m, 200, 96, False, True, _device.CPU)]
    assert len(set(names)) == len(names)
    assert len(names) > 1
    for wanted in names:
        timed = []

        def measure(tile, run, wanted=wanted, timed=timed):
            timed.append(tile.name)
            run()
            return 1.0 if tile.name == wanted else 2.0

        p, q, got = tensor.factor(a, 1), tensor.factor(b, 0), np.empty_like(expected)
        with tune.use_clock(measure), on_cpu():
            for _ in range(2):
                tensor.product(p, q, got, thin=False)
                assert_same_bits(got, expected)
            assert tensor.choose(p, q, expected, (0, 96)).name == wanted
        assert timed == names


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMATS)
def test_gpu(form):
    import cupy

    for m, n, k in (
        (1, 1, 1),
        (1, 64, 4096),
        (64, 200, 100),
        (333, 520, 1096),
        (200, 1000, 20000),
    ):
        for trans_a, trans_b in ((False, False), (True, True)):
            a, b = factors(m, n, k, form, trans_a, trans_b)
            options = {"trans_a": trans_a, "trans_b": trans_b}
            expected = rk.det_gemm(a, b, **options)
            got = rk.det_gemm(cupy.asarray(a), cupy.asarray(b), **options)
            assert_same_bits(got, expected)


@pytest.mark.gpu
def test_calls_that_come_again():
    """A kept launch sees what lies at its addresses now, and refuses what was refused before."""
    import cupy

    a, b = (cupy.asarray(x) for x in factors(40, 64, 128, "float16"))
    first = rk.det_gemm(a, b)
    assert_same_bits(rk.det_gemm(a, b), first)
    a[:] = cupy.asarray(words((40, 128), "float16", 7))
    expected = rk.det_gemm(a.get(), b.get())
    out = cupy.empty((40, 64), np.float16)
    for _ in range(3):
        assert_same_bits(rk.det_gemm(a, b), expected)
        assert rk.det_gemm(a, b, out=out) is out
        assert_same_bits(out, expected)
        wide = rk.det_gemm(a, b, out_dtype=np.float32)
        assert_same_bits(wide, rk.det_gemm(a.get(), b.get(), out_dtype=np.float32))
        assert_same_bits(rk.det_gemm(a.T, b, trans_a=True), expected)
    square = cupy.zeros((64, 64), np.float16)
    other = square.copy()
    for _ in range(2):
        rk.det_gemm(square, other, out=cupy.empty_like(square))
        with pytest.raises(ShapeError, match="overlaps"):
            rk.det_gemm(square, other, out=square)
        with pytest.raises(ShapeError, match="out"):
            rk.det_gemm(square, other, out=cupy.empty((64, 63), np.float16))


@pytest.mark.gpu
@pytest.mark.parametrize("m", [3, 64, 300])
def test_launches_that_overlap_see_what_came_before(m):
    """Products that may begin while the one before ends, each on its result; also in a graph."""
    import cupy

    weights = [cupy.asarray(words((512, 512), "float16", s, 0.06)) for s in range(3)]
    x = [cupy.asarray(words((m, 512), "float16", 9)) for _ in range(2)]
    expected = x[0].get()
    for step in range(12):
        expected = rk.det_gemm(expected, weights[step % 3].get())

    def chain():
        for step in range(12):
            rk.det_gemm(x[step % 2], weights[step % 3], out=x[1 - step % 2])

    start = x[0].copy()
    for _ in range(4):
        x[0][:] = start
        chain()
        assert_same_bits(x[0], expected)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        chain()
        graph = stream.end_capture()
        for _ in range(20):
            x[0][:] = start
            graph.launch(stream)
        stream.synchronize()
    assert_same_bits(x[0], expected)
