"""`Cost`: energy, latency and area of one kind of event."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rpukit._checks import Checked

__all__ = ["GROWTHS", "MOST_BITS", "Cost"]

GROWTHS = ("none", "linear", "exponential")
MOST_BITS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(Checked):
    """What one event costs, and the unit that makes it happen.

    Parameters
    ----------
    energy : float, at least 0, joules
        Of one event.
    latency : float, at least 0, seconds
        Of one event.
    area : float, at least 0, square metres
        Of one unit.
    share : int, at least 0
        Lines (or cells) that one unit serves, one after another; 0: one unit serves all of them.
    bits : int, 0 to 24
        Resolution of the conversion that the figures are for; 0 for other events.
    growth : {"none", "linear", "exponential"}
        How energy and area go with the bits: not at all, so that the figures hold for this
        resolution alone; as ``bits``; as ``2**bits``.
    latency_growth : {"none", "linear", "exponential"}
        How the latency goes with the bits; "none": it stays.
    source : str
        Where the figures are from.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> flash = rk.costs.Cost(energy=1e-12, latency=1e-9, bits=6, growth="exponential")
    >>> flash.at(8).energy
    4e-12
    """

    energy: float = 0.0
    latency: float = 0.0
    area: float = 0.0
    share: int = 1
    bits: int = 0
    growth: str = "none"
    latency_growth: str = "none"
    source: str = ""

    def _check(self) -> None:
        for name in ("energy", "latency", "area"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")
        self._need(self.share >= 0, "share", "an integer from 0")
        self._need(0 <= self.bits <= MOST_BITS, "bits", f"an integer from 0 to {MOST_BITS}")
        for name in ("growth", "latency_growth"):
            self._need(getattr(self, name) in GROWTHS, name, f"one of {', '.join(GROWTHS)}")

    def at(self, bits: int) -> Cost:
        """Scale to another resolution, by the growth of the figures.

        Parameters
        ----------
        bits : int

        Returns
        -------
        Cost
        """
        more = _factor(self.growth, self.bits, bits)
        slower = _factor(self.latency_growth, self.bits, bits)
        return replace(
            self,
            energy=self.energy * more,
            area=self.area * more,
            latency=self.latency * slower,
            bits=bits,
        )

    def units(self, lines: int) -> int:
        """Return how many units serve some lines.

        Parameters
        ----------
        lines : int

        Returns
        -------
        int
        """
        return -(-lines // self.share) if self.share else 1


def _factor(growth: str, given: int, wanted: int) -> float:
    if growth == "linear":
        return wanted / max(given, 1)
    return 2.0 ** (wanted - given) if growth == "exponential" else 1.0
