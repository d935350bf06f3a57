"""storage="procedural": cells drawn when they are needed have the bits of stored ones."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import rpukit as rk
from rpukit._device import parse_device, to_device
from rpukit.analog.cells import draw as sampling
from rpukit.errors import ParameterError
from rpukit.testing import assert_same_bits, on_cpu
from tests.analog.test_cells import CELLS, batch

SLOW = {"diffusion": 0.05, "diffusion_dtod": 0.4, "lifetime": 20, "lifetime_dtod": 0.3}
REST = {"reset": 0.1, "reset_dtod": 0.1, "reset_std": 0.02}
AGEING = SLOW | REST | {"drift": rk.DriftParameters(nu=0.1, nu_dtod=0.3, nu_std=0.2)}
SOFT = rk.SoftBounds(dw_min=0.02, **AGEING)
PAIR = rk.PowStepReference(dw_min=0.05, subtract_symmetry_point=True, **REST)
MADE = {
    "vector": rk.Vector(devices=(rk.ConstantStep(dw_min=0.02), SOFT)),
    "reference": rk.Reference(devices=(PAIR, rk.ConstantStep(dw_min=0.02))),
    "one_sided": rk.OneSided(device=SOFT, refresh_every=3, copy_inverted=True),
    "one_sided_pow": rk.OneSided(device=PAIR, copy_inverted=True),
    "chopped": rk.ChoppedTransfer(devices=(SOFT, SOFT), in_chop_prob=0.2),
    "dynamic": rk.DynamicTransfer(devices=(SOFT, rk.ConstantStep()), units_in_mbatch=True),
    "mixed_precision": rk.MixedPrecision(device=SOFT, granularity=0.02),
    "ideal": rk.Ideal(lifetime=9),
}


@pytest.fixture
def narrow(monkeypatch):
    """Strips of a few rows, so that a small tile has several."""
    monkeypatch.setattr(sampling, "_STRIP", 300)


def at(tile, array):
    """An array as the tile takes it: on its device, of its type."""
    return to_device(array.astype(tile.dtype), parse_device(tile.device))


def live(tile, n=12):
    """Everything that reads the parameters of cells."""
    x, d = (at(tile, v) for v in batch(n, tile.shape))
    w = at(tile, np.random.default_rng(1).uniform(-0.9, 0.9, tile.shape))
    tile.set_weights(w)
    tile.update(x, d, lr=0.3).decay().diffuse().drift(3)
    tile.reset(2, 3, 0.5).update(x[:1], d[:1], lr=-0.1).drift(5)
    return tile


def same(tile, other):
    assert tile.clocks == other.clocks
    assert_same_bits(tile.get_weights(), other.get_weights())
    assert tile.n_pulses == other.n_pulses
    assert tile.cells.keys() == other.cells.keys()
    for name, array in tile.cells.items():
        assert_same_bits(array, other.cells[name])


@pytest.mark.sweep
@pytest.mark.parametrize("name", CELLS)
def test_bits_of_stored_cells(name, narrow, order):
    shape = (31, 33) if order == 1 else (9, 132)
    cell = replace(CELLS[name], **AGEING)
    stored = live(rk.AnalogTile(shape, cell, seed=3))
    same(live(rk.AnalogTile(shape, cell, seed=3, storage="procedural")), stored)
    with on_cpu(order):
        same(live(rk.AnalogTile(shape, cell, seed=3, storage="procedural")), stored)


@pytest.mark.parametrize("name", MADE)
def test_bits_of_cells_made_of_several(name, device, narrow):
    stored = live(rk.AnalogTile((11, 36), MADE[name], seed=4, device=device))
    drawn = rk.AnalogTile((11, 36), MADE[name], seed=4, device=device, storage="procedural")
    same(live(drawn), stored)


@pytest.mark.parametrize("shape", [(1, 1), (3, 130), (130, 140)])
def test_batches_and_threads_do_not_count(shape, device):
    tile = rk.AnalogTile(shape, SOFT, seed=5, device=device, storage="procedural")
    parts, n = tile.copy(), rk.get_num_threads()
    x, d = (at(tile, v) for v in batch(70, shape))
    tile.update(x, d, lr=0.2)
    try:
        rk.set_num_threads(1)
        parts.update(x[:3], d[:3], lr=0.2).update(x[3:], d[3:], lr=0.2)
    finally:
        rk.set_num_threads(n)
    same(parts, tile)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["exp", "pow_reference"])
def test_float64(name, device):
    cell = replace(CELLS[name], **AGEING)
    given = {"dtype": np.float64, "device": device}
    stored = live(rk.AnalogTile((9, 34), cell, **given))
    same(live(rk.AnalogTile((9, 34), cell, storage="procedural", **given)), stored)


@pytest.mark.parametrize("kind", ["MEAN_COUNT", "DETERMINISTIC_IMPLICIT", "NONE_WITH_DEVICE"])
def test_other_pulses(kind, device):
    update = rk.UpdateParameters(pulse_type=rk.PulseType[kind])
    cell = rk.SoftBounds(dw_min=0.02)
    tiles = [
        rk.AnalogTile((9, 34), cell, update=update, storage=storage, device=device)
        for storage in ("stored", "procedural")
    ]
    same(*(live(tile, 3) for tile in tiles))


@pytest.mark.parametrize("name", ["chopped", "one_sided_pow"])
def test_copies_and_files(name, tmp_path):
    tile = live(rk.AnalogTile((11, 36), MADE[name], seed=4, storage="procedural"))
    rk.save(tmp_path / "t.npz", tile)
    read, kept = rk.load(tmp_path / "t.npz"), tile.copy(storage="stored")
    again = kept.copy(storage="procedural")
    assert (read.storage, kept.storage, again.storage) == ("procedural", "stored", "procedural")
    assert again.nbytes == read.nbytes == tile.nbytes < kept.nbytes
    assert tile.to("cpu").storage == tile.copy().storage == "procedural"
    live(tile)
    for other in (read, kept, again):
        same(live(other), tile)


def test_cells_that_are_not_stored_cannot_be_set():
    tile = rk.AnalogTile((3, 4), SOFT, seed=1, storage="procedural")
    before = tile.get_weights()
    wide = np.full((3, 4), 2, np.float32)
    with pytest.raises(ParameterError, match="stored"):
        tile.set_cells(w_max=wide)
    with pytest.raises(ValueError, match="read-only"):
        tile.cells["w_max"][...] = 2
    assert_same_bits(tile.get_weights(), before)
    kept = tile.copy(storage="stored").set_cells(w_max=wide)
    with pytest.raises(ParameterError, match="w_max has been set"):
        kept.copy(storage="procedural")


def test_what_cannot_be_drawn_is_said():
    class Outside(rk.SoftBounds):
        def sample(self, stream, shape):
            return rk.SoftBounds.sample(self, stream, shape)

    with pytest.raises(ParameterError, match=r"Outside draws its planes by sample\(\)"):
        rk.AnalogTile((2, 2), Outside(), storage="procedural")
    with pytest.raises(ParameterError, match="storage: got 'disk'"):
        rk.AnalogTile((2, 2), SOFT, storage="disk")


# Bytes of a cell, in units of its weight; the reference implementation takes `most`.
MEMORY = {
    "ConstantStep": (rk.ConstantStep(), 5, 6),
    "ExpStep": (rk.ExpStep(), 5, 6),
    "PiecewiseStep": (rk.PiecewiseStep(), 5, 6),
    "LinearStep": (rk.LinearStep(), 7, 8),
    "SoftBounds": (rk.SoftBounds(), 7, 8),
    "SoftBoundsPmax": (rk.SoftBoundsPmax(), 7, 8),
    "PowStep": (rk.PowStep(), 7, 8),
    "SoftBoundsReference": (rk.SoftBoundsReference(), 8, 8),
    "PowStepReference": (rk.PowStepReference(), 8, 8),
    "ChoppedTransfer": (rk.ChoppedTransfer(devices=(rk.SoftBounds(), rk.SoftBounds())), 15, 18),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_of_a_cell(name, device):
    cell, stored, most = MEMORY[name]
    assert stored <= most
    bytes_of = {
        storage: rk.AnalogTile((128, 128), cell, storage=storage, device=device).nbytes
        for storage in ("stored", "procedural")
    }
    weights, few = 4 * 128 * 128, 6000  # numbers of the whole tile, and of its lines
    assert bytes_of["stored"] <= stored * weights + few
    assert bytes_of["procedural"] <= (3 if name == "ChoppedTransfer" else 1) * weights + few


def test_memory_of_making_and_learning():
    shape = (512, 1024)
    weights, (x, d) = 4 * shape[0] * shape[1], batch(2, shape)
    rk.AnalogTile((2, 3), SOFT, seed=1, storage="procedural").update(x[:1, :3], d[:1, :2], 0.01)
    tracemalloc.start()
    try:
        tile = rk.AnalogTile(shape, rk.SoftBounds(), seed=1, storage="procedural")
        assert tracemalloc.get_traced_memory()[1] < 1.1 * weights
        tile.update(x, d, lr=0.01)
        assert tracemalloc.get_traced_memory()[1] < 1.7 * weights  # rows whose planes are drawn
    finally:
        tracemalloc.stop()
