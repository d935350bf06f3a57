"""What a circuit can be asked beside likelihoods: `Circuit` inherits these methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits.graph.nodes import Nodes
from rpukit.circuits.parameters import support_of
from rpukit.circuits.queries import top_down as _queries
from rpukit.circuits.queries.information import Information
from rpukit.circuits.queries.propagation import Rule
from rpukit.errors import ParameterError
from rpukit.random import MAX_SAMPLE

__all__ = ["Queries"]

Array = Any


class Queries(Information):
    """Posteriors, samples and most probable assignments of a circuit."""

    log_likelihood: Any

    def values(
        self, x: Any, *, missing: Any = None, soft: Any = None, rule: Rule | None = None
    ) -> dict[Nodes, Array]:
        """Compute the logarithms of all sums, inputs and kept products.

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
        way = self._way(rule)
        run = self._up(way, *self._evidence(x, missing, soft))
        return self._by_nodes(way.outputs(run.values))

    def marginal(self, x: Any, variables: Any) -> Array:
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
        wanted, n = np.atleast_1d(np.asarray(variables)), self.layout.n_variable
        if wanted.dtype.kind not in "iu" or not wanted.size or wanted.ndim > 1:
            raise ParameterError(f"variables: got {variables!r}, need integers")
        if wanted.min() < 0 or wanted.max() >= n:
            raise ParameterError(f"variables: got {variables!r}, need 0 to {n - 1}")
        missing = np.ones(n, bool)
        missing[wanted] = False
        return self.log_likelihood(x, missing=_device.to_device(missing, self._device))

    def conditional(self, x: Any, *, missing: Any = None, soft: Any = None) -> Array:
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
        codes, numbers, soft = self._evidence(x, missing, soft)
        way, found = self._way(None), []
        for part in self._parts(len(codes)):
            some = None if soft is None else soft[part]
            ones = self._weights(None, len(codes[part]))
            run = self._both_ways((codes[part], numbers[part], some), ones, way)
            found.append(_queries.posterior(self._parameters, run, some))
        return found[0] if len(found) == 1 else _device.namespace(codes).concatenate(found)

    def sample(
        self,
        n_sample: int | None = None,
        *,
        x: Any = None,
        missing: Any = None,
        first_sample: int | None = None,
    ) -> Array:
        """Draw samples, or what is unknown of given ones.

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
        self._one_root("sample")
        if (n_sample is None) == (x is None):
            raise ParameterError("sample: give either n_sample or x")
        if x is None:
            n = _number(n_sample, "n_sample", 1)
            shape = (n, self.layout.n_variable)
            x = _device.namespace_of(self._device).full(shape, np.nan, np.float32)
        codes, numbers = self._encoded(x, missing)
        start = self._n_drawn if first_sample is None else _number(first_sample, "first_sample", 0)
        if start + len(codes) > MAX_SAMPLE:
            raise ParameterError("first_sample: the clock would pass 2**48 samples")
        for part in self._parts(len(codes)):
            given = (codes[part], numbers[part], self._stream, start + part.start)
            _queries.sampled(self._parameters, *given)
        self._n_drawn = start + len(codes)
        return self._joined(codes, numbers)

    def most_probable(self, x: Any, *, missing: Any = None) -> tuple[Array, Array]:
        """Fill in what is unknown by the assignment of the largest product of weights.

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
        self._one_root("most_probable")
        codes, numbers = self._encoded(x, missing)
        values = _device.empty((len(codes),), self.dtype, self._device)
        for part in self._parts(len(codes)):
            made = _queries.most_probable(self._parameters, codes[part], numbers[part])
            values[part] = made[-1][:, 0]
        return self._joined(codes, numbers), values

    def _joined(self, codes: Array, numbers: Array) -> Array:
        xp, support = _device.namespace_of(self._device), self._parameters.rows.support
        if support_of(self.layout).all():
            return codes.astype(np.int64)
        whole = xp.where(codes >= 0, codes, np.nan)
        return xp.where(support > 0, whole, numbers).astype(self.dtype)


def _number(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ParameterError(f"{name}: got {value!r}, need an integer from {least}")
    return int(value)
