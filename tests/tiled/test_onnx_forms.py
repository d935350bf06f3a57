"""Forms that exporters write: old softmaxes, losses of one output, constants of numbers."""

import tempfile

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from rpukit import tiled
from rpukit.errors import GraphError
from rpukit.testing import assert_same_bits

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(2)


def save(path, nodes, inputs, outputs, constants=None, opset=17):
    """Write a model; inputs and outputs by name, with type and shape."""
    values = [
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in group.items()]
        for group in (inputs, outputs)
    ]
    initialisers = [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", *values, initialisers)
    sets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=sets), path)
    return path


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -2])
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 5), (2, 3, 4, 1)])
@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_of_every_opset(tmp_path, op, axis, shape, opset):
    if axis in (2, -3) and len(shape) < 3:
        axis = 0
    attributes = {} if axis is None else {"axis": axis}
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    kind = {"x": (TensorProto.FLOAT, shape)}, {"y": (TensorProto.FLOAT, shape)}
    graph = tiled.from_onnx(save(tmp_path / "m.onnx", [node], *kind, opset=opset))
    x = RNG.normal(size=shape).astype("f4")
    formula = softmax if op == "Softmax" else log_softmax
    if opset >= 13:
        want = formula(x, axis=-1 if axis is None else axis)
    else:
        first = (1 if axis is None else axis) % len(shape)
        rows = x.reshape(int(np.prod(shape[:first])), -1)
        want = formula(rows, axis=1).reshape(shape)
    assert np.allclose(graph.run({"x": x})["y"], want, atol=2e-6)  # rounding of float32


def test_old_softmax_has_a_gradient(tmp_path):
    shape = (2, 3, 4)
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["h"]),
        helper.make_node("Softmax", ["h"], ["y"], axis=1),
    ]
    kind = {"x": (TensorProto.FLOAT, shape)}, {"y": (TensorProto.FLOAT, shape)}
    w = RNG.normal(size=shape).astype("f4")
    path = save(tmp_path / "m.onnx", nodes, *kind, {"w": w}, opset=11)
    steps = []
    for own in (False, True):
        if own:
            b = tiled.Builder("own")
            x, v = b.input("x", shape), b.parameter("w", w)
            rows = b.apply("Softmax", b.apply("Flatten", b.apply("Mul", x, v), axis=1), axis=1)
            y = b.apply("Reshape", rows, shape=shape)
        else:
            b, y = tiled.Builder.from_onnx(path, ["w"]), "y"
        loss = b.apply("MSELoss", y, b.input("t", shape))
        training = b.training(loss, tiled.SGD(lr=0.5))
        trainer = tiled.plan(training, tiled.siracusa_l2()).trainer(training)
        draws = np.random.default_rng(4).random((2, *shape), "f4")
        trainer.step((draws[0], draws[1]))
        steps.append(trainer.parameters()["w"])
    assert_same_bits(*steps)
    assert not np.array_equal(steps[0], w)


@pytest.mark.parametrize("labels", [TensorProto.INT32, TensorProto.INT64])
def test_loss_and_normalisation_of_one_output(tmp_path, labels):
    """As PyTorch writes them: one output each, ignore_index, labels of either width."""
    nodes = [
        helper.make_node("LayerNormalization", ["x", "s", "b"], ["n"], axis=-1, epsilon=1e-5),
        helper.make_node("Gemm", ["n", "w", "c"], ["z"], transB=1),
        helper.make_node(
            "SoftmaxCrossEntropyLoss", ["z", "t"], ["loss"], reduction="mean", ignore_index=-100
        ),
    ]
    inputs = {"x": (TensorProto.FLOAT, (4, 6)), "t": (labels, (4,))}
    values = {"s": (6,), "b": (6,), "w": (3, 6), "c": (3,)}
    values = {name: RNG.normal(size=shape).astype("f4") for name, shape in values.items()}
    path = save(tmp_path / "m.onnx", nodes, inputs, {"loss": (TensorProto.FLOAT, ())}, values)
    read = tiled.Builder.from_onnx(path, list(values))
    own = tiled.Builder("own")
    x, t = own.input("x", (4, 6)), own.input("t", (4,), np.int32)
    s, b, w, c = (own.parameter(name, value) for name, value in values.items())
    z = own.apply("Gemm", own.apply("LayerNormalization", x, s, b, epsilon=1e-5), w, c, transB=1)
    own.apply("SoftmaxCrossEntropyLoss", z, t, name="loss")
    batch = RNG.normal(size=(4, 6)).astype("f4"), np.array([0, 2, 1, 1], "i4")
    ends = []
    for builder in (read, own):
        training = builder.training("loss", tiled.SGD(lr=0.1))
        trainer = tiled.plan(training, tiled.siracusa_l2()).trainer(training)
        loss = trainer.step(batch)
        ends.append((loss, trainer.parameters()))
    assert ends[0][0] == ends[1][0]
    for name, value in ends[0][1].items():
        assert_same_bits(value, ends[1][1][name])
        assert not np.array_equal(value, values[name])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("op", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_ignored_labels_and_weights_of_classes(tmp_path, op, weights, reduction):
    """Loss and gradient are sums over the other labels, divided by their weights for a mean."""
    ignored = 1 if weights else -100
    more = ["cw"] if weights else []
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["z"]),
        helper.make_node(
            op, ["z", "t", *more], ["loss"], reduction=reduction, ignore_index=ignored
        ),
    ]
    inputs = {"x": (TensorProto.FLOAT, (5, 3)), "t": (TensorProto.INT64, (5,))}
    values = {"w": RNG.normal(size=(5, 3)).astype("f4"), "cw": np.array([0.5, 2, 3], "f4")}
    path = save(tmp_path / "m.onnx", nodes, inputs, {"loss": (TensorProto.FLOAT, ())}, values)
    training = tiled.Builder.from_onnx(path, ["w"]).training("loss", tiled.SGD(lr=1.0))
    x, t = RNG.normal(size=(5, 3)).astype("f4"), np.array([0, ignored, 2, 2, ignored])
    trainer = tiled.plan(training, tiled.siracusa_l2(l1=2_000)).trainer(training)
    loss = trainer.step((x, t))
    kept = t != ignored
    z = x.astype(float) * values["w"]
    own = values["cw"].astype(float)[np.where(kept, t, 0)] if weights else np.ones(5)
    own = own * kept / ((own * kept).sum() if reduction == "mean" else 1)
    hot, soft = np.eye(3)[np.where(kept, t, 0)], op.startswith("Soft")
    logs = log_softmax(z, 1) if soft else z
    assert abs(loss + (own * (logs * hot).sum(1)).sum()) < 1e-5
    slope = own[:, None] * ((softmax(z, 1) if soft else 0) - hot) * x
    assert np.abs(values["w"] - trainer.parameters()["w"] - slope).max() < 1e-5


