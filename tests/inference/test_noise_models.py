"""Noise models and converters as values: what they refuse, and that time has no order."""

import json

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors, inference
from rpukit.analog.tile.state import decode, encode
from rpukit.inference.noise import model as noise
from rpukit.inference.noise.model import NoiseModel
from rpukit.testing import assert_same_bits

MODELS = [
    inference.Verbatim(),
    inference.PCMLike(prog_coeff=(0.1, 0.2), prog_coeff_g_max=30.0),
    inference.CustomDrift(),
    inference.StateIndependent(),
    inference.Hermes(n_device=1),
    inference.ReRamWan(),
    inference.ReRamCMO(acceptance=2.0),
]
ids = [type(model).__name__ for model in MODELS]


@pytest.mark.parametrize("model", MODELS, ids=ids)
def test_a_model_survives_json(model):
    assert decode(json.loads(json.dumps(encode(model))), NoiseModel) == model


@pytest.mark.parametrize("model", MODELS, ids=ids)
def test_times_have_no_order(model):
    times = model.TIMES or (0.0, 1.0, 25.0, 3600.0)
    target = np.linspace(0.4 * model.g_max, model.g_max, 501, dtype=np.float32)
    done = model.program(target, seed=1)
    forth = [model.read(done, t, seed=1) for t in times]
    back = [model.read(done, t, seed=1) for t in reversed(times)][::-1]
    for a, b in zip(forth, back, strict=True):
        assert_same_bits(a, b)


def test_another_event_time_or_number_draws_anew():
    model = inference.PCMLike()
    target = np.full(1000, 20, np.float32)
    one, two = (model.program(target, seed=1, event=e) for e in (0, 1))
    assert (one.conductance != two.conductance).mean() > 0.99
    assert (one.nu != two.nu).mean() > 0.99
    reads = [model.read(one, 1.0, seed=1, number=k) for k in (0, 1)]
    reads.append(model.read(one, np.nextafter(np.float32(1), np.float32(2)), seed=1))
    for k in range(3):
        assert (reads[k] != reads[k - 1]).mean() > 0.99


def test_defects_of_the_reference_are_not_inherited():
    """Its own reference with its own coefficients fails there; the two ReRAM models ignore it."""
    both = inference.PCMLike(g_max=50.0, prog_coeff=(1.0,), prog_coeff_g_max=25.0)
    assert both.programming(0.3) == 2.0
    own = inference.PCMLike(g_max=50.0, prog_coeff=(1.0,))
    assert own.programming(0.3) == 1.0
    half = inference.ReRamWan(g_max=20.0)
    assert half.reading(1.0)(0.5) == pytest.approx(inference.ReRamWan().reading(1.0)(0.5) / 2)
    narrow, wide = (inference.ReRamCMO(acceptance=a).programming(1.0) for a in (0.2, 2.0))
    assert wide == pytest.approx(1.007, rel=1e-3)
    assert narrow == pytest.approx(0.0951, rel=1e-3)
    target = np.full(3, 10, np.float32)
    for model in MODELS:  # time 0 is a time like any other
        assert np.isfinite(model.read(model.program(target), 0.0)).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: inference.PCMLike(g_max=0.0), "g_max"),
        (lambda: inference.PCMLike(g_max=np.nan), "g_max"),
        (lambda: inference.PCMLike(g_max="25"), "g_max"),
        (lambda: inference.PCMLike(t_0=0.0), "t_0"),
        (lambda: inference.PCMLike(drift_scale=-1.0), "drift_scale"),
        (lambda: inference.PCMLike(prog_coeff=()), "coefficients"),
        (lambda: inference.PCMLike(prog_coeff=(1.0,) * 7), "coefficients"),
        (lambda: inference.PCMLike(prog_coeff=(np.inf,)), "prog_coeff"),
        (lambda: inference.PCMLike(prog_coeff_g_max=0.0), "prog_coeff_g_max"),
        (lambda: inference.CustomDrift(g_nodes=(3.0, 1.0)), "g_nodes: got .3.0, 1.0., .* ascend"),
        (lambda: inference.CustomDrift(nu_mean=(0.1,)), "nu_mean.* each of the 2 g_nodes"),
        (lambda: inference.CustomDrift(nu_std=(-0.1, 0.1)), "nu_std"),
        (lambda: inference.StateIndependent(prog_std=-1.0), "prog_std"),
        (lambda: inference.Hermes(n_device=3), "n_device"),
        (lambda: inference.ReRamWan(noise_scale=-1.0), "noise_scale"),
        (lambda: inference.ReRamCMO(acceptance=0.02), "acceptance"),
        (lambda: inference.ReRamCMO(g_min=90.0), "g_min"),
        (lambda: inference.SinglePair(g_min=-1.0), "g_min"),
        (lambda: inference.SinglePair(g_max=0.0), "g_min"),
        (lambda: inference.NPairs(factors=()), "factors"),
        (lambda: inference.NPairs(factors=(1.0, 0.0)), "factors"),
        (lambda: inference.CustomPair(plus=(0.0, 0.0, 26.0)), "leave"),
        (lambda: inference.CustomPair(plus=(0.0, 0.0)), "values"),
        (lambda: inference.CustomPair(nodes=(-1.0, 0.0, 0.5)), "from -1 to 1"),
        (lambda: inference.CustomPair(nodes=(-1.0, 1.0, 0.5)), "ascending"),
        (
            lambda: inference.CustomPair(plus=(0.0, 5.0, 5.0), minus=(5.0, 5.0, 5.0)),
            "cannot be read back",
        ),
        (lambda: inference.Table((0.0,), (1.0,)), "places"),
        (
            lambda: inference.ClippedLog(1.0, 0.0, 2.0, 1.0),
            "low: got 2.0, need a number up to high",
        ),
        (lambda: inference.PowerLaw(1.0, 0.0, 2.0, 1.0), "low: got 2.0, need a number up to high"),
        (lambda: inference.Polynomial("abc"), "need a tuple"),
    ],
)
def test_wrong_parameters(make, words):
    with pytest.raises(errors.ParameterError, match=words):
        make()


