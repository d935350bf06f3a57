"""What figures say: units, keys, marks of axes, nothing cut or empty without a word."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

import rpukit as rk
from rpukit.errors import ParameterError


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def key(ax):
    return [text.get_text() for text in ax.get_legend().texts]


def response(n_cell=9, n=30, cell=None):
    pulses = np.repeat([True, False], n)
    return rk.studies.pulse_response(cell or rk.SoftBounds(dw_min=0.05), pulses, n_cell=n_cell)


def test_response_names_its_lines(pyplot):
    ax = rk.plot.plot_response(response(), n_shown=2)
    assert key(ax) == ["2 of the cells", "spread (1 std)", "mean of 9 cells"]
    assert ax.get_ylabel() == "weight (weight units)"
    pyplot.close("all")
    assert key(rk.plot.plot_response(response(3))) == ["cells (3)"]
    pyplot.close("all")
    assert key(rk.plot.plot_response(response(3), n_shown=0))[-1] == "mean of 3 cells"


@dataclass
class Scale:
    """30 uS at weight 0, 20 uS a weight unit."""

    def conductance(self, weight):
        return 30 + 20 * weight

    def weight(self, conductance):
        return (conductance - 30) / 20


def test_response_with_conductances(pyplot):
    ax = rk.plot.plot_response(response(), scale=Scale())
    ax.figure.canvas.draw()
    (second,) = ax.child_axes
    assert second.get_ylabel() == "conductance (\u00b5S)"
    for weight, conductance in zip(ax.get_ylim(), second.get_ylim(), strict=True):
        assert conductance == pytest.approx(30 + 20 * weight)
    with pytest.raises(ParameterError, match="scale"):
        rk.plot.plot_response(response(), scale=20.0)


def test_steps_are_never_left_out_without_a_word(pyplot):
    few = rk.studies.pulse_response(rk.SoftBounds(dw_min=0.05), [True, True, False], n_cell=1)
    ax = rk.plot.plot_steps(few, n_bin=2)
    assert all(len(line.get_xdata()) for line in ax.lines[:2])
    pyplot.close("all")
    up = rk.studies.pulse_response(rk.SoftBounds(dw_min=0.05), np.ones(30), n_cell=9)
    ax = rk.plot.plot_steps(up)
    assert "down pulses: none" in key(ax)
    assert "up pulses, mean" in key(ax)
    assert "(weight units)" in ax.get_xlabel()


def test_devices_have_a_key_and_show_their_bounds(pyplot):
    cells = {"constant": rk.ConstantStep(dw_min=0.01), "exp": rk.ExpStep(dw_min=0.01)}
    axes = rk.plot.plot_devices(cells, n_pulse=20, n_cell=5)
    (legend,) = axes[0].figure.legends
    words = [text.get_text() for text in legend.texts]
    assert {"even steps", "mean bounds", "mean of 5 cells", "spread (1 std)"} <= set(words)
    assert len(words) == len(set(words))
    for ax, cell in zip(axes, cells.values(), strict=True):
        low, high = ax.get_ylim()
        assert low < cell.w_min < cell.w_max < high  # though 20 pulses end far below
    with pytest.raises(ParameterError, match="cells"):
        rk.plot.plot_devices({})


def test_exponential_and_constant_steps_look_different(pyplot):
    calm = {"dw_min": 0.01, "dw_min_std": 0, "dw_min_dtod": 0, "up_down_dtod": 0}
    calm |= {"w_max_dtod": 0, "w_min_dtod": 0}
    cells = {"constant": rk.ConstantStep(**calm), "exp": rk.ExpStep(**calm)}
    insets = [ax.child_axes[0] for ax in rk.plot.plot_devices(cells, n_cell=4)]
    shapes = []
    for inset in insets:
        weight, step = inset.lines[0].get_data()
        shapes.append((step / step.max())[weight < 0.5])
    assert shapes[0].min() > 0.99
    assert shapes[1].min() < 0.9


def test_no_panel_is_cut_by_default(pyplot):
    cell = rk.ConstantStep(dw_min=0.0004, w_max_dtod=0, w_min_dtod=0, dw_min_dtod=0)
    (ax,) = rk.plot.plot_devices({"fine": cell}, n_cell=1)
    assert ax.lines[0].get_ydata().max() > 0.95 * cell.w_max


def test_conductances_have_units(pyplot):
    tile = rk.AnalogTile((8, 9), rk.SoftBounds(), seed=1)
    ax = rk.plot.plot_conductances({"a": tile})
    assert (ax.get_xlabel(), ax.get_ylabel()) == (
        "weight (weight units)",
        "density (1 / weight unit)",
    )
    pyplot.close("all")
    weight = np.linspace(-0.5, 0.5, 72, dtype=np.float32).reshape(8, 9)
    programmed = rk.InferenceTile((8, 9), seed=1).set_weights(weight).program()
    ax = rk.plot.plot_conductances({"b": programmed})
    assert ax.get_xlabel() == "conductance (\u00b5S)"
    assert key(ax) == ["b"]
    assert ax.get_xlim()[1] > 5  # microsiemens; the weights are below 1
    pyplot.close("all")
    ax = rk.plot.plot_conductances({"a": tile, "b": programmed})
    assert ax.get_xlabel() == "weight (weight units)"
    with pytest.raises(ParameterError, match="tiles"):
        rk.plot.plot_conductances({})


def test_spread_has_units(pyplot):
    tile = rk.AnalogTile((8, 9), rk.LinearStep(), seed=1)
    ax = rk.plot.plot_spread(tile)
    assert "(weight units)" in ax.get_xlabel()
    other = next(
        name for name in tile.cells if name not in ("w_min", "w_max", "step_up", "step_down")
    )
    pyplot.close("all")
    assert "(" not in rk.plot.plot_spread(tile, [other]).get_xlabel()


def test_accuracy_begins_at_zero_or_says_so(pyplot):
    ax = rk.plot.plot_learning({"a": [0.2, 0.6, 0.9]})
    assert ax.get_ylim()[0] == 0
    assert not ax.texts
    pyplot.close("all")
    ax = rk.plot.plot_learning({"a": [0.91, 0.96, 0.97], "b": [0.92, 0.95, 0.98]})
    low = ax.get_ylim()[0]
    assert low > 80
    assert [text.get_text() for text in ax.texts] == [f"axis begins at {low:.3g} %"]
    marks = [line for line in ax.lines if not line.get_clip_on()]
    assert len(marks) == 2
    assert key(ax) == ["a", "b"]
    with pytest.raises(rk.errors.ParameterError, match="curves: got none"):
        rk.plot.plot_learning({})


def test_structure_has_a_key(pyplot):
    x = np.random.default_rng(0).integers(0, 2, (40, 5))
    pc = rk.Circuit(rk.circuits.hclt(x, 3), seed=1)
    assert key(rk.plot.plot_structure(pc)) == ["sum", "product", "leaf", "width: weight"]
    pyplot.close("all")
    assert key(rk.plot.plot_structure(pc, x))[-1] == "width: flow"


def test_figure_of_the_demo(pyplot, tmp_path):
    """Three panels with units and keys; the file is a picture."""
    tiles = [rk.AnalogTile((4, 5), rk.SoftBounds(dw_min=0.05), seed=k) for k in (1, 2)]
    runs = [
        rk.demo.Run(name, accuracy=[0.9, 0.95], tiles=tiles) for name in ("SoftBounds", "exact")
    ]
    rk.demo.draw(*runs, tmp_path / "digits.png")
    assert (tmp_path / "digits.png").read_bytes()[:4] == b"\x89PNG"


def test_colours_of_strategies_differ(pyplot):
    from rpukit import tiled

    sweep = tiled.LevelSweep("L1", (1, 2), {"single": (3, 2), "double": (None, None)}, 2)
    ax = rk.plot.plot_sweep(sweep)
    assert key(ax) == ['"single"', '"double": fits in none', "the size given"]
    colours = [line.get_color() for line in ax.lines]
    assert all(a != b for a, b in pairwise(colours))
