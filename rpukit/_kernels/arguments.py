"""Check the arguments of a launch against the signature in the ``.cu``.

CuPy checks nothing: it passes a Python float as a double, an int as a long long, and an array as
its address. Here the declared types decide, and an error names kernel, parameter, what it got and
needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.source import Parameter
from rpukit.errors import LaunchError

CTYPES = {
    "signed char": np.int8,
    "i8": np.int8,
    "unsigned char": np.uint8,
    "short": np.int16,
    "unsigned short": np.uint16,
    "u16": np.uint16,
    "int": np.int32,
    "unsigned": np.uint32,
    "unsigned int": np.uint32,
    "u32": np.uint32,
    "long long": np.int64,
    "i64": np.int64,
    "unsigned long long": np.uint64,
    "u64": np.uint64,
    "float": np.float32,
    "double": np.float64,
}
TENSOR_MAP = "RkTensorMap"  # 128 bytes, by value; see tensor_map.py
_MOST_KNOWN = 256
_MAX_THREADS = 1024
_MAX_BLOCK = (1024, 1024, 64)
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_SHARED = 227 * 1024  # of the largest architectures; the driver enforces smaller limits

Check = Callable[..., tuple[Any, ...]]


def checker(
    entry: str, parameters: Sequence[tuple[Parameter, str]], gpu_array: type | None
) -> Check:
    """Generate the function that checks a launch's arguments and casts them to the C types.

    Its source is generated for the signature, since a launch costs microseconds and a call for
    each argument would double that. One line tests whether an argument has its usual type, and
    leaves other cases to the functions below. ``gpu_array`` is CuPy's array class; with None the
    function checks arguments for the CPU.
    """
    names = [f"a{i}" for i in range(len(parameters))]
    scope: dict[str, Any] = {"gpu_array": gpu_array}
    lines = [f"def check({', '.join(names)}):"]
    for i, (parameter, ctype) in enumerate(parameters):
        where = f"{entry}: parameter {parameter.name}"
        if ctype == TENSOR_MAP and not parameter.pointer:
            scope[f"other{i}"] = _tensor_map(where)
            lines.append(f"    a{i} = other{i}(a{i})")
            continue
        if ctype not in CTYPES:
            raise LaunchError(f"{where}: its type {ctype!r} is not one of {', '.join(CTYPES)}")
        kind = scope[f"kind{i}"] = CTYPES[ctype]
        if parameter.pointer:
            scope[f"dtype{i}"] = np.dtype(kind)
            scope[f"other{i}"] = _array(where, np.dtype(kind), gpu_array is not None)
            usual = f"a{i} is None"  # a null pointer
            if gpu_array is not None:
                usual += f" or a{i}.__class__ is gpu_array and a{i}.dtype is dtype{i}"
                usual = f"({usual} and a{i}._c_contiguous)"
            lines.append(f"    if not {usual}: a{i} = other{i}(a{i})")
        else:
            scope[f"other{i}"] = _scalar(where, np.dtype(kind))
            lines.append(f"    if a{i}.__class__ is not kind{i}:")
            if np.dtype(kind).kind == "f":
                low, high = _limits(np.dtype(kind))
                plain = f"a{i}.__class__ is float and {low!r} <= a{i} <= {high!r}"
                lines.append(f"        a{i} = kind{i}(a{i}) if {plain} else other{i}(a{i})")
            else:  # sizes recur: a look-up is cheaper than a new NumPy scalar
                scope[f"known{i}"] = _Known(scope[f"other{i}"])
                again = f"known{i}[a{i}] if a{i}.__class__ is int else other{i}(a{i})"
                lines.append(f"        a{i} = {again}")
    lines.append(f"    return ({''.join(f'{name}, ' for name in names)})")
    exec("\n".join(lines), scope)
    check: Check = scope["check"]
    return check


def _array(where: str, dtype: np.dtype[Any], gpu: bool) -> Callable[[Any], Any]:
    need = f"need a C-contiguous {dtype} array on {'a GPU' if gpu else 'the CPU'}, or None"

    def take(a: Any) -> Any:
        if not (isinstance(a, np.ndarray) or _device.is_cupy(a)):
            raise LaunchError(f"{where}: got {type(a).__name__}, {need}")
        wrong = [
            f"of {a.dtype}" if a.dtype != dtype else "",
            "not C-contiguous" if not a.flags.c_contiguous else "",
            f"on {_device.device_of(a)}" if _device.is_cupy(a) != gpu else "",
        ]
        if any(wrong):
            shape = "x".join(map(str, a.shape)) or "()"
            raise LaunchError(
                f"{where}: got a {shape} array {', '.join(filter(None, wrong))}; {need}"
            )
        return a

    return take


def _tensor_map(where: str) -> Callable[[Any], Any]:
    def take(a: Any) -> Any:
        if not (isinstance(a, np.ndarray) and a.size == 1 and a.dtype == np.dtype("V128")):
            raise LaunchError(f"{where}: got {type(a).__name__}, need what tensor_map returns")
        return a

    return take


class _Known(dict[int, Any]):
    """Bounded cache of integers that were cast before."""

    def __init__(self, cast: Callable[[Any], Any]) -> None:
        super().__init__()
        self._cast = cast

    def __missing__(self, a: int) -> Any:
        ready = self._cast(a)
        if len(self) < _MOST_KNOWN:
            self[a] = ready
        return ready


def _limits(dtype: np.dtype[Any]) -> tuple[float, float] | tuple[int, int]:
    if dtype.kind == "f":
        return float(np.finfo(dtype).min), float(np.finfo(dtype).max)
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def _scalar(where: str, dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    low, high = _limits(dtype)
    whole = dtype.kind != "f"
    taken = (int, np.integer, np.bool_) if whole else (int, np.integer, float, np.floating)

    def take(a: Any) -> Any:
        if not isinstance(a, taken):
            raise LaunchError(f"{where}: got {a!r}, need {'an integer' if whole else 'a number'}")
        number: Any = int(a) if whole else a
        if not low <= number <= high and number - number == 0:  # NaN and infinity pass
            raise LaunchError(f"{where}: got {a}, need a number in [{low}, {high}]")
        return dtype.type(number)

    return take


def pack(a: Any) -> np.ndarray:
    """Lay out a checked argument as the driver reads it."""
    if _device.is_cupy(a) or a is None:
        return np.array([0 if a is None else a.data.ptr], np.uint64)
    return np.array(a)


def device_of(entry: str, parameters: Sequence[Parameter], args: Sequence[Any]) -> int | None:
    """Index of the GPU that all arrays of a launch are on; None where it has no arrays."""
    found: int | None = None
    for parameter, a in zip(parameters, args, strict=True):
        if parameter.pointer and a is not None:
            device: int = a.data.device_id
            if found is not None and found != device:
                raise LaunchError(
                    f"{entry}: parameter {parameter.name}: got an array on gpu:{device}, "
                    f"those before it are on gpu:{found}"
                )
            found = device
    return found


def fault_of_shape(grid: Sequence[Any], block: Sequence[Any], shared: int) -> str:
    """Describe what is wrong with the shape of a launch; empty if it is valid."""
    for name, sizes, limits, low in (
        ("grid", grid, _MAX_GRID, 0),
        ("block", block, _MAX_BLOCK, 1),
    ):
        if not 1 <= len(sizes) <= 3 or not all(isinstance(n, (int, np.integer)) for n in sizes):
            return f"{name}: got {tuple(sizes)}, need one to three integers"
        if not all(low <= n <= limit for n, limit in zip(sizes, limits, strict=False)):
            return f"{name}: got {tuple(sizes)}, need {low} to {limits[: len(sizes)]}"
    if np.prod([int(n) for n in block]) > _MAX_THREADS:
        return f"block: got {tuple(block)}, need at most {_MAX_THREADS} threads"
    if not 0 <= shared <= _MAX_SHARED:
        return f"shared: got {shared} bytes, need 0 to {_MAX_SHARED}"
    return ""
