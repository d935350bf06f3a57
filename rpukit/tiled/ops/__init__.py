"""The ops of graphs: what each one computes, how it may be cut, which kernel runs it."""

from rpukit.tiled.ops._base import Op, Tiled
from rpukit.tiled.ops.registry import OPS, find, known, lower

__all__ = ["OPS", "Op", "Tiled", "find", "known", "lower"]
