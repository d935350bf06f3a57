"""Checks of parameters: types, finite numbers, ranges, names with the nearest known one."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, Self

import numpy as np

from rpukit.errors import DTypeError, ParameterError, ShapeError

__all__ = ["Checked", "check_shape", "did_you_mean", "integer", "number", "one_of"]


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" if a known name is close to a wrong one, else ""."""
    found = difflib.get_close_matches(str(name), [str(k) for k in known], 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def plain(value: Any) -> Any:
    """Convert a NumPy scalar, or an array without axes, to a Python number."""
    if isinstance(value, np.generic) or getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number(
    value: Any, name: str, *, low: float = -math.inf, high: float = math.inf, need: str = ""
) -> float:
    """Check a finite number in a range: of Python, of NumPy, or an array without axes.

    Raises
    ------
    DTypeError
        If the value is not a number.
    ParameterError
        If the number is not finite, or out of range.
    """
    if value.__class__ is float and low <= value <= high and math.isfinite(value):
        return value  # the common case, without further calls
    v = plain(value)
    if not _is_number(v):
        raise DTypeError(f"{name}: got {value!r}, need {need or 'a number'}")
    if not (math.isfinite(v) and low <= v <= high):
        usual = "a finite number" if low == -math.inf else f"a finite number from {low:g}"
        usual += "" if high == math.inf else f" to {high:g}"
        raise ParameterError(f"{name}: got {value!r}, need {need or usual}")
    return float(v)


def integer(value: Any, name: str, *, low: int, high: int | None = None, what: str = "") -> int:
    """Check an integer in a range: of Python, of NumPy, or an array without axes.

    Error messages include ``what``, the meaning of the integer.

    Raises
    ------
    ParameterError
    """
    v = plain(value)
    good = isinstance(v, int) and not isinstance(v, bool) and v >= low
    if not (good and (high is None or v <= high)):
        need = f"an integer from {low}" + ("" if high is None else f" to {high}")
        raise ParameterError(f"{name}: got {value!r}, need {what + ': ' if what else ''}{need}")
    return int(v)


def one_of(value: Any, name: str, known: Iterable[str]) -> str:
    """Check that a value is one of the known names.

    Raises
    ------
    ParameterError
    """
    names = list(known)
    if not isinstance(value, str) or value not in names:
        options = " or ".join(f'"{k}"' for k in names)
        hint = did_you_mean(value, names) if len(names) > 2 else ""
        raise ParameterError(f"{name}: got {value!r}, need {options}{hint}")
    return value


def member(kind: type[Enum], value: Any, name: str) -> Enum:
    """Return a member of an enumeration, given as such or by its name in either case.

    Raises
    ------
    ParameterError
    """
    try:
        return kind(value.upper() if isinstance(value, str) else value)
    except (ValueError, AttributeError):
        known = [str(m.value) for m in kind]
        hint = did_you_mean(str(value).upper(), known)
        raise ParameterError(
            f"{name}: got {value!r}, need one of {', '.join(known)}{hint}"
        ) from None


def check_shape(shape: Any) -> tuple[int, int]:
    """Check the shape of a tile: (n_out, n_in), both at least 1.

    Raises
    ------
    ShapeError
    """
    try:
        n_out, n_in = (plain(n) for n in shape)
    except (TypeError, ValueError):
        raise ShapeError(f"shape: got {shape!r}, need (n_out, n_in)") from None
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in (n_out, n_in)):
        raise ShapeError(f"shape: got {shape!r}, need (n_out, n_in), two integers from 1")
    return n_out, n_in


class Checked:
    """Base class of frozen dataclasses of parameters, which checks the types of all fields.

    Floats must be finite. NumPy scalars and arrays without axes become Python numbers. Ranges are
    checked by `_check`.
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **values: Any) -> Self:
        if values:
            known = [field.name for field in fields(cls) if field.init]  # type: ignore[arg-type]
            for name in values:
                if name not in known:
                    raise DTypeError(
                        f"{cls.__name__} has no parameter {name!r}{did_you_mean(name, known)}"
                    )
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            given = getattr(self, field.name)
            value = plain(given)
            if field.type in ("float", float):
                self._need(_is_number(value), field.name, "a number")
                self._need(math.isfinite(value), field.name, "a finite number")
            elif field.type in ("int", int):
                whole = isinstance(value, int) and not isinstance(value, bool)
                self._need(whole, field.name, "an integer")
            elif field.type in ("bool", bool):
                self._need(isinstance(value, bool), field.name, "True or False")
            elif field.default is not MISSING and isinstance(field.default, Enum):
                full = f"{type(self).__name__}.{field.name}"
                value = member(type(field.default), given, full)
            else:
                continue
            if value is not given:
                object.__setattr__(self, field.name, value)
        self._check()

    def _check(self) -> None:
        """Check the ranges of parameters; subclasses extend it."""

    def _fail(self, name: str, need: str) -> None:
        raise ParameterError(
            f"{type(self).__name__}.{name}: got {getattr(self, name)!r}, need {need}"
        )

    def _need(self, condition: bool, name: str, need: str) -> None:
        if not condition:
            self._fail(name, need)
