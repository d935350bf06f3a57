"""Models in files, over time, and with other settings than they were trained with."""

import copy
import dataclasses

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors, inference, plot
from rpukit.testing import assert_same_bits
from tests.torch.test_models import PERFECT, data, each_cell, same, small, train

torch = pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")

from rpukit.torch import nn, optim  # noqa: E402


class TestFiles:
    @each_cell
    def test_resumed_is_straight(self, cell, tmp_path):
        pytest.importorskip("safetensors", reason="safetensors, an extra, is not installed")
        straight, resumed = small(cell), small(cell, seed=1)
        parts = [torch.nn.BatchNorm2d(1), torch.nn.Identity()]  # buffers, and entries of no layer
        models = [torch.nn.Sequential(copy.deepcopy(parts[0]), m) for m in (straight, resumed)]
        train(models[0], optim.AnalogSGD(models[0].parameters(), lr=0.05))
        rk.torch.save_safetensors(models[0], tmp_path / "state")
        rk.torch.load_safetensors(models[1], tmp_path / "state")
        same(*models)
        for model in models:
            train(model, optim.AnalogSGD(model.parameters(), lr=0.05))
        same(*models)
        assert torch.equal(models[0][0].running_mean, models[1][0].running_mean)

    def test_files_of_others(self, tmp_path):
        pytest.importorskip("safetensors", reason="safetensors, an extra, is not installed")
        (tmp_path / "state").write_bytes(b"no such file")
        with pytest.raises(errors.FormatError, match="save_safetensors"):
            rk.torch.load_safetensors(small(rk.SoftBounds()), tmp_path / "state")


class TestOverTime:
    def test_a_year(self):
        cell = rk.InferenceCell(compensation="global")
        model = small(cell).train()
        x, _ = data()

        def score(net):
            assert not net.training
            return (net(x) ** 2).mean()

        weights = model[0].get_weights()
        found = rk.torch.over_time(model, score, (1.0, 3.15e7), n_program=2, n_read=2)
        assert found.scores.shape == (2, 2)
        assert len(set(found.scores.flatten())) == 4
        np.testing.assert_allclose(found.mean, found.scores.mean(0))
        assert (found.spread > 0).all()
        assert str(found).splitlines()[2].lstrip().startswith("1 y")
        assert torch.equal(model[0].get_weights(), weights)
        assert model.training
        again = rk.torch.over_time(small(cell).train(), score, (1.0, 3.15e7), n_program=1)
        assert again.spread.tolist() == [0, 0]
        for match, options in (("times", {"times": ()}), ("n_program", {"n_program": 0})):
            with pytest.raises(errors.ParameterError, match=match):
                rk.torch.over_time(model, score, **options)
        with pytest.raises(errors.ParameterError, match="inference tiles"):
            rk.torch.over_time(small(rk.SoftBounds()), score)

    def test_its_figure(self):
        pytest.importorskip("matplotlib")
        times = np.array([1.0, 3600.0, 3.15e7])
        scores = np.array([[0.9, 0.8, 0.7], [0.92, 0.84, 0.6]])
        ageing = rk.torch.models.Ageing(times, scores, 0.95)
        ax = plot.plot_ageing(ageing, label="a model")
        lines = ax.get_lines()
        np.testing.assert_allclose(lines[0].get_ydata(), [0.91, 0.82, 0.65])
        assert set(lines[1].get_ydata()) == {0.95}
        assert [t.get_text() for t in ax.get_xticklabels()] == ["1 s", "1 h", "1 d", "30 d", "1 y"]
        assert plot.plot_ageing(ageing, ax=ax) is ax
        with pytest.raises(errors.ParameterError, match="over_time"):
            plot.plot_ageing(scores)
        with pytest.raises(errors.ParameterError, match="positive"):
            plot.plot_ageing(dataclasses.replace(ageing, times=times * 0))


class TestChange:
    @each_cell
    def test_the_periphery(self, cell):
        """Products are those of other settings; all else, hidden weights too, goes on."""
        model = small(cell)
        train(model, optim.AnalogSGD(model.parameters(), lr=0.05))
        before = copy.deepcopy(model)
        noisy = rk.IOParameters(out_noise=0.02, out_noise_std=0.1)
        rk.torch.change(model, layers="0", forward=noisy)
        assert model[0].array.tiles[0][0].forward_parameters == noisy
        assert model[0].settings.forward == noisy
        old, new = (m[0].array.state()["arrays"] for m in (before, model))
        for name, array in old.items():
            if ".forward." not in name:
                assert_same_bits(array, new[name])
        assert model[0].array.clocks == before[0].array.clocks
        x = torch.ones(2, 1, 5, 5)
        assert not torch.equal(model[0](x), before[0](x))
        train(model, optim.AnalogSGD(model.parameters(), lr=0.05))

    def test_updates_and_cells(self):
        model = small(rk.SoftBounds(dw_min=0.01), forward=PERFECT)
        weights = model[3].get_weights()
        short = rk.UpdateParameters(desired_bl=3)
        rk.torch.change(model, layers=["3"], update=short, cell=rk.ConstantStep(w_max=2.0))
        assert model[3].array.tiles[0][0].update_parameters == short
        assert isinstance(model[3].array.cell, rk.ConstantStep)
        assert model[3].array.tiles[0][0].forward_parameters == PERFECT
        assert isinstance(model[0].array.cell, rk.SoftBounds)
        assert torch.equal(model[3].get_weights(), weights)

    def test_inference(self):
        model = small(inference.PCMLike())
        new = rk.InferenceCell(
            noise=inference.Hermes(), input_range=inference.InputRange(value=2.0), w_max=3.0
        )
        weights = model[0].get_weights()
        rk.torch.change(model, cell=new)
        assert isinstance(model[0].array.cell.noise, inference.Hermes)
        assert model[0].array.ranges == [2.0]
        assert torch.equal(model[0].get_weights(), weights)
        rk.torch.program(model)
        with pytest.raises(errors.ParameterError, match="unprogram"):
            rk.torch.change(model, cell=new)

    def test_what_is_refused(self):
        pulses, aware = small(rk.SoftBounds()), small(inference.PCMLike())
        for match, model, options in (
            ("fit none", pulses, {"layers": "7", "forward": PERFECT}),
            ("need forward", pulses, {}),
            ("inference tiles, which have none", aware, {"update": rk.UpdateParameters()}),
            ("pulsed tiles", pulses, {"cell": rk.InferenceCell()}),
            ("inference tiles, got SoftBounds", aware, {"cell": rk.SoftBounds()}),
        ):
            with pytest.raises(errors.ParameterError, match=match):
                rk.torch.change(model, **options)


def test_models_share_nothing_with_their_copies():
    model = nn.AnalogLinear(5, 3, cell=rk.SoftBounds(), seed=1)
    twin = copy.deepcopy(model)
    twin.set_weights(torch.zeros(3, 5))
    assert model.get_weights().abs().max() > 0
