"""Pulsed updates against the reference toolkit: mean and deviation of one update from zero."""

import numpy as np
import pytest

import rpukit as rk
from tests.reference import analog as reference

KIND = "b_pulsed_update"
OURS = [
    name
    for name, s in reference.sets(KIND).items()
    if s["device"]["_class"] in reference.CELLS
    and s["update"]["pulse_type"] in [p.value for p in rk.PulseType]
    # There a resolution above 1 sends no pulses; here it means a number of steps.
    and "steps20" not in name
]


def updates(s, x, d, n):
    """Changes of n independent updates from zero, shape (n, n_out, n_in)."""
    cell = reference.cell(s["device"])
    n_out, n_in = d.shape[1], x.shape[1]
    parameters = reference.update(s["update"])
    changes = np.empty((n, n_out, n_in), np.float32)
    for k in range(n):  # another seed: other cells, other pulses
        tile = rk.AnalogTile((n_out, n_in), cell, update=parameters, seed=k)
        changes[k] = np.asarray(tile.update(x, d, lr=s["lr"]))
    return changes


@pytest.mark.sweep
@pytest.mark.parametrize("name", OURS)
def test_one_update(name):
    s, z = reference.sets(KIND)[name], reference.arrays(KIND)
    x, d = z[f"{name}/x"], z[f"{name}/d"]
    mean, std = z[f"{name}/dw_mean"], z[f"{name}/dw_std"]
    step = s["device"]["dw_min"]
    if s["exact"]:
        # Counts agree; the reference adds float32 steps one by one: up to 0.005 of a step.
        np.testing.assert_allclose(updates(s, x, d, 1)[0], mean, atol=0.02 * step, rtol=0)
        return
    n = 400 if s["m_batch"] < 128 else 100
    changes = updates(s, x, d, n)
    # The reference repeats its updates on a few rows of cells: their spread from device to device
    # does not average out over the repetitions.
    spread = s["device"]["dw_min_dtod"] * np.abs(mean) / np.sqrt(s["n"] / s["n_upd"])
    sem = np.sqrt(std**2 / n + z[f"{name}/dw_sem"] ** 2 + spread**2)
    # 24 cells in 90 sets: 4.5 standard errors are passed by chance about once in 70 runs of the
    # whole file, and the seeds are fixed. 0.015 deviations: see the reference's Gaussian table.
    assert (np.abs(changes.mean(0) - mean) <= 4.5 * sem + 0.015 * std + 1e-3 * step).all()
    noisy = std > 0.3 * step
    if noisy.any():
        ratio = changes.std(0)[noisy] / std[noisy]
        # The deviation of n samples of a skewed count is known to a few 1 / sqrt(2 n).
        assert abs(ratio.mean() - 1) < 0.1
        assert ratio.min() > 0.55 and ratio.max() < 1.6


def test_resolution_above_one_is_a_number_of_steps():
    """The reference sends no pulses here; its documentation means what 1 / 20 does."""
    x, d = np.full((1, 6), 0.7, np.float32), np.full((1, 4), 0.3, np.float32)
    weights = [
        np.asarray(
            rk.AnalogTile(
                (4, 6), rk.ConstantStep(), update=rk.UpdateParameters(res=res), seed=5
            ).update(x, d, lr=0.1)
        )
        for res in (20.0, 1 / 20)
    ]
    assert np.array_equal(*weights) and (weights[0] != 0).any()


@pytest.mark.parametrize(("calls", "key"), [((1,), "m1"), ((3,), "m3"), ((128,), "m128")])
def test_single_sample_kernels_never_serve_batches(calls, key):
    """The reference's defect 763: after an update of one sample, 128 moved like one."""
    s = reference.sets("b_pr763_example")["example"]
    cell = rk.ConstantStep(
        dw_min=s["dw_min"],
        dw_min_dtod=0,
        dw_min_std=0,
        up_down_dtod=0,
        w_max=1,
        w_min=-1,
        w_max_dtod=0,
        w_min_dtod=0,
    )
    parameters = rk.UpdateParameters(desired_bl=s["desired_bl"], update_bl_management=False)
    tile = rk.AnalogTile((s["out_size"], s["in_size"]), cell, update=parameters)
    one = np.ones((1, s["in_size"]), np.float32), np.ones((1, s["out_size"]), np.float32)
    tile.update(*one, lr=s["lr"])  # what primed the wrong kernel there
    tile.set_weights(np.zeros(tile.shape, np.float32))
    for n in calls:
        x, d = (np.repeat(v, n, axis=0) for v in one)
        tile.update(x, d, lr=s["lr"])
    expected = reference.arrays("b_pr763_example")[f"example/{key}"]
    # 255 float32 steps added one by one there, at once here.
    np.testing.assert_allclose(np.asarray(tile), expected, atol=1e-5)
