"""Large matrices over several tiles, and programming by pulses."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors, inference
from rpukit.inference import MappedMatrix, map_matrix, write_verify
from rpukit.testing import assert_same_bits, on_cpu

PERFECT = rk.IOParameters(is_perfect=True)
CLEAN = {"noise": inference.Verbatim(), "forward": PERFECT, "backward": PERFECT}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


class TestMapping:
    def test_blocks(self):
        matrix = map_matrix((1100, 512), seed=1)
        assert [tile.shape for tile in matrix] == [(366, 512), (367, 512), (367, 512)]
        assert matrix.shape == (1100, 512)
        assert "3 x 1 tiles" in repr(matrix)
        assert len({tile.stream for tile in matrix}) == 3

    def test_products(self):
        matrix = map_matrix((70, 100), max_tile=(32, 40), seed=1, **CLEAN)
        w, x, d = numbers(70, 100), numbers(6, 100, seed=1), numbers(6, 70, seed=2)
        matrix.set_weights(w)
        assert_same_bits(matrix.get_weights(), w)
        np.testing.assert_allclose(matrix.forward(x), x @ w.T.astype("f8"), atol=2e-5)
        np.testing.assert_allclose(matrix.backward(d), d @ w.astype("f8"), atol=2e-5)
        np.testing.assert_allclose(matrix.forward(x[0]), w @ x[0].astype("f8"), atol=2e-5)
        matrix.update(x, d, 0.1)
        exact = w - 0.1 * d.T.astype("f8") @ x
        np.testing.assert_allclose(matrix.get_weights(), exact, atol=2e-6)

    def test_partial_sums_go_from_left_to_right(self):
        matrix = map_matrix((5, 90), max_tile=(8, 32), seed=1, **CLEAN)
        w, x = numbers(5, 90), numbers(3, 90, seed=1)
        matrix.set_weights(w)
        parts = [
            tile.forward(np.ascontiguousarray(x[:, at : at + 30]))
            for tile, at in zip(matrix, (0, 30, 60), strict=True)
        ]
        assert_same_bits(matrix.forward(x), (parts[0] + parts[1]) + parts[2])

    def test_sources_and_splits(self, order):
        def story():
            matrix = map_matrix((45, 132), max_tile=(24, 68), seed=3, compensation="global")
            matrix.set_weights(numbers(45, 132)).program().drift_to(3600.0)
            x = numbers(5, 132, seed=1)
            return [matrix.forward(x), matrix.backward(numbers(5, 45, seed=2)), *halves(matrix, x)]

        def halves(matrix, x):
            return [matrix.forward(x[k : k + 1], first_sample=k) for k in range(5)]

        mirror = story()
        with on_cpu(order):
            source = story()
        for a, b in zip(source, mirror, strict=True):
            assert_same_bits(a, b)
        assert_same_bits(np.concatenate(mirror[2:]), mirror[0])

    def test_copies(self):
        matrix = map_matrix((20, 30), max_tile=(16, 16), seed=3)
        matrix.set_weights(numbers(20, 30)).post_step().program().drift_to(5.0)
        twin = matrix.copy()
        x = numbers(4, 30)
        assert_same_bits(twin.forward(x), matrix.forward(x))
        assert_same_bits(twin.read().get_weights(), matrix.read().get_weights())
        assert_same_bits(matrix.unprogram().get_weights(), numbers(20, 30))
        for spoil in ({}, {"header": {"format": "x", "version": 1}, "arrays": {}}):
            with pytest.raises(errors.FormatError, match="state"):
                MappedMatrix.from_state(spoil)

    def test_bad_input(self):
        with pytest.raises(errors.ParameterError, match="max_tile"):
            map_matrix((4, 4), max_tile=(0, 4))
        with pytest.raises(errors.ShapeError, match="shape"):
            map_matrix((4,))
        tiles = [rk.InferenceTile(shape) for shape in ((2, 3), (2, 4))]
        with pytest.raises(errors.ShapeError, match="grid"):
            MappedMatrix([[tiles[0]], [tiles[1]]])
        matrix = map_matrix((4, 4))
        with pytest.raises(errors.ShapeError, match="weight"):
            matrix.set_weights(numbers(4, 5))
        with pytest.raises(errors.ShapeError, match="x: got"):
            matrix.forward(numbers(2, 5))
        with pytest.raises(errors.ShapeError, match="samples"):
            matrix.update(numbers(2, 4), numbers(3, 4), 0.1)


class TestWriteVerify:
    @pytest.mark.parametrize(("cell", "n_read"), [(rk.ConstantStep, 4), (rk.SoftBounds, 16)])
    def test_converges(self, cell, n_read):
        tile = rk.AnalogTile((12, 20), cell(dw_min=0.002, dw_min_dtod=0.2), seed=4)
        target = 0.25 * numbers(12, 20)
        done = write_verify(tile, target, tolerance=0.02, n_read=n_read)
        assert done.converged
        assert done.error <= 0.02
        assert done.history[-1] == done.error
        assert np.abs(np.asarray(tile) - target).mean() <= 0.02 * np.abs(target).max()
        assert "converged after" in str(done)
        again = write_verify(tile, target, tolerance=0.02)
        assert again.n_round == 0

    @pytest.mark.parametrize(
        "cell",
        [
            rk.Reference(devices=(rk.SoftBounds(dw_min=0.002),)),
            rk.SoftBoundsReference(dw_min=0.002),
            rk.PowStepReference(dw_min=0.002),
            rk.OneSided(device=rk.SoftBounds(dw_min=0.002, w_min=0)),
        ],
        ids=lambda cell: type(cell).__name__,
    )
    def test_cells_with_a_reference(self, cell):
        tile = rk.AnalogTile((12, 20), cell, seed=4)
        stored = 0.1 * numbers(12, 20, seed=1)
        if isinstance(cell, rk.Reference):
            tile.devices[1].set_weights(stored)
            stored = tile.devices[1].get_weights()
        target = 0.25 * numbers(12, 20)
        done = write_verify(tile, target, tolerance=0.02, n_read=16)
        assert done.converged
        assert np.abs(np.asarray(tile) - target).mean() <= 0.02 * np.abs(target).max()
        if isinstance(cell, rk.Reference):
            assert_same_bits(tile.devices[1].get_weights(), stored)
            assert np.abs(tile.devices[0].get_weights() - stored - target).mean() < 0.006

    def test_says_what_did_not(self):
        """Targets beyond the bounds of a cell cannot be reached, and are named."""
        cell = rk.ConstantStep(dw_min=0.005, w_max=0.3, w_min=-0.3, w_max_dtod=0, w_min_dtod=0)
        tile = rk.AnalogTile((6, 8), cell, seed=4, forward=PERFECT)
        target = np.full((6, 8), 0.1, np.float32)
        target[2, 3] = 0.9
        done = write_verify(tile, target, tolerance=0.005, max_rounds=120)
        assert not done.converged
        assert done.n_round == 120
        assert done.missed[2, 3]
        assert done.missed.sum() < 10
        assert "did not converge" in str(done)

    def test_sources(self, order):
        def story():
            tile = rk.AnalogTile((5, 12), rk.SoftBounds(dw_min=0.01), seed=4)
            done = write_verify(tile, 0.2 * numbers(5, 12), tolerance=1e-4, max_rounds=20)
            return np.asarray(tile), done

        mirror = story()
        with on_cpu(order):
            source = story()
        assert_same_bits(source[0], mirror[0])
        assert source[1].history == mirror[1].history

    @pytest.mark.parametrize(
        "options",
        [{"tolerance": 0.0}, {"lr": -1.0}, {"max_rounds": 0}, {"check_every": 1.5}],
    )
    def test_bad_parameters(self, options):
        tile = rk.AnalogTile((2, 3), rk.Ideal())
        with pytest.raises(errors.ParameterError, match=next(iter(options))):
            write_verify(tile, np.zeros((2, 3), np.float32), **options)

    def test_bad_targets(self):
        tile = rk.AnalogTile((2, 3), rk.Ideal())
        with pytest.raises(errors.ShapeError, match="target"):
            write_verify(tile, np.zeros((3, 2), np.float32))
        with pytest.raises(errors.NonFiniteError, match="target"):
            write_verify(tile, np.full((2, 3), np.nan, np.float32))
