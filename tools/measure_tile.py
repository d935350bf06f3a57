"""Measure tiles on a GPU: products and updates over sizes and batches, beside their floors.

    python tools/measure_tile.py [--sizes 512 1024] [--batches 1 8 32] [--json out.json]

Times are medians of CUDA events in microseconds, after warm-up, on one tile that is used again and
again as in training (up to 2048 x 2048 it fits into the L2 cache of an H200). The floor is the
larger of the bytes that have to move over 4.3 TB/s and, for the products, of the fp32 operations
over 60 TFLOP/s; an update cannot do without reading its cells and writing the weights. `host` is
the time that a call takes on the host.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device

BANDWIDTH, FLOPS = 4.3e12, 60e12
FIXED = rk.UpdateParameters(update_management=False, update_bl_management=False)
MANAGED = rk.UpdateParameters()


def measure(call, n: int = 25) -> tuple[float, float]:
    """Median device time and host time of a call, in microseconds."""
    cupy = _device.cupy()
    for _ in range(3):
        call()
    cupy.cuda.Device().synchronize()
    device, host = [], []
    for _ in range(n):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        t = time.perf_counter()
        call()
        host.append((time.perf_counter() - t) * 1e6)
        stop.record()
        stop.synchronize()
        device.append(cupy.cuda.get_elapsed_time(start, stop) * 1e3)
    return statistics.median(device), statistics.median(host)


def floors(size: int, n: int) -> dict[str, float]:
    product = max((size * size + 2 * n * size) * 4 / BANDWIDTH, 2 * n * size * size / FLOPS) * 1e6
    cells = size * size * 4 / BANDWIDTH * 1e6
    return {
        "forward": product,
        "backward": product,
        "ConstantStep": 6 * cells,
        "SoftBounds": 8 * cells,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[512, 1024, 2048, 4096])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32, 128, 512])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cupy, rows = _device.cupy(), []
    columns = ["forward", "backward", "fp update", "cs um", "cs fix", "sb um", "sb fix"]
    print(
        f"{'size':>5} {'batch':>5} "
        + " ".join(f"{c:>16}" for c in columns)
        + "   (time us x floor | host)"
    )
    for size in args.sizes:
        tiles = {
            name: rk.AnalogTile((size, size), cell, update=update, seed=1, device="gpu")
            for name, cell, update in (
                ("fp update", rk.Ideal(), MANAGED),
                ("cs um", rk.ConstantStep(), MANAGED),
                ("cs fix", rk.ConstantStep(), FIXED),
                ("sb um", rk.SoftBounds(), MANAGED),
                ("sb fix", rk.SoftBounds(), FIXED),
            )
        }
        weight = cupy.random.RandomState(0).uniform(-0.1, 0.1, (size, size)).astype(np.float32)
        tiles["cs um"].set_weights(weight)
        for n in args.batches:
            random = cupy.random.RandomState(1)
            x = random.uniform(-1, 1, (n, size)).astype(np.float32)
            d = (0.01 * random.standard_normal((n, size))).astype(np.float32)
            floor, row = floors(size, n), {"size": size, "batch": n}
            for name in columns:
                tile = tiles["cs um" if name in ("forward", "backward") else name]
                calls = {
                    "forward": partial(tile.forward, x),
                    "backward": partial(tile.backward, d),
                }
                call = calls.get(name, partial(tile.update, x, d, 0.01))
                low = floor.get(name, floor["SoftBounds" if "sb" in name else "ConstantStep"])
                row[name] = (*measure(call), low)
            rows.append(row)
            cells = (
                f"{row[c][0]:7.1f} x{row[c][0] / row[c][2]:4.1f}|{row[c][1]:3.0f}" for c in columns
            )
            print(f"{size:5d} {n:5d} " + " ".join(f"{c:>16}" for c in cells), flush=True)
            weight_now = tiles["cs um"].get_weights()
            assert bool(cupy.isfinite(weight_now).all())
            tiles["cs um"].set_weights(weight)
    if args.json:
        args.json.write_text(json.dumps(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
