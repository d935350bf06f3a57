"""Deep graphs and many sizes of memory: what planning promises of every graph and size."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import PlanError
from rpukit.tiled.planner import planner as module
from rpukit.tiled.planner.addresses import Block, live_bytes, pack, peak
from rpukit.tiled.planner.bands import Bands
from rpukit.tiled.planner.lifetimes import Lifetimes
from rpukit.tiled.planner.lower_bounds import apart, least_cycles, sizes_below
from rpukit.tiled.planner.residents import Placement
from rpukit.tiled.planner.tile_search import Problem
from rpukit.tiled.planner.timing.alone import OpTimes
from rpukit.tiled.program import Copy


def chain(depth, width=12, n=6, seed=0):
    """A chain of dense layers of random widths, or of one width."""
    rng = np.random.default_rng(seed)
    b = tiled.Builder("chain")
    widths = rng.integers(3, 30, depth + 1) if seed else [width] * (depth + 1)
    h, y = b.input("x", (n, int(widths[0]))), b.input("y", (n, int(widths[-1])))
    for k, (n_in, n_out) in enumerate(pairwise(map(int, widths))):
        w = b.parameter(f"w{k}", rng.standard_normal((n_out, n_in)) * 0.1)
        h = b.apply(("Relu", "Tanh")[k % 2], b.apply("Gemm", h, w, transB=1))
    return b.training(b.apply("MSELoss", h, y), tiled.SGD(lr=0.1))


def images(seed):
    """Convolutions of random sizes."""
    rng = np.random.default_rng(seed)
    channels, side = int(rng.integers(1, 5)), int(rng.integers(5, 10))
    b = tiled.Builder("images")
    h, labels = b.input("x", (2, channels, side, side)), b.input("labels", (2,), np.int64)
    for k in range(2):
        w = b.parameter(f"w{k}", rng.standard_normal((channels, channels, 3, 3)) * 0.1)
        h = b.apply("Relu", b.apply("Conv", h, w, pads=(1, 1, 1, 1)))
    h = b.apply("Flatten", b.apply("GlobalAveragePool", h))
    return b.training(b.apply("SoftmaxCrossEntropyLoss", h, labels), tiled.MomentumSGD(lr=0.1))


def mixed(seed):
    """Products, normalisations, functions and sums of any values so far, in random order."""
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(3, 12)), int(rng.integers(4, 24))
    b = tiled.Builder("mixed")
    ends, y = [b.input("x", (n, width))], b.input("y", (n, width))
    for k in range(int(rng.integers(4, 9))):
        kind = str(rng.choice(["Gemm", "LayerNormalization", "Gelu", "Softmax", "two"]))
        h = ends.pop(int(rng.integers(len(ends))))
        if kind == "Gemm":
            h = b.apply(kind, h, b.parameter(f"w{k}", rng.normal(size=(width, width)) * 0.2))
        elif kind == "LayerNormalization":
            both = b.parameter(f"s{k}", np.ones(width)), b.parameter(f"c{k}", np.zeros(width))
            h = b.apply(kind, h, *both)
        elif kind == "two":
            ends.append(b.apply("Relu", h))
        else:
            h = b.apply(kind, h)
        ends.append(h)
    h = ends[0]
    for other in ends[1:]:
        h = b.apply(str(rng.choice(["Add", "Mul"])), h, other)
    h = b.apply("Gemm", h, b.parameter("last", rng.normal(size=(width, width))))
    return b.training(b.apply("MSELoss", h, y), tiled.SGD(lr=0.1))


GRAPHS = [(chain, (2, 12, 6, seed)) for seed in (1, 2)] + [(images, (seed,)) for seed in (3, 4)]


def no_strategy_is_faster_than_auto(training, levels):
    others = ("single", "double", "double_outer", "deeploy_buffers")
    each = [tiled.plan(training, levels, buffering=name).cycles for name in others]
    return tiled.plan(training, levels).cycles <= min(each)


@pytest.mark.parametrize(("make", "args"), [*GRAPHS, (mixed, (5,))])
def test_auto_is_never_slower_than_another_strategy(make, args):
    training = make(*args)
    for size in np.random.default_rng(args[-1]).integers(1200, 9000, 2):
        assert no_strategy_is_faster_than_auto(training, tiled.siracusa_l2(l1=int(size))), size


def link(rng, name, size):
    """A level over a link of random costs; measured ones have no setup time and costly rows."""
    costs = {"width": (1, 10, 64), "setup": (0, 1, 20, 5000), "row": (0, 4, 37, 3000)}
    drawn = {key: int(rng.choice(some)) for key, some in {**costs, "align": (1, 8, 64)}.items()}
    return tiled.Level(name, size, duplex=bool(rng.integers(2)), **drawn)


@pytest.mark.parametrize("seed", range(20, 28))
def test_links_of_any_costs_can_be_planned_over(seed):
    rng = np.random.default_rng(seed)
    training = chain(2, seed=seed) if seed % 3 == 2 else (mixed, images)[seed % 3](seed)
    sizes = (1 << 30, 20_000, 3_000)
    levels = [link(rng, *one) for one in zip(("L3", "L2", "L1"), sizes, strict=True)]
    for some in (levels, [levels[0], levels[2]]):
        plan = tiled.plan(training, tiled.Hierarchy(some))
        tiled.check_plan(plan, training)


def test_a_scalar_whose_row_costs_much_is_copied_in_one_piece():
    """The loss over a link without setup time, whose rows take longer than the shortest piece."""
    levels = tiled.siracusa_l2(l1=3_000)
    costly = replace(levels[1], setup=0, row=37)
    plan = tiled.plan(chain(2), tiled.Hierarchy((levels[0], costly), levels.compute))
    copies = [one for one in plan.programs[0].instructions if isinstance(one, Copy)]
    assert [one.engine for one in copies if one.tensor == "mseloss"] == ["out"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 18))
def test_random_graphs_and_budgets(seed):
    """Auto is as fast as any strategy; of any two sizes of L1, the larger one is no slower."""
    rng = np.random.default_rng(seed)
    training = (mixed, images)[seed % 3 == 0](seed)
    least = module._Planner(Lifetimes(training), tiled.siracusa_l2(), "auto", frozenset())
    least, three = least.least_size(), seed % 2
    cycles = []
    for size in sorted(map(int, rng.integers(least, 6 * least, 3))):
        l3 = tiled.siracusa_l3(l1=size, l2=30 * least)
        levels = l3 if three else tiled.siracusa_l2(l1=size)
        assert no_strategy_is_faster_than_auto(training, levels), size
        cycles.append(tiled.plan(training, levels, monotone=True).cycles)
    assert cycles == sorted(cycles, reverse=True)


def test_auto_takes_the_plan_of_another_strategy_that_is_faster(monkeypatch):
    training = chain(2)
    levels = tiled.siracusa_l2(l1=2000)
    double = tiled.plan(training, levels, buffering="double")
    slow = module._Planner.with_homes

    def slower(self, homes):
        made = slow(self, homes)
        for _, _, done in made.runs:
            done.cycles.update({step: 100 * n for step, n in done.cycles.items()})
        return made

    monkeypatch.setattr(module._Planner, "with_homes", slower)
    assert tiled.plan(training, levels).cycles <= double.cycles


@pytest.mark.parametrize("strategy", ["single", "double", "deeploy_buffers", "double_outer"])
@pytest.mark.parametrize("levels", ["two", "three"])
def test_ops_that_overlap_with_no_other_add_up(strategy, levels):
    training = chain(2, 12, 6, 1)
    small = tiled.siracusa_l3(l1=1500, l2=4000)
    hierarchy = tiled.siracusa_l2(l1=1500) if levels == "two" else small
    planner = module._Planner(Lifetimes(training), hierarchy, strategy, frozenset({"Tanh"}))
    placement = Placement(planner.lifetimes, hierarchy, False, {})
    drafts = [planner.draft(step, placement) for step in planner.lifetimes.steps]
    bounds = apart(drafts, hierarchy)
    plan = tiled.plan(training, hierarchy, buffering=strategy, single={"Tanh"})
    assert planner.times.one_by_one(drafts, placement, bounds, 1 << 60) == plan.cycles
    assert planner.times.one_by_one(drafts, placement, bounds, plan.cycles) == plan.cycles
    assert sum(bounds) <= planner.times.one_by_one(drafts, placement, bounds, 9) < plan.cycles


@pytest.mark.parametrize(
    ("make", "args"), [GRAPHS[1], pytest.param(*GRAPHS[2], marks=pytest.mark.slow)]
)
def test_more_memory_is_never_slower_than_less(make, args, monkeypatch):
    monkeypatch.setattr(module, "_BANDS", (2,))  # quicker
    training, rng = make(*args), np.random.default_rng(5)
    planner = module._Planner(Lifetimes(training), tiled.siracusa_l2(), "auto", frozenset())
    least, cycles, known, run = planner.least_size(), [], {}, module._Planner.run

    def once(self):  # the series is the same for every size
        size = self.levels[1].bytes
        known[size] = known.get(size) or run(self)
        return known[size]

    monkeypatch.setattr(module._Planner, "run", once)
    for size in sorted(map(int, rng.integers(least, 2500, 6))):
        plan = tiled.plan(training, tiled.siracusa_l2(l1=size), monotone=True)
        assert plan.hierarchy[1].bytes == size
        cycles.append(plan.cycles)
    assert cycles == sorted(cycles, reverse=True)
    assert len(set(cycles)) > 1


def test_the_least_size_is_what_a_plan_needs():
    training = chain(2, 12, 6, 1)
    planner = module._Planner(Lifetimes(training), tiled.siracusa_l2(), "auto", frozenset())
    least = planner.least_size()
    assert tiled.plan(training, tiled.siracusa_l2(l1=least), monotone=True).cycles > 0
    with pytest.raises(PlanError, match=f"Give L1 {least} bytes"):
        tiled.plan(training, tiled.siracusa_l2(l1=least - 8))


def test_sizes_of_the_series_do_not_depend_on_the_size_that_is_asked_for():
    whole = list(sizes_below(1 << 20, 700))
    assert {8000, 16_000, 32_000, 40_000, 48_000, 64_000, 128_000} <= set(whole)
    for size in (701, 5000, 79_999, 128_000):
        assert list(sizes_below(size, 700)) == [n for n in whole if n <= size]
    assert list(sizes_below(600, 700)) == []


@pytest.mark.parametrize(("make", "args"), GRAPHS)
def test_no_plan_falls_below_the_bound_of_its_size_or_a_larger_one(make, args):
    training = make(*args)
    lifetimes, cycles, last = Lifetimes(training), [], 0
    for size in (9000, 3000, 1500):
        levels = tiled.siracusa_l2(l1=size)
        bound = least_cycles(lifetimes, levels)
        cycles.append(tiled.plan(training, levels).cycles)
        assert last <= bound <= min(cycles[-1:])
        last = bound


def test_equal_layers_are_searched_once(monkeypatch):
    """For tiles of ops, for bands of them, and for the cycles of ops by themselves."""
    counts = dict.fromkeys((Problem, Bands, OpTimes), 0)

    def count(kind, name):
        search = getattr(kind, name)

        def counted(self, *args):
            counts[kind] += 1
            return search(self, *args)

        monkeypatch.setattr(kind, name, counted)

    for kind, name in ((Problem, "_search"), (Bands, "best"), (OpTimes, "_cycles")):
        count(kind, name)
    numbers = []
    for depth in (6, 12):
        counts.update(dict.fromkeys(counts, 0))
        tiled.plan(chain(depth), tiled.siracusa_l2(l1=2000))
        numbers.append(dict(counts))
    assert numbers[0] == numbers[1] and all(numbers[0].values())


def test_bands_of_equal_layers_are_those_of_each():
    training, levels = chain(6, 64, 16), tiled.siracusa_l2(l1=32_000)
    planner = module._Planner(Lifetimes(training), levels, "auto", frozenset())
    placement = Placement(planner.lifetimes, levels, True, {})
    drafts = [planner.draft(step, placement) for step in planner.lifetimes.steps]
    finder, n = Bands(drafts, planner.lifetimes, levels[1], levels.compute), 0
    for first in range(len(drafts) - 2):
        for last in (first + 1, first + 2):
            found = finder.bands(first, last)
            assert found == finder.best(first, last)
            n += len(found)
    assert n > len(finder.kinds)


def test_blocks_that_live_all_the_time_are_below_the_others():
    rng = np.random.default_rng(3)
    blocks = [Block(f"long{k}", 0, 100, int(n)) for k, n in enumerate(rng.integers(1, 50, 20))]
    for k in range(300):
        lower = int(rng.integers(0, 98))
        upper = int(rng.integers(lower + 1, min(100, lower + 40)))
        blocks.append(Block(f"b{k}", lower, upper, int(rng.integers(1, 60))))
    offsets = pack(blocks, align=1, rounds=0, effort=0)
    ends = sorted((offsets[b.name], offsets[b.name] + b.size) for b in blocks[:20])
    assert all(one[1] == other[0] for one, other in pairwise(ends))
    for a in blocks:
        for b in blocks:
            apart = offsets[a.name] >= offsets[b.name] + b.size
            apart |= offsets[b.name] >= offsets[a.name] + a.size
            assert a is b or apart or a.lower >= b.upper or b.lower >= a.upper
    assert peak(blocks, offsets) < 1.35 * live_bytes(blocks)
