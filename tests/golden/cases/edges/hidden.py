"""Sums whose likeliest child has no weight: they are made again, with their own maximum."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

import rpukit as rk
from rpukit import _device, circuits
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import uniform

KERNELS = ("flow_steps", "sum_backward", "sum_flow", "sum_forward", "sum_stage", "root_flows")
CHAINS = ("values_up", "flows_down")
TENSOR = ("tensor_backward", "tensor_forward", "tensor_stage")
SPLIT = (*TENSOR, "tensor_flow")
CHILDREN, NODES = 5, 4


def leaves(variable, n):
    return circuits.inputs(variable, circuits.Categorical(n_values=4), n)


def shared():
    """Two vectors of sums over the same children; the first leaf is in two layers."""
    first, second, mate = leaves(0, CHILDREN), leaves(1, CHILDREN), leaves(4, CHILDREN)
    children = circuits.product(first, second)
    below = circuits.product(leaves(1, CHILDREN), first, circuits.sum(mate, n_nodes=CHILDREN))
    sums = [
        circuits.product(
            circuits.sum(children, n_nodes=NODES), *(leaves(v, NODES) for v in (2, 3, 4))
        )
        for _ in range(2)
    ]
    other = circuits.product(
        circuits.sum(below, n_nodes=NODES), leaves(2, NODES), leaves(3, NODES)
    )
    return circuits.sum(*sums, other, n_nodes=4)


def state_of(dtype, precision=None, likeliest=0):
    """Values far apart at 0 and 1, where the likeliest child has weights of 0; 3: impossible."""
    state = rk.Circuit(shared(), dtype=dtype).state()
    arrays, tiny = state["arrays"], 1e-36 if dtype == "float32" else 1e-300
    drawn = uniform(arrays["leaf_parameters"].shape, 111) + np.float32(0.25)
    p = drawn.astype(dtype).reshape(-1, 4)
    others = [k for k in range(CHILDREN) if k != likeliest]
    far = [*others, *(k + 5 for k in others), 10, 12, 14, 16, 22, 24, 26, 28]
    far += [*range(34, 39), *range(44, 48)]
    p[far, :2] *= np.dtype(dtype).type(tiny)
    p[[likeliest, 10, 11, 12, 13], 3] = 0
    theta = (uniform(arrays["theta"].shape, 112) / 2 + np.float32(0.125)).astype(dtype)
    theta[np.array([1, 3, 21, 23]) + 4 * likeliest] = 0
    arrays["leaf_parameters"], arrays["theta"] = p.reshape(-1), theta
    if precision:
        state["header"]["precision"] = precision
    return state


@cache
def of(dtype, n, chained, precision, likeliest, device, _emulated):
    for kernel in CHAINS if chained else ():
        rk.tuning.fix(kernel, "chain of 16")
    try:
        return run(dtype, n, precision, likeliest, device)
    finally:
        for kernel in CHAINS if chained else ():
            rk.tuning.fix(kernel, None)


def run(dtype, n, precision, likeliest, device):
    pc = rk.Circuit.from_state(state_of(dtype, precision, likeliest), device)
    x = np.floor(uniform((n, 5), 113) * np.float32(4)).astype(np.int32)
    x[::2] %= 2
    x[1::4] %= 3
    weights = uniform((n,), 114)
    weights[3::7] = 0
    x, weights = put(x, device), put(weights, device)
    out = [pc.log_likelihood(x), *pc.flows(x, weights=weights).values()]
    out.append(pc.accumulate(x, weights=weights))
    arrays = pc.state()["arrays"]
    return [*out, *(arrays[name] for name in ("chains", "totals", "leaf_chains", "leaf_totals"))]


def cases() -> Iterator[tuple[str, Case]]:
    given = [
        (f"{dtype}-hidden-{n}", (dtype, n, False, None, 0), KERNELS)
        for dtype in ("float32", "float64")
        for n in (2, 64)
    ]
    given.append(("float32-hidden-chain", ("float32", 9, True, None, 0), CHAINS))
    given.append(("float32-hidden-last", ("float32", 5, True, None, 4), CHAINS))
    given.append(("bf16-hidden", ("float32", 64, False, "bf16", 0), TENSOR))
    given.append(("bf16x3-hidden", ("float32", 64, False, "bf16x3", 0), SPLIT))
    for name, how, kernels in given:

        def run_case(device, how=how):
            return of(*how, device, _device._emulation_depth)

        for kernel in kernels:
            yield kernel, Case(name, run_case)
