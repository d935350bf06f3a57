"""Quantised products and low-rank adapters against their formulas."""

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import ParameterError
from rpukit.testing import assert_same_bits
from rpukit.tiled import methods
from tests.tiled.method_nets import mini_batches, sketch, trainer_of

LEVELS = {"int8": 127, "int4": 7}


def line(n_in=6, n_out=4, **options):
    """One product with a loss, quantised, with its mini-batch and the values of its weight."""
    rng = np.random.default_rng(8)
    b = tiled.Builder("line", dtype=options.pop("dtype", "float32"))
    x, y = b.input("x", (8, n_in)), b.input("y", (8, n_out))
    w = rng.normal(size=(n_out, n_in))
    loss = b.apply("MSELoss", b.apply("Gemm", x, b.parameter("w", w), transB=1, name="h"), y)
    batch = tuple(rng.normal(size=(8, n)).astype(b._sketch.dtype) for n in (n_in, n_out))
    return methods.quantise(b, [batch], **options), loss, batch, w.astype(b._sketch.dtype)


def value(builder, name, values):
    graph = builder.graph(name)
    return graph.run({key: values[key] for key in graph.inputs})[name]


@pytest.mark.parametrize("style", ["int8", "int4"])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_integers(style, per_channel, dtype):
    options = {"weights": style, "activations": style, "per_channel": per_channel}
    b, _, (x, _), w = line(dtype=dtype, **options)
    for name, v, axis in (("w", w, 1 if per_channel else None), ("x", x, None)):
        wide = np.abs(v.astype(np.float64)).max(axis, keepdims=True) / LEVELS[style]
        step = np.broadcast_to(wide, v.shape).astype(dtype)
        got = value(b, f"{name}/{style}", {"w": w, "x": x})
        assert_same_bits(got, (np.rint(v / step) + 0.0).astype(dtype) * step)
        beyond = value(b, f"{name}/{style}", {"w": 2 * w, "x": 2 * x})
        assert np.abs(beyond / step).max() < LEVELS[style] + 0.01


@pytest.mark.parametrize("style", ["fp16", "bf16"])
def test_short_floats(style):
    b, _, _, _ = line(64, 64, weights=style, activations="none")
    rng = np.random.default_rng(9)
    wide = np.ldexp(rng.normal(size=(64, 64)), rng.integers(-12, 12, (64, 64)))
    w = np.where(np.abs(wide) < 2**-14, 1.0, wide).astype(np.float32)
    w[0] = 1 + np.arange(64, dtype=np.float32) * 2.0**-11  # ties of fp16
    w[1] = 1 + np.arange(64, dtype=np.float32) * 2.0**-8  # and of bf16
    if style == "fp16":
        want = w.astype(np.float16).astype(np.float32)
    else:
        bits = w.view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
        want = rounded.view(np.float32)
    assert_same_bits(value(b, f"w/{style}", {"w": w}), want)


@pytest.mark.parametrize("style", ["int8", "fp16", "bf16"])
def test_gradients_pass_straight_through(style):
    b, loss, batch, w = line(weights=style, activations="none")
    short = value(b, f"w/{style}", {"w": w})
    trainer = trainer_of(b.training(loss, tiled.SGD(lr=0)))
    trainer.step(batch)
    x, y = (part.astype(np.float64) for part in batch)
    want = 2 / y.size * (x @ short.T.astype(np.float64) - y).T @ x
    np.testing.assert_allclose(trainer.gradients()["w"], want, rtol=0, atol=1e-6)


def test_scales_have_the_gradient_of_lsq():
    b, loss, batch, w = line(
        weights="int4", activations="none", learn_scales=True, dtype="float64"
    )
    factor = (w.shape[1] * 7) ** -0.25
    start = b.training(loss).initial["w/scale"] * 0.8  # some values are beyond the last integer
    trainer = trainer_of(b.training(loss, tiled.SGD(lr=0)), parameters={"w": w, "w/scale": start})
    trainer.step(batch)
    x, y = batch
    step = start * factor
    units = w / step
    inside = np.abs(units) < 7.4375
    q = np.rint(np.clip(units, -7, 7))
    slope = 2 / y.size * (x @ (q * step).T - y).T @ x
    want = factor * (slope * np.where(inside, q - units, q)).sum(1, keepdims=True)
    np.testing.assert_allclose(trainer.gradients()["w/scale"], want, rtol=1e-10)
    np.testing.assert_allclose(trainer.gradients()["w"], slope * inside, rtol=1e-10)
    assert not inside.all()


