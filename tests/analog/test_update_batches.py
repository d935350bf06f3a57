"""The reference's defect 763 for every device: whatever ran before, a batch is applied whole.

There, a kernel for one sample that had won the timing of an update of one sample served later
batches. Here tiles are primed by batches that grow, shrink and alternate, while the tuner is made
to like each launch shape in turn.
"""

import numpy as np
import pytest

import rpukit as rk
from rpukit._kernels import tune
from rpukit.analog.update import launch as _launch_update
from rpukit.testing import assert_same_bits, on_cpu

SHAPE = (16, 32)
DEVICES = [
    rk.ConstantStep,
    rk.LinearStep,
    rk.SoftBounds,
    rk.SoftBoundsPmax,
    rk.SoftBoundsReference,
    rk.ExpStep,
    rk.PowStep,
    rk.PowStepReference,
    rk.PiecewiseStep,
]
BATCHES = {
    "one_then_many": (1, 128),
    "growing": (1, 2, 5, 33, 70),
    "shrinking": (70, 33, 5, 2, 1),
    "alternating": (1, 64, 1, 65, 2, 64),
}


def tile_of(device):
    parameters = rk.UpdateParameters(desired_bl=20, update_bl_management=False)
    return rk.AnalogTile(SHAPE, device(), update=parameters, seed=3)


def run(tile, sizes):
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (sum(sizes), SHAPE[1])).astype(np.float32)
    d = rng.normal(0, 0.1, (sum(sizes), SHAPE[0])).astype(np.float32)
    first = 0
    for n in sizes:
        tile.update(x[first : first + n], d[first : first + n], lr=0.02)
        first += n
    return np.asarray(tile), tile.n_pulses


def likes(name):
    """A clock under which one launch shape is by far the fastest."""

    def measure(candidate, trial):
        trial()
        return 1e-6 if candidate.name == name else 1e-3

    return measure


@pytest.mark.parametrize("sizes", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("device", DEVICES)
def test_the_way_of_cutting_counts_for_nothing(device, sizes):
    """On the CPU: priming updates and one batch give the same bits and pulses."""
    parts, whole = run(tile_of(device), sizes), run(tile_of(device), (sum(sizes),))
    assert_same_bits(parts[0], whole[0])
    assert parts[1] == whole[1] > sum(sizes)  # no sample was left out


@pytest.mark.sweep
@pytest.mark.parametrize("shape", _launch_update.SHAPES[::4], ids=lambda shape: shape.name)
@pytest.mark.parametrize("device", DEVICES)
def test_no_launch_shape_leaves_samples_out(device, shape):
    sizes = (1, 9, 1, 20, 3)
    expected = run(tile_of(device), sizes)
    with on_cpu(), tune.use_clock(likes(shape.name)):
        got = run(tile_of(device), sizes)
    assert_same_bits(got[0], expected[0])
    assert got[1] == expected[1]


@pytest.mark.parametrize("device", DEVICES)
def test_ones_drive_every_device_as_far(device):
    """Equal samples, as in the report of the defect: 128 of them move further than one."""
    moved = {}
    for n in (1, 128):
        tile = rk.AnalogTile(SHAPE, device(), seed=5)
        ones = np.ones((1, SHAPE[1]), np.float32), -np.ones((1, SHAPE[0]), np.float32)
        tile.update(*ones, lr=0.01)  # what primed the wrong kernel there
        tile.set_weights(np.zeros(SHAPE, np.float32))
        start = tile.n_pulses
        tile.update(*(np.repeat(v, n, axis=0) for v in ones), lr=0.01)
        moved[n] = tile.n_pulses - start
    assert moved[128] > 100 * moved[1] > 0
