"""Leaves at the ends of their supports, or without flow, and tables in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import rpukit as rk
from rpukit import circuits
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import (
    data_of_functions,
    data_of_normals,
    every_leaf,
    made,
    of_functions,
    of_normals,
    uniform,
)

EVALUATED = ("leaf_density", "leaf_statistic", "function_maximise")


def tables():
    """More leaves than a warp has lanes; two numbers of values of one variable."""
    wide = circuits.inputs(0, circuits.Categorical(n_values=40), 37)
    few = circuits.inputs(0, circuits.Categorical(n_values=17), 37)
    beside = circuits.inputs(1, circuits.Categorical(n_values=40), 37)
    both = circuits.product(wide, beside), circuits.product(few, beside)
    return circuits.sum(*both, n_nodes=1)


def held(device, dtype):
    """Values behind the last one of the smaller tables, some missing."""
    pc = rk.Circuit.from_state(made(tables, dtype), device)
    x = np.floor(uniform((67, 2), 101) * np.float32(40)).astype(np.int32)
    x[:4, 0] = 16, 17, 39, 0
    missing = uniform(x.shape, 102) < np.float32(0.2)
    x, missing = put(x, device), put(missing, device)
    out = [pc.log_likelihood(x, missing=missing), pc.accumulate(x, missing=missing)]
    arrays = pc.state()["arrays"]
    return [*out, *(arrays[name] for name in sorted(arrays))]


def parted():
    """Tables of more values than a block holds, which three variables share; and short ones."""
    wide = circuits.inputs(0, circuits.Categorical(n_values=300), 37)
    few = circuits.inputs(0, circuits.Categorical(n_values=17), 37)
    beside = wide.duplicate(1), wide.duplicate(2)
    both = circuits.product(wide, *beside), circuits.product(few, *beside)
    return circuits.sum(*both, n_nodes=1)


def parts(device, dtype):
    """Values at the ends of parts, and behind the last one of the smaller tables, some missing."""
    pc = rk.Circuit.from_state(made(parted, dtype), device)
    x = np.floor(uniform((80, 3), 106) * np.float32(300)).astype(np.int32)
    x[:6, 0] = 16, 17, 255, 256, 299, 0
    missing = uniform(x.shape, 107) < np.float32(0.2)
    x, missing = put(x, device), put(missing, device)
    out = [pc.log_likelihood(x, missing=missing), pc.accumulate(x, missing=missing)]
    arrays = pc.state()["arrays"]
    return [*out, *(arrays[name] for name in sorted(arrays))]


def at_ends(device, dtype):
    """Zeros where a density begins, and angles of both signs."""
    state = made(of_functions, dtype)
    pc = rk.Circuit.from_state(state, device)
    x = uniform((40, pc.n_variables), 103) * np.float32(3) + np.float32(0.01)
    x[:, :2] = np.floor(x[:, :2])
    x[2::7, 2] = 0
    x[:, 5] = (x[:, 5] - np.float32(1.5)) * np.float32(2)
    x = put(x, device)
    out = [pc.accumulate(x), *pc.flows(x).values()]
    arrays = pc.state()["arrays"]
    return [*out, *(arrays[name] for name in sorted(arrays))]


def bessel(device, dtype):
    """Concentrations of 20, beyond, and far below."""
    given = [[0.5, 20.0], [0.125, 35.0], [0.25, 19.0], [0.75, 0.5]]
    leaf = circuits.inputs(0, circuits.VonMises(), 4, parameters=given)
    root = circuits.sum(leaf, n_nodes=1, parameters=[[0.25] * 4])
    pc = rk.Circuit(root, device=device, dtype=dtype)
    x = put((uniform((60, 1), 104) - np.float32(0.5)) * np.float32(6), device)
    return [pc.log_likelihood(x), pc.accumulate(x)]


def dense(device, dtype):
    """Normal leaves whose variables all depend on one another."""
    state = made(of_normals, dtype)
    drawn = uniform(state["arrays"]["leaf_parameters"].shape, 105) / 2 + np.float32(0.25)
    state["arrays"]["leaf_parameters"] = drawn.astype(dtype)
    pc = rk.Circuit.from_state(state, device)
    x, missing = data_of_normals(device)
    out = [pc.accumulate(x, missing=missing), *pc.flows(x[:9], missing=missing[:9]).values()]
    arrays = pc.state()["arrays"]
    return [*out, *(arrays[name] for name in sorted(arrays))]


def unreached(root):
    """The circuit beside another like it, of weight 0."""
    used, other = root(), root()
    return circuits.sum(
        circuits.product(used), circuits.product(other), n_nodes=1, parameters=[[1.0, 0.0]]
    )


def left(device, dtype, root, data=None):
    """Steps without pseudocounts: what no flow reaches stays as it is.

    ``data(device)`` has samples for leaves whose own would be SciPy's, of any version.
    """
    state = made(lambda: unreached(root), dtype)
    given = rk.Circuit(unreached(root), dtype=dtype).state()["arrays"]["theta"]
    state["arrays"]["theta"][given == 0] = 0
    if data is None:
        x = put(rk.Circuit.from_state(state).sample(40, first_sample=0), device)
    else:
        x, _ = data(device)
    pc = rk.Circuit.from_state(state, device)
    found = []
    for step in (0.7, 1.0):
        pc.em_step(x, step=step, pseudocount=0.0)
        found.append(pc.state()["arrays"]["leaf_parameters"].copy())
    return found


def cases() -> Iterator[tuple[str, Case]]:
    yield "leaf_forward", Case("float32-held", partial(held, dtype="float32"))
    yield "leaf_forward", Case("float32-parts", partial(parts, dtype="float32"))
    for dtype in ("float32", "float64"):
        for kernel in ("normal_density", "normal_statistic"):
            yield kernel, Case(f"{dtype}-dense", partial(dense, dtype=dtype))
        for kernel in EVALUATED[:2]:
            yield kernel, Case(f"{dtype}-ends", partial(at_ends, dtype=dtype))
            yield kernel, Case(f"{dtype}-bessel", partial(bessel, dtype=dtype))
        for kernel in ("leaf_maximise", "sum_maximise"):
            yield kernel, Case(f"{dtype}-unreached", partial(left, dtype=dtype, root=every_leaf))
        run = partial(left, dtype=dtype, root=of_functions, data=data_of_functions)
        yield "function_maximise", Case(f"{dtype}-unreached", run)
