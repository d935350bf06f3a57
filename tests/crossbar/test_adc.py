"""Converters with tables: codes, offset, gain, nonlinearity, and three architectures."""

import numpy as np
import pytest

import rpukit as rk
from rpukit.crossbar import Adc, sweep_adc
from rpukit.crossbar.adc import KINDS

VALUES = np.random.default_rng(0).uniform(-1.2, 1.2, (200, 3))


def codes_by_definition(adc, y):
    """Count the transitions below, one value at a time; for tables in ascending order."""
    low, _ = adc.codes
    table = (low + np.arange(adc.n_transition) + 0.5 + adc.inl) * adc.step
    found = np.empty(y.shape, np.int64)
    for place, value in np.ndenumerate(y):
        line = place[-1]
        gain, offset = (np.broadcast_to(v, y.shape[-1])[line] for v in (adc.gain, adc.offset))
        own = table[line] if table.ndim == 2 else table
        found[place] = low + np.sum(own <= value * (1 + gain) + offset * adc.step)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [2, 3, 7, 8])
def test_codes_are_the_transitions_below(kind, bits):
    adc = Adc(bits, 1.0, kind=kind, offset=[0.3, -0.2, 0.0], gain=0.02)
    assert np.array_equal(adc.codes_of(VALUES), codes_by_definition(adc, VALUES))


@pytest.mark.parametrize(("bipolar", "codes"), [(True, (-127, 127)), (False, (0, 255))])
def test_range_and_step(bipolar, codes):
    adc = Adc(8, 2.0, bipolar=bipolar)
    assert adc.codes == codes and adc.step == 2.0 / codes[1]
    ends = adc.convert(np.array([-99.0, 2.0, 99.0]))
    assert ends.tolist() == [codes[0] * adc.step, 2.0, 2.0]


def test_an_ideal_converter_rounds_as_a_tile_does():
    io = rk.IOParameters(
        inp_res=0, noise_management="none", bound_management="none", out_noise=0, inp_bound=0,
        out_bound=1.0, out_res=1 / 254,
    )  # fmt: skip
    tile = rk.AnalogTile((3, 3), rk.Ideal(), forward=io).set_weights(np.eye(3, dtype=np.float32))
    y = VALUES.astype(np.float32)
    assert np.allclose(tile.forward(y), Adc(8, 1.0).convert(y), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_lines(kind):
    adc = Adc.of_kind(kind, 6, 1.0, mismatch=0.02, n_line=3, seed=5)
    assert adc.inl.shape == (3, adc.n_transition)
    assert (np.diff(adc.inl + np.arange(adc.n_transition)) > 0).all()  # in ascending order
    assert np.array_equal(adc.codes_of(VALUES), codes_by_definition(adc, VALUES))


def test_tables_out_of_order_by_architecture():
    """Three transitions: at 1.5 LSB, at 0.5, at 2.5."""
    options = {"bipolar": False, "inl": [1.0, -1.0, 0.0]}
    y = np.array([0.2, 1.0, 2.0, 3.0])
    found = {kind: Adc(2, 3.0, kind=kind, **options).codes_of(y).tolist() for kind in KINDS}
    assert found["flash"] == [0, 1, 2, 3]  # comparators that are on
    assert found["sar"] == [0, 2, 2, 3]  # code 2 is tried first, against the second
    assert found["ramp"] == [0, 0, 2, 3]  # the ramp stops at the first


def test_spread_of_architectures():
    """Flash: independent. SAR: the largest jump is at half scale. Ramp: a walk tied at its end."""
    many = {k: Adc.of_kind(k, 8, 1.0, mismatch=0.05, n_line=400, seed=1).inl for k in KINDS}
    assert abs(many["flash"].std() / 0.05 - 1) < 0.02
    jumps = np.diff(many["sar"], axis=1).std(axis=0)
    assert jumps.argmax() == jumps.size // 2
    walk = many["ramp"].std(axis=0)
    assert walk[-1] < 1e-9 and walk.argmax() in range(100, 156)
    n = 254
    assert walk.max() == pytest.approx(0.05 * np.sqrt(n / 4), rel=0.1)


def test_rows_do_not_depend_on_the_batch():
    adc = Adc.of_kind("sar", 6, 1.0, mismatch=0.1, n_line=3, seed=2)
    parts = [adc.convert(VALUES[k : k + 7]) for k in range(0, 200, 7)]
    rk.testing.assert_same_bits(adc.convert(VALUES), np.concatenate(parts))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"inl": np.zeros(5)}, rk.errors.ShapeError, "need \\(6,\\)"),
        ({"inl": np.full(6, np.nan)}, rk.errors.NonFiniteError, "inl"),
        ({"offset": [[1.0]]}, rk.errors.ShapeError, "offset"),
        ({"kind": "pipeline"}, rk.errors.ParameterError, "kind"),
        ({"offset": [1.0, 2.0], "gain": [0.0] * 3}, rk.errors.ShapeError, "lines"),
    ],
)
def test_errors(options, error, message):
    with pytest.raises(error, match=message):
        Adc(3, 1.0, **options)


def test_lines_have_to_match():
    with pytest.raises(rk.errors.ShapeError, match="need \\(\\.\\.\\., 3\\)"):
        Adc.of_kind("flash", 4, 1.0, n_line=3).convert(np.zeros((2, 4)))
    with pytest.raises(rk.errors.ParameterError, match="mismatch"):
        Adc.of_kind("ramp", 2, 1.0, mismatch=100.0, n_line=50)


def test_a_sweep():
    """Perfect converters are equal, and each bit halves the error; mismatch sets a floor."""
    y = np.random.default_rng(1).normal(0, 0.3, (2000, 4))
    found = sweep_adc(y, [4, 6, 8, 10], full_scale=1.5)
    ratio = found.error["flash"][:-1] / found.error["flash"][1:]
    assert ratio == pytest.approx(4, rel=0.15)
    assert all(np.array_equal(found.error[k], found.error["flash"]) for k in KINDS)
    assert found.periods["ramp"].tolist() == [16, 64, 256, 1024]
    assert found.comparators["flash"].tolist() == [15, 63, 255, 1023]
    rough = sweep_adc(y, [4, 10], full_scale=1.5, mismatch=dict.fromkeys(KINDS, 0.5))
    assert all(rough.error[k][1] > 3 * found.error[k][3] for k in KINDS)
