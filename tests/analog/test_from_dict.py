"""Configurations of aihwkit as dictionaries: every preset of the reference, each part, errors."""

import dataclasses
from enum import Enum

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors, inference
from tests.reference import analog as reference
from tests.reference import inference as measured

CONFIGS = reference.presets()["presets"]["configs"]
PRESETS = sorted(name for name in CONFIGS if name.endswith("Preset"))


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name):
    """Each recorded configuration, with all its settings, is our preset of the same name."""
    kind = "DigitalRankUpdateRPUConfig" if name.startswith("Mixed") else "UnitCellRPUConfig"
    want = rk.presets.config(name)
    for tree in ({**CONFIGS[name], "class": kind}, {"class": name}):
        found = rk.presets.from_dict(tree)
        for part in ("cell", "forward", "backward", "update"):
            assert getattr(found, part) == getattr(want, part), part


def test_every_device_by_its_class():
    for name, device in reference.presets()["defaults"]["devices"].items():
        if name not in reference.CELLS:
            continue
        found = rk.presets.from_dict({"class": "SingleRPUConfig", "device": device})
        assert found.cell == reference.CELLS[name]()


def test_a_whole_configuration_for_inference():
    tree = {
        "class": "TorchInferenceRPUConfig",
        "forward": {"noise_management": "AbsMax", "bound_management": "NONE", "out_noise": 0.01},
        "noise_model": {
            "class": "PCMLikeNoiseModel",
            "g_max": 30.0,
            "prog_coeff_g_max_reference": 25.0,
            "g_converter": {"class": "SinglePairConductanceConverter", "g_max": 30.0},
        },
        "drift_compensation": None,
        "modifier": {"type": "PCMNoise", "pcm_t_inference": 10.0, "std_dev": 0.1},
        "clip": {"type": "LayerGaussian", "fixed_value": -1.0, "sigma": 2.0},
        "remap": {"type": "ChannelwiseSymmetric", "remapped_wmax": 0.9},
        "pre_post": {
            "input_range": {"enable": True, "learn_input_range": False, "init_value": 2.0}
        },
        "mapping": {
            "digital_bias": True,
            "weight_scaling_omega": 0.6,
            "weight_scaling_columnwise": True,
            "max_input_size": 256,
            "max_output_size": 0,
        },
        "runtime": {"data_type": "float", "offload_input": True},
    }
    found = rk.presets.from_dict(tree)
    assert found.cell == rk.InferenceCell(
        noise=inference.PCMLike(g_max=30.0, prog_coeff_g_max=25.0),
        converter=inference.SinglePair(g_max=30.0),
        modifier=inference.WeightModifier(type="noise_model", t=10.0, std_dev=0.1),
        weight_clip=inference.WeightClip(type="layer_gaussian", sigma=2.0),
        weight_remap=inference.WeightRemap(type="channelwise_symmetric", w_max=0.9),
        input_range=inference.InputRange(value=2.0),
    )
    assert found.forward == rk.IOParameters(bound_management="none", out_noise=0.01)
    assert found.backward.is_perfect
    assert found.output_scale == rk.OutputScale(per="column", omega=0.6)
    assert found.tile_shape == (1 << 20, 256)
    array = found.array((3, 600), bias=True, seed=1)
    assert array.grid == (1, 3)
    assert array.forward(np.ones((2, 600), np.float32)).shape == (2, 3)


NOISE = ["pcm_scales", "state_independent", "reram_wan2022", "hermes_2dev"]
CLASSES = dict(
    zip(
        NOISE,
        (inference.PCMLike, inference.StateIndependent, inference.ReRamWan, inference.Hermes),
        strict=True,
    )
)


@pytest.mark.parametrize("name", NOISE)
def test_noise_models(name):
    recorded = measured.sets()[name]
    noise = {"class": recorded["model"], **recorded["attributes"]}
    found = rk.presets.from_dict({"class": "InferenceRPUConfig", "noise_model": noise}).cell
    assert type(found.noise) is CLASSES[name]
    assert found.compensation is inference.DriftCompensation.GLOBAL
    for field in dataclasses.fields(found.noise):
        value = recorded["attributes"].get(field.name)
        if value is not None and field.name != "prog_coeff":
            assert getattr(found.noise, field.name) == value, field.name


def test_enums_are_taken_by_member():
    class PulseType(Enum):
        MEAN_COUNT = "MeanCount"

    for value in (PulseType.MEAN_COUNT, "MeanCount", "MEAN_COUNT"):
        found = rk.presets.from_dict({"update": {"pulse_type": value}})
        assert found.update.pulse_type.value == "MEAN_COUNT"


def test_a_list_of_all_that_is_refused():
    tree = {
        "class": "SingleRPUConfig",
        "device": {"class": "SoftBoundsDevice", "dw_mim": 0.1, "construction_seed": 7},
        "update": {"d_sparsity": True},
        "forward": {"noise_management": "Sometimes"},
        "mapping": {"max_size": 3},
        "prepost": {},
    }
    with pytest.raises(errors.ParameterError) as caught:
        rk.presets.from_dict(tree)
    text = str(caught.value)
    lines = ("device.dw_mim: unknown; did you mean 'dw_min'", "update.d_sparsity: got True")
    for line in (*lines, "forward.noise_management", "mapping.max_size", "prepost: unknown"):
        assert line in text, text
    assert "5 settings" in text
    ignored = ("device.dw_mim", "update.d_sparsity", "forward.noise_management")
    found = rk.presets.from_dict(tree, ignore=(*ignored, "mapping.max_size", "prepost"))
    assert found.cell == rk.SoftBounds()


@pytest.mark.parametrize(
    ("tree", "match"),
    [
        ({"class": "NoSuchConfig"}, "no class of configurations"),
        ({"device": {"class": "NoDevice"}}, r"device.class: 'NoDevice' is not known"),
        ({"device": 3}, "device: got 3, need a dictionary"),
        ({"class": "InferenceRPUConfig", "update": {"pulse_type": "Stochastic"}}, "exactly"),
        ({"class": "InferenceRPUConfig", "drift_compensation": "Other"}, "drift_compensation"),
        ({"class": "InferenceRPUConfig", "device": {"class": "SoftBoundsDevice"}}, "IdealDevice"),
        ({"runtime": {"data_type": "half"}}, "data_type"),
    ],
)
def test_what_has_no_counterpart(tree, match):
    with pytest.raises(errors.ParameterError, match=match):
        rk.presets.from_dict(tree)
    with pytest.raises(errors.ParameterError, match="need a dictionary"):
        rk.presets.from_dict([])


def test_learned_input_ranges():
    given = {"enable": True, "manage_output_clipping": True, "output_min_percentage": 0.9}
    tree = {"class": "InferenceRPUConfig", "pre_post": {"input_range": given}}
    want = inference.InputRange(
        learned=True, gradient_relative=True, manage_output_clipping=True, output_min_share=0.9
    )
    assert rk.presets.from_dict(tree).cell.input_range == want


def test_input_ranges_belong_to_inference():
    off = {"class": "SingleRPUConfig", "pre_post": {"input_range": {"enable": False}}}
    assert rk.presets.from_dict(off) == rk.presets.from_dict({"class": "SingleRPUConfig"})
    on = {"class": "SingleRPUConfig", "pre_post": {"input_range": {"enable": True}}}
    with pytest.raises(errors.ParameterError, match="pre_post.input_range: only inference tiles"):
        rk.presets.from_dict(on)
