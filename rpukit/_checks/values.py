"""Checks of parameters: types, finite numbers, ranges, names with the nearest known one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import Enum
from typing import Any

import numpy as np

from rpukit.errors import DTypeError, ParameterError, ShapeError

__all__ = [
    "LARGEST",
    "MOST",
    "TINY",
    "any_type",
    "check_shape",
    "did_you_mean",
    "flag",
    "held",
    "instance",
    "integer",
    "is_number",
    "member",
    "number",
    "one_of",
    "plain",
    "real_type",
    "shown",
    "text",
]

LARGEST = float(np.finfo(np.float32).max)
MOST = 1e30  # of a parameter: sums and multiples by draws stay within float32
TINY = float(np.finfo(np.float32).tiny)  # the smallest of full precision
_MOST_SHOWN = 80  # characters of a value in a message


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" if a known name is close to a wrong one, else "".

    Upper and lower case count as the same.
    """
    plain = {str(k).lower(): str(k) for k in known}
    found = [plain[k] for k in difflib.get_close_matches(str(name).lower(), plain, 1)]
    return f"; did you mean {found[0]!r}?" if found else ""


def shown(value: Any) -> str:
    """Write a value for a message: short, and whatever its class does."""
    try:
        text = repr(value)
    except Exception:  # of the class of the value, which is not ours
        return f"<{type(value).__name__}>"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def plain(value: Any) -> Any:
    """Convert a NumPy scalar, or an array without axes, to a Python number."""
    if value.__class__ in (float, int, bool, str):
        return value
    if value is np.ma.masked:  # its item is 0
        return value
    if isinstance(value, np.generic) or getattr(value, "ndim", None) == 0:
        if getattr(value, "dtype", np.dtype(float)).kind in "mM":  # whose item may be an integer
            return value
        item = value.item()
        return float(item) if isinstance(item, np.floating) else item
    return value


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number(
    value: Any, name: str, *, low: float = -LARGEST, high: float = LARGEST, need: str = ""
) -> float:
    """Check a finite number in a range: of Python, of NumPy, or an array without axes.

    The widest range is that of float32.

    Raises
    ------
    DTypeError
        If the value is not a number.
    ParameterError
        If the number is not finite, or out of range.
    """
    if value.__class__ is float and low <= value <= high:
        return value  # the common case, without further calls
    v = plain(value)
    if not is_number(v):
        raise DTypeError(f"{name}: got {shown(value)}, need {need or 'a number'}")
    if not low <= v <= high:
        usual = "a finite number" if low == -LARGEST else f"a finite number from {low:g}"
        usual += f" up to {high:.4g}" if high == LARGEST else f" to {high:g}"
        raise ParameterError(f"{name}: got {shown(value)}, need {need or usual}")
    return float(v)


def held(value: float) -> float:
    """Hold a number that was computed from others within the range of float32."""
    return min(max(value, -LARGEST), LARGEST)


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
        raise ParameterError(
            f"{name}: got {shown(value)}, need {what + ': ' if what else ''}{need}"
        )
    return int(v)


def text(value: Any, name: str) -> str:
    """Check that a value is text.

    Raises
    ------
    ParameterError
    """
    if not isinstance(value, str):
        raise ParameterError(f"{name}: got {shown(value)}, need text")
    return str(value)


def flag(value: Any, name: str) -> bool:
    """Check that a value is True or False, of Python or of NumPy.

    Raises
    ------
    ParameterError
    """
    v = plain(value)
    if not isinstance(v, bool):
        raise ParameterError(f"{name}: got {shown(value)}, need True or False")
    return bool(v)


def one_of(value: Any, name: str, known: Iterable[str]) -> str:
    """Check that a value is one of the known names.

    Raises
    ------
    ParameterError
    """
    names = list(known)
    if not isinstance(value, str) or value not in names:
        options = " or ".join(f'"{k}"' for k in names)
        text = isinstance(value, str) and len(names) > 2
        hint = did_you_mean(value, names) if text else ""
        raise ParameterError(f"{name}: got {shown(value)}, need {options}{hint}")
    return value


def member(kind: type[Enum], value: Any, name: str) -> Enum:
    """Return a member of an enumeration, given as such or by its name in either case.

    Raises
    ------
    ParameterError
    """
    try:
        return kind(value.upper() if isinstance(value, str) else value)
    except (ValueError, TypeError, AttributeError):
        known = [str(m.value) for m in kind]
        hint = did_you_mean(value.upper(), known) if isinstance(value, str) else ""
        raise ParameterError(
            f"{name}: got {shown(value)}, need one of {', '.join(known)}{hint}"
        ) from None


def check_shape(shape: Any, axes: str = "(n_out, n_in)") -> tuple[int, int]:
    """Check the shape of a tile or of another matrix, both lengths at least 1.

    Raises
    ------
    ShapeError
    """
    try:
        n_out, n_in = (plain(n) for n in shape)
    except (TypeError, ValueError):
        raise ShapeError(f"shape: got {shown(shape)}, need {axes}") from None
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in (n_out, n_in)):
        raise ShapeError(f"shape: got {shown(shape)}, need {axes}, two integers from 1")
    return n_out, n_in


def instance(value: Any, classes: type | tuple[type, ...], name: str, default: Any = None) -> Any:
    """Check that a value is an instance of a class, and return it; None stands for the default.

    Raises
    ------
    ParameterError
    """
    if value is None and default is not None:
        return default
    if isinstance(value, classes):
        return value
    several = classes if isinstance(classes, tuple) else (classes,)
    need = " or ".join(c.__name__ for c in several)
    hint = ""
    if isinstance(value, type):
        hint = f": an object, as {value.__name__}()"
    raise ParameterError(f"{name}: got {shown(value)}, need a rpukit {need}{hint}")


def any_type(dtype: Any, name: str = "dtype") -> np.dtype[Any]:
    """Check that a value names a type of arrays.

    Raises
    ------
    DTypeError
    """
    try:
        if isinstance(dtype, (str, type, np.dtype)):
            return np.dtype(dtype)
    except Exception:  # NumPy raises various errors for what is no type
        pass
    raise DTypeError(f"{name}: got {shown(dtype)}, need a dtype of NumPy")


def real_type(dtype: Any, name: str = "dtype", *, wide: bool = True) -> np.dtype[Any]:
    """Check a type of real numbers, float32 or float64, of this machine's byte order.

    Raises
    ------
    DTypeError
    """
    need = "float32 or float64" if wide else "float32"
    kind = any_type(dtype, name)
    if kind not in ((np.float32, np.float64) if wide else (np.float32,)) or not kind.isnative:
        raise DTypeError(f"{name}: got {shown(dtype)}, need {need}")
    return kind
