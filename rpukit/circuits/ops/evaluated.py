"""Ops of leaves that are evaluated by functions: values, statistics, M steps, draws."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact.twins import mirror, real
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.compiled.leaf_tables import FunctionNodes
from rpukit.circuits.graph.evaluated import FunctionLeaf, cuda_of, functions_of
from rpukit.circuits.graph.normal import MultivariateNormal
from rpukit.circuits.ops.gradient import GradientStep
from rpukit.circuits.ops.layers import leaf_flow, leaf_forward
from rpukit.circuits.ops.normal import choose_normal, normal_density, normal_statistic

__all__ = [
    "choose_functions",
    "climb_functions",
    "function_maximise",
    "leaf_counts",
    "leaf_density",
    "leaf_statistic",
    "leaf_values",
    "maximise_functions",
    "mode_of",
    "on_host",
]

Array = Any

_MIRROR = "rpukit.circuits._mirror.evaluated"
_HEADER = "user_leaf.cuh"
_MOST_ROWS = 65535  # largest grid along y
_STEEPEST = 50.0  # largest change of a free parameter in a step


# As circuit_leaves.cuh numbers them.
_BUILT_IN = (
    "geometric_leaf",
    "negative_binomial_leaf",
    "exponential_leaf",
    "gamma_leaf",
    "log_normal_leaf",
    "von_mises_leaf",
    "student_t_leaf",
)
_LEAF_DENSITY = Kernel("leaf_density")
_LEAF_STATISTIC = Kernel("leaf_statistic")
_FUNCTION_MAXIMISE = Kernel("function_maximise")


@lru_cache(maxsize=256)
def _with_functions(kernel: Kernel, cuda: str) -> Kernel:
    """Return a kernel with the text of a user's functions in it."""
    return Kernel(kernel.name, kernel.entry, headers={_HEADER: cuda + "\n"})


def _variant(
    kernel: Kernel, leaf: FunctionLeaf, dtype: Any, macros: dict[str, Any]
) -> tuple[Kernel, int, dict[str, Any]]:
    """Choose a kernel, the number of the function, and macros, which a user's leaf alone has."""
    cuda, kind = cuda_of(leaf.FUNCTION), {"REAL": real(dtype)}
    if cuda is None:
        return kernel, _BUILT_IN.index(leaf.FUNCTION), kind
    return _with_functions(kernel, cuda), -1, kind | macros


def leaf_values(rows: Any, codes: Array, numbers: Array, values: Array) -> None:
    """Compute the values of all leaves, the first columns of ``values``."""
    leaf_forward(rows, codes, numbers, values)
    for one in rows.functions:
        go = normal_density if isinstance(one.leaf, MultivariateNormal) else leaf_density
        go(one, rows.parameters, numbers, values)


def leaf_counts(held: Any, rows: Any, codes: Array, numbers: Array, flows: Array) -> None:
    """Accumulate the statistics of all leaves that own parameters."""
    if len(held.leaves.kinds):
        leaf_flow(held, rows, codes, numbers, flows)
    for one in rows.functions:
        go = normal_statistic if isinstance(one.leaf, MultivariateNormal) else leaf_statistic
        go(held, one, rows.parameters, numbers, flows)


