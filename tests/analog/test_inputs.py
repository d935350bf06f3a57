"""Every kind of array that a tile takes, in every call that takes arrays: equal bits, one rule."""

import warnings

import numpy as np
import pandas as pd
import pytest

import rpukit as rk
from rpukit.testing import assert_same_bits, on_cpu
from tests.foreign import OnlyArray, OnlyDLPack

SHAPE = (3, 4)
RNG = np.random.default_rng(2)
# Whole numbers, so that every kind holds the same values.
X = RNG.integers(-3, 4, (6, 4)).astype("f4")
D = RNG.integers(-3, 4, (6, 3)).astype("f4")
W = RNG.integers(-1, 2, SHAPE).astype("f4") * np.float32(0.0625)


class OnlyInterface:
    def __init__(self, array):
        self._array, self.__array_interface__ = array, array.__array_interface__


class OnGpu:
    def __init__(self, array):
        self.__cuda_array_interface__ = dict(array.__array_interface__)


KINDS = {
    "float32": lambda a: a,
    "float64": lambda a: a.astype(np.float64),
    "float16": lambda a: a.astype(np.float16),
    "long double": lambda a: a.astype(np.longdouble),
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "float64 of another byte order": lambda a: a.astype(">f8"),
    "columns first": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "list": lambda a: a.tolist(),
    "tuple of arrays": tuple,
    "DLPack": OnlyDLPack,
    "DLPack of float64": lambda a: OnlyDLPack(a.astype(np.float64)),
    "__array__": OnlyArray,
    "array interface": OnlyInterface,
    "memoryview": memoryview,
    "matrix": lambda a: np.matrix(a) if a.ndim == 2 else a,
    "data frame": lambda a: pd.DataFrame(a) if a.ndim == 2 else pd.Series(a),
}
WHOLE = {
    "int64": lambda a: a.astype(np.int64),
    "int8": lambda a: a.astype(np.int8),
    "list of int": lambda a: a.astype(int).tolist(),
}


def analog():
    return rk.AnalogTile(SHAPE, rk.ConstantStep(dw_min=0.01), seed=3).set_weights(W)


def inference():
    return rk.InferenceTile(SHAPE, seed=3).set_weights(W)


def changed(tile, call):
    call(tile)
    return np.asarray(tile)


