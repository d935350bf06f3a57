"""Measured rates: the model of a tile by its size, plans by them, what the cache folder keeps."""

import dataclasses
import math
from contextlib import nullcontext

import numpy as np
import pytest

import rpukit as rk
from rpukit import _cache, tiled
from rpukit.errors import FormatError, ParameterError
from rpukit.testing import assert_same_bits
from rpukit.tiled.calibration import calibrate as module
from rpukit.tiled.calibration import fit
from rpukit.tiled.machine import key
from rpukit.tiled.planner.lifetimes import Lifetimes

GRID = tiled.Rate("Gemm", 50, (8, 16, 32), (20, 30, 40, 30, 40, 70, 40, 70, 130), (8, 16, 32), 8)
ENDS = tiled.Rate("Gemm", 50, (8, 64), (20, 90, 90, 310), (8, 64), 8, (4, 11, 11, 52))
LINE = tiled.Rate("Relu", 100, (1000, 2000), (50, 90))
SMALL = {
    "lengths": (1, 8),
    "depths": (2, 4),
    "dense": ((16, 8),),
    "images": ((1, 2, 8),),
    "analog": ((2, 4),),
}


def network(n=24, width=20):
    rng = np.random.default_rng(0)
    b = tiled.Builder("net")
    h, y = b.input("x", (n, width)), b.input("y", (n, width))
    for k in range(2):
        w = b.parameter(f"w{k}", rng.standard_normal((width, width)) * 0.2)
        h = b.apply("Relu", b.apply("Gemm", h, w, transB=1))
    batch = rng.standard_normal((2, n, width), np.float32)
    return b.training(b.apply("MSELoss", h, y), tiled.SGD(lr=0.1)), tuple(batch)


def test_cycles_of_maps_lie_on_a_line_between_measured_sizes():
    assert [LINE.tile(n, 1, n) for n in (0, 500, 1000, 1500, 2000, 4000)] == [
        100, 125, 150, 170, 190, 280,
    ]  # fmt: skip


def test_a_product_takes_as_long_as_the_next_larger_one_that_was_measured():
    sizes = {(8, 8): 20, (5, 9): 30, (17, 3): 40, (32, 32): 130, (64, 32): 260}
    for (m, n), cycles in sizes.items():
        assert GRID.tile(m, n, m * n * 8) == 50 + cycles, (m, n)
        assert GRID.tile(m, n, m * n * 16) == 50 + 2 * cycles, (m, n)


@pytest.mark.parametrize("rate", [GRID, LINE, ENDS])
def test_many_tiles_have_the_cycles_of_each(rate):
    rng = np.random.default_rng(1)
    m, n, k = rng.integers(1, 70, (3, 200))
    each = [rate.tile(int(a), int(b), int(a * b * c)) for a, b, c in zip(m, n, k, strict=True)]
    assert np.abs(rate.tiles(m, n, m * n * k) - each).max() <= 1  # the last bit of a float64


def test_a_rate_with_unsorted_or_missing_numbers_is_refused():
    for rows, cycles in (((2, 1), (1, 1)), ((1, 2), (1,)), ((), ())):
        with pytest.raises(ParameterError, match=r"Rate\.(rows|cycles)"):
            tiled.Rate("Relu", 0, rows, cycles)
    for columns in ((), (1, 2)):
        with pytest.raises(ParameterError, match=r"Rate\.ends"):
            tiled.Rate("Gemm", 0, (1,), (1,) * max(1, len(columns)), columns, 1, (1,))


def test_the_times_that_are_fitted_come_back():
    rate = fit.line("Relu", [(1000, 150.0), (2000, 190.0), (1000, 150.0), (3000, 180.0)])
    assert [rate.tile(1, 1, n) for n in (1000, 2000, 3000)] == [150, 190, 190]
    sizes = [(m, n, k) for m in (2, 4) for n in (2, 4) for k in (2, 8)]
    times = {(m, n, k): 10.0 + m * n * (3 + k) for m, n, k in sizes}
    rate = fit.product("Gemm", 10.0, (2, 4), (2, 4), times, (2, 8))
    assert [rate.tile(*one[:2], math.prod(one)) for one in sizes] == list(times.values())
    assert rate.tile(3, 4, 3 * 4 * 5) == 10 + 16 * (3 + 5)
    noise = {one: 40.0 if one[2] == 2 else 30.0 for one in sizes}  # the longer sums were faster
    assert fit.product("Gemm", 10.0, (2, 4), (2, 4), noise, (2, 8)).tile(4, 4, 128) == 31


