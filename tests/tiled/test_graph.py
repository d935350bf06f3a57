"""Graphs: order, shapes, aliases, and what is refused."""

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import DTypeError, FormatError, GraphError, ParameterError, ShapeError
from rpukit.tiled import Axis, Node, Tensor, TileSpace, make_graph, ops
from rpukit.tiled.runtime.reference import mirror

X = Tensor("x", (4, 6))
FLAG = Tensor("flag", (1,), "bool")


def node(op, inputs, outputs, **attributes):
    return Node(f"{op}_{outputs}", op, tuple(inputs.split()), tuple(outputs.split()), attributes)


def test_nodes_are_brought_into_order():
    """Each as late in the list as it can be, and views share memory with what they show."""
    nodes = [
        node("Relu", "c", "d"),
        node("Reshape", "b", "c", shape=(3, -1)),
        node("Flatten", "a", "b", axis=0),
        node("Relu", "x", "a"),
    ]
    graph = make_graph("g", nodes, [X], ["d"])
    assert [n.outputs[0] for n in graph.nodes] == ["a", "b", "c", "d"]
    assert graph.tensors["d"].shape == (3, 8)
    assert graph.aliases == {"b": "a", "c": "a"}
    x = np.arange(24, dtype=np.float32).reshape(4, 6) - 9
    assert (graph.run({"x": x})["d"] == np.maximum(x, 0).reshape(3, 8)).all()


def test_parts_know_the_node_they_are_of():
    labels = Tensor("k", (4,), "int64")
    loss = node("SoftmaxCrossEntropyLoss", "x k", "loss")
    graph = make_graph("g", [loss], [X, labels], ["loss"])
    assert [n.op for n in graph.nodes] == ["LogSoftmax", "NLLLoss"]
    assert {n.origin for n in graph.nodes} == {loss.name}
    assert graph.tensors["loss"].shape == ()


REFUSED = {
    "unknown ops": [node("Conv3D", "x", "a"), node("Fft", "x", "b")],
    "already produced": [node("Relu", "x", "a"), node("Tanh", "x", "a")],
    "neither produced by a node nor an input: b": [node("Relu", "b", "a")],
    "has a cycle: Relu_a, Relu_b": [node("Relu", "b", "a"), node("Relu", "a", "b")],
    "the same name": [node("Relu", "x", "a")] * 2,
    "output a is not produced by any node": [node("Relu", "x", "b")],
    r"\(4, 6\) and \(4, 6\) do not match": [node("Gemm", "x x", "a")],
    "got 1 inputs, need 2": [node("Add", "x", "a")],
    "got dtype|dtype": [node("Add", "x flag", "a")],
    "cannot reshape": [node("Reshape", "x", "a", shape=(5, 5))],
    "perm": [node("Transpose", "x", "a", perm=(0, 0))],
    "axis: got 7": [node("Softmax", "x", "a", axis=7)],
    r"need \(N, C, H, W\)": [node("MaxPool", "x", "a", kernel_shape=(2, 2))],
    "one bool": [node("InPlaceAccumulatorV2", "x x x", "a")],
    "which InPlaceAccumulatorV2_b has changed": [
        node("InPlaceAccumulatorV2", "x x flag", "b"),
        node("Add", "x b", "a"),
    ],
    "int64": [node("SoftmaxCrossEntropyLoss", "x x", "a")],
    "axes: got": [node("ReduceSum", "x", "a", axes=(2,))],
    "approximate": [node("Gelu", "x", "a", approximate="tanh")],
}


@pytest.mark.parametrize("text", REFUSED)
def test_malformed_graphs_are_refused(text):
    with pytest.raises(GraphError, match=text):
        make_graph("g", REFUSED[text], [X, FLAG], ["a"])


def test_all_unknown_ops_are_named():
    with pytest.raises(GraphError, match="Conv3D, Fft"):
        make_graph("g", REFUSED["unknown ops"], [X], ["a"])


def test_images_that_do_not_fit_are_refused():
    x, w = Tensor("x", (1, 4, 5, 5)), Tensor("w", (6, 4, 3, 3))
    for attributes, text in (
        ({"group": 2}, "do not match 4 input"),
        ({"kernel_shape": (2, 2)}, "kernel_shape"),
        ({"auto_pad": "SAME_UPPER"}, "auto_pad"),
        ({"strides": (1,)}, "strides"),
    ):
        with pytest.raises(GraphError, match=text):
            make_graph("g", [node("Conv", "x w", "y", **attributes)], [x, w], ["y"])
    with pytest.raises(GraphError, match="no window fits"):
        make_graph("g", [node("MaxPool", "x", "y", kernel_shape=(6, 6))], [x], ["y"])


