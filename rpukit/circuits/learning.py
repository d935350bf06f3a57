"""Learning from expected counts: `Circuit` inherits these methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits import ops
from rpukit.circuits._base import Held
from rpukit.circuits._parameters import Parameters, Statistics
from rpukit.circuits._passes import gather
from rpukit.circuits.leaves import MaskedCategorical
from rpukit.circuits.nodes import Nodes, SumNodes
from rpukit.circuits.rules import Rule
from rpukit.elementwise import power
from rpukit.errors import ParameterError

__all__ = ["Learning"]

Array = Any

PASS = 512  # samples of a pass at most


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
        codes, numbers = self._encoded(x, missing)
        weights = self._weights(weights, len(codes))
        roots, xp = self._parameters.root_rows, _device.namespace_of(self._device)
        out = _device.empty((len(codes), roots.size), self.dtype, self._device)
        step = min(PASS, self._most_samples(4))
        for first in range(0, len(codes), step):
            part = slice(first, first + step)
            run = self._both_ways((codes[part], numbers[part]), weights[part], way)
            gather(self._parameters, run, held)
            out[part] = way.outputs(run.values[:, roots])
        held.exponent = way.exponent
        held.weigh(xp.where(out > -np.inf, weights, 0))
        return out[:, 0] if roots.size == 1 else out

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
        if not 0 < step <= 1:
            raise ParameterError(f"step: got {step!r}, need a number in (0, 1]")
        if not (np.isfinite(pseudocount) and pseudocount >= 0):
            raise ParameterError(f"pseudocount: got {pseudocount!r}, need a number from 0")
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
        for blocks in self.layout.blocks.values():
            _maximise_sums(blocks, own, held, step, pseudocount, keep_zeros)
        for source in own.sources:
            totals, extra = held.leaf_totals[source.statistic], pseudocount
            if isinstance(source.leaf, MaskedCategorical):
                # Where no sample may ever lie no count belongs: equal parts of the others.
                allowed = list(source.leaf.allowed)
                totals.reshape(source.nodes.n_node, -1)[:, allowed] += pseudocount / len(allowed)
                extra = 0.0
            ops.leaf_maximise(
                source.leaf,
                source.nodes.n_node,
                step,
                extra,
                keep_zeros,
                held.leaf_chains[source.statistic],
                totals,
                own.rows.parameters[source.parameter],
            )
            own.refresh(source)
        held.clear()


def _maximise_sums(
    blocks: Any, own: Parameters, held: Statistics, step: float, pseudocount: float, zeros: bool
) -> None:
    for block in blocks:
        part = slice(block.first, block.first + block.size)
        ops.sum_maximise(
            block.n_child,
            step,
            pseudocount,
            zeros,
            held.chains[part],
            held.totals[part],
            own.theta[part],
        )
