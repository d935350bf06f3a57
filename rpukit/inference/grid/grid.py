"""A grid of tiles with the interface of one tile: products, updates, weights."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
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
from rpukit.inference.tile.tile import InferenceTile

Array = Any


@enters_device()
class TileGrid(GridProcesses, SavedTile, TileFace):
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
        self._all_finite(rows, "d" if turned else "x")
        self._start(way, first, rows.shape[0])  # raises where the tiles would
        self._call_state.changing()  # the clocks of the tiles, one after the other
        blocks, xp = _blocks(rows, given), _device.namespace(rows)
        y = _device.empty((rows.shape[0], made[-1]), self._dtype, self._device)
        for k, row in enumerate(tiles):
            out = y[:, made[k] : made[k + 1]]
            for j, (tile, block) in enumerate(zip(row, blocks, strict=True)):
                part = getattr(tile, way)(block, first_sample=first)
                if tally is not None:
                    tally[j] += tile._reached(part)
                if j:
                    xp.add(out, part, out=out)
                else:
                    out[...] = part
        return y

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
        of_x, of_d = _blocks(rows_x, self._in), _blocks(rows_d, self._out)
        self._all(lambda k, j, tile: tile.update(of_x[j], of_d[k], lr, **options))

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

    # ---- ranges of the inputs -----------------------------------------------------------------

    @property
    def ranges(self) -> list[float] | None:
        """Input range of each block of inputs; None for tiles without one."""
        if not self._exact or self.tiles[0][0].input_range is None:
            return None
        return [tile.range for tile in self.tiles[0]]

    @changes
    def set_range(self, value: float) -> Self:
        """Set the input range of all tiles, in place.

        Parameters
        ----------
        value : float, positive

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ParameterError, DTypeError
        """
        return self._each("set_range", value)

    def through_range(self, x: Array, grad: Array) -> Array:
        """Set the gradient of activations that the input ranges clip to 0.

        Parameters
        ----------
        x, grad : array, shape (n_batch, n_in), dtype of the tiles
            Activations, and the gradient that `backward` gave for them.

        Returns
        -------
        array, shape (n_batch, n_in)
        """
        ranges = self.ranges
        if ranges is None:
            return grad
        xp, zero = _device.namespace(grad), self._dtype.type(0)
        if len(set(ranges)) == 1:
            return xp.where(abs(x) > self._dtype.type(ranges[0]), zero, grad)
        limits = [xp.full(b - a, value, self._dtype) for value, a, b in self._with_edges(ranges)]
        return xp.where(abs(x) > xp.concatenate(limits), zero, grad)

    def _with_edges(self, ranges: list[float]) -> Iterator[tuple[float, int, int]]:
        """Yield each range with its first column and the one after its last."""
        edges = [*self._in[:-1], min(self._in[-1], self.shape[1])]  # no line for the bias
        return zip(ranges, edges[:-1], edges[1:], strict=True)

    @changes
    def learn_range(self, x: Array, grad: Array, lr: float, *, tally: Array | None = None) -> Self:
        """Learn the input ranges, one for each block of inputs, in place.

        Parameters
        ----------
        x, grad : array, shape (n_batch, n_in), dtype of the tiles
            Activations, and the gradient that `backward` gave for them.
        lr : float
        tally : array, shape (n_block_in, 2), int64, optional
            For each block of inputs, outputs of its tiles that reached their bound, and all: for
            an `InputRange` with `manage_output_clipping`.

        Returns
        -------
        TileGrid
            Itself; unchanged if its tiles have no learned `InputRange`.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError, NonFiniteError
        """
        if self.ranges is None or not self.tiles[0][0].input_range.learned:
            return self
        width = self.shape[1]
        rows, slopes = self._rows(x, width, "x"), self._rows(grad, width, "grad")
        edges = [*self._in[:-1], min(self._in[-1], width)]  # without a line for the bias
        parts = zip(_blocks(rows, edges), _blocks(slopes, edges), self._turned, strict=True)
        counts = [(0, 0)] * len(self._turned) if tally is None else _device.to_numpy(tally)
        for (of_x, of_grad, column), (reached, n) in zip(parts, counts, strict=True):
            first = column[0]
            if not of_x.shape[1]:
                continue
            self._call_state.changing()
            missing = first.shape[1] - of_x.shape[1]  # the line of an analog bias
            if missing:
                of_x, of_grad = (_with_zeros(v, missing) for v in (of_x, of_grad))
            first.learn_range(of_x, of_grad, lr, clipped=float(reached / max(n, 1)))
            for tile in column[1:]:
                tile._now["range"] = first._now["range"]
                tile._now["range_seen"] = first._now["range_seen"]
        return self

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


def _with_zeros(rows: Array, n_line: int) -> Array:
    """Add lines of zeros at the end of each sample."""
    xp = _device.namespace(rows)
    return xp.concatenate((rows, xp.zeros((len(rows), n_line), rows.dtype)), axis=1)


def _blocks(rows: Array, edges: list[int]) -> list[Array]:
    """Cut the columns of a matrix, each part contiguous."""
    if len(edges) == 2:
        return [rows]
    contiguous = _device.namespace(rows).ascontiguousarray
    return [contiguous(rows[:, a:b]) for a, b in pairwise(edges)]
