"""`Adc`: an analog-to-digital converter with offset, gain, and a table of its transitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import TINY, flag, integer, number, one_of
from rpukit.elementwise import random_fill
from rpukit.errors import NonFiniteError, ParameterError, ShapeError
from rpukit.random import Stream

__all__ = ["Adc"]

Array = Any
KINDS = ("flash", "sar", "ramp")
_MOST_BITS = 16


class Adc:
    """An analog-to-digital converter with offset, gain error and integral nonlinearity.

    Parameters
    ----------
    bits : int, 1 to 16
        Resolution.
    full_scale : float, positive
        Value of the largest code, in units of what is converted.
    bipolar : bool
        Codes are ``-m`` to m with ``m = 2**(bits - 1) - 1`` (two bits at least); otherwise 0 to
        ``2**bits - 1``. The step of a code (LSB) is ``full_scale`` over the largest code.
    offset : float or array, shape (n_line,), in LSB
        Added to what is converted.
    gain : float or array, shape (n_line,), relative
        What is converted is first multiplied by ``1 + gain``.
    inl : array, shape (n_transition,) or (n_line, n_transition), in LSB, optional
        Integral nonlinearity: deviation of each transition between two codes, in ascending
        order; there is one transition less than there are codes.
    kind : {"flash", "sar", "ramp"}
        How the code follows from the transitions, see Notes. It matters only where they are not in
        ascending order.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, NonFiniteError

    Notes
    -----
    Transition k, between the codes c and c + 1, is at ``(c + 1/2 + inl[k])`` LSB; a value on it
    gets the upper code. *Flash*: the code is the number of transitions below, as comparators are
    counted. *SAR*: bits are tried from the highest, each against the transition of its code.
    *Ramp*: counting ends at the first transition that is above. Computed in float64, with the same
    bits on CPU and GPU.

    Noise is not modelled here; it is `IOParameters.out_noise` of the tile before the converter.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> adc = rk.crossbar.Adc(3, 3.0)
    >>> adc.convert(np.array([-9.0, -0.4, 0.6, 2.4]))
    array([-3.,  0.,  1.,  2.])
    """

    def __init__(
        self,
        bits: int,
        full_scale: float,
        *,
        bipolar: bool = True,
        offset: Any = 0.0,
        gain: Any = 0.0,
        inl: Any = None,
        kind: str = "flash",
    ) -> None:
        self.bipolar = flag(bipolar, "bipolar")
        what = "bits of the converter"
        self.bits = integer(bits, "bits", low=1 + self.bipolar, high=_MOST_BITS, what=what)
        self.full_scale = number(full_scale, "full_scale", low=TINY)
        self.kind = one_of(kind, "kind", KINDS)
        self.offset, self.gain = _of_lines(offset, "offset"), _of_lines(gain, "gain")
        n = self.n_transition
        found = np.zeros(n) if inl is None else np.asarray(inl, np.float64)
        if found.shape[-1:] != (n,) or found.ndim > 2:
            raise ShapeError(f"inl: got shape {found.shape}, need ({n},) or (n_line, {n})")
        if not np.isfinite(found).all():
            raise NonFiniteError("inl holds NaN or infinity")
        self.inl = found
        self._tables: dict[Any, tuple[Array, ...]] = {}
        lengths = {a.shape[0] for a in (self.offset, self.gain) if a.ndim}
        lengths |= {found.shape[0]} if found.ndim == 2 else set()
        if len(lengths) > 1:
            raise ShapeError(f"offset, gain, inl: got {sorted(lengths)} lines, need one number")
        self._n_line = lengths.pop() if lengths else 0

    @property
    def codes(self) -> tuple[int, int]:
        """Smallest and largest code."""
        most = 2 ** (self.bits - 1) - 1 if self.bipolar else 2**self.bits - 1
        return (-most if self.bipolar else 0), most

    @property
    def n_transition(self) -> int:
        """Number of transitions between codes."""
        low, high = self.codes
        return high - low

    @property
    def step(self) -> float:
        """Step of a code (LSB), in units of what is converted."""
        return self.full_scale / self.codes[1]

    def __repr__(self) -> str:
        return f"Adc({self.bits}, {self.full_scale:g}, kind={self.kind!r})"

    # ---- architectures --------------------------------------------------------------------------

    @classmethod
    def of_kind(
        cls,
        kind: str,
        bits: int,
        full_scale: float,
        *,
        mismatch: float = 0.0,
        n_line: int = 0,
        bipolar: bool = True,
        seed: int | Stream = 0,
        **options: Any,
    ) -> Adc:
        """Make a converter whose transitions deviate as mismatch makes them in an architecture.

        Parameters
        ----------
        kind : {"flash", "sar", "ramp"}
        bits : int, 1 to 16
        full_scale : float, positive
        mismatch : float, at least 0
            Standard deviation, drawn once: of each comparator's threshold (flash) in LSB; of the
            unit capacitor (SAR) and of each step of the ramp relative to their size.
        n_line : int, at least 0
            Number of converters, each with draws of its own; 0: one for all lines.
        bipolar : bool
        seed : int or Stream
        **options
            ``offset`` and ``gain``.

        Returns
        -------
        Adc

        Raises
        ------
        ParameterError, ShapeError, DTypeError

        Notes
        -----
        With draws xi: flash, ``inl[k] = mismatch xi_k``. SAR, capacitor i of ``2**i`` units is
        ``2**i + mismatch 2**(i / 2) xi_i``, and the level of a code is the sum of its capacitors,
        scaled so that the last transition is where it should be. Ramp, the step to level k is
        ``1 + mismatch xi_k``, levels are sums of steps, scaled likewise. So errors are independent
        from code to code (flash), jump where high bits change (SAR), or wander (ramp).

        Source: B. Razavi, Principles of Data Conversion System Design, IEEE Press (1995).

        Examples
        --------
        >>> import rpukit as rk
        >>> adc = rk.crossbar.Adc.of_kind("sar", 8, 1.0, mismatch=0.02, seed=1)
        >>> bool(0 < abs(adc.inl).max() < 1)
        True
        """
        one_of(kind, "kind", KINDS)
        spread = number(mismatch, "mismatch", low=0)
        n = integer(n_line, "n_line", low=0, what="lines")
        ideal = cls(bits, full_scale, bipolar=bipolar)
        width, count = ideal.bits, ideal.n_transition
        n_draw = width if kind == "sar" else count
        xi = random_fill(Stream.from_seed(seed), (max(n, 1), n_draw)).astype(np.float64)
        if kind == "flash":
            inl = spread * xi
        else:
            level = _capacitors(xi, spread, count) if kind == "sar" else _steps(xi, spread)
            inl = level * (count / level[:, -1:]) - np.arange(1, count + 1)
        return cls(
            bits, full_scale, bipolar=bipolar, inl=inl if n else inl[0], kind=kind, **options
        )

    # ---- conversion -----------------------------------------------------------------------------

    def codes_of(self, y: Array) -> Array:
        """Convert values to codes.

        Parameters
        ----------
        y : array, shape (..., n_line), float
            On any device, without NaN.

        Returns
        -------
        array, shape (..., n_line), int64

        Raises
        ------
        ShapeError
        """
        if self._n_line and (not y.ndim or y.shape[-1] != self._n_line):
            raise ShapeError(f"y: got shape {tuple(y.shape)}, need (..., {self._n_line})")
        xp = _device.namespace(y)
        table, gain, offset, lines = self._on(y)
        v = y.astype(np.float64) * gain + offset
        index = xp.zeros(y.shape, np.int64)
        for bit in reversed(range(self.bits)):
            trial = index + (1 << bit)
            above = v >= table[lines, trial - 1] if lines is not None else v >= table[trial - 1]
            index = xp.where(above, trial, index)
        return index + self.codes[0]

    def convert(self, y: Array) -> Array:
        """Convert values to codes, and back to units of what is converted.

        Parameters
        ----------
        y : array, shape (..., n_line), float32 or float64

        Returns
        -------
        array, shape (..., n_line), type of `y`

        Raises
        ------
        ShapeError
        """
        return (self.codes_of(y).astype(np.float64) * self.step).astype(y.dtype)

    def _on(self, y: Array) -> tuple[Array, ...]:
        """Return the transitions in units of values, gain and offset, on the device of y."""
        place = _device.device_of(y)
        if place not in self._tables:
            low, _ = self.codes
            at = low + np.arange(self.n_transition) + 0.5 + self.inl
            if self.kind == "flash":
                at = np.sort(at, axis=-1)
            elif self.kind == "ramp":
                at = np.maximum.accumulate(at, axis=-1)
            n_most = 2**self.bits - 1
            table = np.full((*at.shape[:-1], n_most), np.inf)
            table[..., : self.n_transition] = at * self.step
            lines = np.arange(self._n_line) if at.ndim == 2 else None
            found = (table, 1 + self.gain, self.offset * self.step, lines)
            self._tables[place] = tuple(
                None if a is None else _device.to_device(np.asarray(a), place) for a in found
            )
        return self._tables[place]


def _of_lines(value: Any, name: str) -> np.ndarray:
    """Check a number, or one for each line."""
    if np.ndim(value) == 0:
        return np.asarray(number(value, name))
    array = np.asarray(value, np.float64)
    if array.ndim != 1:
        raise ShapeError(f"{name}: got shape {array.shape}, need a number or (n_line,)")
    if not np.isfinite(array).all():
        raise NonFiniteError(f"{name} holds NaN or infinity")
    return array


def _capacitors(xi: np.ndarray, spread: float, count: int) -> np.ndarray:
    """Levels of the codes 1 to ``count`` of binary capacitors, shape (n, count), in units."""
    size = 2.0 ** np.arange(xi.shape[1])
    capacitors = size + spread * np.sqrt(size) * xi
    codes, levels = np.arange(1, count + 1), np.zeros((len(xi), count))
    for i in range(xi.shape[1]):  # in a written order, so that the sums are the same everywhere
        levels += capacitors[:, i : i + 1] * ((codes >> i) & 1)
    return _positive(levels)


def _steps(xi: np.ndarray, spread: float) -> np.ndarray:
    """Levels of a ramp of unequal steps, shape (n, count)."""
    return _positive(np.cumsum(1 + spread * xi, axis=1))


def _positive(levels: np.ndarray) -> np.ndarray:
    if not (levels[:, -1] > 0).all():
        raise ParameterError("mismatch: so large that the range of the converter is lost")
    return levels
