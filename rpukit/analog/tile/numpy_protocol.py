"""NumPy functions on tiles: products run on the tile, conversions read weights, others raise.

NumPy asks `__array_function__` (``np.dot``, ``np.einsum``) and `__array_ufunc__` (``np.matmul``)
before it would convert a tile to an array of its exact weights. Functions that NumPy does not
dispatch (``np.asarray``, ``np.array``) read the weights by ``__array__``.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.errors import DTypeError, ShapeError

Array = Any


class _UfuncHook:
    """Descriptor of ``__array_ufunc__``: a function for NumPy, None for CuPy.

    NumPy looks it up on the class and finds the function. CuPy looks it up on the object, where
    None leaves ``array @ tile`` to the tile's own operator.
    """

    def __get__(self, tile: Any, owner: type) -> Any:
        return _array_ufunc if tile is None else None


class NumPyProtocol:
    """Mixin of tiles and of their transposed views: NumPy's operators and functions.

    A class that uses it defines `shape`, `dtype`, `T`, ``__array__``, ``__rmatmul__`` (the product
    of rows with the tile) and, unless its `T` is a tile that does, ``_device``.
    """

    shape: tuple[int, int]
    dtype: Any
    T: Any

    __array_ufunc__: Any = _UfuncHook()

    @property
    def ndim(self) -> int:
        """Number of axes: 2."""
        return 2

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.shape[0] * self.shape[1]

    def __matmul__(self, b: Array) -> Array:
        """``tile @ b``: the product of the tile with a vector, or with columns of samples."""
        return _matmul(self, b)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        if func in _ATTRIBUTES and not kwargs and len(args) == 1:
            return getattr(args[0], _ATTRIBUTES[func])
        if func in _READS:
            plain = [_plain(a) for a in args]
            return func(*plain, **{name: _plain(a) for name, a in kwargs.items()})
        product = _PRODUCTS.get(func)
        if product is None:
            raise _refused(func.__name__)
        return product(*args, **{k: v for k, v in kwargs.items() if k not in ("out", "optimize")})


def _array_ufunc(tile: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    if method == "__call__" and not kwargs:
        product = _UFUNCS.get(ufunc.__name__)
        if product is not None:
            return product(*inputs)
        if ufunc.__name__ in _COMPARISONS:
            return ufunc(*(_plain(a) for a in inputs))
    raise _refused(ufunc.__name__)


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, NumPyProtocol) else value


def _refused(name: str) -> DTypeError:
    return DTypeError(
        f"np.{name}: not defined for tiles, which only multiply (@, np.dot, np.matmul, np.inner, "
        "np.tensordot, np.einsum of two operands); np.asarray(tile) reads the exact weights"
    )


# ---- products ---------------------------------------------------------------------------------


def _pair(a: Any, b: Any, name: str) -> tuple[Any, Array, bool]:
    """Return the tile of a pair, the other operand as an array, and whether the tile is first."""
    first = isinstance(a, NumPyProtocol)
    if first and isinstance(b, NumPyProtocol):
        raise DTypeError(
            f"np.{name}: got two tiles, need one tile and an array; np.asarray(tile) makes one"
        )
    tile, other = (a, b) if first else (b, a)
    owner = tile if hasattr(tile, "_device") else tile.T
    array = _device.as_array(other, owner._device, tile.dtype, "operand")
    if array.ndim == 0:
        raise ShapeError(f"np.{name} of a tile: got a scalar, need an array of one axis or more")
    return tile, array, first


def _contract(tile: Any, axis: int, v: Array, v_axis: int) -> Array:
    """Sum over an axis of the tile and one of v; the tile's other axis comes last."""
    xp = _device.namespace(v)
    return (tile if axis == 0 else tile.T).__rmatmul__(xp.moveaxis(v, v_axis, -1))


def _matmul(a: Any, b: Any) -> Array:
    if type(a) is np.ndarray and a.ndim:  # rows @ tile, the usual order: checked by the product
        return b.__rmatmul__(a)
    tile, v, first = _pair(a, b, "matmul")
    if not first:
        return _contract(tile, 0, v, -1)
    if v.ndim == 1:
        return _contract(tile, 1, v, 0)
    return _contract(tile, 1, v, -2).swapaxes(-1, -2)