def test_plans_by_measured_rates_prefer_fast_tiles_and_have_the_same_bits():
    training, batch = network()
    levels = tiled.siracusa_l2(l1=4000)
    measured = tiled.Hierarchy(levels.levels, tiled.Compute(rates=(GRID, LINE)))
    plan = tiled.plan(training, measured)
    assert plan.cycles == sum(
        max(b.end for b in tiled.simulate(plan, training, k)) for k in (0, 1)
    )
    again = tiled.Plan.from_json(plan.to_json())
    assert again == plan
    tiled.check_plan(again, training)
    want = tiled.plan(training, levels).trainer(training)
    got = again.trainer(training)
    assert [got.step(batch) for _ in range(3)] == [want.step(batch) for _ in range(3)]
    for name, value in want.parameters().items():
        assert_same_bits(got.parameters()[name], value)


def test_a_plan_without_rates_is_written_as_before():
    training, _ = network()
    plan = tiled.plan(training, tiled.siracusa_l2(l1=4000))
    assert '"compute":{"launch":100,"macs":8,"ew":8}' in plan.to_json()


def test_a_stack_of_products_has_a_rate_of_its_own():
    b = tiled.Builder("stack")
    x, y, w = b.input("x", (3, 4, 5)), b.input("y", (3, 5, 4)), b.input("w", (5, 4))
    graph = b.graph(b.apply("MatMul", x, y), b.apply("MatMul", x, w))
    found = [key(step.node.op, step.space) for step in Lifetimes(graph).steps]
    assert found == ["MatMul stack", "MatMul"]


def test_an_update_by_a_product_has_the_rate_of_the_product():
    b, ones = tiled.Builder("update"), np.ones((16, 16), np.float32)
    h = b.apply("Gemm", b.input("x", (4, 16)), b.parameter("w", ones), transB=1)
    training = b.training(b.apply("MSELoss", h, b.input("y", (4, 16))), tiled.SGD(lr=0.1))
    steps = Lifetimes(tiled.fuse_updates(training)).steps
    space = next(step.space for step in steps if step.node.op == "GemmUpdate")
    rate = dataclasses.replace(GRID, op="GemmUpdate", ends=(7,) * 9)
    compute = tiled.Compute(rates=(rate,))
    assert compute.tile("GemmUpdate", space, space.whole) == 50 + 40 * 4 // 8 + 7
    lengths = [np.array([hi - lo]) for lo, hi in space.whole]
    assert compute.tiles("GemmUpdate", space, lengths).tolist() == [50 + 40 * 4 // 8 + 7]


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Small probes, and a cache folder for rates alone: machine code stays where it is."""
    folder = tmp_path / "cache"

    def inside(name):
        def call(*args):
            with pytest.MonkeyPatch.context() as context:
                context.setenv("RPUKIT_CACHE_DIR", str(folder))
                return getattr(_cache, name)(*args)

        return staticmethod(call)

    names = "read", "write"
    own = type("Cache", (), {name: inside(name) for name in names} | {"locked": nullcontext})
    monkeypatch.setattr(module, "_cache", own)
    monkeypatch.setattr(module, "_CPU", SMALL)
    return folder


def test_rates_are_measured_once_and_kept(small, monkeypatch):
    first = rk.tiled.calibrate()
    ops = {rate.op for rate in first.compute.rates}
    assert {"Gemm", "GemmUpdate", "Conv", "Relu", "MatMul stack", "Adam"} <= ops
    (file,) = small.glob("tiled_rates_*.json")
    with monkeypatch.context() as context:
        context.setattr(module, "_measured", lambda *_: pytest.fail("measured again"))
        assert rk.tiled.calibrate() == first
    file.write_text(file.read_text()[:-30])
    again = rk.tiled.calibrate()  # the damaged file is replaced
    assert tiled.Calibration.from_json(file.read_text()) == again
    file.chmod(0o666)  # others could have written it
    told = []
    monkeypatch.setattr(module, "_measured", lambda *_: told.append(1) or again)
    assert rk.tiled.calibrate() == again
    assert told


def test_measured_levels_can_be_planned_over(small):
    training, batch = network()
    rates = rk.tiled.calibrate()
    plan = tiled.plan(training, rates.levels(3000))
    assert plan.hierarchy[1].bytes == 3000
    assert np.isfinite(plan.trainer(training).step(batch))


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": ["x", 1]}', '{"format": ["rpukit-rates", 1]}']
)
def test_other_files_are_no_calibration(text):
    with pytest.raises(FormatError):
        tiled.Calibration.from_json(text)
