"""Device models with steps that are linear in the weight, or that vanish at the bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rpukit._checks import Real
from rpukit.analog.cells.base import Draws, FloatArray
from rpukit.analog.cells.pulsed import XI, PulsedCell, WriteNoiseCell, with_common_parameters
from rpukit.elementwise import expm1
from rpukit.random import Stream

__all__ = ["LinearStep", "SoftBounds", "SoftBoundsPmax", "slope"]

_GAMMA_UP, _GAMMA_DOWN = 16, 17  # draws


@dataclass(frozen=True, slots=True, kw_only=True)
class _Linear(WriteNoiseCell):
    """Base class of the linear models: planes of slopes, noise, reversal."""

    PLANES: ClassVar[tuple[str, ...]] = (*PulsedCell.PLANES, "slope_down", "slope_up")
    STEP: ClassVar[str] = "linear_step"

    mult_noise: bool = True
    reverse_up: bool = False
    reverse_down: bool = False
    reverse_offset: float = 0.01

    def _check(self) -> None:
        WriteNoiseCell._check(self)
        self._need(self.reverse_offset > 0, "reverse_offset", "a positive number")
        up, up_dtod, down, down_dtod = self._gammas()[:4]
        for name, gamma, dtod in (("w_max", up, up_dtod), ("w_min", down, down_dtod)):
            step = self._largest_step() * (abs(gamma) + XI * dtod)
            self._need_small("dw_min", step / self._smallest_bound(name))

    def globals(self) -> FloatArray:
        g = PulsedCell.globals(self)
        g[1] = self.mult_noise
        return g

    def sample(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        arrays = PulsedCell.sample(self, stream, shape)
        low, high, up, down = self._slopes(Draws(stream, shape), arrays)
        offset = np.float32(self.reverse_offset)
        arrays["slope_up"] = slope(up, low - offset if self.reverse_up else high)
        arrays["slope_down"] = slope(down, high + offset if self.reverse_down else low)
        return arrays

    def own_numbers(self) -> tuple[float, ...]:
        reversal = self.reverse_up, self.reverse_down, self.reverse_offset
        return *self._gammas(), *reversal

    def _gammas(self) -> tuple[float, ...]:
        """Return gamma_up, its spread, gamma_down, its spread, and the flags of the slopes."""
        return 1.0, 0.0, 1.0, 0.0, False, False

    def _slopes(self, draws: Draws, arrays: dict[str, FloatArray]) -> tuple[FloatArray, ...]:
        """Return the bounds that slopes refer to, and the up and down steps times gamma."""
        return tuple(arrays[name] for name in ("w_min", "w_max", "step_up", "step_down"))


def slope(step: FloatArray, vanishes_at: FloatArray) -> FloatArray:
    """Compute the slope of a step that vanishes at a weight; 0 for a weight of 0."""
    usable = (step != 0) & (vanishes_at != 0)
    return np.divide(-step, vanishes_at, out=np.zeros_like(step), where=usable)


@with_common_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class LinearStep(_Linear):
    """A device whose steps change linearly with its weight.

    Up: ``step_up (1 - gamma_up w / w_max)``, down: ``step_down (1 - gamma_down w / w_min)``.

    Parameters
    ----------
    gamma_up, gamma_down : float
        Slopes of the steps; with 1 a step vanishes at the bound.
    gamma_up_dtod, gamma_down_dtod : float, at least 0
        Absolute spread of the slopes.
    allow_increasing : bool
        Allow negative slopes; otherwise their absolute values are used.
    mean_bound_reference : bool
        Slopes refer to the mean bounds `w_max`, `w_min`; otherwise to the bounds of the cell.
    mult_noise : bool
        Noise acts on the whole step; otherwise on its constant part only.
    reverse_up, reverse_down : bool
        Let the up (down) step shrink towards the other bound.
    reverse_offset : float, positive, weight units
        Keeps a reversed step from vanishing at that bound.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Rasch et al., AICAS 2021; Gong et al., "Signal and noise extraction from analog memory
    elements for neuromorphic computing", Nature Communications 9:2102 (2018).

    Examples
    --------
    >>> import rpukit as rk
    >>> tile = rk.AnalogTile((2, 3), rk.LinearStep(gamma_up=0.3, gamma_down=0.3), seed=1)
    >>> bool((tile.cells["slope_up"] < 0).all())
    True
    """

    SAMPLER: ClassVar[str] = "linear_planes"

    gamma_up: float = 0.0
    gamma_down: float = 0.0
    gamma_up_dtod: float = 0.05
    gamma_down_dtod: float = 0.05
    allow_increasing: bool = False
    mean_bound_reference: bool = True

    def _check(self) -> None:
        _Linear._check(self)
        for name in ("gamma_up_dtod", "gamma_down_dtod"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")

    def _gammas(self) -> tuple[float, ...]:
        up, down = (self.gamma_up, self.gamma_up_dtod), (self.gamma_down, self.gamma_down_dtod)
        return *up, *down, self.allow_increasing, self.mean_bound_reference

    def _slopes(self, draws: Draws, arrays: dict[str, FloatArray]) -> tuple[FloatArray, ...]:
        low, high, up, down = _Linear._slopes(self, draws, arrays)
        if self.mean_bound_reference:
            low, high = draws.full(self.w_min), draws.full(self.w_max)
        gammas = (
            (self.gamma_up, self.gamma_up_dtod, _GAMMA_UP),
            (self.gamma_down, self.gamma_down_dtod, _GAMMA_DOWN),
        )
        g_up, g_down = (draws.shifted(*gamma) for gamma in gammas)
        if not self.allow_increasing:
            g_up, g_down = np.abs(g_up), np.abs(g_down)
        return low, high, g_up * up, g_down * down


@with_common_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class SoftBounds(_Linear):
    """A device whose steps shrink towards its bounds.

    Up: ``step_up (1 - w / w_max)``, down: ``step_down (1 - w / w_min)``, with the bounds of the
    cell.

    Parameters
    ----------
    mult_noise : bool
        Noise acts on the whole step; otherwise on its constant part only.
    reverse_up, reverse_down : bool
        Let the up (down) step shrink towards the other bound.
    reverse_offset : float, positive, weight units
        Keeps a reversed step from vanishing at that bound.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Fusi and Abbott, "Limits on the memory storage capacity of bounded synapses", Nature
    Neuroscience 10:485 (2007); Rasch et al., AICAS 2021.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.SoftBounds(dw_min=0.01).granularity
    0.01
    """

    SAMPLER: ClassVar[str] = "linear_planes"


@with_common_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class SoftBoundsPmax(SoftBounds):
    """A `SoftBounds` device that is described by its response to up pulses.

    The derived parameters are those of the source, of a device meant to go from `range_min` to
    `range_max` in `p_max` up pulses. As `dw_min` is the step at weight 0, it goes further: after
    p pulses ``w = range_min + B (1 - exp(-p dw_min / w_max))``, by default 1.36 and not 1.

    Parameters
    ----------
    p_max : float, positive
        Number of pulses over the range.
    alpha : float, positive
        Curvature, for each pulse.
    range_min, range_max : float, weight units, ``range_min < range_max``
    mult_noise : bool
        Noise acts on the whole step; otherwise on its constant part only.
    reverse_up, reverse_down : bool
        Let the up (down) step shrink towards the other bound.
    reverse_offset : float, positive, weight units
        Keeps a reversed step from vanishing at that bound.

    Raises
    ------
    ParameterError

    Notes
    -----
    ``B = (range_max - range_min) / (1 - exp(-p_max alpha))``; then ``dw_min = B alpha``,
    ``w_min = range_min``, ``w_max = range_min + B``, ``up_down = 1 + 2 range_min / B``. These four
    are derived: leave them None, or give exactly the derived values.

    Source: Rasch et al., AICAS 2021.

    Examples
    --------
    >>> import rpukit as rk
    >>> cell = rk.SoftBoundsPmax(p_max=300, alpha=0.01)
    >>> round(cell.dw_min, 5), round(cell.w_max, 3)
    (0.02105, 1.105)
    """

    SAMPLER: ClassVar[str] = "linear_planes"

    dw_min: float = None  # type: ignore[assignment]
    w_max: float = None  # type: ignore[assignment]
    w_min: float = None  # type: ignore[assignment]
    up_down: float = None  # type: ignore[assignment]
    p_max: float = 1000.0
    alpha: float = 0.0005
    range_min: float = -1.0
    range_max: float = 1.0

    def __post_init__(self) -> None:
        for name, value in self._derived().items():
            given = getattr(self, name)
            if not (given is None or (isinstance(given, (int, float)) and given == value)):
                self._fail(name, "None: it follows from p_max, alpha, range_min and range_max")
            object.__setattr__(self, name, value)
        SoftBounds.__post_init__(self)

    def _derived(self) -> dict[str, float]:
        for name in ("p_max", "alpha", "range_min", "range_max"):
            value = Real().take(getattr(self, name), f"{type(self).__name__}.{name}")
            object.__setattr__(self, name, value)
        self._need(self.p_max > 0, "p_max", "a positive number")
        self._need(self.alpha > 0, "alpha", "a positive number")
        self._need(self.range_min < self.range_max, "range_max", "a number above range_min")
        bent = float(expm1(np.array([-self.p_max * self.alpha]))[0])
        span = (self.range_max - self.range_min) / -bent
        return {
            "dw_min": span * self.alpha,
            "w_max": self.range_min + span,
            "w_min": self.range_min,
            "up_down": 1 + 2 * self.range_min / span,
        }
