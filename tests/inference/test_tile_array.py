"""Matrices over tiles of one size: cuts, biases, scales, updates, states."""

import copy

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors, inference
from rpukit.testing import assert_same_bits, on_cpu

PERFECT = rk.IOParameters(is_perfect=True)
CLEAN = {"forward": PERFECT, "backward": PERFECT}
EXACT = inference.InferenceCell(noise=inference.Verbatim())
CELLS = {
    "pulses": rk.SoftBounds(dw_min=0.01),
    "transfer": rk.ChoppedTransfer(devices=(rk.SoftBounds(), rk.SoftBounds())),
    "inference": inference.InferenceCell(compensation="global"),
}
each_cell = pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)


def numbers(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).uniform(-1, 1, shape)).astype(np.float32)


class TestCuts:
    def test_ragged_ends(self):
        array = rk.TileArray((70, 100), rk.Ideal(), tile_shape=(32, 40), seed=1)
        assert [[tile.shape for tile in row] for row in array.tiles] == [
            [(32, 40), (32, 40), (32, 20)],
            [(32, 40), (32, 40), (32, 20)],
            [(6, 40), (6, 40), (6, 20)],
        ]
        assert array.grid == (3, 3)
        assert array.utilisation == pytest.approx(7000 / (9 * 32 * 40))
        assert len({tile.stream for tile in array}) == 9
        assert "3 x 3 tiles" in repr(array)

    @each_cell
    def test_one_tile_has_the_bits_of_that_tile(self, cell):
        array = rk.TileArray((9, 20), cell, seed=3)
        if isinstance(cell, rk.inference.InferenceCell):
            tile = rk.InferenceTile((9, 20), compensation="global", seed=3)
        else:
            tile = rk.AnalogTile((9, 20), cell, seed=3)
        x, d = numbers(4, 20), numbers(4, 9, seed=1)
        for one in (array, tile):
            one.set_weights(numbers(9, 20, seed=2, scale=0.3))
            one.update(x, d, 0.1).post_step()
        assert_same_bits(array.forward(x), tile.forward(x))
        assert_same_bits(array.backward(d), tile.backward(d))
        assert_same_bits(array.get_weights(), tile.get_weights())
        assert array.clocks == tile.clocks

    def test_partial_sums_go_from_left_to_right(self):
        array = rk.TileArray((5, 90), rk.ConstantStep(), tile_shape=(8, 40), seed=1)
        array.set_weights(numbers(5, 90, scale=0.5))
        x = numbers(3, 90, seed=1)
        cut = np.split(x, [40, 80], axis=1)
        parts = [
            tile.forward(np.ascontiguousarray(part), first_sample=0)
            for tile, part in zip(array, cut, strict=True)
        ]
        assert_same_bits(array.forward(x, first_sample=0), (parts[0] + parts[1]) + parts[2])

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_products(self, dtype):
        array = rk.TileArray(
            (70, 100), rk.Ideal(), tile_shape=(32, 40), bias=True, dtype=dtype, **CLEAN
        )
        w, b, x, d = numbers(70, 100), numbers(70), numbers(2, 3, 100), numbers(2, 3, 70)
        array.set_weights(w.astype(dtype), b.astype(dtype))
        assert_same_bits(np.asarray(array), w.astype(dtype))
        assert array.dtype == dtype
        close = 2e-5 if dtype == np.float32 else 1e-13  # 100 terms of 1, and their chains
        y = array.forward(x.astype(dtype))
        np.testing.assert_allclose(y, x @ w.T.astype("f8") + b, atol=close)
        g = array.backward(d.astype(dtype))
        np.testing.assert_allclose(g, d @ w.astype("f8"), atol=close)
        np.testing.assert_allclose(x[0, 0].astype(dtype) @ array.T, y[0, 0], atol=close)


