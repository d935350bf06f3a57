"""Launches of tiles by blocks that share memory: the bits of the mirrors, whatever the shape."""

import numpy as np
import pytest

from rpukit._exact import twins
from rpukit.testing import assert_same_bits, on_cpu
from rpukit.tiled.runtime import launch as kernels

NONE = [0] * 8
BOTH = pytest.mark.parametrize(("dtype", "order"), [("float32", 1), ("float64", 7)])


def check(name, module, ints, floats, buffers, changed, macros, order):
    """Compare a launch with the mirror, and the macros of its kernels with those expected."""
    dtype = buffers[0].dtype
    ints, floats = np.array(ints, np.int64), np.array(floats, dtype)
    want, found = ([b.copy() for b in buffers] for _ in range(2))
    mirror = getattr(twins.mirror(f"rpukit.tiled._mirror.{module}", dtype), name)
    mirror(0, int(ints[0]), ints, floats, *want)
    starts = kernels.starts_of(name, ints, dtype.itemsize, kernels.parts_of(name, ints))
    assert [tuple(start.macros.get(key) for key in macros) for start in starts] == [
        tuple(values) for values in zip(*macros.values(), strict=True)
    ]
    with on_cpu(order):
        kernels.launch(name, ints, (ints, floats), found)
    for k in changed:
        assert_same_bits(found[k], want[k])


def normal(rng, dtype, *sizes):
    return [rng.standard_normal(size).astype(dtype) for size in sizes]


@BOTH
@pytest.mark.parametrize(("rows", "n"), [(3, 37), (515, 64), (2, 1030)])
def test_rows_in_shared_memory(dtype, rows, n, order):
    rng, team = np.random.default_rng(n), {"TEAM": [256]}
    x, slope, out = normal(rng, dtype, rows * n, rows * n, rows * n)
    scale, bias, mean, inv = normal(rng, dtype, n, n, rows, rows)
    x[::17], x[5], x[n], x[n + 3], x[2 * n - 1] = 0, -np.inf, np.nan, np.nan, -0.0
    for kind in (0, 1):
        ints = [rows, kind, n, 1, 0, 0]
        check("tiled_softmax", "rows", ints, [1e-5], [x, out], [1], team, order)
        grad = [slope, np.abs(slope), out]
        check("tiled_softmax_grad", "rows", ints, [1e-5], grad, [2], team, order)
    ints = [rows, 0, n, 1, 1, 1]
    norm = [x, scale, bias, out, mean, inv]
    check("tiled_layer_norm", "rows", ints, [1e-5], norm, [3, 4, 5], team, order)
    grad = [slope, x, scale, mean, inv, out]
    check("tiled_layer_norm_grad", "rows", ints, [1e-5], grad, [5], team, order)


# b0, b1, m, n, k, transposed a and b, first, last, long, bias, TILE
STACKS = [
    (2, 3, 40, 70, 50, 0, 0, 1, 1, 0, 0, 64),
    (2, 1, 100, 64, 33, 1, 1, 0, 2, 0, 1, 64),
    (1, 2, 17, 130, 64, 0, 1, 0, 1, 1, 1, 32),
    (1, 1, 64, 64, 64, 1, 0, 1, 0, 0, 0, 64),
    (3, 1, 29, 66, 7, 0, 0, 1, 1, 0, 2, 32),
    (2, 2, 11, 70, 33, 0, 1, 1, 1, 0, 0, 16),
    (2, 1, 7, 40, 70, 1, 0, 0, 1, 0, 1, 8),
    (1, 2, 3, 5, 40, 0, 0, 1, 1, 0, 0, None),
]


@BOTH
def test_stacks_of_products_by_blocks(dtype, order):
    rng = np.random.default_rng(1)
    for b0, b1, m, n, k, turn_a, turn_b, *flags, bias, tile in STACKS:
        a, b = ([1, m] if turn_a else [k, 1]), ([k, 1] if turn_b else [1, n])
        strides = [b1 * m * k, m * k, a[0], 0, a[1], b1 * n * k, n * k, 0, *b]
        strides += [0, 0, 0, bias == 1, 0, b1 * m * n, m * n, n, 1, 0]
        ints = [b0 * b1 * m, b0, b1, m, n, k, *flags, bias, *strides]
        buffers = normal(rng, dtype, b0 * b1 * m * k, b0 * b1 * n * k, n, b0 * b1 * m * n)
        check("tiled_gemm", "gemm", ints, [0.5, 2.0], buffers, [3], {"TILE": [tile]}, order)


