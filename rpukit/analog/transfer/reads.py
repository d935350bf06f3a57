"""Arguments of reads: periphery and buffer of slices, and the pulses that precede a read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.analog.cells.chopped_transfer import DynamicTransfer
from rpukit.analog.cells.transfer import Transfer
from rpukit.analog.parameters.io import BoundManagement, IOParameters, NoiseManagement, WeightNoise
from rpukit.analog.product.ops import ForwardState
from rpukit.analog.update.trains import Trains
from rpukit.random import Stream

Array = Any
_W_NOISES = {WeightNoise.ADDITIVE_CONSTANT: 1, WeightNoise.PCM_READ: 2}


@dataclass(frozen=True, slots=True)
class Reading:
    """Periphery, rule and buffer of the reads of one array.

    Attributes
    ----------
    kind : {1, 2, 3, 4}
        TTv1 (no buffer) to TTv4.
    columns : bool
        Whether slices are columns.
    rule : array, shape (10,), dtype of the weights
        0 threshold of TTv2, 1 largest number of pulses of a write, 2 momentum, 3 factor on the
        buffer before a read, 4 weight of a read in the mean and 5 bound of the buffer of TTv4, 6
        whether a written buffer is multiplied by the momentum, 7 periphery (0 none, 1 the scale of
        the output only, 2 all), 8 noise of weights, 9 whether slices are columns.
    io : array, shape (16,), dtype of the weights
        The periphery, see `ForwardState`.
    line_noise : array, shape (n_line,), dtype of the weights, or None
    stream : Stream
        Source of the noise of reads.
    buffer, mean, past : array, shape (n_slice, n_line), dtype of the weights, or None
    chopper, switched : array, shape (n_slice,), int8, or None
    """

    kind: int
    columns: bool
    rule: Array
    io: Array
    line_noise: Array | None
    stream: Stream
    buffer: Array | None = None
    mean: Array | None = None
    past: Array | None = None
    chopper: Array | None = None
    switched: Array | None = None

    @classmethod
    def of(
        cls,
        cell: Transfer,
        k: int,
        io: IOParameters,
        state: ForwardState,
        stream: Stream,
        own: dict[str, Array],
    ) -> Reading:
        """Collect the arguments of the reads of device k.

        ``io`` is the periphery of reads, ``own`` the arrays of the tile by name.
        """
        forget, length = getattr(cell, "forget_buffer", True), cell.transfer_update.desired_bl
        momentum, threshold = getattr(cell, "momentum", 0.0), 0.0
        kind = 4 if isinstance(cell, DynamicTransfer) else 1 + cell.BUFFERED + cell.CHOPPED
        if kind < 4 and not forget:
            momentum = min(max(momentum, 0.0), 1.0)
        if kind == 2:
            threshold = cell.thres_scale * cell.devices[k + 1].granularity  # type: ignore[attr-defined]
        mu = cap = 0.0
        if isinstance(cell, DynamicTransfer):
            mu = min(cell.tail_weightening / cell.chop_period, 1.0)
            cap = cell.buffer_cap * length
        keep = float(not getattr(cell, "no_buffer", False))
        columns, dtype = cell.transfer_columns, state.io.dtype
        periphery = (0 if io.out_scale == 1 else 1) if io.exact else 2
        w_noise = _W_NOISES.get(io.w_noise_type, 0) if io.w_noise > 0 else 0
        flags = (forget, periphery, w_noise, columns)
        rule = np.array((threshold, length, momentum, keep, mu, cap, *flags), dtype)
        return cls(
            kind,
            columns,
            _device.to_device(rule, _device.device_of(state.io)),
            state.io,
            state.line_noise,
            stream,
            own["buffer"][k] if cell.BUFFERED else None,
            *(own.get(name) for name in ("mean", "past", "chopper_in", "switched")),
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """Pulses of a batch that each slice sees before it is read.

    Attributes
    ----------
    trains : Trains
    flip : bool
        Whether the polarity of all pulses is reversed.
    stream : Stream
    first_sample : int
    """

    trains: Trains
    flip: bool
    stream: Stream
    first_sample: int


def one_hot_io(io: IOParameters) -> IOParameters:
    """Turn off noise and bound management, which one-hot reads never use."""
    return replace(
        io, noise_management=NoiseManagement.NONE, bound_management=BoundManagement.NONE
    )
