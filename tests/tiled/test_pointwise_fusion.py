"""Fused chains (`tiled_fused`) and epilogues: the bits of the unfused graphs, in fewer nodes."""

from dataclasses import replace

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import GraphError
from rpukit.testing import assert_same_bits, on_cpu
from tests.tiled.test_c_kernels import assert_same_for
from tests.tiled.test_codegen import SANITIZE, build

UNARY = ("Relu", "Gelu", "Tanh", "Sigmoid", "HardSwish", "Exp", "Clip", "LeakyRelu", "Erf")
BINARY = ("Add", "Sub", "Mul", "ReluGrad", "TanhGrad", "GeluGrad")
SHAPES = ((3, 4, 5), (4, 5), (5,), (3, 1, 5), (), (1,))


def random_graph(rng, n_nodes=24):
    """Elementwise ops of random operands, with transposes and sums between."""
    b = tiled.Builder("random")
    names = [b.input(f"x{k}", shape) for k, shape in enumerate(SHAPES)]
    names += [b.constant("half", 0.5), b.constant("zero", -0.0)]
    for _ in range(n_nodes):
        draw, pool = rng.random(), names[-8:] if rng.random() < 0.7 else names
        first, second = (str(rng.choice(pool)) for _ in range(2))
        shapes = [b._sketch.tensors[name].shape for name in (first, second)]
        if draw < 0.3:
            names.append(b.apply(str(rng.choice(UNARY)), first))
        elif draw < 0.4 and len(shapes[0]) == 3:
            names.append(b.apply("Transpose", first, perm=(0, 2, 1)))
        elif draw < 0.45 and len(shapes[0]) > 1:
            names.append(b.apply("ReduceMean", first, axes=(-1,)))
        elif draw < 0.55 and shapes[0]:
            axis, step = int(rng.integers(len(shapes[0]))), int(rng.choice([1, 1, 2]))
            begin, end = sorted(rng.choice(shapes[0][axis] + 1, 2, replace=False).tolist())
            part = {"starts": (begin,), "ends": (end,), "axes": (axis,), "steps": (step,)}
            names.append(b.apply("Slice", first, **part))
        else:
            try:
                names.append(b.apply(str(rng.choice(BINARY)), first, second))
            except GraphError:  # shapes that do not match
                continue
    outputs = [names[-1], *rng.choice(names[len(SHAPES) + 2 :], 2)]
    return b.graph(*dict.fromkeys(map(str, outputs)))


def test_random_graphs_have_the_bits_of_the_unfused():
    rng = np.random.default_rng(1)
    fused = parts = before = after = 0
    for _ in range(60):
        graph = random_graph(rng)
        less = tiled.fuse(graph)
        values = {
            name: rng.normal(size=graph.tensors[name].shape).astype("f4") for name in graph.inputs
        }
        want, found = graph.run(values), less.run(values)
        assert list(want) == list(found)
        for name, value in want.items():
            assert_same_bits(found[name], value)
        before, after = before + len(graph.nodes), after + len(less.nodes)
        fused += sum(node.op == "FusedPointwise" for node in less.nodes)
        parts += sum("starts" in node.attributes for node in less.nodes if node.op != "Slice")
    assert fused > 60 and parts > 8 and after < 0.75 * before


def test_slices_of_gates_are_no_copies():
    """The parts of a product's result that gates read are inputs of their chain."""
    rng = np.random.default_rng(3)
    b = tiled.Builder("gates")
    x, y = b.input("x", (5, 8)), b.input("y", (5, 6))
    every = b.apply("Gemm", x, b.parameter("w", rng.normal(size=(8, 12))))
    parts = [b.apply("Slice", every, starts=(k,), ends=(k + 6,), axes=(1,)) for k in (0, 6)]
    h = b.apply("Mul", b.apply("Sigmoid", parts[0]), b.apply("Tanh", parts[1]))
    training = b.training(b.apply("MSELoss", h, y), tiled.SGD(lr=0.1))
    less = tiled.fuse(training)
    assert "Slice" in {node.op for node in training.train.nodes}
    assert "Slice" not in {node.op for node in less.train.nodes}
    batch = tuple(rng.normal(size=(5, n)).astype(np.float32) for n in (8, 6))
    plans = [tiled.plan(one, tiled.siracusa_l2(l1=1_000)) for one in (training, less)]
    both = [plan.trainer(one) for plan, one in zip(plans, (training, less), strict=True)]
    assert_same_bits(*(trainer.fit([batch] * 3) for trainer in both))
    assert_same_bits(*(trainer.parameters()["w"] for trainer in both))
    assert plans[1].cycles < plans[0].cycles


