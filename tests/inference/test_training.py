"""Weight modifiers, clipping, remapping, input ranges: sources, formulas, recorded data."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import elementwise, errors, inference
from rpukit.inference.training import ops as training
from rpukit.inference.training import sums
from rpukit.random import Op
from rpukit.testing import assert_same_bits, on_cpu
from tests.inference import noise_formulas
from tests.reference import inference as reference

STREAM = rk.Stream.from_seed(8)
OK = np.zeros(1, np.int32)
MODIFIERS = {
    "add": inference.WeightModifier(type="add_normal", std_dev=0.1),
    "add_assumed": inference.WeightModifier(
        type="add_normal", std_dev=0.1, rel_to_actual_wmax=False, assumed_wmax=2.0
    ),
    "mult": inference.WeightModifier(type="mult_normal", std_dev=0.1),
    "discretize": inference.WeightModifier(type="discretize", res=0.25),
    "discretize_steps": inference.WeightModifier(type="discretize", res=6.0, sto_round=True),
    "discretize_add": inference.WeightModifier(
        type="discretize_add_normal", res=0.25, std_dev=0.05
    ),
    "poly": inference.WeightModifier(type="poly", std_dev=1.0, coeffs=(0.01, 0.08, -0.05)),
    "prog": inference.WeightModifier(
        type="prog_noise", std_dev=5.0, coeffs=(0.26348, 1.965, -1.1731)
    ),
    "dorefa": inference.WeightModifier(type="dorefa", res=0.2, sto_round=True),
    "drop": inference.WeightModifier(type="drop_connect", pdrop=0.2),
    "add_drop": inference.WeightModifier(type="add_normal", std_dev=0.1, pdrop=0.3),
}


def weights(shape=(13, 132), seed=0):
    w = np.random.default_rng(seed).uniform(-0.7, 0.7, shape).astype(np.float32)
    w.reshape(-1)[::11] = 0
    return w


def apply(modifier, w, event=0):
    return modifier.apply(w, stream=STREAM, event=event, status=OK, out=np.empty_like(w))


@pytest.mark.parametrize("shape", [(1, 1), (31, 33), (13, 132), (128, 128)])
@pytest.mark.parametrize("name", MODIFIERS)
def test_source_is_mirror(name, shape, order):
    w = weights(shape)
    mirror = apply(MODIFIERS[name], w, event=2**35)
    with on_cpu(order):
        source = apply(MODIFIERS[name], w, event=2**35)
    assert_same_bits(source, mirror)


def rounded(v, step):
    return np.sign(v) * np.floor(np.abs(v) / step + 0.5) * step


@pytest.mark.parametrize("name", MODIFIERS)
def test_formula(name):
    modifier, w = MODIFIERS[name], weights()
    draws = [
        elementwise.random_fill(STREAM, w.shape, kind, op=Op.MODIFY, sample=5, draw=k).astype("f8")
        for k, kind in enumerate(("normal", "uniform", "uniform"))
    ]
    xi, u, drop = draws
    v = w.astype("f8")
    a = 2.0 if name == "add_assumed" else np.abs(v).max()
    spread = (u - 0.5) * modifier.sto_round
    step = 1 / modifier.res if modifier.res > 1 else modifier.res or 1
    poly = noise_formulas.polynomial(np.abs(v) / a, *modifier.coeffs)
    s = modifier.std_dev
    exact = {
        "NONE": v,
        "DROP_CONNECT": v,
        "ADD_NORMAL": v + a * s * xi,
        "MULT_NORMAL": v * (1 + a * s * xi),
        "DISCRETIZE": a * rounded(v / a + step * spread, step),
        "DISCRETIZE_ADD_NORMAL": a * (rounded(v / a + step * spread, step) + s * xi),
        "POLY": v + a * s * poly * xi,
        "PROG_NOISE": np.where(v < 0, -1, 1) * np.abs(v + a * s / 25 * poly * xi),
        "DOREFA": rounded(np.tanh(v) * 0.6 / np.tanh(a) + step * spread, step),
    }[modifier.type.value]
    exact = np.where(drop < modifier.pdrop, 0, exact)
    got = apply(modifier, w, event=5)
    near = np.isclose(got, exact, atol=2e-6)
    # A value that lies on the edge of two steps may fall to either side.
    assert near.mean() > (0.999 if modifier.res else 0.99999)


@pytest.mark.parametrize(
    "name", ["add", "add_assumed", "mult", "discretize", "discretize_add", "poly", "prog", "drop"]
)
def test_recorded_statistics(name):
    """4,000 runs of the reference, 4,000 of ours."""
    recorded, data = reference.sets()[f"mod_{name}"]["modifier"], reference.arrays(f"mod_{name}")
    modifier = inference.WeightModifier(
        type=recorded["type"],
        std_dev=recorded["std_dev"],
        res=recorded["res"],
        pdrop=recorded["pdrop"],
        rel_to_actual_wmax=recorded["rel_to_actual_wmax"],
        assumed_wmax=recorded["assumed_wmax"],
        coeffs=recorded["coeffs"],
        g_max=recorded["g_max"],
    )
    w = data["W"]
    runs = np.stack([apply(modifier, w, event) for event in range(4000)]).astype("f8")
    std = runs.std(0)
    slack = 4 * std * np.sqrt(2 / 4000) + 0.015 * std + 1e-6
    assert (np.abs(runs.mean(0) - data["mean"]) < slack).all()
    np.testing.assert_allclose(std, data["std"], rtol=0.08, atol=1e-6)  # 7 standard errors


def test_zero_weights_stay(order):
    w = np.zeros((5, 7), np.float32)
    for name in ("add", "discretize", "poly", "dorefa"):
        with on_cpu(order):
            assert_same_bits(apply(MODIFIERS[name], w), w)


class TestClip:
    def test_bounds(self):
        w = weights((40, 60))
        v = w.astype("f8")
        fixed = inference.WeightClip(type="fixed_value", fixed_value=0.25)
        gauss = inference.WeightClip(type="layer_gaussian", sigma=1.5)
        rows = inference.WeightClip(type="average_channel_max")
        both = inference.WeightClip(type="layer_gaussian", fixed_value=0.1)
        assert fixed.bound(w) == 0.25
        assert gauss.bound(w) == pytest.approx(1.5 * v.std(ddof=1), rel=1e-12)
        assert rows.bound(w) == pytest.approx(np.abs(v).max(1).mean(), rel=1e-12)
        assert both.bound(w) == 0.1
        assert inference.WeightClip().bound(w) is None

    def test_apply(self, device, order):
        w = weights((40, 60))
        clipped = w.copy()
        inference.WeightClip(type="layer_gaussian", sigma=1.0).apply(clipped, status=OK)
        bound = np.float32(w.astype("f8").std(ddof=1))
        assert_same_bits(clipped, np.clip(w, -bound, bound))


def test_remap_keeps_the_product():
    w = weights((6, 9))
    w[2] = 0
    remap = inference.WeightRemap(type="channelwise_symmetric", w_max=2.0)
    factors = remap.factors(w)
    assert factors[2] == 1
    out = training.add_scaled(w, factors, np.empty_like(w), by="divide_rows", status=OK)
    largest = np.abs(out).max(1)
    np.testing.assert_allclose(np.delete(largest, 2), 2.0, rtol=1e-6)
    np.testing.assert_allclose(out * factors[:, None], w, rtol=1e-6)
    layer = inference.WeightRemap(type="layerwise_symmetric").factors(w)
    assert_same_bits(layer, np.full(6, np.abs(w).max(), np.float32))
    assert inference.WeightRemap().factors(w) is None


@pytest.mark.parametrize("shape", [(1, 1), (31, 33), (5, 128)])
@pytest.mark.parametrize("by", ["none", "columns", "rows", "divide_rows"])
def test_add_scaled(shape, by, order):
    part, into = weights(shape), weights((shape[0], shape[1] + 7), seed=1)
    scale = {
        "none": None,
        "columns": np.linspace(0.5, 2, shape[1], dtype=np.float32),
        "rows": np.linspace(0.5, 2, shape[0], dtype=np.float32),
        "divide_rows": np.linspace(0.5, 2, shape[0], dtype=np.float32),
    }[by]
    factor = {
        "none": 1.0,
        "columns": scale,
        "rows": None if scale is None else scale[:, None],
        "divide_rows": None if scale is None else 1 / scale[:, None].astype("f8"),
    }[by]
    for add in (False, True) if by != "divide_rows" else (False,):
        options = {"by": by, "add": add, "offset": 4, "status": OK}
        mirror = training.add_scaled(part, scale, into.copy(), **options)
        with on_cpu(order):
            source = training.add_scaled(part, scale, into.copy(), **options)
        assert_same_bits(source, mirror)
        exact = into.astype("f8")
        at = slice(4, 4 + shape[1])
        exact[:, at] = part.astype("f8") * factor + (exact[:, at] if add else 0)
        np.testing.assert_allclose(mirror, exact, atol=2e-7)
    with pytest.raises(errors.ShapeError, match="out"):
        training.add_scaled(part, scale, into, by=by, offset=8, status=OK)


def test_input_range_learns():
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (50, 40)).astype(np.float32)
    r = inference.InputRange(learned=True, n_init=2)
    first = r.start(3.0, 0, x)
    assert first == pytest.approx(3 * np.sqrt((x.astype("f8") ** 2).mean()), rel=1e-9)
    assert r.start(first, 1, np.zeros_like(x)) == pytest.approx(first / 2)
    grad = np.where(x > 0, np.float32(0.01), np.float32(-0.01))
    exact = 2.0 - 0.5 * 0.01 * (np.abs(x) > 2).sum() - 0.5 * 0.001 * 2
    assert r.step(2.0, x, grad, 0.5) == pytest.approx(exact, rel=1e-6)
    grown = r.step(0.1, x, -grad, 0.5)  # nearly all are clipped: no decay
    assert grown == pytest.approx(0.1 + 0.5 * 0.01 * (np.abs(x) > 0.1).sum(), rel=1e-6)


def test_total_has_an_order():
    w = weights((300, 70))
    assert sums.total(w) == pytest.approx(w.astype("f8").sum(), abs=1e-10)
    assert sums.total(np.empty((0, 3), np.float32)) == 0
    with on_cpu(7):
        assert sums.total(w) == sums.total(w.copy())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: inference.WeightModifier(type="loud"), "ADD_NORMAL"),
        (lambda: inference.WeightModifier(type="discretize"), "res"),
        (lambda: inference.WeightModifier(std_dev=-1.0), "std_dev"),
        (lambda: inference.WeightModifier(pdrop=1.1), "pdrop"),
        (lambda: inference.WeightModifier(p_low=0.6, p_high=0.6), "in all"),
        (lambda: inference.WeightModifier(assumed_wmax=0.0), "assumed_wmax"),
        (lambda: inference.WeightModifier(t=-1.0), "t: got"),
        (lambda: inference.WeightModifier(coeffs=()), "coefficients"),
        (lambda: inference.WeightClip(type="fixed_value"), "fixed_value"),
        (lambda: inference.WeightClip(sigma=0.0), "sigma"),
        (lambda: inference.WeightClip(type=3), "need one of"),
        (lambda: inference.WeightRemap(w_max=0.0), "w_max"),
        (lambda: inference.InputRange(value=0.0), "value"),
        (lambda: inference.InputRange(n_init=-1), "n_init"),
        (lambda: inference.InputRange(decay=-1.0), "decay"),
        (lambda: inference.InputRange(min_share=2.0), "min_share"),
    ],
)
def test_wrong_parameters(make, words):
    with pytest.raises(errors.ParameterError, match=words):
        make()
