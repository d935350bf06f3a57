"""The arrays of one crossbar of pulsed cells, as the ops of updates and transfers take them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from rpukit._exact import twins
from rpukit.analog.cells.draw import Recipe, values_of
from rpukit.analog.cells.pulsed import PulsedCell

Array = Any


@dataclass(frozen=True, slots=True, eq=False)
class CellArray:
    """Weights, cell parameters and counters of one crossbar of pulsed cells.

    The ops of the update and of transfers take it whole; they change its arrays in place.

    Attributes
    ----------
    cell : PulsedCell
        Gives the step function.
    weight : array, shape (n_out, n_in), float32 or float64
        The visible weight.
    planes : array, shape (n_plane, n_out, n_in), dtype of the weight, or Recipe
        Parameters of the cells, or what the cells are drawn from where none are stored.
    globals_ : array, shape (n_global,), dtype of the weight
        0 the spread of a step, 7 the deviation of the write noise, the others the model's own.
    n_pulses : array, shape (1,), int64
        The number of pulses is added to it.
    status : array, shape (1,), int32
        The flag of the tile: kernels do nothing while it is not 0.
    granularity : float, weight units
        Mean step of the cells; 0 where nothing makes trains for them.
    persistent : array, shape (n_out, n_in), dtype of the weight, or None
        What pulses act on where the cells have write noise.
    pulse_counts : array, shape (n_out, n_in), int64, or None
        The pulses of each cell are added to it.
    macros : tuple of pairs
        What the kernels of transfers are compiled with.
    """

    cell: PulsedCell
    weight: Array
    planes: Array | Recipe
    globals_: Array
    n_pulses: Array
    status: Array
    granularity: float = 0.0
    persistent: Array | None = None
    pulse_counts: Array | None = None
    macros: tuple[tuple[str, Any], ...] = field(init=False)

    def __post_init__(self) -> None:
        drawn = isinstance(self.planes, Recipe)
        macros = {
            **({"PROCEDURAL": 1, **self.planes.macros} if drawn else {}),
            "REAL": twins.real(self.weight.dtype),
            "STEP": self.cell.STEP,
            "HAS_RUN": int(self.cell.HAS_RUN),
            "N_PLANE": len(self.cell.PLANES),
            "N_GLOBAL": self.globals_.size,
            "WRITE_NOISE": int(self.persistent is not None),
        }
        object.__setattr__(self, "macros", tuple(macros.items()))

    @property
    def stores_cells(self) -> bool:
        """Whether the parameters of the cells are stored, not drawn when they are needed."""
        return not isinstance(self.planes, Recipe)

    def showing(self, weight: Array) -> CellArray:
        """Give the same cells behind another visible weight, to be read only."""
        return replace(self, weight=weight, persistent=None)

    @property
    def parameters(self) -> Array:
        """The planes as kernels and mirrors of transfers take them: a recipe as (1, 1, n)."""
        values = values_of(self.planes)
        return values if values.ndim == 3 else values.reshape(1, 1, -1)

    def model(self) -> tuple[Any, Any, int]:
        """Give the step function and the run function of a mirror, and the number of planes."""
        return *self.step_functions()[:2], len(self.planes)

    def step_functions(self) -> tuple[Any, Any, bool]:
        """Give what a mirror pulses by: step, run, and whether a step needs an exponential."""
        cell, steps = self.cell, twins.mirror("rpukit.analog._steps", self.weight.dtype)
        run = steps.RUNS.get(cell.STEP) if cell.HAS_RUN else None
        return steps.STEPS[cell.STEP], run or steps.no_run, cell.STEP in steps.DEAR
