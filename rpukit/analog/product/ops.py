"""Ops of the forward and backward products: scales of a batch, product through the periphery."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._workers import run_rows, work_grain
from rpukit.analog.parameters.io import BoundManagement, IOParameters, NoiseManagement, WeightNoise
from rpukit.analog.product.float64 import ProductCall, tile_product
from rpukit.analog.product.launch import (
    AVERAGE,
    Call,
    Manner,
    Plan,
    launch,
    launch_outputs,
    launch_scales,
    pick,
    plan_of,
)
from rpukit.analog.product.nonideal import Wires, tile_nonideal
from rpukit.analog.product.replay import ProductReplay
from rpukit.elementwise import random_fill
from rpukit.random import Op, Stream

Array = Any

_MODES = {
    NoiseManagement.NONE: 0,
    NoiseManagement.ABS_MAX: 1,
    NoiseManagement.MAX: 2,
    NoiseManagement.CONSTANT: 3,
    NoiseManagement.AVERAGE_ABS_MAX: AVERAGE,
    NoiseManagement.ABS_MAX_NP_SUM: 5,
}
_W_NOISES = {WeightNoise.NONE: 0, WeightNoise.ADDITIVE_CONSTANT: 1, WeightNoise.PCM_READ: 2}
_MOST_PLANS = 256
_MOST_REPEATS = 8


class ForwardState:
    """State of one product of a tile: its periphery on the device, averages, launches to replay.

    Parameters
    ----------
    io : IOParameters
    n_out : int
        Number of output lines of this product.
    stream : Stream
    device : Device
    transposed : bool
        Whether this is the backward product.
    dtype : dtype
        float32 or float64.
    """

    def __init__(
        self,
        io: IOParameters,
        n_out: int,
        stream: Stream,
        device: _device.Device,
        *,
        transposed: bool = False,
        dtype: Any = np.float32,
    ) -> None:
        self._transposed = transposed
        self._prepare(io)
        self.io = _device.to_device(_numbers(io, transposed, np.dtype(dtype)), device)
        self.rounds: Array | None = None
        if dtype == np.float64:
            self.rounds = _device.to_device(np.array(self.rhos, dtype), device)
        self.wires = (
            None
            if io.exact or io.ideal_wires
            else Wires(io, n_out, stream, device, transposed, dtype)
        )
        self.average = _device.to_device(np.full(1, -1, dtype), device)
        self.line_noise: Array | None = None
        if io.out_noise_std > 0 and io.out_noise > 0:
            op = Op.BACKWARD_OUT if transposed else Op.FORWARD_OUT
            xi = random_fill(stream, (n_out,), "normal", op=Op.CELLS, sample=1, draw=int(op))
            spread = np.abs(np.float32(io.out_noise) * (1 + np.float32(io.out_noise_std) * xi))
            self.line_noise = _device.to_device(spread, device, dtype)

    def _prepare(self, io: IOParameters) -> None:
        self.parameters = io
        self.rhos = [1.0] if io.exact else io.reductions(backward=self._transposed)
        worst = io.bound_management is BoundManagement.ITERATIVE_WORST_CASE
        self.worst = worst and not (self._transposed or io.exact)
        if self.worst:
            self.rhos = [1.0, *self.rhos]
        self.reductions = np.array(self.rhos, np.float32)
        self.manner = Manner(
            transposed=self._transposed,
            perfect=io.exact,
            mode=0 if io.exact else _MODES[io.noise_management],
            worst=self.worst,
            input_draws=io.inp_noise > 0 or io.inp_sto_round,
            output_draws=io.out_noise > 0 or io.out_sto_round or io.w_noise > 0,
            w_noise=0 if io.exact or io.w_noise == 0 else _W_NOISES[io.w_noise_type],
            n_round=len(self.rhos),
            threshold=np.float32(io.nm_thres),
            step=io.input_step,
            max_bm_res=np.float32(io.max_bm_res),
            bound=np.float32(io.out_bound if io.out_bound > 0 else 1.0),
        )
        self._plans: dict[Any, Plan] = {}
        self.repeats: dict[tuple[int, ...], ProductReplay] = {}  # by shape of the inputs

    def take(self, io: IOParameters) -> Manner:
        """Return the launch parameters of a product, cached while ``io`` stays the same."""
        if io is not self.parameters:
            self._prepare(io)
        return self.manner

    def plan(self, call: Call) -> Plan:
        """Return the launches of a product."""
        tile = pick(call)
        key = (tile, call.shape, call.vec)
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            found = self._plans[key] = plan_of(call, tile, call.vec)
        return found

    def repeated(
        self, weight: Array, x: Array, io: IOParameters, status: Array, stream: Stream
    ) -> ProductReplay | None:
        """Find the replay of an earlier product of the same shape."""
        if not self.repeats or io is not self.parameters:
            return None
        found = self.repeats.get(getattr(x, "shape", ()))
        return found if found is not None and found.valid(weight, x, status, stream) else None

    def keep(self, call: Call, repeat: ProductReplay | None) -> None:
        """Store the replay of a product."""
        if repeat is not None:
            if len(self.repeats) >= _MOST_REPEATS:
                self.repeats.clear()
            self.repeats[call.x.shape] = repeat

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that belong to the state of a tile, by name."""
        found = {"average": self.average}
        if self.line_noise is not None:
            found["line_noise"] = self.line_noise
        return found if self.wires is None else {**found, **self.wires.arrays()}


