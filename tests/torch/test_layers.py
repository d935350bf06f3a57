"""Layers of tiles beside those of PyTorch: values, gradients, types, strides, cuts of a batch."""

import copy

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors
from rpukit.testing import assert_same_bits

torch = pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")

from rpukit.torch import nn, optim  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

PERFECT = rk.IOParameters(is_perfect=True)
EXACT = nn.AnalogSettings(cell=rk.Ideal(), tile_shape=(8, 8), forward=PERFECT, backward=PERFECT)
EXACT64 = nn.AnalogSettings(
    cell=rk.Ideal(), tile_shape=(8, 8), forward=PERFECT, backward=PERFECT, dtype="float64"
)
LEARNED = rk.OutputScale(per="column", omega=0.5, learned=True)

DIGITAL = {
    "linear": (lambda: torch.nn.Linear(20, 9), (4, 3, 20)),
    "linear, no bias": (lambda: torch.nn.Linear(20, 9, bias=False), (4, 20)),
    "conv1d": (lambda: torch.nn.Conv1d(3, 10, 4, stride=2, padding=1, dilation=2), (2, 3, 21)),
    "conv2d": (
        lambda: torch.nn.Conv2d(3, 9, (3, 2), (1, 2), (2, 1)),
        (2, 3, 7, 8),
    ),
    "conv2d, same": (lambda: torch.nn.Conv2d(3, 4, 4, padding="same"), (2, 3, 7, 8)),
    "conv2d, reflect": (
        lambda: torch.nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect", bias=False),
        (2, 3, 7, 8),
    ),
    "conv2d, one sample": (lambda: torch.nn.Conv2d(3, 4, 3), (3, 7, 8)),
    "conv3d": (lambda: torch.nn.Conv3d(2, 4, 3, padding=1, stride=2), (2, 2, 5, 4, 6)),
    "conv1d, groups": (lambda: torch.nn.Conv1d(4, 6, 3, padding=1, groups=2), (2, 4, 9)),
    "conv2d, depthwise": (
        lambda: torch.nn.Conv2d(3, 6, 3, groups=3, padding="same", bias=False),
        (2, 3, 7, 8),
    ),
    "rnn": (lambda: torch.nn.RNN(5, 6, nonlinearity="relu"), (4, 3, 5)),
    "lstm": (lambda: torch.nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True), (3, 4, 5)),
    "gru": (lambda: torch.nn.GRU(5, 6, bidirectional=True, bias=False), (4, 3, 5)),
    "gru, one sequence": (lambda: torch.nn.GRU(5, 6, 2), (4, 5)),
}
CLASSES = {
    "Linear": "AnalogLinear",
    "Conv1d": "AnalogConv1d",
    "Conv2d": "AnalogConv2d",
    "Conv3d": "AnalogConv3d",
    "RNN": "AnalogRNN",
    "LSTM": "AnalogLSTM",
    "GRU": "AnalogGRU",
}
each_layer = pytest.mark.parametrize("name", DIGITAL)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def where(request):
    """Device of the tensors."""
    return request.param


def made(name, settings, where="cpu", dtype=torch.float32):
    """Return a digital layer, its analog form with the same weights, and an input."""
    torch.manual_seed(3)
    make, shape = DIGITAL[name]
    module = make().to(where, dtype)
    kind = CLASSES[type(module).__name__]
    kind = "AnalogGroupedConv" if getattr(module, "groups", 1) > 1 else kind
    analog = getattr(nn, kind).from_digital(module, settings, seed=5)
    return module, analog, torch.randn(shape, device=where, dtype=dtype, requires_grad=True)


def outputs(layer, x):
    """Run a layer; give its outputs as one tensor, and the gradient of a loss of them."""
    y = layer(x)
    if isinstance(y, tuple):
        states = y[1] if isinstance(y[1], tuple) else (y[1],)
        y = torch.cat([y[0].flatten(), *(state.flatten() for state in states)])
    weights = torch.linspace(-1, 1, y.numel(), device=y.device, dtype=y.dtype).reshape(y.shape)
    (y * weights).sum().backward()
    grad, x.grad = x.grad, None
    return y.detach(), grad


