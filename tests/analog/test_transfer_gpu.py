"""The transfer family on a GPU: the bits of the CPU, in any cut of a batch, captured or not."""

import numpy as np
import pytest

import rpukit as rk
from tests.analog.test_transfer import CELLS, assert_same_state, batch

pytestmark = pytest.mark.gpu
SHAPE = (37, 132)


@pytest.fixture
def cp():
    return pytest.importorskip("cupy")


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_a_gpu_gives_the_bits_of_the_mirrors(cp, cell):
    cpu, gpu = (rk.AnalogTile(SHAPE, cell, seed=2, device=device) for device in ("cpu", "gpu"))
    x, d = batch(200, SHAPE)
    cpu.update(x, d, 0.3, batch_size=200).update(x[:3], d[:3], -0.3, batch_size=3)
    x, d = cp.asarray(x), cp.asarray(d)
    for part in (slice(0, 1), slice(1, 150), slice(150, 200)):
        gpu.update(x[part], d[part], 0.3, batch_size=200)
    gpu.update(x[:3], d[:3], -0.3, batch_size=3)
    assert_same_state(gpu, cpu)


@pytest.mark.parametrize("name", ["ttv3_scaled", "ttv2"])
@pytest.mark.parametrize("n", [1, 40])
def test_a_captured_update_replays_the_eager_bits(cp, name, n):
    """A graph has the numbers of its capture: the same samples, the same slices."""
    tiles = [rk.AnalogTile(SHAPE, CELLS[name], seed=2, device="gpu") for _ in range(2)]
    x, d = (cp.asarray(v) for v in batch(n, SHAPE))

    def update(tile):
        tile._clocks["transfers_0"] = 0
        tile.update(x, d, 0.1, first_sample=50)

    for _ in range(4):
        update(tiles[0])
    stream = cp.cuda.Stream(non_blocking=True)
    # Such a stream does not wait for the default one, where the tiles and the batch were made.
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        update(tiles[1])
        stream.synchronize()
        stream.begin_capture()
        update(tiles[1])
        graph = stream.end_capture()
        others = [cp.full(4096, 7, np.uint32) for _ in range(64)]  # what the pool gives to others
        for _ in range(3):
            graph.launch(stream)
        stream.synchronize()
        assert all(bool((array == 7).all()) for array in others)
    assert_same_state(*tiles)
