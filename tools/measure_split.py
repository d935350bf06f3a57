"""Time products and tiles that are split over GPUs, and compare the hashes of their results.

python tools/measure_split.py [--most 2] [--only head|tile] [--cpu]

Each row is one call on 1, 2, ... devices: the median of seven times in milliseconds, how many
times faster the last is than one device, and whether the bits are the same. ``--cpu`` takes pieces
on the CPU and small sizes: it compares bits only.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import _device
from rpukit.elementwise import random_fill

Call = Callable[[], Any]
_REPEATS = 7


def hashed(result: Any) -> str:
    """Hash of an array, or of one in pieces; of 4096 rows every 16th."""
    pieces = []
    for piece in result if isinstance(result, list) else [result]:  # of the columns
        with _device.using(_device.device_of(piece)):
            pieces.append(_device.to_numpy(piece[:: max(1, len(piece) // 256)]))
    whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)
    return hashlib.sha256(np.ascontiguousarray(whole).tobytes()).hexdigest()[:12]


def wait(devices: tuple[str, ...]) -> None:
    for name in set(devices) - {"cpu"}:
        with _device.using(_device.parse_device(name)):
            _device.cupy().cuda.Device().synchronize()


def timed(call: Call, devices: tuple[str, ...]) -> float:
    """Median time of a call in milliseconds, all devices included."""
    times = []
    for k in range(_REPEATS + 2):
        wait(devices)
        start = time.perf_counter()
        call()
        wait(devices)
        if k > 1:
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def on(array: np.ndarray, device: str) -> Any:
    return _device.to_device(array, _device.parse_device(device))


def bfloat16(shape: tuple[int, int], device: str) -> Any:
    """Normal numbers over 16, drawn on their device."""
    drawn = random_fill(rk.Stream.from_seed(shape[0]), shape, device=device)
    drawn *= np.float32(1 / 16)
    return rk.gemm.to_bfloat16(drawn)


def head(devices: tuple[str, ...], small: bool) -> Iterator[tuple[str, Call]]:
    """The head of a language model in bfloat16, whole or split."""
    m, n_in, n_out = (8, 256, 320) if small else (4096, 4096, 128256)
    rng = np.random.default_rng(0)
    rows, weight = (bfloat16(s, devices[0]) for s in ((m, n_in), (n_out, n_in)))
    targets = on(rng.integers(0, n_out, m), devices[0])
    slope = on(rng.standard_normal(m, np.float32), devices[0])
    if len(devices) == 1:
        w = weight
        for split in ("outputs", "inputs"):
            for name in ("forward", "forward, in pieces")[: 2 if split == "outputs" else 1]:
                yield f"head {split}: {name}", lambda: rk.det_gemm(rows, w, trans_b=True)
            yield f"head {split}: logprob", lambda: rk.linear_logprob(rows, w, targets)
            back = (rows, w, targets, slope)
            yield f"head {split}: dhidden", lambda b=back: rk.linear_logprob_backward(*b)[0]
        return
    for split in ("outputs", "inputs"):
        layer = rk.ShardedLinear.cut(weight, devices, split=split)
        yield f"head {split}: forward", lambda: layer.forward(rows)  # noqa: B023
        if split == "outputs":
            yield (
                "head outputs: forward, in pieces",
                lambda: layer.forward(rows, gather=False),  # noqa: B023
            )
        yield f"head {split}: logprob", lambda: layer.logprob(rows, targets)  # noqa: B023
        back = (rows, targets, slope)
        yield f"head {split}: dhidden", lambda b=back: layer.logprob_backward(*b)[0]  # noqa: B023


def tile(devices: tuple[str, ...], small: bool) -> Iterator[tuple[str, Call]]:
    """Products and updates of a large tile."""
    n, m = (300, 8) if small else (32768, 64)
    cell = rk.SoftBounds(dw_min=0.001, dw_min_std=0.3)
    options: dict[str, Any] = {"seed": 1, "storage": "stored"}
    one: Any
    if len(devices) == 1:
        one = rk.AnalogTile((n, n), cell, device=devices[0], **options)
    else:
        one = rk.ShardedTile((n, n), cell, devices, **options)
    rng = np.random.default_rng(0)
    x, d = (on(rng.uniform(-1, 1, (m, n)).astype(np.float32), devices[0]) for _ in range(2))
    kept = one.get_weights()
    yield "tile: update", lambda: one.update(x, d, 0.01, first_sample=0)
    one.set_weights(kept)
    one.update(x, d, 0.01, first_sample=0)
    yield "tile: weights", one.get_weights
    yield "tile: forward", lambda: one.forward(x, first_sample=0)
    yield "tile: backward", lambda: one.backward(d, first_sample=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=2, help="largest number of devices")
    parser.add_argument("--only", default="", help="head or tile")
    parser.add_argument("--cpu", action="store_true", help="pieces on the CPU, small sizes")
    options = parser.parse_args()
    counts = [n for n in (1, 2, 4, 8) if n <= options.most]
    found: dict[str, list[tuple[float, str]]] = {}
    for n in counts:
        devices = tuple("cpu" if options.cpu else f"gpu:{k}" for k in range(n))
        for make in (head, tile):
            if options.only not in make.__name__:
                continue
            for name, call in make(devices, options.cpu):
                first = call()
                bits = "" if first is None or hasattr(first, "n_pulses") else hashed(first)
                del first
                found.setdefault(name, []).append((timed(call, devices), bits))
                print(name, devices, *found[name][-1], file=sys.stderr, flush=True)
            if not options.cpu:
                _device.cupy().get_default_memory_pool().free_all_blocks()
    print(f"{'':34}" + "".join(f"{n:>8} devices" for n in counts) + "   faster  bits")
    for name, row in found.items():
        same = "same" if len({bits for _, bits in row}) == 1 else "DIFFER"
        times = "".join(f"{ms:13.3f} ms" for ms, _ in row)
        print(f"{name:34}{times}{row[0][0] / row[-1][0]:8.2f}  {same} {row[0][1]}")


if __name__ == "__main__":
    main()
