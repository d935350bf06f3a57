"""Hardware-aware training: clipping and remapping of weights, ranges of inputs.

Clipping and remapping change the weights and their digital scales; input ranges limit the
activations. Weight modifiers are in ``modifiers.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import Checked
from rpukit._kernels.entering import enters_arrays
from rpukit.inference.training.sums import clip, deviation_there, total, total_there

__all__ = [
    "ClipType",
    "InputRange",
    "RemapType",
    "WeightClip",
    "WeightRemap",
]

Array = Any


class ClipType(str, Enum):
    """Kind of bound to which weights are clipped.

    Attributes
    ----------
    NONE
        No clipping.
    FIXED_VALUE
        A given number.
    LAYER_GAUSSIAN
        A multiple of the standard deviation of all weights.
    AVERAGE_CHANNEL_MAX
        The mean over the rows of their largest absolute weight.
    """

    NONE = "NONE"
    FIXED_VALUE = "FIXED_VALUE"
    LAYER_GAUSSIAN = "LAYER_GAUSSIAN"
    AVERAGE_CHANNEL_MAX = "AVERAGE_CHANNEL_MAX"


class RemapType(str, Enum):
    """Set of weights that share a digital scale in remapping: a layer or a row.

    Attributes
    ----------
    NONE
        No remapping.
    LAYERWISE_SYMMETRIC
        One scale for the matrix: its largest absolute weight.
    CHANNELWISE_SYMMETRIC
        One scale for each row.
    """

    NONE = "NONE"
    LAYERWISE_SYMMETRIC = "LAYERWISE_SYMMETRIC"
    CHANNELWISE_SYMMETRIC = "CHANNELWISE_SYMMETRIC"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightClip(Checked):
    """Clipping of weights to a bound after each training step.

    Parameters
    ----------
    type : ClipType or str
        FIXED_VALUE: `fixed_value`; LAYER_GAUSSIAN: `sigma` deviations of the weights;
        AVERAGE_CHANNEL_MAX: the mean over rows of their largest absolute weight.
    sigma : float, positive
    fixed_value : float, weight units
        If positive, also a limit of the other two.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit.inference import WeightClip
    >>> WeightClip(type="fixed_value", fixed_value=1.0).sigma
    2.5
    """

    type: ClipType = ClipType.NONE
    sigma: float = 2.5
    fixed_value: float = 0.0

    def _check(self) -> None:
        self._need(self.sigma > 0, "sigma", "a positive number")
        fixed = self.type is not ClipType.FIXED_VALUE or self.fixed_value > 0
        self._need(fixed, "fixed_value", "a positive number for FIXED_VALUE")

    def bound(self, weight: Array) -> float | None:
        """Find the bound for a matrix; reading it synchronises.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), float32

        Returns
        -------
        float or None
            None: no clipping.
        """
        found = self._bound(weight)
        return found if found is None or isinstance(found, float) else float(found[0])

    def _bound(self, weight: Array) -> Any:
        """Find the bound: a number, an array of one element on the device, or None."""
        if self.type is ClipType.NONE:
            return None
        if self.type is ClipType.FIXED_VALUE:
            return float(self.fixed_value)
        if self.type is ClipType.LAYER_GAUSSIAN:
            found = self.sigma * deviation_there(weight)
        else:
            rows = abs(weight).max(axis=1)
            found = total_there(rows.reshape(1, -1)) / rows.size
        if self.fixed_value > 0:
            found = _device.namespace(weight).minimum(found, self.fixed_value)
        return found

    @enters_arrays
    def apply(self, weight: Array, *, status: Array) -> None:
        """Clip a matrix in place, without waiting for a GPU.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), float32
        status : array, shape (1,), int32
        """
        found = self._bound(weight)
        if found is not None:
            clip(weight, found, weight, status=status)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRemap(Checked):
    """Remapping: scale weights to the full range of the cells, compensated by digital scales.

    Parameters
    ----------
    type : RemapType or str
        One scale for the layer, or one for each row (output channel).
    w_max : float, positive, weight units
        Largest absolute weight afterwards.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit.inference import WeightRemap
    >>> WeightRemap(type="channelwise_symmetric").w_max
    1.0
    """

    type: RemapType = RemapType.NONE
    w_max: float = 1.0

    def _check(self) -> None:
        self._need(self.w_max > 0, "w_max", "a positive number")

    @enters_arrays
    def factors(self, weight: Array) -> Array | None:
        """Compute the divisor of each row.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), float32

        Returns
        -------
        array, shape (n_out,), float32, or None
        """
        if self.type is RemapType.NONE:
            return None
        xp = _device.namespace(weight)
        rows = abs(weight).max(axis=1)
        if self.type is RemapType.LAYERWISE_SYMMETRIC:
            rows = xp.full_like(rows, rows.max())
        factor = (rows / np.float32(self.w_max)).astype(np.float32)
        return xp.where(factor > 0, factor, np.float32(1)).astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRange(Checked):
    """Input range: the bound to which activations are clipped before the converters.

    Parameters
    ----------
    value : float, positive
        The range, or its initial value if it is learned.
    learned : bool
    n_init : int, at least 0
        Number of batches that set a learned range to the running mean of `n_std` deviations.
    n_std : float, positive
    decay : float, at least 0
        Share that a learned range loses a step, at a learning rate of 1, while fewer than
        ``1 - min_share`` of the activations are clipped.
    min_share : float, 0 to 1
        Share of activations that should fit.
    manage_output_clipping : bool
        Whether a learned range grows where outputs reach `out_bound` of the forward product. It
        has to be finite then, without bound management.
    output_min_share : float, 0 to 1
        Share of outputs that should stay below the bound.
    gradient_scale : float, at least 0
        Factor of the gradient of the range.
    gradient_relative : bool
        Whether the gradient is multiplied by the range, too, so that steps are relative to it.

    Raises
    ------
    ParameterError

    Notes
    -----
    The gradient of the range is the sum of ``sign(x) dL/dx`` over clipped activations. Outputs are
    in units of the range, so that a larger one keeps them from their bound: where the share c of
    outputs at the bound is above ``1 - output_min_share``, a step adds ``lr c range``. Source:
    Rasch et al., Nat. Commun. 14:5282 (2023).

    Examples
    --------
    >>> from rpukit.inference import InputRange
    >>> InputRange(value=2.0).learned
    False
    """

    value: float = 3.0
    learned: bool = False
    n_init: int = 100
    n_std: float = 3.0
    decay: float = 0.001
    min_share: float = 0.95
    manage_output_clipping: bool = False
    output_min_share: float = 0.95
    gradient_scale: float = 1.0
    gradient_relative: bool = False

    def _check(self) -> None:
        for name in ("value", "n_std"):
            self._need(getattr(self, name) > 0, name, "a positive number")
        for name in ("decay", "n_init", "gradient_scale"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")
        for name in ("min_share", "output_min_share"):
            self._need(0 <= getattr(self, name) <= 1, name, "a number in [0, 1]")
        fixed = self.manage_output_clipping and not self.learned
        self._need(not fixed, "manage_output_clipping", "False unless the range is learned")

    @enters_arrays
    def start(self, value: float, seen: int, x: Array) -> float:
        """Update the range by one of the first batches.

        Parameters
        ----------
        value : float
            The range so far.
        seen : int
            Number of batches before this one.
        x : array, shape (n_batch, n_in), float32

        Returns
        -------
        float
        """
        spread = self.n_std * math.sqrt(total(x.astype(np.float64) ** 2) / max(x.size, 1))
        found = (value * seen + spread) / (seen + 1)
        return found if found > 0 else value

    @enters_arrays
    def step(self, value: float, x: Array, grad: Array, lr: float, clipped: float = 0.0) -> float:
        """Update the range by the gradient of one batch.

        Parameters
        ----------
        value : float
            The range.
        x, grad : array, shape (n_batch, n_in), float32
            Activations, and the gradient that the tile's backward product gave for them.
        lr : float
        clipped : float, 0 to 1
            Share of the outputs that reached their bound.

        Returns
        -------
        float
        """
        xp = _device.namespace(x, grad)
        outside = abs(x) > np.float32(value)
        slope = total(xp.where(outside, xp.sign(x) * grad, np.float32(0)))
        slope *= self.gradient_scale * (value if self.gradient_relative else 1)
        found = value - lr * slope
        if float(outside.sum()) <= (1 - self.min_share) * x.size:
            found -= lr * self.decay * value
        if self.manage_output_clipping and clipped > 1 - self.output_min_share:
            found += lr * clipped * value
        return max(found, 1e-3 * self.value)
