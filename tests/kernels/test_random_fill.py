"""random_fill: kernel = mirror = Philox in plain Python, and what an element's draw depends on."""

import numpy as np
import pytest
from scipy.special import ndtri

import rpukit as rk
from rpukit import _device
from rpukit.errors import DeviceError, DTypeError, ParameterError, ShapeError
from rpukit.random import Op, Stream, philox4x32
from rpukit.testing import assert_same_bits, on_cpu

fill = rk.elementwise.random_fill
STREAM = Stream.from_seed(11)
KINDS = ("bits", "uniform", "normal")


def word(stream, op, index, sample, draw):
    """One draw in plain Python, from the layout of the counter."""
    low, high = 0xFFFFFFFF, 32
    counter = (
        index & low,
        sample & low,
        (sample >> high) + (op << 16),
        (draw >> 2) + (index >> high << 16),
    )
    return philox4x32(counter, (stream.key0, stream.key1))[draw & 3]


@pytest.mark.parametrize("n", [0, 1, 31, 257, 1009])
@pytest.mark.parametrize("kind", KINDS)
def test_kernel_mirror_formula(kind, n, order):
    place = {"op": Op.CELLS, "sample": (1 << 47) + 12345, "draw": 65_533}
    mirror = fill(STREAM, n, kind, **place)
    with on_cpu(order):
        assert_same_bits(fill(STREAM, n, kind, **place), mirror)
    words = np.array(
        [word(STREAM, Op.CELLS, i, place["sample"], 65_533) for i in range(n)], np.uint32
    )
    uniform = ((words >> 9) + 0.5) / 2**23
    if kind == "bits":
        assert_same_bits(mirror, words)
    elif kind == "uniform":
        assert_same_bits(mirror, uniform.astype(np.float32))
    else:
        assert mirror.dtype == np.float32
        assert np.abs(mirror - ndtri(uniform)).max(initial=0) < 1e-6


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_gpu_is_mirror(kind):
    got = fill(STREAM, (1000, 1009), kind, sample=3, draw=5, device="gpu")
    assert_same_bits(_device.to_numpy(got), fill(STREAM, (1000, 1009), kind, sample=3, draw=5))


@pytest.mark.parametrize("kind", KINDS)
def test_shape_and_threads_do_not_matter(kind):
    flat = fill(STREAM, 120_000, kind)
    assert_same_bits(fill(STREAM, (300, 400), kind).reshape(-1), flat)
    assert_same_bits(fill(STREAM, 77, kind), flat[:77])
    for threads in (1, 3):
        rk.set_num_threads(threads)
        try:
            assert_same_bits(fill(STREAM, 120_000, kind), flat)
        finally:
            rk.set_num_threads(None)


def test_every_coordinate_matters():
    base = {"op": 3, "sample": 5, "draw": 6}
    seen = [fill(STREAM, 64, "bits", **base)]
    for name in base:
        seen.append(fill(STREAM, 64, "bits", **{**base, name: base[name] + 1}))
    seen.append(fill(STREAM, 64, "bits", **{**base, "sample": 5 + (1 << 32)}))
    seen.append(fill(STREAM.child(0), 64, "bits", **base))
    assert np.unique(np.concatenate(seen)).size == 64 * len(seen)


def test_kinds_are_of_the_same_words(device):
    bits, uniform = (
        _device.to_numpy(fill(STREAM, 1000, kind, device=device)) for kind in ("bits", "uniform")
    )
    assert_same_bits(uniform, (((bits >> np.uint32(9)) + 0.5) / 2**23).astype(np.float32))


def test_out():
    out = np.empty((3, 5), np.float32)
    assert fill(STREAM, (3, 5), out=out) is out
    assert_same_bits(out, fill(STREAM, (3, 5)))
    with pytest.raises(DTypeError, match="out"):
        fill(STREAM, (3, 5), "bits", out=out)
    with pytest.raises(ShapeError, match="out"):
        fill(STREAM, (5, 3), out=out)
    assert fill(STREAM, ()).shape == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "gaussian"},
        {"op": 0xFFFF},  # the tag of child streams
        {"op": -1},
        {"sample": 1 << 48},
        {"sample": -1},
        {"sample": 0.5},
        {"draw": 1 << 16},
        {"device": "tpu"},
    ],
)
def test_parameters_are_checked(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        fill(STREAM, 3, **wrong)


def test_shape_is_checked():
    with pytest.raises(ShapeError, match="shape"):
        fill(STREAM, (3, -1))


@pytest.mark.skipif(_device.gpu_count() > 0, reason="there is a GPU")
def test_without_a_gpu_the_error_says_what_to_do():
    with pytest.raises(DeviceError, match="nvidia-smi|pip install"):
        fill(STREAM, 3, device="gpu")
