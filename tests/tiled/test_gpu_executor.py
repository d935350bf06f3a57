"""Plans on a GPU: what streams do in any order that events allow has the bits of the CPU."""

import numpy as np
import pytest

from rpukit import _device, tiled
from rpukit.errors import PlanError
from rpukit.testing import assert_same_bits, on_cpu
from rpukit.tiled import methods
from rpukit.tiled.program import Copy
from rpukit.tiled.runtime import gpu
from tests.reference.models import NAMES
from tests.tiled.analog_nets import built
from tests.tiled.fake_gpu import World
from tests.tiled.method_nets import gated
from tests.tiled.reference_plans import model, untiled
from tests.tiled.test_fusion import dense

MLP = [n for n in NAMES if n.split("/")[-1] in ("ae_mse_b16", "lenet_max")]


def plan_for(name, budget, buffering):
    return tiled.plan(model(name)[0], tiled.gpu(budget), buffering=buffering)


def streamed(monkeypatch, training, plan, batches, seed):
    """Train on streams that run in a random order: the executor, and losses."""
    world = World(seed)
    monkeypatch.setattr(gpu, "_device", world.device)
    executor = gpu.GpuExecutor(plan, (training.train, training.optimiser), captured=False)
    assert not world.usual.tasks  # its tables are there before its own streams begin
    world.defer(executor)
    for key, value in training.initial.items():
        executor.array(key)[...] = value
    found = []
    with on_cpu():
        for data, target in batches:
            executor.array(training.data)[...] = data
            executor.array(training.target)[...] = target
            if training.accumulators:
                executor.array(training.reset)[...] = True
            executor.run(0)
            found.append(float(executor.array(training.loss).reshape(-1)[0]))
            executor.run(1)
    return executor, np.array(found)


@pytest.mark.sweep
@pytest.mark.parametrize("buffering", ["single", "double", "auto"])
@pytest.mark.parametrize("name", MLP)
def test_streams_in_any_order(monkeypatch, name, buffering):
    training, batches, _ = model(name)
    losses, parameters = untiled(name)
    plan = plan_for(name, 40_000, buffering)
    executor, found = streamed(monkeypatch, training, plan, batches[:2], len(buffering))
    assert_same_bits(found, losses[:2])
    if len(batches) == 2:
        for key, value in parameters.items():
            assert_same_bits(executor.array(key), value)


def test_parts_of_a_program_alone(monkeypatch):
    """Tiles, copies one way and both ways do what they say, and measuring changes nothing."""
    training, batches, _ = model(MLP[0])
    plan = plan_for(MLP[0], 40_000, "auto")
    executor, _ = streamed(monkeypatch, training, plan, batches[:1], 3)
    steps, done = executor._ready[0], []

    def noted(kind, act):
        return lambda *stream: (done.append(kind), act(*stream))

    executor._ready[0] = [(kind, token, noted(kind, act)) for kind, token, act in steps]
    kinds = [kind for kind, _, _ in steps if kind != "wait"]
    with on_cpu():
        for only, want in (("compute", "compute"), ("in", "in"), ("copies", ("in", "out"))):
            done.clear()
            executor._run_part(0, only)
            assert done == [kind for kind in kinds if kind in want]
        before = executor._arenas["host"].copy()
        found = executor.measure(0, repeat=1)
        waits = executor.waits(0)
    assert_same_bits(executor._arenas["host"], before)
    moved = [one for one in plan.programs[0].instructions if isinstance(one, Copy)]
    assert len(waits) == len(moved)
    assert {copy.token for copy, _ in waits} == {copy.token for copy in moved}
    assert {seconds for _, seconds in waits} == {0.002}
    assert min(found.total, found.compute, found.inward, found.outward, found.copies) > 0
    assert gpu.Overlap(2.5, 1.0, 2.0, 1.0, 2.25).fraction == pytest.approx(1.5 / 1.75)


