"""Base classes of pulsed device models: common parameters, planes and draws."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rpukit._checks import check_shape, need_memory
from rpukit.analog.cells.base import Cell, Draws, FloatArray, decay_scale, drift_arrays
from rpukit.analog.parameters.drift import DriftParameters
from rpukit.elementwise import exp
from rpukit.random import Stream

__all__ = ["PulsedCell", "WriteNoiseCell", "two_sided", "with_common_parameters"]

N_GLOBALS = 8  # numbers of a whole tile that most step functions take; a multiple of 8
_WRITE_NOISE_SLOT = 7
XI = 7.0  # no normal number drawn from 32 bits is larger
_MOST = 1e38  # of what is drawn for a device; sums of a few stay within float32


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsedCell(Cell):
    """Base class of pulsed device models: bounds, step sizes, spreads, weight processes.

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
        Asymmetry: a positive value makes down steps smaller, a negative one up steps.
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
        Standard deviation of the random walk in one `AnalogTile.diffuse` call.
    diffusion_dtod : float, at least 0, relative
    lifetime : float, 0 or at least 1, in calls of `AnalogTile.decay`
        Decay constant; 0 turns decay off.
    lifetime_dtod : float, at least 0, relative
    reset : float, weight units
        Resting point, the target of decay and reset.
    reset_dtod : float, at least 0, weight units
        Absolute spread of the resting point.
    reset_std : float, at least 0, weight units
        Spread of one reset.
    drift : DriftParameters, optional
        Parameters of `AnalogTile.drift`; None turns drift off.

    Raises
    ------
    ParameterError

    Notes
    -----
    A new model is a subclass: a frozen dataclass with ``STEP``, the name of its step function
    (`rpukit.register_step`), with ``PLANES``, the names of its per-cell arrays, which begin with
    those of this class and which `sample` draws, and with `globals`, if the step needs numbers of
    the whole tile.

    Examples
    --------
    >>> import rpukit as rk
    >>> class Named(rk.PulsedCell):
    ...     STEP = "constant_step"
    >>> Named(dw_min=0.01).granularity
    0.01
    """

    PULSED: ClassVar[bool] = True
    PLANES: ClassVar[tuple[str, ...]] = ("w_min", "w_max", "step_down", "step_up")
    STEP: ClassVar[str] = ""
    HAS_RUN: ClassVar[bool] = False
    SAMPLER: ClassVar[str] = ""  # draws the planes on a GPU, see cell_planes.cuh; not inherited

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
        self._check_lifetime(self.lifetime)
        self._need(self.dw_min > 0, "dw_min", "a positive number")
        self._need(self.w_max >= 0, "w_max", "a number from 0 (w_min <= 0 <= w_max)")
        self._need(self.w_min <= 0, "w_min", "0 or a negative number (w_min <= 0 <= w_max)")
        self._need(
            self.w_min < self.w_max, "w_max", "a number above w_min (bounds 0 and 0 are equal)"
        )
        self._need(
            0 <= self.corrupt_devices_prob <= 1, "corrupt_devices_prob", "a number in [0, 1]"
        )
        spreads = "dw_min_dtod dw_min_std up_down_dtod w_max_dtod w_min_dtod diffusion_dtod"
        sizes = "corrupt_devices_range diffusion lifetime_dtod reset_dtod reset_std"
        for name in f"{spreads} {sizes}".split():
            self._need(getattr(self, name) >= 0, name, "a number from 0")
        self._check_draws()

    def _check_draws(self) -> None:
        """No device that can be drawn passes the range of float32."""
        self._need_small("dw_min", self._largest_step())
        for name in ("w_max", "w_min"):
            self._need_small(name, self._largest_bound(name))
        for name in ("diffusion", "lifetime"):
            spread = 1 + XI * getattr(self, f"{name}_dtod")
            self._need_small(name, getattr(self, name) * spread)

    def _largest_step(self) -> float:
        gain = 1 + XI * self.dw_min_dtod
        if self.dw_min_dtod_log_normal:
            gain = math.exp(min(XI * self.dw_min_dtod, 700.0))
        return self.dw_min * (gain + abs(self.up_down) + XI * self.up_down_dtod)

    def _largest_bound(self, name: str) -> float:
        bias = 100.0 if self.perfect_bias else 1.0
        return float(bias * abs(getattr(self, name)) * (1 + XI * getattr(self, f"{name}_dtod")))

    def _smallest_bound(self, name: str) -> float:
        """Find the least size of a bound but 0; a spread takes it down to a rounding error."""
        bound, dtod = abs(getattr(self, name)), getattr(self, f"{name}_dtod")
        return bound * (2.0**-24 if dtod > 0 else 1.0) or math.inf

    def _need_small(self, name: str, largest: float) -> None:
        need = f"a number with which no device drawn passes {_MOST:g}: with this one, and the "
        self._need(abs(largest) < _MOST, name, f"{need}spreads given, one can reach {largest:g}")

    @property
    def granularity(self) -> float:
        """Mean size of a step at weight 0, in weight units; it scales pulse trains."""
        return self.dw_min

    @property
    def n_states(self) -> float:
        """Number of states between the mean bounds."""
        return (self.w_max - self.w_min) / self.granularity

    def globals(self) -> FloatArray:
        """Return the numbers of the whole tile for the step function.

        Returns
        -------
        array, shape (n_global,), float64
            n_global is a multiple of 8. Number 0 is `dw_min_std`, number 7 the standard deviation
            of the write noise; the others belong to the model.
        """
        g = np.zeros(N_GLOBALS, np.float64)
        g[0] = self.dw_min_std
        g[_WRITE_NOISE_SLOT] = self.write_noise
        return g

    def own_numbers(self) -> tuple[float, ...]:
        """Return the numbers that the model's planes are drawn from, for ``cell_planes.cuh``.

        Returns
        -------
        tuple of float
        """
        return ()

    def sample(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        n_out, n_in = shape = check_shape(shape)
        need_memory(4 * len(self.PLANES) * n_out * n_in, f"drawing {n_out} x {n_in} cells")
        draws = Draws(stream, shape)
        arrays = self._sample_steps(draws)
        self._corrupt(draws, arrays)
        if self.perfect_bias:
            for name in ("step_up", "step_down"):
                arrays[name][:, -1] = self.dw_min
            for name in ("w_max", "w_min"):
                arrays[name][:, -1] *= 100
        arrays.update(self.sample_slow(stream, shape))
        return arrays

    def sample_slow(self, stream: Stream, shape: tuple[int, int]) -> dict[str, FloatArray]:
        """Draw the parameters of the weight processes, without the planes of the step function.

        Parameters
        ----------
        stream : Stream
        shape : tuple of int, (n_out, n_in)

        Returns
        -------
        dict of str to array, shape (n_out, n_in), float32
            As in `sample`, except that the resting point includes no symmetry point.
        """
        draws, arrays = Draws(stream, shape), {}
        if self.diffusion > 0:
            arrays["diffusion_rate"] = np.abs(draws.spread(self.diffusion, self.diffusion_dtod, 6))
        if self.reset != 0 or self.reset_dtod > 0:
            arrays["reset_bias"] = draws.full(self.reset)
            if self.reset_dtod > 0:
                arrays["reset_bias"] += np.float32(self.reset_dtod) * draws.normal(7)
        if self.lifetime > 0:
            arrays["decay_scale"] = decay_scale(draws.spread(self.lifetime, self.lifetime_dtod, 8))
        arrays.update(drift_arrays(draws, self.drift))
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
        up, down = (side * np.float32(self.dw_min) for side in two_sided(self.up_down, gain, r))
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


def two_sided(up_down: float, gain: FloatArray, r: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute the relative sizes of up and down steps."""
    up = np.float32(min(up_down, 0.0)) + gain + r
    return up, np.float32(-max(up_down, 0.0)) + gain - r


