"""Ops of the products: the scales of a batch, and the product through the periphery."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.analog._launch_forward import Call, launch, launcher, pick
from rpukit.analog._nonideal import NonidealCall, Wires, tile_nonideal
from rpukit.analog._product import ProductCall, tile_product
from rpukit.analog.io_parameters import BoundManagement, IOParameters, NoiseManagement, WeightNoise
from rpukit.elementwise import random_fill
from rpukit.random import Op, Stream

Array = Any

_TILE_SCALE = Kernel("tile_scale")

_MODES = {
    NoiseManagement.NONE: 0,
    NoiseManagement.ABS_MAX: 1,
    NoiseManagement.MAX: 2,
    NoiseManagement.CONSTANT: 3,
    NoiseManagement.AVERAGE_ABS_MAX: 4,
    NoiseManagement.ABS_MAX_NP_SUM: 5,
}
_W_NOISES = {WeightNoise.NONE: 0, WeightNoise.ADDITIVE_CONSTANT: 1, WeightNoise.PCM_READ: 2}


class ForwardState:
    """What one product of a tile keeps: its periphery on the device, and what runs along.

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
        self.rhos = io.reductions(backward=transposed)
        self.worst = not transposed and io.bound_management is BoundManagement.ITERATIVE_WORST_CASE
        if self.worst:
            self.rhos = [1.0, *self.rhos]
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

    def arrays(self) -> dict[str, Array]:
        """Arrays that belong to the state of a tile."""
        found = {"average": self.average}
        if self.line_noise is not None:
            found["line_noise"] = self.line_noise
        return found if self.wires is None else {**found, **self.wires.arrays()}


def _numbers(io: IOParameters, backward: bool, dtype: np.dtype[Any]) -> np.ndarray:
    """Periphery as the kernels read it; see the header of tile_forward.cu."""
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
            0,
        ],
        dtype,
    )


def _mirror() -> Any:
    return import_module("rpukit.analog._mirror.forward")


def tile_scale(
    x: Array, io: IOParameters, state: ForwardState, *, status: Array, call: int
) -> tuple[Array, Array]:
    """Find the scale of every sample.

    Parameters
    ----------
    x : array, shape (n_batch, n_in), float32
    io : IOParameters
    state : ForwardState
    status : array, shape (1,), int32
    call : int

    Returns
    -------
    alpha : array, shape (2, n_batch), float32
    need : array, shape (n_batch,), int32
        Zeros: the round of bound management that a sample waits for.
    """
    n_batch, n_in = x.shape
    device = _device.device_of(x)
    alpha = _device.empty((2, n_batch), np.float32, device)
    mode = 0 if io.exact else _MODES[io.noise_management]
    bound = io.out_bound if io.out_bound > 0 else 1.0
    numbers = (
        np.float32(io.nm_thres),
        io.input_step,
        np.float32(io.max_bm_res),
        np.float32(bound),
    )
    need = _device.empty((n_batch,), np.int32, device)
    if _device.runs_kernels(_device.namespace(x)):
        _TILE_SCALE.launch(
            (1 if mode == 4 else min(n_batch, 65535),),
            (256,),
            (n_batch, n_in, *numbers, call, x, alpha, need, state.average, status),
            macros={"MODE": mode, "WORST": int(state.worst)},
        )
    else:
        grain = n_batch + 1 if mode == 4 else 64  # a running average goes sample by sample
        run_rows(
            _mirror().tile_scale,
            n_batch,
            mode,
            state.worst,
            *numbers,
            x,
            alpha,
            state.average,
            grain=grain,
        )
    return alpha, need


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
        Where it is not zero the result is 0 and nothing else happens.
    call : int
        What a non-finite input stores in `status`.
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
    w_noise = 0 if io.exact or io.w_noise == 0 else _W_NOISES[io.w_noise_type]
    ops = (
        (int(Op.BACKWARD_IN), int(Op.BACKWARD_OUT))
        if transposed
        else (int(Op.FORWARD_IN), int(Op.FORWARD_OUT))
    )
    if weight.dtype == np.float64:
        mode = 0 if io.exact else _MODES[io.noise_management]
        how = ProductCall(mode, w_noise, ops, transposed)
        at: dict[str, Any] = {"stream": stream, "first_sample": first_sample, "state": state}
        return tile_product(weight, x, io, how, **at, status=status, call=call)
    n_batch = x.shape[0]
    n_out = weight.shape[1 if transposed else 0]
    y = _device.empty((n_batch, n_out), np.float32, _device.device_of(x))
    if n_batch == 0:
        return y
    alpha, need = tile_scale(x, io, state, status=status, call=call)
    rhos = [1.0] if io.exact else state.rhos
    if state.wires is not None:
        call_ = NonidealCall(weight, x, alpha, need, y, state, rhos, w_noise, stream)
        return tile_nonideal(call_, first_sample, ops, transposed=transposed, status=status)
    if _device.runs_kernels(_device.namespace(weight, x)):
        product = Call(
            weight,
            x,
            alpha,
            need,
            y,
            state.io,
            state.line_noise,
            state.worst,
            status,
            stream,
            first_sample,
            ops,
            transposed,
            io.exact,
            w_noise,
        )
        variant, tile = launcher(product, pick(product))
        launch(product, variant, tile, rhos)
        return y
    deviation = np.empty(0, np.float32) if state.line_noise is None else state.line_noise
    run_rows(
        _mirror().tile_forward,
        n_batch,
        transposed,
        io.exact,
        w_noise,
        state.worst,
        np.array(rhos, np.float32),
        first_sample,
        *ops,
        state.io,
        weight,
        x,
        alpha,
        deviation,
        y,
        *stream.words,
        grain=work_grain(weight.size),
    )
    return y
