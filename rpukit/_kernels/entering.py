"""Decorators that make a device current for a call: of an object, an argument or the arrays.

Code below a public call never asks which GPU is current: it is the one that the call works on.
CuPy's operators, allocations and reads use the current device, and so use the right one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar, cast

from rpukit import _device
from rpukit._kernels.calls import exclusive
from rpukit._kernels.replay import graph_may_allocate

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)


def enters(method: _Function) -> _Function:
    """Decorate a method of an object that has a ``_device``: it runs with that device current."""
    several = _device.several_gpus

    @wraps(method)
    def entered(self: Any, *args: Any, **kwargs: Any) -> Any:
        device = self._device
        here = device.kind == "cpu" or not several() or _device.current_index() == device.index
        if here:  # as `is_current`, without the cost of another call
            return method(self, *args, **kwargs)
        with _device.using(device):
            return method(self, *args, **kwargs)

    return cast(_Function, entered)


def enters_named(function: _Function) -> _Function:
    """Decorate a function: it runs with the device that its argument ``device`` names current."""
    signature = inspect.signature(function)

    @wraps(function)
    def entered(*args: Any, **kwargs: Any) -> Any:
        try:
            named = signature.bind_partial(*args, **kwargs).arguments.get("device", "cpu")
        except TypeError:
            return function(*args, **kwargs)  # it raises the error
        if named is None or (isinstance(named, str) and named == "cpu"):
            return function(*args, **kwargs)
        with _device.using(_device.parse_device(named)):
            return function(*args, **kwargs)

    return cast(_Function, entered)


def enters_device(*also: str) -> Callable[[_Class], _Class]:
    """Decorate a class whose objects have a ``_device``: its calls run with that device current.

    Public methods, and the named ones with two underscores, are wrapped by `exclusive`, unless
    they are decorated by `changes`; properties and the named private methods by `enters`.
    Constructors with an argument ``device`` are wrapped by `enters_named`. No part of a public
    call therefore runs while another device is current.
    """

    def decorate(cls: _Class) -> _Class:
        for name, value in list(vars(cls).items()):
            if isinstance(value, classmethod) and _names_device(value.__func__):
                setattr(cls, name, classmethod(enters_named(value.__func__)))
            elif name == "__init__":
                if _names_device(value):
                    setattr(cls, name, enters_named(value))
            elif name.startswith("_") and name not in also:
                continue
            elif isinstance(value, FunctionType):
                private = name.startswith("_") and not name.startswith("__")
                if not hasattr(value, "_is_call"):
                    setattr(cls, name, enters(value) if private else exclusive(value))
            elif isinstance(value, property):
                fget, fset = (_entered(f) for f in (value.fget, value.fset))
                setattr(cls, name, property(fget, fset, doc=value.__doc__))
        return cls

    return decorate


def _entered(function: Any) -> Any:
    return None if function is None else enters(function)


def _names_device(function: Any) -> bool:
    return "device" in inspect.signature(function).parameters


def enters_arrays(function: _Function) -> _Function:
    """Decorate a function to run on the device of its first CuPy array.

    It may allocate while a graph is captured, in any mode of the capture.
    """

    @wraps(function)
    def entered(*args: Any, **kwargs: Any) -> Any:
        kind = _device.cupy_array_class()
        if kind is not None:
            for a in (*args, *kwargs.values()):
                if isinstance(a, kind):
                    device = _device.device_of(a)
                    with _device.using(device), graph_may_allocate(device):
                        return function(*args, **kwargs)
        return function(*args, **kwargs)

    return cast(_Function, entered)
