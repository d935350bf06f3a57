"""Energy, latency and area: counts of events times a table of costs."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

from rpukit.costs.cost import Cost
from rpukit.costs.events import PHASES, Counts, Event
from rpukit.summaries import Fact

__all__ = ["Costs", "costs_of"]

_CONVERTERS = ("dac", "adc")
_PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p"), (1e-15, "f"))


class Table(Protocol):
    """A table of costs, by names of events."""

    name: str

    def find(self, key: str) -> Cost | None: ...


@dataclass(frozen=True, slots=True)
class Costs:
    """What an object has cost so far, by phase and event.

    Attributes
    ----------
    name, table : str
        Of the object, and of the table of costs.
    counts : Counts
    energy : dict of str to dict
        Joules by phase and event.
    latency : dict of str to float
        Seconds by phase.
    area : float
        Square metres.
    parts : tuple of Costs
        Of the tiles of an array, or of the layers of a network.
    missing : tuple of str
        Events that have happened and that the table has no cost of.
    """

    name: str
    table: str
    counts: Counts
    energy: dict[str, dict[str, float]]
    latency: dict[str, float]
    area: float
    parts: tuple[Costs, ...]
    missing: tuple[str, ...]

    @property
    def total_energy(self) -> float:
        """Joules of all phases."""
        return sum(sum(found.values()) for found in self.energy.values())

    @property
    def total_latency(self) -> float:
        """Seconds of all phases, one after another."""
        return sum(self.latency.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the costs as plain data.

        Returns
        -------
        dict
            For JSON: joules, seconds, square metres, and the numbers of events.
        """
        return {
            "name": self.name,
            "table": self.table,
            "energy": self.total_energy,
            "latency": self.total_latency,
            "area": self.area,
            "energy_by_phase": {p: sum(found.values()) for p, found in self.energy.items()},
            "energy_by_event": self.by_event(),
            "latency_by_phase": dict(self.latency),
            "events": {p: found for p, found in self.counts.as_dict().items() if found},
            "missing": list(self.missing),
            "parts": [
                {"name": p.name, "energy": p.total_energy, "latency": p.total_latency}
                for p in self.parts
            ],
        }

    def by_event(self) -> dict[str, float]:
        """Add up the energies of each event over the phases.

        Returns
        -------
        dict of str to float
            Joules, the largest first.
        """
        found: dict[str, float] = {}
        for events in self.energy.values():
            for key, energy in events.items():
                found[key] = found.get(key, 0.0) + energy
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def facts(self) -> list[Fact]:
        """Make the lines of `rpukit.summary`.

        Returns
        -------
        list of Fact
        """
        data = self.as_dict()
        by_phase = [(p, e) for p, e in data["energy_by_phase"].items() if e]
        text = ", ".join(f"{phase} {written(e, 'J')}" for phase, e in by_phase)
        more = f": {text}" if text else ""
        found = [
            Fact("energy", f"{written(self.total_energy, 'J')}, by {self.table}{more}", data),
            Fact("latency", written(self.total_latency, "s"), self.total_latency),
            Fact("area", _area(self.area), self.area),
        ]
        if self.missing:
            found.append(Fact("no cost of", ", ".join(self.missing), list(self.missing)))
        return found

    def _rows(self) -> list[tuple[str, ...]]:
        head = ("phase", "event", "number", "energy", "share", "latency")
        rows: list[tuple[str, ...]] = [head]
        every, whole = self.counts.as_dict(), self.total_energy or 1.0
        for phase in PHASES:
            events = [(key, n) for key, n in every[phase].items() if n]
            for k, (key, n) in enumerate(events):
                energy = self.energy.get(phase, {}).get(key)
                cost = "no cost" if energy is None else written(energy, "J")
                share = "" if energy is None else f"{100 * energy / whole:.1f} %"
                time = written(self.latency[phase], "s") if k == 0 else ""
                rows.append((phase if k == 0 else "", key, f"{n:,}", cost, share, time))
        sums = written(self.total_energy, "J"), written(self.total_latency, "s")
        rows.append(("all", "", "", sums[0], "", sums[1]))
        return rows

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines = [f"{self.name}, {_area(self.area)}, by the table {self.table}"]
        for row in rows:
            cells = [t.ljust(w) for t, w in zip(row[:2], widths[:2], strict=True)]
            cells += [t.rjust(w) for t, w in zip(row[2:], widths[2:], strict=True)]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        title = escape(f"{self.name}, {_area(self.area)}, by the table {self.table}")
        return f"<div><strong>{title}</strong><table><tr>{top}</tr>{body}</table></div>"


def costs_of(counts: Counts, table: Table) -> Costs:
    """Multiply counts by the costs of a table."""
    parts = tuple(costs_of(part, table) for part in counts.parts)
    energy: dict[str, dict[str, float]] = {}
    missing: dict[str, None] = dict.fromkeys(name for part in parts for name in part.missing)
    latency = {phase: _of_parts(phase, parts, counts.together) for phase in PHASES}
    for part in parts:
        for phase, events in part.energy.items():
            for key, value in events.items():
                own = energy.setdefault(phase, {})
                own[key] = own.get(key, 0.0) + value
    for phase, some in counts.events.items():
        for event in some:
            cost = table.find(event.key)
            if cost is None:
                if event.n:
                    missing[event.key] = None
                continue
            if event.n:
                own = energy.setdefault(phase, {})
                own[event.key] = own.get(event.key, 0.0) + event.n * cost.energy
            turns = event.n / event.lines * min(cost.share or event.lines, event.lines)
            latency[phase] += turns * cost.latency
    area = _area_of(counts, table) + sum(part.area for part in parts)
    name, unknown = table.name or "own table", tuple(missing)
    return Costs(counts.name, name, counts, energy, latency, area, parts, unknown)


def _of_parts(phase: str, parts: tuple[Costs, ...], together: bool) -> float:
    times = [part.latency[phase] for part in parts]
    return (max(times) if together else sum(times)) if times else 0.0


def _area_of(counts: Counts, table: Table) -> float:
    """Area of devices and units, without the parts."""
    cell = table.find("cell_read")
    found = counts.devices * cell.area if cell else 0.0
    largest: dict[tuple[bool, str], float] = {}
    for phase, events in counts.events.items():
        for event in events:
            back = phase == "backward"
            if event.name == "cell_read" or not (event.n or phase == "forward"):
                continue
            area = _units_area(event, table)
            # Lines of backward products have converters of their own; all else is shared.
            place = (back and event.name in _CONVERTERS, event.key)
            largest[place] = max(largest.get(place, 0.0), area)
    return found + sum(largest.values())


def _units_area(event: Event, table: Table) -> float:
    cost = table.find(event.key)
    return cost.units(event.lines) * cost.area if cost else 0.0


def written(value: float, unit: str) -> str:
    """Write a quantity with a prefix of its unit."""
    size = abs(value)
    if size == 0:
        return f"0 {unit}"
    scale, prefix = next((p for p in _PREFIXES if size >= 0.9995 * p[0]), _PREFIXES[-1])
    return f"{value / scale:.3g} {prefix}{unit}"


def _area(value: float) -> str:
    return f"{value * 1e6:.3g} mm2"
