"""Tiles on a GPU: the bits of the CPU on any stream, captured or not; errors; transfers."""

import pickle
from itertools import pairwise

import numpy as np
import pytest

import rpukit as rk
from rpukit._device import to_numpy
from rpukit.errors import DeviceError, NonFiniteError
from rpukit.testing import assert_same_bits
from tests.analog.test_tile import CELLS, SHAPE, UPDATES, batch, life, make

pytestmark = pytest.mark.gpu


@pytest.fixture
def cp():
    return pytest.importorskip("cupy")


def gpu_life(tile, cuts, seed=0):
    """``test_tile.life`` with inputs on the GPU."""
    import cupy

    x, d = (cupy.asarray(v) for v in batch(sum(cuts), tile.shape, seed))
    edges = np.cumsum((0, *cuts))
    parts = [slice(a, b) for a, b in pairwise(edges)]
    for part in parts:
        tile.update(x[part], d[part], lr=0.3)
    tile.post_step()
    tile.reset(tile.shape[1] // 2, min(5, tile.shape[1]), 0.5)
    seen = [
        np.concatenate([to_numpy(product(v[part])) for part in parts])
        for product, v in ((tile.forward, x), (tile.backward, d))
    ]
    tile.update(x[:7], d[:7], lr=-0.1)
    return [*seen, to_numpy(tile.get_weights()), np.array([tile.n_pulses])]


def same(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("cell", CELLS)
def test_gpu_equals_cpu(cell, update):
    same(gpu_life(make(cell, update, device="gpu"), (1, 30, 97)), life(make(cell, update), (128,)))


@pytest.mark.parametrize("shape", [(1, 1), (1, 31), (33, 1), (67, 132), (130, 1028), (257, 1031)])
@pytest.mark.parametrize("cell", ["ideal", "constant", "soft_write_noise"])
def test_awkward_shapes(shape, cell):
    gpu, cpu = (
        rk.AnalogTile(shape, CELLS[cell], seed=5, device=device) for device in ("gpu", "cpu")
    )
    same(gpu_life(gpu, (40,)), life(cpu, (40,)))


def test_another_stream(cp):
    expected = life(make(), (40,))
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        tile = make(device="gpu")
        got = gpu_life(tile, (20, 20))
    same(got, expected)


def test_a_captured_product_replays_the_eager_bits(cp):
    tile = make("constant", device="gpu")
    gpu_life(tile, (16,))
    x = cp.asarray(batch(16)[0])
    eager = tile.forward(x, first_sample=50)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        tile.forward(x, first_sample=50)
        stream.synchronize()
        stream.begin_capture()
        replayed = tile.forward(x, first_sample=50)
        graph = stream.end_capture()
        for _ in range(3):
            replayed.fill(np.nan)
            graph.launch(stream)
            stream.synchronize()
            assert_same_bits(replayed, eager)


@pytest.mark.parametrize("cell", CELLS)
def test_a_bad_value_is_told_at_the_next_synchronisation(cp, cell):
    tile = make(cell, device="gpu")
    gpu_life(tile, (16,))
    before = tile.state()
    x, d = (cp.asarray(v) for v in batch(4))
    tile.update(x, d * np.nan, lr=0.1)
    tile.forward(x)
    tile.update(x, d, lr=0.1)
    with pytest.raises(NonFiniteError, match="x or d holds"):
        rk.check()
    after = tile.state()
    assert before["header"] == after["header"]
    same(after["arrays"].values(), before["arrays"].values())


def test_sync_validation_raises_at_once(cp):
    tile = make(device="gpu", validate="sync")
    with pytest.raises(NonFiniteError):
        tile.forward(cp.full((1, SHAPE[1]), np.inf, np.float32))


def test_transfers_and_copies_continue(cp):
    tile = make("soft_write_noise", device="gpu")
    gpu_life(tile, (16,))
    others = [tile.copy(), tile.to("cpu").to("gpu"), pickle.loads(pickle.dumps(tile)).to("gpu")]
    expected = gpu_life(tile, (16,), seed=1)
    for other in others:
        same(gpu_life(other, (16,), seed=1), expected)


def test_array_face(cp):
    tile = make(device="gpu", forward=rk.IOParameters(is_perfect=True))
    gpu_life(tile, (16,))
    x = cp.asarray(batch(5)[0])
    w = tile.get_weights()
    assert isinstance(w, cp.ndarray)
    np.testing.assert_allclose(to_numpy(x @ tile.T), to_numpy(x) @ to_numpy(w).T, atol=1e-5)
    np.testing.assert_allclose(to_numpy(tile @ x.T), to_numpy(w) @ to_numpy(x).T, atol=1e-5)
    with pytest.raises(DeviceError, match="move"):
        tile.forward(to_numpy(x))
    with pytest.raises(DeviceError, match="get_weights"):
        np.asarray(tile)


def test_products(cp):
    for dtype in (np.float32, np.float64):
        a, b = (
            np.random.default_rng(k).standard_normal(s).astype(dtype)
            for k, s in enumerate(((67, 131), (131, 33)))
        )
        assert_same_bits(rk.det_gemm(cp.asarray(a), cp.asarray(b)), rk.det_gemm(a, b))


def test_the_demo_has_one_hash(cp):
    pytest.importorskip("sklearn")
    from rpukit import demo

    data = demo.load_digits()
    options = {"epochs": 1, "lr": 0.02, "n_hidden": 32, "batch": 10, "seed": 0, "progress": False}
    runs = [
        demo.train("x", rk.ConstantStep(), rk.IOParameters(), data, device=device, **options)
        for device in ("cpu", "gpu")
    ]
    assert runs[0].sha256 == runs[1].sha256
    assert runs[0].accuracy == runs[1].accuracy
