"""Whole models: conversion, states, optimisers, hardware, hashes."""

import copy
import dataclasses
import io

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors, inference
from rpukit.testing import assert_same_bits
from tests.torch.test_layers import words

torch = pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")

from rpukit.torch import nn, optim  # noqa: E402
from rpukit.torch.settings import settings_of  # noqa: E402

PERFECT = rk.IOParameters(is_perfect=True)
CELLS = {
    "pulses": rk.SoftBounds(dw_min=0.01),
    "transfer": rk.ChoppedTransfer(devices=(rk.SoftBounds(), rk.SoftBounds())),
    "presets": rk.presets.config("EcRamMO"),
    "inference": rk.InferenceCell(
        modifier=inference.WeightModifier(type="add_normal", std_dev=0.05),
        weight_clip=inference.WeightClip(type="layer_gaussian"),
        input_range=inference.InputRange(learned=True, n_init=1),
    ),
}
each_cell = pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)


class Net(torch.nn.Module):
    """A convolution, a recurrent layer with a shared head, a grouped convolution, attention."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.depthwise = torch.nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.rnn = torch.nn.GRU(16, 6, batch_first=True)
        self.attention = torch.nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = torch.nn.Linear(6, 3)
        self.again = self.head

    def forward(self, x):
        h = torch.relu(self.depthwise(torch.relu(self.conv(x))))
        h, _ = self.rnn(h.flatten(2))
        h, _ = self.attention(h, h, h)
        return self.head(h[:, -1]) + self.again(h[:, 0])


def small(cell, seed=0, **changes):
    """A small model in tiles, with changes of its settings."""
    torch.manual_seed(seed)
    cell = dataclasses.replace(settings_of(cell), **changes)
    parts = [torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(36, 3)]
    return rk.torch.convert(torch.nn.Sequential(*parts), cell, seed=7)


def data(n=6):
    x = np.random.default_rng(0).standard_normal((n, 1, 5, 5)).astype(np.float32)
    return torch.from_numpy(x), torch.arange(n) % 3


def train(model, optimiser, n_step=2, scheduler=None):
    x, y = data()
    for _ in range(n_step):
        optimiser.zero_grad()
        (model(x) - torch.nn.functional.one_hot(y, 3)).square().sum().backward()
        optimiser.step()
        if scheduler is not None:
            scheduler.step()


def same(a, b):
    for x, y in zip(words(a), words(b), strict=True):
        assert_same_bits(x, y)


class TestConversion:
    def test_what_becomes_what(self):
        torch.manual_seed(0)
        digital = Net()
        settings = nn.AnalogSettings(cell=rk.Ideal(), forward=PERFECT, backward=PERFECT)
        model = rk.torch.convert(digital, settings, seed=1)
        kinds = {name: type(module).__name__ for name, module in model.named_children()}
        assert kinds == {
            "conv": "AnalogConv2d",
            "depthwise": "Conv2d",
            "rnn": "AnalogGRU",
            "attention": "AnalogMultiheadAttention",
            "head": "AnalogLinear",
        }
        assert model.again is model.head
        assert isinstance(digital.conv, torch.nn.Conv2d)
        x = torch.randn(2, 1, 4, 4)
        torch.testing.assert_close(model(x), digital(x), rtol=1e-4, atol=1e-5)
        back = rk.torch.to_digital(model)
        assert type(back.rnn) is torch.nn.GRU
        assert type(back.attention) is torch.nn.MultiheadAttention
        for a, b in zip(back.parameters(), digital.parameters(), strict=True):
            assert torch.equal(a, b)
        assert torch.equal(back(x), digital(x))
        text = str(rk.torch.report(model))
        assert "AnalogConv2d" in text
        assert "digital" in text
        streams = {
            layer.array.tiles[0][0].stream for layer in rk.torch.analog_layers(model).values()
        }
        assert len(streams) == 8

    def test_overrides(self):
        cells = {"conv": rk.ConstantStep(), "h*": None, torch.nn.GRU: inference.PCMLike()}
        model = rk.torch.convert(Net(), rk.SoftBounds(), overrides=cells)
        assert isinstance(model.conv.array.cell, rk.ConstantStep)
        assert type(model.head) is torch.nn.Linear
        assert isinstance(model.rnn.directions[0].hh.array.cell, rk.InferenceCell)
        model = rk.torch.convert(Net(), rk.SoftBounds(), exclude=["rnn", torch.nn.Conv2d])
        assert {type(m).__name__ for m in model.children()} >= {"Conv2d", "GRU", "AnalogLinear"}
        for wrong in ({"conf": None}, {torch.nn.Conv3d: rk.SoftBounds()}):
            with pytest.raises(errors.ParameterError, match="fit no layer"):
                rk.torch.convert(Net(), rk.SoftBounds(), overrides=wrong)
        with pytest.raises(errors.ParameterError, match="no layer that tiles"):
            rk.torch.convert(torch.nn.ReLU(), rk.SoftBounds())
        with pytest.raises(errors.ParameterError, match="need a cell"):
            rk.torch.convert(Net(), "SoftBounds")
        with pytest.raises(errors.ParameterError, match="groups"):
            nn.AnalogConv2d(4, 4, 3, groups=4, cell=rk.SoftBounds())
        digital = Net()
        model = rk.torch.convert(digital, rk.Ideal(), overrides={"depthwise": rk.Ideal()})
        assert len(rk.torch.analog_layers(model.depthwise)) == 4
        back = rk.torch.to_digital(model).depthwise
        assert torch.equal(back.weight, digital.depthwise.weight)
        assert torch.equal(back.bias, digital.depthwise.bias)
        with pytest.raises(errors.ParameterError, match="Conv1d to Conv3d"):
            nn.AnalogGroupedConv(digital.head, rk.Ideal())
        with pytest.raises(errors.ShapeError, match="4 channels"):
            model.depthwise(torch.ones(1, 3, 5, 5))

    def test_a_convolution_of_hugging_face(self):
        class Conv1D(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.nf = 3
                self.weight = torch.nn.Parameter(torch.randn(4, 3))
                self.bias = torch.nn.Parameter(torch.randn(3))

        layer = Conv1D()
        model = rk.torch.convert(layer, rk.Ideal())
        assert torch.equal(model.get_weights(), layer.weight.T)
        assert torch.equal(model.get_bias(), layer.bias)


class TestAttention:
    @pytest.mark.parametrize("batch_first", [False, True])
    @pytest.mark.parametrize("sizes", [{}, {"kdim": 4, "vdim": 5}, {"bias": False}])
    def test_it_is_that_of_pytorch(self, batch_first, sizes):
        torch.manual_seed(0)
        digital = torch.nn.MultiheadAttention(6, 2, batch_first=batch_first, **sizes)
        settings = nn.AnalogSettings(cell=rk.Ideal(), forward=PERFECT, backward=PERFECT)
        analog = rk.torch.convert(digital, settings)
        n_q, n_k = ((3, 4), (3, 5)) if batch_first else ((4, 3), (5, 3))
        q = torch.randn(*n_q, 6)
        k, v = torch.randn(*n_k, sizes.get("kdim", 6)), torch.randn(*n_k, sizes.get("vdim", 6))
        hidden = torch.zeros(3, 5, dtype=torch.bool)
        hidden[0, 3:] = True
        late = torch.ones(4, 5, dtype=torch.bool).triu(2)
        for options in (
            {},
            {"key_padding_mask": hidden, "attn_mask": late},
            {"attn_mask": torch.randn(6, 4, 5), "average_attn_weights": False},
        ):
            for got, want in zip(
                analog(q, k, v, **options), digital(q, k, v, **options), strict=True
            ):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        one = [x[0] if batch_first else x[:, 0] for x in (q, k, v)]
        torch.testing.assert_close(analog(*one)[0], digital(*one)[0], rtol=1e-4, atol=1e-5)
        assert analog(q, k, v, need_weights=False)[1] is None
        for a, b in zip(
            rk.torch.to_digital(analog).parameters(), digital.parameters(), strict=True
        ):
            assert torch.equal(a, b)

    @pytest.mark.filterwarnings("ignore:enable_nested_tensor")
    def test_a_transformer(self):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        digital = torch.nn.TransformerEncoder(layer, 2)
        settings = nn.AnalogSettings(cell=rk.Ideal(), forward=PERFECT, backward=PERFECT)
        analog = rk.torch.convert(digital, settings)
        assert len(rk.torch.analog_layers(analog)) == 12
        x, mask = torch.randn(3, 4, 6), torch.nn.Transformer.generate_square_subsequent_mask(4)
        for training in (True, False):
            for model in (analog, digital):
                model.train(training)
            for options in ({}, {"mask": mask, "is_causal": True}):
                got, want = analog(x, **options), digital(x, **options)
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)

    def test_what_stays_digital(self):
        digital = torch.nn.MultiheadAttention(6, 2, add_bias_kv=True)
        with pytest.raises(errors.ParameterError, match="add_bias_kv"):
            nn.AnalogMultiheadAttention.from_digital(digital, rk.Ideal())
        model = torch.nn.ModuleList([digital, torch.nn.Linear(2, 3)])
        assert rk.torch.convert(model, rk.Ideal())[0].out_proj.weight.shape == (6, 6)


class TestOptimisers:
    @each_cell
    def test_resumed_is_straight(self, cell):
        straight = small(cell)
        optimiser = optim.AnalogSGD(straight.parameters(), lr=0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, gamma=0.5)
        train(straight, optimiser, 2, schedule)
        file = io.BytesIO()
        parts = {"model": straight, "optimiser": optimiser, "schedule": schedule}
        torch.save({name: part.state_dict() for name, part in parts.items()}, file)
        file.seek(0)
        held = copy.deepcopy(straight)
        saved = torch.load(file, weights_only=True)
        train(straight, optimiser, 2, schedule)

        resumed = small(cell, seed=1)
        other = optim.AnalogSGD(resumed.parameters(), lr=0.05, momentum=0.9)
        later = torch.optim.lr_scheduler.StepLR(other, 1, gamma=0.5)
        resumed.load_state_dict(saved["model"])
        other.load_state_dict(saved["optimiser"])
        later.load_state_dict(saved["schedule"])
        same(resumed, held)
        train(resumed, other, 2, later)
        same(resumed, straight)
        x, _ = data()
        assert torch.equal(resumed(x), straight(x))

    def test_a_step_is_updates_of_the_tiles(self):
        cell = rk.SoftBounds(dw_min=0.01)
        model = nn.AnalogLinear(5, 3, cell=cell, seed=1)
        tile = model.array.tiles[0][0].copy()
        slow = {"params": [model.analog_weight], "lr": 0.02}
        optimiser = optim.AnalogSGD([slow, {"params": [model.bias]}], lr=0.5)
        x, d = torch.randn(4, 5), torch.randn(4, 3)

        def closure():
            optimiser.zero_grad()
            loss = (model(x) * d).sum()
            loss.backward()
            return loss

        assert optimiser.step(closure) is not None
        tile.forward(x.numpy())
        tile.update(x.numpy(), d.numpy(), 0.02).post_step()
        assert_same_bits(model.array.get_weights(), tile.get_weights())
        torch.testing.assert_close(model.bias.grad, d.sum(0))
        before = model.get_weights()
        model.zero_grad()
        optimiser.step()
        assert torch.equal(model.get_weights(), before)
        model.analog_weight.requires_grad_(False)
        optimiser.step(closure)
        assert torch.equal(model.get_weights(), before)

    def test_inputs_that_change(self):
        model = nn.AnalogLinear(5, 3, cell=rk.SoftBounds(), seed=1)
        optimiser = optim.AnalogAdam(model.parameters(), lr=0.02)
        x = torch.randn(4, 5)
        model(x).sum().backward()
        x += 1
        with pytest.raises(errors.ParameterError, match="changed in place"):
            optimiser.step()

    def test_maximise_and_scaled_losses(self):
        cell = rk.InferenceCell(noise=inference.Verbatim())
        x, ends = torch.randn(4, 5), []
        for maximise in (False, True):
            model = nn.AnalogLinear(5, 3, cell=cell, seed=1)
            model.set_weights(torch.zeros(3, 5))
            optimiser = optim.AnalogSGD(model.parameters(), lr=0.1, maximize=maximise)
            model(x).sum().backward()
            optimiser.step()
            ends.append(model.get_weights())
        assert torch.equal(ends[0], -ends[1])
        scaler = torch.amp.GradScaler("cpu")
        optimiser.zero_grad()
        scaler.scale(model(x).sum()).backward()
        with pytest.raises(errors.ParameterError, match="bfloat16"):
            scaler.step(optimiser)

    def test_nothing_is_kept_without_an_optimiser(self):
        model = nn.AnalogLinear(5, 3, cell=rk.SoftBounds(), seed=1)
        model(torch.randn(4, 5)).sum().backward()
        assert not model.analog_weight.samples


class TestStates:
    def test_copies(self):
        model = small(CELLS["transfer"])
        train(model, optim.AnalogSGD(model.parameters(), lr=0.05))
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for twin in (copy.deepcopy(model), torch.load(file, weights_only=False)):
            same(twin, model)
            train(twin, optim.AnalogSGD(twin.parameters(), lr=0.05))
        with pytest.raises(AssertionError):
            same(twin, model)

    def test_wrong_states(self):
        model, other = small(CELLS["pulses"]), nn.AnalogLinear(5, 3, cell=rk.Ideal(), seed=1)
        with pytest.raises(errors.FormatError, match="state"):
            other.set_extra_state({"header": "x", "arrays": {}})
        with pytest.raises(errors.FormatError, match="shape"):
            other.set_extra_state(model[0].get_extra_state())

    def test_moves(self):
        model = small(CELLS["pulses"])
        assert model.double()[0].bias.dtype == torch.float32
        with pytest.raises(errors.ParameterError, match="device"):
            model.to("meta")
        assert {p.device.type for p in model.parameters()} == {"cpu"}
        with pytest.raises(errors.ParameterError, match="DataParallel"):
            small(CELLS["pulses"])[0]._replicate_for_data_parallel()


@pytest.mark.gpu
@each_cell
def test_both_devices_have_the_same_bits(cell):
    """Two steps of training; no digital bias, which PyTorch's SGD may round differently."""
    models = []
    for where in ("cpu", "cuda"):
        model = small(cell, analog_bias=True).to(where)
        optimiser = optim.AnalogSGD(model.parameters(), lr=0.05)
        x, y = (a.to(where) for a in data())
        for _ in range(2):
            optimiser.zero_grad()
            (model(x) - torch.nn.functional.one_hot(y, 3)).square().sum().backward()
            optimiser.step()
        models.append(model)
    same(*models)


@pytest.mark.gpu
def test_work_goes_to_the_stream_of_pytorch():
    model = small(CELLS["pulses"]).cuda()
    x = data()[0].cuda()
    first = copy.deepcopy(model)(x + 1)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        later = model(x + 1) * 1
    stream.synchronize()
    assert torch.equal(first, later)
