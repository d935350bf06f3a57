"""Weight arrays of several devices: vector, reference and one-sided cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.analog.arrays.base import ArrayContext, WeightArray
from rpukit.analog.arrays.compound_ops import combine_devices, select_refresh
from rpukit.analog.arrays.single import DeviceArray, nothing
from rpukit.analog.cells.cell_array import CellArray
from rpukit.analog.cells.compound import OneSided, Reference, UpdatePolicy, Vector
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.product.ops import ForwardState, tile_forward
from rpukit.analog.update.ops import pulse_trains
from rpukit.analog.update.trains import Trains
from rpukit.elementwise import random_fill
from rpukit.random import Op

Array = Any
_BLOCK = 4096  # samples for which devices are drawn at once
_COLUMNS = 256  # columns refreshed at once
_WRITES = 0  # child stream of a device for its own reads and writes


class CompoundArray(WeightArray):
    """Several arrays of devices with one visible weight, ``W = sum_k gamma_k w_k``.

    Parameters
    ----------
    cell : CompoundCell
    context : ArrayContext
    weight : array, shape (n_out, n_in), dtype of the context, optional
        Array that stores the visible weight.
    """

    def __init__(self, cell: Any, context: ArrayContext, weight: Array | None = None) -> None:
        self.cell, self.context = cell, context
        self.on_change = nothing
        parts = cell.parts()
        self._stack = _device.zeros((len(parts), *context.shape), context.dtype, context.device)
        self.children = [
            self._child(part, context.child(k), self._stack[k]) for k, part in enumerate(parts)
        ]
        for child in self.children:
            child.on_change = self._changed
        self.granularity = cell.granularity
        self._gamma = context.put(np.array(cell.weights_of_parts(), context.dtype))
        if weight is None:
            weight = _device.zeros(context.shape, context.dtype, context.device)
        self.weight = weight
        self.combine()

    @staticmethod
    def _child(part: Any, context: ArrayContext, weight: Array) -> Any:
        return DeviceArray(part, context, weight)

    def _changed(self) -> None:
        self.combine()
        self.on_change()

    def combine(self) -> None:
        """Compute the visible weight from the devices."""
        combine_devices(self.weight, self._stack, self._gamma, status=self.context.guard.status)

    def arrays(self) -> dict[str, Array]:
        return {"weight": self.weight, **self._named([c.arrays() for c in self.children])}

    @property
    def cells(self) -> Mapping[str, Array]:
        return MappingProxyType(self._named([c.cells for c in self.children]))

    @staticmethod
    def _named(children: list[Any]) -> dict[str, Array]:
        return {f"{k}.{name}": a for k, own in enumerate(children) for name, a in own.items()}

    @property
    def record(self) -> CellArray:
        """The first array with the visible weight of all of them, for reads of slices."""
        first: CellArray = self.children[0].record
        return first.showing(self.weight)

    def check_rate(self, lr: float, parameters: UpdateParameters) -> None:
        parameters.base_length(abs(lr), self.granularity)

    def trains(
        self, x: Array, d: Array, lr: float, parameters: UpdateParameters, first_sample: int
    ) -> Trains:
        """Make the pulse trains that the devices share."""
        return pulse_trains(
            x,
            d,
            abs(lr),
            self.granularity,
            parameters,
            stream=self.context.stream,
            first_sample=first_sample,
            status=self.context.guard.status,
            call=self.context.guard.begin("x or d"),
        )

    def settle(self) -> None:
        for child in self.children:
            child.settle()
        self.combine()

    def decay(self, alpha: float) -> None:
        for child in self.children:
            child.decay(alpha)
        self.combine()

    def diffuse(self) -> None:
        for child in self.children:
            child.diffuse()
        self.combine()

    def drift(self, dt: float) -> None:
        for child in self.children:
            child.drift(dt)
        self.combine()

    def reset(self, first_col: int, n_col: int, prob: float) -> None:
        for child in self.children:
            child.reset(first_col, n_col, prob)
        self.combine()


class VectorArray(CompoundArray):
    """Devices that share the pulses, or take turns (`Vector`)."""

    def store(self, array: Array) -> None:
        only = self._only()
        for k, child in enumerate(self.children):
            if only is None or k == only:
                child.store(array)
        self.combine()

    def _only(self) -> int | None:
        """Return the device that learns, if there is only one."""
        cell: Vector = self.cell
        fixed = cell.update_policy is UpdatePolicy.SINGLE_FIXED
        return cell.first_update_idx if fixed else None

    def update(
        self,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        batch_size: int,
    ) -> None:
        self.pulse(self.trains(x, d, lr, parameters, first_sample), lr < 0, first_sample)

    def pulse(self, trains: Trains, flip: bool, first_sample: int, *, batch_size: int = 1) -> None:
        """Change the weights by the coincidences of trains."""
        turn = self._turns(first_sample, len(trains.x))
        for k, child in enumerate(self.children):
            if turn is None or (turn == k).all():
                child.pulse(trains, flip, first_sample)
            elif (turn == k).any():
                mine = self.context.put((turn == k).astype(trains.d.dtype))
                mine = mine.reshape(-1, *(1,) * (trains.d.ndim - 1))
                child.pulse(replace(trains, d=trains.d * mine), flip, first_sample)
        self.combine()

    def _turns(self, first_sample: int, n: int) -> np.ndarray | None:
        """Return the device of each sample; None if all devices learn from all samples."""
        cell: Vector = self.cell
        n_device, policy = len(cell.devices), cell.update_policy
        sample = first_sample + np.arange(n)
        if policy is UpdatePolicy.ALL:
            return None
        if policy is UpdatePolicy.SINGLE_FIXED:
            return np.full(n, cell.first_update_idx)
        if policy is UpdatePolicy.SINGLE_SEQUENTIAL:
            return (cell.first_update_idx + 1 + sample) % n_device
        blocks = [
            random_fill(self.context.stream, (_BLOCK,), "bits", op=Op.UNIT, sample=block)
            for block in range(first_sample // _BLOCK, (first_sample + n - 1) // _BLOCK + 1)
        ]
        words = np.concatenate(blocks)[sample - first_sample // _BLOCK * _BLOCK]
        return (words.astype(np.uint64) * np.uint64(n_device)) >> np.uint64(32)


class ReferenceArray(CompoundArray):
    """A device that learns, minus a static one (`Reference`)."""

    def store(self, array: Array) -> None:
        self.children[0].store(array)
        self.combine()

    def update(
        self,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        batch_size: int,
    ) -> None:
        self.pulse(self.trains(x, d, lr, parameters, first_sample), lr < 0, first_sample)

    def pulse(self, trains: Trains, flip: bool, first_sample: int, *, batch_size: int = 1) -> None:
        """Change the weights by the coincidences of trains."""
        self.children[0].pulse(trains, flip, first_sample)
        self.combine()


class OneSidedArray(CompoundArray):
    """A device for rising and one for falling weights, both pulsed up only (`OneSided`)."""

    def __init__(self, cell: OneSided, context: ArrayContext, weight: Array | None = None) -> None:
        super().__init__(cell, context, weight)
        context.start("refresh")
        if cell.copy_inverted:
            self.children[1].invert()
            self.combine()  # bounds that exclude 0 have moved the weights
        self._reads = [
            ForwardState(
                cell.refresh_forward,
                context.shape[0],
                child.context.stream,
                context.device,
                dtype=context.dtype,
            )
            for child in self.children
        ]

    def store(self, array: Array) -> None:
        xp, zero = _device.namespace(array), self.context.dtype.type(0)
        self.children[1].store(xp.maximum(array, zero))
        self.children[0].store(xp.maximum(-array, zero))
        self.combine()

    def update(
        self,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        batch_size: int,
    ) -> None:
        # All trains are made before any is applied, so that a bad sample changes nothing.
        trains = self.trains(x, d, lr, parameters, first_sample)
        self.pulse(trains, lr < 0, first_sample, batch_size=batch_size)

    def pulse(self, trains: Trains, flip: bool, first_sample: int, *, batch_size: int = 1) -> None:
        """Change the weights by the coincidences of trains; refresh them when that is due."""
        start, n = 0, len(trains.x)
        while start < n:
            count = self._until_refresh(first_sample + start, n - start, batch_size)
            part = trains.of_samples(start, start + count)
            for child, polarity in zip(self.children, (-1, 1), strict=True):
                child.pulse(part, flip, first_sample + start, polarity=polarity)
            start += count
            if self._is_due(first_sample + start, batch_size):
                self.refresh()
        self.combine()

    def _period(self, batch_size: int) -> int:
        cell: OneSided = self.cell
        return cell.refresh_every * (batch_size if cell.units_in_mbatch else 1)

    def _until_refresh(self, sample: int, n: int, batch_size: int) -> int:
        period = self._period(batch_size)
        return min(n, period - sample % period) if period else n

    def _is_due(self, sample: int, batch_size: int) -> bool:
        period = self._period(batch_size)
        return period > 0 and sample % period == 0

    def refresh(self) -> None:
        """Read both devices, reset cells close to saturation, and write their differences back."""
        cell: OneSided = self.cell
        n_in = self.context.shape[1]
        bound = abs(cell.device.w_max)
        full, some = bound * cell.refresh_upper_thres, bound * cell.refresh_lower_thres
        minus, plus = self.children
        event = self.context.tick("refresh")
        chosen = _device.zeros(self.context.shape, self.context.dtype, self.context.device)
        dtype = self.context.dtype
        one_hot = self.context.put(np.eye(n_in, dtype=dtype)) if n_in <= _COLUMNS else None
        rises = []
        for col in range(0, n_in, _COLUMNS):
            x = one_hot if one_hot is not None else self._one_hot(col)
            first = event * n_in + col
            reads = (self._read(1, x, first), self._read(0, x, first))
            status = self.context.guard.status
            rise = select_refresh(chosen, *reads, col, full, some, status=status)
            rises.append((x, first, *rise))
        for child in self.children:
            child.reset(0, n_in, 1.0, chosen)
        for x, first, rise_plus, rise_minus in rises:
            self._write(plus, x, rise_plus, first)
            self._write(minus, x, rise_minus, first)

    def _one_hot(self, col: int) -> Array:
        n_in = self.context.shape[1]
        rows = min(_COLUMNS, n_in - col)
        return self.context.put(np.eye(rows, n_in, col, dtype=self.context.dtype))

    def _read(self, k: int, x: Array, first: int) -> Array:
        child = self.children[k]
        cell: OneSided = self.cell
        return tile_forward(
            child.weight,
            x,
            cell.refresh_forward,
            stream=child.context.stream.child(_WRITES),
            first_sample=first,
            transposed=False,
            state=self._reads[k],
            status=self.context.guard.status,
            call=self.context.guard.begin("refresh"),
        )

    def _write(self, child: DeviceArray, x: Array, rise: Array, first: int) -> None:
        cell: OneSided = self.cell
        stream = child.context.stream.child(_WRITES)
        child.write(x, rise, -1.0, cell.refresh_update, first, stream)


ARRAY_CLASSES: dict[type, Any] = {
    Vector: VectorArray,
    Reference: ReferenceArray,
    OneSided: OneSidedArray,
}
