"""Posteriors, samples and most probable assignments of unknown values: methods of `Circuit`."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import integer, labelled, need_memory
from rpukit.circuits.core import CircuitLike, Core
from rpukit.circuits.parameters import support_of
from rpukit.circuits.queries import top_down
from rpukit.circuits.queries.likelihood import evidence_of
from rpukit.circuits.queries.passes import as_type, both_ways, propagation_of
from rpukit.errors import ParameterError
from rpukit.random import MAX_SAMPLE

__all__ = ["conditional", "most_probable", "sample"]

Array = Any


def conditional(self: CircuitLike, x: Any, *, missing: Any = None, soft: Any = None) -> Array:
    """Compute the probability of each value of each variable, given what is known.

    Parameters
    ----------
    x, missing, soft : optional
        As in `log_likelihood`.

    Returns
    -------
    array, shape (n_sample, n_variables, n_values)
        n_values is the largest support. One-hot where a variable is known; 0 for variables of
        numbers, and for unknown variables of impossible samples.

    Raises
    ------
    ShapeError, DTypeError, NonFiniteError, ParameterError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> coin = rk.circuits.inputs(0, rk.circuits.Bernoulli(), 1, parameters=[0.25])
    >>> pc = rk.Circuit(rk.circuits.sum(coin, n_nodes=1))
    >>> pc.conditional([[np.nan]])[0, 0]
    array([0.75, 0.25], dtype=float32)
    """
    core, found = self._core, []
    codes, numbers, soft = evidence_of(core, x, missing, soft)
    propagation = propagation_of(core.parameters, None)
    for part in core.parts(len(codes)):
        some = None if soft is None else soft[part]
        ones = core.encoder.weights(None, len(codes[part]))
        run = both_ways(core, propagation, (codes[part], numbers[part], some), ones)
        found.append(top_down.posterior(core.parameters, run, some))
    return found[0] if len(found) == 1 else _device.namespace(codes).concatenate(found)


def sample(
    self: CircuitLike,
    n_sample: int | None = None,
    *,
    x: Any = None,
    missing: Any = None,
    first_sample: int | None = None,
) -> Array:
    """Draw samples, or the unknown values of given ones.

    Parameters
    ----------
    n_sample : int, optional
        How many, when x is not given.
    x, missing : array, optional
        As in `log_likelihood`: what is known stays, the rest is drawn given it.
    first_sample : int, optional
        Number of the first sample on the circuit's clock of draws. Default: go on after the
        last call.

    Returns
    -------
    array, shape (n_sample, n_variables)
        Integers if all leaves have finite support, else floats. Unknown variables of an
        impossible sample are -1 or NaN.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, NonFiniteError

    Notes
    -----
    Draws are named by node and sample number: cutting a call in two changes nothing.

    Examples
    --------
    >>> import rpukit as rk
    >>> pc = rk.Circuit(rk.circuits.hmm(5, 3, 4), seed=2)
    >>> pc.sample(2, first_sample=0).shape
    (2, 5)
    """
    core = self._core
    core.need_one_root("sample")
    if (n_sample is None) == (x is None):
        given = "both" if x is not None else "neither"
        raise ParameterError(f"n_sample, x: got {given}, need one of them")
    if x is None:
        n = _number(n_sample, "n_sample", 1)
        need_memory(16 * n * core.layout.n_variable, f"{n} samples")
        codes, numbers = core.unknown(n)
    else:
        codes, numbers = core.encoder(x, missing)
    start = core.n_drawn if first_sample is None else _number(first_sample, "first_sample", 0)
    if start + len(codes) > MAX_SAMPLE:
        raise ParameterError(
            f"first_sample: got {start} before {len(codes)} samples, need an end up to 2**48"
        )
    for part in core.parts(len(codes)):
        some = (codes[part], numbers[part])
        top_down.sampled(core.parameters, *some, core.stream, start + part.start)
    core.n_drawn = start + len(codes)
    return labelled(_joined(core, codes, numbers), x)


def most_probable(self: CircuitLike, x: Any, *, missing: Any = None) -> tuple[Array, Array]:
    """Fill in unknown values by the assignment with the largest product of weights.

    Parameters
    ----------
    x, missing : array
        As in `log_likelihood`.

    Returns
    -------
    assignment : array, shape (n_sample, n_variables)
    value : array, shape (n_sample,)
        Logarithm of the largest product, over one child a sum and the unknown values.

    Raises
    ------
    ShapeError, DTypeError, NonFiniteError, ParameterError

    Notes
    -----
    This is the most probable assignment exactly if the circuit is deterministic
    (`is_deterministic`): if of each sum at most one child is not 0 for any sample, as in a
    hidden Markov model whose states are variables. Otherwise it is a lower bound of the
    maximum. Of equals the first child and the lowest value are taken.
    Source: Poon, Domingos, "Sum-product networks: a new deep architecture", UAI 2011.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> coin = rk.circuits.inputs(0, rk.circuits.Bernoulli(), 1, parameters=[0.25])
    >>> pc = rk.Circuit(rk.circuits.sum(coin, n_nodes=1))
    >>> pc.most_probable([[np.nan]])[0]
    array([[0]])
    """
    core = self._core
    core.need_one_root("most_probable")
    codes, numbers = core.encoder(x, missing)
    values = _device.empty((len(codes),), core.dtype, core.device)
    for part in core.parts(len(codes)):
        made = top_down.most_probable(core.parameters, codes[part], numbers[part])
        values[part] = as_type(made[-1][:, 0], core.dtype)
    return labelled(_joined(core, codes, numbers), x), values


def _joined(core: Core, codes: Array, numbers: Array) -> Array:
    """Samples of codes and numbers: integers if all leaves have finite support, else floats."""
    xp, support = _device.namespace_of(core.device), core.parameters.rows.support
    if support_of(core.layout).all():
        return codes.astype(np.int64)
    whole = xp.where(codes >= 0, codes, np.nan)
    return xp.where(support > 0, whole, numbers).astype(core.dtype)


def _number(value: Any, name: str, least: int) -> int:
    return integer(value, name, low=least, high=MAX_SAMPLE)
