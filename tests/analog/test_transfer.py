"""The transfer family: against the reference's trajectories, by hand, and for any schedule."""

import gc
import weakref
from contextlib import nullcontext
from dataclasses import fields

import numpy as np
import pytest

import rpukit as rk
from rpukit._device import parse_device, to_device
from rpukit._kernels import launch
from rpukit.analog.transfer.array import TransferArray
from rpukit.testing import assert_same_bits, on_cpu
from tests.reference import analog as reference

KINDS = {
    "TransferCompound": rk.Transfer,
    "BufferedTransferCompound": rk.BufferedTransfer,
    "ChoppedTransferCompound": rk.ChoppedTransfer,
    "DynamicTransferCompound": rk.DynamicTransfer,
}
SETS = [
    name
    for name, s in reference.sets("d_compounds").items()
    if s["device"]["_class"] in KINDS and not name.startswith("stat_")
]


def compound(device):
    """Build our cell from the reference's parameters."""
    cls = KINDS[device["_class"]]
    known = {field.name for field in fields(cls)}
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in device.items() if k in known}
    given["transfer_forward"] = reference.io(device["transfer_forward"])
    given["transfer_update"] = reference.update(device["transfer_update"])
    parts = tuple(reference.cell(d) for d in device["unit_cell_devices"])
    return cls(devices=parts, **given)


def buffer_of(tile, columns):
    """The digital buffer of the first array in the layout of the weight."""
    buffer = tile.state()["arrays"]["buffer"][0]
    return buffer.T if columns else buffer


@pytest.mark.parametrize("name", SETS)
def test_trajectory(name):
    s, z = reference.sets("d_compounds")[name], reference.arrays("d_compounds")
    tile = rk.AnalogTile(
        (s["out_size"], s["in_size"]), compound(s["device"]), update=reference.update(s["update"])
    )
    tile.set_weights(z[f"{name}/W"][0].astype(np.float32))
    # Where choppers differ, the reference's own weight has them transposed; W_correct has not.
    visible = z.get(f"{name}/W_correct", z[f"{name}/W"])
    hidden = next((z[k] for k in z if k.startswith(f"{name}/buffered_FP_weight")), None)
    for step, (x, d) in enumerate(zip(z[f"{name}/x"], z[f"{name}/d"], strict=True)):
        tile.update(x.astype(np.float32), d.astype(np.float32), s["lr"])
        # float32 sums of steps in another order: 2.4e-4 is what a float64 recursion reached.
        np.testing.assert_allclose(np.asarray(tile), visible[step + 1], atol=3e-4)
        for k, array in enumerate(tile.arrays):
            want = z[f"{name}/hidden_weights_{k}"][step + 1]
            np.testing.assert_allclose(array.get_weights(), want, atol=3e-4)
    if hidden is not None:
        ours = buffer_of(tile, s["device"]["transfer_columns"])
        np.testing.assert_allclose(ours, hidden[-1], atol=3e-4 * max(1, np.abs(hidden).max()))


