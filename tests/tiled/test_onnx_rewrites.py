"""Nodes that are read as constants, views or other ops; one error for all that cannot be read."""

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import GraphError, ParameterError
from rpukit.testing import assert_same_bits
from tests.tiled.op_formulas import conv

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

from tests.tiled.test_codegen import assert_bits_and_cycles, build  # noqa: E402
from tests.tiled.test_onnx_forms import save  # noqa: E402

RNG = np.random.default_rng(8)
node = helper.make_node


def drawn(*shape):
    return RNG.normal(size=shape).astype("f4")


def floats(**shapes):
    return {name: (TensorProto.FLOAT, shape) for name, shape in shapes.items()}


def one_graph(tmp_path, nodes, shape, out, constants=None, opset=17):
    """A graph of float64 from x to y."""
    path = save(tmp_path / "m.onnx", nodes, floats(x=shape), floats(y=out), constants, opset)
    return tiled.from_onnx(path, dtype=np.float64)


MASK = np.array([[True, False, True]])
X = RNG.normal(size=(2, 3))
CASES = {
    "Clip": (["lo", "hi"], {}, lambda x: np.clip(x, -0.25, 0.5)),
    "Pow": (["two"], {}, lambda x: x**2),
    "Neg": ([], {}, lambda x: -x),
    "Reciprocal": ([], {}, lambda x: 1 / x),
    "Sum": (["x", "two", "x"], {}, lambda x: 3 * x + 2),
    "Dropout": (["hi"], {}, lambda x: x),
    "Cast": ([], {"to": TensorProto.DOUBLE}, lambda x: x),
    "Where": ([], {}, lambda x: np.where(MASK, 0.5, x)),
    "Expand": (["wide"], {}, lambda x: np.broadcast_to(x, (4, 2, 3))),
    "Identity": ([], {}, lambda x: x),
    "Slice": (["first", "last", "first"], {}, lambda x: x[:, 1:]),
    "Gather": (["row"], {"axis": 0}, lambda x: x[-1]),
    "Pad": (["pads"], {}, lambda x: np.pad(x, ((1, 2), (0, 3)))),
    "Concat": (["x"] * 8, {"axis": 1}, lambda x: np.concatenate([x] * 9, 1)),
}


@pytest.mark.parametrize("op", CASES)
def test_ops_that_stand_for_others(tmp_path, op):
    more, attributes, formula = CASES[op]
    inputs = ["mask", "hi", "x"] if op == "Where" else ["x", *more]
    nodes = [node(op, inputs, ["h"], **attributes), node("Tanh", ["h"], ["y"])]
    values = {"lo": np.array(-0.25, "f4"), "hi": np.array(0.5, "f4"), "two": np.array(2.0, "f4")}
    values |= {"wide": np.array([4, 1, 1]), "row": np.array(-1), "pads": np.array([1, 0, 2, 3])}
    values |= {"mask": MASK, "first": np.array([1]), "last": np.array([1 << 60])}
    want = np.tanh(formula(X))
    graph = one_graph(tmp_path, nodes, (2, 3), want.shape, values)
    assert np.abs(graph.run({"x": X})["y"] - want).max() < 1e-14


def test_parts_of_a_split(tmp_path):
    nodes = [
        node("Split", ["x"], ["a", "b", "c"], axis=-1, num_outputs=3),
        node("Mul", ["a", "b"], ["d"]),
        node("Concat", ["c", "d"], ["y"], axis=-1),
    ]
    x = RNG.normal(size=(2, 8))
    y = one_graph(tmp_path, nodes, (2, 8), (2, 5), opset=18).run({"x": x})["y"]
    assert_same_bits(y, np.concatenate((x[:, 6:], x[:, :3] * x[:, 3:6]), 1))


def test_infinity_where_a_mask_says_so(tmp_path):
    """The causal mask of an attention: softmax of what is left, and its gradient."""
    nodes = [
        node("Mul", ["x", "w"], ["h"]),
        node("Where", ["mask", "h", "low"], ["z"]),
        node("Softmax", ["z"], ["y"], axis=-1),
    ]
    mask, w = np.tril(np.ones((3, 3), bool)), drawn(3, 3)
    values = {"mask": mask, "low": np.array(-np.inf, "f4"), "w": w}
    path = save(tmp_path / "m.onnx", nodes, floats(x=(3, 3)), floats(y=(3, 3)), values)
    builder = tiled.Builder.from_onnx(path, ["w"])
    builder.apply("MSELoss", "y", builder.input("t", (3, 3)), name="loss")
    training = builder.training("loss", tiled.SGD(lr=1.0))
    x, t = drawn(3, 3), drawn(3, 3)
    trainer = tiled.plan(training, tiled.siracusa_l2()).trainer(training)
    loss = trainer.step((x, t))
    e = np.exp(x * w.astype(float)) * mask
    y = e / e.sum(1, keepdims=True)
    assert abs(loss - ((y - t) ** 2).mean()) < 1e-6
    dy = 2 * (y - t) / 9
    slope = y * (dy - (dy * y).sum(1, keepdims=True)) * x
    assert np.abs(w - trainer.parameters()["w"] - slope).max() < 1e-6


