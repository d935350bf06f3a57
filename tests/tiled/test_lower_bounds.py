"""Time that nothing can hide does not count as time that could be hidden."""

import pytest

from rpukit import tiled
from rpukit.tiled.planner.lower_bounds import bounds
from rpukit.tiled.planner.tasks import Task

LEVELS = tiled.siracusa_l2()
VALUES = {(0, "made"): "v", (1, "read"): "v", (1, "sum"): "w"}


def tasks(late):
    """An op that stores what it made, late or not, and one that reads it in two tiles."""
    copy = {"hop": 1, "engine": "in", "tensor": "read"}
    return [
        Task(0, 10),
        Task(0, 5, 1, "out", "made", before={0} if late else set()),
        Task(1, 7, **copy, before={1}),
        Task(1, 20, before={2, 0}),
        Task(1, 7, **copy, before={1}),
        Task(1, 30, before={4, 3}),
        Task(1, 9, 1, "out", "sum", before={5}),
    ]


@pytest.mark.parametrize(
    ("late", "last", "least"),
    [
        (False, False, 50),  # kernels are the busiest
        (True, False, 5 + 7 + 50),  # the store, the first fetch, and kernels
        (False, True, 50 + 9),  # kernels, and the last store
        (True, True, 5 + 7 + 50),
    ],
)
def test_chains_between_ops_and_at_the_end(late, last, least):
    every = tasks(late) + ([] if last else [Task(2, 1, before={6})])
    assert bounds(every, range(2, 7), VALUES, LEVELS) == (73, least)


def test_the_first_fetch_of_a_program_and_fetches_that_wait_together():
    first = tasks(late=False)[2:]
    for task in first:
        task.before = {t - 2 for t in task.before} - {-1, -2}
    first[0].cycles = 17
    assert bounds(first, range(5), VALUES, LEVELS) == (83, 17 + 50)
    slow = tasks(late=True)
    slow[4].cycles = 90
    assert bounds(slow, range(2, 7), VALUES, LEVELS)[1] == 5 + 7 + 90 + 20


@pytest.mark.parametrize("strategy", ["auto", "double"])
def test_no_plan_is_faster_than_what_cannot_be_hidden(strategy):
    x = tiled.Tensor("x", (64, 96))
    nodes = [tiled.Node(name, "Relu", (a,), (b,)) for name, a, b in ("pxy", "qyz")]
    graph = tiled.make_graph("two", nodes, [x], ["z"])
    plan = tiled.plan(graph, tiled.siracusa_l2(l1=9_000), buffering=strategy)
    for op in plan.ops():
        assert op.n_tiles > 1
        assert op.least <= op.serial
        assert op.cycles >= op.least or strategy == "auto"  # what was fetched ahead costs nothing
        assert op.hidden >= 0.9
