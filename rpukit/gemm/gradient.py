"""Weight gradients accumulated over pieces of a batch, in any layout, with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import any_type, check_shape, integers, need_memory, shown
from rpukit._kernels.calls import CallState, changes, exclusive
from rpukit.errors import DeviceError, DTypeError, ParameterError, ShapeError
from rpukit.gemm import tensor
from rpukit.gemm.formats import TENSOR, arithmetic, bits, format_of
from rpukit.gemm.split.chains import STEP, Chains

Array = Any


class WeightGradient:
    """Weight gradient ``a.T @ dc``, accumulated over rows that arrive in pieces.

    The bits do not depend on how the rows were split: they are those of
    ``det_gemm(a, dc, trans_a=True)`` of all rows at once.

    Parameters
    ----------
    shape : (int, int)
        (k, n): columns of `a` and of `dc`.
    dtype : dtype
        Of `a` and `dc`: float16, ml_dtypes.bfloat16, or uint16 for the bits of bfloat16.
    device : str or Device

    Attributes
    ----------
    n_rows : int
        Rows that were added.

    Raises
    ------
    ShapeError, DTypeError, DeviceError

    Notes
    -----
    Row r belongs to step r // 16 of a chain, which begins anew at every multiple of 4096; up to
    15 rows wait for their step. Kernel: kernels_cu/det_gemm_tensor.cu.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> a = np.arange(60, dtype=np.float16).reshape(20, 3) / 7
    >>> dc = a[:, ::-1] / 3
    >>> gradient = rk.gemm.WeightGradient((3, 3), np.float16)
    >>> for rows in (slice(0, 7), slice(7, 18), slice(18, 20)):
    ...     gradient.add(a[rows], dc[rows])
    >>> bool((gradient.result() == rk.det_gemm(a, dc, trans_a=True)).all())
    True
    """

    def __init__(
        self, shape: tuple[int, int], dtype: Any, device: str | _device.Device = "cpu"
    ) -> None:
        shape = check_shape(shape, "(k, n)")
        need_memory(8 * shape[0] * shape[1], f"the gradient of shape {shape}")
        self._device = _device.parse_device(device)
        arithmetic(dtype, self._device)
        if format_of(dtype) not in TENSOR:
            raise DTypeError(f"dtype: got {np.dtype(dtype)}, need a 16-bit float")
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._chains = Chains(self.shape, self.dtype, self._device)
        waiting = (tensor.aligned((STEP, c), np.uint16, self._device) for c in self.shape)
        self._waiting_a, self._waiting_dc = waiting
        self.n_rows = 0
        self._call_state = CallState()

    @changes
    def add(
        self,
        a: Array,
        dc: Array,
        *,
        cu_seqlens: Any = None,
        keys: tuple[Any, Any] | None = None,
    ) -> None:
        """Append rows to the sum.

        Parameters
        ----------
        a : array, shape (rows, k)
        dc : array, shape (rows, n)
        cu_seqlens : array of int, shape (n_sequence + 1,), optional
            Where the sequences of packed rows begin and end; rows outside are left out.
        keys : (array of int, array of int), each of shape (rows,), optional
            Sequence and position of each row; a negative sequence marks padding, which is left
            out whatever it holds. Calls with the same keyed rows add the same bits, however the
            rows are laid out: they are taken by (sequence, position), and each sequence ends with
            zero rows up to a multiple of 16.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError
        """
        self._check(a, dc)
        if cu_seqlens is not None or keys is not None:
            source, place, n_rows = _canonical(a.shape[0], cu_seqlens, keys)
            a, dc = (self._packed(x, source, place, n_rows) for x in (a, dc))
        self._call_state.changing()
        self._add(bits(a), bits(dc))

    @exclusive
    def result(self, out_dtype: Any = None) -> Array:
        """Return the gradient of all rows so far; the state does not change.

        Parameters
        ----------
        out_dtype : dtype, optional
            float32 for the unrounded sum. Default: the type of the rows.

        Returns
        -------
        array, shape (k, n)

        Raises
        ------
        DTypeError
        """
        dtype = self.dtype if out_dtype is None else any_type(out_dtype, "out_dtype")
        if dtype not in (self.dtype, np.dtype(np.float32)):
            raise DTypeError(f"out_dtype: got {dtype}, need {self.dtype} or float32")
        out = _device.empty(self.shape, dtype, self._device)
        self._chains.result(out, self._rows_waiting() if self._n_waiting else None)
        return out

    @property
    def _n_waiting(self) -> int:
        return self.n_rows % STEP

    def _rows_waiting(self) -> tuple[Array, Array]:
        """Return the rows that wait for their step."""
        n_row, (k, n) = self._n_waiting, self.shape
        return self._waiting_a[:n_row, :k], self._waiting_dc[:n_row, :n]

    def _add(self, a: Array, dc: Array) -> None:
        used, n_row = 0, a.shape[0]
        k, n = self.shape
        wait = self._n_waiting
        if wait and n_row:
            used = min(STEP - wait, n_row)
            self._waiting_a[wait : wait + used, :k] = a[:used]
            self._waiting_dc[wait : wait + used, :n] = dc[:used]
            if wait + used == STEP:
                self._chains.add(self._waiting_a[:, :k], self._waiting_dc[:, :n], trans_a=True)
        whole = used + (n_row - used) // STEP * STEP
        if whole > used:
            self._chains.add(a[used:whole], dc[used:whole], trans_a=True)
        if whole < n_row:
            self._waiting_a[: n_row - whole, :k] = a[whole:]
            self._waiting_dc[: n_row - whole, :n] = dc[whole:]
        self.n_rows += n_row

    def _check(self, a: Array, dc: Array) -> None:
        for name, x, columns in (("a", a, self.shape[0]), ("dc", dc, self.shape[1])):
            if not (isinstance(x, np.ndarray) or _device.is_cupy(x)) or x.dtype != self.dtype:
                got = getattr(x, "dtype", type(x).__name__)
                raise DTypeError(f"{name}: got {got}, need an array of {self.dtype}")
            if x.ndim != 2 or x.shape[1] != columns or x.shape[0] != a.shape[0]:
                raise ShapeError(f"{name}: got {x.shape}, need ({a.shape[0]}, {columns})")
            if _device.device_of(x) != self._device:
                raise DeviceError(
                    f"{name} is on {_device.device_of(x)}, the gradient on {self._device}"
                )

    def _packed(self, x: Array, source: np.ndarray, place: np.ndarray, n_rows: int) -> Array:
        xp = _device.namespace(x)
        packed = _device.zeros((n_rows, x.shape[1]), np.uint16, self._device)
        packed[xp.asarray(place)] = bits(x)[xp.asarray(source)]
        return packed


def _whole(values: Any, name: str) -> np.ndarray:
    if _device.speaks_of_memory(values):
        values = _device.to_numpy(_device.any_array(values, None, name))
    return integers(values, name)


def _canonical(
    n_rows: int, cu_seqlens: Any, keys: tuple[Any, Any] | None
) -> tuple[np.ndarray, np.ndarray, int]:
    """Sort rows into canonical order: source indices, positions and number of positions."""
    if keys is not None:
        if cu_seqlens is not None:
            raise ParameterError("got both cu_seqlens and keys: give one of them")
        if not isinstance(keys, (tuple, list)) or len(keys) != 2:
            raise ParameterError(f"keys: got {shown(keys)}, need a pair: sequences, positions")
        sequence, position = (_whole(v, "keys") for v in keys)
        for name, v in (("sequences", sequence), ("positions", position)):
            if v.shape != (n_rows,) or v.dtype.kind not in "iu":
                raise ShapeError(
                    f"keys: got {name} {v.dtype}{list(v.shape)}, need integers [{n_rows}]"
                )
    else:
        edges = _whole(cu_seqlens, "cu_seqlens")
        rising = edges.ndim == 1 and edges.size > 0 and edges.dtype.kind in "iu"
        if not rising or edges[0] < 0 or edges[-1] > n_rows or (np.diff(edges) < 0).any():
            raise ParameterError(
                f"cu_seqlens: got {edges.tolist()}, need ascending integers from 0 to {n_rows}"
            )
        position = np.arange(n_rows)
        sequence = np.searchsorted(edges, position, side="right") - 1
        sequence[position >= edges[-1]] = -1
    order = np.lexsort((position, sequence))
    source = order[sequence[order] >= 0]
    ids, ranks = sequence[source], position[source]
    if ((np.diff(ids) == 0) & (np.diff(ranks) == 0)).any():
        raise ParameterError("keys: two rows have the same sequence and position")
    first = np.flatnonzero(np.diff(ids, prepend=-1))  # where each sequence begins
    lengths = np.diff(first, append=source.size)
    room = -(-lengths // STEP) * STEP
    starts = np.cumsum(room) - room
    place = np.arange(source.size) - np.repeat(first, lengths) + np.repeat(starts, lengths)
    return source, place, int(np.add.reduce(room))
