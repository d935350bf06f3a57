"""How much memory a circuit takes, and how many samples its passes may hold."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits._layout import SumLayer
from rpukit.circuits._parameters import Parameters, Statistics
from rpukit.errors import ParameterError, PlanError

__all__ = ["Memory"]

_USUAL = 1 << 22  # numbers of a pass on a CPU: more cost it more than calls do
_SHARE = 32  # of a GPU's memory a pass takes this part
_AT_A_TIME = 3  # passes: two sizes of batch are kept on a GPU, another one may run


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
        self.of_sample = _bytes_of_sample(parameters)
        on_gpu = parameters.device.kind != "cpu"
        self._at_a_time = _AT_A_TIME if on_gpu else 1
        if budget is not None:
            if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)):
                raise ParameterError(f"budget: got {budget!r}, need a number of bytes")
            least = self.held + self._at_a_time * self.of_sample
            if budget < least:
                raise PlanError(
                    f"budget: got {budget} bytes, but parameters, statistics and tables take "
                    f"{self.held}, and passes over one sample {least - self.held}: need {least}"
                )
            self._room = (int(budget) - self.held) // self._at_a_time
        elif on_gpu:
            self._room = _device.memory(parameters.device) // _SHARE
        else:
            self._room = 1 << 62

    def samples(self, n_array: int | None = None) -> int:
        """Samples of a pass: of one that learns, or of one with so many arrays of values."""
        own = self._parameters
        row = own.layout.n_row * own.theta.dtype.itemsize
        most = self._room // (self.of_sample if n_array is None else n_array * row)
        if own.device.kind == "cpu":
            most = min(most, _USUAL // ((n_array or 4) * own.layout.n_row))
        return max(1, most)

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


def _bytes_of_sample(parameters: Parameters) -> int:
    """Bytes that a pass up, a pass down and the statistics take for one sample."""
    layout, uses = parameters.layout, parameters.uses
    numbers = 4 * layout.n_row + uses.n_x + layout.n_variable + 2 * layout.root_rows.size
    if layout.width == 0 or parameters.device.kind == "cpu":  # elements have arrays
        most = max((y.n_element for y in layout.layers if isinstance(y, SumLayer)), default=0)
        numbers += layout.n_element + most
    codes, wide = 4 * layout.n_variable, len(uses.row)
    return int(numbers * parameters.theta.dtype.itemsize + codes + wide)


def _bytes(of: Any) -> int:
    """Bytes of the arrays of an object on the circuit's device."""
    if isinstance(of, np.ndarray) or _device.is_cupy(of):
        return int(of.nbytes)
    if isinstance(of, (Parameters, Statistics)):
        names = ("theta", "rows", "layers", "uses") if isinstance(of, Parameters) else vars(of)
        return sum(_bytes(getattr(of, name)) for name in names)
    if is_dataclass(of):
        return sum(_bytes(getattr(of, f.name)) for f in fields(of) if f.name != "tiles")
    return sum(map(_bytes, of)) if isinstance(of, (list, tuple)) else 0
