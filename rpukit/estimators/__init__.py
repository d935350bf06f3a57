"""Estimators in the manner of scikit-learn (extra ``sklearn``), loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpukit.estimators.density import CircuitDensity

__all__ = ["CircuitDensity"]


def __getattr__(name: str) -> Any:
    if name == "CircuitDensity":
        return import_module("rpukit.estimators.density").CircuitDensity
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
