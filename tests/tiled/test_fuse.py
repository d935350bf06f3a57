"""Updates within the training graph: the bits of the two graphs, with less to move."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from analog_nets import built

from rpukit import tiled
from rpukit.errors import GraphError, ParameterError
from rpukit.testing import assert_same_bits

OPTIMISERS = [tiled.SGD(lr=0.05), tiled.MomentumSGD(lr=0.05), tiled.Adam(lr=0.01)]
DTYPES = ["float32", "float64", "float32"]


def dense(optimiser, dtype="float32", sizes=(24, 20, 6)):
    """Layers with biases, and three mini-batches."""
    rng = np.random.default_rng(5)
    b = tiled.Builder("net", dtype=dtype)
    h, y = b.input("x", (8, sizes[0])), b.input("y", (8, sizes[-1]))
    for k, (n_in, n_out) in enumerate(pairwise(sizes)):
        w = b.parameter(f"w{k}", rng.normal(size=(n_out, n_in)) * 0.3)
        h = b.apply("Gemm", h, w, b.parameter(f"c{k}", np.zeros(n_out)), transB=1)
        h = b.apply("Relu", h) if k == 0 else h
    ends = sizes[0], sizes[-1]
    batches = [tuple(rng.normal(size=(8, n)).astype(dtype) for n in ends) for _ in range(3)]
    return b.training(b.apply("MSELoss", h, y), optimiser), batches


@pytest.mark.parametrize(("optimiser", "dtype"), [*zip(OPTIMISERS, DTYPES, strict=True)])
def test_one_graph_trains_as_two_do(optimiser, dtype):
    training, batches = dense(optimiser, dtype)
    fused = tiled.fuse_updates(training)
    assert not fused.accumulators and not fused.optimiser.nodes
    levels = tiled.gpu(6_000)
    plans = [tiled.plan(one, levels) for one in (training, fused)]
    trainers = [plan.trainer(one) for plan, one in zip(plans, (training, fused), strict=True)]
    losses = [trainer.fit(batches) for trainer in trainers]
    assert_same_bits(*losses)
    kept = (*training.parameters, *training.state)
    ends = [trainer.parameters(everything=True) for trainer in trainers]
    for name in kept:
        assert_same_bits(ends[0][name], ends[1][name])
    assert set(ends[1]) == set(kept)
    moved = [sum(sum(p.moved["device"]) for p in plan.programs) for plan in plans]
    assert moved[1] < moved[0]


def test_what_has_no_accumulators():
    training, _ = dense(OPTIMISERS[0])
    fused = tiled.fuse_updates(training)
    plan = tiled.plan(fused, tiled.siracusa_l2())
    with pytest.raises(ParameterError, match="no accumulators"):
        plan.trainer(fused, n_accumulate=2)
    with pytest.raises(ParameterError, match="no accumulators"):
        plan.trainer(fused).gradients()
    odd = replace(training, accumulators=(*training.accumulators, "other"))
    with pytest.raises(GraphError, match="other"):
        tiled.fuse_updates(odd)
    analog, steps, _ = built("ideal")  # learns within its graph, too
    plan = tiled.plan(analog, tiled.gpu(40_000))
    losses = plan.trainer(analog).fit(steps[:1])
    kept = {name: analog.initial[name] for name in analog.kept}
    whole = analog.train.run({**kept, "x": steps[0][0], "t": steps[0][1]})
    assert_same_bits(np.float32(losses), whole["loss"].reshape(1))
