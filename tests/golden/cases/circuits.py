"""The cases behind the golden hashes of circuits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device, circuits, elementwise
from rpukit.circuits.ops import em as steps
from tests.golden.cases.case import Case, put

KERNELS = [
    "choose_down",
    "flow_steps",
    "largest_forward",
    "leaf_choose",
    "leaf_flow",
    "leaf_forward",
    "leaf_maximise",
    "leaf_posterior",
    "leaf_table",
    "mark_products",
    "product_backward",
    "product_forward",
    "root_flows",
    "sum_backward",
    "sum_flow",
    "sum_forward",
    "sum_lift",
    "sum_maximise",
]
CHAINS = ["values_up", "flows_down"]  # of several layers
MANY = ["flow_steps", "sum_backward", "sum_flow", "sum_forward", "sum_stage"]  # of many samples


def every_leaf():
    """A root over all kinds of leaves, with kept products and sums that share children."""
    leaves = (
        circuits.Categorical(n_values=5),
        circuits.MaskedCategorical(n_values=4, allowed=(0, 2)),
        circuits.Bernoulli(),
        circuits.Binomial(n_trials=6),
        circuits.DiscreteLogistic(n_values=9),
        circuits.Indicator(n_values=3),
        circuits.Gaussian(std=2.0),
        circuits.Poisson(),
    )
    given = [[0], [1], [2]]
    low = [
        circuits.inputs(v, leaf, 3, parameters=given if v == 5 else None)
        for v, leaf in enumerate(leaves)
    ]
    left, right = circuits.product(*low[:4]), circuits.product(*low[4:])
    wide = circuits.sum(right, n_nodes=3)
    sparse = circuits.sum(left, n_nodes=3, edges=np.array([[0, 0, 1, 1, 2], [0, 2, 1, 2, 1]]))
    return circuits.sum(
        circuits.product(circuits.product(left, right)),
        circuits.product(sparse, wide),
        n_nodes=1,
    )


def chain():
    """Tied weights over three segments of children, the last one short."""
    return circuits.hmm(4, 131, 7)


def images():
    return circuits.pd((2, 3), 5, circuits.Categorical(n_values=4))


def uniform(shape, seed):
    return elementwise.random_fill(rk.Stream.from_seed(seed), shape, "uniform")


def made(root, dtype):
    """A circuit's state with parameters from draws alone: no library's exp is in them."""
    state = rk.Circuit(root(), dtype=dtype).state()
    for seed, name in enumerate(("theta", "leaf_parameters")):
        array = state["arrays"][name]
        drawn = (uniform(array.shape, seed) / 2 + np.float32(0.25)).astype(dtype)
        state["arrays"][name] = np.where(array == np.floor(array), array, drawn)
    return state


@cache
def of(name, dtype, device, _emulated):
    """All that a circuit does, on a device."""
    root, n = CIRCUITS[name]
    state = made(root, dtype)
    host = rk.Circuit.from_state(state)
    missing = uniform((n, host.n_variables), 5) < np.float32(0.2)
    given = (host.sample(n, first_sample=0), missing, uniform((n,), 6))
    x, missing, weights = (put(a, device) for a in given)
    pc = rk.Circuit.from_state(state, device)
    out = [pc.log_likelihood(x), pc.conditional(x[:9], missing=missing[:9])]
    out += pc.flows(x, missing=missing, weights=weights).values()
    out += [pc.sample(n), pc.sample(x=x, missing=missing), *pc.most_probable(x, missing=missing)]
    pc.accumulate(x[: n // 3 + 1], missing=missing[: n // 3 + 1])
    pc.em_step(x[n // 3 :], weights=weights[n // 3 :], step=0.75, pseudocount=0.5)
    pc.em_step(x, missing=missing, keep_zeros=True)
    pc.accumulate(x, missing=missing)
    state = pc.state()["arrays"]
    return [*out, *(state[name] for name in sorted(state))]


def of_many(device):
    """A pass over more samples than a block takes, three segments of children."""
    codes = np.floor(uniform((150, 2), 8) * np.float32(7)).astype(np.int32)
    pc = rk.Circuit.from_state(made(lambda: circuits.hmm(2, 132, 7), "float32"), device)
    out = [pc.accumulate(put(codes, device)), pc.accumulate(put(codes[:33], device))]
    state = pc.state()["arrays"]
    return [*out, *(state[name] for name in sorted(state))]


@contextmanager
def chained():
    """Let layers go in one launch."""
    for kernel in CHAINS:
        rk.tuning.fix(kernel, "chain of 16")
    try:
        yield
    finally:
        for kernel in CHAINS:
            rk.tuning.fix(kernel, None)


def of_chains(device, dtype):
    """Layers in one launch: more parts than a launch has blocks, layers of other sizes on top."""
    codes = np.floor(uniform((19, 5), 9) * np.float32(7)).astype(np.int32)
    with chained():
        pc = rk.Circuit.from_state(made(lambda: circuits.hmm(5, 132, 7), dtype), device)
        out = [pc.accumulate(put(codes, device)), pc.log_likelihood(put(codes[:2], device))]
        out += [*pc.flows(put(codes[:7], device)).values()]
    state = pc.state()["arrays"]
    return [*out, *(state[name] for name in sorted(state))]


def of_long(device):
    """A chain of sums so long that flows are scaled between."""
    codes = np.floor(uniform((9, 36), 10) * np.float32(4)).astype(np.int32)
    pc = rk.Circuit.from_state(made(lambda: circuits.hmm(36, 5, 4), "float32"), device)
    out = [pc.accumulate(put(codes, device)), *pc.flows(put(codes[:2], device)).values()]
    state = pc.state()["arrays"]
    return [*out, *(state[name] for name in sorted(state))]


def of_functions():
    """All leaves that functions evaluate, one shared by two variables."""
    leaves = (
        circuits.Geometric(),
        circuits.NegativeBinomial(n_successes=2.5),
        circuits.Exponential(),
        circuits.Gamma(),
        circuits.LogNormal(),
        circuits.VonMises(),
        circuits.StudentT(),
    )
    low = [circuits.inputs(v, leaf, 3) for v, leaf in enumerate(leaves)]
    low.append(low[-1].duplicate(var=7))
    return circuits.sum(circuits.product(*low), n_nodes=1)


def data_of_functions(device):
    """300 samples for them, and what of these is missing."""
    x = uniform((300, 8), 11) * np.float32(3) + np.float32(0.01)
    x[:, :2] = np.floor(x[:, :2])
    return put(x, device), put(uniform(x.shape, 12) < np.float32(0.2), device)


def evaluated(device, dtype):
    """Values and statistics of all leaves that functions evaluate; no step, no library's draw."""
    pc = rk.Circuit.from_state(made(of_functions, dtype), device)
    x, missing = data_of_functions(device)
    out = [pc.accumulate(x, missing=missing), *pc.flows(x[:9]).values()]
    state = pc.state()["arrays"]
    return [*out, *(state[name] for name in sorted(state))]


