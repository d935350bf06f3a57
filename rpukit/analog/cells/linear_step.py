"""Steps that change linearly with the weight, and vanish at bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rpukit.analog.cells.base import FloatArray
from rpukit.analog.cells.pulsed import PulsedCell, with_common_parameters
from rpukit.random import Stream

__all__ = ["SoftBounds"]


@with_common_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class SoftBounds(PulsedCell):
    """A device whose steps shrink towards its bounds.

    Up: ``step_up (1 - w / w_max)``, down: ``step_down (1 - w / w_min)``, with the bounds of the
    cell.

    Parameters
    ----------
    mult_noise : bool
        Noise on the whole step; else on its constant part only.
    write_noise_std : float, at least 0, in steps `dw_min`
        The pulses act on a persistent weight; what is seen is that weight plus fresh noise after
        every write.
    apply_write_noise_on_set : bool
        Noise also on weights that are set.
    reverse_up, reverse_down : bool
        Let the up (down) step shrink towards the other bound.
    reverse_offset : float, positive, weight units
        Keeps a reversed step from vanishing at that bound.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.SoftBounds(dw_min=0.01).granularity
    0.01
    """

    PLANES: ClassVar[tuple[str, ...]] = (*PulsedCell.PLANES, "slope_down", "slope_up")
    STEP: ClassVar[str] = "linear_step"

    mult_noise: bool = True
    write_noise_std: float = 0.0
    apply_write_noise_on_set: bool = True
    reverse_up: bool = False
    reverse_down: bool = False
    reverse_offset: float = 0.01

    def _check(self) -> None:
        PulsedCell._check(self)
        self._need(self.write_noise_std >= 0, "write_noise_std", "a number from 0")
        self._need(self.reverse_offset > 0, "reverse_offset", "a positive number")

    @property
    def write_noise(self) -> float:
        """Deviation of the write noise, in units of the weight."""
        return self.write_noise_std * self.dw_min

    def globals(self) -> FloatArray:
        g = PulsedCell.globals(self)
        g[1] = self.mult_noise
        return g

    def sample(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        arrays = PulsedCell.sample(self, stream, shape)
        offset = np.float32(self.reverse_offset)
        up_to = arrays["w_min"] - offset if self.reverse_up else arrays["w_max"]
        down_to = arrays["w_max"] + offset if self.reverse_down else arrays["w_min"]
        arrays["slope_up"] = _slope(arrays["step_up"], up_to)
        arrays["slope_down"] = _slope(arrays["step_down"], down_to)
        return arrays


def _slope(step: FloatArray, vanishes_at: FloatArray) -> FloatArray:
    """Slope of a step that is 0 at a weight; a bound of exactly 0 pins the cell anyway."""
    usable = (step != 0) & (vanishes_at != 0)
    return np.divide(-step, vanishes_at, out=np.zeros_like(step), where=usable)
