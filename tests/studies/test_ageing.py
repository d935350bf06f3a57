"""Retention and endurance against formulas."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import studies
from rpukit.errors import ParameterError, ShapeError

FIXED = {"w_max_dtod": 0, "w_min_dtod": 0}


def test_drift_is_a_power_of_time():
    cell = rk.SoftBounds(drift=rk.DriftParameters(nu=0.06), **FIXED)
    times = np.geomspace(1, 1e6, 13)
    kept = studies.retention(cell, times, levels=[-0.3, 0.5], n_cell=2)
    expected = np.array([-0.3, 0.5])[None, :] * times[:, None] ** -0.06
    np.testing.assert_allclose(kept.weight[:, :, 0], expected, rtol=1e-4)


def test_decay_is_exponential_in_steps():
    cell = rk.SoftBounds(lifetime=50.0, **FIXED)
    kept = studies.retention(cell, [0.0, 5.0, 20.0], levels=[0.4], n_cell=1, step_time=0.5)
    np.testing.assert_allclose(
        kept.weight[:, 0, 0], 0.4 * 0.98 ** np.array([0, 10, 40]), rtol=1e-5
    )


def test_diffusion_grows_with_the_root_of_time():
    cell = rk.SoftBounds(diffusion=0.001, **FIXED)
    kept = studies.retention(cell, [25.0, 100.0], levels=[0.0], n_cell=4000)
    # Of 4000 cells a deviation is known to 1.1 %.
    np.testing.assert_allclose(kept.weight.std(axis=2)[:, 0], [0.005, 0.01], rtol=0.05)


def test_compounds_forget_too():
    pair = rk.Vector(devices=(rk.SoftBounds(lifetime=10.0), rk.SoftBounds()))
    kept = studies.retention(pair, [0.0, 30.0], levels=[0.2], n_cell=50)
    assert np.abs(kept.weight[1]).mean() < 0.9 * np.abs(kept.weight[0]).mean()


@pytest.mark.parametrize(
    ("cell", "times", "options", "message"),
    [
        (rk.presets.device("PCM"), [1.0], {}, "need drift=, lifetime= or diffusion="),
        (rk.SoftBounds(lifetime=9.0), [2.0, 1.0], {}, "ascending"),
        (rk.SoftBounds(lifetime=9.0), [1e9], {}, "step_time: got 1 s, of which"),
        (rk.SoftBounds(lifetime=9.0), [[1.0]], {}, "times: got shape"),
        (rk.SoftBounds(lifetime=9.0), [1.0], {"levels": []}, "levels: got shape"),
        (rk.SoftBounds(lifetime=9.0), [1.0], {"step_time": 0}, "step_time"),
    ],
)
def test_what_is_refused(cell, times, options, message):
    with pytest.raises((ParameterError, ShapeError), match=message):
        studies.retention(cell, times, **options)


def test_endurance_of_devices_that_wear_out():
    """A measured device whose range shrinks by a tenth from cycle to cycle."""
    up = np.tile(np.repeat([True, False], 60), 5)
    reach, weight = 1.0, [0.0]
    for k, way in enumerate(up):
        reach = 0.9 ** (k // 120)
        weight.append(np.clip(weight[-1] + (0.02 if way else -0.02), 0, reach))
    worn = studies.endurance(studies.PulseResponse(weight, up))
    np.testing.assert_array_equal(worn.pulse, 120 * np.arange(5))
    np.testing.assert_allclose(worn.states[:, 0], 50 * 0.9 ** np.arange(5), rtol=0.02)
    with pytest.raises(ParameterError, match="no cycle"):
        studies.endurance(studies.PulseResponse(weight[:31], up[:30]))