def test_networks_train():
    b, loss, batch, _ = line(learn_scales=True)
    learning = b.training(loss, tiled.SGD(lr=0.1))
    assert learning.parameters == ("w", "x/scale", "w/scale")
    b, loss = sketch()
    batches = mini_batches(1)
    some = methods.quantise(b, batches, activations="fp16", only=["gemm*"])
    assert not any("conv" in name for name in some._sketch.tensors if name.endswith("int8"))
    for training, pairs in ((learning, [batch] * 4), (some.training(loss), batches * 4)):
        losses = trainer_of(training).fit(pairs)
        assert losses[-1] < losses[0]
        assert_same_bits(trainer_of(tiled.fuse_updates(training)).fit(pairs), losses)


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ([], {}, "at least one mini-batch"),
        ([(np.zeros((8, 6), "f4"),)], {}, "need tuples of x, y"),
        ([], {"only": ["conv"]}, "no name matches 'conv'"),
        ([], {"weights": "int3"}, "weights: got 'int3'"),
    ],
)
def test_what_is_refused(batches, options, message):
    b = tiled.Builder("line")
    x = b.input("x", (8, 6))
    b.input("y", (8, 6))
    b.apply("Gemm", x, b.parameter("w", np.eye(6)))
    with pytest.raises(ParameterError, match=message):
        methods.quantise(b, batches, **options)


@pytest.mark.parametrize("turned", [0, 1])
def test_adapters(turned):
    rng = np.random.default_rng(1)
    b = tiled.Builder("line", dtype="float64")
    x, y, w = rng.normal(size=(2, 3, 6)), rng.normal(size=(2, 3, 4)), rng.normal(size=(6, 4))
    given = b.input("x", x.shape), b.parameter("w", w.T if turned else w)
    bias = b.constant("c", np.ones(4))
    h = b.apply("Gemm", *given, bias, transB=1) if turned else b.apply("MatMul", *given)
    loss = b.apply("MSELoss", h, b.input("y", y.shape))
    small = methods.add_lora(b, "w", rank=2, alpha=3.0, seed=5)
    training = small.training(loss, tiled.SGD(lr=0))
    values = {"x": x, "y": y, **b._parameters}
    plain = value(b, loss, values)
    trainer = trainer_of(training)
    assert trainer.step((x, y)) == plain  # the second factor is 0
    a, second = (training.initial[f"w/lora_{k}"] for k in "ab")
    assert a.shape == ((2, 6) if turned else (6, 2))
    second = rng.normal(size=second.shape)
    trainer = trainer_of(training, parameters={**training.initial, "w/lora_b": second})
    trainer.step((x, y))
    a, second = (a.T, second.T) if turned else (a, second)
    out = x @ (w + 1.5 * a @ second) + turned
    slope = (2 / y.size * (out - y)).reshape(-1, 4)
    rows = x.reshape(-1, 6)
    got = trainer.gradients()
    wants = {"w/lora_a": 1.5 * rows.T @ slope @ second.T, "w/lora_b": 1.5 * (rows @ a).T @ slope}
    for name, want in wants.items():
        np.testing.assert_allclose(got[name], want.T if turned else want, rtol=1e-10)
    assert "w" not in training.parameters


def test_adapters_of_what_is_no_product():
    b, _ = sketch()
    with pytest.raises(ParameterError, match=r"conv.w is read by Conv"):
        methods.add_lora(b, "conv.w", rank=2)
    with pytest.raises(ParameterError, match="no name matches"):
        methods.add_lora(b, "nothing", rank=2)
