"""Steps with a memory: scaled EM with momentum, gradient steps. `Circuit` inherits them.

All of them turn what was gathered into other counts and then maximise: a gradient step multiplies
weights by exp(rate direction) and normalises them, which is what EM does with such counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits.learning.em import Learning
from rpukit.circuits.ops.gradient import Climb, leaf_climb, sum_climb
from rpukit.circuits.parameters import Statistics, parts
from rpukit.circuits.queries.passes import gather, run_down, run_up
from rpukit.circuits.queries.propagation import Rule
from rpukit.errors import ParameterError

__all__ = ["Gradients", "Momenta"]

Array = Any

METHODS = ("scaled_em", "sgd", "adam")


@dataclass(slots=True)
class Momenta:
    """What steps remember: running means of counts or gradients, and how much they lack."""

    method: str
    fade: float  # momentum to the power of the number of steps
    fade2: float
    first: Array
    leaf_first: Array
    second: Array
    leaf_second: Array


class Gradients(Learning):
    """Scaled EM, and gradient steps on the logarithms of weights."""

    _momenta: Momenta | None = None

    def scaled_em_step(
        self,
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
        _check_number("step", step, 0 < step <= 1, "(0, 1]")
        _check_number("momentum", momentum, 0 <= momentum < 1, "[0, 1)")
        _check_number("pseudocount", pseudocount, pseudocount >= 0, "[0, inf)")
        result = self._accumulated(x, missing, weights, rule)
        self._need_statistics("scaled_em_step")
        held, own = self._statistics, self._parameters
        n = held.weight
        if n == 0:  # no sample was possible
            held.clear()
            return result
        prior, xp = self._prior(), _device.namespace_of(self._device)
        held.unbend(own.theta)
        memory = self._remembered("scaled_em", momentum, 0.0)
        share = n / (1 - memory.fade)
        for part in parts(own.theta.size):
            w = own.theta[part].astype(np.float64)
            first = memory.first[part]
            first *= momentum
            first += ((1 - momentum) / n) * (w * (held.totals[part] + held.chains[part]))
            counts = xp.where(w > 0, share * first / xp.where(w > 0, w, 1), 0)
            held.totals[part] = step * counts + ((1 - step) * n) * prior.chains[part]
        first = memory.leaf_first
        first *= momentum
        first += ((1 - momentum) / n) * (held.leaf_totals + held.leaf_chains)
        held.leaf_totals[:] = (step * share) * first + ((1 - step) * n) * prior.leaf_chains
        held.chains[:], held.leaf_chains[:] = 0, 0
        self._maximise(1.0, step * pseudocount, keep_zeros)
        return result

    def gradient_step(
        self,
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
        """Climb the gradient of the mean log-likelihood, in log weights, which stay normalised.

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
        if method not in METHODS[1:]:
            raise ParameterError(f"method: got {method!r}, need 'sgd' or 'adam'")
        _check_number("rate", rate, rate > 0, "(0, inf)")
        _check_number("momentum", momentum, 0 <= momentum < 1, "[0, 1)")
        _check_number("decay", decay, 0 <= decay < 1, "[0, 1)")
        _check_number("clip", clip, clip > 0, "(0, inf)")
        result = self._accumulated(x, missing, weights, None)
        self._need_statistics("gradient_step")
        held, own = self._statistics, self._parameters
        if held.weight == 0:
            held.clear()
            return result
        memory = self._remembered(method, momentum, decay)
        held.unbend(own.theta)
        lacks = (1 - memory.fade, 1 - memory.fade2)
        self._climb(Climb(held.weight, rate, momentum, decay, clip, *lacks), memory)
        return result

    def _climb(self, climb: Climb, memory: Momenta) -> None:
        """Move all parameters: leaves at once, weights by counts for a step of EM."""
        held, own = self._statistics, self._parameters
        for source in own.sources:
            at, part = source.statistic, source.parameter
            counts = (held.leaf_chains[at], held.leaf_totals[at])
            memories = (memory.leaf_first[part], memory.leaf_second[part])
            leaf_climb(source.leaf, climb, *counts, *memories, own.rows.parameters[part])
            own.refresh(source)
        held.leaf_totals[:], held.leaf_chains[:] = 0, 0
        for blocks in self.layout.blocks.values():
            for block in blocks:
                part = slice(block.first, block.first + block.size)
                arrays = (own.theta, held.chains, held.totals, memory.first, memory.second)
                sum_climb(block.n_child, climb, *(array[part] for array in arrays))
        held.chains[:] = 0
        self._maximise(1.0, 0.0, False)

    def _prior(self) -> Statistics:
        """Counts of a sample of which nothing is known, its flow shared among the roots."""
        own, n_root = self._parameters, self.layout.root_rows.size
        xp = _device.namespace_of(self._device)
        codes = xp.full((1, self.layout.n_variable), -1, np.int32)
        run = run_up(own, codes, xp.full(codes.shape, np.nan, self.dtype), keep=True)
        run_down(own, run, xp.full((1, n_root), 1 / n_root, self.dtype))
        prior = self._statistics.fresh()
        gather(own, run, prior)
        return prior

    def _remembered(self, method: str, momentum: float, decay: float) -> Momenta:
        """Momenta of a method, one step on; another method starts anew."""
        if self._momenta is None or self._momenta.method != method:
            self._momenta = Momenta(method, 1.0, 1.0, *self._zeros(method))
        memory = self._momenta
        memory.fade, memory.fade2 = memory.fade * momentum, memory.fade2 * decay
        return memory

    def _zeros(self, method: str) -> list[Array]:
        held, n = self._statistics, self._parameters.rows.parameters.size
        first = (held.totals.size, held.leaf_totals.size if method == "scaled_em" else n)
        second = (held.totals.size, n) if method == "adam" else (0, 0)
        return [_device.zeros((size,), np.float64, self._device) for size in (*first, *second)]


def _check_number(name: str, value: Any, good: bool, need: str) -> None:
    if isinstance(value, bool) or not (good and np.isfinite(value)):
        raise ParameterError(f"{name}: got {value!r}, need a number in {need}")
