"""Fits of device models: true parameters come back, with errors that are honest."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import rpukit as rk
from rpukit import studies
from rpukit.errors import FormatError, ParameterError
from rpukit.studies.curves import CURVES
from rpukit.studies.fitting import fit_curve
from rpukit.studies.population import CELLS
from rpukit.studies.prediction import Parameters, open_loop
from tests.studies.simulated import EVEN, SCALE, SPREAD, cycles_of, local_of, measure, table

QUIET = {"dw_min_std": 0.0, **EVEN}
KNOWN = {
    "ConstantStep": rk.ConstantStep(dw_min=0.03, up_down=0.2, **QUIET),
    "LinearStep": rk.LinearStep(
        **{"dw_min": 0.05, "gamma_up": 0.5, "gamma_down": 0.8, **QUIET},
        gamma_up_dtod=0.0,
        gamma_down_dtod=0.0,
    ),
    "SoftBounds": rk.SoftBounds(dw_min=0.05, up_down=-0.3, **QUIET),
    "SoftBoundsPmax": rk.SoftBoundsPmax(
        **{"p_max": 100, "alpha": 0.03, "range_min": -0.5, "range_max": 0.6, **QUIET}
    ),
    "SoftBoundsReference": rk.SoftBoundsReference(dw_min=0.05, up_down=0.1, **QUIET),
    "ExpStep": rk.ExpStep(
        **{
            "dw_min": 0.03,
            "A_up": -0.1,
            "A_down": 0.3,
            "gamma_up": -4,
            "gamma_down": 2.5,
            **QUIET,
        },
        a=0.5,
        b=0.0,
    ),
    "PowStep": rk.PowStep(dw_min=0.1, pow_gamma=1.5, pow_up_down=0.2, pow_gamma_dtod=0.0, **QUIET),
    "PowStepReference": rk.PowStepReference(
        dw_min=0.1, pow_gamma=1.5, pow_gamma_dtod=0.0, **QUIET
    ),
    "PiecewiseStep": rk.PiecewiseStep(
        dw_min=0.05,
        piecewise_up=(1.5, 1.2, 1.0, 0.5, 0.2),
        piecewise_down=(0.2, 0.7, 1.0, 1.1, 1.3),
        **QUIET,
    ),
}
SHARED = {
    "ExpStep": (0.3, -0.1, 2.5, -4.0),
    "PiecewiseStep": (0.2, 0.7, 1.1, 1.3, 1.5, 1.2, 0.5, 0.2),
}


def fit_of(columns, *model, **options):
    """Fit a table as a laboratory writes it."""
    return studies.fit_device(studies.read_pulses(columns), *model, **options)


def test_every_pulsed_model_has_a_curve():
    assert set(CURVES) == set(CELLS) == set(KNOWN)


@pytest.mark.parametrize("model", CURVES)
def test_curves_are_those_of_the_cells(model):
    """The formulas of the fit and the steps of the tile give the same response."""
    spread = 0.0 if model == "SoftBoundsPmax" else 0.1  # its curve has no bounds of its own
    cell = replace(KNOWN[model], w_max_dtod=spread, w_min_dtod=spread)
    response, _ = measure(cell, n_cycle=1, start=-0.2, seed=2)
    local = local_of(model, response)
    if model == "ExpStep":  # its curve has the step at weight 0
        local[:, 2:] *= (1 - 0.3, 1 + 0.1)
    parameters = Parameters(local[None], np.array([SHARED.get(model, ())]))
    mean = open_loop(CURVES[model], parameters, cycles_of(response), np.array([0.0, 0.0]))
    # Corners at hard bounds are rounded by the least noise, 5e-4 of the weight.
    np.testing.assert_allclose(mean, response.weight, atol=6e-4)


@pytest.mark.parametrize("model", CURVES)
def test_cell_of_a_fit_responds_as_the_device_did(model):
    """Without noise and spread, the fitted cell repeats the response that it was fitted to."""
    response, measured = measure(KNOWN[model], n_device=1, n_cycle=2, start=-0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # some bounds are not reached
        fit = fit_of(measured, model, scale=SCALE)
    assert type(fit.cell) is CELLS[model]
    quiet = {"dw_min_std": 0.0}
    if hasattr(fit.cell, "write_noise_std"):
        quiet["write_noise_std"] = 0.0
    again, _ = measure(replace(fit.cell, **quiet), n_device=1, n_cycle=2, start=-0.2)
    # A part in a hundred of the range: single steps are five times as large.
    np.testing.assert_allclose(again.weight, response.weight, atol=0.012)


def test_standard_errors_are_honest():
    """Of the 2-sigma intervals of 50 seeds, 95 % hold the true parameter of the device.

    600 intervals; the four of a device depend on each other, so that they are worth some 250, and
    their share is known to 1.4 %: the limits are four deviations away or more.
    """
    cell = rk.SoftBounds(
        dw_min=0.12, dw_min_std=0.4, write_noise_std=0.7, w_max=1.0, w_min=-1.0, **SPREAD
    )
    off, off_noise = off_true(cell, range(50), n_cycle=3, n_pulse=25)
    assert 0.89 < (np.abs(off) < 2).mean() < 0.99
    assert np.abs(off.mean(axis=0)).max() < 0.35  # of 150 estimates: four deviations
    assert np.abs(np.median(off_noise, axis=0)).max() < 1.6  # of ten: four deviations


def off_true(cell, seeds, **options):
    """Fit devices of some seeds, 15 at a time; give (fit - true) / error of means and noise."""
    model = type(cell).__name__
    true_noise = np.array([cell.dw_min_std, cell.write_noise])
    off, off_noise = [], []
    for first in range(seeds.start, seeds.stop, 5):
        runs = [measure(cell, seed=seed, **options)[0] for seed in range(first, first + 5)]
        seen = np.concatenate([run.weight for run in runs], axis=1)
        data = studies.read_pulses(table(seen, runs[0].up))
        found = fit_curve(CURVES[model], data.cycles(SCALE))
        true = np.concatenate([local_of(model, run) for run in runs])
        off.append((found.local - true) / found.local_error)
        off_noise.append((found.noise - true_noise) / found.noise_error)
    return np.concatenate(off), np.array(off_noise)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["SoftBounds", "SoftBoundsReference", "PowStep", "LinearStep"])
def test_standard_errors_of_other_models_are_honest(model):
    more = {"LinearStep": {"gamma_up": 0.5, "gamma_down": 0.5}}.get(model, {})
    size = 0.15 if model == "PowStep" else 0.06
    cell = CELLS[model](
        dw_min=size, dw_min_std=0.3, write_noise_std=0.7, w_max=1.0, w_min=-1.0, **SPREAD, **more
    )
    off, _ = off_true(cell, range(50), n_cycle=2, n_pulse=100)
    assert 0.90 < (np.abs(off) < 2).mean() < 0.99


def test_spread_from_device_to_device():
    cell = rk.SoftBounds(
        **{"dw_min": 0.08, "dw_min_std": 0.2, "w_max": 1.0, "w_min": -1.0, **SPREAD},
        write_noise_std=0.3,
        up_down=0.2,
    )
    _, measured = measure(cell, n_device=24, n_cycle=1, seed=3)
    fit = fit_of(measured, scale=SCALE)
    for name in ("dw_min", "dw_min_dtod", "w_max", "w_max_dtod", "w_min", "w_min_dtod", "up_down"):
        estimate = fit.parameters[name]
        assert abs(estimate.value - getattr(cell, name)) < 4 * estimate.error, name
        assert estimate.error < 0.3 * max(abs(estimate.value), 0.2), name
    assert fit.cell.write_noise_std == pytest.approx(0.3, abs=0.08)
    tile = rk.AnalogTile((3, 4), fit.cell, seed=1)
    tile.update(np.ones((2, 4), np.float32), np.ones((2, 3), np.float32), lr=0.1)
    assert tile.n_pulses > 0


def test_false_reads_do_not_move_the_fit():
    cell = rk.SoftBounds(dw_min=0.08, dw_min_std=0.3, write_noise_std=1.0, **SPREAD)
    response, measured = measure(cell, seed=5)
    clean = fit_of(measured, scale=SCALE)
    spoilt = response.weight.copy()
    spoilt[[30, 75, 100], [0, 1, 2]] += (1.5, -2.0, 1.0)
    fit = fit_of(table(spoilt, response.up), scale=SCALE)
    for device, group in fit.devices.items():
        for name, estimate in group.items():
            assert abs(estimate.value - clean.devices[device][name].value) < estimate.error
    assert np.abs(fit.overlay(studies.read_pulses(table(spoilt, response.up))).error).max() > 20


def test_models_are_ranked():
    """On soft-bounds data the models that hold it are ahead, by both measures."""
    cell = rk.SoftBounds(
        dw_min=0.06, dw_min_std=0.3, write_noise_std=0.5, w_max=1.0, w_min=-1.0, up_down=0.3
    )
    _, measured = measure(cell, n_cycle=3, seed=1)
    fit = fit_of(measured, ["ConstantStep", "SoftBounds", rk.SoftBoundsPmax])
    assert fit.model == "SoftBounds" and list(fit.fits) == [line.model for line in fit.ranking]
    aic = {line.model: line.aic for line in fit.ranking}
    left = {line.model: line.left_out_error for line in fit.ranking}
    assert aic["ConstantStep"] > aic["SoftBoundsPmax"] > aic["SoftBounds"] + 10
    assert left["ConstantStep"] > 1.3 * left["SoftBounds"]
    alone = fit_of(measured, "SoftBounds")
    assert alone.ranking[0].left_out_error is None
    assert alone.parameters == fit.parameters


def test_map_of_conductances():
    """Units and maps change the numbers, not the device."""
    _, measured = measure(rk.SoftBounds(dw_min=0.06, dw_min_std=0.2, write_noise_std=0.5), seed=1)
    fit = fit_of(measured, scale=SCALE)
    nano = dict(measured)
    nano["conductance_nS"] = 1e3 * nano.pop("conductance (uS)")
    wide = fit_of(nano, scale=studies.ConductanceMap(30.0, 10.0))
    for device, group in fit.devices.items():
        for name, estimate in group.items():
            there = wide.devices[device][name]
            assert there.value == pytest.approx(2 * estimate.value, rel=0.01)
    usual = fit_of(measured)
    values = usual.scale.weight(studies.read_pulses(measured).conductance)
    assert np.quantile(values, 0.01) == pytest.approx(-1)
    assert usual.scale.conductance(usual.scale.weight(17.0)) == pytest.approx(17.0)


def test_read_noise_is_not_writing_noise():
    cell = rk.SoftBounds(dw_min=0.06, dw_min_std=0.2, **SPREAD)
    response, _ = measure(cell, n_cycle=3, seed=1)
    rng = np.random.default_rng(0)
    seen = response.weight + rng.normal(0, 0.05, response.weight.shape)
    measured = table(seen, response.up)
    blind = fit_of(measured, scale=SCALE)
    measured["read_noise (uS)"] = np.full(seen.size, 0.05 * 20)
    told = fit_of(measured, scale=SCALE)
    assert blind.noise["read"].value == pytest.approx(0.05, rel=0.1)
    assert told.noise["read"].value < 0.3 * blind.noise["read"].value
    assert told.noise["step"].value == pytest.approx(0.2, abs=4 * told.noise["step"].error)


def test_what_the_data_do_not_say():
    up = np.ones(80, bool)
    cell = rk.SoftBounds(dw_min=0.08, dw_min_std=0.2, write_noise_std=0.5)
    response = studies.pulse_response(cell, up, n_cell=2, start=-0.5, seed=1)
    with pytest.warns(RuntimeWarning, match="do not determine.* no pulses in one direction"):
        fit = fit_of(table(response.weight, up))
    assert "step_down" in fit.undetermined and "step_up" not in fit.undetermined
    assert "not known" in str(fit)
    with pytest.raises(ParameterError, match="did not respond"):
        fit_of(table(np.zeros((9, 1)), up[:8]))


def test_names_of_models():
    data = studies.example_pulses("reram")
    with pytest.raises(ParameterError, match="did you mean 'SoftBounds'"):
        studies.fit_device(data, "SoftBound")
    with pytest.raises(ParameterError, match="need a name"):
        studies.fit_device(data, [])


def test_fit_as_a_file(tmp_path):
    data = studies.example_pulses("reram")
    fit = studies.fit_device(data, ["SoftBounds", "ExpStep"], rank=False)
    for name, one in fit.fits.items():
        one.save(tmp_path / f"{name}.json")
        again = studies.load_fit(tmp_path / f"{name}.json")
        assert again == replace(one, fits={}) and again.cell == one.cell
        got, want = again.overlay(data, "B1"), one.overlay(data, "B1")
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)
    plain = json.loads((tmp_path / "SoftBounds.json").read_text())
    assert plain["source"]["sha256"] == data.source["sha256"]
    assert plain["source"]["unit"] == "uS" and plain["rpukit"] == rk.__version__
    assert plain["parameters"]["dw_min"]["error"] > 0
    for key, value in (
        ("model", "Soft"),
        ("version", 2),
        ("g_zero_uS", None),
        ("cell", {"class": "Ideal"}),
        ("noise", {}),
    ):
        (tmp_path / "bad.json").write_text(json.dumps(plain | {key: value}))
        with pytest.raises(FormatError, match="bad.json"):
            studies.load_fit(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(FormatError, match="bad.json"):
        studies.load_fit(tmp_path / "bad.json")


def test_pulses_without_reads():
    """Every fifth read alone determines the same device."""
    cell = rk.SoftBounds(
        dw_min=0.05, dw_min_std=0.3, write_noise_std=0.5, w_max=1.0, w_min=-1.0, **SPREAD
    )
    response, measured = measure(cell, n_cycle=3, n_pulse=60, seed=4)
    kept = [k for k, n in enumerate(measured["pulse"]) if n % 5 == 0]
    thin = {name: [column[k] for k in kept] for name, column in measured.items()}
    fit = fit_of(thin, scale=SCALE)
    true = local_of("SoftBounds", response)
    for d, group in enumerate(fit.devices.values()):
        for k, estimate in enumerate(group.values()):
            assert abs(estimate.value - true[d, k]) < 4 * estimate.error
    assert fit.n_read == len(kept)
    with pytest.raises(ParameterError, match="without a read"):
        studies.read_pulses(thin).response()