class TestLearning:
    @each_cell
    @pytest.mark.parametrize("bias", ["digital", "analog"])
    def test_batches_cut_in_any_way_give_the_same_bits(self, cell, bias):
        def learned(*cuts):
            array = rk.TileArray((9, 20), cell, tile_shape=(8, 8), bias=bias, seed=3)
            array.set_weights(numbers(9, 20, scale=0.2), numbers(9, scale=0.2))
            x, d = numbers(7, 20, seed=1), numbers(7, 9, seed=2)
            seen = []
            for part in np.split(np.arange(7), cuts):
                seen.append(array.forward(x[part]))
                seen[-1] = np.concatenate([seen[-1], array.backward(d[part])[:, :5]], axis=1)
            for part in np.split(np.arange(7), cuts):
                array.update(x[part], d[part], 0.05, batch_size=7)
            return np.concatenate(seen), array.get_weights(), array.get_bias()

        whole = learned()
        for cuts in ((3,), (1, 2, 6)):
            for a, b in zip(learned(*cuts), whole, strict=True):
                assert_same_bits(a, b)
        assert (whole[1] != numbers(9, 20, scale=0.2)).any()
        assert (whole[2] != numbers(9, scale=0.2)).any()

    @pytest.mark.parametrize("compensates", [False, True])
    @pytest.mark.parametrize("bias", ["digital", "analog"])
    def test_update_is_its_formula(self, bias, compensates):
        scale = rk.OutputScale(per="column", omega=0.5, compensates_rate=compensates)
        cell = inference.InferenceCell(noise=inference.Verbatim())
        array = rk.TileArray(
            (9, 20), cell, tile_shape=(8, 8), bias=bias, output_scale=scale, **CLEAN
        )
        w, b, x, d = numbers(9, 20), numbers(9, seed=5), numbers(7, 20, seed=1), numbers(7, 9)
        array.set_weights(w, b)
        np.testing.assert_allclose(array.get_weights(), w, atol=1e-6)  # a division, a product
        s = array.scales.astype("f8")
        largest = np.abs(np.c_[w, b] if bias == "analog" else w).max(axis=1)
        np.testing.assert_allclose(s, largest / 0.5, rtol=1e-6)
        np.testing.assert_allclose(array.forward(x), x @ w.T.astype("f8") + b, atol=2e-5)
        np.testing.assert_allclose(array.backward(d), d @ w.astype("f8"), atol=2e-5)
        array.update(x, d, 0.1)
        rate = 0.1 if compensates else 0.1 * s[:, None] ** 2
        np.testing.assert_allclose(array.get_weights(), w - rate * (d.T @ x), atol=5e-6)
        of_bias = 0.1 if bias == "digital" else np.ravel(rate)
        np.testing.assert_allclose(array.get_bias(), b - of_bias * d.sum(axis=0), atol=5e-6)

    @pytest.mark.parametrize("per", ["tensor", "column"])
    def test_learned_scales(self, per):
        scale = rk.OutputScale(per=per, value=2.0, learned=True)
        array = rk.TileArray((3, 4), EXACT, bias=True, output_scale=scale, **CLEAN)
        array.set_weights(numbers(3, 4), numbers(3))
        x, d = numbers(6, 4, seed=1), numbers(6, 3, seed=2)
        y = array.forward(x)
        slope = (d * (y - array.get_bias()) / 2.0).sum(axis=0)
        array.update_scales(y, d, 0.1)
        slope = slope.sum() if per == "tensor" else slope
        np.testing.assert_allclose(array.scales, 2.0 - 0.1 * slope, rtol=1e-6)
        with pytest.raises(errors.ParameterError, match="learned=True"):
            rk.TileArray((3, 4), EXACT, output_scale=2.0).update_scales(y, d, 0.1)

    def test_sources(self, order):
        def story():
            scale = rk.OutputScale(omega=0.4)
            array = rk.TileArray(
                (9, 20), CELLS["pulses"], tile_shape=(8, 8), bias="analog", output_scale=scale
            )
            array.set_weights(numbers(9, 20), numbers(9))
            x, d = numbers(5, 20, seed=1), numbers(5, 9, seed=2)
            y, g = array.forward(x), array.backward(d)
            array.update(x, d, 0.1).post_step()
            return y, g, array.get_weights(), array.get_bias()

        mirror = story()
        with on_cpu(order):
            source = story()
        for a, b in zip(source, mirror, strict=True):
            assert_same_bits(a, b)


class TestHardware:
    def test_programmed_and_aged(self):
        array = rk.TileArray((20, 30), CELLS["inference"], tile_shape=(16, 16), seed=3)
        array.set_weights(numbers(20, 30)).program()
        young = array.drift_to(1.0).get_weights()
        old = array.drift_to(86400.0).get_weights()
        assert (young != old).any()
        assert_same_bits(array.drift_to(1.0).get_weights(), young)
        assert (array.read().get_weights() != young).any()
        assert_same_bits(array.unprogram().get_weights(), numbers(20, 30))
        assert isinstance(array.cell, inference.InferenceCell)

    def test_processes(self):
        cell = rk.SoftBounds(lifetime=10.0, diffusion=0.01, drift=rk.DriftParameters(nu=0.1))
        array = rk.TileArray((9, 20), cell, tile_shape=(8, 8), seed=3)
        seen = [array.set_weights(numbers(9, 20, scale=0.3)).get_weights()]
        steps = (
            lambda: array.post_step(),
            lambda: array.drift(10.0).drift(10.0),
            lambda: array.reset(),
            lambda: array.update(numbers(2, 20), numbers(2, 9), 0.1),
        )
        for step in steps:
            step()
            seen.append(array.get_weights())
            assert (seen[-1] != seen[-2]).any()
        assert array.n_pulses > 0
        assert array.energy(2.0) == 2.0 * array.n_pulses
        with pytest.raises(errors.ParameterError, match="program: tiles of class AnalogTile"):
            array.program()
        with pytest.raises(errors.ParameterError, match="drift: tiles of class InferenceTile"):
            rk.TileArray((2, 3), EXACT).drift(1.0)