SOFT = rk.SoftBounds(dw_min=0.02)
PAIR = (SOFT, rk.ConstantStep(dw_min=0.01))
CELLS = {
    "ttv1": rk.Transfer(devices=PAIR, units_in_mbatch=False, with_reset_prob=0.5, gamma=0.3),
    "ttv1_rows": rk.Transfer(
        devices=PAIR, units_in_mbatch=False, transfer_columns=False, n_reads_per_transfer=2
    ),
    "ttv1_random": rk.Transfer(devices=PAIR, units_in_mbatch=False, random_selection=True),
    "ttv1_noisy_read": rk.Transfer(
        devices=PAIR,
        units_in_mbatch=False,
        transfer_every=3,
        n_reads_per_transfer=2,
        with_reset_prob=0.5,
        transfer_forward=rk.IOParameters(inp_noise=0.05, ir_drop=1.0),
    ),
    "chain": rk.Transfer(
        devices=(SOFT, *PAIR),
        units_in_mbatch=False,
        transfer_every_vec=(1, 5, 0),
        gamma_vec=(0.1, 0.5, 1),
    ),
    "ttv2": rk.BufferedTransfer(devices=PAIR, units_in_mbatch=False, transfer_every=2),
    "ttv3": rk.ChoppedTransfer(devices=PAIR, gamma=0.5, in_chop_prob=0.3, out_chop_prob=0.3),
    "ttv3_scaled": rk.ChoppedTransfer(
        devices=PAIR, auto_scale=True, fast_lr=0.1, correct_gradient_magnitudes=True
    ),
    "nested": rk.ChoppedTransfer(
        devices=(
            rk.Vector(devices=PAIR, update_policy="single_sequential"),
            rk.OneSided(device=SOFT, refresh_every=3),
        ),
        gamma=0.5,
        in_chop_prob=0.3,
    ),
    "ttv4": rk.DynamicTransfer(devices=PAIR, in_chop_prob=0.3, fast_lr=0.5, auto_scale=True),
    "ttv4_random": rk.DynamicTransfer(
        devices=PAIR,
        in_chop_random=True,
        in_chop_prob=0.3,
        forget_buffer=False,
        buffer_cap=2,
        gamma=0.1,
    ),
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
    shape = (5, 7)

    def tile(self, cell):
        start = np.random.default_rng(1).uniform(-0.2, 0.2, self.shape).astype(np.float32)
        return rk.AnalogTile(self.shape, cell, seed=3).set_weights(start)

    def test_a_split_batch_gives_the_same_bits(self, cell):
        x, d = batch(60, self.shape)
        whole, parts, single = (self.tile(cell) for _ in range(3))
        whole.update(x, d, 0.3, batch_size=60)
        for part in (slice(0, 1), slice(1, 18), slice(18, 60)):
            parts.update(x[part], d[part], 0.3, batch_size=60)
        for k in range(60):
            single.update(x[k], d[k], 0.3, batch_size=60)
        assert_same_state(parts, whole)
        assert_same_state(single, whole)
        moved = [np.ptp(a.get_weights() - self.tile(cell).devices[k].get_weights()) > 0
                 for k, a in enumerate(whole.devices)]  # fmt: skip
        assert all(moved)

    def test_the_sources_give_the_bits_of_the_mirrors(self, cell, order):
        x, d = batch(24, self.shape)
        tiles = []
        for source in (False, True):
            tile = self.tile(cell)
            with on_cpu(order) if source else nullcontext():
                tile.update(x, d, 0.3).decay().update(x[:1], d[:1], 0.3)
            tiles.append(tile)
        assert_same_state(*tiles)

    def test_a_copy_and_a_state_continue_in_the_middle_of_a_period(self, cell, tmp_path):
        x, d = batch(23, self.shape)
        tile = self.tile(cell).update(x, d, 0.3)
        rk.save(tmp_path / "tile.npz", tile)
        others = [tile.copy(), rk.load(tmp_path / "tile.npz")]
        for one in (tile, *others):
            one.update(x, d, 0.3)
        for other in others:
            assert_same_state(other, tile)

    def test_the_visible_weight_is_the_formula_at_every_step(self, cell):
        tile, wrong = self.tile(cell), 0.0
        x, d = batch(40, self.shape)
        gamma = np.array(cell.weights_of_parts())
        for k in range(40):
            tile.update(x[k], d[k], 0.3)
            arrays = tile.state()["arrays"]
            hidden = np.array([part.weight for part in tile._unit.children], "f8")
            plain = np.einsum("k,kij->ij", gamma, hidden)
            if "chopper_in" in arrays:
                signs = np.outer(arrays["chopper_out"], arrays["chopper_in"])
                hidden[0] *= signs
            exact = np.einsum("k,kij->ij", gamma, hidden)
            np.testing.assert_allclose(np.asarray(tile), exact, atol=3e-7)
            wrong = max(wrong, np.abs(plain - exact).max())
        if "chopper_in" in arrays and gamma[0]:
            assert wrong > 0.01  # gamma A + C without the choppers fails


@pytest.mark.parametrize("columns", [True, False])
def test_one_device_in_a_vector_is_that_device(columns, device):
    """What is made of several learns, is read and is written as devices are."""
    names = ("dw_min", "up_down", "w_max", "w_min")
    alone = rk.ConstantStep(dw_min_std=0, **{f"{name}_dtod": 0 for name in names})
    options = {"units_in_mbatch": False, "transfer_columns": columns, "gamma": 0.5}
    options["transfer_forward"] = rk.IOParameters(is_perfect=True)
    shape = (9, 132) if columns else (132, 9)
    tiles = [
        rk.AnalogTile(shape, rk.BufferedTransfer(devices=(part, part), **options), device=device)
        for part in (alone, rk.Vector(devices=(alone,)))
    ]
    x, d = (to_device(v, parse_device(device)) for v in batch(100, shape))
    for tile in tiles:
        tile.update(x, d, 0.3)
    assert_same_bits(tiles[1].get_weights(), tiles[0].get_weights())
    assert tiles[1].n_pulses == tiles[0].n_pulses > 0
    written = tiles[0].devices[1].get_weights()
    assert float(abs(written).max()) > 0


class TestByHand:
    """Three steps of a 1 x 1 tile in plain Python: the recursion of each docstring."""

    step = 0.125  # exact in binary, like every number below
    device = rk.ConstantStep(
        dw_min=step, dw_min_dtod=0, dw_min_std=0, up_down_dtod=0, w_max=4, w_min=-4,
        w_max_dtod=0, w_min_dtod=0,
    )  # fmt: skip
    perfect = rk.IOParameters(is_perfect=True)
    one = rk.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)

    def run(self, cell, signs):
        tile = rk.AnalogTile((1, 1), cell, update=self.one)
        for sign in signs:
            # lr = g: both probabilities are 1, one pulse against the sign.
            tile.update(np.ones(1, np.float32), np.full(1, -sign, np.float32), self.step)
            yield [float(a.get_weights()[0, 0]) for a in tile.arrays], tile

    def test_ttv1(self):
        cell = rk.Transfer(
            devices=(self.device,) * 2, transfer_forward=self.perfect, transfer_update=self.one,
            scale_transfer_lr=False, transfer_lr=8.0,
        )  # fmt: skip
        a = c = 0.0
        for (got, tile), sign in zip(self.run(cell, (1, 1, -1)), (1, 1, -1), strict=True):
            a += sign * self.step
            # |z| B with B = sqrt(lr / g) = 8 and 8 for the one-hot: both fire surely for z >= g.
            c += np.sign(a) * self.step
            assert got == [a, c]
            assert float(np.asarray(tile)[0, 0]) == c

    def test_ttv2(self):
        cell = rk.BufferedTransfer(
            devices=(self.device,) * 2, transfer_forward=self.perfect, transfer_lr=0.75,
            scale_transfer_lr=False, momentum=0.5, units_in_mbatch=False,
        )  # fmt: skip
        a = c = h = 0.0
        for (got, tile), sign in zip(self.run(cell, (1,) * 4), (1,) * 4, strict=True):
            a += sign * self.step
            h += 0.75 * a
            n = min(max(int(h / self.step), -1), 1)
            h = h * 0.5 if n else h
            c += n * self.step
            assert got == [a, c]
            assert tile.state()["arrays"]["buffer"][0, 0, 0] == h

    @pytest.mark.parametrize("gamma", [0.0, 0.5])
    def test_ttv3(self, gamma):
        cell = rk.ChoppedTransfer(
            devices=(self.device,) * 2, transfer_forward=self.perfect, transfer_lr=0.25,
            scale_transfer_lr=False, fast_lr=self.step, in_chop_prob=0.5, in_chop_random=False,
            gamma=gamma,
        )  # fmt: skip
        rate = 0.25 * (gamma if gamma else 1)  # gamma_A / gamma_C, where both are positive
        a = c = h = 0.0
        chopper = 1
        for k, (got, tile) in enumerate(self.run(cell, (1,) * 8)):
            a += chopper * self.step
            h += chopper * a * rate / self.step
            n = min(max(int(h), -1), 1)
            h = 0.0 if n else h
            c += n * self.step
            chopper = -chopper if k % 2 == 1 else chopper
            assert got == [a, c]
            assert float(np.asarray(tile)[0, 0]) == gamma * chopper * a + c

    def test_ttv4(self):
        cell = rk.DynamicTransfer(
            devices=(self.device,) * 2, transfer_forward=self.perfect, transfer_lr=0.25,
            scale_transfer_lr=False, fast_lr=self.step, in_chop_prob=0.5, tail_weightening=1,
        )  # fmt: skip
        a = c = h = mean = past = 0.0
        chopper, switched = 1, False
        for k, (got, tile) in enumerate(self.run(cell, (1,) * 9)):
            a += chopper * self.step
            past = mean if switched else past
            h += chopper * (a - past) * 0.25 / self.step
            n = min(max(int(h), -1), 1)
            h = 0.0 if n else h
            mean = 0.5 * mean + 0.5 * a
            c += n * self.step if k > 2 else 0
            switched = k % 2 == 1
            chopper = -chopper if switched else chopper
            assert got == [a, c]
            assert tile.state()["arrays"]["mean"][0, 0] == mean


