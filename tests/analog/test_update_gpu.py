"""Updates on a GPU: every pulse type, polarity, launch shape; captured in a graph."""

import numpy as np
import pytest

import rpukit as rk
from rpukit._device import to_numpy
from rpukit.analog.update import launch as _launch_update
from rpukit.analog.update import ops as update
from rpukit.testing import assert_same_bits

pytestmark = pytest.mark.gpu
SHAPE = (67, 260)


@pytest.fixture
def cp():
    return pytest.importorskip("cupy")


def batch(n, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.uniform(-1, 1, (n, SHAPE[1])).astype(np.float32),
        rng.normal(0, 0.3, (n, SHAPE[0])).astype(np.float32),
    )


@pytest.mark.parametrize("lr", [0.2, 0.003])
@pytest.mark.parametrize("shape", _launch_update.SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("cell", [rk.ConstantStep, rk.SoftBounds])
def test_every_launch_shape_gives_the_bits_of_the_mirror(cp, cell, shape, lr, monkeypatch):
    x, d = batch(150)
    cpu, gpu = (rk.AnalogTile(SHAPE, cell(), seed=2, device=where) for where in ("cpu", "gpu"))
    monkeypatch.setattr(update, "pick", lambda _: shape)
    cpu.update(x, d, lr=lr)
    gpu.update(cp.asarray(x), cp.asarray(d), lr=lr)
    assert_same_bits(to_numpy(gpu.get_weights()), np.asarray(cpu))
    assert gpu.n_pulses == cpu.n_pulses > 0


@pytest.mark.parametrize("kind", [p.value for p in rk.PulseType])
def test_pulse_types(cp, kind):
    x, d = batch(40)
    parameters = rk.UpdateParameters(pulse_type=kind)
    cpu, gpu = (
        rk.AnalogTile(SHAPE, rk.SoftBounds(), update=parameters, seed=2, device=where)
        for where in ("cpu", "gpu")
    )
    cpu.update(x, d, lr=0.1).update(x, d, lr=-0.05)
    x, d = cp.asarray(x), cp.asarray(d)
    gpu.update(x, d, lr=0.1).update(x, d, lr=-0.05)
    assert_same_bits(to_numpy(gpu.get_weights()), np.asarray(cpu))


@pytest.mark.parametrize("n", [1, 40])
def test_a_captured_update_replays_the_eager_bits(cp, n):
    tiles = [rk.AnalogTile(SHAPE, rk.SoftBounds(), seed=2, device="gpu") for _ in range(2)]
    x, d = (cp.asarray(v) for v in batch(n))
    for _ in range(4):
        tiles[0].update(x, d, lr=0.1, first_sample=50)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        tiles[1].update(x, d, lr=0.1, first_sample=50)
        stream.synchronize()
        stream.begin_capture()
        tiles[1].update(x, d, lr=0.1, first_sample=50)
        graph = stream.end_capture()
        others = [cp.full(4096, 7, cp.uint32) for _ in range(64)]  # what the pool gives to others
        for _ in range(3):
            graph.launch(stream)
        stream.synchronize()
        assert all(bool((array == 7).all()) for array in others)
    assert_same_bits(tiles[1].get_weights(), tiles[0].get_weights())