@each_layer
@pytest.mark.parametrize("analog_bias", [False, True])
def test_perfect_layers_are_those_of_pytorch(name, analog_bias, where):
    settings = nn.AnalogSettings(
        cell=rk.Ideal(),
        tile_shape=(8, 8),
        analog_bias=analog_bias,
        forward=PERFECT,
        backward=PERFECT,
        dtype="float64",
    )
    module, analog, x = made(name, settings, where, torch.float64)
    y, grad = outputs(module, x)
    got_y, got_grad = outputs(analog, x)
    # rounding in float64 of at most a few hundred terms
    torch.testing.assert_close(got_y, y, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(got_grad, grad, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("ordered", [False, True])
def test_packed_sequences_are_those_of_pytorch(name, ordered):
    module, analog, _ = made(name, EXACT64, dtype=torch.float64)
    lengths = [5, 3, 3, 1] if ordered else [3, 5, 1, 3]
    x = torch.randn(5, 4, 5, dtype=torch.float64)
    n_state = (1 + module.bidirectional) * module.num_layers
    first = torch.randn(2, n_state, 4, 6, dtype=torch.float64)
    states = tuple(first) if name == "lstm" else first[0]
    found = []
    for layer in (module, analog):
        leaf = x.clone().requires_grad_()
        given = torch.nn.utils.rnn.pack_padded_sequence(leaf, lengths, enforce_sorted=ordered)
        ends = []
        for start in (None, states):
            out, last = layer(given, start)
            assert isinstance(out, torch.nn.utils.rnn.PackedSequence)
            padded, _ = torch.nn.utils.rnn.pad_packed_sequence(out)
            ends += [padded, *(last if name == "lstm" else (last,))]
        sum(((k + 1) * e * e).sum() for k, e in enumerate(ends)).backward()
        found.append([*ends, leaf.grad])
    for got, want in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-11)
    ih = analog.directions[0].ih.array.clocks
    assert ih["forward"] == 2 * sum(lengths)  # no sample for padding
    with pytest.raises(errors.ShapeError, match="need 5"):
        analog(torch.nn.utils.rnn.pack_sequence([torch.ones(2, 3)]))
    with pytest.raises(errors.DTypeError, match="PackedSequence"):
        analog([1.0])


@each_layer
def test_perfect_layers_in_float32(name):
    module, analog, x = made(name, EXACT)
    for a, b in zip(outputs(analog, x), outputs(module, x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@each_layer
@pytest.mark.parametrize("analog_bias", [False, True])
def test_a_step_is_that_of_pytorch(name, analog_bias):
    """Inference tiles are updated exactly: the weights after a step are those of SGD."""
    cell = rk.InferenceCell(noise=rk.inference.Verbatim())
    settings = nn.AnalogSettings(
        cell=cell, tile_shape=(8, 8), analog_bias=analog_bias, forward=PERFECT, backward=PERFECT
    )
    module, analog, x = made(name, settings)
    for layer, kind in ((module, torch.optim.SGD), (analog, optim.AnalogSGD)):
        optimiser = kind(layer.parameters(), lr=0.05)
        for _ in range(2):
            optimiser.zero_grad()
            outputs(layer, x)
            optimiser.step()
    after = analog.to_digital()
    for (key, a), b in zip(after.named_parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5, msg=key)


def test_learned_scales_are_those_of_pytorch():
    settings = nn.AnalogSettings(
        cell=rk.Ideal(), output_scale=LEARNED, forward=PERFECT, backward=PERFECT, dtype="float64"
    )
    module, analog, x = made("linear", settings, dtype=torch.float64)
    torch.testing.assert_close(analog.get_weights(), module.weight.detach(), rtol=1e-14, atol=0)
    cells = torch.from_numpy(analog.array.get_weights())
    scale = analog.output_scale.detach().clone().requires_grad_()
    torch.testing.assert_close(cells.abs().amax(1), torch.full((9,), 0.5, dtype=torch.float64))
    y = torch.nn.functional.linear(x, cells * scale[:, None], module.bias)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    (y * weights).sum().backward()
    x.grad = None
    outputs(analog, x)
    torch.testing.assert_close(analog.output_scale.grad, scale.grad, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(analog.bias.grad, module.bias.grad, rtol=1e-12, atol=1e-12)


def test_noisy_gradients_are_unbiased():
    noisy = rk.IOParameters(inp_noise=0.05, out_noise=0.05, inp_res=-1, out_res=-1)
    settings = nn.AnalogSettings(cell=rk.Ideal(), forward=noisy, backward=noisy)
    module, analog, x = made("linear", settings)
    x = x.detach()[:1, :1].expand(4000, 1, 20).contiguous().requires_grad_()
    d = torch.linspace(-1, 1, 9)
    y = analog(x)
    (y * d).sum().backward()
    for got, want in ((y, module(x[0])), (x.grad, d @ module.weight)):
        mean = got.detach().mean(0).squeeze()
        error = got.detach().std(0).squeeze() / 4000**0.5
        assert (error > 0).all()
        assert ((mean - want.detach().squeeze()).abs() < 5 * error).all()


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "rnn", "lstm", "gru"])
def test_noise_of_the_errors_leaves_gradients_unbiased(name):
    """The gradient is linear in each product of the errors, so that its mean is the exact one."""
    noisy = rk.IOParameters(inp_noise=0.05, out_noise=0.05, inp_res=-1, out_res=-1)
    settings = nn.AnalogSettings(cell=rk.Ideal(), forward=PERFECT, backward=noisy)
    module, analog, x = made(name, settings)
    axis = 0 if "conv" in name or module.batch_first else 1
    one, n = x.detach().narrow(axis, 0, 1), 1000
    exact = gradient_of_copies(module, one, axis, 1).squeeze(axis)
    got = gradient_of_copies(analog, one, axis, n).movedim(axis, 0)
    error = got.std(0) / n**0.5
    assert (error > 0).any()
    # 5 standard errors, and the rounding of float32
    assert ((got.mean(0) - exact).abs() < 5 * error + 1e-5).all()


def gradient_of_copies(layer, one, axis, n):
    """Gradients of n copies of one sample along an axis, each for the same errors."""
    x = one.repeat_interleave(n, axis).requires_grad_()
    y = layer(x)
    y = y[0] if isinstance(y, tuple) else y
    each = y.select(axis, 0)
    d = torch.linspace(-1, 1, each.numel()).reshape(each.shape).unsqueeze(axis)
    (y * d).sum().backward()
    return x.grad


@pytest.mark.parametrize("name", ["linear", "conv2d", "lstm"])
def test_types_and_strides(name):
    """Halves are computed in float32; strides and memory formats change no bit."""
    _, analog, x = made(name, EXACT)
    twin = copy.deepcopy(analog)
    y, grad = outputs(analog, x)
    strided = torch.stack([x.detach(), x.detach()], dim=-1)[..., 0].requires_grad_()
    assert not strided.is_contiguous()
    for a, b in zip(outputs(twin, strided), (y, grad), strict=True):
        assert torch.equal(a, b)
    for dtype in (torch.float16, torch.bfloat16):
        half = x.detach().to(dtype).requires_grad_()
        got, slope = outputs(analog, half)
        assert (got.dtype, slope.dtype) == (dtype, dtype)
        assert slope.isfinite().all()
    if name != "linear":
        return
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert analog(x.detach().bfloat16()).dtype == torch.float32
    with pytest.raises(errors.NonFiniteError):
        analog(torch.full((2, 20), torch.nan))


def test_channels_last():
    _, analog, x = made("conv2d", EXACT)
    y = analog(x)
    last = analog(x.detach().contiguous(memory_format=torch.channels_last))
    assert y.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(y, last)


def test_training_in_any_memory_format_and_under_autocast():
    """Channels-last inputs give the same bits; tiles compute in float32 under autocast."""
    found = []
    for last, cast in ((False, False), (True, False), (False, True)):
        torch.manual_seed(0)
        parts = [torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 3)]
        model = rk.torch.convert(torch.nn.Sequential(*parts), rk.SoftBounds(), seed=1)
        optimiser = optim.AnalogSGD(model.parameters(), lr=0.1)
        x = torch.randn(4, 3, 6, 7)
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        for _ in range(2):
            optimiser.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast):
                y = model(x.bfloat16() if cast else x)
                assert y.dtype == torch.float32
                y.square().mean().backward()
            optimiser.step()
        found.append([y.detach(), model[0].get_weights(), model[2].get_weights()])
    for plain, last, cast in zip(*found, strict=True):
        assert torch.equal(plain, last)
        torch.testing.assert_close(plain, cast, rtol=0.1, atol=0.1)  # 8 bits of the inputs


