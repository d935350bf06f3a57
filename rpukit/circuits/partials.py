"""`Partials`: the expected counts of whole blocks of samples, as arrays that travel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from rpukit import _device
from rpukit._checks import plain, shown
from rpukit._device import parse_device
from rpukit.errors import FormatError, ParameterError, ShapeError

__all__ = ["BLOCK", "Partials", "Pieces", "ends_of_chains", "full_blocks", "pieces_of"]

Array = Any

BLOCK = 256  # samples whose counts are one chain, in absolute order: see `_mirror/learning.py`
CHAIN = 4096  # most steps (sample, use of tied weights) of a chain of float32: see there
PART = 64  # uses of a step of pairs of bfloat16: see `_mirror/tensor.py`
FORMAT, VERSION = "rpukit.Partials", 1


def full_blocks(n_sample: int) -> int:
    """Count the blocks that n samples finish."""
    return n_sample // BLOCK


def ends_of_chains(n_uses: Iterable[int]) -> tuple[int, ...]:
    """Cut a block of samples so that in each piece every chain of float32 ends once at most.

    Parameters
    ----------
    n_uses : iterable of int
        How often tied weights, or parameters of leaves, are used by a sample.

    Returns
    -------
    tuple of int
        0, the samples after which some chain has ended, and 256.

    Raises
    ------
    ParameterError
        For weights that one sample uses more than 4096 times: their chains end within a sample.
    """
    ends = {0, BLOCK}
    for n in set(n_uses):
        if n > CHAIN:
            raise ParameterError(
                f"partials: some tied weights are used {n} times by a sample, and their counts "
                f"travel up to {CHAIN}: use accumulate, on one device"
            )
        ends.update(-(-CHAIN * k // n) for k in range(1, BLOCK * n // CHAIN + 1) if n)
    return tuple(sorted(ends))


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of a block of samples: each has a row of counts, the totals of its chains.

    Attributes
    ----------
    ends : tuple of int
        0, the samples after which a piece has ended, and 256. In a piece each chain ends once at
        most, so that a row holds one chain of each weight.
    chains : tuple of int
        0, the samples after which some chain has ended, and 256.
    """

    ends: tuple[int, ...]
    chains: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ends) - 1

    def of(self, n_piece: int) -> Pieces | None:
        """Return the pieces of counts with ``n_piece`` rows a block; None for no such counts.

        Counts of earlier versions have a piece for each end of a chain.
        """
        return next(
            (p for p in (self, Pieces(self.chains, self.chains)) if len(p) == n_piece), None
        )

    def settled(self, n: int) -> int:
        """Count the rows of the chains that have ended in the first n samples of a block."""
        row = sum(end <= n for end in self.ends[1:])
        return row + any(self.ends[row] < end <= n for end in self.chains)