def test_shared_initialisers_are_read_as_copies(tmp_path):
    """PyTorch writes initialisers of equal values once, with an Identity for each other name."""
    one, zero = np.ones(4, "f4"), np.zeros(4, "f4")
    nodes = [
        node("Identity", ["g"], ["variance"]),
        node("Identity", ["b"], ["mean"]),
        node("Identity", ["b"], ["b2"]),
        node("BatchNormalization", ["x", "g", "b", "mean", "variance"], ["n"]),
        node("Add", ["n", "b2"], ["y"]),
    ]
    inputs, ends = floats(x=(3, 4)), floats(y=(3, 4))
    path = save(tmp_path / "m.onnx", nodes, inputs, ends, {"g": one, "b": zero})
    builder = tiled.Builder.from_onnx(path, ["g", "b", "b2"])
    builder.apply("MSELoss", "y", builder.input("t", (3, 4)), name="loss")
    training = builder.training("loss", tiled.SGD(lr=1.0))
    trainer = tiled.plan(training, tiled.siracusa_l2()).trainer(training)
    x, t = drawn(3, 4), drawn(3, 4)
    trainer.step((x, t))
    slope = (2 * (x / np.sqrt(1 + 1e-5) - t) / 12).sum(0)
    for name in ("b", "b2"):
        assert np.abs(trainer.parameters()[name] + slope).max() < 1e-6


@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((1, 2, 3, 4, 5), (3, 1, 2, 0, 4)),
        ((2, 3, 1, 4, 1, 5), (5, 0, 1, 4, 2, 3)),
        ((1,) * 5, None),
    ],
)
def test_transposes_of_more_than_four_axes(shape, perm):
    b = tiled.Builder("net", dtype=np.float64)
    more = {} if perm is None else {"perm": perm}
    graph = b.graph(b.apply("Transpose", b.input("x", shape), name="y", **more))
    x = RNG.normal(size=shape)
    assert_same_bits(graph.run({"x": x})["y"], x.transpose(perm))


def normalised(tmp_path, product, mode=0):
    """A product, a normalisation by statistics of the file, and their values."""
    image = product == "Conv"
    values = {"w": drawn(4, 3, 2, 2) if image else drawn(3, 4), "c": drawn(4)}
    values |= {"g": drawn(4), "b": drawn(4), "m": drawn(4), "v": np.abs(drawn(4)) + 0.5}
    x, out = ((2, 3, 5, 4), (2, 4, 4, 3)) if image else ((5, 3), (5, 4))
    more = {"training_mode": 1} if mode else {}
    nodes = [
        node(product, ["x", "w", "c"], ["h"], **({} if image else {"beta": 0.5, "alpha": 2.0})),
        node("BatchNormalization", ["h", "g", "b", "m", "v"], ["n", *["p", "q"] * mode], **more),
        node("Relu", ["n"], ["y"]),
    ]
    return save(tmp_path / "m.onnx", nodes, floats(x=x), floats(y=out), values), x, values


def formula_of(values, x, batch=False):
    values = {name: value.astype(float) for name, value in values.items()}
    image = x.ndim == 4
    across = (-1, 1, 1) if image else (-1,)
    h = conv(x, values["w"], values["c"]) if image else 2 * x @ values["w"] + 0.5 * values["c"]
    axes = (0, 2, 3) if image else (0,)
    mean, variance = (h.mean(axes), h.var(axes)) if batch else (values["m"], values["v"])
    mean, inv = mean.reshape(across), 1 / np.sqrt(variance + 1e-5).reshape(across)
    y = (h - mean) * inv * values["g"].reshape(across) + values["b"].reshape(across)
    return np.maximum(y, 0)


