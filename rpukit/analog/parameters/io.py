"""Parameters of the periphery: converters, noise, noise and bound management of a product."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from rpukit._checks import Checked, flag, real_type

__all__ = ["BoundManagement", "IOParameters", "MVType", "NoiseManagement", "WeightNoise"]


class NoiseManagement(str, Enum):
    """Scale alpha by which an input vector is divided before it is converted.

    Attributes
    ----------
    NONE
        Inputs are not scaled.
    ABS_MAX
        The largest absolute input, at most `nm_thres` if that is positive.
    MAX
        The largest input, likewise: for inputs that are not negative.
    CONSTANT
        `nm_thres`, or 1 if that is 0.
    AVERAGE_ABS_MAX
        A running mean of the largest absolute inputs of the samples so far.
    ABS_MAX_NP_SUM
        As ABS_MAX, but at least what the sums of the positive and of the negative inputs need.
    """

    NONE = "NONE"
    ABS_MAX = "ABS_MAX"
    MAX = "MAX"
    CONSTANT = "CONSTANT"
    AVERAGE_ABS_MAX = "AVERAGE_ABS_MAX"
    ABS_MAX_NP_SUM = "ABS_MAX_NP_SUM"


class BoundManagement(str, Enum):
    """Handling of outputs that reach the bound: none, or repetition with smaller inputs.

    Attributes
    ----------
    NONE
        Outputs are cut off at `out_bound`.
    ITERATIVE
        The sample is repeated with inputs of 1/2, 1/4, ..., until no output is at the bound, at
        most down to 1 / `max_bm_factor`.
    ITERATIVE_WORST_CASE
        The same, but from the second round on with the scale of ABS_MAX_NP_SUM.
    """

    NONE = "NONE"
    ITERATIVE = "ITERATIVE"
    ITERATIVE_WORST_CASE = "ITERATIVE_WORST_CASE"


class MVType(str, Enum):
    """Kind of product: all inputs in one pass, exact, or separate passes by the sign of inputs.

    Attributes
    ----------
    ONE_PASS
        All inputs at once.
    IDEAL
        The exact product, as with `is_perfect`.
    POS_NEG_SEPARATE
        Negative and positive inputs in two passes, added before the output is converted.
    POS_NEG_SEPARATE_DIGITAL_SUM
        Two passes, each converted, and the results added.
    """

    ONE_PASS = "ONE_PASS"
    IDEAL = "IDEAL"
    POS_NEG_SEPARATE = "POS_NEG_SEPARATE"
    POS_NEG_SEPARATE_DIGITAL_SUM = "POS_NEG_SEPARATE_DIGITAL_SUM"


class WeightNoise(str, Enum):
    """Kind of read noise of the weights, which acts on the outputs.

    Attributes
    ----------
    NONE
        No read noise.
    ADDITIVE_CONSTANT
        All weights fluctuate by `w_noise`: outputs by ``w_noise sqrt(sum_j x_j^2)``.
    PCM_READ
        Weights fluctuate by the root of their size: ``w_noise sqrt(sum_j |W_ij| x_j^2)``.
    """

    NONE = "NONE"
    ADDITIVE_CONSTANT = "ADDITIVE_CONSTANT"
    PCM_READ = "PCM_READ"


@dataclass(frozen=True, slots=True, kw_only=True)
class IOParameters(Checked):
    """Parameters of one product (forward or backward) through the periphery.

    Parameters
    ----------
    is_perfect : bool
        Compute the exact product times `out_scale`; all other parameters are ignored.
    mv_type : MVType or str
        One pass for all inputs, the exact product (as `is_perfect`), or separate passes for
        negative and positive inputs.
    inp_bound : float
        Range of the input converter; 0 or below: unlimited. Noise management needs 1.
    inp_res, out_res : float
        Resolution of the converters as a share of their full range; above 1: number of steps; 0 or
        below: off.
    inp_sto_round, out_sto_round : bool
        Stochastic rounding in the converters.
    inp_noise : float, at least 0
        Standard deviation of the noise on converted inputs.
    inp_asymmetry, out_asymmetry : float
        Negative values are multiplied by one minus this.
    out_bound : float
        Range of the output converter; 0 or below: unlimited.
    out_noise : float, at least 0
        Standard deviation of the noise on outputs.
    out_noise_std : float, at least 0, relative
        Spread of `out_noise` from line to line, drawn once.
    out_scale : float
    bound_management : BoundManagement or str
        Not used by backward products.
    noise_management : NoiseManagement or str
    nm_thres : float, at least 0
        Largest scale (its value, for CONSTANT); 0: none.
    w_noise : float, at least 0
    w_noise_type : WeightNoise or str
    ir_drop : float, at least 0
        Scale of the voltage drop along the input lines; 1 is physical.
    ir_drop_g_ratio : float, positive
        Conductance of a piece of wire over that of a device of weight 1.
    v_offset_std : float, at least 0
        Spread of the output amplifiers' voltage offset, drawn once for each line and rectified.
    v_offset_w_min : float
        Weight of the reference devices that the offset acts on; 0: none.
    r_series : float, at least 0
        Series resistance of the output lines.
    out_nonlinearity : float, at least 0
        Saturation of outputs, ``y / (1 + |n y|)``, relative to `out_bound`.
    out_nonlinearity_std : float, at least 0, relative
        Spread of the saturation from line to line, drawn once.
    slope_calibration : float, at least 0
        Share of `out_bound` at which the slope of the saturated output is calibrated; 0: off.
    w_read_asymmetry_dtod : float, at least 0, relative
        Spread of each weight in the pass of negative inputs (forward products), drawn once.
    max_bm_factor : int, at least 1
        Largest reduction of inputs by bound management.
    max_bm_res : float, positive
        Bound management stops where inputs have shrunk to this many steps of the input converter.
    bm_test_negative_bound : bool
        Whether bound management also checks the lower bound.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Gokmen, Onen, Haensch, Front. Neurosci. 11:538 (2017); Rasch et al., AICAS 2021. The
    order of operations is in ``docs/semantics/forward.md``.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.IOParameters(noise_management="max").noise_management.value
    'MAX'
    """

    is_perfect: bool = False
    mv_type: MVType = MVType.ONE_PASS
    inp_bound: float = 1.0
    inp_res: float = 1 / 126
    inp_sto_round: bool = False
    inp_noise: float = 0.0
    inp_asymmetry: float = 0.0
    out_bound: float = 12.0
    out_res: float = 1 / 510
    out_sto_round: bool = False
    out_noise: float = 0.06
    out_noise_std: float = 0.0
    out_scale: float = 1.0
    out_asymmetry: float = 0.0
    bound_management: BoundManagement = BoundManagement.ITERATIVE
    noise_management: NoiseManagement = NoiseManagement.ABS_MAX
    nm_thres: float = 0.0
    w_noise: float = 0.0
    w_noise_type: WeightNoise = WeightNoise.NONE
    ir_drop: float = 0.0
    ir_drop_g_ratio: float = 1.0 / 0.35 / 5e-6
    v_offset_std: float = 0.0
    v_offset_w_min: float = -1.0
    r_series: float = 0.0
    out_nonlinearity: float = 0.0
    out_nonlinearity_std: float = 0.0
    slope_calibration: float = 0.0
    w_read_asymmetry_dtod: float = 0.0
    max_bm_factor: int = 1000
    max_bm_res: float = 0.25
    bm_test_negative_bound: bool = True

    def _check(self) -> None:
        wires = ("ir_drop", "v_offset_std", "r_series", "w_read_asymmetry_dtod")
        outputs = ("out_nonlinearity", "out_nonlinearity_std", "slope_calibration")
        for name in (
            *("inp_noise", "out_noise", "out_noise_std", "nm_thres", "w_noise"),
            *(*wires, *outputs),
        ):
            self._need(getattr(self, name) >= 0, name, "a number from 0")
        self._need(1 <= self.max_bm_factor <= 2**30, "max_bm_factor", "an integer in [1, 2**30]")
        self._need(self.ir_drop_g_ratio > 0, "ir_drop_g_ratio", "a positive number")
        saturates = self.out_nonlinearity > 0 or self.slope_calibration > 0
        self._need(
            not saturates or self.out_bound > 0,
            "out_bound",
            "a positive bound with out_nonlinearity",
        )
        passes = self.passes > 1 or self.w_read_asymmetry_dtod == 0
        self._need(passes, "mv_type", "passes by sign with w_read_asymmetry_dtod")
        self._need(self.max_bm_res > 0, "max_bm_res", "a positive number")
        managed = self.noise_management is not NoiseManagement.NONE and not self.exact
        self._need(
            not managed or self.inp_bound == 1,
            "inp_bound",
            "1, as noise management is on",
        )

    @property
    def exact(self) -> bool:
        """Whether the product is exact."""
        return self.is_perfect or self.mv_type is MVType.IDEAL

    @property
    def passes(self) -> int:
        """1: all inputs at once; 2: by sign, added before conversion; 3: after it."""
        return {MVType.POS_NEG_SEPARATE: 2, MVType.POS_NEG_SEPARATE_DIGITAL_SUM: 3}.get(
            self.mv_type, 1
        )

    @property
    def ideal_wires(self) -> bool:
        """Whether wires and amplifiers leave the sums unchanged."""
        losses = (self.ir_drop, self.v_offset_std, self.r_series, self.out_nonlinearity)
        return self.passes == 1 and not any(losses)

    @property
    def input_step(self) -> np.float32:
        """Step of the input converter of a float32 tile; 0 means no quantisation."""
        step: np.float32 = self.steps(np.dtype(np.float32))[0]
        return step

    @property
    def output_step(self) -> np.float32:
        """Step of the output converter of a float32 tile; 0 means no quantisation."""
        step: np.float32 = self.steps(np.dtype(np.float32))[1]
        return step

    def steps(self, dtype: np.dtype[Any]) -> tuple[Any, Any]:
        """Return the steps of the converters of inputs and outputs.

        Parameters
        ----------
        dtype : dtype
            float32 or float64, of the tile.

        Returns
        -------
        tuple of scalars of that type
            0 means no quantisation.
        """
        kind = real_type(dtype).type
        return _step(self.inp_res, self.inp_bound, kind), _step(self.out_res, self.out_bound, kind)

    def reductions(self, *, backward: bool = False) -> list[float]:
        """List the factors by which bound management may reduce the inputs.

        Parameters
        ----------
        backward : bool
            A backward product has no bound management.

        Returns
        -------
        list of float
            1, 2, 4, and so on: one for each round.
        """
        factors = [1.0]
        if flag(backward, "backward") or self.bound_management is BoundManagement.NONE:
            return factors
        step = self.input_step
        while not (
            factors[-1] > self.max_bm_factor
            or (step > 0 and np.float32(factors[-1]) > self.max_bm_res / step)
        ):
            factors.append(2 * factors[-1])
        return factors


def _step(res: float, bound: float, kind: Any) -> Any:
    if res <= 0 or bound <= 0:
        return kind(0)
    share = kind(1) / kind(res) if res > 1 else kind(res)
    return kind(share * kind(2 * bound))
