"""What an object is, at a glance: records that print in 80 columns and show in a notebook.

Each package describes its own objects, by a class that derives from `Described`; here is the
record that they fill in, and how it is written.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Protocol

import numpy as np

from rpukit import _device
from rpukit._checks import number
from rpukit.errors import DTypeError, ParameterError

__all__ = ["Described", "Fact", "Histogram", "Summary", "histogram_of", "summary"]

Array = Any

WIDTH = 80  # columns of a terminal
_BINS = 32
_MOST = 1 << 20  # values that a histogram counts
_BITS = 18  # of a value in sums of values and of squares: 2**20 squares fit an int64
_BARS = " ▁▂▃▄▅▆▇█"


class CostTable(Protocol):
    """What `summary` needs of a table of costs."""

    def facts_of(self, obj: Any) -> list[Fact]: ...


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a summary.

    Parameters
    ----------
    name : str
    text : str
        For people.
    value : number, str, list or dict
        For programs; JSON takes it.
    """

    name: str
    text: str
    value: Any


@dataclass(frozen=True, slots=True)
class Histogram:
    """How values are spread.

    Parameters
    ----------
    low, high : float
        Smallest and largest finite value.
    mean, std : float
        Of the values that are counted, to five digits of the largest.
    counts : tuple of int
        Values in equal parts of [low, high]; one part where all values are equal.
    n_counted, n_total : int
        Of more than 2**20 values, evenly spaced ones are counted.
    n_bad : int
        Counted values that are NaN or infinite.
    """

    low: float
    high: float
    mean: float
    std: float
    counts: tuple[int, ...]
    n_counted: int
    n_total: int
    n_bad: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """What an object is, as `rpukit.summary` gives it; ``str`` and notebooks show it.

    Parameters
    ----------
    kind : str
        Class of the object.
    title : str
    facts : tuple of Fact
    weights : Histogram, optional

    Examples
    --------
    >>> import rpukit as rk
    >>> found = rk.summary(rk.AnalogTile((2, 3), rk.ConstantStep(), seed=1))
    >>> found.kind, found["devices"], found["macs_per_sample"]
    ('AnalogTile', 6, 6)
    """

    kind: str
    title: str
    facts: tuple[Fact, ...]
    weights: Histogram | None = None

    def __getitem__(self, name: str) -> Any:
        return self.as_dict()[name]

    def as_dict(self) -> dict[str, Any]:
        """Give the facts by name, as plain data.

        Returns
        -------
        dict
            ``kind``, the facts, and ``weights``, itself a dictionary or None. Names have
            underscores where the text has spaces.
        """
        found: dict[str, Any] = {"kind": self.kind}
        found |= {fact.name.replace(" ", "_"): fact.value for fact in self.facts}
        spread = None if self.weights is None else asdict(self.weights)
        if spread is not None:
            spread["counts"] = list(spread["counts"])
        return {**found, "weights": spread}

    def __str__(self) -> str:
        facts = [(fact.name, fact.text) for fact in self.facts]
        if self.weights is not None:
            facts.append(("weights", _spread(self.weights)))
        margin = 4 + max(len(name) for name, _ in facts)
        lines = textwrap.wrap(self.title, WIDTH)
        for name, text in facts:
            head, rest = f"  {name}".ljust(margin), " " * margin
            lines += textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=rest)
        if self.weights is not None and len(self.weights.counts) > 1:
            lines.append(" " * margin + _bars(self.weights))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [(fact.name, escape(fact.text)) for fact in self.facts]
        if self.weights is not None:
            rows.append(("weights", escape(_spread(self.weights)) + _drawing(self.weights)))
        cells = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{text}</td></tr>'
            for name, text in rows
        )
        return f"<div><strong>{escape(self.title)}</strong><table>{cells}</table></div>"


class Described:
    """Base of what `summary` and notebooks can describe."""

    __slots__ = ()

    def _describe(self) -> Summary:
        raise NotImplementedError  # pragma: no cover

    def _repr_html_(self) -> str:
        return self._describe()._repr_html_()


