"""Normal densities of several variables with full covariance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rpukit._checks import integer, real_array
from rpukit.circuits.graph.evaluated import FunctionLeaf
from rpukit.elementwise import exp, log
from rpukit.errors import ParameterError, ShapeError, StructureError

__all__ = ["MultivariateNormal"]

FloatArray = Any  # numpy.ndarray of float64

MOST_COLUMNS = 64  # one thread of a kernel makes each row of a Cholesky factor
_RESOLVED = 1e-14  # part of a variance below which what is left of it is rounding
_ROOT_12 = math.sqrt(12)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultivariateNormal(FunctionLeaf):
    """A normal density of several variables with full covariance.

    Parameters
    ----------
    n_variables : int, 1 to 64
        Variables of one node, d. `inputs` says which they are.
    mean, std : float or tuple of float
        Where initial means and deviations are drawn around; one for all variables or one each.
        Initial variables are independent.
    min_std : float or tuple of float
        Least deviation of a variable given those before it that learning may reach.

    Notes
    -----
    Parameters: (n_node, d + d (d + 1) / 2), the mean and the rows of the lower Cholesky factor of
    the covariance, one after another; `packed` and `unpacked` convert them. Any part of the
    variables may be missing: the density is that of the others, and the M step takes the expected
    moments of what is missing given the rest, so EM never lowers the likelihood. Densities are
    computed in float64 for every type of a circuit. The M step runs on the host.

    A product needs disjoint variables, so that nodes of one vector have all their variables
    together: children of a sum cover the same ones.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> leaf = rk.circuits.MultivariateNormal(n_variables=2)
    >>> own = leaf.packed([[0.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]]])
    >>> nodes = rk.circuits.inputs((0, 1), leaf, 1, parameters=own)
    >>> pc = rk.Circuit(rk.circuits.sum(nodes, n_nodes=1), dtype="float64")
    >>> pc.expectation([[1.0, np.nan]])
    array([[1. , 0.5]])
    """

    FUNCTION: ClassVar[str] = "multivariate_normal"
    n_variables: int
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    min_std: float | tuple[float, ...] = 0.01

    def _check(self) -> None:
        integer(self.n_variables, "n_variables", low=1, high=MOST_COLUMNS, what="variables")
        for name in ("mean", "std", "min_std"):
            each = self._each(name)
            if name != "mean" and not each.min() > 0:
                raise ParameterError(f"{name}: got {getattr(self, name)}, need positive numbers")
            if np.ndim(getattr(self, name)):
                object.__setattr__(self, name, tuple(each.tolist()))

    def _each(self, name: str) -> FloatArray:
        """Return a setting, such as `std`, as one number for each variable."""
        given = real_array(getattr(self, name), name)
        if given.shape not in ((), (self.n_variables,)) or not np.isfinite(given).all():
            raise ParameterError(
                f"{name}: got {getattr(self, name)}, need a finite number, or one for each of "
                f"{self.n_variables} variables"
            )
        return np.broadcast_to(given, (self.n_variables,))

    @property
    def n_columns(self) -> int:
        return self.n_variables

    @property
    def n_parameters(self) -> int:
        d = self.n_variables
        return d + d * (d + 1) // 2

    @property
    def n_statistics(self) -> int:
        return 1 + self.n_parameters  # the flow, then moments about the mean

    def drawn(self, uniform: FloatArray, perturbation: float) -> FloatArray:
        d, (rows, columns) = self.n_variables, np.tril_indices(self.n_variables)
        mean, std, least = (self._each(name) for name in ("mean", "std", "min_std"))
        out = np.zeros_like(uniform)
        out[:, :d] = mean + std * _ROOT_12 * (uniform[:, :d] - 0.5)
        diagonal = np.flatnonzero(rows == columns)
        spread = std * np.exp(-0.04 * perturbation * uniform[:, d + diagonal])
        out[:, d + diagonal] = np.maximum(spread, least)
        return out

    def _check_range(self, array: FloatArray) -> None:
        own = array[:, self.n_variables :][:, _diagonal(self.n_variables)]
        if own.min() <= 0:
            raise ParameterError(
                f"parameters of MultivariateNormal: got {own.min():g} on the diagonal of a "
                "Cholesky factor, need positive numbers"
            )

    def packed(self, mean: Any, covariance: Any) -> FloatArray:
        """Convert means and covariances to parameters.

        Parameters
        ----------
        mean : array, shape (n_node, n_variables)
        covariance : array, shape (n_node, n_variables, n_variables)

        Returns
        -------
        array, shape (n_node, n_parameters), float64

        Raises
        ------
        ShapeError
        ParameterError
            If a covariance is not positive definite.

        Examples
        --------
        >>> import rpukit as rk
        >>> rk.circuits.MultivariateNormal(n_variables=2).packed([[1, 2]], [[[4, 2], [2, 5]]])
        array([[1., 2., 2., 1., 2.]])
        """
        means, matrices = real_array(mean, "mean"), real_array(covariance, "covariance")
        d = self.n_variables
        if means.ndim != 2 or means.shape[1] != d or matrices.shape != (len(means), d, d):
            raise ShapeError(
                f"mean, covariance: got shapes {means.shape} and {matrices.shape}, need "
                f"(n_node, {d}) and (n_node, {d}, {d})"
            )
        scale = np.abs(matrices).max(initial=0.0)
        if not np.allclose(matrices, matrices.swapaxes(1, 2), rtol=0, atol=1e-9 * scale):
            raise ParameterError("covariance: got a matrix that is not symmetric")
        by, rest = _regressions(matrices)
        if not (rest > _RESOLVED * np.einsum("nii->ni", matrices)).all():
            raise ParameterError(
                "covariance: got a matrix that is not positive definite; add a small number to "
                "its diagonal"
            )
        return np.concatenate([means, _flat(by * np.sqrt(rest)[:, None, :])], axis=1)

    def unpacked(self, parameters: Any) -> tuple[FloatArray, FloatArray]:
        """Convert parameters to means and covariances.

        Parameters
        ----------
        parameters : array, shape (n_node, n_parameters)

        Returns
        -------
        mean : array, shape (n_node, n_variables), float64
        covariance : array, shape (n_node, n_variables, n_variables), float64

        Raises
        ------
        ShapeError, ParameterError

        Examples
        --------
        >>> import rpukit as rk
        >>> rk.circuits.MultivariateNormal(n_variables=2).unpacked([[1, 2, 2, 1, 2]])[1]
        array([[[4., 2.],
                [2., 5.]]])
        """
        array = self.checked(parameters, len(np.atleast_2d(np.asarray(parameters))))
        return array[:, : self.n_variables], _product(self._factor(array))

    def maximise(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        d = self.n_variables
        shift = statistics[:, 1 : d + 1] / statistics[:, :1]
        second = _square(statistics[:, d + 1 :] / statistics[:, :1], d)
        covariance = second - shift[:, :, None] * shift[:, None, :]
        return self._made(parameters[:, :d] + shift, covariance)

    def blended(self, old: FloatArray, new: FloatArray, share: FloatArray) -> FloatArray:
        """Go the way in moments, of which the expected log-likelihood is concave."""
        d, weight = self.n_variables, share[:, :, None]
        shift = new[:, :d] - old[:, :d]
        before, after = (_product(self._factor(p)) for p in (old, new))
        between = (weight * (1 - weight)) * (shift[:, :, None] * shift[:, None, :])
        covariance = (1 - weight) * before + weight * after + between
        part = self._made(old[:, :d] + share * shift, covariance)
        return np.where(share == 1, new, part)

    def slopes(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        d, factor = self.n_variables, self._factor(parameters)
        first = _solved(factor, statistics[:, 1 : d + 1, None])[:, :, 0]
        half = _solved(factor, _square(statistics[:, d + 1 :], d)).swapaxes(1, 2)
        second = _solved(factor, half) - statistics[:, :1, None] * np.eye(d)
        return np.concatenate([first, _flat(second)], axis=1)

    def moved(self, parameters: FloatArray, change: FloatArray) -> FloatArray:
        """Change the mean in units of the Cholesky factor, and the factor by one on its right."""
        d, factor = self.n_variables, self._factor(parameters)
        by = _lower(change[:, d:], d)
        places = np.arange(d)
        by[:, places, places] = exp(by[:, places, places])
        mean, made = parameters[:, :d].copy(), np.zeros_like(factor)
        for k in range(d):
            mean = mean + factor[:, :, k] * change[:, k : k + 1]
            made = made + factor[:, :, k, None] * by[:, None, k, :]
        made[:, places, places] = np.maximum(made[:, places, places], self._each("min_std"))
        return np.concatenate([mean, _flat(made)], axis=1)

    def expected_log(self, own: FloatArray, theirs: FloatArray) -> FloatArray:
        """Compute the mean of the log-density of other nodes under the densities of these.

        Parameters
        ----------
        own : array, shape (n_node, n_parameters)
        theirs : array, shape (n_other, n_parameters)

        Returns
        -------
        array, shape (n_node, n_other), float64
        """
        d, out = self.n_variables, np.empty((len(own), len(theirs)))
        inner = self._factor(own)
        for k in range(len(theirs)):
            factor = np.broadcast_to(self._factor(theirs[k : k + 1]), inner.shape)
            far = (own[:, :d] - theirs[k, :d])[:, :, None]
            both = _solved(factor, np.concatenate([inner, far], axis=2)).reshape(len(own), -1)
            square = np.add.accumulate(both * both, axis=1)[:, -1]
            volume = np.add.accumulate(log(theirs[k, d:][_diagonal(d)]))[-1]
            out[:, k] = -0.5 * square - volume - 0.5 * d * math.log(2 * math.pi)
        return out

    def _slopes_of_values(self, parameters: FloatArray, far: FloatArray) -> FloatArray:
        """Slopes of log-densities in the variables, (n, n_node, n_variables), from distances."""
        d, factor = self.n_variables, self._factor(parameters)
        out = far.copy()
        for r in range(d):
            for k in range(r):
                out[:, :, r] = out[:, :, r] - factor[:, r, k] * out[:, :, k]
            out[:, :, r] = out[:, :, r] / factor[:, r, r]
        for r in range(d - 1, -1, -1):
            for k in range(r + 1, d):
                out[:, :, r] = out[:, :, r] - factor[:, k, r] * out[:, :, k]
            out[:, :, r] = out[:, :, r] / factor[:, r, r]
        return -out

    def quantile(self, parameters: FloatArray, u: FloatArray) -> FloatArray:
        raise StructureError("quantile: got a leaf of several variables, need one")

    def mode(self, parameters: FloatArray) -> FloatArray:
        return parameters[:, : self.n_variables]

    def _factor(self, parameters: FloatArray) -> FloatArray:
        return _lower(parameters[:, self.n_variables :], self.n_variables)

    def _made(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        """Pack a mean and the Cholesky factor of a covariance, whose deviations have a floor.

        Each variable is a regression on those before it. The floor holds for its residual alone:
        coefficients stay, so that this is the maximum of all parameters above the floor.
        """
        least, (by, rest) = self._each("min_std"), _regressions(covariance)
        std = np.sqrt(np.maximum(rest, least * least))
        return np.concatenate([mean, _flat(by * std[:, None, :])], axis=1)


def _diagonal(d: int) -> FloatArray:
    """Places of the diagonal among the rows of a lower triangle."""
    return np.cumsum(np.arange(1, d + 1)) - 1


def _flat(matrices: FloatArray) -> FloatArray:
    """Rows of lower triangles, one after another."""
    rows, columns = np.tril_indices(matrices.shape[1])
    return matrices[:, rows, columns]


def _lower(flat: FloatArray, d: int) -> FloatArray:
    out = np.zeros((len(flat), d, d))
    rows, columns = np.tril_indices(d)
    out[:, rows, columns] = flat
    return out


def _square(flat: FloatArray, d: int) -> FloatArray:
    """Symmetric matrices of the rows of their lower triangles."""
    lower = _lower(flat, d)
    return np.where(np.tri(d, dtype=bool), lower, lower.swapaxes(1, 2))


def _regressions(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Regress each variable on the residuals of those before it: coefficients, variances.

    What rounding leaves of a variance counts as nothing, and has no coefficients.
    """
    by, rest = np.zeros_like(covariance), np.zeros_like(covariance[:, 0])
    for k in range(covariance.shape[1]):
        left = covariance[:, :, k]
        for j in range(k):
            left = left - by[:, :, j] * (by[:, k, j] * rest[:, j])[:, None]
        rest[:, k] = left[:, k]
        clear = left[:, k] > _RESOLVED * covariance[:, k, k]
        own = left / np.where(clear, left[:, k], 1.0)[:, None]
        by[:, :, k] = np.where(clear[:, None], own, 0.0)
        by[:, :k, k], by[:, k, k] = 0.0, 1.0
    return by, rest


def _product(factor: FloatArray) -> FloatArray:
    """Multiply factors by their transposes, columns in ascending order."""
    out = np.zeros_like(factor)
    for k in range(factor.shape[1]):
        out = out + factor[:, :, None, k] * factor[:, None, :, k]
    return out


def _solved(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Solve lower triangular systems, rows in ascending order."""
    out = np.zeros_like(right)
    for r in range(factor.shape[1]):
        left = right[:, r]
        for k in range(r):
            left = left - factor[:, r, k, None] * out[:, k]
        out[:, r] = left / factor[:, r, r, None]
    return out
