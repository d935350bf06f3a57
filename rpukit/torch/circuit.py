"""`Circuit`: a probabilistic circuit as a module, whose gradients are its flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import rpukit.circuits
from rpukit import _device
from rpukit.circuits import (
    Gaussian,
    InputNodes,
    MultivariateNormal,
    Nodes,
    Poisson,
    SumNodes,
)
from rpukit.circuits.core import Core
from rpukit.circuits.ops.normal import slopes_of_normal
from rpukit.circuits.queries.passes import both_ways, gather, propagation_of
from rpukit.circuits.queries.soft_evidence import soft_posterior
from rpukit.elementwise import exp
from rpukit.errors import DTypeError, NonFiniteError, ParameterError, ShapeError
from rpukit.torch._torch import torch
from rpukit.torch.bridge import array_of, on_device, tensor_of
from rpukit.torch.free_parameters import LEARNED, begin, put, shape_of, slopes, total

__all__ = ["Circuit"]

Array = Any
Tensor = Any


class Circuit(torch.nn.Module):  # type: ignore[misc]
    """A probabilistic circuit as a module: log-likelihoods with gradients.

    Parameters
    ----------
    circuit : rpukit.Circuit, Nodes or sequence of Nodes
        Nodes are compiled with the options that follow.
    outside : sequence of Nodes
        Node vectors of the circuit whose parameters come with each call, from a network; all
        others that can learn become parameters of the module.
    **options
        Of `rpukit.Circuit`: seed, dtype, device.

    Attributes
    ----------
    circuit : rpukit.Circuit
        It holds the parameters of the last call; `update_circuit` sets those of the module.

    Raises
    ------
    DTypeError, ParameterError, StructureError, DeviceError

    Notes
    -----
    Parameters are free numbers of the shape that `rpukit.Circuit.parameters` gives: logits of sums
    and of categorical leaves, normalised as the softmax does; logits of `Bernoulli` and
    `Binomial`; mean and logarithm of the deviation of `Gaussian`; logarithm of the rate of
    `Poisson`. Parameters of other leaves stay as they are.

    Gradients are flows, exact up to rounding: of log weights and leaves the expected counts of the
    batch, of inputs those of single samples. A sample's log-likelihood, and the gradients of its
    values and of its soft evidence, have the same bits in any batch; gradients of parameters have
    the same bits for any budget, cut into passes and number of threads. Parameters of a call are
    shared by its samples. What differs from sample to sample comes as soft evidence of variables
    of `Indicator` leaves: the leaf of value k then has the factor k that a network gives.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> nodes = rk.circuits.mixture(2, 3, rk.circuits.Gaussian())
    >>> pc = rk.torch.Circuit(nodes, dtype="float64", seed=1)
    >>> x = torch.zeros(4, 2, dtype=torch.float64, requires_grad=True)
    >>> (-pc(x).mean()).backward()
    >>> x.grad.shape, sorted(p.grad is not None for p in pc.parameters())
    (torch.Size([4, 2]), [True, True, True])
    """

    def __init__(self, circuit: Any, *, outside: Sequence[Nodes] = (), **options: Any) -> None:
        super().__init__()
        if isinstance(circuit, rpukit.circuits.Circuit):
            if options:
                raise ParameterError(
                    f"{', '.join(options)}: the circuit is compiled already; give nodes, or make "
                    "it so"
                )
        else:
            circuit = rpukit.circuits.Circuit(circuit, **options)
        self.circuit = circuit
        core: Core = circuit._core
        self._last: Any = None  # the call whose parameters the circuit holds
        places = {nodes.source: k for k, nodes in reversed(list(enumerate(core.layout.nodes)))}
        outside = [core.owner(nodes) for nodes in outside]
        for owner in outside:
            _need_learned(owner)
        # Node vectors are found by their place, which copies of the module keep.
        self._outside = [places[owner] for owner in outside]
        self._places: dict[str, int] = {}
        self.free = torch.nn.ParameterDict()
        for owner, k in places.items():
            if k not in self._outside and _learned(owner):
                first = _device.to_device(begin(core, owner).astype(core.dtype), core.device)
                name = f"{owner.KIND}_{k}"
                self._places[name] = k
                with _device.using(core.device):
                    self.free[name] = torch.nn.Parameter(tensor_of(first, None).clone())

    def _owner(self, k: int) -> Any:
        return self.circuit._core.layout.nodes[k].source

    def free_parameters(self, nodes: Nodes) -> Tensor:
        """Return the module's parameter of a node vector.

        Parameters
        ----------
        nodes : InputNodes or SumNodes

        Returns
        -------
        Parameter

        Raises
        ------
        ParameterError
            If the nodes are not of this circuit, or do not learn here.
        """
        owner = self.circuit._core.owner(nodes)
        for name, k in self._places.items():
            if self._owner(k) is owner:
                return self.free[name]
        raise ParameterError(f"nodes: {nodes!r} has no parameters in this module")

    def forward(
        self,
        x: Tensor,
        *,
        missing: Tensor | None = None,
        soft: Mapping[int, Tensor] | None = None,
        parameters: Mapping[Nodes, Tensor] | None = None,
    ) -> Tensor:
        """Compute log p(x) of each sample, with gradients.

        Parameters
        ----------
        x : Tensor, shape (n_sample, n_variables), on the circuit's device
            Integers, or floats; NaN is missing. Gradients are those of `Gaussian` leaves, and 0
            at values of tables, at counts and where x is missing.
        missing : Tensor of bool, shape of x or (n_variables,), optional
        soft : mapping of int to Tensor, shape (n_sample, n_values), optional
            Of variables that are missing: logarithms of factors of their values, by sample.
        parameters : mapping of Nodes to Tensor, optional
            Free parameters of the nodes given as ``outside``; others replace those of the module.

        Returns
        -------
        Tensor, shape (n_sample,), or (n_sample, n_root) with several roots

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError, ParameterError
        """
        core: Core = self.circuit._core
        given = {core.owner(nodes): tensor for nodes, tensor in (parameters or {}).items()}
        lacking = [self._owner(k) for k in self._outside if self._owner(k) not in given]
        if lacking:
            raise ParameterError(f"parameters: {lacking[0]!r} is outside, need its parameters")
        every = {self._owner(k): self.free[name] for name, k in self._places.items()} | given
        for owner, tensor in every.items():
            _need_learned(owner)
            _check_tensor(tensor, shape_of(owner), repr(owner))
        soft = dict(soft or {})
        for var, tensor in soft.items():
            n_value = self._n_value(var)
            _check_tensor(tensor, (len(x), n_value), f"soft[{var}]")
        if torch.is_grad_enabled():
            self._check_gradients(x, soft, every)
        call = _Call(self, tuple(every), tuple(soft), missing)
        return _LogLikelihood.apply(call, x, *every.values(), *soft.values())

    def _n_value(self, var: Any) -> int:
        support, n = self.circuit._core.encoder._columns[0], self.circuit.n_variables
        if not (isinstance(var, int) and 0 <= var < n and support[var]):
            raise ParameterError(
                f"soft: got variable {var!r}, need one that has a table of values"
            )
        return int(support[var])

    def _check_gradients(
        self, x: Tensor, soft: Mapping[int, Tensor], every: Mapping[Any, Tensor]
    ) -> None:
        """Check that all gradients that are asked for are known."""
        for nodes in self.circuit.layout.inputs:
            tensor, kind = every.get(nodes.source), type(nodes.leaf).__name__
            if nodes.var in soft and tensor is not None and tensor.requires_grad:
                raise ParameterError(
                    f"soft: {nodes!r} of {kind} cannot learn from soft evidence of its variable: "
                    "freeze its parameters, or take Indicator leaves"
                )
            if x.requires_grad and not (
                nodes.leaf.TABLE or isinstance(nodes.leaf, (Gaussian, MultivariateNormal, Poisson))
            ):
                raise ParameterError(f"x: {nodes!r} of {kind} has no gradient of its value")

    def update_circuit(self) -> rpukit.circuits.Circuit:
        """Set the parameters of the circuit to those of the module.

        Returns
        -------
        rpukit.Circuit
            The circuit: for samples, conditionals and files.
        """
        owners = tuple(self._owner(k) for k in self._places.values())
        tensors = [self.free[name] for name in self._places]
        call = _Call(self, owners, (), None)
        if tensors:
            with on_device(tensors[0]):
                call.put(tensors)
        updated: rpukit.circuits.Circuit = self.circuit
        return updated

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def extra_repr(self) -> str:
        """Describe the circuit for PyTorch's representation of modules.

        Returns
        -------
        str
        """
        return repr(self.circuit)


def _learned(owner: Any) -> bool:
    if isinstance(owner, InputNodes):
        return isinstance(owner.leaf, LEARNED)
    return isinstance(owner, SumNodes)


def _need_learned(owner: Any) -> None:
    if not _learned(owner):
        raise ParameterError(
            f"parameters: {owner!r} of {type(owner.leaf).__name__} cannot learn here; sums, and "
            f"leaves of {', '.join(kind.__name__ for kind in LEARNED)} can"
        )


def _check_tensor(tensor: Any, shape: tuple[int, ...], name: str) -> None:
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        raise DTypeError(f"{name}: got {type(tensor).__name__}, need a Tensor of floats")
    if tuple(tensor.shape) != shape:
        hint = "; parameters are shared by the samples of a call" * (tensor.ndim > len(shape))
        raise ShapeError(f"{name}: got shape {tuple(tensor.shape)}, need {shape}{hint}")


class _Call:
    """One call of a module: where its tensors go, and the passes of its gradient."""

    def __init__(
        self, module: Circuit, owners: tuple[Nodes, ...], soft: tuple[int, ...], missing: Any
    ) -> None:
        self.module, self.owners, self.variables = module, owners, soft
        self.missing = None if missing is None else array_of(missing)

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Set the circuit's parameters, unless they are those of this call already."""
        core: Core = self.module.circuit._core
        if self.module._last == (self, core.parameters.version):
            return
        self.module._last = None
        for owner, tensor in zip(self.owners, tensors, strict=True):
            free = array_of(tensor.contiguous()).astype(np.float64)
            xp = _device.namespace(free)
            if xp.isnan(free).any() or (free == np.inf).any():
                raise NonFiniteError(f"parameters of {owner!r}: got NaN or inf, need numbers")
            put(core, owner, free)
        core.parameters.version += 1
        core.parameters.round()
        self.module._last = self, core.parameters.version

    def factors(self, x: Array, tensors: Sequence[Tensor]) -> tuple[Array, Array, Array]:
        """Soft evidence: factors, at most 1; what they were divided by; where x is unknown."""
        core: Core = self.module.circuit._core
        xp, n_value = _device.namespace(x), int(core.encoder._columns[0].max())
        unknown = xp.isnan(x) if x.dtype.kind == "f" else xp.zeros(x.shape, bool)
        if self.missing is not None:
            unknown = unknown | self.missing
        if not self.variables:
            return None, None, unknown
        soft = xp.ones((*x.shape, n_value), core.dtype)
        shift = xp.zeros(len(x))
        for var, tensor in zip(self.variables, tensors, strict=True):
            logs = array_of(tensor.contiguous()).astype(np.float64)
            most = logs.max(axis=1)
            most = xp.where(most > -np.inf, most, 0.0)
            soft[:, var, : logs.shape[1]] = exp(xp.ascontiguousarray(logs - most[:, None]))
            shift = shift + xp.where(unknown[:, var], most, 0.0)
        return soft, shift, unknown


