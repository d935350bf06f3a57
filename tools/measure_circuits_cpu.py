"""Time circuits on a CPU beside hmmlearn and pomegranate, in one run.

    python tools/measure_circuits_cpu.py [--states 8 64 256] [--plants plants.npz] [--repeat 20]

Hidden Markov models of 50 symbols over sequences of length 100, one sequence and 64: posteriors
of the states (forward and backward) and one step of EM. Milliseconds of CPU time of the process
on one thread, the least of several calls: other jobs on the machine do not count. hmmlearn has
two ways to compute, by logarithms (its default) and by scaling; both are given. What is not
installed is left out. ``--plants``: one epoch of EM of a hidden Chow-Liu tree of 32 states.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk

LENGTH, SYMBOLS = 100, 50


def least(call: Callable[[], Any], repeat: int) -> float:
    """Least CPU time of some calls, ms."""
    call()
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return 1e3 * min(times)


def model(n_states: int) -> tuple[np.ndarray, ...]:
    """Start, transition and emission probabilities."""
    rng = np.random.default_rng(0)
    parts = (np.ones(n_states), None), (np.ones(n_states), n_states), (np.ones(SYMBOLS), n_states)
    return tuple(rng.dirichlet(alpha, size) for alpha, size in parts)


def own(n_states: int, x: np.ndarray) -> dict[str, tuple[Callable[[], Any], ...]]:
    start, transition, emission = model(n_states)
    graph = rk.circuits.hmm(
        LENGTH, n_states, SYMBOLS, start=start, transition=transition, emission=emission
    )

    def made(dtype: str) -> tuple[Callable[[], Any], ...]:
        pc = rk.Circuit(graph, dtype=dtype)
        return lambda: pc.flows(x), lambda: pc.em_step(x, step=0.1, pseudocount=0.1)

    return {f"rpukit, {dtype}": made(dtype) for dtype in ("float32", "float64")}


def of_hmmlearn(n_states: int, x: np.ndarray) -> dict[str, tuple[Callable[[], Any], ...]]:
    from hmmlearn.hmm import CategoricalHMM

    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    flat, lengths = x.reshape(-1, 1), [LENGTH] * len(x)

    def made(way: str) -> tuple[Callable[[], Any], ...]:
        hmm = CategoricalHMM(n_states, n_iter=1, tol=-1, implementation=way, init_params="")
        hmm.n_features = SYMBOLS

        def fit() -> None:
            hmm.startprob_, hmm.transmat_, hmm.emissionprob_ = model(n_states)
            hmm.fit(flat, lengths)

        fit()
        return lambda: hmm.predict_proba(flat, lengths), fit

    return {f"hmmlearn, {way}": made(way) for way in ("log", "scaling")}


def of_pomegranate(n_states: int, x: np.ndarray) -> dict[str, tuple[Callable[[], Any], ...]]:
    import torch
    from pomegranate.distributions import Categorical
    from pomegranate.hmm import DenseHMM

    torch.set_num_threads(1)
    start, transition, emission = (torch.tensor(a, dtype=torch.float32) for a in model(n_states))
    kinds = [Categorical(line[None]) for line in emission]
    hmm = DenseHMM(kinds, edges=transition, starts=start, ends=torch.full((n_states,), 1e-3))
    data = torch.tensor(x[..., None])

    def step() -> None:
        hmm.summarize(data)
        hmm.from_summaries()

    return {"pomegranate": (lambda: hmm.forward_backward(data), step)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--plants", type=Path)
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    rk.set_num_threads(1)
    print("| states | sequences | | posteriors, ms | EM step, ms |\n|---|---|---|---|---|")
    for n_states in args.states:
        for n in (1, 64):
            x = np.random.default_rng(1).integers(0, SYMBOLS, (n, LENGTH))
            repeat = max(3, args.repeat * 8 // (n_states * min(n, 8)))
            for library in (own, of_hmmlearn, of_pomegranate):
                try:
                    calls = library(n_states, x)
                except ImportError:
                    continue
                for name, pair in calls.items():
                    times = " | ".join(f"{least(call, repeat):.2f}" for call in pair)
                    print(f"| {n_states} | {n} | {name} | {times} |", flush=True)
    if args.plants:
        x = np.load(args.plants)["train"]
        pc = rk.Circuit(rk.circuits.hclt(x, 32), seed=1)
        spent = least(lambda: pc.em_step(x, pseudocount=0.1), 3)
        print(f"hidden Chow-Liu tree, 32 states, {x.shape} samples: one epoch {spent:.0f} ms")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
