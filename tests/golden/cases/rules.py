"""Golden cases of circuits beside EM: gradient steps, other rules, soft evidence."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

import rpukit as rk
from rpukit import _device, circuits
from rpukit.circuits.parameters import support_of
from tests.golden.cases.case import Case, put

KERNELS = ["largest_down", "leaf_climb", "leaf_soft", "soft_posterior", "sum_climb"]
RULES = (
    circuits.Rule(exponent=np.inf),
    circuits.Rule(exponent=2.0),
    circuits.Rule(temperature=2.0),
    circuits.Rule(temperature=3.0, temper_elements=True),
)


def uneven():
    """Leaves of one variable with other numbers of values, the last ones in the table fewer."""
    wide = circuits.inputs(0, circuits.Categorical(n_values=5), 132)
    few = circuits.inputs(0, circuits.Bernoulli(), 132)
    coin = circuits.inputs(1, circuits.DiscreteLogistic(n_values=6), 132)
    other = circuits.inputs(1, circuits.Binomial(n_trials=2), 132)
    pairs = circuits.product(wide, coin), circuits.product(few, other)
    return circuits.sum(*pairs, n_nodes=1)


def of(name, dtype, device):
    return _of(name, dtype, device, _device._emulation_depth)


@cache
def _of(name, dtype, device, _emulated):
    """Two steps up the gradient, counts of all rules, and soft evidence, on a device."""
    from tests.golden.cases.circuits import every_leaf, made, uniform

    state = made({"leaves": every_leaf, "uneven": uneven}[name], dtype)
    pc, n = rk.Circuit.from_state(state, device), 36
    support = support_of(pc.layout)
    soft = uniform((n, pc.n_variables, support.max()), 7).astype(dtype)
    soft[:, support == 0] = 1
    missing = uniform((n, pc.n_variables), 5) < np.float32(0.3)
    known = {"missing": put(missing, device), "weights": put(uniform((n,), 6), device)}
    known["x"] = pc.sample(n, first_sample=0)
    out = [known["x"]]
    for method in ("sgd", "adam"):
        pc = rk.Circuit.from_state(state, device)
        for _ in range(2):
            out.append(pc.gradient_step(**known, method=method, rate=0.25))
        arrays = pc.state()["arrays"]
        out += [arrays[name] for name in sorted(arrays)]
    for rule in RULES:
        pc = rk.Circuit.from_state(state, device)
        out += pc.flows(**known, rule=rule).values()
        pc.em_step(**known, pseudocount=0.5, rule=rule)
        arrays = pc.state()["arrays"]
        out += [arrays["theta"], arrays["leaf_parameters"]]
    pc, soft = rk.Circuit.from_state(state, device), put(soft, device)
    del known["weights"]
    out += [pc.log_likelihood(**known, soft=soft), pc.conditional(**known, soft=soft)]
    return [*out, pc.conditional(known["x"]), pc.sample(x=known["x"], missing=known["missing"])]


def cases() -> Iterator[tuple[str, Case]]:
    for name in ("leaves", "uneven"):
        for dtype in ("float32", "float64"):

            def run(device, name=name, dtype=dtype):
                return of(name, dtype, device)

            for kernel in KERNELS:
                yield kernel, Case(f"{dtype}-{name}", run)