class _LogLikelihood(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: _Call, x: Tensor, *tensors: Tensor) -> Tensor:
        n_owner, circuit = len(call.owners), call.module.circuit
        with on_device(x):
            call.put(tensors[:n_owner])
            array = array_of(x.contiguous())
            soft, shift, _ = call.factors(array, tensors[n_owner:])
            out = circuit.log_likelihood(array, missing=call.missing, soft=soft)
            if shift is not None:
                out = out + shift.reshape((-1,) + (1,) * (out.ndim - 1)).astype(out.dtype)
            ctx.call = call
            ctx.save_for_backward(x, *tensors)
            return tensor_of(out, None)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d: Tensor) -> tuple[Any, ...]:
        x, *tensors = ctx.saved_tensors
        call: _Call = ctx.call
        n_owner = len(call.owners)
        needs = ctx.needs_input_grad[1], ctx.needs_input_grad[2:]
        with on_device(x):
            call.put(tensors[:n_owner])
            wanted = [owner for owner, need in zip(call.owners, needs[1], strict=False) if need]
            made = _Slopes(call, array_of(x.contiguous()), tensors[n_owner:], wanted, needs[0])
            above = array_of(d.contiguous()).reshape(len(x), -1)
            for sign in (1, -1):
                part = sign * above
                if (part > 0).any():
                    made.add(_device.namespace(part).where(part > 0, part, 0), sign)
            grads = [tensor_of(made.inputs, None).to(x.dtype) if needs[0] else None]
            for k, (tensor, need) in enumerate(zip(tensors, needs[1], strict=True)):
                held = made.of_owners.get(call.owners[k]) if k < n_owner else None
                if k >= n_owner:
                    held = made.of_soft[call.variables[k - n_owner]]
                grads.append(_as(held, tensor) if need else None)
        return None, *grads


