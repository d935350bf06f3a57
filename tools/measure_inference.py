"""Measure inference tiles: programming, drift with reading, products, beside their floors.

    python tools/measure_inference.py [--device gpu] [--sizes 4096] [--batches 1 128] [--json out]

Medians in microseconds: CUDA events on a GPU, the clock on a CPU. `reading` is the time to read
the weights once at 4.3 TB/s (on a CPU: a copy of them by NumPy, halved); `plain` the forward
product of an `AnalogTile` of the same size and periphery; `limit` 1.5 times their sum. `graph`:
calls captured one after the other.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import measure_update

import rpukit as rk
from rpukit import _device

BANDWIDTH = 4.3e12
IO = rk.IOParameters(bound_management="none")
TIMES = (1.0, 3600.0, 86400.0)


def measure(call, device: str, n: int) -> float:
    """Median time of a call in microseconds, after warm-up."""
    for _ in range(2):
        call()
    if device == "cpu":
        times = []
        for _ in range(n):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e6)
        return statistics.median(times)
    cupy = _device.cupy()
    cupy.cuda.Device().synchronize()
    times = []
    for _ in range(n):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop) * 1e3)
    return statistics.median(times)


def rows(size: int, n_batch: int, device: str, n: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    place = _device.parse_device(device)
    weight, x = (
        _device.to_device(rng.uniform(-1, 1, shape).astype(np.float32), place)
        for shape in ((size, size), (n_batch, size))
    )
    plain = rk.AnalogTile((size, size), rk.Ideal(), forward=IO, device=device, seed=1)
    plain.set_weights(weight)
    tile = rk.InferenceTile((size, size), forward=IO, device=device, seed=1)
    tile.set_weights(weight).program()
    turn = iter(range(1 << 30))

    def whole():
        tile.program()
        tile.drift_to(TIMES[next(turn) % 3])
        tile.forward(x)

    def later():
        tile.drift_to(TIMES[next(turn) % 3])
        tile.forward(x)

    add = rk.inference.WeightModifier(type="add_normal", std_dev=0.05)
    learner = rk.InferenceTile((size, size), modifier=add, device=device, seed=1)
    learner.set_weights(weight)
    out = {
        "program": measure(tile.program, device, n),
        "drift_to": measure(lambda: tile.drift_to(TIMES[next(turn) % 3]), device, n),
        "forward": measure(lambda: tile.forward(x), device, n),
        "all three": measure(whole, device, n),
        "drift, forward": measure(later, device, n),
        "modify": measure(learner.post_step, device, n),
        "plain": measure(lambda: plain.forward(x), device, n),
    }
    if device != "cpu":
        out["all, graph"] = measure_update.measure(whole)[0]
        out["plain, graph"] = measure_update.measure(lambda: plain.forward(x))[0]
    if device == "cpu":
        out["reading"] = measure(weight.copy, device, n) / 2
    else:
        out["reading"] = size * size * 4 / BANDWIDTH * 1e6
    out["limit"] = 1.5 * (out["reading"] + out.get("plain, graph", out["plain"]))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 4096])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 128])
    parser.add_argument("--calls", type=int, default=25)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = []
    for size in args.sizes:
        for n_batch in args.batches:
            row = {"size": size, "batch": n_batch}
            row |= rows(size, n_batch, args.device, args.calls)
            found.append(row)
            if len(found) == 1:
                print("| " + " | ".join(row) + " |\n" + "|---" * len(row) + "|")
            cells = [f"{v:.1f}" if isinstance(v, float) else str(v) for v in row.values()]
            print("| " + " | ".join(cells) + " |", flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
