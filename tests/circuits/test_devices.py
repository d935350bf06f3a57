"""Circuits on several GPUs: the bits of one, on two pretended GPUs and on real ones."""

import copy
import gc
import itertools
import pickle
import weakref
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device, circuits
from rpukit.circuits.learning import capturing, shares
from rpukit.errors import DeviceError, ParameterError, PlanError
from rpukit.testing import assert_same_bits
from tests.circuits.test_partials import mixed, samples, spread, statistics_of
from tests.on_cpu import fake_cupy, two_gpus
from tests.on_cpu.fake_cupy import Device, Stream

TWO = ("gpu:0", "gpu:1")
N = 700
X, W = samples(N), spread(N)


@pytest.fixture
def gpus(monkeypatch):
    with two_gpus.installed(monkeypatch) as machine:
        yield machine


def put(array, index=0):
    with Device(index):
        return _device.cupy().array(array)


def on(devices, dtype="float32", **how):
    return mixed(dtype, **({"devices": devices} if devices else {}), **how)


def statistics_from(pc):
    """Everything that a circuit's file holds of its counts and parameters."""
    state = pc.state()
    held = {name: state["arrays"][name].tobytes() for name in state["arrays"]}
    return held, state["header"]["n_sample"], state["header"]["weight"]


def lived(pc, put):
    """Statistics after each call, parameters, and all results."""
    found = []
    for n, step in ((N, "em_step"), (400, "scaled_em_step"), (257, "gradient_step")):
        found.append(pc.accumulate(put(X[:130]), weights=put(W[:130])))
        found.append(pc.accumulate(put(X[:n]), weights=put(W[:n])))
        found.append(pc.accumulate(put(X[:40])))
        found.append(statistics_from(pc))
        getattr(pc, step)()
        found.append(statistics_from(pc))
    found.append(pc.log_likelihood(put(X)))
    found += pc.flows(put(X[:9])).values()
    trace = pc.fit(put(X[:540]), n_epochs=1, batch_size=270, method="em", step=0.5)
    return [_device.to_numpy(a) if hasattr(a, "dtype") else a for a in (*found, trace)]


def same(one, two):
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        if isinstance(a, np.ndarray):
            assert_same_bits(a, b)
        else:
            assert a == b


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_pretended_gpus(gpus, dtype):
    expected = lived(mixed(dtype), np.array)
    pc = on(TWO, dtype)
    assert pc.devices == ("gpu", "gpu:1")
    found = lived(pc, put)
    same([*found[:-1]], [*expected[:-1]])
    assert {"peer copy on gpu:0", "peer copy on gpu:1"} <= set(gpus.log)
    for kernel in ("sum_flow", "leaf_flow", "values_up", "sum_forward"):
        used = {line[-5:] for line in gpus.log if kernel in line}
        assert len(used) != 1, f"{kernel} ran on one GPU alone"
    assert gpus.device == 0


def test_long_chains(gpus):
    """Chains of 4096 steps end within the blocks of tied weights."""
    root = circuits.hmm(18, 3, 5)
    x, w = np.random.default_rng(0).integers(0, 5, (N, 18)), spread(N)
    plain, pc = rk.Circuit(root, seed=1), rk.Circuit(root, seed=1, devices=TWO)
    for part in (slice(0, 512), slice(0, 300)):  # totals that are 0, and others
        plain.accumulate(x[part], weights=w[part])
        pc.accumulate(put(x[part]), weights=put(w[part]))
        assert statistics_from(pc) == statistics_from(plain)


def test_five_pretended_gpus(monkeypatch):
    """Shares of several blocks, of one, and of none."""
    monkeypatch.setattr(fake_cupy, "N_GPU", 5)
    with two_gpus.installed(monkeypatch):
        pc, plain = on([f"gpu:{k}" for k in range(5)]), mixed()
        assert [s.stop - s.start for s in pc._core.peers.blocks(100, 800)] == [
            156,
            256,
            256,
            0,
            0,
            132,
        ]
        for part in (slice(0, 100), slice(0, N), slice(300, 302)):
            found = pc.accumulate(put(X[part]), weights=put(W[part]))
            assert_same_bits(found.get(), plain.accumulate(X[part], weights=W[part]))
        assert statistics_from(pc) == statistics_from(plain)
        assert_same_bits(pc.log_likelihood(put(X)).get(), plain.log_likelihood(X))


