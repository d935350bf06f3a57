"""Calls of objects: cut short they are known to be, one thread at a time, Ctrl-C at their end."""

import copy
import inspect
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device, testing
from rpukit._kernels import calls
from rpukit._kernels.calls import CallState
from rpukit.errors import (
    InterruptedCallError,
    NonFiniteError,
    ParameterError,
    ShapeError,
    ThreadError,
)
from tools import fuzz_interrupts, fuzz_threads
from tools.interrupt_cases import KINDS, _plan, state

ROOT = Path(__file__).parents[2]
X = np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3)
D = np.linspace(1, -0.5, 24, dtype=np.float32).reshape(6, 4)
SAMPLES = np.arange(60).reshape(20, 3) % 4


def tile(cell=None, **options):
    return rk.AnalogTile((4, 3), cell or rk.SoftBounds(dw_min=0.01), seed=3, **options)


def circuit():
    return rk.Circuit(rk.circuits.hmm(3, 2, 4), seed=1)


def trainer():
    plan, training = _plan(False)
    return plan.trainer(training)


def gradient():
    return rk.gemm.WeightGradient((3, 4), np.float16)


BATCH = (np.ones((4, 5), np.float32), np.zeros((4, 2), np.float32))
HALVES = X.astype(np.float16), D.astype(np.float16)
OBJECTS = {
    "tile": (tile, lambda t: t.update(X, D, 0.1)),
    "compound": (
        lambda: tile(rk.ChoppedTransfer(devices=(rk.SoftBounds(), rk.SoftBounds()))),
        lambda t: t.update(X, D, 0.1),
    ),
    "inference": (lambda: rk.InferenceTile((4, 3), seed=2), lambda t: t.update(X, D, 0.1)),
    "mapped": (
        lambda: rk.inference.map_matrix((4, 3), max_tile=(2, 2)),
        lambda t: t.update(X, D, 0.1),
    ),
    "array": (
        lambda: rk.TileArray((4, 3), rk.SoftBounds(), tile_shape=(2, 2), bias=True),
        lambda t: t.update(X, D, 0.1),
    ),
    "circuit": (circuit, lambda t: t.em_step(SAMPLES, step=0.5, pseudocount=0.1)),
    "statistics": (circuit, lambda t: t.accumulate(SAMPLES)),
    "trainer": (trainer, lambda t: t.step(BATCH)),
    "product": (gradient, lambda t: t.add(*HALVES)),
}
each_object = pytest.mark.parametrize("name", OBJECTS)


@pytest.mark.parametrize("name", OBJECTS)
def test_public_methods_are_calls(name):
    """Public methods are guarded, or only make calls that are."""
    through = {"copy", "matmat", "matvec", "rmatmat", "rmatvec", "to"}
    methods = inspect.getmembers(type(OBJECTS[name][0]()), inspect.isfunction)
    public = {own for own, method in methods if not own.startswith("_")}
    assert {own for own, method in methods if hasattr(method, "_is_call")} >= public - through


