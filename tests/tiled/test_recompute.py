"""Recomputation of the forward pass: less memory, the same bits."""

from functools import cache

import numpy as np
import pytest

from rpukit import tiled
from rpukit.errors import PlanError
from rpukit.testing import assert_same_bits
from rpukit.tiled import methods
from tests.tiled.method_nets import LEVELS, trainer_of


@cache
def deep(n_layer=6, n=16, batch=32):
    """Blocks of a normalisation, a product, Gelu and a view, each added to its input."""
    rng = np.random.default_rng(2)
    b = tiled.Builder("deep")
    h, y = b.input("x", (batch, n)), b.input("y", (batch, n))
    ones, zeros = np.ones(n), np.zeros(n)
    for k in range(n_layer):
        scale, shift = b.parameter(f"s{k}", ones), b.parameter(f"b{k}", zeros)
        part = b.apply("LayerNormalization", h, scale, shift)
        w = b.parameter(f"w{k}", rng.normal(size=(n, n)) * 0.2)
        part = b.apply("Gelu", b.apply("Gemm", part, w))
        part = b.apply("Reshape", part, shape=(batch * n // 8, 8))
        h = b.apply("Add", h, b.apply("Reshape", b.apply("Tanh", part), shape=(batch, n)))
    pairs = [tuple(rng.normal(size=(2, batch, n)).astype(np.float32)) for _ in range(2)]
    return b.training(b.apply("MSELoss", h, y), tiled.MomentumSGD(lr=0.1)), pairs


def peak(training):
    return tiled.plan(training, LEVELS, buffering="single").peaks["L2"]


def again(training):
    return [node for node in training.train.nodes if node.name.endswith("/again")]


@pytest.mark.parametrize("share", [0.9, 0.7])
def test_less_memory_the_same_bits(share):
    training, pairs = deep()
    limit = int(share * peak(training))
    small = methods.recompute(training, LEVELS, limit=limit)
    assert again(small) and peak(small) <= limit
    assert not {node.op for node in again(small)} & {"Gemm"} or share < 0.9  # cheap ones first
    trainers = [trainer_of(one, buffering="single") for one in (training, small)]
    assert_same_bits(*(trainer.fit(pairs) for trainer in trainers))
    ends = [trainer.parameters(everything=True) for trainer in trainers]
    for name, value in ends[0].items():
        assert_same_bits(value, ends[1][name])
    assert trainers[0].plan.cycles < trainers[1].plan.cycles


def test_more_is_recomputed_where_less_memory_is_left():
    training, _ = deep()
    most = peak(training)
    counts = [
        len(again(methods.recompute(training, LEVELS, limit=int(most * share))))
        for share in (1.0, 0.9, 0.75)
    ]
    assert counts[0] == 0 and counts == sorted(set(counts))


def test_convolutions_and_updates_in_one_graph():
    rng = np.random.default_rng(6)
    b = tiled.Builder("convolutions")
    h, labels = b.input("x", (2, 4, 8, 8)), b.input("labels", (2,), np.int64)
    for k in range(6):
        w = b.parameter(f"w{k}", rng.normal(size=(4, 4, 3, 3)) * 0.2)
        h = b.apply("Relu", b.apply("Conv", h, w, pads=(1, 1, 1, 1)))
    scores = b.apply("Flatten", b.apply("GlobalAveragePool", h))
    training = b.training(b.apply("SoftmaxCrossEntropyLoss", scores, labels))
    small = methods.recompute(training, LEVELS, limit=int(0.85 * peak(training)))
    assert {node.op for node in again(small)} == {"Conv", "Relu"}
    pairs = [(rng.normal(size=(2, 4, 8, 8)).astype(np.float32), rng.integers(0, 4, 2))] * 2
    fused = tiled.fuse_updates(small)
    assert_same_bits(trainer_of(training).fit(pairs), trainer_of(fused).fit(pairs))


def test_nothing_changes_where_all_fits():
    training, _ = deep(2)
    assert methods.recompute(training, LEVELS) is training


def test_what_cannot_fit():
    with pytest.raises(PlanError, match="live at once .* need at most 20000"):
        methods.recompute(deep()[0], LEVELS, limit=20_000)


def test_a_plan_recomputes_where_memory_asks_for_it():
    training, pairs = deep()
    levels = tiled.siracusa_l2(l1=6_000, l2=int(0.8 * peak(training)))
    with pytest.raises(PlanError, match="live at once"):
        tiled.plan(training, levels, buffering="single")
    small, plan = methods.plan_recomputed(training, levels, buffering="single")
    assert again(small) and plan.peaks["L2"] <= levels[0].bytes
    assert_same_bits(plan.trainer(small).fit(pairs), trainer_of(training).fit(pairs))
    kept, plan = methods.plan_recomputed(training, LEVELS, buffering="single")
    assert kept is training and plan == tiled.plan(training, LEVELS, buffering="single")
    with pytest.raises(PlanError, match="L1"):
        methods.plan_recomputed(training, tiled.siracusa_l2(l1=40), buffering="single")


def test_what_would_cross_the_slowest_link_is_recomputed_where_that_is_faster():
    training, pairs = deep(2)
    levels = tiled.siracusa_l3(l1=6_000, l2=10_000)
    kept = tiled.plan(training, levels)
    small, plan = methods.plan_recomputed(training, levels)
    assert again(small) and plan.cycles < 0.95 * kept.cycles
    assert_same_bits(plan.trainer(small).fit(pairs), trainer_of(training).fit(pairs))
