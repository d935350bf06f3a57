"""Mixed precision: against the reference's trajectories, by hand, and for any schedule."""

from contextlib import nullcontext
from dataclasses import fields

import numpy as np
import pytest

import rpukit as rk
from rpukit.testing import assert_same_bits, on_cpu
from tests.reference import analog as reference

SETS = [n for n in reference.sets("d_compounds") if n.startswith("mp_")]


def compound(device, **changes):
    """Build our cell from the reference's parameters."""
    known = {field.name for field in fields(rk.MixedPrecision)} - {"device"}
    given = {name: value for name, value in device.items() if name in known}
    return rk.MixedPrecision(device=reference.cell(device["device"]), **(given | changes))


@pytest.mark.parametrize("name", SETS)
def test_trajectory(name):
    s, z = reference.sets("d_compounds")[name], reference.arrays("d_compounds")
    cell, shape = compound(s["device"]), (s["out_size"], s["in_size"])
    tile = rk.AnalogTile(shape, cell, update=reference.update(s["update"]))
    tile.set_weights(z[f"{name}/W"][0].astype(np.float32))
    for step, (x, d) in enumerate(zip(z[f"{name}/x"], z[f"{name}/d"], strict=True)):
        tile.update(x.astype(np.float32), d.astype(np.float32), s["lr"])
        # float32 sums in another order: 2.4e-4 is what a float64 recursion reached.
        np.testing.assert_allclose(np.asarray(tile), z[f"{name}/W"][step + 1], atol=3e-4)
        chi = tile.state()["arrays"]["chi"]
        np.testing.assert_allclose(chi, z[f"{name}/hidden_weights_chi"][step + 1], atol=3e-4)


def test_there_are_trajectories():
    assert len(SETS) == 4


SOFT = rk.SoftBounds(dw_min=0.02)
PAIR = rk.OneSided(
    device=rk.SoftBounds(dw_min=0.02, w_min=0),
    refresh_every=2,
    refresh_upper_thres=0.3,
    refresh_lower_thres=0.05,
)
CELLS = {
    "plain": rk.MixedPrecision(device=SOFT),
    "bins": rk.MixedPrecision(device=SOFT, n_x_bins=16, n_d_bins=8),
    "only_x": rk.MixedPrecision(device=SOFT, n_x_bins=6, stoc_round_x=False, granularity=0.05),
    "only_d": rk.MixedPrecision(device=SOFT, n_d_bins=6, transfer_lr=0.5),
    "some_rows": rk.MixedPrecision(device=SOFT, n_rows_per_transfer=2, transfer_every=2),
    "random_rows": rk.MixedPrecision(device=SOFT, n_rows_per_transfer=2, random_row=True),
    "write_noise": rk.MixedPrecision(device=rk.SoftBounds(dw_min=0.02, write_noise_std=1)),
    "vector": rk.MixedPrecision(
        device=rk.Vector(devices=(SOFT, rk.ConstantStep()), update_policy="single_random")
    ),
    "one_sided": rk.MixedPrecision(device=PAIR),
}


def batch(n, shape, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, shape[1])).astype(np.float32)
    return x, rng.uniform(-0.5, 0.5, (n, shape[0])).astype(np.float32)


def whole_state(tile):
    state = tile.state()
    return {**state["arrays"], **{k: np.array(v) for k, v in state["header"]["clocks"].items()}}


def assert_same_state(ours, theirs):
    ours, theirs = whole_state(ours), whole_state(theirs)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert_same_bits(array, theirs[name])


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
class TestSchedules:
    shape = (5, 8)

    def tile(self, cell):
        start = np.random.default_rng(1).uniform(-0.2, 0.2, self.shape).astype(np.float32)
        return rk.AnalogTile(self.shape, cell, seed=3).set_weights(start)

    def test_a_split_batch_gives_the_same_bits(self, cell):
        x, d = batch(40, self.shape)
        whole, parts, single = (self.tile(cell) for _ in range(3))
        whole.update(x, d, 0.3, batch_size=4)
        for part in (slice(0, 1), slice(1, 18), slice(18, 40)):
            parts.update(x[part], d[part], 0.3, batch_size=4)
        for k in range(40):
            single.update(x[k], d[k], 0.3, batch_size=4)
        assert_same_state(parts, whole)
        assert_same_state(single, whole)
        assert abs(np.asarray(whole) - np.asarray(self.tile(cell))).max() > 0.02

    def test_the_number_of_threads_does_not_matter(self, cell):
        x, d = batch(12, self.shape)
        tiles = []
        for n in (1, 3):
            rk.set_num_threads(n)
            tiles.append(self.tile(cell).update(x, d, 0.3, batch_size=2))
        rk.set_num_threads(None)
        assert_same_state(*tiles)

    def test_the_sources_give_the_bits_of_the_mirrors(self, cell, order):
        x, d = batch(9, self.shape)
        tiles = []
        for source in (False, True):
            tile = self.tile(cell)
            with on_cpu(order) if source else nullcontext():
                tile.update(x, d, 0.3, batch_size=3).decay().update(x[:1], d[:1], -0.3)
            tiles.append(tile)
        assert_same_state(*tiles)

    def test_a_copy_and_a_state_continue_in_the_middle_of_a_period(self, cell, tmp_path):
        x, d = batch(23, self.shape)
        tile = self.tile(cell).update(x[:10], d[:10], 0.3, batch_size=7)
        rk.save(tmp_path / "tile.npz", tile)
        others = [tile.copy(), rk.load(tmp_path / "tile.npz")]
        for one in (tile, *others):
            one.update(x[10:], d[10:], 0.3, batch_size=7)
        for other in others:
            assert_same_state(other, tile)


