"""Learning from expected counts: `Circuit` inherits these methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.replay import replayable
from rpukit.circuits.graph.leaves import MaskedCategorical
from rpukit.circuits.graph.nodes import Nodes, SumNodes
from rpukit.circuits.memory import PASS
from rpukit.circuits.ops import em as steps
from rpukit.circuits.ops import layers as ops
from rpukit.circuits.parameters import Parameters, Statistics
from rpukit.circuits.queries.base import Held
from rpukit.circuits.queries.passes import gather
from rpukit.circuits.queries.propagation import Rule, Way
from rpukit.elementwise import power
from rpukit.errors import ParameterError

__all__ = ["Learning", "check_em", "maximise"]

Array = Any


class Learning(Held):
    """Statistics of samples, and the steps that use them."""

    def accumulate(
        self, x: Any, *, missing: Any = None, weights: Any = None, rule: Rule | None = None
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
        way, held = self._way(rule), self._statistics
        if held.n_sample and held.exponent != way.exponent:
            raise ParameterError("accumulate: counts of another rule are held: take a step before")
        step = min(PASS, self._memory.samples(learns=True))
        n, read = self._encoder.parts(x, missing, step)
        weights = self._weights(weights, n)
        out = _device.empty(weights.shape, self.dtype, self._device)
        for part, *evidence in read:
            self._gather(way, evidence, weights[part], out[part])
        held.exponent = way.exponent
        return out[:, 0] if out.shape[1] == 1 else out

    def _gather(self, way: Way, evidence: Sequence[Array], weights: Array, out: Array) -> None:
        """Add the flows of a pass to the statistics; ``out`` gets log-likelihoods."""
        held, own, n = self._statistics, self._parameters, len(out)
        n_sample, plain = held.n_sample, type(way) is Way

        def call() -> None:
            run = self._both_ways(evidence, weights, way, out if plain else None)
            gather(own, run, held)
            if not plain:
                out[:] = way.outputs(run.values.take(own.root_rows, axis=1))

        with self._memory.opened(n, learns=True):
            if plain and replayable(out):
                self._memory.repeats.run(("gather", n), (*evidence, weights, out), {}, call)
            else:
                call()
        held.n_sample = n_sample + n

    def parameter_flows(self, nodes: Nodes) -> Array:
        """Give the expected counts gathered for a node vector since the last step, float64.

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
        owner, held = self._owner(nodes), self._statistics
        if isinstance(owner, SumNodes):
            tiles = np.zeros(owner.parameter_shape)
            for block in self.layout.blocks[owner.number]:
                part = slice(block.first, block.first + block.size)
                theta = self._parameters.theta[part].astype(np.float64)
                theta = theta if held.exponent == 1 else power(theta, held.exponent)
                flow = _device.to_numpy(theta * (held.totals[part] + held.chains[part]))
                block.scatter(flow.reshape(block.n_child, block.n_node), tiles)
            return tiles
        source = next(s for s in self._parameters.sources if s.nodes is owner)
        flow = held.leaf_totals[source.statistic] + held.leaf_chains[source.statistic]
        return _device.to_numpy(flow).reshape(owner.n_node, -1)

    def em_step(
        self,
        x: Any = None,
        *,
        missing: Any = None,
        weights: Any = None,
        step: float = 1.0,
        pseudocount: float = 0.0,
        keep_zeros: bool = False,
        rule: Rule | None = None,
    ) -> Array | None:
        """Move the parameters towards the expected counts, and forget the counts.

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
        never lowers the likelihood.
        Source: Peharz, Gens, Pernkopf, Domingos, IEEE TPAMI 39, 2030 (2017).
        """
        check_em(step, pseudocount)
        result = self._accumulated(x, missing, weights, rule)
        self._need_statistics("em_step")
        self._maximise(step, pseudocount, keep_zeros)
        return result

    def _accumulated(self, x: Any, missing: Any, weights: Any, rule: Rule | None) -> Any:
        if x is None:
            return None
        return self.accumulate(x, missing=missing, weights=weights, rule=rule)

    def _need_statistics(self, name: str) -> None:
        if self._statistics.n_sample == 0:
            raise ParameterError(f"{name}: nothing was accumulated; give x or call accumulate")

    def _maximise(self, step: float, pseudocount: float, keep_zeros: bool) -> None:
        """Take a step of EM by the counts that are held, and forget them."""
        held, own = self._statistics, self._parameters
        held.unbend(own.theta)

        def call() -> None:
            maximise(own, held, step, pseudocount, keep_zeros)

        masked = any(isinstance(run.leaf, MaskedCategorical) for run in own.runs)
        if not masked and replayable(own.theta):
            key = ("em", float(pseudocount), bool(keep_zeros))
            self._memory.repeats.run(key, (own.theta,), {"step": np.float64(step)}, call)
        else:
            call()
        held.clear()


def check_em(step: float, pseudocount: float) -> None:
    """Check the numbers of a step of EM."""
    if not 0 < step <= 1:
        raise ParameterError(f"step: got {step!r}, need a number in (0, 1]")
    if not (np.isfinite(pseudocount) and pseudocount >= 0):
        raise ParameterError(f"pseudocount: got {pseudocount!r}, need a number from 0")


def maximise(
    own: Parameters, held: Statistics, step: float, pseudocount: float, keep_zeros: bool
) -> None:
    """Take a step of EM by counts, which stay."""
    numbers = (step, pseudocount, keep_zeros)
    steps.sum_maximise(own.uses, *numbers, held.chains, held.totals, own.theta)
    own.round()
    for run in own.runs:
        totals, extra = held.leaf_totals[run.statistic], pseudocount
        if isinstance(run.leaf, MaskedCategorical):
            # Where no sample may ever lie no count belongs: equal parts of the others.
            allowed = list(run.leaf.allowed)
            totals.reshape(run.n_node, -1)[:, allowed] += pseudocount / len(allowed)
            extra = 0.0
        arrays = (held.leaf_chains[run.statistic], totals, own.rows.parameters[run.parameter])
        ops.leaf_maximise(run.leaf, run.n_node, step, extra, keep_zeros, *arrays)
        own.refresh(run)
