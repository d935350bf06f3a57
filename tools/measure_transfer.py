"""Measure the transfer family: an update with a transfer after every sample.

    python tools/measure_transfer.py [--sizes 512 1024] [--batches 1 8 32] [--cells ttv3]
    python tools/measure_transfer.py --device cpu --sizes 512 --batches 1 16

Microseconds by CUDA events, medians after warm-up, tuner on, managed pulses; one tile is used
again and again as in training. x ~ U(-1, 1), d ~ 0.01 N(0, 1), lr 0.01. `graph`: calls captured
one after the other; `eager`: events around one call; `host`: time that a call takes on the host.
The floor: bytes of the fast array's cells and weights over 4.3 TB/s.

`ttv3` pulses the fast array with the rate of the update (`fast_lr` 0), as the core of the anchor
does unless it is told otherwise; `ttv3 fast` with the default `fast_lr`, 1, not scaled by lr: a
hundred times the rate, some four pulses a cell and sample.

On a CPU: d ~ U(-0.1, 0.1), CPU time of one thread, the least of many calls, in milliseconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure_update import BANDWIDTH, measure

import rpukit as rk
from rpukit import _device

PAIR = (rk.SoftBounds(), rk.SoftBounds())
CELLS = {
    "ttv3": rk.ChoppedTransfer(devices=PAIR, fast_lr=0),
    "ttv3 fast": rk.ChoppedTransfer(devices=PAIR),
    "ttv3 gamma": rk.ChoppedTransfer(devices=PAIR, fast_lr=0, gamma=0.5),
    "ttv3 scaled": rk.ChoppedTransfer(devices=PAIR, fast_lr=0.1, auto_scale=True),
    "ttv4": rk.DynamicTransfer(devices=PAIR, fast_lr=0),
    "ttv2": rk.BufferedTransfer(devices=PAIR, units_in_mbatch=False),
    "ttv1": rk.Transfer(devices=PAIR, units_in_mbatch=False),
}


def on_a_cpu(cells: list[str], sizes: list[int], batches: list[int]) -> None:
    """Print the milliseconds of an update on one thread of a CPU."""
    rk.set_num_threads(1)
    random = np.random.default_rng(0)
    print("| cell | size | batch | ms |")
    print("|---|---|---|---|")
    for name in cells:
        for size in sizes:
            tile = rk.AnalogTile((size, size), CELLS[name], seed=1)
            for n in batches:
                x = random.uniform(-1, 1, (n, size)).astype(np.float32)
                d = random.uniform(-0.1, 0.1, (n, size)).astype(np.float32)
                tile.update(x, d, 0.01)
                times, end = [], time.perf_counter() + 0.5
                while len(times) < 3 or time.perf_counter() < end:
                    start = time.process_time()
                    tile.update(x, d, 0.01)
                    times.append(time.process_time() - start)
                print(f"| {name} | {size} | {n} | {min(times) * 1e3:.3f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[512, 1024, 2048, 4096])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32, 128, 512])
    parser.add_argument("--cells", nargs="*", default=list(CELLS), choices=CELLS)
    parser.add_argument("--device", default="gpu", choices=("gpu", "cpu"))
    args = parser.parse_args()
    if args.device == "cpu":
        on_a_cpu(args.cells, args.sizes, args.batches)
        return 0
    cupy = _device.cupy()
    print("| cell | size | batch | graph | eager | host | floor |")
    print("|---|---|---|---|---|---|---|")
    for name in args.cells:
        for size in args.sizes:
            floor = 8 * size * size * 4 / BANDWIDTH * 1e6
            tile = rk.AnalogTile((size, size), CELLS[name], seed=1, device="gpu")
            for n in args.batches:
                random = cupy.random.RandomState(1)
                x = random.uniform(-1, 1, (n, size)).astype(np.float32)
                d = (0.01 * random.standard_normal((n, size))).astype(np.float32)
                graph, eager, host = measure(partial(tile.update, x, d, 0.01))
                print(
                    f"| {name} | {size} | {n} | {graph:.1f} | {eager:.1f} | {host:.0f} | "
                    f"{floor:.1f} |",
                    flush=True,
                )
            rk.check()
    return 0


if __name__ == "__main__":
    sys.exit(main())
