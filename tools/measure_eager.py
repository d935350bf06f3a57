"""Measure steady calls from Python: host time, time to the result, and time in a CUDA graph.

    python tools/measure_eager.py [--device gpu] [--tree FOLDER] [--json out.json]

Each call is warmed up and timed in rounds; the table has medians in microseconds. `host` is the
time until the call returns, `done` the time until its result is there (both without a graph),
`graph` the device time of one replay of a captured graph. With ``--tree`` another checkout of the
library is measured, for a comparison before and after a change on one machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Call = Callable[[], Any]
N_WARM, N_ROUND, N_CALL = 60, 15, 40
LONGEST = 0.05  # seconds of a round: slow calls make fewer of them


def cases(rk: Any, device: str) -> dict[str, Call]:
    """Calls by name; their arguments are on the device."""
    xp = np if device == "cpu" else rk._device.cupy()
    rng = np.random.default_rng(0)
    found: dict[str, Call] = {}

    def array(*shape: int, dtype: Any = np.float32) -> Any:
        return xp.asarray(rng.uniform(-0.5, 0.5, shape).astype(dtype))

    for n in (1, 8):
        x, d = array(n, 512), array(n, 512)
        soft = rk.AnalogTile((512, 512), rk.SoftBounds(), seed=1, device=device)
        found[f"forward 512 x 512, batch {n}"] = lambda t=soft, x=x: t.forward(x)
        found[f"backward 512 x 512, batch {n}"] = lambda t=soft, d=d: t.backward(d)
        found[f"update 512 x 512 SoftBounds, batch {n}"] = lambda t=soft, x=x, d=d: t.update(
            x, d, 0.01
        )
        cell = rk.ChoppedTransfer()
        chopped = rk.AnalogTile((512, 512), cell, seed=1, device=device)
        found[f"update 512 x 512 ChoppedTransfer, batch {n}"] = lambda t=chopped, x=x, d=d: (
            t.update(x, d, 0.01)
        )
    for dtype in (np.float32, np.float16):
        a, b = array(64, 1024, dtype=dtype), array(1024, 1024, dtype=dtype)
        found[f"det_gemm {np.dtype(dtype).name} 64 x 1024 x 1024"] = lambda a=a, b=b: rk.det_gemm(
            a, b
        )
    pc = rk.Circuit(rk.circuits.hmm(seq_len=16, n_states=64, n_symbols=50), device=device)
    codes = xp.asarray(rng.integers(0, 50, (8, 16)))
    found["log_likelihood of an HMM, 64 states, batch 8"] = lambda: pc.log_likelihood(codes)
    found["EM step of an HMM, 64 states, batch 8"] = lambda: pc.em_step(codes, step=0.1)
    return found


def medians(call: Call, wait: Call) -> tuple[float, float]:
    """Host time and time to the result of one call, in microseconds."""
    n_call = N_CALL
    for k in range(N_WARM):
        start = time.perf_counter()
        call()
        wait()
        if k == 2:
            n_call = max(1, min(N_CALL, int(LONGEST / (time.perf_counter() - start))))
        if k > 2 and n_call < N_CALL:
            break
    host, done = [], []
    for _ in range(N_ROUND):
        start = time.perf_counter()
        for _ in range(n_call):
            call()
        host.append(time.perf_counter() - start)
        wait()
        start = time.perf_counter()
        for _ in range(n_call):
            call()
            wait()
        done.append(time.perf_counter() - start)
    return tuple(statistics.median(times) / n_call * 1e6 for times in (host, done))


def graph_time(rk: Any, call: Call) -> float:
    """Device time of one replay, in microseconds; NaN where the call cannot be captured."""
    cupy = rk._device.cupy()
    stream = cupy.cuda.Stream(non_blocking=True)
    try:
        with stream:
            for _ in range(3):
                call()
            stream.synchronize()
            stream.begin_capture()
            kept = call()
            graph = stream.end_capture()
    except Exception as error:
        print(f"  not captured: {type(error).__name__}: {str(error)[:90]}")
        return float("nan")
    times = []
    with stream:
        for _ in range(N_ROUND):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(stream)
            for _ in range(N_CALL):
                graph.launch(stream)
            end.record(stream)
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(begin, end) / N_CALL * 1e3)
    del kept
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--tree", default=str(Path(__file__).resolve().parents[1]))
    parser.add_argument("--json", dest="out")
    options = parser.parse_args()
    sys.path.insert(0, options.tree)
    import rpukit as rk
    import rpukit._device

    on_gpu = options.device != "cpu"

    def wait() -> None:
        if on_gpu:
            rk._device.cupy().cuda.get_current_stream().synchronize()

    table = {}
    print(f"{'call':<48} {'host':>8} {'done':>8} {'graph':>8}  us")
    for name, call in cases(rk, options.device).items():
        host, done = medians(call, wait)
        graph = graph_time(rk, call) if on_gpu else float("nan")
        table[name] = (host, done, graph)
        print(f"{name:<48} {host:8.1f} {done:8.1f} {graph:8.1f}", flush=True)
    if options.out:
        Path(options.out).write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
