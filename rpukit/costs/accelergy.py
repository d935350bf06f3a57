"""Tables of costs from what Accelergy and CiMLoop write: energy and area reference tables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rpukit._checks import did_you_mean, shown
from rpukit.costs.cost import Cost
from rpukit.costs.table import CostTable
from rpukit.errors import FormatError, ParameterError, RpukitError

__all__ = ["read_accelergy"]

_PICOJOULE, _SQUARE_MICROMETRE = 1e-12, 1e-12
_INDEX = re.compile(r"\[\d+\.\.\d+\]")


def read_accelergy(
    ert: str | os.PathLike[str],
    events: Mapping[str, tuple[str, str]],
    *,
    art: str | os.PathLike[str] | None = None,
    latency: Mapping[str, float] | None = None,
    share: Mapping[str, int] | None = None,
    name: str = "",
) -> CostTable:
    """Read a table of costs from the reference tables of Accelergy, as CiMLoop writes them, too.

    Parameters
    ----------
    ert : path
        Energy reference table: ``ERT.yaml`` or ``ERT_summary.yaml`` of Accelergy 0.2 to 0.4, or
        ``timeloop-mapper.ERT.yaml`` of CiMLoop. Its energies are picojoules.
    events : dict of str to (str, str)
        Component and action that stand for each event, for example ``{"adc:8": ("macro.adc",
        "convert")}``. Of a component, the last part of the name is enough if it is unique, and
        ranges such as ``[1..4]`` may be left out.
    art : path, optional
        Area reference table, ``ART.yaml`` or ``ART_summary.yaml``, in square micrometres.
    latency : dict of str to float, seconds, optional
        Of events; reference tables have none.
    share : dict of str to int, optional
        Lines that one component serves, see `Cost`.
    name : str
        Of the table.

    Returns
    -------
    CostTable

    Raises
    ------
    RpukitError
        Where PyYAML is not installed.
    FormatError, ParameterError, OSError

    Notes
    -----
    Where an action has several energies by its arguments, their mean is taken, as the summaries
    of Accelergy do. Leakage is left out.

    Source: Y. N. Wu, J. S. Emer and V. Sze, Accelergy, ICCAD 2019; T. Andrulis, J. S. Emer and
    V. Sze, CiMLoop, ISPASS 2024.
    """
    energies = _energies(_document(ert, "ERT"), Path(ert).name)
    areas = {} if art is None else _areas(_document(art, "ART"), Path(art).name)
    costs: dict[str, list[Cost]] = {}
    for key, (component, action) in events.items():
        event, _, bits = key.partition(":")
        if bits and not bits.isdecimal():
            raise ParameterError(f"events: got {shown(key)}, need a name such as 'adc:8'")
        actions = energies[_component(component, energies, "ert")]
        if action not in actions:
            raise ParameterError(
                f"events[{key!r}]: {component} has no action {action!r}, need one of "
                f"{', '.join(actions)}{did_you_mean(action, actions)}"
            )
        area = areas[_component(component, areas, "art")] if areas else 0.0
        cost = Cost(
            energy=actions[action] * _PICOJOULE,
            latency=(latency or {}).get(key, 0.0),
            area=area * _SQUARE_MICROMETRE,
            share=(share or {}).get(key, 1),
            bits=int(bits or 0),
            source=f"{component}.{action} of {Path(ert).name}",
        )
        costs.setdefault(event, []).append(cost)
    every = {event: tuple(found) for event, found in costs.items()}
    return CostTable(every, name=name or Path(ert).stem, source=f"Accelergy: {Path(ert).name}")


def _document(path: str | os.PathLike[str], key: str) -> Any:
    """Read a YAML file with a table, or with its summary."""
    try:
        yaml = import_module("yaml")
    except ImportError as error:
        raise RpukitError("files of Accelergy need PyYAML: pip install pyyaml") from error
    where = Path(path)
    try:
        found = yaml.safe_load(where.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FormatError(f"{where.name}: not YAML: {error}") from error
    for name in (key, f"{key}_summary"):
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            body = found[name]
            for part in ("tables", "table_summary", "components"):
                if part in body:
                    return body[part]
    raise FormatError(
        f"{where.name}: need {key} or {key}_summary with tables, as Accelergy writes"
    )


def _energies(tables: Any, where: str) -> dict[str, dict[str, float]]:
    """Energies by component and action, from either layout: lists of names, or dictionaries."""
    try:
        if isinstance(tables, dict):  # version 0.2
            return {
                str(name): {str(action): _mean(given) for action, given in actions.items()}
                for name, actions in tables.items()
            }
        found: dict[str, dict[str, float]] = {}
        for table in tables:
            grouped: dict[str, list[Any]] = {}
            for action in table["actions"]:
                grouped.setdefault(str(action["name"]), []).append(action)
            found[str(table["name"])] = {name: _mean(some) for name, some in grouped.items()}
        return found
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{where}: damaged energy reference table: {error!r}") from error


def _mean(given: Any) -> float:
    every = given if isinstance(given, list) else [given]
    names = ("energy", "average_energy", "average energy")
    values = [float(next(one[name] for name in names if name in one)) for one in every]
    return sum(values) / len(values)


def _areas(tables: Any, where: str) -> dict[str, float]:
    try:
        return {str(table["name"]): float(table["area"]) for table in tables}
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{where}: damaged area reference table: {error!r}") from error


def _component(wanted: str, known: Mapping[str, Any], name: str) -> str:
    """Find a component by its name, with or without ranges, or by the last part of it."""
    plain = {full: _INDEX.sub("", full) for full in known}
    bare = _INDEX.sub("", wanted)
    for match in (
        [full for full in known if full == wanted],
        [full for full, short in plain.items() if short == bare],
        [full for full, short in plain.items() if short.split(".")[-1] == bare],
    ):
        if len(match) == 1:
            return match[0]
        if match:
            raise ParameterError(f"events: {wanted!r} is {' and '.join(match)} in {name}")
    hint = did_you_mean(wanted, plain.values())
    raise ParameterError(f"events: no component {wanted!r} in {name}{hint}; it has {list(known)}")