def pieces_of(n_uses: Iterable[int]) -> Pieces:
    """Cut a block of samples into as few pieces as hold one end of each chain.

    Parameters
    ----------
    n_uses : iterable of int
        As of `ends_of_chains`.

    Returns
    -------
    Pieces

    Raises
    ------
    ParameterError
    """
    every = [ends_of_chains([n])[1:] for n in {0, *n_uses}]
    chains, ends = sorted({0}.union(*every)), [0]
    while ends[-1] < BLOCK:
        later = ([end for end in own if end > ends[-1]] for own in every)
        second = min((own[1] for own in later if len(own) > 1), default=BLOCK + 1)
        ends.append(max(end for end in chains if end < second))
    return Pieces(tuple(ends), tuple(chains))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partials:
    """Expected counts of consecutive blocks of 256 samples, made by `Circuit.partials`.

    They are plain arrays: pickle them, send them, or keep them with `rpukit.save`. A circuit with
    the same parameters takes them with `Circuit.absorb`.

    Attributes
    ----------
    first_sample, n_sample : int
        Samples first_sample to first_sample + n_sample - 1 since the last step of learning.
    chains : array, shape (n_block * n_piece, n_weight), type of the circuit
        Counts of weights, without the weight, of each block of 256 samples.
    leaf_chains : array, shape (n_block * n_piece, n_statistic), type of the circuit
        Sufficient statistics of leaves.
    log_likelihoods : array, shape (n_sample, n_root)
    flows : array, shape (n_sample, n_root)
        Weights of the samples, at each root.
    exponent : float
        Of the rule.
    structure, parameters : str
        Fingerprints of the graph and of the parameters that the counts were made with.
    n_piece : int
        Rows of a block: 1, or more if a sample uses tied weights of float32 more than 16 times, so
        that chains of 4096 steps end within a block (`docs/semantics/circuits.md`): a row for each
        chain of a weight, in their order.

    Raises
    ------
    ParameterError, ShapeError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.random.default_rng(0).integers(0, 2, (600, 3))
    >>> pc = rk.Circuit(rk.circuits.mixture(3, 2, rk.circuits.Bernoulli()), seed=1)
    >>> last, first = pc.partials(x[512:], first_sample=512), pc.partials(x[:512])
    >>> first.n_block, last.n_block
    (2, 1)
    >>> pc.absorb([last, first]).em_step()
    """

    first_sample: int
    n_sample: int
    chains: Array
    leaf_chains: Array
    log_likelihoods: Array
    flows: Array
    exponent: float
    structure: str
    parameters: str
    n_piece: int = 1

    def __post_init__(self) -> None:
        check_first(self.first_sample)
        if self.n_sample < 1:
            raise ParameterError(f"n_sample: got {self.n_sample}, need an integer from 1")
        rows = self.n_block * self.n_piece
        for name, n in (("chains", rows), ("log_likelihoods", self.n_sample)):
            of = ("chains", "leaf_chains") if name == "chains" else ("log_likelihoods", "flows")
            for each in of:
                array = getattr(self, each)
                if array.ndim != 2 or len(array) != n:
                    raise ShapeError(
                        f"{each}: got shape {array.shape}, need {n} rows for {self.n_sample} "
                        "samples"
                    )

    @property
    def n_block(self) -> int:
        """Number of blocks; the last one may be open, with fewer than 256 samples."""
        return -(-self.n_sample // BLOCK)

    @property
    def end_sample(self) -> int:
        """First sample behind these."""
        return self.first_sample + self.n_sample

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return int(sum(getattr(self, name).nbytes for name in _ARRAYS))

    def to(self, device: str) -> Partials:
        """Copy the arrays to a device.

        Parameters
        ----------
        device : str
            "cpu", "gpu" or "gpu:1".

        Returns
        -------
        Partials

        Raises
        ------
        DeviceError, ParameterError
        """
        target = parse_device(device)
        moved = {name: _device.to_device(getattr(self, name), target) for name in _ARRAYS}
        return Partials(**{**self._values(), **moved})

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles are made on the CPU, so that they open on a machine without a GPU.
        return type(self).from_state, (self.state(),)

    def state(self) -> dict[str, Any]:
        """Return everything for `rpukit.save`.

        Returns
        -------
        dict
            ``header``, which JSON can hold, and ``arrays``.
        """
        values = self._values()
        arrays = {name: _device.to_numpy(values.pop(name)) for name in _ARRAYS}
        return {"header": {"format": FORMAT, "version": VERSION, **values}, "arrays": arrays}

    @classmethod
    def from_state(cls, state: dict[str, Any], device: str = "cpu") -> Partials:
        """Rebuild partial statistics from their state.

        Parameters
        ----------
        state : dict
            As `state` gives it.
        device : str
            "cpu", "gpu" or "gpu:1".

        Returns
        -------
        Partials

        Raises
        ------
        FormatError, ShapeError, ParameterError, DeviceError
        """
        header = state["header"]
        if header.get("version") != VERSION:
            raise FormatError(
                f"the file holds partial statistics of format version {header.get('version')!r}, "
                f"need {VERSION}"
            )
        given = {"n_piece": 1, **header, **state["arrays"]}
        try:
            made = cls(**{field.name: given[field.name] for field in fields(cls)})
        except KeyError as error:
            raise FormatError(f"the file of partial statistics has no {error}") from error
        return made if device == "cpu" else made.to(device)

    @staticmethod
    def _check_state(state: Any) -> dict[str, Any]:
        """Check a header, before memory is taken for the arrays; return it."""
        header: dict[str, Any] = state["header"]
        needed = {field.name for field in fields(Partials)} - {"n_piece"}  # later in version 1
        missing = needed - header.keys() - state["arrays"].keys()
        if header.get("version") != VERSION or missing:
            raise FormatError(f"state: this is no {FORMAT} of version {VERSION}")
        return header

    def __repr__(self) -> str:
        last = self.end_sample - 1
        return f"<Partials of samples {self.first_sample} to {last}: {self.n_block} blocks>"

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


_ARRAYS = ("chains", "leaf_chains", "log_likelihoods", "flows")


def check_first(first_sample: Any) -> int:
    """Check that blocks begin at a multiple of 256."""
    number = plain(first_sample)
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not 0 <= number < 2**48 or number % BLOCK:
        raise ParameterError(
            f"first_sample: got {shown(first_sample)}, need a multiple of {BLOCK} from 0: blocks "
            f"of {BLOCK} samples are cut in absolute order"
        )
    return int(number)