def functions_learnt(device, dtype):
    """Their parameters after a part of a step, and after whole ones."""
    pc = rk.Circuit.from_state(made(of_functions, dtype), device)
    x, missing = data_of_functions(device)
    found = []
    for step, pseudocount in ((0.7, 0.5), (1.0, 0.0), (1.0, 0.0)):
        pc.em_step(x, missing=missing, step=step, pseudocount=pseudocount)
        found.append(pc.state()["arrays"]["leaf_parameters"])
    return found


def of_normals():
    """Normal leaves of 3 and of 5 variables; those of 3 have two uses."""
    three = circuits.MultivariateNormal(n_variables=3)
    low = [circuits.inputs((4, 0, 2), three, 3)]
    low.append(low[0].duplicate((1, 3, 5)))
    low.append(circuits.inputs(6, circuits.MultivariateNormal(n_variables=5), 3))
    return circuits.sum(circuits.product(*low), n_nodes=1)


def data_of_normals(device):
    """130 samples for them: a third whole, a third in part, of a few nothing."""
    x, missing = uniform((130, 11), 21) * np.float32(4) - np.float32(2), np.zeros((130, 11), bool)
    missing[::3] = uniform((44, 11), 22) < np.float32(0.4)
    missing[1::30] = True
    return put(x, device), put(missing, device)


