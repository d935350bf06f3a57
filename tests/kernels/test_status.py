"""A status that is set: kernels that look at it change nothing, and those that raise it do so.

The launches are those of a golden case of each kernel, which the runner sees before they are made.
"""

import re

import numpy as np
import pytest

from rpukit import testing
from rpukit._kernels import source
from rpukit.testing import assert_same_bits, on_cpu
from tests.golden.cases import CASES
from tests.on_cpu import runner

READS = re.compile(r"const int \*(__restrict__ )?status\b")
ZERO = {"tile_nonideal", "tile_outputs", "tile_product"}  # their outputs are 0 then
CHANGES = {"modify_weights": "add_normal"}  # the last case of it makes copies alone
LOOKS = [name for name in source.names() if READS.search(source.load(name).text)]


def launches(kernel, see):
    """Run the last small case of a kernel but edges; `see` gets arguments of launches by name."""
    seen = []

    def run(variant, grid, block, args, shared):
        if variant.source.name == kernel:
            names = [p.name for p in variant.source.entries[kernel]]
            copies = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
            by_name = dict(zip(names, copies, strict=True))
            before = see(by_name)
            if before is not None:
                runner.run(variant, grid, block, copies, shared)
                seen.append((before, by_name))
        runner.run(variant, grid, block, args, shared)

    testing.set_runner(run)
    try:
        with on_cpu(order=5):
            some = [case for case in CASES[kernel] if case.small and not case.edge]
            [c for c in some if c.name.startswith(CHANGES.get(kernel, ""))][-1].run("cpu")
    finally:
        testing.set_runner(runner.run)
    return seen


@pytest.mark.parametrize("kernel", sorted(set(LOOKS) - ZERO))
def test_nothing_changes_once_a_status_is_set(kernel):
    def set_status(args):
        if "status" not in args or not isinstance(args["status"], np.ndarray):
            return None
        args["status"][...] = 7
        return {n: a.copy() for n, a in args.items() if isinstance(a, np.ndarray)}

    seen = launches(kernel, set_status)
    assert seen
    for before, after in seen:
        for name, array in before.items():
            assert_same_bits(after[name], array)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("pulse_trains", "x"),
        ("pulse_trains", "d"),
        ("pulsed_samples", "x"),
        ("pulsed_samples", "d"),
        ("sample_maxima", "x"),
        ("sample_maxima", "d"),
        ("tile_scale", "x"),
    ],
)
def test_a_number_that_is_not_finite_raises_a_status(kernel, name, bad):
    """The last number of an input; the status is that of the call."""

    def spoil(args):
        args[name].reshape(-1)[-1] = bad
        args["status"][...] = 0
        return {}

    seen = launches(kernel, spoil)
    assert seen
    for _, after in seen:
        assert after["status"][0] == after["call"] > 0
