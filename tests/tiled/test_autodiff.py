"""Gradients of our own: against finite differences; optimisers against their formulas."""

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import DTypeError, GraphError, ParameterError
from rpukit.testing import assert_same_bits
from tests.reference.models import train

RNG = np.random.default_rng(5)


def drawn(*shape):
    return RNG.normal(size=shape) * 0.5


def attention(b, x):
    """Tokens of (2, 4, 6): normalisation, products of rank 3 and 4, softmax, GELU."""
    w = [b.parameter(f"w{i}", drawn(6, 6)) for i in range(3)]
    h = b.apply("LayerNormalization", x, b.parameter("g", drawn(6)), b.parameter("c", drawn(6)))
    q, k, v = (b.apply("MatMul", h, weight) for weight in w)
    heads = [b.apply("Reshape", t, shape=(2, 4, 2, 3)) for t in (q, k, v)]
    q, k, v = (b.apply("Transpose", t, perm=(0, 2, 1, 3)) for t in heads)
    scores = b.apply("MatMul", q, b.apply("Transpose", k, perm=(0, 1, 3, 2)))
    scores = b.apply("Softmax", b.apply("Mul", scores, b.constant("scale", 0.577)), axis=-1)
    mixed = b.apply("Transpose", b.apply("MatMul", scores, v), perm=(0, 2, 1, 3))
    mixed = b.apply("Add", b.apply("Reshape", mixed, shape=(2, 4, 6)), x)
    wide = b.apply("Gemm", mixed, b.parameter("w3", drawn(6, 5)), b.parameter("c3", drawn(5)))
    return b.apply("ReduceMean", b.apply("Gelu", wide), axes=(1,), keepdims=0)


def image(b, x):
    """Images of (2, 4, 9, 8): convolutions of all kinds, pools, normalisation, a fan-out."""
    w = [b.parameter(f"w{i}", drawn(*s)) for i, s in enumerate([(6, 2, 3, 3), (6, 1, 3, 3)])]
    more = {"strides": (2, 1), "pads": (1, 1, 0, 1)}
    h = b.apply("Conv", x, w[0], b.parameter("c", drawn(6)), group=2, **more)
    g, c = b.parameter("g1", 1 + drawn(6)), b.parameter("c1", drawn(6))
    h = b.apply("BatchNormInternal", h, g, c, b.constant("m", drawn(6)), b.constant("s", drawn(6)))
    h = b.apply("Relu", h)
    deep = b.apply("Conv", h, w[1], group=6, dilations=(1, 2), pads=(1, 2, 1, 2))
    h = b.apply("Add", b.apply("Tanh", deep), h)
    h = b.apply("MaxPool", h, kernel_shape=(2, 2), strides=(1, 2), pads=(0, 1, 0, 0))
    h = b.apply("AveragePool", h, kernel_shape=(2, 2), strides=(1, 1), pads=(1, 0, 0, 0))
    pooled = b.apply("Flatten", b.apply("GlobalAveragePool", h))
    rest = b.apply("ReduceSum", h, axes=(2, 3), keepdims=0)
    mix = b.apply("Sub", pooled, b.apply("Div", rest, b.parameter("d", 20 + drawn(6))))
    return b.apply("Gemm", mix, b.parameter("w2", drawn(6, 5)), transB=0, alpha=0.5)


def parts(b, x):
    """Rows of (4, 9): parts that overlap, side by side, within zeros."""
    h = b.apply("Mul", x, b.parameter("w0", drawn(9)))
    a = b.apply("Slice", h, starts=(0,), ends=(5,), axes=(1,))
    c = b.apply("Slice", h, starts=(-6, 1), ends=(9, 4), axes=(-1, 0))
    c = b.apply("Place", c, axis=0, before=1, size=4)
    d = b.apply("Concat", a, b.apply("Tanh", c), b.parameter("w1", drawn(4, 2)), axis=1)
    return b.apply("Gemm", d, b.parameter("w2", drawn(13, 5)))


def rows(b, x):
    """Vectors of (3, 4): products turned in all ways, views."""
    w = [b.parameter(f"w{i}", drawn(*s)) for i, s in enumerate([(4, 7), (7, 7), (5, 7)])]
    h = b.apply("Sigmoid", b.apply("Gemm", x, w[0], b.parameter("c", drawn(1, 7)), beta=2.0))
    h = b.apply("Squeeze", b.apply("Unsqueeze", h, axes=(0,)), axes=(0,))
    turned = b.apply("Gemm", w[1], h, transA=1, transB=1)
    return b.apply("Gemm", turned, w[2], transA=1, transB=1)


