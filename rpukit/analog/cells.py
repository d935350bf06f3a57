"""What sits at a cross-point: the cells of a tile, as frozen descriptions with the field's names.

A cell class knows three things: its parameters, how a tile's per-cell arrays are drawn from them
(device-to-device variation, plain NumPy below), and which step function moves a weight
(``device_steps.cuh`` and ``_steps.py``). A new pulsed model is one class here and one function
there.

Source of the models: Rasch et al., "A flexible and fast PyTorch toolkit for simulating training
and inference on analog crossbar arrays", AICAS 2021.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from rpukit.analog.drift_parameters import DriftParameters
from rpukit.elementwise import exp, random_fill
from rpukit.errors import ParameterError
from rpukit.random import Op, Stream

__all__ = ["Cell", "ConstantStep", "Ideal", "PulsedCell", "SoftBounds"]

FloatArray = Any  # numpy.ndarray of float32
N_GLOBALS = 8  # numbers of a whole tile that the step functions see
_WRITE_NOISE_SLOT = 7


class Draws:
    """The draws of construction: draw number k gives one value for each cell."""

    def __init__(self, stream: Stream, shape: tuple[int, int]) -> None:
        self._stream, self._shape = stream, shape

    def normal(self, k: int) -> FloatArray:
        return random_fill(self._stream, self._shape, "normal", op=Op.CELLS, draw=k)

    def uniform(self, k: int) -> FloatArray:
        return random_fill(self._stream, self._shape, "uniform", op=Op.CELLS, draw=k)

    def spread(self, mean: float, dtod: float, k: int) -> FloatArray:
        """Draw mean (1 + dtod xi); nothing is drawn when there is no spread."""
        if dtod == 0 or mean == 0:
            return np.full(self._shape, mean, np.float32)
        return np.float32(mean) * (1 + np.float32(dtod) * self.normal(k))

    def full(self, value: float) -> FloatArray:
        return np.full(self._shape, value, np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Base of all cells; see `Ideal`, `ConstantStep`, `SoftBounds`."""

    PULSED: ClassVar[bool] = False
    PLANES: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                if field.type in ("float", float):
                    self._fail(field.name, "a number")
            elif not math.isfinite(value):
                self._fail(field.name, "a finite number")
        self._check()

    def _check(self) -> None:
        """Check ranges; subclasses extend it."""

    def _fail(self, name: str, need: str) -> None:
        raise ParameterError(
            f"{type(self).__name__}.{name}: got {getattr(self, name)!r}, need {need}"
        )

    def _need(self, condition: bool, name: str, need: str) -> None:
        if not condition:
            self._fail(name, need)

    def _check_drift(self, drift: DriftParameters | None) -> None:
        self._need(isinstance(drift, DriftParameters | None), "drift", "DriftParameters or None")

    def sample(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        """Draw the per-cell arrays of a tile.

        Parameters
        ----------
        stream : Stream
        shape : tuple of int, (n_out, n_in)

        Returns
        -------
        dict of str to array, shape (n_out, n_in), float32
            The planes of the step function, and ``decay_scale``, ``diffusion_rate``,
            ``drift_nu``, ``reset_bias`` where the parameters ask for them.
        """
        raise NotImplementedError  # pragma: no cover

    @property
    def write_noise(self) -> float:
        """Deviation of the write noise, in units of the weight."""
        return 0.0


def _decay_scale(lifetime: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.where(lifetime <= 1, np.float32(0), 1 - 1 / lifetime).astype(np.float32)


def _drift_arrays(draws: Draws, drift: DriftParameters | None) -> dict[str, FloatArray]:
    """Draw the exponent of each cell, where they differ."""
    if drift is None or drift.nu == 0 or drift.nu_dtod == 0:
        return {}
    return {"drift_nu": draws.spread(drift.nu, drift.nu_dtod, 9)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ideal(Cell):
    """A cell that takes the exact update ``-lr d x``, without pulses, noise or bounds.

    Parameters
    ----------
    diffusion : float, at least 0, weight units
        Deviation of the random walk of one `AnalogTile.diffuse` call.
    lifetime : float, 0 or at least 1, in calls of `AnalogTile.decay`
        Decay constant; 0 is none.
    reset_std : float, at least 0, weight units
        Spread after `AnalogTile.reset`.
    drift : DriftParameters, optional
        Drift of `AnalogTile.drift`.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> tile = rk.AnalogTile((2, 3), rk.Ideal(), seed=1)
    """

    diffusion: float = 0.0
    lifetime: float = 0.0
    reset_std: float = 0.01
    drift: DriftParameters | None = None

    def _check(self) -> None:
        self._check_drift(self.drift)
        self._need(self.diffusion >= 0, "diffusion", "a number from 0")
        self._need(self.lifetime >= 0, "lifetime", "a number from 0")
        self._need(self.reset_std >= 0, "reset_std", "a number from 0")

    def sample(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        draws = Draws(stream, shape)
        arrays = {}
        if self.lifetime > 0:
            arrays["decay_scale"] = _decay_scale(draws.full(self.lifetime))
        if self.diffusion > 0:
            arrays["diffusion_rate"] = draws.full(self.diffusion)
        arrays.update(_drift_arrays(draws, self.drift))
        return arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsedCell(Cell):
    """What all pulsed device models share: bounds, step sizes, their spread, slow processes.

    Every ``*_dtod`` is a spread from device to device, drawn once when the tile is made.

    Parameters
    ----------
    dw_min : float, positive, weight units
        Mean size of a step at weight 0.
    dw_min_dtod : float, at least 0, relative
    dw_min_dtod_log_normal : bool
        Log-normal instead of normal spread of the step size.
    dw_min_std : float, at least 0, relative
        Cycle-to-cycle noise of a step.
    up_down : float, weight steps
        Asymmetry: positive makes down steps smaller, negative up steps.
    up_down_dtod : float, at least 0
    w_max, w_min : float, weight units, ``w_min <= 0 <= w_max``
        Mean bounds.
    w_max_dtod, w_min_dtod : float, at least 0, relative
    enforce_consistency : bool
        Make step sizes positive and order the bounds around 0.
    corrupt_devices_prob : float, 0 to 1
        Share of stuck devices, each at a uniform value within `corrupt_devices_range`.
    corrupt_devices_range : float, at least 0, weight units
    perfect_bias : bool
        Give the last column ideal steps and hundredfold bounds.
    diffusion : float, at least 0, weight units
        Deviation of the random walk of one `AnalogTile.diffuse` call.
    diffusion_dtod : float, at least 0, relative
    lifetime : float, at least 0, in calls of `AnalogTile.decay`
        Decay constant; 0 is none.
    lifetime_dtod : float, at least 0, relative
    reset : float, weight units
        Resting point that decay and reset go to.
    reset_dtod : float, at least 0, weight units
        Spread of the resting point; it is added, not relative.
    reset_std : float, at least 0, weight units
        Spread of one reset.
    drift : DriftParameters, optional
        Drift of `AnalogTile.drift`.

    Raises
    ------
    ParameterError
    """

    PULSED: ClassVar[bool] = True
    PLANES: ClassVar[tuple[str, ...]] = ("w_min", "w_max", "step_down", "step_up")
    STEP: ClassVar[str] = ""
    HAS_RUN: ClassVar[bool] = False

    dw_min: float = 0.001
    dw_min_dtod: float = 0.3
    dw_min_dtod_log_normal: bool = False
    dw_min_std: float = 0.3
    up_down: float = 0.0
    up_down_dtod: float = 0.01
    w_max: float = 0.6
    w_max_dtod: float = 0.3
    w_min: float = -0.6
    w_min_dtod: float = 0.3
    enforce_consistency: bool = True
    corrupt_devices_prob: float = 0.0
    corrupt_devices_range: float = 0.1
    perfect_bias: bool = False
    diffusion: float = 0.0
    diffusion_dtod: float = 0.0
    lifetime: float = 0.0
    lifetime_dtod: float = 0.0
    reset: float = 0.0
    reset_dtod: float = 0.0
    reset_std: float = 0.01
    drift: DriftParameters | None = None

    def _check(self) -> None:
        self._check_drift(self.drift)
        self._need(self.dw_min > 0, "dw_min", "a positive number")
        self._need(self.w_max >= 0, "w_max", "a number from 0 (w_min <= 0 <= w_max)")
        self._need(self.w_min <= 0, "w_min", "a number up to 0 (w_min <= 0 <= w_max)")
        self._need(
            0 <= self.corrupt_devices_prob <= 1, "corrupt_devices_prob", "a number in [0, 1]"
        )
        spreads = "dw_min_dtod dw_min_std up_down_dtod w_max_dtod w_min_dtod diffusion_dtod"
        sizes = "corrupt_devices_range diffusion lifetime lifetime_dtod reset_dtod reset_std"
        for name in f"{spreads} {sizes}".split():
            self._need(getattr(self, name) >= 0, name, "a number from 0")

    @property
    def granularity(self) -> float:
        """Mean size of a step at weight 0, in weight units; pulse trains are made with it."""
        return self.dw_min

    @property
    def n_states(self) -> float:
        """Number of states between the mean bounds."""
        return (self.w_max - self.w_min) / self.granularity

    def globals(self) -> FloatArray:
        """Give the numbers of the whole tile for the step function.

        Returns
        -------
        array, shape (8,), float32
            0 `dw_min_std`, 1 and on the model's own, 7 the deviation of the write noise.
        """
        g = np.zeros(N_GLOBALS, np.float32)
        g[0] = self.dw_min_std
        g[_WRITE_NOISE_SLOT] = self.write_noise
        return g

    def sample(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        draws = Draws(stream, shape)
        arrays = self._sample_steps(draws)
        self._corrupt(draws, arrays)
        if self.perfect_bias:
            for name in ("step_up", "step_down"):
                arrays[name][:, -1] = self.dw_min
            for name in ("w_max", "w_min"):
                arrays[name][:, -1] *= 100
        if self.diffusion > 0:
            arrays["diffusion_rate"] = np.abs(draws.spread(self.diffusion, self.diffusion_dtod, 6))
        if self.reset != 0 or self.reset_dtod > 0:
            arrays["reset_bias"] = draws.full(self.reset)
            if self.reset_dtod > 0:
                arrays["reset_bias"] += np.float32(self.reset_dtod) * draws.normal(7)
        if self.lifetime > 0:
            arrays["decay_scale"] = _decay_scale(
                draws.spread(self.lifetime, self.lifetime_dtod, 8)
            )
        arrays.update(_drift_arrays(draws, self.drift))
        return arrays

    def _sample_steps(self, draws: Draws) -> dict[str, FloatArray]:
        w_max = draws.spread(self.w_max, self.w_max_dtod, 0)
        w_min = draws.spread(self.w_min, self.w_min_dtod, 1)
        gain = draws.full(1.0)
        if self.dw_min_dtod > 0:
            spread = np.float32(self.dw_min_dtod) * draws.normal(2)
            gain = exp(spread) if self.dw_min_dtod_log_normal else 1 + spread
        r = draws.full(0.0)
        if self.up_down_dtod > 0:
            r = np.float32(self.up_down_dtod) * draws.normal(3)
        up = (np.float32(min(self.up_down, 0.0)) + gain + r) * np.float32(self.dw_min)
        down = (np.float32(-max(self.up_down, 0.0)) + gain - r) * np.float32(self.dw_min)
        crossed = w_max < w_min
        if self.enforce_consistency:
            up, down = np.abs(up), np.abs(down)
            w_max, w_min = np.where(crossed, w_min, w_max), np.where(crossed, w_max, w_min)
            w_max, w_min = np.abs(w_max), -np.abs(w_min)
        else:
            middle = (w_max + w_min) / 2
            w_max, w_min = np.where(crossed, middle, w_max), np.where(crossed, middle, w_min)
        return {"w_min": w_min, "w_max": w_max, "step_down": down, "step_up": up}

    def _corrupt(self, draws: Draws, arrays: dict[str, FloatArray]) -> None:
        if self.corrupt_devices_prob == 0:
            return
        stuck = draws.uniform(4) < np.float32(self.corrupt_devices_prob)
        reach = np.float32(self.corrupt_devices_range)
        low = max(arrays["w_min"].min(), -reach)
        high = min(arrays["w_max"].max(), reach)
        value = low + (high - low) * draws.uniform(5)
        for name in ("w_min", "w_max"):
            arrays[name] = np.where(stuck, value, arrays[name])
        for name in ("step_down", "step_up"):
            arrays[name] = np.where(stuck, np.float32(0), arrays[name])


def _with_common_parameters(cls: type[PulsedCell]) -> type[PulsedCell]:
    """Complete a model's docstring by the parameters that all models share."""
    heading = (
        "Parameters\n----------\n"  # Python 3.13 strips the indent of docstrings, 3.12 does not
    )
    common = inspect.cleandoc(PulsedCell.__doc__ or "").partition(heading)[2]
    common = common.partition("Raises\n")[0].rstrip()
    cls.__doc__ = inspect.cleandoc(cls.__doc__ or "").replace(heading, f"{heading}{common}\n", 1)
    return cls


@_with_common_parameters
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
    HAS_RUN: ClassVar[bool] = True


@_with_common_parameters
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
