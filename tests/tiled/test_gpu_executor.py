"""Plans on a GPU: what streams do in any order that events allow has the bits of the CPU."""

import numpy as np
import pytest
from fake_gpu import World
from known_models import NAMES
from plans_of import model, untiled

from rpukit import tiled
from rpukit.errors import PlanError
from rpukit.testing import assert_same_bits, on_cpu
from rpukit.tiled import gpu_executor as gpu

MLP = [n for n in NAMES if n.split("/")[-1] in ("ae_mse_b16", "lenet_max")]


def plan_for(name, budget, buffering):
    return tiled.plan(model(name)[0], tiled.gpu(budget), buffering=buffering)


@pytest.mark.parametrize("buffering", ["single", "double", "auto"])
@pytest.mark.parametrize("name", MLP)
def test_streams_in_any_order(monkeypatch, name, buffering):
    training, batches, _ = model(name)
    losses, parameters = untiled(name)
    plan = plan_for(name, 40_000, buffering)
    world = World(seed=len(buffering))
    monkeypatch.setattr(gpu, "_device", world.device)
    executor = gpu.GpuExecutor(plan, (training.train, training.optimiser), captured=False)
    world.defer(executor)
    for key, value in training.initial.items():
        executor.array(key)[...] = value
    found = []
    with on_cpu():
        for data, target in batches[:2]:
            executor.array(training.data)[...] = data
            executor.array(training.target)[...] = target
            executor.array(training.reset)[...] = True
            executor.run(0)
            found.append(float(executor.array(training.loss).reshape(-1)[0]))
            executor.run(1)
    assert_same_bits(np.array(found), losses[:2])
    if len(batches) == 2:
        for key, value in parameters.items():
            assert_same_bits(executor.array(key), value)


def test_three_levels_are_refused():
    training, _, _ = model(MLP[0])
    plan = tiled.plan(training, tiled.siracusa_l3())
    with pytest.raises(PlanError, match="two levels"):
        gpu.GpuExecutor(plan, (training.train, training.optimiser))


@pytest.mark.gpu
@pytest.mark.parametrize("buffering", ["single", "double", "auto"])
@pytest.mark.parametrize("name", MLP)
def test_gpu(name, buffering):
    training, batches, n_accumulate = model(name)
    losses, parameters = untiled(name)
    trainer = plan_for(name, 40_000, buffering).trainer(
        training, device="gpu", n_accumulate=n_accumulate
    )
    assert_same_bits(trainer.fit(batches), losses)
    for key, value in trainer.parameters().items():
        assert_same_bits(value, parameters[key])
