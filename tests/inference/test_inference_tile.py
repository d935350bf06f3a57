"""InferenceTile through its public face, on the CPU with mirrors and with the sources."""

import json
import pickle

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors, inference
from rpukit.testing import assert_same_bits, on_cpu
from tests.reference import inference as reference

TIMES = (0.0, 1.0, 25.0, 3600.0, 86400.0, 30 * 86400.0, 365 * 86400.0)
PERFECT = rk.IOParameters(is_perfect=True)
OPTIONS = {
    "plain": {},
    "global": {"compensation": "global", "forward": rk.IOParameters(out_noise=0.02)},
    "exact": {"compensation": "global_exact"},
    "columns": {"compensation": "per_column", "converter": inference.NPairs(factors=(1, 3))},
    "hermes": {"noise": inference.Hermes(), "input_range": inference.InputRange(value=0.8)},
    "wan": {"noise": inference.ReRamWan()},
    "cmo": {"noise": inference.ReRamCMO(), "compensation": "global"},
    "clean": {"noise": inference.Verbatim(), "forward": PERFECT, "backward": PERFECT},
}


def weights(shape, seed=0):
    return np.random.default_rng(seed).uniform(-0.8, 0.8, shape).astype(np.float32)


def batch(shape, n=9, seed=1):
    rng = np.random.default_rng(seed)
    x, d = (rng.uniform(-1, 1, (n, k)).astype(np.float32) for k in (shape[1], shape[0]))
    return x, d


def made(name="plain", shape=(13, 132), **changes):
    tile = rk.InferenceTile(shape, seed=5, **(OPTIONS[name] | changes))
    return tile.set_weights(weights(shape))


def story(tile):
    """Everything that a tile does, as a list of arrays."""
    x, d = batch(tile.shape)
    seen = [tile.forward(x), tile.backward(d)]
    tile.program()
    seen += [tile.get_weights(), tile.conductances.copy(), tile.forward(x)]
    for t in tile.noise.TIMES or (3600.0, 0.0, 1.0):
        tile.drift_to(t)
        seen += [tile.get_weights(), tile.alpha, tile.forward(x), tile.backward(d)]
    tile.read()
    return [*seen, tile.get_weights()]


@pytest.mark.parametrize("name", OPTIONS)
def test_sources_give_the_bits_of_the_mirrors(name, order):
    mirror = story(made(name))
    with on_cpu(order):
        source = story(made(name))
    for a, b in zip(source, mirror, strict=True):
        assert_same_bits(a, b)


class TestTime:
    @pytest.mark.parametrize("name", ["plain", "global", "columns", "hermes"])
    def test_has_no_order(self, name):
        x, _ = batch((13, 132))
        seen = {}
        for order in (TIMES, TIMES[::-1], (25.0,)):
            tile = made(name).program()
            for t in order:
                y = tile.drift_to(t).forward(x, first_sample=0)
                for a, b in zip(seen.setdefault(t, (y, tile.alpha)), (y, tile.alpha), strict=True):
                    assert_same_bits(a, b)

    def test_programming_again(self):
        tile = made()
        first, second = tile.program().get_weights(), tile.program().get_weights()
        assert (first != second).mean() > 0.9
        assert_same_bits(tile.program(event=0).get_weights(), first)
        assert tile.clocks["program"] == 1
        assert_same_bits(tile.program().get_weights(), second)

    def test_readings(self):
        tile = made().program().drift_to(100.0)
        first = tile.get_weights()
        second = tile.read().get_weights()
        assert (first != second).mean() > 0.9
        assert_same_bits(tile.drift_to(100.0, number=1).get_weights(), second)
        assert_same_bits(tile.read(number=0).get_weights(), first)

    def test_as_written_is_before_any_reading(self):
        tile = made().program()
        assert tile.time == 0
        written = tile.get_weights()
        split = tile.converter.split(weights(tile.shape))
        assert_same_bits(tile.converter.to_weight(tile.conductances, split), written)
        assert (tile.drift_to(0.0).get_weights() != written).mean() > 0.9

    def test_the_scale_of_the_target_stays(self):
        """The reference fits it anew to what was programmed, at every time."""
        quiet = inference.PCMLike(prog_noise_scale=0.0, read_noise_scale=0.0, drift_scale=0.0)
        tile = made(noise=quiet).program()
        for t in TIMES:
            np.testing.assert_allclose(
                tile.drift_to(t).get_weights(), weights(tile.shape), atol=1e-6
            )


