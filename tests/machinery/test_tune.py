"""The tuner changes time, never a result: planted variants that are wrong, fast or both."""

import json
import logging
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit._kernels import Kernel, clock, tune
from rpukit._kernels.times import Record, Store
from rpukit.errors import DeviceError, ParameterError
from rpukit.testing import assert_same_bits, on_cpu

KERNEL = Kernel("variants", path=Path(__file__).parents[1] / "on_cpu/planted/variants.cu")
N = 37


@dataclass(frozen=True)
class Variant:
    name: str
    number: int
    most: int = 1 << 30  # samples that it takes

    def valid(self, n_batch):
        return n_batch <= self.most


PLAIN, PAIRS = Variant("plain", 0), Variant("pairs", 1)
SINGLE = Variant("single", 2, most=1)  # right for one sample only, and says so
LIAR = Variant("liar", 2)  # the same kernel, which claims every batch
BACKWARDS = Variant("backwards", 3)
ALL = (PLAIN, PAIRS, SINGLE)
SECONDS = {"plain": 5e-6, "pairs": 3e-6, "single": 1e-6, "liar": 1e-6, "backwards": 1e-6}


def launch(variant, x):
    y = np.zeros(len(x), np.float32)
    args = (len(x), x.shape[1], 0.3, x, y)
    KERNEL.launch((1,), (256,), args, macros={"VARIANT": variant.number})
    return y


class Op:
    """An op as the library has them; it counts what the tuner makes it do."""

    def __init__(self, candidates=ALL, key=(N, "float32")):
        self.candidates, self.key = candidates, key
        self.trials, self.taken = 0, []

    def make_trial(self, n_batch):
        self.trials += 1
        x = np.random.default_rng(1).random((min(n_batch, 64), N), np.float32)
        return lambda candidate: [launch(candidate, x)]

    def __call__(self, x):
        chosen = tune.choose(
            KERNEL, self.key, self.candidates, lambda: self.make_trial(len(x)), n_batch=len(x)
        )
        self.taken.append(chosen.name)
        return launch(chosen, x)


class FakeClock:
    """Tells planted times; a candidate is run once, as the real one does."""

    def __init__(self, seconds=None):
        self.seconds, self.calls = seconds or SECONDS, []

    def __call__(self, candidate, run):
        run()
        self.calls.append(candidate.name)
        return self.seconds[candidate.name]


