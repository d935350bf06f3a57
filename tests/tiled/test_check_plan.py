"""Defects planted in a plan are found, each by its kind."""

from dataclasses import replace

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import PlanError
from rpukit.testing import assert_same_bits
from rpukit.tiled.program import ComputeTile, Copy, Wait
from tests.reference.models import load
from tests.tiled.reference_plans import trained, untiled

SLOW_LINK = {"width": 2, "setup": 60, "row": 10}
LEVELS = tiled.Hierarchy(
    [
        tiled.Level("L3", 1_000_000),
        tiled.Level("L2", 24_000, **SLOW_LINK),
        tiled.Level("L1", 6_000, setup=20, row=4),
    ]
)


@pytest.fixture(scope="module", params=["double", "auto"])
def case(request):
    reference = load("models/dscnn_like")
    graph = tiled.training_from_onnx(reference.file("train"), reference.file("optimizer"))
    return graph, tiled.plan(graph, LEVELS, buffering=request.param)


def faults(case, change, program=0):
    """Change the list of one program, and look for what is wrong."""
    graph, plan = case
    programs = list(plan.programs)
    instructions = list(programs[program].instructions)
    change(instructions)
    programs[program] = replace(programs[program], instructions=tuple(instructions))
    return {
        fault.split(":")[0]
        for fault in tiled.find_faults(replace(plan, programs=tuple(programs)), graph)
    }


def place_of(instructions, kind, number=0, where=lambda one: True):
    found = [k for k, one in enumerate(instructions) if isinstance(one, kind) and where(one)]
    return found[number]


def test_the_plan_itself_is_clean(case):
    assert faults(case, lambda instructions: None) == set()
    assert faults(case, lambda instructions: None, 1) == set()