def summary(
    obj: Any, *, energy_per_pulse: float | None = None, costs: CostTable | None = None
) -> Summary:
    """Describe a tile, a circuit, a plan or a trainer.

    Parameters
    ----------
    obj : AnalogTile, InferenceTile, TileArray, MappedMatrix, Circuit, Plan or Trainer
        Or one of the arrays in ``tile.arrays``.
    energy_per_pulse : float, at least 0, optional
        In any unit of energy: the energy of all pulses so far is given too, where they are
        counted.
    costs : rpukit.costs.CostTable, optional
        Energy, latency and area of all events so far are given too.

    Returns
    -------
    Summary
        Shape, number of devices, memory, pulses, multiply-accumulates and the spread of the
        weights, as far as the object has them.

    Raises
    ------
    DTypeError
        For another kind of object.
    ParameterError
        For an energy of what receives no pulses.

    Notes
    -----
    Nothing is drawn and nothing changes; errors that a GPU has yet to report are left to be
    raised. Of an object on a GPU a few numbers are brought over, which synchronises.

    Examples
    --------
    >>> import rpukit as rk
    >>> print(rk.summary(rk.AnalogTile((10, 784), rk.ConstantStep(), seed=7)))
    AnalogTile 10 x 784 of ConstantStep on cpu
      shape            10 outputs x 784 inputs, float32
      cell             ConstantStep
      devices          7,840
      states           1,200 between the mean bounds
      memory           156.8 kB
      pulses           0
      samples          forward 0, backward 0, update 0
      macs per sample  7,840
      weights          all 7,840 are 0
    """
    if isinstance(obj, Described):
        found = obj._describe()
        if energy_per_pulse is not None:
            found = _with_energy(found, energy_per_pulse)
        return found if costs is None else _with_costs(found, obj, costs)
    raise DTypeError(
        f"obj: got {type(obj).__name__}, need a tile, a circuit, a plan or a trainer of rpukit"
    )


def _with_costs(found: Summary, obj: Any, costs: CostTable) -> Summary:
    if not hasattr(costs, "facts_of"):
        raise DTypeError(f"costs: got {type(costs).__name__}, need a CostTable of rpukit.costs")
    return Summary(found.kind, found.title, (*found.facts, *costs.facts_of(obj)), found.weights)


def _with_energy(found: Summary, energy_per_pulse: float) -> Summary:
    energy_per_pulse = number(energy_per_pulse, "energy_per_pulse", low=0)
    names = [fact.name for fact in found.facts]
    if "pulses" not in names:
        raise ParameterError(f"energy_per_pulse: a {found.kind} counts no pulses; leave it out")
    place = names.index("pulses") + 1
    energy = found.facts[place - 1].value * float(energy_per_pulse)
    fact = Fact("energy", f"{energy:.4g}, at {float(energy_per_pulse):.4g} a pulse", energy)
    facts = (*found.facts[:place], fact, *found.facts[place:])
    return Summary(found.kind, found.title, facts, found.weights)


# ---- facts ----------------------------------------------------------------------------------


def count(name: str, n: int, more: str = "") -> Fact:
    """Make a fact of a whole number."""
    return Fact(name, f"{int(n):,}{more}", int(n))


def memory(n_bytes: int, more: str = "") -> Fact:
    """Make a fact of a number of bytes."""
    return Fact("memory", f"{size(n_bytes)}{more}", int(n_bytes))


