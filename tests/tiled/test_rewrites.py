"""Operators that are rewritten: values beside ONNX's own evaluator, gradients by differences."""

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import GraphError
from tests.tiled.test_c_kernels import assert_same_for
from tests.tiled.test_codegen import SANITIZE, build

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

RNG = np.random.default_rng(5)


def drawn(*shape):
    return RNG.normal(size=shape)


def ints(*values):
    return np.array(values, np.int64)


X = drawn(2, 3, 4)
IMAGE = drawn(2, 4, 5, 6)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def network(op, ways=1, **more):
    """Inputs of a recurrent network: 4 steps, 2 samples, 3 inputs, 5 hidden."""
    size = GATES[op] * 5
    x, w, r, b = drawn(4, 2, 3), drawn(ways, size, 3), drawn(ways, size, 5), drawn(ways, 2 * size)
    state = [drawn(ways, 2, 5)] if op == "GRU" else []
    return (op, [x, w, r, b, *([None, *state] if state else [])], {"hidden_size": 5, **more})


# name -> op, inputs (trained, but for integers), attributes
CASES = {
    "abs": ("Abs", [X], {}),
    "celu": ("Celu", [X], {"alpha": 1.5}),
    "elu": ("Elu", [X], {"alpha": 0.7}),
    "gelu_tanh": ("Gelu", [X], {"approximate": "tanh"}),
    "max": ("Max", [X, drawn(3, 1), drawn(4)], {}),
    "mean": ("Mean", [X, drawn(4)], {}),
    "min": ("Min", [X, drawn(3, 1)], {}),
    "mish": ("Mish", [X], {}),
    "prelu": ("PRelu", [X, drawn(3, 1)], {}),
    "pow_of_a_number": ("Pow", [np.array(1.5), X], {}),
    "selu": ("Selu", [X], {}),
    "shrink": ("Shrink", [X], {"lambd": 0.3, "bias": 0.2}),
    "softplus": ("Softplus", [40 * X], {}),
    "softsign": ("Softsign", [X], {}),
    "thresholded": ("ThresholdedRelu", [X], {"alpha": 0.4}),
    "sum_l1": ("ReduceL1", [X, ints(1)], {}),
    "sum_l2": ("ReduceL2", [X, ints(0, 2)], {"keepdims": 0}),
    "log_sum": ("ReduceLogSum", [X**2, ints(2)], {}),
    "log_sum_exp": ("ReduceLogSumExp", [200 * X, ints(1)], {"keepdims": 0}),
    "largest": ("ReduceMax", [X, ints(0, 2)], {}),
    "least": ("ReduceMin", [X, ints(-1)], {"keepdims": 0}),
    "product": ("ReduceProd", [X, ints(1)], {}),
    "squares": ("ReduceSumSquare", [X], {}),
    "running": ("CumSum", [X, np.array(1)], {}),
    "running_back": ("CumSum", [X, np.array(2)], {"reverse": 1, "exclusive": 1}),
    "einsum": ("Einsum", [X, drawn(2, 5, 4)], {"equation": "bij,bkj->bik"}),
    "einsum_dots": ("Einsum", [IMAGE, drawn(4, 6, 2)], {"equation": "...ijk,ikl->...il"}),
    "einsum_three": ("Einsum", [drawn(3, 4), drawn(4, 5), drawn(5)], {"equation": "ab,bc,c"}),
    "einsum_outer": ("Einsum", [drawn(3), drawn(4)], {"equation": "a,b->ba"}),
    "gather": ("Gather", [X, ints(2, 0, 2)], {"axis": 1}),
    "gather_matrix": ("Gather", [X[0], ints(1, 1, 2, 0).reshape(2, 2)], {}),
    "flip": ("Slice", [X, ints(-1, 3), ints(-9, 0), ints(1, 2), ints(-1, -2)], {}),
    "tile": ("Tile", [X, ints(2, 1, 3)], {}),
    "triangle": ("Trilu", [X, np.array(1)], {"upper": 0}),
    "pad_reflect": ("Pad", [X, ints(0, 1, 2, 0, 0, 1)], {"mode": "reflect"}),
    "to_space": ("DepthToSpace", [IMAGE], {"blocksize": 2}),
    "to_space_crd": ("DepthToSpace", [IMAGE], {"blocksize": 2, "mode": "CRD"}),
    "to_depth": ("SpaceToDepth", [IMAGE[:, :, :4]], {"blocksize": 2}),
    "transpose": ("Transpose", [drawn(2, 3, 2, 2, 3, 2)], {"perm": (5, 1, 3, 0, 4, 2)}),
    "group_norm": ("GroupNormalization", [IMAGE, drawn(4), drawn(4)], {"num_groups": 2}),
    "instance_norm": ("InstanceNormalization", [IMAGE, drawn(4), drawn(4)], {}),
    "layer_norm_two": ("LayerNormalization", [IMAGE, drawn(5, 6), drawn(5, 6)], {"axis": 2}),
    "lp_norm": ("LpNormalization", [X], {"axis": 1, "p": 2}),
    "conv_line": ("Conv", [X, drawn(5, 3, 2), drawn(5)], {"strides": (2,), "pads": (1, 0)}),
    "conv_same": (
        "Conv",
        [IMAGE, drawn(3, 4, 2, 3)],
        {"auto_pad": "SAME_UPPER", "strides": (2, 2)},
    ),
    "conv_turned": (
        *("ConvTranspose", [IMAGE, drawn(4, 3, 3, 2), drawn(3)]),
        {"strides": (2, 1), "pads": (1, 0, 0, 1), "output_padding": (1, 0)},
    ),
    "pool_ceil": (
        "MaxPool",
        [IMAGE],
        {"kernel_shape": (2, 3), "strides": (2, 2), "ceil_mode": 1},
    ),
    "pool_line": ("AveragePool", [X], {"kernel_shape": (2,), "strides": (2,)}),
    "global_max": ("GlobalMaxPool", [IMAGE], {}),
    "global_mean": ("GlobalAveragePool", [X], {}),
    "nearest": ("Resize", [IMAGE, None, np.float32([1, 1, 2, 3])], {"mode": "nearest"}),
    "linear": ("Resize", [IMAGE, None, np.float32([1, 1, 1.4, 0.5])], {"mode": "linear"}),
    "cubic": ("Resize", [IMAGE, None, None, ints(2, 4, 8, 4)], {"mode": "cubic"}),
    "lstm": network("LSTM"),
    "lstm_two_ways": network("LSTM", 2, direction="bidirectional"),
    "gru": network("GRU", direction="reverse"),
    "gru_late": network("GRU", linear_before_reset=1),
    "rnn": network("RNN", 2, direction="bidirectional"),
}
SMOOTH = 1e-6  # of differences of float64: their step, times the third derivative