CALLS = {  # (tile, kind of array) -> array
    "forward": (analog, lambda t, to: t.forward(to(X))),
    "forward of a vector": (analog, lambda t, to: t.forward(to(X[0]))),
    "backward": (analog, lambda t, to: t.backward(to(D))),
    "backward of a vector": (analog, lambda t, to: t.backward(to(D[0]))),
    "update": (analog, lambda t, to: changed(t, lambda t: t.update(to(X), to(D), 0.1))),
    "update of a vector": (
        analog,
        lambda t, to: changed(t, lambda t: t.update(to(X[0]), to(D[0]), 0.1)),
    ),
    "pulse_trains": (analog, lambda t, to: np.concatenate(t.pulse_trains(to(X), to(D), 0.1), 2)),
    "operator": (analog, lambda t, to: t @ to(np.ascontiguousarray(X.T))),
    "set_weights": (analog, lambda t, to: changed(t, lambda t: t.set_weights(to(16 * W)))),
    "set_cells": (analog, lambda t, to: changed(t, lambda t: t.set_cells(w_max=to(abs(16 * W))))),
    "inference forward": (inference, lambda t, to: t.forward(to(X))),
    "inference forward of a vector": (inference, lambda t, to: t.forward(to(X[0]))),
    "inference backward": (inference, lambda t, to: t.backward(to(D[0]))),
    "inference update": (
        inference,
        lambda t, to: changed(t, lambda t: t.update(to(X), to(D), 0.01)),
    ),
    "inference set_weights": (
        inference,
        lambda t, to: changed(t, lambda t: t.set_weights(to(16 * W))),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_kind_gives_the_same_bits(name):
    make, call = CALLS[name]
    expected = call(make(), lambda a: a)
    for kind, to in {**KINDS, **WHOLE}.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PendingDeprecationWarning)  # of numpy.matrix
            got = call(make(), to)
        assert type(got) is np.ndarray and got.shape == expected.shape, kind
        assert_same_bits(got, expected)


def test_a_batch_of_dlpack_is_a_batch():
    """An object that has no shape is not taken for a vector."""
    tile = analog()
    assert tile.forward(OnlyDLPack(X)).shape == (6, 3)
    assert tile.clocks["forward"] == 6


def test_kernels_take_them_too():
    tile, other = analog(), analog()
    expected = tile.forward(X)
    with on_cpu():
        assert_same_bits(other.forward(OnlyDLPack(X.astype("f8"))), expected)


REFUSED = {
    "complex": X + 0j,
    "objects": X.astype(object),
    "text": X.astype(str),
    "text in a list": X.astype(str).tolist(),
    "dates": X.astype("M8[s]"),
    "None in a list": [[None] * 4],
    "None": None,
    "a name": "x",
    "a set": {1, 2},
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("make", [analog, inference])
def test_what_is_no_number_is_refused(make, name):
    tile = make()
    with pytest.raises(rk.errors.DTypeError, match="x: "):
        tile.forward(REFUSED[name])
    with pytest.raises(rk.errors.RpukitError):
        tile.update(REFUSED[name], D, 0.1)
    assert tile.clocks["forward"] == 0
    assert_same_bits(np.asarray(tile), W)


def test_arrays_of_other_devices_are_refused():
    for there in (OnlyDLPack(X, (2, 0)), OnlyDLPack(X, (10, 0)), OnGpu(X)):
        with pytest.raises(rk.errors.DeviceError, match="x is on"):
            analog().forward(there)


def test_numbers_are_rounded_once():
    """One rule for lists and arrays: the nearest float32, ties to even."""
    tile = rk.AnalogTile((1, 1), rk.Ideal(), forward=rk.IOParameters(is_perfect=True))
    tile.set_weights([[1]])
    for n in (2**24 + 1, 2**24 + 3, 2**53 + 1):
        nearest = np.array([[n]], np.int64).astype(np.float32)
        for given in ([[n]], np.array([[n]], np.int64)):
            assert_same_bits(tile.forward(given), nearest)
    third = np.array([[1 / 3]])
    for given in (third, third.tolist()):
        assert_same_bits(tile.forward(given), third.astype(np.float32))


def test_numbers_beyond_float32_change_nothing():
    tile = analog()
    for large in (np.full((1, 4), 1e300), [[1e300] * 4]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(rk.errors.NonFiniteError, match="x"):
                tile.forward(large)
    assert tile.clocks["forward"] == 0


def test_ragged_lists_and_wrong_shapes():
    for bad in ([[1, 2], [3]], [[1, 2, 3]], 3.0, np.zeros((2, 0)), np.zeros(())):
        with pytest.raises(rk.errors.ShapeError, match="x: "):
            analog().forward(bad)


@pytest.mark.parametrize("make", [analog, inference])
@pytest.mark.parametrize("lead", [(), (6,), (2, 3), (3, 1, 2), (1, 1, 6), (0, 3)])
def test_leading_axes(make, lead):
    n = int(np.prod(lead))
    x, d = X[:n].reshape(*lead, 4), D[:n].reshape(*lead, 3)
    tile, flat = make(), make()
    y, g = tile.forward(x), tile.backward(d)
    assert y.shape == (*lead, 3) and g.shape == (*lead, 4)
    assert_same_bits(y.reshape(n, 3), flat.forward(X[:n]))
    assert_same_bits(g.reshape(n, 4), flat.backward(D[:n]))
    assert_same_bits(
        np.asarray(tile.update(x, d, 0.1)), np.asarray(flat.update(X[:n], D[:n], 0.1))
    )
    assert tile.clocks == flat.clocks


def test_leading_axes_of_x_and_d_agree():
    tile = analog()
    for x, d in ((X.reshape(2, 3, 4), D), (X.reshape(2, 3, 4), D.reshape(3, 2, 3)), (X, D[:5])):
        with pytest.raises(rk.errors.ShapeError, match="need"):
            tile.update(x, d, 0.1)
    tile.update(X[0], D[:1], 0.1)  # one sample either way
    assert tile.clocks["update"] == 1
