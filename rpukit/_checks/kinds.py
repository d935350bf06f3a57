"""Kinds of values: what a field or an argument takes, found from its annotation."""

from __future__ import annotations

import math
import sys
import types
from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin

import numpy as np

from rpukit._checks.values import (
    MOST,
    did_you_mean,
    flag,
    instance,
    is_number,
    member,
    plain,
    shown,
    text,
)
from rpukit.errors import ParameterError

__all__ = ["InstanceOf", "Kind", "Many", "Maybe", "OneOf", "Real", "Whole", "kind_of", "kinds_of"]


class Kind:
    """What is taken; `take` returns the value, converted if need be, or raises."""

    __slots__ = ()

    def take(self, value: Any, name: str) -> Any:
        """Check one value.

        Parameters
        ----------
        value : object
        name : str
            Of the field or argument, for the error message.

        Returns
        -------
        object

        Raises
        ------
        ParameterError
        """
        raise NotImplementedError  # pragma: no cover


def _fail(value: Any, name: str, need: str) -> None:
    raise ParameterError(f"{name}: got {shown(value)}, need {need}")


@dataclass(frozen=True, slots=True)
class Real(Kind):
    """A finite number of a size up to 1e30, which leaves float32 room to compute.

    Parameters
    ----------
    low, high : float
        Both included; NumPy scalars and arrays without axes become Python numbers.
    infinite : bool
        Infinity is taken, too.
    least : float
        Smaller sizes are refused, but for 0.
    """

    low: float = -MOST
    high: float = MOST
    infinite: bool = False
    least: float = 0.0

    def take(self, value: Any, name: str) -> Any:
        v = plain(value)
        if not is_number(v):
            _fail(value, name, "a number")
        good = self.low <= v <= self.high and (v == 0 or abs(v) >= self.least)
        if not (good or (self.infinite and abs(v) == math.inf)):
            _fail(value, name, self._need())
        exact = type(v) is int and abs(v) <= 1 << 53  # larger ones do not fit 64 bits of a mirror
        return v if exact or type(v) is float else float(v)

    def _need(self) -> str:
        if (self.low, self.high) == (-MOST, MOST):
            low = f" from {self.least:.2g}" if self.least else ""
            return f"a finite number, 0 or of a size{low} up to {MOST:g}"
        return f"a finite number from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """An integer.

    Parameters
    ----------
    low, high : int, optional
        Both included.
    """

    low: int | None = None
    high: int | None = None

    def take(self, value: Any, name: str) -> int:
        v = plain(value)
        good = isinstance(v, int) and not isinstance(v, bool)
        good = good and (self.low is None or v >= self.low)
        if not (good and (self.high is None or v <= self.high)):
            low = "" if self.low is None else f" from {self.low}"
            _fail(
                value, name, f"an integer{low}" + ("" if self.high is None else f" to {self.high}")
            )
        return int(v)


class _Flag(Kind):
    __slots__ = ()

    def take(self, value: Any, name: str) -> bool:
        return flag(value, name)


class _Text(Kind):
    __slots__ = ()

    def take(self, value: Any, name: str) -> str:
        return text(value, name)


@dataclass(frozen=True, slots=True)
class OneOf(Kind):
    """One of several names."""

    names: tuple[str, ...]

    def take(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or value not in self.names:
            hint = did_you_mean(value, self.names) if isinstance(value, str) else ""
            _fail(value, name, " or ".join(f'"{k}"' for k in self.names) + hint)
        return str(value)


@dataclass(frozen=True, slots=True)
class _Member(Kind):
    enum: type[Enum]

    def take(self, value: Any, name: str) -> Enum:
        return member(self.enum, value, name)


@dataclass(frozen=True, slots=True)
class InstanceOf(Kind):
    classes: tuple[type, ...]

    def take(self, value: Any, name: str) -> Any:
        return instance(value, self.classes, name)


@dataclass(frozen=True, slots=True)
class Many(Kind):
    """A tuple, list, range or vector of values of one kind; becomes a tuple, which has a hash.

    Parameters
    ----------
    kind : Kind
    """

    kind: Kind

    def take(self, value: Any, name: str) -> tuple[Any, ...]:
        vector = isinstance(value, np.ndarray) and value.ndim == 1
        if not (vector or isinstance(value, (tuple, list, range))):
            _fail(value, name, "a tuple")
        return tuple(self.kind.take(v, f"{name}[{k}]") for k, v in enumerate(value))


@dataclass(frozen=True, slots=True)
class _Series(Many):
    """Anything to iterate over, but for text; becomes a tuple."""

    def take(self, value: Any, name: str) -> tuple[Any, ...]:
        several = isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0
        if not several or isinstance(value, (str, bytes, Mapping)):
            _fail(value, name, "a list or tuple")
        return Many.take(self, list(value), name)


@dataclass(frozen=True, slots=True)
class _Table(Kind):
    kind: Kind | None

    def take(self, value: Any, name: str) -> Any:
        if not isinstance(value, Mapping):
            _fail(value, name, "a dictionary")
        if self.kind is None:
            return value
        return {key: self.kind.take(v, f"{name}[{shown(key)}]") for key, v in value.items()}


@dataclass(frozen=True, slots=True)
class Maybe(Kind):
    """None, or a value of another kind.

    Parameters
    ----------
    kind : Kind
    """

    kind: Kind

    def take(self, value: Any, name: str) -> Any:
        return None if value is None else self.kind.take(value, name)


_ANYTHING = (Any, object, np.ndarray)
_PLAIN: dict[Any, Kind] = {float: Real(), int: Whole(), bool: _Flag(), str: _Text()}


def kind_of(hint: Any) -> Kind | None:
    """Find the kind of a type; None for types that are checked elsewhere (arrays, any object)."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, TypeVar):
        some = hint.__constraints__
        return InstanceOf(some) if some and all(isinstance(h, type) for h in some) else None
    if get_origin(hint) in (types.UnionType, Union):
        options = [h for h in get_args(hint) if h is not type(None)]
        if all(isinstance(h, type) and h not in (*_PLAIN, *_ANYTHING) for h in options):
            inner: Kind | None = InstanceOf(tuple(options)) if len(options) > 1 else None
            inner = inner or kind_of(options[0])
        else:
            inner = kind_of(options[0]) if len(options) == 1 else None
        optional = inner is not None and len(options) < len(get_args(hint))
        return Maybe(inner) if optional and inner is not None else inner
    if get_origin(hint) is tuple and len(get_args(hint)) == 2 and get_args(hint)[1] is ...:
        inner = kind_of(get_args(hint)[0])
        return None if inner is None else Many(inner)
    if get_origin(hint) in (abc.Sequence, abc.Iterable, abc.Collection, list):
        inner = kind_of(get_args(hint)[0])
        return None if inner is None else _Series(inner)
    if get_origin(hint) in (abc.Mapping, dict):
        return _Table(kind_of(get_args(hint)[1]))
    plain_class = isinstance(hint, type) and get_origin(hint) is None and hint not in _ANYTHING
    if plain_class and not getattr(hint, "_is_protocol", False):
        return _Member(hint) if issubclass(hint, Enum) else InstanceOf((hint,))
    return None


def kinds_of(annotations: dict[str, Any], module: str) -> dict[str, Kind]:
    """Find the kinds of annotations, which may be texts over the names of a module."""
    space: dict[str, Any] = vars(sys.modules[module]) if module in sys.modules else {}
    found = {}
    for name, hint in annotations.items():
        try:
            kind = kind_of(eval(hint, dict(space)) if isinstance(hint, str) else hint)
        except (NameError, AttributeError, TypeError):  # a name for type checkers only
            kind = None
        if kind is not None:
            found[name] = kind
    return found