@pytest.mark.parametrize("product", ["Conv", "Gemm"])
def test_statistics_of_the_file_are_folded_into_the_product(tmp_path, product):
    path, shape, values = normalised(tmp_path, product)
    graph = tiled.from_onnx(path, dtype=np.float64)
    assert [node.op for node in graph.nodes] == [product, "Relu"]
    x = RNG.normal(size=shape)
    assert np.abs(graph.run({"x": x})["y"] - formula_of(values, x)).max() < 1e-12


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("product", ["Conv", "Gemm"])
def test_trained_products_keep_their_normalisation(tmp_path, product, mode):
    """Gradients of weights, scale and bias are differences, for either kind of statistics."""
    path, shape, values = normalised(tmp_path, product, mode)
    names = ["w", "c", "g", "b"]
    builder = tiled.Builder.from_onnx(path, names, dtype=np.float64)
    target = RNG.normal(size=builder.graph("y").tensors["y"].shape)
    builder.apply("MSELoss", "y", builder.input("t", target.shape), name="loss")
    training = builder.training("loss")
    x = RNG.normal(size=shape)
    inputs = {"x": x, "t": target, training.reset: np.array([True]), **training.initial}
    inputs |= {t: np.zeros(training.train.tensors[t].shape) for t in training.accumulators}
    found = training.train.run(inputs)
    assert np.isclose(found["loss"], ((formula_of(values, x, mode) - target) ** 2).mean())
    for name, end in zip(training.parameters, training.train.outputs[1:], strict=True):
        direction = RNG.normal(size=found[end].shape)
        ends = [
            ((formula_of({**values, name: values[name] + s * direction}, x, mode) - target) ** 2)
            for s in (1e-6, -1e-6)
        ]
        slope = (ends[0].mean() - ends[1].mean()) / 2e-6
        # 1e-12 of the third derivative, and rounding of 1e-16 / 1e-6
        assert abs(slope - np.vdot(found[end], direction)) < 1e-7 * max(1.0, abs(slope)), name


def test_what_depends_on_constants_alone_is_computed(tmp_path):
    """The shape arithmetic of x.view(x.size(0), -1), and a product of constants."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "first"], ["n1"]),
        node("Concat", ["n1", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["r"]),
        node("Transpose", ["w"], ["wt"]),
        node("MatMul", ["r", "wt"], ["y"]),
    ]
    w = drawn(2, 12)
    values = {"zero": np.array(0), "first": np.array([0]), "rest": np.array([-1]), "w": w}
    graph = one_graph(tmp_path, nodes, (5, 3, 4), (5, 2), values)
    assert [node.op for node in graph.nodes] == ["Reshape", "MatMul"]
    x = RNG.normal(size=(5, 3, 4))
    assert np.abs(graph.run({"x": x})["y"] - x.reshape(5, -1) @ w.T).max() < 1e-12


def test_shapes_are_inferred_again_from_what_was_computed(tmp_path):
    """x.expand(...).view(x.size(0), -1) as PyTorch writes it."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Equal", ["s", "minus"], ["e"]),
        node("Where", ["e", "ones", "s"], ["wide"]),
        node("Expand", ["x", "wide"], ["h"]),
        node("Shape", ["h"], ["s2"]),
        node("Gather", ["s2", "zero"], ["n"]),
        node("Unsqueeze", ["n", "first"], ["n1"]),
        node("Concat", ["n1", "minus"], ["shape"], axis=0),
        node("Reshape", ["h", "shape"], ["y"]),
    ]
    values = {"zero": np.array(0), "first": np.array([0]), "minus": np.array([-1])}
    values["ones"] = np.array([1, 1, 1])
    graph = one_graph(tmp_path, nodes, (5, 3, 4), (5, 12), values)
    x = RNG.normal(size=(5, 3, 4))
    assert_same_bits(graph.run({"x": x})["y"], x.reshape(5, 12))


def test_functions_of_a_file_are_inlined(tmp_path):
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    body = [node("Sigmoid", ["a"], ["s"]), node("Mul", ["a", "s"], ["o"])]
    function = helper.make_function("own", "Swish", ["a"], ["o"], body, sets[:1])
    graph = helper.make_graph(
        [node("Swish", ["x"], ["y"], domain="own")],
        "g",
        *([helper.make_tensor_value_info(n, TensorProto.FLOAT, (3,))] for n in "xy"),
    )
    model = helper.make_model(graph, opset_imports=sets, functions=[function])
    onnx.save(model, tmp_path / "m.onnx")
    x = RNG.normal(size=3)
    found = tiled.from_onnx(tmp_path / "m.onnx", dtype=np.float64).run({"x": x})["y"]
    assert np.abs(found - x / (1 + np.exp(-x))).max() < 1e-15