def pointwise(b, x):
    """Rows of (3, 8): each elementwise op, away from the corners of those that have some."""
    w = [b.parameter(f"w{i}", 3 * drawn(8)) for i in range(9)]
    ends = [
        b.apply("Clip", b.apply("Mul", x, w[0]), min=-0.7, max=0.9),
        b.apply("LeakyRelu", b.apply("Mul", x, w[1]), alpha=0.1),
        b.apply("HardSigmoid", b.apply("Mul", x, w[2])),
        b.apply("HardSwish", b.apply("Mul", x, w[3])),
        b.apply("Erf", b.apply("Mul", x, w[4])),
        b.apply("Pow", b.apply("Mul", x, w[5]), exponent=3.0),
        b.apply("LogSoftmax", b.apply("Mul", x, w[6])),
    ]
    square = b.apply("Pow", b.apply("Mul", x, w[7]), exponent=2.0)
    far = b.apply("Add", b.apply("Exp", b.apply("Mul", x, w[8])), square)
    ends += [b.apply(op, far) for op in ("Sqrt", "Log")]
    ends.append(b.apply("Pow", far, exponent=-0.5))
    scale, none = b.parameter("s", drawn(8)), b.parameter("c", drawn(8))
    statistics = (b.constant("m", drawn(8)), b.constant("inv", 1 + drawn(8) ** 2))
    total = ends[0]
    for end in ends[1:]:
        total = b.apply("Add", total, end)
    total = b.apply("LayerNormalization", total, b.parameter("g", drawn(8)))
    total = b.apply("BatchNormApply", total, *statistics, scale, none)
    return b.apply("Gemm", total, b.parameter("v", drawn(8, 5)))


NETS = {
    "parts": (parts, (4, 9)),
    "pointwise": (pointwise, (3, 8)),
    "attention": (attention, (2, 4, 6)),
    "image": (image, (2, 4, 9, 8)),
    "rows": (rows, (3, 4)),
}


def built(name, loss, dtype="float64"):
    net, shape = NETS[name]
    global RNG
    RNG = np.random.default_rng(11)
    b = tiled.Builder(name, dtype=dtype)
    y = net(b, b.input("x", shape))
    classes = loss == "SoftmaxCrossEntropyLoss"
    target = b.input("t", shape[:1] if classes else (shape[0], 5), "int64" if classes else None)
    values = {
        "x": drawn(*shape),
        "t": RNG.integers(0, 5, shape[0]) if classes else drawn(shape[0], 5),
    }
    return b, b.apply(loss, y, target, name="loss"), values


