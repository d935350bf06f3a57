"""Costs of analog-to-digital converters by formula: figures of merit, and the architecture."""

from __future__ import annotations

from rpukit._checks import TINY, integer, number, one_of
from rpukit.costs.cost import Cost

__all__ = ["adc_cost", "survey_energy"]

KINDS = ("flash", "sar", "ramp")
_MOST_BITS = 24


def survey_energy(bits: float, *, walden: float, schreier: float) -> float:
    """Compute the energy of one conversion from the two figures of merit of ADC surveys.

    Parameters
    ----------
    bits : float, 1 to 24
        Effective number of bits.
    walden : float, positive, joules
        Walden's figure of merit, ``P / (f_s 2**bits)``: energy of one conversion step.
    schreier : float, decibels
        Schreier's figure of merit, ``SNDR + 10 log10(f_s / 2 / P)``, P in watts, f_s in hertz.

    Returns
    -------
    float
        Joules: the larger of the two, ``walden 2**bits``, which binds at low resolution, and
        ``10**((6.02 bits + 1.76 - schreier) / 10) / 2``, which binds where noise does.

    Raises
    ------
    ParameterError, DTypeError

    Notes
    -----
    The survey plots the energy of published converters against these two lines. Read off it the
    figures of merit of the year and process that you mean; rpukit has none built in.

    Source: B. Murmann, "ADC Performance Survey 1997-2024", github.com/bmurmann/ADC-survey;
    R. H. Walden, IEEE J. Sel. Areas Commun. 17:539 (1999); R. Schreier and G. C. Temes,
    Understanding Delta-Sigma Data Converters, Wiley (2005).

    Examples
    --------
    >>> import rpukit as rk
    >>> f"{rk.costs.survey_energy(8, walden=10e-15, schreier=175):.3g}"
    '2.56e-12'
    """
    width = number(bits, "bits", low=1, high=_MOST_BITS)
    step = number(walden, "walden", low=0)
    merit = number(schreier, "schreier", low=1, high=300)
    thermal = 10 ** ((6.02 * width + 1.76 - merit) / 10) / 2
    return max(step * 2**width, thermal)


def adc_cost(
    kind: str,
    bits: int,
    *,
    clock: float,
    walden: float,
    schreier: float,
    area: float = 0.0,
    share: int = 1,
) -> Cost:
    """Make the cost of a converter: energy by the survey, latency by the architecture.

    Parameters
    ----------
    kind : {"flash", "sar", "ramp"}
        A conversion takes one period of the clock, ``bits`` periods, or ``2**bits``.
    bits : int, 1 to 24
    clock : float, positive, seconds
        Period of the clock of the comparator.
    walden, schreier : float
        As of `survey_energy`. The energy is the same for all kinds: a survey does not tell them
        apart.
    area : float, at least 0, square metres
        Of one converter of this resolution.
    share : int, at least 0
        Lines that one converter serves.

    Returns
    -------
    Cost
        Of this resolution alone; a table may hold those of several.

    Raises
    ------
    ParameterError, DTypeError

    Examples
    --------
    >>> import rpukit as rk
    >>> merits = {"walden": 10e-15, "schreier": 175.0}
    >>> round(rk.costs.adc_cost("ramp", 8, clock=1e-9, **merits).latency * 1e9)
    256
    """
    one_of(kind, "kind", KINDS)
    width = integer(bits, "bits", low=1, high=_MOST_BITS, what="resolution of the converter")
    period = number(clock, "clock", low=TINY)
    periods = {"flash": 1, "sar": width, "ramp": 2**width}[kind]
    energy = survey_energy(width, walden=walden, schreier=schreier)
    source = f"{kind}: {periods} periods of {period:.3g} s; figures of merit of an ADC survey"
    size, lines = number(area, "area", low=0), integer(share, "share", low=0, what="lines")
    return Cost(
        energy=energy,
        latency=period * periods,
        area=size,
        share=lines,
        bits=width,
        source=source,
    )
