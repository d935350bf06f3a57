"""Kernels where a comparison is an equality: draws equal to their probability, the last element.

Also numbers of cells beyond 2^32, arrays that end in the middle of a block, and a status that is
set. Each source gives the bits of its mirror.
"""

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits, testing
from rpukit._exact import math
from rpukit._kernels import Kernel
from rpukit.analog.deferred_errors import check_finite
from rpukit.analog.processes import ops as slow
from rpukit.analog.transfer import ops as transfer
from rpukit.analog.transfer.schedule import Events
from rpukit.analog.update import ops as update
from rpukit.gemm import logprob
from rpukit.inference.training import ops as training
from rpukit.random import Op
from rpukit.testing import assert_same_bits, on_cpu
from tests.on_cpu import runner

STREAM = rk.Stream.from_seed(3)
OK, RAISED = np.zeros(1, np.int32), np.full(1, 7, np.int32)
SHAPE = (3, 37)
BOUNDS = (np.full(SHAPE, -0.5, np.float32), np.full(SHAPE, 0.5, np.float32))


def uniforms(n, **place):
    return rk.elementwise.random_fill(STREAM, n, "uniform", **place)


def both(run, order):
    """Results of the mirror, with which those of the source agree."""
    expected = run()
    with on_cpu(order):
        got = run()
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)
    return expected


def weights(seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, SHAPE).astype(np.float32)


at = {"stream": STREAM, "event": 2**40 + 1}
some = np.full(SHAPE, 0.1, np.float32)
PROCESSES = {
    "clip_weights": lambda w, status: slow.clip_weights(w, BOUNDS, status=status),
    "decay": lambda w, status: slow.decay(w, 0.7, some, None, BOUNDS, status=status),
    "diffusion": lambda w, status: slow.diffusion(w, some, BOUNDS, status=status, **at),
    "reset": lambda w, status: slow.reset(w, 1, 37, 1.0, 0.1, some, BOUNDS, status=status, **at),
    "write_noise": lambda w, status: slow.write_noise(some, w, 0.1, status=status, **at),
}


@pytest.mark.parametrize("process", PROCESSES)
def test_cells_behind_the_last_one_stay(process, order):
    """The weights are the first rows of a larger array, and end in the middle of a block."""
    larger = np.random.default_rng(1).uniform(-1, 1, (6, 37)).astype(np.float32)
    before = larger.copy()
    with on_cpu(order):
        PROCESSES[process](larger[:3], OK)
    assert (larger[:3] != before[:3]).any()
    assert_same_bits(larger[3:], before[3:])


@pytest.mark.parametrize("process", PROCESSES)
def test_nothing_changes_once_a_status_is_set(process):
    w = weights()
    with on_cpu():
        PROCESSES[process](w, RAISED)
    assert_same_bits(w, weights())


@pytest.mark.parametrize("first", [2**32 - 20, 2**32, 5 * 2**32 + 1])
def test_numbers_of_cells_beyond_32_bits(first, order):
    """Cells of a part of a tile draw what the whole tile would draw there."""

    def run():
        w, v, u = (weights(k) for k in range(3))
        slow.diffusion(w, some, None, first_cell=first, status=OK, **at)
        slow.reset(v, 0, 37, 0.5, 0.1, None, None, first_cell=first, status=OK, **at)
        memory = slow.DriftMemory(u.copy(), u.copy(), np.zeros(SHAPE), None)
        rule = rk.DriftParameters(nu=0.1, nu_std=0.3)
        slow.drift(u, 3.0, rule, memory, None, first_cell=first, status=OK, **at)
        return w, v, u

    far, near = both(run, order)[0].reshape(-1)[20:], weights().reshape(-1)[20:].copy()
    rate = np.full(near.size, 0.1, np.float32)
    slow.diffusion(near, rate, None, first_cell=(first + 20) % 2**32, status=OK, **at)
    assert (near != far).any()


def test_a_reset_needs_a_draw_below_the_probability(order):
    u = uniforms(SHAPE, op=Op.RESET, sample=9)

    def run():
        w = weights()
        slow.reset(w, 0, 37, float(u[1, 5]), 0.1, None, None, stream=STREAM, event=9, status=OK)
        return (w,)

    assert_same_bits(both(run, order)[0] == weights(), u >= u[1, 5])


def test_a_weight_is_dropped_by_a_draw_below_the_probability(order):
    u = uniforms(64, op=Op.MODIFY, sample=9, draw=2)
    change = training.Modification(0, drop=float(u[33]))

    def run():
        w, largest = np.ones(64, np.float32), np.ones(1, np.float32)
        how = {"stream": STREAM, "event": 9, "status": OK, "out": w}
        return (training.modify_weights(w, largest, change, **how),)

    assert_same_bits(both(run, order)[0] == 1, u >= u[33])


