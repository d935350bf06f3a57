"""A grid of tiles with the interface of one tile: products, updates, weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._checks import number
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device
from rpukit.analog.deferred_errors import is_finite
from rpukit.analog.tile.face import TileFace, check_same_samples, with_leading
from rpukit.analog.tile.saving import SavedTile
from rpukit.errors import NonFiniteError, ShapeError
from rpukit.inference.grid.processes import GridProcesses
from rpukit.inference.grid.ranges import GridRanges, blocks
from rpukit.inference.grid.side_by_side import SideBySide, fits, staged, summed
from rpukit.inference.tile.tile import InferenceTile

Array = Any


@enters_device()
class TileGrid(GridProcesses, SavedTile, TileFace, GridRanges):
    """Base class of matrices over several tiles.

    Parameters
    ----------
    tiles : list of list of tiles
        By blocks of outputs, then by blocks of inputs.

    Raises
    ------
    ShapeError
    """

    def __init__(self, tiles: list[list[Any]]) -> None:
        self.tiles = tiles
        heights = [row[0].shape[0] for row in tiles]
        widths = [tile.shape[1] for tile in tiles[0]]
        fits = [[(h, w) for w in widths] for h in heights]
        if [[tile.shape for tile in row] for row in tiles] != fits:
            raise ShapeError("tiles: their shapes do not form a grid")
        self._turned = [list(column) for column in zip(*tiles, strict=True)]
        self._out: list[int] = [0, *np.cumsum(heights).tolist()]
        self._in: list[int] = [0, *np.cumsum(widths).tolist()]
        self.shape = (self._out[-1], self._in[-1])
        first = tiles[0][0]
        self._device = first._device
        self._dtype: np.dtype[Any] = first.dtype
        self._single: Any = first if len(heights) == len(widths) == 1 else None
        self._exact = isinstance(first, InferenceTile)
        self.validate = first.validate
        self._call_state = CallState()
        self._together = SideBySide(list(self))

    def __iter__(self) -> Iterator[Any]:
        return (tile for row in self.tiles for tile in row)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the weights."""
        return self._dtype

    @property
    def grid(self) -> tuple[int, int]:
        """Number of blocks of outputs, and of blocks of inputs."""
        return len(self.tiles), len(self._turned)

    @property
    def clocks(self) -> dict[str, int]:
        """Position of each clock (a copy); the tiles share their positions."""
        found: dict[str, int] = self.tiles[0][0].clocks
        return found

    @property
    def samples(self) -> dict[str, int]:
        """Number of samples that each operation has processed."""
        found: dict[str, int] = self.tiles[0][0].samples
        return found

    # ---- products and update ------------------------------------------------------------------

    @changes
    def forward(self, x: Array, *, first_sample: int | None = None) -> Array:
        """Multiply activations by the matrix; partial products are added with inputs ascending.

        Parameters
        ----------
        x : array_like, shape (..., n_in)
        first_sample : int, optional
            Position of the first sample on the forward clock; default: that of the clock.

        Returns
        -------
        array, shape (..., n_out), dtype of the tiles

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        rows, leading = self._samples(x, self.shape[1], "x")
        return with_leading(self._product("forward", rows, first_sample), leading)

    @changes
    def backward(self, d: Array, *, first_sample: int | None = None) -> Array:
        """Multiply errors by the transposed matrix; partial products are added likewise.

        Parameters
        ----------
        d : array_like, shape (..., n_out)
        first_sample : int, optional
            Position of the first sample on the backward clock; default: that of the clock.

        Returns
        -------
        array, shape (..., n_in), dtype of the tiles

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        rows, leading = self._samples(d, self.shape[0], "d")
        return with_leading(self._product("backward", rows, first_sample), leading)

    def _product(
        self, way: str, rows: Array, first: int | None, tally: Array | None = None
    ) -> Array:
        """Multiply rows by the cells of all tiles; add the partial products in order.

        To a `tally`, shape (n_block_in, 2), int64, the numbers of outputs at their bound and of
        all outputs are added.
        """
        if self._single is not None:
            y = getattr(self._single, way)(rows, first_sample=first)
            if tally is not None:
                tally[0] += self._single._reached(y)
            return y
        turned = way == "backward"
        tiles = self._turned if turned else self.tiles
        given, made = (self._out, self._in) if turned else (self._in, self._out)
        name, n = "d" if turned else "x", rows.shape[0]
        self._all_finite(rows, name)
        self._start(way, first, n)  # raises where the tiles would
        self._call_state.changing()  # the clocks of the tiles, one after the other
        watch, key = None, (way, n)
        if first is None and tally is None and self._launches_together(rows):
            if self._together.ready(key):
                parts = _device.empty((len(given) - 1, n * made[-1]), self._dtype, self._device)
                arrays = {"x": staged(rows, given), "y": parts}
                if self._together.run(key, way, name, n, arrays):
                    return summed(parts, made, n)
            watch = self._together.watch(key)
        pieces, xp = blocks(rows, given), _device.namespace(rows)
        y = _device.empty((n, made[-1]), self._dtype, self._device)
        for k, row in enumerate(tiles):
            out = y[:, made[k] : made[k + 1]]
            for j, (tile, block) in enumerate(zip(row, pieces, strict=True)):
                call = partial(getattr(tile, way), block, first_sample=first)
                if watch is None:
                    part = call()
                else:
                    places, at = {"x": (block, 4 * n * given[j])}, made[-1] * j + made[k]
                    part = watch.call(tile, places, call, 4 * n * at)
                if tally is not None:
                    tally[j] += tile._reached(part)
                if j:
                    xp.add(out, part, out=out)
                else:
                    out[...] = part
        if watch is not None:
            self._together.keep(watch)
        return y

    def _launches_together(self, *inputs: Array) -> bool:
        """Whether the tiles may share the launches of a call with these inputs."""
        n = inputs[0].shape[0]
        return all(map(_device.takes_kernels, inputs)) and fits(n, (self._out, self._in))

    @changes
    def update(
        self,
        x: Array,
        d: Array,
        lr: float,
        *,
        first_sample: int | None = None,
        batch_size: int | None = None,
    ) -> Self:
        """Change the weights by ``-lr d x^T``, as the tiles do: by pulses, or exactly.

        Parameters
        ----------
        x : array_like, shape (..., n_in)
        d : array_like, shape (..., n_out)
        lr : float
        first_sample : int, optional
            Position of the first sample on the update clock of tiles that learn by pulses.
        batch_size : int, optional
            Size of the mini-batch, for cells that count in mini-batches; default: n_batch.

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError, NonFiniteError
        """
        rows_x, rows_d = self._pairs(x, d)
        self._learn(rows_x, rows_d, number(lr, "lr"), first_sample, batch_size)
        return self

    def _pairs(self, x: Array, d: Array) -> tuple[Array, Array]:
        """Check the samples of an update."""
        rows_x, of_x = self._samples(x, self.shape[1], "x")
        rows_d, of_d = self._samples(d, self.shape[0], "d")
        check_same_samples(of_x, of_d, rows_x.shape[0], rows_d.shape[0])
        self._all_finite(rows_x, "x")
        self._all_finite(rows_d, "d")
        return rows_x, rows_d

    def _learn(
        self, rows_x: Array, rows_d: Array, lr: float, first: int | None, size: int | None
    ) -> None:
        options = {} if self._exact else {"first_sample": first, "batch_size": size}
        n, watch, key = rows_x.shape[0], None, ("update", rows_x.shape[0], lr)
        several = self._single is None and first is None and lr != 0
        if several and not self._exact and self._launches_together(rows_x, rows_d):
            if self._together.ready(key):
                self._call_state.changing()
                arrays = {"x": staged(rows_x, self._in), "d": staged(rows_d, self._out)}
                if self._together.run(key, "update", "x or d", n, arrays):
                    return
            watch = self._together.watch(key)
        of_x, of_d = blocks(rows_x, self._in), blocks(rows_d, self._out)

        def learn(k: int, j: int, tile: Any) -> None:
            call = partial(tile.update, of_x[j], of_d[k], lr, **options)
            if watch is None:
                call()
                return
            places = {"x": (of_x[j], 4 * n * self._in[j]), "d": (of_d[k], 4 * n * self._out[k])}
            watch.call(tile, places, call)

        self._all(learn)
        if watch is not None:
            self._together.keep(watch)

    def _all_finite(self, rows: Array, name: str) -> None:
        """Check an input before the first of several tiles changes.

        On a GPU each tile checks what it reads. With ``validate="sync"`` all is checked first.
        """
        if self.validate == "sync" and _device.is_cupy(rows):
            if not bool(_device.namespace(rows).isfinite(rows).all()):
                raise NonFiniteError(f"{name} holds NaN or infinity; the matrix is unchanged")
        elif self._single is None:
            self._finite(rows, name)

    def _finite(self, array: Array, name: str) -> None:
        """Check all values on a CPU before any tile changes; kernels check those on a GPU."""
        if not (_device.takes_kernels(array) or is_finite(array)):
            raise NonFiniteError(f"{name} holds NaN or infinity; the matrix is unchanged")

    # ---- weights ------------------------------------------------------------------------------

    @changes
    def set_weights(self, weight: Array) -> Self:
        """Set the weights of all tiles, in place.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), dtype of the tiles

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError, ParameterError
        """
        self._store(self._matrix(weight, self.shape))
        return self

    def get_weights(self) -> Array:
        """Read the weights that the products see now, exactly.

        Returns
        -------
        array, shape (n_out, n_in), dtype of the tiles
            A copy on the device of the tiles; reading synchronises.

        Raises
        ------
        NonFiniteError
        """
        return self._stored()

    def _matrix(self, weight: Array, shape: tuple[int, ...], name: str = "weight") -> Array:
        array = _device.as_array(weight, self._device, self._dtype, name)
        if array.shape != shape:
            raise ShapeError(f"{name}: got shape {tuple(array.shape)}, need {shape}")
        if not (_device.is_cupy(array) or is_finite(array)):
            raise NonFiniteError(f"{name} holds NaN or infinity; the matrix is unchanged")
        return array

    def _store(self, cells: Array) -> None:
        """Write the weights of the cells, or of none."""
        if self._exact:  # raises where weights are beyond `w_max`
            for k, j, tile in self._placed():
                tile.converter.split(self._block(cells, k, j), tile.w_max)
        self._all(lambda k, j, tile: tile.set_weights(self._block(cells, k, j)))

    def _stored(self) -> Array:
        """Read the weights of the cells."""
        cells = _device.empty((self._out[-1], self._in[-1]), self._dtype, self._device)
        for k, j, tile in self._placed():
            self._block(cells, k, j)[...] = tile.get_weights()
        return cells

    def _block(self, cells: Array, k: int, j: int) -> Array:
        return cells[self._out[k] : self._out[k + 1], self._in[j] : self._in[j + 1]]

    def _placed(self) -> Iterator[tuple[int, int, Any]]:
        for k, row in enumerate(self.tiles):
            for j, tile in enumerate(row):
                yield k, j, tile

    def _position(self, clock: str) -> int:
        return int(self.clocks[clock])

    # ---- state --------------------------------------------------------------------------------

    def _tile_states(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the headers of the tiles, and their arrays under names that begin with k.j."""
        headers: dict[str, Any] = {}
        arrays: dict[str, np.ndarray] = {}
        for k, j, tile in self._placed():
            state = tile.state()
            headers[f"{k}.{j}"] = state["header"]
            arrays.update({f"{k}.{j}.{name}": a for name, a in state["arrays"].items()})
        return headers, arrays
