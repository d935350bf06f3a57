"""The arrays of one crossbar of pulsed cells, as passed to the ops of updates and transfers."""

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

    The ops of the update and of transfers take it as one argument and change its arrays in place.

    Attributes
    ----------
    cell : PulsedCell
        Selects the step function.
    weight : array, shape (n_out, n_in), float32 or float64
        The visible weight.
    planes : array, shape (n_plane, n_out, n_in), dtype of the weight, or Recipe
        Parameters of the cells, or the recipe that draws them where none are stored.
    globals_ : array, shape (n_global,), dtype of the weight
        0 is the spread of a step, 7 the standard deviation of the write noise; the others belong
        to the model.
    n_pulses : array, shape (1,), int64
        Counter of pulses.
    status : array, shape (1,), int32
        The tile's flag; kernels do nothing while it is not 0.
    granularity : float, weight units
        Mean step of the cells; 0 if no pulse trains are made for them.
    persistent : array, shape (n_out, n_in), dtype of the weight, or None
        The weight that pulses act on, if the cells have write noise.
    pulse_counts : array, shape (n_out, n_in), int64, or None
        Counter of the pulses of each cell.
    first_row : int
        Number of row 0 in its tile: the arrays may be some rows of a tile that is split.
    first_col, tile_cols : int
        Number of column 0 in its tile, a multiple of 32, and of the columns of the tile, if these
        are some of them; 0: these are all columns.
    macros : tuple of pairs
        Macros that the kernels of transfers are compiled with.
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
    first_row: int = 0
    first_col: int = 0
    tile_cols: int = 0
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
        """Whether the parameters of the cells are stored; else they are drawn when needed."""
        return not isinstance(self.planes, Recipe)

    def showing(self, weight: Array) -> CellArray:
        """Return a read-only view of the same cells with another visible weight."""
        return replace(self, weight=weight, persistent=None)

    @property
    def parameters(self) -> Array:
        """Planes for the kernels and mirrors of transfers; a recipe has shape (1, 1, n)."""
        values = values_of(self.planes)
        return values if values.ndim == 3 else values.reshape(1, 1, -1)

    def model(self) -> tuple[Any, Any, int]:
        """Return the step and run functions of a mirror, and the number of planes."""
        return *self.step_functions()[:2], len(self.planes)

    def step_functions(self) -> tuple[Any, Any, bool]:
        """Return a mirror's step and run functions, and whether a step needs an exponential."""
        cell, steps = self.cell, twins.mirror("rpukit.analog._steps", self.weight.dtype)
        run = steps.RUNS.get(cell.STEP) if cell.HAS_RUN else None
        return steps.STEPS[cell.STEP], run or steps.no_run, cell.STEP in steps.DEAR
