"""The ops of graphs: shape inference, legal tilings and kernels."""

from rpukit.tiled.ops._base import Op, Tiled
from rpukit.tiled.ops.registry import OPS, find, known, lower

__all__ = ["OPS", "Op", "Tiled", "find", "known", "lower"]
