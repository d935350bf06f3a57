"""Tensor maps: descriptors of matrices for the bulk copy engine (TMA) of Hopper and later GPUs.

The driver packs address, lengths, box and swizzle into 128 bytes, which a kernel takes by value.
CuPy has no binding of that function, so it is called in the driver's library.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import driver
from rpukit.errors import LaunchError

Array = Any

COLUMNS = 64  # of a box: 128 bytes, the widest swizzle
ALIGNMENT = 16  # bytes, of addresses and of rows
_MOST_ROWS = 256
_UINT16, _PROMOTE_128, _PROMOTE_256 = 1, 2, 3  # enumerations of cuda.h
_SWIZZLE = {8: 0, 16: 1, 32: 2, COLUMNS: 3}  # the same, by the columns of a box


def tensor_map(
    matrix: Array, box_rows: int, box_columns: int = COLUMNS, *, wide: bool = True
) -> np.ndarray:
    """Return the tensor map of a matrix of 16-bit elements that is copied in boxes.

    Parameters
    ----------
    matrix : array, shape (rows, columns), 16-bit
        Rows are contiguous and begin at multiples of 16 bytes.
    box_rows : int, 1 to 256
    box_columns : 8, 16, 32 or 64
    wide : bool
        Whether L2 fetches 256 bytes at a time rather than 128, a row of a box. This is faster for
        a matrix that is read once.

    Returns
    -------
    array, shape (1,), 128 bytes

    Raises
    ------
    LaunchError, DeviceError
    """
    rows, columns = matrix.shape
    pitch = int(matrix.strides[0])
    gpu = _device.is_cupy(matrix)
    address = int(matrix.data.ptr if gpu else matrix.ctypes.data)
    return _describe(address, rows, columns, pitch, (box_rows, box_columns), gpu, wide)


def fits(matrix: Array) -> bool:
    """Whether the copy engine takes a matrix as it lies in memory."""
    columns = matrix.shape[1]
    address = int(matrix.data.ptr if _device.is_cupy(matrix) else matrix.ctypes.data)
    pitch, step = matrix.strides
    return (
        bool(step == matrix.itemsize)
        and address % ALIGNMENT == 0
        and pitch % ALIGNMENT == 0
        and pitch >= columns * step
    )


@lru_cache(maxsize=4096)
def _describe(
    address: int,
    rows: int,
    columns: int,
    pitch: int,
    box: tuple[int, int],
    gpu: bool,
    wide: bool,
) -> np.ndarray:
    if not (rows > 0 and columns > 0 and 1 <= box[0] <= _MOST_ROWS and box[1] in _SWIZZLE):
        raise LaunchError(
            f"tensor map: got {rows} x {columns}, boxes of {box[0]} rows and {box[1]} columns"
        )
    if address % ALIGNMENT or pitch % ALIGNMENT or pitch < 2 * columns:
        raise LaunchError(
            f"tensor map: address {address:#x} and rows of {pitch} bytes have to be multiples of "
            f"{ALIGNMENT} bytes, rows at least {2 * columns}"
        )
    room = np.zeros(192, np.uint8)
    start = -room.ctypes.data % 64  # the driver requires 64-byte alignment
    words = room[start : start + 128]
    if gpu:
        _encode(words, address, rows, columns, pitch, box, wide)
    else:
        words.view(np.uint64)[:6] = address, columns, rows, pitch, box[1], box[0]
    return words.view("V128")


def _encode(
    words: np.ndarray,
    address: int,
    rows: int,
    columns: int,
    pitch: int,
    box: tuple[int, int],
    wide: bool,
) -> None:
    u32, u64 = ctypes.c_uint32, ctypes.c_uint64
    code = driver.library().cuTensorMapEncodeTiled(
        ctypes.c_void_p(words.ctypes.data),
        ctypes.c_int(_UINT16),
        u32(2),
        ctypes.c_void_p(address),
        (u64 * 2)(columns, rows),
        (u64 * 1)(pitch),
        (u32 * 2)(box[1], box[0]),
        (u32 * 2)(1, 1),
        ctypes.c_int(0),
        ctypes.c_int(_SWIZZLE[box[1]]),
        ctypes.c_int(_PROMOTE_256 if wide else _PROMOTE_128),
        ctypes.c_int(0),
    )
    if code:
        raise LaunchError(
            f"tensor map: the driver refused {rows} x {columns}, rows of {pitch} bytes, boxes of "
            f"{box[0]} rows and {box[1]} columns, with error {code}"
        )
