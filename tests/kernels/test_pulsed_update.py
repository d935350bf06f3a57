"""pulsed_update and pulse_trains: bits of the mirror for every launch shape; counts."""

from contextlib import nullcontext
from dataclasses import replace

import numba as nb
import numpy as np
import pytest

import rpukit as rk
from rpukit.analog.cells.cell_array import CellArray
from rpukit.analog.update import launch as _launch_update
from rpukit.analog.update import ops as update
from rpukit.testing import assert_same_bits, on_cpu


def batch(n, shape, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.uniform(-1, 1, (n, shape[1])).astype(np.float32),
        rng.normal(0, 0.3, (n, shape[0])).astype(np.float32),
    )


@pytest.mark.sweep
@pytest.mark.parametrize(
    "cell", [rk.ConstantStep(dw_min=0.01), rk.SoftBounds(dw_min=0.01, write_noise_std=1)]
)
@pytest.mark.parametrize("lr", [0.2, 0.005])  # many slots a sample, and one or two
@pytest.mark.parametrize("tile", _launch_update.SHAPES, ids=lambda tile: tile.name)
def test_every_launch_shape_gives_the_bits_of_the_mirror(tile, lr, cell, order, monkeypatch):
    shape = (19, 132)
    x, d = batch(70, shape)
    plain, other = (rk.AnalogTile(shape, cell, seed=2) for _ in range(2))
    plain.update(x, d, lr=lr)
    with monkeypatch.context() as patch, on_cpu(order):
        patch.setattr(update, "pick", lambda _: tile)
        other.update(x, d, lr=lr)
    assert_same_bits(np.asarray(other), np.asarray(plain))
    assert other.n_pulses == plain.n_pulses


@pytest.mark.sweep
@pytest.mark.parametrize(("n", "size"), [(1700, 0.5), (2400, 0.02)])
def test_warps_that_share_the_samples_of_a_row(n, size, order):
    """Listed samples fill the shared memory several times, or are fewer than the warps take."""
    shape, cell = (2, 40), rk.ConstantStep(dw_min=0.01, w_min=-0.3, w_max=0.3)
    assert _launch_update._plain_shape(*shape, n, False) == _launch_update.SCAN
    x, d = batch(n, shape)
    d = np.where(d > 0.3 - size, d, np.float32(0))
    plain, other = (rk.AnalogTile(shape, cell, seed=2) for _ in range(2))
    plain.update(x, d, lr=0.05)
    with on_cpu(order):
        other.update(x, d, lr=0.05)
    assert_same_bits(np.asarray(other), np.asarray(plain))
    assert other.n_pulses == plain.n_pulses > 0


@pytest.mark.parametrize(
    "cell",
    [
        rk.ConstantStep(dw_min=0.01, w_min=-0.2, w_max=0.2),  # some runs reach a bound
        rk.ExpStep(dw_min=0.01),
        rk.PowStepReference(dw_min=0.01, reference_std=0.1),
        rk.PiecewiseStep(dw_min=0.01),
    ],
    ids=lambda cell: cell.STEP,
)
@pytest.mark.parametrize("length", [31, 150])
def test_rows_longer_than_a_strip_of_the_mirror(cell, length):
    shape = (3, 1100)
    x, d = batch(5, shape)
    parameters = rk.UpdateParameters(desired_bl=length, update_bl_management=False)
    plain, other = (rk.AnalogTile(shape, cell, update=parameters, seed=2) for _ in range(2))
    for tile in (plain, other):
        tile.set_weights(np.random.default_rng(1).uniform(-0.2, 0.2, shape).astype(np.float32))
    plain.update(x, d, lr=0.3)
    with on_cpu():
        other.update(x, d, lr=0.3)
    assert_same_bits(np.asarray(other), np.asarray(plain))
    assert other.n_pulses == plain.n_pulses > 2 * 5 * 3 * 1100  # most runs are long


def test_pulse_count_is_the_sum_of_coincidences():
    shape, n = (5, 6), 50
    x, d = batch(n, shape)
    cell, parameters = rk.ConstantStep(), rk.UpdateParameters()
    stream = rk.Stream.from_seed(9)
    trains = update.pulse_trains(
        x,
        d,
        0.3,
        cell.granularity,
        parameters,
        stream=stream,
        first_sample=0,
        status=np.zeros(1, np.int32),
    )
    slots = [
        (t[:, 0, :, None] >> np.arange(31, dtype=np.uint32)) & 1 for t in (trains.x, trains.d)
    ]
    expected = int(np.einsum("sjk,sik->", *slots))
    tile = rk.AnalogTile(shape, cell, update=parameters, seed=9)
    tile.update(x, d, lr=0.3)
    assert tile.n_pulses == expected > 0
    signs = (trains.x[:, 0] >> 31).astype(bool)
    fired = trains.x[:, 0] != 0
    assert (signs[fired] == (x < 0)[fired]).all()


