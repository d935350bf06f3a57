"""Tables of costs with sources: published designs, and round figures for examples."""

from __future__ import annotations

from rpukit._checks import one_of
from rpukit.costs.cost import Cost
from rpukit.costs.table import CostTable
from rpukit.errors import ParameterError

__all__ = ["preset", "preset_names"]

_CYCLE = 100e-9  # seconds of one read of a crossbar of ISAAC
_ROWS = 8 * 128  # rows, and columns, of the eight crossbars of a unit of ISAAC
_CELLS = 8 * 128 * 128
_MM2 = 1e-6  # square metres
_TABLE_1 = "table I of Shafiee et al. 2016"


def _isaac() -> CostTable:
    """ISAAC-CE, 32 nm. The paper has powers; an energy is power x 100 ns / events of a cycle."""
    costs = {
        "adc": Cost(
            energy=16e-3 * _CYCLE / _ROWS,
            latency=1 / 1.28e9,
            area=0.0096 * _MM2 / 8,
            share=128,
            bits=8,
            source=f"{_TABLE_1}: 8 converters 16 mW, 0.0096 mm2; text: 1.28 GS/s, 128 columns",
        ),
        "dac": Cost(
            energy=4e-3 * _CYCLE / _ROWS,
            area=0.00017 * _MM2 / _ROWS,
            bits=1,
            source=f"{_TABLE_1}: 1024 converters 4 mW, 0.00017 mm2; within the cycle",
        ),
        "pass": Cost(latency=_CYCLE, source="text of the paper: 100 ns for one read"),
        "cell_read": Cost(
            energy=2.4e-3 * _CYCLE / _CELLS,
            area=0.0002 * _MM2 / _CELLS,
            source=f"{_TABLE_1}: 8 arrays of 128 x 128 cells 2.4 mW, 0.0002 mm2",
        ),
        "add": Cost(
            energy=0.2e-3 * _CYCLE / _ROWS,
            latency=1 / 1.2e9,
            area=0.00024 * _MM2 / 4,
            share=256,
            source=f"{_TABLE_1}: 4 shift-and-add units 0.2 mW, 0.00024 mm2; clock 1.2 GHz",
        ),
        "byte": Cost(
            energy=(20.7e-3 + 7e-3) * _CYCLE / 1024,
            latency=_CYCLE / 1024,
            area=(0.083 + 0.090) * _MM2 / 96,
            share=0,
            source=f"{_TABLE_1}: eDRAM and bus of a tile 27.7 mW, 0.173 mm2; 1 KB in 100 ns, "
            "96 arrays share them",
        ),
    }
    paper = "A. Shafiee et al., ISAAC, ISCA 2016, doi 10.1109/ISCA.2016.12; energies derived"
    return CostTable(costs, name="isaac", source=paper)


def _horowitz() -> CostTable:
    """Digital operations at 45 nm, 0.9 V. The source has energies only."""
    costs = {
        "add": Cost(energy=0.9e-12, source="32-bit floating-point addition"),
        "multiply": Cost(energy=3.7e-12, source="32-bit floating-point multiplication"),
        "mac": Cost(energy=4.6e-12, source="the sum of the two"),
        "byte": Cost(energy=10e-12 / 8, source="8 bytes from an SRAM of 8 kB: 10 pJ"),
    }
    paper = "M. Horowitz, Computing's energy problem, ISSCC 2014, pp. 10-14; 45 nm"
    return CostTable(costs, name="horowitz45", source=paper)


def _example() -> CostTable:
    """Round figures of the usual orders of magnitude."""
    costs = {
        "pulse": Cost(energy=10e-15),
        "slot": Cost(latency=10e-9),
        "write": Cost(energy=10e-12, latency=1e-6, share=0),
        "pass": Cost(latency=100e-9),
        "cell_read": Cost(energy=1e-15, area=1e-14),
        "dac": Cost(energy=0.1e-12, latency=1e-9, area=1e-10, bits=8, growth="linear", share=1),
        "adc": Cost(
            energy=2e-12,
            latency=1e-9,
            area=1e-9,
            share=8,
            bits=8,
            growth="exponential",
            latency_growth="linear",
        ),
        "add": Cost(energy=0.1e-12, latency=1e-9, area=1e-10, share=16),
        "multiply": Cost(energy=1e-12, latency=1e-9, area=1e-9, share=16),
        "mac": Cost(energy=1e-12, latency=1e-9, area=1e-9, share=64),
        "byte": Cost(energy=1e-12, latency=0.1e-9, area=1e-9, share=0),
    }
    text = "round figures to try things with; of no device, and no basis for a claim"
    return CostTable(costs, name="example", source=text)


_PRESETS = {"isaac": _isaac, "horowitz45": _horowitz, "example": _example}


def preset_names() -> list[str]:
    """List the names of the tables.

    Returns
    -------
    list of str
    """
    return list(_PRESETS)


def preset(*names: str) -> CostTable:
    """Give a table of costs that is built in, or join several.

    Parameters
    ----------
    *names : {"isaac", "horowitz45", "example"}
        An event has its cost of the first table that has one.

    Returns
    -------
    CostTable

    Raises
    ------
    ParameterError

    Notes
    -----
    "isaac": a crossbar of 128 x 128 with converters of 1 and 8 bits in 32 nm, for reading only.
    "horowitz45": energies of digital operations in 45 nm. "example": round figures for all events
    and resolutions, of no device. ``print`` shows each figure with its source.

    Examples
    --------
    >>> import rpukit as rk
    >>> table = rk.costs.preset("isaac", "horowitz45")
    >>> f"{table['adc:8'].energy:.3g} {table['multiply'].energy:.2g}"
    '1.56e-12 3.7e-12'
    """
    if not names:
        raise ParameterError(f"preset: need at least one of {', '.join(_PRESETS)}")
    tables = [_PRESETS[one_of(name, "preset", _PRESETS)]() for name in names]
    joined = dict(pair for table in reversed(tables) for pair in table._costs.items())
    source = "; ".join(table.source for table in tables)
    return CostTable(joined, name=" + ".join(names), source=source)
