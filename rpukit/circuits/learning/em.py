"""Expectation maximisation from expected counts: methods of `Circuit`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import LARGEST, flag, is_number, plain, shown
from rpukit._kernels.calls import changes
from rpukit.circuits.compiled.leaf_tables import LeafRun
from rpukit.circuits.compiled.tables import Uses
from rpukit.circuits.core import CircuitLike, Core
from rpukit.circuits.graph.evaluated import FunctionLeaf
from rpukit.circuits.graph.leaves import MaskedCategorical
from rpukit.circuits.graph.nodes import Nodes, SumNodes
from rpukit.circuits.learning.spread import count, count_apart
from rpukit.circuits.ops import em as steps
from rpukit.circuits.ops import layers as ops
from rpukit.circuits.ops.evaluated import maximise_functions
from rpukit.circuits.parameters import Parameters, Statistics, shift_moments
from rpukit.circuits.queries.passes import propagation_of
from rpukit.circuits.queries.propagation import Rule
from rpukit.elementwise import power
from rpukit.errors import ParameterError

__all__ = [
    "accumulate",
    "check_em",
    "check_number",
    "em_step",
    "maximise",
    "maximise_part",
    "need_counts",
    "parameter_flows",
    "take_em_step",
]

Array = Any


@changes
def accumulate(
    self: CircuitLike,
    x: Any,
    *,
    missing: Any = None,
    weights: Any = None,
    rule: Rule | None = None,
) -> Array:
    """Add the flows of samples to the statistics that the next step uses.

    Parameters
    ----------
    x, missing, weights, rule : optional
        As in `flows`.

    Returns
    -------
    array
        Log-likelihoods, as of `log_likelihood`.

    Raises
    ------
    ShapeError, DTypeError, NonFiniteError
    ParameterError
        Also when counts of another exponent or temperature are held.
    """
    core = self._core
    propagation, statistics = propagation_of(core.parameters, rule), core.statistics
    core.need_no_gap("accumulate")
    if statistics.n_sample and statistics.exponent != propagation.exponent:
        raise ParameterError(
            f"rule: counts of exponent {statistics.exponent:g} are held, got "
            f"{propagation.exponent:g}: take a step of learning before"
        )
    empty = statistics.n_sample == 0
    try:
        if core.peers is None:
            out = count(core, propagation, x, missing, weights)
        else:
            out = count_apart(core, propagation, rule, x, missing, weights)
    except BaseException:
        if empty:  # as they were before
            statistics.clear()
            core.call_state.unchanged()
        raise
    statistics.exponent = propagation.exponent
    return out[:, 0] if out.shape[1] == 1 else out


@changes
def em_step(
    self: CircuitLike,
    x: Any = None,
    *,
    missing: Any = None,
    weights: Any = None,
    step: float = 1.0,
    pseudocount: float = 0.0,
    keep_zeros: bool = False,
    rule: Rule | None = None,
) -> Array | None:
    """Take a step of EM: move parameters towards the expected counts, and clear these.

    Parameters
    ----------
    x, missing, weights : optional
        Samples to `accumulate` before. Default: what was accumulated already.
    step : float, in (0, 1]
        How far: parameter = (1 - step) old + step new.
    pseudocount : float, from 0
        Added to the counts of a node, in equal parts.
    keep_zeros : bool
        Weights below 1e-12 become 0 and stay.
    rule : Rule, optional
        For x, as in `accumulate`.

    Returns
    -------
    array or None
        Log-likelihoods of x before the step.

    Raises
    ------
    ParameterError
        Also when nothing was accumulated.
    ShapeError, DTypeError, NonFiniteError

    Notes
    -----
    A node that no sample reached keeps its parameters. Full-batch EM (step 1, pseudocount 0)
    never lowers the likelihood, but for `DiscreteLogistic`, whose step matches moments of bins.
    Source: Peharz, Gens, Pernkopf, Domingos, IEEE TPAMI 39, 2030 (2017).
    """
    step, pseudocount, keep_zeros = check_em(step, pseudocount, keep_zeros)
    found = None
    if x is not None:
        found = self.accumulate(x, missing=missing, weights=weights, rule=rule)
    need_counts(self._core, "em_step")
    take_em_step(self._core, step, pseudocount, keep_zeros)
    return found


def parameter_flows(self: CircuitLike, nodes: Nodes) -> Array:
    """Return the expected counts of a node vector since the last step, float64.

    Parameters
    ----------
    nodes : InputNodes or SumNodes

    Returns
    -------
    array
        Of a sum: (n_edge, block_size, child_block_size). Of inputs: (n_node, n_statistics +
        1): flow of each value, or sums of flow x, flow x^2, flow; last the flow of missing
        values.
    """
    core = self._core
    owner, statistics = core.owner(nodes), core.statistics
    if isinstance(owner, SumNodes):
        tiles = np.zeros(owner.parameter_shape)
        for block in core.layout.blocks[owner.number]:
            part = slice(block.first, block.first + block.size)
            theta = core.parameters.theta[part].astype(np.float64)
            theta = theta if statistics.exponent == 1 else power(theta, statistics.exponent)
            counts = statistics.totals[part] + statistics.chains[part]
            flow = _device.to_numpy(theta * counts)
            block.scatter(flow.reshape(block.n_child, block.n_node), tiles)
        return tiles
    source = next(s for s in core.parameters.sources if s.nodes is owner)
    at = source.statistic
    flow = statistics.leaf_totals[at] + statistics.leaf_chains[at]
    shift_moments(source, core.parameters, flow)
    return _device.to_numpy(flow).reshape(owner.n_node, -1)


def need_counts(core: Core, name: str) -> None:
    """Check that a step of learning has counts to learn from."""
    core.need_no_gap(name)
    if core.statistics.n_sample == 0:
        raise ParameterError(f"{name}: nothing was accumulated; give x or call accumulate")


def take_em_step(core: Core, step: float, pseudocount: float, keep_zeros: bool) -> None:
    """Take a step of EM by the counts that are held, and clear them."""
    parameters, statistics = core.parameters, core.statistics
    core.call_state.changing()
    statistics.for_weights(parameters.theta)

    def call() -> None:
        maximise(parameters, statistics, step, pseudocount, keep_zeros)

    apart = (MaskedCategorical, FunctionLeaf)  # steps that the host takes part in
    if any(isinstance(run.leaf, apart) for run in parameters.runs):
        call()
    else:
        key = ("em", float(pseudocount), bool(keep_zeros))
        core.memory.replayed(key, (parameters.theta,), {"step": np.float64(step)}, call)
    parameters.version += 1
    statistics.clear()
    if core.peers is not None:
        core.peers.update()  # now, while the host waits for nothing


def check_em(step: float, pseudocount: float, keep_zeros: bool) -> tuple[float, float, bool]:
    """Check the numbers of a step of EM."""
    return (
        check_number("step", step, "(0, 1]", lambda v: 0 < v <= 1),
        check_number("pseudocount", pseudocount, "[0, inf)", lambda v: v >= 0),
        flag(keep_zeros, "keep_zeros"),
    )


def check_number(name: str, value: Any, interval: str, inside: Callable[[Any], bool]) -> float:
    """Check that a number is finite and inside its interval."""
    v = plain(value)
    if not (is_number(v) and abs(v) <= LARGEST and inside(v)):
        raise ParameterError(f"{name}: got {shown(value)}, need a number in {interval}")
    return float(v)


def maximise(
    parameters: Parameters,
    statistics: Statistics,
    step: float,
    pseudocount: float,
    keep_zeros: bool,
) -> None:
    """Take a step of EM by counts, which are kept."""
    numbers = (step, pseudocount, keep_zeros)
    maximise_part(parameters, statistics, *numbers, parameters.uses, parameters.runs)
    parameters.refresh_tables()


def maximise_part(
    parameters: Parameters,
    statistics: Statistics,
    step: float,
    pseudocount: float,
    keep_zeros: bool,
    uses: Uses,
    runs: Iterable[LeafRun],
) -> None:
    """Take a step of EM of some weights and leaves; tables made of them stay as they are."""
    numbers = (step, pseudocount, keep_zeros)
    steps.sum_maximise(uses, *numbers, statistics.chains, statistics.totals, parameters.theta)
    for run in runs:
        totals, extra = statistics.leaf_totals[run.statistic], pseudocount
        if isinstance(run.leaf, MaskedCategorical):
            # Masked values get no pseudocount: the allowed ones share it equally.
            allowed = list(run.leaf.allowed)
            totals.reshape(run.n_node, -1)[:, allowed] += pseudocount / len(allowed)
            extra = 0.0
        arrays = (
            statistics.leaf_chains[run.statistic],
            totals,
            parameters.rows.parameters[run.parameter],
        )
        if isinstance(run.leaf, FunctionLeaf):
            maximise_functions(run.leaf, step, extra, *arrays)
        else:
            ops.leaf_maximise(run.traits, run.n_node, step, extra, keep_zeros, *arrays)
