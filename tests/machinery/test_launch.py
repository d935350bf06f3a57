"""One way to launch; what is wrong with a call is said in the same words on CPU and GPU."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from rpukit import _device, testing
from rpukit._kernels import Kernel, arguments, launch
from rpukit.errors import DeviceError, LaunchError
from rpukit.testing import assert_same_bits, on_cpu

PATH = Path(__file__).parents[1] / "on_cpu/planted/plain.cu"
KERNEL = Kernel("plain", path=PATH)
NAN = float("nan")


@pytest.fixture(params=["on_cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def xp(request):
    """The array module of a machine that runs kernels: NumPy by the runner, or CuPy."""
    if request.param == "gpu":
        yield _device.cupy()
    else:
        with on_cpu():
            yield np


def arguments_for(xp, **changes):
    x, y = xp.arange(10, dtype=np.float32), xp.zeros(10, np.float32)
    values = {
        "n": 10, "first": 1, "big": 2 << 40, "wide": -3, "a": 0.5, "x": x, "y": y, "skip": None,
        "small": 4,
    }  # fmt: skip
    return [*{**values, **changes}.values()]


def go(args, grid=(1,), block=(32,), **options):
    KERNEL.launch(grid, block, args, **options)
    return _device.to_numpy(args[6])


def test_arguments_arrive(xp):
    expected = np.arange(10, dtype=np.float32) * np.float32(0.5) + np.float32(1 + 2 - 3 + 4)
    assert_same_bits(go(arguments_for(xp)), expected)
    typed = arguments_for(
        xp,
        n=np.int32(10),
        first=np.uint32(1),
        big=np.uint64(2 << 40),
        wide=np.int64(-3),
        a=np.float32(0.5),
        small=np.uint8(4),
    )
    assert_same_bits(go(typed), expected)
    other = arguments_for(xp, n=np.int64(10), first=True, a=np.float64(0.5), small=np.int8(4))
    assert_same_bits(go(other), expected)


def test_extremes_of_integers_arrive(xp):
    y = go(arguments_for(xp, first=2**32 - 1, big=2**64 - 1, wide=-(2**63) + 5, small=255, a=0))
    assert y.tolist() == [float(-1 + (2**24 - 1) + 5 + 255)] * 10


def test_macros_choose_types(xp):
    x, y = xp.arange(10, dtype=np.float64) / 3, xp.zeros(10)
    args = arguments_for(xp, x=x, y=y, a=0.1)
    result = go(args, macros={"REAL": "double", "OFFSET": 2})
    assert_same_bits(result, 0.1 * (np.arange(10) / 3) + (4 + 2 + 1))


def test_null_pointers(xp):
    y = go(arguments_for(xp, skip=xp.ones(1, np.int32)))
    assert not y.any()
    y = go(arguments_for(xp, skip=xp.zeros(1, np.int32)))
    assert y.any()


def test_nan_and_infinity_are_numbers(xp):
    x = xp.ones(10, np.float32)
    assert np.isnan(go(arguments_for(xp, x=x, a=NAN))).all()
    assert np.isinf(go(arguments_for(xp, x=x, a=-float("inf")))).all()


def test_empty_grids_launch_nothing(xp):
    assert not go(arguments_for(xp), grid=(0,)).any()
    assert not go(arguments_for(xp), grid=(3, 0)).any()


BAD = [
    ({"n": 2**31}, "plain: parameter n: got 2147483648, need a number in"),
    ({"n": 1.0}, "parameter n: got 1.0, need an integer"),
    ({"n": None}, "parameter n: got None, need an integer"),
    ({"first": -1}, "parameter first: got -1, need a number in"),
    ({"first": np.int64(2**32)}, "parameter first: got 4294967296"),
    ({"big": -1}, "parameter big: got -1"),
    ({"wide": 2**63}, "parameter wide: got 9223372036854775808"),
    ({"small": 256}, "parameter small: got 256"),
    ({"a": "x"}, "parameter a: got 'x', need a number"),
    ({"a": 1j}, "parameter a: got 1j, need a number"),
    ({"a": 1e39}, r"parameter a: got 1e\+39, need a number in"),
    ({"a": 10**400}, "parameter a: got 1000"),
    ({"x": 3.0}, "parameter x: got float, need a C-contiguous float32 array on"),
    ({"x": [1.0]}, "parameter x: got list, need"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=lambda v: "-".join(v) if v else "")
def test_bad_arguments(xp, changes, message):
    args = arguments_for(xp, **changes)
    with pytest.raises(LaunchError, match=message):
        go(args)
    assert not _device.to_numpy(args[6]).any()


def test_bad_arrays(xp):
    where = "the CPU" if xp is np else "a GPU"
    need = f"; need a C-contiguous float32 array on {where}"
    for x, got in (
        (xp.zeros(10), "got a 10 array of float64"),
        (xp.zeros((4, 5), np.int32), "got a 4x5 array of int32"),
        (xp.zeros((4, 6), np.float32).T, "got a 6x4 array not C-contiguous"),
        (xp.zeros(20, np.float64)[::2], "got a 10 array of float64, not C-contiguous"),
    ):
        with pytest.raises(LaunchError, match=f"plain: parameter x: {got}{need}"):
            go(arguments_for(xp, x=x))
    swapped = np.dtype(np.float32).newbyteorder()
    if xp is np:
        with pytest.raises(LaunchError, match="array of >f4|array of float32"):
            go(arguments_for(xp, x=np.zeros(10, swapped)))


def test_wrong_count_names_the_parameters(xp):
    args = arguments_for(xp)
    text = r"got 8 arguments, need 9: int n, u32 first, u64 big, long long wide, REAL a, REAL \*x"
    with pytest.raises(LaunchError, match=text):
        KERNEL.launch((1,), (32,), args[:-1])


SHAPES = [
    ((1,), (1025,), 0, r"plain: block: got \(1025,\), need 1 to \(1024,\)"),
    ((1,), (32, 64), 0, "need at most 1024 threads"),
    ((1,), (0,), 0, "block: got"),
    ((-1,), (32,), 0, "grid: got"),
    ((1, 65536), (32,), 0, "grid: got"),
    ((1.5,), (32,), 0, "need one to three integers"),
    ((1, 1, 1, 1), (32,), 0, "need one to three integers"),
    ((1,), (32,), 1 << 20, "shared: got 1048576 bytes"),
    ((1,), (32,), -1, "shared: got -1 bytes"),
]


@pytest.mark.parametrize(("grid", "block", "shared", "message"), SHAPES)
def test_bad_shapes(xp, grid, block, shared, message):
    with pytest.raises(LaunchError, match=message):
        go(arguments_for(xp), grid, block, shared=shared)


def test_much_dynamic_shared_memory(xp):
    kernel, y = Kernel("plain", "shared_size", path=PATH), xp.zeros(1, np.int32)
    for words in (100, 16_000, 40_000, 100):  # up to 160,000 bytes
        kernel.launch((1,), (64,), (words, y), shared=4 * words)
        assert int(y[0]) == words - 1


def test_unknown_entry_and_macro():
    with pytest.raises(LaunchError, match="no entry point 'nothing', only plain, shared_size"):
        Kernel("plain", "nothing", path=PATH).variant()
    with pytest.raises(LaunchError, match="no macro 'REEL'; there are: OFFSET, REAL"):
        KERNEL.variant({"REEL": "float"})


def test_unknown_types_are_refused(tmp_path):
    path = tmp_path / "strange.cu"
    path.write_text('extern "C" __global__ void strange(half h) {}\n')
    with pytest.raises(LaunchError, match="parameter h: its type 'half' is not one of"):
        Kernel("strange", path=path).variant()


def test_variants_are_kept():
    assert KERNEL.variant() is KERNEL.variant({})
    assert KERNEL.variant({"OFFSET": 2}) is KERNEL.variant({"OFFSET": 2})
    assert KERNEL.variant({"OFFSET": 2}) is not KERNEL.variant()
    assert KERNEL.variant({"OFFSET": True}).macros == {"OFFSET": "1"}
    assert KERNEL.variant({"OFFSET": 0, "REAL": "float"}).macros == {}  # the defaults


def test_arrays_outside_on_cpu_are_refused():
    with pytest.raises(
        LaunchError, match="got a 10 array on cpu; need a C-contiguous .* on a GPU"
    ):
        go(arguments_for(np))


def test_no_gpu_is_said():
    if _device.gpu_count():
        pytest.skip("this machine has a GPU")
    with pytest.raises(DeviceError, match="no usable GPU"):
        KERNEL.launch((1,), (1,), arguments_for(np, x=None, y=None))


@pytest.mark.gpu
def test_cpu_arrays_are_refused_after_a_good_launch():
    xp = _device.cupy()
    go(arguments_for(xp))
    with pytest.raises(LaunchError, match="parameter x: got a 10 array on cpu"):
        go(arguments_for(xp, x=np.zeros(10, np.float32)))


@pytest.mark.gpu
def test_current_stream_is_used():
    xp = _device.cupy()
    args = arguments_for(xp)
    xp.cuda.Device().synchronize()  # the zeros are there before another stream reads them
    with xp.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        KERNEL.launch((1,), (32,), args)
        graph = stream.end_capture()
        assert not args[6].get().any()  # recorded, not run
        graph.launch()
        stream.synchronize()
    assert args[6].get().any()


@pytest.mark.multi_gpu
def test_arrays_on_two_gpus_are_refused():
    xp = _device.cupy()
    with xp.cuda.Device(1):
        y, x = xp.zeros(10, np.float32), xp.arange(10, dtype=np.float32)
    with pytest.raises(LaunchError, match="parameter y: got an array on gpu:1, those before"):
        go(arguments_for(xp, y=y))
    assert go(arguments_for(xp, x=x, y=y)).any()  # all on the second, which is not current


def test_runner_is_asked_for():
    before = launch._runner
    testing.set_runner(None)
    try:
        with on_cpu(), pytest.raises(LaunchError, match="needs a runner"):
            go(arguments_for(np))
    finally:
        testing.set_runner(before)


def test_launches_are_logged(caplog):
    with on_cpu(), caplog.at_level(logging.DEBUG, "rpukit"):
        go(arguments_for(np), grid=(2, 1))
    assert "grid (2, 1), block (32,)" in caplog.text


def test_many_threads_share_one_kernel():
    kernel, results = Kernel("plain", path=PATH), []

    def work():
        results.append(kernel.variant({"OFFSET": 3}))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, results))) == 1


def test_checks_do_not_need_the_array_class():
    """The check that is written out takes what its declared types say, nothing else."""
    parameters = [(p, p.ctype) for p in KERNEL.source().entries["shared_size"]]

    class Array(np.ndarray):
        pass

    check = arguments.checker("shared_size", parameters, None)
    y = np.zeros(3, np.int32).view(Array)
    assert check(5, y)[1] is y
    assert type(check(5, y)[0]) is np.int32


def test_library_does_not_print(tmp_path):
    code = f"""
import numpy as np
from pathlib import Path
from rpukit._kernels import Kernel
try:
    Kernel("plain", path=Path({str(PATH)!r})).launch((1,), (1,), (np.zeros(1),))
except Exception as error:
    assert type(error).__name__ == "LaunchError"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