@pytest.mark.parametrize("shape", [(130, 132), (33, 257)])
def test_larger_tiles(shape):
    x, d = batch(5, shape)
    cell = rk.MixedPrecision(device=SOFT, n_x_bins=16, n_d_bins=16)
    tiles = [rk.AnalogTile(shape, cell, seed=4) for _ in range(2)]
    tiles[0].update(x, d, 0.3, batch_size=2)
    with on_cpu(7):
        tiles[1].update(x, d, 0.3, batch_size=2)
    assert_same_state(*tiles)


def test_four_steps_by_hand():
    step = 0.125  # exact in binary, like every number below
    device = rk.ConstantStep(
        dw_min=step, dw_min_dtod=0, dw_min_std=0, up_down_dtod=0, w_max=4, w_min=-4,
        w_max_dtod=0, w_min_dtod=0,
    )  # fmt: skip
    tile = rk.AnalogTile((1, 1), rk.MixedPrecision(device=device))
    w = chi = 0.0
    for t, gradient in enumerate((1.0, 0.5, -1.5, -3.0)):
        tile.update(np.ones(1, np.float32), np.full(1, gradient, np.float32), 0.25)
        chi += 0.25 * gradient
        if t > 0:
            n = int(chi / step)
            # n pulses surely: x = n fires all of its n slots.
            w, chi = w - n * step, chi - n * step
        assert float(np.asarray(tile)[0, 0]) == w
        assert float(tile.state()["arrays"]["chi"][0, 0]) == chi
    assert tile.clocks["transfers"] == 3
    assert tile.n_pulses == 3 + 3 + 6


def test_it_learns_what_the_devices_alone_cannot():
    """Gradients below a pulse, on devices of 20 states without noise of their own."""
    device = rk.SoftBounds(dw_min=0.06, dw_min_std=0.3)
    target = np.random.default_rng(2).uniform(-0.3, 0.3, (4, 8))
    errors = {}
    for cell in (device, rk.MixedPrecision(device=device)):
        tile = rk.AnalogTile((4, 8), cell, seed=1)
        x, _ = batch(1500, (4, 8))
        for row in x:
            d = ((np.asarray(tile) - target) @ row).astype(np.float32)
            tile.update(row, d, 0.1)
        errors[type(cell)] = np.sqrt(np.mean((np.asarray(tile) - target) ** 2))
    assert errors[rk.MixedPrecision] < 0.5 * errors[rk.SoftBounds]


def test_bad_inputs_change_nothing():
    tile = rk.AnalogTile((3, 4), CELLS["plain"], seed=1)
    x, d = batch(4, (3, 4))
    tile.update(x, d, 0.3)
    before = tile.copy()
    with on_cpu():
        bad = d.copy()
        bad[2, 1] = np.nan
        tile.update(x, bad, 0.3)
        tile.update(x, d, 0.3)
        with pytest.raises(rk.errors.NonFiniteError, match="x or d"):
            rk.check()
    assert_same_state(tile, before)


@pytest.mark.parametrize("name", ["one_sided", "write_noise"])
def test_exact_writes_are_refused_before_anything_changes(name):
    update = rk.UpdateParameters(pulse_type="none")
    tile = rk.AnalogTile((3, 4), CELLS[name], update=update)
    before = tile.copy()
    with pytest.raises(rk.errors.ParameterError, match="DETERMINISTIC_IMPLICIT"):
        tile.update(*batch(4, (3, 4)), 0.3, batch_size=1)
    assert_same_state(tile, before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rk.MixedPrecision(device=rk.Ideal()), "need a rpukit PulsedCell or Vector"),
        (lambda: rk.MixedPrecision(device=rk.Transfer()), "need a rpukit PulsedCell or Vector"),
        (lambda: rk.MixedPrecision(transfer_every=-1), "transfer_every"),
        (lambda: rk.MixedPrecision(transfer_every=1.5), "transfer_every.*integer"),
        (lambda: rk.MixedPrecision(n_rows_per_transfer=0), "n_rows_per_transfer"),
        (lambda: rk.MixedPrecision(n_x_bins=1), "n_x_bins"),
        (lambda: rk.MixedPrecision(n_d_bins=-2), "n_d_bins"),
        (lambda: rk.MixedPrecision(granularity=-1), "granularity"),
        (lambda: rk.MixedPrecision(transfer_lr=0), "transfer_lr"),
    ],
)
def test_bad_descriptions(make, message):
    with pytest.raises(rk.errors.ParameterError, match=message):
        make()