def size(n_bytes: float) -> str:
    """Write a number of bytes, in decimal units."""
    units = ("bytes", "kB", "MB", "GB", "TB")
    place = 0 if n_bytes < 1000 else min(int(math.log10(n_bytes)) // 3, len(units) - 1)
    return f"{n_bytes / 1000**place:.4g} {units[place]}"


def histogram_of(values: Array) -> Histogram:
    """Count values, of which only the counts leave their device; the same on every device."""
    flat = _device.any_array(values, None, "values").reshape(-1)
    if not flat.size:
        return Histogram(math.nan, math.nan, math.nan, math.nan, (0,), 0, 0, 0)
    if flat.dtype.kind not in "iubf":
        raise DTypeError(f"values: got {flat.dtype}, need real numbers")
    step = -(-flat.size // _MOST)
    some = flat[:: step + (step > 1 and step % 2 == 0)]  # odd: not always the same columns
    some = some.astype(np.float64)
    xp = _device.namespace(some)
    good = some[xp.isfinite(some)]
    n_bad, n_total = int(some.size - good.size), int(flat.size)
    if not good.size:
        return Histogram(math.nan, math.nan, math.nan, math.nan, (0,), 0, n_total, n_bad)
    whole = flat if xp is not np or not n_bad else good
    low, high = float(whole.min()), float(whole.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = float(good.min()), float(good.max())
    mean, std = _moments(xp, good, max(abs(low), abs(high)))
    n = int(good.size)
    if low == high:
        return Histogram(low, high, low, 0.0, (n,), n, n_total, n_bad)
    shares = np.arange(1, _BINS) / _BINS
    edges = low * (1 - shares) + high * shares  # high - low may overflow
    parts = xp.searchsorted(xp.asarray(edges), good, side="right")
    counts = _device.to_numpy(xp.bincount(parts, minlength=_BINS))
    return Histogram(low, high, mean, std, tuple(counts.tolist()), n, n_total, n_bad)


def _moments(xp: Any, good: Array, largest: float) -> tuple[float, float]:
    """Mean and deviation by sums of integers, which do not depend on their order."""
    if largest < 1e-300:  # whose unit would be 0
        return 0.0, 0.0
    unit = 2.0 ** (np.frexp(largest)[1] - _BITS)
    whole = xp.rint(good / unit).astype(np.int64)
    n = int(good.size)
    mean, square = int(whole.sum()) / n, int((whole * whole).sum()) / n
    return mean * unit, math.sqrt(max(square - mean * mean, 0.0)) * unit


# ---- how it is written -----------------------------------------------------------------------


def _spread(h: Histogram) -> str:
    bad = f"; {h.n_bad:,} are not finite" if h.n_bad else ""
    if h.n_counted == 0:
        return f"none of {h.n_total:,} is finite"
    if len(h.counts) == 1:
        return f"all {h.n_total:,} are {h.low:.4g}{bad}"
    part = f", of {h.n_counted + h.n_bad:,} of {h.n_total:,}"
    part = part if h.n_counted + h.n_bad < h.n_total else ""
    return f"{h.low:.4g} to {h.high:.4g}, mean {h.mean:.4g}, std {h.std:.4g}{part}{bad}"


def _bars(h: Histogram) -> str:
    """Draw a histogram on one line; any count but 0 shows."""
    most = max(h.counts)
    heights = (-(-n * (len(_BARS) - 1) // most) for n in h.counts)
    return f"{h.low:.3g} |{''.join(_BARS[k] for k in heights)}| {h.high:.3g}"


def _drawing(h: Histogram) -> str:
    """Draw a histogram as SVG, in the colour of the text."""
    most, wide, tall = max(h.counts), 6, 36
    bars = "".join(
        f'<rect x="{k * wide}" y="{tall - tall * n / most:.1f}" width="{wide - 1}" '
        f'height="{tall * n / most:.1f}"/>'
        for k, n in enumerate(h.counts)
        if n
    )
    if len(h.counts) == 1:
        return ""
    width = wide * len(h.counts)
    label = escape(f"histogram from {h.low:.4g} to {h.high:.4g}")
    return (
        f'<br><svg width="{width}" height="{tall}" viewBox="0 0 {width} {tall}" role="img" '
        f'aria-label="{label}" fill="currentColor">{bars}</svg>'
    )


def listed(names: Sequence[str]) -> str:
    """Write names, those that come again with their number: "2 x SoftBounds, ConstantStep"."""
    numbers: dict[str, int] = {}
    for name in names:
        numbers[name] = numbers.get(name, 0) + 1
    return ", ".join(name if n == 1 else f"{n} x {name}" for name, n in numbers.items())