def test_a_chopper_flips_by_a_draw_below_the_probability(order):
    u = uniforms(4096, op=Op.CHOPPER, sample=3)
    v, plus = np.ones((4, 9), np.float32), np.ones(9, np.int8)

    def run():
        due = Events(3 * 4096, 9, reads=9)
        how = {"stream": STREAM, "status": OK}
        return transfer.chop_samples(v, plus, None, due, (False, False), float(u[4]), **how)

    assert_same_bits(both(run, order)[1] // 4 == 1, u[:9] < u[4])


@pytest.mark.parametrize("slot", [0, 1, 2, 3, 6])
def test_a_slot_fires_by_a_draw_below_the_probability(slot, order):
    """Learning rate and granularity make both scales 1, so that values are probabilities."""
    x, d = (
        np.stack([uniforms(n, op=op, sample=4, draw=slot)])
        for n, op in ((40, Op.UPDATE_X), (35, Op.UPDATE_D))
    )
    fixed = rk.UpdateParameters(desired_bl=8, update_management=False, update_bl_management=False)

    def run():
        how = {"stream": STREAM, "first_sample": 4, "status": OK}
        trains = update.pulse_trains(x, d, 0.25, 2.0**-5, fixed, **how)
        return trains.x, trains.d

    for train in both(run, order):
        assert train.any()
        assert not (train >> slot & 1).any()


def test_a_few_samples_fire_by_draws_below_the_probability(order):
    """Kernel pulsed_samples. Each sample has ties at another slot."""
    cell = rk.ConstantStep(dw_min=2.0**-5)
    fixed = rk.UpdateParameters(desired_bl=8, update_management=False, update_bl_management=False)
    stream = rk.AnalogTile((35, 40), cell, seed=2).stream
    x, d = (
        np.stack(
            [
                rk.elementwise.random_fill(stream, n, "uniform", op=op, sample=s, draw=2 * s + 1)
                for s in range(3)
            ]
        )
        for n, op in ((40, Op.UPDATE_X), (35, Op.UPDATE_D))
    )

    def run():
        tile = rk.AnalogTile((35, 40), cell, update=fixed, seed=2, count_pulses=True)
        tile.update(x, d, lr=0.25)
        return np.asarray(tile), tile.pulse_counts

    assert both(run, order)[1].any()


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_the_largest_number_is_finite(name):
    """Kernel check_finite."""
    for value, raised in ((np.finfo(name).max, 0), (np.inf, 5)):
        status = np.zeros(1, np.int32)
        with on_cpu():
            check_finite(np.array([1, -value, 2], name), status=status, call=5)
        assert status[0] == raised


def test_a_label_behind_the_classes_is_unknown(order):
    """What a GPU does with labels that nobody looked at; the op looks at those of the host."""
    kernel, z = Kernel("softmax_cross_entropy"), np.zeros((4, 3), np.float32)
    labels, loss, gradient = np.array([0, -1, 2, 3], np.int32), np.zeros(4, np.float32), z.copy()
    with on_cpu(order):
        kernel.launch((1,), (128,), (4, 3, z, labels, loss, gradient))
    for out in (loss, gradient[:, 0]):
        assert np.isnan(out).tolist() == [False, True, False, True]


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_a_token_behind_the_vocabulary_has_no_probability(name, order):
    """What a GPU does with targets that nobody looked at: NaN, for the first one as well."""
    rng, n_row, n_vocab = np.random.default_rng(0), 5, 128
    peak, mass = (rng.uniform(1, 2, (n_row, 2)).astype(name) for _ in range(2))
    chosen = rng.uniform(0, 1, n_row).astype(name)
    targets = np.array([0, -1, n_vocab - 1, n_vocab, n_vocab + 1])

    def run():
        normaliser, found = np.zeros((n_row, 2), name), np.zeros(n_row, name)
        logprob.logprob_rows(peak, mass, chosen, targets, n_vocab, normaliser, found)
        return normaliser, found

    found = both(run, order)[1]
    assert np.isnan(found).tolist() == [False, False, False, True, True]
    assert found[1] == 0


def draws_of(nodes, rows):
    """The draws that choose at some rows of a circuit in its first sample, and its stream."""
    core = rk.Circuit(nodes, seed=1)._core
    u = rk.elementwise.random_fill(
        core.stream, core.parameters.layout.n_row, "uniform", op=Op.CIRCUIT, sample=0
    )
    return u[rows]


def pairs(u):
    """Probabilities of two choices each, the first of which is the draw itself."""
    return np.stack([u, 1 - u], 1).astype(np.float32)


def test_a_child_is_drawn_where_the_sum_passes_the_draw(order):
    """Kernel choose_down: a first child whose weight is the draw is not chosen, the second one is.

    The rows of 12 sums follow those of their 24 children, which have one value each.
    """

    def nodes(weights):
        ones = np.eye(2, dtype=np.float32)
        leaves = [
            circuits.inputs(v, circuits.Categorical(n_values=2), 2, parameters=ones)
            for v in range(12)
        ]
        sums = [
            circuits.sum(leaf, n_nodes=1, parameters=w[None])
            for leaf, w in zip(leaves, weights, strict=True)
        ]
        return circuits.product(*sums)

    u = draws_of(nodes(np.full((12, 2), 0.5)), slice(24, 36))
    x = both(lambda: (rk.Circuit(nodes(pairs(u)), seed=1).sample(1),), order)[0]
    assert x.tolist() == [[1] * 12]


def test_a_value_is_drawn_where_the_sum_passes_the_draw(order):
    """Kernel leaf_choose: a first value whose probability is the draw is not chosen.

    Of the leaves, only those with a table that keeps probability and sum exactly come to a tie.
    """

    def nodes(weights):
        return circuits.product(
            *(
                circuits.inputs(v, circuits.Categorical(n_values=2), 1, parameters=w[None])
                for v, w in enumerate(weights)
            )
        )

    u = draws_of(nodes(np.full((40, 2), 0.5)), slice(0, 40))
    x = both(lambda: (rk.Circuit(nodes(pairs(u)), seed=1).sample(1),), order)[0]
    p = [[math.exp32(math.log32(v)) for v in w] for w in pairs(u)]
    ties = [q[0] == v and np.float32(q[0] + q[1]) == 1 for q, v in zip(p, u, strict=True)]
    assert sum(ties) > 3
    assert (x[0][ties] == 1).all()


def test_inputs_that_are_not_finite_stop_all_threads(order):
    """Kernel tile_forward with scales of its own: no output of any sample, whoever looks when."""
    seen = []

    def run(variant, grid, block, args, shared):
        if variant.source.name == "tile_forward" and variant.macros.get("INPUTS") == "2":
            names = [p.name for p in variant.source.entries["tile_forward"]]
            x, y, status = (names.index(name) for name in ("x", "y", "status"))
            args = list(args)
            args[x] = args[x].copy()
            args[x].reshape(2, 132)[1, 100] = np.nan
            args[y][...] = 1
            runner.run(variant, grid, block, args, shared)
            seen.append((args[y].copy(), int(args[status][0])))
        else:
            runner.run(variant, grid, block, args, shared)

    tile = rk.AnalogTile((35, 132), rk.Ideal(), seed=1)
    tile.set_weights(np.full((35, 132), 0.1, np.float32))
    testing.set_runner(run)
    try:
        with on_cpu(order):
            tile.forward(np.ones((2, 132), np.float32))
    except rk.errors.RpukitError:
        pass
    finally:
        testing.set_runner(runner.run)
    assert seen
    for y, status in seen:
        assert status > 0
        assert not y.any()


@pytest.mark.sweep
def test_tensor_cores_of_one_stage(order):
    """Kernels tensor_forward and tensor_backward: totals lie where a stage's factors were."""
    x = np.arange(42).reshape(21, 2) * 5 % 7
    pc = rk.Circuit(circuits.hmm(2, 20, 7), seed=1, precision="bf16")
    for ours, theirs in [both(lambda: (pc.log_likelihood(x), *pc.flows(x).values()), order)[:2]]:
        assert np.isfinite(ours).all() and np.isfinite(theirs).all()


def test_of_equal_children_and_values_the_first_is_most_probable(order):
    """Kernels choose_down and leaf_choose, and largest_down."""
    leaf = circuits.inputs(
        0, circuits.Categorical(n_values=3), 2, parameters=np.full((2, 3), 1 / 3)
    )
    known = circuits.inputs(1, circuits.Categorical(n_values=2), 2, parameters=np.eye(2))
    root = circuits.sum(circuits.product(leaf, known), n_nodes=1, parameters=[[0.5, 0.5]])
    pc, x = rk.Circuit(root, seed=1), np.array([[0, 0], [0, 0], [0, 1]])
    missing = np.array([[True, True], [True, False], [True, False]])
    found = both(lambda: pc.most_probable(x, missing=missing), order)[0]
    assert found.tolist() == [[0, 0], [0, 0], [0, 1]]