def test_normalisation_of_several_outputs_is_of_the_batch(tmp_path):
    """Before opset 14 training mode is told by the number of outputs."""
    names = ["n", "mean", "variance", "saved_mean", "saved_variance"]
    nodes = [node("BatchNormalization", ["x", "g", "b", "m", "v"], names),
             node("Relu", ["n"], ["y"])]  # fmt: skip
    values = {name: np.abs(drawn(4)) for name in "gbmv"}
    x = RNG.normal(size=(6, 4))
    y = one_graph(tmp_path, nodes, (6, 4), (6, 4), values, opset=13).run({"x": x})["y"]
    h = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    assert np.abs(y - np.maximum(h * values["g"] + values["b"], 0)).max() < 1e-12


def test_layer_normalisation_without_bias(tmp_path):
    nodes = [node("LayerNormalization", ["x", "g"], ["y"], axis=-1)]
    g, x = drawn(6), drawn(4, 6)
    path = save(tmp_path / "m.onnx", nodes, floats(x=(4, 6)), floats(y=(4, 6)), {"g": g})
    found = tiled.from_onnx(path).run({"x": x})["y"]
    b = tiled.Builder("net")
    ends = [b.input("x", (4, 6)), b.parameter("g", g), b.constant("b", np.zeros(6, "f4"))]
    graph = b.graph(b.apply("LayerNormalization", *ends, name="y"))
    assert_same_bits(found, graph.run({"x": x, "g": g})["y"])


def test_one_error_names_all_that_cannot_be_read(tmp_path):
    nodes = [
        node("Floor", ["x"], ["a"], name="size"),
        node("Fft", ["a"], ["b"], name="spectrum"),
        node("Fft", ["b"], ["c"], name="again"),
        node("Dropout", ["c", "half", "yes"], ["d"], name="drop"),
        node("Pow", ["d", "x"], ["y"], name="power"),
    ]
    values = {"half": np.array(0.5, "f4"), "yes": np.array(True)}
    with pytest.raises(GraphError) as error:
        one_graph(tmp_path, nodes, (3,), (3,), values)
    text = str(error.value)
    for part in ("Fft, Floor", "size; could stand in: leave it outside", "nodes spectrum, again"):
        assert part in text
    for part in ("drop (Dropout): it is in training mode", "power (Pow): exponent: got the"):
        assert part in text


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (node("Cast", ["x"], ["y"], to=TensorProto.INT64), "from float32 to int64"),
        (node("BatchNormalization", ["x", "k", "k", "x", "k"], ["y"]), "need a constant stat"),
        (node("Expand", ["x", "x"], ["y"]), "x is computed"),
    ],
)
def test_refusals(tmp_path, bad, match):
    with pytest.raises(GraphError, match=match):
        one_graph(tmp_path, [bad], (3,), (3,), {"k": np.ones(3, "f4")})


def test_a_mask_is_a_third_input(tmp_path):
    """A batch of three arrays: trainer and C take them in the order of the file's inputs."""
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Mul", ["h", "mask"], ["y"]),
        node("Sub", ["y", "t"], ["e"]),
        node("Mul", ["e", "e"], ["q"]),
        node("ReduceSum", ["q"], ["loss"], keepdims=0),
    ]
    w, batch = drawn(4, 3), (drawn(5, 4), drawn(5, 3), RNG.integers(0, 2, (5, 3)).astype("f4"))
    inputs = floats(x=(5, 4), t=(5, 3), mask=(5, 3))
    path = save(tmp_path / "m.onnx", nodes, inputs, floats(loss=()), {"w": w})
    training = tiled.Builder.from_onnx(path, ["w"]).training("loss", tiled.SGD(lr=1.0))
    assert training.batch == ("x", "t", "mask")
    plan = tiled.plan(training, tiled.siracusa_l2(l1=2_000))
    trainer = plan.trainer(training)
    with pytest.raises(ParameterError, match="3 arrays: x, t, mask"):
        trainer.step(batch[:2])
    loss = trainer.step(batch)
    x, t, mask = (value.astype(float) for value in batch)
    error = (x @ w) * mask - t
    assert abs(loss - (error**2).sum()) < 1e-4
    assert np.abs(w - trainer.parameters()["w"] - x.T @ (2 * error * mask)).max() < 1e-4
    plan.generate_c(tmp_path / "c", training, [batch])
    build(tmp_path / "c", "-O1")
    assert_bits_and_cycles(tmp_path / "c", plan, 1, 1)
