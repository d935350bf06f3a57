"""Frozen layers, last layers, some rows, parts in turn: bits, cycles and memory."""

from dataclasses import replace

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import GraphError, ParameterError
from rpukit.testing import assert_same_bits
from rpukit.tiled import methods
from tests.tiled.method_nets import LEVELS, mini_batches, network, trainer_of

ROWS = {"deep.w": (1, 3), "fc.w": (8, 16), "head.*": (2, 5)}
OPTIMISERS = [tiled.SGD(lr=0.1), tiled.MomentumSGD(lr=0.1), tiled.Adam(lr=0.01)]


def by_hand(training, batches, rows, n_accumulate=1):
    """Train everything, without a plan, and restore after each update what is not trained."""
    state = dict(training.initial)
    graphs = (training.train, training.optimiser)
    for name in training.accumulators:
        tensor = training.train.tensors[name]
        state[name] = np.zeros(tensor.shape, tensor.dtype)
    losses = []
    for k, batch in enumerate(batches):
        before = dict(state)
        given = dict(zip(training.batch, batch, strict=True))
        given[training.reset] = np.array([k % n_accumulate == 0])
        for graph in graphs if (k + 1) % n_accumulate == 0 else graphs[:1]:
            known = {name: state[name] for name in graph.inputs if name in state}
            made = graph.run({**given, **known} if graph is training.train else known)
            state |= {graph.aliases[name]: made[name] for name in made if name in graph.aliases}
            losses += [float(made[training.loss])] if training.loss in made else []
        for name in training.parameters:
            lo, hi = rows.get(name, (0, 0))
            state[name] = before[name].copy()
            state[name][lo:hi] = made.get(f"{name}_updated", before[name])[lo:hi]
    return np.array(losses), {name: state[name] for name in training.parameters}


def whole(training, names):
    return {name: (0, training.train.tensors[name].shape[0]) for name in names}


def assert_trains_as(part, training, rows, n_accumulate=1, **options):
    batches = mini_batches(2 * n_accumulate)
    want, ends = by_hand(training, batches, rows, n_accumulate)
    trainer = trainer_of(part, n_accumulate=n_accumulate, **options)
    assert_same_bits(trainer.fit(batches), want)
    for name, value in trainer.parameters().items():
        assert_same_bits(value, ends[name])


def cost(training):
    plan = tiled.plan(training, LEVELS, buffering="double")
    homes = sum(home.bytes for home in plan.homes)
    return plan.cycles, plan.peaks["L2"], homes


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda one: type(one).__name__)
def test_frozen_parameters_stay_and_cost_nothing(optimiser):
    training = network(optimiser)
    part = methods.freeze(training, "conv.*", "fc.w")
    assert part.parameters == ("deep.w", "fc.b", "head.w", "head.b")
    assert_trains_as(part, training, whole(training, part.parameters))
    assert all(now < before for now, before in zip(cost(part), cost(training), strict=True))


def test_gradients_of_frozen_parameters_add_up():
    training = network()
    part = methods.freeze(training, "deep.w")
    rows = whole(training, part.parameters)
    assert_trains_as(part, training, rows, 2, transfers="at_wait")


def test_last_layers():
    training = network()
    layers = methods.parameter_layers(training)
    assert layers == (("conv.w", "conv.b"), ("deep.w",), ("fc.w", "fc.b"), ("head.w", "head.b"))
    costs = [cost(methods.train_last(training, n)) for n in (4, 3, 2, 1)]
    assert all(sorted(one, reverse=True) == list(one) for one in zip(*costs, strict=True))
    assert costs[0] == cost(training)
    part = methods.train_last(training, 1)
    assert part.parameters == layers[-1]
    assert {node.op for node in part.train.nodes}.isdisjoint({"ConvGradX", "ConvGradW"})
    assert_trains_as(part, training, whole(training, part.parameters))


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(
    ("levels", "buffering"),
    [(tiled.siracusa_l2(l1=3_000), "auto"), (tiled.siracusa_l3(l1=3_000, l2=30_000), "double")],
    ids=["L2", "L3"],
)
def test_rows(optimiser, levels, buffering):
    training = network(optimiser)
    part = methods.train_rows(methods.freeze(training, "conv.*", "fc.b"), ROWS)
    rows = {**ROWS, "head.w": (2, 5), "head.b": (2, 5)}
    assert_trains_as(part, training, rows, levels=levels, buffering=buffering)


