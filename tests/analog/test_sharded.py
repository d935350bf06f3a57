"""Tiles split over devices: the bits of one device, wherever the rows are cut."""

from contextlib import nullcontext

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.errors import DeviceError, NonFiniteError, ParameterError
from rpukit.testing import assert_same_bits, on_cpu
from tests.on_cpu import fake_cupy, two_gpus
from tests.on_cpu.fake_cupy import Device

SHAPE = (13, 10)
CUTS = ((4,), (1, 12), (5, 6, 9))
NOISY = {
    "forward": rk.IOParameters(out_noise_std=0.1, inp_sto_round=True, out_bound=0.3),
    "update": rk.UpdateParameters(desired_bl=15),
}
SLOW = {"lifetime": 50.0, "diffusion": 0.01, "reset": 0.1, "reset_std": 0.02}
CELLS = {
    "ideal": rk.Ideal(),
    "constant": rk.ConstantStep(dw_min=0.02, dw_min_std=0.3, drift=rk.DriftParameters(nu=0.1)),
    "noisy": rk.SoftBounds(dw_min=0.02, write_noise_std=0.5, **SLOW),
    "stuck": rk.LinearStep(dw_min=0.02, corrupt_devices_prob=0.2, lifetime=20.0),
    "bias": rk.ConstantStep(dw_min=0.02, perfect_bias=True),
    "symmetric": rk.SoftBoundsReference(dw_min=0.02, subtract_symmetry_point=True),
    "pow": rk.PowStepReference(dw_min=0.02, subtract_symmetry_point=True),
    "vector": rk.Vector(devices=(rk.SoftBounds(dw_min=0.02), rk.ConstantStep(dw_min=0.03))),
    "turns": rk.Vector(devices=(rk.SoftBounds(dw_min=0.02),) * 3, update_policy="single_random"),
    "buffered": rk.BufferedTransfer(
        devices=(rk.SoftBounds(dw_min=0.02, dw_min_std=0.3),) * 3, thres_scale=0.3
    ),
    "chopped": rk.ChoppedTransfer(
        devices=(rk.SoftBounds(dw_min=0.02, write_noise_std=0.3), rk.ConstantStep(dw_min=0.02)),
        transfer_forward=rk.IOParameters(inp_noise=0, out_noise=0.02),
        in_chop_prob=0.3,
        auto_granularity=1,
    ),
    "dynamic": rk.DynamicTransfer(
        devices=(rk.SoftBounds(dw_min=0.02),) * 2,
        in_chop_prob=1.0,
        auto_granularity=1,
    ),
    "transfer": rk.Transfer(
        devices=(rk.SoftBounds(dw_min=0.02),) * 2,
        transfer_update=rk.UpdateParameters(
            desired_bl=7, update_management=False, update_bl_management=False
        ),
        with_reset_prob=0.3,
    ),
    "reference": rk.Reference(devices=(rk.SoftBounds(dw_min=0.02), rk.SoftBounds())),
}

WIDE, WIDE_CUTS = (5, 100), ((32,), (64, 96), (32, 64, 96))
SINGLE = [k for k, cell in CELLS.items() if not isinstance(cell, rk.Transfer)]


