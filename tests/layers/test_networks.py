"""Networks on plain arrays: formulas, gradients, batches, and what they learn."""

import copy
import pickle

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.errors import FormatError, ParameterError
from rpukit.layers import AvgPool2d, Conv2d, Dense, Flatten, MaxPool2d, Network, ReLU, Tanh
from rpukit.layers.geometry import Window

RNG = np.random.default_rng(5)
PERFECT = rk.IOParameters(is_perfect=True)
EXACT = {"forward": PERFECT, "backward": PERFECT}
SHAPES = [
    ((3, 3), (1, 1), (0, 0), (1, 1)),
    ((2, 3), (2, 1), (1, 2), (1, 1)),
    ((3, 2), (1, 2), (2, 0), (2, 3)),
    ((1, 1), (1, 1), (0, 0), (1, 1)),
]


@pytest.fixture(autouse=True)
def draws():
    """Give each test the same numbers, whichever tests ran before it."""
    global RNG
    RNG = np.random.default_rng(5)


def images(n=3, channels=2, size=(7, 8)):
    return RNG.uniform(-1, 1, (n, channels, *size)).astype(np.float32)


def convolution(x, w, b, kernel, stride, padding, dilation):
    """Convolve by the definition, one output at a time, in float64."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *((p, p) for p in padding)))
    w = w.reshape(len(w), x.shape[1], *kernel).astype(np.float64)
    out = [(x.shape[2 + k] - dilation[k] * (kernel[k] - 1) - 1) // stride[k] + 1 for k in range(2)]
    y = np.empty((len(x), len(w), *out))
    for r in range(out[0]):
        for c in range(out[1]):
            rows = r * stride[0] + dilation[0] * np.arange(kernel[0])
            columns = c * stride[1] + dilation[1] * np.arange(kernel[1])
            part = x[:, :, rows[:, None], columns]
            y[:, :, r, c] = np.einsum("ncij,ocij->no", part, w) + b
    return y


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), SHAPES)
def test_a_convolution(kernel, stride, padding, dilation):
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    layer = Conv2d(2, 4, kernel, rk.Ideal(), seed=1, **options, **EXACT)
    x, b = images(), np.arange(4, dtype=np.float32)
    w = layer.array.get_weights()
    layer.array.set_weights(w, b)
    want = convolution(x, w, b, kernel, stride, padding, dilation)
    assert np.allclose(layer.forward(x), want, atol=1e-5)


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), SHAPES)
def test_folding_is_the_transpose_of_patches(kernel, stride, padding, dilation):
    window = Window(kernel, stride, padding, dilation)
    x = images().astype(np.float64)
    patches = window.patches(x)
    d = RNG.uniform(-1, 1, patches.shape)
    assert np.vdot(d, patches) == pytest.approx(np.vdot(window.folded(d, x.shape[2:]), x))


def layers():
    return [
        Conv2d(2, 3, 3, rk.Ideal(), padding=1, seed=1, **EXACT),
        Dense(6, 4, rk.Ideal(), seed=2, **EXACT),
        Tanh(),
        ReLU(),
        Flatten(),
        MaxPool2d(2),
        MaxPool2d((2, 3), stride=1, padding=1),
        AvgPool2d(2),
        AvgPool2d(3, stride=2, padding=1),
    ]


@pytest.mark.parametrize("layer", layers(), ids=repr)
def test_gradients_by_differences(layer):
    shape = (7, 6) if isinstance(layer, Dense) else (2, 2, 6, 6)
    # Values that are further from one another, and from 0, than a step: no maximum changes place.
    x = (RNG.permutation(np.prod(shape)) + 0.5) / np.prod(shape) * 2 - 1
    x = x.reshape(shape).astype(np.float32)
    y = layer.forward(x)
    d = RNG.uniform(-1, 1, y.shape).astype(np.float32)
    grad = layer.backward(d)
    assert grad.shape == x.shape and grad.dtype == np.float32
    step = RNG.uniform(-1, 1, x.shape).astype(np.float32)
    ends = [np.vdot(d.astype(np.float64), layer.forward(x + s * 1e-3 * step)) for s in (1, -1)]
    slope = (ends[0] - ends[1]) / 2e-3
    assert np.vdot(grad.astype(np.float64), step) == pytest.approx(slope, abs=0.02)


def test_pools_by_definition():
    x = images(2, 3, (6, 4))
    blocks = x.reshape(2, 3, 3, 2, 2, 2)
    assert np.array_equal(MaxPool2d(2).forward(x), blocks.max(axis=(3, 5)))
    assert np.allclose(AvgPool2d(2).forward(x), blocks.mean(axis=(3, 5)), atol=1e-6)


def test_equal_largest_elements_share_no_error():
    layer = MaxPool2d(2)
    layer.forward(np.ones((1, 1, 2, 2), np.float32))
    grad = layer.backward(np.full((1, 1, 1, 1), 3.0, np.float32))
    assert grad[0, 0].tolist() == [[3.0, 0.0], [0.0, 0.0]]


def network(cell=None, pool=MaxPool2d, **options):
    cell = cell or rk.SoftBounds()
    first = Conv2d(1, 4, 3, cell, padding=1, seed=1, **options)
    last = Dense(64, 10, cell, seed=2, **options)
    return Network([first, Tanh(), pool(2), Flatten(), last])


def test_an_update_is_the_gradient():
    """Ideal cells: the weights change by the gradient of the loss, patches added up."""
    net = network(rk.Ideal(), AvgPool2d, **EXACT)
    x, y = images(5, 1, (8, 8)), np.arange(5, dtype=np.int32)
    before = [array.get_weights().astype(np.float64) for array in net.arrays]
    lr, direction = 0.01, [RNG.uniform(-1, 1, w.shape) for w in before]

    def loss(size):
        for array, w, step in zip(net.arrays, before, direction, strict=True):
            array.set_weights((w + size * step).astype(np.float32))
        z, _ = rk.elementwise.softmax_cross_entropy(net.forward(x), y)
        return z.astype(np.float64).sum()

    slope = (loss(1e-3) - loss(-1e-3)) / 2e-3
    loss(0.0)
    net.learn(x, y, lr)
    change = [a.get_weights() - w for a, w in zip(net.arrays, before, strict=True)]
    found = sum(np.vdot(c, s) for c, s in zip(change, direction, strict=True)) / -lr
    assert found == pytest.approx(slope, rel=0.01)


@pytest.mark.parametrize("bias", ["digital", "analog"])
def test_the_batch_split_changes_no_bit(bias):
    """Noise of the periphery, pulses and all: parts of a mini-batch are the mini-batch."""
    x, y = images(6, 1, (8, 8)), np.arange(6, dtype=np.int32)
    one, two = network(bias=bias), network(bias=bias)
    z = one.forward(x)
    _, error = rk.elementwise.softmax_cross_entropy(z, y)
    one.backward(error)
    one.update(0.1)
    outputs = []
    for part in (slice(0, 1), slice(1, 4), slice(4, 6)):
        outputs.append(two.forward(x[part]))
        _, e = rk.elementwise.softmax_cross_entropy(outputs[-1], y[part])
        two.backward(e)
    two.update(0.1)
    rk.testing.assert_same_bits(z, np.concatenate(outputs))
    for a, b in zip(one.arrays, two.arrays, strict=True):
        rk.testing.assert_same_bits(a.get_weights(), b.get_weights())
        rk.testing.assert_same_bits(a.get_bias(), b.get_bias())


def test_the_kernels_give_the_bits_of_the_mirrors():
    x, y = images(3, 1, (8, 8)), np.arange(3, dtype=np.int32)
    nets = [network(), network()]
    losses = [nets[0].learn(x, y, 0.1)]
    with rk.testing.on_cpu(7):
        losses.append(nets[1].learn(x, y, 0.1))
    rk.testing.assert_same_bits(*losses)
    for a, b in zip(nets[0].arrays, nets[1].arrays, strict=True):
        rk.testing.assert_same_bits(a.get_weights(), b.get_weights())


def test_weights_are_those_of_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    options = {"stride": 2, "padding": 1, "dilation": 2}
    ours = Conv2d(2, 4, 3, rk.SoftBounds(), seed=1, **options)
    theirs = rk.torch.nn.AnalogConv2d(2, 4, 3, cell=rk.SoftBounds(), seed=1, **options)
    theirs.set_weights(torch.from_numpy(ours.array.get_weights()), torch.zeros(4))
    x = images()
    given = torch.from_numpy(x).requires_grad_()
    y = theirs(given)
    rk.testing.assert_same_bits(ours.forward(x), y.detach().numpy())
    d = RNG.uniform(-1, 1, y.shape).astype(np.float32)
    y.backward(torch.from_numpy(d))
    rk.testing.assert_same_bits(ours.backward(d), given.grad.numpy())


def test_it_learns():
    """Squares and crosses, told apart after a few steps."""
    square = np.zeros((8, 8), np.float32)
    square[2:6, 2:6] = 1
    cross = np.eye(8, dtype=np.float32)
    y = RNG.integers(0, 2, 64).astype(np.int32)
    x = np.where(y[:, None, None] == 0, square, cross) + RNG.normal(0, 0.2, (64, 8, 8))
    x = x[:, None].astype(np.float32)
    net = network(rk.ConstantStep())
    for first in range(0, 64, 8):
        net.learn(x[first : first + 8], y[first : first + 8], 0.05)
    assert net.accuracy(x, y) > 0.95


def test_costs_and_summary():
    net = network()
    x, y = images(2, 1, (8, 8)), np.zeros(2, np.int32)
    net.learn(x, y, 0.1)
    found = rk.costs.count(net)
    assert found["forward"]["adc:9"] == 2 * 64 * 4 + 2 * 10
    assert found["backward"]["adc:9"] == 2 * 64  # none for the first layer
    assert [part.name for part in found.parts] == ["layer 0", "layer 4"]
    text = str(rk.summary(net, costs=rk.costs.preset("example")))
    assert "Network of 5 layers, 2 of them in tiles" in text and "latency" in text


def test_errors_leave_the_network_as_it_was():
    net = network()
    with pytest.raises(rk.errors.ParameterError, match="call forward first"):
        net.backward(np.zeros((1, 10), np.float32))
    with pytest.raises(rk.errors.ShapeError, match="need \\(n, 1, rows, columns\\)"):
        net.forward(np.zeros((2, 3, 8, 8), np.float32))
    with pytest.raises(rk.errors.ShapeError, match="at least one window"):
        Conv2d(1, 1, 9, rk.Ideal()).forward(np.zeros((1, 1, 8, 8), np.float32))
    with pytest.raises(rk.errors.ParameterError, match="layers\\[0\\]"):
        Network([np.tanh])
    with pytest.raises(rk.errors.ParameterError, match="need at least one"):
        Network([])
    net.forward(np.zeros((2, 1, 8, 8), np.float32))
    with pytest.raises(rk.errors.ShapeError, match="need"):
        net.backward(np.zeros((3, 10), np.float32))
    with pytest.raises(rk.errors.ParameterError, match="kernel_size"):
        MaxPool2d((1, 2, 3))
    with pytest.raises(rk.errors.ParameterError, match="at most half"):
        MaxPool2d(2, padding=2)


def test_layers_print_what_they_are():
    text = repr(network())
    assert "Conv2d(1, 4, (3, 3), 1 x 1 tiles, device='cpu')" in text and "MaxPool2d" in text


def test_a_failed_backward_leaves_no_samples():
    one, two = network(), network()
    x, y = images(2, 1, (8, 8)), np.zeros(2, np.int32)
    one.forward(x)
    with pytest.raises(rk.errors.NonFiniteError):
        one.backward(np.full((2, 10), np.nan, np.float32))
    two.forward(x)
    for net in (one, two):
        net.learn(x, y, 0.1)
    for a, b in zip(one.arrays, two.arrays, strict=True):
        rk.testing.assert_same_bits(a.get_weights(), b.get_weights())


def test_a_failed_update_changes_nothing():
    net = network()
    x, y = images(2, 1, (8, 8)), np.zeros(2, np.int32)
    net.forward(x)
    with pytest.raises(rk.errors.DTypeError, match="lr"):
        net.update("fast")
    net.learn(x, y, 0.1)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_go_on_to_the_same_bits(how):
    net = network()
    x, y = images(2, 1, (8, 8)), np.zeros(2, np.int32)
    net.learn(x, y, 0.1)
    twin = how(net)
    for one in (net, twin):
        one.learn(x, y, 0.1)
    for a, b in zip(net.arrays, twin.arrays, strict=True):
        rk.testing.assert_same_bits(a.get_weights(), b.get_weights())


@pytest.mark.gpu
def test_a_gpu_gives_the_bits_of_the_cpu():
    x, y = images(6, 1, (8, 8)), np.arange(6, dtype=np.int32)
    nets = [network(), network(device="gpu")]
    for net in nets:
        place = net.arrays[0]._device
        put = [_device.to_device(a, place) for a in (x, y)]
        for _ in range(2):
            net.learn(*put, 0.1)
    outputs = [net.forward(_device.to_device(x, net.arrays[0]._device)) for net in nets]
    rk.testing.assert_same_bits(*map(_device.to_numpy, outputs))


def every_kind():
    return Network(
        [
            Conv2d(1, 2, 3, rk.SoftBounds(), padding=1, stride=(2, 1), seed=3, tile_shape=(2, 5)),
            Tanh(),
            MaxPool2d((2, 1)),
            Conv2d(2, 3, (1, 2), rk.ConstantStep(), bias="analog", dilation=(1, 2), seed=4),
            ReLU(),
            AvgPool2d(2, stride=1),
            Flatten(),
            Dense(9, 4, rk.Ideal(), seed=5),
        ]
    )


def test_a_network_from_a_file_goes_on_to_the_same_bits(tmp_path):
    net, labels = every_kind(), np.array([1, 3])
    x = images(2, 1, (8, 6))
    net.learn(x, labels, 0.1)
    rk.save(tmp_path / "net.npz", net)
    again = rk.load(tmp_path / "net.npz")
    assert repr(again) == repr(net)
    assert isinstance(net.to("cpu"), Network)
    for one in (net, again):
        one.learn(x, labels, 0.1)
    assert np.array_equal(again.forward(x), net.forward(x))
    for mine, other in zip(net.arrays, again.arrays, strict=True):
        assert np.array_equal(mine.get_weights()[0], other.get_weights()[0])


def test_what_has_no_form_in_files_is_refused(tmp_path):
    class Own(Tanh):
        pass

    with pytest.raises(ParameterError, match=r"layers\[0\]: a Own has no form"):
        rk.save(tmp_path / "net.npz", Network([Own()]))
    net = Network([Dense(2, 3, rk.Ideal())])
    net.forward(np.ones((1, 2), np.float32))
    net.backward(np.ones((1, 3), np.float32))
    with pytest.raises(ParameterError, match="call update or forget first"):
        rk.save(tmp_path / "net.npz", net)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "value", "match"),
    [
        (("layers",), [], "need at least one"),
        (("layers", 1, "kind"), "Sigmoid", r"layers\[1\].kind"),
        (("layers", 2, "window"), {"kernel": [0, 1]}, r"layers\[2\].window"),
        (("layers", 2, "window", "stride"), [0, 1], "sizes of at least 1"),
        (("layers", 0, "window", "kernel"), [4, 3], "no multiple of 12"),
        (("layers", 1, "window"), {}, r"layers\[1\]: got"),
        (("layers", 7, "kind"), "Tanh", "array"),
        (("version",), 2, "update rpukit"),
    ],
)
def test_headers_that_do_not_fit_are_refused(place, value, match):
    state = every_kind().state()
    inner = state["header"]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(FormatError, match=match):
        Network.from_state(state)