def _numbers(io: IOParameters, backward: bool, dtype: np.dtype[Any]) -> np.ndarray:
    """Pack the periphery as the kernels read it; see the header of tile_forward.cu."""
    managed = io.noise_management is not NoiseManagement.NONE
    zero_output = managed and (io.inp_noise <= 0 or backward)
    inp_step, out_step = io.steps(dtype)
    w_noise = io.w_noise if io.w_noise_type is not WeightNoise.NONE else 0.0
    return np.array(
        [
            io.inp_bound,
            inp_step,
            io.inp_noise,
            1 - io.inp_asymmetry,
            io.out_bound,
            out_step,
            io.out_noise,
            1 - io.out_asymmetry,
            io.out_scale,
            w_noise,
            io.inp_sto_round,
            io.out_sto_round,
            io.bm_test_negative_bound,
            managed,
            zero_output,
            not backward and io.bound_management is BoundManagement.ITERATIVE_WORST_CASE,
        ],
        dtype,
    )


@cache
def _mirror() -> Any:
    return import_module("rpukit.analog._mirror.forward")


def tile_scale(call: Call) -> Array:
    """Find the scale of every sample.

    Parameters
    ----------
    call : Call

    Returns
    -------
    array, float32
        The scales, shape (2, n_batch), or on kernels the words that they pass on; see
        ``kernels_cu/include/rk_lines.cuh``.
    """
    if _device.takes_kernels(call.x):
        return launch_scales(call)
    manner, n_batch = call.manner, call.shape[0]
    alpha = np.empty((2, n_batch), np.float32)
    run_rows(
        _mirror().tile_scale,
        n_batch,
        manner.mode,
        manner.worst,
        manner.threshold,
        manner.step,
        manner.max_bm_res,
        manner.bound,
        call.x,
        alpha,
        call.average,
        # A running average takes samples one by one.
        grain=n_batch + 1 if manner.mode == AVERAGE else 64,
    )
    return alpha


def tile_outputs(call: Call, scales: Array) -> Array:
    """Convert sums into the results of the first round, in place.

    Parameters
    ----------
    call : Call
        Without read noise; ``call.y`` holds the sums.
    scales : array, float32
        The result of `tile_scale`.

    Returns
    -------
    array, shape (n_batch, n_out), float32
        ``call.y``.
    """
    if _device.takes_kernels(call.y):
        launch_outputs(call, scales)
        return call.y
    (n_batch, n_out, _), op = call.shape, call.manner.ops[1]
    run_rows(
        _mirror().tile_outputs,
        n_batch,
        np.arange(n_batch),
        0,
        call.io,
        op,
        call.first_sample,
        0,
        np.float32(1),
        scales[0],
        np.empty((n_batch, 1), np.float32),
        np.empty(0, np.float32) if call.line_noise is None else call.line_noise,
        call.y.copy(),
        call.y,
        np.empty(n_batch, np.bool_),
        *call.stream.words,
        np.empty((3, n_out), np.uint32),
        grain=n_batch + 1,  # they share the scratch of the draws
    )
    return call.y


def tile_forward(
    weight: Array,
    x: Array,
    io: IOParameters,
    *,
    stream: Stream,
    first_sample: int,
    state: ForwardState,
    status: Array,
    call: int = 1,
    transposed: bool = False,
) -> Array:
    """Multiply a batch by the weights through the periphery.

    Parameters
    ----------
    weight : array, shape (n_out, n_in), float32 or float64
    x : array, shape (n_batch, n_in), or (n_batch, n_out) with `transposed`, dtype of the weight
    io : IOParameters
    stream : Stream
    first_sample : int
        Position of ``x[0]`` on the clock of this product.
    state : ForwardState
    status : array, shape (1,), int32
        If it is not zero, the result is 0 and nothing else changes.
    call : int
        Stored in `status` if an input is not finite.
    transposed : bool
        Multiply by the transposed weights, as a backward pass does.

    Returns
    -------
    array, shape (n_batch, n_out), or (n_batch, n_in) with `transposed`, dtype of the weight

    Notes
    -----
    Each output is one chain of fused multiply-adds in ascending order. Kernels:
    kernels_cu/tile_scale.cu, kernels_cu/tile_forward.cu. Source: Gokmen, Onen, Haensch, Front.
    Neurosci. 11:538 (2017).
    """
    repeat = state.repeated(weight, x, io, status, stream)
    if repeat is not None:
        return repeat(x, first_sample, call)
    manner = state.take(io)
    if state.rounds is not None:
        how = ProductCall(manner.mode, manner.w_noise, manner.ops, transposed)
        at: dict[str, Any] = {"stream": stream, "first_sample": first_sample, "state": state}
        return tile_product(weight, x, io, how, **at, status=status, call=call)
    n_batch, n_in = x.shape
    n_out = weight.shape[1 if transposed else 0]
    device = _device.device_of(x)
    y = _device.empty((n_batch, n_out), np.float32, device)
    if n_batch == 0:
        return y
    product = Call(
        manner,
        (n_batch, n_out, n_in),
        weight,
        x,
        y,
        state.io,
        state.line_noise,
        state.average,
        status,
        call,
        stream,
        first_sample,
    )
    if state.wires is not None:
        return tile_nonideal(product, tile_scale(product), state)
    if _device.takes_kernels(x):
        state.keep(product, launch(product, state.plan(product), device))
        return y
    deviation = np.empty(0, np.float32) if state.line_noise is None else state.line_noise
    run_rows(
        _mirror().tile_forward,
        n_batch,
        transposed,
        manner.perfect,
        manner.w_noise,
        manner.worst,
        state.reductions,
        first_sample,
        *manner.ops,
        state.io,
        weight,
        x,
        tile_scale(product),
        deviation,
        y,
        *stream.words,
        grain=work_grain(weight.size),
    )
    return y