def test_rows_of_a_wide_layer_cost_less():
    b = tiled.Builder("wide")
    x, y = b.input("x", (8, 64)), b.input("y", (8, 96))
    w = b.parameter("w", np.zeros((96, 64)))
    training = b.training(b.apply("MSELoss", b.apply("Gemm", x, w, transB=1), y))
    costs = [cost(methods.train_rows(training, {"w": (0, n)})) for n in (96, 48, 12)]
    assert all(sorted(one, reverse=True) == list(one) for one in zip(*costs, strict=True))
    assert cost(training)[1:] > costs[1][1:] and cost(training)[0] > 1.3 * costs[2][0]


def test_rows_with_updates_in_the_same_graph():
    training = network(tiled.MomentumSGD(lr=0.1))
    part = methods.train_rows(methods.freeze(training, "*b"), {"*w": (1, 4)})
    fused = tiled.fuse_updates(part)
    assert_trains_as(fused, training, dict.fromkeys(part.parameters, (1, 4)))
    product = tiled.fuse_updates(
        methods.train_rows(network(), {"fc.w": (0, 16), "head.w": (1, 2)})
    )
    rows = whole(product, product.parameters) | {"head.w": (1, 2)}
    assert_trains_as(product, network(), rows)


def test_a_plan_of_other_rows_is_found_out():
    training = network()
    parts = [methods.train_rows(training, {"fc.w": rows}) for rows in ((0, 8), (8, 16))]
    plan = tiled.plan(parts[0], LEVELS)
    faults = tiled.find_faults(plan, parts[1])
    assert faults and not tiled.find_faults(plan, parts[0])


def test_parts_in_turn():
    training, batches = network(), mini_batches(6)
    parts = [methods.train_rows(training, {"fc.w": rows}) for rows in ((0, 8), (8, 16))]
    parts.append(methods.train_last(training, 1))
    rotation = methods.Rotation([trainer_of(one, n_accumulate=2) for one in parts])
    losses = rotation.fit(batches)
    rows = whole(training, training.parameters)
    turns = [
        rows | {"fc.w": (0, 8)},
        rows | {"fc.w": (8, 16)},
        whole(training, parts[2].parameters),
    ]
    start = training
    for k in range(0, len(batches), 2):
        own = turns[k // 2]
        want, ends = by_hand(start, batches[k : k + 2], own, n_accumulate=2)
        assert_same_bits(losses[k : k + 2], want)
        start = replace(start, initial=start.initial | ends)
    for name, value in rotation.parameters().items():
        assert_same_bits(value, start.initial[name])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: methods.freeze(t, "cnv.*"), "no name matches 'cnv.*'"),
        (lambda t: methods.freeze(t), "need at least one name"),
        (lambda t: methods.freeze(t, "*"), "all parameters match"),
        (lambda t: methods.freeze(t, "fc.w", values={"fc.w": np.ones(3)}), "values of fc.w"),
        (lambda t: methods.train_last(t, 5), "from 1 to 4"),
        (lambda t: methods.train_rows(t, {"fc.w": (8, 17)}), "within 16 rows"),
        (lambda t: methods.train_rows(t, {"fc.w": (8, 8)}), "within 16 rows"),
        (lambda t: methods.train_rows(t, {"fc.w": 3}), "need two integers"),
        (lambda t: methods.train_rows(t, {}), "need at least one"),
        (lambda t: methods.Rotation([]), "need a list of trainers"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ParameterError, match=message):
        call(network())


def test_methods_come_before_the_fusion_of_updates():
    with pytest.raises(GraphError, match="before fuse_updates"):
        methods.freeze(tiled.fuse_updates(network()), "fc.w")