def with_common_parameters(cls: type[PulsedCell]) -> type[PulsedCell]:
    """Add the common parameters of pulsed cells to a model's docstring."""
    heading = (
        "Parameters\n----------\n"  # Python 3.13 strips the indent of docstrings, 3.12 does not
    )
    common = ""
    for base in (PulsedCell, WriteNoiseCell):
        if issubclass(cls, base):
            text = inspect.cleandoc(base.__doc__ or "").partition(heading)[2]
            common += text.partition("Raises\n")[0].rstrip() + "\n"
    cls.__doc__ = inspect.cleandoc(cls.__doc__ or "").replace(heading, heading + common, 1)
    return cls


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteNoiseCell(PulsedCell):
    """Base class of pulsed cells that can have write noise.

    Parameters
    ----------
    write_noise_std : float, at least 0, in steps `dw_min`
        Standard deviation of the write noise. Pulses act on a persistent weight; the visible
        weight is the persistent one plus fresh noise after every write.
    apply_write_noise_on_set : bool
        Whether weights that are set get noise, too.

    Raises
    ------
    ParameterError
    """

    write_noise_std: float = 0.0
    apply_write_noise_on_set: bool = True

    def _check(self) -> None:
        PulsedCell._check(self)
        self._need(self.write_noise_std >= 0, "write_noise_std", "a number from 0")
        self._need_small("write_noise_std", XI * self.write_noise_std * self.dw_min)

    @property
    def write_noise(self) -> float:
        """Standard deviation of the write noise, in weight units."""
        return self.write_noise_std * self.dw_min
