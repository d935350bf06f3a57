"""Shares of the samples of a captured step: a graph for each GPU, which counts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from rpukit import _device
from rpukit._device import Device
from rpukit._kernels.lanes import Lanes
from rpukit.circuits.core import Core
from rpukit.circuits.learning.cuda_graph import Graph
from rpukit.circuits.learning.owners import Part
from rpukit.circuits.parameters import Statistics
from rpukit.circuits.partials import BLOCK, full_blocks
from rpukit.circuits.peers import has_numbers
from rpukit.circuits.queries.passes import Pass, Propagation, both_ways, gather, gather_blocks

__all__ = ["Counts", "RowShare", "Share"]

Array = Any
Samples = tuple[Array, Array, Array]


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of samples, in rows that are to be added one after the other.

    Attributes
    ----------
    rows : tuple of array, shape (n_row, n_weight) and (n_row, n_statistic)
        Of weights and of leaves.
    chains : tuple of array, or empty
        The chains of a block that is not finished.
    """

    rows: tuple[Array, Array]
    chains: tuple[Array, ...] = ()

    @classmethod
    def room(cls, like: Counts, dtype: Any, device: Device) -> Counts:
        """Allocate rows like others, of a type and on a device."""
        rows, chains = (
            tuple(_device.empty(array.shape, dtype, device) for array in arrays)
            for arrays in (like.rows, like.chains)
        )
        return cls(rows, chains)

    def arrays(self) -> tuple[Array, ...]:
        """Return all arrays."""
        return (*self.rows, *self.chains)

    def take(self, other: Counts) -> None:
        """Copy counts of the same GPU."""
        for mine, its in zip(self.arrays(), other.arrays(), strict=True):
            mine[...] = its

    def send(self, there: Counts, lanes: Lanes, *after: Any) -> None:
        """Copy the counts to another GPU, after events."""
        for mine, its in zip(self.arrays(), there.arrays(), strict=True):
            if mine.size:
                lanes.put(mine, its, *after)

    def add(self, held: Statistics, part: Part) -> None:
        """Add the rows to a part of the totals, and take over the chains."""
        for rows, total in zip(self.rows, part.of(held.totals, held.leaf_totals), strict=True):
            for k in range(len(rows) if total.size else 0):
                total += rows[k]
        if self.chains:
            chains = part.of(held.chains, held.leaf_chains)
            for mine, chain in zip(self.chains, chains, strict=True):
                chain[:] = mine


class Share:
    """Samples of one GPU, which adds their counts to its totals.

    Parameters
    ----------
    core : Core
        Of that GPU.
    samples : tuple of array
        Codes, numbers and weights, which stay in place.
    out : array, shape (n, n_root)
        Log-likelihoods.
    """

    def __init__(self, core: Core, samples: Samples, out: Array) -> None:
        self.core, self.samples, self.out = core, samples, out
        with _device.using(core.device):
            self.graph = Graph(core.device, self._count, self._count)

    def _passed(self) -> Pass:
        core, (codes, numbers, weights) = self.core, self.samples
        return both_ways(core, Propagation(core.parameters), (codes, numbers), weights, self.out)

    def _count(self) -> None:
        gather(self.core.parameters, self._passed(), self.core.statistics)

    def keep(self, *samples: Array) -> None:
        """Copy samples of the same GPU."""
        for source, target in self._each(samples):
            target[...] = source

    def take(self, samples: Sequence[Array], lanes: Lanes, *after: Any) -> None:
        """Copy samples from the circuit's GPU, after events."""
        for source, target in self._each(samples):
            lanes.put(source, target, *after)

    def _each(self, samples: Sequence[Array]) -> Iterator[tuple[Array, Array]]:
        """Pair arrays of samples with their places; numbers that no leaf reads are left out."""
        for k, pair in enumerate(zip(samples, self.samples, strict=True)):
            if k != 1 or has_numbers(self.core):
                yield pair


class RowShare(Share):
    """Samples of one GPU, whose counts are rows: other GPUs have samples that come before.

    Parameters
    ----------
    core, samples, out
        As of `Share`. The samples begin a block.
    parts : sequence of Part
        Those that other GPUs add.

    Attributes
    ----------
    sent : list of Counts
        Of each of these parts, in the type of the circuit.
    """

    def __init__(self, core: Core, samples: Samples, out: Array, parts: Sequence[Part]) -> None:
        n, pieces, held, self._parts = len(out), core.pieces, core.statistics, parts
        n_row, n_piece = -(-n // BLOCK) * len(pieces), len(pieces)
        self._open = n % BLOCK
        self._n_row = full_blocks(n) * n_piece + (pieces.settled(n % BLOCK) if n % BLOCK else 0)
        with _device.using(core.device):
            # Blocks follow one another in the same chains; each piece has totals of its own.
            self._held = held.fresh()
            self._held.totals, self._held.leaf_totals = (
                _device.zeros((n_row, total.size), total.dtype, core.device)
                for total in (held.totals, held.leaf_totals)
            )
            rows = [self._row(k) for k in range(n_row)]
            self._blocks = [rows[k : k + n_piece] for k in range(0, n_row, n_piece)]
            self._given = [self.counts(part) for part in parts]
            self.sent = [Counts.room(given, core.dtype, core.device) for given in self._given]
        super().__init__(core, samples, out)

    def _row(self, k: int) -> Statistics:
        """Statistics whose totals are those of row k."""
        row = copy(self._held)
        row.totals, row.leaf_totals = self._held.totals[k], self._held.leaf_totals[k]
        return row

    def sent_of(self, part: Part) -> Counts:
        """Return the counts of a part that go to another GPU."""
        return next(c for p, c in zip(self._parts, self.sent, strict=True) if p is part)

    def counts(self, part: Part) -> Counts:
        """Return the counts of a part, on this GPU."""
        held, n = self._held, self._n_row
        rows = part.of(held.totals[:n], held.leaf_totals[:n])
        return Counts(rows, part.of(held.chains, held.leaf_chains) if self._open else ())

    def _count(self) -> None:
        self._held.clear()  # before the passes: no kernel that begins early follows
        core, run = self.core, self._passed()
        gather_blocks(core.parameters, run, self._blocks, core.pieces.ends, 0)
        for sent, given in zip(self.sent, self._given, strict=True):
            sent.take(given)
