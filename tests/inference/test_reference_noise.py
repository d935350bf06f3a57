"""Agreement with the recorded statistics of the reference toolkit (20,000 devices each).

Its Gaussian numbers come from one table of 32,768 values: every recorded mean carries a common
error of about 0.0055 of the noise besides its standard error.
"""

import numpy as np
import pytest

from rpukit import inference
from tests.reference import inference as reference

N = 20000
SETS = ("pcm_default", "pcm_gmax90", "pcm_scales", "state_independent", "hermes_2dev")
CLASSES = {
    "PCMLikeNoiseModel": inference.PCMLike,
    "StateIndependentNoiseModel": inference.StateIndependent,
    "HermesNoiseModel": inference.Hermes,
    "ReRamWan2022NoiseModel": inference.ReRamWan,
}
SHARED = ("g_max", "t_0", "t_read", "prog_noise_scale", "read_noise_scale", "drift_scale")


def model_of(name):
    recorded = reference.sets()[name]
    attributes = recorded["attributes"]
    cls = CLASSES[recorded["model"]]
    known = {k: v for k, v in attributes.items() if k in SHARED and hasattr(cls, k)}
    if cls is inference.PCMLike:
        known["prog_coeff"] = tuple(attributes["prog_coeff"])
        known["prog_coeff_g_max"] = attributes["prog_coeff_g_max_reference"]
    return cls(**known)


def sample(target):
    return np.repeat(target[:, None], N, 1)


@pytest.mark.parametrize("name", [*SETS, "reram_wan2022"])
def test_programming(name):
    data, model = reference.arrays(name), model_of(name)
    targets = sample(data["g_target"])
    done = model.program(targets, seed=1)
    written = model.read(done, 1.0, seed=1) if model.RESAMPLES else done.conductance
    std = written.std(1, dtype="f8")
    # 2 % of the spread: 0.5 % is the standard error of each side, the rest is their table.
    np.testing.assert_allclose(std, data["prog_std"], rtol=0.02)
    bound = 4 * std / np.sqrt(N) * np.sqrt(2) + 0.015 * std
    assert (np.abs(written.mean(1, dtype="f8") - data["prog_mean"]) < bound).all()


@pytest.mark.parametrize("name", SETS)
def test_drift_coefficients(name):
    data, model = reference.arrays(name), model_of(name)
    # Ten times their devices: what is left is the error of the recorded means, up to 0.6 % where
    # nu spreads by half of its mean. The standard error of their deviations is 0.5 %; at a
    # conductance of 0 those are clipped.
    nu = model.program(np.repeat(data["g_target"][:, None], 10 * N, 1), seed=2).nu
    np.testing.assert_allclose(nu.mean(1, dtype="f8"), data["nu_mean"], rtol=0.01)
    np.testing.assert_allclose(nu.std(1, dtype="f8"), data["nu_std"], rtol=0.035)


@pytest.mark.parametrize("name", SETS)
def test_drift(name):
    """Means within 1 % at the seven times, with drift and reading, and with programming too."""
    data, model = reference.arrays(name), model_of(name)
    target = sample(data["g_target"])
    done = model.program(target, seed=3)
    exact = inference.Programmed(target, done.nu, 0)
    for k, t in enumerate(data["t_inference"].astype(float)):
        for start, kind in ((exact, "drift_only"), (done, "prog_drift")):
            read = model.read(start, t, seed=3)
            mean, std = read.mean(1, dtype="f8"), read.std(1, dtype="f8")
            gold_mean, gold_std = data[f"{kind}_mean"][k], data[f"{kind}_std"][k]
            noise = np.maximum(std, gold_std)
            slack = 4 * noise / np.sqrt(N) * np.sqrt(2) + 0.015 * noise
            assert (np.abs(mean - gold_mean) <= slack).all()
            large = data["g_target"] >= 0.25 * model.g_max
            if name == "state_independent":  # it spreads so that their means have 0.5 % of error
                large &= 4 * noise < 0.01 * np.sqrt(N) * mean
            np.testing.assert_allclose(mean[large], gold_mean[large], rtol=0.01)
            assert (np.abs(std - gold_std) < 0.03 * gold_std + 1e-3 * model.g_max).all()


def test_relaxation_of_wan():
    data, model = reference.arrays("reram_wan2022"), model_of("reram_wan2022")
    done = model.program(sample(data["g_target"]), seed=4)
    for k, t in enumerate(data["t_inference"].astype(float)):
        read = model.read(done, t, seed=4)
        np.testing.assert_allclose(read.std(1, dtype="f8"), data["drift_only_std"][k], rtol=0.03)
        slack = 0.05 * read.std(1, dtype="f8")
        assert (np.abs(read.mean(1, dtype="f8") - data["drift_only_mean"][k]) < slack).all()


def test_figures_of_phase_change_memory():
    """Spread of programming and mean drift as they were published for 25 microsiemens."""
    model = inference.PCMLike()
    target = np.array([0, 1.25, 6.25, 12.5, 18.75, 25], np.float32)
    done = model.program(np.repeat(target[:, None], 100_000, 1), seed=5)
    spread = [0.154, 0.359, 0.682, 0.958, 1.083, 1.058]
    np.testing.assert_allclose(done.conductance.std(1, dtype="f8"), spread, rtol=0.02)
    times = [0, 1, 25, 3600, 86400, 30 * 86400, 365 * 86400]
    means = [model.drift(done, t)[-1].mean(dtype="f8") for t in times]
    np.testing.assert_allclose(means, [25.0, 24.94, 24.03, 19.41, 16.64, 14.12, 12.52], rtol=0.01)
