"""`Circuit`: a compiled probabilistic circuit with its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit._device import empty, parse_device
from rpukit.circuits import state as _saved
from rpukit.circuits.compiled.encoder import Encoder
from rpukit.circuits.compiled.layout import make_layout
from rpukit.circuits.describe import DescribedCircuit
from rpukit.circuits.graph.nodes import InputNodes, Nodes, SumNodes
from rpukit.circuits.learning.cuda_graph import Captured, Maximising
from rpukit.circuits.learning.fit import Fitting
from rpukit.circuits.memory import Memory
from rpukit.circuits.parameters import Parameters, Statistics
from rpukit.circuits.queries.propagation import Rule
from rpukit.circuits.queries.queries import Queries
from rpukit.errors import DTypeError, ParameterError
from rpukit.random import Stream

__all__ = ["Circuit"]

Array = Any

DRAWS = (1 << 48) - 1  # child stream of samples; those of parameters count from 0


class Circuit(Queries, Fitting, DescribedCircuit):
    """A probabilistic circuit: exact likelihoods, flows and learning.

    Parameters
    ----------
    roots : Nodes or sequence of Nodes
        As built by `rpukit.circuits.inputs`, `product`, `sum`, or by a structure such as
        `rpukit.circuits.hmm`. They are read, not changed; see `write_back`.
    seed : int, numpy.random.SeedSequence or Stream
        For parameters that are not set.
    dtype : dtype
        float32 or float64.
    device : str
        "cpu", "gpu" or "gpu:1"; arrays of samples have to be there.
    precision : str
        "fp32", or "bf16": sums of float32 circuits by products of bfloat16 on tensor cores, faster
        with hundreds of samples and less exact; see "Tensor cores" of the guide to circuits.
    budget : int, optional
        Bytes that parameters, statistics, tables and passes over samples may take together; more
        samples go in several passes, with the same bits. Beside it are data, results, momenta of
        learning, and steps that are `captured`. Default: passes take up to 1/16 of a GPU's
        memory.

    Raises
    ------
    StructureError, DTypeError, DeviceError, ParameterError
    PlanError
        If a budget is too small for one sample.

    Notes
    -----
    A sample's log-likelihood has the same bits alone or in any batch; statistics and parameters
    after learning have the same bits for any cut of the samples into batches, as long as their
    order is the same, for any number of threads, and on a GPU.
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
        self,
        roots: Nodes | Sequence[Nodes],
        *,
        seed: int | np.random.SeedSequence | Stream = 0,
        dtype: Any = np.float32,
        device: str = "cpu",
        precision: str = "fp32",
        budget: int | None = None,
    ) -> None:
        given = list(roots) if isinstance(roots, Sequence) else [roots]
        if not given or not all(isinstance(root, Nodes) for root in given):
            raise DTypeError(f"roots: got {roots!r}, need node vectors")
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float32, np.float64):
            raise DTypeError(f"dtype: got {self.dtype}, need float32 or float64")
        if precision not in ("fp32", "bf16"):
            raise ParameterError(f'precision: got {precision!r}, need "fp32" or "bf16"')
        if precision == "bf16" and self.dtype != np.float32:
            raise DTypeError(f'precision "bf16": got dtype {self.dtype}, need float32')
        self._device = parse_device(device)
        self.layout = make_layout(given)
        stream = Stream.from_seed(seed)
        tensor = precision == "bf16"
        self._parameters = Parameters(self.layout, stream, self.dtype, self._device, tensor=tensor)
        self._stream, self._n_drawn = stream.child(DRAWS), 0
        self._statistics = Statistics(self._parameters)
        self._encoder = Encoder(self.layout, self.dtype, self._device)
        self._memory = Memory(self._parameters, self._statistics, budget)

    # ---- what it is ---------------------------------------------------------------------------

    @property
    def device(self) -> str:
        """Where the circuit's arrays are: "cpu", "gpu" or "gpu:1"."""
        return str(self._device)

    def to(self, device: str, budget: int | None = None) -> Circuit:
        """Copy the circuit to a device: parameters, statistics and clock of draws.

        Parameters
        ----------
        device : str
            "cpu", "gpu" or "gpu:1".
        budget : int, optional
            Of the copy, as of `Circuit`.

        Returns
        -------
        Circuit

        Raises
        ------
        DeviceError, PlanError
        """
        return type(self).from_state(self.state(), device, budget)

    @property
    def precision(self) -> str:
        """How sums are computed: "fp32", which stands for float64 too, or "bf16"."""
        return "fp32" if self._parameters.rounded is None else "bf16"

    @property
    def budget(self) -> int | None:
        """Bytes that the circuit may take; None for the default."""
        return self._memory.budget

    def captured(
        self,
        batch_size: int,
        *,
        step: float | None = None,
        pseudocount: float = 0.0,
        keep_zeros: bool = False,
    ) -> Captured:
        """Capture `accumulate`, or `em_step`, for one size of batch as a CUDA graph.

        Parameters
        ----------
        batch_size : int
        step : float, in (0, 1], optional
            Take a step of EM after each batch, as `em_step` does. Default: only gather.
        pseudocount, keep_zeros : optional
            Of the step of EM.

        Returns
        -------
        Captured
            Call it as `accumulate`: the bits are the same, and a call costs one launch, beside the
            checks of the data. It holds the arrays of a pass of its own.

        Raises
        ------
        DeviceError
            If the circuit is on the CPU.
        ParameterError
        PlanError
            If such a pass does not fit the circuit's budget.

        Examples
        --------
        >>> import rpukit as rk
        >>> pc = rk.Circuit(rk.circuits.hmm(5, 3, 4), device="gpu")  # doctest: +SKIP
        >>> with pc.captured(64) as step:  # doctest: +SKIP
        ...     log_likelihood = step(x)
        """
        em = None if step is None else Maximising(step, pseudocount, keep_zeros)
        return Captured(self, batch_size, em)

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
    def from_state(
        cls, state: dict[str, Any], device: str = "cpu", budget: int | None = None
    ) -> Circuit:
        """Make the circuit of a state; it continues to the same bits.

        Parameters
        ----------
        state : dict
            As `state` gives it.
        device : str
            "cpu", "gpu" or "gpu:1".
        budget : int, optional
            As of `Circuit`.

        Returns
        -------
        Circuit

        Raises
        ------
        FormatError, DeviceError, PlanError
        """
        header = state["header"]
        how = {"dtype": header["dtype"], "precision": header.get("precision", "fp32")}
        pc = cls(_saved.rebuild(state), **how, device=device, budget=budget)
        pc._stream, pc._n_drawn = Stream(*header["stream"]), int(header["n_drawn"])
        _saved.take_state(pc, state)
        return pc

    def __copy__(self) -> Circuit:
        return self.to(self.device, self.budget)  # nothing is shared

    def __deepcopy__(self, memo: dict[int, Any]) -> Circuit:
        return self.to(self.device, self.budget)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_state, (self.state(),)  # a pickle opens without a GPU

    # ---- likelihood and flows -----------------------------------------------------------------

    def log_likelihood(
        self, x: Any, *, missing: Any = None, soft: Any = None, rule: Rule | None = None
    ) -> Array:
        """Compute log p(x) of each sample, or of what is known of it.

        Parameters
        ----------
        x : array, shape (n_sample, n_variables) or (n_variables,)
            Integers, or floats; NaN is missing.
        missing : array of bool, shape of x or (n_variables,), optional
            What is unknown; it is summed over, exactly.
        soft : array, shape (n_sample, n_variables, n_values), optional
            Soft evidence: factors, from 0, of the values of unknown variables, n_values being the
            largest support; x may be None then. Ones say nothing.
        rule : Rule, optional
            How sums add up; default as probabilities do.

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
        roots, way = self._parameters.root_rows, self._way(rule)
        x, step = self._beside(soft, x), self._memory.samples(learns=False)
        n, read = self._encoder.parts(x, missing, step)
        soft = self._factors(soft, n)
        out = empty((n, roots.size), self.dtype, self._device)
        for part, codes, numbers in read:
            some = None if soft is None else soft[part]
            values = self._values(way, codes, numbers, some)
            out[part] = way.outputs(values[:, roots])
        return out[:, 0] if roots.size == 1 else out

    def flows(
        self,
        x: Any,
        *,
        missing: Any = None,
        weights: Any = None,
        soft: Any = None,
        rule: Rule | None = None,
    ) -> dict[Nodes, Array]:
        """Compute the flows of all sums, inputs and kept products: d log p(x) / d log node.

        Parameters
        ----------
        x, missing : array
            As in `log_likelihood`.
        weights : array, shape (n_sample,) or (n_sample, n_root), optional
            Flow of the roots; default 1.
        soft, rule : optional
            As in `log_likelihood`.

        Returns
        -------
        dict of Nodes to array, shape (n_sample, n_node)
            The posterior probability that a node is used. All 0 for an impossible sample.

        Raises
        ------
        ShapeError, DTypeError, NonFiniteError, ParameterError
        """
        evidence = self._evidence(x, missing, soft)
        weights = self._weights(weights, len(evidence[0]))
        run = self._both_ways(evidence, weights, self._way(rule))
        return self._by_nodes(run.flows)