def test_a_batch_of_ignored_labels_changes_nothing():
    b = tiled.Builder("net")
    w = RNG.normal(size=(3, 4)).astype("f4")
    z = b.apply("Gemm", b.input("x", (2, 3)), b.parameter("w", w))
    loss = b.apply("SoftmaxCrossEntropyLoss", z, b.input("t", (2,), np.int64), ignore_index=-100)
    training = b.training(loss, tiled.SGD(lr=1.0))
    trainer = tiled.plan(training, tiled.siracusa_l2()).trainer(training)
    assert np.isnan(trainer.step((np.ones((2, 3), "f4"), np.array([-100, -100]))))  # 0 / 0
    assert_same_bits(trainer.parameters()["w"], w)


@pytest.mark.parametrize(
    ("attribute", "want"),
    [({"value_float": 2.5}, 2.5), ({"value_floats": [1.0, 2.0, 3.0]}, [1.0, 2.0, 3.0])],
)
def test_constants_of_numbers(tmp_path, attribute, want):
    nodes = [
        helper.make_node("Constant", [], ["k"], **attribute),
        helper.make_node("Constant", [], ["shape"], value_ints=[3, 2]),
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"]),
        helper.make_node("Mul", ["t", "k"], ["y"]),
    ]
    kind = {"x": (TensorProto.FLOAT, (6,))}, {"y": (TensorProto.FLOAT, (2, 3))}
    graph = tiled.from_onnx(save(tmp_path / "m.onnx", nodes, *kind))
    x = RNG.normal(size=6).astype("f4")
    assert_same_bits(graph.run({"x": x})["y"], x.reshape(3, 2).T * np.array(want, "f4"))


def test_constants_of_text_are_refused(tmp_path):
    nodes = [
        helper.make_node("Constant", [], ["k"], value_string="a"),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    kind = {"x": (TensorProto.FLOAT, (6,))}, {"y": (TensorProto.FLOAT, (6,))}
    with pytest.raises(GraphError, match="value_string"):
        tiled.from_onnx(save(tmp_path / "m.onnx", nodes, *kind))


def test_parameters_by_name(tmp_path):
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    kind = {"x": (TensorProto.FLOAT, (6,))}, {"y": (TensorProto.FLOAT, (6,))}
    w = RNG.normal(size=6).astype("f4")
    path = save(tmp_path / "m.onnx", [node], *kind, {"w": w})
    for given in ("w", ["w"], {"w": w}):
        builder = tiled.Builder.from_onnx(path, given)
        builder.apply("MSELoss", "y", builder.input("t", (6,)), name="loss")
        assert_same_bits(builder.training("loss").initial["w"], w)
    with pytest.raises(GraphError, match="lost are no initialisers of the file, need some of w"):
        tiled.Builder.from_onnx(path, ["lost"])


def test_damaged_files_are_read_or_refused():
    """A slice of `tools/fuzz_onnx.py`, and its first finds."""
    from tools import fuzz_onnx

    paths = fuzz_onnx.models()
    assert len(paths) > 3
    with tempfile.TemporaryDirectory() as folder:
        for seed, cases in ((0, (3, 240, 389, 408, 502, 503, 984, 1354)), (5, range(60))):
            found = {case: fuzz_onnx.outcome(case, seed, paths, folder) for case in cases}
            wrong = {case: kind for case, kind in found.items() if kind not in (None, "refused")}
            assert not wrong
