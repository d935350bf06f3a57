"""tile_nonideal: bits of the mirror, the formula, nothing changed where nothing is asked."""

import numpy as np
import pytest

import rpukit as rk
from rpukit.testing import assert_same_bits, on_cpu

ALL = {
    "ir_drop": 2.0,
    "v_offset_std": 0.05,
    "r_series": 0.01,
    "out_nonlinearity": 0.3,
    "out_nonlinearity_std": 0.2,
    "slope_calibration": 0.5,
}
IOS = {
    "ir_drop": rk.IOParameters(ir_drop=2.0),
    "offset": rk.IOParameters(v_offset_std=0.05),
    "offset_at_0": rk.IOParameters(v_offset_std=0.05, v_offset_w_min=0.0, r_series=0.1),
    "saturation": rk.IOParameters(out_nonlinearity=0.5, out_nonlinearity_std=0.3),
    "all": rk.IOParameters(**ALL, w_noise=0.02, w_noise_type="pcm_read", inp_noise=0.01),
    "separate": rk.IOParameters(
        **ALL, mv_type="pos_neg_separate", w_read_asymmetry_dtod=0.1, w_noise=0.02,
        w_noise_type="additive_constant",
    ),
    "digital_sum": rk.IOParameters(
        mv_type="pos_neg_separate_digital_sum", w_read_asymmetry_dtod=0.1, out_bound=0.8,
        inp_sto_round=True, out_sto_round=True, out_noise_std=0.2,
    ),
    "worst_case": rk.IOParameters(
        ir_drop=2.0, out_bound=0.5, bound_management="iterative_worst_case"
    ),
}  # fmt: skip


def tile(shape, io, seed=0):
    made = rk.AnalogTile(shape, rk.Ideal(), forward=io, backward=io, seed=seed)
    rng = np.random.default_rng(seed)
    return made.set_weights(rng.uniform(-0.5, 0.5, shape).astype(np.float32))


def inputs(n, width, seed=1):
    x = np.random.default_rng(seed).uniform(-1, 1, (n, width)).astype(np.float32)
    if n > 2:
        x[1] = 0
    return x


@pytest.mark.sweep
@pytest.mark.parametrize("io", IOS.values(), ids=IOS)
def test_the_source_gives_the_bits_of_the_mirror(io, order):
    for shape, n in (((1, 1), 1), ((31, 33), 5), ((132, 36), 7), ((64, 260), 3)):
        plain, other = tile(shape, io), tile(shape, io)
        x, d = inputs(n, shape[1]), inputs(n, shape[0])
        with on_cpu(order):
            seen = [other.forward(x), other.backward(d)]
        for got, way, v in zip(seen, ("forward", "backward"), (x, d), strict=True):
            assert_same_bits(got, getattr(plain, way)(v))


@pytest.mark.parametrize("io", IOS.values(), ids=IOS)
def test_a_split_batch_gives_the_same_bits(io):
    x = inputs(11, 20)
    whole, parts = tile((9, 20), io), tile((9, 20), io)
    y = whole.forward(x)
    assert_same_bits(np.concatenate([parts.forward(x[:4]), parts.forward(x[4:])]), y)
    again = tile((9, 20), io).copy()
    assert_same_bits(again.forward(x), y)


def test_a_sum_longer_than_a_segment():
    io = rk.IOParameters(
        ir_drop=1e-30, inp_res=0, out_res=0, out_noise=0, out_bound=0, noise_management="none"
    )
    made = tile((3, 16384 + 5), io)
    x = inputs(2, made.shape[1])
    with on_cpu():
        source = tile((3, 16384 + 5), io).forward(x)
    y = made.forward(x)
    assert_same_bits(source, y)
    w = np.asarray(made).astype("f8")
    bound = 16400 * np.finfo(np.float32).eps * (abs(x).astype("f8") @ abs(w.T))
    clipped = np.clip(x, -1, 1).astype("f8")
    assert (abs(y - clipped @ w.T) <= bound).all()


def test_formula_of_ir_drop_and_saturation():
    io = rk.IOParameters(
        ir_drop=3.0, out_nonlinearity=0.4, inp_res=0, out_res=0, out_noise=0, out_bound=6,
        bound_management="none", noise_management="none",
    )  # fmt: skip
    made = tile((9, 14), io)
    w, x = np.asarray(made).astype("f8"), inputs(5, 14)
    v = x.astype("f8")
    a = (abs(v) @ abs(w.T)) * 14 / io.ir_drop_g_ratio
    c = a * (a * (0.05 * a - 0.2) + 0.5)
    g = 1 - (1 - np.arange(14) / 14) ** 2
    y = v @ w.T - 3 * c * ((v * g) @ w.T)
    y = y / (1 + abs(0.4 / 6 * y))
    np.testing.assert_allclose(made.forward(x), y, atol=2e-6)  # float32 sums of 14


def test_an_offset_is_drawn_once_and_rectified():
    io = rk.IOParameters(v_offset_std=0.1)
    made = tile((4000, 2), io)
    offset = made.state()["arrays"]["forward.offset"]
    # Half of the lines have none; the others are half a normal: mean 0.1 sqrt(2 / pi).
    assert abs((offset == 0).mean() - 0.5) < 4 * 0.5 / np.sqrt(4000)
    assert abs(offset[offset > 0].mean() - 0.1 * np.sqrt(2 / np.pi)) < 4 * 0.06 / np.sqrt(2000)
    assert (offset >= 0).all()


def test_passes_by_sign_change_nothing_without_noise_or_losses():
    plain = rk.IOParameters(out_noise=0, out_res=0, bound_management="none")
    apart = rk.IOParameters(
        out_noise=0, out_res=0, bound_management="none", mv_type="pos_neg_separate"
    )
    x = inputs(6, 30)
    y, z = tile((8, 30), plain).forward(x), tile((8, 30), apart).forward(x)
    np.testing.assert_allclose(z, y, atol=4e-6)  # two float32 sums instead of one
    exact = tile((8, 30), rk.IOParameters(mv_type="ideal"))
    perfect = tile((8, 30), rk.IOParameters(is_perfect=True))
    assert_same_bits(exact.forward(x), perfect.forward(x))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ir_drop": -1}, "from 0"),
        ({"ir_drop_g_ratio": 0}, "positive"),
        ({"mv_type": "two"}, "POS_NEG_SEPARATE"),
        ({"w_read_asymmetry_dtod": 0.1}, "passes by sign"),
        ({"out_nonlinearity": 0.1, "out_bound": 0}, "a positive bound with out_nonlinearity"),
        ({"r_series": float("nan")}, "finite"),
    ],
)
def test_bad_parameters(changes, message):
    with pytest.raises(rk.errors.ParameterError, match=message):
        rk.IOParameters(**changes)
