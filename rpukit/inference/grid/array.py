"""`TileArray`: a weight matrix of any size over tiles of one size, with bias and output scales."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._checks import check_shape, number
from rpukit._device import Device
from rpukit._files.schema import as_format_error, check_arrays
from rpukit._kernels.calls import changes
from rpukit._kernels.entering import enters_device
from rpukit.analog.cells import Cell
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.tile.face import with_leading
from rpukit.analog.update.ops import rank_update
from rpukit.errors import ParameterError, ShapeError
from rpukit.gemm import det_gemm
from rpukit.inference.describe import grid_summary
from rpukit.inference.grid.cell import InferenceCell
from rpukit.inference.grid.grid import TileGrid
from rpukit.inference.grid.make_tiles import bias_kind, scale_of, tiles_of
from rpukit.inference.grid.mapping import size_of_tiles
from rpukit.inference.grid.scale import OutputScale
from rpukit.inference.grid.state import FORMAT, OWN, check_state, parts_of_array
from rpukit.inference.noise.model import NoiseModel
from rpukit.random import Stream
from rpukit.summaries import Summary

__all__ = ["TileArray"]

Array = Any


@enters_device("_describe")
class TileArray(TileGrid):
    """A weight matrix over tiles of one size, with the interface of one tile.

    Parameters
    ----------
    shape : tuple of int, (n_out, n_in)
        Of the weights, without a bias.
    cell : Cell, InferenceCell or NoiseModel
        What sits at each cross-point: a cell that learns by pulses, as of `AnalogTile`, or the
        settings of inference tiles.
    tile_shape : tuple of int, (n_out, n_in), or None
        Cells of a tile. The last tiles of a row or column of tiles use fewer. None: one tile.
    bias : {"none", "digital", "analog"} or bool
        "digital": numbers added to the outputs, exact; "analog": one more line of inputs, the
        last, with a constant input of 1. True is "digital", False "none".
    output_scale : OutputScale or float, optional
        Digital factors of the outputs; a number is a fixed factor.
    forward, backward : IOParameters, optional
        Converters, noise and management of the products of each tile.
    update : UpdateParameters, optional
        Conversion of gradients into pulses; not for an `InferenceCell`.
    device : str
        Compute device: ``"cpu"``, ``"gpu"`` or ``"gpu:1"``.
    seed : int, numpy.random.SeedSequence or Stream
        A matrix on one tile draws from the stream of the seed itself; otherwise tile number k,
        by blocks of outputs and then of inputs, draws from child k.
    dtype : {float32, float64}
        Of all computations; float32 for an `InferenceCell`.
    validate : {"deferred", "sync"}
        When non-finite inputs on a GPU are reported.
    **options
        Other options of `AnalogTile`: `count_pulses`, `storage`.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, DeviceError

    Notes
    -----
    To cut a matrix over tiles is physics: each tile has its own converters, bounds, noise and
    bound management, and its own draws, so other tile shapes give other results. Partial
    products are added in digital, blocks of inputs ascending. How a batch is cut into calls, or
    the work of a tile into launches and threads, changes no bit. A matrix on one tile has the
    bits of ``AnalogTile(shape, cell, seed=seed)``.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> array = rk.TileArray((700, 1000), rk.SoftBounds(), bias="digital", seed=7)
    >>> [tile.shape for tile in array]
    [(512, 512), (512, 488), (188, 512), (188, 488)]
    >>> x, d = np.ones((3, 1000), np.float32), np.full((3, 700), 0.1, np.float32)
    >>> array.forward(x).shape, array.backward(d).shape
    ((3, 700), (3, 1000))
    >>> _ = array.update(x, d, lr=0.01).post_step()
    """

    def __init__(
        self,
        shape: tuple[int, int],
        cell: Cell | InferenceCell | NoiseModel,
        *,
        tile_shape: tuple[int, int] | None = (512, 512),
        bias: str | bool = "none",
        output_scale: OutputScale | float | None = None,
        forward: IOParameters | None = None,
        backward: IOParameters | None = None,
        update: UpdateParameters | None = None,
        device: str | Device = "cpu",
        seed: int | np.random.SeedSequence | Stream = 0,
        dtype: Any = np.float32,
        validate: str = "deferred",
        **options: Any,
    ) -> None:
        n_out, n_in = check_shape(shape)
        kind = bias_kind(bias)
        size = None if tile_shape is None else size_of_tiles(tile_shape, "tile_shape")
        kept = {"forward": forward, "backward": backward, "device": device, "dtype": dtype}
        kept |= {"validate": validate, **options}
        cells = n_out, n_in + (kind == "analog")
        tiles = tiles_of(cells, size, cell, Stream.from_seed(seed), kept, update)
        self._join(tiles, size, kind, scale_of(output_scale))

    def _join(
        self,
        tiles: list[list[Any]],
        tile_shape: tuple[int, int] | None,
        bias: str,
        scale: OutputScale | None,
    ) -> None:
        """Become the matrix over these tiles."""
        TileGrid.__init__(self, tiles)
        self.shape = (self._out[-1], self._in[-1] - (bias == "analog"))
        self.tile_shape = tile_shape
        self.bias_kind = bias
        self.output_scale = scale
        start = {} if bias != "digital" else {"bias": np.zeros(self.shape[0], self._dtype)}
        if scale is not None:
            start["scale"] = np.full(self.shape[0], scale.value, self._dtype)
        self._own = {name: _device.to_device(a, self._device) for name, a in start.items()}
        self._bare = self._single if not self._own and bias == "none" else None

    @property
    def cell(self) -> Cell | InferenceCell:
        """What sits at each cross-point."""
        tile = self.tiles[0][0]
        if not self._exact:
            found: Cell = tile.cell
            return found
        return InferenceCell(**{name: getattr(tile, name) for name in InferenceCell.__slots__})

    @property
    def utilisation(self) -> float:
        """Share of the cells of all tiles that hold a weight."""
        n_tile = self.grid[0] * self.grid[1]
        cells = self._out[-1] * self._in[-1]
        size = self.tile_shape or (self._out[-1], self._in[-1])
        return float(cells / (n_tile * size[0] * size[1]))

    def _describe(self) -> Summary:
        return grid_summary(self)

    def __repr__(self) -> str:
        n_row, n_column = self.grid
        cell = type(self.tiles[0][0].noise if self._exact else self.cell).__name__
        more = "" if self.bias_kind == "none" else f", bias={self.bias_kind!r}"
        where = f"{n_row} x {n_column} tiles{more}, device={self.device!r}"
        return f"TileArray({self.shape}, {cell}, {where})"

    # ---- products and update ------------------------------------------------------------------

    @changes
    def forward(self, x: Array, *, first_sample: int | None = None) -> Array:
        if self._bare is not None:
            return self._bare.forward(x, first_sample=first_sample)
        return self._forward(x, first_sample)

    def _forward(self, x: Array, first_sample: int | None, tally: Array | None = None) -> Array:
        rows, leading = self._samples(x, self.shape[1], "x")
        y = self._product("forward", self._with_bias(rows), first_sample, tally)
        if "scale" in self._own:
            y *= self._own["scale"]
        if "bias" in self._own:
            y += self._own["bias"]
        return with_leading(y, leading)

    @changes
    def _counted(self, x: Array, tally: Array) -> Array:
        """Multiply as `forward`; add to a tally the outputs at their bound, and all."""
        return self._forward(x, None, tally)

    @changes
    def backward(self, d: Array, *, first_sample: int | None = None) -> Array:
        if self._bare is not None:
            return self._bare.backward(d, first_sample=first_sample)
        rows, leading = self._samples(d, self.shape[0], "d")
        if "scale" in self._own:
            rows = rows * self._own["scale"]
        g = self._product("backward", rows, first_sample)
        if self.bias_kind == "analog":
            g = _device.namespace(g).ascontiguousarray(g[:, :-1])
        return with_leading(g, leading)

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
        if self._bare is not None and not self._exact:
            self._bare.update(x, d, lr, first_sample=first_sample, batch_size=batch_size)
            return self
        rate = number(lr, "lr")
        rows_x, rows_d = self._pairs(x, d)
        inner = rows_d
        if self.output_scale is not None:
            scale = self._own["scale"]
            inner = rows_d / scale if self.output_scale.compensates_rate else rows_d * scale
        self._learn(self._with_bias(rows_x), inner, rate, first_sample, batch_size)
        if "bias" in self._own and rate and len(rows_d):
            self._learn_bias(rows_d, rate)
        return self

    def _with_bias(self, rows: Array) -> Array:
        if self.bias_kind != "analog":
            return rows
        out = _device.empty((rows.shape[0], rows.shape[1] + 1), self._dtype, self._device)
        out[:, :-1], out[:, -1] = rows, 1
        return out

    def _learn_bias(self, d: Array, lr: float) -> None:
        """Change the digital bias by ``-lr sum_b d``, samples ascending, unless a tile failed."""
        ones = _device.namespace(d).ones((d.shape[0], 1), self._dtype)
        column, contiguous = self._own["bias"].reshape(-1, 1), _device.namespace(d)
        for k, row in enumerate(self.tiles):
            part = slice(self._out[k], self._out[k + 1])
            errors = contiguous.ascontiguousarray(d[:, part])
            rank_update(column[part], ones, errors, lr, status=row[0]._guard.status)

    @changes
    def update_scales(self, y: Array, d: Array, lr: float) -> Self:
        """Learn the factors of the outputs, in place.

        Parameters
        ----------
        y : array_like, shape (..., n_out)
            Outputs of the forward product.
        d : array_like, shape (..., n_out)
            Errors at them.
        lr : float

        Returns
        -------
        TileArray
            Itself.

        Raises
        ------
        ParameterError
            Unless the array has an `OutputScale` with ``learned=True``.
        ShapeError, DTypeError, DeviceError, NonFiniteError

        Notes
        -----
        ``scale -= lr sum_b d (y - bias) / scale``, with a digital bias, summed in float64 with
        samples ascending, then, for one factor of the tensor, outputs ascending.
        """
        if self.output_scale is None or not self.output_scale.learned:
            raise ParameterError("output_scale: these factors are fixed; need learned=True")
        rate = number(lr, "lr")
        rows_y, rows_d = (self._rows(v, self.shape[0], n) for v, n in ((y, "y"), (d, "d")))
        if rows_y.shape != rows_d.shape:
            raise ShapeError(f"y has {rows_y.shape[0]} samples and d has {rows_d.shape[0]}")
        self._finite(rows_y, "y")
        self._finite(rows_d, "d")
        xp, scale = _device.namespace(rows_y), self._own["scale"]
        plain = rows_y.astype(np.float64)
        if "bias" in self._own:
            plain = plain - self._own["bias"]
        slope = det_gemm(xp.ones((1, len(plain))), plain / scale * rows_d)
        if self.output_scale.per == "tensor":
            slope = det_gemm(slope, xp.ones((slope.shape[1], 1)))
        found = (scale - rate * slope.reshape(-1)).astype(self._dtype)
        self._call_state.changing()
        scale[...] = xp.where(xp.isfinite(found) & (found != 0), found, scale)
        return self

    # ---- weights ------------------------------------------------------------------------------

    @changes
    def set_weights(self, weight: Array, bias: Array | None = None) -> Self:
        """Set the weights, and the bias if it is given, in place.

        An `OutputScale` with an `omega` then chooses new factors.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), dtype of the array
        bias : array, shape (n_out,), dtype of the array, optional
            Default: the bias stays as it is.

        Returns
        -------
        TileArray
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError, ParameterError
        """
        whole = self._matrix(weight, self.shape)
        if bias is not None:
            if self.bias_kind == "none":
                raise ParameterError('bias: this array has none; make it with bias="digital"')
            bias = self._matrix(bias, self.shape[:1], "bias")
        xp = _device.namespace(whole)
        if self.bias_kind == "analog":
            last: Any = self.get_bias() if bias is None else bias
            whole = xp.concatenate([whole, last[:, None]], axis=1)
        if self.output_scale is not None:
            scale = self.output_scale.fitted(whole, self._own["scale"])
            self._store(xp.ascontiguousarray(whole / scale[:, None]))
            self._own["scale"][...] = scale
        else:
            self._store(whole)
        if "bias" in self._own and bias is not None:
            self._own["bias"][...] = bias
        return self

    def get_weights(self) -> Array:
        cells = self._stored()
        if self.bias_kind == "analog":
            cells = _device.namespace(cells).ascontiguousarray(cells[:, :-1])
        if "scale" in self._own:
            cells *= self._own["scale"][:, None]
        return cells

    def get_bias(self) -> Array | None:
        """Read the bias exactly.

        Returns
        -------
        array, shape (n_out,), dtype of the array, or None
            A copy.

        Raises
        ------
        NonFiniteError
        """
        if "bias" in self._own:
            return self._own["bias"].copy()
        if self.bias_kind == "none":
            return None
        last = self._stored()[:, -1]
        return last * self._own["scale"] if "scale" in self._own else last.copy()

    @property
    def scales(self) -> Array | None:
        """Factor of each output, shape (n_out,), dtype of the array (a copy), or None."""
        return self._own["scale"].copy() if "scale" in self._own else None

    @changes
    def set_scales(self, scales: Array) -> Self:
        """Set the factors of the outputs, in place; the weights in the cells stay.

        Parameters
        ----------
        scales : array, shape (n_out,), dtype of the array, not 0

        Returns
        -------
        TileArray
            Itself.

        Raises
        ------
        ParameterError, ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        if self.output_scale is None:
            raise ParameterError("scales: this array has none; make it with output_scale=")
        array = self._matrix(scales, self.shape[:1], "scales")
        if not _device.to_numpy(array).all():
            raise ParameterError("scales: need numbers that are not 0")
        self._call_state.changing()
        self._own["scale"][...] = array
        return self

    # ---- state --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the complete state of the array as plain data on the CPU.

        Returns
        -------
        dict
            ``header`` and ``arrays``, those of tile (k, j) under names that begin with ``k.j.``.

        Raises
        ------
        NonFiniteError
        """
        headers, arrays = self._tile_states()
        arrays |= {name: np.array(_device.to_numpy(a)) for name, a in self._own.items()}
        scale = None if self.output_scale is None else asdict(self.output_scale)
        header = {"format": FORMAT, "version": 1, "grid": list(self.grid), "tiles": headers}
        header |= {"tile_shape": self.tile_shape, "bias": self.bias_kind, "output_scale": scale}
        return {"header": header, "arrays": arrays}

    @classmethod
    def from_state(cls, state: dict[str, Any], device: str | Device = "cpu") -> Self:
        """Build an array from the result of `state`.

        Parameters
        ----------
        state : dict
        device : str

        Returns
        -------
        TileArray

        Raises
        ------
        FormatError, DeviceError
        """
        header, kind, parts = parts_of_array(state)
        with as_format_error("state"):
            tiles = [[kind.from_state(part, device) for part in row] for row in parts]
            found, size = header["output_scale"], header["tile_shape"]
            scale = None if found is None else OutputScale(**found)
            array = cls.__new__(cls)
            array._join(tiles, None if size is None else tuple(size), header["bias"], scale)
            given = {name: np.asarray(a) for name, a in state["arrays"].items() if name in OWN}
            check_arrays(given, array._own)
            for name, target in array._own.items():
                target[...] = _device.to_device(given[name], array._device)
        return array

    _check_state = staticmethod(check_state)
