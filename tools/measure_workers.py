"""Fit one circuit by processes of Dask: hashes, times and bytes, for several numbers of workers.

    python tools/measure_workers.py [--workers 1 2 3 7] [--states 64] [--samples 20000]
        [--epochs 3] [--memory]

Prints a row for this process and for each number of workers, each with one thread: a hash of the
parameters after the fit, and the seconds of the fit without the start of the cluster. Then the
bytes that travel in a step, and what many GPUs would do on paper. With ``--memory`` only
these are printed.
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk

N_TIME, N_SYMBOL = 16, 100

# On paper: a hidden Markov model of 1024 states, 4023 symbols, H200s, links of 200 Gbit/s.
N_WEIGHT, N_LEAF, EACH = 1024 * 1025, 1024 * 4024, 512
N_PIECE = 2  # rows of counts of a block, for 32 times
STEP, LINK, MEMORY = 4.71, 25e9, 4.3e12  # ms of 512 samples, bytes/s, bytes/s


def fitted(client: Any, args: argparse.Namespace) -> tuple[str, float]:
    """Hash of the parameters after a fit, and its seconds."""
    x = np.random.default_rng(0).integers(0, N_SYMBOL, (args.samples, N_TIME))
    pc = rk.Circuit(rk.circuits.hmm(N_TIME, args.states, N_SYMBOL), seed=1)
    before = time.perf_counter()
    rk.distributed.fit(pc, x, n_epochs=args.epochs, unit=1024, client=client)
    seconds = time.perf_counter() - before
    arrays = pc.state()["arrays"]
    digest = hashlib.sha256(arrays["theta"].tobytes() + arrays["leaf_parameters"].tobytes())
    return digest.hexdigest()[:16], seconds


def traffic(states: int, n_symbol: int, unit: int) -> str:
    """Describe what travels for one unit of samples, of float32 circuits of few times."""
    pc = rk.Circuit(rk.circuits.hmm(2, states, n_symbol), seed=1)
    held = pc._core.statistics
    sent = len(pickle.dumps(pc))
    block = 4 * (held.chains.size + held.leaf_chains.size)
    back = unit // 256 * block
    return (
        f"{states} states, {n_symbol} symbols: {sent / 1e6:.2f} MB to a worker and step, "
        f"{block / 1e6:.2f} MB back for 256 samples, {back / 1e6:.1f} MB for {unit}"
    )


def on_paper(n_gpu: int) -> str:
    """Estimate a step of EM of the largest circuit on GPUs of one host each."""
    block = 4 * (N_WEIGHT + N_LEAF)
    moved = (n_gpu - 1) * (EACH // 256 * N_PIECE * block + 4 * (N_WEIGHT + N_LEAF))
    # Read and written, the totals in float64.
    added = (n_gpu - 1) * EACH // 256 * N_PIECE * 5 * block
    link, add = moved / LINK * 1e3, added / MEMORY * 1e3
    share = STEP / (STEP + link + add)
    return (
        f"{n_gpu:>2} GPUs, {n_gpu * EACH} samples a step: {STEP:.2f} ms of passes, {link:.1f} ms "
        f"of the link, {add:.1f} ms of sums: {n_gpu * share:.1f} x one GPU"
    )


def main() -> int:
    from distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 3, 7])
    parser.add_argument("--states", type=int, default=64)
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    args = parser.parse_args()
    for states, n_symbol in ((64, 100), (256, 1000), (1024, 4023)):
        print(traffic(states, n_symbol, 1024), flush=True)
    for n_gpu in (1, 8, 64):
        print(on_paper(n_gpu), flush=True)
    if args.memory:
        return 0
    hashes = set()
    for n in (0, *args.workers):
        name = f"{n} workers" if n else "this process"
        if n:
            with (
                LocalCluster(n, threads_per_worker=1, dashboard_address=None) as cluster,
                Client(cluster) as client,
            ):
                found, seconds = fitted(client, args)
        else:
            found, seconds = fitted(None, args)
        hashes.add(found)
        print(f"{name:>12}: {found}, {seconds:.1f} s", flush=True)
    return int(len(hashes) > 1)


if __name__ == "__main__":
    sys.exit(main())
