"""Cells of several devices: against the reference's trajectories, and what a user relies on."""

from contextlib import nullcontext

import numpy as np
import pytest

import rpukit as rk
from rpukit.testing import assert_same_bits, on_cpu
from tests.reference import analog as reference

# Two sets of refreshes are left out: one has the sign of the refresh wrong, as its name says; in
# the other the differences are whole numbers of steps, so that rounding decides what is written.
KINDS = ("VectorUnitCell", "ReferenceUnitCell", "OneSidedUnitCell")
SETS = [
    name
    for name, s in reference.sets("d_compounds").items()
    if s["device"]["_class"] in KINDS and not name.startswith("stat_") and "BUG" not in name
]


def compound(device):
    """Build our cell from the reference's parameters."""
    parts = tuple(reference.cell(d) for d in device["unit_cell_devices"])
    kind = device["_class"]
    if kind == "OneSidedUnitCell":
        names = ("refresh_every", "units_in_mbatch", "refresh_upper_thres", "refresh_lower_thres")
        return rk.OneSided(
            device=parts[0],
            copy_inverted=device["copy_inverted"],
            refresh_forward=reference.io(device["refresh_forward"]),
            refresh_update=reference.update(device["refresh_update"]),
            **{name: device[name] for name in names},
        )
    if kind == "ReferenceUnitCell":
        return rk.Reference(devices=parts)
    return rk.Vector(
        devices=parts,
        update_policy=device["update_policy"].rpartition(".")[2],
        first_update_idx=device["first_update_idx"],
        gamma_vec=tuple(device["gamma_vec"]),
    )


@pytest.mark.parametrize("name", SETS)
def test_trajectory(name):
    s, z = reference.sets("d_compounds")[name], reference.arrays("d_compounds")
    shape = (s["out_size"], s["in_size"])
    tile = rk.AnalogTile(shape, compound(s["device"]), update=reference.update(s["update"]))
    for k, array in enumerate(tile.arrays):
        array.set_weights(z[f"{name}/hidden_weights_{k}"][0])
    # float32 sums of steps in another order: 2.4e-4 is what the reference's own check reached.
    np.testing.assert_allclose(np.asarray(tile), z[f"{name}/W"][0], atol=1e-6)
    for step, (x, d) in enumerate(zip(z[f"{name}/x"], z[f"{name}/d"], strict=True)):
        tile.update(x.astype(np.float32), d.astype(np.float32), s["lr"])
        np.testing.assert_allclose(np.asarray(tile), z[f"{name}/W"][step + 1], atol=3e-4)
        for k, array in enumerate(tile.arrays):
            want = z[f"{name}/hidden_weights_{k}"][step + 1]
            np.testing.assert_allclose(array.get_weights(), want, atol=3e-4)


SOFT = rk.SoftBounds(dw_min=0.01)
ONE_SIDED = rk.OneSided(
    device=rk.SoftBounds(dw_min=0.02, w_min=0),
    refresh_every=7,
    units_in_mbatch=False,
    refresh_upper_thres=0.3,
    refresh_lower_thres=0.05,
)
CELLS = {
    "all": rk.Vector(devices=(SOFT, rk.ConstantStep(dw_min=0.01)), gamma_vec=(0.5, 2)),
    "sequential": rk.Vector(devices=(SOFT,) * 3, update_policy="single_sequential"),
    "random": rk.Vector(devices=(SOFT,) * 3, update_policy="single_random"),
    "reference": rk.Reference(devices=(SOFT,)),
    "one_sided": ONE_SIDED,
}


def batch(n, shape, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, shape[1])).astype(np.float32)
    return x, rng.uniform(-0.3, 0.3, (n, shape[0])).astype(np.float32)


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
class TestCells:
    shape = (5, 12)

    def tile(self, cell):
        start = np.random.default_rng(1).uniform(-0.2, 0.2, self.shape).astype(np.float32)
        return rk.AnalogTile(self.shape, cell, seed=3).set_weights(start)

    def test_a_split_batch_gives_the_same_bits(self, cell):
        x, d = batch(40, self.shape)
        whole = self.tile(cell).update(x, d, 0.1)
        parts = self.tile(cell)
        for part in (slice(0, 1), slice(1, 18), slice(18, 40)):
            parts.update(x[part], d[part], 0.1)
        assert_same_bits(np.asarray(parts), np.asarray(whole))
        assert parts.clocks == whole.clocks
        assert parts.n_pulses == whole.n_pulses > 0

    def test_the_sources_give_the_bits_of_the_mirrors(self, cell, order):
        results = []
        x, d = batch(16, self.shape)
        for source in (False, True):
            tile = self.tile(cell)
            with on_cpu(order) if source else nullcontext():
                tile.update(x, d, 0.1)
                tile.diffuse().decay().reset(2, 3)
                results.append(np.asarray(tile))
        assert_same_bits(results[1], results[0])

    def test_the_weight_is_the_weighted_sum(self, cell):
        tile = self.tile(cell).update(*batch(9, self.shape), 0.1)
        hidden = np.array([array.get_weights() for array in tile.arrays], "f8")
        gamma = np.array(cell.weights_of_parts())
        exact = np.einsum("k,kij->ij", gamma, hidden)
        np.testing.assert_allclose(np.asarray(tile), exact, atol=3e-7)

    def test_a_copy_and_a_state_continue(self, cell, tmp_path):
        x, d = batch(20, self.shape)
        tile = self.tile(cell).update(x, d, 0.1)
        rk.save(tmp_path / "tile.npz", tile)
        others = [tile.copy(), rk.load(tmp_path / "tile.npz")]
        for one in (tile, *others):
            one.update(x, d, 0.1)
        for other in others:
            assert_same_bits(np.asarray(other), np.asarray(tile))
            assert other.cell == cell

    def test_set_weights_shows(self, cell):
        w = np.full(self.shape, 0.05, np.float32)
        tile = rk.AnalogTile(self.shape, cell, seed=3).set_weights(w)
        gamma = np.array(cell.weights_of_parts())
        factor = gamma.sum() if isinstance(cell, rk.Vector) else 1.0
        stuck = np.abs(np.asarray(tile) - factor * w) > 1e-6  # bounds of a cell below the weight
        assert stuck.mean() < 0.2


