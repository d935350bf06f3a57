"""CUDA graphs of products: the memory that a graph uses is kept until the end."""

import numpy as np
import pytest

import rpukit as rk
from rpukit._kernels.launch import recording
from rpukit.gemm import _segments, _turns, lines, logprob, real
from rpukit.gemm._tiles import real_tiles
from rpukit.testing import assert_same_bits, on_cpu
from tests.gemm.gemm_cases import words


def lines_apart(shape, dtype, seed):
    """Matrix of every other column, which products copy."""
    rows, columns = shape
    if np.dtype(dtype).itemsize == 2:
        return words((rows, 2 * columns), "float16", seed, 0.1)[:, ::2]
    return np.random.default_rng(seed).standard_normal((rows, 2 * columns)).astype(dtype)[:, ::2]


def used(launches):
    """Arrays of matrices that recorded launches read or write; not maps of them."""
    every = [x for one in launches for x in one.args if isinstance(x, np.ndarray)]
    return [x for x in every if x.dtype.name in ("uint16", "int64", "float32", "float64")]


CALLS = {
    "float32": (lambda a, b: rk.det_gemm(a, b, trans_b=True), "f4", (3, 70), (9, 70)),
    "ragged": (lambda a, b: rk.det_gemm(a, b, trans_b=True), "f2", (70, 75), (90, 75)),
    "two segments": (lambda a, b: rk.det_gemm(a, b, trans_b=True), "f2", (3, 4150), (9, 4150)),
    "log-probabilities": (
        lambda a, b: rk.linear_logprob(a, b, np.array([3, 0, 8], np.int64)),
        "f4",
        (3, 8),
        (9, 8),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_copies_and_partial_sums_are_kept(monkeypatch, name):
    """All that launches use is given by the caller, returned, or kept."""
    call, dtype, *shapes = CALLS[name]
    a, b = (lines_apart(shape, dtype, seed) for seed, shape in enumerate(shapes))
    expected, kept = call(a, b), []
    for module in (_segments, _turns, lines, logprob, real):
        monkeypatch.setattr(module, "keep_for_graph", lambda *x: kept.extend(x))
    with on_cpu(), recording() as launches:
        got = call(a, b)
    assert_same_bits(got, expected)
    assert used(launches)
    for x in used(launches):
        assert any(np.may_share_memory(x, y) for y in (a, b, got, *kept))


@pytest.mark.gpu
@pytest.mark.parametrize(("k", "step"), [(75, 1), (4150, 1), (70, 2)])
def test_a_graph_survives_other_arrays(k, step):
    """Arrays made after a capture do not get memory that the graph writes to."""
    import cupy

    a, b = (cupy.asarray(words((n, step * k), "float16", n, 0.1))[:, ::step] for n in (70, 90))
    out = rk.det_gemm(a, b, trans_b=True)
    expected = out.get()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        rk.det_gemm(a, b, trans_b=True, out=out)
        stream.begin_capture()
        rk.det_gemm(a, b, trans_b=True, out=out)
        graph = stream.end_capture()
        others = [
            cupy.full(n, 7, np.uint8) for n in (1 << 13, 1 << 14, 1 << 15) for _ in range(64)
        ]
        out.fill(0)
        graph.launch(stream)
        stream.synchronize()
    assert_same_bits(out, expected)
    assert all(bool((x == 7).all()) for x in others)


@pytest.mark.gpu
def test_a_capture_of_any_mode_may_allocate():
    """Copies of ragged factors need memory, which the usual mode of other libraries forbids."""
    import cupy

    a, b = (cupy.asarray(words((n, 1001), "float16", n, 0.1)) for n in (1000, 901))
    expected = rk.det_gemm(a, b, trans_b=True).get()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        outs = [cupy.empty((1000, 901), np.float16) for _ in range(3)]
        rk.det_gemm(a, b, trans_b=True, out=outs[0])
        stream.synchronize()
        cupy.get_default_memory_pool().free_all_blocks()
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        for out in outs:
            rk.det_gemm(a, b, trans_b=True, out=out)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    for out in outs:
        assert_same_bits(out, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("split", [real_tiles.IN_TURNS, real_tiles.AT_ONCE, real_tiles.STREAMED])
def test_blocks_in_turns_in_graphs_and_repeated_calls(monkeypatch, split):
    """Graphs, and each stream's repeated calls, have numbers of turns of their own."""
    import cupy

    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((100, 5000)), rng.standard_normal((5000, 70))
    expected = rk.det_gemm(x, y)
    way = real_tiles.Way(real_tiles.DOUBLE_TILES[3], split)
    monkeypatch.setattr(real, "_choose", lambda *_: way)
    monkeypatch.setattr(real, "multiprocessors", lambda _: 4)
    a, b, out = cupy.asarray(x), cupy.asarray(y), cupy.empty((100, 70))
    cupy.cuda.Device().synchronize()
    for _ in range(2):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(3):
                out.fill(0)
                rk.det_gemm(a, b, out=out)
                assert_same_bits(out, expected)
            stream.begin_capture()
            for _ in range(2):
                rk.det_gemm(a, b, out=out)
            graph = stream.end_capture()
            for _ in range(2):
                out.fill(0)
                graph.launch(stream)
                rk.det_gemm(a, b, out=out)
                graph.launch(stream)
                assert_same_bits(out, expected)
            stream.synchronize()
