"""Counts of weights by themselves: chains that end beside a call's end, and wide steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

import rpukit as rk
from rpukit import _device, circuits
from rpukit.circuits.ops import counts, layers, sum_launch, sum_tensor_core
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import uniform


def counted(device, dtype, uses, states, calls, *, split, tiles=None):
    """Steps of tied weights, of which a fifth is wide: by a node whose weights are all 0."""
    precision = "bf16x3" if split else "fp32"
    root = circuits.hmm(uses + 1, states, 2)
    pc = rk.Circuit(root, device=device, dtype=dtype, precision=precision)
    of = next(uses for uses, by_parts in pc._core.parameters.counted if by_parts == split)
    layout, statistics = pc._core.layout, pc._core.statistics
    theta = uniform((len(statistics.chains),), 131).astype(dtype)
    theta[theta < 0.3] = 0
    for first, n_child, size in of.theta:
        theta[first : first + n_child * size : size] = 0
    theta, rows = put(theta, device), _device.to_numpy(of.row)
    held = SimpleNamespace(
        n_sample=0, chains=statistics.chains, totals=statistics.totals, clock=statistics.clock
    )
    out = []
    for seed, n in enumerate(calls):
        lift = uniform((n, layout.n_row), 132 + seed).astype(np.float64) * 6
        elements = uniform((n, layout.n_element), 142 + seed).astype(np.float64) * -9
        wide = uniform((n, len(rows)), 152 + seed) < np.float32(0.2)
        lift[:, rows] = np.where(wide & (seed == 0), 72.5, lift[:, rows])
        values, flows = np.zeros(lift.shape), np.ones(lift.shape, dtype)
        lift, elements, values, flows = (
            put(np.ascontiguousarray(a), device)
            for a in (lift, elements.reshape(-1), values, flows)
        )
        steps = counts.flow_steps(of, lift, elements, values, flows, split=split)
        with patch.object(counts, "_TILES", tiles) if tiles else nullcontext():
            (counts.tensor_flow if split else counts.sum_flow)(held, of, theta, steps)
        held.n_sample += n
        held.clock += n
        out += [held.chains.copy(), held.totals.copy()]
    return out


def long(device, dtype, precision):
    """Sums of more inputs than the threads of a list hold, and than a block has stages for."""
    n_in, n_out, n = 1090, 8, 3
    root = circuits.sum(circuits.inputs(0, circuits.Categorical(n_values=2), n_in), n_nodes=n_out)
    pc = rk.Circuit(root, device=device, dtype=dtype, precision=precision)
    parameters = pc._core.parameters
    layer, rounded = parameters.layers[0], parameters.rounded
    drawn = uniform((n_in, n_out), 151) / 2 + np.float32(0.125)
    drawn[::3, 1] = 0
    theta = put(drawn.reshape(-1), device)
    sum_tensor_core.round_weights(parameters.counted[0][0], theta, rounded)
    elements = uniform((n, n_in), 152).astype(np.float64) * -30
    elements[1] = -np.inf
    values = np.zeros((n, n_in + n_out))
    elements, values = put(elements, device), put(values, device)
    sum_tensor_core.tensor_forward(layer, rounded, theta, elements, values)
    lift = uniform((n, n_in + n_out), 153).astype(np.float64) * 40
    lift, flows = put(lift, device), put(np.zeros((n, n_in), np.float32), device)
    near = put(uniform((n, n_in), 154).astype(np.float64) * -3 - 39, device)
    sum_tensor_core.tensor_backward(layer, rounded, theta, None, lift, near, None, flows)
    return [values, flows]


def padded(device, *, split):
    """Exponentials of lists of other lengths than a copy's, with the zeros behind them."""
    lists = [np.array([0, 5]), np.array([5, 11], np.int32), np.array([0, 8], np.int32)]
    rows = np.arange(16, dtype=np.int32)[::-1].copy().reshape(16, 1)
    values = uniform((3, 16), 176).astype(np.float64) * -5
    values[1, 11:] = -np.inf
    *lists, rows, values = (put(a, device) for a in (*lists, rows, values))
    given = ((*lists, 24, 11), rows, values, None, 1)
    made = sum_tensor_core.tensor_stage(*given, split=split)
    return [made.words, made.top]


def staged(device):
    """More segments than a block takes at a time, each with a larger value than those before."""
    n_in, n = 1090, 4
    pc = rk.Circuit(
        circuits.sum(circuits.inputs(0, circuits.Categorical(n_values=2), n_in), n_nodes=8),
        device=device,
    )
    theta = put(uniform((n_in * 8,), 171), device)
    elements = uniform((n, n_in), 172).astype(np.float64) * 3 + np.arange(n_in) * 0.02
    elements[1:3, :64] = -np.inf
    elements, values = put(elements, device), put(np.zeros((n, n_in + 8)), device)
    layers.sum_forward(pc._core.parameters.layers[0], theta, elements, values)
    return [values]


def parents(device, n_in=17, shape=None):
    """Flows from two vectors of sums, each without flow in some samples."""
    children = circuits.inputs(0, circuits.Categorical(n_values=2), n_in)
    both = [
        circuits.product(
            circuits.sum(children, n_nodes=40),
            circuits.inputs(1, circuits.Categorical(n_values=2), 40),
        )
        for _ in range(2)
    ]
    pc = rk.Circuit(circuits.sum(*both, n_nodes=1), device=device)
    layer, n, n_row = pc._core.parameters.layers[0], 37, pc._core.layout.n_row
    theta = put(uniform((len(pc._core.statistics.chains),), 173), device)
    lift = uniform((n, n_row), 174).astype(np.float64) * 20
    first = int(layer.first_row)
    lift[::3, first : first + 40] = -np.inf
    lift[1::3, first + 40 : first + 80] = -np.inf
    elements = uniform((n, n_in), 175).astype(np.float64) * -3 - 20
    lift, elements, flows = (put(a, device) for a in (lift, elements, np.zeros((n, n_in), "f4")))
    with patch.object(sum_launch, "mixing", lambda *_: shape) if shape else nullcontext():
        layers.sum_backward(layer, theta, lift, elements, flows)
    return [flows]


def cases() -> Iterator[tuple[str, Case]]:
    for dtype in ("float32", "float64"):
        run = partial(counted, dtype=dtype, uses=2, states=8, calls=(255, 3), split=False)
        yield "sum_flow", Case(f"{dtype}-ends", run)
    for uses, states, calls in ((16, 8, (255, 3)), (64, 4, (7,)), (70, 9, (5,))):
        run = partial(counted, dtype="float32", uses=uses, states=states, calls=calls, split=True)
        yield "tensor_flow", Case(f"bf16x3-ends-{uses}", run)
    for name in ("bf16", "bf16x3"):
        yield "tensor_stage", Case(f"{name}-padded", partial(padded, split=name == "bf16x3"))
    yield "sum_forward", Case("float32-staged", staged)
    yield "sum_backward", Case("float32-parents", parents)
    run = partial(parents, n_in=65, shape=sum_launch.Mixing(64, 4, 64, 8, 8))
    yield "sum_backward", Case("float32-parents-tile", run)
    run = partial(counted, dtype="float32", uses=40, states=72, calls=(4,), split=True)
    run = partial(run, tiles=counts._TILES[:1])
    yield "tensor_flow", Case("bf16x3-ends-tile", run)
    for precision in ("bf16", "bf16x3"):
        run = partial(long, dtype="float32", precision=precision)
        for kernel in ("tensor_backward", "tensor_forward", "tensor_stage"):
            yield kernel, Case(f"{precision}-long", run)
