"""Elementary functions and random arrays with the same bits on CPU and GPU."""

from rpukit.elementwise.functions import (
    erf,
    exp,
    expm1,
    lgamma,
    log,
    log1p,
    logaddexp,
    normal_quantile,
    power,
    reciprocal,
    sigmoid,
    sqrt,
    tanh,
)
from rpukit.elementwise.ops import math_map, random_fill, softmax_cross_entropy

__all__ = [
    "erf",
    "exp",
    "expm1",
    "lgamma",
    "log",
    "log1p",
    "logaddexp",
    "math_map",
    "normal_quantile",
    "power",
    "random_fill",
    "reciprocal",
    "sigmoid",
    "softmax_cross_entropy",
    "sqrt",
    "tanh",
]
