"""Events that cost energy and time, and how many of them an object has caused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["EVENTS", "PHASES", "Counts", "Event"]

PHASES = ("forward", "backward", "update", "transfer", "program", "read")

# Name of each event, and what one of it is.
EVENTS = {
    "dac": "conversion of one input of a product; dac:7 is one of 7 bits",
    "adc": "conversion of one output of a product; adc:9 is one of 9 bits",
    "pass": "read of a whole array, all lines at once",
    "cell_read": "one device that takes part in a pass",
    "pulse": "one pulse that changes a device",
    "slot": "one time slot of the pulse trains of an update",
    "write": "one device programmed to its target",
    "add": "digital addition",
    "multiply": "digital multiplication",
    "mac": "digital multiply-accumulate, of products and updates without converters or pulses",
    "byte": "byte that enters or leaves the converters of an array",
}


@dataclass(frozen=True, slots=True)
class Event:
    """Number of events of one kind.

    Parameters
    ----------
    name : str
        One of `EVENTS`.
    n : int
    lines : int
        Places at which they can happen at the same time: lines, cells, or 1.
    bits : int
        Resolution of a conversion; 0 for other events.
    """

    name: str
    n: int
    lines: int
    bits: int = 0

    @property
    def key(self) -> str:
        """Name of the event, with the resolution of a conversion: "adc:9"."""
        return f"{self.name}:{self.bits}" if self.bits else self.name


@dataclass(frozen=True, slots=True)
class Counts:
    """Events that an object has caused, by phase.

    Parameters
    ----------
    name : str
    events : dict of str to tuple of Event
        By phase; without those of the parts.
    devices : int
        Without those of the parts.
    parts : tuple of Counts
        Tiles of an array, layers of a network.
    together : bool
        Whether the parts work at the same time, as tiles of an array do, or one after another.
    """

    name: str
    events: dict[str, tuple[Event, ...]] = field(default_factory=dict)
    devices: int = 0
    parts: tuple[Counts, ...] = ()
    together: bool = True

    def __getitem__(self, phase: str) -> dict[str, int]:
        return self.as_dict()[phase]

    @property
    def n_device(self) -> int:
        """Number of devices, those of the parts included."""
        return self.devices + sum(part.n_device for part in self.parts)

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Add up the events, those of the parts included.

        Returns
        -------
        dict of str to dict
            By phase: number of events by key, without those that have not happened.
        """
        found: dict[str, dict[str, int]] = {phase: {} for phase in PHASES}
        for phase, event in self.all_events():
            if event.n:
                found[phase][event.key] = found[phase].get(event.key, 0) + event.n
        return found

    def all_events(self) -> Iterable[tuple[str, Event]]:
        """List all events with their phases, those of the parts included.

        Returns
        -------
        iterable of (str, Event)
        """
        for phase, events in self.events.items():
            for event in events:
                yield phase, event
        for part in self.parts:
            yield from part.all_events()

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.n_device:,} devices"]
        for phase, found in self.as_dict().items():
            for k, (name, n) in enumerate(found.items()):
                lines.append(f"  {phase if k == 0 else '':9} {name:10} {n:>20,}")
        return "\n".join(lines)


def merged(*groups: Any) -> dict[str, tuple[Event, ...]]:
    """Join dictionaries of events by phase."""
    return {
        phase: tuple(e for group in groups for e in group.get(phase, ()))
        for phase in PHASES
        if any(phase in group for group in groups)
    }


def renamed(found: Counts, name: str) -> Counts:
    """Give counts another name, if one is given."""
    return replace(found, name=name or found.name)
