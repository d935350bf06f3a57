"""Captured training steps: launches are predicted by clocks, replays have the bits of the loop."""

import copy

import pytest

import rpukit as rk
from rpukit import errors, inference
from rpukit.testing import on_cpu
from tests.torch.test_models import same

torch = pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")

from rpukit.torch import graphs, nn, optim  # noqa: E402
from rpukit.torch.graphs import replay as replaying  # noqa: E402
from rpukit.torch.graphs.pattern import Pattern, pattern_of  # noqa: E402
from rpukit.torch.graphs.recording import Recording, Tiles  # noqa: E402
from rpukit.torch.graphs.steady import unsteady  # noqa: E402

SOFT = rk.SoftBounds(dw_min=0.01, lifetime=100.0, diffusion=0.01, write_noise_std=0.01)
TIKI_TAKA = rk.ChoppedTransfer(devices=(rk.SoftBounds(), rk.SoftBounds()), in_chop_prob=0.1)
CELLS = {
    "pulses": SOFT,
    "transfer": TIKI_TAKA,
    "two devices": rk.Vector(devices=(rk.ConstantStep(), rk.SoftBounds())),
    "inference": rk.InferenceCell(
        modifier=inference.WeightModifier(type="add_normal", std_dev=0.05),
        weight_clip=inference.WeightClip(type="layer_gaussian", sigma=2.5),
        input_range=inference.InputRange(value=2.0),
    ),
}
D = torch.linspace(-0.5, 0.5, 4)


