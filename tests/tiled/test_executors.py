"""Plans on a CPU: any tiles, buffers and order of transfers give the bits of the untiled graph."""

import dataclasses

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import (
    DeviceError,
    DTypeError,
    FormatError,
    ParameterError,
    PlanError,
    ShapeError,
    TransferError,
)
from rpukit.testing import assert_same_bits
from rpukit.tiled.runtime import gpu as gpu_executor
from rpukit.tiled.runtime.cpu import CpuExecutor
from rpukit.tiled.runtime.transfers import AtIssue
from tests.reference.models import NAMES
from tests.tiled.fake_gpu import World
from tests.tiled.reference_plans import model, plan_of, trained, untiled

SMALL = [n for n in NAMES if n.split("/")[-1] in ("ae_mse_b16", "dscnn_like", "lenet_max")]
LONG = "fixtures/MobileNetV1"  # as long as all others together
OTHERS = [n for n in NAMES if n not in (*SMALL, LONG)]
MODES = {"single": "at_wait", "double": "mixed", "auto": "threads", "deeploy": "at_issue"}


def assert_untiled(name, result):
    losses, parameters = untiled(name)
    assert_same_bits(result[0], losses)
    for key, value in parameters.items():
        assert_same_bits(result[1][key], value)


@pytest.mark.sweep
@pytest.mark.parametrize("buffering", ["single", "double", "auto"])
@pytest.mark.parametrize("name", SMALL)
def test_every_schedule_has_the_bits_of_the_untiled_graph(name, buffering):
    plan = plan_of(name, 16_000, buffering)
    for mode in ("at_issue", "at_wait", "mixed", "threads"):
        assert_untiled(name, trained(name, plan, transfers=mode, seed=3))


@pytest.mark.slow
@pytest.mark.parametrize("buffering", [*MODES, "double_outer"])
@pytest.mark.parametrize("l1", [16_000, 32_000, 64_000, 128_000])
@pytest.mark.parametrize("name", NAMES)
def test_every_model_at_every_size(name, l1, buffering):
    plan = plan_of(name, l1, buffering)
    for mode in ("at_issue", "at_wait", "mixed"):
        assert_untiled(name, trained(name, plan, transfers=mode, seed=l1))


@pytest.mark.sweep
@pytest.mark.parametrize("name", [*OTHERS, pytest.param(LONG, marks=pytest.mark.slow)])
def test_the_other_models(name):
    assert_untiled(name, trained(name, plan_of(name, 64_000, "double"), transfers="mixed", seed=1))


def without_wait(plan, number):
    """The plan with one wait of its training program left out."""
    program = plan.programs[0]
    waits = [k for k, one in enumerate(program.instructions) if type(one).__name__ == "Wait"]
    left = program.instructions[: waits[number]] + program.instructions[waits[number] + 1 :]
    changed = dataclasses.replace(program, instructions=left)
    return dataclasses.replace(plan, programs=(changed, *plan.programs[1:]))


def test_a_missing_wait_shows_in_the_loss():
    name = SMALL[0]
    broken = without_wait(plan_of(name, 16_000, "double"), 0)
    losses, _ = trained(name, broken, checked=False, transfers="at_wait")
    assert (losses != untiled(name)[0]).all()  # NaN, or what a Relu made of it


class Failing(AtIssue):
    """The n-th transfer from now fails."""

    left = 10**9

    def start(self, token, inward, source, target):
        self.left -= 1
        if self.left == 0:
            raise OSError("the link is down")
        super().start(token, inward, source, target)


@pytest.mark.parametrize("after", [5, -5])
def test_a_step_that_fails_changes_nothing(after):
    name = SMALL[0]
    training, batches, _ = model(name)
    plan, link = plan_of(name, 16_000, "auto"), Failing()
    trainer = plan.trainer(training, transfers=link)
    trainer.step(batches[0])
    n_copy = sum(type(one).__name__ == "Copy" for p in plan.programs for one in p.instructions)
    before = trainer.parameters(everything=True)
    link.left = after if after > 0 else n_copy + after
    with pytest.raises(TransferError, match="link is down"):
        trainer.step(batches[1])
    for key, value in trainer.parameters(everything=True).items():
        assert_same_bits(value, before[key])
    assert trainer.n_step == 1
    link.left = 10**9
    rest = trainer.fit(batches[1:])
    assert_same_bits(rest, untiled(name)[0][1:])


def test_training_goes_on_from_a_file(tmp_path):
    name = next(n for n in NAMES if n.endswith("mlp_accum2"))
    training, batches, n_accumulate = model(name)
    plan = plan_of(name, 16_000, "auto")
    first = plan.trainer(training, n_accumulate=n_accumulate)
    first.fit(batches[:3])  # in the middle of an accumulation
    first.save(tmp_path / "state.npz")
    other = plan_of(name, 64_000, "single").trainer(training, n_accumulate=n_accumulate)
    other.load(tmp_path / "state.npz")
    assert other.n_step == 3
    assert_same_bits(other.fit(batches[3:]), untiled(name)[0][3:])
    for key, value in untiled(name)[1].items():
        assert_same_bits(other.parameters()[key], value)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    whole = (tmp_path / "state.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    for wrong in ("other", "half"):
        with pytest.raises(FormatError, match=wrong):
            other.load(tmp_path / f"{wrong}.npz")


def test_bad_input():
    training, batches, _ = model(SMALL[0])
    plan = plan_of(SMALL[0], 64_000, "single")
    trainer = plan.trainer(training)
    before = trainer.parameters(everything=True)
    x, y = batches[0]
    with pytest.raises(ShapeError, match="got shape"):
        trainer.step((x[:1], y))
    with pytest.raises(DTypeError, match="astype"):
        trainer.step((x.astype(np.float64), y))
    with pytest.raises(ParameterError, match="pair"):
        trainer.step(x)
    for key, value in trainer.parameters(everything=True).items():
        assert_same_bits(value, before[key])
    with pytest.raises(ParameterError, match="n_accumulate"):
        plan.trainer(training, n_accumulate=0)
    with pytest.raises(ParameterError, match="transfers"):
        plan.trainer(training, transfers="late")
    with pytest.raises(ParameterError, match="no values"):
        plan.trainer(dataclasses.replace(training, initial={}))
    with pytest.raises(PlanError, match="need 2: one for each program"):
        CpuExecutor(plan, [training.train])


def refuse(_):
    raise MemoryError("no pages left to pin")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("alloc_pinned_memory", "could not pin .*ulimit"),
        ("empty", "the arena needs .* bytes"),
    ],
)
def test_memory_of_a_gpu_or_of_its_host_that_is_not_there(monkeypatch, kind, text):
    training, _, _ = model(SMALL[0])
    plan = tiled.plan(training, tiled.gpu(40_000), buffering="single")
    world = World(seed=0)
    setattr(world.xp.cuda if kind.startswith("alloc") else world.xp, kind, lambda *_: refuse(_))
    monkeypatch.setattr(gpu_executor, "_device", world.device)
    with pytest.raises(DeviceError, match=text):
        gpu_executor.GpuExecutor(plan, (training.train, training.optimiser))
