"""Models on hardware: programmed, aged, with modified weights, learned and calibrated ranges."""

import pytest

import rpukit as rk
from rpukit import errors, inference
from tests.torch.test_models import CELLS, PERFECT, data, small, train

torch = pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")

from rpukit.torch import nn, optim  # noqa: E402


def test_programmed_and_aged():
    cell = rk.InferenceCell(compensation="global")
    model = small(cell).eval()
    x, _ = data()
    digital = model(
        x,
    )
    aged = [rk.torch.drift_to(rk.torch.program(model, event=0), t)(x) for t in (1.0, 1e7)]
    assert not torch.equal(*aged)
    assert not torch.equal(aged[0], digital)
    rk.torch.drift_to(model, 1.0)
    saved = model.state_dict()
    twin = small(cell, seed=1)
    twin.load_state_dict(saved)
    assert torch.equal(twin(x), model(x))
    for parameter, layer in ((0, model[0]), (3, model[3])):
        assert layer.array.tiles[0][0].time == 1.0, parameter
    plain = small(cell)
    same_weights = rk.torch.unprogram(model)[0].get_weights()
    assert torch.equal(same_weights, plain[0].get_weights())
    with pytest.raises(errors.ParameterError, match="no layer of inference tiles"):
        rk.torch.program(small(CELLS["pulses"]))


def test_modified_in_training_only():
    model = small(CELLS["inference"])
    optimiser = optim.AnalogSGD(model.parameters(), lr=0.01)
    train(model, optimiser)
    tile = model[0].array.tiles[0][0]
    assert tile._now["mode"] == "modified"
    modified = model[0].get_weights()
    model.eval()
    assert tile._now["mode"] == "digital"
    assert not torch.equal(model[0].get_weights(), modified)
    model.train()
    assert tile._now["mode"] == "modified"


@pytest.mark.parametrize("relative", [False, True])
def test_learned_ranges(relative):
    """The gradient of clipped activations is 0; the range follows its gradient."""
    given = {"gradient_scale": 0.5, "gradient_relative": True} if relative else {}
    kind = inference.InputRange(value=0.8, learned=True, n_init=0, decay=0.0, **given)
    cell = rk.InferenceCell(noise=inference.Verbatim(), input_range=kind)
    quiet = rk.IOParameters(inp_noise=0.0, out_noise=0.0, inp_res=-1, out_res=-1, out_bound=1e6)
    settings = nn.AnalogSettings(cell=cell, forward=quiet, backward=PERFECT, tile_shape=(8, 3))
    torch.manual_seed(0)
    model = nn.AnalogLinear(5, 3, cell=settings, seed=1)
    x = torch.randn(6, 5, requires_grad=True)
    optimiser = optim.AnalogSGD(model.parameters(), lr=0.1)
    weight, d = model.get_weights(), torch.randn(6, 3)
    (model(x) * d).sum().backward()
    slope, outside = d @ weight, x.detach().abs() > 0.8
    torch.testing.assert_close(x.grad, torch.where(outside, 0.0, slope))
    optimiser.step()
    steps = torch.where(outside, x.detach().sign() * slope, 0.0)
    rate = 0.1 * (0.5 * 0.8 if relative else 1)
    want = [0.8 - rate * part.sum().item() for part in (steps[:, :3], steps[:, 3:])]
    assert model.array.ranges == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("n_in", [5, 3])
def test_ranges_grow_where_outputs_reach_their_bound(n_in):
    """Counted for each block of inputs, in training, since the last step."""
    kind = inference.InputRange(
        value=10.0, learned=True, n_init=0, decay=0.0, manage_output_clipping=True
    )
    cell = rk.InferenceCell(noise=inference.Verbatim(), input_range=kind)
    quiet = rk.IOParameters(
        inp_noise=0.0, out_noise=0.0, inp_res=-1, out_bound=0.02, bound_management="NONE"
    )
    settings = nn.AnalogSettings(
        cell=cell, forward=quiet, backward=PERFECT, tile_shape=(2, n_in), output_scale=2.0
    )
    torch.manual_seed(0)
    model = nn.AnalogLinear(5, 3, cell=settings, seed=1)
    optimiser = optim.AnalogSGD(model.parameters(), lr=0.1)
    x, weight = torch.randn(6, 5), model.get_weights() / 2
    optimiser.zero_grad()
    model(x)
    optimiser.zero_grad()  # what a pass without a step has counted is forgotten
    with torch.no_grad():
        model(10 * x)
    parts = [slice(0, 3), slice(3, 6)]
    for part in parts:
        model(x[part]).backward(torch.zeros(3, 3))
    optimiser.step()
    want = []
    for first in range(0, 5, n_in):
        block = slice(first, first + n_in)
        share = ((x[:, block] @ weight[:, block].T).abs() >= 0.2).double().mean().item()
        assert 0.05 < share < 0.95
        want.append(10 + 0.1 * share * 10)
    assert model.array.ranges == pytest.approx(want)
    model(x).backward(torch.zeros(6, 3))
    grown = model.array.ranges
    optimiser.param_groups[0]["lr"] = 0.0
    optimiser.step()
    assert model.array.ranges == grown
    for options, match in (
        ({"forward": rk.IOParameters()}, "ITERATIVE"),
        ({"forward": rk.IOParameters(out_bound=0.0, bound_management="NONE")}, "out_bound"),
    ):
        with pytest.raises(errors.ParameterError, match=match):
            rk.torch.change(model, **options)
    with pytest.raises(errors.ParameterError, match="unless the range is learned"):
        inference.InputRange(manage_output_clipping=True)


def test_calibrated_ranges():
    model = small(CELLS["inference"])
    x, _ = data()
    found = rk.torch.calibrate(model, [x, 2 * x], quantile=0.9, margin=1.1)
    k = round(0.9 * x.numel())
    assert found["0"] == pytest.approx(1.1 * 1.5 * x.abs().flatten().kthvalue(k).values.item())
    assert model[0].array.ranges == [found["0"]]
    found = rk.torch.calibrate(model, [x, 2 * x], n_std=3.0)
    assert found["0"] == pytest.approx(3 * 1.5 * x.square().mean().sqrt().item())
    assert model.training
    for match, call in (
        ("n_std", lambda: rk.torch.calibrate(model, [x], n_std=0.0)),
        ("InputRange", lambda: rk.torch.calibrate(small(rk.InferenceCell()), [x])),
        ("batches", lambda: rk.torch.calibrate(model, [])),
        ("quantile", lambda: rk.torch.calibrate(model, [x], quantile=0.0)),
    ):
        with pytest.raises(errors.ParameterError, match=match):
            call()


def test_batch_normalisation_after_drift():
    torch.manual_seed(0)
    parts = [torch.nn.Linear(25, 8), torch.nn.BatchNorm1d(8)]
    settings = nn.AnalogSettings(cell=inference.PCMLike(), forward=PERFECT)
    model = rk.torch.convert(torch.nn.Sequential(*parts), settings, seed=7)
    x, _ = data(32)
    rows = x.flatten(1)
    rk.torch.drift_to(rk.torch.program(model), 3.15e7)
    h = model.eval()[0](rows).mean(0)
    rk.torch.compensate(model, [rows[:16], rows[16:]])
    assert not model.training
    assert model[1].momentum == 0.1
    torch.testing.assert_close(model[1].running_mean, h, rtol=1e-5, atol=1e-6)  # rounding
