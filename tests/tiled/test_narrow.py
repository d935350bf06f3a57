"""Numbers of 8 and 16 bits in memory: conversions, gradients, what is kept of a forward pass."""

import subprocess

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import GraphError, ParameterError
from rpukit.testing import assert_same_bits, on_cpu
from rpukit.tiled import Node, Tensor, make_graph, methods
from tests.tiled.method_nets import LEVELS, gated, mini_batches, sketch, trainer_of

FP16 = {"weights": "fp16", "activations": "fp16"}


def converted(op, values, *scale, **attributes):
    """What the mirror makes of values, which is also what the kernel makes."""
    given = dict(zip("xs", (values, *scale), strict=False))
    inputs = [Tensor(key, value.shape, value.dtype.name) for key, value in given.items()]
    graph = make_graph("g", [Node("n", op, tuple(given), ("y",), attributes)], inputs, ["y"])
    found = graph.run(given)["y"]
    with on_cpu(order=7):
        assert_same_bits(graph.run(given)["y"], found)
    return found


def test_halves_are_those_of_numpy():
    """All numbers of 16 bits; those half-way between two of them, and their neighbours."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = halves.astype(np.float32)
    got = converted("Dequantize", halves, of="float16")
    assert_same_bits(got[np.isfinite(wide)], wide[np.isfinite(wide)])
    assert_same_bits(np.isnan(got), np.isnan(wide))
    finite = wide[np.abs(wide) < 65504]
    ties = finite + np.spacing(np.abs(finite).astype(np.float16)).astype(np.float32) / 2
    beside = [np.nextafter(ties, np.float32(side)) for side in (-9e9, 9e9)]
    some = np.concatenate([finite, ties, *beside])
    some = np.concatenate([some, np.float32([1e-45, -1e-40, 65504, 7e4, np.inf, -np.inf])])
    with np.errstate(over="ignore"):
        want = np.where(np.isfinite(some), np.clip(some, -65504, 65504), some).astype(np.float16)
    assert_same_bits(converted("Quantize", some, to="float16"), want)
    assert np.isnan(converted("Quantize", np.float32([np.nan]), to="float16"))[0]


def test_integers_at_their_ends():
    x = np.float32([0.5, 1.5, -2.5, 126.5, 127.5, -900, np.inf, -np.inf, np.nan, 1e-45])
    got = converted("Quantize", x, np.ones(1, np.float32))
    assert got.tolist() == [0, 2, -2, 126, 127, -127, 127, -127, 0, 0]
    assert converted("Quantize", x, -np.ones(1, np.float32)).tolist() == [-n for n in got.tolist()]
    assert converted("Positive", x).tolist() == [1, 1, 0, 1, 1, 0, 1, 0, 0, 1]
    whole = np.arange(-128, 128).astype(np.int8)
    assert_same_bits(converted("Dequantize", whole), whole.astype(np.float32))


def test_gradients_of_rounding():
    """Straight through within 126; scales are constants."""
    b = tiled.Builder("line")
    x, y = b.input("x", (1, 4)), b.input("y", (1, 4))
    w = b.parameter("w", [[0.6, 2.4, 126.4, -500.0]])
    one = b.constant("one", [[1.0]])
    short = b.apply("Dequantize", b.apply("Quantize", w, one), one)
    loss = b.apply("MSELoss", b.apply("Mul", x, short), y)
    trainer = trainer_of(b.training(loss, tiled.SGD(lr=0)))
    trainer.step((np.float32([[1, 1, 1, 1]]), np.zeros((1, 4), np.float32)))
    assert trainer.gradients()["w"].tolist() == [[0.5, 1.0, 63.0, 0.0]]
    scale = b.parameter("scale", [[1.0]])
    learned = b.apply("Dequantize", b.apply("Quantize", w, scale), scale)
    with pytest.raises(GraphError, match="scales have no gradient"):
        b.training(b.apply("MSELoss", b.apply("Mul", x, learned), y))


def plans(training):
    """Plans over two and three levels."""
    for levels in (tiled.siracusa_l2(l1=6_000), tiled.siracusa_l3(l1=6_000, l2=16_000)):
        yield tiled.plan(training, levels, buffering="double")


@pytest.mark.parametrize("options", [{}, FP16])
def test_stored_networks(options, tmp_path):
    """Rounded factors are int8 or float16: plans, copies in any order and C have the same bits."""
    b, loss = sketch()
    batches = mini_batches(3)
    made = methods.quantise(b, batches, stored=True, **options)
    training = made.training(loss, tiled.SGD(lr=0.1))
    less = methods.store_narrow(training)
    kinds = {tensor.dtype for tensor in less.train.tensors.values()}
    assert ("float16" if options else "int8") in kinds
    runs = [plan.trainer(less, transfers="mixed", seed=3) for plan in plans(less)]
    losses = [run.fit(batches) for run in runs]
    assert_same_bits(*losses)
    assert losses[0][-1] < losses[0][0]
    for name, value in runs[0].parameters().items():
        assert_same_bits(value, runs[1].parameters()[name])
    if options:  # exact; of int8, small activations have no gradient
        assert_same_bits(trainer_of(training).fit(batches), losses[0])
        return
    peaks = [next(plans(one)).peaks["L2"] for one in (training, less)]
    assert peaks[1] < 0.92 * peaks[0]
    plan = next(plans(less))
    plan.generate_c(tmp_path, less, batches)
    done = subprocess.run(["make", "-s", "-C", tmp_path, "run"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_gradients_of_what_is_stored_as_integers():
    """Of a Relu they pass where integers are positive; of a MaxPool to the largest integer."""
    b, loss = sketch()
    batch = mini_batches(1)[0]
    training = methods.quantise(b, [batch], stored=True).training(loss, tiled.SGD(lr=0))
    less = methods.store_narrow(training)
    read = {name for node in less.train.nodes for name in node.inputs if "Grad" in node.op}
    late = [less.train.tensors[name].dtype for name in read if name.startswith("relu")]
    assert "int8" in late
    assert not any(node.op == "ReluGrad" for node in less.train.nodes)
    both = [trainer_of(one) for one in (training, less)]
    assert both[0].step(batch) == both[1].step(batch)
    want, got = (one.gradients() for one in both)
    for name in ("head.w", "head.b", "fc.w", "fc.b"):
        assert_same_bits(got[name], want[name])
    for name in ("conv.w", "deep.w"):
        assert np.abs(got[name] - want[name]).max() < 0.3 * np.abs(want[name]).max()


def test_signs_and_halves_of_any_network():
    """A Relu whose sign alone is needed keeps a byte; all else is rounded to float16 if asked."""
    b, loss, batches = gated()
    training = b.training(loss, tiled.SGD(lr=0.5))
    exact, short = (methods.store_narrow(training, others=kind) for kind in ("float32", "fp16"))
    assert [n.op for n in exact.train.nodes].count("Positive") == 1
    assert {n.op for n in short.train.nodes} >= {"Positive", "Quantize", "Dequantize"}
    losses = [trainer_of(one).fit(batches) for one in (training, exact, short)]
    assert_same_bits(losses[0], losses[1])
    assert losses[2][0] == losses[0][0]
    np.testing.assert_allclose(losses[2], losses[0], rtol=1e-3)
    fused = tiled.fuse(short)
    assert_same_bits(trainer_of(fused).fit(batches), losses[2])


@pytest.mark.parametrize("options", [{}, FP16])
def test_frozen_weights_are_constants_of_8_and_16_bits(options, tmp_path):
    """Adapters beside weights of int8 or float16; weights that are frozen later."""
    b, loss = sketch()
    batches = mini_batches(2)
    adapted = methods.add_lora(b, "fc.w", "head.w", rank=2)
    small = methods.quantise(adapted, batches, stored=True, **options)
    training = methods.store_narrow(small.training(loss, tiled.SGD(lr=0.1)))
    constants = {k: v.dtype.name for k, v in training.train.constants.items() if v.size > 9}
    kind = "float16" if options else "int8"
    assert constants["fc.w/stored"] == constants["head.w/stored"] == kind
    assert "fc.w" not in constants and "fc.w" not in training.parameters
    trainer = trainer_of(training)
    losses = trainer.fit(batches * 4)
    assert losses[-1] < losses[0]
    whole = methods.quantise(b, batches, stored=True, **options).training(loss)
    later = methods.store_narrow(methods.freeze(whole, "fc.w"))
    assert_same_bits(later.train.constants["fc.w/stored"], training.train.constants["fc.w/stored"])
    assert "fc.w" not in later.train.constants
    if options:
        return
    plan = tiled.plan(training, LEVELS, buffering="double")
    plan.generate_c(tmp_path, training, batches)
    done = subprocess.run(["make", "-s", "-C", tmp_path, "run"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"weights": "int4"}, "weights: got 'int4'"),
        ({"activations": "bf16"}, "activations: got 'bf16'"),
        ({"learn_scales": True}, "learn_scales: got True"),
        ({"dtype": "float64"}, "need float32"),
    ],
)
def test_what_cannot_be_stored(options, text):
    dtype = options.get("dtype", "float32")
    b, _ = sketch(dtype)
    more = {key: value for key, value in options.items() if key != "dtype"}
    with pytest.raises(ParameterError, match=text):
        methods.quantise(b, mini_batches(1, dtype), stored=True, **more)


@pytest.mark.parametrize(
    ("op", "dtype", "scale", "attributes", "text"),
    [
        ("Quantize", "float64", (1, 1), {}, "need float32 to int8 or float16"),
        ("Quantize", "float32", (), {"to": "int8"}, "need a scale for int8"),
        ("Quantize", "float32", (3, 4), {}, "lengths of 1 but for one axis"),
        ("Quantize", "float32", (1, 3), {}, "need float32 for"),
        ("Dequantize", "float16", (), {}, "need int8 or float16"),
        ("Dequantize", "float16", (1, 1), {"of": "float16"}, "no scale for float16"),
        ("Positive", "int8", (), {}, "need float32"),
        ("QuantizeGrad", "float32", (3, 4), {}, "need float32 and int8 of one shape"),
    ],
)
def test_ops_that_do_not_fit(op, dtype, scale, attributes, text):
    inputs = [Tensor("x", (3, 4), dtype), *([Tensor("s", scale)] if scale else [])]
    node = Node("n", op, tuple(tensor.name for tensor in inputs), ("y",), attributes)
    with pytest.raises(GraphError, match=text):
        make_graph("g", [node], inputs, ["y"])
