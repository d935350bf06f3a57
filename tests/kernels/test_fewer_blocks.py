"""Kernels whose blocks go over samples in steps of the grid: the same bits from a single block.

A launch has as many blocks as fill a GPU, so that small arrays give each block one part alone,
and nothing would show a barrier missing between one part and the next.
"""

import json

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits, testing
from rpukit.analog.product import launch as product_launch
from rpukit.circuits.ops import small_batch
from rpukit.circuits.ops.sum_launch import Mixing
from rpukit.testing import assert_same_bits, on_cpu
from tests.golden.cases import CASES, digest
from tests.golden.test_golden import FOLDER
from tests.on_cpu import runner

# The axis of the grid along which a kernel's blocks take steps.
ALONG = {
    "choose_down": 1,
    "flow_steps": 1,
    "flows_down": 0,
    "largest_forward": 1,
    "leaf_forward": 1,
    "product_backward": 1,
    "product_forward": 1,
    "sum_stage": 1,
    "tile_scale": 0,
    "values_up": 0,
}


@pytest.fixture(params=[0, 1], ids=["first_warp_ahead", "last_warp_ahead"])
def ends(request):
    """Orders in which the first warp, or the last one, is ahead of the others."""
    return request.param


@pytest.fixture
def narrowed():
    """Launch these kernels with one block along that axis; gives the names of those launched."""
    found = set()

    def run(variant, grid, block, args, shared):
        name = variant.source.name
        along = ALONG.get(name)
        if name == "tile_forward" and variant.macros.get("ALL") == "1":
            along = 1
        if along is not None and len(grid) > along and grid[along] > 1:
            found.add(name)
            grid = tuple(1 if k == along else n for k, n in enumerate(grid))
        runner.run(variant, grid, block, args, shared)

    testing.set_runner(run)
    yield found
    testing.set_runner(runner.run)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("kernel", "name", "several"),
    [
        ("sum_stage", "float32-many", {"flow_steps", "sum_stage", "leaf_forward"}),
        ("values_up", "float32-chains", {"values_up", "flows_down"}),
        ("tile_scale", "max", {"tile_scale"}),
    ],
)
def test_one_block_gives_the_golden_hash(kernel, name, several, ends, narrowed):
    (case,) = (case for case in CASES[kernel] if case.name == name)
    with on_cpu(ends):
        got = digest(case.run("cpu"))
    assert several <= narrowed
    assert got == json.loads((FOLDER / f"{kernel}.json").read_text())["cases"][name]


def test_more_children_than_a_block_takes_at_once(ends, narrowed, monkeypatch):
    """Kernels values_up and flows_down: 132 children in two rounds of 128, by two warps."""
    shape = Mixing(32, 2, 4)
    how = (small_batch.Chained(shape, together=False), small_batch.Chained(shape))
    monkeypatch.setattr(small_batch, "_candidates", lambda *_: (small_batch.LAYERS, *how))
    x, kernels = np.arange(21).reshape(7, 3) * 5 % 7, ("values_up", "flows_down")
    expected, circuit = [], rk.Circuit(circuits.hmm(3, 132, 7), seed=1)
    for name in kernels:
        rk.tuning.fix(name, "chain of 32")
    try:
        for _ in range(2):
            with on_cpu(ends) if expected else np.errstate():
                got = [circuit.log_likelihood(x), *circuit.flows(x).values()]
            for a, b in zip(got, expected or got, strict=True):
                assert_same_bits(a, b)
            expected = got
    finally:
        for name in kernels:
            rk.tuning.fix(name, None)
    assert {"values_up", "flows_down"} <= narrowed


def test_further_rounds_in_several_lots(ends, narrowed, monkeypatch):
    """Kernels tile_forward and tile_scale: all rounds of a sample at once, lot after lot."""
    monkeypatch.setattr(product_launch, "_LOT", 16)
    io = rk.IOParameters(out_bound=0.45)
    w = np.random.default_rng(4).uniform(-0.1, 0.1, (132, 128)).astype(np.float32)
    x = np.random.default_rng(5).normal(0, 1, (75, 128)).astype(np.float32)
    plain, other = (
        rk.AnalogTile(w.shape, rk.Ideal(), forward=io).set_weights(w) for _ in range(2)
    )
    with on_cpu(ends):
        got = other.forward(x)
    assert narrowed
    assert_same_bits(got, plain.forward(x))


def test_tables_that_shared_memory_holds(narrowed, order):
    """Kernel leaf_forward: leaves with many values, and many samples."""
    x = np.random.default_rng(0).integers(0, 20, (70, 2))
    pc = rk.Circuit(circuits.hmm(2, 37, 20), seed=1)
    expected = pc.log_likelihood(x)
    with on_cpu(order):
        got = rk.Circuit(circuits.hmm(2, 37, 20), seed=1).log_likelihood(x)
    assert "leaf_forward" in narrowed
    assert_same_bits(got, expected)
