"""Base class of parameters that are dataclasses: every field is checked by its annotation."""

from __future__ import annotations

import inspect
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, Self

from rpukit._checks.kinds import Kind, Real, kinds_of
from rpukit._checks.values import TINY, did_you_mean, shown
from rpukit.errors import DTypeError, ParameterError

__all__ = ["Checked"]


_NUMBER = Real(least=TINY)  # smaller ones would have few bits in float32, or none


class Checked:
    """Base class of frozen dataclasses of parameters, which checks the types of all fields.

    Floats must be finite, within the range of float32. NumPy scalars and arrays without axes
    become Python numbers, lists become tuples, names become members of their enumeration. `KINDS`
    holds the kinds of fields whose annotations do not say enough. Ranges are checked by `_check`.
    """

    __slots__ = ()
    KINDS: ClassVar[dict[str, Kind]] = {}

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
        for name, kind in _kinds(type(self)).items():  # type: ignore[arg-type]
            given = getattr(self, name)
            value = kind.take(given, f"{type(self).__name__}.{name}")
            if value is not given:
                object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        """Check the ranges of parameters; subclasses extend it."""

    def _fail(self, name: str, need: str) -> None:
        value = shown(getattr(self, name))
        raise ParameterError(f"{type(self).__name__}.{name}: got {value}, need {need}")

    def _need(self, condition: bool, name: str, need: str) -> None:
        if not condition:
            self._fail(name, need)


@cache
def _kinds(cls: Any) -> dict[str, Kind]:
    """Kinds of the fields of a class, each by the names of the module that declares it."""
    found: dict[str, Kind] = {}
    for base in reversed(cls.__mro__):
        own = inspect.get_annotations(base)
        found.update(kinds_of(own, base.__module__))
        found.update(base.__dict__.get("KINDS", {}))
    found = {name: _NUMBER if kind == Real() else kind for name, kind in found.items()}
    return {field.name: found[field.name] for field in fields(cls) if field.name in found}
