"""Updates and Relu within products: the bits of the graphs without, with less to move."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import GraphError, ParameterError
from rpukit.testing import assert_same_bits, on_cpu
from tests.tiled.analog_nets import built

OPTIMISERS = [tiled.SGD(lr=0.05), tiled.MomentumSGD(lr=0.05), tiled.Adam(lr=0.01)]
DTYPES = ["float32", "float64", "float32"]


def dense(optimiser, dtype="float32", sizes=(24, 20, 6), bias=True, ended=False):
    """Layers, with biases and products that are ended by Relu if asked for, and mini-batches."""
    rng = np.random.default_rng(5)
    b = tiled.Builder("net", dtype=dtype)
    h, y = b.input("x", (8, sizes[0])), b.input("y", (8, sizes[-1]))
    for k, (n_in, n_out) in enumerate(pairwise(sizes)):
        w = b.parameter(f"w{k}", rng.normal(size=(n_out, n_in)) * 0.3)
        c = (b.parameter(f"c{k}", np.zeros(n_out)),) if bias else ()
        more = {"activation": "Relu"} if ended and k == 0 else {}
        h = b.apply("Gemm", h, w, *c, transB=1, **more)
        h = b.apply("Relu", h) if k == 0 and not ended else h
    ends = sizes[0], sizes[-1]
    batches = [tuple(rng.normal(size=(8, n)).astype(dtype) for n in ends) for _ in range(3)]
    return b.training(b.apply("MSELoss", h, y), optimiser), batches


@pytest.mark.parametrize(("optimiser", "dtype"), [*zip(OPTIMISERS, DTYPES, strict=True)])
def test_one_graph_trains_as_two_do(optimiser, dtype):
    training, batches = dense(optimiser, dtype)
    fused = tiled.fuse_updates(training)
    assert not fused.accumulators and not fused.optimiser.nodes
    levels = tiled.gpu(6_000)
    plans = [tiled.plan(one, levels) for one in (training, fused)]
    trainers = [plan.trainer(one) for plan, one in zip(plans, (training, fused), strict=True)]
    losses = [trainer.fit(batches) for trainer in trainers]
    assert_same_bits(*losses)
    kept = (*training.parameters, *training.state)
    ends = [trainer.parameters(everything=True) for trainer in trainers]
    for name in kept:
        assert_same_bits(ends[0][name], ends[1][name])
    assert set(ends[1]) == set(kept)
    moved = [sum(sum(p.moved["device"]) for p in plan.programs) for plan in plans]
    assert moved[1] < moved[0]


def test_what_has_no_accumulators():
    training, _ = dense(OPTIMISERS[0])
    fused = tiled.fuse_updates(training)
    plan = tiled.plan(fused, tiled.siracusa_l2())
    with pytest.raises(ParameterError, match="no accumulators"):
        plan.trainer(fused, n_accumulate=2)
    with pytest.raises(ParameterError, match="no accumulators"):
        plan.trainer(fused).gradients()
    odd = replace(training, accumulators=(*training.accumulators, "other"))
    with pytest.raises(GraphError, match="other"):
        tiled.fuse_updates(odd)
    analog, steps, _ = built("ideal")  # learns within its graph, too
    plan = tiled.plan(analog, tiled.gpu(40_000))
    losses = plan.trainer(analog).fit(steps[:1])
    kept = {name: analog.initial[name] for name in analog.kept}
    whole = analog.train.run({**kept, "x": steps[0][0], "t": steps[0][1]})
    assert_same_bits(np.float32(losses), whole["loss"].reshape(1))


@cache
def ended(dtype, bias):
    """A net, the same with Relu in products, mini-batches, and losses and ends of the first."""
    training, batches = dense(OPTIMISERS[2], dtype, (24, 132, 6), bias)
    trainer = tiled.plan(training, tiled.siracusa_l2()).trainer(training)
    losses = trainer.fit(batches)
    ends = {**trainer.parameters(everything=True), **trainer.gradients()}
    return training, tiled.fuse_activations(training), batches, losses, ends


@pytest.mark.sweep
@pytest.mark.parametrize(("dtype", "bias"), [("float32", False), ("float64", True)])
@pytest.mark.parametrize("mode", ["at_issue", "at_wait", "mixed", "threads"])
def test_products_end_with_relu(dtype, bias, mode):
    training, fused, batches, losses, ends = ended(dtype, bias)
    ops = [[node.op for node in one.train.nodes] for one in (training, fused)]
    assert sorted([*ops[1], "Relu"]) == sorted(ops[0])
    plan = tiled.plan(fused, tiled.gpu(9_000))
    assert max(op.n_tiles for op in plan.programs[0].ops if op.op == "Gemm") > 1
    trainer = plan.trainer(fused, transfers=mode, seed=1)
    assert_same_bits(trainer.fit(batches), losses)
    found = {**trainer.parameters(everything=True), **trainer.gradients()}
    assert set(found) == set(ends)
    for name, value in found.items():
        assert_same_bits(value, ends[name])


def test_gradients_of_products_that_end_with_relu():
    training, fused, batches, losses, _ = ended("float32", False)
    own = dense(OPTIMISERS[2], "float32", (24, 132, 6), bias=False, ended=True)[0]
    assert_same_bits(tiled.plan(own, tiled.siracusa_l2()).trainer(own).fit(batches), losses)
    relu = next(node for node in training.train.nodes if node.op == "Relu")
    swapped = {relu.outputs[0]: relu.inputs[0]}
    nodes = [
        replace(node, inputs=tuple(swapped.get(name, name) for name in node.inputs))
        if node.op == "ReluGrad"
        else node
        for node in training.train.nodes
    ]  # gradients that take what the Relu takes
    by_input = replace(training, train=replace(training.train, nodes=tuple(nodes)))
    assert tiled.fuse_activations(by_input).train.nodes == fused.train.nodes


def test_relu_stays_where_others_read_the_product():
    b = tiled.Builder("net")
    x, y, w = b.input("x", (3, 4)), b.input("y", (3, 4)), b.parameter("w", np.eye(4))
    h = b.apply("MatMul", x, w)
    training = b.training(b.apply("MSELoss", b.apply("Add", h, b.apply("Relu", h)), y))
    assert tiled.fuse_activations(training).train.nodes == training.train.nodes


def test_ends_of_products():
    node = tiled.Node("n", "Gemm", ("a", "b"), ("y",), {"alpha": -1.0, "activation": "Relu"})
    sizes = {"a": (3, 2), "b": (2, 5), "w": (3, 5)}
    tensors = [tiled.Tensor(*pair) for pair in sizes.items()]
    graph = tiled.make_graph("g", [node], tensors[:2], ["y"])
    values = {"a": np.float32([[np.nan, 1], [0, 0], [1, 2]]), "b": np.ones((2, 5), np.float32)}
    found = [graph.run(values)["y"]]
    with on_cpu(order=1):
        found.append(graph.run(values)["y"])
    for y in found:
        assert_same_bits(y, np.zeros((3, 5), np.float32))  # of NaN, -0 and -3
    for odd in (
        replace(node, attributes={"activation": "Tanh"}),
        replace(node, op="GemmUpdate", inputs=("a", "b", "w")),
    ):
        with pytest.raises(GraphError, match="activation"):
            tiled.make_graph("g", [odd], tensors, ["y"])
