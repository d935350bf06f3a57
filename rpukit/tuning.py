"""Control of the tuner: report, fix or disable its choice of kernel variants.

The choice of a variant changes the time of a call, never its result. On a GPU the first call of a
new size times the variants that are valid for it; the times are kept in the cache folder. The
environment variable ``RPUKIT_TUNE=0`` disables the timing; ``RPUKIT_TUNE_VERIFY=1`` also compares
the bits of all variants.
"""

from __future__ import annotations

from dataclasses import dataclass

from rpukit._kernels import tune
from rpukit.errors import ParameterError

__all__ = ["Entry", "Report", "fix", "forget", "off", "on", "report"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Measured times of the variants of one kernel, for one key and one range of batches.

    Attributes
    ----------
    device, kernel, key : str
    batch : int
        The largest batch of the range; the range begins above half of it.
    variant : str
        The fastest variant.
    microseconds : dict of str to float
        Time of each variant that was measured.
    verified : bool
        Whether the bits of the variants were also compared.
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
    """State of the tuner: settings, rejected variants and times; ``print`` shows it as text.

    Attributes
    ----------
    on : bool
    fixed : dict of str to str
        Fixed variants by kernel.
    rejected : tuple of (kernel, variant)
        Variants that are not used, because their bits were found to differ.
    entries : tuple of Entry
    """

    on: bool
    fixed: dict[str, str]
    rejected: tuple[tuple[str, str], ...]
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        """Show the report as lines of text."""
        lines = [f"tuning is {'on' if self.on else 'off'}, {len(self.entries)} sizes timed"]
        lines += [f"fixed: {kernel} uses {variant}" for kernel, variant in self.fixed.items()]
        lines += [f"rejected: {kernel} {name}: its bits differ" for kernel, name in self.rejected]
        for e in self.entries:
            times = ", ".join(f"{name} {t:.1f} us" for name, t in e.microseconds.items())
            lines.append(
                f"{e.device}: {e.kernel} {e.key} batch <= {e.batch}: {e.variant} ({times})"
            )
        return "\n".join(lines)


def report() -> Report:
    """Report what the tuner has measured and chosen on the devices of this machine.

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
    """Fix the variant of a kernel: use it wherever it is valid, whatever the times.

    For a batch that the variant does not take, the plain one is used: fixing changes no result
    either.

    Parameters
    ----------
    kernel : str
    variant : str or None
        None lets the tuner choose again.

    Raises
    ------
    ParameterError
        If the names are not strings. An unknown name raises an error at the kernel's next call.

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
    """Switch tuning off: use the plain variant of every kernel, and time nothing.

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
    """Switch tuning on, the default: choose variants by their times."""
    tune.switch(True)


def forget() -> None:
    """Forget the choices in memory; those in the cache folder are read again when needed."""
    tune.forget()