class TestInterrupts:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_call_cut_short_is_undone_complete_or_known(self, kind):
        """In a process of its own, whose end, if an interrupt ends it, is seen here."""
        cases = "2" if kind == "estimator" else "6"
        command = ["tools/fuzz_interrupts.py", "--kinds", kind, "--cases", cases, "--seed", "5"]
        command += ["--seconds", "inf"]  # all of them, however slow the machine
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}"

    def test_the_fuzzer_sees_what_is_not_marked(self, monkeypatch):
        monkeypatch.setattr(CallState, "changing", lambda self, name=None: None)
        found = [fuzz_interrupts.check(5, number, ["inference"])[2] for number in range(30)]
        assert any("half changed without a word" in fault for fault in found)

    @each_object
    def test_what_is_cut_short_refuses_calls_and_copies(self, name):
        make, call = OBJECTS[name]
        thing = make()
        call(thing)
        thing._call_state.changed = "update"
        attempts = [call, pickle.dumps, copy.deepcopy, state]
        if name in ("mapped", "product", "trainer"):  # its copies are as cut short as it is
            attempts = [call, state]
        for attempt in attempts:
            with pytest.raises(InterruptedCallError, match="'update' .* cut short"):
                attempt(thing)
        assert repr(thing)

    def test_a_copy_of_what_is_cut_short_is_cut_short(self):
        thing = gradient()
        thing._call_state.changed = "add"
        for made in (copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
            with pytest.raises(InterruptedCallError):
                made.result()

    def test_load_mends_a_trainer(self, tmp_path):
        thing, other = trainer(), trainer()
        other.step(BATCH)
        other.save(tmp_path / "state.npz")
        thing._call_state.changed = "step"
        thing.load(tmp_path / "state.npz")
        assert thing.step(BATCH) == other.step(BATCH)

    def test_errors_before_the_first_change_leave_a_tile_usable(self):
        thing = tile()
        for wrong in (
            lambda: thing.update(X, D[:, :2], 0.1),
            lambda: thing.update(X, D),
            lambda: thing.update(X * np.nan, D, 0.1),
            lambda: thing.set_cells(w_max=-np.ones((4, 3), np.float32)),
            lambda: thing.decay(-1),
        ):
            with pytest.raises((ValueError, TypeError)):
                wrong()
        assert state(thing.update(X, D, 0.1)) == state(tile().update(X, D, 0.1))

    def test_deferred_errors_leave_a_tile_usable(self):
        with testing.on_cpu(0):
            thing = tile(validate="sync")
            with pytest.raises(NonFiniteError):
                thing.update(X * np.nan, D, 0.1)
            assert thing.update(X, D, 0.1).clocks["update"] == len(X)

    def test_errors_in_one_part_of_a_matrix(self):
        wide = {"max_tile": (2, 2), "w_max": 1.0}
        thing = rk.inference.map_matrix((4, 3), **wide)
        with pytest.raises(NonFiniteError, match="the matrix is unchanged"):
            thing.forward(X * [1, 1, np.nan])
        with pytest.raises(ParameterError, match="w_max"):
            thing.set_weights(np.where(np.arange(3) == 2, 5, D[:4, :3]))
        with pytest.raises(ParameterError, match="event"):
            thing.program(event=-1)
        assert state(thing) == state(rk.inference.map_matrix((4, 3), **wide))

    def test_parts_of_a_call_share_its_mark(self):
        thing = tile(rk.SoftBounds(lifetime=10.0, diffusion=0.1))
        decay = thing._unit.decay

        def fails(_):
            raise MemoryError

        thing._unit.decay = fails
        with pytest.raises(MemoryError):
            thing.post_step()  # has diffused
        thing._unit.decay = decay
        with pytest.raises(InterruptedCallError, match="post_step|diffuse"):
            thing.forward(X)


def with_signals(function, n):
    """Call a function, the first time with n times Ctrl-C before it."""
    signals = [signal.SIGINT] * n

    def call(*args, **kwargs):
        while signals:
            signal.raise_signal(signals.pop())
        return function(*args, **kwargs)

    return call


class TestCtrlC:
    def test_it_is_raised_when_the_call_is_complete(self):
        thing = tile()
        thing._unit.update = with_signals(thing._unit.update, 1)
        with pytest.raises(KeyboardInterrupt):
            thing.update(X, D, 0.1)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert state(thing) == state(tile().update(X, D, 0.1))

    def test_the_second_one_is_raised_at_once(self):
        thing = tile()
        thing._unit.update = with_signals(thing._unit.update, 2)
        with pytest.raises(KeyboardInterrupt):
            thing.update(X, D, 0.1)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert state(thing) == state(tile())  # nothing had changed yet

    def test_it_is_raised_at_once_outside_of_calls(self, monkeypatch):
        signal.signal(signal.SIGINT, calls._remember)  # as an interrupt of an interrupt leaves it
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_handlers_of_others_stay(self):
        seen, thing = [], tile()
        update = thing._unit.update
        thing._unit.update = with_signals(lambda *a: (seen.append("inside"), update(*a)), 1)
        signal.signal(signal.SIGINT, lambda *_: seen.append("handled"))
        try:
            thing.update(X, D, 0.1)
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        assert seen == ["handled", "inside"]

    def test_samples_are_not_counted_if_none_were_before(self, monkeypatch):
        from rpukit.circuits.learning import spread

        thing, before = circuit(), state(circuit())
        monkeypatch.setattr(spread, "add_pass", with_signals(spread.add_pass, 1))
        with pytest.raises(KeyboardInterrupt):
            thing.em_step(np.tile(SAMPLES, (60, 1)))
        assert state(thing) == before

    def test_fit_loses_no_step(self):
        thing, other = circuit(), circuit()
        steps = []

        def step(*args, **kwargs):
            if len(steps) == 2:
                signal.raise_signal(signal.SIGINT)
            steps.append(1)
            return rk.Circuit.em_step(thing, *args, **kwargs)

        thing.em_step = step
        with pytest.raises(KeyboardInterrupt):
            thing.fit(SAMPLES, n_epochs=5)
        other.fit(SAMPLES, n_epochs=2)
        assert state(thing) == state(other)

    def test_a_trainer_is_between_two_steps(self):
        thing, other = trainer(), trainer()
        thing._executor.run = with_signals(thing._executor.run, 1)
        with pytest.raises(KeyboardInterrupt):
            thing.fit([BATCH] * 3)
        other.step(BATCH)
        assert state(thing) == state(other)


class TestThreads:
    @each_object
    def test_another_thread_is_refused_by_name(self, name):
        make, call = OBJECTS[name]
        thing, inside, leave = make(), threading.Event(), threading.Event()

        class Waits(CallState):
            def changing(self, name=None):
                super().changing(name)
                inside.set()
                assert leave.wait(60)

        waits = Waits()
        if name in ("circuit", "statistics"):
            thing._core.call_state = waits
        elif hasattr(thing, "_guard"):
            thing._guard.call_state = thing._call_state = waits
        else:
            thing._call_state = waits
        worker = threading.Thread(target=call, args=(thing,), name="the first one")
        worker.start()
        try:
            assert inside.wait(60)
            for attempt in (call, state):
                with pytest.raises(ThreadError, match="'the first one' is inside another call"):
                    attempt(thing)
        finally:
            leave.set()
            worker.join()
        alone = make()
        call(alone)
        assert state(thing) == state(alone)

    @each_object
    def test_one_object_in_several_threads(self, name):
        make, call = OBJECTS[name]
        thing, alone, refused = make(), make(), []

        def work(_):
            done = 0
            for _ in range(8):
                try:
                    call(thing)
                    done += 1
                except ThreadError as error:
                    refused.append(error)
            return done

        with ThreadPoolExecutor(4) as pool:
            done = sum(pool.map(work, range(4)))
        assert done + len(refused) == 32
        for _ in range(done):
            call(alone)
        assert state(thing) == state(alone)

    @each_object
    def test_objects_side_by_side(self, name):
        make, call = OBJECTS[name]

        def work(_):
            thing = make()
            for _ in range(5):
                call(thing)
            return state(thing)

        with ThreadPoolExecutor(4) as pool:
            assert len({*pool.map(work, range(8)), work(0)}) == 1

    def test_products_side_by_side(self):
        a = np.random.default_rng(1).normal(size=(60, 90)).astype(np.float32)
        expected = rk.det_gemm(a, a, trans_b=True)
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(lambda n: rk.det_gemm(a[:n], a, trans_b=True), range(1, 61)):
                testing.assert_same_bits(found, expected[: len(found)])

    def test_nothing_comes_between_the_rounds_of_write_verify(self, monkeypatch):
        thing, target, refused = tile(), np.full((4, 3), 0.1, np.float32), []
        forward = rk.AnalogTile.forward

        def other():
            with pytest.raises(ThreadError, match="write_verify: .* is inside another call"):
                rk.inference.write_verify(thing, target)
            refused.append(1)

        def forward_beside(self, x):
            worker = threading.Thread(target=other)
            worker.start()
            worker.join()
            return forward(self, x)

        monkeypatch.setattr(rk.AnalogTile, "forward", forward_beside)
        rk.inference.write_verify(thing, target, max_rounds=3)
        assert len(refused) == 3

    @pytest.mark.parametrize("kind", KINDS)
    def test_random_calls_in_threads(self, kind):
        with ThreadPoolExecutor(fuzz_threads.THREADS) as pool:
            found = [fuzz_threads.check(3, number, [kind], pool)[1] for number in range(4)]
        assert not any(found), "\n".join(filter(None, found))

    def test_a_call_that_raised_leaves_no_trace(self):
        thing = tile()
        with pytest.raises(ShapeError):
            thing.forward(X[:, :2])
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(thing.forward, X).result().shape == (6, 4)
            assert isinstance(pool.submit(thing.forward, X[:, :2]).exception(), ShapeError)
        assert thing.forward(X).shape == (6, 4)


@pytest.mark.gpu
class TestGPU:
    def test_ctrl_c_waits_for_the_end(self):
        thing, other = (tile().to("gpu") for _ in range(2))
        x, d = (_device.to_device(a, thing._device) for a in (X, D))
        for _ in range(5):  # until launches are replayed
            thing._unit.update = with_signals(type(thing._unit).update.__get__(thing._unit), 1)
            with pytest.raises(KeyboardInterrupt):
                thing.update(x, d, 0.1)
            other.update(x, d, 0.1)
        assert state(thing) == state(other)

    def test_memory_that_runs_out(self, monkeypatch):
        def fails(*_):
            raise MemoryError

        thing = tile().to("gpu")
        x, d = (_device.to_device(a, thing._device) for a in (X, D))
        before = state(thing)
        with monkeypatch.context() as patch:
            patch.setattr(rk._device, "empty", fails)
            with pytest.raises(MemoryError):
                thing.forward(x)
        assert state(thing) == before
        assert state(thing.update(x, d, 0.1)) == state(tile().update(X, D, 0.1))

    def test_tiles_side_by_side(self):
        def work(_):
            thing = tile().to("gpu")
            x, d = (_device.to_device(a, thing._device) for a in (X, D))
            for _ in range(20):
                thing.update(x, d, 0.1)
            return state(thing)

        with ThreadPoolExecutor(4) as pool:
            assert len({*pool.map(work, range(8)), work(0)}) == 1
