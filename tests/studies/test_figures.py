"""Figures of the bench hold the data, with units, a second axis and legends."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import studies


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


@pytest.fixture(scope="module")
def fitted():
    data = studies.example_pulses("reram")
    return studies.fit_device(data, ["SoftBounds", "ConstantStep"]), data


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_overlay_and_residuals(pyplot, fitted):
    fit, data = fitted
    overlay = fit.overlay(data, "B1")
    ax = rk.plot.plot_fit(fit, data, "B1")
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), data.conductance[data.device == 2])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), overlay.mean)
    assert ax.get_ylabel() == "conductance (µS)" and ax.get_title() == "B1"
    assert labels(ax) == ["measured", "mean of SoftBounds"]
    (right,) = ax.child_axes
    ax.figure.canvas.draw()
    assert right.get_ylabel() == "weight (weight units)"
    np.testing.assert_allclose(right.get_ylim(), fit.scale.weight(np.array(ax.get_ylim())))
    ax = rk.plot.plot_residuals(fit, data, "B1")
    drawn = np.concatenate([line.get_ydata() for line in ax.lines[:2]])
    np.testing.assert_array_equal(np.sort(drawn), np.sort(overlay.error))
    assert labels(ax) == ["±2 deviations", "reads", "beyond ±4"]
    far = overlay.error[np.abs(overlay.error) > 4 * overlay.deviation]
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), far)  # the false read


def test_overlay_is_the_fit(fitted):
    """Reads are predicted to the noise of the fit, and the mean begins at the first read."""
    fit, data = fitted
    overlay = fit.overlay(data)
    assert overlay.mean[0] == overlay.measured[0] and overlay.error[0] == 0
    inside = np.abs(overlay.error) < 4 * overlay.deviation
    assert np.std((overlay.error / overlay.deviation)[inside]) == pytest.approx(1.0, abs=0.12)
    with pytest.raises(rk.errors.ParameterError, match='need "A1" or "A2" or "B1"'):
        fit.overlay(data, "C1")


def test_ranking(pyplot, fitted):
    fit, _ = fitted
    ax = rk.plot.plot_ranking(fit)
    widths = [bar.get_width() for bar in ax.patches]
    aic = [line.aic for line in fit.ranking]
    assert widths == [aic[1] - aic[0], 0]
    assert "µS left out" in ax.texts[0].get_text()


def test_retention_and_endurance(pyplot):
    kept = studies.retention(rk.SoftBounds(lifetime=5.0), [0.0, 1.0, 9.0], n_cell=4)
    ax = rk.plot.plot_retention(kept)
    assert ax.get_xscale() == "log" and labels(ax)[0] == "written 0.4"
    np.testing.assert_allclose(ax.lines[0].get_ydata(), kept.weight[1:, 2].mean(axis=1))
    pulses = np.tile(np.repeat([True, False], 80), 2)
    response = studies.pulse_response(rk.ConstantStep(dw_min=0.05), pulses, n_cell=3)
    worn = studies.endurance(response)
    ax = rk.plot.plot_endurance(worn)
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), np.median(worn.states, axis=1))
    assert ax.get_ylim()[0] == 0
