"""Products with non-ideal wires and amplifiers, called by ``ops.py``.

They are rare in training and always expensive, so they have a separate kernel.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.product.launch import Call
from rpukit.elementwise import random_fill
from rpukit.random import Op, Stream

Array = Any

_TILE_NONIDEAL = Kernel("tile_nonideal")
_THREADS = 128
_NO_FACTOR = np.empty((0, 0), np.float32)
# Draws when a tile is made (op CELLS): the array, in place of the number of the sample.
_OFFSET, _SLOPE, _FACTOR = 2, 3, 4


class Wires:
    """Parameters of the lines of one product, drawn once.

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
        float32 or float64. The draws are float32 in either case.
    """

    def __init__(
        self,
        io: IOParameters,
        n_out: int,
        stream: Stream,
        device: _device.Device,
        transposed: bool,
        dtype: Any = np.float32,
    ) -> None:
        self.parameters, self._stream, self._device = io, stream, device
        self._dtype = dtype
        self._draw = int(Op.BACKWARD_OUT if transposed else Op.FORWARD_OUT)
        self._transposed = transposed
        offset, slope = np.zeros(n_out, np.float32), np.zeros(n_out, np.float32)
        if io.v_offset_std > 0:
            xi = self._normals((n_out,), _OFFSET)
            offset = np.maximum(np.float32(io.v_offset_std) * xi, np.float32(0))
        if io.out_nonlinearity > 0:
            slope[:] = io.out_nonlinearity / io.out_bound
            if io.out_nonlinearity_std > 0:
                xi = self._normals((n_out,), _SLOPE)
                slope = np.abs(slope * (1 + np.float32(io.out_nonlinearity_std) * xi))
        calibrated = 1.0
        if io.slope_calibration > 0:
            saturation = float(np.abs(slope).astype(np.float64).mean()) + io.r_series
            calibrated = (1 + saturation * io.slope_calibration * io.out_bound) ** 2
        numbers = [io.ir_drop, io.ir_drop_g_ratio, io.r_series, io.v_offset_w_min, calibrated]
        self.more = _device.to_device(np.array([*numbers, 0, 0, 0], dtype), device)
        self.offset = _device.to_device(offset, device, dtype)
        self.slope = _device.to_device(slope, device, dtype)
        self._factor: Array | None = None

    def _normals(self, shape: tuple[int, ...], which: int) -> np.ndarray:
        drawn: np.ndarray = random_fill(
            self._stream, shape, "normal", op=Op.CELLS, sample=which, draw=self._draw
        )
        return drawn

    def arrays(self) -> dict[str, Array]:
        """Arrays that belong to the state of a tile."""
        return {"offset": self.offset, "slope": self.slope, "wires": self.more}

    def factor(self, shape: tuple[int, ...]) -> Array | None:
        """Return the factor of each weight in the pass of negative inputs, or None for 1."""
        spread = self.parameters.w_read_asymmetry_dtod
        if self._transposed or spread == 0:
            return None
        if self._factor is None:
            drawn = 1 + np.float32(spread) * self._normals(shape, _FACTOR)
            self._factor = _device.to_device(drawn, self._device, self._dtype)
        return self._factor

    @property
    def stages(self) -> tuple[bool, bool, bool]:
        """Whether there is IR drop, an offset or series resistance, saturation."""
        io = self.parameters
        series = io.r_series > 0
        return io.ir_drop > 0, io.v_offset_std > 0 or series, io.out_nonlinearity > 0 or series


def tile_nonideal(call: Call, scales: Array, state: Any) -> Array:
    """Multiply a batch by the weights through non-ideal wires and amplifiers.

    See `rpukit.analog.product.ops.tile_forward`. ``scales`` is the result of
    `rpukit.analog.product.ops.tile_scale`.
    """
    manner, wires = call.manner, state.wires
    transposed, ops = manner.transposed, manner.ops
    passes, factor = wires.parameters.passes, wires.factor(call.weight.shape)
    ir_drop, offset, saturates = wires.stages
    n_batch, n_out, n_in = call.shape
    if _device.runs_kernels(_device.namespace(call.weight, call.x)):
        flags = {"IR_DROP": ir_drop, "OFFSET": offset, "SATURATES": saturates}
        macros = {name: int(value) for name, value in flags.items()}
        macros |= {"TRANSPOSED": int(transposed), "PASSES": passes, "W_NOISE": manner.w_noise}
        lines = (call.line_noise, wires.offset, wires.slope)
        arrays = (call.io, wires.more, call.weight, factor, call.x, *lines, scales, call.y)
        grid = (-(-n_out // _THREADS), n_batch)
        for number in range(manner.n_round):
            numbers = (n_batch, n_out, n_in, number, call.first_sample, *ops)
            args = (*numbers, *arrays, call.status, *call.stream.words)
            _TILE_NONIDEAL.launch(grid, (_THREADS,), args, macros=macros)
        return call.y
    noise = call.line_noise
    if noise is None:
        noise = np.full(n_out, call.io[6], np.float32)
    run_rows(
        import_module("rpukit.analog._mirror.nonideal").tile_nonideal,
        n_batch,
        transposed,
        passes,
        np.array([ir_drop, manner.w_noise, offset, saturates], np.int64),
        manner.worst,
        state.reductions,
        call.first_sample,
        *ops,
        call.io,
        wires.more,
        call.weight,
        _NO_FACTOR if factor is None else factor,
        call.x,
        scales,
        np.stack([noise, wires.offset, wires.slope]),
        call.y,
        *call.stream.words,
        grain=work_grain(call.weight.size),
    )
    return call.y
