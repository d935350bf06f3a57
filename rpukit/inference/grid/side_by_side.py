"""Products and updates of all tiles of a matrix by launches that the tiles share, on a GPU.

The first call of a kind goes from tile to tile. The second one does so, too, and its launches are
recorded. Later ones repeat them, those of equal tiles as one launch (`rpukit._kernels.batched`),
so that the tiles work at the same time. Each tile gets the bits of its own launches.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import launch, tune
from rpukit._kernels.batched import Batched, alike
from rpukit._kernels.launch import Launched
from rpukit._kernels.replay import keep_for_graph
from rpukit.analog.arrays.single import DeviceArray
from rpukit.analog.parameters.io import NoiseManagement
from rpukit.analog.tile.tile import AnalogTile
from rpukit.random import MAX_SAMPLE

Array = Any

_SCRATCH = ("work", "x_train", "d_train", "x_slices")  # arrays between two launches of a tile
_NUMBERS = ("call", "first_sample")
_MOST_SCRATCH = 1 << 28  # bytes at a time
_MOST_STAGED = 1 << 28  # bytes of the inputs, and of the results, of all tiles
_MOST_PLANS = 8
_LINE = 64  # elements at whose multiples the scratch of a tile begins


@dataclass(slots=True)
class _Own:
    """What one tile did in a call that is watched."""

    tile: Any
    launches: list[Launched]
    places: dict[str, tuple[Array, int]]  # by name: its array, and where that is among all


@dataclass(slots=True)
class Watch:
    """A call that goes from tile to tile, and the launches of each."""

    key: Hashable
    seen: list[_Own] = field(default_factory=list)

    def call(
        self,
        tile: Any,
        places: dict[str, tuple[Array, int]],
        call: Callable[[], Array],
        at: int | None = None,
    ) -> Array:
        """Make the call of a tile, whose results, if it has any, are at byte `at` among all."""
        with launch.recording() as launches:
            y = call()
        results = {} if at is None else {"y": (y, at)}
        self.seen.append(_Own(tile, launches, {**places, **results}))
        return y


@dataclass(slots=True)
class _Part:
    """Launches of equal tiles, and the arrays between them: name, length, type."""

    batched: Batched
    scratch: list[tuple[str, int, Any]]


@dataclass(slots=True)
class _Plan:
    """Launches of all tiles, and what has to be as it was."""

    parts: list[_Part]
    marks: list[int]
    kept: Any


class SideBySide:
    """The calls that the tiles of one matrix make together.

    Parameters
    ----------
    tiles : list of tile
    """

    def __init__(self, tiles: list[Any]) -> None:
        self._tiles = tiles
        self._plans: dict[Hashable, _Plan | None] = {}

    def watch(self, key: Hashable) -> Watch | None:
        """Return what records the second call of a kind; None for other calls."""
        if launch.is_recording() or not all(map(_simple, self._tiles)):
            return None
        if key not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = None
            return None
        plan = self._plans[key]
        known = plan is not None and (plan.parts or not self._changed(plan))
        return None if known or self._captures() else Watch(key)

    def _captures(self) -> bool:
        return self._tiles[0]._device.kind == "gpu" and _device.free_stream() is None

    def keep(self, watch: Watch) -> None:
        """Batch the launches of a call that was watched; a plan without parts if they differ."""
        device, parts = self._tiles[0]._device, []
        groups = _equal(watch.seen)
        if not all(alike([own.launches for own in group]) for group in groups):
            groups = []
        for group in groups:
            scratch = _scratch(group[0].launches)
            size = max(4 * sum(n for _, n, _ in scratch), 1)
            step = max(_MOST_SCRATCH // size, 1)
            for first in range(0, len(group), step):
                some = group[first : first + step]
                places = {name: [own.places[name] for own in some] for name in group[0].places}
                for name, n, _ in scratch:
                    arrays = [_scratch_arrays(own.launches)[name] for own in some]
                    places[name] = [(a, 4 * n * i) for i, a in enumerate(arrays)]
                batched = Batched([own.launches for own in some], _NUMBERS, places, device)
                parts.append(_Part(batched, [(name, n * len(some), t) for name, n, t in scratch]))
        self._plans[watch.key] = _Plan(parts, *self._marks())

    def _changed(self, plan: _Plan) -> bool:
        """Whether something that the launches depend on is another one now."""
        marks, held = self._marks()
        return marks != plan.marks or held[0] != plan.kept[0]

    def _marks(self) -> tuple[list[int], Any]:
        """Identities of what the launches depend on, and the objects themselves."""
        held: list[Any] = [tune.n_changes()]
        for t in self._tiles:
            held += (t._unit.weight, t._unit.record, t._guard.status, t.stream)
            held += (t.forward_parameters, t.backward_parameters, t.update_parameters)
        return [id(one) for one in held[1:]], held

    def run(self, key: Hashable, clock: str, what: str, n: int, arrays: dict[str, Array]) -> bool:
        """Repeat a call of n samples for all tiles; False where that is not possible.

        Parameters
        ----------
        key : hashable
        clock : str
            Clock of the samples.
        what : str
            Name of the inputs in an error message.
        n : int
        arrays : dict
            Inputs and results of all tiles, by name.
        """
        plan = self._plans.get(key)
        if plan is None or not plan.parts:
            return False
        if self._changed(plan):
            del self._plans[key]
            return False
        numbers = {(t._guard.number(), t._clocks[clock]) for t in self._tiles}
        call, start = next(iter(numbers))
        if len(numbers) > 1 or start + n > MAX_SAMPLE:
            return False
        device = self._tiles[0]._device
        for part in plan.parts:
            scratch = {
                name: _device.empty((size,), dtype, device) for name, size, dtype in part.scratch
            }
            part.batched({"call": call, "first_sample": start}, {**arrays, **scratch})
            keep_for_graph(*scratch.values())
        keep_for_graph(*arrays.values())
        for t in self._tiles:
            t._guard.log(what)
        for t in self._tiles:
            t._finish(clock, start, n)
        return True

    def ready(self, key: Hashable) -> bool:
        """Whether the launches of a call are known, and may be made now."""
        plan = self._plans.get(key)
        return plan is not None and bool(plan.parts) and not launch.is_recording()


def fits(n: int, edges: tuple[list[int], list[int]]) -> bool:
    """Whether the blocks of n samples are aligned side by side, and not too large together."""
    size = 4 * n * max(given[-1] * (len(made) - 1) for given, made in (edges, edges[::-1]))
    return n > 0 and size <= _MOST_STAGED and not any(n * at % 4 for e in edges for at in e)


def staged(rows: Array, edges: list[int]) -> Array:
    """Copy the columns of a matrix to blocks one after the other, each contiguous."""
    if len(edges) == 2:
        return rows.reshape(-1)
    n, width = rows.shape[0], edges[1]
    whole = len(edges) - 1 if edges[-1] % width == 0 else len(edges) - 2
    out = _device.empty((n * edges[-1],), rows.dtype, _device.device_of(rows))
    at = whole * width
    blocks = rows[:, :at].reshape(n, whole, width)
    out[: n * at].reshape(whole, n, width)[...] = blocks.transpose(1, 0, 2)
    if at < edges[-1]:
        out[n * at :].reshape(n, -1)[...] = rows[:, at:]
    return out


def summed(parts: Array, edges: list[int], n: int) -> Array:
    """Add partial products, shape (n_part, n * n_made), in order, and join their blocks."""
    total, xp = parts[0], _device.namespace(parts)
    for part in parts[1:]:
        xp.add(total, part, out=total)
    if len(edges) == 2:
        return total.reshape(n, -1)
    width = edges[1]
    whole = len(edges) - 1 if edges[-1] % width == 0 else len(edges) - 2
    at = whole * width
    y = _device.empty((n, edges[-1]), parts.dtype, _device.device_of(parts))
    y[:, :at].reshape(n, whole, width)[...] = (
        total[: n * at].reshape(whole, n, width).transpose(1, 0, 2)
    )
    if at < edges[-1]:
        y[:, at:] = total[n * at :].reshape(n, -1)
    return y


def _simple(tile: Any) -> bool:
    """Whether the calls of a tile are launches alone, and change nothing but arrays and clocks."""
    if not isinstance(tile, AnalogTile) or tile.dtype != np.float32 or tile.count_pulses:
        return False
    average = NoiseManagement.AVERAGE_ABS_MAX
    both = tile.forward_parameters, tile.backward_parameters
    unit, states = tile._unit, tile._states.values()
    single = isinstance(unit, DeviceArray) and unit.record is not None and unit.stores_cells
    plain = all(state.wires is None for state in states)
    return single and plain and not any(io.noise_management is average for io in both)


def _equal(seen: list[_Own]) -> list[list[_Own]]:
    """Group the tiles that made the same launches: those of the same shape."""
    groups: dict[tuple[int, int], list[_Own]] = {}
    for own in seen:
        groups.setdefault(own.tile.shape, []).append(own)
    return list(groups.values())


def _scratch_arrays(launches: list[Launched]) -> dict[str, Array]:
    """Return the arrays that a launch leaves to later ones, by the name of their parameter."""
    found: dict[str, Array] = {}
    for one in launches:
        for parameter, a in zip(one.parameters, one.args, strict=True):
            if parameter.name in _SCRATCH and a is not None:
                found.setdefault(parameter.name, a)
    return found


def _scratch(launches: list[Launched]) -> list[tuple[str, int, Any]]:
    """List the arrays between the launches of a tile: name, rounded length, type."""
    arrays = _scratch_arrays(launches).items()
    return [(name, -(-a.size // _LINE) * _LINE, a.dtype) for name, a in arrays]
