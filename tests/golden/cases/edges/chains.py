"""Chains of layers whose blocks need no other, and exponentials that the counts take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import numpy as np

import rpukit as rk
from rpukit import circuits
from rpukit.circuits.ops import sum_launch
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import made, of_many, uniform

CHAINS = ("values_up", "flows_down")
SPLIT = ("flow_steps", "tensor_backward", "tensor_flow", "tensor_stage")


@contextmanager
def fixed(choice):
    """Let the tuner choose this for both ways."""
    for kernel in CHAINS:
        rk.tuning.fix(kernel, choice)
    try:
        yield
    finally:
        for kernel in CHAINS:
            rk.tuning.fix(kernel, None)


def alone(device, dtype, n_state, block):
    """More layers than flows are scaled after; a last sample that has nothing."""
    x = np.floor(uniform((9, 19), 181) * np.float32(5)).astype(np.int32)
    missing = uniform(x.shape, 182) < np.float32(0.2)
    missing[-1] = True
    x, missing = put(x, device), put(missing, device)
    with fixed(f"blocks of {block}"):
        pc = rk.Circuit.from_state(made(lambda: circuits.hmm(19, n_state, 5), dtype), device)
        out = [pc.accumulate(x, missing=missing), *pc.flows(x, missing=missing).values()]
        out.append(pc.log_likelihood(x[:2]))
    state = pc.state()["arrays"]
    return [*out, *(state[name] for name in sorted(state))]


def crowded(device, least):
    """As many samples, in blocks of fewer warps."""
    with patch.object(sum_launch, "_SPARSE", least):
        return of_many(device)


def ruled_out(device, precision):
    """States that never meet, each ruled out by one end of a sequence: exponents of 71."""
    emission = np.array([[0.5, 1e-31, 0.5], [1e-31, 0.5, 0.5]]).repeat(6, axis=0)
    transition = np.kron(np.eye(2), np.full((6, 6), 1 / 6))
    x = np.full((7, 21), 2)
    x[1:, 0], x[1:, -1] = 0, 1
    root = circuits.hmm(
        21, 12, 3, start=np.full(12, 1 / 12), transition=transition, emission=emission
    )
    pc = rk.Circuit(root, device=device, precision=precision)
    out = [pc.accumulate(put(x, device))]
    state = pc.state()["arrays"]
    return [*out, *(state[name] for name in sorted(state))]


def blocks(device):
    """Weights of blocks of nodes, whose uses are several layers' apart."""
    leaf, edges = circuits.Categorical(n_values=7), np.array([[0, 0, 1, 1], [0, 1, 1, 2]])
    edges = np.concatenate([edges, [[2, 2], [2, 0]]], axis=1)

    def root():
        first = circuits.inputs(10, leaf, 24, block_size=8)
        below, tied = first, None
        for t in reversed(range(10)):
            new = {"n_nodes": 24, "block_size": 8, "edges": edges}
            tied = tied.duplicate(below) if tied else circuits.sum(below, **new)
            below = circuits.product(first.duplicate(t), tied)
        return circuits.sum(below, n_nodes=1)

    state = made(root, "float32")
    state["header"]["precision"] = "bf16x3"
    pc = rk.Circuit.from_state(state, device)
    x = put(np.floor(uniform((13, 11), 183) * np.float32(7)).astype(np.int32), device)
    out = [pc.accumulate(x), *pc.flows(x[:3]).values()]
    arrays = pc.state()["arrays"]
    return [*out, *(arrays[name] for name in sorted(arrays))]


def cases() -> Iterator[tuple[str, Case]]:
    for dtype, n_state, block in (("float32", 29, 32), ("float64", 29, 32), ("float32", 61, 64)):
        run = partial(alone, dtype=dtype, n_state=n_state, block=block)
        for kernel in CHAINS:
            yield kernel, Case(f"{dtype}-alone-{block}", run)
    yield "sum_stage", Case("float32-crowded", partial(crowded, least=0))
    yield "sum_stage", Case("float32-filled", partial(crowded, least=8))
    for kernel in SPLIT:
        yield kernel, Case("bf16x3-ruled-out", partial(ruled_out, precision="bf16x3"))
        yield kernel, Case("bf16x3-blocks", blocks)
    for kernel in ("flow_steps", "tensor_stage"):
        yield kernel, Case("bf16-ruled-out", partial(ruled_out, precision="bf16"))
