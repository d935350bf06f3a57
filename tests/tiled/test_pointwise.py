"""Training graphs of all elementwise ops, and of parts: tiles and C have the bits of the whole."""

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import GraphError
from rpukit.testing import assert_same_bits, on_cpu
from tests.tiled.test_autodiff import parts, pointwise
from tests.tiled.test_codegen import assert_bits_and_cycles, build

NETS = {"pointwise": (pointwise, (12, 8), 1_200), "parts": (parts, (4, 9), 300)}


def trained(name, n_classes=5):
    """Two steps of a graph, with ignored labels and weights of classes."""
    net, shape, _ = NETS[name]
    b = tiled.Builder(name)
    scores = net(b, b.input("x", shape))
    weights = b.constant("weights", np.linspace(0.5, 2.0, n_classes))
    labels = b.input("t", shape[:1], np.int64)
    loss = b.apply("SoftmaxCrossEntropyLoss", scores, labels, weights, ignore_index=-100)
    rng = np.random.default_rng(3)
    batches = []
    for _ in range(2):
        t = rng.integers(0, n_classes, shape[0])
        t[1::3] = -100
        batches.append((rng.normal(size=shape).astype(np.float32), t))
    return b.training(loss, tiled.SGD(lr=0.05)), batches


@pytest.mark.parametrize("net", NETS)
def test_tiles_and_c_have_the_bits_of_the_whole(tmp_path, net):
    (training, batches), small = trained(net), NETS[net][2]
    ends = []
    for l1, buffering in ((small, "auto"), (64_000, "single")):
        plan = tiled.plan(training, tiled.siracusa_l2(l1=l1), buffering=buffering)
        trainer = plan.trainer(training)
        ends.append((trainer.fit(batches), trainer.parameters()))
        assert any(op.n_tiles > 1 for op in plan.ops()) == (l1 == small)
    (losses, weights), (same_losses, same_weights) = ends
    assert np.isfinite(losses).all() and list(losses) == list(same_losses)
    for name, value in weights.items():
        assert_same_bits(value, same_weights[name])
        assert np.isfinite(value).all() and not np.array_equal(value, training.initial[name])
    plan = tiled.plan(training, tiled.siracusa_l2(l1=small))
    plan.generate_c(tmp_path, training, batches)
    build(tmp_path, "-O2")
    assert_bits_and_cycles(tmp_path, plan, len(batches), len(batches))


@pytest.mark.parametrize("exponent", [0.3, 65.0, None])
def test_exponents_that_have_no_product_are_refused(exponent):
    b = tiled.Builder("net")
    more = {} if exponent is None else {"exponent": exponent}
    with pytest.raises(GraphError, match="exponent: got .* multiple of 0.5"):
        b.apply("Pow", b.input("x", (3,)), **more)


def test_elementwise_ops_keep_infinities_and_nan():
    """Limits of the functions, and NaN of NaN, on every path."""
    ends = {
        "Clip": ([-3.4028234663852886e38, 1], {"max": 1.0}),
        "LeakyRelu": ([-np.inf, np.inf], {}),
        "HardSigmoid": ([0, 1], {}),
        "HardSwish": ([np.nan, np.inf], {}),
        "Sqrt": ([np.nan, np.inf], {}),
        "Exp": ([0, np.inf], {}),
        "Log": ([np.nan, np.inf], {}),
        "Erf": ([-1, 1], {}),
    }
    x = np.array([-np.inf, np.inf, np.nan], np.float32)
    for op, (want, more) in ends.items():
        b = tiled.Builder("net")
        graph = b.graph(b.apply(op, b.input("x", (3,)), name="y", **more))
        found = graph.run({"x": x})["y"]
        np.testing.assert_array_equal(found, np.array([*want, np.nan], np.float32), err_msg=op)
        with on_cpu(order=1):
            np.testing.assert_array_equal(graph.run({"x": x})["y"], found, err_msg=op)
