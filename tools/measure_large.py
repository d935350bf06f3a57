"""Measure a large tile on a GPU: construction, products, updates and memory.

    python tools/measure_large.py [--size 16384] [--cell ConstantStep] [--batches 1 8]

Medians of three in milliseconds, by CUDA events after one call; memory in units of the weights:
what the arrays of the tile take, and the most that CuPy's pool held up to then.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device


def median(call) -> float:
    """Time of a call in milliseconds, after warm-up."""
    cupy, times = _device.cupy(), []
    for _ in range(4):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop))
    return statistics.median(times[1:])


def rows(storage: str, cell: str, size: int, batches: list[int]) -> None:
    cupy = _device.cupy()
    pool, random = cupy.get_default_memory_pool(), cupy.random.RandomState(0)
    pool.free_all_blocks()
    before, weights = pool.used_bytes(), 4 * size * size
    start = time.perf_counter()
    tile = rk.AnalogTile((size, size), getattr(rk, cell)(), storage=storage, device="gpu", seed=1)
    cupy.cuda.Device().synchronize()
    made, own = time.perf_counter() - start, (pool.used_bytes() - before) / weights
    for n in batches:
        x = random.uniform(-1, 1, (n, size)).astype(np.float32)
        d = (0.01 * random.standard_normal((n, size))).astype(np.float32)
        times = (
            median(lambda x=x: tile.forward(x)),
            median(lambda d=d: tile.backward(d)),
            median(lambda x=x, d=d: tile.update(x, d, lr=0.01)),
        )
        cells = " | ".join(f"{t:.2f}" for t in times)
        peak = pool.total_bytes() / weights
        print(f"| {storage} | {made:.2f} s | {own:.1f}, {peak:.1f} | {n} | {cells} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--cell", default="ConstantStep")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    args = parser.parse_args()
    print("| storage | made in | memory | batch | forward | backward | update |")
    print("|---|---|---|---|---|---|---|")
    for storage in ("stored", "procedural"):
        rows(storage, args.cell, args.size, args.batches)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
