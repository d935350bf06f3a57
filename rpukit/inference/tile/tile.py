"""InferenceTile: a crossbar whose weights are trained in digital and written once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._checks import (
    TINY,
    check_shape,
    instance,
    member,
    need_memory,
    number,
    one_of,
    real_type,
)
from rpukit._kernels.calls import changes
from rpukit._kernels.entering import enters_device
from rpukit.analog.deferred_errors import Guard, check_finite
from rpukit.analog.parameters.io import BoundManagement, IOParameters, NoiseManagement
from rpukit.analog.product.ops import ForwardState
from rpukit.analog.tile.face import TileFace, with_leading
from rpukit.errors import NonFiniteError, ParameterError, ShapeError
from rpukit.inference.conductance.converters import Converter, SingleDevice, SinglePair
from rpukit.inference.conductance.records import Split
from rpukit.inference.describe import tile_summary
from rpukit.inference.noise.devices import ReRamCMO
from rpukit.inference.noise.model import NoiseModel
from rpukit.inference.noise.phase_change import PCMLike
from rpukit.inference.tile.compensation import DriftCompensation
from rpukit.inference.tile.hardware import AS_WRITTEN, TALLIES, Hardware
from rpukit.inference.tile.learning import Learning
from rpukit.inference.tile.state import Saved
from rpukit.inference.training.limits import InputRange, WeightClip, WeightRemap
from rpukit.inference.training.modifiers import WeightModifier
from rpukit.inference.training.ops import add_scaled
from rpukit.random import Stream
from rpukit.summaries import Summary

__all__ = ["InferenceTile"]

Array = Any
CLOCKS = ("forward", "backward", "program", "modify")


@enters_device("_describe")
class InferenceTile(Hardware, Learning, Saved, TileFace):
    """A crossbar array whose weights are trained digitally, programmed once and then only read.

    It has the interface of `rpukit.AnalogTile`. Until `program` it multiplies by its digital
    weights, modified for training if a modifier is set. From then on it multiplies by the weights
    that the hardware has at the time set by `drift_to`.

    Parameters
    ----------
    shape : tuple of int, (n_out, n_in)
    noise : NoiseModel, optional
        Programming, drift and reading; default: `PCMLike`.
    converter : Converter, optional
        From weights to conductances; default: one pair of devices a weight (`SinglePair`), one
        device for `ReRamCMO`.
    forward, backward : IOParameters, optional
        Converters, noise and management of the two products.
    modifier : WeightModifier, optional
        Change of the weights that `post_step` makes for the next pass.
    weight_clip : WeightClip, optional
    weight_remap : WeightRemap, optional
    input_range : InputRange, optional
        Range to which activations are clipped; it replaces noise management.
    compensation : DriftCompensation or str
        Correction of drift at the outputs.
    w_max : float, positive, weight units, optional
        Weight that becomes the largest conductance; default: the largest of the matrix.
    device : str
        Compute device: ``"cpu"``, ``"gpu"`` or ``"gpu:1"``.
    seed : int, numpy.random.SeedSequence or Stream
        Source of all randomness of this tile.
    dtype : dtype
        float32.
    validate : {"deferred", "sync"}
        When non-finite inputs on a GPU are reported.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, DeviceError

    Notes
    -----
    Results have the same bits on CPU and GPU, at any time, in any order of the requested times.
    ``docs/semantics/inference.md`` has the rules.

    Source: Joshi et al., Nat. Commun. 11:2473 (2020); Rasch et al., Nat. Commun. 14:5282 (2023).

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> w = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    >>> tile = rk.InferenceTile((3, 4), compensation="global", seed=7).set_weights(w)
    >>> y = tile.program().drift_to(86400.0).forward(np.ones((5, 4), np.float32))
    >>> y.shape, tile.time, bool(tile.alpha[0] > 1.2)
    ((5, 3), 86400.0, True)
    """

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        noise: NoiseModel | None = None,
        converter: Converter | None = None,
        forward: IOParameters | None = None,
        backward: IOParameters | None = None,
        modifier: WeightModifier | None = None,
        weight_clip: WeightClip | None = None,
        weight_remap: WeightRemap | None = None,
        input_range: InputRange | None = None,
        compensation: DriftCompensation | str = DriftCompensation.NONE,
        w_max: float | None = None,
        device: str | _device.Device = "cpu",
        seed: int | np.random.SeedSequence | Stream = 0,
        dtype: Any = np.float32,
        validate: str = "deferred",
    ) -> None:
        self.shape = check_shape(shape)
        need_memory(8 * self.shape[0] * self.shape[1], f"a tile of shape {self.shape}")
        real_type(dtype, wide=False)
        one_of(validate, "validate", ("deferred", "sync"))
        self.w_max = None if w_max is None else number(w_max, "w_max", low=TINY)
        self.noise = instance(noise, NoiseModel, "noise", PCMLike())
        self.converter = instance(converter, Converter, "converter", _usual(self.noise))
        if self.converter.g_max > self.noise.g_max:
            raise ParameterError(
                f"converter: its g_max {self.converter.g_max} is above that of the noise model, "
                f"{self.noise.g_max}"
            )
        self.forward_parameters: IOParameters = instance(
            forward, IOParameters, "forward", IOParameters()
        )
        self.backward_parameters = instance(backward, IOParameters, "backward", IOParameters())
        self.modifier = instance(modifier, WeightModifier, "modifier", WeightModifier())
        self.weight_clip = instance(weight_clip, WeightClip, "weight_clip", WeightClip())
        self.weight_remap = instance(weight_remap, WeightRemap, "weight_remap", WeightRemap())
        self.input_range = (
            None if input_range is None else instance(input_range, InputRange, "range")
        )
        self.compensation: Any = member(DriftCompensation, compensation, "compensation")
        self.stream = Stream.from_seed(seed)
        self.validate = validate
        self._device = _device.parse_device(device)
        # One dictionary, so that a call that fails on a GPU puts all of it back.
        self._now: dict[str, Any] = dict.fromkeys(CLOCKS, 0)
        self._now |= {"mode": "digital", "event": 0, "time": 0.0, "number": AS_WRITTEN}
        self._now |= dict.fromkeys(TALLIES, 0)
        self._now["late"] = False
        first = 0.0 if self.input_range is None else self.input_range.value
        self._now |= {"range": first, "range_seen": 0}
        self._guard = self._made_guard()
        self._call_state = self._guard.call_state
        self._split: Split | None = None
        self._curves: dict[Any, Array] = {}
        n_out, n_in = self.shape
        ones = np.ones(n_out, np.float32)
        self._arrays = {k: _device.to_device(ones, self._device) for k in ("scale", "alpha")}
        self._make_cells()
        self._factor: Array | None = None
        self._scaling = self._compensating = False
        if self.input_range is not None and self.forward_parameters.is_perfect:
            raise ParameterError("input_range: a perfect forward product has no input converters")
        if self.input_range is not None and self.input_range.manage_output_clipping:
            _need_plain_bound(self.forward_parameters)
        back = {"transposed": True}
        self._states = {
            "forward": ForwardState(self._periphery(), n_out, self.stream, self._device),
            "backward": ForwardState(
                self.backward_parameters, n_in, self.stream, self._device, **back
            ),
        }

    def _made_guard(self) -> Guard:
        return Guard(self._now, device=self._device)

    def _make_cells(self) -> None:
        for name in ("target", "weight"):
            self._arrays[name] = _device.zeros(self.shape, np.float32, self._device)

    # ---- what a tile is ------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """Type of the weights: float32."""
        return np.dtype(np.float32)

    @property
    def clocks(self) -> dict[str, int]:
        """Position of each sample or event clock (a copy)."""
        return {name: self._now[name] for name in CLOCKS}

    @property
    def samples(self) -> dict[str, int]:
        """Number of samples that each product has processed: forward, backward.

        They differ from `clocks` where a call has named its own ``first_sample``.
        """
        return {way: self._now[f"n_{way}"] for way in ("forward", "backward")}

    @property
    def n_programmed(self) -> int:
        """Number of times that all devices have been programmed."""
        return int(self._now["n_program"])

    @property
    def n_readout(self) -> int:
        """Number of readouts for drift compensation, each of ``n_in`` unit inputs."""
        return int(self._now["n_readout"])

    def _describe(self) -> Summary:
        return tile_summary(self)

    def __repr__(self) -> str:
        n_out, n_in = self.shape
        at = "" if self.time is None else f", t={self.time:g}"
        name = type(self.noise).__name__
        return f"InferenceTile(({n_out}, {n_in}), {name}{at}, device={self.device!r})"

    # ---- weights -------------------------------------------------------------------------------

    def get_weights(self) -> Array:
        """Read the weights that the products see now, digital scales included, exactly.

        Returns
        -------
        array, shape (n_out, n_in), float32
            A copy on the tile's device; reading synchronises.

        Raises
        ------
        NonFiniteError
            If an earlier call on a GPU met NaN or infinity.
        """
        self._guard.check()
        seen = self._seen_whole()
        if self._factor is not None:
            add_scaled(seen, self._factor, seen, by="rows", status=self._guard.status)
        return seen

    @changes
    def set_weights(self, weight: Array) -> Self:
        """Set the digital weights, with digital scales of 1, in place.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), float32

        Returns
        -------
        InferenceTile
            Itself, no longer programmed.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError, ParameterError
            ParameterError for weights beyond `w_max`.
        """
        array = _device.as_array(weight, self._device, np.float32, "weight")
        if array.shape != self.shape:
            raise ShapeError(f"weight: got shape {tuple(array.shape)}, need {self.shape}")
        if _device.runs_kernels(_device.namespace(array)):
            call = self._guard.begin("weight")
            check_finite(array, status=self._guard.status, call=call)
            self._guard.check()
        elif not np.isfinite(array).all():
            raise NonFiniteError("weight holds NaN or infinity; the tile is unchanged")
        split = self.converter.split(array, self.w_max)
        self._call_state.changing()
        self._leave("digital")
        self._store(array)
        self._split = split
        self._set_scales(None)
        return self

    def _seen_whole(self) -> Array:
        """Copy the weights that the products use now."""
        return self._seen.copy()

    def _store(self, array: Array) -> None:
        """Set the digital weights."""
        self._arrays["target"][...] = array

    # ---- products ------------------------------------------------------------------------------

    def forward(self, x: Array, *, first_sample: int | None = None) -> Array:
        """Multiply activations by the weights, as the hardware does.

        Parameters
        ----------
        x : array_like, shape (..., n_in)
        first_sample : int, optional
            Position of the first sample on the forward clock; default: where the clock stands.

        Returns
        -------
        array, shape (..., n_out), float32
            With digital scales and drift compensation.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        rows, leading = self._samples(x, self.shape[1], "x")
        y = self._product("forward", rows, self._periphery(), first_sample)
        y = self._scaled(y, fresh=False)
        return with_leading(y, leading)

    def backward(self, d: Array, *, first_sample: int | None = None) -> Array:
        """Multiply errors by the transposed weights, as the hardware does.

        Parameters
        ----------
        d : array_like, shape (..., n_out)
        first_sample : int, optional
            Position of the first sample on the backward clock; default: where the clock stands.

        Returns
        -------
        array, shape (..., n_in), float32

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        rows, leading = self._samples(d, self.shape[0], "d")
        self._finite(rows, "d")
        scaled = self._scaled(rows, fresh=True)
        g = self._product("backward", scaled, self.backward_parameters, first_sample)
        return with_leading(g, leading)

    def _product(self, way: str, rows: Array, io: IOParameters, first: int | None) -> Array:
        name, each = "d" if way == "backward" else "x", self._each_its_own
        in_place = each or io.noise_management is NoiseManagement.AVERAGE_ABS_MAX
        if in_place and not self._call_state.unit:
            return self._changing_product(way, rows, io, first)
        start = self._start(way, first, rows.shape[0])
        self._finite(rows, name)
        seen, call = self._seen, self._guard.begin(name)

        def product(weight: Any, part: Array, first: int) -> Array:
            at: Any = {"stream": self.stream, "first_sample": first, "call": call}
            at["transposed"] = way == "backward"
            return self._multiply(weight, part, io, self._states[way], **at)

        if in_place:
            self._call_state.changing(way)
        if each and len(rows):
            check_finite(rows, status=self._guard.status, call=call)
            weights = enumerate(self._weights_of_samples(start, len(rows)))
            parts = [product(weight, rows[b : b + 1], start + b) for b, weight in weights]
            y = _device.namespace(rows).concatenate(parts)
        else:
            y = product(seen, rows, start)
        n, count = rows.shape[0], f"n_{way}"
        self._now |= {way: start + n, count: self._now[count] + n}  # both, or neither
        self._settle()
        return y

    @changes
    def _changing_product(self, *given: Any) -> Array:
        """Multiply by weights of each sample, or with an average of inputs, which are state."""
        return self._product(*given)

    def _periphery(self) -> IOParameters:
        """Give the forward parameters; an input range is a constant scale of the converters."""
        if self.input_range is None:
            return self.forward_parameters
        return replace(
            self.forward_parameters,
            noise_management=NoiseManagement.CONSTANT,
            nm_thres=self._now["range"],
        )

    # ---- digital scales ------------------------------------------------------------------------

    def _scaled(self, rows: Array, *, fresh: bool) -> Array:
        if self._factor is None:
            return rows
        out = self._empty(rows.shape) if fresh else rows
        return add_scaled(rows, self._factor, out, status=self._guard.status)

    def _set_scales(self, scales: Array | None) -> None:
        self._assign("scale", np.float32(1) if scales is None else scales)
        self._scaling = scales is not None
        self._join_factors()

    def _set_alpha(self, alpha: Array | None) -> None:
        self._assign("alpha", np.float32(1) if alpha is None else alpha)
        self._compensating = alpha is not None
        self._join_factors()

    def _assign(self, name: str, value: Array) -> None:
        """Set an array, unless an error of an earlier call on a GPU is pending."""
        target = self._arrays[name]
        xp = _device.namespace(target)
        target[...] = xp.where(self._guard.status == 0, value, target)

    def _join_factors(self) -> None:
        on = self._scaling or self._compensating
        self._factor = self._arrays["scale"] * self._arrays["alpha"] if on else None

    def _find_factors(self) -> None:
        """Find which factors of a loaded state are not 1."""
        self._scaling, self._compensating = (
            bool((self._arrays[name] != 1).any()) for name in ("scale", "alpha")
        )
        self._join_factors()

    def _position(self, clock: str) -> int:
        return int(self._now[clock])


def _usual(noise: NoiseModel) -> Converter:
    if isinstance(noise, ReRamCMO):
        return SingleDevice(g_max=noise.g_max, g_min=noise.g_min)
    return SinglePair(g_max=noise.g_max)


def _need_plain_bound(io: IOParameters) -> None:
    """Raise unless outputs are cut off at a bound, whatever the inputs of a sample are."""
    if io.bound_management is not BoundManagement.NONE or not 0 < io.out_bound < np.inf:
        raise ParameterError(
            f"manage_output_clipping: got bound_management {io.bound_management.value!r} and "
            f"out_bound {io.out_bound:g} of the forward product, need 'NONE' and a positive number"
        )
