"""Registry of ops by name."""

from __future__ import annotations

from types import MappingProxyType

from rpukit.errors import GraphError
from rpukit.tiled.ops import (
    analog,
    convolutions,
    elementwise,
    labels,
    lookups,
    moves,
    pools,
    products,
    reductions,
    rows,
    updates,
    views,
)
from rpukit.tiled.ops._base import Op
from rpukit.tiled.ops.composites import LOWERINGS, lower
from rpukit.tiled.ops.pointwise import fused, narrow

__all__ = ["OPS", "find", "known", "lower"]

_FILES = (
    products,
    elementwise,
    fused,
    narrow,
    reductions,
    labels,
    lookups,
    rows,
    convolutions,
    pools,
    updates,
    analog,
    moves,
    views,
)
OPS: MappingProxyType[str, Op] = MappingProxyType(
    {op.name: op for file in _FILES for op in file.OPS}
)


def known(name: str) -> bool:
    """Tell whether there is an op of this name, tiled or composite.

    Parameters
    ----------
    name : str

    Returns
    -------
    bool
    """
    return name in OPS or name in LOWERINGS


def find(name: str) -> Op:
    """Find an op.

    Parameters
    ----------
    name : str

    Returns
    -------
    Op

    Raises
    ------
    GraphError
    """
    if name not in OPS:
        raise GraphError(f"unknown op {name}; need one of {', '.join(sorted(OPS))}")
    return OPS[name]