def model(path, op, inputs, attributes):
    """A file of one node, whose floats are initialisers; its output, times random factors."""
    names = ["" if value is None else f"x{k}" for k, value in enumerate(inputs)]
    node = helper.make_node(op, names, ["y"], name="node", **attributes)
    values = {n: v for n, v in zip(names, inputs, strict=True) if n}
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in values.items()]
    end = helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)
    sets = [helper.make_opsetid("", 18 if op == "GroupNormalization" else 20)]
    if op == "GroupNormalization":
        sets = [helper.make_opsetid("", 21)]
    made = helper.make_model(
        helper.make_graph([node], "one", [], [end], tensors), opset_imports=sets
    )
    onnx.save(made, path)
    return made, {n: v for n, v in values.items() if v.dtype == np.float64 and v.ndim}


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient(tmp_path, name):
    op, inputs, attributes = CASES[name]
    made, trained = model(tmp_path / "m.onnx", op, inputs, attributes)
    want = ReferenceEvaluator(made).run(None, {})[0]
    b = tiled.Builder.from_onnx(tmp_path / "m.onnx", list(trained), dtype="float64")
    found = b.graph("y").run(trained)["y"]
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-7)  # the evaluator's are float32
    factors = np.random.default_rng(0).normal(size=want.shape)
    flat = b.apply("Reshape", "y", shape=(-1,))
    c = b.input("c", (want.size,))
    zero = b.apply("ReduceSum", b.input("zero", (1,)), keepdims=0)
    loss = b.apply("Add", b.apply("ReduceSum", b.apply("Mul", flat, c), keepdims=0), zero)
    graph = b.training(loss, tiled.SGD(lr=1.0)).train

    def run(values):
        empty = {n: np.zeros(graph.tensors[n].shape, graph.tensors[n].dtype) for n in graph.inputs}
        return graph.run({**empty, "c": factors.reshape(-1), "reset": np.array([True]), **values})

    first, seed, scale = run(trained), np.random.default_rng(1), {}
    for key, value in trained.items():
        way = seed.normal(size=value.shape)
        ends = [run({**trained, key: value + sign * 1e-5 * way})[loss] for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / 2e-5
        own = np.vdot(first[f"{key}_grad.accumulation.out"], way)
        scale[key] = max(1.0, np.abs(factors).sum())
        assert abs(own - slope) < SMOOTH * scale[key], key


def test_masks_that_comparisons_compute(tmp_path):
    """Where(x > 0 and not x >= w, x * x, w), chosen exactly even beside infinities."""
    add = helper.make_node
    nodes = [
        add("Greater", ["x", "nothing"], ["more"]),
        add("GreaterOrEqual", ["x", "w"], ["far"]),
        add("Not", ["far"], ["near"]),
        add("And", ["more", "near"], ["mask"]),
        add("Unsqueeze", ["mask", "axis"], ["wide"]),
        add("Squeeze", ["wide", "axis"], ["again"]),
        add("Mul", ["x", "x"], ["square"]),
        add("Where", ["again", "square", "w"], ["y"]),
        add("Equal", ["x", "w"], ["same"]),
        add("Or", ["same", "mask"], ["some"]),
        add("Cast", ["some"], ["number"], to=TensorProto.FLOAT),
    ]
    x = np.array([-1.0, 0.0, 1.0, 2.0, 3e18, np.inf], "f4")
    constants = {"w": np.full(6, 2, "f4"), "nothing": np.zeros(1, "f4"), "axis": ints(0)}
    tensors = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (6,))]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (6,)) for n in ("y", "number")]
    sets = [helper.make_opsetid("", 20)]
    made = helper.make_model(
        helper.make_graph(nodes, "m", values, ends, tensors), opset_imports=sets
    )
    onnx.save(made, tmp_path / "m.onnx")
    found = tiled.from_onnx(tmp_path / "m.onnx").run({"x": x})
    np.testing.assert_array_equal(found["y"], np.where((x > 0) & (x < 2), x * x, np.float32(2)))
    np.testing.assert_array_equal(found["number"], ((x > 0) & (x <= 2)).astype("f4"))


