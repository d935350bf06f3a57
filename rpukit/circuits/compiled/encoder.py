"""Checks of samples, and their encoding for tables and densities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact.twins import mirror, real
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.compiled.frames import is_frame, numbers_of
from rpukit.circuits.compiled.layout import Layout
from rpukit.errors import DTypeError, NonFiniteError, ParameterError, ShapeError

__all__ = ["Encoder", "encode_samples", "taken"]

Array = Any
Part = tuple[slice, Array, Array]

_EVERY = 1 << 62
_ENCODE_SAMPLES = Kernel("encode_samples")
_MOST_BLOCKS = 4096
_TYPES = {
    np.dtype(np.int8): "signed char",
    np.dtype(np.uint8): "unsigned char",
    np.dtype(np.int16): "short",
    np.dtype(np.uint16): "unsigned short",
    np.dtype(np.int32): "int",
    np.dtype(np.uint32): "u32",
    np.dtype(np.int64): "i64",
    np.dtype(np.uint64): "u64",
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
}


class Encoder:
    """Encoder of data: codes for tables (-1 missing), numbers for densities (NaN missing).

    Parameters
    ----------
    layout : Layout
    dtype : dtype
        Of numbers.
    device : Device
    """

    def __init__(self, layout: Layout, dtype: Any, device: _device.Device) -> None:
        self._columns, self._dtype, self._device = layout.columns, dtype, device
        self._n_root = layout.root_rows.size
        support, table, number, count = layout.columns
        traits = table + 2 * number + 4 * count
        self._support, self._traits = (
            _device.to_device(a, device, np.int32) for a in (support, traits)
        )
        self._fault = _device.zeros((1,), np.int32, device)
        self._domain = _Domain(layout, device)

    def __call__(self, x: Any, missing: Any) -> tuple[Array, Array]:
        """Return codes and numbers."""
        _, given = self.parts(x, missing, _EVERY)
        _, codes, numbers = next(given)
        return codes, numbers

    def parts(self, x: Any, missing: Any, step: int) -> tuple[int, Iterator[Part]]:
        """Return the number of samples, and codes and numbers of up to ``step`` at a time.

        All samples are checked first. On a GPU each part overwrites the one before.
        """
        array, unknown = self._checked(x, missing)
        n = len(array)
        most = min(step, n) if _device.takes_kernels(self._fault) else n
        shape = (most, array.shape[1])
        codes = _device.empty(shape, np.int32, self._device)
        numbers = _device.empty(shape, self._dtype, self._device)

        def read(first: int) -> None:
            part = slice(first, first + most)
            mask = unknown if unknown is None or len(unknown) < n else unknown[part]
            some = array[part]
            self._encode(some, mask, codes[: len(some)], numbers[: len(some)])

        def given() -> Iterator[Part]:
            for first in range(0, n, step):
                part = slice(first, min(first + step, n))
                if most < n:
                    read(first)
                here = slice(0, part.stop - first) if most < n else part
                yield part, codes[here], numbers[here]

        for first in range(0, n, most):
            read(first)
        if self._found():
            raise self._wrong(array, unknown)
        return n, given()

    def into(self, x: Any, missing: Any, codes: Array, numbers: Array) -> None:
        """Encode into given arrays; `check` reports wrong values later."""
        array, unknown = self._checked(x, missing)
        if array.shape != codes.shape:
            raise ShapeError(
                f"x: got {len(array)} samples, this step was captured for {len(codes)}"
            )
        self._encode(array, unknown, codes, numbers)

    def _encode(self, x: Array, unknown: Array | None, codes: Array, numbers: Array) -> None:
        tables = (self._support, self._traits)
        encode_samples(x, unknown, *tables, codes, numbers, self._fault)
        self._domain.check(numbers, self._fault)

    def check(self) -> None:
        """Synchronise, and raise if a value since the last check was wrong."""
        if self._found():
            raise ParameterError(
                "x: an earlier call had infinity, or values outside their leaves' support, which "
                'counted as missing; give validate="sync" to find them at once'
            )

    def _found(self) -> bool:
        found = bool(_device.to_numpy(self._fault)[0])
        if found:
            self._fault.fill(0)
        return found

    def weights(self, weights: Any, n: int) -> Array:
        """Check weights of n samples; give flows of the roots (n, n_root)."""
        shape, xp = (n, self._n_root), _device.namespace_of(self._device)
        if weights is None:
            return xp.ones(shape, self._dtype)
        array = _device.as_array(weights, self._device, self._dtype, "weights")
        if array.shape == (n,):
            array = xp.repeat(array[:, None], self._n_root, axis=1)
        if array.shape != shape:
            raise ShapeError(f"weights: got shape {array.shape}, need {(n,)} or {shape}")
        if not xp.isfinite(array).all() or array.min() < 0:
            raise ParameterError(
                "weights: got NaN, infinity or a negative number, need finite ones from 0"
            )
        return array

    def _checked(self, x: Any, missing: Any) -> tuple[Array, Array | None]:
        array, n_variable = taken(x, self._device, "x"), len(self._columns[0])
        if array.dtype.kind not in "iubf":
            raise DTypeError(
                f"x: got {type(x).__name__} of dtype {array.dtype}, need an array of integers or "
                "floats"
            )
        if array.ndim == 1 and (n_variable > 1 or array.size == 1):
            array = array[None, :]
        if array.ndim != 2 or array.shape[1] != n_variable or not len(array):
            raise ShapeError(
                f"x: got shape {np.shape(x)}, need (n_sample, {n_variable}), n_sample from 1"
            )
        if array.dtype.kind == "b":
            array = array.view(np.uint8)
        elif array.dtype not in _TYPES:
            array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
        if missing is None:
            return array, None
        mask = taken(missing, self._device, "missing")
        if mask.dtype != bool or mask.shape not in (array.shape, array.shape[1:]):
            raise ShapeError(
                f"missing: got {mask.dtype} of shape {mask.shape}, need bool of shape "
                f"{array.shape} or {array.shape[1:]}"
            )
        return array, mask.reshape(-1, n_variable)

    def _wrong(self, array: Array, unknown: Array | None) -> Exception:
        """Make the error that describes wrong data."""
        array = _device.to_numpy(array)
        support, table, _, count = self._columns
        if array.dtype.kind == "f" and np.isinf(array).any():
            var = _column(np.isinf(array))
            return NonFiniteError(f"x: variable {var} holds infinity, need finite numbers or NaN")
        known = ~np.isnan(array) if array.dtype.kind == "f" else np.ones(array.shape, bool)
        if unknown is not None:
            known &= ~_device.to_numpy(unknown)
        with np.errstate(invalid="ignore"):  # too large numbers overflow, and then differ
            whole = np.where(known & table, array, 0).astype(np.int64)
        wrong = known & table & (whole != array)
        if wrong.any():
            var = _column(wrong)
            given = array[wrong[:, var], var][0]
            return ParameterError(
                f"x: variable {var} takes 0 to {support[var] - 1}, got the fraction {given}"
            )
        wrong = known & table & ((whole < 0) | (whole >= support))
        if wrong.any():
            var = _column(wrong)
            given = whole[known[:, var], var]
            return ParameterError(
                f"x: variable {var} takes 0 to {support[var] - 1}, got {given.min()} to "
                f"{given.max()}"
            )
        wrong = known & count & ((array < 0) | (array != np.floor(array)))
        if wrong.any():
            var = _column(wrong)
            given = array[wrong[:, var], var][0]
            return ParameterError(f"x: variable {var} counts, got {given}, need integers from 0")
        self._domain.raise_on(array, known)
        largest = np.finfo(self._dtype).max
        var = _column(known & (np.abs(array) > largest))
        return NonFiniteError(
            f"x: variable {var} exceeds {largest:g}, the largest number of {self._dtype}; scale "
            'it, or make the circuit with dtype="float64"'
        )


class _Domain:
    """Least and largest values of variables whose leaves are evaluated by functions.

    Leaves of one variable may differ; it takes what one of them takes.

    Parameters
    ----------
    layout : Layout
    device : Device
    """

    def __init__(self, layout: Layout, device: _device.Device) -> None:
        hull: dict[int, tuple[float, float]] = {}
        for nodes in layout.inputs:
            low, high = nodes.leaf.DOMAIN
            for var in nodes.columns:
                least, most = hull.get(var, (low, high))
                hull[var] = min(low, least), max(high, most)
        found = sorted(v for v, ends in hull.items() if np.isfinite(ends).any())
        self._host = [np.array([hull[v][k] for v in found]) for k in range(2)]
        self._variables = np.array(found, np.int64)
        if found:
            arrays = (self._variables, *self._host)
            self._columns, self._low, self._high = (_device.to_device(a, device) for a in arrays)

    def check(self, numbers: Array, fault: Array) -> None:
        """Make numbers outside missing, and set ``fault`` to 1."""
        if not len(self._variables):
            return
        xp, some = _device.namespace(numbers), numbers[:, self._columns]
        wrong = (some < self._low) | (some > self._high)
        numbers[:, self._columns] = xp.where(wrong, np.nan, some)
        xp.maximum(fault, wrong.any().astype(np.int32), out=fault)

    def raise_on(self, array: Array, known: Array) -> None:
        """Raise an error that names the first variable with a known value outside."""
        for v, low, high in zip(self._variables, *self._host, strict=True):
            wrong = known[:, v] & ((array[:, v] < low) | (array[:, v] > high))
            if wrong.any():
                ends = "positive numbers" if low == 5e-324 else f"numbers from {low:g}"
                ends += f" to {high:g}" if high < np.inf else ""
                raise ParameterError(f"x: variable {v} takes {ends}, got {array[wrong, v][0]}")


def encode_samples(
    x: Array,
    unknown: Array | None,
    support: Array,
    traits: Array,
    codes: Array,
    numbers: Array,
    fault: Array,
) -> None:
    """Encode samples x as codes and numbers; ``fault`` becomes 1 if a value is wrong."""
    if not _device.takes_kernels(numbers):
        mask = np.empty((0, x.shape[1]), bool) if unknown is None else unknown
        given = (a if a.flags.carray else np.array(a, order="C") for a in (x, mask))
        args = (
            *given,
            support,
            traits,
            codes,
            numbers,
            fault,
        )  # Numba compiles once per layout of memory
        go = mirror("rpukit.circuits._mirror.data", numbers.dtype).encode_samples
        run_rows(go, len(x), *args, grain=work_grain(5 * x.shape[1]))
        return
    xp = _device.namespace(x)
    x, mask, n_mask = xp.ascontiguousarray(x), None, 0
    if unknown is not None:
        mask, n_mask = xp.ascontiguousarray(unknown).view(np.uint8), len(unknown)
    whole = int(x.dtype.kind in "iu")
    macros = {"REAL": real(numbers.dtype), "IN": _TYPES[x.dtype], "WHOLE": whole}
    args = (*x.shape, n_mask, support, traits, x, mask, codes, numbers, fault)
    grid = min(-(-x.size // 256), _MOST_BLOCKS)
    _ENCODE_SAMPLES.launch((grid,), (256,), args, macros=macros)


def _column(wrong: Array) -> int:
    """Find the first variable with a wrong value."""
    return int(wrong.any(axis=0).argmax())


def taken(x: Any, device: _device.Device, name: str) -> Array:
    """Return an array of the circuit's device as it is; copy lists there."""
    if not (isinstance(x, np.ndarray) or _device.is_cupy(x)):
        if _device.speaks_of_memory(x):
            return _device.imported(x, device, name)
        x = numbers_of(x) if is_frame(x) else x
        return _device.to_device(_device.listed(x, name), device)
    return _device.as_array(x, device, x.dtype, name)
