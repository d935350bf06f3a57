"""Estimators in the manner of scikit-learn (extra ``sklearn``), loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpukit.estimators.analog import AnalogClassifier, AnalogRegressor
    from rpukit.estimators.classes import CircuitClassifier
    from rpukit.estimators.density import CircuitDensity
    from rpukit.estimators.hmm import HMM
    from rpukit.estimators.trees import ChowLiuMixture

__all__ = [
    "HMM",
    "AnalogClassifier",
    "AnalogRegressor",
    "ChowLiuMixture",
    "CircuitClassifier",
    "CircuitDensity",
]

_HOME = {
    "AnalogClassifier": "analog",
    "AnalogRegressor": "analog",
    "ChowLiuMixture": "trees",
    "CircuitClassifier": "classes",
    "CircuitDensity": "density",
    "HMM": "hmm",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"rpukit.estimators.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