def test_labels_that_a_network_predicts(tmp_path):
    """ArgMax and ArgMin (`tiled_arg_max`), of numbers and NaN; as labels of a loss."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("ArgMax", ["z"], ["best"], axis=1, keepdims=0),
        helper.make_node("ArgMin", ["z"], ["worst"], axis=-1),
        helper.make_node("Flatten", ["worst"], ["flat"], axis=0),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 3))]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.INT64, shape)
        for name, shape in (("best", (4,)), ("flat", (1, 4)))
    ]
    w, x = drawn(3, 5).astype("f4"), drawn(4, 3).astype("f4")
    known = [numpy_helper.from_array(w, "w")]
    graph = helper.make_graph(nodes, "g", values, ends, known)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    x[1, 0] = np.nan  # all scores are then: the first is found
    found = tiled.from_onnx(path).run({"x": x})
    np.testing.assert_array_equal(found["best"], (x @ w).argmax(1))
    np.testing.assert_array_equal(found["flat"], (x @ w).argmin(1)[None])
    b = tiled.Builder.from_onnx(path, ["w"], outputs=["best", "z"])
    loss = b.apply("SoftmaxCrossEntropyLoss", "z", "best")
    training = b.training(b.apply("Add", loss, b.apply("MSELoss", "z", b.input("t", (4, 5)))))
    plan = tiled.plan(training, tiled.siracusa_l2(l1=1_000), buffering="single")
    batch = drawn(4, 3).astype("f4"), np.zeros((4, 5), "f4")
    plan.generate_c(tmp_path / "c", training, [batch])
    build(tmp_path / "c", *SANITIZE)
    assert_same_for(tmp_path / "c", 1, 3)


def test_outputs_that_are_needed(tmp_path):
    """What predicts labels is left out where it is not among the outputs."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("TopK", ["z", "one"], ["top", "label"], axis=1),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 3))]
    ends = [
        helper.make_tensor_value_info("label", TensorProto.INT64, (4, 1)),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, (4, 2)),
    ]
    w = drawn(3, 2).astype("f4")
    known = [numpy_helper.from_array(value, key) for key, value in (("w", w), ("one", ints(1)))]
    graph = helper.make_graph(nodes, "g", values, ends, known)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    with pytest.raises(GraphError, match=r"TopK: node .*name the outputs that are needed"):
        tiled.Builder.from_onnx(path, ["w"])
    b = tiled.Builder.from_onnx(path, ["w"], outputs=["z"])
    assert b.outputs == ("z",)
    labels = b.input("labels", (4,), np.int64)
    training = b.training(b.apply("SoftmaxCrossEntropyLoss", "z", labels))
    assert training.batch == ("x", "labels")
    with pytest.raises(GraphError, match="no node produces lost; need some of label, top, z"):
        tiled.Builder.from_onnx(path, ["w"], outputs=["lost"])


