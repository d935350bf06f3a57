"""The runner of CUDA sources on the CPU: right answers, and every planted bug is caught."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rpukit._kernels import Kernel
from rpukit.errors import KernelCompileError, LaunchError
from rpukit.testing import assert_same_bits, on_cpu

PLANTED = Path(__file__).parents[1] / "on_cpu/planted"
ORDERS = (0, 1, 2, 3, 7, 8)


def poison(y):
    """Where shared memory was read that nobody had written: NaN or, in order 1, huge."""
    return ~(np.abs(y) < 1e38)


def kernel(name):
    return Kernel(name, path=PLANTED / f"{name}.cu")


def shifted(order, barrier):
    y = np.arange(64, dtype=np.float32)
    with on_cpu(order):
        kernel("race").launch((1,), (64,), (64, y), shared=256, macros={"BARRIER": barrier})
    return y


@pytest.mark.parametrize("order", ORDERS)
def test_missing_barrier_is_seen_in_every_order(order):
    x = np.arange(64, dtype=np.float32)
    expected = np.roll(x, -1) + np.roll(x, 1)
    assert_same_bits(shifted(order, 1), expected)
    assert poison(shifted(order, 0)).any()  # not yesterday's values


@pytest.mark.parametrize("order", ORDERS)
def test_a_warp_that_runs_ahead_is_seen_in_every_order(order):
    """Of two barriers the one between reading and writing again; each warp sums the other's."""
    found = []
    for barrier in (1, 0):
        y = np.zeros(64, np.int32)
        with on_cpu(order):
            kernel("turns").launch((1,), (64,), (y,), macros={"BARRIER": barrier})
        found.append(y)
    numbers = sum((k + 1) * (10 * k + np.arange(2)[::-1]) for k in range(4))
    assert found[0].tolist() == np.repeat(numbers, 32).tolist()
    assert (found[1] != found[0]).any()


@pytest.mark.parametrize("name", ["race", "turns"])
def test_races_are_found(name, order, monkeypatch):
    """With ``RPUKIT_ON_CPU_RACES=1`` a missing barrier is an error, whatever the results."""
    monkeypatch.setenv("RPUKIT_ON_CPU_RACES", "1")
    y = np.zeros(64, np.float32 if name == "race" else np.int32)
    args = (64, y) if name == "race" else (y,)
    with on_cpu(order):
        kernel(name).launch((1,), (64,), args, shared=256, macros={"BARRIER": 1})
        with pytest.raises(LaunchError, match=f"{name}: threads race on shared memory"):
            kernel(name).launch((1,), (64,), args, shared=256, macros={"BARRIER": 0})


def test_lanes_race_unless_their_warp_meets(order, monkeypatch):
    monkeypatch.setenv("RPUKIT_ON_CPU_RACES", "1")
    y = np.arange(32, dtype=np.float32)
    with on_cpu(order):
        kernel("race").launch((1,), (32,), (32, y), shared=128, macros={"BARRIER": 2})
        with pytest.raises(LaunchError, match="race"):
            kernel("race").launch((1,), (32,), (32, y), shared=128, macros={"BARRIER": 0})
        y = np.arange(64, dtype=np.float32)  # of two warps
        with pytest.raises(LaunchError, match="race"):
            kernel("race").launch((1,), (64,), (64, y), shared=256, macros={"BARRIER": 2})


@pytest.mark.parametrize("wait", [0, 1, 2])
def test_copies_land_when_they_are_waited_for(wait, order):
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    with on_cpu(order):
        kernel("copies").launch((1,), (64,), (x, y), shared=512, macros={"WAIT": wait})
    landed = 128 - 64 * wait
    assert_same_bits(y[:landed], x[:landed])
    assert poison(y[landed:]).all()  # neither the copy nor what was there before


def test_copies_that_outlive_their_thread_are_reported(order):
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    with on_cpu(order), pytest.raises(LaunchError, match="copies: .*did not wait for them"):
        kernel("copies").launch((1,), (64,), (x, y), shared=512, macros={"WAIT": 1, "LEFT": 1})


def test_copies_race_when_they_land(order, monkeypatch):
    monkeypatch.setenv("RPUKIT_ON_CPU_RACES", "1")
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    with on_cpu(order):
        kernel("copies").launch((1,), (64,), (x, y), shared=512)
        with pytest.raises(LaunchError, match="race"):
            kernel("copies").launch((1,), (64,), (x, y), shared=512, macros={"AWAY": 1})


@pytest.mark.parametrize("beneath", [1, 2, 3])
def test_what_is_written_beneath_a_copy_is_reported(beneath, order):
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    with on_cpu(order), pytest.raises(LaunchError, match="copies: .*was written to"):
        kernel("copies").launch((1,), (64,), (x, y), shared=512, macros={"BENEATH": beneath})


@pytest.mark.parametrize("misplaced", [1, 2])
def test_copies_at_odd_addresses_are_reported(misplaced, order):
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    with on_cpu(order), pytest.raises(LaunchError, match="copies: .*its size does not divide"):
        kernel("copies").launch((1,), (64,), (x, y), shared=512, macros={"MISPLACED": misplaced})


