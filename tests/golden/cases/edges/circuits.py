"""Circuits with weights of 0, equal children, and impossible samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

import rpukit as rk
from rpukit import _device, circuits
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import (
    CHAINS,
    KERNELS,
    chained,
    images,
    uniform,
)
from tests.golden.cases.rules import RULES


def values():
    """Leaves of more values than a warp takes at a time, and of other numbers of values."""
    many = circuits.inputs(0, circuits.Categorical(n_values=150), 3)
    few = circuits.inputs(0, circuits.Bernoulli(), 3)
    other = circuits.inputs(1, circuits.Categorical(n_values=6), 3)
    return circuits.sum(circuits.product(circuits.sum(many, few, n_nodes=3), other), n_nodes=1)


CIRCUITS = {
    "values": (values, 45, 2),
    "ties": (lambda: circuits.hmm(3, 5, 4), 37, 4),
    "equal": (images, 33, 4),
    "wide": (lambda: circuits.hmm(2, 70, 3), 9, 3),
}
KEPT = (
    {"keep_zeros": True, "pseudocount": 0.25},
    {"pseudocount": 0.0},
    {"step": 0.5, "keep_zeros": True, "pseudocount": 0.0},
)
SOFT = ("largest_down", "leaf_soft", "soft_posterior")
VALUES = np.array([0.0, 0.25, 0.5, 0.5])


def tied(root, dtype, n_values):
    """A circuit's state whose parameters are 0, 1/4 and 1/2; no leaf has the last value."""
    state = rk.Circuit(root(), dtype=dtype).state()
    for seed, name in enumerate(("theta", "leaf_parameters")):
        array = state["arrays"][name]
        drawn = VALUES[(uniform(array.shape, seed + 40) * 4).astype(int)]
        drawn[:2] = 0.5
        drawn[5::11] = 1e-12
        if name == "leaf_parameters":
            drawn[n_values - 1 :: n_values] = 0
        state["arrays"][name] = drawn.astype(dtype)
    return state


def of(name, dtype, device):
    return _of(name, dtype, device, _device._emulation_depth)


@cache
def _of(name, dtype, device, _emulated):
    root, n, n_values = CIRCUITS[name]
    pc = rk.Circuit.from_state(tied(root, dtype, n_values), device)
    x = np.floor(uniform((n, pc.n_variables), 43) * np.float32(n_values)).astype(np.int32)
    missing, weights = uniform(x.shape, 45) < np.float32(0.5), uniform((n,), 46)
    missing[: n // 2] = True
    missing[: n // 2, 0] = False
    weights[::5] = 0
    x, missing, weights = (put(a, device) for a in (x, missing, weights))
    out = [pc.log_likelihood(x), pc.log_likelihood(x, missing=missing), pc.sample(n)]
    out += [*pc.most_probable(x, missing=missing), pc.conditional(x, missing=missing)]
    for rule in (None, *RULES[:2]):
        out += pc.flows(x, missing=missing, weights=weights, rule=rule).values()
    for options in KEPT:
        pc.em_step(x, missing=missing, weights=weights, **options)
        arrays = pc.state()["arrays"]
        out += [arrays[key].copy() for key in sorted(arrays)]
    return out


def of_chains(device, dtype):
    """Layers in one launch, flows of which are recomputed: the same hashes as by layers."""
    with chained():
        return _of.__wrapped__("ties", dtype, device, 0)


def cases() -> Iterator[tuple[str, Case]]:
    for kernel in CHAINS:
        for dtype in ("float32", "float64"):
            yield kernel, Case(f"{dtype}-ties", partial(of_chains, dtype=dtype))
    for name in CIRCUITS:
        for dtype in ("float32", "float64"):

            def run(device, name=name, dtype=dtype):
                return of(name, dtype, device)

            for kernel in (*KERNELS, *SOFT):
                yield kernel, Case(f"{dtype}-{name}", run)
