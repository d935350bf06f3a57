"""The cases behind the golden hashes of sums on tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

import rpukit as rk
from rpukit import _device, circuits
from rpukit.circuits.parameters import support_of
from tests.golden.cases import circuits as nets
from tests.golden.cases.case import Case, put

KERNELS = ["round_weights", "tensor_backward", "tensor_forward", "tensor_stage"]
SPLIT_KERNELS = [*KERNELS, "flow_steps", "tensor_flow"]
# Lists of three stages and a part; elements that have an array; sums that share children.
CIRCUITS = {
    "chain": (lambda: circuits.hmm(3, 197, 7), 21),
    "images": (nets.images, 19),
    "leaves": (nets.every_leaf, 37),
}
# By pairs: weights of 34 uses, in parts of three steps; lists of two stages.
SPLIT_CIRCUITS = {
    "tied": (lambda: circuits.hmm(35, 21, 7), 19),
    "wide": (lambda: circuits.hmm(10, 70, 5), 9),
    "images": (nets.images, 19),
}


@cache
def of(name, precision, device, _emulated):
    """Both ways through a circuit, a step of EM, and up again."""
    root, n = (CIRCUITS if precision == "bf16" else SPLIT_CIRCUITS)[name]
    state = nets.made(root, "float32")
    state["header"]["precision"] = precision
    pc = rk.Circuit.from_state(state, device)
    support = support_of(pc.layout)
    x = np.floor(nets.uniform((n, support.size), 3) * np.where(support, support, 9))
    x = put(x.astype(np.int64), device)
    missing = put(nets.uniform(x.shape, 5) < np.float32(0.2), device)
    out = [pc.accumulate(x), *pc.flows(x, missing=missing).values()]
    pc.em_step(step=0.75, pseudocount=0.5)
    state = pc.state()["arrays"]
    return [*out, pc.log_likelihood(x), state["theta"], state["leaf_parameters"]]


def cases() -> Iterator[tuple[str, Case]]:
    for precision, names, kernels in (
        ("bf16", CIRCUITS, KERNELS),
        ("bf16x3", SPLIT_CIRCUITS, SPLIT_KERNELS),
    ):
        for name in names:

            def run(device, name=name, precision=precision):
                return of(name, precision, device, _device._emulation_depth)

            for kernel in kernels:
                yield kernel, Case(f"{precision}-{name}", run)
