"""Plans from files: each is refused with an error of its own, or computes the same bits."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import FormatError, PlanError
from rpukit.tiled.program import Copy
from rpukit.tiled.runtime.cpu import CpuExecutor
from tests.tiled.reference_plans import model, plan_of, trained

NAME = "models/mlp_accum2"
SOURCES = [("auto", 4_000), ("double", 16_000), ("single", 16_000)]


def paths(data, path=()):
    """Places of all numbers, texts, lists and records of a file."""
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items if isinstance(data, (dict, list)) else ():
        yield from (
            paths(value, (*path, key)) if isinstance(value, (dict, list)) else [(*path, key)]
        )


def mutated(data, rng, every):
    """Change one to three places of a file."""
    data = copy.deepcopy(data)
    for _ in range(rng.integers(1, 4)):
        *path, last = every[rng.integers(1, len(every))]
        part = data
        try:
            for key in path:
                part = part[key]
            old = part[last]
        except (LookupError, TypeError):  # an earlier change took the place away
            continue
        if isinstance(part, str):
            continue
        whole = type(old) is int
        numbers = [0, 1, -1, -8, 7, 1 << 40, 1 << 70, 2.5, float("nan"), True]
        numbers += (
            [old + d for d in (1, -1, 4, -4, 8, 64, 1024)] + [old * 2, -old] if whole else []
        )
        others = [None, "", "L1", "L2", [], {}, [1, 2], "\ud800", "in", "out", 5]
        kind = rng.integers(6)
        if kind == 0:
            del part[last]
        elif kind == 1 and isinstance(part, list):
            part.insert(last, copy.deepcopy(old))
        elif kind == 2 and isinstance(part, list):
            n = int(rng.integers(len(part)))
            part[last], part[n] = part[n], part[last]
        else:
            pool = numbers if whole else others + numbers
            part[last] = pool[rng.integers(len(pool))]
    return data


@pytest.mark.parametrize(("buffering", "l1"), SOURCES)
def test_changed_files_are_refused_or_compute_the_same_bits(buffering, l1):
    plan = plan_of(NAME, l1, buffering)
    right = trained(NAME, plan)
    text = plan.to_json()
    data = json.loads(text)
    del data["checksum"]  # which no change would pass
    assert tiled.Plan.from_json(text) == plan
    # As many changes of instructions as of all the rest
    every = list(paths(data))
    heads = [path for path in every if "instructions" not in path]
    rng = np.random.default_rng(7)
    refused = equal = 0
    for number in range(130):
        changed = mutated(data, rng, heads if number % 2 else every)
        try:
            again = tiled.Plan.from_json(json.dumps(changed))
            result = trained(NAME, again)
        except (FormatError, PlanError):
            refused += 1
            continue
        equal += 1
        assert np.array_equal(result[0], right[0]), number
        assert all(np.array_equal(value, result[1][key]) for key, value in right[1].items())
    assert refused > 60
    assert equal > 5


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", "1e999", '{"format": 3}', "[" * 5000, '"a"', "\x00", "NaN"]
)
def test_what_is_no_plan_at_all(text):
    with pytest.raises(FormatError):
        tiled.Plan.from_json(text)


def faulty():
    """Plans with one planted fault, by a name."""
    plan = plan_of(NAME, 16_000, "double")
    homes, level = list(plan.homes), plan.hierarchy.levels[0].name
    peak = plan.peaks[level]
    yield "home_beyond", replace(plan, homes=(replace(homes[0], address=peak), *homes[1:]))
    yield "home_far_away", replace(plan, homes=(replace(homes[0], address=1 << 60), *homes[1:]))
    yield "home_negative", replace(plan, homes=(replace(homes[0], address=-64), *homes[1:]))
    yield "no_such_level", replace(plan, homes=(replace(homes[0], level="L9"), *homes[1:]))
    yield "peak_too_large", replace(plan, peaks={**plan.peaks, level: 1 << 50})
    lasting = [home for home in homes if home.lasting][:2]
    moved = replace(lasting[1], address=lasting[0].address)
    others = (moved if home is lasting[1] else home for home in homes)
    yield "two_at_one_address", replace(plan, homes=tuple(others))
    program = plan.programs[0]
    k = next(
        n for n, one in enumerate(program.instructions)
        if isinstance(one, Copy) and len(one.shape) > 1
    )  # fmt: skip
    one = program.instructions[k]
    last = one.source_strides[:-1]
    for name, change in {
        "stride_zero": {"source_strides": (*last, 0)},
        "stride_negative": {"target_strides": (*one.target_strides[:-1], -1)},
        "rows_on_top_of_each_other": {"target_strides": (0,) * (len(one.shape) - 1) + (1,)},
        "stride_of_three": {"source_strides": (*last, 3)},
        "too_many_rows": {"shape": (1 << 30, *one.shape[1:])},
        "no_bytes": {"shape": (*one.shape[:-1], 0)},
        "strides_missing": {"source_strides": ()},
        "float_address": {"source": (one.source[0], 8.0)},
        "same_level": {"target": one.source},
    }.items():
        instructions = list(program.instructions)
        instructions[k] = replace(one, **change)
        changed = replace(program, instructions=tuple(instructions))
        yield name, replace(plan, programs=(changed, *plan.programs[1:]))


FAULTY = dict(faulty())


@pytest.mark.parametrize("name", FAULTY)
def test_faulty_plans_are_refused_by_all_who_take_one(name):
    training = model(NAME)[0]
    graphs = training.train, training.optimiser
    assert tiled.find_faults(FAULTY[name], training)
    with pytest.raises(PlanError, match="safe"):
        CpuExecutor(FAULTY[name], graphs)
    with pytest.raises(PlanError, match="safe"):
        FAULTY[name].trainer(training)
    try:
        text = FAULTY[name].to_json()
    except TypeError:
        return
    with pytest.raises(FormatError):
        tiled.Plan.from_json(text)


def line(n_batch, width=5):
    b = tiled.Builder("line")
    x, y = b.input("x", (n_batch, width)), b.input("y", (n_batch, 2))
    rng = np.random.default_rng(3)
    w = b.parameter("w", rng.normal(size=(width, 2)))
    return b.training(b.apply("MSELoss", b.apply("Gemm", x, w), y))


@pytest.mark.parametrize("other", [line(5), line(4, 6)], ids=["batch", "width"])
def test_a_plan_of_another_graph_is_refused(other, tmp_path):
    plan = tiled.plan(line(4), tiled.siracusa_l2())
    rng = np.random.default_rng(1)
    tensors = other.train.tensors
    batch = tuple(rng.normal(size=tensors[n].shape).astype("f4") for n in ("x", "y"))
    with pytest.raises(PlanError, match="none of line"):
        plan.trainer(other)
    with pytest.raises(PlanError, match="none of line"):
        plan.generate_c(tmp_path, other, [batch])
    assert not list(tmp_path.iterdir())
    assert plan.trainer(line(4)).n_step == 0