class TestStates:
    @each_cell
    def test_copies_and_files_continue_to_the_same_bits(self, cell, tmp_path):
        scale = rk.OutputScale(per="column", omega=0.4)
        array = rk.TileArray((9, 20), cell, tile_shape=(8, 8), bias="digital", output_scale=scale)
        array.set_weights(numbers(9, 20), numbers(9))
        x, d = numbers(5, 20, seed=1), numbers(5, 9, seed=2)
        array.update(x, d, 0.1).post_step()
        rk.save(tmp_path / "array.npz", array)
        twins = [array.copy(), copy.deepcopy(array), rk.load(tmp_path / "array.npz")]
        seen = [
            (one.update(x, d, 0.1).forward(x), one.backward(d), *all_of(one))
            for one in (array, *twins)
        ]
        for found in seen[1:]:
            for a, b in zip(found, seen[0], strict=True):
                assert_same_bits(a, b)
        assert twins[2].tile_shape == (8, 8)
        assert twins[2].output_scale == scale
        assert type(twins[2].cell) is type(cell)

    def test_summaries(self):
        array = rk.TileArray((9, 20), rk.SoftBounds(), tile_shape=(8, 8), bias=True)
        found = rk.summary(array)
        assert found["tiles"] == [2, 3]
        assert found["macs_per_sample"] == 180
        assert "utilisation" in str(found)
        assert "PCMLike" in str(rk.summary(rk.TileArray((9, 20), inference.PCMLike())))


def all_of(array):
    return array.get_weights(), array.get_bias(), array.scales


class TestBadInput:
    def test_settings(self):
        make = rk.TileArray
        for match, options in (
            ("tile_shape", {"tile_shape": (0, 4)}),
            ("bias", {"bias": "both"}),
            ("output_scale", {"output_scale": "tensor"}),
        ):
            with pytest.raises((errors.ParameterError, errors.DTypeError), match=match):
                make((4, 4), rk.Ideal(), **options)
        with pytest.raises(errors.ParameterError, match="cell"):
            make((4, 4), rk.SoftBounds)
        with pytest.raises(errors.ParameterError, match="update: inference"):
            make((4, 4), EXACT, update=rk.UpdateParameters())
        with pytest.raises(errors.ParameterError, match="storage: need a cell"):
            make((4, 4), EXACT, storage="procedural")
        with pytest.raises(errors.ParameterError, match="per"):
            rk.OutputScale(per="row")
        with pytest.raises(errors.ParameterError, match="value"):
            rk.OutputScale(value=0.0)

    def test_calls_leave_the_array_unchanged(self):
        array = rk.TileArray((9, 20), rk.SoftBounds(), tile_shape=(8, 8), bias=True)
        array.set_weights(numbers(9, 20, scale=0.3), numbers(9))
        before, clocks = (*all_of(array)[:2],), array.clocks
        bad = numbers(2, 20)
        bad[1, 19] = np.nan
        good_x, good_d = numbers(2, 20), numbers(2, 9)
        calls = {
            errors.NonFiniteError: [
                lambda: array.forward(bad),
                lambda: array.update(bad, good_d, 0.1),
                lambda: array.set_weights(np.full((9, 20), np.inf, np.float32)),
            ],
            errors.ShapeError: [
                lambda: array.forward(good_d),
                lambda: array.update(good_x, good_d[:1], 0.1),
                lambda: array.set_weights(numbers(9, 21)),
                lambda: array.set_weights(numbers(9, 20), numbers(8)),
            ],
            errors.ParameterError: [lambda: array.set_scales(numbers(9))],
        }
        for kind, those in calls.items():
            for call in those:
                with pytest.raises(kind):
                    call()
        for a, b in zip(all_of(array)[:2], before, strict=True):
            assert_same_bits(a, b)
        assert array.clocks == clocks
        limited = rk.TileArray((9, 20), inference.InferenceCell(w_max=1.0), tile_shape=(8, 8))
        with pytest.raises(errors.ParameterError, match="w_max"):
            limited.set_weights(
                np.eye(9, 20, dtype=np.float32) * np.arange(9, dtype="f4")[:, None]
            )
        assert not np.asarray(limited).any()
        with pytest.raises(errors.ParameterError, match="has none"):
            limited.set_weights(numbers(9, 20), numbers(9))
        with pytest.raises(errors.FormatError):
            rk.TileArray.from_state({"header": {"format": "rpukit.TileArray", "version": 1}})


@pytest.mark.gpu
@each_cell
def test_both_devices_have_the_same_bits(cell):
    def story(device):
        scale = rk.OutputScale(omega=0.4)
        array = rk.TileArray(
            (90, 200), cell, tile_shape=(64, 64), bias="analog", output_scale=scale, device="cpu"
        )
        array = array.set_weights(numbers(90, 200), numbers(90)).to(device)
        xp = np if device == "cpu" else __import__("cupy")
        x, d = xp.asarray(numbers(5, 200, seed=1)), xp.asarray(numbers(5, 90, seed=2))
        y, g = array.forward(x), array.backward(d)
        array.update(x, d, 0.1).post_step()
        found = (y, g, array.get_weights(), array.get_bias())
        return [a if device == "cpu" else a.get() for a in found]

    for a, b in zip(story("gpu"), story("cpu"), strict=True):
        assert_same_bits(a, b)