class Eager:
    """Makes the launches of a graph anew at each launch.

    A capture runs the call's Python, but no launch: what they write is put back.
    """

    def __init__(self, device, warm, call, after=None):
        self.device, self.call = device, call
        with _device.using(device):
            warm()
        with watched(lambda reads, writes: written.extend((a, a._host.copy()) for a in writes)):
            written = []
            self.launch()
        for array, before in reversed(written):
            array._host[...] = before

    def launch(self):
        with _device.using(self.device):
            self.made = self.call()

    def close(self):
        pass


@contextmanager
def watched(seen):
    """Call a function with the arrays that work reads and writes, before the work."""
    before = fake_cupy.Machine._work

    def work(machine, what, reads, writes, stream):
        seen(reads, writes)
        before(machine, what, reads, writes, stream)

    fake_cupy.Machine._work = work
    try:
        yield
    finally:
        fake_cupy.Machine._work = before


def by_captured_steps(pc, put):
    """Steps of EM by 300 samples, and counts of 300 at a time, with an open block between."""
    found = []
    with pc.captured(300, step=0.5, pseudocount=0.1) as step:
        for weights in (None, W[:300]):
            made = step(put(X[:300]), weights=None if weights is None else put(weights))
            found.append(_device.to_numpy(made).copy())  # the next call overwrites it
            found.append(statistics_from(pc))
        pc.accumulate(put(X[:256]), weights=put(W[:256]))  # totals that are not 0
        found.append(_device.to_numpy(step.replay()).copy())
    with pc.captured(300) as count:
        found += [_device.to_numpy(count(put(X[k : k + 300]))).copy() for k in (0, 100)]
        found.append(statistics_from(pc))
    pc.em_step()
    return [*found, statistics_from(pc)]


def by_eager_steps(pc, put):
    found, how = [], {"step": 0.5, "pseudocount": 0.1}
    for weights in (None, W[:300]):
        found.append(pc.em_step(put(X[:300]), weights=weights, **how))
        found.append(statistics_from(pc))
    pc.accumulate(put(X[:256]), weights=put(W[:256]))
    found.append(pc.em_step(put(X[:300]), weights=put(W[:300]), **how))
    found += [pc.accumulate(put(X[k : k + 300])) for k in (0, 100)]
    found.append(statistics_from(pc))
    pc.em_step()
    return [*found, statistics_from(pc)]


def test_captured_steps_of_two_pretended_gpus(gpus, monkeypatch):
    for module in (capturing, shares):
        monkeypatch.setattr(module, "Graph", Eager)
    found = by_captured_steps(on(TWO), put)
    same([_device.to_numpy(a) if hasattr(a, "dtype") else a for a in found],
         by_eager_steps(mixed(), np.array))  # fmt: skip


def test_captured_steps_of_three_pretended_gpus(monkeypatch):
    """The second one's counts are rows that go to the owners of parts, as the first one's."""
    monkeypatch.setattr(fake_cupy, "N_GPU", 3)
    for module in (capturing, shares):
        monkeypatch.setattr(module, "Graph", Eager)
    with two_gpus.installed(monkeypatch):
        pc, plain = on([f"gpu:{k}" for k in range(3)]), mixed()
        for n in (N, 100):  # the others have no samples, but the parameters
            with pc.captured(n, step=0.5, pseudocount=0.1) as step:
                found = step(put(X[:n]), weights=put(W[:n]))
            expected = plain.em_step(X[:n], weights=W[:n], step=0.5, pseudocount=0.1)
            assert_same_bits(found.get(), expected)
            assert statistics_from(pc) == statistics_from(plain)
        assert_same_bits(pc.log_likelihood(put(X)).get(), plain.log_likelihood(X))


def test_captured_steps_of_several_blocks(gpus, monkeypatch):
    """Rows of one block after the other, with chains that end within blocks."""
    for module in (capturing, shares):
        monkeypatch.setattr(module, "Graph", Eager)
    root, n = circuits.hmm(18, 2, 3), 600
    x, w = np.random.default_rng(0).integers(0, 3, (n, 18)), spread(n)
    plain, pc = rk.Circuit(root, seed=1), rk.Circuit(root, seed=1, devices=TWO)
    with pc.captured(n, step=0.5) as step:
        found = step(put(x), weights=put(w))
    assert_same_bits(found.get(), plain.em_step(x, weights=w, step=0.5))
    assert statistics_from(pc) == statistics_from(plain)


