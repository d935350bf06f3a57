"""Memory budget of a circuit, and the number of samples of its passes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import clock
from rpukit._kernels.replay import Replays
from rpukit.circuits.compiled.arena import LOSS, Arena, taken_by
from rpukit.circuits.compiled.layout import SumLayer
from rpukit.circuits.compiled.tables import most_of_tiles
from rpukit.circuits.ops.small_batch import most_of_chains
from rpukit.circuits.ops.sum_launch import staged_lines
from rpukit.circuits.ops.sum_tensor_core import most_of_tensor
from rpukit.circuits.parameters import Parameters, Statistics
from rpukit.errors import ParameterError, PlanError

__all__ = ["PASS", "Memory"]

PASS = 512  # most samples of a pass that learns

_USUAL = 1 << 22  # numbers of a pass on a CPU: larger ones leave its caches
_SHARE = 16  # passes use this fraction of a GPU's memory
_MOST_SIZES = 8  # batch sizes whose launches are recorded


class Memory:
    """Memory that a circuit uses on its device.

    Parameters
    ----------
    parameters : Parameters
    statistics : Statistics
    budget : int, optional
        Bytes of everything together.
    beside : int
        Bytes of arrays that others allocate.

    Raises
    ------
    ParameterError, PlanError
    """

    def __init__(
        self,
        parameters: Parameters,
        statistics: Statistics,
        budget: int | None = None,
        beside: int = 0,
    ) -> None:
        self._parameters, self.budget = parameters, budget
        self.held = _bytes(parameters) + _bytes(statistics) + beside
        self.of_sample, self.of_values = (
            _bytes_of_sample(parameters, learns=learns) for learns in (True, False)
        )
        # Outside the arena: codes and numbers of a sample.
        self._read = parameters.layout.n_variable * (4 + parameters.theta.dtype.itemsize)
        lines = staged_lines(parameters.layout.layers)
        # Staged samples are rounded up to a multiple of 4.
        self._loss = LOSS + int(3 * lines * parameters.theta.dtype.itemsize)
        self._arena: Arena | None = None
        self.repeats = Replays(most=_MOST_SIZES)
        self.tops: dict[int, Any] = {}  # values of all rows, by number of samples
        if budget is not None:
            if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)):
                raise ParameterError(
                    f"budget: got {budget!r}, need a number of bytes (an integer)"
                )
            self.held += _bytes_to_come(parameters)  # of tables that launches make later
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
        """Number of samples of a pass: one that learns, or one that only evaluates."""
        own, most = self._parameters, self.fitting(learns=learns)
        if own.device.kind == "cpu":
            most = min(most, _USUAL // ((4 if learns else 1) * own.layout.n_row))
        return max(1, most)

    def fitting(self, *, learns: bool) -> int:
        """Number of samples of the largest pass that fits the memory."""
        most: int = max(1, self._room // (self.of_sample + self._read))
        if learns:
            return most
        room = self._room if self.budget is None else min(most, PASS) * self.of_sample
        most = max(1, room // (self.of_values + self._read))
        return most

    def opened(self, n: int, *, learns: bool) -> AbstractContextManager[None]:
        """Allocate the arrays of a pass over n samples from the arena."""
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
        if _device.takes_kernels(self._parameters.theta):
            self.repeats.run(key, inputs, numbers, call)
        else:
            call()

    def _arena_for(self, n: int, *, learns: bool) -> Arena:
        """Find the arena for a pass over n samples; a larger one clears recorded launches."""
        size = n * (self.of_sample if learns else self.of_values) + self._loss
        if self._arena is None or self._arena.size < size:
            if (
                self.budget is not None
            ):  # allocate the largest at once: the allocator keeps what is freed
                most = min(PASS, self.fitting(learns=True)) * self.of_sample
                size = max(size, most + self._loss)
            self._arena = None
            self.repeats, self.tops = Replays(most=_MOST_SIZES), {}
            self._arena = Arena(size, self._parameters.device)
        return self._arena

    def check(self, n: int) -> None:
        """Check that a permanently allocated pass over n samples fits the budget."""
        if self.budget is None:
            return
        need = self.held + n * self.of_sample
        if need > self.budget:
            raise PlanError(
                f"a captured step of {n} samples needs {need} bytes, the budget is {self.budget}: "
                f"capture at most {(self.budget - self.held) // self.of_sample}"
            )


def _bytes_of_sample(parameters: Parameters, *, learns: bool) -> int:
    """Bytes for one sample of an upward pass, or of both passes and the statistics."""
    layout = parameters.layout
    values, numbers = layout.n_row, 0  # values, lifts and elements are float64
    if layout.width == 0 or parameters.device.kind == "cpu":  # elements have arrays
        most = max((y.n_element for y in layout.layers if isinstance(y, SumLayer)), default=0)
        values += layout.n_element if learns else most
        numbers += learns * most
    elif layout.shared and learns:  # flows of elements
        numbers += max(y.n_element for y in layout.layers if isinstance(y, SumLayer) and y.shared)
    if parameters.device.kind != "cpu":
        numbers += staged_lines(layout.layers)
    if learns:
        values += layout.n_row
        numbers += layout.n_row + 2 * layout.root_rows.size
        numbers += sum(uses.n_up + uses.n_x for uses, _ in parameters.counted)
    own = numbers * parameters.theta.dtype.itemsize
    uses = len(parameters.uses.row) * (1 + (parameters.rounded is not None))  # `wide`, and maxima
    return int(8 * values + own + learns * 4 * uses)


def _bytes_to_come(parameters: Parameters) -> int:
    """Bytes of the tables that launches make later, of each layer and of chains of layers."""
    own = parameters.uses.tiles.get("host", parameters.uses)
    tiles = most_of_tiles(parameters.layout, own) + most_of_chains(parameters.layout)
    tensor = 0 if parameters.rounded is None else most_of_tensor(parameters.layout)
    return tiles + tensor + _bytes(parameters.layers)


def _bytes(of: Any) -> int:
    """Bytes of the arrays of an object on the circuit's device."""
    if isinstance(of, np.ndarray) or _device.is_cupy(of):
        return taken_by(int(of.nbytes))
    if isinstance(of, (Parameters, Statistics)):
        names = vars(of)
        if isinstance(of, Parameters):
            own = ["theta", "rounded", "rows", "layers", "uses", "root_rows"]
            own += ["counted"] * (of.precision == "bf16x3")
            names = dict.fromkeys(own)
        return sum(_bytes(getattr(of, name)) for name in names)
    if is_dataclass(of):
        return sum(_bytes(getattr(of, f.name)) for f in fields(of) if f.name != "tiles")
    return sum(map(_bytes, of)) if isinstance(of, (list, tuple)) else 0
