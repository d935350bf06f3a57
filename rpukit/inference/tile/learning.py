"""Hardware-aware training of an inference tile: exact updates, modified weights, scales."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._checks import LARGEST, number
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device
from rpukit.analog.deferred_errors import Guard, check_finite
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.tile.face import TileFace
from rpukit.analog.update.ops import rank_update
from rpukit.errors import NonFiniteError, ParameterError, ShapeError
from rpukit.gemm import det_gemm
from rpukit.inference.conductance.records import Stuck
from rpukit.inference.training.limits import InputRange, WeightClip, WeightRemap
from rpukit.inference.training.modifiers import ModifierType, WeightModifier
from rpukit.inference.training.ops import add_scaled
from rpukit.inference.training.sums import clip
from rpukit.random import MAX_SAMPLE, Stream

Array = Any
_AT_BOUND = 1 - 2**-20  # outputs are rounded where they are scaled back


@enters_device()
class Learning(TileFace):
    """Part of `InferenceTile`: updates, modified weights, digital scales and input range."""

    modifier: WeightModifier
    weight_clip: WeightClip
    weight_remap: WeightRemap
    input_range: InputRange | None
    stream: Stream
    _arrays: dict[str, Array]
    _now: dict[str, Any]
    _device: _device.Device
    _guard: Guard
    _call_state: CallState
    _split: Any
    _factor: Array | None
    forward_parameters: IOParameters

    @property
    def range(self) -> float | None:
        """The present input range; None without one."""
        return None if self.input_range is None else self._now["range"]

    @property
    def scales(self) -> Array:
        """Digital scale of each output, shape (n_out,), float32 (a copy)."""
        return self._arrays["scale"].copy()

    @changes
    def update(self, x: Array, d: Array, lr: float) -> Self:
        """Change the digital weights by ``-lr d x^T``, exactly, in place.

        Activations are clipped to the input range, and errors go through the digital scales, as
        in the products. A programmed tile returns to its digital weights.

        Parameters
        ----------
        x : array, shape (n_batch, n_in) or (n_in,), float32
        d : array, shape (n_batch, n_out) or (n_out,), float32
        lr : float

        Returns
        -------
        InferenceTile
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError, NonFiniteError
        """
        rows_x = self._rows(x, self.shape[1], "x")
        rows_d = self._rows(d, self.shape[0], "d")
        if rows_x.shape[0] != rows_d.shape[0]:
            raise ShapeError(f"x has {rows_x.shape[0]} samples and d has {rows_d.shape[0]}")
        lr = number(lr, "lr")
        self._finite(rows_x, "x")
        self._finite(rows_d, "d")
        if lr == 0 or rows_x.shape[0] == 0:
            return self
        status = self._guard.status
        call = self._guard.begin("x or d")
        check_finite(rows_x, status=status, call=call)
        check_finite(rows_d, status=status, call=call)
        self._call_state.changing()
        self._leave("digital")
        if self.input_range is not None:
            rows_x = clip(rows_x, self._now["range"], self._empty(rows_x.shape), status=status)
        rows_d = self._scaled(rows_d, fresh=True)
        self._add_rank(rows_x, rows_d, lr)
        self._split = None
        self._settle()
        return self

    def _add_rank(self, x: Array, d: Array, lr: float) -> None:
        """Change the digital weights by ``-lr d x^T``."""
        rank_update(self._arrays["target"], x, d, lr, status=self._guard.status)

    @changes
    def update_scales(self, y: Array, d: Array, lr: float) -> Self:
        """Learn the digital scales of the outputs, in place.

        Parameters
        ----------
        y : array, shape (n_batch, n_out), float32
            Outputs of the forward product.
        d : array, shape (n_batch, n_out), float32
            Errors at them.
        lr : float

        Returns
        -------
        InferenceTile
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError, NonFiniteError

        Notes
        -----
        ``scale -= lr sum_b d y / scale``, summed in float64 with samples ascending.
        """
        rows_y, rows_d = self._rows(y, self.shape[0], "y"), self._rows(d, self.shape[0], "d")
        if rows_y.shape != rows_d.shape:
            raise ShapeError(f"y has {rows_y.shape[0]} samples and d has {rows_d.shape[0]}")
        lr = number(lr, "lr")
        self._finite(rows_y, "y")
        self._finite(rows_d, "d")
        if rows_y.shape[0] and lr:
            call = self._guard.begin("y or d")
            check_finite(rows_y, status=self._guard.status, call=call)
            check_finite(rows_d, status=self._guard.status, call=call)
            xp = _device.namespace(rows_y)
            products = rows_y.astype(np.float64) * rows_d
            slope = det_gemm(xp.ones((1, rows_y.shape[0])), products).reshape(-1)
            scale = self._arrays["scale"].astype(np.float64)
            self._call_state.changing()
            found = xp.clip(scale - lr * (slope / scale), -LARGEST, LARGEST).astype(np.float32)
            self._set_scales(xp.where(found == 0, self._arrays["scale"], found))
        return self

    @changes
    def set_scales(self, scales: Array) -> Self:
        """Set the digital scales of the outputs, in place.

        Parameters
        ----------
        scales : array, shape (n_out,), float32, not 0

        Returns
        -------
        InferenceTile
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError
        """
        array = _device.as_array(scales, self._device, np.float32, "scales")
        if array.shape != (self.shape[0],):
            raise ShapeError(f"scales: got shape {tuple(array.shape)}, need ({self.shape[0]},)")
        host = _device.to_numpy(array)
        if not (np.isfinite(host).all() and host.all()):
            raise ParameterError("scales: need finite numbers that are not 0")
        self._call_state.changing()
        self._set_scales(array)
        return self

    @changes
    def set_range(self, value: float) -> Self:
        """Set the input range, for instance to one found from data, in place.

        Parameters
        ----------
        value : float, positive

        Returns
        -------
        InferenceTile
            Itself.

        Raises
        ------
        ParameterError, DTypeError
            ParameterError for a tile without an `InputRange`, too.
        """
        found = number(value, "range")
        if self.input_range is None or found <= 0:
            raise ParameterError(
                f"range: got {value!r}, need a positive number and a tile with an InputRange"
            )
        self._call_state.changing()
        self._now["range"] = found
        return self

    @changes
    def learn_range(self, x: Array, grad: Array, lr: float, *, clipped: float = 0.0) -> Array:
        """Set the gradient of clipped activations to 0 and learn the input range, in place.

        Parameters
        ----------
        x : array, shape (n_batch, n_in), float32
            Activations of the forward product.
        grad : array, shape (n_batch, n_in), float32
            Gradient that the backward product gave for them.
        lr : float
        clipped : float, 0 to 1
            Share of the outputs that reached their bound, as of `clipped_share`, for an
            `InputRange` with `manage_output_clipping`.

        Returns
        -------
        array, shape (n_batch, n_in), float32
            The gradient of the activations: 0 where they were clipped.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError, NonFiniteError

        Notes
        -----
        A learned range synchronises with a GPU.
        """
        rows, slopes = self._rows(x, self.shape[1], "x"), self._rows(grad, self.shape[1], "grad")
        if rows.shape != slopes.shape:
            raise ShapeError(f"x has {rows.shape[0]} samples and grad has {slopes.shape[0]}")
        lr, share = number(lr, "lr"), number(clipped, "clipped", low=0, high=1)
        self._finite(rows, "x")
        self._finite(slopes, "grad")
        if self.input_range is None:
            return slopes
        xp = _device.namespace(rows)
        kept = xp.where(abs(rows) > np.float32(self._now["range"]), np.float32(0), slopes)
        if self.input_range.learned:
            self._learn(self.input_range, rows, slopes, lr, share)
        return kept

    def clipped_share(self, y: Array) -> float:
        """Find the share of outputs that reached the bound of the forward product.

        Parameters
        ----------
        y : array_like, shape (..., n_out), float32
            Outputs of `forward`, with the input range and the factors that the tile has now.

        Returns
        -------
        float
            0 without an input range; reading it synchronises.

        Raises
        ------
        ShapeError, DTypeError, DeviceError
        """
        reached, n = _device.to_numpy(self._reached(self._rows(y, self.shape[0], "y")))
        return float(reached / max(n, 1))

    def _reached(self, rows: Array) -> Array:
        """Count the outputs at the bound, and all: shape (2,), int64, on the device."""
        xp, counts = _device.namespace(rows), [0, rows.size]
        if self.input_range is None:
            return xp.array(counts, np.int64)
        io = self.forward_parameters
        bound = np.float32(_AT_BOUND * io.out_bound * abs(io.out_scale) * self._now["range"])
        limit = bound if self._factor is None else bound * abs(self._factor)
        return xp.stack([(abs(rows) >= limit).sum(), xp.full((), rows.size, np.int64)])

    def _learn(self, kind: InputRange, x: Array, grad: Array, lr: float, clipped: float) -> None:
        now, first = self._now, self._now["range_seen"] < kind.n_init
        if first:
            found = kind.start(now["range"], now["range_seen"], x)
        else:
            found = kind.step(now["range"], x, grad, lr, clipped)
        if not math.isfinite(found):
            raise NonFiniteError("x or grad holds NaN or infinity; the range is unchanged")
        now["range"], now["range_seen"] = found, now["range_seen"] + first

    @changes
    def post_step(self) -> Self:
        """Clip and remap the digital weights, then modify them for the next pass, in place.

        Returns
        -------
        InferenceTile
            Itself. The products see the modified weights until the next `update` or `post_step`;
            with `per_batch_sample` sample k of the forward clock meets the weights that sample k
            of the backward clock meets, and the tile shows its digital weights.
        """
        if self.modifier.is_on and self._now["modify"] >= MAX_SAMPLE - 1:
            raise ParameterError(
                f"modify: the clock of these events is at {self._now['modify']}, and ends at "
                "2**48 - 1: continue with a new tile"
            )
        self._call_state.changing()
        self._leave("digital")
        target, status = self._arrays["target"], self._guard.status
        self.weight_clip.apply(target, status=status)
        factors = self.weight_remap.factors(target)
        if factors is not None:
            add_scaled(target, factors, target, by="divide_rows", status=status)
            self._set_scales(self._arrays["scale"] * factors)
        self._split = None
        self._settle()
        if self.modifier.is_on:
            self._modify()
        return self

    def _modify(self) -> None:
        event = self._now["modify"]
        self._now["modify"] = event + 1
        if not self.modifier.per_batch_sample:
            self._make_modified(self.stream, event)
        self._now["mode"] = "modified"

    def _make_modified(self, stream: Stream, event: int, largest: Array | None = None) -> Array:
        """Write the weights of one pass or sample to the array that the products use."""
        source, weight = self._arrays["target"], self._arrays["weight"]
        if self.modifier.type is ModifierType.NOISE_MODEL:
            self._imitate(stream, event, self.modifier.t, self.modifier.stuck_at(event))
            source = weight
        return self.modifier.apply(
            source,
            stream=stream,
            event=event,
            status=self._guard.status,
            out=weight,
            largest=largest,
        )

    def _weights_of_samples(self, first: int, n: int) -> Iterator[Array]:
        """Compute the weights of samples, one after the other, in one array."""
        stream = self.stream.child(self._now["modify"] - 1)
        by_target = self.modifier.type is not ModifierType.NOISE_MODEL
        largest = self.modifier.largest_of(self._arrays["target"]) if by_target else None
        for sample in range(first, first + n):
            yield self._make_modified(stream, sample, largest)

    # ---- what the tile gives -------------------------------------------------------------------

    def _empty(self, shape: tuple[int, ...]) -> Array:
        return _device.empty(tuple(shape), np.float32, self._device)

    @abstractmethod
    def _leave(self, mode: str) -> None:
        """Change the mode that selects the weights of the products."""

    @abstractmethod
    def _imitate(self, stream: Stream, event: int, t: float, stuck: Stuck | None) -> None:
        """Compute the weights that the hardware would have."""

    @abstractmethod
    def _scaled(self, rows: Array, *, fresh: bool) -> Array:
        """Multiply outputs by their digital factors."""

    @abstractmethod
    def _set_scales(self, scales: Array | None) -> None:
        """Set the digital scales; None sets them to 1."""
