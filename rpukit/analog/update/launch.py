"""Launch shapes of the pulsed update on a GPU, and the choice among them.

All shapes give the same bits; the op is in ``ops.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact import twins
from rpukit._kernels import tune
from rpukit.analog.cells.cell_array import CellArray
from rpukit.analog.cells.draw import RECIPE, Recipe, values_of
from rpukit.analog.cells.user_steps import StepKernel
from rpukit.analog.update.trains import Trains
from rpukit.random import Stream

Array = Any

_PULSED_UPDATE = StepKernel("pulsed_update")

_THREADS = 256
_FILLS_A_GPU = 1 << 18  # threads that keep the largest GPU busy
_MANY_SAMPLES = 64  # from which lists are faster on an H200
_SHARED_SAMPLES = 512  # samples from which the warps of a block share them, for
_FEW_BLOCKS = 1024  # blocks of 32 columns of a row


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Assignment of cells to threads and blocks: a candidate of the tuner, valid for any batch."""

    cells: int  # columns of one thread: neighbouring ones, or with lists those 32 apart
    rows: int  # rows of one block
    lists: bool = False  # lists of pulses in shared memory, so that all lanes of a warp draw
    scan: bool = False  # the warps of a block share the samples of a row

    @property
    def name(self) -> str:
        if self.scan:
            return "scan"
        return f"{'lists' if self.lists else 'walk'}{self.cells}x{self.rows}"

    def valid(self, n_batch: int) -> bool:
        return n_batch > 0

    def fits(self, n_in: int, drawn: bool = False) -> bool:
        """Whether so many cells of a row can be read, or drawn, at a time."""
        if drawn and self.cells > 2:
            return False  # draws of four cells need too many registers
        return self.lists or self.cells == 1 or n_in % self.cells == 0


WALKS = tuple(
    LaunchShape(*s) for s in ((4, 8), (4, 2), (4, 1), (2, 8), (2, 4), (1, 8), (1, 4), (1, 1))
)
LISTS = tuple(LaunchShape(*s, lists=True) for s in ((2, 4), (2, 2), (1, 4), (1, 2), (1, 1)))
SCAN = LaunchShape(1, 1, lists=True, scan=True)
SHAPES = (*WALKS, *LISTS, SCAN)
DOUBLES = (
    LISTS[0],
    *(s for s in WALKS if s.rows == 4),
)  # for float64: at most two cells at a time


@dataclass(slots=True)
class Call:
    """Arguments of one pulsed update on kernels."""

    array: CellArray
    trains: Trains
    flip: bool
    polarity: int
    stream: Stream
    first_sample: int


def launch(call: Call, shape: LaunchShape) -> None:
    """Launch one pulsed update."""
    array, trains, recipe = call.array, call.trains, None
    n_batch, n_word, n_in = trains.x.shape
    cell, n_out = array.cell, array.weight.shape[0]
    if isinstance(array.planes, Recipe):
        recipe = array.planes
    variant, grid, block = _prepared(
        shape,
        n_out,
        n_in,
        cell.STEP,
        cell.HAS_RUN,
        len(cell.PLANES),
        array.globals_.size,
        array.persistent is not None,
        array.pulse_counts is not None,
        trains.implicit,
        n_word,
        twins.real(array.weight.dtype),
        None if recipe is None else (recipe.sampler, recipe.values.size > RECIPE),
        bool(array.tile_cols),
    )
    clocks = (np.uint64(call.first_sample), np.uint64(array.first_row))
    at = (*clocks, array.first_col, array.tile_cols)
    numbers = (n_batch, n_in, n_out, int(call.flip), call.polarity, *at)
    pulses = (trains.x, trains.x_slices, trains.d)
    changed = (array.weight, array.persistent, array.n_pulses, array.pulse_counts, array.status)
    args = (*numbers, values_of(array.planes), array.globals_, *pulses, *changed)
    variant.launch(grid, block, (*args, *call.stream.words))


