"""The clock of the tuner: calls alternate, and short ones count twice, once with nothing in L2."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit._kernels import clock

COLD = 2e-6  # seconds that a call takes longer after L2 was filled


class Pretended:
    """A GPU on which all calls get slower, and those that find nothing in L2 are slow."""

    def __init__(self, monkeypatch, slower=0.0):
        self.calls, self.order, self.slower = 0, [], slower
        self.seconds = {"fill": 2e-5}
        monkeypatch.setattr(_device, "cupy", lambda: SimpleNamespace(empty=self.empty, cuda=self))
        monkeypatch.setattr(clock, "_elapsed", self.elapsed)
        monkeypatch.setattr(clock, "_captured", self.captured)
        self.memory = SimpleNamespace(OutOfMemoryError=MemoryError)

    def empty(self, n_byte, dtype):
        fill = lambda *_: self.order.append("fill")  # noqa: E731
        return SimpleNamespace(nbytes=n_byte, data=SimpleNamespace(memset_async=fill))

    def get_current_stream(self):
        return None

    def captured(self, run, calls):
        return SimpleNamespace(launch=lambda: [run() for _ in range(calls)])

    def elapsed(self, run, calls):
        before = len(self.order)
        for _ in range(calls):
            run()
        self.calls += 1
        names = self.order[before:]
        cold = sum(x == "fill" != y for x, y in pairwise(names))
        span = sum(self.seconds[x] for x in names) + COLD * cold
        return span / calls * (1 + self.slower * self.calls)

    def run(self, name, seconds):
        self.seconds[name] = seconds
        return lambda: self.order.append(name)


def test_calls_alternate(monkeypatch):
    """Of two equal calls on a GPU that gets hot neither is found slower."""
    gpu = Pretended(monkeypatch, slower=0.01)
    first, second = clock.gpu_times([gpu.run("a", 1e-3), gpu.run("b", 1e-3)])
    assert 1 < second / first < 1.015
    repeats = gpu.order[-14:]
    assert repeats == ["a", "b"] * 7


def test_short_calls_count_twice(monkeypatch):
    """In a graph of their own, and after others; long ones once."""
    gpu = Pretended(monkeypatch)
    runs = [gpu.run("short", 4e-6), gpu.run("longer", 9e-6)]
    mean = 4e-6 + COLD / 2, 9e-6 + COLD / 2
    assert np.allclose(clock.gpu_times(runs, in_graph=True, cold=True), mean)
    assert gpu.order.count("fill") == 3 * 7 * 8  # alone, and before each of the two
    gpu.order.clear()
    assert np.allclose(clock.gpu_times(runs, in_graph=True), (4e-6, 9e-6))
    assert "fill" not in gpu.order
    long = [gpu.run("long", 1e-3)]
    assert np.allclose(clock.gpu_times(long, in_graph=True, cold=True), 1e-3)
    assert "fill" not in gpu.order


def test_trials_without_memory_to_fill_l2(monkeypatch):
    """They are timed as they are: a product has room where 64 MB more have none."""

    class OutOfMemoryError(Exception):
        pass

    def empty(*_):
        raise OutOfMemoryError

    memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    fake = SimpleNamespace(empty=empty, cuda=SimpleNamespace(memory=memory))
    monkeypatch.setattr(_device, "cupy", lambda: fake)
    monkeypatch.setattr(clock, "_elapsed", lambda run, calls: 1e-4)
    assert clock.gpu_times([lambda: None], in_graph=True, cold=True) == [1e-4]


@pytest.mark.gpu
def test_real_clock():
    cupy = rk._device.cupy()
    name = clock.device_name(rk._device.Device("gpu", 0))
    assert "sm_" in name
    x = cupy.zeros(1 << 20, np.float32)
    runs = [lambda: x[:16].fill(1), lambda: [x.fill(1) for _ in range(20)]]
    small, large = clock.gpu_times(runs)
    assert 0 < small < large
    assert 0 < clock.gpu_times(runs[:1], in_graph=True)[0] < 1.5 * small  # no host
    (cold,) = clock.gpu_times([lambda: x.fill(1)], in_graph=True, cold=True)
    assert 0 < cold < large
    assert bool((x == 1).all())
    assert not clock.capturing()