def test_many_columns_and_reads_with_noise(order):
    cell = rk.ChoppedTransfer(devices=PAIR, gamma=0.2)
    x, d = batch(150, (3, 40))
    tiles = [rk.AnalogTile((3, 40), cell, seed=9) for _ in range(2)]
    tiles[0].update(x, d, 0.3)
    with on_cpu(order):
        for part in (slice(0, 70), slice(70, 150)):
            tiles[1].update(x[part], d[part], 0.3)
    assert_same_state(*tiles)
    assert tiles[0].clocks["transfers_0"] == 150


@pytest.mark.parametrize(
    ("cell", "launches"),
    [
        (rk.Transfer(devices=PAIR, units_in_mbatch=False), 4),
        (rk.BufferedTransfer(devices=PAIR, units_in_mbatch=False, transfer_columns=False), 4),
        (rk.ChoppedTransfer(devices=PAIR), 5),
        (rk.ChoppedTransfer(devices=PAIR, gamma=0.1), 6),
        (rk.DynamicTransfer(devices=PAIR, auto_scale=True), 7),
    ],
    ids=["ttv1", "ttv2", "ttv3", "ttv3_gamma", "ttv4_scaled"],
)
def test_a_batch_takes_as_many_launches_as_a_sample(cell, launches, monkeypatch):
    """A transfer after every sample does not cost a launch each."""
    run, names = launch._runner, []
    counted = lambda variant, *args: (names.append(variant.entry), run(variant, *args))  # noqa: E731
    monkeypatch.setattr(launch, "_runner", counted)
    tile = rk.AnalogTile((6, 40), cell, seed=1)
    for n in (1, 6):
        x, d = batch(n, (6, 40))
        with on_cpu():
            tile.update(x, d, 0.3)
        assert len(names) == launches, names
        names.clear()