@pytest.mark.parametrize("name", ["linear", "conv2d"])
@pytest.mark.parametrize("cell", ["pulses", "transfer"])
def test_batches_cut_in_any_way_give_the_same_bits(name, cell):
    """Gradients are accumulated over the parts; digital biases and tiles get the same bits."""
    cells = {
        "pulses": rk.SoftBounds(dw_min=0.01),
        "transfer": rk.ChoppedTransfer(devices=(rk.SoftBounds(), rk.SoftBounds())),
    }
    settings = nn.AnalogSettings(cell=cells[cell], tile_shape=(8, 8))

    def learned(*cuts):
        _, analog, x = made(name, settings)
        optimiser = optim.AnalogSGD(analog.parameters(), lr=0.05, momentum=0.9)
        rows = x.detach()
        for _ in range(2):
            optimiser.zero_grad()
            for part in np.split(np.arange(len(rows)), cuts):
                analog(rows[part]).square().sum().backward()
            optimiser.step()
        return list(words(analog))

    whole = learned()
    for cut in range(1, DIGITAL[name][1][0]):
        for a, b in zip(learned(cut), whole, strict=True):
            assert_same_bits(a, b)


@pytest.mark.parametrize("n_out", [1, 3, 17])
def test_slopes_are_one_chain(n_out, monkeypatch):
    """Few numbers are added by NumPy, many by the kernel: in the same order."""
    settings = nn.AnalogSettings(cell=rk.Ideal(), output_scale=LEARNED)
    x, d = torch.randn(301, 5), torch.randn(301, n_out)
    found = []
    for few in (0, 1 << 20):
        monkeypatch.setattr("rpukit.torch.function._FEW", few)
        torch.manual_seed(0)
        layer = nn.AnalogLinear(5, n_out, cell=settings, seed=1)
        layer(x).backward(d)
        want = torch.zeros(n_out)
        for row in d:
            want += row
        assert torch.equal(layer.bias.grad, want)
        found.append(layer.output_scale.grad)
    assert torch.equal(*found)


def words(model):
    """Arrays of all numbers of a model: of the tiles and of the other parameters."""
    for _, parameter in model.named_parameters():
        if isinstance(parameter, nn.AnalogWeight):
            yield from parameter.array.state()["arrays"].values()
        else:
            yield parameter.detach().cpu().numpy()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(6, 20), (2, 3, 20)])
def test_products_on_a_gpu_are_repeated_from_tensor_to_tensor(shape):
    """Gradients, bias and scale included, with the bits of the CPU."""
    settings = nn.AnalogSettings(cell=rk.ConstantStep(), output_scale=LEARNED)
    _, plain, _ = made("linear", settings)
    layer = copy.deepcopy(plain).cuda()
    for k in range(5):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(k))
        got, want = x.cuda().requires_grad_(), x.clone().requires_grad_()
        for one, v in ((layer, got), (plain, want)):
            y = one(v)
            y.backward(torch.ones_like(y))
        assert torch.equal(layer(got).cpu(), plain(want))
        assert torch.equal(got.grad.cpu(), want.grad)
        repeats = layer.analog_weight.repeated("forward", got.detach())
        if repeats is not None:
            plain.array.forward(x.numpy())
    assert repeats is not None
