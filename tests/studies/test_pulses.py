"""Studies of devices against what their formulas say; figures that are drawn from them."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device

PLAIN = {"dw_min_std": 0, "dw_min_dtod": 0, "up_down_dtod": 0, "w_max_dtod": 0, "w_min_dtod": 0}


def test_response_begins_where_asked():
    cell = rk.SoftBounds(dw_min=0.01, dw_min_std=0)
    response = rk.studies.pulse_response(cell, [True, False], n_cell=4, seed=3)
    np.testing.assert_array_equal(response.weight[0], response.tile.cells["w_min"][:, 0])
    response = rk.studies.pulse_response(cell, [True, False], n_cell=4, seed=3, start=0.1)
    np.testing.assert_array_equal(response.weight[0], np.float32(0.1))
    assert (response.weight[1] > response.weight[0]).all()
    np.testing.assert_array_equal(response.weight[-1], np.asarray(response.tile)[:, 0])


def test_response_of_a_tile_leaves_it_alone(device):
    tile = rk.AnalogTile((3, 5), rk.ConstantStep(dw_min=0.01), device=device, seed=1)
    before = _device.to_numpy(tile.get_weights())
    response = rk.studies.pulse_response(tile, np.ones(4, bool))
    assert response.weight.shape == (5, 15)
    np.testing.assert_array_equal(response.weight[0], before.ravel())
    np.testing.assert_array_equal(_device.to_numpy(tile.get_weights()), before)
    assert response.tile.n_pulses == 4 * 15 and tile.n_pulses == 0


def test_response_of_cells_of_several_devices():
    """An up pulse moves the weight up by a step of the device that gets it, times its factor."""
    pair = rk.Vector(devices=(rk.ConstantStep(dw_min=0.01, **PLAIN),) * 2, gamma_vec=(1.0, 0.5))
    response = rk.studies.pulse_response(pair, [True, True, False], n_cell=3)
    expected = np.array([0, 0.015, 0.03, 0.015])[:, None].repeat(3, axis=1)
    np.testing.assert_allclose(response.weight, expected, atol=1e-7)  # float32 sums


def test_steps_follow_the_formula():
    cell = rk.SoftBounds(dw_min=0.01, **PLAIN)
    pulses = np.repeat([True, False], 600)
    response = rk.studies.pulse_response(cell, pulses, n_cell=2)
    steps = rk.studies.step_statistics(response, n_bin=30)
    for way, formula in (
        (1, 0.01 * (1 - steps.weight / 0.6)),
        (0, -0.01 * (1 + steps.weight / 0.6)),
    ):
        some = steps.count[way] > 0
        assert some.sum() > 20
        # the mean of a bin differs from its middle by up to half its width times the slope
        np.testing.assert_allclose(steps.mean[way, some], formula[some], atol=0.04 / 2 / 60)
        assert np.isnan(steps.mean[way, ~some]).all()
    assert steps.count.sum() == 2400


def test_deviation_of_steps():
    cell = rk.ConstantStep(dw_min=0.001, **{**PLAIN, "dw_min_std": 0.3})
    pulses = np.arange(200) % 2 == 0
    response = rk.studies.pulse_response(cell, pulses, n_cell=500, start=0.0)
    steps = rk.studies.step_statistics(response, n_bin=1)
    np.testing.assert_allclose(
        steps.mean[:, 0], [-0.001, 0.001], rtol=0.01
    )  # 50,000 steps: 0.13 %
    np.testing.assert_allclose(steps.std[:, 0], 0.0003, rtol=0.02)  # known to 0.3 %


def test_states_of_each_cell():
    cell = rk.ConstantStep(dw_min=0.01, **{**PLAIN, "dw_min_dtod": 0.2, "w_max_dtod": 0.2})
    response = rk.studies.pulse_response(cell, np.repeat([True, False], 400), n_cell=6, seed=2)
    p = {name: array[:, 0].astype(float) for name, array in response.tile.cells.items()}
    states = (p["w_max"] - p["w_min"]) / ((p["step_up"] + p["step_down"]) / 2)
    np.testing.assert_allclose(rk.studies.count_states(response), states, rtol=1e-4)  # float32


def test_states_of_cells_that_do_not_move():
    stuck = rk.ConstantStep(corrupt_devices_prob=1.0)
    response = rk.studies.pulse_response(stuck, [True, False, True], n_cell=3)
    assert np.isnan(rk.studies.count_states(response)).all()


def test_symmetric_points_by_formula():
    cell = rk.SoftBounds(dw_min=0.02, up_down=0.3, **PLAIN)
    theory = (0.02 - 0.014) / (0.02 / 0.6 + 0.014 / 0.6)
    found = rk.studies.symmetric_point(cell, n_cell=2, n_pulse=1000)
    np.testing.assert_allclose(found, theory, atol=0.01)  # half a step, since pulses alternate


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: rk.studies.pulse_response(rk.Ideal(), [True]), "need a pulsed cell"),
        (lambda: rk.studies.pulse_response(3, [True]), "need a rpukit Cell or AnalogTile"),
        (lambda: rk.studies.pulse_response(rk.ConstantStep(), [[True]]), "2 axes"),
        (lambda: rk.studies.symmetric_point(rk.ConstantStep(), n_pulse=3), "n_pulse"),
    ],
)
def test_what_cannot_be_studied(call, said):
    with pytest.raises(rk.errors.ParameterError, match=said):
        call()


def test_statistics_of_nothing():
    response = rk.studies.pulse_response(rk.ConstantStep(), np.zeros(0, bool), n_cell=2)
    with pytest.raises(rk.errors.ParameterError, match="no pulses"):
        rk.studies.step_statistics(response)
    some = rk.studies.pulse_response(rk.ConstantStep(), [True], n_cell=2)
    with pytest.raises(rk.errors.ParameterError, match="n_bin"):
        rk.studies.step_statistics(some, n_bin=0)


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_figures_hold_the_data(pyplot):
    response = rk.studies.pulse_response(rk.SoftBounds(dw_min=0.05), np.ones(30), n_cell=9)
    lines = rk.plot.plot_response(response, n_shown=2).lines
    np.testing.assert_array_equal(lines[0].get_ydata(), response.weight[:, 0])
    np.testing.assert_array_equal(lines[-1].get_ydata(), response.weight.mean(axis=1))
    steps, drawn = (
        rk.studies.step_statistics(response, n_bin=4),
        rk.plot.plot_steps(response, n_bin=4),
    )
    kept = steps.count[1] > 5
    np.testing.assert_array_equal(drawn.lines[0].get_ydata(), steps.mean[1, kept])


def test_devices_side_by_side(pyplot):
    cells = {name: rk.presets.device(name) for name in ("Idealized", "ReRamSB", "PCM", "EcRam")}
    axes = rk.plot.plot_devices(cells, n_pulse=5, n_cell=4)
    assert [ax.get_title() for ax in axes] == list(cells)
    assert len(axes[0].figure.axes) == 4
    assert all(len(ax.lines[0].get_ydata()) == 11 for ax in axes)


def test_a_structure_and_its_flows(pyplot):
    """Edges carry all of each sample: of a sum to its children, of a product to each child."""
    x = np.random.default_rng(0).integers(0, 2, (40, 5))
    pc = rk.Circuit(rk.circuits.hclt(x, 3), seed=1)
    pc.accumulate(x)
    gathered = pc.parameter_flows(pc.layout.roots[0])
    _, axes = pyplot.subplots(1, 2)
    for ax, data in zip(axes, (None, x[:1]), strict=True):
        assert rk.plot.plot_structure(pc, data, ax=ax) is ax
    np.testing.assert_array_equal(pc.parameter_flows(pc.layout.roots[0]), gathered)
    edges = axes[1].collections[0]
    height = np.array(edges.get_segments())[:, 0, 1]
    # Widths are 0.2 + 2.3 flow; edges of less than half a percent are left out.
    flow = (np.asarray(edges.get_linewidths()) - 0.2) / 2.3
    assert abs(flow[height == 0].sum() - 1) < 0.02
    assert flow.max() <= 1 + 1e-6
    assert sum(len(c.get_offsets()) for c in axes[1].collections[1:]) == sum(
        nodes.n_node for nodes in pc.layout.nodes
    )
    assert {t.get_text() for t in axes[0].texts} == {f"$x_{{{v}}}$" for v in range(5)}


def test_directions():
    """1 is up; -1 is down, and so is 0, but not both."""
    cell = rk.ConstantStep(dw_min=0.01, **PLAIN)
    want = rk.studies.pulse_response(cell, [True, False, False]).weight
    for pulses in ([1, -1, -1], [1, 0, 0], np.array([1.0, -1.0, -1.0])):
        np.testing.assert_array_equal(rk.studies.pulse_response(cell, pulses).weight, want)
    for pulses, message in (([1, 2], "got 2 as pulse 1"), ([1, 0, -1], "both 0 and -1")):
        with pytest.raises(rk.errors.ParameterError, match=message):
            rk.studies.pulse_response(cell, pulses)


def test_measured_responses():
    """With a value for each pulse, the first one is the start."""
    measured = rk.studies.PulseResponse([10.0, 12.0, 13.0, 11.0], [1, 1, 1, -1])
    np.testing.assert_array_equal(measured.up, [True, True, False])
    assert measured.weight.shape == (4, 1) and measured.tile is None
    steps = rk.studies.step_statistics(measured, n_bin=1)
    np.testing.assert_allclose(steps.mean[:, 0], [-2.0, 1.5])
    with pytest.raises(rk.errors.ShapeError, match="for 2 pulses"):
        rk.studies.PulseResponse([10.0], [1, 1])
    with pytest.raises(rk.errors.NonFiniteError):
        rk.studies.PulseResponse([10.0, np.nan], [1])


@pytest.mark.parametrize("name", ["ReRamSB", "ReRamES"])
def test_writing_noise_is_not_counted(name):
    """States and steps are those of the persistent weight, on which pulses act."""
    cell = rk.presets.device(name)
    tile = rk.AnalogTile((1, 20), cell, seed=1)
    pulses = np.repeat([True, False, True, False], 1500)
    response = rk.studies.pulse_response(tile, pulses)
    assert response.persistent is not None and response.states is response.persistent
    noise = (response.weight - response.persistent)[1:]
    assert noise.std() == pytest.approx(cell.write_noise, rel=0.02)
    states = np.median(rk.studies.count_states(response))
    assert 0.7 < states / cell.n_states < 1.4
    steps = rk.studies.step_statistics(response, n_bin=9)
    middle = slice(3, 6)
    assert (steps.mean[1, middle] > 0).all() and (steps.mean[0, middle] < 0).all()


def test_states_that_mislead_are_named():
    cell = rk.SoftBounds(dw_min=0.002, dw_min_std=0.3)
    few = rk.studies.pulse_response(cell, np.repeat([True, False], 75), n_cell=20)
    with pytest.warns(RuntimeWarning, match="send more pulses"):
        rk.studies.count_states(few)
    with pytest.warns(RuntimeWarning, match="no run of 20 up pulses"):
        rk.studies.count_states(rk.studies.pulse_response(cell, [1, -1] * 20))
    noisy = rk.studies.pulse_response(
        rk.SoftBounds(dw_min=0.01, write_noise_std=5.0), np.repeat([True, False], 300), n_cell=5
    )
    measured = rk.studies.PulseResponse(noisy.weight, noisy.up)
    with pytest.warns(RuntimeWarning, match="noise of reads"):
        rk.studies.count_states(measured)
