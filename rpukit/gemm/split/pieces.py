"""Pieces of matrices on several devices: copies and checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.errors import DeviceError, DTypeError, ShapeError
from rpukit.gemm import real
from rpukit.gemm._tiles.real_tiles import SEGMENT
from rpukit.gemm.formats import TENSOR, bits, format_of
from rpukit.gemm.split.chains import Chains

Array = Any

_GROUPS = 8  # groups of results that are on different devices at a time
_LEAST = 1024  # columns of a group, at least
_MOST_SEGMENTS = 4  # of a piece whose sums of segments are kept apart
_FULL = 1 << 22  # results whose tiles fill a GPU
_MANY_ROWS, _FEW_ROWS = 256, 32  # rows of a group, at least; each group reads the whole weight


def on(x: Array, device: _device.Device) -> Array:
    """Return an array, copied if it is on another device."""
    return x if _device.device_of(x) == device else _device.to_device(x, device)


def at(x: Array, start: int, stop: int, device: _device.Device) -> Array:
    """Return columns of an array on a device, C-contiguous."""
    with _device.using(_device.device_of(x)):
        return on(_device.namespace(x).ascontiguousarray(x[:, start:stop]), device)


def check_weights(weights: tuple[Array, ...], axis: int) -> None:
    """Raise for pieces of a weight that do not fit together along an axis."""
    if not weights:
        raise ShapeError("weights: got no piece, need one array for each device")
    for i, w in enumerate(weights):
        if not (isinstance(w, np.ndarray) or _device.is_cupy(w)):
            raise DTypeError(f"weights[{i}]: got {type(w).__name__}, need a NumPy or CuPy array")
        if w.ndim != 2 or w.shape[1 - axis] != weights[0].shape[1 - axis] or not w.shape[axis]:
            raise ShapeError(
                f"weights[{i}]: got shape {tuple(w.shape)} beside {tuple(weights[0].shape)}, need "
                f"pieces (n_out, n_in) with the same {'inputs' if axis == 0 else 'outputs'}"
            )
        if w.dtype != weights[0].dtype:
            raise DTypeError(f"weights[{i}]: got {w.dtype} beside {weights[0].dtype}")


def chained(
    lefts: Sequence[Array],
    rights: Sequence[Array],
    home: _device.Device,
    n: int,
    dtype: Any,
    *,
    trans_b: bool = False,
    segment: int = SEGMENT,
) -> Array:
    """Add products of pieces of a sum by chains that go on from device to device.

    Parameters
    ----------
    lefts : sequence of array, shape (m, k_i)
    rights : sequence of array, shape (k_i, n), or (n, k_i) with `trans_b`
        Each on the device of its left factor.
    home : Device
        Of the result.
    n : int
    dtype : dtype
        Of the result.
    trans_b : bool
    segment : int
        Terms after which a chain of float32 or float64 is restarted. Default: as `det_gemm`.

    Returns
    -------
    array, shape (m, n)
        The bits of the product of the joined factors. Where pieces begin with segments of the sum,
        all devices work at once; else it is made in groups of rows or columns, so that devices
        work on different groups at a time.
    """
    devices = [_device.device_of(b) for b in rights]
    m, kind = int(lefts[0].shape[0]), lefts[0].dtype
    if m and _by_segments(lefts, trans_b, segment):
        with _device.using(devices[-1]):
            made = _segments(lefts, rights, n, trans_b, segment).astype(dtype, copy=False)
        return on(made, home)
    # Results are copied in the end: after a copy the first device would wait for the last one.
    out = _device.empty((m, n), dtype, devices[-1])
    for rows, columns in _groups(m, n, devices, kind, trans_b):
        part = (rows.stop - rows.start, columns.stop - columns.start)
        restart = None if format_of(kind) in TENSOR else segment
        chains = Chains(part, kind, devices[0], restart)
        for a, b, device in zip(lefts, rights, devices, strict=True):
            chains = chains.to(device)
            with _device.using(device):
                chains.add(a[rows], b[columns] if trans_b else b[:, columns], trans_b=trans_b)
        with _device.using(devices[-1]):
            if part[1] == n:
                chains.result(out[rows])
                continue
            made = _device.empty(part, dtype, devices[-1])
            chains.result(made)
            words, own = (bits(v) if v.itemsize == 2 else v for v in (out[rows], made))
            words[:, columns] = own
    return on(out, home)


def _by_segments(lefts: Sequence[Array], trans_b: bool, segment: int) -> bool:
    """Whether devices can work at once: each piece begins with a segment, and has a few."""
    depths = [int(a.shape[1]) for a in lefts]
    if len(depths) == 1 or format_of(lefts[0].dtype) in TENSOR:
        return False
    most = segment * (1 if trans_b else _MOST_SEGMENTS)  # parts of (n, k) would be copied
    return not any(depth % segment for depth in depths[:-1]) and max(depths[1:]) <= most


def _segments(
    lefts: Sequence[Array], rights: Sequence[Array], n: int, trans_b: bool, segment: int
) -> Array:
    """Add products of pieces that begin with segments; the result is on the last device.

    The sum of each segment is apart; a device adds its own in their order when those before come.
    """
    m, made = int(lefts[0].shape[0]), []
    for number, (a, b) in enumerate(zip(lefts, rights, strict=True)):
        device, depth = _device.device_of(b), int(a.shape[1])
        step, sums = (segment if number else depth), []
        with _device.using(device):
            for first in range(0, depth, step):
                part = slice(first, min(depth, first + step))
                sums.append(_device.empty((m, n), a.dtype, device))
                right = b[:, part] if trans_b else b[part]
                real.product(a[:, part], right, sums[-1], False, trans_b, segment=segment)
        made.append((device, sums))
    total = made[0][1][0]
    for device, sums in made[1:]:
        total = on(total, device)
        with _device.using(device):
            for own in sums:
                total += own
    return total


def _groups(
    m: int, n: int, devices: Sequence[_device.Device], dtype: Any, trans_b: bool
) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of the results that are on one device at a time."""
    if len(set(devices)) == 1:
        yield slice(0, m), slice(0, n)
        return
    # Columns of a float32 or float64 factor (k, n) would have to be copied.
    in_place = trans_b or np.dtype(dtype).itemsize == 2
    if m >= _GROUPS * _MANY_ROWS or not in_place:
        few = _MANY_ROWS if in_place else _FEW_ROWS
        # Tiles of a group of 16-bit products have to fill a GPU; there are two groups, at least.
        full = min(_FULL // max(n, 1), m // 2) if np.dtype(dtype).itemsize == 2 else 0
        step = max(few, -(-m // _GROUPS), -(-full // few) * few)
        for first in range(0, m, step):
            yield slice(first, min(m, first + step)), slice(0, n)
        return
    step = max(_LEAST, -(-n // _GROUPS // 256) * 256)
    for first in range(0, n, step):
        yield slice(0, m), slice(first, min(n, first + step))


def joined(columns: Sequence[Array], n: int, home: _device.Device) -> Array:
    """Join columns of several devices to an array (n_row, n) on one."""
    out, first = _device.empty((columns[0].shape[0], n), columns[0].dtype, home), 0
    for piece in columns:
        put(out, first, piece, home)
        first += piece.shape[1]
    return out


def put(out: Array, first: int, piece: Array, home: _device.Device) -> None:
    """Copy columns into a result on another device."""
    with _device.using(home):
        put_columns(out, first, on(piece, home))


def put_columns(out: Array, first: int, part: Array) -> None:
    """Copy columns into an array of the same device, which is C-contiguous."""
    words, own = (bits(v) if v.itemsize == 2 else v for v in (out, part))
    step, n = 16 // words.itemsize, part.shape[1]  # numbers that are copied as one
    aligned = not (_device.address(words) % 16 or _device.address(own) % 16)
    whole = not (first % step or n % step or out.shape[1] % step) and own.flags.c_contiguous
    if words.size and whole and aligned:
        words, own = words.view(np.complex128), own.view(np.complex128)
        first, n = first // step, n // step
    words[:, first : first + n] = own


def check_input(x: Array, n: int, dtype: Any, name: str) -> None:
    """Raise for rows of another type or length."""
    if x.dtype != dtype:
        raise DTypeError(f"{name}: got dtype {x.dtype}, need {dtype}; use .astype")
    if x.ndim != 2 or x.shape[1] != n:
        raise ShapeError(f"{name}: got shape {tuple(x.shape)}, need (n_row, {n})")


def given_pieces(
    x: Sequence[Array],
    widths: Sequence[int],
    devices: Sequence[_device.Device],
    dtype: Any,
    name: str,
) -> list[Array]:
    """Check a list of one array for each device, with as many columns as ``widths`` says."""
    if len(x) != len(devices):
        raise ShapeError(
            f"{name}: got a list of {len(x)} arrays, need one for each of the {len(devices)} "
            "pieces; rows themselves are given as an array"
        )
    for i, (piece, width, device) in enumerate(zip(x, widths, devices, strict=True)):
        if not (isinstance(piece, np.ndarray) or _device.is_cupy(piece)):
            raise DTypeError(f"{name}[{i}]: got {type(piece).__name__}, need an array")
        check_input(piece, width, dtype, f"{name}[{i}]")
        if _device.device_of(piece) != device:
            got = _device.device_of(piece)
            raise DeviceError(f"{name}[{i}] is on {got}, need {device}: move it first")
        if piece.shape[0] != x[0].shape[0]:
            raise ShapeError(f"{name}[{i}]: got {piece.shape[0]} rows, need {x[0].shape[0]}")
    return list(x)
