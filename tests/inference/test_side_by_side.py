"""Tiles of one matrix that share their launches: bits, number of launches, errors."""

import numpy as np
import pytest

import rpukit as rk
from rpukit._kernels import launch
from rpukit.errors import NonFiniteError
from rpukit.testing import assert_same_bits, on_cpu

SHAPE, TILE = (40, 72), (16, 32)  # 3 x 3 tiles of four shapes


def pair():
    """Two arrays of the same bits."""
    weight = np.random.default_rng(1).uniform(-0.5, 0.5, SHAPE).astype(np.float32)
    io = rk.IOParameters(bound_management="none")
    options = {"tile_shape": TILE, "seed": 3, "forward": io, "bias": True}
    made = [rk.TileArray(SHAPE, rk.ConstantStep(dw_min=0.01), **options) for _ in range(2)]
    return [array.set_weights(weight) for array in made]


def samples(n=12, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.uniform(-1, 1, (n, size)).astype(np.float32) for size in reversed(SHAPE))


class Counter:
    """Runner of kernels that counts launches, by the number of tiles that share each."""

    def __init__(self, monkeypatch):
        self.shared = []
        run = launch._runner

        def counted(variant, grid, *rest):
            self.shared.append(grid[2] if len(grid) > 2 else 0)
            run(variant, grid, *rest)

        monkeypatch.setattr(launch, "_runner", counted)


def test_bits_are_those_of_tiles_in_turn(order, monkeypatch):
    plain, other = pair()
    counter = Counter(monkeypatch)
    for step in range(4):
        counter.shared.clear()
        x, d = samples(seed=step)
        expected = plain.forward(x)
        plain.update(x, d, 0.02)
        with on_cpu(order):
            got = other.forward(x)
            other.update(x, d, 0.02)
        assert_same_bits(got, expected)
        assert_same_bits(other.get_weights(), plain.get_weights())
        tiles = set(counter.shared) - {0}
        assert tiles == (set() if step < 2 else {4, 2, 1})
    assert other.clocks == plain.clocks


def test_tiles_that_changed_are_recorded_again():
    plain, other = pair()
    x, d = samples()
    for step in range(6):
        for array in (plain, other):
            if step == 3:  # one tile is ahead of the others
                array.tiles[0][1].forward(x[:, 32:64])
            if step == 4:
                array.tiles[1][1].update_parameters = rk.UpdateParameters(desired_bl=5)
        plain.update(x, d, 0.05)
        with on_cpu():
            other.update(x, d, 0.05)
            assert_same_bits(other.forward(x), plain.forward(x))
        assert_same_bits(other.get_weights(), plain.get_weights())


def test_bad_values_stop_the_tiles_that_see_them(monkeypatch):
    together, in_turn = pair()
    monkeypatch.setattr(in_turn, "_launches_together", lambda *_: False)
    x, d = samples()
    bad = x.copy()
    bad[2, 40] = np.nan
    for array in (together, in_turn):
        with on_cpu():
            for _ in range(3):
                array.update(x, d, 0.05)
            array.update(bad, d, 0.05)
            for tile in (row[1] for row in array.tiles):
                with pytest.raises(NonFiniteError):
                    tile.get_weights()
            array.update(x, d, 0.05)
    assert_same_bits(together.get_weights(), in_turn.get_weights())
