"""Decorator of all CPU functions: Numba's ``njit`` with a persistent cache of machine code.

Numba's own ``cache=True`` does not suffice. It does not notice changes in called functions. It
identifies functions by file, line and bytecode, which float64 twins share with their originals
(see ``twins.py``). It does not cache functions that take functions. Each function therefore gets
a cache of our own, `MachineCode`, and a type name that is the same in all processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from typing import Any

import numba as nb
from numba.core.bytecode import FunctionIdentity

from rpukit._exact import stamp
from rpukit._exact.function import Function
from rpukit._exact.machine_code import MachineCode, known


def _count_anew() -> None:
    """Give the functions of this process numbers that no other process uses.

    Numba distinguishes the symbols of functions by these numbers, and one process may load code
    that several others compiled.
    """
    FunctionIdentity._unique_ids = count(int.from_bytes(os.urandom(6), "little"))


_count_anew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_anew)


def jit(
    function: Callable[..., Any] | None = None, *, constants: bool = False, **options: Any
) -> Any:
    """Compile a function on its first call, without the GIL and with NumPy's rules of division.

    Parameters
    ----------
    function : callable, optional
    constants : bool
        Whether to specialise it for each constant that another function passes, as Numba does.
        Some loops are faster when the constants are known.
    **options
        Those of `numba.njit`. ``forceinline=True`` has LLVM inline a function, which compiles in
        two thirds of the time that ``inline="always"`` takes, with Numba's copies of its text.

    Returns
    -------
    callable
        The compiled function, or a decorator where only options are given.
    """
    if function is None:
        return lambda given: jit(given, constants=constants, **options)
    if nb.config.DISABLE_JIT:
        return function
    plain = {"nopython": True, "nogil": True, "error_model": "numpy", "boundscheck": None}
    made = Function(function, targetoptions={**plain, "no_cfunc_wrapper": True, **options})
    made.constants = constants
    if _can_be_found_again(function):
        _keep(made, options)
    return made


def _can_be_found_again(function: Callable[..., Any]) -> bool:
    """Whether module and name identify a function: not if it was defined inside another one."""
    plain = function.__closure__ is None and "<" not in function.__qualname__
    return plain and stamp.covers(function)


def _keep(made: Any, options: dict[str, Any]) -> None:
    function = made.py_func
    name = f"{function.__module__}.{function.__qualname__}"
    # Type names are parts of symbols. Numba's name of a function's type contains its address.
    nb.typeof(made).name = f"function({name})"
    known[name] = made
    made._cache = MachineCode(name, repr(sorted(options.items())))
