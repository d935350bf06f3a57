"""The decorator of all functions for the CPU: Numba's ``njit``, with machine code that is kept.

Numba's own ``cache=True`` does not serve here. It notices no change of a function that is called,
it tells functions apart by file, line and bytecode, which float64 twins share with their originals
(see ``twins.py``), and it keeps nothing of a function that takes functions. So each function
gets a cache of ours, `MachineCode`, and a type name that does not change from process to process.
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
    """Let a process number its functions from a place of its own.

    Numba's numbers tell the symbols of functions apart, and code from several processes comes
    together in one.
    """
    FunctionIdentity._unique_ids = count(int.from_bytes(os.urandom(6), "little"))


_count_anew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_anew)


def jit(
    function: Callable[..., Any] | None = None, *, constants: bool = False, **options: Any
) -> Any:
    """Compile a function when it is called first: without the GIL, division as NumPy has it.

    Parameters
    ----------
    function : callable, optional
    constants : bool
        Whether to compile it again for each constant that another function passes, as Numba does:
        for a loop that is quicker if it knows them.
    **options
        Those of `numba.njit`, such as ``inline="always"``.

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
    """Whether module and name say all of a function: not if it was made in another one."""
    plain = function.__closure__ is None and "<" not in function.__qualname__
    return plain and stamp.covers(function)


def _keep(made: Any, options: dict[str, Any]) -> None:
    function = made.py_func
    name = f"{function.__module__}.{function.__qualname__}"
    # Names of types are parts of symbols. Numba's name for the type of a function has its address.
    nb.typeof(made).name = f"function({name})"
    known[name] = made
    made._cache = MachineCode(name, repr(sorted(options.items())))