def leaf_density(one: FunctionNodes, parameters: Array, numbers: Array, values: Array) -> None:
    """Compute the values of the leaves of one kind, columns of ``values``."""
    leaf, tables = one.leaf, (one.rows, one.variable, one.place)
    if _device.takes_kernels(values):
        n_leaf = len(one.rows)
        own = {"LEAF": leaf.FUNCTION, "N_PARAMETER": leaf.n_parameters}
        kernel, number, macros = _variant(_LEAF_DENSITY, leaf, parameters.dtype, own)
        sizes = (len(values), n_leaf, numbers.shape[1], values.shape[1], number)
        grid = (-(-n_leaf // 256), min(len(values), _MOST_ROWS))
        numbered = (*sizes, leaf.n_parameters, *one.constants)
        launched = (*numbered, *tables, numbers, parameters, values)
        kernel.launch(grid, (256,), launched, macros=macros)
        return
    density = functions_of(leaf.FUNCTION)[0]
    args = (density, one.constants, *tables, leaf.n_parameters, numbers, parameters, values)
    grain = work_grain(50 * len(one.rows))
    go = mirror(_MIRROR, parameters.dtype).leaf_density
    run_rows(go, len(values), *args, grain=grain)


def leaf_statistic(
    held: Any, one: FunctionNodes, parameters: Array, numbers: Array, flows: Array
) -> None:
    """Accumulate the statistics of the leaves of one kind."""
    leaf, n_node = one.leaf, len(one.statistic)
    uses = (one.use_first, one.use_row, one.use_variable)
    tables = (one.statistic, one.parameter, *uses)
    data = (numbers, parameters, flows, held.leaf_chains, held.leaf_totals)
    if _device.takes_kernels(flows):
        own = {"STATISTIC": f"{leaf.FUNCTION}_statistic", "N_STATISTIC": leaf.N_STATISTICS}
        own["N_PARAMETER"] = leaf.n_parameters
        kernel, number, macros = _variant(_LEAF_STATISTIC, leaf, flows.dtype, own)
        sizes = (len(flows), n_node, numbers.shape[1], flows.shape[1], number)
        numbered = (*sizes, leaf.n_parameters, leaf.N_STATISTICS, *one.constants)
        launched = (*numbered, held.clock, *tables, *data)
        kernel.launch((-(-n_node // 32),), (32,), launched, macros=macros)
        return
    statistic = functions_of(leaf.FUNCTION)[1]
    args = (held.n_sample, statistic, one.constants, leaf.n_parameters, leaf.N_STATISTICS)
    go = mirror(_MIRROR, flows.dtype).leaf_statistic
    run_rows(go, n_node, *args, *tables, *data, grain=work_grain(50 * len(flows)))


def on_host(leaf: FunctionLeaf) -> bool:
    """Whether the host takes the M step of a leaf."""
    return leaf.FUNCTION not in _BUILT_IN


def maximise_functions(
    leaf: FunctionLeaf,
    step: float,
    pseudocount: float,
    chains: Array,
    totals: Array,
    parameters: Array,
) -> None:
    """Take an EM step of leaves of one kind, in place; of those that users register on the host.

    Missing values and pseudocounts are the leaf's own expectation: they shorten the step.
    """
    arrays = (chains, totals, parameters)
    go = _maximise_on_host if on_host(leaf) else function_maximise
    go(leaf, step, pseudocount, *arrays)


def function_maximise(
    leaf: FunctionLeaf,
    step: float,
    pseudocount: float,
    chains: Array,
    totals: Array,
    parameters: Array,
) -> None:
    """Take an EM step of built-in leaves of one kind, in place."""
    sizes = (_BUILT_IN.index(leaf.FUNCTION), leaf.n_parameters, leaf.N_STATISTICS)
    numbers = (leaf._limit(), leaf.constants()[0], step, pseudocount)
    args = (*sizes, *map(np.float64, numbers), chains, totals, parameters)
    n_node = parameters.size // leaf.n_parameters
    if _device.takes_kernels(parameters):
        macros = {"REAL": real(parameters.dtype)}
        _FUNCTION_MAXIMISE.launch((-(-n_node // 64),), (64,), (n_node, *args), macros=macros)
        return
    from rpukit.circuits._mirror import leaf_steps as mirrors

    run_rows(mirrors.function_maximise, n_node, *args, grain=work_grain(2000))


def _maximise_on_host(
    leaf: FunctionLeaf,
    step: float,
    pseudocount: float,
    chains: Array,
    totals: Array,
    parameters: Array,
) -> None:
    flow = _device.to_numpy(totals) + _device.to_numpy(chains).astype(np.float64)
    flow = flow.reshape(-1, leaf.n_statistics + 1)
    old = _device.to_numpy(parameters).astype(np.float64).reshape(len(flow), -1)
    seen = flow[:, 0] > 0
    known = np.where(seen[:, None], flow[:, :-1], 1.0)
    with np.errstate(all="ignore"):
        new = np.asarray(leaf.maximise(old, known), np.float64)
        share = step * (known[:, 0] / (known[:, 0] + flow[:, -1] + pseudocount))
        made = leaf.blended(old, new, share[:, None])
        moves = seen & np.isfinite(new).all(axis=1) & np.isfinite(made).all(axis=1)
    made = np.where(moves[:, None], made, old).reshape(-1)
    parameters[...] = _device.to_device(made, _device.device_of(parameters), parameters.dtype)


def climb_functions(
    leaf: FunctionLeaf,
    step: GradientStep,
    chains: Array,
    totals: Array,
    first: Array,
    second: Array,
    parameters: Array,
) -> None:
    """Take a gradient step of leaves of one kind, in place, on the host, as `leaf_climb` does."""
    arrays = [_device.to_numpy(a) for a in (chains, totals, first, second, parameters)]
    flow = (arrays[1] + arrays[0].astype(np.float64)).reshape(-1, leaf.n_statistics + 1)
    old = arrays[4].astype(np.float64).reshape(len(flow), -1)
    with np.errstate(all="ignore"):
        slope = np.asarray(leaf.slopes(old, flow[:, :-1]), np.float64).reshape(-1) / step.weight
        g = np.clip(np.where(np.isfinite(slope), slope, 0.0), -step.clip, step.clip)
        if len(second):
            mean = arrays[2] * step.momentum + (1 - step.momentum) * g
            square = arrays[3] * step.decay + (1 - step.decay) * (g * g)
            change = step.rate * (mean / step.bias / (np.sqrt(square / step.bias2) + 1e-8))
            second[...] = _device.to_device(square, _device.device_of(second))
        else:
            mean = arrays[2] * step.momentum + g
            change = step.rate * mean
        change = np.clip(change, -_STEEPEST, _STEEPEST).reshape(old.shape)
        made = np.asarray(leaf.moved(old, change), np.float64)
    good = np.asarray(np.isfinite(made).all(axis=1))
    made = np.where(good[:, None], made, old).reshape(-1)
    first[...] = _device.to_device(mean, _device.device_of(first))
    parameters[...] = _device.to_device(made, _device.device_of(parameters), parameters.dtype)


def mode_of(leaf: FunctionLeaf, parameters: Array, place: Array) -> Array:
    """Most probable value of each leaf, whose parameters begin at ``place``."""
    own = _own(leaf, parameters, place)
    with np.errstate(all="ignore"):
        modes = leaf.mode(own)
    return _device.to_device(modes, _device.device_of(parameters), parameters.dtype)


def choose_functions(
    one: FunctionNodes,
    parameters: Array,
    draws: tuple[Any, ...],
    codes: Array,
    numbers: Array,
    chosen: Array,
) -> None:
    """Set unknown variables to a value of their marked leaf, in place: the mode, or a draw.

    ``draws`` are those of `leaf_choose`. The host chooses, by `FunctionLeaf.quantile` of a uniform
    of 52 bits.
    """
    if isinstance(one.leaf, MultivariateNormal):
        choose_normal(one, parameters, draws, codes, numbers, chosen)
        return
    best, first_sample, k0, k1, op = draws
    rows, variable = (_device.to_numpy(a) for a in (one.rows, one.variable))
    unknown = np.isnan(_device.to_numpy(numbers))[:, variable]
    sample, leaf = np.nonzero(_device.to_numpy(chosen[:, one.rows]) & unknown)
    if not len(sample):
        return
    own = _own(one.leaf, parameters, _device.to_numpy(one.place)[leaf])
    with np.errstate(all="ignore"):
        if best:
            found = one.leaf.mode(own)
        else:
            u = np.empty(len(sample))
            at = (rows[leaf].astype(np.uint64), sample.astype(np.uint64) + np.uint64(first_sample))
            go = mirror(_MIRROR, np.float32).leaf_uniforms
            run_rows(go, len(u), k0, k1, op, *at, u, grain=work_grain(50))
            found = one.leaf.quantile(own, u)
    device, column = _device.device_of(numbers), variable[leaf]
    at = tuple(_device.to_device(a, device) for a in (sample, column))
    numbers[at] = _device.to_device(np.asarray(found), device, numbers.dtype)
    codes[at] = -1


def _own(leaf: FunctionLeaf, parameters: Array, place: Array) -> Array:
    """Parameters of leaves on the host, float64, a row each."""
    at = _device.to_numpy(place)[:, None] + np.arange(leaf.n_parameters)
    own: Array = _device.to_numpy(parameters).astype(np.float64)[at]
    return own
