"""CUDA graphs of products: the memory that a graph uses is kept until the end."""

import numpy as np
import pytest

import rpukit as rk
from rpukit._kernels.launch import recording
from rpukit.gemm import lines, logprob, real
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
    "two segments": (lambda a, b: rk.det_gemm(a, b, trans_b=True), "f2", (3, 16450), (9, 16450)),
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
    for module in (lines, logprob, real):
        monkeypatch.setattr(module, "keep_for_graph", lambda *x: kept.extend(x))
    with on_cpu(), recording() as launches:
        got = call(a, b)
    assert_same_bits(got, expected)
    assert used(launches)
    for x in used(launches):
        assert any(np.may_share_memory(x, y) for y in (a, b, got, *kept))


@pytest.mark.gpu
@pytest.mark.parametrize(("k", "step"), [(75, 1), (16450, 1), (70, 2)])
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