@pytest.mark.parametrize("t", [-1.0, np.nan, np.inf, "1", True, None, 1e39])
def test_wrong_times(t):
    model = inference.PCMLike()
    done = model.program(np.ones(3, np.float32))
    with pytest.raises(errors.ParameterError, match="t: got"):
        model.read(done, t)


def test_wrong_calls():
    model = inference.PCMLike()
    for target in ([-0.1], [25.1]):
        with pytest.raises(errors.ParameterError, match="need 0 to"):
            model.program(np.array(target, np.float32))
    with pytest.raises(errors.NonFiniteError, match="target"):
        model.program(np.array([np.nan], np.float32))
    with pytest.raises(errors.DTypeError, match="target"):
        model.program(np.ones(3) + 0j)
    done = model.program(np.ones(3, np.float32))
    for number in (-1, 1 << 16, 1.5):
        with pytest.raises(errors.ParameterError, match="number"):
            model.read(done, 1.0, number=number)
    wan = inference.ReRamWan()
    with pytest.raises(errors.ParameterError, match="measured at"):
        wan.read(wan.program(np.ones(3, np.float32)), 3600.0)


def test_wrong_matrices():
    pair = inference.SinglePair()
    with pytest.raises(errors.NonFiniteError, match="weight"):
        pair.to_conductance(np.array([[np.inf]], np.float32))
    with pytest.raises(errors.ParameterError, match="w_max"):
        pair.to_conductance(np.array([[2.0]], np.float32), w_max=1.0)
    with pytest.raises(errors.ParameterError, match="w_max"):
        pair.to_conductance(np.array([[2.0]], np.float32), w_max=-1.0)
    with pytest.raises(errors.ParameterError, match="too small"):
        pair.to_conductance(np.array([[1e-41]], np.float32))
    g, split = pair.to_conductance(np.zeros((2, 3), np.float32))
    assert (g == 0).all()
    assert_same_bits(pair.to_weight(g, split), np.zeros((2, 3), np.float32))
    with pytest.raises(errors.ShapeError, match="conductance"):
        pair.to_weight(g[:1], split)


def test_a_model_of_ones_own():
    """Any subclass that gives curves and moments works with the same kernels."""
    from dataclasses import dataclass

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Own(NoiseModel):
        @property
        def programming(self):
            return inference.Table((0.0, 1.0), (0.5, 1.5))

    done = Own(g_max=10.0).program(np.full(20_000, 5.0, np.float32), seed=rk.Stream.from_seed(2))
    assert abs(done.conductance.std() - 1.0) < 0.02
    assert done.nu is None
    assert_same_bits(Own(g_max=10.0).drift(done, 5.0), done.conductance)
    assert noise.sample_of(1.0, 3) == 0x3F800000 | 3 << 32
