"""Counters beyond 2^32: no kernel drops the high half of a sample, an event or a clock.

The launches are those of golden cases, repeated with a counter that is larger by 2^32. Where draws
enter results, these have to be other ones.
"""

import numpy as np
import pytest

import rpukit as rk
from rpukit import testing
from rpukit._kernels import source
from rpukit.analog.processes.ops import diffusion
from rpukit.testing import on_cpu
from tests.golden.cases import CASES
from tests.on_cpu import runner

COUNTERS = ("first_sample", "sample", "event", "stuck_event", "number", "clock")
COUNT = {"count_samples", "tiled_advance"}  # they add to a clock, and draw nothing
COUNTED = [
    (name, p.name)
    for name in source.names()
    for p in source.load(name).entries[name]
    if p.name in COUNTERS and name not in COUNT
]


def calls(kernel):
    """Calls that launch a kernel: golden cases, small ones first; of circuits a quicker one."""
    if kernel in ("choose_down", "leaf_choose"):
        return [lambda: rk.Circuit(rk.circuits.hmm(2, 2, 3), seed=1).sample(9)]
    some = sorted(CASES[kernel], key=lambda case: not case.small)
    return [lambda case=case: case.run("cpu") for case in some]


def outputs(variant, grid, block, args, shared, at, more):
    """Bytes of all arrays after a launch with a counter that is larger by `more`."""
    copies = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
    if isinstance(copies[at], np.ndarray):
        copies[at] += np.int64(more)
    else:
        copies[at] = type(args[at])(int(args[at]) % 2**32 + more)
    runner.run(variant, grid, block, copies, shared)
    return [a.tobytes() for k, a in enumerate(copies) if isinstance(a, np.ndarray) and k != at]


@pytest.mark.sweep
@pytest.mark.parametrize(("kernel", "counter"), COUNTED)
def test_the_high_half_of_a_counter_counts(kernel, counter):
    differ = []

    def run(variant, grid, block, args, shared):
        if variant.source.name == kernel and not any(differ):
            names = [p.name for p in variant.source.entries[kernel]]
            launch = (variant, grid, block, args, shared, names.index(counter))
            differ.append(outputs(*launch, 0) != outputs(*launch, 2**32))
        runner.run(variant, grid, block, args, shared)

    testing.set_runner(run)
    try:
        for work in calls(kernel):
            with on_cpu(order=5):
                work()
            if any(differ):
                break
    finally:
        testing.set_runner(runner.run)
    assert any(differ)


def test_the_high_half_of_a_cell_counts_in_diffusion():
    """A part of a tile of more than 2^32 cells draws by its place there, on both sides."""

    def walked(first):
        weight, rate = np.zeros((3, 37), np.float32), np.ones((3, 37), np.float32)
        status = np.zeros(1, np.int32)
        stream = rk.Stream.from_seed(5)
        diffusion(weight, rate, None, first_cell=first, stream=stream, event=1, status=status)
        return weight

    near, far = walked(4), walked(2**33 + 4)
    assert not (near == far).any()
    with on_cpu(order=5):
        testing.assert_same_bits(walked(4), near)
        testing.assert_same_bits(walked(2**33 + 4), far)
