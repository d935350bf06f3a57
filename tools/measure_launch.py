"""Measure the host time of a launch, ours and a bare RawKernel call with the same arguments.

python tools/measure_launch.py        (needs a GPU)
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rpukit import _device
from rpukit._kernels import Kernel


def source(n_argument: int) -> str:
    """A kernel that does nothing, half of its arguments arrays."""
    half = n_argument // 2
    parameters = [f"int n{i}" for i in range(n_argument - half)] + [
        f"float *x{i}" for i in range(half)
    ]
    return f'extern "C" __global__ void nothing({", ".join(parameters)}) {{}}\n'


def host_time(call, n: int = 2000, repeats: int = 15) -> float:
    """Best of the mean host times of a call, in microseconds."""
    cupy, best = _device.cupy(), []
    for _ in range(repeats):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(n // 10):
            call()
        best.append((time.perf_counter() - start) / (n // 10) * 1e6)
    return statistics.median(best)


def main() -> int:
    cupy = _device.cupy()
    print(f"{'arguments':>9} {'bare us':>8} {'ours us':>8} {'ratio':>6} {'ours, typed':>12}")
    for n_argument in (4, 8, 16):
        half = n_argument // 2
        arrays = [cupy.zeros(4, np.float32) for _ in range(half)]
        typed = [np.int32(i) for i in range(n_argument - half)]
        plain = [int(i) for i in typed]
        bare = cupy.RawKernel(source(n_argument), "nothing")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "nothing.cu"
            path.write_text(source(n_argument))
            ours = Kernel("nothing", path=path).variant()
            ours.launch((1,), (32,), (*plain, *arrays))
            times = [
                host_time(call)
                for call in (
                    lambda: bare((1,), (32,), (*typed, *arrays)),  # noqa: B023
                    lambda: ours.launch((1,), (32,), (*plain, *arrays)),  # noqa: B023
                    lambda: ours.launch((1,), (32,), (*typed, *arrays)),  # noqa: B023
                )
            ]
        print(
            f"{n_argument:9d} {times[0]:8.2f} {times[1]:8.2f} {times[1] / times[0]:6.2f} "
            f"{times[2]:12.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