@pytest.fixture(autouse=True)
def own_world(tmp_path, monkeypatch):
    """An own cache folder, and nothing remembered before or after."""
    monkeypatch.setenv("RPUKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("RPUKIT_TUNE", raising=False)
    monkeypatch.delenv("RPUKIT_TUNE_VERIFY", raising=False)
    with on_cpu():
        yield
    rk.tuning.on()
    rk.tuning.fix("variants", None)


@pytest.fixture
def fake():
    with tune.use_clock(FakeClock()):
        yield tune._settings.clock


def batch(n, seed=0):
    return np.random.default_rng(seed).random((n, N), np.float32)


def test_planted_variants_are_what_they_say():
    x = batch(128)
    exact = 0.3 * x.astype(np.float64).sum(axis=1)
    assert np.allclose(launch(PLAIN, x), exact, rtol=37 * 2**-24)  # a rounding a term
    assert_same_bits(launch(PAIRS, x), launch(PLAIN, x))
    assert_same_bits(launch(SINGLE, x)[:1], launch(PLAIN, x)[:1])
    assert not launch(SINGLE, x)[1:].any()
    assert (launch(BACKWARDS, x) != launch(PLAIN, x)).any()


def test_variant_for_one_sample_never_serves_a_batch(fake):
    """Primed with one sample, where the variant that drops the rest is fastest; then 128."""
    op = Op()
    assert_same_bits(op(batch(1)), launch(PLAIN, batch(1)))
    assert op.taken == ["single"]
    assert_same_bits(op(batch(128)), launch(PLAIN, batch(128)))
    assert op.taken == ["single", "pairs"]
    for n in (2, 3, 64, 127, 129):
        assert_same_bits(op(batch(n)), launch(PLAIN, batch(n)))
    assert "single" not in op.taken[1:]


def test_validity_is_asked_for_the_exact_batch(fake):
    """65 to 128 share their times; a variant for at most 100 must not serve 128 by them."""
    upto_100 = Variant("single", 1, most=100)
    op = Op((PLAIN, upto_100))
    op(batch(100))
    op(batch(128))
    op(batch(99))
    assert op.taken == ["single", "plain", "single"]
    assert op.trials == 1


def test_times_are_kept_by_bucket(fake):
    op = Op()
    for n in (65, 128, 100, 65):
        op(batch(n))
    assert op.trials == 1
    op(batch(129))
    op(batch(64))
    assert op.trials == 3
    assert [tune.bucket(n) for n in (1, 2, 3, 4, 5, 127, 128, 129)] == [
        1,
        2,
        4,
        4,
        8,
        128,
        128,
        256,
    ]
    assert [tune.bucket(n, 8) for n in (1, 9, 16, 65, 128, 291, 513)] == [
        1,
        9,
        16,
        72,
        128,
        320,
        576,
    ]


def test_a_variant_without_a_time_is_timed(fake):
    late = Variant("single", 1, most=70)
    op = Op((PLAIN, PAIRS, late))
    op(batch(128))
    op(batch(66))
    assert op.taken == ["pairs", "single"]
    assert op.trials == 2


def test_verification_rejects_other_bits(fake, monkeypatch, caplog):
    monkeypatch.setenv("RPUKIT_TUNE_VERIFY", "1")
    op = Op((PLAIN, PAIRS, BACKWARDS))
    with caplog.at_level(logging.WARNING, "rpukit"):
        result = op(batch(8))
    assert op.taken == ["pairs"]
    assert_same_bits(result, launch(PLAIN, batch(8)))
    assert "variant backwards is rejected" in caplog.text
    assert rk.tuning.report().rejected == (("variants", "backwards"),)
    (entry,) = rk.tuning.report().entries
    assert entry.verified
    assert "backwards" not in entry.microseconds
    op(batch(1))  # rejected for every size, not only for the one that showed it
    assert op.taken == ["pairs", "pairs"]


def test_without_verification_the_planted_fault_is_taken(fake):
    """So the test before this one shows what the mode is for."""
    op = Op((PLAIN, PAIRS, BACKWARDS))
    op(batch(8))
    assert op.taken == ["backwards"]


def test_verification_rejects_a_variant_that_drops_samples(fake, monkeypatch):
    monkeypatch.setenv("RPUKIT_TUNE_VERIFY", "1")
    op = Op((PLAIN, LIAR))
    assert_same_bits(op(batch(128)), launch(PLAIN, batch(128)))
    assert op.taken == ["plain"]


def test_verification_times_again_what_was_not_verified(fake, monkeypatch):
    op = Op((PLAIN, BACKWARDS))
    op(batch(8))
    monkeypatch.setenv("RPUKIT_TUNE_VERIFY", "1")
    tune._memo.clear()  # the environment of a new process
    op(batch(8))
    assert op.taken == ["backwards", "plain"]


def test_verification_needs_outputs(fake, monkeypatch):
    monkeypatch.setenv("RPUKIT_TUNE_VERIFY", "1")
    with pytest.raises(DeviceError, match="returned none for variant plain"):
        tune.choose(KERNEL, (), ALL, lambda: lambda candidate: None, n_batch=2)


def test_ties_go_to_the_plain_variant():
    with tune.use_clock(FakeClock({"plain": 1e-6, "pairs": 0.995e-6})):
        op = Op((PLAIN, PAIRS))
        op(batch(4))
    assert op.taken == ["plain"]


def test_no_clock_on_the_cpu():
    op = Op()
    op(batch(1))
    assert op.taken == ["plain"]
    assert op.trials == 0


def test_off_and_on(fake):
    op = Op()
    rk.tuning.off()
    assert not rk.tuning.report().on
    op(batch(4))
    rk.tuning.on()
    op(batch(4))
    assert op.taken == ["plain", "pairs"]
    assert op.trials == 1


def test_off_by_the_environment(fake, monkeypatch):
    monkeypatch.setenv("RPUKIT_TUNE", "0")
    op = Op()
    op(batch(4))
    assert op.taken == ["plain"]
    assert op.trials == 0
    assert not rk.tuning.report().on


def test_fix(fake):
    op = Op()
    rk.tuning.fix("variants", "single")
    assert rk.tuning.report().fixed == {"variants": "single"}
    assert_same_bits(op(batch(1)), launch(PLAIN, batch(1)))
    assert_same_bits(op(batch(9)), launch(PLAIN, batch(9)))  # it takes no nine samples
    assert op.taken == ["single", "plain"]
    assert op.trials == 0
    rk.tuning.fix("variants", None)
    op(batch(9))
    assert op.taken[-1] == "pairs"


def test_fix_errors(fake, monkeypatch):
    rk.tuning.fix("variants", "fastest")
    with pytest.raises(
        ParameterError, match="'fastest' is fixed, but there are only plain, pairs"
    ):
        Op()(batch(2))
    with pytest.raises(ParameterError, match="need the names"):
        rk.tuning.fix("variants", 3)
    rk.tuning.fix("variants", None)
    monkeypatch.setenv("RPUKIT_TUNE_VERIFY", "1")
    op = Op((PLAIN, BACKWARDS))
    op(batch(2))
    rk.tuning.fix("variants", "backwards")
    with pytest.raises(DeviceError, match="bits were found to differ"):
        op(batch(2))


def test_no_valid_variant():
    with pytest.raises(DeviceError, match="no variant takes a batch of 2; there are single"):
        tune.choose(KERNEL, (), [SINGLE], None, n_batch=2)


def test_steady_calls_only_look_up(fake):
    op = Op()
    for _ in range(5):
        op(batch(16))
    assert op.trials == 1
    assert fake.calls == ["plain", "pairs"]


def test_scratch_is_freed(fake):
    class Scratch:
        alive = 0

        def __init__(self):
            Scratch.alive += 1

        def __del__(self):
            Scratch.alive -= 1

    def make_trial():
        scratch = Scratch()
        return lambda candidate: scratch and launch(candidate, batch(2))

    tune.choose(KERNEL, (), ALL, make_trial, n_batch=2)
    assert fake.calls == ["plain", "pairs"]
    assert Scratch.alive == 0


def test_keys_do_not_mix(fake):
    Op(key=(N, "float32"))(batch(4))
    other = Op(key=(N + 1, "float32"))
    other(batch(4))
    assert other.trials == 1


def test_report_is_readable(fake):
    Op()(batch(128))
    report = rk.tuning.report()
    (entry,) = report.entries
    assert (entry.device, entry.kernel, entry.variant, entry.batch) == (
        "cpu",
        "variants",
        "pairs",
        128,
    )
    assert entry.microseconds == {"plain": 5.0, "pairs": 3.0}
    assert "pairs (plain 5.0 us, pairs 3.0 us)" in str(report)


GPU = rk._device.Device("gpu", 0)


@pytest.fixture
def pretend_gpu(monkeypatch):
    """A device that lasts in the cache folder, and whose stream may be capturing."""
    state = {"capturing": False, "times": dict(SECONDS), "timed": 0}

    def gpu_times(runs, **how):
        names = [run.args[0].name for run in runs]  # of candidates
        state["timed"] += len(names)
        state["how"] = how
        return [state["times"][name] for name in names]

    monkeypatch.setattr(clock, "device_name", lambda device: "Pretended GPU sm_90")
    monkeypatch.setattr(clock, "capturing", lambda: state["capturing"])
    monkeypatch.setattr(_device, "using", nullcontext)
    monkeypatch.setattr(clock, "gpu_times", gpu_times)
    tune.forget()
    yield state
    tune.forget()


def choose(n_batch, candidates=ALL, **how):
    return tune.choose(
        KERNEL, (N,), candidates, lambda: lambda c: None, n_batch=n_batch, device=GPU, **how
    ).name


def test_choices_outlive_the_process(pretend_gpu, tmp_path):
    assert choose(128) == "pairs"
    assert pretend_gpu["timed"] == 2
    tune.forget()
    assert choose(100) == "pairs"
    assert pretend_gpu["timed"] == 2
    (file,) = tmp_path.glob("tune-*.json")
    assert json.loads(file.read_text())["device"] == "Pretended GPU sm_90"


@pytest.mark.parametrize("cold", [False, True])
def test_trials_in_graphs_may_find_nothing_in_l2(pretend_gpu, cold):
    choose(128, in_graph=True, cold=cold)
    assert pretend_gpu["how"] == {"in_graph": True, "cold": cold}
    choose(1, cold=cold)  # a trial that allocates cannot be captured
    assert pretend_gpu["how"] == {}


def test_nothing_is_timed_during_capture(pretend_gpu):
    pretend_gpu["capturing"] = True
    assert choose(4) == "plain"
    assert pretend_gpu["timed"] == 0
    pretend_gpu["capturing"] = False
    assert choose(4) == "pairs"  # the default of the capture was not remembered
    pretend_gpu["capturing"] = True
    assert choose(4) == "pairs"


def test_damaged_file_is_forgotten(pretend_gpu, tmp_path, caplog):
    choose(4)
    (file,) = tmp_path.glob("tune-*.json")
    for damage in ("", "{", '{"format": 1}', "[]", '{"format": 1, "device": 3, "records": 0}'):
        file.write_text(damage)
        tune.forget()
        pretend_gpu["timed"] = 0
        assert choose(4) == "pairs"
        assert pretend_gpu["timed"] == 2, damage


def test_times_of_an_older_source_are_dropped(pretend_gpu, tmp_path):
    choose(4)
    store = Store("Pretended GPU sm_90", next(tmp_path.glob("tune-*.json")).name)
    (record,) = store.records()
    store.save(Record("variants", "another text", record.key, 4, {"plain": 1.0}))
    tune.forget()
    assert choose(4) == "pairs"
    assert pretend_gpu["timed"] == 4


def test_two_processes_keep_both_records(tmp_path):
    first, second = Store("x", "tune-x.json"), Store("x", "tune-x.json")
    first.save(Record("k", "v", "(1,)", 1, {"plain": 1.0}))
    second.save(Record("k", "v", "(2,)", 1, {"plain": 1.0}))
    assert len(Store("x", "tune-x.json").records()) == 2
