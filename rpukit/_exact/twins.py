"""float64 twins of the mirrors: the same source, executed again with other types.

A mirror that serves both types is written for float32: ``f4`` casts, ``fma32`` and kin compute.
Its twin is the same file with ``np.float32`` read as ``np.float64``, the functions of ``math.py``
read as those of ``math64.py``, and other mirrors read as their twins. So there is one source to
check, as there is one ``.cu`` with a macro REAL, and the two cannot diverge. (A factory would
indent every mirror by one level, and hide its functions from readers and profilers.)
"""

from __future__ import annotations

import ast
import sys
import threading
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

_SUFFIX = "_float64"
_MATH, _MATH64 = "rpukit._exact.math", "rpukit._exact.math64"
# Draws are float32 for both types; the fast chains and tensor cores are for float32 only.
_SHARED = (
    "rpukit._exact.jit",
    "rpukit._exact.philox",
    "rpukit._exact.math64",
    "rpukit._exact.chains",
    "rpukit._exact.tensor_core",
    "rpukit.errors",
)
_SPECIAL = "rpukit._exact.special"  # holds the functions of both types
_REALS = {"f": "float", "d": "double"}
_lock = threading.RLock()


@cache
def mirror(name: str, dtype: Any) -> ModuleType:
    """Return a mirror module: the module itself for float32, its twin for float64.

    Parameters
    ----------
    name : str
        Dotted name of the module.
    dtype : dtype
        float32 or float64.

    Returns
    -------
    module
    """
    return import_module(name) if np.dtype(dtype) == np.float32 else _twin(name)


def real(dtype: np.dtype[Any]) -> str:
    """Return the macro REAL of a kernel: the C type of a dtype."""
    return _REALS[dtype.char]


def _twin(name: str) -> ModuleType:
    own = name + _SUFFIX
    with _lock:
        if own not in sys.modules:
            spec = find_spec(name)
            if spec is None or spec.origin is None:
                raise ModuleNotFoundError(f"no module {name!r}", name=name)
            tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
            code = compile(_Doubled().visit(tree), spec.origin, "exec")
            module = ModuleType(own, ast.get_docstring(tree))
            module.__file__ = spec.origin
            exec(code, module.__dict__)
            sys.modules[own] = module
        return sys.modules[own]


def _is_shared(module: str) -> bool:
    """Whether both types share a module: a mirror declares it by ``BOTH_TYPES = True``."""
    return module in _SHARED or getattr(import_module(module), "BOTH_TYPES", False)


class _Doubled(ast.NodeTransformer):
    """Replace float32 by float64 in a source."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and (node.value.id, node.attr) == ("np", "float32"):
            node.attr = "float64"
        self.generic_visit(node)  # such as np.finfo(np.float32).tiny
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.ImportFrom]:
        module = node.module or ""
        if module == _SPECIAL:
            for alias in node.names:
                alias.asname = alias.asname or alias.name
                alias.name = alias.name.replace("32", "64")
            return [node]
        if module == _MATH:
            wide = [a for a in node.names if a.name.endswith("32")]
            for alias in wide:
                alias.asname = alias.asname or alias.name
                alias.name = alias.name[:-2] + "64"
            same = [a for a in node.names if a not in wide]
            parts = [(_MATH64, wide), (_MATH, same)]
            made = [ast.ImportFrom(m, names, 0) for m, names in parts if names]
            return [ast.copy_location(part, node) for part in made]
        if module.startswith("rpukit.") and not _is_shared(module):
            node.module = _twin(module).__name__
        return [node]
