"""Sums of several segments, of which some are impossible, and sums that underflow at first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

import rpukit as rk
from rpukit import _device, circuits
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import uniform

KERNELS = ("flow_steps", "sum_backward", "sum_flow", "sum_forward", "sum_lift", "sum_stage")
FEW_SAMPLES = ("leaf_flow", "leaf_forward", "product_backward", "product_forward")
CHAINS = ("values_up", "flows_down")
TENSOR = ("round_weights", "tensor_backward", "tensor_forward", "tensor_stage")
SPLIT = (*TENSOR, "tensor_flow")
CHILDREN, NODES = 132, 68  # three segments; two


def layers(n_layer=1):
    """Sums of leaves; sums of their products with other leaves; a root."""
    below = circuits.inputs(0, circuits.Categorical(n_values=4), CHILDREN)
    for v in range(1, 1 + n_layer):
        sums = circuits.sum(below, n_nodes=NODES)
        beside = circuits.inputs(v, circuits.Categorical(n_values=4), NODES)
        below = circuits.product(sums, beside)
    return circuits.sum(below, n_nodes=1)


def state_of(dtype, n_layer, precision=None):
    """Leaves that exclude values by segments; weights of 0, some beside the likeliest leaf."""
    state = rk.Circuit(layers(n_layer), dtype=dtype).state()
    arrays = state["arrays"]
    leaves = (uniform(arrays["leaf_parameters"].shape, 91) + np.float32(0.25)).reshape(-1, 4)
    leaves[:64, 0] = 0
    leaves[64:, 2] = 0
    leaves[64:128, 1] = 0
    leaves[1:, 3] = np.float32(1e-36)  # far below leaf 0
    theta = uniform(arrays["theta"].shape, 92) / 2 + np.float32(0.125)
    theta[uniform(theta.shape, 93) < np.float32(0.3)] = 0
    first = theta[: CHILDREN * NODES].reshape(CHILDREN, NODES)
    first[0, 1::2] = 0
    first[1:, 3::4] = np.where(first[1:, 3::4] == 0, 0, np.float32(1e-6))
    arrays["leaf_parameters"] = leaves.reshape(-1).astype(dtype)
    arrays["theta"] = theta.astype(dtype)
    if precision:
        state["header"]["precision"] = precision
    return state


@cache
def of(dtype, n_layer, n, chained, precision, device, _emulated):
    for kernel in CHAINS if chained else ():
        rk.tuning.fix(kernel, "chain of 16")
    try:
        return run(dtype, n_layer, n, precision, device)
    finally:
        for kernel in CHAINS if chained else ():
            rk.tuning.fix(kernel, None)


def run(dtype, n_layer, n, precision, device):
    pc = rk.Circuit.from_state(state_of(dtype, n_layer, precision), device)
    x = np.floor(uniform((n, pc.n_variables), 94) * np.float32(4)).astype(np.int32)
    x[:4, 0], weights = np.arange(4)[:n], uniform((n,), 95)
    weights[::3] = 0
    x, weights = put(x, device), put(weights, device)
    out = [pc.log_likelihood(x), *pc.flows(x, weights=weights).values()]
    out.append(pc.accumulate(x, weights=weights))
    pc.em_step(pseudocount=0.0)
    arrays = pc.state()["arrays"]
    return [*out, pc.log_likelihood(x), arrays["theta"], arrays["leaf_parameters"]]


def cases() -> Iterator[tuple[str, Case]]:
    given = [
        (f"{dtype}-segments-{n}", (dtype, 1, n, False, None), (*KERNELS, *FEW_SAMPLES))
        for dtype in ("float32", "float64")
        for n in (2, 67)
    ]
    given += [
        (f"{dtype}-segments-chain-{n}", (dtype, 2, n, True, None), CHAINS)
        for dtype in ("float32", "float64")
        for n in (3, 16)
    ]
    given += [
        ("bf16-segments", ("float32", 1, 35, False, "bf16"), TENSOR),
        ("bf16x3-segments", ("float32", 1, 35, False, "bf16x3"), SPLIT),
    ]
    for name, how, kernels in given:

        def run_case(device, how=how):
            return of(*how, device, _device._emulation_depth)

        for kernel in kernels:
            yield kernel, Case(name, run_case)
