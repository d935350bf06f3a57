"""Energy, latency and area: events that a tile or a network has caused, times a table of costs.

`count` gives the events: pulses, conversions by resolution, reads of cells, digital operations,
bytes. `CostTable` says what one of each costs; `preset` has tables with sources, `read_accelergy`
and `CostTable.load` read your own. `total` multiplies the two.

>>> import numpy as np, rpukit as rk
>>> tile = rk.AnalogTile((10, 64), rk.ConstantStep(), seed=7)
>>> y = tile.forward(np.ones((5, 64), np.float32))
>>> rk.costs.count(tile)["forward"]["adc:9"]
50
"""

from rpukit.costs.accelergy import read_accelergy
from rpukit.costs.converters import adc_cost, survey_energy
from rpukit.costs.cost import Cost
from rpukit.costs.counting import count
from rpukit.costs.events import EVENTS, PHASES, Counts, Event
from rpukit.costs.presets import preset, preset_names
from rpukit.costs.table import CostTable, total
from rpukit.costs.totals import Costs

__all__ = [
    "EVENTS",
    "PHASES",
    "Cost",
    "CostTable",
    "Costs",
    "Counts",
    "Event",
    "adc_cost",
    "count",
    "preset",
    "preset_names",
    "read_accelergy",
    "survey_energy",
    "total",
]