class Addresses(Eager):
    """Keeps no more than a graph does: not what it was captured from."""

    made_before: ClassVar[dict] = {}  # memory that a call used, and did not allocate

    def launch(self):
        begin = next(Dated.numbers)

        def seen(reads, writes):
            for memory in (a._memory for a in (*reads, *writes)):
                if memory.number < begin:
                    self.made_before[memory.number] = weakref.ref(memory)

        with watched(seen):
            super().launch()
        self.call = None


class Dated(fake_cupy.Memory):
    numbers = itertools.count()

    def __init__(self, device):
        super().__init__(device)
        self.number = next(Dated.numbers)


def test_what_graphs_use_is_kept(gpus, monkeypatch):
    """A graph writes to addresses, whoever has the memory by then."""
    monkeypatch.setattr(fake_cupy, "Memory", Dated)
    for module in (capturing, shares):
        monkeypatch.setattr(module, "Graph", Addresses)
    monkeypatch.setattr(Addresses, "made_before", {})
    pc = on(TWO)
    with pc.captured(N, step=0.5):
        gc.collect()
        assert len(Addresses.made_before) > 30
        assert all(ref() is not None for ref in Addresses.made_before.values())


def test_a_capture_forgets_no_rule(gpus, monkeypatch):
    for module in (capturing, shares):
        monkeypatch.setattr(module, "Graph", Eager)
    pc = on(TWO)
    pc.accumulate(put(X[:256]), rule=circuits.Rule(exponent=2.0))
    with pc.captured(300, step=0.5) as step, pytest.raises(ParameterError, match="exponent 2"):
        step(put(X[:300]))


@pytest.mark.multi_gpu
def test_captured_steps_write_to_their_own_memory():
    """Arrays that are made after the capture keep what is in them."""
    import cupy

    pc, sizes, others = on(TWO), [2**k for k in range(9, 23)] * 4, []
    with pc.captured(N, step=0.5) as step:
        for name in TWO:
            with cupy.cuda.Device(int(name[-1])):
                others += [cupy.full(size, 7, np.uint8) for size in sizes]
        for _ in range(3):
            step(cupy.asarray(X))
    for array in others:
        with cupy.cuda.Device(array.device.id):
            assert bool((array == 7).all())


@pytest.mark.multi_gpu
def test_captured_steps_of_two_gpus():
    import cupy

    found = by_captured_steps(on(TWO), cupy.asarray)
    same([_device.to_numpy(a) if hasattr(a, "dtype") else a for a in found],
         by_eager_steps(mixed(), np.array))  # fmt: skip


@pytest.mark.parametrize("first", [0, 1])
def test_the_current_device_and_stream_do_not_matter(gpus, first):
    expected = mixed()
    expected.accumulate(X)
    with Device(1 - first), Stream(non_blocking=True), Device(first), Stream(non_blocking=True):
        pc = on(TWO[::-1] if first else TWO)
        with Device(1 - first):
            pc.accumulate(put(X, first))
        assert statistics_from(pc) == statistics_from(expected)
    assert pc.device == ("gpu:1" if first else "gpu")


def test_rounds(gpus, monkeypatch):
    """A budget leaves room for one block of each GPU at a time."""
    expected = mixed()
    expected.accumulate(X[:100])
    expected.accumulate(X, weights=W)
    pc = on(TWO, budget=1 << 22)
    pc.accumulate(put(X[:100]))
    pc.accumulate(put(X), weights=put(W))
    assert statistics_from(pc) == statistics_from(expected)
    with pytest.raises(PlanError, match="need"):
        on(TWO, budget=2000)


def test_every_change_of_parameters_reaches_the_others(gpus):
    pc, plain = on(TWO), mixed()
    nodes, own = (next(n for n in c.layout.nodes if hasattr(n, "leaf")) for c in (pc, plain))
    values = np.full((3, 4), 0.25) + np.arange(4) * 0.01
    values /= values.sum(axis=1, keepdims=True)

    def check():
        assert_same_bits(pc.log_likelihood(put(X)).get(), plain.log_likelihood(X))

    check()
    pc.set_parameters(nodes, values)
    plain.set_parameters(own, values)
    check()
    pc.fit(put(X[:300]), x_valid=put(X[300:400]), n_epochs=2, step=0.3)
    plain.fit(X[:300], x_valid=X[300:400], n_epochs=2, step=0.3)
    check()
    other = copy.copy(pc)
    other.em_step(put(X), step=0.2)
    check()
    assert other.devices == pc.devices
    moved = plain.to(devices=TWO)
    assert_same_bits(moved.log_likelihood(put(X)).get(), plain.log_likelihood(X))
    assert pickle.loads(pickle.dumps(pc)).devices == ("cpu",)