@pytest.mark.sweep
def test_every_transfer_is_needed(case):
    """A kernel without one of its transfers reads what is stale, or nothing arrives at home."""
    n = sum(isinstance(one, Copy) for one in case[1].programs[0].instructions)
    for number in range(0, n, n // 7):

        def change(instructions, number=number):
            token = instructions[place_of(instructions, Copy, number)].token
            instructions[:] = [o for o in instructions if getattr(o, "token", None) != token]

        assert faults(case, change) & {"uninitialised", "stale", "missing"}


def test_wait_moved_behind_its_kernel(case):
    def change(instructions):
        k = place_of(instructions, Wait, 0)
        token = instructions[k].token
        copy = next(o for o in instructions if isinstance(o, Copy) and o.token == token)
        assert copy.engine == "in"
        instructions.append(instructions.pop(k))

    assert faults(case, change) & {"race", "uninitialised"}


def test_wait_forgotten_at_the_end(case):
    def change(instructions):
        del instructions[place_of(instructions, Wait, -1)]

    assert faults(case, change) >= {"unwaited_at_end"}


def test_token_used_twice(case):
    def change(instructions):
        # The second of two transfers that are under way together gets the token of the first.
        pending, pair = {}, None
        for k, one in enumerate(instructions):
            if isinstance(one, Wait):
                pending.pop(one.token)
            elif isinstance(one, Copy):
                if pending:
                    pair = next(iter(pending)), k
                    break
                pending[one.token] = k
        instructions[pair[1]] = replace(instructions[pair[1]], token=pair[0])

    assert faults(case, change) >= {"token_reuse", "unknown_token"}


def test_store_into_a_shared_buffer_is_waited_for_too_late(case):
    """In place: the next fetch overwrites what is still being stored."""
    plan = case[1]
    done = False
    for k, one in enumerate(plan.programs[1].instructions):
        if not (isinstance(one, Copy) and one.engine == "out"):
            continue
        for j, other in enumerate(plan.programs[1].instructions[k + 1 :], k + 1):
            if isinstance(other, Copy) and other.target == one.source:

                def change(instructions, k=k, j=j, token=one.token):
                    wait = next(
                        i
                        for i, o in enumerate(instructions)
                        if isinstance(o, Wait) and o.token == token
                    )
                    assert k < wait < j
                    instructions.insert(j, instructions.pop(wait))

                assert "race" in faults(case, change, 1)
                done = True
                break
        if done:
            break
    assert done


def test_halo_that_does_not_fit(case):
    graph, plan = case
    op = next(o for o in plan.programs[0].ops if o.op == "ConvGradX" and o.operands[0].places)
    place = op.operands[0].places[-1]
    small = replace(place, bytes=place.bytes - 8)
    operand = replace(op.operands[0], places=(*op.operands[0].places[:-1], small))
    ops = tuple(
        replace(o, operands=(operand, *o.operands[1:])) if o is op else o
        for o in plan.programs[0].ops
    )
    programs = (replace(plan.programs[0], ops=ops), plan.programs[1])
    found = tiled.find_faults(replace(plan, programs=programs), graph)
    assert found
    assert all(fault.startswith("bounds") for fault in found)


def sums(instructions, graph):
    """Places of the tiles of a sum that is cut in two or more."""
    spaces = {}
    for node in graph.train.nodes:
        op = tiled.ops.find(node.op)
        if not op.view:
            spaces[node.name] = op.space(node, graph.train.tensors)
    found = [
        k
        for k, one in enumerate(instructions)
        if isinstance(one, ComputeTile)
        and not (spaces[one.node].first(one.box) and spaces[one.node].last(one.box))
    ]
    return [k for k in found if not spaces[instructions[k].node].first(instructions[k].box)]


def test_part_of_a_sum_left_out_or_in_another_buffer(case):
    graph, _ = case

    def forget(instructions):
        del instructions[sums(instructions, graph)[0]]

    def other_buffer(instructions):
        k = sums(instructions, graph)[0]
        one = instructions[k]
        instructions[k] = replace(one, addresses=(*one.addresses[:-1], one.addresses[-1] + 8))

    def twice(instructions):
        k = sums(instructions, graph)[0]
        instructions.insert(k, instructions[k])

    assert faults(case, forget) & {"order", "coverage"}
    assert faults(case, other_buffer) & {"uninitialised", "bounds", "stale"}
    assert faults(case, twice) >= {"order"}


def test_tile_left_out_and_tile_twice(case):
    def forget(instructions):
        del instructions[place_of(instructions, ComputeTile, -1)]

    def twice(instructions):
        k = place_of(instructions, ComputeTile, -1, lambda one: "GradientAcc" not in one.node)
        instructions.insert(k, instructions[k])

    assert faults(case, forget) >= {"coverage"}
    assert faults(case, twice)


@pytest.mark.sweep
def test_value_freed_too_early(case):
    """A later value takes the memory of one that still has a reader."""
    plan = case[1]
    short = [home for home in plan.homes if not home.lasting]
    pairs = [
        (long.upper - long.lower, k, n)
        for k, long in enumerate(short)
        for n, other in enumerate(short)
        if long.level == other.level and long.lower < other.lower < long.upper - 1
        if long.address + other.bytes <= plan.peaks[long.level]
    ]
    kinds = set()
    for _, k, n in sorted(pairs)[:: -max(9, len(pairs) // 12)]:  # a dozen of all lengths
        kinds |= moved_onto(case, short[k], short[n])
    assert kinds & {"stale", "missing", "uninitialised", "race"}


def moved_onto(case, long, other):
    """What is found when a value moves to the address of another that still lives."""
    graph, plan = case
    moved = replace(other, address=long.address)
    homes = tuple(moved if h is other else h for h in plan.homes)
    shift = moved.address - other.address
    lo, hi = other.address, other.address + other.bytes

    def change(instructions):
        for k, one in enumerate(instructions):
            if isinstance(one, Copy) and one.tensor == other.value:
                ends = [
                    (level, a + shift) if level == other.level and lo <= a < hi else (level, a)
                    for level, a in (one.source, one.target)
                ]
                instructions[k] = replace(one, source=ends[0], target=ends[1])

    return faults((graph, replace(plan, homes=homes)), change)


def test_transfers_of_the_wrong_part(case):
    def change(instructions):
        k = place_of(instructions, Copy, 0, lambda one: one.engine == "in" and one.shape[-1] >= 64)
        one = instructions[k]
        instructions[k] = replace(one, source=(one.source[0], one.source[1] + 8))

    assert faults(case, change) & {"stale", "bounds", "uninitialised"}


def test_wrong_gradient_behind_a_right_loss(case):
    """Part of a weight's gradient is lost: the losses of a step do not show it, the check does."""
    plan = case[1]
    instructions = list(plan.programs[0].instructions)
    del instructions[sums(instructions, case[0])[-1]]
    programs = (replace(plan.programs[0], instructions=tuple(instructions)), plan.programs[1])
    broken = replace(plan, programs=programs)
    found = tiled.find_faults(broken, case[0])
    assert {fault.split(":")[0] for fault in found} & {"order", "coverage"}
    name = "models/dscnn_like"
    losses, parameters = trained(name, broken, checked=False)
    right, final = untiled(name)
    assert_same_bits(losses[0], right[0])
    assert any(not np.array_equal(parameters[key], final[key]) for key in final)


@pytest.mark.parametrize("op", ["MSELossGrad", "CrossEntropyGrad"])
def test_mean_over_a_tile_instead_of_the_whole(op):
    """A plan of a tile's samples alone is no plan of the batch: its means are over too little."""

    def graph(n):
        tensors = [tiled.Tensor("p", (n, 6)), tiled.Tensor("t", (n, 6))]
        if op == "CrossEntropyGrad":
            tensors[1] = tiled.Tensor("t", (n,), "int64")
        node = tiled.Node("grad", op, ("p", "t"), ("g",))
        return tiled.make_graph("one", [node], tensors, ["g"])

    levels = tiled.siracusa_l2(l1=3_000)
    whole, part = graph(64), graph(16)
    plan = tiled.plan(whole, levels)
    boxes = [one.box for one in plan.programs[0].instructions if isinstance(one, ComputeTile)]
    assert len(boxes) > 1
    kind, node = tiled.ops.find(op), whole.nodes[0]
    numbers = [kind.parameters(node, whole.tensors, box)[1].tolist() for box in boxes]
    assert numbers == [numbers[0]] * len(boxes)
    assert (
        numbers[0] != kind.parameters(part.nodes[0], part.tensors, ((0, 16), (0, 6)))[1].tolist()
    )
    found = tiled.find_faults(tiled.plan(part, levels), whole)
    assert {fault.split(":")[0] for fault in found} & {"bounds", "coverage", "missing"}


def test_lengths_cut_to_too_few_bits():
    """What a field of 16 bits would make of a long copy and of a long tile."""
    tensors = [tiled.Tensor("x", (1, 40_000))]
    graph = tiled.make_graph("one", [tiled.Node("r", "Relu", ("x",), ("y",))], tensors, ["y"])
    case = graph, tiled.plan(graph, tiled.siracusa_l2(l1=400_000), buffering="single")

    def copy(instructions):
        k = place_of(instructions, Copy)
        assert instructions[k].shape[-1] > 1 << 16
        instructions[k] = replace(instructions[k], shape=(instructions[k].shape[-1] & 0xFFFF,))

    def tile(instructions):
        k = place_of(instructions, ComputeTile)
        ends = tuple((lo, hi & 0x7FFF) if hi > 1 << 15 else (lo, hi) for lo, hi in box)
        instructions[k] = replace(instructions[k], box=ends)

    box = next(o for o in case[1].programs[0].instructions if isinstance(o, ComputeTile)).box
    assert faults(case, copy) >= {"uninitialised"}
    assert faults(case, tile) & {"coverage", "stale"}


def test_budget(case):
    graph, plan = case
    small = tiled.Hierarchy([replace(level, bytes=2000) for level in LEVELS.levels])
    assert {f.split(":")[0] for f in tiled.find_faults(replace(plan, hierarchy=small), graph)} == {
        "budget"
    }
    with pytest.raises(PlanError, match=r"L1 holds|L3 holds"):
        tiled.check_plan(replace(plan, hierarchy=small), graph)
