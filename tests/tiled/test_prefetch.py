"""Whole values are brought in turns before they are needed, where there is room."""

import numpy as np
import pytest

from rpukit import tiled
from rpukit.tiled.planner.level_plan import ValueUse
from rpukit.tiled.planner.prefetch import windows
from rpukit.tiled.verify.simulate import simulate

ROOM = 100


def random_turns(rng):
    """A few turns with some values each, and cycles of their kernels."""
    turns = []
    for _ in range(rng.integers(1, 9)):
        own = {}
        for value in "abc"[: rng.integers(0, 4)]:
            size, slots, cycles = (int(n) for n in rng.integers(1, (61, 61, 201)))
            flags = [bool(flag) for flag in rng.integers(0, 2, 4)]
            own[value] = ValueUse(size, min(slots, size), cycles, *flags, last=True)
        turns.append((own, int(rng.integers(1, 61))))
    return turns


@pytest.mark.parametrize("seed", range(50))
def test_buffers_stay_within_their_program_and_the_room(seed):
    rng = np.random.default_rng(seed)
    turns = random_turns(rng)
    uses, work = [own for own, _ in turns], [cycles for _, cycles in turns]
    starts = {0, int(rng.integers(len(turns))), len(turns)}
    least = [sum(u.size if u.whole else u.taken for u in own.values()) for own in uses]
    used = np.array(least, np.int64)
    before, after = windows(uses, work, starts, used, ROOM)
    want = np.array(least, np.int64)
    for turn, value in {*before, *after}:
        use = uses[turn][value]
        lo, hi = turn - before.get((turn, value), 0), turn + after.get((turn, value), 0)
        assert not any(lo < start <= hi for start in starts)
        assert use.whole or use.able
        want[lo : hi + 1] += use.size
        want[turn] -= use.size if use.whole else use.taken
    assert (used == want).all()
    assert ((used <= ROOM) | (used == least)).all()


def test_what_is_needed_late_is_fetched_while_much_is_computed():
    """Eight turns of work before a value whose copy takes as long as five of them."""
    late = ValueUse(50, 10, 50, fetched=True, stored=True, whole=False, able=True, last=True)
    used = np.array([0, 0, 60, 0, 0, 0, 0, 0, 10, 0, 0, 0], np.int64)
    uses = [{}] * 8 + [{"w": late}] + [{}] * 3
    before, after = windows(uses, [10] * 12, {0, 12}, used, ROOM)
    assert before == {(8, "w"): 5}
    assert after == {(8, "w"): 3}
    assert used.tolist() == [0, 0, 60, *[50] * 9]


def test_weights_over_a_slow_link_come_while_other_layers_run():
    """Weights and gradients that live in L3, as long on their way as all kernels take."""
    b = tiled.Builder("dense")
    h, y = b.input("x", (16, 64)), b.input("y", (16, 64))
    for k in range(6):
        h = b.apply("Relu", b.apply("Gemm", h, b.parameter(f"w{k}", np.zeros((64, 64))), transB=1))
    graph = b.training(b.apply("MSELoss", h, y), tiled.SGD(lr=0.01))
    plan = tiled.plan(graph, tiled.siracusa_l3(l1=16_000, l2=150_000))
    busy: dict[str, int] = {}
    for one in simulate(plan, graph):
        busy[one.engine] = busy.get(one.engine, 0) + one.end - one.start
    first: dict[str, int] = {}  # block: how many steps before its use it may be filled
    for step, op in enumerate(plan.ops()):
        for place in (place for operand in op.operands for place in operand.places):
            first.setdefault(place.block, step - place.lower)
    assert max(first.values()) >= 3
    assert plan.programs[0].cycles <= 1.45 * max(busy.values())  # 1.61 from one turn to the next
