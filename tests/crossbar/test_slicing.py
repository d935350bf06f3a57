"""Sliced weights and inputs: the quantised product exactly, converters, counts, batches."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.crossbar import Adc, SlicedTile

RNG = np.random.default_rng(3)
W = RNG.uniform(-1.1, 1.1, (5, 37)).astype(np.float32)
X = RNG.uniform(-1.1, 1.1, (6, 37)).astype(np.float32)


def integers(values, bits, *, signed=True):
    most = 2 ** (bits - signed) - 1
    whole = np.rint(values.astype(np.float64) / (1.0 / most))
    return np.clip(whole, -most if signed else 0, most).astype(np.int64), most


def quantised_product(x, w, weight_bits, input_bits, *, signed):
    whole_w, most_w = integers(w, weight_bits)
    whole_x, most_x = integers(x, input_bits, signed=signed)
    exact = (whole_x @ whole_w.T).astype(np.float64)
    return (exact * ((1.0 / most_w) * (1.0 / most_x))).astype(np.float32)


@pytest.mark.parametrize("inputs", ["signed", "unsigned"])
@pytest.mark.parametrize(
    ("weight_bits", "cell_bits", "input_bits", "dac_bits"),
    [(8, 2, 8, 1), (2, 1, 2, 1), (16, 2, 16, 1), (9, 4, 7, 3), (5, 8, 4, 8), (24, 5, 12, 4)],
)
def test_the_quantised_product_exactly(weight_bits, cell_bits, input_bits, dac_bits, inputs):
    options = {"weight_bits": weight_bits, "cell_bits": cell_bits, "input_bits": input_bits}
    tile = SlicedTile((5, 37), rk.Ideal(), dac_bits=dac_bits, inputs=inputs, **options)
    tile.set_weights(W)
    signed = inputs == "signed"
    want = quantised_product(X, W, weight_bits, input_bits, signed=signed)
    rk.testing.assert_same_bits(tile.forward(X), want)
    assert tile.n_slice[0] == -(-(weight_bits - 1) // cell_bits)


def test_a_converter_of_enough_codes_changes_nothing():
    plain = SlicedTile((5, 37), rk.Ideal(), cell_bits=1, dac_bits=1)
    codes = 2**7 - 1  # the sum of 37 products of one bit is within
    adcs = Adc(8, float(codes))
    sliced = SlicedTile((5, 37), rk.Ideal(), cell_bits=1, dac_bits=1, adc=adcs)
    assert sliced.full_scale == 37
    found = [tile.set_weights(W).forward(X) for tile in (plain, sliced)]
    rk.testing.assert_same_bits(*found)


def test_each_bit_of_a_converter_counts():
    errors = []
    want = quantised_product(X, W, 8, 8, signed=True)
    for bits in (4, 6, 8, 10):
        tile = SlicedTile((5, 37), rk.Ideal(), cell_bits=2, adc=Adc(bits, 111.0))
        errors.append(float(np.abs(tile.set_weights(W).forward(X) - want).mean()))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 10 * errors[2] > 30 * errors[3]


def test_converters_of_each_tile():
    n = SlicedTile((5, 37), rk.Ideal()).n_slice[0]
    rough = [Adc(3, 111.0)] + [Adc(8, 127.0)] * (n - 1)
    fine_low = SlicedTile((5, 37), rk.Ideal(), adc=rough).set_weights(W).forward(X)
    fine_high = SlicedTile((5, 37), rk.Ideal(), adc=rough[::-1]).set_weights(W).forward(X)
    want = quantised_product(X, W, 8, 8, signed=True)
    assert np.abs(fine_low - want).mean() < np.abs(fine_high - want).mean() / 10
    with pytest.raises(rk.errors.ParameterError, match=f"got 2 converters, need {n}"):
        SlicedTile((5, 37), rk.Ideal(), adc=rough[:2])


def test_the_batch_split_changes_no_bit():
    """With noise, the slices of a sample are consecutive samples of the tiles."""
    io = rk.IOParameters(noise_management="none", bound_management="none", out_noise=0.05)
    one, two = (
        SlicedTile((5, 37), rk.Ideal(), forward=io, seed=4).set_weights(W) for _ in range(2)
    )
    whole = one.forward(X)
    parts = [two.forward(X[:1]), two.forward(X[1:4]), two.forward(X[4:])]
    rk.testing.assert_same_bits(whole, np.concatenate(parts))
    assert not np.array_equal(whole, one.forward(X))  # noise is drawn again
    two.forward(X)
    rk.testing.assert_same_bits(one.forward(X), two.forward(X.reshape(2, 3, 37)).reshape(6, 5))


def test_programmed_slices():
    tile = SlicedTile((5, 37), rk.InferenceCell(w_max=1.0), weight_bits=5, cell_bits=2)
    tile.set_weights(W)
    exact = tile.get_weights()
    tile.program().drift_to(3600.0)
    off = np.abs(tile.get_weights() - exact)
    assert 0.001 < off.mean() < 0.3


def test_slices_that_learn_are_not_programmed():
    tile = SlicedTile((5, 37), rk.Ideal()).set_weights(W)
    with pytest.raises(rk.errors.ParameterError, match="program"):
        tile.program()
    tile.forward(X)  # still whole


def test_summary():
    found = rk.summary(SlicedTile((5, 37), rk.Ideal(), adc=Adc(8, 127.0)))
    assert found["devices"] == 4 * 5 * 37
    assert found["slices"] == [4, 7]
    assert max(map(len, str(found).splitlines())) <= 80


def test_weights_are_quantised():
    tile = SlicedTile((5, 37), rk.Ideal(), weight_bits=6).set_weights(W)
    whole, most = integers(W, 6)
    assert np.allclose(tile.get_weights(), whole / most, atol=1e-7)


def test_counts():
    tile = SlicedTile((5, 37), rk.Ideal(), weight_bits=16, input_bits=16, inputs="unsigned",
                      adc=Adc(8, 127.0)).set_weights(W)  # fmt: skip
    tile.forward(X)
    found = rk.costs.count(tile)
    n = 6 * 16 * 8  # samples, parts of inputs, tiles
    assert found["forward"]["adc:8"] == n * 5
    assert found["forward"]["dac:1"] == n * 37
    assert found["forward"]["add"] == n * 5
    assert found.n_device == 8 * 5 * 37
    costs = rk.costs.total(tile, rk.costs.preset("isaac"))
    assert costs.missing == ()
    assert costs.energy["forward"]["adc:8"] == pytest.approx(n * 5 * 1.5625e-12)
    assert costs.latency["forward"] > 6 * 16 * 100e-9  # tiles at the same time, parts in turn


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_bits": 1}, "weight_bits"),
        ({"inputs": "offset"}, "inputs"),
        ({"cell_bits": 9}, "cell_bits"),
        ({"adc": "sar"}, "adc"),
    ],
)
def test_errors(options, message):
    with pytest.raises((rk.errors.ParameterError, rk.errors.DTypeError), match=message):
        SlicedTile((5, 37), rk.Ideal(), **options)


def test_sums_have_to_be_exact():
    with pytest.raises(rk.errors.ParameterError, match="not exact in float32"):
        SlicedTile((2, 1000), rk.Ideal(), cell_bits=8, dac_bits=8)


def test_weights_that_are_not_finite_change_nothing():
    tile = SlicedTile((5, 37), rk.Ideal()).set_weights(W)
    before = tile.get_weights()
    with pytest.raises(rk.errors.NonFiniteError):
        tile.set_weights(W * np.nan)
    with pytest.raises(rk.errors.ShapeError):
        tile.set_weights(W.T)
    assert np.array_equal(tile.get_weights(), before)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["flash", "sar", "ramp"])
def test_a_gpu_gives_the_bits_of_the_cpu(kind):
    io = rk.IOParameters(noise_management="none", bound_management="none", out_noise=0.05)
    adc = Adc.of_kind(kind, 6, 60.0, mismatch=0.1, n_line=5, gain=0.01, offset=0.2, seed=1)
    found = []
    for device in ("cpu", "gpu"):
        tile = SlicedTile((5, 37), rk.Ideal(), forward=io, adc=adc, device=device, seed=4)
        w, x = (_device.to_device(a, _device.parse_device(device)) for a in (W, X))
        found.append(_device.to_numpy(tile.set_weights(w).forward(x)))
    rk.testing.assert_same_bits(*found)
