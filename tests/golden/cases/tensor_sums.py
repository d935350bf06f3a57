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
# Lists of three stages and a part; elements that have an array; sums that share children.
CIRCUITS = {
    "chain": (lambda: circuits.hmm(3, 197, 7), 21),
    "images": (nets.images, 19),
    "leaves": (nets.every_leaf, 37),
}


@cache
def of(name, device, _emulated):
    """Both ways through a circuit, a step of EM, and up again."""
    root, n = CIRCUITS[name]
    state = nets.made(root, "float32")
    state["header"]["precision"] = "bf16"
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
    for name in CIRCUITS:

        def run(device, name=name):
            return of(name, device, _device._emulation_depth)

        for kernel in KERNELS:
            yield kernel, Case(f"bf16-{name}", run)
