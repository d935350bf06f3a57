"""Device model with steps that are interpolated between measured ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rpukit.analog.cells.base import FloatArray
from rpukit.analog.cells.pulsed import (
    N_GLOBALS,
    PulsedCell,
    WriteNoiseCell,
    with_common_parameters,
)

__all__ = ["PiecewiseStep"]


@with_common_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class PiecewiseStep(WriteNoiseCell):
    """A device whose steps are interpolated between measured nodes.

    Up: ``step_up f_up(w)``, down: ``step_down f_down(w)``; f is linear between its nodes, which
    lie at equal distances on the range of the cell, from `w_min` to `w_max`.

    Parameters
    ----------
    piecewise_up, piecewise_down : tuple of float, one or more
        Values of f at its nodes; a single one is a constant.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Rasch et al., AICAS 2021.

    Examples
    --------
    >>> import rpukit as rk
    >>> cell = rk.PiecewiseStep(dw_min=0.01, piecewise_up=(1.5, 1.0, 0.2))
    >>> cell.granularity
    0.01
    """

    STEP: ClassVar[str] = "piecewise_step"
    SAMPLER: ClassVar[str] = "shared_planes"

    piecewise_up: tuple[float, ...] = (1.0,)
    piecewise_down: tuple[float, ...] = (1.0,)

    def _check(self) -> None:
        WriteNoiseCell._check(self)
        for name in ("piecewise_up", "piecewise_down"):
            nodes = getattr(self, name)
            good = isinstance(nodes, (Sequence, np.ndarray)) and not isinstance(nodes, str)
            self._need(good and len(nodes) > 0, name, "one or more numbers")
            self._need(all(_is_finite(node) for node in nodes), name, "finite numbers")
            object.__setattr__(self, name, tuple(float(node) for node in nodes))

    @property
    def granularity(self) -> float:
        """Size of an up step in the middle of the range, weight units.

        It is `dw_min` if the up step vanishes there.
        """
        g = self.dw_min * self.piecewise_up[len(self.piecewise_up) // 2]
        return g if g > 0 else self.dw_min

    def globals(self) -> FloatArray:
        up, down = self.piecewise_up, self.piecewise_down
        g = np.zeros(N_GLOBALS + -(-(len(up) + len(down)) // 8) * 8, np.float64)
        g[:N_GLOBALS] = PulsedCell.globals(self)
        g[1:3] = len(up), len(down)
        g[N_GLOBALS : N_GLOBALS + len(up) + len(down)] = (*up, *down)
        return g


def _is_finite(value: object) -> bool:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]
