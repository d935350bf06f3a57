"""Random streams on logical coordinates.

A draw is a pure function of (stream, op, index, sample, draw): which operation it is for, which
cell or line, which sample or event, and the how-many-th. Neither threads nor launch shapes nor the
way a batch was cut enter, so results cannot depend on them. The Numba twins of the generator are
in ``rpukit/_exact/philox.py``, the CUDA ones in ``kernels_cu/include/rk_philox.cuh``; the layout
of the counter is in ``docs/semantics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from rpukit.errors import ParameterError

__all__ = ["Op", "Stream", "philox4x32"]

MAX_SAMPLE = 1 << 48  # sample clocks and indices have 48 bits in the counter


class Op(IntEnum):
    """What a draw is for: the op tag of the counter (16 bits). Frozen by the golden hashes.

    Attributes
    ----------
    FILL
        0: elements of random arrays.
    FORWARD_IN, FORWARD_OUT, BACKWARD_IN, BACKWARD_OUT
        1 to 4: converters and noise of inputs and outputs of the two products.
    UPDATE_X, UPDATE_D
        5, 6: pulse trains of columns and rows.
    UPDATE_STEP
        7: noise of the steps.
    CELLS
        8: parameters of cells, drawn once.
    DECAY, DIFFUSION, RESET, DRIFT
        9, 10, 11, 14: slow processes.
    WRITE_NOISE, UPDATE_WRITE_NOISE
        12, 13: visible weights after a write and after pulses.
    UNIT
        15: the device of a sample, of cells with several.
    CHOPPER
        16: signs of the transfer family.
    PROGRAM, READ_NOISE
        17, 18: programming and reading of conductances.
    MODIFY, STUCK
        19, 20: weight modifiers and stuck devices.
    CIRCUIT
        21: parameters and samples of circuits.
    CHILD
        65535: keys of child streams.
    """

    FILL = 0
    FORWARD_IN = 1
    FORWARD_OUT = 2
    BACKWARD_IN = 3
    BACKWARD_OUT = 4
    UPDATE_X = 5
    UPDATE_D = 6
    UPDATE_STEP = 7
    CELLS = 8
    DECAY = 9
    DIFFUSION = 10
    RESET = 11
    WRITE_NOISE = 12
    UPDATE_WRITE_NOISE = 13
    DRIFT = 14
    UNIT = 15
    CHOPPER = 16
    PROGRAM = 17
    READ_NOISE = 18
    MODIFY = 19
    STUCK = 20
    CIRCUIT = 21
    CHILD = 0xFFFF


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, ...]:
    """Compute one block of Philox4x32-10 in plain Python.

    Parameters
    ----------
    counter : tuple of four int, 0 to 2**32 - 1
    key : tuple of two int, 0 to 2**32 - 1

    Returns
    -------
    tuple of four int

    Notes
    -----
    Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

    Examples
    --------
    >>> [hex(word) for word in philox4x32((0, 0, 0, 0), (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    mask = 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & mask, (p0 >> 32) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return c0, c1, c2, c3


@dataclass(frozen=True, slots=True)
class Stream:
    """The key of a random stream: an immutable value of two 32-bit words.

    There is nothing to advance and nothing hidden: objects that draw (tiles, circuits) keep their
    own sample clocks and name every draw by its coordinates.

    Parameters
    ----------
    key0, key1 : int, 0 to 2**32 - 1
        Take `Stream.from_seed` unless you know the words.

    Examples
    --------
    >>> stream = Stream.from_seed(7)
    >>> stream.child(0) == stream.child(0), stream.child(0) == stream.child(1)
    (True, False)
    """

    key0: int
    key1: int

    def __post_init__(self) -> None:
        for name, word in (("key0", self.key0), ("key1", self.key1)):
            if not isinstance(word, int) or not 0 <= word < 1 << 32:
                raise ParameterError(f"{name}: got {word!r}, need an integer in [0, 2**32)")

    @property
    def words(self) -> tuple[np.uint32, np.uint32]:
        """The key as kernels and mirrors take it."""
        return np.uint32(self.key0), np.uint32(self.key1)

    @classmethod
    def from_seed(cls, seed: int | np.random.SeedSequence | Stream) -> Stream:
        """Make a stream from a seed, through `numpy.random.SeedSequence`.

        Parameters
        ----------
        seed : int, at least 0, or numpy.random.SeedSequence, or Stream
            A stream is returned as it is. A sequence is read, not advanced: that of an integer
            gives the stream of the integer, and spawned ones give streams of their own.

        Returns
        -------
        Stream

        Raises
        ------
        ParameterError
        """
        if isinstance(seed, Stream):
            return seed
        words = _sequence(seed).generate_state(2)
        return cls(int(words[0]), int(words[1]))

    def child(self, index: int) -> Stream:
        """Derive the stream of sub-object number `index`.

        The key is two words of this stream at a coordinate that no draw uses.

        Parameters
        ----------
        index : int, 0 to 2**48 - 1

        Returns
        -------
        Stream

        Raises
        ------
        ParameterError
        """
        if not isinstance(index, (int, np.integer)) or not 0 <= index < MAX_SAMPLE:
            raise ParameterError(f"index: got {index!r}, need an integer in [0, 2**48)")
        low, high = int(index) & 0xFFFFFFFF, int(index) >> 32
        words = philox4x32((low, 0, Op.CHILD << 16, high << 16), (self.key0, self.key1))
        return Stream(words[0], words[1])


def _sequence(seed: object) -> np.random.SeedSequence:
    """Turn a seed into NumPy's sequence of words."""
    if isinstance(seed, np.random.SeedSequence):
        return seed
    if isinstance(seed, np.ndarray) and seed.ndim == 0:
        seed = seed[()]
    if not isinstance(seed, bool) and isinstance(seed, (int, np.integer)) and seed >= 0:
        return np.random.SeedSequence(int(seed))
    if isinstance(seed, (np.random.Generator, np.random.BitGenerator, np.random.RandomState)):
        old = isinstance(seed, np.random.RandomState)
        draw = "int(state.randint(2**31))" if old else "int(generator.integers(2**63))"
        raise ParameterError(
            f"seed: got a {type(seed).__name__}, whose state moves with every draw: give an "
            f"integer drawn from it, {draw}, or a numpy.random.SeedSequence"
        )
    if isinstance(seed, (list, tuple, np.ndarray)):
        raise ParameterError(f"seed: got {seed!r}: give numpy.random.SeedSequence(seed)")
    raise ParameterError(
        f"seed: got {seed!r}, need an integer from 0, a numpy.random.SeedSequence or a Stream"
    )