def test_recorded_weights():
    """400 programmings of the reference; there drift starts from weights that are split again."""
    data = reference.arrays("pcm_weights")
    w = data["W"]
    runs = 400
    tile = rk.InferenceTile(w.shape, seed=1).set_weights(w)
    seen = np.zeros((8, runs, *w.shape))
    for k in range(runs):
        seen[0, k] = tile.program().get_weights()
        for i, t in enumerate(data["t_inference"].astype(float)):
            seen[i + 1, k] = tile.drift_to(t).get_weights()
    std, sem = seen.std(1), np.sqrt(2 / runs)
    assert (np.abs(seen[0].mean(0) - data["prog_mean"]) < 4.5 * std[0] * sem).all()
    np.testing.assert_allclose(std[0], data["prog_std"], rtol=0.2)  # 5.6 standard errors
    # What splitting again does to a pair of devices of which one should be 0: at most a tenth of
    # the noise, and its mean goes along with the drift of a small conductance.
    slack = 4.5 * std[1:] * sem + 0.1 * std[1:]
    assert (np.abs(seen[1:].mean(1) - data["drift_mean"]) < slack).all()


@pytest.mark.parametrize("kind", ["global", "percolumn"])
def test_recorded_compensation(kind):
    data = reference.arrays(f"comp_{kind}")
    runs, w = 100, data["W"]
    name = "per_column" if kind == "percolumn" else "global"
    options = {"compensation": name, "forward": PERFECT, "backward": PERFECT}
    tile = rk.InferenceTile(w.shape, seed=2, **options).set_weights(w)
    n_alpha = data["alpha_mean"].shape[1]
    seen = np.zeros((len(data["t_inference"]), runs, n_alpha))
    for k in range(runs):
        tile.program()
        for i, t in enumerate(data["t_inference"].astype(float)):
            seen[i, k] = tile.drift_to(t).alpha[:n_alpha]
    spread = np.maximum(seen.std(1), data["alpha_std"])
    slack = 4.5 * spread * np.sqrt(2 / runs) + 0.1 * spread + 1e-4
    assert (np.abs(seen.mean(1) - data["alpha_mean"]) < slack).all()
    if kind == "global":
        figures = [1.000, 1.003, 1.040, 1.292, 1.506, 1.777, 2.002]
        np.testing.assert_allclose(seen.mean(1)[:, 0], figures, rtol=0.015)


def test_compensation_by_formula():
    for name in ("global", "global_exact", "per_column"):
        tile = made(compensation=name, forward=PERFECT, backward=PERFECT).program()
        written = np.abs(tile.get_weights().astype("f8"))
        tile.drift_to(3.0e6)
        seen = np.abs(tile.get_weights().astype("f8")) / tile.alpha[:, None]
        axis = 1 if name == "per_column" else None
        exact = written.mean(axis) / seen.mean(axis)
        np.testing.assert_allclose(tile.alpha, np.broadcast_to(exact, 13), rtol=1e-6)
    tile = made(compensation="global_exact").program()
    assert_same_bits(tile.alpha, np.ones(13, np.float32))
    assert_same_bits(tile.drift_to(1e6).unprogram().alpha, np.ones(13, np.float32))