@pytest.mark.parametrize("name", ["ttv2", "ttv3_scaled", "ttv4", "ttv4_random", "ttv3_every_5"])
def test_steps_that_come_again(name, order, monkeypatch):
    """Launches made without the code of a step have its slices, draws and flips."""
    cells = CELLS | {"ttv3_every_5": rk.ChoppedTransfer(devices=PAIR, gamma=0.5, transfer_every=5)}
    learn, steps = TransferArray._learn, []
    monkeypatch.setattr(TransferArray, "_learn", lambda *a: (steps.append(1), learn(*a))[1])
    tiles = [rk.AnalogTile((3, 132), cells[name], seed=9) for _ in range(2)]
    x, d = batch(60, (3, 132))
    for k, source in enumerate((False, True)):
        with on_cpu(order) if source else nullcontext():
            for start in range(0, 30, 3):
                part = slice(start, start + 3)
                tiles[k].update(x[part], d[part], 0.3, batch_size=1)
            for sample in range(30, 60):
                tiles[k].update(x[sample], d[sample], 0.3)
        assert source == (len(steps) < 40)
        steps.clear()
    assert_same_state(*tiles)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rk.Transfer(devices=(SOFT,)), "2 or more"),
        (lambda: rk.Transfer(gamma_vec=(1.0,)), "2 finite numbers"),
        (lambda: rk.Transfer(transfer_every=-1), "transfer_every"),
        (lambda: rk.Transfer(n_reads_per_transfer=0), "from 1"),
        (lambda: rk.Transfer(with_reset_prob=2), "with_reset_prob"),
        (lambda: rk.Transfer(with_reset_prob=1, transfer_columns=False), "rows"),
        (lambda: rk.Transfer(transfer_forward=None), "IOParameters"),
        (lambda: rk.Transfer(devices=(SOFT, rk.Ideal())), "PulsedCell or Vector or Reference"),
        (
            lambda: rk.Transfer(devices=(rk.Vector(devices=PAIR), SOFT), with_reset_prob=1),
            "with_reset_prob.*compound cells",
        ),
        (
            lambda: rk.ChoppedTransfer(devices=(rk.Vector(devices=PAIR), SOFT), transfer_every=-1),
            "transfer_every.*compound cell",
        ),
        (lambda: rk.BufferedTransfer(thres_scale=0), "positive"),
        (lambda: rk.BufferedTransfer(with_reset_prob=1), "reset"),
        (lambda: rk.ChoppedTransfer(devices=(SOFT,) * 3), "2 to 2"),
        (lambda: rk.ChoppedTransfer(in_chop_prob=1.5), "in_chop_prob"),
        (lambda: rk.ChoppedTransfer(random_selection=True), "random_selection"),
        (lambda: rk.DynamicTransfer(no_buffer=True), "no_buffer"),
        (lambda: rk.DynamicTransfer(out_chop_prob=0.5), "out_chop_prob"),
        (lambda: rk.DynamicTransfer(tail_weightening=0), "tail_weightening"),
    ],
)
def test_bad_descriptions(make, message):
    with pytest.raises(rk.errors.ParameterError, match=message):
        make()


def test_a_tile_that_is_gone_holds_no_memory():
    tile = rk.AnalogTile((3, 4), rk.ChoppedTransfer(devices=PAIR), seed=1)
    x, d = batch(3, (3, 4))
    with on_cpu():
        tile.update(x, d, 0.3)
    weight = weakref.ref(tile.arrays[0].weight.base)
    del tile
    gc.collect()
    assert weight() is None
