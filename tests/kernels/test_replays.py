"""Replayed calls give what the checked launches gave, on GPUs that are pretended."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.analog.product import launch as product_launch
from rpukit.analog.product import launch_shapes
from rpukit.analog.product import ops as product
from rpukit.analog.product import replay as product_replay
from rpukit.analog.update import launch as update_launch
from rpukit.analog.update import ops as update
from rpukit.errors import NonFiniteError
from rpukit.random import Stream
from rpukit.testing import assert_same_bits
from tests.on_cpu import two_gpus

GPU = _device.Device("gpu", 0)
KERNELS = ("tile_", "det_gemm", "puls")


@pytest.fixture
def gpus(monkeypatch):
    """Two pretended GPUs, with the same launch shapes on every machine."""
    monkeypatch.setattr(product, "pick", lambda call: tile_for(call.shape[0]))
    monkeypatch.setattr(update, "pick", lambda call: update_launch.WALKS[-1])
    with two_gpus.installed(monkeypatch) as machine:
        yield machine


def put(array):
    return _device.to_device(array, GPU)


def kinds(gpus):
    """Tell of each launch whether it was checked or replayed."""
    found = []
    for line in gpus.log:
        replayed, name = line.startswith("replay of "), line.removeprefix("replay of ")
        if name.startswith(KERNELS):
            found.append("replayed" if replayed else "checked")
    return found


def tile_for(n_batch):
    few = launch_shapes.ONE if n_batch == 1 else launch_shapes.FEW
    return few if n_batch <= 8 else launch_shapes.FLAT


@pytest.mark.sweep
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n", [1, 5, 20, 21])
def test_products(n, transposed, gpus, monkeypatch):
    """The last of them by det_gemm, with new arrays for what its kernels pass on."""
    if n == 21:
        monkeypatch.setattr(product_launch, "by_gemm", lambda *_: True)
        monkeypatch.setattr(product_replay, "_MOST_KEPT", 0)
    io, rng = rk.IOParameters(out_bound=0.5, out_noise_std=0.1), np.random.default_rng(n)
    stream = Stream.from_seed(3)
    weight = rng.uniform(-0.1, 0.1, (68, 132)).astype(np.float32)
    n_in, n_out = weight.shape if transposed else weight.shape[::-1]
    plain, other = (
        product.ForwardState(io, n_out, stream, device, transposed=transposed)
        for device in (_device.CPU, GPU)
    )
    firsts, status = (0, 7, 2**40, 3, 11), np.zeros(1, np.int32)
    inputs = [rng.uniform(-1, 1, (n, n_in)).astype(np.float32) for _ in firsts]

    def products(weight, arrays, state, status):
        for call, (x, first) in enumerate(zip(arrays, firsts, strict=True), 1):
            at = {"first_sample": first, "call": call, "transposed": transposed}
            yield product.tile_forward(
                weight, x, io, stream=stream, state=state, status=status, **at
            )

    expected = list(products(weight, inputs, plain, status))
    found = products(put(weight), map(put, inputs), other, put(status))
    for got, want in zip(found, expected, strict=True):
        assert_same_bits(got, want)
    launches = kinds(gpus)
    n_launch = len(launches) // len(firsts)
    assert launches == ["checked"] * (2 * n_launch) + ["replayed"] * (3 * n_launch)
    rounds = 0 if transposed else 2
    assert n_launch == (1 if n <= 8 else 2) + (n == 21) + rounds


def test_products_of_a_tile(gpus):
    """Clocks move as they do; a bad value is reported, and puts them back."""
    weight = np.full((36, 68), 0.01, np.float32)
    plain, other = (
        rk.AnalogTile((36, 68), rk.Ideal(), seed=4, device=device) for device in ("cpu", "gpu")
    )
    plain.set_weights(weight)
    other.set_weights(put(weight))
    batches = np.random.default_rng(1).uniform(-1, 1, (6, 5, 68)).astype(np.float32)
    expected = [plain.forward(x) for x in batches]
    clocks, last = plain.clocks, plain.forward(batches[1])
    for x, y in zip(batches, expected, strict=True):
        assert_same_bits(other.forward(put(x)), y)
    launches = kinds(gpus)
    assert launches.count("replayed") == 4 * launches.count("checked") // 2 > 0
    assert other.clocks == clocks
    for x in (batches[0] * np.float32(np.nan), batches[1]):
        assert not _device.to_numpy(other.forward(put(x))).any()
    with pytest.raises(NonFiniteError, match="x holds NaN or infinity: that call and the 1"):
        rk.check()
    assert other.clocks == clocks
    assert_same_bits(other.forward(put(x)), last)


@pytest.mark.parametrize("n", [1, 6])
def test_updates(n, gpus):
    plain, other = (
        rk.AnalogTile((36, 68), rk.SoftBounds(dw_min=0.01), seed=4, device=device)
        for device in ("cpu", "gpu")
    )
    rng, firsts = np.random.default_rng(n), (0, 9, 2**33, 4)
    batches = [
        [rng.uniform(-1, 1, (n, width)).astype(np.float32) for width in (68, 36)] for _ in firsts
    ]
    for (x, d), first in zip(batches, firsts, strict=True):
        plain.update(x, d, 0.1, first_sample=first)
        other.update(put(x), put(d), 0.1, first_sample=first)
    n_launch = 1 if n == 1 else 2
    assert kinds(gpus) == ["checked"] * (2 * n_launch) + ["replayed"] * (2 * n_launch)
    assert_same_bits(other.get_weights(), plain.get_weights())
    assert other.n_pulses == plain.n_pulses
