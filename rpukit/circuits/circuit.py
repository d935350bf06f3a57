"""`Circuit`: a compiled probabilistic circuit with its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit._device import parse_device
from rpukit.circuits import _saved, ops
from rpukit.circuits._data import checked_weights, encoded
from rpukit.circuits._layout import make_layout
from rpukit.circuits._parameters import BLOCK, Parameters, Statistics
from rpukit.circuits._passes import Pass, gather, run_down, run_up
from rpukit.circuits.fitting import Fitting
from rpukit.circuits.nodes import InputNodes, Nodes, SumNodes
from rpukit.circuits.querying import Queries
from rpukit.errors import DeviceError, DTypeError, ParameterError
from rpukit.random import Stream

__all__ = ["Circuit"]

Array = Any

DRAWS = (1 << 48) - 1  # child stream of samples; those of parameters count from 0
_BUDGET = 1 << 25  # values of rows that a pass holds at a time


class Circuit(Queries, Fitting):
    """A probabilistic circuit: exact likelihoods, flows and learning.

    Parameters
    ----------
    roots : Nodes or sequence of Nodes
        As built by `rpukit.circuits.inputs`, `product`, `sum`, or by a structure such as
        `rpukit.circuits.hmm`. They are read, not changed; see `write_back`.
    seed : int
        For parameters that are not set.
    dtype : dtype
        float32 or float64.

    Raises
    ------
    StructureError, DTypeError

    Notes
    -----
    A sample's log-likelihood has the same bits alone or in any batch; statistics and parameters
    after learning have the same bits for any cut of the samples into batches, as long as their
    order is the same, and for any number of threads.
    Source: Choi, Vergari, Van den Broeck, "Probabilistic circuits: a unifying framework for
    tractable probabilistic models", 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import rpukit as rk
    >>> leaves = [rk.circuits.inputs(v, rk.circuits.Bernoulli(), 2) for v in range(2)]
    >>> mixture = rk.circuits.sum(rk.circuits.product(*leaves), n_nodes=1)
    >>> pc = rk.Circuit(mixture, dtype="float64")
    >>> every = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> round(float(np.exp(pc.log_likelihood(every)).sum()), 12)
    1.0
    """

    def __init__(
        self, roots: Nodes | Sequence[Nodes], *, seed: int = 0, dtype: Any = np.float32
    ) -> None:
        given = [roots] if isinstance(roots, Nodes) else list(roots)
        if not given or not all(isinstance(root, Nodes) for root in given):
            raise DTypeError(f"roots: got {roots!r}, need node vectors")
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float32, np.float64):
            raise DTypeError(f"dtype: got {self.dtype}, need float32 or float64")
        self.layout = make_layout(given)
        stream = Stream.from_seed(seed)
        self._parameters = Parameters(self.layout, stream, self.dtype)
        self._stream, self._n_drawn = stream.child(DRAWS), 0
        self._statistics = Statistics(self._parameters)

    # ---- what it is ---------------------------------------------------------------------------

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return self.layout.n_variable

    @property
    def n_parameters(self) -> int:
        """Number of parameters, tied ones counted once."""
        return int(self._parameters.theta.size + self._parameters.rows.parameters.size)

    @property
    def n_edges(self) -> int:
        """Number of weighted edges, tied ones counted at each use."""
        return self.layout.n_edge

    def __repr__(self) -> str:
        return (
            f"<Circuit of {self.n_variables} variables: {self.layout.n_row} nodes, "
            f"{self.n_edges} edges, {self.n_parameters} parameters, {self.dtype}>"
        )

    def parameters(self, nodes: Nodes) -> Array:
        """Give the parameters of a node vector of this circuit, float64.

        Parameters
        ----------
        nodes : InputNodes or SumNodes

        Returns
        -------
        array
            Of a sum: weights (n_edge, block_size, child_block_size); of inputs: (n_node,
            leaf.n_parameters).

        Raises
        ------
        ParameterError
            If the nodes are not of this circuit.
        """
        return self._parameters.get(self._owner(nodes))

    def set_parameters(self, nodes: Nodes, parameters: Any) -> Circuit:
        """Set the parameters of a node vector in this circuit; the nodes keep theirs.

        Parameters
        ----------
        nodes : InputNodes or SumNodes
        parameters : array
            As `parameters` gives them; weights are normalised.

        Returns
        -------
        Circuit
            This circuit.

        Raises
        ------
        ParameterError, ShapeError
        """
        owner = self._owner(nodes)
        self._parameters.put(owner, owner.checked(parameters))
        return self

    def write_back(self) -> Circuit:
        """Give the node vectors the parameters that this circuit has learned.

        Returns
        -------
        Circuit
            This circuit.
        """
        for nodes in self.layout.nodes:
            if isinstance(nodes, (SumNodes, InputNodes)):
                nodes.source._parameters = self._parameters.get(nodes.source)
        return self

    def state(self) -> dict[str, Any]:
        """Give everything that the circuit is, graph included, for `rpukit.save`.

        Returns
        -------
        dict
            ``header``, which JSON can hold, and ``arrays``.
        """
        return _saved.state_of(self)

    @classmethod
    def from_state(cls, state: dict[str, Any], device: str = "cpu") -> Circuit:
        """Make the circuit of a state; it continues to the same bits.

        Parameters
        ----------
        state : dict
            As `state` gives it.
        device : str
            "cpu".

        Returns
        -------
        Circuit

        Raises
        ------
        FormatError, DeviceError
        """
        if parse_device(device).kind != "cpu":
            raise DeviceError("circuits run on the CPU only, as yet")
        header = state["header"]
        pc = cls(_saved.rebuild(state), dtype=header["dtype"])
        pc._stream, pc._n_drawn = Stream(*header["stream"]), int(header["n_drawn"])
        _saved.take_state(pc, state)
        return pc

    def _owner(self, nodes: Nodes) -> Any:
        if nodes.number not in self.layout.rows or not isinstance(nodes, (SumNodes, InputNodes)):
            raise ParameterError(f"{nodes!r} is no sum and no input of this circuit")
        return nodes.source

    # ---- likelihood and flows -----------------------------------------------------------------

    def log_likelihood(self, x: Any, *, missing: Any = None) -> Array:
        """Compute log p(x) of each sample, or of what is known of it.

        Parameters
        ----------
        x : array, shape (n_sample, n_variables) or (n_variables,)
            Integers, or floats; NaN is missing.
        missing : array of bool, shape of x or (n_variables,), optional
            What is unknown; it is summed over, exactly.

        Returns
        -------
        array, shape (n_sample,), or (n_sample, n_root) with several roots; nats
            -inf where the circuit says that a sample is impossible.

        Raises
        ------
        ShapeError, DTypeError
        NonFiniteError
            If x holds infinity.
        ParameterError
            If a value is outside its leaf's support.
        """
        codes, numbers = self._encoded(x, missing)
        roots = self.layout.root_rows
        out = np.empty((len(codes), roots.size), self.dtype)
        step = max(1, _BUDGET // self.layout.n_row)
        for first in range(0, len(codes), step):
            part = slice(first, first + step)
            out[part] = run_up(self._parameters, codes[part], numbers[part]).values[:, roots]
        return out[:, 0] if roots.size == 1 else out

    def flows(self, x: Any, *, missing: Any = None, weights: Any = None) -> dict[Nodes, Array]:
        """Compute the flows of all sums, inputs and kept products: d log p(x) / d log node.

        Parameters
        ----------
        x, missing : array
            As in `log_likelihood`.
        weights : array, shape (n_sample,) or (n_sample, n_root), optional
            Flow of the roots; default 1.

        Returns
        -------
        dict of Nodes to array, shape (n_sample, n_node)
            The posterior probability that a node is used. All 0 for an impossible sample.

        Raises
        ------
        ShapeError, DTypeError, NonFiniteError, ParameterError
        """
        codes, numbers = self._encoded(x, missing)
        run = self._both_ways(codes, numbers, self._weights(weights, len(codes)))
        return {
            nodes: run.flows[:, self.layout.rows[nodes.number]]
            for nodes in self.layout.nodes
            if nodes.number in self.layout.rows
        }

    def _both_ways(self, codes: Array, numbers: Array, weights: Array) -> Pass:
        run = run_up(self._parameters, codes, numbers, keep=True)
        return run_down(self._parameters, run, weights)

    # ---- learning -----------------------------------------------------------------------------

    def accumulate(self, x: Any, *, missing: Any = None, weights: Any = None) -> Array:
        """Add the flows of samples to the statistics that the next step uses.

        Parameters
        ----------
        x, missing, weights : array
            As in `flows`.

        Returns
        -------
        array
            Log-likelihoods, as of `log_likelihood`.

        Raises
        ------
        ShapeError, DTypeError, NonFiniteError, ParameterError
        """
        codes, numbers = self._encoded(x, missing)
        weights = self._weights(weights, len(codes))
        roots = self.layout.root_rows
        out = np.empty((len(codes), roots.size), self.dtype)
        most = max(1, _BUDGET // (4 * self.layout.n_row))
        first = 0
        while first < len(codes):
            left = BLOCK - self._statistics.n_sample % BLOCK
            part = slice(first, first + min(most, left))
            run = self._both_ways(codes[part], numbers[part], weights[part])
            gather(self._parameters, run, self._statistics)
            out[part] = run.values[:, roots]
            first = part.stop
        self._statistics.weight += float(weights.sum())
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
                flow = theta * (held.totals[part] + held.chains[part])
                block.scatter(flow.reshape(block.n_child, block.n_node), tiles)
            return tiles
        source = next(s for s in self._parameters.sources if s.nodes is owner)
        flow = held.leaf_totals[source.statistic] + held.leaf_chains[source.statistic]
        return flow.reshape(owner.n_node, -1)

    def em_step(
        self,
        x: Any = None,
        *,
        missing: Any = None,
        weights: Any = None,
        step: float = 1.0,
        pseudocount: float = 0.0,
        keep_zeros: bool = False,
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
        result = None if x is None else self.accumulate(x, missing=missing, weights=weights)
        held, own = self._statistics, self._parameters
        if held.n_sample == 0:
            raise ParameterError("em_step: nothing was accumulated; give x or call accumulate")
        for blocks in self.layout.blocks.values():
            _maximise_sums(blocks, own, held, step, pseudocount, keep_zeros)
        for source in own.sources:
            ops.leaf_maximise(
                source.leaf,
                source.nodes.n_node,
                step,
                pseudocount,
                keep_zeros,
                held.leaf_chains[source.statistic],
                held.leaf_totals[source.statistic],
                own.rows.parameters[source.parameter],
            )
            own.refresh(source)
        held.clear()
        return result

    # ---- checks -------------------------------------------------------------------------------

    def _encoded(self, x: Any, missing: Any) -> tuple[Array, Array]:
        return encoded(self.layout, self.dtype, x, missing)

    def _weights(self, weights: Any, n: int) -> Array:
        return checked_weights(weights, (n, self.layout.root_rows.size), self.dtype)


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