@pytest.mark.parametrize(
    ("mode", "fault"),
    [
        (1, "barrier was not"),
        (2, "barrier was not"),
        (3, "lanes of a warp"),
        (4, "lanes of a warp"),
    ],
)
def test_divergence_is_reported(mode, fault, order):
    y = np.zeros(64, np.int32)
    with on_cpu(order), pytest.raises(LaunchError, match=f"barriers: .*{fault}"):
        kernel("barriers").launch((1,), (64,), (y,), macros={"MODE": mode})


def test_after_a_fault_the_next_launch_works(order):
    y = np.zeros(64, np.int32)
    with on_cpu(order):
        with pytest.raises(LaunchError):
            kernel("barriers").launch((1,), (64,), (y,), macros={"MODE": 1})
        kernel("barriers").launch((1,), (64,), (y,))
    assert_same_bits(y, np.arange(64, dtype=np.int32))


def test_dependence_on_the_order_of_blocks_is_seen():
    last = []
    for order in ORDERS:
        y = np.zeros(1, np.int32)
        with on_cpu(order):
            kernel("blocks").launch((16,), (32,), (y,))
        last.append(int(y[0]))
    assert last[:2] == [15, 0]
    assert len(set(last)) > 2


def test_shared_memory_of_an_earlier_block_is_poison(order):
    y = np.zeros(4, np.float32)
    with on_cpu(order):
        kernel("leftover").launch((4,), (1,), (y,))
    assert y[0] == 1
    assert poison(y[1:]).all()


def test_float_atomics_do_not_compile():
    x, total = np.ones(32, np.float32), np.zeros(1, np.float32)
    with on_cpu(), pytest.raises(KernelCompileError, match="no atomics on floats") as caught:
        kernel("float_atomic").launch((1,), (32,), (x, total))
    assert "float_atomic.cu:2" in caught.value.log  # the line of the kernel, not of a copy


def test_stack_that_is_too_deep_is_reported():
    y = np.zeros(1, np.int32)
    with on_cpu():
        kernel("deep_stack").launch((1,), (1,), (10, y))
        with pytest.raises(LaunchError, match="64 KiB of stack"):
            kernel("deep_stack").launch((1,), (1,), (40, y))
        with pytest.raises(KernelCompileError, match="frame size"):
            kernel("deep_stack").launch((1,), (1,), (1, y), macros={"LOCAL": 16384})


def test_sources_that_do_not_compile_name_their_line(tmp_path):
    path = tmp_path / "broken.cu"
    path.write_text('extern "C" __global__ void broken(int n) {\n    undefined_name(n);\n}\n')
    with on_cpu(), pytest.raises(KernelCompileError, match="broken.cu:2") as caught:
        Kernel("broken", path=path).launch((1,), (1,), (1,))
    assert "undefined_name" in caught.value.log


