"""Blocks of rows or columns of a tile, each on a device of its own, that act as one array."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._device import Device
from rpukit.analog.arrays.base import ArrayContext, WeightArray
from rpukit.analog.cells import Cell
from rpukit.analog.deferred_errors import Guard
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.sharded.products import Layout
from rpukit.analog.tile.make_array import make_array
from rpukit.errors import NonFiniteError
from rpukit.gemm.split.pieces import on

Array = Any

SHARED = ("globals", "recipe", "chopper_in", "switched", "running")  # arrays that every block has
SUMS = ("n_pulses",)  # arrays whose values of all blocks are added
AXES = {"planes": 1, "buffer": 2, "mean": 1, "past": 1}  # that the rows are on; default: 0


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some rows or columns of a tile on one device.

    Attributes
    ----------
    span : slice
        Which rows or columns.
    unit : WeightArray
    """

    span: slice
    unit: WeightArray

    @property
    def device(self) -> Device:
        return self.unit.context.device

    @property
    def guard(self) -> Guard:
        return self.unit.context.guard


def _put(part: Array, room: Array, device: Device) -> None:
    """Copy the array of a block into that of the tile, which is on a device."""
    there = _device.device_of(part)
    if device.kind == "cpu" and there.kind == "gpu" and room.flags.c_contiguous:
        with _device.using(there):
            part.get(out=room)
        return
    if device.kind == "cpu":
        part = _device.to_numpy(part)
    elif there != device:
        part = _device.to_device(part, device)
    with _device.using(device):
        room[...] = part


class HomeGuard(Guard):
    """Guard of the first block, which speaks for all of them: every block sees the same inputs."""

    def __init__(
        self,
        clocks: dict[str, Any],
        device: Device,
        registers: dict[str, Any],
        skipped: dict[str, int],
    ) -> None:
        super().__init__(clocks, device, registers, skipped)
        self.clocks = clocks
        self.others: list[OtherGuard] = []

    def check(self) -> None:
        try:
            super().check()
        except NonFiniteError:
            for other in self.others:
                other.go_back(self.clocks)
            raise


class OtherGuard(Guard):
    """Guard of a further block: calls have the numbers that the first block gives them."""

    def __init__(self, home: HomeGuard, clocks: dict[str, Any], device: Device) -> None:
        self._home, self._device, self._clocks = home, device, clocks
        self.status, self.call_state = _device.zeros((1,), np.int32, device), home.call_state
        home.others.append(self)

    def number(self) -> int:
        return max(1, len(self._home._calls))

    def log(self, what: str) -> None:
        """Do nothing: the first block has logged the call."""

    def check(self) -> None:
        self._home.check()

    def follow(self) -> None:
        """Let later kernels of the block do nothing, if the first block's do nothing."""
        status = _device.to_device(self._home.status, self._device)
        with _device.using(self._device):
            self.status[...] = status

    def go_back(self, clocks: Mapping[str, Any]) -> None:
        """Forget a bad value, and set the clocks back."""
        with _device.using(self._device):
            self.status.fill(0)
        self._clocks.update({name: clocks[name] for name in self._clocks})


