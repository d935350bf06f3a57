"""Figures of devices, circuits, plans and ageing models.

Each takes ``ax=None`` and returns the Axes. Matplotlib is imported by the first call
(``pip install "rpukit[plot]"``); nothing is ever shown.
"""

from rpukit.plot.ageing import plot_ageing
from rpukit.plot.bench import (
    plot_endurance,
    plot_fit,
    plot_ranking,
    plot_residuals,
    plot_retention,
)
from rpukit.plot.circuits import plot_structure
from rpukit.plot.devices import (
    plot_conductances,
    plot_devices,
    plot_learning,
    plot_response,
    plot_spread,
    plot_steps,
)
from rpukit.plot.plan import plot_plan, plot_sweep, plot_targets

__all__ = [
    "plot_ageing",
    "plot_conductances",
    "plot_devices",
    "plot_endurance",
    "plot_fit",
    "plot_learning",
    "plot_plan",
    "plot_ranking",
    "plot_residuals",
    "plot_response",
    "plot_retention",
    "plot_spread",
    "plot_steps",
    "plot_structure",
    "plot_sweep",
    "plot_targets",
]