@cache
def _prepared(
    shape: LaunchShape,
    n_out: int,
    n_in: int,
    step: str,
    has_run: bool,
    n_plane: int,
    n_global: int,
    write_noise: bool,
    count: bool,
    implicit: int,
    n_word: int,
    real: str,
    drawn: tuple[str, bool] | None,
    by_columns: bool,
) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Set the macros once; a steady call costs one look-up."""
    columns = 32 if shape.scan else min(_THREADS, max(32, -(-n_in // (shape.cells * 32)) * 32))
    threads = _THREADS if shape.scan else columns
    macros = {
        "REAL": real,
        "STEP": step,
        "HAS_RUN": int(has_run),
        "N_PLANE": n_plane,
        "N_GLOBAL": n_global,
        "WRITE_NOISE": int(write_noise),
        "COUNT": int(count),
        "LISTS": 2 if shape.scan else int(shape.lists),
        "IMPLICIT": implicit,
        "N_WORD": n_word,
        "THREADS": threads,
        "SPAN" if shape.lists else "CELLS": shape.cells,
        "ROWS": shape.rows,
        "BLOCKS": 4 if shape.lists and not shape.scan and real == "float" and drawn is None else 2,
    }
    if by_columns:
        macros["BY_COLUMNS"] = 1
    if drawn is not None:
        macros |= {"PROCEDURAL": 1, "PLANES_OF": drawn[0], "POINTS": int(drawn[1])}
    grid = (-(-n_in // (columns * shape.cells)), -(-n_out // shape.rows))
    return _PULSED_UPDATE.variant(macros), grid, (threads,)


def pick(call: Call) -> LaunchShape:
    """Choose a launch shape: the fastest if measured, otherwise that of the static rule."""
    (n_batch, n_word, n_in), array = call.trains.x.shape, call.array
    n_out = array.weight.shape[0]
    noisy, drawn = array.persistent is not None, isinstance(array.planes, Recipe)
    if array.weight.dtype == np.float64:  # meant for checks, so shapes are not tuned
        lists = n_batch >= _MANY_SAMPLES
        return next(s for s in DOUBLES if s.lists == lists and s.fits(n_in))
    shapes = _candidates(n_out, n_in, n_batch, _n_array(array), drawn)
    if len(shapes) == 1:
        return shapes[0]
    picked: LaunchShape = tune.choose(
        _PULSED_UPDATE,
        (n_out, n_in, n_word, array.cell.STEP, noisy, call.trains.implicit, drawn),
        shapes,
        partial(_trial, call),
        n_batch=n_batch,
        device=_device.device_of(array.weight),
    )
    return picked


@cache
def _candidates(
    n_out: int, n_in: int, n_batch: int, n_array: int, drawn: bool
) -> tuple[LaunchShape, ...]:
    """List the static rule's shape, and the others if the tile can be tried as a whole.

    A slice of a larger tile would fit into the cache, where other shapes are fast.
    """
    plain = _plain_shape(n_out, n_in, n_batch, drawn)
    whole = _trial_rows(n_out, n_in, n_array) == n_out
    others = [s for s in SHAPES if s != plain and s.fits(n_in, drawn)] if whole else []
    return (plain, *others)


def _plain_shape(n_out: int, n_in: int, n_batch: int, drawn: bool) -> LaunchShape:
    """Choose by the static rule: large shapes share work, small fill the GPU, lists for many."""
    if n_batch >= _SHARED_SAMPLES and n_out * -(-n_in // 32) <= _FEW_BLOCKS:
        return SCAN
    lists = n_batch >= _MANY_SAMPLES
    for shape in LISTS if lists else WALKS:
        enough = n_out * n_in >= shape.cells * shape.rows * _FILLS_A_GPU
        if shape.fits(n_in, drawn) and n_in >= 32 * shape.cells and enough:
            return shape
    return LISTS[-1] if lists else WALKS[-1]


def _n_array(array: CellArray) -> int:
    """Count the arrays of the size of the tile that an update reads."""
    n_plane = 0 if isinstance(array.planes, Recipe) else len(array.planes)
    return n_plane + 1 + (array.persistent is not None)


def _trial_rows(n_out: int, n_in: int, n_array: int) -> int:
    """Compute how many rows fit into the scratch, half of which is for the trains."""
    return min(n_out, max(1, tune.SCRATCH_LIMIT // 2 // (4 * n_in * n_array)))


def _trial(call: Call) -> tune.Trial:
    """Prepare a trial, which runs shapes on copies of the arrays that they change."""
    array = call.array
    n_out, n_in = map(int, array.weight.shape)
    n_row, xp = _trial_rows(n_out, n_in, _n_array(array)), _device.namespace(array.weight)
    planes, counts, persistent = array.planes, array.pulse_counts, array.persistent
    if not isinstance(planes, Recipe):
        planes = xp.ascontiguousarray(planes[:, :n_row])
    rows = replace(
        array,
        weight=array.weight[:n_row].copy(),
        planes=planes,
        n_pulses=xp.zeros_like(array.n_pulses),
        pulse_counts=None if counts is None else counts[:n_row].copy(),
        persistent=None if persistent is None else persistent[:n_row].copy(),
        status=xp.zeros_like(array.status),
    )
    d = xp.ascontiguousarray(call.trains.d[:, :, :n_row])
    scratch = replace(call, array=rows, trains=replace(call.trains, d=d))

    def run(shape: LaunchShape) -> list[Array]:
        launch(scratch, shape)
        return [rows.weight, rows.n_pulses]

    return run