@pytest.mark.parametrize("loss", ["MSELoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("name", NETS)
def test_gradients_are_differences(name, loss):
    b, end, values = built(name, loss)
    training = b.training(end)
    totals = {
        total: np.zeros(training.train.tensors[total].shape) for total in training.accumulators
    }
    start = {key: training.initial[key] for key in training.parameters}
    whole = training.train.run({**values, **totals, **start, "reset": np.array([True])})
    forward = b.graph(end)
    for number, key in enumerate(training.parameters):
        slope = whole[training.train.outputs[1 + number]]
        direction = np.random.default_rng(number).normal(size=slope.shape)
        ends = [
            forward.run({**values, **start, key: start[key] + sign * 1e-5 * direction})[end]
            for sign in (1, -1)
        ]
        # Second-order differences: an error of 1e-10 of the third derivative, 1e-11 of rounding.
        assert abs((ends[0] - ends[1]) / 2e-5 - np.vdot(slope, direction)) < 1e-8 * max(
            1, np.abs(slope).max()
        )


class Batches:
    """Mini-batches as `train` takes them."""

    n_accum, n_batches = 2, 8

    def batch(self, number):
        rng = np.random.default_rng(number)
        return rng.normal(size=(3, 4)), rng.normal(size=(3, 5))


@pytest.mark.parametrize(
    "optimiser", [tiled.SGD(lr=0.1), tiled.MomentumSGD(lr=0.1), tiled.Adam(lr=0.1)]
)
def test_optimisers(optimiser):
    b, end, _ = built("rows", "MSELoss")
    training = b.training(end, optimiser)
    _, _, result = train(training, Batches(), training.initial)
    w = {key: training.initial[key].copy() for key in training.parameters}
    m, v = ({key: np.zeros_like(value) for key, value in w.items()} for _ in range(2))
    zero = {
        total: np.zeros(training.train.tensors[total].shape) for total in training.accumulators
    }
    for step in range(4):
        sums = dict.fromkeys(w, 0)
        for number in (2 * step, 2 * step + 1):
            x, t = Batches().batch(number)
            out = training.train.run({"x": x, "t": t, **w, **zero, "reset": np.array([True])})
            for key, output in zip(w, training.train.outputs[1:], strict=True):
                sums[key] = sums[key] + out[output]
        for key, g in sums.items():
            if isinstance(optimiser, tiled.SGD):
                w[key] = w[key] - 0.1 * g
            elif isinstance(optimiser, tiled.MomentumSGD):
                m[key] = 0.9 * m[key] + g
                w[key] = w[key] - 0.1 * m[key]
            else:
                m[key] = 0.9 * m[key] + 0.1 * g
                v[key] = 0.999 * v[key] + 0.001 * g * g
                mean, square = m[key] / (1 - 0.9 ** (step + 1)), v[key] / (1 - 0.999 ** (step + 1))
                w[key] = w[key] - 0.1 * mean / (np.sqrt(square) + 1e-8)
    for key, value in w.items():
        assert np.abs(result[key] - value).max() < 1e-9


def test_a_loss_may_be_any_scalar():
    """The loss halved has half the gradients."""
    slopes = []
    for factor in (1.0, 0.5):
        b, end, values = built("rows", "MSELoss", "float32")
        if factor != 1:
            end = b.apply("Mul", end, b.constant("half", factor))
        training = b.training(end)
        values = {key: value.astype(np.float32) for key, value in values.items()}
        totals = {
            t: np.zeros(training.train.tensors[t].shape, "f4") for t in training.accumulators
        }
        flag = {"reset": np.array([True])}
        done = training.train.run({**values, **totals, **training.initial, **flag})
        slopes.append(done["w0_grad.accumulation.out"])
    assert_same_bits(slopes[0] * np.float32(0.5), slopes[1])


def test_what_cannot_be_trained_is_refused():
    b, end, _ = built("rows", "MSELoss")
    b.parameter("idle", np.ones(3))
    with pytest.raises(GraphError, match="idle"):
        b.training(end)
    with pytest.raises(GraphError, match="one element"):
        b.training(b.apply("MatMul", "x", "w0", name="y"))
    with pytest.raises(GraphError, match="taken"):
        b.input("x", (2,))
    with pytest.raises(GraphError, match="nobody"):
        b.apply("Relu", "nobody")
    with pytest.raises(DTypeError):
        tiled.Builder("net", dtype=np.int64)
    with pytest.raises(ParameterError, match="momentum"):
        tiled.MomentumSGD(momentum=1.0)
    other = tiled.Builder("other")
    x, w = other.input("x", (2, 3)), other.parameter("w", np.ones((2, 3)))
    loss = other.apply(
        "ReduceSum", other.apply("LogSoftmax", other.apply("Mul", x, w)), keepdims=0
    )
    with pytest.raises(GraphError, match="two inputs"):
        other.training(loss)
    other.input("t", (2, 3))
    both = other.apply("MSELoss", other.apply("LogSoftmax", w), "t")
    with pytest.raises(GraphError, match=r"two inputs"):
        other.training(both)
    with pytest.raises(GraphError, match="GeluGrad.*has no gradient"):
        other.training(other.apply("MSELoss", other.apply("GeluGrad", x, w), "t"))


@pytest.mark.parametrize("cuts", [(2, 5), (2, 4), tuple(range(1, 9))])
def test_slices_that_cover_a_tensor(cuts):
    """Their gradients lie side by side; with a gap they are added within zeros."""
    b = tiled.Builder("parts")
    w = np.random.default_rng(0).normal(size=(3, 9)).astype("f4")
    b.parameter("w", w)
    whole = cuts != (2, 4)
    ends = list(zip((0, *cuts), (*cuts, 9), strict=True))
    ends = ends if whole else [ends[0], ends[2]]
    parts = [b.apply("Slice", "w", starts=(i,), ends=(j,), axes=(1,)) for i, j in ends]
    sums = [b.apply("ReduceSum", b.apply("Mul", p, p), keepdims=0) for p in parts]
    total = sums[0]
    for one in sums[1:]:
        total = b.apply("Add", total, one)
    zero = [b.apply("ReduceSum", b.input(name, (1,)), keepdims=0) for name in "xy"]
    training = b.training(b.apply("Add", total, b.apply("Add", *zero)), tiled.SGD(lr=0.5))
    ops = [node.op for node in training.train.nodes]
    assert ops.count("Place") == (0 if whole else 2) and ("Concat" in ops) == whole
    trainer = tiled.plan(training, tiled.siracusa_l2()).trainer(training)
    trainer.step((np.zeros(1, "f4"), np.zeros(1, "f4")))
    left = np.zeros_like(w)
    left[:, 2:4] = 0 if whole else w[:, 2:4]
    np.testing.assert_array_equal(trainer.parameters()["w"], left)
