"""Interfaces of tiles to other libraries: SciPy's linear operators, DLPack, CUDA arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import flag
from rpukit.errors import CopyError, DTypeError, NonFiniteError, RpukitError, ShapeError

Array = Any
_CPU, _GPU = 1, 2  # DLPack's numbers of kinds of device


class LinearMap:
    """Mixin of tiles and of their transposed views: SciPy's linear operators and DLPack."""

    shape: tuple[int, int]
    dtype: Any
    get_weights: Callable[[], Array]

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    # ---- SciPy's linear operators ---------------------------------------------------------------

    def matvec(self, x: Array) -> Array:
        """Multiply one vector by the weights, as the hardware does (named as in SciPy).

        Parameters
        ----------
        x : array, shape (n_in,) or (n_in, 1)
            Numbers of another real type are rounded to the type of the tile.

        Returns
        -------
        array, shape (n_out,) or (n_out, 1), dtype of the tile
            One sample of the forward clock.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError

        Examples
        --------
        >>> import numpy as np, rpukit as rk
        >>> from scipy.sparse.linalg import aslinearoperator
        >>> exact = rk.IOParameters(is_perfect=True)
        >>> tile = rk.AnalogTile((2, 3), rk.Ideal(), forward=exact, seed=7)
        >>> _ = tile.set_weights(np.eye(2, 3, dtype=np.float32))
        >>> (2 * aslinearoperator(tile)).matvec([1.0, 2.0, 3.0])
        array([2., 4.], dtype=float32)
        """
        return _vector(self, x, self.shape[1], "x", self._by_columns)

    def rmatvec(self, d: Array) -> Array:
        """Multiply one vector by the transposed weights, as the hardware does.

        Parameters
        ----------
        d : array, shape (n_out,) or (n_out, 1)
            Numbers of another real type are rounded to the type of the tile.

        Returns
        -------
        array, shape (n_in,) or (n_in, 1), dtype of the tile
            One sample of the backward clock.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        return _vector(self, d, self.shape[0], "d", self._by_columns_back)

    def matmat(self, x: Array) -> Array:
        """Multiply columns by the weights, as the hardware does.

        Parameters
        ----------
        x : array, shape (n_in, n)
            Numbers of another real type are rounded to the type of the tile.

        Returns
        -------
        array, shape (n_out, n), dtype of the tile
            Column k is sample k of a batch.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        return self._by_columns(_columns(self, x, self.shape[1], "x"))

    def rmatmat(self, d: Array) -> Array:
        """Multiply columns by the transposed weights, as the hardware does.

        Parameters
        ----------
        d : array, shape (n_out, n)
            Numbers of another real type are rounded to the type of the tile.

        Returns
        -------
        array, shape (n_in, n), dtype of the tile

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        return self._by_columns_back(_columns(self, d, self.shape[0], "d"))

    def _by_columns(self, x: Array) -> Array:
        return self.forward(x.T).T  # type: ignore[attr-defined]

    def _by_columns_back(self, d: Array) -> Array:
        return self.backward(d.T).T  # type: ignore[attr-defined]

    # ---- DLPack ---------------------------------------------------------------------------------

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export a copy of the weights on the tile's device by DLPack."""
        if copy is False:
            raise CopyError("copy=False: a tile's weights can only be exported as a copy")
        given = {"stream": stream, "max_version": max_version, "dl_device": dl_device}
        asked = {name: value for name, value in given.items() if value is not None}
        flag(False if copy is None else copy, "copy")
        try:
            return self.get_weights().__dlpack__(**asked)
        except (TypeError, ValueError, OverflowError, RuntimeError, BufferError) as error:
            if isinstance(error, RpukitError):
                raise
            raise CopyError(f"{asked}: the weights are not exported so: {error}") from error

    def __dlpack_device__(self) -> tuple[int, int]:
        device = _device.parse_device(self.device)  # type: ignore[attr-defined]
        return (_CPU, 0) if device.kind == "cpu" else (_GPU, device.index)


class SharedWeights(LinearMap):
    """Mixin of `AnalogTile`, whose weights stay in one array that other GPU libraries can read."""

    _device: _device.Device
    _guard: Any
    _unit: Any

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The weights themselves, read-only, for libraries that read CUDA's array interface.

        The array changes with the tile. CuPy ignores that it is read-only: copy it before you
        write. Only tiles on a GPU have it.
        """
        if self._device.kind == "cpu":
            raise AttributeError(
                "__cuda_array_interface__: need a tile on a GPU, got one on the CPU"
            )
        self._guard.check()
        shown = dict(self._unit.weight.__cuda_array_interface__)
        shown["data"] = (shown["data"][0], True)
        return shown


def _vector(
    tile: LinearMap, v: Array, n: int, name: str, product: Callable[[Array], Array]
) -> Array:
    array = _real(tile, v, name)
    if array.shape not in ((n,), (n, 1)):
        got = tuple(array.shape)
        raise ShapeError(f"{name}: got shape {got}, need ({n},) or ({n}, 1); use matmat for more")
    y = product(array.reshape(n, 1))
    return y.reshape(-1) if array.ndim == 1 else y


def _columns(tile: LinearMap, v: Array, n: int, name: str) -> Array:
    array = _real(tile, v, name)
    if array.ndim != 2 or array.shape[0] != n:
        raise ShapeError(f"{name}: got shape {tuple(array.shape)}, need ({n}, n_columns)")
    return array


def _real(tile: LinearMap, v: Array, name: str) -> Array:
    """Round real numbers, usually float64 of a solver, to the type of the tile."""
    known = v.__class__ is np.ndarray or _device.is_cupy(v)
    array = v if known else _device.any_array(v, None, name)
    if array.dtype.kind not in "biuf":
        raise DTypeError(f"{name}: got dtype {array.dtype}, need real numbers")
    if array.dtype == tile.dtype:
        return array
    with np.errstate(over="ignore"):  # an infinity raises below, or later on a GPU
        rounded = array.astype(tile.dtype)
    if isinstance(rounded, np.ndarray):
        lost = np.isinf(rounded) & np.isfinite(array)
        if lost.any():
            raise NonFiniteError(f"{name}: {array[lost][0]!r} is out of the range of {tile.dtype}")
    return rounded
