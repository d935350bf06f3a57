"""Reading of measured pulses from CSV files and tables, with errors that name row and column."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from rpukit._checks import did_you_mean, need_memory, one_of, shown, takes
from rpukit.errors import FormatError, ParameterError
from rpukit.studies.measured import PulseData

__all__ = ["example_names", "example_pulses", "read_pulses"]

_MICROSIEMENS = {"S": 1e6, "mS": 1e3, "uS": 1.0, "µS": 1.0, "μS": 1.0, "nS": 1e-3, "pS": 1e-6}
_NEEDED = ("device", "pulse", "direction", "conductance")
_OPTIONAL = ("read_noise", "cycle")
_WITH_UNIT = ("conductance", "read_noise")
_UP = {"up", "1", "+1", "1.0", "+", "true", "set", "potentiation"}
_DOWN = {"down", "-1", "0", "-1.0", "0.0", "-", "false", "reset", "depression"}
_MOST_PULSES = 10**7
_EXAMPLES = ("ecram", "reram")
_COLUMNS = {"ecram": {"device": "cell id", "pulse": "pulse number"}}


@takes()
def read_pulses(
    source: Any, *, unit: str | None = None, columns: Mapping[str, str] | None = None
) -> PulseData:
    """Read measured pulses from a CSV file, a table or an open file.

    Parameters
    ----------
    source : str, path, file object, pandas.DataFrame or mapping of str to sequence
        With a line for each read and these columns, in any order: ``device`` (a name or number),
        ``pulse`` (number of the pulse after which the device was read, an integer), ``direction``
        (up or down, 1 or -1), ``conductance``; and, if known, ``read_noise`` (standard deviation
        of a read) and ``cycle`` (an integer). The first line of a device is its read before the
        first pulse. CSV files may have comment lines (#), and commas, semicolons or tabs.
    unit : {"S", "mS", "uS", "nS", "pS"}, optional
        Of ``conductance`` and ``read_noise``; needed where their headings do not say it, as
        ``conductance (uS)`` and ``conductance_nS`` do.
    columns : mapping of str to str, optional
        Headings of the table by the names above: ``{"device": "cell id"}``.

    Returns
    -------
    PulseData
        Conductances in microsiemens, sorted by device and pulse number.

    Raises
    ------
    FormatError
        If a value or a column is not what it must be; the message names the line and the column.
    ParameterError, OSError

    Examples
    --------
    >>> import io, rpukit as rk
    >>> text = "device,pulse,direction,conductance (uS)\\na,0,,10\\na,1,up,12.5\\na,2,down,11\\n"
    >>> data = rk.studies.read_pulses(io.StringIO(text))
    >>> data.conductance, data.up[1:]
    (array([10. , 12.5, 11. ]), array([ True, False]))
    """
    name, digest, headings, rows, first = _table(source)
    _check_names(columns or {}, headings, name)
    places, units = _places(headings, dict(columns or {}), unit, name)
    if not rows:
        raise FormatError(f"{name}: got no lines below the headings, need a read in each")
    read = _Reader(name, headings, rows, first)
    labels = [str(v).strip() for v in read.texts(places["device"])]
    devices = tuple(dict.fromkeys(labels))
    device = np.array([devices.index(v) for v in labels], np.int64)
    pulse = read.integers(places["pulse"])
    found = {
        key: read.numbers(places[key]) * _MICROSIEMENS[units[key]]
        for key in _WITH_UNIT
        if key in places
    }
    if "read_noise" in found and (found["read_noise"] < 0).any():
        read.fail(int(np.argmax(found["read_noise"] < 0)), places["read_noise"], "a number from 0")
    cycle = read.integers(places["cycle"]) if "cycle" in places else None
    order = np.lexsort((pulse, device))
    _check_order(read, order, device, pulse, places["pulse"])
    starts = np.zeros(order.size, bool)
    starts[order[np.flatnonzero(np.diff(device[order], prepend=-1))]] = True
    up = read.directions(places["direction"], starts)
    chosen = {key: value[order] for key, value in found.items()}
    return PulseData(
        devices,
        device[order],
        pulse[order],
        up[order],
        chosen["conductance"],
        chosen.get("read_noise"),
        None if cycle is None else cycle[order],
        {"name": name, "sha256": digest, "unit": units["conductance"]},
    )


def example_names() -> tuple[str, ...]:
    """List the measured-like sets that `example_pulses` knows.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.studies.example_names()
    ('ecram', 'reram')
    """
    return _EXAMPLES


@takes()
def example_pulses(name: str) -> PulseData:
    """Load a set of pulses that is shipped with rpukit: synthetic, made to look measured.

    Parameters
    ----------
    name : str
        ``"reram"``: three resistive memories, five cycles of 50 up and 50 down pulses, with
        writing noise and a few false reads. ``"ecram"``: four electrochemical cells, three cycles
        of 80 and 80 pulses, with the noise of each read, in nanosiemens.

    Returns
    -------
    PulseData

    Raises
    ------
    ParameterError

    Notes
    -----
    Both are drawn by ``tools/make_pulse_data.py``, which says from what.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.studies.example_pulses("reram").devices
    ('A1', 'A2', 'B1')
    """
    found = one_of(name, "name", _EXAMPLES)
    text = resources.files("rpukit.studies").joinpath(f"data/{found}.csv").read_bytes()
    file = io.BytesIO(text)
    file.name = f"{found}.csv"
    return read_pulses(file, columns=_COLUMNS.get(found))


class _Reader:
    """Columns of a table, whose errors name the line and the column."""

    def __init__(
        self, name: str, headings: list[str], rows: Sequence[Sequence[Any]], first: list[int]
    ) -> None:
        self._name, self._headings, self._rows, self._first = name, headings, rows, first

    def fail(self, row: int, column: int, need: str) -> None:
        """Raise the error of one value."""
        raise FormatError(
            f"{self._name}, line {self._first[row]}, column {self._headings[column]!r}: got "
            f"{shown(self._rows[row][column])}, need {need}"
        )

    def texts(self, column: int) -> list[Any]:
        """Return the values of a column, none of which is empty."""
        values = [row[column] for row in self._rows]
        for k, value in enumerate(values):
            if value is None or not str(value).strip():
                self.fail(k, column, "a value")
        return values

    def numbers(self, column: int) -> np.ndarray:
        """Convert a column to finite numbers."""
        out = np.empty(len(self._rows))
        for k, value in enumerate(self.texts(column)):
            try:
                out[k] = float(value)
            except (TypeError, ValueError):
                out[k] = math.nan
            if not math.isfinite(out[k]):
                self.fail(k, column, "a finite number")
        return out

    def integers(self, column: int) -> np.ndarray:
        """Convert a column to integers."""
        values = self.numbers(column)
        wrong = (values != np.round(values)) | (np.abs(values) > 2**53)
        if wrong.any():
            self.fail(int(np.argmax(wrong)), column, "an integer")
        return values.astype(np.int64)

    def directions(self, column: int, starts: np.ndarray) -> np.ndarray:
        """Convert a column to directions; that of the first line of a device may be anything."""
        out = np.zeros(len(self._rows), bool)
        for k, row in enumerate(self._rows):
            value = str(row[column]).strip().lower()
            if value not in _UP | _DOWN and not starts[k]:
                self.fail(k, column, "up or down, 1 or -1")
            out[k] = value in _UP
        return out


def _table(source: Any) -> tuple[str, str, list[str], list[Any], list[int]]:
    """Take a source apart: name, SHA-256, headings, rows, and their lines for messages."""
    if isinstance(source, (str, os.PathLike)):
        return _parsed(Path(source).read_bytes(), Path(source).name)
    if hasattr(source, "read"):
        content = source.read()
        raw = content.encode() if isinstance(content, str) else bytes(content)
        return _parsed(raw, os.path.basename(str(getattr(source, "name", "a file object"))))
    keys = getattr(source, "columns", None)  # of a data frame
    if keys is None and isinstance(source, Mapping):
        keys = list(source)
    if keys is None:
        raise ParameterError(
            f"source: got {shown(source)}, need a path, a file object, a DataFrame or a mapping"
        )
    try:
        columns = [list(source[key]) for key in keys]
    except TypeError:
        raise FormatError(
            "source: got a column without length, need a value for each read"
        ) from None
    if len({len(column) for column in columns}) > 1:
        raise FormatError("source: got columns of different lengths")
    rows = list(zip(*columns, strict=True))
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()
    return "table", digest, [str(key) for key in keys], rows, list(range(len(rows)))


def _parsed(raw: bytes, name: str) -> tuple[str, str, list[str], list[Any], list[int]]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: got bytes that are no UTF-8 text: {error}") from error
    lines = [
        (n, line)
        for n, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise FormatError(f"{name}: got an empty file, need headings and a line for each read")
    mark = max(",;\t", key=lines[0][1].count)
    found = list(csv.reader([line for _, line in lines], delimiter=mark))
    headings = [heading.strip() for heading in found[0]]
    for (n, _), row in zip(lines[1:], found[1:], strict=True):
        if len(row) != len(headings):
            raise FormatError(
                f"{name}, line {n}: got {len(row)} values, need {len(headings)}, one for each of "
                f"{', '.join(headings)}"
            )
    rows: list[Any] = found[1:]
    if mark == ";":  # of countries that write numbers with a comma
        rows = [[value.replace(",", ".") for value in row] for row in rows]
    return name, hashlib.sha256(raw).hexdigest(), headings, rows, [n for n, _ in lines[1:]]


def _check_names(columns: Mapping[str, str], headings: list[str], name: str) -> None:
    for key, heading in columns.items():
        known = (*_NEEDED, *_OPTIONAL)
        if key not in known:
            hint = did_you_mean(key, known)
            raise ParameterError(f"columns: got {key!r}, need names of {', '.join(known)}{hint}")
        if heading not in headings:
            hint = did_you_mean(heading, headings)
            raise FormatError(
                f"{name}: no column {heading!r}, there are {', '.join(headings)}{hint}"
            )


def _places(
    headings: list[str], columns: dict[str, str], unit: str | None, name: str
) -> tuple[dict[str, int], dict[str, str]]:
    """Find the column of each name, and the units of those that have one."""
    if unit is not None:
        one_of(unit, "unit", _MICROSIEMENS)
    places: dict[str, int] = {}
    units: dict[str, str] = {}
    for key in (*_NEEDED, *_OPTIONAL):
        for k, heading in enumerate(headings):
            own = columns.get(key)
            found = _matches(heading, key) if own is None else _matches(heading, own)
            if found is None or key in places:
                continue
            places[key] = k
            if key in _WITH_UNIT:
                units[key] = found or unit or ""
        if key in _NEEDED and key not in places:
            hint = did_you_mean(key, headings)
            raise FormatError(
                f"{name}: no column {key!r}, there are {', '.join(headings)}: rename it or give "
                f"columns={{{key!r}: ...}}{hint}"
            )
    for key, found in units.items():
        if not found:
            raise FormatError(
                f"{name}, column {headings[places[key]]!r}: got no unit, need one in the heading, "
                'as "conductance (uS)", or the argument unit="uS"'
            )
    return places, units


def _matches(heading: str, key: str) -> str | None:
    """Return the unit of a heading with this name, "" if it has none; None for other names."""
    plain = re.sub(r"[\s_]+", "_", heading.strip())
    for name in (key, key.replace(" ", "_"), f"{key}_number"):
        if plain.lower() == name.lower() or heading == key:
            return ""
        unit = rf"_*[\[(]?({'|'.join(_MICROSIEMENS)})[\])]?"
        found = re.fullmatch(f"(?i:{re.escape(name)}){unit}", plain)
        if found and key not in ("device", "pulse", "direction", "cycle"):
            return found[1]
    return None


def _check_order(
    read: _Reader, order: np.ndarray, device: np.ndarray, pulse: np.ndarray, column: int
) -> None:
    """Check that each device has two reads or more, and no pulse number twice."""
    same = np.diff(device[order]) == 0
    step = np.diff(pulse[order])
    twice = same & (step == 0)
    if twice.any():
        read.fail(int(order[int(np.argmax(twice)) + 1]), column, "each pulse of a device once")
    counts = np.bincount(device)
    if counts.min() < 2:
        alone = int(np.flatnonzero(device == np.argmin(counts))[0])
        read.fail(alone, column, "two reads or more of each device")
    n_pulse = int(step[same].sum())
    if n_pulse > _MOST_PULSES:
        read.fail(
            int(order[int(np.argmax(np.where(same, step, 0))) + 1]),
            column,
            f"numbers of at most {_MOST_PULSES} pulses together",
        )
    need_memory(64 * n_pulse, f"{n_pulse} pulses")
