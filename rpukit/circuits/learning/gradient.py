"""Stateful optimisers: scaled EM with momentum, SGD, Adam; methods of `Circuit`.

All of them turn the expected counts into other counts and then maximise: a gradient step
multiplies weights by exp(rate direction) and normalises them, as EM does with such counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import flag, one_of
from rpukit._kernels.calls import changes
from rpukit.circuits.core import CircuitLike, Core
from rpukit.circuits.graph.evaluated import FunctionLeaf
from rpukit.circuits.learning.em import check_number, need_counts, take_em_step
from rpukit.circuits.momenta import Momenta
from rpukit.circuits.ops.evaluated import climb_functions
from rpukit.circuits.ops.gradient import GradientStep, leaf_climb, sum_climb
from rpukit.circuits.parameters import Statistics, parts, shift_moments
from rpukit.circuits.queries.passes import gather, run_down, run_up
from rpukit.circuits.queries.propagation import Rule
from rpukit.errors import ParameterError

__all__ = ["METHODS", "gradient_step", "scaled_em_step"]

Array = Any

METHODS = ("scaled_em", "sgd", "adam")
_MOST = 1e300  # of a momentum: counts of many samples stay within float64


@changes
def scaled_em_step(
    self: CircuitLike,
    x: Any = None,
    *,
    missing: Any = None,
    weights: Any = None,
    step: float = 0.4,
    momentum: float = 0.0,
    pseudocount: float = 0.0,
    keep_zeros: bool = False,
    rule: Rule | None = None,
) -> Array | None:
    """Take a step of EM whose size at a node follows how often samples reach it.

    Parameters
    ----------
    x, missing, weights : optional
        Samples to `accumulate` before. Default: what was accumulated already.
    step : float, in (0, 1]
        Share of the new counts.
    momentum : float, in [0, 1)
        Counts are a running mean with this memory, corrected for its start.
    pseudocount : float, from 0
        Added to the new counts of a node, in equal parts.
    keep_zeros : bool
    rule : Rule, optional
        As in `em_step`.

    Returns
    -------
    array or None
        Log-likelihoods of x before the step.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, NonFiniteError

    Notes
    -----
    Counts become step F + (1 - step) n q theta, where F are the expected counts of n samples
    and q the probability that a sample of the circuit itself uses the node: rare nodes move
    less than in `em_step`, where each forgets at the same pace. The parameters are those that
    normalise these counts. Step 1 without momentum is `em_step` with step 1.
    Source: Liu, Van den Broeck et al., "Scaling up probabilistic circuits" (PyJuice), 2024.
    """
    step = check_number("step", step, "(0, 1]", lambda v: 0 < v <= 1)
    momentum = check_number("momentum", momentum, "[0, 1)", lambda v: 0 <= v < 1)
    pseudocount = check_number("pseudocount", pseudocount, "[0, inf)", lambda v: v >= 0)
    keep_zeros = flag(keep_zeros, "keep_zeros")
    core, found = self._core, None
    if momentum and core.parameters.rows.functions:
        raise ParameterError(
            f"momentum: got {momentum:g}, need 0: statistics of "
            f"{core.parameters.rows.functions[0].leaf} are about its parameters, which move"
        )
    if x is not None:
        found = self.accumulate(x, missing=missing, weights=weights, rule=rule)
    need_counts(core, "scaled_em_step")
    core.call_state.changing()
    if core.statistics.weight == 0:  # no sample was possible
        core.statistics.clear()
    else:
        _scale_counts(core, step, momentum)
        take_em_step(core, 1.0, step * pseudocount, keep_zeros)
    return found


@changes
def gradient_step(
    self: CircuitLike,
    x: Any = None,
    *,
    missing: Any = None,
    weights: Any = None,
    method: str = "adam",
    rate: float = 0.01,
    momentum: float = 0.9,
    decay: float = 0.95,
    clip: float = 5.0,
) -> Array | None:
    """Take a gradient step of the mean log-likelihood, in log weights that stay normalised.

    Parameters
    ----------
    x, missing, weights : optional
        Samples to `accumulate` before. Default: what was accumulated already.
    method : str
        "sgd" or "adam".
    rate : float, positive
    momentum : float, in [0, 1)
        Memory of the gradient.
    decay : float, in [0, 1)
        Memory of its square (adam).
    clip : float, positive
        Largest component of a gradient.

    Returns
    -------
    array or None
        Log-likelihoods of x before the step.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, NonFiniteError

    Notes
    -----
    Weights are a softmax of free numbers, so are categorical leaves; other leaves move in the
    logit of a probability, the mean in units of the standard deviation, the logarithm of a
    standard deviation or of a rate. Missing values and impossible samples have no gradient;
    weights of 0 stay 0.
    Source: Kingma, Ba, "Adam", ICLR 2015.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.random.default_rng(0).integers(0, 2, (100, 3)) | [[0, 1, 0]]
    >>> pc = rk.Circuit(rk.circuits.mixture(3, 2, rk.circuits.Bernoulli()), seed=1)
    >>> first = pc.gradient_step(x, rate=0.1).mean()
    >>> bool(pc.log_likelihood(x).mean() > first)
    True
    """
    one_of(method, "method", METHODS[1:])
    for one in self._core.parameters.rows.functions:
        if type(one.leaf).slopes is FunctionLeaf.slopes:
            one.leaf.slopes(None, None)  # raises
    rate = check_number("rate", rate, "(0, inf)", lambda v: v > 0)
    momentum = check_number("momentum", momentum, "[0, 1)", lambda v: 0 <= v < 1)
    decay = check_number("decay", decay, "[0, 1)", lambda v: 0 <= v < 1)
    clip = check_number("clip", clip, "(0, inf)", lambda v: v > 0)
    core, found = self._core, None
    if x is not None:
        found = self.accumulate(x, missing=missing, weights=weights)
    need_counts(core, "gradient_step")
    core.call_state.changing()
    statistics = core.statistics
    if statistics.weight == 0:  # no sample was possible
        statistics.clear()
        return found
    momenta = _advanced(core, method, momentum, decay)
    statistics.for_weights(core.parameters.theta)
    bias = (1 - momenta.fade, 1 - momenta.fade2)
    step = GradientStep(statistics.weight, rate, momentum, decay, clip, *bias)
    _take_gradient_step(core, step, momenta)
    return found


def _scale_counts(core: Core, step: float, momentum: float) -> None:
    """Replace the counts by those of scaled EM: step new + (1 - step) those of the circuit."""
    parameters, statistics = core.parameters, core.statistics
    prior, xp, n = _prior(core), _device.namespace_of(core.device), statistics.weight
    statistics.for_weights(parameters.theta)
    momenta = _advanced(core, "scaled_em", momentum, 0.0)
    share = n / (1 - momenta.fade)
    for part in parts(parameters.theta.size):
        w = parameters.theta[part].astype(np.float64)
        mean = momenta.first[part]
        mean *= momentum
        counts = w * (statistics.totals[part] + statistics.chains[part])
        mean += ((1 - momentum) / n) * counts
        counts = xp.where(w > 0, share * mean / xp.where(w > 0, w, 1), 0)
        statistics.totals[part] = step * counts + ((1 - step) * n) * prior.chains[part]
    mean = momenta.leaf_first
    mean *= momentum
    counts = statistics.leaf_totals + statistics.leaf_chains
    for source in parameters.sources:  # means move: momenta hold moments about 0
        shift_moments(source, parameters, counts[source.statistic])
    mean += ((1 - momentum) / n) * counts
    xp.clip(mean, -_MOST, _MOST, out=mean)  # squares of data beyond 1e154 overflow
    statistics.leaf_totals[:] = (step * share) * mean
    for source in parameters.sources:
        at = source.statistic
        shift_moments(source, parameters, statistics.leaf_totals[at], back=True)
    statistics.leaf_totals += ((1 - step) * n) * prior.leaf_chains
    statistics.chains[:], statistics.leaf_chains[:] = 0, 0


def _take_gradient_step(core: Core, step: GradientStep, momenta: Momenta) -> None:
    """Move leaves at once, and weights by a step of EM from counts exp(change)."""
    parameters, statistics = core.parameters, core.statistics
    for source in parameters.sources:
        at, part = source.statistic, source.parameter
        counts = (statistics.leaf_chains[at], statistics.leaf_totals[at])
        means = (momenta.leaf_first[part], momenta.leaf_second[part])
        arrays = (*counts, *means, parameters.rows.parameters[part])
        if isinstance(source.leaf, FunctionLeaf):
            climb_functions(source.leaf, step, *arrays)
            continue
        leaf_climb(source.traits, step, *arrays)
        parameters.refresh(source)
    statistics.leaf_totals[:], statistics.leaf_chains[:] = 0, 0
    weights = (parameters.theta, statistics.chains, statistics.totals)
    whole = (*weights, momenta.first, momenta.second)
    for blocks in core.layout.blocks.values():
        for block in blocks:
            part = slice(block.first, block.first + block.size)
            sum_climb(block.n_child, step, *(array[part] for array in whole))
    statistics.chains[:] = 0
    take_em_step(core, 1.0, 0.0, False)


def _prior(core: Core) -> Statistics:
    """Counts of a sample of which nothing is known, its flow shared among the roots."""
    n_root, xp = core.layout.root_rows.size, _device.namespace_of(core.device)
    run = run_up(core.parameters, *core.unknown(1), keep=True)
    run_down(core.parameters, run, xp.full((1, n_root), 1 / n_root, core.dtype))
    prior = core.statistics.fresh()
    gather(core.parameters, run, prior)
    return prior


def _advanced(core: Core, method: str, momentum: float, decay: float) -> Momenta:
    """Momenta of a method, one step on; another method starts from 0."""
    momenta = core.momenta
    if momenta is None or momenta.method != method:
        momenta = core.momenta = Momenta.zeros(core.parameters, core.statistics, method)
    momenta.fade, momenta.fade2 = momenta.fade * momentum, momenta.fade2 * decay
    return momenta
