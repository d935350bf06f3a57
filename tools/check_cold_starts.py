"""Check on a GPU that no update omits samples after a cold start of the tuner.

    python tools/check_cold_starts.py [--starts 200]

Every start forgets the tuner's times and its file, primes a new tile by one of several orders of
batches (one sample first, growing, shrinking, alternating), and compares weights and number of
pulses with the CPU's. Differences are told and counted; the exit status is 1 where there are any.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from itertools import cycle, islice
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device
from rpukit._kernels import tune

SHAPE = (48, 64)
ORDERS = ((1, 128), (1, 2, 5, 33, 70), (70, 33, 5, 2, 1), (1, 64, 1, 65, 2, 64))
CELLS = (
    rk.ConstantStep,
    rk.LinearStep,
    rk.SoftBounds,
    rk.SoftBoundsReference,
    rk.ExpStep,
    rk.PowStep,
    rk.PowStepReference,
    rk.PiecewiseStep,
)


def run(cell: type, sizes: tuple[int, ...], device: str) -> tuple[np.ndarray, int]:
    """Weights and pulses of a new tile after batches of these sizes."""
    rng = np.random.default_rng(len(sizes))
    x = rng.uniform(-1, 1, (sum(sizes), SHAPE[1])).astype(np.float32)
    d = rng.normal(0, 0.1, (sum(sizes), SHAPE[0])).astype(np.float32)
    place = _device.parse_device(device)
    tile, first = rk.AnalogTile(SHAPE, cell(), seed=3, device=device), 0
    for n in sizes:
        part = slice(first, first + n)
        tile.update(_device.to_device(x[part], place), _device.to_device(d[part], place), lr=0.02)
        first += n
    return _device.to_numpy(tile.get_weights()), tile.n_pulses


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=200)
    starts = parser.parse_args().starts
    cases = [(cell, sizes) for cell in CELLS for sizes in ORDERS]
    expected = {case: run(*case, "cpu") for case in cases}
    bad, picked = 0, set()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RPUKIT_CACHE_DIR"] = folder
        for case in islice(cycle(cases), starts):
            for file in Path(folder).glob("tune-*.json"):
                file.unlink()
            tune.forget()
            weight, n_pulses = run(*case, "gpu")
            picked |= {tune.fastest_name(record) for _, record in tune.records()}
            same = np.array_equal(weight, expected[case][0]) and n_pulses == expected[case][1]
            if not same:
                print(f"{case[0].__name__}, batches {case[1]}: other weights or pulses")
            bad += not same
    print(f"{starts} cold starts, {bad} differ; picked were {', '.join(sorted(picked))}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
