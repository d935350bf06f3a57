"""Weight modifiers: changes of the weights for one training pass that imitate hardware noise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import Checked
from rpukit._kernels.entering import enters_arrays
from rpukit.inference.conductance.curves import Polynomial
from rpukit.inference.conductance.records import Stuck
from rpukit.inference.training.ops import Modification, modify_weights
from rpukit.inference.training.sums import largest_of
from rpukit.random import Stream

__all__ = ["ModifierType", "WeightModifier"]

Array = Any


class ModifierType(str, Enum):
    """Kinds of weight modifiers; `WeightModifier` has their formulas.

    Attributes
    ----------
    NONE
        Weights as they are.
    ADD_NORMAL
        Normal noise of one size on all weights.
    MULT_NORMAL
        Normal noise in proportion to each weight.
    DISCRETIZE
        Weights rounded to levels.
    DISCRETIZE_ADD_NORMAL
        Rounded, then with normal noise.
    POLY
        Normal noise whose size is a polynomial of the weight.
    PROG_NOISE
        The same, as the programming error of conductances: signs are kept.
    DOREFA
        Rounded to levels of the hyperbolic tangent, as DoReFa-Net does.
    DROP_CONNECT
        Single weights set to 0 at random.
    NOISE_MODEL
        Written and read by the noise model of the tile.
    """

    NONE = "NONE"
    ADD_NORMAL = "ADD_NORMAL"
    MULT_NORMAL = "MULT_NORMAL"
    DISCRETIZE = "DISCRETIZE"
    DISCRETIZE_ADD_NORMAL = "DISCRETIZE_ADD_NORMAL"
    POLY = "POLY"
    PROG_NOISE = "PROG_NOISE"
    DOREFA = "DOREFA"
    DROP_CONNECT = "DROP_CONNECT"
    NOISE_MODEL = "NOISE_MODEL"


_KINDS = {
    ModifierType.NONE: 0,
    ModifierType.DROP_CONNECT: 0,
    ModifierType.NOISE_MODEL: 0,
    ModifierType.ADD_NORMAL: 1,
    ModifierType.MULT_NORMAL: 2,
    ModifierType.DISCRETIZE: 3,
    ModifierType.DISCRETIZE_ADD_NORMAL: 4,
    ModifierType.POLY: 5,
    ModifierType.PROG_NOISE: 6,
    ModifierType.DOREFA: 7,
}
_STEPPED = (ModifierType.DISCRETIZE, ModifierType.DISCRETIZE_ADD_NORMAL, ModifierType.DOREFA)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightModifier(Checked):
    """A change of weights for one forward and backward pass.

    With ``a = max |W|`` (or `assumed_wmax`), s = `std_dev`, xi a standard normal:

    - ADD_NORMAL ``W + a s xi``; MULT_NORMAL ``W (1 + a s xi)``;
    - DISCRETIZE ``a res round(W / a / res)``; DISCRETIZE_ADD_NORMAL also adds ``a s xi``;
    - POLY ``W + a s sum_k c_k |W / a|^k xi``;
    - PROG_NOISE that over `g_max`, the sign of W kept;
    - DOREFA ``res round(tanh(W) dorefa_clip / tanh(a) / res)``;
    - DROP_CONNECT 0 with `pdrop`, which also goes with all others;
    - NOISE_MODEL writes the weights with the tile's own noise model and reads them `t` seconds
      later, with stuck devices.

    Parameters
    ----------
    type : ModifierType or str
    std_dev : float, at least 0
    res : float
        Step as a share of the range; above 1: number of steps.
    sto_round : bool
        Stochastic rounding.
    dorefa_clip : float, positive
    pdrop : float, 0 to 1
    rel_to_actual_wmax : bool
        Measure a; else it is `assumed_wmax`.
    assumed_wmax : float, positive, weight units
    coeffs : tuple of float
        Of POLY and PROG_NOISE, the constant first, up to six.
    g_max : float, positive, microsiemens
        What PROG_NOISE divides by.
    t : float, at least 0, seconds
        When NOISE_MODEL reads.
    p_low, p_high, p_any : float, 0 to 1
        Shares of devices that NOISE_MODEL finds stuck at their lowest, their highest, or any
        conductance.
    per_batch_sample : bool
        Modify the weights for each sample of the products instead of each `post_step`, which
        takes one product per sample.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Joshi et al., Nat. Commun. 11:2473 (2020); Rasch et al., Nat. Commun. 14:5282 (2023).

    Examples
    --------
    >>> from rpukit.inference import WeightModifier
    >>> WeightModifier(type="add_normal", std_dev=0.05).type.value
    'ADD_NORMAL'
    """

    type: ModifierType = ModifierType.NONE
    std_dev: float = 0.0
    res: float = 0.0
    sto_round: bool = False
    dorefa_clip: float = 0.6
    pdrop: float = 0.0
    rel_to_actual_wmax: bool = True
    assumed_wmax: float = 1.0
    coeffs: tuple[float, ...] = (0.0105392, 0.0768, -0.046925)
    g_max: float = 25.0
    t: float = 0.0
    p_low: float = 0.0
    p_high: float = 0.0
    p_any: float = 0.0
    per_batch_sample: bool = False

    def _check(self) -> None:
        Polynomial(self.coeffs)
        for name in ("std_dev", "t"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")
        for name in ("dorefa_clip", "assumed_wmax", "g_max"):
            self._need(getattr(self, name) > 0, name, "a positive number")
        for name in ("pdrop", "p_low", "p_high", "p_any"):
            self._need(0 <= getattr(self, name) <= 1, name, "a number in [0, 1]")
        self._need(self.p_low + self.p_high + self.p_any <= 1, "p_any", "shares up to 1 in all")
        if self.type in _STEPPED:
            self._need(self.res > 0, "res", "a positive number for this type")

    @property
    def is_on(self) -> bool:
        """Whether it changes anything."""
        return self.type is not ModifierType.NONE or self.pdrop > 0

    @property
    def stuck(self) -> tuple[float, float, float]:
        """Shares of stuck devices."""
        return self.p_low, self.p_high, self.p_any

    @enters_arrays
    def largest_of(self, weight: Array) -> Array:
        """Return the reference weight a of the noise, on the device of the weights.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), float32

        Returns
        -------
        array, shape (1,), float32
        """
        if self.rel_to_actual_wmax:
            return largest_of(weight)
        place = _device.device_of(weight)
        return _device.to_device(np.full(1, self.assumed_wmax, np.float32), place)

    @enters_arrays
    def apply(
        self,
        weight: Array,
        *,
        stream: Stream,
        event: int,
        status: Array,
        out: Array,
        largest: Array | None = None,
    ) -> Array:
        """Write the modified weights to `out`; NOISE_MODEL only drops connections here.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), float32
        stream : Stream
        event : int
            Number of the pass.
        status : array, shape (1,), int32
        out : array, shape and type of `weight`
        largest : array, shape (1,), float32, optional
            Result of `largest_of`, if it is known.

        Returns
        -------
        array
            `out`.
        """
        place = _device.device_of(weight)
        std = self.std_dev / self.g_max if self.type is ModifierType.PROG_NOISE else self.std_dev
        poly = np.zeros(6, np.float32)
        poly[: len(self.coeffs)] = self.coeffs
        polynomial = self.type in (ModifierType.POLY, ModifierType.PROG_NOISE)
        change = Modification(
            _KINDS[self.type],
            std=std,
            step=(1 / self.res if self.res > 1 else self.res) or 1.0,
            bound=self.dorefa_clip,
            drop=self.pdrop,
            spread=self.sto_round and self.type in _STEPPED,
            poly=_device.to_device(poly, place) if polynomial else None,
        )
        bound = self.largest_of(weight) if largest is None else largest
        return modify_weights(
            weight, bound, change, stream=stream, event=event, status=status, out=out
        )

    def stuck_at(self, event: int) -> Stuck | None:
        """Return the stuck devices of one pass.

        Parameters
        ----------
        event : int

        Returns
        -------
        Stuck or None
        """
        return Stuck(*self.stuck, event) if any(self.stuck) else None
