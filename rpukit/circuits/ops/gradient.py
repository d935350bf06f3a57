"""Ops of gradient steps, and the numbers that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact.twins import real
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.graph.leaves import LeafTraits

__all__ = ["GradientStep", "leaf_climb", "sum_climb"]

Array = Any

_SUM_CLIMB = Kernel("sum_climb")
_LEAF_CLIMB = Kernel("leaf_climb")


@dataclass(frozen=True, slots=True)
class GradientStep:
    """Numbers of a gradient step; float64, as the kernels read them."""

    weight: float  # of the samples
    rate: float
    momentum: float
    decay: float
    clip: float
    bias: float  # corrections of the running means: 1 - momentum^k, 1 - decay^k
    bias2: float

    def numbers(self) -> tuple[float, ...]:
        """Return all of them, in this order."""
        return (
            self.weight,
            self.rate,
            self.momentum,
            self.decay,
            self.clip,
            self.bias,
            self.bias2,
        )


def sum_climb(
    n_child: int,
    step: GradientStep,
    theta: Array,
    chains: Array,
    totals: Array,
    first: Array,
    second: Array,
) -> None:
    """Replace the totals of a block of weights by exp(change); ``second`` is empty for SGD."""
    n_node, numbers = theta.size // n_child, step.numbers()
    if _device.takes_kernels(theta):
        arrays = (theta, chains, totals, first, second if second.size else None)
        grid, macros = (-(-n_node // 32),), {"REAL": real(theta.dtype)}
        _SUM_CLIMB.launch(grid, (32,), (n_child, n_node, *numbers, *arrays), macros=macros)
        return
    from rpukit.circuits._mirror import gradient as mirrors

    args = (n_child, numbers, theta, chains, totals, first, second)
    run_rows(mirrors.sum_climb, n_node, *args, grain=work_grain(30 * n_child))


def leaf_climb(
    leaf: LeafTraits,
    step: GradientStep,
    chains: Array,
    totals: Array,
    first: Array,
    second: Array,
    parameters: Array,
) -> None:
    """Take a gradient step of one vector of leaves, in place."""
    n_node = parameters.size // leaf.n_parameters
    constants, numbers = tuple(np.float64(c) for c in leaf.constants), step.numbers()
    if _device.takes_kernels(parameters):
        sizes = (n_node, leaf.kind, leaf.support, leaf.n_parameters, leaf.n_statistics)
        arrays = (chains, totals, first, second if second.size else None, parameters)
        grid, macros = (-(-n_node // 64),), {"REAL": real(parameters.dtype)}
        _LEAF_CLIMB.launch(grid, (64,), (*sizes, *constants, *numbers, *arrays), macros=macros)
        return
    from rpukit.circuits._mirror import gradient as mirrors

    args = (leaf.kind, leaf.support, constants, numbers, chains, totals, first, second, parameters)
    grain = work_grain(30 * (leaf.n_statistics + 1))
    run_rows(mirrors.leaf_climb, n_node, *args, grain=grain)
