"""Measure updates on a GPU: whole calls of `AnalogTile.update`, in a captured graph and eager.

    python tools/measure_update.py [--sizes 512 1024] [--batches 1 8 32] [--cells ConstantStep]

Microseconds by CUDA events, medians after warm-up, tuner on, pulse trains included; one tile is
used again and again as in training. x ~ U(-1, 1), d ~ 0.01 N(0, 1), lr 0.01. Managed: update and
bit-length management; fixed: neither, 31 slots. `graph`: calls captured one after the other;
`eager`: events around one call; `floor`: bytes of the cells once over 4.3 TB/s; `host`: time that
a call takes on the host.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device

BANDWIDTH = 4.3e12
CELLS = ("ConstantStep", "SoftBounds", "ExpStep", "LinearStep")
PARAMETERS = {
    "managed": rk.UpdateParameters(),
    "fixed": rk.UpdateParameters(update_management=False, update_bl_management=False),
}


def elapsed(stream: Any, call: Callable[[], Any]) -> float:
    """Microseconds between events before and after a call."""
    cuda = _device.cupy().cuda
    start, stop = cuda.Event(), cuda.Event()
    start.record(stream)
    call()
    stop.record(stream)
    stop.synchronize()
    return float(cuda.get_elapsed_time(start, stop)) * 1e3


def measure(call: Callable[[], Any]) -> tuple[float, float, float]:
    """Time of a call in a graph, eager, and on the host, in microseconds."""
    stream = _device.cupy().cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(3):
            call()
        stream.synchronize()
        once = elapsed(stream, call)
        calls, repeats = max(1, min(10, int(2000 / once))), 41 if once < 1000 else 7
        for _ in range(repeats):  # Python's functions are fast from their tenth call or so on
            elapsed(stream, call)
        eager = statistics.median(elapsed(stream, call) for _ in range(repeats))
        host = []
        for _ in range(repeats):
            stream.synchronize()
            t = time.perf_counter()
            call()
            host.append((time.perf_counter() - t) * 1e6)
        stream.synchronize()
        stream.begin_capture()
        for _ in range(calls):
            call()
        graph = stream.end_capture()
        graph.launch(stream)
        replay = partial(graph.launch, stream)
        replayed = statistics.median(elapsed(stream, replay) for _ in range(repeats)) / calls
    return replayed, eager, statistics.median(host)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[512, 1024, 2048, 4096])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32, 128, 512])
    parser.add_argument("--cells", nargs="*", default=CELLS, choices=CELLS)
    args = parser.parse_args()
    cupy = _device.cupy()
    print("| cell | size | batch | trains | graph | eager | host | floor |")
    print("|---|---|---|---|---|---|---|---|")
    for name in args.cells:
        for size in args.sizes:
            cell = getattr(rk, name)()
            floor = (len(cell.PLANES) + 2) * 4 * size * size / BANDWIDTH * 1e6
            for kind, parameters in PARAMETERS.items():
                tile = rk.AnalogTile((size, size), cell, update=parameters, seed=1, device="gpu")
                for n in args.batches:
                    random = cupy.random.RandomState(1)
                    x = random.uniform(-1, 1, (n, size)).astype(np.float32)
                    d = (0.01 * random.standard_normal((n, size))).astype(np.float32)
                    graph, eager, host = measure(partial(tile.update, x, d, 0.01))
                    print(
                        f"| {name} | {size} | {n} | {kind} | {graph:.1f} | {eager:.1f} | "
                        f"{host:.0f} | {floor:.1f} |",
                        flush=True,
                    )
                rk.check()
    return 0


if __name__ == "__main__":
    sys.exit(main())
