"""Compiled functions that are made into machine code once, with all that they call.

Numba optimises each function on its own, makes machine code of it and a wrapper for calls from
Python, and does the same again inside of each function that calls it: for the mirrors two thirds
of the time of compiling. Here a function that only compiled ones call stays LLVM's text until it
becomes part of one that Python calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature
from numba.core.types.misc import unliteral


class Function(CPUDispatcher):  # type: ignore[misc]
    """A function of Numba's language, compiled when it is called.

    Attributes
    ----------
    constants : bool
        Whether it is compiled again for each constant that another function passes.
    """

    constants = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._parts: set[tuple[Any, ...]] = set()  # types for which there is but a part of others
        self._for_others = False

    @property
    def n_entries(self) -> int:
        """Number of its forms that Python can call."""
        return len(self.overloads) - len(self._parts)

    def get_call_template(self, args: Any, kws: dict[str, Any]) -> Any:
        """Compile for a call from another function."""
        if not self.constants:
            args = tuple(unliteral(kind) for kind in args)
            kws = {name: unliteral(kind) for name, kind in kws.items()}
        with self._as_part():
            return super().get_call_template(args, kws)

    @contextmanager
    def _as_part(self) -> Iterator[None]:
        compiler, before = self._compiler, self._for_others
        kept = compiler.targetoptions, compiler.pipeline_class
        compiler.targetoptions = self.targetoptions | {"no_cpython_wrapper": True}
        compiler.pipeline_class, self._for_others = _PartCompiler, True
        try:
            yield
        finally:
            (compiler.targetoptions, compiler.pipeline_class), self._for_others = kept, before

    def compile(self, sig: Any) -> Any:
        """Compile for a signature."""
        with global_compiler_lock:
            args, _ = normalize_signature(sig)
            if self._for_others:
                return super().compile(sig)
            if args in self._parts:  # now Python calls it too
                self._parts.remove(args)
                del self.overloads[args]
            entry = super().compile(sig)
            made = self.overloads[tuple(args)]
            for environment in made._find_referenced_environments():  # those of its parts
                made.codegen.set_env(environment.env_name, environment)
            return entry

    def add_overload(self, made: Any) -> None:
        """Take a compiled form; Python must not find one that it cannot call."""
        if isinstance(made.library, Part):
            args = tuple(made.signature.args)
            self._parts.add(args)
            self.overloads[args] = made
        else:
            super().add_overload(made)


class _PartCompiler(Compiler):  # type: ignore[misc]
    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
        part = Part(targetctx.codegen(), "part")
        super().__init__(typingctx, targetctx, part, *rest)


class Part(JITCodeLibrary):  # type: ignore[misc]
    """Code for other functions to take up: not optimised yet, and not in memory."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> Any:
        return _NoAddresses


class _NoAddresses:
    """What a part has in place of an engine."""

    @staticmethod
    def set_env(env_name: str, env: Any) -> None:
        """Leave it to the function that takes the part up."""
