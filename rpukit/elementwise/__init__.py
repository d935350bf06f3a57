"""Elementary functions and random arrays with the same bits on CPU and GPU."""

from __future__ import annotations

from typing import Any

from rpukit.elementwise.ops import FUNCTIONS, math_map, random_fill, softmax_cross_entropy

__all__ = [
    "exp", "expm1", "log", "log1p", "math_map", "normal_quantile", "random_fill", "reciprocal",
    "sigmoid", "softmax_cross_entropy", "sqrt", "tanh",
]  # fmt: skip

_SUMMARY = {
    "exp": "Compute the exponential of every element.",
    "expm1": "Compute exp(x) - 1 of every element, accurately near 0.",
    "log": "Compute the natural logarithm of every element.",
    "log1p": "Compute log(1 + x) of every element, accurately near 0.",
    "normal_quantile": "Compute the standard normal quantile of every element, in (0, 1).",
    "reciprocal": "Compute 1 / x of every element, correctly rounded.",
    "sigmoid": "Compute 1 / (1 + exp(-x)) of every element.",
    "sqrt": "Compute the square root of every element, correctly rounded.",
    "tanh": "Compute the hyperbolic tangent of every element.",
}
_DOC = """{summary}

    Parameters
    ----------
    x : array, any shape, float32
    out : array, shape of `x`, float32, optional
        Where the result goes; it may be `x`.

    Returns
    -------
    array, shape of `x`, float32

    Raises
    ------
    ShapeError, DTypeError, DeviceError

    Notes
    -----
    Same bits on CPU and GPU; largest error: docs/math.md. Kernel: kernels_cu/math_map.cu.
    """


def _function(name: str) -> Any:
    def apply(x: Any, *, out: Any = None) -> Any:
        return math_map(name, x, out=out)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = _DOC.format(summary=_SUMMARY[name])
    return apply


exp, expm1, log, log1p, normal_quantile, reciprocal, sigmoid, sqrt, tanh = map(_function, FUNCTIONS)
