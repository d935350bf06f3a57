"""Presets: every value against the recorded ones, and tiles that learn with them."""

import dataclasses
from enum import Enum

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from tests.reference import analog as reference

DEVICES = reference.presets()["presets"]["devices"]
CONFIGS = reference.presets()["presets"]["configs"]
OURS = {f"{name}Preset": rk.presets.config(name) for name in rk.presets.config_names()}


COMPOUNDS = {
    "VectorUnitCell": rk.Vector,
    "PCMPresetUnitCell": rk.OneSided,
    "TransferCompound": rk.analog.Transfer,
    "ChoppedTransferCompound": rk.analog.ChoppedTransfer,
    "DynamicTransferCompound": rk.analog.DynamicTransfer,
    "MixedPrecisionCompound": rk.analog.MixedPrecision,
}


def same_cell(ours, theirs):
    """Compare all fields of a cell; those of the reference that we do not have are off."""
    known = {field.name for field in dataclasses.fields(ours)}
    for name, value in theirs.items():
        if name in reference.NOT_OURS:
            continue
        assert name in known, f"{name} is not a parameter of {type(ours).__name__}"
        assert getattr(ours, name) == value, name
    if isinstance(ours, rk.PulsedCell):
        assert type(ours) is reference.CELLS[theirs["_class"]]
        assert ours.drift is None
        assert not any(v for k, v in theirs["drift"].items() if k in ("nu", "w_noise_std"))


def same_parameters(ours, theirs):
    """Compare what both know; the rest of the reference's has to be off."""
    known = {field.name for field in dataclasses.fields(ours)}
    off = {
        "d_sparsity": False,
        "ir_drop": 0,
        "mv_type": "ONE_PASS",
        "out_nonlinearity": 0,
        "out_nonlinearity_std": 0,
        "r_series": 0,
        "slope_calibration": 0,
        "v_offset_std": 0,
        "w_read_asymmetry_dtod": 0,
    }
    for name, value in theirs.items():
        if name in known:
            own = getattr(ours, name)
            assert (own.value if isinstance(own, Enum) else own) == value, name
        elif name in off:
            assert value == off[name], name


@pytest.mark.parametrize("name", DEVICES)
def test_devices(name):
    cell = rk.presets.device(name)
    same_cell(cell, DEVICES[name])
    recorded = reference.presets()["granularity"][name]["weight_granularity"]
    assert cell.granularity == pytest.approx(recorded, rel=1e-6)  # it is a float32


def test_no_device_is_missing():
    assert sorted(f"{name}PresetDevice" for name in rk.presets.device_names()) == sorted(DEVICES)


@pytest.mark.parametrize("name", OURS)
def test_configs(name):
    ours, theirs = OURS[name], CONFIGS[name]
    for part in ("forward", "backward", "update"):
        same_parameters(getattr(ours, part), theirs[part])
    same_compound(ours.cell, theirs["device"])


def same_compound(ours, device):
    if isinstance(ours, rk.PulsedCell):
        same_cell(ours, device)
        return
    assert type(ours) is COMPOUNDS[device["_class"]]
    if isinstance(ours, rk.MixedPrecision):
        same_compound(ours.device, device["device"])
        for key in device.keys() - {"_class", "construction_seed", "device"}:
            assert getattr(ours, key) == device[key], key
        return
    parts = ours.parts()
    assert len(parts) == len(device["unit_cell_devices"])
    for part, recorded in zip(parts, device["unit_cell_devices"], strict=True):
        same_cell(part, recorded)
    for key, value in device.items():
        if key in ("refresh_forward", "refresh_update", "transfer_forward", "transfer_update"):
            same_parameters(getattr(ours, key), value)
        elif key not in ("_class", "construction_seed", "unit_cell_devices"):
            own = getattr(ours, key)
            own = own.value if isinstance(own, Enum) else own
            assert (list(own) if isinstance(own, tuple) else own) == value, key


def test_no_config_is_missing():
    presets = {name for name in CONFIGS if name.endswith("Preset")}  # the others are classes
    assert presets == set(OURS)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name", [n for n in rk.presets.config_names() if n[:2] not in ("TT", "Ch", "AG")]
)
def test_tiles_learn(name, device):
    """The gradient of a constant error moves the mean weight against it."""
    tile = rk.presets.config(name).tile((40, 8), device=device, seed=3)
    where = _device.parse_device(device)
    x = _device.to_device(np.ones((6, 8), np.float32), where)
    d = _device.to_device(np.full((6, 40), 0.5, np.float32), where)
    before = float(tile.get_weights().mean())
    for _ in range(3):
        tile.update(x, d, lr=1)
    assert float(tile.get_weights().mean()) < before


def test_names_may_have_their_endings():
    assert rk.presets.device("PCMPresetDevice") == rk.presets.device("PCM")
    assert rk.presets.config("EcRam2Preset") == rk.presets.config("EcRam2")
    assert rk.presets.device("PCM", dw_min=0.02).dw_min == 0.02


def test_parameters_of_a_tile_may_be_replaced():
    config = rk.presets.config("Idealized")
    tile = config.tile((2, 3), forward=rk.IOParameters(is_perfect=True), cell=rk.Ideal(), seed=4)
    assert tile.forward_parameters.is_perfect and not tile.backward_parameters.is_perfect
    assert tile.cell == rk.Ideal()


@pytest.mark.parametrize("call", [rk.presets.device, rk.presets.config])
def test_unknown_names(call):
    with pytest.raises(rk.errors.ParameterError, match="need one of .*GokmenVlasov"):
        call("ReRam")


@pytest.mark.parametrize(
    ("call", "name", "near"),
    [
        (rk.presets.device, "reramsb", "ReRamSB"),
        (rk.presets.device, "EcRAM", "EcRam"),
        (rk.presets.device, "CapacitorPreset", "Capacitor"),
        (rk.presets.config, "TTv2ReRAM_ES", "TTv2ReRamES"),
        (rk.presets.config, "tikitakacapacitor", "TikiTakaCapacitor"),
    ],
)
def test_unknown_names_have_a_nearest_one(call, name, near):
    with pytest.raises(rk.errors.ParameterError, match=f"did you mean '{near}'"):
        call(name)


@pytest.mark.parametrize("name", [None, 3, "", "a" * 200])
def test_names_that_are_no_names(name):
    with pytest.raises(rk.errors.ParameterError, match="name: got"):
        rk.presets.device(name)
