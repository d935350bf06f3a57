"""Record of a training step: its launches, and the clocks of its tiles before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rpukit import _device
from rpukit._kernels import launch
from rpukit._kernels.launch import Launched
from rpukit.torch.bridge import set_around
from rpukit.torch.models.hardware import analog_layers

__all__ = ["Recording", "Tiles"]

Array = Any
Module = Any


class Tiles:
    """The tiles of a model, and what calls of them change on the host.

    Parameters
    ----------
    model : Module
    """

    def __init__(self, model: Module) -> None:
        layers = analog_layers(model).values()
        self.weights = [layer.analog_weight for layer in layers]
        self.arrays = [weight.array for weight in self.weights]
        self.tiles = [tile for array in self.arrays for tile in array]
        self.guards = [tile._guard for tile in self.tiles]
        self.memories = [guard._memories for guard in self.guards]
        self.on_gpu = any(_device.is_cupy(guard.status) for guard in self.guards)
        self.of_status = {_address(guard.status): k for k, guard in enumerate(self.guards)}

    @property
    def unchanged(self) -> bool:
        """Whether the layers still have these tiles: loading a state replaces them."""
        return all(w.array is a for w, a in zip(self.weights, self.arrays, strict=True))

    def snapshot(self) -> list[list[dict[str, Any]]]:
        """Copy the clocks and other numbers of each tile."""
        return [[dict(memory) for memory in memories] for memories in self.memories]

    def restore(self, snapshot: list[list[dict[str, Any]]]) -> None:
        """Put clocks back after a step of which no kernel ran."""
        for memories, before in zip(self.memories, snapshot, strict=True):
            for memory, held in zip(memories, before, strict=True):
                memory.clear()
                memory.update(held)
        for one in (*self.tiles, *self.arrays):
            one._call_state.unchanged()


class Recording:
    """One step of training.

    Parameters
    ----------
    tiles : Tiles

    Attributes
    ----------
    launches : list of Launched
        Of all threads, in order.
    before, after : list of lists of dict
        Clocks of each tile.
    """

    def __init__(self, tiles: Tiles) -> None:
        self.tiles = tiles
        self.launches: list[Launched] = []
        self.before = self.after = tiles.snapshot()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record the launches of a block."""
        outer = set_around(self._around)
        try:
            if self.tiles.on_gpu:  # each operation records its own, in the thread that runs it
                yield
            else:
                with launch.recording() as self.launches:
                    yield
        finally:
            set_around(outer)
        self.after = self.tiles.snapshot()

    @contextmanager
    def _around(self) -> Iterator[None]:
        if launch.is_recording():  # inside another operation
            yield
            return
        with launch.recording() as seen:
            yield
        self.launches += seen

    def addresses(self) -> list[list[int | None]]:
        """Addresses of the arrays of each launch; None for other arguments."""
        return [
            [
                _address(a) if p.pointer and a is not None else None
                for p, a in zip(one.parameters, one.args, strict=True)
            ]
            for one in self.launches
        ]


def _address(array: Array) -> int:
    return int(array.data.ptr if _device.is_cupy(array) else array.ctypes.data)