def test_classical_models(tmp_path):
    """A scaler and a linear classifier, whose coefficients are attributes; an open batch."""
    weights, x = drawn(2, 3).astype("f4"), drawn(4, 3).astype("f4")
    rows = {"coefficients": weights.ravel().tolist(), "intercepts": [0.5, -1.0]}
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0]),
        helper.make_node("Normalizer", ["s"], ["n"], domain="ai.onnx.ml", norm="L2"),
        helper.make_node(
            *("LinearClassifier", ["n"], ["label", "p"]),
            name="last",
            domain="ai.onnx.ml",
            classlabels_ints=[0, 1],
            **{"post_transform": "SOFTMAX", **rows},
        ),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 3))]
    ends = [helper.make_tensor_value_info("label", TensorProto.INT64, ("batch",))]
    ends += [helper.make_tensor_value_info("p", TensorProto.FLOAT, ("batch", 2))]
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph, path = helper.make_graph(nodes, "g", values, ends), tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=sets), path)
    with pytest.raises(GraphError, match="give batch_size"):
        tiled.Builder.from_onnx(path, [], outputs=["p"])
    names = ["last/coefficients", "last/intercepts"]
    b = tiled.Builder.from_onnx(path, names, outputs=["p"], batch_size=4)
    trained = {names[0]: weights, names[1]: np.float32([0.5, -1.0])}
    found = b.graph("p").run({"x": x, **trained})["p"]
    z = 2.0 * (x.astype(float) - 1)
    z = z / np.sqrt((z**2).sum(1, keepdims=True)) @ weights.T + [0.5, -1.0]
    want = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    np.testing.assert_allclose(found, want, rtol=1e-5)  # float32
    b.apply("MSELoss", "p", b.input("t", (4, 2)), name="loss")
    assert b.training("loss").parameters == tuple(names)


def test_statistics_of_the_batch_on_demand(tmp_path):
    """As for files of exporters that write inference mode only."""
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])
    kind = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (5, 3)) for n in "xy"]
    given = dict(zip("sbmv", drawn(4, 3).astype("f4") ** 2, strict=True))
    tensors = [numpy_helper.from_array(v, k) for k, v in given.items()]
    graph = helper.make_graph([node], "g", kind[:1], kind[1:], tensors)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m"
    )
    x = drawn(5, 3).astype("f4")
    b = tiled.Builder.from_onnx(tmp_path / "m", [], batch_statistics=True)
    found = b.graph("y").run({"x": x})["y"]
    want = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) * given["s"] + given["b"]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)  # float32


@pytest.mark.parametrize("op", ["Add", "ReduceSum", "Expand"])
def test_more_axes_than_a_kernel_takes(op):
    x, y = drawn(2, 1, 3, 2, 2, 3), drawn(3, 2, 1, 1)
    b = tiled.Builder("axes", dtype="float64")
    name = b.input("x", x.shape)
    if op == "Add":
        end, want = b.apply("Add", name, b.input("y", y.shape)), x + y
    elif op == "ReduceSum":
        end = b.apply("ReduceSum", name, axes=(0, 4, -1), keepdims=0)
        want = x.sum((0, 4, 5))
    else:
        end = b.apply("Broadcast", name, shape=(2, 4, 3, 2, 2, 3), by=2)
        want = np.broadcast_to(x / 2, (2, 4, 3, 2, 2, 3))
    graph = b.graph(end)
    found = graph.run({key: v for key, v in (("x", x), ("y", y)) if key in graph.inputs})[end]
    np.testing.assert_allclose(found, want, rtol=1e-14)