@pytest.mark.parametrize("bias", [False, True])
def test_streams_of_updates_and_relu_in_products(monkeypatch, bias):
    training, batches = dense(tiled.SGD(lr=0.05), bias=bias)
    fused = tiled.fuse_updates(tiled.fuse_activations(training))
    assert "Relu" not in [node.op for node in fused.train.nodes]
    assert [node.op for node in fused.train.nodes].count("GemmUpdate") == 1  # of two
    plan = tiled.plan(fused, tiled.gpu(6_000))
    executor, found = streamed(monkeypatch, fused, plan, batches, 1)
    trainer = tiled.plan(training, tiled.siracusa_l2()).trainer(training)
    assert_same_bits(found, trainer.fit(batches))
    for key, value in trainer.parameters().items():
        assert_same_bits(executor.array(key), value)


def test_streams_of_values_of_8_and_16_bits(monkeypatch):
    """Also constants of these types, and a chain that reads a part of a product's result."""
    b, loss, batches = gated()
    small = methods.quantise(methods.add_lora(b, "w", rank=2), batches, stored=True)
    less = methods.store_narrow(small.training(loss, tiled.SGD(lr=0.1)), others="fp16")
    training = tiled.fuse(less)
    kinds = {tensor.dtype for tensor in training.train.tensors.values()}
    assert kinds >= {"int8", "float16"} and training.train.constants["w/stored"].dtype == np.int8
    assert any("starts" in n.attributes for n in training.train.nodes if "Fused" in n.op)
    plan = tiled.plan(training, tiled.gpu(40_000), buffering="double")
    executor, found = streamed(monkeypatch, training, plan, batches, 2)
    trainer = tiled.plan(training, tiled.siracusa_l2()).trainer(training)
    assert_same_bits(found, trainer.fit(batches))
    for key, value in trainer.parameters().items():
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


def nets(name):
    """Networks of some 2 MB, and mini-batches."""
    if name == "analog":
        return built("constant", (256, 256, 128))[:2]
    training, batches = dense(tiled.SGD(lr=0.05), sizes=(256, 320, 288, 320, 128))
    if name == "fused":
        training = tiled.fuse_updates(tiled.fuse_activations(training))
    return training, batches


@pytest.mark.gpu
def test_a_new_trainer_on_a_busy_gpu():
    """Its memory and its tables are filled before its own streams begin."""
    training, batches, n_accumulate = model(MLP[0])
    losses, _ = untiled(MLP[0])
    plan, cp = plan_for(MLP[0], 40_000, "auto"), _device.cupy()
    work = cp.ones(1 << 26, cp.float32)
    for _ in range(4):  # the first one compiles kernels, which takes longer than any work
        for _ in range(100):
            cp.sin(work, out=work)
        trainer = plan.trainer(training, device="gpu", n_accumulate=n_accumulate)
        assert_same_bits(trainer.fit(batches[:1]), losses[:1])


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["dense", "fused", "analog"])
def test_gpu_with_a_quarter_of_the_state(name):
    """The arena is the budget, a step asks for no memory, and bits are those of all in one."""
    training, batches = nets(name)
    lasting = [t for n, t in training.train.tensors.items() if n in training.initial]
    lasting += [training.train.tensors[n] for n in training.accumulators]
    state = sum(t.nbytes for t in lasting)
    state += sum(value.nbytes for value in training.train.constants.values())
    whole = tiled.plan(training, tiled.gpu(1 << 30), buffering="single")
    resident = whole.trainer(training, device="gpu")
    plan, asked = tiled.plan(training, tiled.gpu(state // 4)), []

    class Watch(_device.cupy().cuda.MemoryHook):
        name = "watch"

        def malloc_postprocess(self, **given):
            asked.append(given["size"])

    with Watch():
        trainer = plan.trainer(training, device="gpu")
        trainer.step(batches[0])
        assert max(asked) <= state // 4
        assert sum(asked) - max(asked) < 64 << 10  # the numbers of the tiles
        before = len(asked)
        losses = [trainer.step(batch) for batch in batches[1:]]
        assert len(asked) == before
    assert trainer._executor._captured[0] is not None  # so nothing waited on the host
    assert_same_bits(np.array(losses), resident.fit(batches)[1:])
    ends = resident.parameters(everything=True)
    for key, value in trainer.parameters(everything=True).items():
        assert_same_bits(value, ends[key])
