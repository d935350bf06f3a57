"""Inference tiles split over devices: the bits of one device, wherever the cells are cut."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.errors import DeviceError, NonFiniteError, ParameterError
from rpukit.testing import assert_same_bits, on_cpu
from tests.on_cpu import fake_cupy, two_gpus

inference = rk.inference
SHAPE = (13, 40)
CUTS = {"outputs": ((4,), (4, 8, 12)), "inputs": ((8,), (4, 20, 36))}
OPTIONS = {
    "pcm": {"noise": inference.PCMLike(), "compensation": "global"},
    "pairs": {
        "noise": inference.Hermes(),
        "converter": inference.NPairs(factors=(1, 4), g_max=20.0),
        "compensation": "per_column",
        "forward": rk.IOParameters(out_noise_std=0.1, inp_sto_round=True, out_bound=0.3),
    },
    "exact": {
        "noise": inference.CustomDrift(),
        "compensation": "global_exact",
        "input_range": inference.InputRange(),
    },
    "wan": {"noise": inference.ReRamWan(), "w_max": 2.0},
    "cmo": {"noise": inference.ReRamCMO(), "backward": rk.IOParameters(is_perfect=True)},
    "flat": {"noise": inference.StateIndependent(), "converter": inference.SinglePair(g_max=20.0)},
}


def data(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("f4")


def lived(tile, put=np.array):
    """Everything that a tile gives, in digital and programmed."""
    (n_out, n_in), found = tile.shape, []
    tile.set_weights(put(data(n_out, n_in, seed=9)))
    for k in range(2):
        x, d = put(data(5, n_in, seed=k)), put(data(5, n_out, seed=10 + k))
        found += [tile.forward(x), tile.backward(d), tile.get_weights()]
        tile.program()
        found += [tile.get_weights(), _device.to_numpy(tile.conductances).copy()]
        for t in (0.0, 86400.0):
            tile.drift_to(t)
            found += [tile.forward(x), tile.backward(d), tile.get_weights(), tile.alpha]
        found.append(tile.read().forward(put(data(n_in))))
        if tile.drift_coefficients is not None:
            found.append(_device.to_numpy(tile.drift_coefficients).copy())
        tile.update(x, d, 0.01).update_scales(found[0], d, 0.1)
        if k:
            tile.post_step()
    return [_device.to_numpy(a) for a in found]


def same(found, expected):
    for one, two in zip(found, expected, strict=True):
        assert_same_bits(one, two)


def same_state(tile, plain):
    mine, expected = tile.state(), plain.state()
    assert mine["header"] == expected["header"]
    assert mine["arrays"].keys() == expected["arrays"].keys()
    for key, array in expected["arrays"].items():
        assert_same_bits(mine["arrays"][key], array)


@pytest.mark.parametrize("split", CUTS)
@pytest.mark.parametrize("name", OPTIONS)
def test_cuts_do_not_matter(name, split):
    plain = rk.InferenceTile(SHAPE, seed=3, **OPTIONS[name])
    expected = lived(plain)
    for cuts in CUTS[split]:
        where = {"split": split, "cuts": cuts}
        places = ("cpu",) * (len(cuts) + 1)
        tile = rk.ShardedInferenceTile(SHAPE, places, **where, seed=3, **OPTIONS[name])
        same(lived(tile), expected)
        same_state(tile, plain)
        assert tile.edges == (0, *cuts, SHAPE[split == "inputs"])


@pytest.mark.parametrize(
    ("name", "split"),
    [("pcm", "inputs"), ("pairs", "outputs"), ("wan", "inputs"), ("cmo", "outputs")],
)
def test_kernels(name, split):
    expected = lived(rk.InferenceTile(SHAPE, seed=3, **OPTIONS[name]))
    with on_cpu():
        places = ("cpu",) * 3
        tile = rk.ShardedInferenceTile(SHAPE, places, split=split, seed=3, **OPTIONS[name])
        same(lived(tile), expected)


@pytest.mark.sweep
@pytest.mark.parametrize("split", CUTS)
@pytest.mark.parametrize("n_gpu", [2, 4])
def test_pretended_gpus(monkeypatch, n_gpu, split):
    expected = lived(rk.InferenceTile(SHAPE, seed=3, **OPTIONS["pairs"]))
    monkeypatch.setattr(fake_cupy, "N_GPU", n_gpu)
    with two_gpus.installed(monkeypatch) as gpus:
        places = tuple(f"gpu:{k}" for k in range(n_gpu))[::-1]

        def put(array):
            with fake_cupy.Device(n_gpu - 1):
                return _device.cupy().array(array)

        options = {"split": split, "seed": 3, **OPTIONS["pairs"]}
        tile = rk.ShardedInferenceTile(SHAPE, places, **options)
        same(lived(tile, put), expected)
        for kernel in ("program_conductance", "drift_conductance"):
            assert {line[-5:] for line in gpus.log if line.startswith(kernel)} == {*places}
        same_state(tile.copy(), tile.to("cpu"))
        with pytest.raises(DeviceError, match="x is on cpu"):
            tile.forward(data(2, 40))
        assert gpus.device == 0


@pytest.mark.multi_gpu
@pytest.mark.parametrize("split", CUTS)
@pytest.mark.parametrize("name", OPTIONS)
def test_real_gpus(name, split):
    shape = (300, 260)

    def put(array):
        return _device.to_device(array, _device.parse_device("gpu:0"))

    expected = lived(rk.InferenceTile(shape, seed=3, **OPTIONS[name]))
    options = {"split": split, "seed": 3, **OPTIONS[name]}
    tile = rk.ShardedInferenceTile(shape, ("gpu:0", "gpu:1"), **options)
    same(lived(tile, put), expected)
    same(lived(tile.copy(), put), lived(tile.to("gpu:0"), put))


def test_states_go_from_one_to_several_devices_and_back(tmp_path):
    plain = rk.InferenceTile(SHAPE, seed=3, **OPTIONS["pcm"])
    lived(plain)
    plain.program().drift_to(100.0)
    rk.save(tmp_path / "plain.npz", plain)
    two = rk.load(tmp_path / "plain.npz", ("cpu", "cpu"))
    rk.save(tmp_path / "two.npz", two)
    wide = rk.ShardedInferenceTile.from_state(two.state(), ("cpu",) * 3, split="inputs")
    same_state(wide, plain)
    assert rk.summary(two).as_dict()["devices"] == rk.summary(plain).as_dict()["devices"]
    x = data(3, 40)
    expected = plain.forward(x)
    for tile in (two, wide.copy(), wide.to(("cpu",) * 2), rk.load(tmp_path / "two.npz")):
        assert_same_bits(tile.forward(x), expected)
        assert tile.time == 100.0


def test_bad_values_change_no_block():
    with on_cpu():
        tile = rk.ShardedInferenceTile(SHAPE, ("cpu", "cpu"), seed=3)
        plain = rk.InferenceTile(SHAPE, seed=3)
        bad = data(3, 40)
        bad[1, 4] = np.nan
        for one in (tile, plain):
            one.set_weights(data(*SHAPE)).program()
            one.get_weights()
            one.forward(bad)
            one.program()
            with pytest.raises(NonFiniteError, match="x holds NaN"):
                one.get_weights()
            one.program().drift_to(5.0)
        same_state(tile, plain)


class TestErrors:
    def test_where_cells_are(self, monkeypatch):
        for wrong, message in (
            ({"split": "rows"}, "split: got 'rows'"),
            ({"cuts": (6,)}, "multiples of 4: got a cut at 6, allowed nearby are 4 and 8"),
            ({"device": "cpu"}, "need devices only"),
            ({"forward": rk.IOParameters(ir_drop=1.0)}, "forward: IR drop"),
        ):
            with pytest.raises(ParameterError, match=message):
                rk.ShardedInferenceTile(SHAPE, ("cpu", "cpu"), **wrong)
        with pytest.raises(ParameterError, match="got 10 inputs, need a multiple of 4"):
            rk.ShardedInferenceTile((3, 10), ("cpu", "cpu"), split="inputs")
        with pytest.raises(ParameterError, match="got 5 for 13 rows, need 4 rows for each"):
            rk.ShardedInferenceTile(SHAPE, ("cpu",) * 5)
        with two_gpus.installed(monkeypatch):
            with pytest.raises(ParameterError, match="need different GPUs"):
                rk.ShardedInferenceTile(SHAPE, ("gpu:1", "gpu:1"))
            with pytest.raises(DeviceError, match="has 2 GPU"):
                rk.ShardedInferenceTile(SHAPE, ("gpu:1", "gpu:2"))

    def test_what_needs_one_device(self):
        modifier = inference.WeightModifier(type="ADD_NORMAL", std_dev=0.1)
        plain = rk.InferenceTile(SHAPE, modifier=modifier).post_step()
        with pytest.raises(ParameterError, match="modified for training"):
            rk.ShardedInferenceTile.from_state(plain.state(), ("cpu", "cpu"))
        tile = rk.ShardedInferenceTile.from_state(plain.unprogram().state(), ("cpu", "cpu"))
        with pytest.raises(ParameterError, match="on one device"):
            tile.post_step()
        same_state(tile, plain)
