"""`Circuit`: a compiled probabilistic circuit with its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._device import Device
from rpukit._files.schema import as_format_error
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device
from rpukit.circuits.compiled.layout import Layout
from rpukit.circuits.core import Core, make_core
from rpukit.circuits.describe import circuit_summary
from rpukit.circuits.graph.nodes import InputNodes, Nodes, SumNodes
from rpukit.circuits.learning import blocks, capturing, em, fit, gradient
from rpukit.circuits.peers import make_peers, parse_devices
from rpukit.circuits.queries import completion, information, likelihood
from rpukit.circuits.state import check_state, rebuild, state_of, take_state
from rpukit.random import Stream
from rpukit.summaries import Described, Summary

__all__ = ["Circuit"]

Array = Any


@enters_device("_describe", "__copy__", "__reduce__")
class Circuit(Described):
    """A probabilistic circuit: exact likelihoods, flows and learning.

    Parameters
    ----------
    roots : Nodes or sequence of Nodes
        As built by `rpukit.circuits.inputs`, `product`, `sum`, or by a structure such as
        `rpukit.circuits.hmm`. They are read, not changed; see `write_back`. Each of several roots
        is a distribution of the variables that it depends on.
    seed : int, numpy.random.SeedSequence or Stream
        For parameters that are not set.
    dtype : dtype
        float32 or float64.
    device : str
        "cpu", "gpu" or "gpu:1"; arrays of samples have to be there.
    devices : sequence of str, optional
        Several GPUs of one kind, such as ("gpu:0", "gpu:1"), instead of ``device``. The first one
        holds parameters and statistics, and arrays of samples have to be there. Learning,
        `log_likelihood` and `flows` share the samples out: blocks of 256, whose counts the first
        GPU adds in their order, so that the bits are those of one GPU. Other queries run on the
        first GPU.
    precision : str
        "fp32", or "bf16": sums of float32 circuits by products of bfloat16 on tensor cores, faster
        with hundreds of samples and less exact; or "bf16x3": by pairs of bfloat16, nearly as exact
        as "fp32", also of counts of tied weights. See "Tensor cores" of the guide to circuits.
    budget : int, optional
        Bytes, of each device, that parameters, statistics, tables and passes over samples may take
        together; more samples go in several passes, with the same bits. Beside it are data,
        results, `partials`, momenta of learning, and steps that are `captured`. Default: passes
        take up to 1/16 of a GPU's memory.

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
        devices: Sequence[str] | None = None,
        precision: str = "fp32",
        budget: int | None = None,
    ) -> None:
        homes = parse_devices(device, devices)
        with _device.using(homes[0]):
            self._core: Core = make_core(roots, seed, dtype, homes[0], precision, budget)
            self._core.peers = make_peers(self._core, homes, budget)

    # Each method below is a function of the module named, whose first argument is the circuit.

    log_likelihood = likelihood.log_likelihood
    values = likelihood.values
    flows = likelihood.flows
    marginal = likelihood.marginal

    conditional = completion.conditional
    sample = completion.sample
    most_probable = completion.most_probable

    is_deterministic = information.is_deterministic
    entropy = information.entropy
    kl = information.kl
    expectation = information.expectation

    accumulate = em.accumulate
    partials = blocks.partials
    absorb = blocks.absorb
    em_step = em.em_step
    parameter_flows = em.parameter_flows
    scaled_em_step = gradient.scaled_em_step
    gradient_step = gradient.gradient_step
    fit = fit.fit
    captured = capturing.captured

    @property
    def _device(self) -> Device:
        return self._core.device

    @property
    def _call_state(self) -> CallState:
        return self._core.call_state

    @property
    def layout(self) -> Layout:
        """The compiled graph: roots, node vectors and tables of layers."""
        return self._core.layout

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of parameters, values and flows: float32 or float64."""
        return self._core.dtype

    @property
    def device(self) -> str:
        """Where the circuit's arrays are: "cpu", "gpu" or "gpu:1"; the first of `devices`."""
        return str(self._core.device)

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices that pass over samples."""
        peers = self._core.peers
        return tuple(map(str, (self._core.device,) if peers is None else peers.devices))

    def to(
        self,
        device: str = "cpu",
        budget: int | None = None,
        *,
        devices: Sequence[str] | None = None,
    ) -> Circuit:
        """Copy the circuit to a device: parameters, statistics and clock of draws.

        Parameters
        ----------
        device : str
            "cpu", "gpu" or "gpu:1".
        budget, devices : optional
            Of the copy, as of `Circuit`.

        Returns
        -------
        Circuit

        Raises
        ------
        DeviceError, PlanError
        """
        return type(self).from_state(self.state(), device, budget, devices=devices)

    @property
    def precision(self) -> str:
        """Arithmetic of sums: "fp32", which stands for float64 too, "bf16" or "bf16x3"."""
        return self._core.parameters.precision

    @property
    def budget(self) -> int | None:
        """Bytes that the circuit may take; None for the default."""
        return self._core.memory.budget

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return self.layout.n_variable

    @property
    def n_parameters(self) -> int:
        """Number of parameters, tied ones counted once."""
        return int(self._core.parameters.theta.size + self._core.parameters.rows.parameters.size)

    @property
    def n_edges(self) -> int:
        """Number of weighted edges, tied ones counted at each use."""
        return self.layout.n_edge

    def __copy__(self) -> Circuit:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        core, peers = self._core.copied(), self._core.peers
        if peers is not None:
            core.peers = make_peers(core, peers.devices, self.budget)
        other._core = core
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles are made on the CPU, so that they open on a machine without a GPU.
        return type(self).from_state, (state_of(self._core, compact=True),)

    def _describe(self) -> Summary:
        return circuit_summary(self)

    def __repr__(self) -> str:
        return (
            f"<Circuit of {self.n_variables} variables: {self.layout.n_node} nodes, "
            f"{self.n_edges} edges, {self.n_parameters} parameters, {self.dtype}>"
        )

    def parameters(self, nodes: Nodes) -> Array:
        """Return the parameters of a node vector of this circuit, float64.

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
        return self._core.parameters.get(self._core.owner(nodes))

    @changes
    def set_parameters(self, nodes: Nodes, parameters: Any) -> Circuit:
        """Set the parameters of a node vector in this circuit, but not in the nodes.

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
        owner = self._core.owner(nodes)
        checked = owner.checked(parameters)
        self._call_state.changing()
        self._core.parameters.put(owner, checked)
        return self

    @changes
    def write_back(self) -> Circuit:
        """Store the learned parameters in the node vectors.

        Returns
        -------
        Circuit
            This circuit.
        """
        for nodes in self.layout.nodes:
            if isinstance(nodes, (SumNodes, InputNodes)):
                nodes.source._parameters = self._core.parameters.get(nodes.source)
        return self

    def state(self) -> dict[str, Any]:
        """Return the whole state of the circuit, graph included, for `rpukit.save`.

        Returns
        -------
        dict
            ``header``, which JSON can hold, and ``arrays``.
        """
        return state_of(self._core)

    @classmethod
    def from_state(
        cls,
        state: dict[str, Any],
        device: str = "cpu",
        budget: int | None = None,
        *,
        devices: Sequence[str] | None = None,
    ) -> Circuit:
        """Rebuild a circuit from its state; it continues to the same bits.

        Parameters
        ----------
        state : dict
            As `state` gives it.
        device : str
            "cpu", "gpu" or "gpu:1".
        budget, devices : optional
            As of `Circuit`.

        Returns
        -------
        Circuit

        Raises
        ------
        FormatError, DeviceError, PlanError
        """
        header = cls._check_state(state)
        how = {"dtype": header["dtype"], "precision": header.get("precision", "fp32")}
        with as_format_error("state"):
            circuit = cls(rebuild(state), **how, device=device, devices=devices, budget=budget)
        with as_format_error("state"), _device.using(circuit._device):
            take_state(circuit._core, state)
        return circuit

    _check_state = staticmethod(check_state)