def reduction(kind, first, last, free, summed, strides, dtype, sizes):
    ints = [int(np.prod(free)), kind, first, last, *free, *summed, *np.ravel(strides)]
    return ints, normal(np.random.default_rng(kind), dtype, *sizes)


@pytest.mark.sweep
@BOTH
@pytest.mark.parametrize("kind", range(5))
def test_sums_of_rows_by_many_blocks(dtype, kind, order):
    n, c, h, w = 4, 3, 9, 40
    image, own = [0, 0, 0, h * w, 0, c * h * w, w, 1], [0, 0, 0, 1, 0, 0, 0, 0]
    strides = [image, image if kind == 3 else own, own, own, own]
    for first, last in ((1, 1), (0, 1), (1, 0)):
        sizes = [n * c * h * w] * 4 + [c]
        given = reduction(kind, first, last, (1, 1, 1, c), (1, n, h, w), strides, dtype, sizes)
        parts = {"PARTS": [1, 2]}
        check("tiled_reduce", "reductions", given[0], [7.0, 1e-5], given[1], [4], parts, order)


@BOTH
@pytest.mark.parametrize(("n", "w"), [(4, 40), (15, 40), (30, 7)])
def test_sums_of_rows_without_room_for_parts(dtype, n, w, order):
    """A block for each sum, whose warps load strips of the same rows where there are few."""
    c, h = 2, 9
    image, own = [0, 0, 0, h * w, 0, c * h * w, w, 1], [0, 0, 0, 1, 0, 0, 0, 0]
    sizes = [n * c * h * w] * 4 + [c]
    for kind in (2, 3):
        strides = [image, image if kind == 3 else own, own, own, own]
        ints, buffers = reduction(kind, 0, 1, (1, 1, 1, c), (1, n, h, w), strides, dtype, sizes)
        ints, floats = np.array(ints, np.int64), np.array([7.0, 1e-5], dtype)
        want, found = ([b.copy() for b in buffers] for _ in range(2))
        mirror = twins.mirror("rpukit.tiled._mirror.reductions", floats.dtype).tiled_reduce
        mirror(0, c, ints, floats, *want)
        with on_cpu(order):
            kernels.bind("tiled_reduce", ints, (ints, floats), found)()
        assert_same_bits(found[4], want[4])


def test_many_parts_of_a_sum():
    rows = [0, 0, 0, 0, 0, 0, 32, 1]
    given = reduction(
        4,
        0,
        1,
        (1,) * 4,
        (1, 1, 4200, 32),
        [rows, rows, NONE, NONE, NONE],
        "float32",
        [4200 * 32] * 5,
    )
    parts = {"PARTS": [1, 2]}
    check("tiled_reduce", "reductions", given[0], [7.0, 1e-5], given[1], [4], parts, 1)


@BOTH
@pytest.mark.parametrize("along", [False, True])
def test_sums_over_one_axis(dtype, along, order):
    """Rows that lie along memory pass through shared memory; others have a thread each."""
    n, m = 70, 45
    step = [0, 0, 0, m, 0, 0, 1, 0] if along else [0, 0, 0, 1, 0, 0, n, 0]
    each, own = [0, 0, 0, 0, 0, 0, 1, 0], [0, 0, 0, 1, 0, 0, 0, 0]
    for kind in (0, 1, 3):
        strides, sizes = [step, step, each, each, own], [n * m] * 4 + [n]
        given = reduction(kind, 0, 1, (1, 1, 1, n), (1, 1, m, 1), strides, dtype, sizes)
        parts = {"PARTS": [1 if along else None]}
        check("tiled_reduce", "reductions", given[0], [7.0, 1e-5], given[1], [4], parts, order)
