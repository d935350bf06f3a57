"""Device model with steps that depend exponentially on the weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rpukit.analog.cells.base import FloatArray
from rpukit.analog.cells.pulsed import PulsedCell, WriteNoiseCell, with_common_parameters
from rpukit.elementwise import exp

__all__ = ["ExpStep"]

_LARGEST = 1e18  # so that a step in float32 stays finite


@with_common_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class ExpStep(WriteNoiseCell):
    """A device whose steps depend exponentially on its weight.

    Up: ``step_up max(1 - A_up exp(gamma_up z), 0)``, down:
    ``step_down max(1 - A_down exp(-gamma_down z), 0)``, with ``z = 2 a w / (w_max - w_min) + b``
    and the bounds of the cell. The defaults were fitted to a resistive memory.

    Parameters
    ----------
    A_up, A_down : float
        Sizes of the exponential parts.
    gamma_up, gamma_down : float
        Rates of the exponential parts.
    a, b : float
        Scale and shift of the weight.
    dw_min_std_add : float, at least 0, weight units
        With `dw_min_std_slope`: the noise of a step dw has the standard deviation
        ``dw_min_std (|dw| + dw_min_std_add + dw_min_std_slope |w|)``.
    dw_min_std_slope : float, at least 0
    mean_granularity : bool
        Use the mean of both steps at weight 0 as the granularity, which sets the length of pulse
        trains. Otherwise it is the down step at weight 0, as in the toolkit of the source.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Gong et al., "Signal and noise extraction from analog memory elements for neuromorphic
    computing", Nature Communications 9:2102 (2018); Rasch et al., AICAS 2021.

    Examples
    --------
    >>> import rpukit as rk
    >>> round(rk.ExpStep().granularity, 8)
    0.00098342
    """

    STEP: ClassVar[str] = "exp_step"
    SAMPLER: ClassVar[str] = "shared_planes"

    A_up: float = 0.00081
    A_down: float = 0.36833
    gamma_up: float = 12.44625
    gamma_down: float = 12.78785
    a: float = 0.244
    b: float = 0.2425
    dw_min_std_add: float = 0.0
    dw_min_std_slope: float = 0.0
    mean_granularity: bool = False

    def _check(self) -> None:
        WriteNoiseCell._check(self)
        for name in ("dw_min_std_add", "dw_min_std_slope"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")
        # The standard library's logarithm: a check of parameters should compile nothing.
        powers = {"A_up": self.gamma_up * self.b, "A_down": -self.gamma_down * self.b}
        for name, power in powers.items():
            factor = abs(getattr(self, name))
            need = f"a number whose exponential part at weight 0 is below {_LARGEST:g}"
            self._need(not factor or math.log(factor) + power < math.log(_LARGEST), name, need)

    def _sizes(self) -> tuple[float, float]:
        """Compute the factors of the exponentials in w: A exp(+-gamma b)."""
        grown = exp(np.array([self.gamma_up * self.b, -self.gamma_down * self.b]))  # float64
        return self.A_up * float(grown[0]), self.A_down * float(grown[1])

    @property
    def granularity(self) -> float:
        """Mean size of a step at weight 0, in weight units; it scales pulse trains.

        It is `dw_min` if the step at weight 0 vanishes.
        """
        size_up, size_down = self._sizes()
        g = (1 - max(self.up_down, 0.0)) * max(1 - size_down, 0.0) * self.dw_min
        if self.mean_granularity:
            up = (1 + min(self.up_down, 0.0)) * max(1 - size_up, 0.0) * self.dw_min
            g = (g + up) / 2
        return g if g > 0 else self.dw_min

    def globals(self) -> FloatArray:
        g = PulsedCell.globals(self)
        g[1:3] = self._sizes()
        g[3:5] = 2 * self.a * self.gamma_up, 2 * self.a * self.gamma_down
        g[5:7] = self.dw_min_std_add, self.dw_min_std_slope
        return g