class TestTraining:
    def test_clean_products_are_exact(self):
        tile = made("clean")
        x, d = batch(tile.shape)
        w = weights(tile.shape).astype("f8")
        for _ in range(2):
            np.testing.assert_allclose(tile.forward(x), x @ w.T, atol=2e-5)
            np.testing.assert_allclose(tile.backward(d), d @ w, atol=2e-5)
            np.testing.assert_allclose(tile @ x.T, w @ x.T, atol=2e-5)
            np.testing.assert_allclose(d @ tile, d @ w, atol=2e-5)
            np.testing.assert_allclose(x @ tile.T, x @ w.T, atol=2e-5)
            tile.program()

    def test_update(self, device):
        tile = made("clean").set_scales(np.linspace(0.5, 2, 13, dtype=np.float32))
        x, d = batch(tile.shape)
        before = np.asarray(tile).astype("f8")
        y = tile.forward(x)
        tile.update(x, d, lr=0.1)
        scale = tile.scales.astype("f8")[:, None]
        np.testing.assert_allclose(
            np.asarray(tile), before - 0.1 * scale**2 * (d.T @ x), atol=1e-5
        )
        tile.update_scales(y, d, lr=0.01)
        slope = (d.astype("f8") * y).sum(0) / scale[:, 0]
        np.testing.assert_allclose(tile.scales, scale[:, 0] - 0.01 * slope, rtol=1e-5)

    def test_split_batches_learn_alike(self):
        x, d = batch((13, 132), n=8)
        whole, parts = made(), made()
        whole.update(x, d, 0.1)
        for k in range(0, 8, 3):
            parts.update(x[k : k + 3], d[k : k + 3], 0.1)
        assert_same_bits(np.asarray(whole), np.asarray(parts))

    def test_modifier_lasts_a_step(self):
        modifier = inference.WeightModifier(type="add_normal", std_dev=0.1)
        tile = made("clean", modifier=modifier)
        plain = tile.get_weights()
        first = tile.post_step().get_weights()
        assert 0.05 < (first - plain).std() / np.abs(plain).max() < 0.15
        x, _ = batch(tile.shape)
        np.testing.assert_allclose(tile.forward(x), x @ first.T.astype("f8"), atol=2e-5)
        assert (tile.post_step().get_weights() != first).mean() > 0.99
        assert_same_bits(tile.update(x, np.zeros((9, 13), np.float32), 1.0).get_weights(), plain)
        assert_same_bits(tile.post_step().unprogram().get_weights(), plain)

    def test_modifier_by_the_noise_model(self, order):
        modifier = inference.WeightModifier(type="noise_model", t=86400.0, p_low=0.1, pdrop=0.05)
        results = []
        for context in (on_cpu(order), None):
            tile = made(modifier=modifier)
            if context:
                with context:
                    results.append(tile.post_step().get_weights())
            else:
                results.append(tile.post_step().get_weights())
        assert_same_bits(*results)
        programmed = made().program().drift_to(86400.0).get_weights()
        moved = results[0] / np.where(weights((13, 132)) == 0, 1, weights((13, 132)))
        assert 0.5 < np.median(moved) < 0.85
        assert 0.04 < (results[0] == 0).mean() < 0.2
        assert (results[0] != programmed).mean() > 0.95  # draws of its own

    def test_clip_and_remap(self):
        clip = inference.WeightClip(type="fixed_value", fixed_value=0.5)
        remap = inference.WeightRemap(type="channelwise_symmetric")
        tile = made("clean", weight_clip=clip, weight_remap=remap).post_step()
        clipped = np.clip(weights(tile.shape), -0.5, 0.5)
        np.testing.assert_allclose(np.asarray(tile), clipped, atol=1e-7)
        np.testing.assert_allclose(tile.scales, np.abs(clipped).max(1), rtol=1e-6)
        x, d = batch(tile.shape)
        np.testing.assert_allclose(tile.forward(x), x @ clipped.T.astype("f8"), atol=2e-5)
        np.testing.assert_allclose(tile.backward(d), d @ clipped.astype("f8"), atol=2e-5)
        tile.program()
        np.testing.assert_allclose(tile.forward(x), x @ clipped.T.astype("f8"), atol=2e-5)

    def test_input_range(self, device):
        io = rk.IOParameters(
            inp_res=0, out_res=0, out_noise=0, out_bound=0, bound_management="none"
        )
        tile = made("clean", forward=io, input_range=inference.InputRange(value=0.5))
        x, d = batch(tile.shape)
        w = weights(tile.shape).astype("f8")
        np.testing.assert_allclose(tile.forward(x), np.clip(x, -0.5, 0.5) @ w.T, atol=2e-5)
        grad = tile.backward(d)
        kept = tile.learn_range(x, grad, 0.1)
        assert_same_bits(kept, np.where(np.abs(x) > 0.5, np.float32(0), grad))
        assert tile.range == 0.5
        tile.update(x, d, 0.1)
        exact = w - 0.1 * d.T.astype("f8") @ np.clip(x, -0.5, 0.5)
        np.testing.assert_allclose(np.asarray(tile), exact, atol=1e-5)

    def test_learned_range(self):
        kind = inference.InputRange(learned=True, n_init=1)
        tile = made(input_range=kind)
        x, d = batch(tile.shape)
        tile.learn_range(x, tile.backward(d), 0.01)
        first = tile.range
        assert first == pytest.approx(3 * np.sqrt((x.astype("f8") ** 2).mean()))
        tile.learn_range(x, tile.backward(d), 0.01)
        assert tile.range == pytest.approx(first * (1 - 0.01 * 0.001))
        assert tile.copy().range == tile.range


