"""Draws, sums and steps where two numbers are equal, or rounding decides; arrays without gaps."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import numpy as np

import rpukit as rk
from rpukit import _device, circuits
from rpukit.circuits.ops import counts, evaluated
from rpukit.circuits.ops import layers as ops
from rpukit.circuits.queries import passes
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import CHAINS, chained, uniform

OP, KEYS = 4, (np.uint32(7), np.uint32(9))
# Of row 5: theta, number of the sample, elements. Running sums end at a share of the whole, but
# for another order or rounding of the sums; a child without weight is far above the others; and
# weights are so small that no sum passes the share.
WEIGHTS, SMALL = (0.7, 0.3, 0.45, 0.61), 1.401298464324817e-45
CHOICES = (
    (WEIGHTS, 0, (-1.421800481546598, 0.0, -0.907713852141002, -0.07279936224222183)),
    (WEIGHTS, 0, (-1.421800481546598, 0.0, -0.907713852141002, -0.07279948890209198)),
    (WEIGHTS, 0, (-1.421800481546598, 0.0, -0.907713852141002, -0.07279955595731735)),
    (WEIGHTS, 4, (-0.8496110538974545, 0.0, -1.1585011369060514, -0.07892736792564392)),
    ((0.0, 0.3, 0.45, 0.61), 3, (300.0, 0.0, -0.5, -0.25)),
    ((3 * SMALL, SMALL, 0.0, 0.0), 5, (0.0, 0.0, 0.0, 0.0)),
)
# By row: a table whose first probability is the share drawn; a rate likewise.
TABLES = {2: -0.159245565533638, 5: -0.24998581409454346, 6: -0.1973462998867035}
RATES = {1: "0x1.fb5d7f7dbe600p+0", 2: "0x1.2be704546f11bp-1", 3: "0x1.28fc894172b6dp-2"}
# A weight times exp(-0.11) is the smallest normal number.
GAP, LEAST = 0.11, 1.312178544460841e-38


def of_leaves(leaf, n, device, dtype="float32", n_nodes=1):
    """A sum of ``n`` leaves of one variable; its circuit and its layer."""
    root = circuits.sum(circuits.inputs(0, leaf, n), n_nodes=n_nodes)
    pc = rk.Circuit(root, device=device, dtype=dtype)
    return pc, pc._core.parameters.layers[0]


def drawn(device):
    """Children of row 5, the second sum of four leaves."""
    _, layer = of_leaves(circuits.Categorical(n_values=2), 4, device, n_nodes=2)
    out = []
    for weights, sample, elements in CHOICES:
        theta = np.full((5, 2), 1, np.float32)  # one more than there are
        theta[:4, 1] = weights
        chosen = np.zeros((1, 6), bool)
        chosen[0, 5] = True
        given = (put(np.array(a, order="C"), device) for a in (theta.reshape(-1), [elements]))
        chosen = put(chosen, device)
        ops.choose_down(layer, (False, sample, *KEYS, OP), *given, chosen)
        out.append(chosen)
    return out


def leaves_drawn(device, dtype):
    """Values of tables, and counts, where the running probability is the share drawn."""
    n = 7
    tables = np.full((n, 3), -1.0, dtype)
    for row, first in TABLES.items():
        tables[row] = first, -1.3, -0.9
    rates = np.array([float.fromhex(RATES.get(row, "0x1p+1")) for row in range(4)], dtype)
    given = {
        "kinds": np.array([0] * n + [6] * 4, np.int32),
        "variable": np.arange(n + 4, dtype=np.int32),
        "place": np.concatenate([np.arange(n) * 3, np.arange(4)]),
        "sizes": np.array([3] * n + [0] * 4, np.int32),
    }
    out = []
    for kinds in (slice(0, n), slice(n, n + 4)):
        rows = {name: put(a[kinds].copy(), device) for name, a in given.items()}
        of = SimpleNamespace(**rows, table=put(tables.reshape(-1), device))
        of.parameters = put(rates, device)
        size = (1, len(given["kinds"][kinds]))
        of.variable -= of.variable[0]
        codes, numbers = np.full(size, -1, np.int32), np.full(size, np.nan, dtype)
        codes, numbers, chosen = (put(a, device) for a in (codes, numbers, np.ones(size, bool)))
        ops.leaf_choose(of, (False, 0, *KEYS, OP), codes, numbers, chosen)
        out += [codes, numbers]
    return out


def least(device):
    """Totals that are the smallest normal number, both ways; the likeliest has no weight."""
    _, layer = of_leaves(circuits.Categorical(n_values=2), 4, device, n_nodes=2)
    theta = np.zeros((4, 2), np.float32)
    theta[1] = theta[3, 0] = LEAST
    theta[2, 1] = 1
    elements = np.array([[0.0, -GAP, -300.0, -300.0], [0.0, -300.0, -200.0, -GAP]])
    values = np.zeros((2, 6))
    theta, elements, values = (put(a, device) for a in (theta.reshape(-1), elements, values))
    ops.sum_forward(layer, theta, elements, values)
    above = np.zeros((4, 2), np.float32)
    above[:, 1], above[3, 0] = LEAST, 1
    lift = np.tile([0, 0, 0, 0, 100.0, 100.0 - GAP], (2, 1))
    elements = np.tile([-13.0, -12.5, -13.5, -101.0], (2, 1))
    flows = np.zeros((2, 4), np.float32)
    above, lift, elements, flows = (
        put(a, device) for a in (above.reshape(-1), lift, elements, flows)
    )
    ops.sum_backward(layer, above, lift, elements, flows)
    return [values, flows]


def lifts(device, dtype):
    """Lifts of rows with a flow that are impossible, or at the end of what is computed."""
    values, flows = np.full((3, 5), -1.5), np.full((3, 5), 0.25, dtype)
    values[1], flows[2, 3], flows[0, 3] = -np.inf, 0, np.inf
    lift = np.full((3, 5), 7.0)
    values, flows, lift = (put(a, device) for a in (values, flows, lift))
    ops.sum_lift(values, flows, lift, (1, 4))
    return [lift]


def passed(device):
    """The same totals in layers that go in one launch; the upper one has no flow."""
    sums = circuits.sum(circuits.inputs(0, circuits.Categorical(n_values=2), 4), n_nodes=2)
    state = rk.Circuit((sums, circuits.sum(sums, n_nodes=1))).state()
    theta = np.zeros((4, 2), np.float32)
    theta[0, 0], theta[1, 1], theta[2, 1] = 1, 1, LEAST
    state["arrays"]["theta"] = np.append(theta.reshape(-1), np.full(2, 0.5, np.float32))
    values = np.zeros((2, 7))
    values[:, :4] = (0, -300, -GAP, -1), (-100, -99.95, -13, -200)
    above = np.array([[1.0, 0.5, 0.0], [1.0, 1.6559962034225464, 0.0]], np.float32)
    codes, numbers = np.zeros((2, 1), np.int32), np.zeros((2, 1), np.float32)
    with chained():
        parameters = rk.Circuit.from_state(state, device)._core.parameters
        run = passes.Pass(*(put(a, device) for a in (codes, numbers, values)))
        passes.run_inner(parameters, run, keep=True)
        passes.run_down(parameters, run, put(above, device))
    return [run.values, run.flows]


def roots(device):
    """Three roots that are one row, and one beside them."""
    n = 41
    weights = uniform((n, 4), 125) * np.array([1, 0.5, 0.3, 0.07], np.float32)
    values, flows = np.full((n, 6), -1.5), np.zeros((n, 6), np.float32)
    values[3, 5] = -np.inf
    out = np.zeros((n, 4), np.float32)
    weights, values, flows, out, rows = (
        put(a, device) for a in (weights, values, flows, out, np.array([5, 4, 5, 5], np.int32))
    )
    ops.root_flows(rows, 4, weights, values, flows, out)
    return [flows, out]


def endless(device):
    """Flows of infinity, whose logarithm is infinity."""
    pc, _ = of_leaves(circuits.Categorical(n_values=2), 4, device, n_nodes=4)
    uses = pc._core.parameters.counted[0][0]
    values = np.tile(np.arange(8) / -4.0, (3, 1))
    flows = uniform((3, 8), 126)
    flows[1, 5], flows[2, 4:] = np.inf, 0
    values, flows = put(values, device), put(flows, device)
    lift, elements = put(np.zeros((3, 8)), device), values[:, :4].copy().reshape(-1)
    if _device.takes_kernels(values):  # they make both themselves
        return [*counts.flow_steps(uses, None, None, values, flows)]
    ops.sum_lift(values, flows, lift, (0, 8))
    return [*counts.flow_steps(uses, lift, elements, values, flows)]


def steps(device, dtype):
    """Exponents of 60 in all, and beside it; pairs of samples and one; no gap behind a use."""
    pc, _ = of_leaves(circuits.Categorical(n_values=2), 4, device, dtype, n_nodes=4)
    uses = pc._core.parameters.counted[0][0]
    n = 129
    lift = np.tile([0, 0, 0, 0, 40.0, 20.0, -np.inf, 60.0], (n, 1))
    elements = np.tile([-3.0, 0.0, -1.0, -np.inf], (n, 1))
    elements[1::2, 1] = 0.25
    lift[2::3, 7], lift[3::5, 4:] = 59.5, -np.inf
    values, flows = np.zeros((n, 8)), np.ones((n, 8), dtype)
    lift, elements, values, flows = (
        put(a, device) for a in (lift, elements.reshape(-1), values, flows)
    )
    return [*counts.flow_steps(uses, lift, elements, values, flows)]


def whole(device, dtype):
    """As many segments as a block takes at a time, all of them whole."""
    _, layer = of_leaves(circuits.Categorical(n_values=2), 512, device, dtype, n_nodes=3)
    theta = uniform((512 * 3,), 121).astype(dtype)
    elements = uniform((1, 512), 122).astype(np.float64) * 20
    values = np.zeros((1, 515))
    theta, elements, values = (put(a, device) for a in (theta, elements, values))
    ops.sum_forward(layer, theta, elements, values)
    return [values]


def angles(device):
    """Angles three quarters of a turn and more off, some as near to it as numbers are."""
    halves = ("0x1.2d97c7f3321d3p+2", "0x1.78fdb9effea46p+4", "0x1.1a5p+2", "0x1.23456789p+3")
    low = [circuits.inputs(v, circuits.VonMises(), 1) for v in range(len(halves))]
    pc = rk.Circuit(circuits.product(*low), device=device, dtype="float64")
    one = pc._core.parameters.rows.functions[0]
    parameters = put(np.array([[0.0, 1.5 + v] for v in range(4)]).reshape(-1), device)
    numbers = put(np.array([[2 * float.fromhex(h) for h in halves]]), device)
    values, flows = (put(np.ones((1, 5)), device) for _ in range(2))
    evaluated.leaf_density(one, parameters, numbers, values)
    evaluated.leaf_statistic(pc._core.statistics, one, parameters, numbers, flows)
    return [values, pc._core.statistics.leaf_chains]


def maximised(device):
    """Newton steps: of many shapes; of angles on a diagonal or axis; of a concentration of 30."""
    u = uniform((3, 3000), 123).astype(np.float64)
    shapes = np.zeros((3000, 4))
    shapes[:, 0], shapes[:, 1] = 1, u[0] * 3.5 - 0.5
    shapes[:, 2] = -(shapes[:, 1] ** 2) - u[1] * 3 - 0.001
    turns = np.zeros((68, 4))
    turns[:, 0], turns[:, 2] = 1, u[2, :68] / 2 + 0.5
    turns[:, 1] = 1 - turns[:, 2]
    turns[64:, 1:3] = (2, 0), (float.fromhex("0x1.17e261fc1e63ap-6"), 0), (0.01, 0), (1e-4, 1e-3)
    rates = np.array([[1.0, 0, 0], [1.0, 0.5, 0.25]])
    out = []
    for leaf, totals, own in (
        (circuits.Gamma(), shapes, np.repeat([[1.0, 2.0]], 3000, 0) + u[:2].T),
        (circuits.VonMises(), turns, np.tile([0.0, 1.5], (68, 1))),
        (circuits.Exponential(), rates, np.ones((2, 1))),
    ):
        for step in (1.0, 0.75):
            parameters = put(own.reshape(-1).copy(), device)
            held = [put(a, device) for a in (np.zeros(totals.size), totals.reshape(-1).copy())]
            evaluated.function_maximise(leaf, step, 0.0, *held, parameters)
            out.append(parameters)
    return out


def counts_of_none(device, dtype):
    """Counts of 0, with nothing wrong beside them."""
    pc, _ = of_leaves(circuits.Poisson(), 2, device, dtype)
    xp = np if device == "cpu" else _device.cupy()
    codes, numbers = xp.empty((3, 1), np.int32), xp.empty((3, 1), dtype)
    x = put(np.array([[0.0], [1.0], [7.0]], dtype), device)
    pc._core.encoder.into(x, None, codes, numbers)
    pc._core.encoder.check()
    return [codes, numbers]


def bins(device, dtype):
    """Bins whose edges need rounding, and a step of a mean that is one of the edges."""
    n, given = 12, [[2.0, 0.25 + 0.0625 * k] for k in range(12)]
    odd = circuits.inputs(0, circuits.DiscreteLogistic(n_values=7, low=-0.3, high=1.9), n)
    even = circuits.inputs(
        1, circuits.DiscreteLogistic(n_values=4, low=0.0, high=4.0), n, parameters=given
    )
    pc = rk.Circuit(
        circuits.sum(circuits.product(odd, even), n_nodes=1), device=device, dtype=dtype
    )
    state = pc.state()
    own = uniform((2 * n,), 124) / 2 + np.float32(0.25)
    state["arrays"]["leaf_parameters"][: 2 * n] = own
    state["arrays"]["theta"][:] = (np.arange(n) + 1) / 78
    pc = rk.Circuit.from_state(state, device)
    x = put(np.stack([np.arange(28) % 7, np.arange(28) % 4], 1).astype(np.int32), device)
    out = [pc.log_likelihood(x), pc.gradient_step(x, method="sgd", rate=4.0)]
    arrays = pc.state()["arrays"]
    return [*out, *(arrays[name] for name in sorted(arrays))]


def cases() -> Iterator[tuple[str, Case]]:
    yield "choose_down", Case("float32-ties-drawn", drawn)
    for kernel in ("sum_forward", "sum_backward"):
        yield kernel, Case("float32-least", least)
    yield "sum_forward", Case("float32-whole", partial(whole, dtype="float32"))
    for kernel in ("leaf_density", "leaf_statistic"):
        yield kernel, Case("float64-angles", angles)
    yield "function_maximise", Case("float64-ties", maximised)
    for kernel in CHAINS:
        yield kernel, Case("float32-passed", passed)
    yield "root_flows", Case("float32-tied-roots", roots)
    yield "flow_steps", Case("float32-endless", endless)
    yield "encode_samples", Case("float32-none", partial(counts_of_none, dtype="float32"))
    for dtype in ("float32", "float64"):
        yield "leaf_choose", Case(f"{dtype}-ties-drawn", partial(leaves_drawn, dtype=dtype))
        yield "sum_lift", Case(f"{dtype}-lifts", partial(lifts, dtype=dtype))
        yield "flow_steps", Case(f"{dtype}-sixty", partial(steps, dtype=dtype))
        for kernel in ("leaf_table", "leaf_climb"):
            yield kernel, Case(f"{dtype}-bins", partial(bins, dtype=dtype))