def test_firing_probability():
    """A slot fires with probability |v| * scale, independently of other slots and lines."""
    n = 4000
    x, d = np.full((n, 3), 0.3, np.float32), np.full((n, 2), -0.6, np.float32)
    parameters = rk.UpdateParameters(
        desired_bl=31, update_management=False, update_bl_management=False
    )
    made = update.pulse_trains(
        x,
        d,
        31 * 1e-3,
        1e-3,
        parameters,
        stream=rk.Stream.from_seed(1),
        first_sample=0,
        status=np.zeros(1, np.int32),
    )
    bits = ((made.x[:, 0, :, None] >> np.arange(31, dtype=np.uint32)) & 1).astype(float)
    # 124,000 slots a line: the mean has a deviation of 0.0013, correlations one of 0.003
    assert abs(bits.mean((0, 2)) - 0.3).max() < 5 * 0.0013
    flat = bits.transpose(1, 0, 2).reshape(3, -1)
    assert abs(np.corrcoef(flat)[np.triu_indices(3, 1)]).max() < 5 * 0.003
    assert abs(np.corrcoef(flat[:, 1:].ravel(), flat[:, :-1].ravel())[0, 1]) < 5 * 0.002


def test_exact_update_by_formula():
    shape = (9, 11)
    tile = rk.AnalogTile(shape, rk.Ideal())
    x, d = batch(20, shape)
    tile.update(x, d, lr=0.1)
    exact = -0.1 * d.T.astype("f8") @ x.astype("f8")
    np.testing.assert_allclose(np.asarray(tile), exact, atol=20 * 2**-24)


@pytest.mark.parametrize("shape", [(7, 33), (40, 1)])
def test_exact_updates_of_few_cells_by_many_samples(shape, order):
    """rank_update: a warp adds what the others of its block read."""
    seen, (x, d) = [], batch(290, shape)
    for context in (nullcontext(), on_cpu(order)):
        tile = rk.AnalogTile(shape, rk.Ideal())
        with context:
            seen.append(tile.update(x, d, lr=0.1).get_weights())
    assert_same_bits(*seen)


def applied(polarity, *, stream, n_global=8, counts=None):
    """Weights and pulses after one update with pulses of one polarity."""
    shape = (7, 132)
    x, d = batch(9, shape)
    cell, status = rk.ConstantStep(dw_min=0.01), np.zeros(1, np.int32)
    planes = [cell.sample(stream, shape)[name] for name in cell.PLANES]
    at = {"stream": stream, "first_sample": 5, "status": status}
    trains = update.pulse_trains(x, d, 0.2, cell.granularity, rk.UpdateParameters(), **at)
    weight, n_pulses = np.zeros(shape, np.float32), np.zeros(1, np.int64)
    globals_ = np.zeros(n_global, np.float32)
    globals_[:8] = cell.globals()
    planes = np.stack(planes).astype(np.float32)
    array = CellArray(cell, weight, planes, globals_, n_pulses, at.pop("status"))
    array = replace(array, pulse_counts=counts)
    update.pulsed_update(array, trains, polarity=polarity, **at)
    return weight, int(n_pulses[0])


@pytest.mark.parametrize("n_global", [8, 72])
def test_one_polarity_gives_the_two_halves(order, n_global):
    stream = rk.Stream.from_seed(3)
    both, n_both = applied(0, stream=stream)
    up, n_up = applied(1, stream=stream)
    down, n_down = applied(-1, stream=stream)
    assert (up >= 0).all() and (down >= 0).all() and (both < 0).any()
    assert n_up + n_down == n_both and min(n_up, n_down) > 0
    only_up = (up > 0) & (down == 0)
    assert_same_bits(up[only_up], both[only_up])
    for polarity, expected in ((0, both), (1, up), (-1, down)):
        with on_cpu(order):
            got, _ = applied(polarity, stream=stream, n_global=n_global)
        assert_same_bits(got, expected)


@pytest.mark.sweep
@pytest.mark.parametrize("tile", _launch_update.SHAPES, ids=lambda tile: tile.name)
def test_pulses_of_each_cell(tile, monkeypatch):
    stream, shape = rk.Stream.from_seed(3), (7, 132)
    counts = [np.full(shape, 2, np.int64) for _ in range(2)]
    _, n = applied(0, stream=stream, counts=counts[0])
    with monkeypatch.context() as patch, on_cpu():
        patch.setattr(update, "pick", lambda _: tile)
        applied(0, stream=stream, counts=counts[1])
    assert_same_bits(*counts)
    assert (counts[0] - 2).sum() == n > 0


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), 0, (0xFF1DAE59, 0x6CD10DF2)),
        ((0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, (0x2C3F628B, 0xAB4FD7AD)),
        ((0x243F6A88, 0x85A308D3), 0x13198A2E, (0xDD7CE038, 0xF62A4C12)),
    ],
)
def test_philox2x32_known_answers(counter, key, expected):
    """The vectors of Random123."""
    from rpukit.analog._mirror.pulses import philox2x32

    @nb.njit
    def compiled(c0, c1, k):
        return philox2x32(c0, c1, k)

    assert compiled(*map(np.uint32, counter), np.uint32(key)) == expected