class ShardedArray(WeightArray):
    """Blocks of rows or columns that act as one weight array.

    Parameters
    ----------
    cell : Cell
    context : ArrayContext
        Of the whole tile, on the device of the first block.
    layout : Layout
        Where the blocks are.
    """

    def __init__(self, cell: Cell, context: ArrayContext, layout: Layout) -> None:
        self.context, self.axis, edges = context, layout.axis, layout.edges
        n_out, n_in = context.shape
        self.blocks: list[Block] = []
        for (start, stop), device in zip(pairwise(edges), layout.devices, strict=True):
            clocks: dict[str, Any] = context.clocks
            guard: Guard = context.guard
            if start:
                clocks = {}
                guard = OtherGuard(context.guard, clocks, device)  # type: ignore[arg-type]
            part: dict[str, Any] = {"first_row": start, "tile_rows": n_out}
            if self.axis:
                part = {"first_col": start, "tile_cols": n_in}
            own = ArrayContext(
                (n_out, stop - start) if self.axis else (stop - start, n_in),
                context.stream,
                device,
                guard,
                clocks,
                {},
                count_pulses=context.count_pulses,
                dtype=context.dtype,
                procedural=context.procedural,
                **part,
            )
            with _device.using(device):
                self.blocks.append(Block(slice(start, stop), make_array(cell, own)))
        for name, register in self.blocks[0].unit.context.registers.items():
            # Signs of lines, which never flip in a tile that is split.
            context.registers[name] = np.ones(context.shape[0], register.dtype)
        self.granularity = getattr(self.blocks[0].unit, "granularity", 0.0)

    # ---- arrays -------------------------------------------------------------------------------

    @property
    def weight(self) -> Array:
        """The visible weight of all blocks, joined on the device of the first one (a copy)."""
        return self.joined("weight", [block.unit.weight for block in self.blocks])

    def joined(self, name: str, parts: list[Array], device: Device | None = None) -> Array:
        """Join an array of all blocks on one device; default: that of the first block."""
        device = device or self.context.device
        kind = name.rsplit(".", 1)[-1]
        if kind in SHARED:
            return _device.to_device(parts[0], device)
        if kind in SUMS:
            total = sum(_device.to_numpy(part) for part in parts)
            return _device.to_device(total, device)
        out = _device.empty(self._whole(kind, parts[0]), parts[0].dtype, device)
        for block, part in zip(self.blocks, parts, strict=True):
            _put(part, out[self._place(kind, block)], device)
        return out

    def _whole(self, kind: str, part: Array) -> tuple[int, ...]:
        """Return the shape of an array of the tile, from that of the first block."""
        shape = list(part.shape)
        if kind not in (*SHARED, *SUMS):
            shape[AXES.get(kind, 0) + self.axis] = self.context.shape[self.axis]
        return tuple(shape)

    def specs(self) -> dict[str, Array]:
        """Return stand-ins for `arrays`: the same shapes and types, without the memory."""
        made = {}
        for name, part in self.blocks[0].unit.arrays().items():
            whole = self._whole(name.rsplit(".", 1)[-1], part)
            made[name] = np.broadcast_to(np.empty((), part.dtype), whole)
        return made

    def arrays(self) -> dict[str, Array]:
        """Return all state by name, joined on the CPU."""
        each = [block.unit.arrays() for block in self.blocks]
        return {
            name: self.joined(name, [own[name] for own in each], _device.CPU) for name in each[0]
        }

    def fill(self, arrays: Mapping[str, Any]) -> None:
        """Set all state; the arrays are on the CPU."""
        for number, block in enumerate(self.blocks):
            for name, target in block.unit.arrays().items():
                kind, source = name.rsplit(".", 1)[-1], np.asarray(arrays[name])
                if kind in SUMS:
                    source = source if number == 0 else np.zeros_like(source)
                elif kind not in SHARED:
                    source = source[self._place(kind, block)]
                with _device.using(block.device):
                    target[...] = _device.to_device(source, block.device)

    def _place(self, kind: str, block: Block) -> tuple[slice, ...]:
        """Where an array of a block is in that of the tile."""
        return (*(slice(None),) * (AXES.get(kind, 0) + self.axis), block.span)

    def set_clocks(self) -> None:
        """Set the clocks of the other blocks to those of the first."""
        for block in self.blocks[1:]:
            own = block.unit.context.clocks
            own.update({name: self.context.clocks[name] for name in own})

    @property
    def cells(self) -> Mapping[str, Array]:
        each = [block.unit.cells for block in self.blocks]
        return {name: self.joined(name, [own[name] for own in each]) for name in each[0]}

    # ---- learning -----------------------------------------------------------------------------

    def check_rate(self, lr: float, parameters: UpdateParameters) -> None:
        self.blocks[0].unit.check_rate(lr, parameters)

    def _each(self, call: Callable[[Block], Any]) -> None:
        """Make a call for each block, with its device current."""
        self.follow()
        for block in self.blocks:
            with _device.using(block.device):
                call(block)

    def follow(self) -> None:
        """Let no block change if an earlier call met a bad value."""
        for block in self.blocks[1:]:
            if _device.takes_kernels(block.unit.weight) and isinstance(block.guard, OtherGuard):
                block.guard.follow()

    def update(
        self,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        batch_size: int,
    ) -> None:
        # All copies begin before the first block works.
        given = {block: (on(x, block.device), on(d, block.device)) for block in self.blocks}

        def update(block: Block) -> None:
            block.unit.update(*given[block], lr, parameters, first_sample, batch_size)

        self._each(update)

    def store(self, array: Array) -> None:
        def store(block: Block) -> None:
            with _device.using(_device.device_of(array)):
                part = array[self._place("weight", block)]
            block.unit.store(_device.to_device(part, block.device))

        self._each(store)

    def settle(self) -> None:
        self._each(lambda block: block.unit.settle())

    def decay(self, alpha: float) -> None:
        self._each(lambda block: block.unit.decay(alpha))

    def diffuse(self) -> None:
        self._each(lambda block: block.unit.diffuse())

    def drift(self, dt: float) -> None:
        self._each(lambda block: block.unit.drift(dt))

    def reset(self, first_col: int, n_col: int, prob: float) -> None:
        self._each(lambda block: block.unit.reset(first_col, n_col, prob))

    # ---- products -----------------------------------------------------------------------------

    def weights(self) -> list[Array]:
        """Return the visible weight of each block."""
        return [block.unit.weight for block in self.blocks]
