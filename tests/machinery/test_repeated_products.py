"""Repeated products on GPUs: a replay sees all that may have changed since the call before."""

import threading

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.errors import ShapeError
from rpukit.gemm import _replays, _turns, tensor
from rpukit.testing import assert_same_bits, on_cpu
from tests.machinery.test_two_gpus import data, gpus, put  # noqa: F401
from tests.on_cpu.fake_cupy import Array, Device, Memory, Stream

FLOATS = pytest.mark.parametrize("dtype", ["f2", "f4"])


def product(a, b, **options):
    with on_cpu():
        return rk.det_gemm(a, b, **options)


def replays(machine):
    return sum(line.startswith("replay") for line in machine.log)


@FLOATS
def test_copies_are_made_anew(gpus, dtype):  # noqa: F811
    """A factor without contiguous rows is copied at each call."""
    a, b = data(9, 48, dtype=dtype), data(24, 16, seed=1, dtype=dtype)
    with Device(1):
        left, right, out = put(a), put(b), put(np.empty((9, 16), dtype))
        for k in range(3):
            now = a + np.array(k, dtype)
            left[...] = put(now)
            rk.det_gemm(left[:, ::2], right, out=out)
            assert_same_bits(out, product(now[:, ::2], b))


@FLOATS
def test_other_views_of_the_same_memory(gpus, dtype):  # noqa: F811
    a, b = data(16, 16, dtype=dtype), data(16, 16, seed=1, dtype=dtype)
    with Device(1):
        left, right, out = put(a), put(b), put(np.empty((16, 16), dtype))
        for _ in range(3):
            for p, q, x, y in ((left, right, a, b), (left.T, right, a.T, b)):
                rk.det_gemm(p, q, out=out)
                assert_same_bits(out, product(x, y))
            wide, w = left.reshape(8, 32)[:, :16], a.reshape(8, 32)[:, :16]
            for p, x in ((left[:8], a[:8]), (wide, w)):
                rk.det_gemm(p, right, out=out[:8])
                assert_same_bits(out[:8], product(x, b))
    assert replays(gpus) >= 4


@FLOATS
def test_wrong_results_are_refused_as_at_first(gpus, dtype):  # noqa: F811
    with Device(1):
        a, b = put(data(8, 24, dtype=dtype)), put(data(24, 16, dtype=dtype))
        room = put(np.zeros((16, 16), dtype))
        for _ in range(3):
            rk.det_gemm(a, b, out=room[:8])
        count = replays(gpus)
        assert count
        for wrong in (room.reshape(32, 8)[:16], room.reshape(8, 32)[:, :16], room[:8].view("u1")):
            with pytest.raises(ShapeError, match="out: got"):
                rk.det_gemm(a, b, out=wrong)
        with pytest.raises(ShapeError, match="overlaps"):
            rk.det_gemm(room[:8].reshape(8, 16), put(data(16, 16, dtype=dtype)), out=room[:8])
        assert replays(gpus) == count


@FLOATS
def test_an_address_of_another_device(gpus, dtype):  # noqa: F811
    """Memory that one GPU has freed."""
    a, b, c = data(8, 24, dtype=dtype), data(24, 16, seed=1, dtype=dtype), np.empty((8, 16), dtype)
    for index in (1, 0, 1):
        with Device(index):
            left, right, out = (Array(None, None, x, Memory(index)) for x in (a, b, c))
            for _ in range(3):
                out.fill(0)
                rk.det_gemm(left, right, out=out)
                assert_same_bits(out, product(a, b))
            assert gpus.log[-2].endswith(f"gpu:{index}")
            assert gpus.log[-2].startswith("replay") or gpus.log[-3].startswith("replay")
    with Device(1), pytest.raises(_device.DeviceError, match="several GPUs"):
        rk.det_gemm(left, Array(None, None, b, Memory(0)), out=out)


@pytest.mark.parametrize(("handle", "again"), [(None, 2), (2, 0)])
def test_sums_of_segments_stay_on_their_stream(gpus, handle, again, monkeypatch):  # noqa: F811
    """By handle 2 each thread has a stream of its own; a stream that records has other memory."""
    monkeypatch.setattr(_turns, "_rooms", {})  # those of other pretended GPUs
    monkeypatch.setattr(_turns, "_segments", {})
    run, known = _replays.run, []

    def observed(*call):
        made = run(*call)
        known.append(made is not None)
        return made

    monkeypatch.setattr(_replays, "run", observed)  # launches of a graph begin early, as replays
    terms = 26000  # seven segments, for which no cluster is made
    a, b = data(3, terms, dtype="f2"), data(terms, 16, seed=1, dtype="f2")
    expected = product(a, b)
    with Device(1), Stream(non_blocking=True) as stream:
        stream.ptr = handle or stream.ptr
        left, right, out = put(a), put(b), put(np.empty((3, 16), "f2"))
        Device(1).synchronize()
        for k, capturing in enumerate((False, False, False, True, True)):
            stream.capturing = capturing
            rk.det_gemm(left, right, out=out)
            assert sum(known) == min(k, again)
        stream.capturing = False
        assert_same_bits(out, expected)
        stream.synchronize()
    with Device(1):
        rk.det_gemm(left, right, out=out)
        assert sum(known) == again


def test_copies_to_aligned_rows_are_launched_again(gpus, monkeypatch):  # noqa: F811
    """Ragged factors are copied by a kernel, to memory that later products use too."""
    monkeypatch.setattr(_turns, "_segments", {})
    monkeypatch.setattr(tensor, "choose_of_all", lambda *_: None)
    shapes = {k: (data(9, k, dtype="f2"), data(16, k, seed=1, dtype="f2")) for k in (21, 75)}
    with Device(1):
        calls = {k: (put(a), put(b), put(np.empty((9, 16), "f2"))) for k, (a, b) in shapes.items()}
        for step in range(4):
            for k, (left, right, out) in calls.items():
                a, b = shapes[k]
                left[...] = put(a + np.float16(step))
                before = len(gpus.log)
                rk.det_gemm(left, right, out=out, trans_b=True)
                if step:
                    assert [line.split(" on ")[0] for line in gpus.log[before:]] == [
                        "replay of align_rows",
                        "replay of det_gemm_tensor",
                    ]
                assert_same_bits(out, product(a + np.float16(step), b, trans_b=True))
        assert len(_turns._segments) == 1

        def elsewhere():
            with Device(1):
                rk.det_gemm(*calls[75][:2], out=calls[75][2], trans_b=True)

        count = replays(gpus)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert replays(gpus) == count  # it might come between two launches of this one
        assert len(_turns._segments) == 2


@pytest.mark.parametrize("current", [0, 1])
def test_results_that_are_allocated(gpus, current, monkeypatch):  # noqa: F811
    """On the device of the factors, and by the usual call while a graph is recorded."""
    a, b = data(8, 24), data(24, 16, seed=1)
    left, right = put(a), put(b)
    for _ in range(4):
        with Device(current):
            made = rk.det_gemm(left, right)
            assert made.data.device_id == 1
            assert_same_bits(made, product(a, b))
            del made
    with Device(1), Stream(non_blocking=True) as stream:
        Device(1).synchronize()
        stream.capturing = True
        run, replayed = _replays.run, []
        monkeypatch.setattr(_replays, "run", lambda *call: replayed.append(run(*call)))
        made = rk.det_gemm(left, right)
        assert replayed == [None]
        stream.capturing = False
        assert_same_bits(made, product(a, b))
