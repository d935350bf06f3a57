"""Likelihoods, marginals, flows and values of nodes: methods of `Circuit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import shown
from rpukit.circuits.core import CircuitLike, Core
from rpukit.circuits.graph.nodes import Nodes
from rpukit.circuits.queries.passes import (
    Propagation,
    as_type,
    both_ways,
    propagation_of,
    store,
    up,
    values_of,
)
from rpukit.circuits.queries.propagation import Rule
from rpukit.circuits.queries.soft_evidence import checked_soft
from rpukit.errors import ParameterError

__all__ = ["evidence_of", "flows", "log_likelihood", "marginal", "values"]

Array = Any


def log_likelihood(
    self: CircuitLike, x: Any, *, missing: Any = None, soft: Any = None, rule: Rule | None = None
) -> Array:
    """Compute log p(x) of each sample, or of its known values.

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
    core, roots = self._core, self._core.parameters.root_rows
    propagation = propagation_of(core.parameters, rule)
    x, step = _beside(core, soft, x), core.memory.samples(learns=False)
    peers = core.peers
    n, read = core.encoder.parts(x, missing, step * (len(peers.devices) if peers else 1))
    soft = _factors(core, soft, n)
    out = _device.empty((n, roots.size), core.dtype, core.device)
    for part, codes, numbers in read:
        some = None if soft is None else soft[part]
        if peers is None:
            found = values_of(core, propagation, codes, numbers, some)
            store(out[part], propagation.outputs(found[:, roots]))
        else:
            _outputs_apart(core, propagation, rule, (codes, numbers, some), out[part])
    return out[:, 0] if roots.size == 1 else out


def flows(
    self: CircuitLike,
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
    core = self._core
    evidence = evidence_of(core, x, missing, soft)
    weights = core.encoder.weights(weights, len(evidence[0]))
    propagation = propagation_of(core.parameters, rule)
    if core.peers is not None:
        return core.by_nodes(_flows_apart(core, propagation, rule, (*evidence, weights)))
    return core.by_nodes(both_ways(core, propagation, evidence, weights).flows)


def _outputs(
    core: Core, propagation: Propagation, codes: Array, numbers: Array, soft: Array, out: Array
) -> None:
    """Compute the log-likelihoods of samples, pass by pass."""
    step, roots = core.memory.samples(learns=False), core.parameters.root_rows
    for first in range(0, len(codes), step):
        part = slice(first, first + step)
        some = None if soft is None else soft[part]
        found = values_of(core, propagation, codes[part], numbers[part], some)
        store(out[part], propagation.outputs(found[:, roots]))


def _outputs_apart(
    core: Core, propagation: Propagation, rule: Rule | None, evidence: Sequence[Array], out: Array
) -> None:
    """`_outputs` by several GPUs."""

    def there(core: Core, codes: Array, numbers: Array, soft: Array) -> Array:
        shape = (len(codes), core.layout.root_rows.size)
        out = _device.empty(shape, core.dtype, core.device)
        _outputs(core, propagation_of(core.parameters, rule), codes, numbers, soft, out)
        return out

    def here(share: slice) -> None:
        codes, numbers, soft = (None if a is None else a[share] for a in evidence)
        _outputs(core, propagation, codes, numbers, soft, out[share])

    core.peers.spread(evidence, here, there, out)


def _flows_apart(
    core: Core, propagation: Propagation, rule: Rule | None, evidence: Sequence[Array]
) -> Array:
    """Flows of all rows by several GPUs, each of its samples."""
    shape = (len(evidence[0]), core.layout.n_row)
    out = _device.empty(shape, core.dtype, core.device)

    def there(core: Core, *evidence: Array) -> Array:
        own = propagation_of(core.parameters, rule)
        return both_ways(core, own, evidence[:-1], evidence[-1]).flows

    def here(share: slice) -> None:
        *mine, weights = (None if a is None else a[share] for a in evidence)
        out[share] = both_ways(core, propagation, mine, weights).flows

    core.peers.spread(evidence, here, there, out)
    return out


def values(
    self: CircuitLike, x: Any, *, missing: Any = None, soft: Any = None, rule: Rule | None = None
) -> dict[Nodes, Array]:
    """Compute the log-values of all sums, inputs and kept products.

    Parameters
    ----------
    x, missing, soft, rule : optional
        As in `log_likelihood`.

    Returns
    -------
    dict of Nodes to array, shape (n_sample, n_node)

    Raises
    ------
    ShapeError, DTypeError, NonFiniteError, ParameterError, DeviceError
    """
    core, propagation = self._core, propagation_of(self._core.parameters, rule)
    run = up(core, propagation, evidence_of(core, x, missing, soft))
    return core.by_nodes(as_type(propagation.outputs(run.values), core.dtype))


def marginal(self: CircuitLike, x: Any, variables: Any) -> Array:
    """Compute the log-probability of some variables, the others summed out exactly.

    Parameters
    ----------
    x : array, shape (n_sample, n_variables) or (n_variables,)
        As in `log_likelihood`; what it says of other variables does not count.
    variables : int or sequence of int
        Which variables; NaN is unknown there, too.

    Returns
    -------
    array, as of `log_likelihood`

    Raises
    ------
    ShapeError, DTypeError, NonFiniteError
    ParameterError
        Also if there is no such variable.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> pc = rk.Circuit(rk.circuits.hmm(5, 3, 4), seed=2, dtype="float64")
    >>> every = np.zeros((4, 5), int)
    >>> every[:, 2] = np.arange(4)
    >>> round(float(np.exp(pc.marginal(every, 2)).sum()), 12)
    1.0
    """
    wanted = np.atleast_1d(_device.listed(variables, "variables"))
    n = self._core.layout.n_variable
    if wanted.dtype.kind not in "iu" or not wanted.size or wanted.ndim > 1:
        raise ParameterError(
            f"variables: got {shown(variables)}, need one or more numbers of variables (integers)"
        )
    if wanted.min() < 0 or wanted.max() >= n:
        raise ParameterError(f"variables: got {shown(variables)}, need numbers from 0 to {n - 1}")
    missing = np.ones(n, bool)
    missing[wanted] = False
    return self.log_likelihood(x, missing=_device.to_device(missing, self._core.device))


def evidence_of(core: Core, x: Any, missing: Any, soft: Any) -> tuple[Array, Array, Array]:
    """Check samples and soft evidence; give codes, numbers and factors (or None)."""
    codes, numbers = core.encoder(_beside(core, soft, x), missing)
    return codes, numbers, _factors(core, soft, len(codes))


def _beside(core: Core, soft: Any, x: Any) -> Any:
    """Replace samples that are not given beside soft evidence by unknown ones."""
    if soft is None or x is not None:
        return x
    soft = _factors(core, soft, None)
    return _device.namespace(soft).full(soft.shape[:2], np.nan, core.dtype)


def _factors(core: Core, soft: Any, n: int | None) -> Array:
    return None if soft is None else checked_soft(core.parameters, soft, n, core.dtype)
