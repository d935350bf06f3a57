"""`CostTable`: what one of each event costs, and where the figures are from."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rpukit._checks import did_you_mean, instance, shown, text
from rpukit._files.schema import anything, listing, optional, record, table
from rpukit._files.schema import integer as whole
from rpukit._files.schema import number as finite
from rpukit._files.schema import text as words
from rpukit._files.writing import write_text
from rpukit.costs.cost import GROWTHS, MOST_BITS, Cost
from rpukit.costs.counting import count
from rpukit.costs.events import EVENTS, Counts
from rpukit.costs.totals import Costs, costs_of
from rpukit.errors import DTypeError, FormatError, ParameterError
from rpukit.summaries import Fact

__all__ = ["CostTable", "total"]

FORMAT, VERSION = "rpukit.CostTable", 1
UNITS = {"energy": "J", "latency": "s", "area": "m2"}
_CONVERTERS = ("dac", "adc")
_GROWTH = words(*GROWTHS)
_COST = record(
    {"energy": finite(0)},
    {
        "latency": finite(0),
        "area": finite(0),
        "share": whole(0, 1 << 48),
        "bits": whole(0, MOST_BITS),
        "growth": _GROWTH,
        "latency_growth": _GROWTH,
        "source": words(),
    },
)
_TABLE = record(
    {"format": anything, "version": anything, "costs": table(listing(_COST))},
    {"name": words(), "source": words(), "units": optional(table(words()))},
)


class CostTable:
    """Costs of events, with their sources.

    Parameters
    ----------
    costs : dict of str to Cost or sequence of Cost
        By names of `EVENTS`. Of conversions there may be several, for several resolutions.
    name : str
    source : str
        Of the table as a whole.

    Raises
    ------
    ParameterError, DTypeError

    Examples
    --------
    >>> import rpukit as rk
    >>> table = rk.costs.CostTable({"pulse": rk.costs.Cost(energy=1e-14)}, name="mine")
    >>> table["pulse"].energy
    1e-14
    """

    def __init__(
        self, costs: Mapping[str, Cost | tuple[Cost, ...]], *, name: str = "", source: str = ""
    ) -> None:
        self.name, self.source = text(name, "name"), text(source, "source")
        self._costs: dict[str, tuple[Cost, ...]] = {}
        for key, given in costs.items():
            if key not in EVENTS:
                raise ParameterError(
                    f"costs: no event is called {shown(key)}, need one of {', '.join(EVENTS)}"
                    f"{did_you_mean(key, EVENTS)}"
                )
            every = given if isinstance(given, (tuple, list)) else (given,)
            self._costs[key] = tuple(instance(c, Cost, f"costs[{key!r}]") for c in every)
            if key in _CONVERTERS and not all(cost.bits for cost in self._costs[key]):
                raise ParameterError(f"costs[{key!r}]: got no bits, need a resolution from 1")

    def __getitem__(self, key: str) -> Cost:
        found = self.find(key)
        if found is None:
            raise ParameterError(
                f"costs: {self._title} has no cost of {shown(key)}, but of "
                f"{', '.join(self._costs)}{did_you_mean(key, self._costs)}"
            )
        return found

    @property
    def _title(self) -> str:
        return self.name or "this table"

    def find(self, key: str) -> Cost | None:
        """Find the cost of an event.

        Parameters
        ----------
        key : str
            Name of the event; with the resolution of a conversion, as "adc:9".

        Returns
        -------
        Cost or None
            Of this resolution: as given, or scaled from the nearest one that has a growth. None
            where the table has no cost of such an event.

        Raises
        ------
        ParameterError
            For a conversion of a resolution that the table neither has nor scales to.
        """
        name, _, resolution = key.partition(":")
        known = self._costs.get(name, ())
        if not known or not resolution:
            return known[0] if known else None
        if not resolution.isdecimal():
            raise ParameterError(f"costs: got {shown(key)}, need a name such as 'adc:9'")
        bits = int(resolution)
        exact = [cost for cost in known if cost.bits == bits]
        if exact:
            return exact[0]
        grows = [cost for cost in known if cost.growth != "none"]
        if not grows:
            have = ", ".join(str(cost.bits) for cost in known)
            raise ParameterError(
                f"costs: {self._title} has {name} of {have} bits only, and {bits} are needed: use "
                "that resolution, add its cost, or give the cost a growth"
            )
        return min(grows, key=lambda cost: (abs(cost.bits - bits), cost.bits)).at(bits)

    def with_costs(self, **costs: Cost | tuple[Cost, ...]) -> CostTable:
        """Replace or add costs.

        Parameters
        ----------
        **costs : Cost or sequence of Cost
            By names of events.

        Returns
        -------
        CostTable
            A new one.
        """
        return CostTable({**self._costs, **costs}, name=self.name, source=self.source)

    def facts_of(self, obj: Any) -> list[Fact]:
        """Make the lines that `rpukit.summary` shows of the costs of an object.

        Parameters
        ----------
        obj : object
            As of `rpukit.costs.count`.

        Returns
        -------
        list of Fact
        """
        return total(obj, self).facts()

    # ---- files ----------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Return the table as plain data, as its JSON file has it.

        Returns
        -------
        dict
        """
        costs = {key: [asdict(cost) for cost in every] for key, every in self._costs.items()}
        head = {"format": FORMAT, "version": VERSION, "name": self.name, "source": self.source}
        return {**head, "units": UNITS, "costs": costs}

    @classmethod
    def from_dict(cls, data: Any) -> CostTable:
        """Build a table from plain data.

        Parameters
        ----------
        data : dict
            As `as_dict` returns it; only ``format``, ``version`` and ``costs`` are needed.

        Returns
        -------
        CostTable

        Raises
        ------
        FormatError
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise FormatError(f'table of costs: need a dictionary with "format": "{FORMAT}"')
        if data.get("version") != VERSION:
            raise FormatError(
                f"table of costs: version {shown(data.get('version'))}, this rpukit reads "
                f"{VERSION}: update rpukit"
            )
        found = _TABLE(data, "table")
        if (found.get("units") or UNITS) != UNITS:
            raise FormatError(f"table.units: got {shown(found['units'])}, need {UNITS}")
        try:
            costs = {k: tuple(Cost(**c) for c in every) for k, every in found["costs"].items()}
            return cls(costs, name=found.get("name", ""), source=found.get("source", ""))
        except (ParameterError, DTypeError) as error:
            raise FormatError(f"table: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table as JSON.

        Parameters
        ----------
        path : path

        Raises
        ------
        SaveError

        Examples
        --------
        >>> import rpukit as rk
        >>> rk.costs.preset("isaac").save("isaac.json")
        >>> rk.costs.CostTable.load("isaac.json")["pass"].latency
        1e-07
        """
        write_text(Path(path), json.dumps(self.as_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CostTable:
        """Read a table from JSON, or from CSV with the fields of `Cost` as columns.

        Parameters
        ----------
        path : path
            Of CSV if its name ends so: a column ``event``, ``energy``, and any of the others.

        Returns
        -------
        CostTable

        Raises
        ------
        FormatError, OSError
        """
        where = Path(path)
        try:
            written = where.read_text(encoding="utf-8")
            if where.suffix.lower() != ".csv":
                return cls.from_dict(json.loads(written))
            rows = list(csv.DictReader(written.splitlines()))
            return cls.from_dict(_of_rows(rows, where.stem))
        except (UnicodeDecodeError, json.JSONDecodeError, csv.Error) as error:
            raise FormatError(f"{where.name}: not a table of costs: {error}") from error

    def __repr__(self) -> str:
        return f"CostTable({self.name!r}: {', '.join(self._costs)})"

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.source}" if self.source else self.name]
        for key, every in self._costs.items():
            for cost in every:
                bits = f":{cost.bits}" if cost.bits else ""
                figures = f"{cost.energy:9.3g} J {cost.latency:9.3g} s {cost.area:9.3g} m2"
                lines.append(f"  {key + bits:10} {figures}  {cost.source}".rstrip())
        return "\n".join(lines)


def total(obj: Any, table: CostTable) -> Costs:
    """Compute what an object has cost so far.

    Parameters
    ----------
    obj : object
        As of `count`, or what it has returned.
    table : CostTable

    Returns
    -------
    Costs

    Raises
    ------
    DTypeError, ParameterError
        ParameterError for conversions of a resolution that the table has no cost of.

    Notes
    -----
    Energy: events times the energy of one. Latency: within a phase the kinds of events come one
    after another and do not overlap; a unit that serves several lines takes them in turn; tiles of
    an array work at the same time, layers and other parts one after another. Area: devices, the
    converters of forward products, those of backward products where there have been any, and one
    set of all other units; nothing for wires. See docs/costs.md.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> tile = rk.AnalogTile((10, 64), rk.ConstantStep(), seed=7)
    >>> y = tile.forward(np.ones((5, 64), np.float32))
    >>> rk.costs.total(tile, rk.costs.preset("example")).energy["forward"]["adc:9"]
    2e-10
    """
    instance(table, CostTable, "table")
    return costs_of(obj if isinstance(obj, Counts) else count(obj), table)


def _of_rows(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Turn the rows of a CSV file into the data of a table."""
    kinds: dict[str, Any] = {
        field.name: {"float": float, "int": int, "str": str}[str(field.type)]
        for field in fields(Cost)
    }
    costs: dict[str, list[dict[str, Any]]] = {}
    for k, row in enumerate(rows, start=2):
        given = {key: value for key, value in row.items() if value not in (None, "")}
        event = given.pop("event", None)
        try:
            cost = {key: kinds[key](value) for key, value in given.items()}
        except (KeyError, TypeError, ValueError) as error:
            need = f"event, {', '.join(kinds)}"
            raise FormatError(f"{name}, line {k}: {error!r}, need columns {need}") from error
        costs.setdefault(str(event), []).append(cost)
    return {"format": FORMAT, "version": VERSION, "name": name, "costs": costs}