def test_bad_inputs_of_a_run_are_refused():
    graph = make_graph("g", [node("Relu", "x", "a")], [X], ["a"])
    with pytest.raises(GraphError, match="x is missing"):
        graph.run({})
    with pytest.raises(ShapeError, match="need \\(4, 6\\)"):
        graph.run({"x": np.ones((6, 4), np.float32)})
    with pytest.raises(DTypeError, match="need float32"):
        graph.run({"x": np.ones((4, 6))})
    with pytest.raises(GraphError, match="dtype"):
        Tensor("x", (2,), "complex64")


def test_a_label_out_of_range_gives_nan():
    labels = Tensor("k", (2,), "int64")
    parts = [node("LogSoftmax", "x", "p"), node("CrossEntropyGrad", "p k", "g")]
    graph = make_graph("g", parts, [Tensor("x", (2, 3)), labels], ["g"])
    done = graph.run({"x": np.zeros((2, 3), np.float32), "k": np.array([1, 3])})["g"]
    assert np.isfinite(done[0]).all()
    assert np.isnan(done[1]).all()


def test_absent_inputs_and_outputs():
    """An empty name stands for what is not there."""
    x, w = Tensor("x", (1, 2, 5, 5)), Tensor("w", (3, 2, 3, 3))
    plain = Node("c", "Conv", ("x", "w", ""), ("y",))
    dy = Tensor("dy", (1, 3, 3, 3))
    grad = Node("g", "ConvGrad", ("dy", "x", "w"), ("", "dw"), {"kernel_shape": (3, 3)})
    graph = make_graph("g", [plain, grad], [x, w, dy], ["y", "dw"])
    assert graph.tensors["y"].shape == (1, 3, 3, 3)
    assert [n.op for n in graph.nodes] == ["Conv", "ConvGradW"]
    with pytest.raises(GraphError, match="need 2 to 3"):
        make_graph("g", [Node("c", "Conv", ("x", ""), ("y",))], [x, w], ["y"])


def test_files_that_are_not_onnx_are_refused(tmp_path):
    path = tmp_path / "network.onnx"
    path.write_bytes(b"\x00\x01not a model")
    with pytest.raises(FormatError, match="ONNX"):
        tiled.from_onnx(path)
    with pytest.raises(FileNotFoundError):
        tiled.from_onnx(tmp_path / "none.onnx")


def test_cuts_of_sums():
    """A sum is cut along its outermost axis that is longer than 1, at multiples of its quantum."""
    axes = (Axis("m", 4), Axis("n", 3, "reduce"), Axis("h", 6, "reduce", 2))
    space = TileSpace(axes, ())
    assert len(list(space.tiles((2, 1, 2)))) == 2 * 3 * 3
    assert len(list(space.tiles((4, 2, 6)))) == 2
    for extents, text in (((4, 2, 4), "outer axis of the sum"), ((4, 1, 3), "multiples of 2")):
        with pytest.raises(ParameterError, match=text):
            list(space.tiles(extents))
    with pytest.raises(ParameterError, match="need 3"):
        list(space.tiles((4, 1)))
    first = ((0, 4), (0, 1), (0, 6))
    assert space.first(first)
    assert not space.last(first)
    assert space.last(((0, 4), (2, 3), (0, 6)))
    assert space.elements(first) == 24
    assert space.macs(first) == 0


KERNELS = [
    "tiled_accumulate",
    "tiled_advance",
    "tiled_analog_inputs",
    "tiled_analog_outputs",
    "tiled_analog_scale",
    "tiled_analog_trains",
    "tiled_analog_update",
    "tiled_arg_max",
    "tiled_concat",
    "tiled_conv",
    "tiled_conv_grad_w",
    "tiled_conv_grad_x",
    "tiled_cross_entropy_grad",
    "tiled_dequantise",
    "tiled_fused",
    "tiled_gather_rows",
    "tiled_gemm",
    "tiled_label_weights",
    "tiled_layer_norm",
    "tiled_layer_norm_grad",
    "tiled_map",
    "tiled_nll",
    "tiled_pool",
    "tiled_pool_grad",
    "tiled_quantise",
    "tiled_quantise_grad",
    "tiled_rank_update",
    "tiled_reduce",
    "tiled_scatter_rows",
    "tiled_softmax",
    "tiled_softmax_grad",
    "tiled_update",
]


def test_every_op_has_its_kernel():
    """Tried with each op in `test_ops`, `test_kernels` and `test_analog_ops`."""
    found = {op.kernel: op for op in ops.OPS.values() if isinstance(op, ops.Tiled)}
    assert sorted(found) == KERNELS
    for name, op in found.items():
        assert callable(mirror(op, np.float32)), name
    with pytest.raises(GraphError, match="Nothing"):
        ops.find("Nothing")