def data(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("f4")


def lived(tile, put=np.array):
    """Multiply, learn and relax; everything that the tile gives."""
    n_out, n_in = tile.shape
    n = 16 if isinstance(tile.cell, rk.DynamicTransfer) else 5  # it writes after two passes
    tile.set_weights(put(data(n_out, n_in, seed=9) / 3))
    found = []
    for k in range(3):
        x, d = put(data(n, n_in, seed=k) * (k + 1)), put(data(n, n_out, seed=10 + k))
        found += [tile.forward(x), tile.backward(d)]
        tile.update(x, d, lr=0.1 if k else -0.1)
        tile.post_step().drift(100.0)
        tile.reset(first_col=n_in - 2, n_col=4, prob=0.5)
        found.append(tile.get_weights())
    found.append(tile.forward(put(data(n_in))))
    return [_device.to_numpy(a) for a in found]


def same(found, expected):
    for one, two in zip(found, expected, strict=True):
        assert_same_bits(one, two)


@pytest.mark.parametrize("name", CELLS)
def test_cuts_do_not_matter(name):
    check_cuts(name, SHAPE, CUTS, "outputs")


@pytest.mark.parametrize("name", SINGLE)
def test_cuts_of_columns_do_not_matter(name):
    check_cuts(name, WIDE, WIDE_CUTS, "inputs")


def check_cuts(name, shape, all_cuts, split):
    options = {**NOISY, "seed": 3, "count_pulses": True}
    plain = rk.AnalogTile(shape, CELLS[name], **options)
    expected = lived(plain)
    state = plain.state()
    for cuts in all_cuts:
        places = ("cpu",) * (len(cuts) + 1)
        tile = rk.ShardedTile(shape, CELLS[name], places, split=split, cuts=cuts, **options)
        same(lived(tile), expected)
        assert tile.n_pulses == plain.n_pulses
        assert all(array.n_pulses for array in plain.arrays[:2]) == (
            name not in ("ideal", "reference")
        )
        if name != "ideal":
            assert tile.update_pulses == plain.update_pulses
            assert_same_bits(tile.pulse_counts, plain.pulse_counts)
        mine = tile.state()
        assert mine["header"] == state["header"]
        assert mine["arrays"].keys() == state["arrays"].keys()
        for key, array in state["arrays"].items():
            assert_same_bits(mine["arrays"][key], array)


@pytest.mark.sweep
@pytest.mark.parametrize("split", ["outputs", "inputs"])
@pytest.mark.parametrize("name", ["noisy", "stuck", "pow", "bias"])
def test_cells_drawn_when_needed(name, split):
    shape, cuts = (SHAPE, (4,)) if split == "outputs" else (WIDE, (64,))
    options = {"split": split, "cuts": cuts, "seed": 3, "storage": "procedural"}
    expected = lived(rk.AnalogTile(shape, CELLS[name], seed=3))
    for emulated in (False, True):
        with on_cpu() if emulated else nullcontext():
            same(lived(rk.ShardedTile(shape, CELLS[name], ("cpu",) * 2, **options)), expected)


@pytest.mark.parametrize("name", ["constant", "noisy", "vector", "buffered", "chopped", "dynamic"])
def test_kernels(name):
    plain = rk.AnalogTile(SHAPE, CELLS[name], **NOISY, seed=3)
    expected = lived(plain)
    with on_cpu():
        tile = rk.ShardedTile(SHAPE, CELLS[name], ("cpu",) * 3, **NOISY, seed=3)
        same(lived(tile), expected)


@pytest.mark.parametrize("name", ["ideal", "constant", "noisy", "vector"])
def test_kernels_on_columns(name):
    expected = lived(rk.AnalogTile(WIDE, CELLS[name], **NOISY, seed=3))
    with on_cpu():
        tile = rk.ShardedTile(WIDE, CELLS[name], ("cpu",) * 4, split="inputs", **NOISY, seed=3)
        assert tile.edges == (0, 32, 64, 96, 100)
        same(lived(tile), expected)


@pytest.mark.parametrize("split", ["outputs", "inputs"])
def test_few_samples(split):
    """Kernels make trains and pulses of a few samples in one launch, of a whole tile alone."""
    rng, shape = np.random.default_rng(0), (5, 70)
    plain = rk.AnalogTile(shape, CELLS["noisy"], seed=3)
    tile = rk.ShardedTile(shape, CELLS["noisy"], ("cpu",) * 2, split=split, seed=3)
    for n in (1, 1, 1, 3):
        x, d = (rng.uniform(-1, 1, (n, width)).astype(np.float32) for width in shape[::-1])
        plain.update(x, d, 0.1)
        with on_cpu():
            tile.update(x, d, 0.1)
    assert_same_bits(tile.get_weights(), plain.get_weights())


@pytest.mark.parametrize("split", ["outputs", "inputs"])
@pytest.mark.parametrize("storage", ["stored", "procedural"])
def test_kernels_with_lists_of_pulses(storage, split):
    """Many samples take another distribution of the work (`pulse_lists.cuh`)."""
    options = {"seed": 3, "count_pulses": True, "storage": storage}
    plain = rk.AnalogTile((9, 40), CELLS["noisy"], **options)
    x, d = data(70, 40), data(70, 9)
    plain.update(x, d, lr=0.1)
    with on_cpu():
        tile = rk.ShardedTile((9, 40), CELLS["noisy"], ("cpu",) * 2, split=split, **options)
        tile.update(x, d, lr=0.1)
        assert_same_bits(tile.get_weights(), plain.get_weights())
        assert_same_bits(tile.pulse_counts, plain.pulse_counts)


PERIPHERIES = {
    "perfect": rk.IOParameters(is_perfect=True, out_scale=2.0),
    "rounds": rk.IOParameters(out_bound=0.1, inp_noise=0.02),
    "worst": rk.IOParameters(out_bound=0.2, bound_management="iterative_worst_case"),
    "average": rk.IOParameters(noise_management="average_abs_max"),
    "plain": rk.IOParameters(noise_management="none", bound_management="none", out_noise=0.0),
}


@pytest.mark.parametrize("name", PERIPHERIES)
def test_peripheries(name):
    """Products of every kind, samples of zeros among them, on mirrors and kernels."""
    io = PERIPHERIES[name]
    x, d = data(6, 10), data(6, 13)
    x[2] = 0

    def products(tile):
        tile.set_weights(data(13, 10, seed=1))
        return [tile.forward(x), tile.backward(d), tile.forward(3 * x), tile.forward(x[:1])]

    more = {"forward": io, "backward": io, "seed": 2}
    expected = products(rk.AnalogTile((13, 10), rk.SoftBounds(), **more))
    assert_same_bits(expected[0], rk.AnalogTile((13, 10), rk.SoftBounds(), **more)
                     .set_weights(data(13, 10, seed=1)).forward(x))  # fmt: skip
    same(products(rk.ShardedTile((13, 10), rk.SoftBounds(), ("cpu",) * 3, **more)), expected)
    with on_cpu():
        split = rk.ShardedTile((13, 10), rk.SoftBounds(), ("cpu",) * 3, **more)
        same(products(split), expected)


def test_states_go_from_one_to_several_devices_and_back(tmp_path):
    cell, x = CELLS["noisy"], data(4, 10)
    plain = rk.AnalogTile(SHAPE, cell, **NOISY, seed=3)
    lived(plain)
    rk.save(tmp_path / "plain.npz", plain)
    two = rk.load(tmp_path / "plain.npz", ("cpu", "cpu"))
    rk.save(tmp_path / "two.npz", two)
    again = rk.load(tmp_path / "two.npz")
    three = two.to(("cpu",) * 3)
    expected = lived(plain)
    for tile in (two.copy(), again, three, two.to("cpu")):
        same(lived(tile), expected)
    assert_same_bits(two.forward(x), rk.load(tmp_path / "plain.npz").forward(x))


def test_states_go_from_rows_to_columns_and_back(tmp_path):
    plain = rk.AnalogTile(WIDE, CELLS["noisy"], **NOISY, seed=3)
    lived(plain)
    wide = rk.ShardedTile.from_state(plain.state(), ("cpu",) * 3, split="inputs")
    rk.save(tmp_path / "wide.npz", wide)
    high = rk.load(tmp_path / "wide.npz", ("cpu", "cpu"))
    assert (wide.split, high.split, wide.copy().edges) == ("inputs", "outputs", wide.edges)
    assert wide.nbytes == plain.nbytes + 2 * 40  # numbers that each block has
    expected = lived(plain)
    for tile in (wide.copy(), wide.to(("cpu", "cpu")), high, wide.to("cpu")):
        same(lived(tile), expected)


@pytest.mark.sweep
@pytest.mark.parametrize("split", ["outputs", "inputs"])
@pytest.mark.parametrize("name", ["constant", "noisy", "reference"])
def test_four_gpus(monkeypatch, name, split):
    expected = lived(rk.AnalogTile(WIDE, CELLS[name], **NOISY, seed=3))
    monkeypatch.setattr(fake_cupy, "N_GPU", 4)
    with two_gpus.installed(monkeypatch) as gpus:
        places = tuple(f"gpu:{k}" for k in range(4))
        tile = rk.ShardedTile(WIDE, CELLS[name], places, split=split, **NOISY, seed=3)
        same(lived(tile, _device.cupy().array), expected)
        used = {line[-5:] for line in gpus.log if line.startswith("pulsed_update on")}
        assert used == {*places}
        assert gpus.device == 0


@pytest.mark.parametrize("name", ["constant", "noisy", "reference"])
def test_two_gpus(monkeypatch, name):
    plain = rk.AnalogTile(SHAPE, CELLS[name], **NOISY, seed=3)
    expected = lived(plain)

    with two_gpus.installed(monkeypatch) as gpus:

        def put(array):
            with Device(1):
                return _device.cupy().array(array)

        tile = rk.ShardedTile(SHAPE, CELLS[name], ("gpu:1", "gpu:0"), **NOISY, seed=3)
        same(lived(tile, put), expected)
        assert any(line == "pulsed_update on gpu:0" for line in gpus.log)
        same(lived(tile.to("cpu")), lived(plain))
        assert tile.n_pulses
        with pytest.raises(DeviceError, match="x is on cpu"):
            tile.forward(data(2, 10))
        assert gpus.device == 0


@pytest.mark.multi_gpu
@pytest.mark.parametrize(
    ("name", "split"), [*((k, "outputs") for k in CELLS), *((k, "inputs") for k in SINGLE)]
)
def test_real_gpus(name, split):
    shape = (300, 260)
    options = {**NOISY, "seed": 3, "count_pulses": True}

    def put(array):
        return _device.to_device(array, _device.parse_device("gpu:0"))

    expected = lived(rk.AnalogTile(shape, CELLS[name], **options))
    cut: dict = {"split": split, "cuts": (131,) if split == "outputs" else (96,)}
    tile = rk.ShardedTile(shape, CELLS[name], ("gpu:0", "gpu:1"), **cut, **options)
    same(lived(tile, put), expected)
    same(lived(tile.copy(), put), lived(tile.to("gpu:0"), put))


def test_bad_values_change_no_block():
    """On kernels an error waits; until it is raised, no block of the tile changes."""
    with on_cpu():
        tile = rk.ShardedTile(SHAPE, CELLS["noisy"], ("cpu",) * 2, seed=3)
        plain = rk.AnalogTile(SHAPE, CELLS["noisy"], seed=3)
        bad = data(3, 10)
        bad[1, 4] = np.nan
        for one in (tile, plain):
            one.update(data(3, 10), data(3, 13), lr=0.1)
            one.forward(bad)
            one.update(data(3, 10, seed=1), data(3, 13), lr=0.1)
            one.diffuse()
            with pytest.raises(NonFiniteError, match="x holds NaN"):
                one.get_weights()
            one.update(data(3, 10, seed=2), data(3, 13), lr=0.1)
            one.diffuse()
        assert_same_bits(tile.get_weights(), plain.get_weights())
        assert tile.clocks == plain.clocks


class TestErrors:
    def test_devices(self, monkeypatch):
        for wrong in ((), "gpu:0"):
            with pytest.raises(ParameterError, match="need several"):
                rk.ShardedTile(SHAPE, rk.Ideal(), wrong)
        with pytest.raises(ParameterError, match="got 14 for 13 rows"):
            rk.ShardedTile(SHAPE, rk.Ideal(), ("cpu",) * 14)
        with two_gpus.installed(monkeypatch):
            with pytest.raises(ParameterError, match="need different GPUs"):
                rk.ShardedTile(SHAPE, rk.Ideal(), ("gpu:1", "gpu:1"))
            with pytest.raises(ParameterError, match="need GPUs only, or the CPU"):
                rk.ShardedTile(SHAPE, rk.Ideal(), ("gpu:1", "cpu"))
            with pytest.raises(DeviceError, match="has 2 GPU"):
                rk.ShardedTile(SHAPE, rk.Ideal(), ("gpu:1", "gpu:2"))

    @pytest.mark.parametrize("cuts", [(0,), (13,), (3, 4), (), (2.5,)])
    def test_cuts(self, cuts):
        with pytest.raises(ParameterError, match="cuts"):
            rk.ShardedTile(SHAPE, rk.Ideal(), ("cpu", "cpu"), cuts=cuts)

    def test_columns(self):
        for wrong, message in (
            ({"cuts": (33,)}, "multiples of 32: got a cut at 33, allowed nearby are 32 and 64"),
            ({"cuts": (100,)}, "first columns between 1 and 99"),
            ({"split": "columns"}, "split: got 'columns'"),
        ):
            with pytest.raises(ParameterError, match=message):
                rk.ShardedTile(WIDE, rk.Ideal(), ("cpu",) * 2, **{"split": "inputs", **wrong})
        with pytest.raises(
            ParameterError, match="got 5 for 100 columns, need 32 columns for each"
        ):
            rk.ShardedTile(WIDE, rk.Ideal(), ("cpu",) * 5, split="inputs")
        with pytest.raises(ParameterError, match='use split="outputs"'):
            rk.ShardedTile(WIDE, CELLS["buffered"], ("cpu",) * 2, split="inputs")

    def test_what_is_not_split(self):
        with pytest.raises(ParameterError, match="OneSided reads its own cells"):
            rk.ShardedTile(SHAPE, rk.OneSided(), ("cpu", "cpu"))
        pair = (rk.SoftBounds(), rk.SoftBounds())
        for more in (
            {"transfer_columns": False},
            {"transfer_update": rk.UpdateParameters()},
            {"transfer_forward": rk.IOParameters(out_noise_std=0.1)},
            {"devices": (rk.Vector(devices=pair), rk.SoftBounds())},
        ):
            with pytest.raises(ParameterError, match="a split tile cannot"):
                rk.ShardedTile(SHAPE, rk.Transfer(**{"devices": pair, **more}), ("cpu", "cpu"))
        with pytest.raises(ParameterError, match="forward: IR drop"):
            rk.ShardedTile(SHAPE, rk.Ideal(), ("cpu",), forward=rk.IOParameters(ir_drop=1.0))
        with pytest.raises(ParameterError, match=r"backward: got w_noise=0.1"):
            rk.ShardedTile(
                SHAPE, rk.Ideal(), ("cpu",),
                backward=rk.IOParameters(w_noise=0.1, w_noise_type="additive_constant"),
            )  # fmt: skip
        tile = rk.ShardedTile(SHAPE, rk.SoftBounds(), ("cpu", "cpu"))
        with pytest.raises(ParameterError, match="set them by AnalogTile.set_cells"):
            tile.set_cells(w_max=1)
        wide = rk.AnalogTile(SHAPE, rk.SoftBounds(), dtype="float64")
        with pytest.raises(TypeError, match="need float32 to split it"):
            rk.ShardedTile.from_state(wide.state(), ("cpu", "cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_tiles(seed):
    """Random shapes, cells, peripheries, storage and batches; mirrors and kernels."""
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(4, 90)), int(rng.integers(4, 200))
    cell = CELLS[rng.choice([*CELLS])]
    io = [rk.IOParameters(), *PERIPHERIES.values()]
    options = {
        "forward": io[rng.integers(len(io))],
        "backward": io[rng.integers(len(io))],
        "update": rk.UpdateParameters(
            desired_bl=int(rng.integers(1, 60)),
            pulse_type=str(rng.choice(["stochastic_compressed", "deterministic_implicit"])),
        ),
        "seed": seed,
    }
    if isinstance(cell, rk.PulsedCell) and rng.random() < 0.4:
        options["storage"] = "procedural"
    split = "outputs" if isinstance(cell, rk.Transfer) else str(rng.choice(["outputs", "inputs"]))
    ends = np.arange(1, shape[0]) if split == "outputs" else np.arange(32, shape[1], 32)
    n_device = int(rng.integers(1, min(5, ends.size + 2)))
    cuts = sorted(rng.choice(ends, n_device - 1, replace=False).tolist())
    expected = lived(rk.AnalogTile(shape, cell, **options))
    places, where = ("cpu",) * n_device, {"split": split, "cuts": cuts}
    same(lived(rk.ShardedTile(shape, cell, places, **where, **options)), expected)
    with on_cpu():
        same(lived(rk.ShardedTile(shape, cell, places, **where, **options)), expected)
