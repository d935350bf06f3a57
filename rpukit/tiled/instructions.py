"""What an executor runs: copies, waits and computations, in the program order of one core.

Every executor runs the same list. A copy works from its instruction to the wait of its token, so
two copies that are under way at once may end in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rpukit.tiled.space import Box

__all__ = ["Compute", "Copy", "Instruction", "Place", "Wait"]


@dataclass(frozen=True, slots=True)
class Place:
    """An address in a level.

    Parameters
    ----------
    level : int
        0 is the home of the tensors, the last one is where kernels compute.
    address : int
        Bytes from the start of the level.
    """

    level: int
    address: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Begin to copy a rectangle between two levels.

    Parameters
    ----------
    token : int
        Names the copy; free again after its wait.
    inward : bool
        Towards the level where kernels compute.
    tensor : str
    source, target : Place
    shape : tuple of int
        Lengths, the last one in bytes of a contiguous run.
    source_strides, target_strides : tuple of int
        In bytes, one for each length but the last.
    """

    token: int
    inward: bool
    tensor: str
    source: Place
    target: Place
    shape: tuple[int, ...]
    source_strides: tuple[int, ...] = ()
    target_strides: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes that are copied."""
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """Contiguous runs."""
        return math.prod(self.shape[:-1])


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a copy is done.

    Parameters
    ----------
    token : int
    """

    token: int


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute one tile.

    Parameters
    ----------
    node : int
        Which of the graph's nodes.
    box : Box
        Which part of its space.
    addresses : tuple of int
        In the level where kernels compute: of the packed rectangle of each operand of the space.
    """

    node: int
    box: Box
    addresses: tuple[int, ...]


Instruction = Copy | Wait | Compute
