"""How much memory a circuit takes, and how many samples its passes may hold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import clock
from rpukit._kernels.replay import Replays, replayable
from rpukit.circuits.compiled.arena import LOSS, Arena, taken_by
from rpukit.circuits.compiled.layout import SumLayer
from rpukit.circuits.compiled.tables import most_of_tiles
from rpukit.circuits.ops.small_batch import most_of_chains
from rpukit.circuits.ops.sum_launch import staged_lines
from rpukit.circuits.ops.sum_tensor_core import most_of_tensor
from rpukit.circuits.parameters import Parameters, Statistics
from rpukit.errors import ParameterError, PlanError

__all__ = ["PASS", "Memory"]

PASS = 512  # samples of a pass that learns at most

_USUAL = 1 << 22  # numbers of a pass on a CPU: more cost it more than calls do
_SHARE = 16  # of a GPU's memory passes take this part
_MOST_SIZES = 8  # of batches whose launches are known


class Memory:
    """What a circuit takes of the memory of its device.

    Parameters
    ----------
    parameters : Parameters
    statistics : Statistics
    budget : int, optional
        Bytes of everything together.

    Raises
    ------
    ParameterError, PlanError
    """

    def __init__(
        self, parameters: Parameters, statistics: Statistics, budget: int | None = None
    ) -> None:
        self._parameters, self.budget = parameters, budget
        self.held = _bytes(parameters) + _bytes(statistics)
        self.of_sample, self.of_values = (
            _bytes_of_sample(parameters, learns=learns) for learns in (True, False)
        )
        # Beside the arena: a sample as it was read.
        self._read = parameters.layout.n_variable * (4 + parameters.theta.dtype.itemsize)
        lines = staged_lines(parameters.layout.layers)
        # Samples of what is staged come by fours.
        self._loss = LOSS + int(3 * lines * parameters.theta.dtype.itemsize)
        self._arena: Arena | None = None
        self.repeats = Replays(most=_MOST_SIZES)
        self.tops: dict[int, Any] = {}  # values of all rows, by number of samples
        if budget is not None:
            if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)):
                raise ParameterError(f"budget: got {budget!r}, need a number of bytes")
            self.held += _bytes_to_come(parameters)  # of tables made when they are wanted
            least = self.held + self.of_sample + self._read + self._loss
            if budget < least:
                raise PlanError(
                    f"budget: got {budget} bytes, but parameters, statistics and tables take "
                    f"{self.held}, and passes over one sample {least - self.held}: need {least}"
                )
            self._room = int(budget) - self.held - self._loss
        elif parameters.device.kind != "cpu":
            self._room = _device.memory(parameters.device) // _SHARE
        else:
            self._room = 1 << 62

    def samples(self, *, learns: bool) -> int:
        """Samples of a pass: of one that learns, or of one that only goes up."""
        own, most = self._parameters, self.fitting(learns=learns)
        if own.device.kind == "cpu":
            most = min(most, _USUAL // ((4 if learns else 1) * own.layout.n_row))
        return max(1, most)

    def fitting(self, *, learns: bool) -> int:
        """Samples of the largest pass that the memory has room for."""
        most: int = max(1, self._room // (self.of_sample + self._read))
        if learns:
            return most
        room = self._room if self.budget is None else min(most, PASS) * self.of_sample
        most = max(1, room // (self.of_values + self._read))
        return most

    def opened(self, n: int, *, learns: bool) -> AbstractContextManager[None]:
        """Let a pass of kernels over so many samples take its arrays from the arena."""
        theta = self._parameters.theta
        if not _device.takes_kernels(theta) or (_device.is_cupy(theta) and clock.capturing()):
            return nullcontext()
        return self._arena_for(n, learns=learns).opened()

    def replayed(
        self,
        key: Hashable,
        inputs: Sequence[Any],
        numbers: Mapping[str, Any],
        call: Callable[[], None],
    ) -> None:
        """Replay the launches of a call with this key, or make the call; see `Replays.run`."""
        if replayable(self._parameters.theta):
            self.repeats.run(key, inputs, numbers, call)
        else:
            call()

    def _arena_for(self, n: int, *, learns: bool) -> Arena:
        """Memory for a pass over so many samples; a larger one than before forgets launches."""
        size = n * (self.of_sample if learns else self.of_values) + self._loss
        if self._arena is None or self._arena.size < size:
            if self.budget is not None:  # once for all: what was let go stays with the allocator
                most = min(PASS, self.fitting(learns=True)) * self.of_sample
                size = max(size, most + self._loss)
            self._arena = None
            self.repeats, self.tops = Replays(most=_MOST_SIZES), {}
            self._arena = Arena(size, self._parameters.device)
        return self._arena

    def check(self, n: int) -> None:
        """Find out whether a pass of so many samples that is kept for good fits the budget."""
        if self.budget is None:
            return
        need = self.held + n * self.of_sample
        if need > self.budget:
            raise PlanError(
                f"a captured step of {n} samples needs {need} bytes, the budget is {self.budget}: "
                f"capture at most {(self.budget - self.held) // self.of_sample}"
            )


def _bytes_of_sample(parameters: Parameters, *, learns: bool) -> int:
    """Bytes of one sample: of a pass up, or of both passes and the statistics."""
    layout, uses = parameters.layout, parameters.uses
    numbers = layout.n_row
    if layout.width == 0 or parameters.device.kind == "cpu":  # elements have arrays
        most = max((y.n_element for y in layout.layers if isinstance(y, SumLayer)), default=0)
        numbers += layout.n_element + most if learns else most
    if parameters.device.kind != "cpu":
        numbers += staged_lines(layout.layers)
    if learns:
        numbers += 3 * layout.n_row + 3 + uses.n_x + 2 * layout.root_rows.size
    return int(numbers * parameters.theta.dtype.itemsize + learns * 4 * len(uses.row))


def _bytes_to_come(parameters: Parameters) -> int:
    """Bytes of tables that launches ask for: of each layer, and of layers side by side."""
    own = parameters.uses.tiles.get("host", parameters.uses)
    tiles = most_of_tiles(parameters.layout, own) + most_of_chains(parameters.layout)
    tensor = 0 if parameters.rounded is None else most_of_tensor(parameters.layout)
    return tiles + tensor + _bytes(parameters.layers)


def _bytes(of: Any) -> int:
    """Bytes that the arrays of an object take on the circuit's device."""
    if isinstance(of, np.ndarray) or _device.is_cupy(of):
        return taken_by(int(of.nbytes))
    if isinstance(of, (Parameters, Statistics)):
        names = vars(of)
        if isinstance(of, Parameters):
            own = ("theta", "rounded", "rows", "layers", "uses", "root_rows")
            names = dict.fromkeys(own)
        return sum(_bytes(getattr(of, name)) for name in names)
    if is_dataclass(of):
        return sum(_bytes(getattr(of, f.name)) for f in fields(of) if f.name != "tiles")
    return sum(map(_bytes, of)) if isinstance(of, (list, tuple)) else 0