class TestCopies:
    @pytest.mark.parametrize("name", OPTIONS)
    def test_continue_to_the_same_bits(self, name):
        tile = made(name)
        tile.forward(batch(tile.shape)[0])
        for step in ("digital", "programmed"):
            state = json.loads(json.dumps(tile.state()["header"]))
            twins = [
                tile.copy(),
                pickle.loads(pickle.dumps(tile)),
                rk.InferenceTile.from_state({"header": state, "arrays": tile.state()["arrays"]}),
            ]
            assert twins[0].time == tile.time, step
            assert_same_bits(twins[0].get_weights(), tile.get_weights())
            want = story(tile.copy())
            for twin in twins:
                for a, b in zip(story(twin), want, strict=True):
                    assert_same_bits(a, b)
            tile.program().drift_to(1.0)

    def test_read_goes_on(self):
        tile = made("global").program().drift_to(5.0)
        twin = tile.copy()
        assert_same_bits(twin.alpha, tile.alpha)
        assert_same_bits(twin.read().get_weights(), tile.read().get_weights())
        assert twin.T.shape == (132, 13)
        assert twin.device == "cpu"

    def test_damaged_states(self):
        tile = made("global").program()
        state = tile.state()
        for spoil, words in (
            (lambda h, a: h.update(format="x"), "not a rpukit.InferenceTile"),
            (lambda h, a: h.update(version=9), "version"),
            (lambda h, a: h.pop("clocks"), "damaged"),
            (lambda h, a: h.update(clocks={}), "clocks"),
            (lambda h, a: h.update(now=h["now"] | {"mode": "dreaming"}), "mode"),
            (lambda h, a: a.pop("target"), "arrays"),
            (lambda h, a: a.pop("conductance"), "without conductances"),
            (lambda h, a: a.update(weight=a["weight"][:1]), "array weight"),
            (lambda h, a: h.update(noise={"class": "Loud"}), "Loud"),
        ):
            header, arrays = dict(state["header"]), dict(state["arrays"])
            spoil(header, arrays)
            with pytest.raises(errors.FormatError, match=words):
                rk.InferenceTile.from_state({"header": header, "arrays": arrays})
        with pytest.raises(errors.FormatError, match="header and arrays"):
            rk.InferenceTile.from_state({})


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"noise": 3}, "NoiseModel"),
            ({"converter": "pair"}, "Converter"),
            ({"converter": inference.SinglePair(g_max=26.0)}, "above"),
            ({"compensation": "some"}, "GLOBAL_EXACT"),
            ({"w_max": 0.0}, "w_max"),
            ({"validate": "never"}, "validate"),
            ({"input_range": inference.InputRange(), "forward": PERFECT}, "input_range"),
            ({"modifier": 1}, "WeightModifier"),
        ],
    )
    def test_construction(self, options, words):
        with pytest.raises(errors.ParameterError, match=words):
            rk.InferenceTile((2, 3), **options)
        with pytest.raises(errors.DTypeError, match="float32"):
            rk.InferenceTile((2, 3), dtype=np.float64)
        for shape in ((0, 3), 5, (2, 3, 4)):
            with pytest.raises(errors.ShapeError, match="shape"):
                rk.InferenceTile(shape)

    def test_calls(self):
        tile = made(w_max=1.0)
        for call in (tile.read, lambda: tile.drift_to(1.0), lambda: tile.conductances):
            with pytest.raises(errors.ParameterError, match="program"):
                call()
        with pytest.raises(errors.ParameterError, match="w_max"):
            tile.set_weights(np.full(tile.shape, 1.5, np.float32))
        with pytest.raises(errors.NonFiniteError, match="weight"):
            tile.set_weights(np.full(tile.shape, np.nan, np.float32))
        with pytest.raises(errors.ShapeError, match="weight"):
            tile.set_weights(np.ones((2, 2), np.float32))
        assert_same_bits(np.asarray(tile), weights(tile.shape))
        for event in (-1, 1 << 48, 0.5, True):
            with pytest.raises(errors.ParameterError, match="event"):
                tile.program(event=event)
        tile.program()
        for t in (-1.0, np.nan, "now"):
            with pytest.raises(errors.ParameterError, match="t: got"):
                tile.drift_to(t)
        x, d = batch(tile.shape)
        with pytest.raises(errors.ShapeError, match="x: got"):
            tile.forward(d)
        with pytest.raises(errors.NonFiniteError, match="x holds"):
            tile.forward(x * np.inf)
        with pytest.raises(errors.ShapeError, match="samples"):
            tile.update(x, d[:2], 0.1)
        with pytest.raises(errors.ParameterError, match="lr"):
            tile.update(x, d, np.nan)
        with pytest.raises(errors.ShapeError, match="scales"):
            tile.set_scales(np.ones(3, np.float32))
        with pytest.raises(errors.ParameterError, match="scales"):
            tile.set_scales(np.zeros(13, np.float32))
        assert tile.time == 0
        assert "PCMLike, t=0" in repr(tile)


def test_written_weights_are_made_when_asked_for():
    """The order of programming, asking and saving changes nothing."""
    w = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    asked = rk.InferenceTile((3, 4), seed=7).set_weights(w).program()
    written = asked.get_weights()
    assert (written != w).any()
    saved = rk.InferenceTile.from_state(
        rk.InferenceTile((3, 4), seed=7).set_weights(w).program().state()
    )
    assert_same_bits(saved.get_weights(), written)
    late = rk.InferenceTile((3, 4), seed=7).set_weights(w).program()
    assert_same_bits(late.drift_to(5.0).get_weights(), asked.drift_to(5.0).get_weights())
    again = rk.InferenceTile((3, 4), seed=7).set_weights(w).program().unprogram()
    assert_same_bits(again.get_weights(), w)
