"""Leaves and products where arrays end, chains that end between calls, samples of no weight."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from unittest.mock import patch

import numpy as np

import rpukit as rk
from rpukit import circuits
from rpukit.circuits.ops import normal
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import made, uniform

LEAVES = ("leaf_density", "leaf_flow", "leaf_statistic", "normal_density", "normal_statistic")


def mixed():
    """Wide tables, normal leaves of one variable and of two, and leaves of one parameter."""
    pair = circuits.MultivariateNormal(n_variables=2)
    low = (
        circuits.inputs(0, circuits.Categorical(n_values=40), 3),
        circuits.inputs(1, circuits.Gaussian(std=2.0), 3),
        circuits.inputs((2, 3), pair, 3),
        circuits.inputs(4, circuits.Exponential(), 3),
    )
    return circuits.sum(circuits.product(*low), n_nodes=1)


def ends(device, dtype):
    """Two samples, then those to the end of a chain and beyond; far ones have no weight."""
    pc = rk.Circuit.from_state(made(mixed, dtype), device)
    x = uniform((259, 5), 161) * np.float32(3)
    x[:, 0] = np.floor(x[:, 0] * 13)
    weights = uniform((259,), 162)
    x[5::50, 1:4], weights[5::50] = 1e25, 0
    missing = uniform(x.shape, 163) < np.float32(0.25)
    missing[:, 4] = False
    out = []
    for part in (slice(0, 2), slice(2, 259)):
        given = (put(a[part].copy(), device) for a in (x, missing, weights))
        some, unknown, weighed = given
        out.append(pc.accumulate(some, missing=unknown, weights=weighed))
        arrays = pc.state()["arrays"]
        out += [arrays[name].copy() for name in ("leaf_chains", "leaf_totals")]
    return out


def pairs():
    """Normal leaves of two variables alone."""
    leaf = circuits.MultivariateNormal(n_variables=2)
    return circuits.sum(circuits.inputs((0, 1), leaf, 3), n_nodes=1)


def few_blocks(device, dtype):
    """Blocks that go on to further samples; factors whose entries fill a number."""
    state = made(pairs, dtype)
    own = uniform(state["arrays"]["leaf_parameters"].shape, 301) + np.float32(0.5)
    state["arrays"]["leaf_parameters"] = (own.astype(np.float64) / 3).astype(dtype)
    pc = rk.Circuit.from_state(state, device)
    x, missing = uniform((257, 2), 168) * 4 - 2, uniform((257, 2), 169) < np.float32(0.3)
    x, missing = put(x, device), put(missing, device)
    with patch.object(normal, "_MOST_ROWS", 1):
        out = [*pc.flows(x, missing=missing).values(), pc.accumulate(x, missing=missing)]
    arrays = pc.state()["arrays"]
    return [*out, arrays["leaf_chains"], arrays["leaf_totals"]]


def many_values(device):
    """A table in parts of 32 values, whose chains end."""
    leaf = circuits.Categorical(n_values=2000)
    root = circuits.sum(circuits.inputs(0, leaf, 1), n_nodes=1)
    pc = rk.Circuit.from_state(made(lambda: root, "float32"), device)
    x = np.floor(uniform((260, 1), 170) * np.float32(256)).astype(np.int32)
    pc.accumulate(put(x, device), weights=put(uniform((260,), 171), device))
    arrays = pc.state()["arrays"]
    return [arrays["leaf_chains"], arrays["leaf_totals"]]


def overflown(device, dtype):
    """Squares of distances whose sum is infinite: the leaf stays as it is."""
    leaf = circuits.Gaussian(std=1.0)
    given = [[0.0, 1e18], [1e17, 2e18]]
    root = circuits.sum(circuits.inputs(0, leaf, 2, parameters=given), n_nodes=1)
    state = rk.Circuit(root, dtype=dtype).state()
    state["arrays"]["theta"][:] = 0.5
    pc = rk.Circuit.from_state(state, device)
    x = np.array([[1.5e19], [-1.25e19], [1.375e19], [1.25e19]], dtype)
    pc.em_step(put(x, device), pseudocount=0.0)
    return [pc.state()["arrays"]["leaf_parameters"]]


def warps(device, dtype):
    """Tied leaves with more steps than a warp lists."""
    pc = rk.Circuit.from_state(made(lambda: circuits.hmm(3, 5, 4), dtype), device)
    x = np.floor(uniform((150, 3), 164) * np.float32(4)).astype(np.int32)
    pc.accumulate(put(x, device), weights=put(uniform((150,), 165), device))
    return [pc.state()["arrays"]["leaf_chains"]]


def unscaled(device):
    """A long chain of sums, and samples of no weight, whose flows are not scaled."""
    codes = np.floor(uniform((3, 36), 166) * np.float32(4)).astype(np.int32)
    pc = rk.Circuit.from_state(made(lambda: circuits.hmm(36, 5, 4), "float32"), device)
    weights = np.array([0.0, 1.0, 0.0], np.float32)
    return [*pc.flows(put(codes, device), weights=put(weights, device)).values()]


def leaves_alone(device):
    """A circuit that is a vector of leaves."""
    leaf = circuits.Categorical(n_values=40)
    pc = rk.Circuit.from_state(made(lambda: circuits.inputs(0, leaf, 33), "float32"), device)
    x = np.floor(uniform((70, 1), 167) * np.float32(40)).astype(np.int32)
    return [pc.log_likelihood(put(x, device))]


def excluded(device, dtype):
    """Soft evidence for values that a leaf excludes."""
    given = [[1.0, 0.0, 0.0], [0.25, 0.25, 0.5]]
    leaf = circuits.inputs(0, circuits.Categorical(n_values=3), 2, parameters=given)
    root = circuits.sum(leaf, n_nodes=1, parameters=[[0.5, 0.5]])
    pc = rk.Circuit(root, device=device, dtype=dtype)
    soft = np.array([[[0.0, 0.5, 1.0]], [[1.0, 0.5, 0.25]]], dtype)
    x, missing = put(np.zeros((2, 1), np.int32), device), put(np.ones((2, 1), bool), device)
    return [pc.conditional(x, missing=missing, soft=put(soft, device))]


def product_alone(device):
    """A product of one child at the end of the table."""
    made_of = circuits.sum(circuits.inputs(0, circuits.Bernoulli(), 4), n_nodes=3)
    pc = rk.Circuit.from_state(made(lambda: circuits.product(made_of), "float32"), device)
    x = put((np.arange(33) % 2).astype(np.int32)[:, None], device)
    return [pc.log_likelihood(x), *pc.flows(x).values()]


def cases() -> Iterator[tuple[str, Case]]:
    for kernel in LEAVES:
        yield kernel, Case("float32-calls", partial(ends, dtype="float32"))
    for kernel in ("normal_density", "normal_statistic"):
        for dtype in ("float32", "float64"):
            yield kernel, Case(f"{dtype}-few-blocks", partial(few_blocks, dtype=dtype))
    yield "leaf_flow", Case("float32-many-values", many_values)
    yield "leaf_maximise", Case("float32-overflown", partial(overflown, dtype="float32"))
    yield "leaf_flow", Case("float32-warps", partial(warps, dtype="float32"))
    yield "soft_posterior", Case("float32-excluded", partial(excluded, dtype="float32"))
    yield "scale_flows", Case("float32-unscaled", unscaled)
    yield "leaf_forward", Case("float32-alone", leaves_alone)
    yield "product_forward", Case("float32-alone-product", product_alone)