def of_normal(device, dtype):
    """Values and statistics of normal leaves of several variables."""
    pc = rk.Circuit.from_state(made(of_normals, dtype), device)
    x, missing = data_of_normals(device)
    out = [pc.accumulate(x, missing=missing), *pc.flows(x[:9]).values()]
    state = pc.state()["arrays"]
    return [*out, *(state[name] for name in sorted(state))]


CIRCUITS = {"leaves": (every_leaf, 260), "chain": (chain, 5), "images": (images, 19)}


def counted(device):
    """A clock and a sum of flows after samples of which some were impossible."""
    xp = np if device == "cpu" else _device.cupy()
    held = SimpleNamespace(clock=xp.full((1,), 7, np.int64), weighed=xp.full((1,), 0.1))
    out, weights = uniform((700, 3), 1), uniform((700, 3), 2)
    out[out < np.float32(0.3)] = -np.inf
    steps.count_samples(held, put(out, device), put(weights, device))
    return [held.clock, held.weighed]


def read(device, dtype, kind):
    """Codes and numbers of samples of all kinds of leaves, some of them wrong; 0 for NaN."""
    pc = rk.Circuit.from_state(made(every_leaf, dtype), device)
    shape = (37, pc.n_variables)
    x = (uniform(shape, 1) * 9 - 1).astype(kind).astype(dtype if kind == "float32" else kind)
    unknown = uniform(shape, 2) < np.float32(0.25)
    xp = np if device == "cpu" else _device.cupy()
    codes, numbers = xp.empty(shape, np.int32), xp.empty(shape, dtype)
    pc._core.encoder.into(put(x, device), put(unknown, device), codes, numbers)
    with pytest.raises(rk.errors.ParameterError, match="missing"):
        pc._core.encoder.check()
    return [codes, xp.where(xp.isnan(numbers), 0, numbers)]


def cases() -> Iterator[tuple[str, Case]]:
    for dtype in ("float32", "float64"):
        for kind in ("float32", "int64", "uint8"):
            yield "encode_samples", Case(f"{dtype}-{kind}", partial(read, dtype=dtype, kind=kind))
    yield "count_samples", Case("float32", counted)
    for kernel in ("leaf_density", "leaf_statistic"):
        for dtype in ("float32", "float64"):
            yield kernel, Case(f"{dtype}-evaluated", partial(evaluated, dtype=dtype))
    for kernel in ("normal_density", "normal_statistic"):
        for dtype in ("float32", "float64"):
            yield kernel, Case(f"{dtype}-normal", partial(of_normal, dtype=dtype))
    for dtype in ("float32", "float64"):
        yield "function_maximise", Case(dtype, partial(functions_learnt, dtype=dtype))
    for kernel in CHAINS:
        for dtype in ("float32", "float64"):
            yield kernel, Case(f"{dtype}-chains", partial(of_chains, dtype=dtype))
    yield "scale_flows", Case("float32-long", of_long)
    for kernel in MANY:
        yield kernel, Case("float32-many", of_many)
    for name in CIRCUITS:
        for dtype in ("float32", "float64"):

            def run(device, name=name, dtype=dtype):
                return of(name, dtype, device, _device._emulation_depth)

            for kernel in KERNELS:
                yield kernel, Case(f"{dtype}-{name}", run)
