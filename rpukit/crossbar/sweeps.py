"""Resolution sweeps: error of a product behind converters of three architectures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rpukit._checks import number
from rpukit.crossbar.adc import KINDS, Adc
from rpukit.errors import ShapeError
from rpukit.random import Stream

__all__ = ["AdcSweep", "sweep_adc"]


@dataclass(frozen=True, slots=True)
class AdcSweep:
    """Error of conversions by architecture and resolution.

    Attributes
    ----------
    bits : tuple of int
    error : dict of str to array, shape (n_bits,), float64
        By architecture: root mean square error relative to the root mean square of the values.
    periods : dict of str to array, shape (n_bits,), int64
        Periods of the comparator's clock that one conversion takes.
    comparators : dict of str to array, shape (n_bits,), int64
        Comparators of one converter.
    """

    bits: tuple[int, ...]
    error: dict[str, np.ndarray]
    periods: dict[str, np.ndarray]
    comparators: dict[str, np.ndarray]


def sweep_adc(
    values: np.ndarray,
    bits: Sequence[int],
    *,
    full_scale: float,
    mismatch: dict[str, float] | None = None,
    seed: int | Stream = 0,
) -> AdcSweep:
    """Convert values at several resolutions by flash, SAR and ramp converters.

    Parameters
    ----------
    values : array, shape (n, n_line)
        What is converted; each line has a converter of its own.
    bits : sequence of int, 2 to 16
    full_scale : float, positive
        In units of the values.
    mismatch : dict of str to float, optional
        By architecture, as of `Adc.of_kind`; without it all three are perfect, and equal.
    seed : int or Stream

    Returns
    -------
    AdcSweep

    Raises
    ------
    ParameterError, ShapeError, DTypeError

    Notes
    -----
    The mismatch of a flash converter is a voltage: it is given in LSB at 8 bits, and scaled to the
    LSB of each resolution.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> y = np.linspace(-1, 1, 1000).reshape(100, 10)
    >>> found = rk.crossbar.sweep_adc(y, [4, 6, 8], full_scale=1.0)
    >>> bool((found.error["sar"][:-1] > 3 * found.error["sar"][1:]).all())
    True
    """
    y = np.asarray(values, np.float64)
    if y.ndim != 2:
        raise ShapeError(f"values: got shape {y.shape}, need (n, n_line)")
    size, stream = number(full_scale, "full_scale", low=1e-30), Stream.from_seed(seed)
    spread, whole = mismatch or {}, tuple(bits)
    error = {kind: np.empty(len(whole)) for kind in KINDS}
    for number_of, kind in enumerate(KINDS):
        for k, width in enumerate(whole):
            own = spread.get(kind, 0.0)
            own *= 2.0 ** (width - 8) if kind == "flash" else 1.0
            draws = stream.child(100 * number_of + k)
            options = {"mismatch": own, "n_line": y.shape[1], "seed": draws}
            adc = Adc.of_kind(kind, width, size, **options)
            off = adc.convert(y) - y
            error[kind][k] = np.sqrt(np.mean(off**2) / np.mean(y**2))
    n = np.array(whole, np.int64)
    periods = {"flash": np.ones_like(n), "sar": n, "ramp": 2**n}
    comparators = {"flash": 2**n - 1, "sar": np.ones_like(n), "ramp": np.ones_like(n)}
    return AdcSweep(whole, error, periods, comparators)
