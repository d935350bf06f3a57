"""Leaves that are evaluated by functions, built in or registered by users."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rpukit._checks import shown
from rpukit._exact import twins
from rpukit.circuits.graph.leaves import FUNCTION, Leaf
from rpukit.elementwise import exp
from rpukit.errors import ParameterError, StructureError

__all__ = ["FunctionLeaf", "cuda_of", "functions_of", "leaf_of_name", "register_leaf"]

Array = Any
FloatArray = Any  # numpy.ndarray of float64

_FUNCTIONS = "rpukit.circuits._mirror.leaf_functions"
_registered: dict[str, str] = {}  # CUDA sources by name
_classes: dict[str, type[FunctionLeaf]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLeaf(Leaf):
    """Base of leaves that are evaluated by functions; subclass it for a leaf of your own.

    A subclass names its functions by ``FUNCTION`` (`register_leaf`). It defines `drawn`,
    `maximise`, `quantile` and `mode` in NumPy, and `moments`, `slopes` with `moved`, and
    ``_check_range`` if they are wanted. One that has fields is a frozen dataclass.

    Attributes
    ----------
    FUNCTION : str
        Name of the log-density and the statistic.
    N_PARAMETERS, N_STATISTICS : int
        Of one node.
    DOMAIN : tuple of two float
        Least and largest value of samples. Others are an error.
    COUNTS : bool
        Whether samples are whole numbers from 0.

    Notes
    -----
    Log-densities and statistics are computed in float64, in float32 circuits too; parameters and
    sums of statistics have the type of the circuit. Missing values and pseudocounts count as the
    leaf's own expectation: the step towards `maximise` becomes smaller by their share.

    Examples
    --------
    See `register_leaf`.
    """

    KIND: ClassVar[int] = FUNCTION
    TABLE: ClassVar[bool] = False
    FUNCTION: ClassVar[str]
    N_PARAMETERS: ClassVar[int] = 1
    N_STATISTICS: ClassVar[int] = 1

    def __init_subclass__(cls) -> None:
        _classes[cls.__name__] = cls  # files name leaves by their classes

    @property
    def n_parameters(self) -> int:
        return self.N_PARAMETERS

    @property
    def n_statistics(self) -> int:
        return self.N_STATISTICS + 1  # the flow comes first

    @abstractmethod
    def maximise(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        """Compute the parameters of largest expected log-likelihood: the M step.

        Parameters
        ----------
        parameters : array, shape (n_node, N_PARAMETERS), float64
            With which the statistics were computed.
        statistics : array, shape (n_node, 1 + N_STATISTICS), float64
            Sum of the flows, then sums of flow times each statistic, over known values.

        Returns
        -------
        array, shape (n_node, N_PARAMETERS)
            A node whose parameters are not all finite keeps its own.
        """

    @abstractmethod
    def quantile(self, parameters: FloatArray, u: FloatArray) -> FloatArray:
        """Compute the value below which the share u of the probability lies: samples are drawn so.

        Parameters
        ----------
        parameters : array, shape (n, N_PARAMETERS), float64
        u : array, shape (n,), float64
            In (0, 1).

        Returns
        -------
        array, shape (n,)
        """

    @abstractmethod
    def mode(self, parameters: FloatArray) -> FloatArray:
        """Compute the most probable value.

        Parameters
        ----------
        parameters : array, shape (n, N_PARAMETERS), float64

        Returns
        -------
        array, shape (n,)
        """

    def moments(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute mean and mean square.

        Parameters
        ----------
        parameters : array, shape (n, N_PARAMETERS), float64

        Returns
        -------
        mean, mean_square : array, shape (n,)

        Raises
        ------
        StructureError
            If the leaf does not define them.
        """
        raise StructureError(f"leaf {self}: {type(self).__name__} defines no moments")

    def slopes(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        """Compute the gradient of the expected log-likelihood in free parameters.

        Parameters
        ----------
        parameters, statistics : array
            As of `maximise`.

        Returns
        -------
        array, shape (n_node, N_PARAMETERS)

        Raises
        ------
        ParameterError
            If the leaf does not define them, with `moved`: then it has no `gradient_step`.
        """
        raise ParameterError(
            f"gradient_step: {type(self).__name__} defines no slopes, take em_step or "
            "scaled_em_step, or define slopes and moved"
        )

    def moved(self, parameters: FloatArray, change: FloatArray) -> FloatArray:
        """Change the free parameters; by default they are logarithms of the parameters.

        Parameters
        ----------
        parameters, change : array, shape (n_node, N_PARAMETERS), float64

        Returns
        -------
        array, shape (n_node, N_PARAMETERS)
        """
        return parameters * exp(change)

    def blended(self, old: FloatArray, new: FloatArray, share: FloatArray) -> FloatArray:
        """Go a share of the way from old to new parameters.

        Parameters
        ----------
        old, new : array, shape (n_node, N_PARAMETERS), float64
        share : array, shape (n_node, 1), float64

        Returns
        -------
        array, shape (n_node, N_PARAMETERS)
        """
        return old + share * (new - old)

    def _limit(self) -> float:
        """Return the bound of what a built-in leaf learns: a least deviation, a largest shape."""
        return 0.0

    def _check_range(self, array: FloatArray) -> None:
        """Accept all finite parameters."""


def register_leaf(
    name: str,
    log_density: Callable[..., Any],
    statistic: Callable[..., Any],
    cuda: str | tuple[str, str],
) -> None:
    """Register the functions of a leaf of one's own, for the CPU and for GPUs.

    Parameters
    ----------
    name : str
        ``FUNCTION`` of the leaf's class. Registering a name again replaces its functions.
    log_density : callable
        ``log_density(x, p, c)``, in the subset of Python that Numba compiles, returns the
        logarithm of the probability of x; NaN counts as impossible.
    statistic : callable
        ``statistic(x, p, c, t)`` sets t[0] to t[N_STATISTICS - 1] to what `maximise` needs.
    cuda : str or tuple of two str
        Statements in CUDA C++ of both functions, with the same arguments and the same operations
        in the same order; the first ones end with ``return``. Or one source that defines
        ``__device__ double name(double x, const double *p, const double *c)`` and ``__device__
        void name_statistic(double x, const double *p, const double *c, double *t)``.

    Raises
    ------
    ParameterError

    Notes
    -----
    All is float64. p holds the parameters of the node, c the three numbers of the leaf's
    ``constants()``. So that both sides have the same bits, take functions from
    ``rpukit._exact.math64`` and ``rpukit._exact.special`` (``log64``, ``lgamma64``) and from
    ``rk_special64.cuh`` (``rk_log``, ``rk_lgamma``), not from libraries.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> from rpukit._exact.math64 import log64
    >>> def laplace(x, p, c):
    ...     return -abs(x - p[0]) / p[1] - log64(2.0 * p[1])
    >>> def laplace_statistic(x, p, c, t):
    ...     t[0] = abs(x - p[0])
    >>> cuda = "return -fabs(x - p[0]) / p[1] - rk_log(2.0 * p[1]);", "t[0] = fabs(x - p[0]);"
    >>> rk.circuits.register_leaf("laplace", laplace, laplace_statistic, cuda)
    >>> class Laplace(rk.circuits.FunctionLeaf):
    ...     FUNCTION, N_PARAMETERS = "laplace", 2
    ...     def drawn(self, uniform, perturbation):
    ...         return np.stack([4 * uniform[:, 0] - 2, 0.5 + uniform[:, 1]], axis=1)
    ...     def maximise(self, parameters, statistics):  # of the scale: the centre stays
    ...         return np.stack([parameters[:, 0], statistics[:, 1] / statistics[:, 0]], axis=1)
    ...     def quantile(self, p, u):
    ...         return p[:, 0] - p[:, 1] * np.sign(u - 0.5) * np.log1p(-2 * np.abs(u - 0.5))
    ...     def mode(self, p):
    ...         return p[:, 0]
    >>> pc = rk.Circuit(rk.circuits.mixture(1, 2, Laplace()), seed=0)
    >>> x = np.array([[-1.5], [0.2], [1.0], [1.1]])
    >>> before = pc.em_step(x).sum()
    >>> bool(pc.log_likelihood(x).sum() > before)
    True
    """
    mirrors = twins.mirror(_FUNCTIONS, np.float32)
    if not (isinstance(name, str) and name.isidentifier()):
        raise ParameterError(f"name: got {name!r}, need an identifier of both C and Python")
    if name in mirrors.FUNCTIONS and name not in _registered:
        raise ParameterError(f"name: {name!r} is built into rpukit, need another name")
    if not isinstance(cuda, str):
        cuda = _source_of(name, cuda)
    for function in (name, f"{name}_statistic"):
        if not re.search(rf"\b__device__\b[^;{{]*\b{function}\s*\(", cuda):
            raise ParameterError(
                f"cuda: the source defines no __device__ function {function}(...)"
            )
    pair = mirrors.compiled(log_density), mirrors.compiled(statistic)
    mirrors.FUNCTIONS[name] = pair
    _registered[name] = cuda


def _source_of(name: str, bodies: Any) -> str:
    """Define the functions of a name by their statements."""
    if not (
        isinstance(bodies, (tuple, list))
        and len(bodies) == 2
        and all(isinstance(body, str) for body in bodies)
    ):
        raise ParameterError(
            f"cuda: got {shown(bodies)}, need a source, or the statements of both functions as a "
            "pair of str"
        )
    given = "double x, const double *p, const double *c"
    return (
        f"__device__ double {name}({given}) {{\n{bodies[0]}\n}}\n"
        f"__device__ void {name}_statistic({given}, double *t) {{\n{bodies[1]}\n}}\n"
    )


def cuda_of(name: str) -> str | None:
    """Return the registered CUDA source of a name; None for functions that are built in."""
    return _registered.get(name)


def functions_of(name: str) -> tuple[Any, Any]:
    """Return the compiled log-density and statistic of a name."""
    pair: tuple[Any, Any] = twins.mirror(_FUNCTIONS, np.float32).FUNCTIONS[name]
    return pair


def leaf_of_name(name: str) -> type[FunctionLeaf] | None:
    """Find a class of leaves that was defined, by its name."""
    return _classes.get(name)