def test_errors_of_data_change_nothing(gpus):
    pc = on(TWO)
    pc.accumulate(put(X[:300]))
    before = statistics_from(pc)
    wrong = X.copy()
    wrong[-1, 0] = 9
    with pytest.raises(ParameterError, match="variable 0 takes 0 to 3, got"):
        pc.accumulate(put(wrong))
    with pytest.raises(DeviceError, match="x is on gpu:1, need gpu"):
        pc.accumulate(put(X, 1))
    assert statistics_from(pc) == before


@pytest.mark.parametrize(
    ("devices", "kind", "match"),
    [
        (("gpu:0", "gpu:0"), ParameterError, "each GPU once"),
        (("gpu", "gpu:0"), ParameterError, "each GPU once"),
        (("gpu:0", "gpu:2"), DeviceError, "this machine has 2"),
        (("gpu:0", "cpu"), ParameterError, "need GPUs"),
        ((), ParameterError, "need names"),
        ("gpu:0", ParameterError, "need names"),
    ],
)
def test_devices_that_cannot_be(gpus, devices, kind, match):
    with pytest.raises(kind, match=match):
        mixed(devices=devices)


def test_unequal_gpus_are_refused(gpus, monkeypatch):
    runtime = _device.cupy().cuda.runtime
    equal = runtime.getDeviceProperties
    other = {"name": b"another", "multiProcessorCount": 2}
    unequal = lambda k: equal(k) | (other if k else {})  # noqa: E731
    monkeypatch.setattr(runtime, "getDeviceProperties", unequal)
    with pytest.raises(DeviceError, match=r"gpu is pretended .*; gpu:1 is another .* one kind"):
        mixed(devices=TWO)


def test_one_of_device_and_devices(gpus):
    with pytest.raises(ParameterError, match="need one of both"):
        mixed(device="gpu", devices=TWO)
    assert mixed(devices=("cpu",)).devices == ("cpu",)


def to_first(array):
    return _device.to_device(array, _device.Device("gpu"))


@pytest.mark.multi_gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_gpus(dtype):
    """An HMM and a mixed circuit, with all of the machine's GPUs and with the first."""
    names = [f"gpu:{k}" for k in range(_device.gpu_count())]
    x = np.random.default_rng(0).integers(0, 30, (2600, 6))
    found = []
    for devices in (names[:1], names[:2], names):
        pc = rk.Circuit(circuits.hmm(6, 64, 30), dtype=dtype, seed=1, devices=devices)
        mine = to_first(x)
        out = [pc.em_step(mine, step=0.5) for _ in range(4)]
        out.append(pc.accumulate(mine))
        found.append([_device.to_numpy(a) for a in out] + [statistics_from(pc)])
        pc.em_step()
        found[-1].append(lived(on(devices, dtype), to_first))
    for one in found[1:]:
        same(one[:-1], found[0][:-1])
        same(one[-1][:-1], found[0][-1][:-1])


@pytest.mark.multi_gpu
def test_captured_steps_of_all_gpus():
    """Shares of several blocks, whose passes are under way on all GPUs at once."""
    names = [f"gpu:{k}" for k in range(_device.gpu_count())]
    x = np.random.default_rng(0).integers(0, 300, (2100, 18))
    w, found = spread(len(x)), []
    for devices in (names[:1], names[:2], names):
        pc = rk.Circuit(circuits.hmm(18, 128, 300), seed=1, devices=devices)
        with pc.captured(len(x), step=0.5) as step:
            out = [step(to_first(x), weights=to_first(w)).get().copy() for _ in range(4)]
        with pc.captured(len(x)) as count:
            out.append(count(to_first(x)).get().copy())
        found.append([*out, statistics_from(pc)])
    for one in found[1:]:
        same(one, found[0])


def test_statistics_are_compared():
    """The hash that these tests compare sees one changed bit."""
    pc = mixed()
    pc.accumulate(X)
    before = statistics_of(pc), statistics_from(pc)
    pc._core.statistics.totals[:1] = np.nextafter(pc._core.statistics.totals[:1], np.inf)
    assert statistics_of(pc) != before[0]
    assert statistics_from(pc) != before[1]
