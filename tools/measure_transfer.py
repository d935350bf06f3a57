"""Measure the transfer family on a GPU: an update with a transfer after every sample.

    python tools/measure_transfer.py [--sizes 512 1024] [--batches 1 8 32] [--json out.json]

Times are medians of CUDA events in microseconds, after warm-up, with managed pulses; `host` is the
time that a call takes on the host. The floor is the bytes of both arrays of cells and weights that
have to move, over 4.3 TB/s.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure_tile import BANDWIDTH, measure

import rpukit as rk
from rpukit import _device

PAIR = (rk.SoftBounds(), rk.SoftBounds())
CELLS = {
    "ttv1": rk.Transfer(devices=PAIR, units_in_mbatch=False),
    "ttv2": rk.BufferedTransfer(devices=PAIR, units_in_mbatch=False),
    "ttv3": rk.ChoppedTransfer(devices=PAIR),
    "ttv3 gamma": rk.ChoppedTransfer(devices=PAIR, gamma=0.5),
    "ttv4": rk.DynamicTransfer(devices=PAIR),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[512, 1024, 2048, 4096])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32, 128, 512])
    parser.add_argument("--cells", nargs="*", default=list(CELLS), choices=CELLS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cupy, rows = _device.cupy(), []
    print(f"{'size':>5} {'batch':>5} " + " ".join(f"{c:>20}" for c in args.cells))
    for size in args.sizes:
        floor = 2 * 8 * size * size * 4 / BANDWIDTH * 1e6
        tiles = {
            name: rk.AnalogTile((size, size), CELLS[name], seed=1, device="gpu")
            for name in args.cells
        }
        for n in args.batches:
            random = cupy.random.RandomState(1)
            x = random.uniform(-1, 1, (n, size)).astype(np.float32)
            d = (0.01 * random.standard_normal((n, size))).astype(np.float32)
            row = {"size": size, "batch": n, "floor": floor}
            for name, tile in tiles.items():
                row[name] = measure(partial(tile.update, x, d, 0.01), 12)
                assert bool(cupy.isfinite(tile.get_weights()).all())
            rows.append(row)
            cells = (f"{row[c][0]:8.1f} | {row[c][1]:7.1f}" for c in args.cells)
            print(f"{size:5d} {n:5d} " + " ".join(f"{c:>20}" for c in cells), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
