"""Files of every kind of tile."""

import numpy as np
import pytest

import rpukit as rk
from rpukit.testing import assert_same_bits


def made(kind):
    w = np.linspace(-0.5, 0.5, 12, dtype=np.float32).reshape(3, 4)
    if kind == "analog":
        return rk.AnalogTile((3, 4), rk.ChoppedTransfer(), seed=2).set_weights(w)
    if kind == "mapped":
        return rk.inference.map_matrix((3, 4), max_tile=(2, 2), seed=2).set_weights(w)
    return rk.InferenceTile((3, 4), seed=2).set_weights(w).program().drift_to(3600.0)


@pytest.mark.parametrize("kind", ["analog", "inference", "mapped"])
def test_a_file_continues(kind, tmp_path):
    tile = made(kind)
    rk.save(tmp_path / "tile.npz", tile)
    again = rk.load(tmp_path / "tile.npz")
    assert type(again) is type(tile)
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    assert_same_bits(again.forward(x), tile.forward(x))


def test_what_is_no_tile_is_refused(tmp_path):
    with pytest.raises(rk.errors.ParameterError, match="InferenceTile"):
        rk.save(tmp_path / "tile.npz", np.ones(3))
    header = np.frombuffer(b'{"format": "something"}', np.uint8)
    np.savez(tmp_path / "other.npz", **{"header.json": header})
    with pytest.raises(rk.errors.FormatError, match=r"names none of rpukit\.AnalogTile"):
        rk.load(tmp_path / "other.npz")
