"""Checks of what a file or a state says, before memory is taken or an object changes.

A check is a function of a value and the name of its place; it returns the value or raises
`FormatError` with that name. `record`, `listing` and `table` make checks of compound values.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from rpukit.errors import DeviceError, FormatError, PlanError, RpukitError

__all__ = [
    "COUNT",
    "DAMAGE",
    "FLAG",
    "SHAPE",
    "TALLY",
    "WORD",
    "Check",
    "Spec",
    "anything",
    "as_format_error",
    "check_arrays",
    "check_memory",
    "check_names",
    "check_numbers",
    "fail",
    "has_nan",
    "integer",
    "listing",
    "number",
    "optional",
    "record",
    "setting",
    "table",
    "text",
]

Check = Callable[[Any, str], Any]

_PART = 1 << 24  # numbers that are looked at together

# What reading damaged data can raise; errors of the operating system are not among it.
DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,  # with NotImplementedError and RecursionError
    TypeError,
    ValueError,
)


class Spec(Protocol):
    """Length of axes and type: of an array, or of one that is still in its file."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...


def fail(where: str, value: Any, need: str) -> FormatError:
    """Make the error of a value that does not fit."""
    return FormatError(f"{where}: got {reprlib.repr(value)}, need {need}")


def integer(low: int, high: int) -> Check:
    """Check an integer in a range, which no float or boolean is."""

    def check(value: Any, where: str) -> int:
        value = value.item() if isinstance(value, np.integer) else value
        if type(value) is not int or not low <= value <= high:
            raise fail(where, value, f"an integer from {low} to {high}")
        return value

    return check


def number(low: float = -math.inf, high: float = math.inf) -> Check:
    """Check a finite number in a range."""

    def check(value: Any, where: str) -> float:
        value = value.item() if isinstance(value, np.number) else value
        if type(value) not in (int, float) or not (math.isfinite(value) and low <= value <= high):
            raise fail(where, value, f"a finite number from {low:g} to {high:g}")
        return value  # type: ignore[no-any-return]

    return check


def text(*known: str) -> Check:
    """Check a text, one of the known ones if there are any."""

    def check(value: Any, where: str) -> str:
        if not isinstance(value, str) or (known and value not in known):
            raise fail(where, value, " or ".join(map(repr, known)) if known else "a text")
        return value

    return check


def anything(value: Any, where: str) -> Any:
    """Accept a value that is checked elsewhere."""
    return value


def setting(value: Any, where: str) -> Any:
    """Check numbers within the parameters of a configuration: finite, integers of 64 bits."""
    if isinstance(value, dict):
        return {name: setting(member, f"{where}.{name}") for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [setting(member, where) for member in value]
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise fail(where, value, "an integer of 64 bits")
    if type(value) is float and not math.isfinite(value):
        raise fail(where, value, "a finite number")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise fail(where, value, "true or false")
    return value


def optional(check: Check) -> Check:
    """Check a value that may be null."""
    return lambda value, where: None if value is None else check(value, where)


def listing(check: Check, length: int | None = None) -> Check:
    """Check a list by the check of its members, of a length if one is given."""

    def whole(value: Any, where: str) -> list[Any]:
        if not isinstance(value, (list, tuple)) or length not in (None, len(value)):
            raise fail(where, value, "a list" + (f" of {length}" if length is not None else ""))
        return [check(member, f"{where}[{k}]") for k, member in enumerate(value)]

    return whole


def table(check: Check) -> Check:
    """Check a dictionary with any names by the check of its values."""

    def whole(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise fail(where, value, "a dictionary with names")
        return {name: check(member, f"{where}.{name}") for name, member in value.items()}

    return whole


def record(needed: Mapping[str, Check], more: Mapping[str, Check] | None = None) -> Check:
    """Check a dictionary: all ``needed`` names, and no others but those of ``more``."""
    every = {**needed, **(more or {})}

    def whole(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise fail(where, value, "a dictionary")
        missing = sorted(needed.keys() - value.keys())
        unknown = sorted(map(str, value.keys() - every.keys()))
        if missing or unknown:
            got = f"without {', '.join(missing)}" if missing else f"with {reprlib.repr(unknown)}"
            raise FormatError(f"{where}: damaged, {got}: need {', '.join(needed)}")
        return {name: every[name](member, f"{where}.{name}") for name, member in value.items()}

    return whole


WORD = integer(0, (1 << 32) - 1)
COUNT = integer(0, 1 << 48)  # of a clock whose place is part of draws
TALLY = integer(0, (1 << 63) - 1)  # of any other count
SHAPE = listing(integer(1, (1 << 48) - 1), 2)
FLAG: Check = _flag


def check_names(found: Mapping[str, Any], needed: Mapping[str, Any]) -> None:
    """Check that there are exactly the needed arrays."""
    if found.keys() != needed.keys():
        missing, more = sorted(needed.keys() - found.keys()), sorted(found.keys() - needed.keys())
        which = f"without {reprlib.repr(missing)}" if missing else f"with {reprlib.repr(more)} too"
        raise FormatError(f"arrays: got a state {which}, need {reprlib.repr(sorted(needed))}")


def check_arrays(found: Mapping[str, Spec], needed: Mapping[str, Spec]) -> None:
    """Check that arrays match others in names, shapes and types."""
    check_names(found, needed)
    for name, target in needed.items():
        source = found[name]
        if tuple(source.shape) != tuple(target.shape) or source.dtype != target.dtype:
            raise FormatError(
                f"array {name}: got {source.dtype} of shape {tuple(source.shape)}, need "
                f"{target.dtype} of shape {tuple(target.shape)}"
            )


def has_nan(array: np.ndarray) -> bool:
    """Whether an array holds NaN; large arrays are read in parts."""
    if array.dtype.kind != "f":
        return False
    flat = array.reshape(-1)
    return any(
        bool(np.isnan(flat[k : k + _PART]).any()) for k in range(0, max(1, flat.size), _PART)
    )


def check_numbers(arrays: Mapping[str, np.ndarray]) -> None:
    """Check that no array holds NaN."""
    for name, array in arrays.items():
        if has_nan(array):
            raise FormatError(f"array {name}: got NaN, need numbers")


def check_memory(what: str, nbytes: int) -> None:
    """Refuse sizes beyond the memory of the machine."""
    try:
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # a system that does not say
        return
    if nbytes > most:
        raise FormatError(f"{what}: needs {nbytes} bytes, this machine has {most}")


@contextmanager
def as_format_error(where: str) -> Iterator[None]:
    """Name the place in format errors, and turn into such what damaged data raises otherwise."""
    try:
        yield
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from error
    except (DeviceError, PlanError):
        raise  # of the machine, or of a budget that the caller gave
    except (RpukitError, *DAMAGE) as error:
        kind = "" if isinstance(error, RpukitError) else f"{type(error).__name__}: "
        raise FormatError(f"{where}: damaged, or not of rpukit: {kind}{error}") from error
