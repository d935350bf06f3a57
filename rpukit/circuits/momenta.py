"""`Momenta`: running means that scaled EM, SGD and Adam keep between steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits.parameters import Parameters, Statistics

__all__ = ["Momenta"]

Array = Any


@dataclass(slots=True)
class Momenta:
    """Running means of counts or gradients, and their bias corrections.

    ``fade`` is momentum^k and ``fade2`` decay^k after k steps. ``second`` and ``leaf_second``,
    means of squares, are empty except for Adam.
    """

    method: str
    fade: float
    fade2: float
    first: Array
    leaf_first: Array
    second: Array
    leaf_second: Array

    @classmethod
    def zeros(
        cls,
        parameters: Parameters,
        statistics: Statistics,
        method: str,
        fade: float = 1.0,
        fade2: float = 1.0,
    ) -> Momenta:
        """Allocate the momenta of a method, all 0."""
        n_leaf, n_sum = parameters.rows.parameters.size, statistics.totals.size
        n_first = statistics.leaf_totals.size if method == "scaled_em" else n_leaf
        second = (n_sum, n_leaf) if method == "adam" else (0, 0)
        arrays = (
            _device.zeros((size,), np.float64, parameters.device)
            for size in (n_sum, n_first, *second)
        )
        return cls(method, fade, fade2, *arrays)

    def copied(self) -> Momenta:
        """Copy all arrays."""
        arrays = (self.first, self.leaf_first, self.second, self.leaf_second)
        return Momenta(self.method, self.fade, self.fade2, *(array.copy() for array in arrays))