def test_one_device_of_a_tile_can_be_set():
    tile = rk.AnalogTile((2, 3), rk.Reference(devices=(SOFT,)), seed=1)
    tile.arrays[1].set_weights(np.full((2, 3), 0.1, np.float32))
    np.testing.assert_allclose(np.asarray(tile), -tile.arrays[1].get_weights())
    with pytest.raises(rk.errors.NonFiniteError, match="unchanged"):
        tile.arrays[1].set_weights(np.full((2, 3), np.nan, np.float32))
    names = set(tile.cells)
    assert {"0.w_min", "1.step_up"} <= names
    tile.set_cells(**{"1.w_max": np.full((2, 3), 0.02, np.float32)})
    assert tile.arrays[1].get_weights().max() <= np.float32(0.02)


def test_devices_of_a_cell_differ():
    tile = rk.AnalogTile((20, 20), CELLS["sequential"], seed=1)
    bounds = [array.cells["w_max"] for array in tile.arrays]
    assert not (bounds[0] == bounds[1]).any()


def test_a_random_device_learns_from_its_share_of_the_samples():
    n = 3000
    cell = rk.ConstantStep(dw_min=1e-4, dw_min_std=0, dw_min_dtod=0, up_down_dtod=0)
    vector = rk.Vector(devices=(cell,) * 3, update_policy="SINGLE_RANDOM")
    update = rk.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)
    tile = rk.AnalogTile((1, 1), vector, update=update, seed=5)
    tile.update(np.ones((n, 1), np.float32), np.full((n, 1), -1, np.float32), lr=1e-4)
    counts = [array.n_pulses for array in tile.arrays]
    assert sum(counts) == n
    # Binomial: the deviation is sqrt(n 1/3 2/3) = 25.8; 4.5 of them.
    assert all(abs(count - n / 3) < 4.5 * np.sqrt(n * 2 / 9) for count in counts)


def test_refresh_by_mini_batches_follows_the_batch_size():
    cell = rk.OneSided(device=rk.SoftBounds(dw_min=0.02, w_min=0), refresh_every=2)
    x, d = batch(20, (5, 12))
    split, whole = (rk.AnalogTile((5, 12), cell, seed=3) for _ in range(2))
    whole.update(x, d, 0.1, batch_size=5)
    for k in range(0, 20, 5):
        split.update(x[k : k + 5], d[k : k + 5], 0.1)
    assert_same_bits(np.asarray(split), np.asarray(whole))
    assert whole.clocks["refresh"] == 2
    with pytest.raises(rk.errors.ParameterError, match="batch_size"):
        whole.update(x, d, 0.1, batch_size=0)


def test_a_refresh_keeps_the_difference():
    cell = rk.ConstantStep(dw_min=0.001, dw_min_dtod=0, dw_min_std=0, up_down_dtod=0, w_min=0,
                           w_max=1, w_max_dtod=0, w_min_dtod=0, reset_std=0)  # fmt: skip
    one_sided = rk.OneSided(
        device=cell,
        refresh_every=1,
        units_in_mbatch=False,
        refresh_forward=rk.IOParameters(is_perfect=True),
        refresh_update=rk.UpdateParameters(desired_bl=4000),
    )
    tile = rk.AnalogTile((2, 2), one_sided)
    tile.arrays[1].set_weights(np.array([[0.9, 0.5], [0.3, 0.8]], np.float32))
    tile.arrays[0].set_weights(np.array([[0.4, 0.4], [0.8, 0.1]], np.float32))
    before = np.asarray(tile)
    zero = np.zeros(2, np.float32)
    tile.update(zero, zero, 0.1)
    plus, minus = tile.arrays[1].get_weights(), tile.arrays[0].get_weights()
    np.testing.assert_allclose(np.asarray(tile), before, atol=2e-3)  # two steps
    np.testing.assert_allclose(plus, [[0.5, 0.5], [0, 0.8]], atol=2e-3)
    np.testing.assert_allclose(minus, [[0, 0.4], [0.5, 0.1]], atol=2e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rk.Vector(devices=()), "1 or more pulsed cells"),
        (lambda: rk.Vector(devices=(rk.Ideal(),)), "need a rpukit PulsedCell"),
        (lambda: rk.Vector(update_policy="some"), "SINGLE_RANDOM"),
        (lambda: rk.Vector(first_update_idx=2), "0 to 1"),
        (lambda: rk.Vector(gamma_vec=(1.0,)), "2 finite numbers"),
        (lambda: rk.Reference(devices=(SOFT,) * 3), "1 to 2"),
        (lambda: rk.OneSided(refresh_every=-1), "from 0"),
        (lambda: rk.OneSided(device=rk.Ideal()), "need a rpukit PulsedCell"),
        (lambda: rk.OneSided(refresh_forward=None), "IOParameters"),
    ],
)
def test_bad_descriptions(make, message):
    with pytest.raises(rk.errors.ParameterError, match=message):
        make()
