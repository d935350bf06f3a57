"""Measure products on a GPU: forward and backward through the default periphery.

    python tools/measure_forward.py [--sizes 512 1024] [--batches 1 8 32]

Microseconds by CUDA events, medians after warm-up, tuner on. `graph`: calls captured one after the
other; `eager`: events around one call; `host`: time that a call takes on the host. `retries`:
weights with which outputs meet their bound, so that bound management works; with those of
`forward` none does. The floor is the larger of the bytes of weights and vectors over 4.3 TB/s and
of the fp32 operations over 60 TFLOP/s.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure_update import BANDWIDTH, measure

import rpukit as rk
from rpukit import _device

FLOPS = 60e12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[512, 1024, 2048, 4096])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32, 128, 512])
    args = parser.parse_args()
    cupy = _device.cupy()
    print("| size | batch | product | graph | eager | host | floor |")
    print("|---|---|---|---|---|---|---|")
    for size in args.sizes:
        random = cupy.random.RandomState(0)
        small = random.uniform(-0.1, 0.1, (size, size)).astype(np.float32)
        tiles = {
            name: rk.AnalogTile((size, size), rk.Ideal(), device="gpu").set_weights(scale * small)
            for name, scale in (("forward", 0.9), ("retries", 6), ("backward", 1))
        }
        for n in args.batches:
            x = random.uniform(-1, 1, (n, size)).astype(np.float32)
            bytes_ = (size * size + 2 * n * size) * 4
            floor = max(bytes_ / BANDWIDTH, 2 * n * size * size / FLOPS) * 1e6
            for name, tile in tiles.items():
                product = tile.backward if name == "backward" else tile.forward
                v = abs(x) if name == "retries" else x
                if name == "retries":
                    tile.set_weights(abs(6 * small))
                graph, eager, host = measure(partial(product, v))
                print(
                    f"| {size} | {n} | {name} | {graph:.1f} | {eager:.1f} | {host:.0f} | "
                    f"{floor:.1f} |",
                    flush=True,
                )
        rk.check()
    return 0


if __name__ == "__main__":
    sys.exit(main())
