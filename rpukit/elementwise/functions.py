"""Elementary functions of arrays, with the same bits on CPU and GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rpukit.elementwise.ops import math_map

__all__ = [
    "erf", "exp", "expm1", "lgamma", "log", "log1p", "logaddexp", "normal_quantile", "power",
    "reciprocal", "sigmoid", "sqrt", "tanh",
]  # fmt: skip

Array = Any
F = TypeVar("F", bound=Callable[..., Any])

_ONE = "x : array, any shape, float32 or float64"
_TWO = """x, y : array, float32 or float64
        Shapes are broadcast; Python numbers take the type of the other one."""
_REST = """

    Parameters
    ----------
    {parameters}
    out : array, shape and type of the result, optional
        Where the result goes; it may be an input.

    Returns
    -------
    array, float32 or float64

    Raises
    ------
    ShapeError, DTypeError, DeviceError

    Notes
    -----
    Same bits on CPU and GPU. Largest error: {error}, see docs/math.md. Kernel:
    kernels_cu/math_map.cu.
    """


def _documented(error: str, parameters: str = _ONE) -> Callable[[F], F]:
    """Complete a docstring with the sections that all of these functions share."""

    def complete(function: F) -> F:
        rest = _REST.format(parameters=parameters, error=error)
        function.__doc__ = (function.__doc__ or "") + rest
        return function

    return complete


@_documented("0.91 ulp in float32, 0.9 in float64")
def exp(x: Array, *, out: Array | None = None) -> Array:
    """Compute the exponential of every element."""
    return math_map("exp", x, out=out)


@_documented("0.99 ulp in float32, 0.9 in float64")
def expm1(x: Array, *, out: Array | None = None) -> Array:
    """Compute exp(x) - 1 of every element, accurately near 0."""
    return math_map("expm1", x, out=out)


@_documented("0.95 ulp in float32, 0.9 in float64")
def log(x: Array, *, out: Array | None = None) -> Array:
    """Compute the natural logarithm of every element."""
    return math_map("log", x, out=out)


@_documented("0.98 ulp in float32, 0.9 in float64")
def log1p(x: Array, *, out: Array | None = None) -> Array:
    """Compute log(1 + x) of every element, accurately near 0."""
    return math_map("log1p", x, out=out)


@_documented("1 ulp seen", _TWO)
def power(x: Array, y: Array, *, out: Array | None = None) -> Array:
    """Raise x to the power y, element by element."""
    return math_map("power", x, y, out=out)


@_documented("0.5 ulp")
def sqrt(x: Array, *, out: Array | None = None) -> Array:
    """Compute the square root of every element, correctly rounded."""
    return math_map("sqrt", x, out=out)


@_documented("0.5 ulp")
def reciprocal(x: Array, *, out: Array | None = None) -> Array:
    """Compute 1 / x of every element, correctly rounded."""
    return math_map("reciprocal", x, out=out)


@_documented("2.5 ulp")
def tanh(x: Array, *, out: Array | None = None) -> Array:
    """Compute the hyperbolic tangent of every element."""
    return math_map("tanh", x, out=out)


@_documented("2.5 ulp")
def sigmoid(x: Array, *, out: Array | None = None) -> Array:
    """Compute 1 / (1 + exp(-x)) of every element."""
    return math_map("sigmoid", x, out=out)


@_documented("2 ulp")
def erf(x: Array, *, out: Array | None = None) -> Array:
    """Compute the error function of every element."""
    return math_map("erf", x, out=out)


@_documented("6 ulp for x > 0; 13 ulp of the larger of 1 and the result for x < 0")
def lgamma(x: Array, *, out: Array | None = None) -> Array:
    """Compute the logarithm of the absolute value of Gamma(x) of every element."""
    return math_map("lgamma", x, out=out)


@_documented("1e-6 in float32 on multiples of 2**-24, 5 ulp in float64")
def normal_quantile(x: Array, *, out: Array | None = None) -> Array:
    """Compute the standard normal quantile of every element; NaN outside [0, 1]."""
    return math_map("normal_quantile", x, out=out)


@_documented("1 ulp seen, of the larger of 1 and the result", _TWO)
def logaddexp(x: Array, y: Array, *, out: Array | None = None) -> Array:
    """Compute log(exp(x) + exp(y)), element by element, without overflow."""
    return math_map("logaddexp", x, y, out=out)
