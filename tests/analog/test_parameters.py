"""Every parameter is checked in one way: type, finite, range; wrong names get the nearest one."""

from dataclasses import fields

import numpy as np
import pytest

import rpukit as rk
from rpukit._checks import Checked
from rpukit.errors import DTypeError, ParameterError, RpukitError, ShapeError

PUBLIC = [getattr(rk.analog, name) for name in rk.analog.__all__]
CLASSES = [c for c in PUBLIC if isinstance(c, type) and issubclass(c, Checked) and fields(c)]
WRONG = {"float": ("a", None, True, np.inf, np.nan, 1j), "int": ("a", None, 1.5, True, [1])}
WRONG["bool"] = ("no", None, 2, 0.0)


def test_all_classes_are_found():
    names = {c.__name__ for c in CLASSES}
    assert {"IOParameters", "UpdateParameters", "DriftParameters", "SoftBounds"} < names
    assert {"Vector", "Transfer", "MixedPrecision", "Ideal"} < names


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_every_field_has_its_type(kind):
    for field in fields(kind):
        for wrong in WRONG.get(field.type, ()):
            if wrong is None and field.default is None:
                continue  # it follows from others
            with pytest.raises(ParameterError, match=rf"{kind.__name__}\.{field.name}: got "):
                kind(**{field.name: wrong})


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_a_wrong_name_gets_the_nearest_known_one(kind):
    known = [field.name for field in fields(kind) if field.init]
    name = max(known, key=len)
    with pytest.raises(TypeError, match=f"did you mean {name!r}") as caught:
        kind(**{name[:-1] + "_": 0})
    assert isinstance(caught.value, RpukitError)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rk.IOParameters(out_noise=np.inf),
        lambda: rk.IOParameters(out_noise="a"),
        lambda: rk.IOParameters(noise_management="abs_mx"),
        lambda: rk.SoftBounds(w_max=0, w_min=0),
        lambda: rk.SoftBounds(enforce_consistency="no"),
        lambda: rk.SoftBounds(lifetime=0.5),
        lambda: rk.Ideal(lifetime=0.5),
        lambda: rk.UpdateParameters(desired_bl=0),
        lambda: rk.UpdateParameters(pulse_type="stocastic"),
        lambda: rk.Vector(update_policy="alle"),
        lambda: rk.AnalogTile((2, 3), rk.Ideal(), validate="never"),
        lambda: rk.AnalogTile((2, 3), rk.Ideal(), storage="procedual"),
    ],
)
def test_values_at_the_edge_are_refused(make):
    with pytest.raises(ParameterError, match="need"):
        make()


def test_names_of_values_too():
    with pytest.raises(ParameterError, match="did you mean 'ABS_MAX'"):
        rk.IOParameters(noise_management="abs_mx")
    with pytest.raises(ParameterError, match="did you mean 'w_max'"):
        rk.AnalogTile((2, 3), rk.ConstantStep()).set_cells(wmax=np.ones((2, 3)))


@pytest.mark.parametrize("shape", [(2.5, 3), (2, 3.0), (0, 3), (True, 2), 3, (2,), "ab", (2, "3")])
def test_shapes_are_integers(shape):
    with pytest.raises(ShapeError, match="shape: got"):
        rk.AnalogTile(shape, rk.Ideal())
    with pytest.raises(ShapeError, match="shape: got"):
        rk.InferenceTile(shape)


def test_scalars_of_numpy_are_numbers():
    io = rk.IOParameters(out_noise=np.float32(0.5), max_bm_factor=np.array(8), is_perfect=np.True_)
    assert io == rk.IOParameters(out_noise=0.5, max_bm_factor=8, is_perfect=True)
    assert type(io.out_noise) is float and type(io.max_bm_factor) is int
    assert rk.AnalogTile(np.array([2, 3]), rk.Ideal()).shape == (2, 3)
    tiles = [rk.AnalogTile((2, 3), rk.ConstantStep(), seed=1) for _ in range(2)]
    x, d = np.ones((4, 3), "f4"), np.ones((4, 2), "f4")
    tiles[0].update(x, d, 0.1, first_sample=5, batch_size=2)
    at = {"first_sample": np.array(5), "batch_size": np.int64(2)}
    tiles[1].update(x, d, np.array(0.1), **at)
    assert np.array_equal(*tiles) and np.asarray(tiles[0]).any()
    tiles[0].decay(np.float32(1)).drift(np.array(2)).reset(np.int8(0), np.array(1), np.array(1.0))
    assert tiles[0].energy(np.array(2.0)) == 2.0 * tiles[0].n_pulses


@pytest.mark.parametrize("lr", ["a", None, True, [0.1], np.array([0.1]), 1j])
def test_a_rate_is_a_number(lr):
    tile = rk.AnalogTile((2, 3), rk.ConstantStep())
    with pytest.raises(DTypeError, match="lr: got"):
        tile.update(np.ones(3), np.ones(2), lr)
    assert tile.clocks["update"] == 0


def test_arguments_of_processes():
    tile = rk.AnalogTile((2, 3), rk.ConstantStep(reset=0.1), seed=1)
    before = tile.state()
    for call in (
        lambda: tile.decay("a"),
        lambda: tile.decay(np.inf),
        lambda: tile.drift(-1),
        lambda: tile.reset(3),
        lambda: tile.reset(0.5),
        lambda: tile.reset(0, -1),
        lambda: tile.reset(prob=2),
        lambda: tile.energy(-1),
        lambda: tile.forward(np.ones(3), first_sample=-1),
        lambda: tile.update(np.ones(3), np.ones(2), 0.1, batch_size=0),
    ):
        with pytest.raises(RpukitError, match="need"):
            call()
    assert tile.state()["header"] == before["header"]
