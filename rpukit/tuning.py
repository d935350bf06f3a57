"""See, fix or switch off how the tuner picks the variants of kernels.

The choice of a variant changes time, never a result. On a GPU the first call of a new size times
the variants that are valid for it; the times are kept in the cache folder. ``RPUKIT_TUNE=0`` turns
that off from outside; ``RPUKIT_TUNE_VERIFY=1`` compares the bits of all variants as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from rpukit._kernels import tune
from rpukit.errors import ParameterError

__all__ = ["Entry", "Report", "fix", "forget", "off", "on", "report"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Times of the variants of one kernel, for one key and one range of batches.

    Attributes
    ----------
    device, kernel, key : str
    batch : int
        The largest batch of the range; the range begins above half of it.
    variant : str
        The fastest.
    microseconds : dict of str to float
        Of each variant timed.
    verified : bool
        Whether the bits of the variants were compared as well.
    """

    device: str
    kernel: str
    key: str
    batch: int
    variant: str
    microseconds: dict[str, float]
    verified: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What the tuner knows; ``print(report)`` shows it as a table.

    Attributes
    ----------
    on : bool
    fixed : dict of str to str
        Variants that were fixed, by kernel.
    rejected : tuple of (kernel, variant)
        Variants whose bits were found to differ: they are not used.
    entries : tuple of Entry
    """

    on: bool
    fixed: dict[str, str]
    rejected: tuple[tuple[str, str], ...]
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        """Show the report as lines of text."""
        lines = [f"tuning is {'on' if self.on else 'off'}, {len(self.entries)} sizes timed"]
        lines += [f"fixed: {kernel} takes {variant}" for kernel, variant in self.fixed.items()]
        lines += [f"rejected: {kernel} {variant}: other bits" for kernel, variant in self.rejected]
        for e in self.entries:
            times = ", ".join(f"{name} {t:.1f} us" for name, t in e.microseconds.items())
            lines.append(
                f"{e.device}: {e.kernel} {e.key} batch <= {e.batch}: {e.variant} ({times})"
            )
        return "\n".join(lines)


def report() -> Report:
    """Tell what the tuner has measured and picked on the devices of this machine.

    Returns
    -------
    Report

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.tuning.report().fixed
    {}
    """
    entries = [
        Entry(
            device=device,
            kernel=r.kernel,
            key=r.key,
            batch=r.batch,
            variant=tune.fastest_name(r),
            microseconds={name: t * 1e6 for name, t in r.times.items()},
            verified=r.verified,
        )
        for device, r in tune.records()
    ]
    return Report(tune.enabled(), tune.fixed(), tuple(tune.rejections()), tuple(entries))


def fix(kernel: str, variant: str | None) -> None:
    """Take one variant of a kernel wherever it is valid, whatever the times say.

    Where the variant does not take a batch, the plain variant is taken: fixing changes no result
    either.

    Parameters
    ----------
    kernel : str
    variant : str or None
        None lifts it.

    Raises
    ------
    ParameterError
        If the names are not strings. A name that no variant has is found out by the next call.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.tuning.fix("pulsed_update", None)
    """
    if not isinstance(kernel, str) or not (variant is None or isinstance(variant, str)):
        raise ParameterError(
            f"got {kernel!r} and {variant!r}, need the names of a kernel and a variant"
        )
    tune.fix(kernel, variant)


def off() -> None:
    """Take the plain variant of every kernel, and time nothing.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.tuning.off()
    >>> rk.tuning.report().on
    False
    >>> rk.tuning.on()
    """
    tune.switch(False)


def on() -> None:
    """Pick variants by their times again, the default."""
    tune.switch(True)


def forget() -> None:
    """Drop the choices in memory; those in the cache folder are read again when needed."""
    tune.forget()