def _dot(a: Any, b: Any) -> Array:
    tile, v, first = _pair(a, b, "dot")
    if not first or v.ndim < 3:
        return _matmul(tile, v) if first else _contract(tile, 0, v, -1)
    return _device.namespace(v).moveaxis(_contract(tile, 1, v, -2), -1, 0)


def _inner(a: Any, b: Any) -> Array:
    tile, v, first = _pair(a, b, "inner")
    y = _contract(tile, 1, v, -1)
    return _device.namespace(y).moveaxis(y, -1, 0) if first else y


def _vdot(a: Any, b: Any) -> Array:
    tile, v, _ = _pair(a, b, "vdot")
    if 1 not in tile.shape:
        raise _refused("vdot")
    return _contract(tile, int(tile.shape[0] == 1), v.reshape(-1), 0)[0]


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    tile, v, first = _pair(a, b, "tensordot")
    if isinstance(axes, (int, np.integer)):
        pairs = [(-1, 0)] if axes == 1 else []
    else:
        of_a, of_b = (np.atleast_1d(ends).tolist() for ends in axes)
        pairs = list(zip(of_a, of_b, strict=True))
    if len(pairs) != 1:
        raise DTypeError(
            f"np.tensordot of a tile: got axes={axes!r}, need one axis of each operand; "
            "np.asarray(tile) reads the exact weights"
        )
    mine, other = pairs[0] if first else pairs[0][::-1]
    y = _contract(tile, mine % 2, v, other)
    return _device.namespace(y).moveaxis(y, -1, 0) if first else y


def _einsum(*args: Any) -> Array:
    if len(args) != 3 or not isinstance(args[0], str):
        raise _refused("einsum")
    subscripts = args[0].replace(" ", "")
    tile, v, first = _pair(*args[1:], "einsum")
    inputs, arrow, out = subscripts.partition("->")
    mine, other = inputs.split(",") if first else inputs.split(",")[::-1]
    unused = [c for c in string.ascii_letters if c not in subscripts]
    more = "".join(unused[: max(v.ndim - len(other.replace("...", "")), 0)])
    other = other.replace("...", more)
    if not arrow:
        both = mine + other
        out = "..." + "".join(sorted(c for c in both if both.count(c) == 1 and c not in more))
    out = out.replace("...", more)
    shared = set(mine) & set(other)
    rest = "".join(c for c in other if c not in shared)
    free = "".join(c for c in mine if c not in shared)
    fits = len(mine) == 2 and len(set(other)) == len(other) == v.ndim and len(shared) == 1
    if not fits or sorted(out) != sorted(rest + free):
        raise DTypeError(
            f"np.einsum of a tile: got {args[0]!r}, need two operands that share one index, which "
            "is summed over; np.asarray(tile) reads the exact weights"
        )
    (index,) = shared
    y = _contract(tile, mine.index(index), v, other.index(index))
    have = rest + free
    return y.transpose([have.index(c) for c in out])


def _matvec(a: Any, b: Any) -> Array:
    tile, v, first = _pair(a, b, "matvec")
    if not first:
        raise _refused("matvec")
    return _contract(tile, 1, v, -1)


def _vecmat(a: Any, b: Any) -> Array:
    tile, v, first = _pair(a, b, "vecmat")
    if first:
        raise _refused("vecmat")
    return _contract(tile, 0, v, -1)


_ATTRIBUTES = {np.shape: "shape", np.ndim: "ndim", np.size: "size"}
_READS = {
    np.allclose,
    np.array2string,
    np.array_equal,
    np.array_equiv,
    np.array_repr,
    np.array_str,
    np.copy,
    np.iscomplexobj,
    np.isclose,
    np.isrealobj,
    np.result_type,
    np.shape,
    np.size,
}
_PRODUCTS: dict[Any, Callable[..., Array]] = {
    np.dot: _dot,
    np.einsum: _einsum,
    np.inner: _inner,
    np.linalg.matmul: _matmul,
    np.linalg.tensordot: _tensordot,
    np.tensordot: _tensordot,
    np.vdot: _vdot,
}
_UFUNCS = {"matmul": _matmul, "matvec": _matvec, "vecmat": _vecmat}
_COMPARISONS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