def _as(array: Array, tensor: Tensor) -> Tensor:
    """Return a slope in the type of its tensor; without any, 0."""
    return torch.zeros_like(tensor) if array is None else tensor_of(array, None).to(tensor.dtype)


class _Slopes:
    """Gradients of a call, of the flows from positive weights and of those from negative ones."""

    def __init__(
        self, call: _Call, x: Array, soft: Sequence[Tensor], wanted: list[Any], inputs: bool
    ) -> None:
        self.core: Core = call.module.circuit._core
        self.x, self.wanted, self.missing = x, wanted, call.missing
        self.soft, _, self.unknown = call.factors(x, soft)
        xp = _device.namespace(x)
        self.inputs: Array = xp.zeros(x.shape) if inputs else None
        self.of_owners: dict[Any, Array] = {}
        self.of_soft = {
            var: xp.zeros(tuple(tensor.shape))
            for var, tensor in zip(call.variables, soft, strict=True)
        }

    def add(self, weights: Array, sign: int) -> None:
        """Add the slopes of one pass of flows."""
        core, n = self.core, len(self.x)
        statistics, propagation = core.statistics.fresh(), propagation_of(core.parameters, None)
        codes, numbers = core.encoder(self.x, self.missing)
        roots = weights.astype(core.dtype)
        for part in core.parts(n):
            soft = None if self.soft is None else self.soft[part]
            run = both_ways(core, propagation, (codes[part], numbers[part], soft), roots[part])
            if self.wanted:
                gather(core.parameters, run, statistics)
            if self.inputs is not None:
                self._add_inputs(part, run, sign)
            if soft is not None:
                self._add_soft(part, run, soft, sign)
        for owner in self.wanted:
            found = sign * slopes(core, owner, statistics)
            held = self.of_owners.get(owner)
            self.of_owners[owner] = found if held is None else held + found

    def _add_inputs(self, part: slice, run: Any, sign: int) -> None:
        """Slopes of densities: flow (mean - x) / deviation^2, over the leaves of a variable."""
        xp, rows, first = _device.namespace(run.values), self.core.parameters.rows, 0
        found: dict[int, list[Array]] = {}
        for nodes in self.core.layout.inputs:
            own = slice(first, first + nodes.n_node)
            first = own.stop
            if not isinstance(nodes.leaf, Gaussian):
                continue
            place = rows.place[own]
            mean, std = (rows.parameters[place + k].astype(np.float64) for k in range(2))
            x = xp.where(self.unknown[part, nodes.var], 0.0, run.numbers[:, nodes.var])
            slope = run.flows[:, own] * ((mean - x[:, None]) / (std * std))
            found.setdefault(nodes.var, []).append(total(slope.T))
        for one in rows.functions:
            if isinstance(one.leaf, MultivariateNormal):
                self._add_normals(one, run, found)
        for var, each in found.items():
            whole = xp.where(self.unknown[part, var], 0.0, total(xp.stack(each)))
            self.inputs[part, var] += sign * whole

    def _add_normals(self, one: Any, run: Any, found: dict[int, list[Array]]) -> None:
        """Slopes of normal leaves of several variables, which the host computes."""
        slopes = slopes_of_normal(one, self.core.parameters.rows.parameters, run.numbers)
        flows = run.flows[:, one.rows][:, :, None].astype(np.float64)
        slopes = flows * _device.to_device(slopes, self.core.device)
        columns = _device.to_numpy(one.variable).reshape(len(one.rows), -1)
        for var in np.unique(columns).tolist():
            leaf, place = np.nonzero(columns == var)
            each = [slopes[:, i, k] for i, k in zip(leaf.tolist(), place.tolist(), strict=True)]
            found.setdefault(var, []).append(total(_device.namespace(slopes).stack(each)))

    def _add_soft(self, part: slice, run: Any, soft: Array, sign: int) -> None:
        """Slopes of logarithms of factors: probabilities of the values, times their flow."""
        xp, first = _device.namespace(soft), 0
        out = xp.zeros_like(soft)
        soft_posterior(self.core.parameters.rows, run.codes, run.values, run.flows, soft, out)
        flow: dict[int, list[Array]] = {}
        for nodes in self.core.layout.inputs:
            own = run.flows[:, first : first + nodes.n_node].astype(np.float64)
            first += nodes.n_node
            if nodes.var in self.of_soft:
                flow.setdefault(nodes.var, []).append(total(own.T))
        for var, held in self.of_soft.items():
            share = xp.where(self.unknown[part, var], total(xp.stack(flow[var])), 0.0)
            held[part] += sign * share[:, None] * out[:, var, : held.shape[1]]