def net(dtype="float32", optimiser=None):
    """Normalised convolutions, a gated unit and a residual, with mini-batches."""
    rng = np.random.default_rng(2)
    b = tiled.Builder("net", dtype=dtype)
    x, t = b.input("x", (2, 3, 6, 5)), b.input("t", (2, 6, 7))

    def weights(name, *shape):
        return b.parameter(name, rng.normal(size=shape) * 0.4)

    h = b.apply("Conv", x, weights("k", 6, 3, 3, 3), pads=(1, 1, 1, 1))
    ones = [weights(f"bn{k}", 6) for k in range(2)]
    h = b.apply(
        "BatchNormInternal", h, *ones, b.constant("m", [0.0] * 6), b.constant("v", [1] * 6)
    )
    h = b.apply("Clip", b.apply("Mul", h, b.apply("Sigmoid", h)), min=0.0, max=1.5)
    rows = b.apply("Reshape", h, shape=(2, 6, 30))
    h = b.apply("Add", b.apply("MatMul", rows, weights("w", 30, 7)), weights("c", 7))
    scale = b.constant("scale", 0.25)
    scores = b.apply("Mul", b.apply("MatMul", h, b.apply("Transpose", h, perm=(0, 2, 1))), scale)
    mixed = b.apply("MatMul", b.apply("Softmax", scores), h)
    h = b.apply("Add", b.apply("MatMul", mixed, weights("o", 7, 7)), h)
    h = b.apply("Mul", b.apply("Tanh", h), b.apply("Exp", b.apply("Mul", h, scale)))
    training = b.training(b.apply("MSELoss", h, t), optimiser)
    shapes = ((2, 3, 6, 5), (2, 6, 7))
    return training, [tuple(rng.normal(size=s).astype(dtype) for s in shapes) for _ in range(2)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_net_trains_with_the_same_bits(dtype):
    training, batches = net(dtype, tiled.Adam(lr=0.01))
    fused = tiled.fuse(training)
    ops = [node.op for node in fused.train.nodes]
    assert {"FusedPointwise", "Gemm"} <= set(ops) and len(ops) < len(training.train.nodes) - 8
    gemms = {node.attributes.get("alpha", 1.0) for node in fused.train.nodes if node.op == "Gemm"}
    assert 0.25 in gemms and any(len(n.inputs) == 3 for n in fused.train.nodes if n.op == "Gemm")
    found = []
    for one in (
        training,
        fused,
        tiled.fuse_updates(fused),
        tiled.fuse(tiled.fuse_updates(training)),
    ):
        plan = tiled.plan(one, tiled.siracusa_l2(l1=6_000), buffering="single")
        trainer = plan.trainer(one, transfers="mixed")
        found.append((plan, trainer.fit(batches), trainer.parameters()))
    (plan, losses, ends), *others = found
    assert others[0][0].cycles < 0.9 * plan.cycles
    for _, own, values in others:
        assert_same_bits(own, losses)
        for name in training.parameters:
            assert_same_bits(values[name], ends[name])


def test_kernels_and_cuts_of_the_fused_net():
    training, batches = net()
    fused = tiled.fuse(training)
    want = tiled.plan(training, tiled.siracusa_l2()).trainer(training).step(batches[0])
    with on_cpu(order=7):
        plan = tiled.plan(fused, tiled.gpu(5_000))
        assert plan.trainer(fused).step(batches[0]) == want
    assert max(op.n_tiles for op in plan.ops() if op.op == "FusedPointwise") > 1


def test_generated_c_of_the_fused_net(tmp_path):
    training, batches = net(optimiser=tiled.SGD(lr=0.05))
    fused = tiled.fuse(training)
    plan = tiled.plan(fused, tiled.siracusa_l2(l1=4_000), buffering="single")
    plan.generate_c(tmp_path, fused, batches)
    text = (tmp_path / "kernels.c").read_text()
    assert "chain_1(" in text
    build(tmp_path, *SANITIZE)
    assert_same_for(tmp_path, 1, 3)


def test_a_value_is_read_before_it_is_changed_in_place():
    """A chain may not end after a node that changes what its first step reads."""
    x, g = tiled.Tensor("x", (4, 8)), tiled.Tensor("g", (4, 8))
    node = tiled.Node
    graph = tiled.make_graph(
        "in_place",
        [
            node("a", "Tanh", ("w",), ("a",)),
            node("step", "SGD", ("w", "a"), ("w2",), {"lr": 0.5}),
            node("b", "Mul", ("a", "w2"), ("b",)),
            node("c", "Exp", ("b",), ("c",)),
            node("d", "Add", ("c", "x"), ("d",)),
        ],
        [x, g, tiled.Tensor("w", (4, 8))],
        ["d", "w2"],
    )
    fused = tiled.fuse(graph)
    assert [n.op for n in fused.nodes] == ["Tanh", "SGD", "FusedPointwise"]
    rng = np.random.default_rng(4)
    values = {name: rng.normal(size=(4, 8)).astype("f4") for name in graph.inputs}
    want, found = graph.run(values), fused.run(values)
    for name in want:
        assert_same_bits(found[name], want[name])


def test_no_chain_exceeds_the_kernel():
    b = tiled.Builder("wide")
    inputs = [b.input(f"x{k}", (3, 7)) for k in range(30)]
    h, seen = inputs[0], []
    for k, name in enumerate(inputs[1:]):
        h = b.apply("Mul", b.apply("Add", h, name), b.constant(f"c{k}", 1 + 0.1 * k))
        seen.append(h)
    graph = b.graph(h, *seen[::3])
    fused = tiled.fuse(graph)
    chains = [node for node in fused.nodes if node.op == "FusedPointwise"]
    assert 4 <= len(chains) < 20
    for node in chains:
        assert len(node.inputs) <= 8 and len(node.outputs) <= 4
        assert len(node.attributes["constants"]) <= 8 and len(node.attributes["steps"]) <= 92
    values = {name: np.ones((3, 7), "f4") for name in graph.inputs}
    want, found = graph.run(values), fused.run(values)
    for name in want:
        assert_same_bits(found[name], want[name])


def test_chains_that_do_not_match_are_refused():
    b = tiled.Builder("silu")
    x = b.input("x", (4, 8))
    graph = tiled.fuse(b.graph(b.apply("Mul", x, b.apply("Sigmoid", x))))
    (node,) = graph.nodes
    wrong = {
        "steps": {"steps": (12, 1, 16, 5, 3, 2, 17, 0, 16)},
        "follow": {"axes": (-1, -1, 0, 0)},
        "need 4 for each": {"axes": (0, 1)},
        "need at most 4": {"shape": (4, 8, 1, 1, 1)},
        "results": {"results": (31,)},
    }
    for match, attributes in wrong.items():
        odd = replace(node, attributes={**node.attributes, **attributes})
        with pytest.raises(GraphError, match=match):
            tiled.make_graph("odd", [odd], [graph.tensors["x"]], graph.outputs)
    with pytest.raises(GraphError, match="missing; use fuse_pointwise"):
        tiled.make_graph(
            "odd", [replace(node, attributes={})], [graph.tensors["x"]], graph.outputs
        )


def test_parts_of_a_fused_training():
    """Frozen parameters take their steps of chains with them; recomputation runs chains again."""
    training, batches = net()
    fused = tiled.fuse(training)
    for way in (
        lambda one: tiled.methods.freeze(one, "k", "bn*", "w"),
        lambda one: tiled.methods.train_last(one, 1),
        lambda one: tiled.methods.recompute(one, tiled.siracusa_l2(), limit=14_200),
    ):
        parts = [way(training), way(fused)]
        found = []
        for part in parts:
            plan = tiled.plan(part, tiled.siracusa_l2(l1=6_000), buffering="single")
            trainer = plan.trainer(part)
            found.append((trainer.fit(batches), trainer.parameters(), plan.cycles))
        (losses, ends, cycles), (own, values, fewer) = found
        assert_same_bits(own, losses)
        assert fewer < cycles and set(values) == set(ends)
        for name, value in ends.items():
            assert_same_bits(values[name], value)
        nodes = parts[1].train.nodes
        read = {name for node in nodes for name in node.inputs} | set(parts[1].train.outputs)
        for node in nodes:
            assert node.op != "FusedPointwise" or read.issuperset(node.outputs)


@pytest.mark.parametrize("optimiser", [tiled.SGD(lr=0.1), tiled.Adam(lr=0.01)])
def test_transposed_weights_cost_no_copy(optimiser):
    """Layers as PyTorch exports them: MatMul with a transposed weight, gradients transposed."""
    rng = np.random.default_rng(6)
    b = tiled.Builder("turned")
    h, t = b.input("x", (2, 5, 8)), b.input("t", (2, 5, 4))
    for k, (wide, deep) in enumerate(((8, 6), (6, 4))):
        w = b.parameter(f"w{k}", rng.normal(size=(deep, wide)))
        h = b.apply("MatMul", h, b.apply("Transpose", w, perm=(1, 0)))
        h = b.apply("Add", h, b.parameter(f"c{k}", rng.normal(size=deep)))
        h = b.apply("Tanh", h)
    training = b.training(b.apply("MSELoss", h, t), optimiser)
    fused = tiled.fuse(training)
    assert "Transpose" in {node.op for node in training.train.nodes}
    assert {node.op for node in fused.train.nodes}.isdisjoint({"Transpose", "MatMul", "Add"})
    batch = rng.normal(size=(2, 5, 8)).astype("f4"), rng.normal(size=(2, 5, 4)).astype("f4")
    ends = []
    for one in (training, fused, tiled.fuse(tiled.fuse_updates(training))):
        trainer = tiled.plan(one, tiled.siracusa_l2(l1=2_000)).trainer(one)
        ends.append((trainer.fit([batch, batch]), trainer.parameters()))
    for losses, values in ends[1:]:
        assert_same_bits(losses, ends[0][0])
        for name, value in values.items():
            assert_same_bits(value, ends[0][1][name])


def test_parts_have_the_numbers_of_copies():
    """A kernel gets packed rectangles: it cannot tell a part of a tensor from a copy of it."""
    shape = (5, 6)
    chain = {"steps": (3, 2, 16, 0, 1), "constants": (), "results": (16,), "shape": shape}
    chain |= {"axes": (-1, -1, 0, 1, -1, -1, -1, 1)}
    parts = chain | {"starts": (0, 0, 2, 4, 0, 0, 0, 3)}
    sizes = {"part": ((9, 12), (11,)), "copy": (shape, (6,))}
    spaces, numbers = [], []
    for kind, attributes in (("part", parts), ("copy", chain)):
        tensors = {key: tiled.Tensor(key, n) for key, n in zip("xs", sizes[kind], strict=True)}
        tensors["y"] = tiled.Tensor("y", shape)
        node = tiled.Node("n", "FusedPointwise", ("x", "s"), ("y",), attributes)
        op = tiled.ops.find(node.op)
        spaces.append(op.space(node, tensors))
        boxes = list(spaces[-1].tiles((2, 4)))
        numbers.append([op.parameters(node, tensors, box) for box in boxes])
        assert op.macros(node)["CHAIN"] == "3,2,16,0,1"
    for own, other in zip(*numbers, strict=True):
        assert_same_bits(*(np.concatenate(one) for one in (own, other)))
    for first, second in zip(spaces[0].operands, spaces[1].operands, strict=True):
        assert spaces[0].worst(first, (2, 4)) == spaces[1].worst(second, (2, 4))
    assert spaces[0].rectangle(spaces[0].operands[0], boxes[0]) == ((2, 4), (4, 8))
