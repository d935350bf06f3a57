"""Device model with steps that do not depend on the weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rpukit.analog.cells.pulsed import PulsedCell, with_common_parameters

__all__ = ["ConstantStep"]


@with_common_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantStep(PulsedCell):
    """A device whose steps do not depend on its weight: ``dw = +-step (1 + dw_min_std xi)``.

    Every ``*_dtod`` is a spread from device to device, drawn once when the tile is made.

    Parameters
    ----------

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.ConstantStep(dw_min=0.01, w_max=1, w_min=-1).n_states
    200.0
    """

    STEP: ClassVar[str] = "constant_step"
    SAMPLER: ClassVar[str] = "shared_planes"
    HAS_RUN: ClassVar[bool] = True
