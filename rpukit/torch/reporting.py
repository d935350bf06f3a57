"""Report of a model: what is in tiles, and what is digital."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rpukit.costs import CostTable, total
from rpukit.torch.layers.linear import AnalogLayer

__all__ = ["LayerFacts", "Report", "report"]

Module = Any
_HEAD = ("layer", "class", "tiles", "used", "parameters", "MACs", "bytes", "pulses", "energy / J")


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """One line of a report.

    Parameters
    ----------
    name, kind : str
        Name in the model, and class.
    tiles : tuple of int or None
        Blocks of outputs and of inputs; None: digital.
    utilisation : float
        Share of the cells of the tiles that hold a weight.
    n_parameters : int
    n_macs : int
        Multiplications of one sample of the tiles; for a convolution, of one patch.
    n_bytes : int
        Memory on the compute device.
    n_pulses : int
        That the cells have received.
    energy : float or None, joules
        Of all that the tiles have done so far; None without a table of costs.
    """

    name: str
    kind: str
    tiles: tuple[int, int] | None
    utilisation: float
    n_parameters: int
    n_macs: int
    n_bytes: int
    n_pulses: int
    energy: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What became what, one line a layer; ``print`` shows it as a table.

    Parameters
    ----------
    layers : tuple of LayerFacts
    """

    layers: tuple[LayerFacts, ...]

    @property
    def analog_share(self) -> float:
        """Share of the parameters that are in tiles."""
        total = sum(layer.n_parameters for layer in self.layers)
        return sum(x.n_parameters for x in self.layers if x.tiles) / max(total, 1)

    @property
    def total_energy(self) -> float | None:
        """Energy of all tiles so far, joules; None without a table of costs."""
        known = [layer.energy for layer in self.layers if layer.energy is not None]
        return sum(known) if known else None

    def energy(self, energy_per_pulse: float) -> float:
        """Compute the energy of all pulses so far.

        Parameters
        ----------
        energy_per_pulse : float
            In any unit of energy.

        Returns
        -------
        float
            In the same unit.
        """
        return energy_per_pulse * sum(layer.n_pulses for layer in self.layers)

    def __str__(self) -> str:
        n_column = len(_HEAD) - (self.total_energy is None)
        rows = [row[:n_column] for row in (_HEAD, *map(_row, self.layers))]
        widths = [max(len(row[k]) for row in rows) for k in range(n_column)]
        lines = []
        for row in rows:
            cells = [t.ljust(w) for t, w in zip(row[:3], widths[:3], strict=True)]
            cells += [t.rjust(w) for t, w in zip(row[3:], widths[3:], strict=True)]
            lines.append("  ".join(cells).rstrip())
        lines.append(f"{100 * self.analog_share:.1f} % of the parameters are in tiles")
        if self.total_energy is not None:
            lines.append(f"the tiles have used {self.total_energy:.3g} J")
        return "\n".join(lines)


def _row(layer: LayerFacts) -> tuple[str, ...]:
    if layer.tiles is None:
        return layer.name, layer.kind, "digital", "", f"{layer.n_parameters:,}", "", "", "", ""
    tiles = f"{layer.tiles[0]} x {layer.tiles[1]}"
    numbers = (layer.n_parameters, layer.n_macs, layer.n_bytes, layer.n_pulses)
    used = f"{100 * layer.utilisation:.1f} %"
    energy = "" if layer.energy is None else f"{layer.energy:.3g}"
    return layer.name, layer.kind, tiles, used, *(f"{n:,}" for n in numbers), energy


def report(model: Module, *, costs: CostTable | None = None) -> Report:
    """Tell what of a model is in tiles.

    Parameters
    ----------
    model : Module
    costs : CostTable, optional
        Gives the energy of all that the tiles have done so far, as of `rpukit.costs.total`.

    Returns
    -------
    Report

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> digital = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.Linear(256, 10))
    >>> model = rk.torch.convert(digital, rk.SoftBounds(), exclude=["1"], seed=7)
    >>> print(rk.torch.report(model))
    layer  class         tiles      used  parameters     MACs      bytes  pulses
    0      AnalogLinear  1 x 2    38.3 %     200,960  200,704  5,619,808       0
    1      Linear        digital               2,570
    98.7 % of the parameters are in tiles
    >>> _ = model(torch.ones(5, 784))
    >>> print(str(rk.torch.report(model, costs=rk.costs.preset("example"))).splitlines()[-1])
    the tiles have used 2.72e-08 J
    """
    found = []
    for name, module in model.named_modules():
        own = sum(p.numel() for p in module.parameters(recurse=False))
        if isinstance(module, AnalogLayer):
            found.append(_facts(name, module, own, costs))
        elif own:
            kind = type(module).__name__
            found.append(LayerFacts(name, kind, None, 0.0, own, 0, 0, 0))
    return Report(tuple(found))


def _facts(name: str, layer: AnalogLayer, own: int, costs: CostTable | None) -> LayerFacts:
    array = layer.array
    n_out, n_in = array.shape
    cells = n_out * n_in + (n_out if array.bias_kind == "analog" else 0)
    where = (array.grid, array.utilisation)
    kind, memory = type(layer).__name__, array._describe()["memory"]
    energy = None if costs is None else total(array, costs).total_energy
    numbers = (own + cells, n_out * n_in, memory, array.n_pulses)
    return LayerFacts(name, kind, *where, *numbers, energy)