def test_no_compiler_is_an_error_that_helps(monkeypatch, tmp_path):
    monkeypatch.setenv("RPUKIT_ON_CPU_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    path = tmp_path / "other.cu"
    path.write_text('extern "C" __global__ void other(int n) {}\n')
    with on_cpu(), pytest.raises(KernelCompileError, match="install g"):
        Kernel("other", path=path).launch((1,), (1,), (1,))


X = np.resize(
    np.array([1.5, -2.5, 0.0, -0.0, np.nan, 3e9, -7e9, 0.49999997, np.inf], np.float32), 64
)
U = (np.arange(64, dtype=np.uint64) * 0x9E3779B9 + 1).astype(np.uint32)


def run_intrinsics(order):
    f, n = np.zeros(448, np.float32), np.zeros(768, np.int32)
    w, d = np.zeros(128, np.uint64), np.zeros(192)
    with on_cpu(order):
        kernel("intrinsics").launch((1,), (64,), (X, U, f, n, w, d))
    return f.reshape(-1, 64), n.reshape(-1, 64), w.reshape(-1, 64), d.reshape(-1, 64)


def of_warp(values, source):
    """What a shuffle gives: `source(lane)` is the lane to read from, within the warp."""
    lanes = np.array([source(i % 32) for i in range(64)])
    return values[np.arange(64) // 32 * 32 + lanes]


def test_intrinsics(order):
    f, n, w, d = run_intrinsics(order)
    x8, neighbour = X.astype(np.float64), np.roll(X, -1)
    assert_same_bits(f[0], (x8 * x8 - 1).astype(np.float32))  # exact in float64 for these inputs
    for row, pick in ((f[1], np.fmin), (f[2], np.fmax)):
        expected = pick(X, neighbour)
        zeros = (X == 0) & (neighbour == 0)
        expected[zeros] = -0.0 if pick is np.fmin else 0.0
        one_negative = zeros & (np.signbit(X) == np.signbit(neighbour))
        expected[one_negative] = X[one_negative]
        assert_same_bits(row, expected)
    assert_same_bits(f[3], of_warp(X, lambda k: k + 3 if k + 3 < 32 else k))
    assert_same_bits(f[4], of_warp(X, lambda k: k - 3 if k % 8 >= 3 else k))
    assert_same_bits(f[5], of_warp(X, lambda k: k // 16 * 16 + 5))
    assert_same_bits(f[6], of_warp(X, lambda k: k ^ 9))
    words = [int(u) for u in U]
    odd, warps = [u & 1 for u in words], (words[:32], words[32:])
    assert n[0].tolist() == [u.bit_count() for u in words]
    assert n[1].tolist() == [(u & -u).bit_length() for u in words]
    assert n[2].tolist() == [32 - u.bit_length() for u in words]
    assert n[3].view(np.uint32).tolist() == [int(f"{u:032b}"[::-1], 2) for u in words]
    nearest = np.nan_to_num(np.rint(x8), posinf=2**40, neginf=-(2**40))
    assert n[4].tolist() == np.clip(nearest, -(2**31), 2**31 - 1).astype(int).tolist()
    ballots = [sum(odd[w * 32 + k] << k for k in range(32)) for w in range(2)]
    assert n[5].view(np.uint32).tolist() == np.repeat(ballots, 32).tolist()
    assert n[6].tolist() == [1] * 32 + [0] * 32
    assert n[7].tolist() == [int(all(words[:32]))] * 32 + [int(all(words[32:]))] * 32
    assert n[8].view(np.uint32).tolist() == np.repeat([sum(v) % 2**32 for v in warps], 32).tolist()
    signed = U.view(np.int32).reshape(2, 32)
    assert n[9].tolist() == np.repeat(signed.max(axis=1), 32).tolist()
    assert n[10].tolist() == [sum(odd)] * 64
    assert n[11].view(np.uint32).tolist() == [u * 0x9E3779B9 >> 32 for u in words]
    wide = [(u << 32 | u) * 0x9E3779B97F4A7C15 >> 64 for u in words]
    assert w[0].tolist() == wide
    assert w[1].tolist() == [u.bit_count() + 1 for u in words]
    assert_same_bits(d[0], x8 * x8 - 1)
    assert_same_bits(d[1], np.sqrt(np.abs(x8)))
    assert_same_bits(d[2], -x8)


def test_portable_switching_of_stacks(monkeypatch):
    """What other processors use; the same results."""
    expected = run_intrinsics(7)
    monkeypatch.setenv("RPUKIT_ON_CPU_UCONTEXT", "1")
    for here, there in zip(run_intrinsics(7), expected, strict=True):
        assert_same_bits(here, there)
    assert poison(shifted(1, 0)).any()


def test_integer_atomics(order):
    u = (np.arange(1000, dtype=np.uint64) * 2654435761 % 2**32).astype(np.uint32)
    total, extremes = np.zeros(4, np.uint32), np.array([2**31 - 1, -(2**31)], np.int32)
    wide, masks = np.zeros(1, np.uint64), np.array([0, 2**32 - 1, 0, 0], np.uint32)
    with on_cpu(order):
        args = (1000, u, total, extremes, wide, masks)
        kernel("counters").launch((8,), (128,), args)
    assert total.tolist() == np.bincount(u % 4, minlength=4).tolist()
    assert extremes.tolist() == [u.view(np.int32).min(), u.view(np.int32).max()]
    assert int(wide[0]) == sum(int(v) << 20 for v in u) % 2**64
    expected = [ufunc.reduce(u) for ufunc in (np.bitwise_or, np.bitwise_and, np.bitwise_xor)]
    assert masks.tolist() == [*map(int, expected), 1000]


SANITIZED = """
import sys
import numpy as np
from tests.on_cpu import runner
from rpukit import testing
from rpukit._kernels import Kernel
from pathlib import Path
testing.set_runner(runner.run)
y = np.zeros(8, np.int32)
with testing.on_cpu():
    args = (8, int(sys.argv[2]), 3.0, y)
    Kernel("bounds", path=Path(sys.argv[1])).launch((1,), (8,), args, shared=32)
print(y.sum())
"""


@pytest.mark.parametrize(
    ("mode", "report"),
    [
        (0, ""),
        (1, "heap-buffer-overflow"),
        (2, "heap-buffer-overflow"),
        (3, "out of bounds for type 'int [8]'"),
        (4, "signed integer overflow"),
        (5, "is outside the range of representable values of type 'int'"),
        (6, "global-buffer-overflow"),
        (7, "global-buffer-overflow"),
    ],
)
def test_sanitizers_find_planted_bugs(mode, report):
    compiler = os.environ.get("CXX", "g++")
    find = [compiler, "-print-file-name=libasan.so"]
    asan = subprocess.run(find, capture_output=True, text=True, check=True).stdout.strip()
    environment = {
        **os.environ,
        "LD_PRELOAD": asan,
        "ASAN_OPTIONS": "detect_leaks=0",
        "RPUKIT_ON_CPU_SANITIZE": "1",
        "PYTHONPATH": str(PLANTED.parents[2]),
    }
    command = [sys.executable, "-c", SANITIZED, str(PLANTED / "bounds.cu"), str(mode)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if mode == 0:
        assert (done.returncode, done.stdout) == (0, "56\n"), done.stderr
    else:
        assert done.returncode != 0
        assert report in done.stderr
        assert "bounds.cu" in done.stderr
