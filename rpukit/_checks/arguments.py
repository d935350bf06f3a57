"""Arguments of functions and methods, checked by their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from rpukit._checks.kinds import Kind, kinds_of

__all__ = ["takes"]

P = ParamSpec("P")
R = TypeVar("R")


def takes(**kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function so that its arguments are checked before it runs.

    Numbers, flags, texts and instances of classes are checked by their annotations; other
    annotations (arrays, any object) are left to the function. For calls that are not made often:
    a check costs some ten microseconds.

    Parameters
    ----------
    **kinds : Kind
        Of arguments by name, where the annotation does not say enough: ``n_nodes=Whole(1)``.

    Returns
    -------
    callable
        The decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        found: dict[str, Kind] = {}

        @wraps(function)
        def checked(*args: P.args, **values: P.kwargs) -> R:
            bound = signature.bind(*args, **values)
            if not found:  # now that the module of the function is complete
                hints = {n: p.annotation for n, p in signature.parameters.items() if n != "self"}
                found.update(kinds_of(hints, function.__module__) | kinds)
            for name, value in bound.arguments.items():
                parameter = signature.parameters[name]
                if name not in found or value is parameter.default:
                    continue
                if parameter.kind is parameter.VAR_POSITIONAL:
                    given = enumerate(value)
                    taken: Any = tuple(found[name].take(v, f"{name}[{k}]") for k, v in given)
                else:
                    taken = found[name].take(value, name)
                bound.arguments[name] = taken
            return function(*bound.args, **bound.kwargs)

        return checked

    return decorate
