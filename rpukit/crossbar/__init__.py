"""Effects of arrays and converters that are studied apart: slices, tables of ADCs, wires.

`SlicedTile` holds the bits of a weight in several tiles and sends the bits of an input one after
another. `Adc` converts with offset, gain and integral nonlinearity. `effective_conductance` solves
a crossbar with resistive wires exactly, beside which `compare_wires` puts the fast ``ir_drop``.

>>> import numpy as np, rpukit as rk
>>> tile = rk.crossbar.SlicedTile((2, 3), rk.Ideal(), weight_bits=5, cell_bits=2, input_bits=4)
>>> tile.set_weights(np.ones((2, 3), np.float32)).forward(np.ones(3, np.float32))
array([3., 3.], dtype=float32)
"""

from rpukit.crossbar.adc import Adc
from rpukit.crossbar.slicing import SlicedTile
from rpukit.crossbar.sweeps import AdcSweep, sweep_adc
from rpukit.crossbar.wires import (
    WireComparison,
    Wires,
    compare_wires,
    effective_conductance,
    effective_weights,
)

__all__ = [
    "Adc",
    "AdcSweep",
    "SlicedTile",
    "WireComparison",
    "Wires",
    "compare_wires",
    "effective_conductance",
    "effective_weights",
    "sweep_adc",
]
