"""Replayed calls: the driver's calls carry what the checked launches carried.

There is no GPU here. Arrays pretend to be on one, and what would launch in the driver hands the
addresses of its arguments to the runner of the CPU.
"""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit._kernels import driver, launch
from rpukit.analog.product import launch as _launch_forward
from rpukit.analog.product import launch_shapes as _forward_tiles
from rpukit.analog.product import ops as forward
from rpukit.analog.update import launch as _launch_update
from rpukit.analog.update import ops as update
from rpukit.errors import NonFiniteError
from rpukit.random import Stream
from rpukit.testing import assert_same_bits
from tests.on_cpu import runner

GPU = _device.Device("gpu", 0)


class GpuArray(np.ndarray):
    """An array with what CuPy's have."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data, device_id=0)

    def __new__(cls, shape, dtype):
        return np.empty(shape, dtype).view(cls)

    def get(self):
        return np.array(self)

    @property
    def _c_contiguous(self):
        return self.flags.c_contiguous


def on_gpu(array):
    return None if array is None else np.ascontiguousarray(array).view(GpuArray)


def pretend(monkeypatch):
    """Have such arrays launched; returns the kinds of launches in their order."""
    seen = []

    def checked(self, grid, block, args, shared=0, early=False):
        seen.append("checked")
        plain = [a.view(np.ndarray) if isinstance(a, GpuArray) else a for a in args]
        runner.run(self, grid, block, self._cpu_check(*plain), shared)
        self._functions[0] = SimpleNamespace(ptr=self)
        if launch._here.launches is not None:
            one = launch.Launched(self, grid, block, args, shared, early, device=0)
            launch._here.launches.append(one)

    def ready(self, args):
        plain = [a.view(np.ndarray) if isinstance(a, GpuArray) else a for a in args]
        cast = zip(args, self._cpu_check(*plain), strict=True)
        return [a if isinstance(a, GpuArray) else b for a, b in cast]

    def launcher(variant, grid, block, shared, words, early, together=False):
        function = getattr(runner.library(variant), f"{variant.entry}__launch")
        grid3, block3 = ((ctypes.c_uint * 3)(*(*n, 1, 1)[:3]) for n in (grid, block))
        assert [w.nbytes for w in words] == [
            8 if p.pointer else np.dtype(launch_type(variant, p)).itemsize
            for p in variant.parameters
        ]
        addresses = (ctypes.c_void_p * len(words))(*(w.ctypes.data for w in words))

        def start(stream, kept=(words, addresses)):
            seen.append(f"again on {stream}")
            assert not function(grid3, block3, ctypes.c_uint(shared), ctypes.c_uint(0), kept[1])

        return start

    monkeypatch.setattr(launch.Variant, "launch", checked)
    monkeypatch.setattr(launch.Variant, "checked", ready)
    monkeypatch.setattr(driver, "launcher", launcher)
    monkeypatch.setattr(_device, "is_cupy", lambda x: isinstance(x, GpuArray))
    monkeypatch.setattr(_device, "runs_kernels", lambda xp: True)
    monkeypatch.setattr(_device, "device_of", lambda x: GPU)
    monkeypatch.setattr(_device, "current_index", lambda: 0)
    monkeypatch.setattr(_device, "current_stream", lambda: 5)
    monkeypatch.setattr(_device, "free_stream", lambda: 5)
    monkeypatch.setattr(_device, "empty", lambda n, dtype, _: np.empty(n, dtype).view(GpuArray))
    monkeypatch.setattr(_launch_forward, "shared_limit", lambda _: 227 * 1024)
    monkeypatch.setattr(forward, "pick", lambda call: tile_for(call.shape[0]))
    monkeypatch.setattr(update, "pick", lambda call: _launch_update.WALKS[-1])
    return seen


def launch_type(variant, parameter):
    return {"int": "i4", "u32": "u4", "u64": "u8"}.get(parameter.ctype, "f4")


def tile_for(n_batch):
    few = _forward_tiles.ONE if n_batch == 1 else _forward_tiles.FEW
    return few if n_batch <= 8 else _forward_tiles.FLAT


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n", [1, 5, 20, 21])
def test_calls_that_come_again(n, transposed, monkeypatch):
    """The last of them by det_gemm, with new arrays for what its kernels pass on."""
    if n == 21:
        monkeypatch.setattr(_launch_forward, "by_gemm", lambda *_: True)
        monkeypatch.setattr(_launch_forward, "_MOST_KEPT", 0)
    io, rng = rk.IOParameters(out_bound=0.5, out_noise_std=0.1), np.random.default_rng(n)
    stream = Stream.from_seed(3)
    weight = rng.uniform(-0.1, 0.1, (68, 132)).astype(np.float32)
    n_in, n_out = weight.shape if transposed else weight.shape[::-1]
    plain, other = (
        forward.ForwardState(io, n_out, stream, _device.CPU, transposed=transposed)
        for _ in range(2)
    )
    firsts, status = (0, 7, 2**40, 3, 11), np.zeros(1, np.int32)
    inputs = [rng.uniform(-1, 1, (n, n_in)).astype(np.float32) for _ in firsts]

    def products(weight, arrays, state, status):
        for call, (x, first) in enumerate(zip(arrays, firsts, strict=True), 1):
            at = {"first_sample": first, "call": call, "transposed": transposed}
            yield forward.tile_forward(
                weight, x, io, stream=stream, state=state, status=status, **at
            )

    expected = list(products(weight, inputs, plain, status))
    for name in ("io", "line_noise", "average"):
        setattr(other, name, on_gpu(getattr(other, name)))
    launches = pretend(monkeypatch)
    seen = products(on_gpu(weight), map(on_gpu, inputs), other, on_gpu(status))
    for got, want in zip(seen, expected, strict=True):
        assert_same_bits(np.array(got), want)
    n_launch = len(launches) // len(firsts)
    assert launches == ["checked"] * (2 * n_launch) + ["again on 5"] * (3 * n_launch)
    rounds = 0 if transposed else 2
    assert n_launch == (1 if n <= 8 else 2) + (n == 21) + rounds


def test_a_tile_repeats_its_products(monkeypatch):
    """Clocks move as they do; a bad value is reported, and puts them back."""
    plain, other = (
        rk.AnalogTile((36, 68), rk.Ideal(), seed=4).set_weights(np.full((36, 68), 0.01, "f4"))
        for _ in range(2)
    )
    batches = np.random.default_rng(1).uniform(-1, 1, (6, 5, 68)).astype(np.float32)
    expected = [plain.forward(x) for x in batches]
    clocks, last = plain.clocks, plain.forward(batches[1])
    unit, guard, state = other._unit, other._guard, other._states["forward"]
    unit.weight, guard.status = on_gpu(unit.weight), on_gpu(guard.status)
    state.io, state.average = on_gpu(state.io), on_gpu(state.average)
    other._device = GPU
    launches = pretend(monkeypatch)
    for x, y in zip(batches, expected, strict=True):
        assert_same_bits(np.array(other.forward(on_gpu(x))), y)
    assert launches.count("again on 5") == 4 * launches.count("checked") // 2
    assert other.clocks == clocks
    for x in (batches[0] * np.float32(np.nan), batches[1]):
        assert not other.forward(on_gpu(x)).any()
    with pytest.raises(NonFiniteError, match="x holds NaN or infinity: that call and the 1"):
        guard.check()
    assert other.clocks == clocks
    assert_same_bits(np.array(other.forward(on_gpu(x))), last)


@pytest.mark.parametrize("n", [1, 6])
def test_updates_that_come_again(n, monkeypatch):
    plain, other = (rk.AnalogTile((36, 68), rk.SoftBounds(dw_min=0.01), seed=4) for _ in range(2))
    rng, firsts = np.random.default_rng(n), (0, 9, 2**33, 4)
    batches = [
        [rng.uniform(-1, 1, (n, width)).astype(np.float32) for width in (68, 36)] for _ in firsts
    ]
    for (x, d), first in zip(batches, firsts, strict=True):
        plain.update(x, d, 0.1, first_sample=first)
    array, guard = other._unit, other._guard
    for name, a in array._arrays.items():
        array._arrays[name] = on_gpu(a)
    array.weight, guard.status = array._arrays["weight"], on_gpu(guard.status)
    launches = pretend(monkeypatch)
    for (x, d), first in zip(batches, firsts, strict=True):
        array.write(on_gpu(x), on_gpu(d), 0.1, other.update_parameters, first)
    n_launch = 1 if n == 1 else 2
    assert launches == ["checked"] * (2 * n_launch) + ["again on 5"] * (2 * n_launch)
    assert_same_bits(np.array(array.weight), plain.get_weights())
    assert array._arrays["n_pulses"][0] == plain.n_pulses