def small(cell):
    """Two matrices with nothing but launches between them."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 5, bias=False), torch.nn.Linear(5, 4, bias=False)]
    return rk.torch.convert(torch.nn.Sequential(*layers), cell, seed=1)


def step_of(model, x, lr=0.1):
    """Return a step whose errors at the outputs are constants."""
    optimiser = optim.AnalogSGD(model.parameters(), lr=lr)
    errors_ = D.expand(len(x), 4).contiguous()

    def step():
        optimiser.zero_grad()
        model(x).backward(errors_)
        optimiser.step()
        return errors_

    return step


def recorded(tiles, step):
    found = Recording(tiles)
    with found.running():
        step()
    return found


@pytest.mark.parametrize("name", CELLS)
def test_clocks_predict_the_launches(name):
    """Products between the steps move clocks, too, and a batch of another size moves all."""
    model, x = small(CELLS[name]), torch.randn(3, 6)
    step, other = step_of(model, x), step_of(model, x[:2])
    with on_cpu():
        step()
        tiles = Tiles(model)
        seen = [recorded(tiles, step) for _ in range(3)]
        pattern = pattern_of(seen)
        assert isinstance(pattern, Pattern), pattern
        assert any(pattern.words)
        for between in (lambda: None, lambda: model(torch.randn(7, 6)), other):
            between()
            assert pattern.predicts(recorded(tiles, step)) == ""
        seen[-1].launches.pop()
        assert "launches" in pattern.predicts(recorded(tiles, step))
        assert "launches" in pattern_of([*seen[1:], recorded(tiles, step)])


@pytest.mark.parametrize("name", CELLS)
def test_steps_of_these_cells_may_be_captured(name):
    model, x = small(CELLS[name]), torch.randn(3, 6)
    step = step_of(model, x)
    captured = rk.torch.captured_step(model, lambda y: y.sum(), optim.AnalogSGD([x], lr=0.1))
    for _ in range(2):
        assert captured._not_steady(recorded(Tiles(model), step)) == ""


class Graph:
    """A stand-in for a captured graph: it launches what was recorded, on the CPU."""

    def __init__(self, launches):
        self.launches = [[one, list(one.args)] for one in launches]

    def raw_cuda_graph(self):
        return 0

    raw_cuda_graph_exec = raw_cuda_graph

    def replay(self):
        for one, args in self.launches:
            one.variant.launch(one.grid, one.block, args, one.shared)

    def nodes(self):
        for _, args in self.launches:
            yield Node(args)


class Node:
    def __init__(self, args):
        self.args = args

    def updater(self, words):
        def update(graph):
            for k, word in words.items():
                self.args[k] = word[0]

        return update


@pytest.mark.parametrize("name", ["pulses", "transfer", "two devices"])
def test_replays_have_the_bits_of_the_loop(name, monkeypatch):
    plain, x = small(CELLS[name]), torch.randn(3, 6)
    model = copy.deepcopy(plain)
    test = torch.randn(5, 6)
    with on_cpu():
        eager, step = step_of(plain, x), step_of(model, x)
        step()
        tiles = Tiles(model)
        pattern = pattern_of([recorded(tiles, step) for _ in range(3)])
        last = recorded(tiles, step)
        graph = Graph(last.launches)
        monkeypatch.setattr(replaying, "nodes_of", lambda handle, launches: list(graph.nodes()))
        replay = replaying.GraphReplay(graph, tiles, pattern, last, D)
        replay._fresh = False  # a capture on a GPU does not run the step; this one did
        for _ in range(3):
            assert replay.fits()
            replay()
            model(test)
        replay()
        clocks = tiles.memories[0][0]
        still = next(name for name in clocks if name.endswith("drift_time"))
        clocks[still] += 1.0  # what no replay does
        assert not replay.fits()
        clocks[still] -= 1.0
        for k in range(9):
            eager()
            if 5 <= k < 8:
                plain(test)
        same(plain, model)
        assert torch.equal(plain(test), model(test))
        x.fill_(float("nan"))
        replay()
        replay()
        with pytest.raises(errors.NonFiniteError, match="captured step"):
            model[0].get_weights()
        same(plain[0], model[0])  # the other layer learnt from what was left of its inputs


def test_what_is_not_steady():
    devices = (rk.SoftBounds(), rk.SoftBounds())
    cells = {
        "take turns": rk.Vector(devices=devices, update_policy="SINGLE_SEQUENTIAL"),
        "draws slices": rk.Transfer(devices=devices, random_selection=True),
        "choppers flip": rk.DynamicTransfer(devices=devices),
        "MixedPrecision": rk.MixedPrecision(device=rk.SoftBounds()),
        "does not divide the 3": rk.Transfer(devices=devices, transfer_every=2),
    }
    for match, cell in cells.items():
        tile = rk.AnalogTile((4, 5), cell, seed=1)
        tile.update(torch.ones(3, 5).numpy(), torch.ones(3, 4).numpy(), 0.1)
        assert match in unsteady(tile, 3)
    assert unsteady(rk.AnalogTile((4, 5), SOFT, seed=1), 3) == ""
    kind = inference.InputRange(learned=True)
    model = small(rk.InferenceCell(input_range=kind))
    assert "learned input range" in unsteady(model[0].array.tiles[0][0], 3)


def test_steps_on_a_cpu_are_those_of_the_loop():
    plain = small(SOFT)
    model = copy.deepcopy(plain)
    optimisers = [optim.AnalogSGD(m.parameters(), lr=0.1) for m in (plain, model)]
    loss = torch.nn.functional.cross_entropy
    step = rk.torch.captured_step(model, loss, optimisers[1])
    for k in range(4):
        x, y = torch.randn(3 - k % 2, 6), torch.arange(3 - k % 2)
        optimisers[0].zero_grad()
        want = loss(plain(x), y)
        want.backward()
        optimisers[0].step()
        assert torch.equal(step(x, y), want)
    same(plain, model)
    assert (step.captured, step.reason) == (False, "the model is on the CPU")
    assert isinstance(step, graphs.CapturedStep)
    for given in ((loss, loss, optimisers[0]), (model, None, optimisers[0]), (model, loss, 3)):
        with pytest.raises(errors.ParameterError, match="need"):
            rk.torch.captured_step(*given)


GPU_CELLS = CELLS | {
    "Tiki-Taka v2": rk.presets.config("TTv2EcRam"),
    "analog bias": nn.AnalogSettings(cell=SOFT, analog_bias=True, tile_shape=(16, 16)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", GPU_CELLS)
def test_captured_steps_have_the_bits_of_eager_ones(name):
    """With tests in between, a batch of another size, another rate, and a state that is loaded."""
    torch.manual_seed(0)
    parts = [torch.nn.Conv2d(1, 4, 3), torch.nn.Tanh(), torch.nn.Flatten()]
    digital = torch.nn.Sequential(*parts, torch.nn.Linear(64, 20), torch.nn.Linear(20, 3))
    plain = rk.torch.convert(digital, GPU_CELLS[name], seed=3).cuda()
    model, loss = copy.deepcopy(plain), rk.torch.cross_entropy
    optimisers = [optim.AnalogSGD(m.parameters(), lr=0.1, momentum=0.5) for m in (plain, model)]
    step = rk.torch.captured_step(model, loss, optimisers[1])
    x, y = torch.randn(40, 8, 1, 6, 6, device="cuda"), torch.arange(320, device="cuda") % 3
    n_captured = 0
    for k, targets in enumerate(y.reshape(40, 8)):
        n = 5 if k == 12 else 8
        optimisers[0].zero_grad()
        want = loss(plain(x[k, :n]), targets[:n])
        want.backward()
        optimisers[0].step()
        assert torch.equal(step(x[k, :n], targets[:n]), want), (k, step.reason)
        n_captured += step.captured
        if k % 5 == 0:
            assert torch.equal(plain(x[0]), model(x[0]))
        if k == 20:
            for optimiser in optimisers:
                optimiser.param_groups[0]["lr"] = 0.05
        if k == 30:
            model.load_state_dict(copy.deepcopy(plain.state_dict()))
    assert n_captured > 20, step.reason
    same(plain, model)
